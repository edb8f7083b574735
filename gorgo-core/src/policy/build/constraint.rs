//! `[policy.NAME.constraint.KIND]` tables → constraints.

use std::sync::Arc;

use super::One;
use crate::constrain::{ConstraintKind, HEALTH};
use crate::model::{ShareWindow, Value};
use crate::policy::loader::{LoadedConstraint, PLUGIN_CONSTRAINT};
use crate::policy::suggest::suggestion;
use crate::policy::{RELAXED, Rule, params};

impl One<'_> {
    /// The constraints of a policy, hard ones first; what cannot be built is left out and reported.
    pub(super) fn constraints(&mut self, value: Option<&Value>, windows: &mut Vec<ShareWindow>) -> Vec<Rule> {
        let members: &[(String, Value)] = match value {
            None => &[],
            Some(Value::Table(members)) => members,
            Some(other) => {
                self.fault(".constraint", format!("expected a table, found {}", other.type_name()));
                &[]
            }
        };
        let mut rules = Vec::new();
        if members.iter().all(|(name, _)| name != HEALTH.kind) {
            rules.extend(self.rule(HEALTH, &[], "", windows));
        }
        for (name, table) in members {
            let path = format!("{}.constraint.{name}", self.path);
            let Some(kind) = self.registry.constraints.iter().copied().find(|kind| kind.kind == name) else {
                let near = suggestion(name, self.registry.constraints.iter().map(|kind| kind.kind));
                self.faults.fault(path, format!("unknown constraint; {near}"));
                continue;
            };
            match table {
                Value::Table(members) => rules.extend(self.rule(kind, members, &path, windows)),
                other => self.faults.fault(path, format!("expected a table, found {}", other.type_name())),
            }
        }
        // Hard ones first, health before all; otherwise as written.
        rules.sort_by_key(|rule| (!rule.hard, *rule.name != *HEALTH.kind));
        rules
    }

    fn rule(
        &mut self,
        kind: &'static ConstraintKind,
        members: &[(String, Value)],
        path: &str,
        windows: &mut Vec<ShareWindow>,
    ) -> Option<Rule> {
        let before = self.faults.list.len();
        let params = params::read(members, kind.params, &[], path, self.faults);
        if self.faults.list.len() > before {
            // What is missing because it was wrong is not reported as missing as well.
            return None;
        }
        let loader = self.registry.loader.as_ref().filter(|_| kind.kind == PLUGIN_CONSTRAINT.kind);
        let built = match loader {
            Some(loader) => loader.constraint(&params, self.fleet),
            None => (kind.build)(&params, self.fleet).map(|limit| LoadedConstraint {
                name: Arc::from(kind.kind),
                hard: kind.hard,
                sha256: None,
                limit,
            }),
        };
        let LoadedConstraint { name, hard, sha256, limit } = match built {
            Ok(loaded) => loaded,
            Err(message) => {
                self.refused(path, members, &message);
                return None;
            }
        };
        let window = limit.window().map_or(0, |window| {
            windows.iter().position(|known| *known == window).unwrap_or_else(|| {
                windows.push(window);
                windows.len() - 1
            })
        });
        let hard = limit.hard().unwrap_or(hard);
        Some(Rule {
            relaxed_name: Arc::from(format!("{RELAXED}{name}")),
            name,
            hard,
            plugin_sha256: sha256,
            window,
            limit,
        })
    }
}
