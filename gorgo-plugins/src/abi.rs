//! The plugin contract as data: everything that crosses between gorgo and a library. `repr(C)`, no logic;
//! `include/gorgo_plugin.h` says the same in C, and a test compiles it against this file.
//!
//! 1. A library exports one or more of the symbols below, each a function `const descriptor *(void)`. The descriptor is
//!    static. A second version of the contract will have other symbols.
//! 2. `abi_major` and `struct_size` are read first. A wrong major is refused with both numbers; fields beyond
//!    `struct_size` are absent; fields are only ever appended. Each struct that is passed in begins with its size, too.
//! 3. `needs` is a bit set of [`need`], for the columns that have their own field; an unknown bit is refused. A column
//!    that was not requested is null. Any fact can be requested by its name in [`JudgeDescriptor::facts`]; an unknown name is
//!    refused. The names are those of expressions, so a new fact needs no new field here.
//! 4. Columns are borrowed for the call. Row *i* is the same replica in all of them; the order of rows has no meaning.
//! 5. Output goes to the caller's columns, in the unit that the descriptor declares.
//! 6. Each function returns a [`status`]; with an error it may leave UTF-8 text in the caller's buffer.
//! 7. `create` is called once and `destroy` once; each side frees the memory that it allocated. Several threads may
//!    call one instance at the same time. No input or output, no blocking.
//! 8. A panic or an exception must not leave a function: it would end the router.

use std::ffi::{c_char, c_void};

/// Version of the contract. A library built for another version is refused.
pub const ABI_MAJOR: u32 = 1;

/// Symbol of a term, which computes a signal per replica.
pub const SCORER_SYMBOL: &str = "gorgo_scorer_v1";
/// Symbol of a constraint, which says how far each replica exceeds a limit.
pub const CONSTRAINT_SYMBOL: &str = "gorgo_constraint_v1";
/// Symbol of an objective, which computes one number from a cohort of requests.
pub const OBJECTIVE_SYMBOL: &str = "gorgo_objective_v1";

/// Status that a function returns.
pub mod status {
    /// Success.
    pub const DONE: i32 = 0;
    /// The input violates the contract.
    pub const BAD_INPUT: i32 = 1;
    /// The call failed; the text says why.
    pub const ERROR: i32 = 2;
    /// The plugin panicked; the instance is not called again.
    pub const PANICKED: i32 = 3;
    /// No opinion on this request: the term has no influence on this decision. Not a failure.
    pub const NO_OPINION: i32 = 4;
}

/// Columns with their own field that a plugin reads, as bits. Only requested columns are passed in.
pub mod need {
    /// All bits that this version defines.
    pub const ALL: u32 = RTT | PREFIX | LOAD | REPORT | RATES | LATENCY;
    /// `rtt_ms`, `rtt_p95_ms`.
    pub const RTT: u32 = 1;
    /// `cached_tokens`.
    pub const PREFIX: u32 = 1 << 1;
    /// `queued_tokens` and the like, `inflight`, `decoding`.
    pub const LOAD: u32 = 1 << 2;
    /// `engine_*`, `kv_*`, `report_age_ms`, `inflight_since_report`.
    pub const REPORT: u32 = 1 << 3;
    /// `prefill_ms_per_token`, `queue_ms_per_token`, `decode_ms_per_request`, `intercept_ms`.
    pub const RATES: u32 = 1 << 4;
    /// `latency_ms`.
    pub const LATENCY: u32 = 1 << 5;
}

/// The unit of a signal.
pub mod unit {
    /// Milliseconds.
    pub const MILLIS: u32 = 0;
    /// Prompt tokens.
    pub const TOKENS: u32 = 1;
    /// Requests.
    pub const REQUESTS: u32 = 2;
    /// A fraction, 0 to 1.
    pub const SHARE: u32 = 3;
    /// Tokens per second.
    pub const TOKENS_PER_SECOND: u32 = 4;
    /// None: a price, a hash, grams.
    pub const ONE: u32 = 5;
}

/// Further properties of a plugin, as bits.
pub mod flag {
    /// A scorer's signal rises with the work that a replica was given.
    pub const SPREADS: u32 = 1;
    /// A constraint is never relaxed, even when no replica is left.
    pub const HARD: u32 = 1 << 1;
}

/// The kind of an option or a setting.
pub mod kind {
    /// A number within bounds.
    pub const NUMBER: u32 = 0;
    /// Text.
    pub const TEXT: u32 = 1;
    /// True or false: `number` is 1 or 0.
    pub const BOOL: u32 = 2;
    /// Numbers by name: settings `option.name`, each within the bounds.
    pub const NUMBERS: u32 = 3;
    /// Several texts: settings of the same key, in order.
    pub const TEXTS: u32 = 4;
}

/// Further properties of an option, as bits.
pub mod option_flag {
    /// The option has no default and must be set.
    pub const REQUIRED: u32 = 1;
    /// An optimizer may move it within its bounds.
    pub const TUNABLE: u32 = 1 << 1;
}

/// UTF-8 text without a terminating zero. Borrowed: in a descriptor forever, otherwise for the call.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct AbiText {
    /// First byte; may be null when `len` is 0.
    pub ptr: *const c_char,
    /// Length, bytes.
    pub len: usize,
}

/// Buffer in which a failing function may leave text. Owned by the caller.
#[repr(C)]
#[derive(Debug)]
pub struct AbiErrorText {
    /// First byte of the buffer; may be null when `cap` is 0.
    pub ptr: *mut c_char,
    /// Size of the buffer, bytes.
    pub cap: usize,
    /// Bytes written, at most `cap`.
    pub len: usize,
}

/// An option that a plugin declares: a key of `options` in the policy.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct AbiOption {
    /// The key, with the unit in its name if it has one.
    pub name: AbiText,
    /// Unit as shown to users; empty if there is none.
    pub unit: AbiText,
    /// Effect of the option, in one line.
    pub help: AbiText,
    /// One of [`kind`].
    pub kind: u32,
    /// Bits of [`option_flag`].
    pub flags: u32,
    /// Value if the option is not set; for booleans 1 or 0. NaN: no default.
    pub default: f64,
    /// Smallest number allowed.
    pub min: f64,
    /// Largest number allowed.
    pub max: f64,
}

/// Value of an option in the policy.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct AbiSetting {
    /// The option's name; for numbers by name, `option.name`.
    pub key: AbiText,
    /// [`kind::NUMBER`], [`kind::TEXT`] or [`kind::BOOL`].
    pub kind: u32,
    /// 0.
    pub reserved: u32,
    /// The number; 1 or 0 for a boolean.
    pub number: f64,
    /// The text.
    pub text: AbiText,
}

/// A replica of the fleet.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct AbiReplica {
    /// Number of the replica in the column `replica`.
    pub id: u32,
    /// 0.
    pub reserved: u32,
    /// Unique name.
    pub name: AbiText,
    /// Region.
    pub region: AbiText,
    /// Kind of its engine, as spelled in the configuration.
    pub engine: AbiText,
}

/// Input of `create`.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct AbiSetup {
    /// Bytes of this struct.
    pub struct_size: u32,
    /// Bytes from one replica to the next.
    pub replica_size: u32,
    /// Bytes from one setting to the next.
    pub setting_size: u32,
    /// 0.
    pub reserved: u32,
    /// The fleet. Later decisions may include replicas that are not in it, which a plugin must tolerate.
    pub replicas: *const AbiReplica,
    /// Number of replicas.
    pub replica_count: usize,
    /// The options as set: checked, with defaults filled in.
    pub settings: *const AbiSetting,
    /// Number of settings.
    pub setting_count: usize,
}

/// A request.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct AbiRequest {
    /// Bytes of this struct.
    pub struct_size: u32,
    /// Prompt tokens, estimated.
    pub prompt_tokens: u32,
    /// Limit on the answer that the client set, tokens; 0: none.
    pub max_tokens: u32,
    /// 0.
    pub reserved: u32,
    /// Request body, bytes.
    pub body_bytes: u64,
    /// Hash of the session key.
    pub session_hash: u64,
    /// Hash of the prompt's first 256 tokens.
    pub head_hash: u64,
    /// Decisions of this policy before this one.
    pub turn: u64,
    /// TTFT that the client requested (`x-slo-ttft-ms`), ms; NaN: none.
    pub slo_ttft_ms: f64,
}

/// The facts of the candidates, column by column. Unknown numbers are NaN.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct AbiColumns {
    /// Bytes of this struct.
    pub struct_size: u32,
    /// Bits of [`need`] whose columns are present.
    pub present: u32,
    /// Rows; may be 0.
    pub count: usize,
    /// Always present: [`AbiReplica::id`].
    pub replica: *const u32,
    /// Always present: 1 if the replica may be used at all, else 0.
    pub available: *const u8,
    /// Always present: hash of the replica's name, the same in every process.
    pub name_hash: *const u64,
    /// Always present: KV capacity, tokens; 0: unknown.
    pub capacity_tokens: *const u64,
    /// RTT: smoothed round trip, ms.
    pub rtt_ms: *const f64,
    /// RTT: 95th percentile of recent round trips, ms.
    pub rtt_p95_ms: *const f64,
    /// PREFIX: prompt tokens of this request that are believed to be cached there.
    pub cached_tokens: *const u32,
    /// LOAD: prompt tokens of this router's requests there that are not complete.
    pub queued_tokens: *const u64,
    /// LOAD: the same, of requests without a first token.
    pub queued_tokens_first: *const u64,
    /// LOAD: uncached prompt tokens of requests there that are not complete.
    pub queued_uncached_tokens_completion: *const u64,
    /// LOAD: the same, of requests without a first token.
    pub queued_uncached_tokens: *const u64,
    /// LOAD: this router's requests there.
    pub inflight: *const u32,
    /// LOAD: those of them that are past their first token.
    pub decoding: *const u32,
    /// REPORT: this router's requests sent there since the last report, less those that ended since.
    pub inflight_since_report: *const i64,
    /// REPORT: running requests.
    pub engine_running: *const f64,
    /// REPORT: waiting requests.
    pub engine_waiting: *const f64,
    /// REPORT: KV tokens in use.
    pub kv_used_tokens: *const f64,
    /// REPORT: share of the KV cache in use, 0 to 1.
    pub kv_used_share: *const f64,
    /// REPORT: generation throughput, tokens/s.
    pub engine_throughput: *const f64,
    /// REPORT: age of the report, ms.
    pub report_age_ms: *const f64,
    /// LATENCY: smoothed TTFT, ms.
    pub latency_ms: *const f64,
    /// RATES: learned prefill time, ms per uncached token.
    pub prefill_ms_per_token: *const f64,
    /// RATES: learned waiting time, ms per queued uncached token.
    pub queue_ms_per_token: *const f64,
    /// RATES: learned slow-down, ms per request decoding there.
    pub decode_ms_per_request: *const f64,
    /// RATES: learned fixed part of TTFT beyond the round trip, ms.
    pub intercept_ms: *const f64,
    /// The facts that [`JudgeDescriptor::facts`] names, in its order, one column each. Null if it names none.
    pub facts: *const *const f64,
    /// Number of those columns.
    pub fact_count: usize,
}

/// Buffers for the answer. `value` is filled with NaN beforehand: one row that is left out, or is not finite, voids the
/// whole answer.
#[repr(C)]
#[derive(Debug)]
pub struct AbiOutput {
    /// Bytes of this struct.
    pub struct_size: u32,
    /// 0.
    pub reserved: u32,
    /// Rows, as many as there are candidates.
    pub count: usize,
    /// A scorer's signal, in its unit. A constraint's excess over its limit as a ratio, 0 if within it; infinity: the
    /// replica must never be picked.
    pub value: *mut f64,
    /// Filled with 1 beforehand. 0: the signal of this row is unknown; the policy's `unknown` applies and `value` is not
    /// read.
    pub known: *mut u8,
}

/// The requests of one arm whose answer began and did not fail, column by column, in no particular order. Unknown
/// numbers are NaN.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct AbiCohort {
    /// Bytes of this struct.
    pub struct_size: u32,
    /// 0.
    pub reserved: u32,
    /// Requests; may be 0.
    pub count: usize,
    /// Time from arrival to the first generated content, ms.
    pub ttft_ms: *const f64,
    /// Time from arrival to the last byte, ms; NaN if the client left before it.
    pub e2e_ms: *const f64,
    /// Mean time between tokens, ms.
    pub itl_ms: *const f64,
    /// Prompt tokens.
    pub prompt_tokens: *const f64,
    /// Tokens generated.
    pub completion_tokens: *const f64,
    /// Time from the first arrival to the last end, s; NaN if the requests are not from one contiguous period, as in a
    /// trial.
    pub span_secs: f64,
    /// Requests beyond those above that failed, are overdue, or whose client gave up waiting for a first token.
    pub failed: u64,
}

/// Makes an instance. `*instance` may stay null if there is no state.
pub type CreateFn =
    unsafe extern "C" fn(setup: *const AbiSetup, instance: *mut *mut c_void, error: *mut AbiErrorText) -> i32;
/// Frees an instance. Called once, with the pointer that `create` made.
pub type DestroyFn = unsafe extern "C" fn(instance: *mut c_void);
/// Judges all candidates of a decision.
pub type CallFn = unsafe extern "C" fn(
    instance: *const c_void,
    request: *const AbiRequest,
    columns: *const AbiColumns,
    output: *mut AbiOutput,
    error: *mut AbiErrorText,
) -> i32;
/// Computes one number from a cohort; smaller is better.
pub type MeasureFn = unsafe extern "C" fn(
    instance: *const c_void,
    cohort: *const AbiCohort,
    value: *mut f64,
    error: *mut AbiErrorText,
) -> i32;

/// First part of every descriptor.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct DescriptorHead {
    /// [`ABI_MAJOR`] of the contract that the library was written for.
    pub abi_major: u32,
    /// Bytes of the whole descriptor.
    pub struct_size: u32,
    /// Name of the plugin: lower-case letters, digits, `-`.
    pub name: AbiText,
    /// Version as shown to users.
    pub version: AbiText,
    /// Description in one line.
    pub summary: AbiText,
    /// One of [`mod@unit`].
    pub unit: u32,
    /// Bits of [`need`].
    pub needs: u32,
    /// Bits of [`flag`].
    pub flags: u32,
    /// Bytes from one option to the next.
    pub option_size: u32,
    /// Declared options.
    pub options: *const AbiOption,
    /// Number of options.
    pub option_count: usize,
}

/// Descriptor that [`SCORER_SYMBOL`] and [`CONSTRAINT_SYMBOL`] return.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct JudgeDescriptor {
    /// Version, name, options.
    pub head: DescriptorHead,
    /// Makes an instance.
    pub create: Option<CreateFn>,
    /// Frees the instance.
    pub destroy: Option<DestroyFn>,
    /// Judges the candidates of a decision.
    pub call: Option<CallFn>,
    /// Names of the facts that are read as [`AbiColumns::facts`]; may be null when `fact_count` is 0.
    pub facts: *const AbiText,
    /// Number of names.
    pub fact_count: usize,
}

/// Descriptor that [`OBJECTIVE_SYMBOL`] returns.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct ObjectiveDescriptor {
    /// Version, name, options; `needs` is 0.
    pub head: DescriptorHead,
    /// Makes an instance; the fleet is empty.
    pub create: Option<CreateFn>,
    /// Frees the instance.
    pub destroy: Option<DestroyFn>,
    /// Measures a cohort.
    pub measure: Option<MeasureFn>,
}

/// Type of all exported symbols.
pub type EntryFn<D> = unsafe extern "C" fn() -> *const D;
