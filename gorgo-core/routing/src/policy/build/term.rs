//! `[[policy.NAME.term]]` tables → terms, and checks of all terms together.

use std::collections::HashSet;
use std::sync::Arc;

use super::PolicyBuilder;
use crate::model::{ConfigValue, Unit};
use crate::policy::loader::{LoadedTerm, PLUGIN_TERM};
use crate::policy::suggest::suggestion;
use crate::policy::weight::TermWeight;
use crate::policy::{PolicyTerm, PolicyUnit, UnknownFallback, params};
use crate::score::TermSlot;

/// Keys that every term has.
const TERM_KEYS: [&str; 4] = ["kind", "name", "weight", "unknown"];

/// The same for terms whose unit the policy states.
const TERM_KEYS_WITH_UNIT: [&str; 5] = ["kind", "name", "weight", "unknown", "unit"];

/// A term that was built.
pub(super) struct PlacedTerm {
    /// Position in the file.
    file_index: usize,
    /// True if the signal rises with the work a replica was given.
    spreads: bool,
    pub(super) term: PolicyTerm,
}

impl PlacedTerm {
    /// Returns true if the term keeps one replica from getting everything.
    fn spreads(&self) -> bool {
        // Under a negative weight more load makes a replica cheaper, which is the opposite of spreading.
        self.term.cost_term.spreads().unwrap_or(self.spreads) && self.term.weight.init > 0.0
    }

    /// The term as its policy's cost sees it.
    pub(super) fn slot(&self) -> TermSlot<'_> {
        TermSlot { name: &self.term.name, kind: self.term.kind, millis: in_ms(&self.term) }
    }
}

impl PolicyBuilder<'_> {
    /// The terms of a policy; those that cannot be built are left out and reported.
    pub(super) fn terms(&mut self, value: Option<&ConfigValue>) -> Vec<PlacedTerm> {
        let list = match value {
            None => &Vec::new(),
            Some(ConfigValue::List(list)) => list,
            Some(other) => {
                self.fault(".term", format!("expected [[…term]] tables, found {}", other.type_name()));
                return Vec::new();
            }
        };
        // Names identify terms in rows and options, so they must be unique.
        let mut used = HashSet::new();
        let mut terms = Vec::new();
        for (index, entry) in list.iter().enumerate() {
            let path = format!("{}.term[{index}]", self.path);
            let Some((term, spreads)) = self.term(entry, &path) else { continue };
            if !used.insert(Arc::clone(&term.name)) {
                // Without a name the kind is the name, so the kind's key is the one to point at.
                let key = if entry.get("name").is_some() { "name" } else { "kind" };
                let message = format!("a term \"{}\" is defined above; give one of them another `name`", term.name);
                self.faults.push_fault(format!("{path}.{key}"), message);
            }
            terms.push(PlacedTerm { file_index: index, spreads, term });
        }
        terms
    }

    /// The term, and whether it rises with load.
    fn term(&mut self, entry: &ConfigValue, path: &str) -> Option<(PolicyTerm, bool)> {
        let known = self.registry.terms.clone();
        let (members, kind) = self.kind_of(entry, path, "term", false, known.iter().map(|kind| (kind.kind, *kind)))?;
        // A plugin declares its unit itself; other kinds without a unit need one in the file.
        let unit_is_stated = kind.unit.is_none() && kind.kind != PLUGIN_TERM.kind;
        let shared: &[&str] = if unit_is_stated { &TERM_KEYS_WITH_UNIT } else { &TERM_KEYS };
        let params = params::read(members, kind.params, shared, path, self.faults);
        let loader = self.registry.loader.as_ref().filter(|_| kind.kind == PLUGIN_TERM.kind);
        let loaded = match loader.map(|loader| loader.term(&params, self.fleet)).transpose() {
            Ok(loaded) => loaded,
            Err(message) => {
                self.faults.push_fault(path, message);
                return None;
            }
        };
        let unit = match &loaded {
            Some(loaded) => Some(loaded.unit),
            None => kind.unit.or_else(|| self.stated_unit(entry.get("unit"), path)),
        };
        let name = match entry.get("name") {
            None => Some(loaded.as_ref().map_or(kind.kind, |loaded| &*loaded.name)),
            Some(ConfigValue::Text(name)) if !name.is_empty() => Some(&**name),
            Some(_) => {
                self.faults.push_fault(format!("{path}.name"), "expected a string that is not empty");
                None
            }
        };
        let unknown = match entry.get("unknown") {
            None => UnknownFallback::Worst,
            Some(ConfigValue::Text(text)) if text == "worst" => UnknownFallback::Worst,
            // The bound keeps the stand-in below 2^53 thousandths, up to which stored signals are exact.
            Some(value) => match value.number().filter(|number| number.abs() <= 1e12) {
                Some(number) => UnknownFallback::Value(number),
                None => {
                    let message = "expected \"worst\" or a number in the term's unit, at most 1e12";
                    self.faults.push_fault(format!("{path}.unknown"), message);
                    UnknownFallback::Worst
                }
            },
        };
        let weight =
            TermWeight::read(entry.get("weight"), unit.unwrap_or(Unit::One), &format!("{path}.weight"), self.faults);
        let name = name.map(Arc::from);
        let built = match loaded {
            Some(LoadedTerm { term: signal, sha256, spreads, .. }) => Ok((signal, Some(sha256), spreads)),
            None => (kind.build)(&params, self.fleet).map(|signal| (signal, None, kind.spreads)),
        };
        let (signal, plugin_sha256, spreads) = match built {
            Ok(built) => built,
            Err(message) => {
                self.report_refusal(path, members, &message);
                return None;
            }
        };
        // Only a stated unit can be wrong: the other units belong to the kind or the plugin.
        if let (None, Some(Err(message))) = (kind.unit, unit.map(|unit| signal.check_unit(unit))) {
            self.report_refusal(path, members, &message);
        }
        // A rate turns the signal into ms before it is stored.
        let unit = if weight.rate.is_some() { Unit::Millis } else { unit? };
        Some((
            PolicyTerm { name: name?, kind: kind.kind, unit, weight, unknown, plugin_sha256, cost_term: signal },
            spreads,
        ))
    }

    /// The unit of a term whose kind has no fixed unit.
    fn stated_unit(&mut self, value: Option<&ConfigValue>, path: &str) -> Option<Unit> {
        let names = || Unit::ALL.into_iter().map(Unit::name);
        let Some(value) = value else {
            let known: Vec<_> = names().collect();
            self.faults.push_fault(path, format!("`unit` of the signal is missing; known: {}", known.join(", ")));
            return None;
        };
        let unit = value.text().and_then(Unit::parse);
        if unit.is_none() {
            let near = suggestion(value.text().unwrap_or_default(), names());
            self.faults.push_fault(format!("{path}.unit"), format!("unknown unit; {near}"));
        }
        unit
    }

    /// Checks all terms together: their units, and whether load affects the cost at all. `limited`: a constraint or an
    /// admission gate bounds the load of a replica.
    pub(super) fn check_terms(&mut self, unit: PolicyUnit, terms: &[PlacedTerm], limited: bool) {
        match unit {
            PolicyUnit::Raw => {}
            PolicyUnit::Unstated => self.warn_of_mixed_units(terms),
            PolicyUnit::Millis => self.check_millis(terms),
        }
        // A term that was left out because of a fault may be the one that would be reported missing below.
        if self.faults.has_faults() {
            return;
        }
        if terms.is_empty() {
            self.fault(
                "",
                "there is no [[…term]], but the picker reads costs; add a term, or set `picker = \"random\"`",
            );
            return;
        }
        // `network` charges whole round trips, so it already contains what `rtt` charges.
        let of_kind = |kind| terms.iter().find(|built| built.term.kind == kind).map(|built| &built.term.name);
        if let (Some(network), Some(rtt)) = (of_kind("network"), of_kind("rtt")) {
            let message =
                format!("the round trip is charged twice: by \"{network}\" and by \"{rtt}\"; one of them is enough");
            self.faults.push_warning(self.path.clone(), message);
        }
        let spreads = terms.iter().any(PlacedTerm::spreads);
        if !spreads && !limited {
            let message = "no cost here rises with load (the queue term is missing or has weight 0) and no constraint \
                           limits it: one replica may get everything";
            self.faults.push_warning(self.path.clone(), message);
        }
    }

    fn warn_of_mixed_units(&mut self, terms: &[PlacedTerm]) {
        let unit_of = |built: &PlacedTerm| if in_ms(&built.term) { Unit::Millis } else { built.term.unit };
        // A sum of one unit needs no statement, whatever the unit is.
        if terms.windows(2).all(|two| unit_of(&two[0]) == unit_of(&two[1])) {
            return;
        }
        let each: Vec<_> = terms.iter().map(|built| format!("{} in {}", built.term.name, unit_of(built))).collect();
        let message = format!(
            "terms of different units are added up ({}); set unit = \"raw\" if that is intended, or unit = \"ms\" and \
             give the others rates",
            each.join(", ")
        );
        self.faults.push_warning(self.path.clone(), message);
    }

    fn check_millis(&mut self, terms: &[PlacedTerm]) {
        for PlacedTerm { file_index: place, term, .. } in terms.iter().filter(|built| !in_ms(&built.term)) {
            // Only rates that fit the unit are suggested.
            let rates = match term.unit {
                Unit::Tokens => "`rate = \"prefill\"` or `rate = \"queue\"`, or ",
                Unit::Requests => "`rate = \"decode\"`, or ",
                _ => "",
            };
            let message = format!(
                "the signal is in {}, the policy in ms: the weight needs {rates}to be stated as \
                 `{{ ms_per_unit = … }}`",
                term.unit
            );
            self.fault(&format!(".term[{place}].weight"), message);
        }
    }
}

/// Returns true if weight × signal is in ms.
fn in_ms(term: &PolicyTerm) -> bool {
    term.unit == Unit::Millis || term.weight.stated_per_unit
}
