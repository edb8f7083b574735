//! The instance under test, and how it is called.

use gorgo_routing::model::{Candidates, Replica, RequestView};

use super::facts::fleet;
use crate::abi::{self, CONSTRAINT_SYMBOL, CallFn, MeasureFn};
use crate::host::columns::{Room, request};
use crate::host::descriptor::Functions;
use crate::host::instance::{Came, Instance, came};
use crate::host::options::Set;
use crate::host::{About, PluginError};

/// Number of replicas in the fleet that instances are made for.
pub(super) const FLEET: u16 = 64;

/// A scorer or a constraint.
pub(super) struct Subject {
    pub(super) symbol: &'static str,
    pub(super) about: About,
    pub(super) functions: Functions<CallFn>,
    pub(super) settings: Vec<Set>,
    pub(super) fleet: Vec<Replica>,
    pub(super) instance: Instance,
}

/// Answer of a plugin: `None` if it had no opinion; a row is `None` if it is unknown.
pub(super) type Answer = Option<Vec<Option<f64>>>;

impl Subject {
    pub(super) fn new(
        symbol: &'static str,
        about: About,
        functions: Functions<CallFn>,
        settings: Vec<Set>,
    ) -> Result<Self, PluginError> {
        let fleet = fleet(FLEET);
        let instance = Instance::create(&about.name, &functions, &fleet, &settings)?;
        Ok(Self { symbol, about, functions, settings, fleet, instance })
    }

    /// Calls the plugin; an unusable answer is an error.
    pub(super) fn ask(&self, view: &RequestView, facts: &Candidates) -> Result<Answer, String> {
        let mut room = Room::default();
        let columns = room.columns(view, facts, &self.about.asks);
        let (status, said) = self.raw(view, &columns, &mut room);
        let came = came(status, &said, &room.value, &room.known, self.symbol == CONSTRAINT_SYMBOL);
        match came.map_err(|failure| failure.text)? {
            Came::Nothing => Ok(None),
            Came::Rows => {
                let row = |(value, known): (&f64, &u8)| (*known != 0).then_some(*value);
                Ok(Some(room.value.iter().zip(&room.known).map(row).collect()))
            }
        }
    }

    /// Calls the plugin with these columns, and returns its status and text.
    pub(super) fn raw(&self, view: &RequestView, columns: &abi::Columns, room: &mut Room) -> (i32, String) {
        let (request, mut output) = (request(view), room.output());
        self.instance.call(self.functions.call, &request, columns, &mut output)
    }
}

/// An objective.
pub(super) struct Measured {
    pub(super) about: About,
    pub(super) measure: MeasureFn,
    pub(super) instance: Instance,
}

impl Measured {
    pub(super) fn new(about: About, functions: Functions<MeasureFn>, settings: &[Set]) -> Result<Self, PluginError> {
        let instance = Instance::create(&about.name, &functions, &[], settings)?;
        Ok(Self { about, measure: functions.call, instance })
    }
}
