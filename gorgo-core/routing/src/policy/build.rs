//! Tables of configuration → policies. Checks continue after the first fault, so that all are reported at once, each
//! with the path of its key.

mod admission;
mod constraint;
mod digest;
mod term;
mod tune;

use std::sync::Arc;

use self::digest::digest;
use self::term::PlacedTerm;
use super::presets::{PRESETS, preset};
use super::suggest::suggestion;
use super::{KindRegistry, Policy, PolicySet, PolicyUnit, params};
use crate::config::table_text;
use crate::model::{
    ConfigFaults, ConfigValue, ParamSpec, ParamValues, PolicyBuildId, PolicyIndex, Replica, RequiredFacts, Severity,
    ShareWindow,
};
use crate::pick::PickerKind;
use crate::score::{CostKind, TermSlot};

/// Result of building the tables.
#[derive(Debug)]
pub struct CheckedPolicies {
    /// The policies; `None` if there is an error that must be fixed.
    pub policies: Option<PolicySet>,
    /// All findings, warnings too.
    pub faults: ConfigFaults,
}

const POLICY_KEYS: [&str; 9] =
    ["unit", "cost", "picker", "exploration", "shadow", "term", "constraint", "admission", "tune"];

/// Builds the `[policy.NAME]` tables of a file and the presets that they do not replace. `default` is the policy that
/// serves; `fleet` are the enabled replicas.
#[must_use]
pub fn build(
    registry: &KindRegistry,
    tables: &[(String, ConfigValue)],
    default: &str,
    fleet: &[Replica],
) -> CheckedPolicies {
    let mut faults = ConfigFaults::default();
    let mut sources: Vec<(&str, ConfigValue)> = tables.iter().map(|(name, table)| (&**name, table.clone())).collect();
    // The file comes first: its policies have the lower positions, and a preset of the same name is replaced.
    for known in PRESETS {
        if sources.iter().all(|(name, _)| *name != known.name) {
            match preset(known.name) {
                Ok(table) => sources.push((known.name, table)),
                Err(cause) => {
                    faults.push_fault(format!("policy.{}", known.name), format!("this preset is broken: {cause}"))
                }
            }
        }
    }
    // The position of a policy is a 16-bit number in rows and in memory.
    if u16::try_from(sources.len()).is_err() {
        faults.push_fault("policy", format!("{} policies are too many; allowed: 65535", sources.len()));
    }
    let names: Vec<&str> = sources.iter().map(|(name, _)| *name).collect();
    let mut windows = Vec::new();
    let mut list = Vec::with_capacity(sources.len());
    for (index, (name, table)) in sources.iter().enumerate() {
        // The first builds of a process have their index as their number.
        let id = PolicyBuildId(u16::try_from(index).unwrap_or(u16::MAX));
        // Collected separately, because the warnings of presets are filtered below.
        let mut found = ConfigFaults::default();
        let mut one = PolicyBuilder { registry, fleet, path: format!("policy.{name}"), faults: &mut found };
        // A policy that cannot be built shifts the positions after it, which is harmless: no set is returned then.
        list.extend(one.policy(id, name, table, &names, &mut windows).map(Arc::new));
        // Warnings about presets are dropped: a baseline may be unwise on purpose. Warnings of a constraint or the gate
        // of the serving policy are kept, because they depend on this fleet.
        if index >= tables.len() {
            let of_fleet =
                |path: &str| *name == default && (path.contains(".constraint.") || path.ends_with(".admission"));
            found.list.retain(|fault| fault.severity == Severity::Fault || of_fleet(&fault.path));
        }
        faults.extend(found);
    }
    let default_id = names.iter().position(|name| *name == default);
    // Reported even if a policy is faulty: both mistakes are shown at once.
    if default_id.is_none() {
        let near = suggestion(default, names.iter().copied());
        faults.push_fault("default_policy", format!("unknown policy \"{default}\"; {near}"));
    }
    let default = default_id.and_then(|index| u16::try_from(index).ok()).map(PolicyIndex);
    let policies = default.filter(|_| !faults.has_faults()).map(|default| PolicySet {
        list,
        default,
        windows,
        loader: registry.loader.clone(),
    });
    CheckedPolicies { policies, faults }
}

/// The policy that is being built.
struct PolicyBuilder<'a> {
    registry: &'a KindRegistry,
    fleet: &'a [Replica],
    path: String,
    faults: &'a mut ConfigFaults,
}

impl PolicyBuilder<'_> {
    fn fault(&mut self, key: &str, message: impl Into<String>) {
        self.faults.push_fault(format!("{}{key}", self.path), message);
    }

    fn policy(
        &mut self,
        id: PolicyBuildId,
        name: &str,
        table: &ConfigValue,
        names: &[&str],
        windows: &mut Vec<ShareWindow>,
    ) -> Option<Policy> {
        let ConfigValue::Table(members) = table else {
            self.fault("", format!("expected a table, found {}", table.type_name()));
            return None;
        };
        for (key, _) in members.iter().filter(|(key, _)| !POLICY_KEYS.contains(&&**key)) {
            let known = suggestion(key, POLICY_KEYS.into_iter());
            self.fault(&format!(".{key}"), format!("unknown key; {known}"));
        }
        let unit = self.unit(table.get("unit"));
        let exploration = self.exploration(table.get("exploration"));
        let shadows = self.shadows(name, table.get("shadow"), names);
        let terms = self.terms(table.get("term"));
        let constraints = self.constraints(table.get("constraint"), windows);
        let admission = self.admission(table.get("admission"));
        let limited = admission.is_some() || constraints.iter().any(|rule| !rule.hard);
        // Cloned, because `chosen` borrows the builder mutably to report faults.
        let cost_kinds = self.registry.costs.clone();
        let cost = self.choose_kind("cost", table.get("cost"), "sum", &cost_kinds);
        let picker_kinds = self.registry.pickers.clone();
        let picker = self.choose_kind("picker", table.get("picker"), "lowest", &picker_kinds);
        // A picker that ignores costs, such as `random`, needs no terms.
        if let Some((_, picker)) = &picker
            && picker.reads_costs
        {
            self.check_terms(unit, &terms, limited);
        }
        let tune = self.plan(id, table, &terms);
        let picker_kind = picker.as_ref().map(|(_, kind)| kind.kind);
        let slots: Vec<TermSlot<'_>> = terms.iter().map(PlacedTerm::slot).collect();
        // A term that was left out because of a fault may be the one that the cost would miss.
        let cost = cost.filter(|_| !self.faults.has_faults());
        let cost = cost.and_then(|(params, kind)| self.built_or_fault("cost", (kind.build)(&params, &slots)));
        let picker = picker.and_then(|(params, kind)| self.built_or_fault("picker", (kind.build)(&params)));
        let needs = terms
            .iter()
            .map(|built| built.term.cost_term.needs().union(built.term.weight.needs()))
            .chain(constraints.iter().map(|rule| rule.constraint.needs()))
            .chain(admission.iter().map(|_| crate::policy::admission::needs()))
            .fold(RequiredFacts::NONE, RequiredFacts::union);
        // The `?` come last, after every part had the chance to report its faults.
        Some(Policy {
            id,
            name: Arc::from(name),
            sha256: digest(table),
            text: table_text(&["policy", name], table),
            unit,
            terms: terms.into_iter().map(|built| built.term).collect(),
            constraints,
            exploration,
            shadows,
            tune,
            admission,
            needs,
            cost: cost?,
            picker: picker?,
            picker_kind: picker_kind?,
        })
    }

    fn unit(&mut self, value: Option<&ConfigValue>) -> PolicyUnit {
        match value.map(|value| value.text().ok_or(value)) {
            None => PolicyUnit::Unstated,
            Some(Ok("raw")) => PolicyUnit::Raw,
            Some(Ok("ms")) => PolicyUnit::Millis,
            Some(Ok(other)) => {
                self.fault(".unit", format!("unknown unit \"{other}\"; known: ms, raw"));
                PolicyUnit::Unstated
            }
            Some(Err(other)) => {
                self.fault(".unit", format!("expected a string, found {}", other.type_name()));
                PolicyUnit::Unstated
            }
        }
    }

    fn exploration(&mut self, value: Option<&ConfigValue>) -> f64 {
        let Some(value) = value else { return 0.0 };
        let checked = match value.number() {
            Some(number) => params::in_range(number, 0.0, 1.0).map(|()| number),
            None => Err(format!("expected a number, found {}", value.type_name())),
        };
        checked.unwrap_or_else(|message| {
            self.fault(".exploration", message);
            0.0
        })
    }

    fn shadows(&mut self, own: &str, value: Option<&ConfigValue>, names: &[&str]) -> Vec<PolicyIndex> {
        let Some(value) = value else { return Vec::new() };
        let ConfigValue::List(list) = value else {
            self.fault(".shadow", format!("expected an array of strings, found {}", value.type_name()));
            return Vec::new();
        };
        let mut shadows = Vec::new();
        for (index, entry) in list.iter().enumerate() {
            let key = format!(".shadow[{index}]");
            let Some(name) = entry.text() else {
                self.fault(&key, format!("expected a string, found {}", entry.type_name()));
                continue;
            };
            match names.iter().position(|known| *known == name).and_then(|index| u16::try_from(index).ok()) {
                Some(_) if name == own => self.fault(&key, "a policy cannot be its own shadow"),
                Some(index) if shadows.contains(&PolicyIndex(index)) => self.fault(&key, "named twice"),
                Some(index) => shadows.push(PolicyIndex(index)),
                None => {
                    let near = suggestion(name, names.iter().copied());
                    self.fault(&key, format!("unknown policy \"{name}\"; {near}"));
                }
            }
        }
        shadows
    }

    /// The kind that `key` names, `"kind"` or `{ kind = "kind", … }`, and its parameters.
    fn choose_kind<K: NamedKind>(
        &mut self,
        key: &str,
        value: Option<&ConfigValue>,
        default: &str,
        known: &[&'static K],
    ) -> Option<(ParamValues, &'static K)> {
        let path = format!("{}.{key}", self.path);
        let whole = match value {
            None => ConfigValue::Text(default.to_owned()),
            Some(value) => value.clone(),
        };
        // The short form is read like a table with `kind` alone, so that both take the same path.
        let (table, short) = match whole {
            ConfigValue::Text(_) => (ConfigValue::Table(vec![("kind".to_owned(), whole)]), true),
            _ => (whole, false),
        };
        let (members, kind) = self.kind_of(&table, &path, key, short, known.iter().map(|kind| (kind.name(), *kind)))?;
        // All faulty parameters are reported, but nothing is built from the remaining ones.
        let before = self.faults.list.len();
        let params = params::read(members, kind.params(), &["kind"], &path, self.faults);
        (self.faults.list.len() == before).then_some((params, kind))
    }

    /// The row that a table's `kind` names. `short`: the file has no table, only the name.
    fn kind_of<'v, K>(
        &mut self,
        entry: &'v ConfigValue,
        path: &str,
        family: &str,
        short: bool,
        known: impl Iterator<Item = (&'static str, &'static K)> + Clone,
    ) -> Option<(&'v [(String, ConfigValue)], &'static K)> {
        let ConfigValue::Table(members) = entry else {
            self.faults.push_fault(path, format!("expected a table, found {}", entry.type_name()));
            return None;
        };
        let names = known.clone().map(|(name, _)| name);
        let Some(ConfigValue::Text(name)) = entry.get("kind") else {
            self.faults.push_fault(path, format!("`kind` is missing; known: {}", names.collect::<Vec<_>>().join(", ")));
            return None;
        };
        let found = known.clone().find(|(known, _)| known == name).map(|(_, kind)| kind);
        if found.is_none() {
            let path = if short { path.to_owned() } else { format!("{path}.kind") };
            self.faults.push_fault(path, format!("unknown {family} \"{name}\"; {}", suggestion(name, names)));
        }
        Some((members, found?))
    }

    /// Reports a kind's refusal of its parameters, at the parameter that it begins with if the table has it. A
    /// parameter that is missing because it was wrong is not also reported as missing.
    fn report_refusal(&mut self, path: &str, members: &[(String, ConfigValue)], message: &str) {
        // A kind refuses with a plain text; the name in quotes at its start is the only link to a key of the table.
        let missing = message.strip_prefix('`').and_then(|rest| rest.strip_suffix("` is missing"));
        if missing.is_some_and(|name| self.faults.list.iter().any(|fault| fault.path == format!("{path}.{name}"))) {
            return;
        }
        let named = message.strip_prefix('`').and_then(|rest| rest.split_once("`: "));
        match named.filter(|(name, _)| members.iter().any(|(key, _)| key == name)) {
            Some((name, rest)) => self.faults.push_fault(format!("{path}.{name}"), rest),
            None => self.faults.push_fault(path, message),
        }
    }

    fn built_or_fault<T>(&mut self, key: &str, built: Result<T, String>) -> Option<T> {
        built.map_err(|message| self.fault(&format!(".{key}"), message)).ok()
    }
}

/// Kinds that are chosen by name, with parameters in the same table.
trait NamedKind {
    fn name(&self) -> &'static str;
    fn params(&self) -> &'static [ParamSpec];
}

impl NamedKind for CostKind {
    fn name(&self) -> &'static str {
        self.kind
    }

    fn params(&self) -> &'static [ParamSpec] {
        self.params
    }
}

impl NamedKind for crate::tune::ObjectiveKind {
    fn name(&self) -> &'static str {
        self.kind
    }

    fn params(&self) -> &'static [ParamSpec] {
        self.params
    }
}

impl NamedKind for crate::tune::OptimizerKind {
    fn name(&self) -> &'static str {
        self.kind
    }

    fn params(&self) -> &'static [ParamSpec] {
        self.params
    }
}

impl NamedKind for PickerKind {
    fn name(&self) -> &'static str {
        self.kind
    }

    fn params(&self) -> &'static [ParamSpec] {
        self.params
    }
}

#[cfg(test)]
mod tests;
