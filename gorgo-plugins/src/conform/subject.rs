//! The instance under test, and how it is called.

use gorgo_routing::model::{Candidates, Replica, RequestView};

use super::facts::fleet;
use crate::abi::{self, CONSTRAINT_SYMBOL, CallFn, MeasureFn};
use crate::host::columns::{ColumnBuffers, request};
use crate::host::descriptor::PluginFunctions;
use crate::host::instance::{CallAnswer, PluginInstance, check_answer};
use crate::host::options::OptionSetting;
use crate::host::{PluginError, PluginInfo};

/// Number of replicas in the fleet that instances are made for.
pub(super) const FLEET: u16 = 64;

/// A scorer or a constraint.
pub(super) struct JudgeSubject {
    pub(super) symbol: &'static str,
    pub(super) about: PluginInfo,
    pub(super) functions: PluginFunctions<CallFn>,
    pub(super) settings: Vec<OptionSetting>,
    pub(super) fleet: Vec<Replica>,
    pub(super) instance: PluginInstance,
}

/// Answer of a plugin: `None` if it had no opinion; a row is `None` if it is unknown.
pub(super) type JudgeAnswer = Option<Vec<Option<f64>>>;

impl JudgeSubject {
    pub(super) fn new(
        symbol: &'static str,
        about: PluginInfo,
        functions: PluginFunctions<CallFn>,
        settings: Vec<OptionSetting>,
    ) -> Result<Self, PluginError> {
        let fleet = fleet(FLEET);
        let instance = PluginInstance::create(&about.name, &functions, &fleet, &settings)?;
        Ok(Self { symbol, about, functions, settings, fleet, instance })
    }

    /// Calls the plugin; an unusable answer is an error.
    pub(super) fn ask(&self, view: &RequestView, facts: &Candidates) -> Result<JudgeAnswer, String> {
        let mut room = ColumnBuffers::default();
        let columns = room.columns(view, facts, &self.about.asks);
        let (status, said) = self.raw(view, &columns, &mut room);
        let came = check_answer(status, &said, &room.value, &room.known, self.symbol == CONSTRAINT_SYMBOL);
        match came.map_err(|failure| failure.text)? {
            CallAnswer::NoOpinion => Ok(None),
            CallAnswer::Rows => {
                let row = |(value, known): (&f64, &u8)| (*known != 0).then_some(*value);
                Ok(Some(room.value.iter().zip(&room.known).map(row).collect()))
            }
        }
    }

    /// Calls the plugin with these columns, and returns its status and text.
    pub(super) fn raw(&self, view: &RequestView, columns: &abi::AbiColumns, room: &mut ColumnBuffers) -> (i32, String) {
        let (request, mut output) = (request(view), room.output());
        self.instance.call(self.functions.call, &request, columns, &mut output)
    }
}

/// An objective.
pub(super) struct ObjectiveSubject {
    pub(super) about: PluginInfo,
    pub(super) measure: MeasureFn,
    pub(super) instance: PluginInstance,
}

impl ObjectiveSubject {
    pub(super) fn new(
        about: PluginInfo,
        functions: PluginFunctions<MeasureFn>,
        settings: &[OptionSetting],
    ) -> Result<Self, PluginError> {
        let instance = PluginInstance::create(&about.name, &functions, &[], settings)?;
        Ok(Self { about, measure: functions.call, instance })
    }
}
