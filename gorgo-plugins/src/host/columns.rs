//! Facts of a decision → the contract's columns: only those that were requested, in memory that is reused.

use std::mem;

use gorgo_routing::model::{Candidates, FACTS, FactScope, RequestView, RequiredFacts};

use super::descriptor::AskedFacts;
use crate::abi;

/// A column of numbers that may be unknown, and the contract's pointer that must point to it.
type WantedColumn<'a> = (&'a [Option<f64>], &'a mut *const f64);

/// Memory of one call: columns whose type differs from the router's, and the columns of the answer.
#[derive(Debug, Default)]
pub(crate) struct ColumnBuffers {
    replica: Vec<u32>,
    available: Vec<u8>,
    /// Numbers that may be unknown, column after column.
    numbers: Vec<f64>,
    /// Pointers to the facts that are requested by name.
    named: Vec<*const f64>,
    pub(crate) value: Vec<f64>,
    pub(crate) known: Vec<u8>,
}

/// Size of a struct of the contract, bytes.
pub(crate) const fn size<T>() -> u32 {
    #[expect(clippy::cast_possible_truncation, reason = "the contract's structs are far below 4 GiB")]
    let size = mem::size_of::<T>() as u32;
    size
}

/// The request as the contract passes it.
pub(crate) fn request(view: &RequestView) -> abi::AbiRequest {
    abi::AbiRequest {
        struct_size: size::<abi::AbiRequest>(),
        prompt_tokens: view.prompt_tokens,
        max_tokens: view.max_tokens.unwrap_or(0),
        reserved: 0,
        body_bytes: view.body_bytes,
        session_hash: view.session_hash,
        head_hash: view.head_hash,
        turn: view.decision_number,
        slo_ttft_ms: view.slo_ttft_ms.unwrap_or(f64::NAN),
    }
}

/// Columns without any row or fact.
pub(crate) const fn empty_columns() -> abi::AbiColumns {
    use std::ptr::null;
    abi::AbiColumns {
        struct_size: size::<abi::AbiColumns>(),
        present: 0,
        count: 0,
        replica: null(),
        available: null(),
        name_hash: null(),
        capacity_tokens: null(),
        rtt_ms: null(),
        rtt_p95_ms: null(),
        cached_tokens: null(),
        queued_tokens: null(),
        queued_tokens_first: null(),
        queued_uncached_tokens_completion: null(),
        queued_uncached_tokens: null(),
        inflight: null(),
        decoding: null(),
        inflight_since_report: null(),
        engine_running: null(),
        engine_waiting: null(),
        kv_used_tokens: null(),
        kv_used_share: null(),
        engine_throughput: null(),
        report_age_ms: null(),
        latency_ms: null(),
        prefill_ms_per_token: null(),
        queue_ms_per_token: null(),
        decode_ms_per_request: null(),
        intercept_ms: null(),
        facts: null(),
        fact_count: 0,
    }
}

impl ColumnBuffers {
    /// The columns of `facts` that are requested. They point into `facts` and into this room, and are valid until either
    /// of them changes.
    pub(crate) fn columns(&mut self, view: &RequestView, facts: &Candidates, asks: &AskedFacts) -> abi::AbiColumns {
        let (count, needs) = (facts.len(), asks.groups);
        self.replica.clear();
        self.replica.extend(facts.replica.iter().map(|replica| u32::from(replica.0)));
        self.available.clear();
        self.available.extend(facts.available.iter().map(|available| u8::from(*available)));
        // NaN and "known": a row that the plugin forgets is then an unusable number and not a valid 0.
        self.value.clear();
        self.value.resize(count, f64::NAN);
        self.known.clear();
        self.known.resize(count, 1);
        // Columns whose type is the router's own are passed without a copy.
        let mut columns = empty_columns();
        columns.present = needs.bits();
        columns.count = count;
        columns.replica = self.replica.as_ptr();
        columns.available = self.available.as_ptr();
        columns.name_hash = facts.name_hash.as_ptr();
        columns.capacity_tokens = facts.capacity_tokens.as_ptr();
        if needs.contains(RequiredFacts::PREFIX) {
            columns.cached_tokens = facts.cached_tokens.as_ptr();
        }
        if needs.contains(RequiredFacts::LOAD) {
            columns.queued_tokens = facts.queued_tokens.as_ptr();
            columns.queued_tokens_first = facts.queued_tokens_first.as_ptr();
            columns.queued_uncached_tokens_completion = facts.queued_uncached_tokens_completion.as_ptr();
            columns.queued_uncached_tokens = facts.queued_uncached_tokens.as_ptr();
            columns.inflight = facts.inflight.as_ptr();
            columns.decoding = facts.decoding.as_ptr();
        }
        if needs.contains(RequiredFacts::REPORT) {
            columns.inflight_since_report = facts.inflight_since_report.as_ptr();
        }
        // The router has unknown numbers as `None`, the contract as NaN, so these columns are copied. They are collected
        // first, so that `numbers` can be reserved at its final size.
        let mut wanted: [Option<WantedColumn<'_>>; 13] = [const { None }; 13];
        let mut last = 0;
        let mut want = |needed, from, to| {
            if needs.contains(needed) {
                wanted[last] = Some((from, to));
                last += 1;
            }
        };
        want(RequiredFacts::RTT, &*facts.rtt_ms, &mut columns.rtt_ms);
        want(RequiredFacts::RTT, &facts.rtt_p95_ms, &mut columns.rtt_p95_ms);
        want(RequiredFacts::REPORT, &facts.engine_running, &mut columns.engine_running);
        want(RequiredFacts::REPORT, &facts.engine_waiting, &mut columns.engine_waiting);
        want(RequiredFacts::REPORT, &facts.kv_used_tokens, &mut columns.kv_used_tokens);
        want(RequiredFacts::REPORT, &facts.kv_used_share, &mut columns.kv_used_share);
        want(RequiredFacts::REPORT, &facts.engine_throughput, &mut columns.engine_throughput);
        want(RequiredFacts::REPORT, &facts.report_age_ms, &mut columns.report_age_ms);
        want(RequiredFacts::LATENCY, &facts.latency_ms, &mut columns.latency_ms);
        want(RequiredFacts::RATES, &facts.prefill_ms_per_token, &mut columns.prefill_ms_per_token);
        want(RequiredFacts::RATES, &facts.queue_ms_per_token, &mut columns.queue_ms_per_token);
        want(RequiredFacts::RATES, &facts.decode_ms_per_request, &mut columns.decode_ms_per_request);
        want(RequiredFacts::RATES, &facts.intercept_ms, &mut columns.intercept_ms);
        self.numbers.clear();
        // Reserved all at once: pointers into it are handed out below, and growing would move what they point to.
        self.numbers.reserve((last + asks.named.len()) * count);
        for (from, to) in wanted.into_iter().flatten() {
            let start = self.numbers.len();
            self.numbers.extend(from.iter().map(|number| number.unwrap_or(f64::NAN)));
            *to = self.numbers[start..].as_ptr();
        }
        self.named.clear();
        for place in &asks.named {
            let fact = &FACTS[*place];
            if let Some(plain) = (fact.plain)(facts) {
                self.named.push(plain.as_ptr());
                continue;
            }
            let start = self.numbers.len();
            let number = |row| (fact.read)(view, facts, row).unwrap_or(f64::NAN);
            match fact.scope {
                // One number for all rows, read once: reading some of them goes through all candidates.
                FactScope::Request | FactScope::Fleet => self.numbers.resize(start + count, number(0)),
                FactScope::Candidate | FactScope::Rate => self.numbers.extend((0..count).map(number)),
            }
            self.named.push(self.numbers[start..].as_ptr());
        }
        if !self.named.is_empty() {
            (columns.facts, columns.fact_count) = (self.named.as_ptr(), self.named.len());
        }
        columns
    }

    /// Buffers for the answer.
    pub(crate) fn output(&mut self) -> abi::AbiOutput {
        abi::AbiOutput {
            struct_size: size::<abi::AbiOutput>(),
            reserved: 0,
            count: self.value.len(),
            value: self.value.as_mut_ptr(),
            known: self.known.as_mut_ptr(),
        }
    }
}
