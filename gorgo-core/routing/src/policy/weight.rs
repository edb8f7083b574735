//! The `weight` of a term: a number, or a table with bounds, a learned rate, or a price in ms.

use super::params::in_range;
use super::suggest::suggestion;
use crate::model::{Candidates, ConfigFaults, ConfigValue, RateKind, RequiredFacts, Unit};

/// Largest magnitude of a weight. Signals stay below 2^53 thousandths, so sums of their products stay finite.
const LIMIT: f64 = 1e9;

/// The weight of a term that states none.
const DEFAULT: f64 = 1.0;

const KEYS: [&str; 6] = ["init", "ms_per_unit", "rate", "min", "max", "tune"];

// Without the intercept: it is a time, not a rate that a signal could be multiplied by.
const RATES: [RateKind; 3] = [RateKind::Prefill, RateKind::Queue, RateKind::Decode];

/// A term's weight as configured.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct TermWeight {
    /// Value until a tuner changes it.
    pub init: f64,
    /// Smallest allowed.
    pub min: f64,
    /// Largest allowed.
    pub max: f64,
    /// True if the optimizer may move it.
    pub tune: bool,
    /// The learned rate that the signal is multiplied by before it is rounded, stored and weighted.
    pub rate: Option<RateKind>,
    /// True if the weight was stated as ms per unit of the signal.
    pub stated_per_unit: bool,
}

impl Default for TermWeight {
    fn default() -> Self {
        Self { init: DEFAULT, min: -LIMIT, max: LIMIT, tune: false, rate: None, stated_per_unit: false }
    }
}

impl TermWeight {
    /// Facts that it reads.
    pub(super) const fn needs(&self) -> RequiredFacts {
        if self.rate.is_some() { RequiredFacts::RATES } else { RequiredFacts::NONE }
    }

    /// Reads `weight` of a term whose signal is in `unit`; `path` is that of the weight.
    pub(super) fn read(value: Option<&ConfigValue>, unit: Unit, path: &str, faults: &mut ConfigFaults) -> Self {
        let mut weight = Self::default();
        match value {
            None => {}
            Some(ConfigValue::Integer(_) | ConfigValue::Float(_)) => {
                weight.init = bounded(value, path, faults).unwrap_or(DEFAULT);
            }
            Some(ConfigValue::Table(members)) => weight.read_table(members, unit, path, faults),
            Some(other) => {
                faults.push_fault(path, format!("expected a number or a table, found {}", other.type_name()));
            }
        }
        weight
    }

    fn read_table(&mut self, members: &[(String, ConfigValue)], unit: Unit, path: &str, faults: &mut ConfigFaults) {
        for (key, _) in members.iter().filter(|(key, _)| !KEYS.contains(&&**key)) {
            faults.push_fault(format!("{path}.{key}"), format!("unknown key; {}", suggestion(key, KEYS.into_iter())));
        }
        let get = |key: &str| members.iter().find(|(name, _)| name == key).map(|(_, value)| value);
        let mut number = |key: &str| get(key).and_then(|value| bounded(Some(value), &format!("{path}.{key}"), faults));
        let (init, per_unit, min, max) = (number("init"), number("ms_per_unit"), number("min"), number("max"));
        // From the key, not from the number: a faulty price must not look like a missing one.
        self.stated_per_unit = get("ms_per_unit").is_some();
        self.init = init.or(per_unit).unwrap_or(DEFAULT);
        (self.min, self.max) = (min.unwrap_or(-LIMIT), max.unwrap_or(LIMIT));
        match get("tune") {
            None => {}
            Some(ConfigValue::Bool(tune)) => self.tune = *tune,
            Some(other) => {
                faults
                    .push_fault(format!("{path}.tune"), format!("expected true or false, found {}", other.type_name()));
            }
        }
        self.rate = get("rate").and_then(|value| rate(value, unit, &format!("{path}.rate"), faults));
        // A price in ms, a plain weight and a rate exclude each other: each is a different way to get ms.
        if self.stated_per_unit && get("init").is_some() {
            faults.push_fault(format!("{path}.ms_per_unit"), "give `init` or `ms_per_unit`, not both");
        }
        if self.stated_per_unit && get("rate").is_some() {
            faults.push_fault(format!("{path}.ms_per_unit"), "give `rate` or `ms_per_unit`, not both");
        }
        if self.stated_per_unit && unit == Unit::Millis {
            faults.push_fault(format!("{path}.ms_per_unit"), "the signal is already in ms; use `init`");
        }
        self.check_bounds(if self.stated_per_unit { "ms_per_unit" } else { "init" }, path, faults);
    }

    fn check_bounds(&self, key: &str, path: &str, faults: &mut ConfigFaults) {
        // Only the first contradiction is reported: the others follow from it.
        if self.min > self.max {
            faults.push_fault(format!("{path}.min"), format!("{:?} is above `max`, {:?}", self.min, self.max));
        } else if self.init < self.min {
            faults.push_fault(format!("{path}.{key}"), format!("{:?} is below `min`, {:?}", self.init, self.min));
        } else if self.init > self.max {
            faults.push_fault(format!("{path}.{key}"), format!("{:?} is above `max`, {:?}", self.init, self.max));
        }
        // The defaults are no bounds to search within.
        if self.tune && self.min == -LIMIT {
            faults.push_fault(format!("{path}.tune"), "a weight that is tuned needs `min`");
        } else if self.tune && self.min <= 0.0 {
            // The search space is logarithmic, so 0 cannot be one of its bounds.
            let message = format!("{:?} is not above 0: a weight that is tuned is searched in logarithms", self.min);
            faults.push_fault(format!("{path}.min"), message);
        }
        if self.tune && self.max == LIMIT {
            faults.push_fault(format!("{path}.tune"), "a weight that is tuned needs `max`");
        }
    }
}

/// A number within ± [`LIMIT`]; else a fault.
fn bounded(value: Option<&ConfigValue>, path: &str, faults: &mut ConfigFaults) -> Option<f64> {
    let value = value?;
    let Some(number) = value.number() else {
        faults.push_fault(path, format!("expected a number, found {}", value.type_name()));
        return None;
    };
    match in_range(number, -LIMIT, LIMIT) {
        Ok(()) => Some(number),
        Err(message) => {
            faults.push_fault(path, message);
            None
        }
    }
}

/// The rate of that name, if it fits the signal's unit; else a fault.
fn rate(value: &ConfigValue, unit: Unit, path: &str, faults: &mut ConfigFaults) -> Option<RateKind> {
    let Some(name) = value.text() else {
        faults.push_fault(path, format!("expected a string, found {}", value.type_name()));
        return None;
    };
    let Some(rate) = RATES.into_iter().find(|rate| rate.name() == name) else {
        let known = suggestion(name, RATES.iter().map(|rate| rate.name()));
        faults.push_fault(path, format!("unknown rate \"{name}\"; {known}"));
        return None;
    };
    // A rate that does not fit is reported but still returned, so that later checks do not also complain about the
    // unit.
    let of = signal_unit(rate);
    if of != unit {
        faults.push_fault(path, format!("the rate `{name}` is ms per unit of {of}, but the signal is in {unit}"));
    }
    Some(rate)
}

/// Unit of the signal that the rate turns into ms.
const fn signal_unit(rate: RateKind) -> Unit {
    match rate {
        RateKind::Prefill | RateKind::Queue => Unit::Tokens,
        RateKind::Decode => Unit::Requests,
        RateKind::Intercept => Unit::One,
    }
}

/// The learned rate of each candidate.
pub(super) fn rate_column(rate: RateKind, candidates: &Candidates) -> &[Option<f64>] {
    match rate {
        RateKind::Prefill => &candidates.prefill_ms_per_token,
        RateKind::Queue => &candidates.queue_ms_per_token,
        RateKind::Decode => &candidates.decode_ms_per_request,
        RateKind::Intercept => &candidates.intercept_ms,
    }
}
