//! `[policy.NAME.admission]` → the rule of the policy's admission gate.

use super::PolicyBuilder;
use crate::model::{AdmissionRule, ConfigValue, EngineKind};
use crate::policy::admission::{ADMISSION, rule};
use crate::policy::params;

impl PolicyBuilder<'_> {
    /// The gate of a policy; `None` if it has none, or one that cannot be built, which is reported.
    pub(super) fn admission(&mut self, value: Option<&ConfigValue>) -> Option<AdmissionRule> {
        let value = value?;
        let ConfigValue::Table(members) = value else {
            self.fault(".admission", format!("expected a table, found {}", value.type_name()));
            return None;
        };
        let path = format!("{}.admission", self.path);
        let before = self.faults.list.len();
        let params = params::read(members, ADMISSION.params, &[], &path, self.faults);
        if self.faults.list.len() > before {
            return None;
        }
        match rule(&params) {
            Ok(rule) => {
                self.check_gate(&rule, &path);
                Some(rule)
            }
            Err(message) => {
                self.report_refusal(&path, members, &message);
                None
            }
        }
    }

    /// Warns that a gate has no effect at replicas for which the batch that the engine decodes cheaply is unknown.
    fn check_gate(&mut self, rule: &AdmissionRule, path: &str) {
        let says = |engine: EngineKind| engine.adapter().limits.is_some();
        let silent: Vec<&str> = self
            .fleet
            .iter()
            .filter(|replica| replica.decode_batch.is_none() && !says(replica.engine))
            .map(|replica| &*replica.name)
            .collect();
        if rule.max_in_flight.is_none() && !silent.is_empty() {
            let (names, word) =
                (silent.join(", "), if silent.len() == 1 { "its engine does" } else { "their engines do" });
            let message = format!(
                "no gate at {names}: {word} not report the largest batch with a CUDA graph; set `decode_batch` there, or \
                 `max_in_flight` here"
            );
            self.faults.push_warning(path, message);
        }
    }
}
