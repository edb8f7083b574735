//! Objectives, one file each: the statistics of a cohort → one number, to be minimised.

mod e2e_p95;
mod e2e_p99;
mod expression;
mod itl_mean;
mod itl_p99;
mod single;
mod throughput;
mod ttft_e2e;
mod ttft_mean;
mod ttft_p50;
mod ttft_p95;
mod ttft_p99;

use std::fmt::Debug;

use super::RequestColumns;
use super::cohort::{Statistic, StatisticValues};
use crate::model::{ParamSpec, ParamValues};

/// All kinds of objective. A new one is a file here and a line in this table.
pub const OBJECTIVES: &[&ObjectiveKind] = &[
    &ttft_e2e::KIND,
    &ttft_mean::KIND,
    &ttft_p50::KIND,
    &ttft_p95::KIND,
    &ttft_p99::KIND,
    &e2e_p95::KIND,
    &e2e_p99::KIND,
    &itl_mean::KIND,
    &itl_p99::KIND,
    &throughput::KIND,
    &expression::KIND,
];

/// Number that a tuner minimises.
pub trait Objective: Debug + Send + Sync {
    /// Statistics that are read; others are 0 in the figures.
    fn statistics(&self) -> &[Statistic];

    /// Score of an arm. `reference` are the figures of the incumbent's own blocks; the incumbent itself is scored with
    /// `own` equal to it. Must be smooth except for kinks: the test is based on its slopes.
    fn score(&self, own: &StatisticValues, reference: &StatisticValues) -> f64;

    /// Reader of an arm's requests, for objectives that use these directly instead of statistics, as plugins do. Then
    /// [`Objective::score`] is not called.
    fn as_request_objective(&self) -> Option<&dyn RequestObjective> {
        None
    }
}

/// Objective that is computed from the requests of an arm themselves.
pub trait RequestObjective {
    /// Score of an arm; smaller is better. `None`: these requests yield no number, and nothing is decided on them.
    fn measure(&self, requests: &RequestColumns) -> Option<f64>;
}

/// Kind of objective: a row in [`OBJECTIVES`].
#[derive(Debug, Clone, Copy)]
pub struct ObjectiveKind {
    /// Name in configuration files, kebab-case.
    pub kind: &'static str,
    /// Unit of the score; empty if it has none.
    pub unit: &'static str,
    /// Summary in one line.
    pub summary: &'static str,
    /// Parameters of this kind.
    pub params: &'static [ParamSpec],
    /// Builds the objective. The text of an error names the parameter and what is allowed.
    pub build: fn(&ParamValues) -> BuiltObjective,
}

/// Objective, or the fault in its parameters.
pub type BuiltObjective = Result<Box<dyn Objective>, String>;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{ConfigValue, ParamType};
    use crate::tune::cohort::STATISTICS;

    fn built(kind: &ObjectiveKind) -> Box<dyn Objective> {
        let mut params = ParamValues::default();
        for param in kind.params {
            let value = match param.ty {
                ParamType::Number { default: Some(number), .. } => ConfigValue::Float(number),
                ParamType::Text { default: Some(text), .. } => ConfigValue::Text(text.to_owned()),
                ParamType::Text { default: None, .. } => ConfigValue::Text("ttft_p95 + 10 * error_share".to_owned()),
                _ => continue,
            };
            params.values.push((param.name, value));
        }
        (kind.build)(&params).unwrap()
    }

    #[test]
    fn tune_every_objective_reads_what_it_says_and_gets_worse_with_it() {
        for kind in OBJECTIVES {
            let objective = built(kind);
            let mut base: StatisticValues = [0.0; STATISTICS];
            for statistic in objective.statistics() {
                base[*statistic as usize] = 0.7;
            }
            let score = objective.score(&base, &base);
            for statistic in objective.statistics() {
                let mut worse = base;
                let better_is_more = *statistic == Statistic::TokensPerSecond;
                worse[*statistic as usize] *= if better_is_more { 0.8 } else { 1.2 };
                let changed = objective.score(&worse, &base);
                assert!(changed > score, "{}: {} made {score} into {changed}", kind.kind, statistic.name());
            }
        }
    }

    #[test]
    fn tune_e2e_above_the_incumbents_costs_more_than_ttft_gains() {
        let kind = OBJECTIVES.iter().find(|kind| kind.kind == "ttft-e2e").unwrap();
        let objective = built(kind);
        let mut incumbent: StatisticValues = [0.0; STATISTICS];
        incumbent[Statistic::TtftGeometric as usize] = 1_000.0;
        incumbent[Statistic::E2eGeometric as usize] = 3_000.0;
        // The paper's hacked window: TTFT 17 % better, E2E four times as long.
        let mut hacked = incumbent;
        hacked[Statistic::TtftGeometric as usize] = 830.0;
        hacked[Statistic::E2eGeometric as usize] = 12_490.0;
        assert!(objective.score(&hacked, &incumbent) > 10.0 * objective.score(&incumbent, &incumbent));
    }
}
