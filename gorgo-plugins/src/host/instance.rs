//! One instance of a plugin: made, called, freed.
#![expect(unsafe_code, reason = "calls into the library")]

use std::cell::RefCell;
use std::ffi::c_void;
use std::mem::MaybeUninit;
use std::{ptr, slice};

use gorgo_routing::model::{Candidates, Replica, RequestView, RequiredFacts};

use super::clock::monotonic_ns;
use super::columns::{ColumnBuffers, request, size};
use super::descriptor::{AskedFacts, PluginFunctions};
use super::error::PluginError;
use super::options::{OptionSetting, OptionValue};
use super::watch::{CallFailure, PluginWatch};
use crate::abi::{self, AbiErrorText, AbiText, CallFn, DestroyFn, status};

/// Buffer for the text of a failing plugin, bytes.
const ERROR_ROOM: usize = 512;

/// State of a plugin, freed by it.
#[derive(Debug)]
pub(crate) struct PluginInstance {
    state: *mut c_void,
    destroy: DestroyFn,
}

// SAFETY: by the contract (rule 7) several threads may call an instance at the same time, and any may free it.
unsafe impl Send for PluginInstance {}
// SAFETY: the same.
unsafe impl Sync for PluginInstance {}

impl Drop for PluginInstance {
    fn drop(&mut self) {
        // SAFETY: `create` made it, it is freed once, and no call runs, since nothing refers to this instance any more.
        unsafe { (self.destroy)(self.state) }
    }
}

fn text(text: &str) -> AbiText {
    AbiText { ptr: text.as_ptr().cast(), len: text.len() }
}

/// Calls `function` with a buffer for an error, and returns its status and text.
fn with_error(function: impl FnOnce(*mut AbiErrorText) -> i32) -> (i32, String) {
    // Not cleared on each call, to save time: only the bytes that the plugin reports as written are read.
    let mut room = [MaybeUninit::<u8>::uninit(); ERROR_ROOM];
    let mut error = AbiErrorText { ptr: room.as_mut_ptr().cast(), cap: room.len(), len: 0 };
    let status = function(&raw mut error);
    if status == status::DONE || error.len == 0 || error.len > room.len() {
        return (status, String::new());
    }
    // SAFETY: by the contract (rule 6) the plugin wrote this many bytes, and the buffer has room for them.
    let said = unsafe { slice::from_raw_parts(room.as_ptr().cast::<u8>(), error.len) };
    (status, String::from_utf8_lossy(said).into_owned())
}

impl PluginInstance {
    /// Makes an instance for this fleet with these settings.
    pub(crate) fn create<F>(
        plugin: &str,
        functions: &PluginFunctions<F>,
        fleet: &[Replica],
        settings: &[OptionSetting],
    ) -> Result<Self, PluginError> {
        let replicas: Vec<abi::AbiReplica> = fleet
            .iter()
            .map(|replica| abi::AbiReplica {
                id: u32::from(replica.id.0),
                reserved: 0,
                name: text(&replica.name),
                region: text(&replica.region),
                engine: text(replica.engine.name()),
            })
            .collect();
        let settings: Vec<abi::AbiSetting> = settings
            .iter()
            .map(|set| {
                let (kind, number, said) = match &set.value {
                    OptionValue::Number(number) => (abi::kind::NUMBER, *number, ""),
                    OptionValue::Bool(truth) => (abi::kind::BOOL, f64::from(u8::from(*truth)), ""),
                    OptionValue::Text(said) => (abi::kind::TEXT, 0.0, &**said),
                };
                abi::AbiSetting { key: text(&set.key), kind, reserved: 0, number, text: text(said) }
            })
            .collect();
        let setup = abi::AbiSetup {
            struct_size: size::<abi::AbiSetup>(),
            replica_size: size::<abi::AbiReplica>(),
            setting_size: size::<abi::AbiSetting>(),
            reserved: 0,
            replicas: replicas.as_ptr(),
            replica_count: replicas.len(),
            settings: settings.as_ptr(),
            setting_count: settings.len(),
        };
        let mut state = ptr::null_mut();
        // SAFETY: the function is of a library that stays loaded forever; setup and pointer live for the call.
        let (status, said) = with_error(|error| unsafe { (functions.create)(&raw const setup, &raw mut state, error) });
        if status != status::DONE {
            return Err(PluginError::Create { plugin: plugin.to_owned(), cause: described(status, &said) });
        }
        Ok(Self { state, destroy: functions.destroy })
    }

    /// Calls `function` with these arguments and returns its status and text.
    pub(crate) fn call(
        &self,
        function: CallFn,
        request: &abi::AbiRequest,
        columns: &abi::AbiColumns,
        output: &mut abi::AbiOutput,
    ) -> (i32, String) {
        // SAFETY: the function is of the library that made the state; everything else lives for the call, and the columns
        // that are not null have `count` rows.
        with_error(|error| unsafe { function(self.state, request, columns, output, error) })
    }

    /// Calls `function` without any buffer for an error.
    #[cfg(feature = "conform")]
    pub(crate) fn call_without_room(
        &self,
        function: CallFn,
        request: &abi::AbiRequest,
        columns: &abi::AbiColumns,
        output: &mut abi::AbiOutput,
    ) -> i32 {
        let mut error = AbiErrorText { ptr: ptr::null_mut(), cap: 0, len: 0 };
        // SAFETY: as above.
        unsafe { function(self.state, request, columns, output, &raw mut error) }
    }

    /// Measures a cohort.
    pub(crate) fn measure(&self, function: abi::MeasureFn, cohort: &abi::AbiCohort) -> Result<f64, CallFailure> {
        let mut value = f64::NAN;
        // SAFETY: as above.
        let (status, said) = with_error(|error| unsafe { function(self.state, cohort, &raw mut value, error) });
        match status {
            status::DONE if value.is_finite() => Ok(value),
            status::DONE => Err(CallFailure { text: format!("its number is {value}, not finite"), fatal: false }),
            status => Err(CallFailure { text: described(status, &said), fatal: status == status::PANICKED }),
        }
    }
}

/// A status in words.
pub(crate) fn described(code: i32, said: &str) -> String {
    let what = match code {
        status::DONE => "done".to_owned(),
        status::BAD_INPUT => "bad input".to_owned(),
        status::ERROR if !said.is_empty() => return said.to_owned(),
        status::ERROR => "an error".to_owned(),
        status::PANICKED => "a panic".to_owned(),
        status::NO_OPINION => "no opinion".to_owned(),
        other => format!("the unknown status {other}"),
    };
    if said.is_empty() { what } else { format!("{what}: {said}") }
}

/// Usable result of a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum CallAnswer {
    /// Rows of `value` and `known`.
    Rows,
    /// No opinion: the plugin has no influence on this decision.
    NoOpinion,
}

/// An instance that takes part in decisions, and the watch over it.
#[derive(Debug)]
pub(super) struct JudgeInstance {
    instance: PluginInstance,
    call: CallFn,
    asks: AskedFacts,
    /// True if infinity is a valid answer: that of a constraint that excludes a replica.
    infinite: bool,
    pub(super) watch: PluginWatch,
}

thread_local! {
    // One per thread: threads decide at the same time. Once it has grown, a call neither locks nor allocates.
    static ROOM: RefCell<ColumnBuffers> = RefCell::default();
}

impl JudgeInstance {
    pub(super) const fn new(
        instance: PluginInstance,
        call: CallFn,
        asks: AskedFacts,
        infinite: bool,
        watch: PluginWatch,
    ) -> Self {
        Self { instance, call, asks, infinite, watch }
    }

    pub(super) fn needs(&self) -> RequiredFacts {
        self.asks.needs()
    }

    /// Mean time of `calls` calls, µs, whatever their result.
    pub(super) fn micros_per_call(&self, view: &RequestView, facts: &Candidates, calls: u32) -> f64 {
        let mut room = ColumnBuffers::default();
        let began = monotonic_ns();
        for _ in 0..calls {
            let (request, columns) = (request(view), room.columns(view, facts, &self.asks));
            let mut output = room.output();
            self.instance.call(self.call, &request, &columns, &mut output);
        }
        #[expect(clippy::cast_precision_loss, reason = "a few seconds at most")]
        let spent_us = monotonic_ns().saturating_sub(began) as f64 / 1e3;
        spent_us / f64::from(calls.max(1))
    }

    /// Calls the plugin, unless it is quarantined, and passes its answer to `read`: all rows or none. Returns whether there
    /// was an answer.
    pub(super) fn judge(&self, view: &RequestView, facts: &Candidates, read: impl FnOnce(&[f64], &[u8])) -> bool {
        if self.watch.is_quarantined() {
            return false;
        }
        ROOM.with_borrow_mut(|room| {
            let (request, columns) = (request(view), room.columns(view, facts, &self.asks));
            let mut output = room.output();
            // Only the plugin's own time counts against its budget, not that of preparing columns.
            let began = self.watch.begin();
            let (status, said) = self.instance.call(self.call, &request, &columns, &mut output);
            let came = check_answer(status, &said, &room.value, &room.known, self.infinite);
            self.watch.end(&began, came.as_ref().err());
            let answered = came == Ok(CallAnswer::Rows);
            if answered {
                read(&room.value, &room.known);
            }
            answered
        })
    }
}

/// Checks whether an answer is usable: one number that is not finite voids all of it.
pub(crate) fn check_answer(
    code: i32,
    said: &str,
    value: &[f64],
    known: &[u8],
    infinite: bool,
) -> Result<CallAnswer, CallFailure> {
    match code {
        status::DONE => {
            let usable = |number: f64| number.is_finite() || (infinite && number == f64::INFINITY);
            let bad = value.iter().zip(known).position(|(value, known)| *known != 0 && !usable(*value));
            match bad {
                None => Ok(CallAnswer::Rows),
                Some(row) => Err(CallFailure {
                    text: format!("its number for row {row} is {}, not finite", value[row]),
                    fatal: false,
                }),
            }
        }
        status::NO_OPINION => Ok(CallAnswer::NoOpinion),
        code => Err(CallFailure { text: described(code, said), fatal: code == status::PANICKED }),
    }
}
