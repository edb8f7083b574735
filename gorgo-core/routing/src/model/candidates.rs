//! The facts of one decision, column by column: row *i* is the same replica in every column.
//!
//! One `Candidates` is reused from decision to decision, so the hot path allocates nothing per replica.
//! `None` means unknown (never measured, or too old): a term's `unknown` rule decides what that costs.

use super::{ReplicaId, RequestView};

/// Where a round-trip figure comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum RttSource {
    /// Nothing measured yet.
    #[default]
    Unknown,
    /// The light probe on its own warm connection.
    Probe,
    /// The kernel's estimate on live connections, where the probe agrees with it.
    Kernel,
}

impl RttSource {
    /// All sources.
    pub const ALL: [Self; 3] = [Self::Unknown, Self::Probe, Self::Kernel];

    /// The text stored in the database.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Unknown => "unknown",
            Self::Probe => "probe",
            Self::Kernel => "kernel",
        }
    }
}

/// What a share is a share of.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ShareOf {
    /// Prompt tokens that were not cached.
    UncachedTokens,
    /// Prompt tokens.
    PromptTokens,
    /// Requests.
    Requests,
}

/// How far back a share looks.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum WindowLength {
    /// This many seconds.
    Seconds(f64),
    /// This many decisions.
    Decisions(u32),
}

/// A sliding window of routed work that a constraint asks for.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct ShareWindow {
    /// What is counted.
    pub of: ShareOf,
    /// Over what.
    pub length: WindowLength,
}

/// The facts a policy reads, as a bit set: only what is needed is computed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Needs(u32);

impl Needs {
    /// Nothing.
    pub const NONE: Self = Self(0);
    /// `rtt_ms`, `rtt_p95_ms`, `rtt_source`.
    pub const RTT: Self = Self(1);
    /// `cached_tokens`: the walk of the prefix index.
    pub const PREFIX: Self = Self(1 << 1);
    /// `queued_*`, `inflight`, `decoding`.
    pub const LOAD: Self = Self(1 << 2);
    /// `engine_*`, `kv_*`, `report_age_ms`.
    pub const REPORT: Self = Self(1 << 3);
    /// `prefill_ms_per_token`, `queue_ms_per_token`, `decode_ms_per_request`, `intercept_ms`.
    pub const RATES: Self = Self(1 << 4);
    /// `latency_ms`.
    pub const LATENCY: Self = Self(1 << 5);
    /// `backlog_ms`, `service_*`, `likely_uncached_tokens`, `itl_*`, `answer_tokens`, `tail_start_ms`.
    pub const SERVICE: Self = Self(1 << 6);
    /// `network_trips`.
    pub const NETWORK: Self = Self(1 << 7);

    /// All facts there are.
    pub const ALL: Self = Self((1 << 6) - 1);

    /// The set of these bits, as plugins state it; `None` where one of them is no fact of this version.
    #[must_use]
    pub const fn from_bits(bits: u32) -> Option<Self> {
        if bits & !Self::ALL.0 == 0 { Some(Self(bits)) } else { None }
    }

    /// The set as bits.
    #[must_use]
    pub const fn bits(self) -> u32 {
        self.0
    }

    /// Both sets together.
    #[must_use]
    pub const fn and(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// Whether all of `other` is in this set.
    #[must_use]
    pub const fn contains(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }
}

/// The candidate replicas of one decision and all that is known of them.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Candidates {
    /// Who. All other columns have this length.
    pub replica: Vec<ReplicaId>,
    /// A stable hash of each replica's name, for rendezvous hashing: independent of order and of who else is there.
    pub name_hash: Vec<u64>,
    /// The replica's region, as an index into the fleet's region list.
    pub region: Vec<u16>,
    /// May it be used at all (healthy, enabled, serves the model).
    pub available: Vec<bool>,
    /// Smoothed round trip on a warm connection, ms.
    pub rtt_ms: Vec<Option<f64>>,
    /// 95th percentile of recent round trips, ms; losses count as the time-out.
    pub rtt_p95_ms: Vec<Option<f64>>,
    /// Round trips that this request needs on the connection that it would get, at least 1; `None` where nobody tells.
    pub network_trips: Vec<Option<f64>>,
    /// Where `rtt_ms` comes from.
    pub rtt_source: Vec<RttSource>,
    /// Prompt tokens of this request that the index believes cached there.
    pub cached_tokens: Vec<u32>,
    /// Prompt tokens of this router's requests there that are not completed.
    pub queued_tokens: Vec<u64>,
    /// The same, of requests without a first token yet.
    pub queued_tokens_first: Vec<u64>,
    /// Uncached prompt tokens of requests there that are not completed.
    pub queued_uncached_tokens_completion: Vec<u64>,
    /// The same, of requests without a first token yet: the prefill still to be done.
    pub queued_uncached_tokens: Vec<u64>,
    /// This router's requests there.
    pub inflight: Vec<u32>,
    /// Those past their first token.
    pub decoding: Vec<u32>,
    /// This router's requests dispatched there since the engine's last report, less those that ended since: what the
    /// report's figures must be carried on by. 0 without a report.
    pub inflight_since_report: Vec<i64>,
    /// Running requests by the engine's last fresh report.
    pub engine_running: Vec<Option<f64>>,
    /// Waiting requests by the engine's last fresh report.
    pub engine_waiting: Vec<Option<f64>>,
    /// KV tokens in use by the engine's last fresh report.
    pub kv_used_tokens: Vec<Option<f64>>,
    /// Share of the KV cache in use, 0 to 1, by the engine's last fresh report.
    pub kv_used_share: Vec<Option<f64>>,
    /// Generation throughput by the engine's last fresh report, tokens/s.
    pub engine_throughput: Vec<Option<f64>>,
    /// Age of the engine's last report, ms; also when it is too old to be used.
    pub report_age_ms: Vec<Option<f64>>,
    /// Smoothed TTFT observed at the replica, ms.
    pub latency_ms: Vec<Option<f64>>,
    /// Learned prefill time, ms per uncached token.
    pub prefill_ms_per_token: Vec<Option<f64>>,
    /// Learned waiting time, ms per queued uncached token.
    pub queue_ms_per_token: Vec<Option<f64>>,
    /// Learned slow-down, ms per request decoding there.
    pub decode_ms_per_request: Vec<Option<f64>>,
    /// Learned fixed part of TTFT beyond the round trip, ms.
    pub intercept_ms: Vec<Option<f64>>,
    /// Prefill work that this router has sent there and that a request sent now would wait for, ms.
    pub backlog_ms: Vec<f64>,
    /// Prompt tokens of this request that will most likely have to be computed there, at least 1: what the index says,
    /// corrected by how often it was right.
    pub likely_uncached_tokens: Vec<f64>,
    /// Learned from requests that met no backlog: fixed part of TTFT beyond the round trip, ms.
    pub service_fixed_ms: Vec<f64>,
    /// The same: ms per prompt token to compute.
    pub service_ms_per_token: Vec<f64>,
    /// The same: ms per request decoding there.
    pub service_ms_per_decoding: Vec<f64>,
    /// Learned time between two tokens of an answer where nobody else is served, ms.
    pub itl_alone_ms: Vec<f64>,
    /// What each request in flight there adds to it, ms.
    pub itl_ms_per_request: Vec<f64>,
    /// Mean length of recent answers, tokens; of the whole fleet.
    pub answer_tokens: f64,
    /// Where the tail of recent TTFT begins, ms; of the whole fleet. `None` until enough were seen.
    pub tail_start_ms: Option<f64>,
    /// KV capacity in tokens, 0 when unknown (`max_ratio` of the concentration constraint).
    pub capacity_tokens: Vec<u64>,
    /// Per share window that the policy asked for: the window's amount per replica, in the window's own unit.
    pub windows: Vec<Vec<f64>>,
    /// Per share window: how many decisions are in it.
    pub window_decisions: Vec<u64>,
}

impl Candidates {
    /// How many candidates there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.replica.len()
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.replica.is_empty()
    }

    /// Uncached prompt tokens of `request` at row `row`.
    #[must_use]
    pub fn uncached_tokens(&self, request: &RequestView, row: usize) -> u32 {
        request.prompt_tokens.saturating_sub(self.cached_tokens[row])
    }

    /// Running requests at row `row`: the engine's last fresh report, carried on by what this router sent and saw end
    /// since then. `None` without such a report.
    #[must_use]
    #[expect(clippy::cast_precision_loss, reason = "requests in flight stay far below 2^53")]
    pub fn running_now(&self, row: usize) -> Option<f64> {
        self.engine_running[row].map(|running| (running + self.inflight_since_report[row] as f64).max(0.0))
    }

    /// Running requests at row `row`: as the engine last said, however many came and went since then, if `as_reported`;
    /// else [`Candidates::running_now`].
    #[must_use]
    pub fn running(&self, row: usize, as_reported: bool) -> Option<f64> {
        if as_reported { self.engine_running[row] } else { self.running_now(row) }
    }

    /// Requests in flight per available candidate.
    #[must_use]
    #[expect(clippy::cast_precision_loss, reason = "requests in flight stay far below 2^53")]
    pub fn mean_inflight(&self) -> f64 {
        let available = self.inflight.iter().zip(&self.available).filter(|(_, available)| **available);
        let (requests, replicas) =
            available.fold((0_u64, 0_u64), |(sum, count), (inflight, _)| (sum + u64::from(*inflight), count + 1));
        requests as f64 / replicas.max(1) as f64
    }

    /// Makes every column `rows` long with nothing known, keeping the allocations.
    pub fn reset(&mut self, rows: usize, share_windows: usize) {
        fn fill<T: Clone>(column: &mut Vec<T>, rows: usize, value: T) {
            column.clear();
            column.resize(rows, value);
        }
        fill(&mut self.replica, rows, ReplicaId(0));
        fill(&mut self.name_hash, rows, 0);
        fill(&mut self.region, rows, 0);
        fill(&mut self.available, rows, true);
        fill(&mut self.rtt_source, rows, RttSource::Unknown);
        fill(&mut self.cached_tokens, rows, 0);
        fill(&mut self.inflight, rows, 0);
        fill(&mut self.decoding, rows, 0);
        fill(&mut self.inflight_since_report, rows, 0);
        for column in [
            &mut self.queued_tokens,
            &mut self.queued_tokens_first,
            &mut self.queued_uncached_tokens_completion,
            &mut self.queued_uncached_tokens,
            &mut self.capacity_tokens,
        ] {
            fill(column, rows, 0);
        }
        for column in [
            &mut self.rtt_ms,
            &mut self.rtt_p95_ms,
            &mut self.network_trips,
            &mut self.engine_running,
            &mut self.engine_waiting,
            &mut self.kv_used_tokens,
            &mut self.kv_used_share,
            &mut self.engine_throughput,
            &mut self.report_age_ms,
            &mut self.latency_ms,
            &mut self.prefill_ms_per_token,
            &mut self.queue_ms_per_token,
            &mut self.decode_ms_per_request,
            &mut self.intercept_ms,
        ] {
            fill(column, rows, None);
        }
        for column in [
            &mut self.backlog_ms,
            &mut self.likely_uncached_tokens,
            &mut self.service_fixed_ms,
            &mut self.service_ms_per_token,
            &mut self.service_ms_per_decoding,
            &mut self.itl_alone_ms,
            &mut self.itl_ms_per_request,
        ] {
            fill(column, rows, 0.0);
        }
        (self.answer_tokens, self.tail_start_ms) = (0.0, None);
        self.windows.resize_with(share_windows, Vec::new);
        for window in &mut self.windows {
            fill(window, rows, 0.0);
        }
        fill(&mut self.window_decisions, share_windows, 0);
    }
}
