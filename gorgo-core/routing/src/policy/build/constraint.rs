//! `[policy.NAME.constraint.KIND]` tables → constraints. A table with another name states its `kind`, so that there can
//! be several of one kind: expressions, plugins.

use std::sync::Arc;

use super::PolicyBuilder;
use crate::constrain::{ConstraintKind, HEALTH};
use crate::model::{ConfigValue, ShareWindow};
use crate::policy::loader::{LoadedConstraint, PLUGIN_CONSTRAINT};
use crate::policy::suggest::suggestion;
use crate::policy::{PolicyConstraint, RELAXED, params};

impl PolicyBuilder<'_> {
    /// The constraints of a policy, hard ones first; those that cannot be built are left out and reported.
    pub(super) fn constraints(
        &mut self,
        value: Option<&ConfigValue>,
        windows: &mut Vec<ShareWindow>,
    ) -> Vec<PolicyConstraint> {
        let members: &[(String, ConfigValue)] = match value {
            None => &[],
            Some(ConfigValue::Table(members)) => members,
            Some(other) => {
                self.fault(".constraint", format!("expected a table, found {}", other.type_name()));
                &[]
            }
        };
        let mut rules = Vec::new();
        // Health is always in force, whether the file lists it or not.
        if members.iter().all(|(name, _)| name != HEALTH.kind) {
            rules.extend(self.rule(HEALTH, &[], "", windows));
        }
        for (name, table) in members {
            let path = format!("{}.constraint.{name}", self.path);
            let known = |wanted: &str| self.registry.constraints.iter().copied().find(|kind| kind.kind == wanted);
            let names = || self.registry.constraints.iter().map(|kind| kind.kind);
            let stated = table.get("kind");
            let kind = match stated.map(|stated| stated.text().and_then(known)) {
                None => known(name).ok_or_else(|| format!("unknown constraint; {}", suggestion(name, names()))),
                Some(Some(kind)) if known(name).is_none_or(|own| own.kind == kind.kind) => Ok(kind),
                Some(Some(_)) => Err(format!("`{name}` is itself the name of a kind; give the table another name")),
                Some(None) => {
                    let near = suggestion(stated.and_then(ConfigValue::text).unwrap_or_default(), names());
                    Err(format!("unknown `kind` of constraint; {near}"))
                }
            };
            let kind = match kind {
                Ok(kind) => kind,
                Err(message) => {
                    self.faults.push_fault(path, message);
                    continue;
                }
            };
            let ConfigValue::Table(members) = table else {
                self.faults.push_fault(path, format!("expected a table, found {}", table.type_name()));
                continue;
            };
            let Some(mut rule) = self.rule(kind, members, &path, windows) else { continue };
            if stated.is_some() {
                (rule.name, rule.relaxed_name) = (Arc::from(&**name), relaxed(name));
            }
            if rules.iter().any(|known: &PolicyConstraint| known.name == rule.name) {
                let message = format!(
                    "a constraint \"{}\" is defined above; give this table another name and set `kind`",
                    rule.name
                );
                self.faults.push_fault(path, message);
            }
            rules.push(rule);
        }
        // Health first, then the other hard ones; otherwise in file order.
        rules.sort_by_key(|rule| (!rule.hard, *rule.name != *HEALTH.kind));
        rules
    }

    fn rule(
        &mut self,
        kind: &'static ConstraintKind,
        members: &[(String, ConfigValue)],
        path: &str,
        windows: &mut Vec<ShareWindow>,
    ) -> Option<PolicyConstraint> {
        let before = self.faults.list.len();
        // `kind` is a key only of tables that state it, so elsewhere it is reported as unknown.
        let shared: &[&str] = if members.iter().any(|(key, _)| key == "kind") { &["kind"] } else { &[] };
        let params = params::read(members, kind.params, shared, path, self.faults);
        if self.faults.list.len() > before {
            // A parameter that is missing because it was wrong is not also reported as missing.
            return None;
        }
        let loader = self.registry.loader.as_ref().filter(|_| kind.kind == PLUGIN_CONSTRAINT.kind);
        let built = match loader {
            Some(loader) => loader.constraint(&params, self.fleet),
            None => (kind.build)(&params, self.fleet).map(|limit| LoadedConstraint {
                name: Arc::from(kind.kind),
                hard: kind.hard,
                sha256: None,
                constraint: limit,
            }),
        };
        let LoadedConstraint { name, hard, sha256, constraint: limit } = match built {
            Ok(loaded) => loaded,
            Err(message) => {
                self.report_refusal(path, members, &message);
                return None;
            }
        };
        let window = limit.window().map_or(0, |window| {
            // Constraints with equal windows share one, so that routed work is counted once.
            windows.iter().position(|known| *known == window).unwrap_or_else(|| {
                windows.push(window);
                windows.len() - 1
            })
        });
        let hard = limit.hard().unwrap_or(hard);
        Some(PolicyConstraint {
            relaxed_name: relaxed(&name),
            name,
            hard,
            plugin_sha256: sha256,
            window,
            constraint: limit,
        })
    }
}

/// Name in the history of a candidate that was let back in.
fn relaxed(name: &str) -> Arc<str> {
    Arc::from(format!("{RELAXED}{name}"))
}
