//! The facts of one decision, column by column: row *i* is the same replica in every column.
//!
//! One `Candidates` is reused from decision to decision, so the hot path allocates nothing per replica.
//! `None` means unknown (never measured, or too old): a term's `unknown` rule decides what that costs.

use super::{FactDefinition, FactScope, ReplicaId, RequestView};

/// Source of a round-trip figure.
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

/// Quantity that a share is computed over.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ShareBasis {
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
    /// Quantity that is counted.
    pub basis: ShareBasis,
    /// Length of the window.
    pub length: WindowLength,
}

/// Groups of facts that a term, a constraint or a policy reads, as a bit set.
///
/// Only the round trips of [`RequiredFacts::NETWORK`] are computed on demand, because the connections must be queried for them:
/// the rows of a decision need most of the other facts whichever policy decides, so all of them are filled in each time.
/// The set says which facts a plugin receives, whether an expression's signal can rise with load, and what a term would
/// miss if it were shown fewer facts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct RequiredFacts(u32);

impl RequiredFacts {
    /// Nothing.
    pub const NONE: Self = Self(0);
    /// Round trips.
    pub const RTT: Self = Self(1);
    /// Cached tokens: the walk of the prefix index.
    pub const PREFIX: Self = Self(1 << 1);
    /// This router's requests and the tokens of their prompts.
    pub const LOAD: Self = Self(1 << 2);
    /// Figures that the engine reports.
    pub const REPORT: Self = Self(1 << 3);
    /// Rates learned from all requests.
    pub const RATES: Self = Self(1 << 4);
    /// TTFT as observed.
    pub const LATENCY: Self = Self(1 << 5);
    /// Service times learned from requests that met no backlog; answers; the tail of recent TTFT.
    pub const SERVICE: Self = Self(1 << 6);
    /// Round trips that a request needs on the connection that it would get.
    pub const NETWORK: Self = Self(1 << 7);
    /// Prefill work ahead of a request.
    pub const BACKLOG: Self = Self(1 << 8);

    /// All groups there are.
    pub const ALL: Self = Self((1 << 9) - 1);

    /// The set of these bits; `None` where one of them is no group of this version.
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
    pub const fn union(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// Returns true if all of `other` is in this set.
    #[must_use]
    pub const fn contains(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }
}

/// A value of a column, as a number.
trait Cell: Copy {
    /// Value where nothing was filled in.
    const EMPTY: Self;

    /// The number; `None`: unknown.
    fn number(self) -> Option<f64>;

    /// The value for a number; 0 where it is unknown, or where the column cannot hold it and has no value for *unknown*.
    fn of(number: Option<f64>) -> Self;

    /// The column itself, where its values are plain numbers.
    fn plain(_column: &[Self]) -> Option<&[f64]> {
        None
    }
}

impl Cell for Option<f64> {
    const EMPTY: Self = None;

    fn number(self) -> Option<f64> {
        self
    }

    fn of(number: Self) -> Self {
        number
    }
}

impl Cell for f64 {
    const EMPTY: Self = 0.0;

    fn number(self) -> Option<f64> {
        Some(self)
    }

    fn of(number: Option<f64>) -> Self {
        number.unwrap_or(Self::EMPTY)
    }

    fn plain(column: &[Self]) -> Option<&[f64]> {
        Some(column)
    }
}

macro_rules! whole_number_cells {
    ($($type:ty: $number:expr, $of:expr;)*) => { $(
        impl Cell for $type {
            const EMPTY: Self = 0;

            fn number(self) -> Option<f64> {
                Some($number(self))
            }

            fn of(number: Option<f64>) -> Self {
                $of(whole(number))
            }
        }
    )* };
}

whole_number_cells! {
    u32: f64::from, |whole| u32::try_from(whole).unwrap_or(0);
    u64: unsigned, |whole| u64::try_from(whole).unwrap_or(0);
    i64: signed, |whole| whole;
}

#[expect(clippy::cast_precision_loss, reason = "tokens and requests stay far below 2^53")]
fn unsigned(count: u64) -> f64 {
    count as f64
}

#[expect(clippy::cast_precision_loss, reason = "requests stay far below 2^53")]
fn signed(count: i64) -> f64 {
    count as f64
}

#[expect(clippy::cast_possible_truncation, reason = "counts are whole and far below 2^63")]
fn whole(number: Option<f64>) -> i64 {
    // `as` saturates and turns NaN into 0, so no number can make this panic.
    number.unwrap_or(0.0) as i64
}

/// Makes [`Candidates`] of the table below, and of its first part the facts that expressions and plugins may name.
macro_rules! candidates {
    (
        facts { $($fact:ident: $fact_type:ty, $needs:ident, $of:ident, $unit:literal, $help:literal;)* }
        others { $($(#[doc = $doc:literal])+ $other:ident: $other_type:ty = $empty:expr;)* }
        fleet { $($(#[doc = $fleet_doc:literal])+ $fleet:ident: $fleet_type:ty = $fleet_empty:expr;)* }
    ) => {
        /// The candidate replicas of one decision and all that is known of them.
        #[derive(Debug, Clone, Default, PartialEq)]
        pub struct Candidates {
            $($(#[doc = $doc])+ pub $other: Vec<$other_type>,)*
            $(#[doc = concat!($help, "; ", $unit)] pub $fact: Vec<$fact_type>,)*
            $($(#[doc = $fleet_doc])+ pub $fleet: $fleet_type,)*
            /// Per share window that the policy reads: the window's amount per replica, in the window's own unit.
            pub windows: Vec<Vec<f64>>,
            /// Per share window: number of decisions in it.
            pub window_decisions: Vec<u64>,
        }

        /// The facts that are separate columns, in table order.
        pub(super) const COLUMN_FACTS: &[FactDefinition] = &[$(
            FactDefinition {
                name: stringify!($fact),
                scope: FactScope::$of,
                unit: $unit,
                help: $help,
                needs: RequiredFacts::$needs,
                read: |_, all, row| all.$fact[row].number(),
                plain: |all| Cell::plain(&all.$fact),
            },
        )*];

        impl Candidates {
            /// Makes every column `rows` long with nothing known, keeping the allocations.
            pub fn reset(&mut self, rows: usize, share_windows: usize) {
                $(fill(&mut self.$other, rows, $empty);)*
                $(fill(&mut self.$fact, rows, <$fact_type>::EMPTY);)*
                $(self.$fleet = $fleet_empty;)*
                // Resized, not replaced: the inner vectors keep their allocations, so that the hot path allocates nothing.
                self.windows.resize_with(share_windows, Vec::new);
                for window in &mut self.windows {
                    fill(window, rows, 0.0);
                }
                fill(&mut self.window_decisions, share_windows, 0);
            }

            /// Copies all that `from` knows of the replica in its row `source` to row `target`.
            pub fn copy_row(&mut self, target: usize, from: &Self, source: usize) {
                $(self.$other[target] = from.$other[source];)*
                $(self.$fact[target] = from.$fact[source];)*
                for (window, from) in self.windows.iter_mut().zip(&from.windows) {
                    window[target] = from[source];
                }
            }

            /// Copies all that `from` knows of the fleet as a whole.
            pub fn copy_fleet(&mut self, from: &Self) {
                $(self.$fleet = from.$fleet;)*
                self.window_decisions.clone_from(&from.window_decisions);
            }

            /// Writes the column that is the fact of this name; `false` if there is no such column. For generated facts in tests.
            pub fn invent(&mut self, fact: &str, row: usize, number: Option<f64>) -> bool {
                match fact {
                    $(stringify!($fact) => self.$fact[row] = Cell::of(number),)*
                    _ => return false,
                }
                true
            }

            /// Clears the facts of all groups but these, as if they had never been filled in.
            #[cfg(test)]
            pub(crate) fn forget_all_but(&mut self, needs: RequiredFacts) {
                let rows = self.len();
                $(if !needs.contains(RequiredFacts::$needs) {
                    fill(&mut self.$fact, rows, <$fact_type>::EMPTY);
                })*
                // Fleet-wide facts are all learned from served requests, so they form one group with the service facts.
                if !needs.contains(RequiredFacts::SERVICE) {
                    $(self.$fleet = $fleet_empty;)*
                }
            }
        }
    };
}

fn fill<T: Clone>(column: &mut Vec<T>, rows: usize, value: T) {
    // Clearing keeps the allocation, and `resize` then overwrites every row.
    column.clear();
    column.resize(rows, value);
}

candidates! {
    // Each line is a column, and a fact for expressions and plugins: its type, group, scope, unit, and
    // help text.
    facts {
        rtt_ms: Option<f64>, RTT, Candidate, "ms", "smoothed round trip on a warm connection; unknown until measured";
        rtt_p95_ms: Option<f64>, RTT, Candidate, "ms", "95th percentile of recent round trips; unknown until measured";
        cached_tokens: u32, PREFIX, Candidate, "tokens",
            "prompt tokens of this request that the index believes cached there";
        queued_tokens: u64, LOAD, Candidate, "tokens",
            "prompt tokens of this router's requests there that are not completed";
        queued_tokens_first: u64, LOAD, Candidate, "tokens",
            "prompt tokens of this router's requests there without a first token yet";
        queued_uncached_tokens_completion: u64, LOAD, Candidate, "tokens",
            "uncached prompt tokens of this router's requests there that are not completed";
        queued_uncached_tokens: u64, LOAD, Candidate, "tokens",
            "uncached prompt tokens of this router's requests there without a first token yet";
        inflight: u32, LOAD, Candidate, "requests", "this router's requests there";
        decoding: u32, LOAD, Candidate, "requests", "those of them past their first token";
        inflight_since_report: i64, LOAD, Candidate, "requests",
            "this router's requests sent there since the engine's last report, less those that ended since; 0 without a report";
        engine_running: Option<f64>, REPORT, Candidate, "requests",
            "running requests as the engine's last report has them; unknown when that is too old";
        engine_waiting: Option<f64>, REPORT, Candidate, "requests", "waiting requests by the same report";
        kv_used_tokens: Option<f64>, REPORT, Candidate, "tokens", "KV cache tokens in use by the same report";
        kv_used_share: Option<f64>, REPORT, Candidate, "share",
            "share of the KV cache in use by the same report, 0 to 1";
        engine_throughput: Option<f64>, REPORT, Candidate, "tokens/s", "tokens generated a second by the same report";
        report_age_ms: Option<f64>, REPORT, Candidate, "ms",
            "age of the engine's last report, also when that is too old; unknown where there was none";
        latency_ms: Option<f64>, LATENCY, Candidate, "ms",
            "smoothed TTFT as observed there; unknown where none was seen of late";
        prefill_ms_per_token: Option<f64>, RATES, Rate, "ms/token",
            "learned prefill time per uncached token; unknown until learned";
        queue_ms_per_token: Option<f64>, RATES, Rate, "ms/token",
            "learned waiting time per queued uncached token; unknown until learned";
        decode_ms_per_request: Option<f64>, RATES, Rate, "ms/request",
            "learned slow-down per request that decodes there; unknown until learned";
        intercept_ms: Option<f64>, RATES, Rate, "ms",
            "learned fixed part of TTFT beyond the round trip; unknown until learned";
        backlog_ms: f64, BACKLOG, Candidate, "ms",
            "prefill work that this router sent there and that a request sent now would wait for";
        likely_uncached_tokens: f64, SERVICE, Candidate, "tokens",
            "prompt tokens of this request that it will most likely have to compute: the index, corrected by how often it was right; at least 1";
        service_fixed_ms: f64, SERVICE, Rate, "ms",
            "learned from requests that met no backlog: fixed part of TTFT beyond the round trip";
        service_ms_per_token: f64, SERVICE, Rate, "ms/token", "the same: prefill time per prompt token to compute";
        service_ms_per_decoding: f64, SERVICE, Rate, "ms/request", "the same: slow-down per request that decodes there";
        itl_alone_ms: f64, SERVICE, Rate, "ms/token",
            "learned time between two tokens of an answer where nobody else is served";
        itl_ms_per_request: f64, SERVICE, Rate, "ms/token/request", "learned growth of it with each request in flight there";
    }
    others {
        /// Replica of each row. All other columns have this length.
        replica: ReplicaId = ReplicaId(0);
        /// A stable hash of each replica's name, for rendezvous hashing: independent of order and of the rest of the fleet.
        name_hash: u64 = 0;
        /// The replica's region, as an index into the fleet's region list.
        region: u16 = 0;
        /// True if the replica may be used at all (healthy, enabled, serves the model).
        available: bool = true;
        /// Round trips that this request needs on the connection it would get, at least 1; `None` if that is not known.
        network_trips: Option<f64> = None;
        /// Source of `rtt_ms`.
        rtt_source: RttSource = RttSource::Unknown;
        /// KV capacity in tokens, 0 when unknown (`max_ratio` of the concentration constraint).
        capacity_tokens: u64 = 0;
    }
    fleet {
        /// Mean length of recent answers, tokens; of the whole fleet.
        answer_tokens: f64 = 0.0;
        /// Quantile of recent TTFT at which the tail begins, ms; of the whole fleet. `None` until enough were seen.
        tail_start_ms: Option<f64> = None;
    }
}

impl Candidates {
    /// Number of candidates.
    #[must_use]
    pub fn len(&self) -> usize {
        self.replica.len()
    }

    /// Returns true if there are no candidates.
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
        // More may have ended since the report than it counted as running, so the sum is kept at 0 or above.
        self.engine_running[row].map(|running| (running + self.inflight_since_report[row] as f64).max(0.0))
    }

    /// Running requests at row `row`: as the engine last reported them, without later changes, if `as_reported`;
    /// else [`Candidates::running_now`].
    #[must_use]
    pub fn running(&self, row: usize, as_reported: bool) -> Option<f64> {
        if as_reported { self.engine_running[row] } else { self.running_now(row) }
    }

    /// Requests in flight per available candidate.
    #[must_use]
    #[expect(clippy::cast_precision_loss, reason = "requests in flight stay far below 2^53")]
    pub fn mean_inflight(&self) -> f64 {
        // Only replicas that can take requests: the load of the others would distort the mean.
        let available = self.inflight.iter().zip(&self.available).filter(|(_, available)| **available);
        // Summed as integers, so that the order of the rows cannot change the result.
        let (requests, replicas) =
            available.fold((0_u64, 0_u64), |(sum, count), (inflight, _)| (sum + u64::from(*inflight), count + 1));
        // Without an available replica the mean is 0 and not NaN.
        requests as f64 / replicas.max(1) as f64
    }
}
