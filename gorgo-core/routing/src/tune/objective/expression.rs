//! An objective written in the policy itself: an expression over the statistics of an arm's requests, to be minimised.
//!
//! Names: [`OBJECTIVE_NAMES`]; `…_ref` is the incumbent's in the same generation. To maximise something, negate it:
//! `-tokens_per_second`. All statistics are stored in `generation_scores` under these names, so every score can be
//! recomputed in SQL. Prefer kinks to jumps (`max(0, share_max - 0.67)` to `share_max > 0.67 ? 1 : 0`): the test of a
//! difference is based on slopes, and a jump has none.

use super::{Objective, ObjectiveKind};
use crate::expr::{EvalStack, Expression, OBJECTIVE_NAMES};
use crate::model::{ParamSpec, ParamType, ParamValues};
use crate::tune::cohort::{Statistic, StatisticValues};

pub(super) const KIND: ObjectiveKind = ObjectiveKind {
    kind: "expression",
    unit: "",
    summary: "an expression over an arm's statistics, such as ttft_p95 / ttft_p95_ref + 10 * error_share",
    params: &[ParamSpec {
        name: "value",
        ty: ParamType::Text { default: None, choices: &[] },
        unit: "",
        help: "the expression; smaller is better; required",
    }],
    build: |params| Ok(Box::new(ExpressionObjective::new(params)?)),
};

/// Suffix of names that are the incumbent's.
const REFERENCE: &str = "_ref";

#[derive(Debug)]
struct ExpressionObjective {
    expression: Expression,
    /// Statistic per name of [`OBJECTIVE_NAMES`]; true if it is the incumbent's.
    named: Vec<(Statistic, bool)>,
    /// Statistics that the expression reads.
    statistics: Vec<Statistic>,
}

impl ExpressionObjective {
    fn new(params: &ParamValues) -> Result<Self, String> {
        let text = params.text("value").ok_or("`value` is missing")?;
        let named: Vec<(Statistic, bool)> = OBJECTIVE_NAMES.iter().filter_map(|name| statistic(name)).collect();
        let units: Vec<&str> = named.iter().map(|(statistic, _)| statistic.unit()).collect();
        let expression =
            Expression::compile_in(text, OBJECTIVE_NAMES, &units, None).map_err(|error| format!("`value`: {error}"))?;
        let read: Vec<(Statistic, bool)> = expression.slots().into_iter().map(|slot| named[slot]).collect();
        // A score from reference values alone is the same for every candidate: the tuner would never decide.
        if read.iter().all(|(_, reference)| *reference) {
            let message = "`value`: it names no statistic of the arm that is scored, so all candidates score the same";
            return Err(message.to_owned());
        }
        let mut statistics: Vec<Statistic> = Vec::new();
        for (statistic, _) in read {
            // A statistic and its reference are computed together, so it is listed once.
            if !statistics.contains(&statistic) {
                statistics.push(statistic);
            }
        }
        Ok(Self { expression, named, statistics })
    }
}

/// Statistic of a name; true if it is the incumbent's.
fn statistic(name: &str) -> Option<(Statistic, bool)> {
    let (plain, reference) = match name.strip_suffix(REFERENCE) {
        Some(plain) => (plain, true),
        None => (name, false),
    };
    Statistic::ALL.into_iter().find(|known| known.name() == plain).map(|known| (known, reference))
}

impl Objective for ExpressionObjective {
    fn statistics(&self) -> &[Statistic] {
        &self.statistics
    }

    fn score(&self, own: &StatisticValues, reference: &StatisticValues) -> f64 {
        let value = |slot: u16| {
            let (statistic, of_reference) = *self.named.get(usize::from(slot))?;
            Some(if of_reference { reference } else { own }[statistic as usize])
        };
        // NaN is filtered by `contrast`, which then decides nothing.
        self.expression.eval_with(&mut EvalStack::default(), value).unwrap_or(f64::NAN)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::ConfigValue as Toml;
    use crate::tune::cohort::STATISTICS;
    use crate::tune::objective::OBJECTIVES;

    fn built(text: &str) -> Result<Box<dyn Objective>, String> {
        (KIND.build)(&ParamValues { values: vec![("value", Toml::Text(text.to_owned()))] })
    }

    fn figures(seed: f64) -> StatisticValues {
        let mut figures = [0.0; STATISTICS];
        for (place, figure) in figures.iter_mut().enumerate() {
            *figure = seed + 13.0 * f64::from(u8::try_from(place).unwrap());
        }
        figures[Statistic::ErrorShare as usize] = 0.01;
        figures[Statistic::ShareMax as usize] = 0.7;
        figures
    }

    #[test]
    fn every_name_is_a_statistic_and_reads_the_right_arm() {
        let (own, reference) = (figures(100.0), figures(500.0));
        for name in OBJECTIVE_NAMES {
            let (statistic, of_reference) = statistic(name).unwrap();
            // The zero makes it name the own arm, too, and changes nothing.
            let objective = built(&format!("{name} + 0 * ttft_p50 * share_max")).unwrap_or_else(|cause| {
                panic!("{name}: {cause}");
            });
            let expected = if of_reference { reference } else { own }[statistic as usize];
            assert_eq!(objective.score(&own, &reference), expected, "{name}");
            assert!(objective.statistics().contains(&statistic), "{name}");
        }
        let all = Statistic::ALL.into_iter().filter(|known| OBJECTIVE_NAMES.contains(&known.name())).count();
        assert_eq!(all, Statistic::ALL.len(), "every statistic can be named");
    }

    #[test]
    fn the_shipped_objective_written_as_an_expression_agrees_in_every_bit() {
        let text = "(1 - 0.3) * (ttft_geometric / ttft_geometric_ref) + 0.3 * (e2e_geometric / e2e_geometric_ref) \
                    + 4 * (max(e2e_geometric / e2e_geometric_ref - 1, 0) * max(e2e_geometric / e2e_geometric_ref - 1, 0)) \
                    + 10 * error_share + 5 * max(share_max - 0.67, 0)";
        let written = built(text).unwrap();
        let kind = OBJECTIVES.iter().find(|kind| kind.kind == "ttft-e2e").unwrap();
        let number = |name, number| (name, Toml::Float(number));
        let values = vec![
            number("alpha", 0.3),
            number("kappa", 4.0),
            number("eta", 10.0),
            number("chi", 5.0),
            number("share_cap", 0.67),
        ];
        let shipped = (kind.build)(&ParamValues { values }).unwrap();
        for (own, reference) in [(100.0, 100.0), (120.0, 100.0), (80.5, 177.25), (1e4, 3.0)] {
            let (own, reference) = (figures(own), figures(reference));
            let (a, b) = (written.score(&own, &reference), shipped.score(&own, &reference));
            assert_eq!(a.to_bits(), b.to_bits(), "{a} and {b}");
        }
    }

    #[test]
    fn what_is_wrong_is_told_with_its_column() {
        let wrong = |text: &str| built(text).map(|_| ()).unwrap_err();
        assert_eq!(
            wrong("0.7 * ttft_p59 + error_share"),
            "`value`: column 7: unknown name `ttft_p59`; did you mean `ttft_p50`?"
        );
        let units = wrong("ttft_p95 + requests");
        assert!(units.starts_with("`value`: column 12: adds ms and requests"), "{units}");
        assert!(wrong("ttft_p95 +").starts_with("`value`: column 11: "), "{}", wrong("ttft_p95 +"));
        assert!(wrong("rtt_ms").starts_with("`value`: column 1: unknown name `rtt_ms`"), "{}", wrong("rtt_ms"));
        assert!(wrong("ttft_p95_ref").contains("all candidates score the same"));
        assert!(wrong("3").contains("all candidates score the same"));
        assert_eq!((KIND.build)(&ParamValues::default()).map(|_| ()).unwrap_err(), "`value` is missing");
    }

    #[test]
    fn a_result_that_is_none_is_not_a_number() {
        let objective = built("ttft_mean / (ttft_p50 - ttft_p50)").unwrap();
        assert!(!objective.score(&figures(1.0), &figures(1.0)).is_finite());
    }
}
