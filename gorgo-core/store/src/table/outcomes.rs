//! `outcomes`: a row per request that ended.

#[cfg(test)]
use super::sample::*;
use super::{HistoryTable, with_decision};
use crate::write::batch::Batch;
use crate::write::loss::{RowLoss, moment_of};
use crate::write::statement::{BatchStatements, InsertStatement, insert};
#[cfg(test)]
use gorgo_routing::model::{ApiPath, ErrorClass, RouteLabels};
use gorgo_routing::model::{OutcomeRecord, StoreRecord};

pub(super) const TABLE: HistoryTable = HistoryTable {
    name: "outcomes",
    retention: with_decision!(outcomes),
    // Outcomes have no absolute time but that in the decision's id.
    loss: |record| row(record).map(|row| RowLoss::at(moment_of(row.decision), 1)),
    write,
    #[cfg(test)]
    checks: super::Checks { inserts: &[&INSERT], filled_later: &[], others: &[], sample },
};

const INSERT: InsertStatement = insert!(outcomes(
    decision_id,
    status,
    error,
    ttft_us,
    first_byte_us,
    e2e_us,
    itl_mean_us,
    itl_p99_us,
    prompt_tokens,
    cached_tokens,
    completion_tokens,
    predicted_ttft_us,
    predicted_cached_tokens,
    itl_1,
    itl_2,
    itl_3,
    itl_4,
    itl_5,
    itl_6,
    itl_7,
    itl_8
));

const ITL: [&str; 8] = ["itl_1", "itl_2", "itl_3", "itl_4", "itl_5", "itl_6", "itl_7", "itl_8"];

fn row(record: &StoreRecord) -> Option<&OutcomeRecord> {
    if let StoreRecord::Outcome(_, outcome) = record { Some(outcome) } else { None }
}

fn write(batch: &Batch<'_>, to: &mut BatchStatements) {
    // The route of the record is for metrics only: the decision's row has path and replica.
    to.insert(&INSERT, batch.records.iter().filter_map(row), |to, row| {
        to.int("decision_id", row.decision.0);
        to.maybe("status", row.status);
        to.code("error", row.error);
        to.maybe("ttft_us", row.ttft_us);
        to.maybe("first_byte_us", row.first_byte_us);
        to.int("e2e_us", row.e2e_us);
        to.maybe("itl_mean_us", row.itl_mean_us);
        to.maybe("itl_p99_us", row.itl_p99_us);
        to.maybe("prompt_tokens", row.prompt_tokens);
        to.maybe("cached_tokens", row.cached_tokens);
        to.maybe("completion_tokens", row.completion_tokens);
        to.maybe("predicted_ttft_us", row.predicted_ttft_us);
        to.maybe("predicted_cached_tokens", row.predicted_cached_tokens);
        // All NULL if the answer had no gaps to count.
        for (place, column) in ITL.iter().enumerate() {
            to.maybe(column, row.itl_counts.map(|counts| counts[place]));
        }
    });
}

#[cfg(test)]
fn sample() -> BoxedStrategy<StoreRecord> {
    let time = || option::of(any::<i64>());
    let tokens = || option::of(any::<u32>());
    let ends = (decision_id(), option::of(any::<u16>()), option::of(select(&ErrorClass::ALL[..])));
    let times = (time(), time(), any::<i64>(), time(), time(), time(), option::of(any::<[u32; 8]>()));
    let counts = (tokens(), tokens(), tokens(), tokens());
    let record = |(ends, times, tokens): ((_, _, _), (_, _, _, _, _, _, _), (_, _, _, _))| OutcomeRecord {
        decision: ends.0,
        status: ends.1,
        error: ends.2,
        ttft_us: times.0,
        first_byte_us: times.1,
        e2e_us: times.2,
        itl_mean_us: times.3,
        itl_p99_us: times.4,
        itl_counts: times.6,
        prompt_tokens: tokens.0,
        cached_tokens: tokens.1,
        completion_tokens: tokens.2,
        predicted_ttft_us: times.5,
        predicted_cached_tokens: tokens.3,
    };
    let route = RouteLabels { path: ApiPath::ChatCompletions, replica: None };
    (ends, times, counts).prop_map(move |all| StoreRecord::Outcome(route, Box::new(record(all)))).boxed()
}
