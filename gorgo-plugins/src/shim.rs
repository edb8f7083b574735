//! The foreign functions of plugins in Rust: pointers in, safe types out, and the panic barrier. Authors never see this
//! module; the macros of `sdk` refer to it.
#![expect(unsafe_code, reason = "the boundary of the contract: raw pointers become borrowed slices here")]

use std::any::Any;
use std::cell::{Cell, RefCell};
use std::ffi::c_void;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Once;
use std::{mem, slice, str};

use crate::abi::{self, AbiErrorText, AbiOption, AbiText, flag, option_flag, status};
use crate::sdk::{ConstraintPlugin, ObjectivePlugin, OptionDeclaration, OptionKind, PluginAnswer, ScorerPlugin};

/// A descriptor in static memory.
#[derive(Debug)]
pub struct StaticDescriptor<D>(D);

// SAFETY: a descriptor is never written, and all its pointers point to static memory that is never written either.
unsafe impl<D> Sync for StaticDescriptor<D> {}

impl<D> StaticDescriptor<D> {
    /// Address of the descriptor.
    pub const fn get(&'static self) -> *const D {
        &raw const self.0
    }
}

const fn text(text: &'static str) -> AbiText {
    AbiText { ptr: text.as_ptr().cast(), len: text.len() }
}

/// Texts as the contract passes them.
#[must_use]
pub const fn texts<const COUNT: usize>(named: &'static [&'static str]) -> [AbiText; COUNT] {
    let mut texts = [text(""); COUNT];
    let mut place = 0;
    // `for` and iterators are not usable in a `const fn`.
    while place < COUNT {
        texts[place] = text(named[place]);
        place += 1;
    }
    texts
}

/// Declared options as the contract passes them.
#[must_use]
pub const fn options<const COUNT: usize>(declared: &'static [OptionDeclaration]) -> [AbiOption; COUNT] {
    let nothing = text("");
    let none = AbiOption {
        name: nothing,
        unit: nothing,
        help: nothing,
        kind: 0,
        flags: 0,
        default: f64::NAN,
        min: f64::NEG_INFINITY,
        max: f64::INFINITY,
    };
    let mut specs = [none; COUNT];
    let mut place = 0;
    // `for` and iterators are not usable in a `const fn`.
    while place < COUNT {
        let OptionDeclaration { name, unit, help, kind } = declared[place];
        let spec = &mut specs[place];
        spec.name = text(name);
        spec.unit = text(unit);
        spec.help = text(help);
        match kind {
            OptionKind::Number { default, min, max, tunable } => {
                spec.kind = abi::kind::NUMBER;
                spec.min = min;
                spec.max = max;
                match default {
                    Some(number) => spec.default = number,
                    None => spec.flags |= option_flag::REQUIRED,
                }
                if tunable {
                    spec.flags |= option_flag::TUNABLE;
                }
            }
            OptionKind::Numbers { min, max } => {
                spec.kind = abi::kind::NUMBERS;
                spec.min = min;
                spec.max = max;
            }
            OptionKind::Text => spec.kind = abi::kind::TEXT,
            OptionKind::Texts => spec.kind = abi::kind::TEXTS,
            OptionKind::Bool { default } => {
                spec.kind = abi::kind::BOOL;
                spec.default = if default { 1.0 } else { 0.0 };
            }
        }
        place += 1;
    }
    specs
}

#[expect(clippy::cast_possible_truncation, reason = "the contract's structs are far below 4 GiB")]
const fn size<T>() -> u32 {
    mem::size_of::<T>() as u32
}

const fn head<P: crate::PluginDeclaration, D>(
    options: &'static [AbiOption],
    unit: u32,
    needs: u32,
    flags: u32,
) -> abi::DescriptorHead {
    abi::DescriptorHead {
        abi_major: abi::ABI_MAJOR,
        struct_size: size::<D>(),
        name: text(P::NAME),
        version: text(P::VERSION),
        summary: text(P::SUMMARY),
        unit,
        needs,
        flags,
        option_size: size::<AbiOption>(),
        options: options.as_ptr(),
        option_count: options.len(),
    }
}

/// The descriptor of a scorer.
#[must_use]
pub const fn scorer<S: ScorerPlugin>(
    options: &'static [AbiOption],
    facts: &'static [AbiText],
) -> StaticDescriptor<abi::JudgeDescriptor> {
    let flags = if S::SPREADS { flag::SPREADS } else { 0 };
    StaticDescriptor(abi::JudgeDescriptor {
        head: head::<S, abi::JudgeDescriptor>(options, S::UNIT.code(), S::NEEDS.0, flags),
        create: Some(create_scorer::<S>),
        destroy: Some(destroy::<S>),
        call: Some(score::<S>),
        facts: facts.as_ptr(),
        fact_count: facts.len(),
    })
}

/// The descriptor of a constraint.
#[must_use]
pub const fn constraint<C: ConstraintPlugin>(
    options: &'static [AbiOption],
    facts: &'static [AbiText],
) -> StaticDescriptor<abi::JudgeDescriptor> {
    let flags = if C::HARD { flag::HARD } else { 0 };
    StaticDescriptor(abi::JudgeDescriptor {
        head: head::<C, abi::JudgeDescriptor>(options, abi::unit::ONE, C::NEEDS.0, flags),
        create: Some(create_constraint::<C>),
        destroy: Some(destroy::<C>),
        call: Some(judge::<C>),
        facts: facts.as_ptr(),
        fact_count: facts.len(),
    })
}

/// The descriptor of an objective.
#[must_use]
pub const fn objective<O: ObjectivePlugin>(
    options: &'static [AbiOption],
) -> StaticDescriptor<abi::ObjectiveDescriptor> {
    StaticDescriptor(abi::ObjectiveDescriptor {
        head: head::<O, abi::ObjectiveDescriptor>(options, O::UNIT.code(), 0, 0),
        create: Some(create_objective::<O>),
        destroy: Some(destroy::<O>),
        measure: Some(measure::<O>),
    })
}

/// How a call went wrong.
enum ShimError {
    Input(&'static str),
    Error(String),
}

/// Input of `create`: the fleet and the options.
#[derive(Debug, Clone, Copy)]
pub struct PluginSetup<'a> {
    replicas: &'a [abi::AbiReplica],
    settings: &'a [abi::AbiSetting],
}

/// A replica of the fleet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PluginReplica<'a> {
    /// Number of the replica in the column `replica`.
    pub id: u32,
    /// Unique name.
    pub name: &'a str,
    /// Region.
    pub region: &'a str,
    /// Kind of its engine, as spelled in the configuration.
    pub engine: &'a str,
}

impl<'a> PluginSetup<'a> {
    /// The fleet. Later decisions may include replicas that are not in it.
    pub fn replicas(&self) -> impl Iterator<Item = PluginReplica<'a>> + use<'a> {
        self.replicas.iter().map(|replica| PluginReplica {
            id: replica.id,
            name: read(replica.name),
            region: read(replica.region),
            engine: read(replica.engine),
        })
    }

    /// The number of an option; for a boolean, 1 or 0. `None`: not set and without a default.
    #[must_use]
    pub fn number(&self, name: &str) -> Option<f64> {
        self.settings.iter().find(|it| it.kind != abi::kind::TEXT && read(it.key) == name).map(|it| it.number)
    }

    /// Returns whether a boolean option is true.
    #[must_use]
    pub fn bool(&self, name: &str) -> bool {
        self.number(name) == Some(1.0)
    }

    /// The numbers of an option that takes them by name.
    pub fn numbers(&self, name: &str) -> impl Iterator<Item = (&'a str, f64)> {
        self.settings.iter().filter_map(move |it| {
            let inner = read(it.key).strip_prefix(name)?.strip_prefix('.')?;
            (it.kind == abi::kind::NUMBER).then_some((inner, it.number))
        })
    }

    /// The texts of an option; a single one for an option of one text.
    pub fn texts(&self, name: &str) -> impl Iterator<Item = &'a str> {
        self.settings
            .iter()
            .filter(move |it| it.kind == abi::kind::TEXT && read(it.key) == name)
            .map(|it| read(it.text))
    }
}

/// Text of the caller; empty if it is not UTF-8. Only reached through a checked [`PluginSetup`].
fn read<'a>(text: AbiText) -> &'a str {
    if text.ptr.is_null() || text.len == 0 {
        return "";
    }
    // SAFETY: the caller of `create` keeps all text of the setup alive for the call (abi.rs, `AbiText`), and instances
    // cannot keep it: `PluginSetup` is borrowed for the call.
    let bytes = unsafe { slice::from_raw_parts(text.ptr.cast::<u8>(), text.len) };
    str::from_utf8(bytes).unwrap_or_default()
}

/// A request.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct PluginRequest {
    /// Prompt tokens, estimated.
    pub prompt_tokens: u32,
    /// Limit on the answer that the client set, tokens.
    pub max_tokens: Option<u32>,
    /// Request body, bytes.
    pub body_bytes: u64,
    /// Hash of the session key.
    pub session_hash: u64,
    /// Hash of the prompt's first 256 tokens.
    pub head_hash: u64,
    /// Decisions of this policy before this one.
    pub turn: u64,
    /// TTFT that the client requested with the header `x-slo-ttft-ms`, ms.
    pub slo_ttft_ms: Option<f64>,
}

/// The facts of the candidates: row *i* is the same replica in every column. A column that was not requested is empty;
/// unknown numbers are NaN.
#[derive(Debug, Clone, Copy)]
pub struct PluginColumns<'a>(&'a abi::AbiColumns);

macro_rules! columns {
    ($($(#[doc = $doc:literal])+ $name:ident: $ty:ty,)*) => {
        impl<'a> PluginColumns<'a> {
            $(
                $(#[doc = $doc])+
                #[must_use]
                pub fn $name(&self) -> &'a [$ty] {
                    column(self.0.$name, self.0.count)
                }
            )*
        }
    };
}

columns! {
    /// Number of each replica, as in [`PluginSetup::replicas`].
    replica: u32,
    /// 1 if the replica may be used at all, else 0.
    available: u8,
    /// Hash of the replica's name, the same in every process.
    name_hash: u64,
    /// KV capacity, tokens; 0: unknown.
    capacity_tokens: u64,
    /// Smoothed round trip, ms. Needs `RTT`.
    rtt_ms: f64,
    /// 95th percentile of recent round trips, ms. Needs `RTT`.
    rtt_p95_ms: f64,
    /// Prompt tokens of this request that are believed to be cached there. Needs `PREFIX`.
    cached_tokens: u32,
    /// Prompt tokens of this router's requests there that are not complete. Needs `LOAD`.
    queued_tokens: u64,
    /// The same, of requests without a first token. Needs `LOAD`.
    queued_tokens_first: u64,
    /// Uncached prompt tokens of requests there that are not complete. Needs `LOAD`.
    queued_uncached_tokens_completion: u64,
    /// The same, of requests without a first token. Needs `LOAD`.
    queued_uncached_tokens: u64,
    /// This router's requests there. Needs `LOAD`.
    inflight: u32,
    /// Those of them that are past their first token. Needs `LOAD`.
    decoding: u32,
    /// This router's requests sent there since the last report, less those that ended since. Needs `REPORT`.
    inflight_since_report: i64,
    /// Running requests. Needs `REPORT`.
    engine_running: f64,
    /// Waiting requests. Needs `REPORT`.
    engine_waiting: f64,
    /// KV tokens in use. Needs `REPORT`.
    kv_used_tokens: f64,
    /// Share of the KV cache in use, 0 to 1. Needs `REPORT`.
    kv_used_share: f64,
    /// Generation throughput, tokens/s. Needs `REPORT`.
    engine_throughput: f64,
    /// Age of the report, ms. Needs `REPORT`.
    report_age_ms: f64,
    /// Smoothed TTFT, ms. Needs `LATENCY`.
    latency_ms: f64,
    /// Learned prefill time, ms per uncached token. Needs `RATES`.
    prefill_ms_per_token: f64,
    /// Learned waiting time, ms per queued uncached token. Needs `RATES`.
    queue_ms_per_token: f64,
    /// Learned slow-down, ms per request decoding there. Needs `RATES`.
    decode_ms_per_request: f64,
    /// Learned fixed part of TTFT beyond the round trip, ms. Needs `RATES`.
    intercept_ms: f64,
}

impl<'a> PluginColumns<'a> {
    /// The facts that the plugin names (`FACTS`), in its order; unknown numbers are NaN.
    #[must_use]
    pub fn facts<const COUNT: usize>(&self) -> [&'a [f64]; COUNT] {
        let named: &[*const f64] = column(self.0.facts, self.0.fact_count);
        std::array::from_fn(|place| named.get(place).map_or(&[][..], |fact| column(*fact, self.0.count)))
    }
}

/// The requests of one arm whose answer began and did not fail, in no particular order. Unknown numbers are NaN.
#[derive(Debug, Clone, Copy)]
pub struct PluginCohort<'a>(&'a abi::AbiCohort);

impl<'a> PluginCohort<'a> {
    /// Time from arrival to the first generated content, ms.
    #[must_use]
    pub fn ttft_ms(&self) -> &'a [f64] {
        column(self.0.ttft_ms, self.0.count)
    }

    /// Time from arrival to the last byte, ms; NaN if the client left before it.
    #[must_use]
    pub fn e2e_ms(&self) -> &'a [f64] {
        column(self.0.e2e_ms, self.0.count)
    }

    /// Mean time between tokens, ms.
    #[must_use]
    pub fn itl_ms(&self) -> &'a [f64] {
        column(self.0.itl_ms, self.0.count)
    }

    /// Prompt tokens.
    #[must_use]
    pub fn prompt_tokens(&self) -> &'a [f64] {
        column(self.0.prompt_tokens, self.0.count)
    }

    /// Tokens generated.
    #[must_use]
    pub fn completion_tokens(&self) -> &'a [f64] {
        column(self.0.completion_tokens, self.0.count)
    }

    /// Time from the first arrival to the last end, s; NaN if the requests are not from one contiguous period, as in a
    /// trial.
    #[must_use]
    pub const fn span_secs(&self) -> f64 {
        self.0.span_secs
    }

    /// Requests beyond those in the columns that failed, are overdue, or whose client gave up waiting for a first token.
    #[must_use]
    pub const fn failed(&self) -> u64 {
        self.0.failed
    }
}

/// A column of a struct that has been checked.
fn column<'a, T>(ptr: *const T, count: usize) -> &'a [T] {
    if ptr.is_null() || count == 0 {
        return &[];
    }
    // SAFETY: the caller keeps each column that is not null alive for the call, `count` rows long and aligned (abi.rs,
    // rule 4); the types that hand it out borrow for the call.
    unsafe { slice::from_raw_parts(ptr, count) }
}

/// The struct behind a pointer, if it is not null, aligned and at least as large as this version defines it.
///
/// # Safety
/// `ptr` is null, or points to a struct that begins with its size in bytes and lives for `'a`.
unsafe fn checked_struct<'a, T>(ptr: *const T, what: &'static str) -> Result<&'a T, ShimError> {
    if ptr.is_null() || !ptr.is_aligned() {
        return Err(ShimError::Input(what));
    }
    // SAFETY: guaranteed by the caller; each of the contract's structs begins with its size, a `u32`.
    let struct_size = unsafe { *ptr.cast::<u32>() };
    if struct_size < size::<T>() {
        return Err(ShimError::Input(what));
    }
    // SAFETY: not null, aligned, and by its size all bytes are present.
    Ok(unsafe { &*ptr })
}

thread_local! {
    /// True while this thread is inside a plugin: a panic is then reported to the caller and not printed.
    static INSIDE: Cell<bool> = const { Cell::new(false) };
    /// Signals of one call before they are written out; kept between calls so that a call does not allocate.
    static SIGNALS: RefCell<Vec<Option<f64>>> = const { RefCell::new(Vec::new()) };
}

static QUIET: Once = Once::new();

/// Runs `body` so that no panic leaves it, and turns its result into a status and text.
fn barrier(error: *mut AbiErrorText, body: impl FnOnce() -> Result<PluginAnswer, ShimError>) -> i32 {
    // Printing a panic with its backtrace takes most of a second, so inside a plugin its text goes to the caller instead.
    QUIET.call_once(|| {
        let before = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |news| {
            if !INSIDE.get() {
                before(news);
            }
        }));
    });
    INSIDE.set(true);
    let done = catch_unwind(AssertUnwindSafe(body));
    INSIDE.set(false);
    match done {
        Ok(Ok(PluginAnswer::Given)) => status::DONE,
        Ok(Ok(PluginAnswer::NoOpinion)) => status::NO_OPINION,
        Ok(Err(ShimError::Input(what))) => {
            write_error(error, what);
            status::BAD_INPUT
        }
        Ok(Err(ShimError::Error(cause))) => {
            write_error(error, &cause);
            status::ERROR
        }
        Err(payload) => {
            write_error(error, panic_message(&*payload));
            // Dropping a payload may itself panic, and here nothing would catch it.
            mem::forget(payload);
            status::PANICKED
        }
    }
}

fn panic_message(payload: &(dyn Any + Send)) -> &str {
    match (payload.downcast_ref::<&str>(), payload.downcast_ref::<String>()) {
        (Some(text), _) => text,
        (_, Some(text)) => text,
        _ => "a panic without text",
    }
}

/// Leaves text in the caller's buffer, cut at the end of a character.
fn write_error(error: *mut AbiErrorText, text: &str) {
    if error.is_null() || !error.is_aligned() {
        return;
    }
    // SAFETY: the caller's error buffer lives for the call, and only this call uses it (abi.rs, rule 6).
    let error = unsafe { &mut *error };
    error.len = 0;
    if error.ptr.is_null() || error.cap == 0 {
        return;
    }
    // A character that is cut in half would not be UTF-8.
    let len = text.floor_char_boundary(error.cap.min(text.len()));
    // SAFETY: `cap` bytes are writable at `ptr`, `len` is at most `cap`, and the text is not in the buffer.
    unsafe { error.ptr.cast::<u8>().copy_from_nonoverlapping(text.as_ptr(), len) };
    error.len = len;
}

fn create<P>(
    setup: *const abi::AbiSetup,
    instance: *mut *mut c_void,
    error: *mut AbiErrorText,
    make: impl FnOnce(&PluginSetup<'_>) -> Result<P, String>,
) -> i32 {
    barrier(error, || {
        // SAFETY: by the contract the caller passes a setup that lives for the call.
        let setup = unsafe { checked_struct(setup, "the setup is missing or shorter than this plugin expects") }?;
        // A later router may have longer rows; reading them with this version's stride would mix up their fields.
        let strides =
            setup.replica_size == size::<abi::AbiReplica>() && setup.setting_size == size::<abi::AbiSetting>();
        if !strides || instance.is_null() || !instance.is_aligned() {
            return Err(ShimError::Input(
                "the rows of the setup have another size than this plugin expects, or the pointer for the instance is null",
            ));
        }
        let setup = PluginSetup {
            replicas: column(setup.replicas, setup.replica_count),
            settings: column(setup.settings, setup.setting_count),
        };
        let made = Box::new(make(&setup).map_err(ShimError::Error)?);
        // SAFETY: checked to be not null and aligned; the caller keeps it for the call.
        unsafe { *instance = Box::into_raw(made).cast() };
        Ok(PluginAnswer::Given)
    })
}

unsafe extern "C" fn create_scorer<S: ScorerPlugin>(
    setup: *const abi::AbiSetup,
    instance: *mut *mut c_void,
    error: *mut AbiErrorText,
) -> i32 {
    create(setup, instance, error, S::create)
}

unsafe extern "C" fn create_constraint<C: ConstraintPlugin>(
    setup: *const abi::AbiSetup,
    instance: *mut *mut c_void,
    error: *mut AbiErrorText,
) -> i32 {
    create(setup, instance, error, C::create)
}

unsafe extern "C" fn create_objective<O: ObjectivePlugin>(
    setup: *const abi::AbiSetup,
    instance: *mut *mut c_void,
    error: *mut AbiErrorText,
) -> i32 {
    create(setup, instance, error, O::create)
}

unsafe extern "C" fn destroy<P>(instance: *mut c_void) {
    if instance.is_null() {
        return;
    }
    barrier(std::ptr::null_mut(), || {
        // SAFETY: `create` made it from a box of this type, and the caller destroys it once.
        drop(unsafe { Box::from_raw(instance.cast::<P>()) });
        Ok(PluginAnswer::Given)
    });
}

/// The parts of a call, checked.
///
/// # Safety
/// The pointers are valid by the contract for `'a`; only this call uses the output.
unsafe fn parts<'a, P>(
    instance: *const c_void,
    request: *const abi::AbiRequest,
    columns: *const abi::AbiColumns,
    output: *mut abi::AbiOutput,
) -> Result<(&'a P, PluginRequest, PluginColumns<'a>, &'a abi::AbiOutput), ShimError> {
    if instance.is_null() {
        return Err(ShimError::Input("the instance is null"));
    }
    // SAFETY: `create` made it from a box of this type; it is only destroyed when no call runs.
    let plugin = unsafe { &*instance.cast::<P>() };
    // SAFETY: guaranteed by this function's caller.
    let request = unsafe { checked_struct(request, "the request is missing or shorter than this plugin expects") }?;
    // SAFETY: the same.
    let columns = unsafe { checked_struct(columns, "the columns are missing or shorter than this plugin expects") }?;
    // SAFETY: the same.
    let output =
        unsafe { checked_struct(output.cast_const(), "the output is missing or shorter than this plugin expects") }?;
    if output.count != columns.count || (output.count > 0 && output.value.is_null()) {
        return Err(ShimError::Input("the output and the columns differ in their number of rows"));
    }
    let request = PluginRequest {
        prompt_tokens: request.prompt_tokens,
        max_tokens: Some(request.max_tokens).filter(|tokens| *tokens > 0),
        body_bytes: request.body_bytes,
        session_hash: request.session_hash,
        head_hash: request.head_hash,
        turn: request.turn,
        slo_ttft_ms: Some(request.slo_ttft_ms).filter(|asked| asked.is_finite()),
    };
    Ok((plugin, request, PluginColumns(columns), output))
}

/// A writable column of the output.
///
/// # Safety
/// `ptr` points to `count` writable rows that only this call uses.
unsafe fn column_mut<'a, T>(ptr: *mut T, count: usize) -> &'a mut [T] {
    if ptr.is_null() || count == 0 {
        return &mut [];
    }
    // SAFETY: guaranteed by this function's caller.
    unsafe { slice::from_raw_parts_mut(ptr, count) }
}

unsafe extern "C" fn score<S: ScorerPlugin>(
    instance: *const c_void,
    request: *const abi::AbiRequest,
    columns: *const abi::AbiColumns,
    output: *mut abi::AbiOutput,
    error: *mut AbiErrorText,
) -> i32 {
    barrier(error, || {
        // SAFETY: by the contract the caller passes the pointers that `parts` requires.
        let (scorer, request, columns, output) = unsafe { parts::<S>(instance, request, columns, output) }?;
        // Taken out of the cell, not borrowed, so that a panic cannot leave it borrowed.
        let mut signals = SIGNALS.take();
        signals.clear();
        signals.resize(output.count, None);
        let answer = scorer.score(&request, &columns, &mut signals).map_err(ShimError::Error)?;
        // SAFETY: both columns have `count` rows, and only this call uses them (abi.rs, rule 5).
        let (values, known) =
            unsafe { (column_mut(output.value, output.count), column_mut(output.known, output.count)) };
        for (row, signal) in signals.iter().enumerate() {
            values[row] = signal.unwrap_or(f64::NAN);
            if let Some(known) = known.get_mut(row) {
                *known = u8::from(signal.is_some());
            }
        }
        SIGNALS.set(signals);
        Ok(answer)
    })
}

unsafe extern "C" fn judge<C: ConstraintPlugin>(
    instance: *const c_void,
    request: *const abi::AbiRequest,
    columns: *const abi::AbiColumns,
    output: *mut abi::AbiOutput,
    error: *mut AbiErrorText,
) -> i32 {
    barrier(error, || {
        // SAFETY: by the contract the caller passes the pointers that `parts` requires.
        let (constraint, request, columns, output) = unsafe { parts::<C>(instance, request, columns, output) }?;
        // SAFETY: the column has `count` rows, and only this call uses it (abi.rs, rule 5).
        let values = unsafe { column_mut(output.value, output.count) };
        constraint.judge(&request, &columns, values).map_err(ShimError::Error)
    })
}

unsafe extern "C" fn measure<O: ObjectivePlugin>(
    instance: *const c_void,
    cohort: *const abi::AbiCohort,
    value: *mut f64,
    error: *mut AbiErrorText,
) -> i32 {
    barrier(error, || {
        if instance.is_null() || value.is_null() || !value.is_aligned() {
            return Err(ShimError::Input("the instance or the pointer for the number is null"));
        }
        // SAFETY: `create` made it from a box of this type; it is only destroyed when no call runs.
        let objective = unsafe { &*instance.cast::<O>() };
        // SAFETY: by the contract the caller passes a cohort that lives for the call.
        let cohort = unsafe { checked_struct(cohort, "the cohort is missing or shorter than this plugin expects") }?;
        let number = objective.measure(&PluginCohort(cohort)).map_err(ShimError::Error)?;
        // SAFETY: checked to be not null and aligned; the caller keeps it for the call.
        unsafe { *value = number };
        Ok(PluginAnswer::Given)
    })
}
