//! Cost terms, one file each.

mod answer;
mod backlog;
mod batch_work;
mod compute;
mod constant;
mod drain;
mod expression;
mod hash;
mod inflight;
mod kv_pressure;
mod kv_tokens;
mod kv_usage;
mod latency;
mod min_max;
mod miss_share;
mod network;
mod prefill;
mod queue;
mod rtt;
mod running;
mod stall;
mod tail_start;
mod throughput;
mod turn;
mod waiting;

use super::TermKind;

/// All kinds of term. A new one is a file here and a line in this table.
pub const TERMS: &[&TermKind] = &[
    &rtt::KIND,
    &network::KIND,
    &prefill::KIND,
    &queue::KIND,
    &inflight::KIND,
    &running::KIND,
    &waiting::KIND,
    &kv_usage::KIND,
    &kv_tokens::KIND,
    &throughput::KIND,
    &latency::KIND,
    &backlog::KIND,
    &compute::KIND,
    &stall::KIND,
    &answer::KIND,
    &tail_start::KIND,
    &drain::KIND,
    &kv_pressure::KIND,
    &min_max::KIND,
    &miss_share::KIND,
    &batch_work::KIND,
    &constant::KIND,
    &hash::KIND,
    &turn::KIND,
    &expression::KIND,
];

#[cfg(test)]
mod tests;
