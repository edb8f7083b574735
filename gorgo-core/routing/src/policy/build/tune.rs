//! `[policy.NAME.tune]` → a plan for the policy's tuner, which moves the weights with `tune = true`.

use std::sync::Arc;

use super::digest::digest;
use super::term::PlacedTerm;
use super::{PolicyBuilder, suggestion};
use crate::model::{ConfigValue, Generation, ParamSpec, ParamType, ParamValues, PolicyBuildId, PolicyWeights};
use crate::policy::loader::PLUGIN_OBJECTIVE;
use crate::policy::params;
use crate::tune::{
    AcceptanceTest, ArmAssignment, BlockSettings, GuardLimits, Objective, ObjectiveKind, SearchSpace, TunedWeight,
    TuningPlan,
};

const KEYS: [&str; 7] = ["enabled", "objective", "optimizer", "assignment", "blocks", "guard", "seed"];

const fn whole(
    name: &'static str,
    default: i64,
    (min, max): (i64, i64),
    unit: &'static str,
    help: &'static str,
) -> ParamSpec {
    ParamSpec { name, ty: ParamType::Integer { default: Some(default), min, max }, unit, help }
}

const fn number(
    name: &'static str,
    default: f64,
    (min, max): (f64, f64),
    unit: &'static str,
    help: &'static str,
) -> ParamSpec {
    ParamSpec { name, ty: ParamType::Number { default: Some(default), min, max }, unit, help }
}

/// Parameters of `blocks`.
const BLOCKS: &[ParamSpec] = &[
    whole("requests", 40, (4, 100_000), "requests", "length of a block with its shortest wash-out"),
    whole(
        "washout_requests",
        8,
        (0, 100_000),
        "requests",
        "requests after a change of arm that are not counted; the wash-out lasts at least the p95 of E2E",
    ),
    whole("min_pairs", 4, (2, 1_000), "pairs", "pairs of blocks before a verdict is possible"),
    whole("max_pairs", 16, (2, 1_000), "pairs", "pairs after which an undecided proposal is rejected"),
    ParamSpec {
        name: "test",
        ty: ParamType::Text { default: Some("group"), choices: &["group", "always-valid"] },
        unit: "",
        help: "rule of acceptance: `accept_se`, or a test with error `alpha` that is valid at any time",
    },
    number(
        "alpha",
        0.1,
        (0.000_1, 0.5),
        "probability",
        "for `always-valid`: probability of accepting a proposal that is no better",
    ),
    number("accept_se", 2.5, (0.0, 10.0), "standard errors", "a proposal is accepted if it is better by more"),
    number("reject_se", 0.5, (0.0, 10.0), "standard errors", "a proposal is rejected if it is worse by more"),
];

/// Parameters of `guard`.
const GUARD: &[ParamSpec] = &[
    number("max_e2e_p95_ratio", 1.10, (1.0, 100.0), "× incumbent's", "largest p95 of end-to-end time of a proposal"),
    number(
        "max_error_share",
        0.02,
        (0.0, 1.0),
        "share",
        "largest share of failed requests, unless the incumbent's is higher",
    ),
];

/// An objective, its kind, and the hash of its library if it is a plugin.
type ChosenObjective = (Arc<dyn Objective>, &'static str, Option<Arc<str>>);

impl PolicyBuilder<'_> {
    /// The plan of a policy whose tune table is enabled.
    pub(super) fn plan(&mut self, id: PolicyBuildId, policy: &ConfigValue, terms: &[PlacedTerm]) -> Option<TuningPlan> {
        let table = policy.get("tune")?;
        // The same builder with a longer path, so that faults name their key below `tune`.
        let mut inner = PolicyBuilder {
            registry: self.registry,
            fleet: self.fleet,
            path: format!("{}.tune", self.path),
            faults: self.faults,
        };
        inner.tune_table(id, policy, table, terms)
    }

    fn tune_table(
        &mut self,
        id: PolicyBuildId,
        policy: &ConfigValue,
        table: &ConfigValue,
        terms: &[PlacedTerm],
    ) -> Option<TuningPlan> {
        let before = self.faults.list.len();
        let ConfigValue::Table(members) = table else {
            self.fault("", format!("expected a table, found {}", table.type_name()));
            return None;
        };
        for (key, _) in members.iter().filter(|(key, _)| !KEYS.contains(&&**key)) {
            self.fault(&format!(".{key}"), format!("unknown key; {}", suggestion(key, KEYS.into_iter())));
        }
        let enabled = match table.get("enabled") {
            None => true,
            Some(ConfigValue::Bool(enabled)) => *enabled,
            Some(other) => {
                self.fault(".enabled", format!("expected true or false, found {}", other.type_name()));
                false
            }
        };
        let assignment = self.assignment(table.get("assignment"));
        let blocks = self.blocks(table.get("blocks"));
        // Everything is read even if tuning is disabled, so that mistakes are found before it is enabled.
        let guard = self.sub_table("guard", table.get("guard"), GUARD);
        let guard = GuardLimits {
            max_e2e_p95_ratio: guard.number("max_e2e_p95_ratio").unwrap_or(1.10),
            max_error_share: guard.number("max_error_share").unwrap_or(0.02),
        };
        // The seed is made from the content of the policy, so that the same table is tuned in the same way again.
        let seed = self.seed(table.get("seed"), policy);
        let objectives = self.registry.objectives.clone();
        let objective = self.choose_kind("objective", table.get("objective"), "ttft-e2e", &objectives);
        let objective = objective.and_then(|(params, kind)| self.objective(&params, kind, table.get("objective")));
        let optimizers = self.registry.optimizers.clone();
        let optimizer = self.choose_kind("optimizer", table.get("optimizer"), "es-1plus1", &optimizers);
        let space = SearchSpace {
            dimensions: terms
                .iter()
                .enumerate()
                .filter(|(_, built)| built.term.weight.tune)
                .map(|(slot, built)| TunedWeight {
                    slot,
                    name: built.term.name.to_string(),
                    init: built.term.weight.init,
                    min: built.term.weight.min,
                    max: built.term.weight.max,
                })
                .collect(),
        };
        // `frozen` moves nothing, so it needs no weights to move.
        let frozen = optimizer.as_ref().is_some_and(|(_, kind)| kind.kind == "frozen");
        if space.dimensions.is_empty() && !frozen {
            self.fault("", "no term of this policy has a weight with `tune = true`");
        }
        let (objective, objective_kind, objective_sha256) = objective?;
        let (optimizer_params, optimizer) = optimizer?;
        if optimizer_params.text("mode") == Some("reference") && objective_kind != "ttft-p95" {
            self.fault(
                ".objective",
                format!(
                    "mode = \"reference\" scores only −p95 of TTFT: set \"ttft-p95\" instead of \"{objective_kind}\", or leave out `mode`"
                ),
            );
        }
        // A faulty weight is reported where it is set; bounds made from it would be wrong too.
        if self.faults.list.len() > before || self.faults.has_faults() {
            return None;
        }
        let plan = TuningPlan {
            objective,
            objective_kind,
            objective_sha256,
            optimizer,
            optimizer_params,
            space,
            assignment,
            blocks,
            guard,
            seed,
        };
        // A trial run of the constructor: a plan that cannot start a tuner is reported now, even if tuning is disabled.
        self.check_samples(&plan);
        let weights = terms.iter().map(|built| built.term.weight.init).collect();
        let tuner = plan.tuner(id, PolicyWeights { generation: Generation(0), values: weights }, Vec::new());
        self.built_or_fault("optimizer", tuner)?;
        enabled.then_some(plan)
    }

    /// The objective of its table, its kind, and the hash of its library if it is a plugin.
    fn objective(
        &mut self,
        params: &ParamValues,
        kind: &'static ObjectiveKind,
        value: Option<&ConfigValue>,
    ) -> Option<ChosenObjective> {
        let loader = self.registry.loader.as_ref().filter(|_| kind.kind == PLUGIN_OBJECTIVE.kind);
        let built = match loader {
            Some(loader) => loader.objective(params).map(|loaded| (loaded.objective, Some(loaded.sha256))),
            None => (kind.build)(params).map(|objective| (objective, None)),
        };
        match built {
            Ok((objective, sha256)) => Some((Arc::from(objective), kind.kind, sha256)),
            Err(message) => {
                let members: &[(String, ConfigValue)] = match value {
                    Some(ConfigValue::Table(members)) => members,
                    _ => &[],
                };
                let path = format!("{}.objective", self.path);
                self.report_refusal(&path, members, &message);
                None
            }
        }
    }

    fn assignment(&mut self, value: Option<&ConfigValue>) -> ArmAssignment {
        let names = || ArmAssignment::ALL.into_iter().map(ArmAssignment::name);
        match value.map(|value| (value, value.text())) {
            None => ArmAssignment::Switchback,
            Some((_, Some(text))) => match ArmAssignment::ALL.into_iter().find(|known| known.name() == text) {
                Some(ArmAssignment::Request) => {
                    let message = "if the arms share queues and caches, a comparison by request is biased: the more selfish arm \
                                   looks better than it is; prefer \"switchback\"";
                    self.faults.push_warning(format!("{}.assignment", self.path), message);
                    ArmAssignment::Request
                }
                Some(known) => known,
                None => {
                    self.fault(".assignment", format!("unknown assignment \"{text}\"; {}", suggestion(text, names())));
                    ArmAssignment::Switchback
                }
            },
            Some((other, None)) => {
                self.fault(".assignment", format!("expected a string, found {}", other.type_name()));
                ArmAssignment::Switchback
            }
        }
    }

    fn sub_table(&mut self, key: &str, value: Option<&ConfigValue>, declared: &[ParamSpec]) -> ParamValues {
        let path = format!("{}.{key}", self.path);
        match value {
            // A missing table is read as an empty one, so that the declared defaults apply.
            None => params::read(&[], declared, &[], &path, self.faults),
            Some(ConfigValue::Table(members)) => params::read(members, declared, &[], &path, self.faults),
            Some(other) => {
                self.faults.push_fault(path, format!("expected a table, found {}", other.type_name()));
                ParamValues::default()
            }
        }
    }

    fn blocks(&mut self, value: Option<&ConfigValue>) -> BlockSettings {
        let read = self.sub_table("blocks", value, BLOCKS);
        // A value that was refused is replaced by its default, so that the checks below still find other faults.
        let usual = BlockSettings::default();
        let whole = |name, usual| read.integer(name).and_then(|whole| u32::try_from(whole).ok()).unwrap_or(usual);
        let blocks = BlockSettings {
            requests: whole("requests", usual.requests),
            washout_requests: whole("washout_requests", usual.washout_requests),
            min_pairs: whole("min_pairs", usual.min_pairs),
            max_pairs: whole("max_pairs", usual.max_pairs),
            test: AcceptanceTest::ALL
                .into_iter()
                .find(|test| read.text("test") == Some(test.name()))
                .unwrap_or(usual.test),
            alpha: read.number("alpha").unwrap_or(usual.alpha),
            accept_se: read.number("accept_se").unwrap_or(usual.accept_se),
            reject_se: read.number("reject_se").unwrap_or(usual.reject_se),
        };
        if blocks.counted() == 0 {
            let message =
                format!("{} leaves nothing of the {} requests of a block", blocks.washout_requests, blocks.requests);
            self.fault(".blocks.washout_requests", message);
        }
        if blocks.min_pairs > blocks.max_pairs {
            let message = format!("{} is above `max_pairs`, {}", blocks.min_pairs, blocks.max_pairs);
            self.fault(".blocks.min_pairs", message);
        }
        blocks
    }

    /// The configured seed, else one made from the policy's content: the same table tries the same proposals in the
    /// same order.
    fn seed(&mut self, value: Option<&ConfigValue>, policy: &ConfigValue) -> u64 {
        match value {
            None => u64::from_str_radix(&digest(policy)[..13], 16).unwrap_or(0),
            // 13 hexadecimal digits are 52 bits, which every JSON reader shows exactly.
            Some(ConfigValue::Integer(seed)) if *seed >= 0 => seed.cast_unsigned(),
            Some(ConfigValue::Integer(seed)) => {
                self.fault(".seed", format!("{seed} is below 0"));
                0
            }
            Some(other) => {
                self.fault(".seed", format!("expected a whole number, found {}", other.type_name()));
                0
            }
        }
    }

    /// Reports a statistic that no trial has enough samples for: it would never lead to a verdict.
    fn check_samples(&mut self, plan: &TuningPlan) {
        // Counted requests of one arm in the longest possible trial.
        let most = u64::from(plan.blocks.counted()) * u64::from(plan.blocks.max_pairs);
        let least = plan.least_samples();
        if least > most {
            let message =
                format!("{} needs {least} requests per arm, and the blocks give at most {most}", plan.objective_kind);
            self.fault(".blocks", message);
        }
    }
}
