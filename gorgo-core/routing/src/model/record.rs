//! Rows for the store, as messages: events in plain numbers. Sent over a bounded channel to the one
//! writer; when the channel is full the message is dropped and counted: a request never waits for the store.

use std::sync::Arc;

use super::{
    AdmissionRecord, ApiPath, DecisionId, Generation, PolicyBuildId, RefusalReason, ReplicaId, RttSource, Unit,
    UnixMicros,
};

/// Something that happened.
#[derive(Debug, Clone, PartialEq)]
pub enum StoreRecord {
    /// A request was routed or refused, with all its candidates.
    Decision(Box<DecisionRecord>),
    /// A later attempt of a routed request chose among the remaining replicas.
    Candidates {
        /// Decision that it belongs to.
        decision: DecisionId,
        /// 2 for the first retry.
        attempt: u16,
        /// One row per candidate.
        rows: Vec<CandidateRecord>,
    },
    /// A request no longer waits at the gate.
    Hold(AdmissionRecord),
    /// An attempt ended.
    Attempt(AttemptRecord),
    /// A request ended; with the route it took.
    Outcome(RouteLabels, Box<OutcomeRecord>),
    /// A round trip was measured.
    Probe(ProbeRecord),
    /// An engine's metrics were read.
    Scrape(ScrapeRecord),
    /// Something an operator should be able to look up.
    Event(EventRecord),
    /// A policy's weights changed.
    Weights(WeightRecord),
    /// A learned rate changed.
    Rate(RateRecord),
    /// A tuner's generation began or ended; the later row of a generation completes the earlier one.
    Generation(Box<GenerationRecord>),
    /// A tuner's alarm went on or off.
    Alarm(AlarmRecord),
    /// Contents of a replica's part of the prefix index; replaces those stored before.
    Index(Box<IndexRecord>),
    /// State learned about a replica; replaces the state stored before.
    Learned(LearnedRecord),
}

impl StoreRecord {
    /// Number of rows that it becomes, over all tables. Counted on the way into the store's queue, so it must cost next
    /// to nothing; a test of the store compares it with what the tables count.
    #[must_use]
    pub fn rows(&self) -> u64 {
        let rows = match self {
            Self::Decision(decision) => 1 + candidate_rows(&decision.candidates) + decision.shadows.len(),
            Self::Candidates { rows, .. } => candidate_rows(rows),
            Self::Weights(weights) => weights.values.len(),
            Self::Generation(generation) => 1 + generation.scores.len(),
            // The end of an alarm updates the row that its beginning inserted.
            Self::Alarm(alarm) => usize::from(!alarm.cleared),
            _ => 1,
        };
        u64::try_from(rows).unwrap_or(u64::MAX)
    }
}

fn candidate_rows(candidates: &[CandidateRecord]) -> usize {
    candidates.iter().map(|candidate| 1 + candidate.signals_milli.len().saturating_sub(TERM_SLOTS)).sum()
}

/// Term slots in a row of `candidates`; each further term has its own row in `candidate_terms`.
pub const TERM_SLOTS: usize = 8;

/// A row of `decisions` and its rows of `candidates` (attempt 1) and `shadows`.
#[derive(Debug, Clone, PartialEq)]
pub struct DecisionRecord {
    /// Id of the decision.
    pub decision: DecisionId,
    /// When the request's head arrived.
    pub received: UnixMicros,
    /// API that the request came in by.
    pub path: ApiPath,
    /// The model asked for; `None` where the request names none.
    pub model: Option<Arc<str>>,
    /// Hash of the session key; 0 on a refusal before it was known.
    pub session_hash: u64,
    /// The policy that decided.
    pub policy: PolicyBuildId,
    /// Generation of the weights.
    pub generation: Generation,
    /// In a tuning trial: 0 incumbent, 1 proposal.
    pub arm: Option<u8>,
    /// Trial block, numbered upwards over all generations of the policy.
    pub block: Option<u32>,
    /// True if its outcome scores the arm; false right after a change of arm and outside a trial.
    pub counted: bool,
    /// Seed of the choice.
    pub seed: u64,
    /// Chosen replica; `None` on a refusal.
    pub replica: Option<ReplicaId>,
    /// Reason of the refusal.
    pub refusal: Option<RefusalReason>,
    /// Probability of this choice, 0 to 1.
    pub propensity: f64,
    /// Replicas that shared the lowest cost.
    pub ties: u32,
    /// Prompt tokens as estimated.
    pub prompt_tokens: u32,
    /// Earlier decision whose prompt shares the longest prefix with this one.
    pub parent: Option<DecisionId>,
    /// Tokens of that shared prefix.
    pub shared_tokens: u32,
    /// Body, bytes.
    pub body_bytes: u64,
    /// Time spent deciding, µs.
    pub decide_us: u32,
    /// Candidates with their numbers; kinds and units of the policy's term slots are in `terms`.
    pub candidates: Vec<CandidateRecord>,
    /// Choices that the shadow policies would have made.
    pub shadows: Vec<ShadowRecord>,
}

impl DecisionRecord {
    /// The row of a request that was not routed: it has no candidates, and no weights were used.
    #[must_use]
    pub fn refused(
        decision: DecisionId,
        received: UnixMicros,
        path: ApiPath,
        policy: PolicyBuildId,
        refusal: RefusalReason,
    ) -> Self {
        Self {
            decision,
            received,
            path,
            model: None,
            session_hash: 0,
            policy,
            // Columns that cannot be NULL get neutral values; `refusal` marks the row as one without a choice.
            generation: Generation(0),
            arm: None,
            block: None,
            counted: false,
            seed: 0,
            replica: None,
            refusal: Some(refusal),
            propensity: 0.0,
            ties: 0,
            prompt_tokens: 0,
            parent: None,
            shared_tokens: 0,
            body_bytes: 0,
            decide_us: 0,
            candidates: Vec::new(),
            shadows: Vec::new(),
        }
    }
}

/// A row of `candidates`.
#[derive(Debug, Clone, PartialEq)]
pub struct CandidateRecord {
    /// The candidate's replica.
    pub replica: ReplicaId,
    /// Name of the constraint that excluded it.
    pub excluded_by: Option<Arc<str>>,
    /// Total cost, thousandths.
    pub cost_milli: i64,
    /// Round trip used, µs.
    pub rtt_us: Option<i64>,
    /// Source of that round trip.
    pub rtt_source: RttSource,
    /// Tokens believed cached there.
    pub cached_tokens: u32,
    /// Prompt tokens in flight there.
    pub queued_tokens: u64,
    /// Uncached prompt tokens there without a first token yet.
    pub queued_uncached_tokens: u64,
    /// Requests in flight there.
    pub inflight: u32,
    /// Age of the engine's report, ms.
    pub report_age_ms: Option<i64>,
    /// One signal per term slot, thousandths of the term's unit; [`super::VOID_MILLI`] for a term without a signal.
    pub signals_milli: Vec<i64>,
    /// weight × signal per term slot, thousandths; [`super::VOID_MILLI`] likewise.
    pub costs_milli: Vec<i64>,
}

/// A row of `shadows`.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct ShadowRecord {
    /// The policy that did not act.
    pub policy: PolicyBuildId,
    /// Replica that it would have chosen.
    pub replica: ReplicaId,
    /// Cost of that replica, thousandths of the policy's own unit.
    pub cost_milli: i64,
}

/// Kind of an attempt's connection to the replica: new or reused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ConnectionReuse {
    /// Dialled for this request.
    Fresh,
    /// The connection had carried a request, or was opened ahead.
    Warm,
}

impl ConnectionReuse {
    /// All kinds.
    pub const ALL: [Self; 2] = [Self::Fresh, Self::Warm];

    /// The text stored in the database.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Fresh => "fresh",
            Self::Warm => "warm",
        }
    }
}

/// A row of `attempts`. Times are µs after the request's head arrived.
#[derive(Debug, Clone, PartialEq)]
pub struct AttemptRecord {
    /// Decision that the attempt belongs to.
    pub decision: DecisionId,
    /// 1 for the first.
    pub attempt: u16,
    /// Replica that was tried.
    pub replica: ReplicaId,
    /// New or kept connection; `None` if there was none.
    pub connection: Option<ConnectionReuse>,
    /// Time spent connecting, µs; 0 on a warm connection.
    pub connect_us: Option<i64>,
    /// When the request had been handed to the connection.
    pub sent_us: Option<i64>,
    /// When the response's head arrived.
    pub first_byte_us: Option<i64>,
    /// When the attempt was over.
    pub ended_us: i64,
    /// Response status.
    pub status: Option<u16>,
    /// Error class of a failed attempt.
    pub error: Option<ErrorClass>,
}

/// Class of a request's or an attempt's failure. A closed list, stored in `outcomes.error` and `attempts.error`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ErrorClass {
    /// The request was refused; `decisions.refusal` says why.
    Refused,
    /// No connection to the replica.
    Connect,
    /// The replica closed or reset before a response head.
    UpstreamClosed,
    /// No response head within the limit.
    FirstByteTimeout,
    /// A started response sent nothing within the idle limit.
    IdleTimeout,
    /// The replica ended a response before its end.
    UpstreamAborted,
    /// The replica's answer was not HTTP.
    UpstreamProtocol,
    /// The replica answered 5xx.
    UpstreamStatus,
    /// The replica answered 4xx: the client's request, not the replica's failure.
    ClientError,
    /// A stream that began with 200 carried an error event.
    UpstreamErrorEvent,
    /// The client left.
    ClientGone,
    /// Another attempt of the same request answered first.
    LostHedge,
    /// The router shut down before it ended.
    Shutdown,
}

impl ErrorClass {
    /// All classes, in documentation order.
    pub const ALL: [Self; 13] = [
        Self::Refused,
        Self::Connect,
        Self::UpstreamClosed,
        Self::FirstByteTimeout,
        Self::IdleTimeout,
        Self::UpstreamAborted,
        Self::UpstreamProtocol,
        Self::UpstreamStatus,
        Self::ClientError,
        Self::UpstreamErrorEvent,
        Self::ClientGone,
        Self::LostHedge,
        Self::Shutdown,
    ];

    /// The text stored in the database.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Refused => "refused",
            Self::Connect => "connect",
            Self::UpstreamClosed => "upstream-closed",
            Self::FirstByteTimeout => "first-byte-timeout",
            Self::IdleTimeout => "idle-timeout",
            Self::UpstreamAborted => "upstream-aborted",
            Self::UpstreamProtocol => "upstream-protocol",
            Self::UpstreamStatus => "upstream-status",
            Self::ClientError => "client-error",
            Self::UpstreamErrorEvent => "upstream-error-event",
            Self::ClientGone => "client-gone",
            Self::LostHedge => "lost-hedge",
            Self::Shutdown => "shutdown",
        }
    }
}

/// Route that a request took; the labels of its metrics. The rows of `decisions` and `attempts` hold it already.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RouteLabels {
    /// API that the request came in by.
    pub path: ApiPath,
    /// Replica that answered last; `None` if none was tried.
    pub replica: Option<ReplicaId>,
}

/// Upper bounds of the histogram of gaps, ms; an eighth bucket counts the gaps beyond the last bound.
pub const ITL_BOUNDS_MS: [u64; 7] = [5, 10, 20, 40, 80, 160, 320];

/// Gaps within each of [`ITL_BOUNDS_MS`], and beyond the last.
pub type ItlHistogram = [u32; 8];

/// A row of `outcomes`. Times are µs after the request's head arrived.
#[derive(Debug, Clone, PartialEq)]
pub struct OutcomeRecord {
    /// Decision that the request was routed by.
    pub decision: DecisionId,
    /// Status the client got; `None` where it left before one was sent.
    pub status: Option<u16>,
    /// Error class of a failed request.
    pub error: Option<ErrorClass>,
    /// First generated content; `None` where none came.
    pub ttft_us: Option<i64>,
    /// First byte of the response body.
    pub first_byte_us: Option<i64>,
    /// Last byte handed to the client's socket.
    pub e2e_us: i64,
    /// (last content − first content) / (completion tokens − 1).
    pub itl_mean_us: Option<i64>,
    /// 99th percentile of the gaps between content events.
    pub itl_p99_us: Option<i64>,
    /// Gaps between contents, counted by [`ITL_BOUNDS_MS`]; `None` without gaps.
    pub itl_counts: Option<ItlHistogram>,
    /// Prompt tokens the engine counted.
    pub prompt_tokens: Option<u32>,
    /// Prompt tokens the engine had cached.
    pub cached_tokens: Option<u32>,
    /// Tokens generated.
    pub completion_tokens: Option<u32>,
    /// TTFT predicted at the decision.
    pub predicted_ttft_us: Option<i64>,
    /// Cached tokens predicted at the decision.
    pub predicted_cached_tokens: Option<u32>,
}

/// A row of `probes`.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct ProbeRecord {
    /// Probed replica.
    pub replica: ReplicaId,
    /// When the answer came or the time-out expired.
    pub at: UnixMicros,
    /// Round trip, µs; `None` when lost.
    pub rtt_us: Option<i64>,
}

/// A row of `scrapes`.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct ScrapeRecord {
    /// Scraped replica.
    pub replica: ReplicaId,
    /// When the page had been read.
    pub at: UnixMicros,
    /// True if the page could be read.
    pub ok: bool,
    /// Running requests.
    pub running: Option<f64>,
    /// Waiting requests.
    pub waiting: Option<f64>,
    /// KV tokens in use.
    pub kv_used_tokens: Option<f64>,
    /// Share of the KV cache in use, 0 to 1.
    pub kv_used_share: Option<f64>,
    /// Generation throughput, tokens/s.
    pub throughput: Option<f64>,
}

/// Kind of an event. A closed list, stored in `events.kind`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum EventKind {
    /// The router started.
    Start,
    /// The router began to drain.
    Drain,
    /// The router stopped, everything flushed.
    Stop,
    /// A replica became usable.
    ReplicaUp,
    /// A replica became unusable.
    ReplicaDown,
    /// An engine restarted in place; its index entries were dropped.
    ReplicaRestarted,
    /// The configuration was read again; the text lists what changed.
    ConfigChange,
    /// An engine does not report something that a policy needs; the text names the flag that makes it.
    MissingSignal,
    /// A plugin was quarantined: it failed or was slow too often.
    PluginQuarantined,
    /// The gate counted requests at a replica that its engine does not know; they were written off.
    GateResync,
    /// A reload of the configuration was refused and nothing changed; the text says why.
    ConfigRefused,
    /// An operator took a replica out: it gets nothing new.
    ReplicaDraining,
}

impl EventKind {
    /// All kinds, in documentation order.
    pub const ALL: [Self; 12] = [
        Self::Start,
        Self::Drain,
        Self::Stop,
        Self::ReplicaUp,
        Self::ReplicaDown,
        Self::ReplicaRestarted,
        Self::ConfigChange,
        Self::MissingSignal,
        Self::PluginQuarantined,
        Self::GateResync,
        Self::ConfigRefused,
        Self::ReplicaDraining,
    ];

    /// The text stored in the database.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Start => "start",
            Self::Drain => "drain",
            Self::Stop => "stop",
            Self::ReplicaUp => "replica-up",
            Self::ReplicaDown => "replica-down",
            Self::ReplicaRestarted => "replica-restarted",
            Self::ConfigChange => "config-change",
            Self::MissingSignal => "missing-signal",
            Self::PluginQuarantined => "plugin-quarantined",
            Self::GateResync => "admission-resync",
            Self::ConfigRefused => "config-refused",
            Self::ReplicaDraining => "replica-draining",
        }
    }
}

/// A row of `events`.
#[derive(Debug, Clone, PartialEq)]
pub struct EventRecord {
    /// Time of the event.
    pub at: UnixMicros,
    /// Kind of the event.
    pub kind: EventKind,
    /// Replica concerned; `None` for the router itself.
    pub replica: Option<ReplicaId>,
    /// Text for operators; never prompt text or keys.
    pub text: String,
}

/// Rows of `weights`: from `at` onwards the policy decides with these.
#[derive(Debug, Clone, PartialEq)]
pub struct WeightRecord {
    /// Policy that they belong to.
    pub policy: PolicyBuildId,
    /// Time from which they are in force.
    pub at: UnixMicros,
    /// Generation of the weights.
    pub generation: Generation,
    /// One value per term slot.
    pub values: Vec<f64>,
}

/// Quantity that a learned rate measures. A closed list, stored in `rates.kind`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum RateKind {
    /// ms per uncached prompt token.
    Prefill,
    /// ms per queued uncached token.
    Queue,
    /// ms per request decoding.
    Decode,
    /// Fixed part of TTFT beyond the round trip, ms.
    Intercept,
}

impl RateKind {
    /// All kinds.
    pub const ALL: [Self; 4] = [Self::Prefill, Self::Queue, Self::Decode, Self::Intercept];

    /// The text stored in the database.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Prefill => "prefill",
            Self::Queue => "queue",
            Self::Decode => "decode",
            Self::Intercept => "intercept",
        }
    }

    /// The unit of the rate's value.
    #[must_use]
    pub const fn unit(self) -> Unit {
        Unit::Millis
    }
}

/// A row of `rates`.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct RateRecord {
    /// Replica that the rate belongs to.
    pub replica: ReplicaId,
    /// Kind of the rate.
    pub kind: RateKind,
    /// Time of the estimate.
    pub at: UnixMicros,
    /// The estimate.
    pub value: f64,
    /// Lower end of its 95 % interval.
    pub low: f64,
    /// Upper end.
    pub high: f64,
    /// Number of samples behind it.
    pub samples: u64,
}

/// How a generation ended. A closed list, stored in `generations.verdict`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum GenerationVerdict {
    /// The proposal is the incumbent now.
    Accepted,
    /// The incumbent stays.
    Rejected,
    /// Not decided: the fleet changed or the router stopped.
    Interrupted,
}

impl GenerationVerdict {
    /// The text stored in the database.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Accepted => "accepted",
            Self::Rejected => "rejected",
            Self::Interrupted => "cut",
        }
    }
}

/// A row of `generations`, and its rows of `generation_scores`.
#[derive(Debug, Clone, PartialEq)]
pub struct GenerationRecord {
    /// Policy that is tuned.
    pub policy: PolicyBuildId,
    /// The proposal.
    pub generation: Generation,
    /// The incumbent that it was derived from and is compared with.
    pub parent: Option<Generation>,
    /// When its trial began.
    pub started: UnixMicros,
    /// When it ended; `None` while it runs.
    pub ended: Option<UnixMicros>,
    /// Kind of the optimizer.
    pub optimizer: &'static str,
    /// Size of the optimizer's steps.
    pub sigma: Option<f64>,
    /// The tuner's whole state after the verdict, JSON.
    pub state: Option<String>,
    /// The first block of its trial and the one after the last.
    pub blocks: (u32, u32),
    /// How it ended.
    pub verdict: Option<GenerationVerdict>,
    /// Why, for people.
    pub reason: Option<String>,
    /// Statistics of both arms.
    pub scores: Vec<ScoreRecord>,
}

/// A row of `generation_scores`.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct ScoreRecord {
    /// 0 incumbent, 1 proposal.
    pub arm: u8,
    /// Name of the statistic.
    pub statistic: &'static str,
    /// Value of the statistic.
    pub value: f64,
    /// Lower end of its 95 % interval.
    pub low: Option<f64>,
    /// Upper end.
    pub high: Option<f64>,
    /// Number of samples behind it.
    pub samples: u64,
}

/// A row of `alarms`, or the end of one.
#[derive(Debug, Clone, PartialEq)]
pub struct AlarmRecord {
    /// Time of the alarm.
    pub at: UnixMicros,
    /// Kind: `weight-at-bound:TERM`, `term-never-decides:TERM`, `drift`, `reward-hacking`.
    pub kind: String,
    /// The weight, the share of decisions, the step size, or the factor by which a statistic became worse.
    pub value: Option<f64>,
    /// True if the alarm of that kind is over.
    pub cleared: bool,
}

/// A row of `index_snapshots`.
#[derive(Debug, Clone, PartialEq)]
pub struct IndexRecord {
    /// Replica whose blocks they are.
    pub replica: ReplicaId,
    /// Time of the snapshot.
    pub at: UnixMicros,
    /// Engine process that it belongs to.
    pub engine: EngineEpoch,
    /// Keyed hashes of its blocks, see `feature::prefix`.
    pub blocks: Vec<u8>,
}

/// Identifies one process of an engine, to find out later that it did not restart meanwhile.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct EngineEpoch {
    /// Start of its process, ms since the epoch, if reported.
    pub started_ms: Option<i64>,
    /// Prompt tokens it had read by then, if reported.
    pub prompt_tokens: Option<f64>,
}

/// A row of `learned`.
#[derive(Debug, Clone, PartialEq)]
pub struct LearnedRecord {
    /// Replica that the state belongs to.
    pub replica: ReplicaId,
    /// Time of the state.
    pub at: UnixMicros,
    /// Rates, hit factors, answer times: JSON.
    pub state: String,
}
