//! The facts that expressions may name: each with its unit, what must be computed for it, and how it is read. The one
//! list for terms and constraints; the guide in `expr/README.md` has the same table.

use super::{Candidates, Needs, RequestView};

/// What a fact is of.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum FactOf {
    /// The request: the same for every candidate.
    Request,
    /// The candidate replica.
    Candidate,
    /// What was learned of the candidate's speed.
    Rate,
}

/// One fact.
#[derive(Debug, Clone, Copy)]
pub struct Fact {
    /// Its name in expressions.
    pub name: &'static str,
    /// What it is of.
    pub of: FactOf,
    /// Its unit: `ms`, `tokens`, `requests`, `bytes`, `share`, `ms/token`, `ms/request`.
    pub unit: &'static str,
    /// What it is, one line.
    pub help: &'static str,
    /// What must be computed for it.
    pub needs: Needs,
    /// Its value for a request at a candidate's row; `None` where it is unknown.
    pub read: fn(&RequestView, &Candidates, usize) -> Option<f64>,
}

/// All facts, in documentation order.
pub const FACTS: &[Fact] = &[
    Fact {
        name: "prompt_tokens",
        of: FactOf::Request,
        unit: "tokens",
        help: "prompt tokens, estimated from its bytes or counted",
        needs: Needs::NONE,
        read: |request, _, _| Some(f64::from(request.prompt_tokens)),
    },
    Fact {
        name: "max_tokens",
        of: FactOf::Request,
        unit: "tokens",
        help: "longest answer the client asked for; unknown where it did not say",
        needs: Needs::NONE,
        read: |request, _, _| request.max_tokens.map(f64::from),
    },
    Fact {
        name: "body_bytes",
        of: FactOf::Request,
        unit: "bytes",
        help: "size of the request body",
        needs: Needs::NONE,
        read: |request, _, _| Some(whole(request.body_bytes)),
    },
    Fact {
        name: "slo_ttft_ms",
        of: FactOf::Request,
        unit: "ms",
        help: "TTFT asked for with the header x-slo-ttft-ms; unknown where it did not say, and in traces",
        needs: Needs::NONE,
        read: |request, _, _| request.slo_ttft_ms,
    },
    Fact {
        name: "rtt_ms",
        of: FactOf::Candidate,
        unit: "ms",
        help: "smoothed round trip on a warm connection; unknown until measured",
        needs: Needs::RTT,
        read: |_, all, row| all.rtt_ms[row],
    },
    Fact {
        name: "rtt_p95_ms",
        of: FactOf::Candidate,
        unit: "ms",
        help: "95th percentile of recent round trips; unknown until measured",
        needs: Needs::RTT,
        read: |_, all, row| all.rtt_p95_ms[row],
    },
    Fact {
        name: "cached_tokens",
        of: FactOf::Candidate,
        unit: "tokens",
        help: "prompt tokens of this request that the index believes cached there",
        needs: Needs::PREFIX,
        read: |_, all, row| Some(f64::from(all.cached_tokens[row])),
    },
    Fact {
        name: "uncached_tokens",
        of: FactOf::Candidate,
        unit: "tokens",
        help: "prompt tokens of this request that it would have to compute",
        needs: Needs::PREFIX,
        read: |request, all, row| Some(f64::from(all.uncached_tokens(request, row))),
    },
    Fact {
        name: "queued_tokens",
        of: FactOf::Candidate,
        unit: "tokens",
        help: "prompt tokens of this router's requests there that are not completed",
        needs: Needs::LOAD,
        read: |_, all, row| Some(whole(all.queued_tokens[row])),
    },
    Fact {
        name: "queued_uncached_tokens",
        of: FactOf::Candidate,
        unit: "tokens",
        help: "uncached prompt tokens of this router's requests there without a first token yet",
        needs: Needs::LOAD,
        read: |_, all, row| Some(whole(all.queued_uncached_tokens[row])),
    },
    Fact {
        name: "inflight",
        of: FactOf::Candidate,
        unit: "requests",
        help: "this router's requests there",
        needs: Needs::LOAD,
        read: |_, all, row| Some(f64::from(all.inflight[row])),
    },
    Fact {
        name: "decoding",
        of: FactOf::Candidate,
        unit: "requests",
        help: "those of them past their first token",
        needs: Needs::LOAD,
        read: |_, all, row| Some(f64::from(all.decoding[row])),
    },
    Fact {
        name: "engine_running",
        of: FactOf::Candidate,
        unit: "requests",
        help: "running requests as the engine's last report has them; unknown when that is too old",
        needs: Needs::REPORT,
        read: |_, all, row| all.engine_running[row],
    },
    Fact {
        name: "engine_waiting",
        of: FactOf::Candidate,
        unit: "requests",
        help: "waiting requests by the same report",
        needs: Needs::REPORT,
        read: |_, all, row| all.engine_waiting[row],
    },
    Fact {
        name: "kv_used_tokens",
        of: FactOf::Candidate,
        unit: "tokens",
        help: "KV cache tokens in use by the same report",
        needs: Needs::REPORT,
        read: |_, all, row| all.kv_used_tokens[row],
    },
    Fact {
        name: "kv_used_share",
        of: FactOf::Candidate,
        unit: "share",
        help: "share of the KV cache in use by the same report, 0 to 1",
        needs: Needs::REPORT,
        read: |_, all, row| all.kv_used_share[row],
    },
    Fact {
        name: "report_age_ms",
        of: FactOf::Candidate,
        unit: "ms",
        help: "age of the engine's last report, also when that is too old; unknown where there was none",
        needs: Needs::REPORT,
        read: |_, all, row| all.report_age_ms[row],
    },
    Fact {
        name: "prefill_ms_per_token",
        of: FactOf::Rate,
        unit: "ms/token",
        help: "learned prefill time per uncached token; unknown until learned",
        needs: Needs::RATES,
        read: |_, all, row| all.prefill_ms_per_token[row],
    },
    Fact {
        name: "queue_ms_per_token",
        of: FactOf::Rate,
        unit: "ms/token",
        help: "learned waiting time per queued uncached token; unknown until learned",
        needs: Needs::RATES,
        read: |_, all, row| all.queue_ms_per_token[row],
    },
    Fact {
        name: "decode_ms_per_request",
        of: FactOf::Rate,
        unit: "ms/request",
        help: "learned slow-down per request that decodes there; unknown until learned",
        needs: Needs::RATES,
        read: |_, all, row| all.decode_ms_per_request[row],
    },
];

/// The names of [`FACTS`], in their order.
pub const FACT_NAMES: &[&str] = &{
    let mut names = [""; FACTS.len()];
    let mut place = 0;
    while place < names.len() {
        names[place] = FACTS[place].name;
        place += 1;
    }
    names
};

/// The units of [`FACTS`], in their order.
pub const FACT_UNITS: &[&str] = &{
    let mut units = [""; FACTS.len()];
    let mut place = 0;
    while place < units.len() {
        units[place] = FACTS[place].unit;
        place += 1;
    }
    units
};

#[expect(clippy::cast_precision_loss, reason = "tokens and bytes stay far below 2^53")]
fn whole(count: u64) -> f64 {
    count as f64
}
