//! `gorgo whatif`: estimates the results of other weights of a policy, from its history alone. Every decision is made
//! again from its stored signals; if the original choice involved chance (exploration, a softmin, ties), its outcome is
//! evidence for the other weights as well. Without chance there is no evidence, and the command says so.

mod estimate;

use std::path::PathBuf;

use comfy_table::Table;
use gorgo_routing::config::{nearest, parse_toml};
use gorgo_routing::model::{ConfigValue, DecisionId, ErrorClass};
use gorgo_routing::policy::{DecisionScratch, KindRegistry, Policy, build, repeat_decision};
use gorgo_store::{HistoryReader, StoreError, StoredDecision};

use self::estimate::{MeanEstimate, OffPolicyEstimate, WeightedRequest};
use crate::cmd::CliCommand;
use crate::exit::CommandExit;
use crate::report::number::{count, millis, percent};
use crate::report::table::numbers;
use crate::runtime::block_on;

/// Number of seeds with which a choice is repeated to find the probability of a replica; one that none of them chooses
/// counts as never chosen.
const SEEDS: u64 = 256;
/// Effective sample size below which an estimate is a guess.
const FEWEST: f64 = 100.0;
/// Least share of the other weights' choices that must have been possible.
const COVERED: f64 = 0.8;

/// Arguments of `gorgo whatif`.
#[derive(Debug, clap::Args)]
pub(crate) struct WhatifArgs {
    /// History database, as `store.path` names it; a router may be writing it
    database: PathBuf,
    /// Policy whose decisions to use [default: that of the newest decision]
    #[arg(long, value_name = "NAME")]
    policy: Option<String>,
    /// Other weight of a term (repeatable); other terms keep the weights that they decided with
    #[arg(long = "weight", value_name = "TERM=VALUE", value_parser = weight, required = true)]
    weights: Vec<(String, f64)>,
    /// Number of newest decisions to use
    #[arg(long, value_name = "N", default_value_t = 20_000, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    last: u32,
}

fn weight(text: &str) -> Result<(String, f64), String> {
    let (term, value) = text.split_once('=').ok_or("expected TERM=VALUE, such as rtt=0.5")?;
    let value: f64 = value.trim().parse().map_err(|_| format!("`{value}` is not a number"))?;
    if value.is_finite() { Ok((term.trim().to_owned(), value)) } else { Err("a weight must be finite".to_owned()) }
}

/// Error: no estimate is possible.
#[derive(Debug, thiserror::Error)]
enum WhatifError {
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error("the history has no decision of {0}")]
    Nothing(String),
    #[error("policy {policy} has no term `{term}`{near}")]
    Term { policy: String, term: String, near: String },
    #[error("policy {0} cannot be built again from its stored text: {1}")]
    Policy(String, String),
}

impl CliCommand for WhatifArgs {
    const NAME: &'static str = "whatif";
    const ABOUT: &'static str = "Estimate from a history what other weights would have achieved";

    fn run(self) -> CommandExit {
        block_on(async move {
            match self.answer().await {
                Ok(answer) => {
                    // A closed pipe is ignored: the exit code still has the answer.
                    let _ = std::io::Write::write_all(&mut std::io::stdout(), answer.text().as_bytes());
                    if answer.is_supported() { CommandExit::Done } else { CommandExit::Negative }
                }
                Err(error) => {
                    anstream::eprintln!("gorgo: {error}");
                    match error {
                        WhatifError::Store(_) => CommandExit::Store,
                        WhatifError::Term { .. } => CommandExit::Usage,
                        WhatifError::Nothing(_) | WhatifError::Policy(..) => CommandExit::Negative,
                    }
                }
            }
        })
    }
}

/// Estimate, and the decisions that it was made from.
#[derive(Debug)]
struct WhatifReport {
    head: String,
    decisions: usize,
    by_chance: usize,
    served: OffPolicyEstimate,
    other: OffPolicyEstimate,
}

impl WhatifArgs {
    async fn answer(&self) -> Result<WhatifReport, WhatifError> {
        let reader = HistoryReader::open(&self.database).await?;
        let decisions = reader.newest_decisions(self.last).await?;
        let first = decisions.first().map_or(DecisionId(0), |decision| decision.decision);
        let outcomes = reader.outcomes(first, self.last.saturating_mul(2)).await?;
        reader.close().await;
        let wanted = |decision: &&StoredDecision| {
            decision.replica.is_some() && self.policy.as_ref().is_none_or(|name| decision.policy.name == *name)
        };
        // The newest version of the policy: older ones may have other terms.
        let newest = decisions.iter().rev().find(wanted).ok_or_else(|| {
            WhatifError::Nothing(
                self.policy.as_ref().map_or_else(|| "any policy".to_owned(), |name| format!("policy {name}")),
            )
        })?;
        let policy = built(newest)?;
        let slots = self.slots(&policy)?;
        let of_it = decisions.iter().filter(|decision| decision.replica.is_some() && decision.policy == newest.policy);
        let mut scratch = DecisionScratch::default();
        let (mut all, mut seen) = (0, Vec::new());
        for decision in of_it {
            // A request that is still running has no outcome yet.
            let Ok(place) = outcomes.binary_search_by_key(&decision.decision, |outcome| outcome.decision) else {
                continue;
            };
            let outcome = &outcomes[place];
            // As in the tuner: an outcome that does not depend on the replica is no sample.
            if matches!(
                outcome.error,
                Some(ErrorClass::ClientGone | ErrorClass::ClientError | ErrorClass::Refused | ErrorClass::Shutdown)
            ) {
                continue;
            }
            all += 1;
            // A certain choice carries no information about any other, and dividing by a propensity of 0 is undefined.
            if !(decision.propensity > 0.0 && decision.propensity < 1.0) {
                continue;
            }
            // The weights that decided, which a tuner may have moved since, with only the named ones replaced.
            let mut weights = decision.weights.to_vec();
            // Rows of an older version of the policy, with other terms, cannot be decided by this one.
            if weights.len() != policy.terms.len() {
                continue;
            }
            for (slot, value) in &slots {
                weights[*slot] = *value;
            }
            let Some(chance) = chance(&policy, &weights, decision, &mut scratch) else { continue };
            #[expect(clippy::cast_precision_loss, reason = "µs of one request")]
            let ms = |micros: i64| micros as f64 / 1e3;
            seen.push(WeightedRequest {
                weight: chance / decision.propensity,
                ttft_ms: outcome.ttft_us.map(ms),
                e2e_ms: outcome.error.is_none().then(|| ms(outcome.e2e_us)),
                failed: outcome.error.is_some(),
            });
        }
        let weights: Vec<String> = self.weights.iter().map(|(term, value)| format!("{term} = {value}")).collect();
        Ok(WhatifReport {
            head: format!("policy {} with {}", policy.name, weights.join(", ")),
            decisions: all,
            by_chance: seen.len(),
            served: OffPolicyEstimate::served(&seen),
            other: OffPolicyEstimate::of(&seen),
        })
    }

    /// Slots of the named terms, with their weights.
    fn slots(&self, policy: &Policy) -> Result<Vec<(usize, f64)>, WhatifError> {
        let slot = |(name, value): &(String, f64)| {
            let found = policy.terms.iter().position(|term| *term.name == **name);
            found.map(|slot| (slot, *value)).ok_or_else(|| {
                let near = nearest(name, policy.terms.iter().map(|term| &*term.name));
                WhatifError::Term {
                    policy: policy.name.to_string(),
                    term: name.clone(),
                    near: near.map_or_else(String::new, |near| format!("; did you mean `{near}`?")),
                }
            })
        };
        self.weights.iter().map(slot).collect()
    }
}

/// The policy that made a decision, from its stored text. Exclusions are stored with the candidates, so its
/// constraints, gate, tuner and shadows are left out.
fn built(decision: &StoredDecision) -> Result<std::sync::Arc<Policy>, WhatifError> {
    let name = &decision.policy.name;
    let wrong = |cause: String| WhatifError::Policy(name.clone(), cause);
    let file = parse_toml(&decision.policy.text).map_err(|cause| wrong(cause.to_string()))?;
    let Some(ConfigValue::Table(mut tables)) = file.get("policy").cloned() else {
        return Err(wrong("it is not a table".to_owned()));
    };
    for (_, table) in &mut tables {
        if let ConfigValue::Table(members) = table {
            // Shadows name other policies, which the stored text does not have; the rest does not act on stored rows.
            members.retain(|(key, _)| !["shadow", "constraint", "admission", "tune"].contains(&&**key));
        }
    }
    let fleet = decision.fleet();
    let checked = build(&KindRegistry::built_in(), &tables, name, &fleet);
    let policies = checked.policies.ok_or_else(|| {
        let said = checked.faults.list.iter().map(|fault| format!("{}: {}", fault.path, fault.message));
        wrong(said.collect::<Vec<_>>().join("; "))
    })?;
    let place = policies.default.index();
    policies.list.get(place).cloned().ok_or_else(|| wrong("it is missing".to_owned()))
}

/// Probability of the chosen replica under these weights. `None`: the candidates do not belong to this policy.
fn chance(policy: &Policy, weights: &[f64], decision: &StoredDecision, scratch: &mut DecisionScratch) -> Option<f64> {
    let rows = decision.rows();
    let chosen = decision.row()?;
    for turn in 0..SEEDS {
        // The stored seed first: if nothing changes, it chooses the same replica at once.
        // The multiplier is 2^64 divided by the golden ratio: it spreads consecutive turns over all bits of the seed.
        let seed = decision.seed ^ turn.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let choice = repeat_decision(policy, weights, &rows, seed, scratch)?;
        if choice.replica.index() == chosen {
            return Some(choice.propensity);
        }
        // The choice is certain, and it is another replica: more seeds would not change it.
        if choice.propensity >= 1.0 {
            break;
        }
    }
    Some(0.0)
}

impl WhatifReport {
    /// True if the estimate is more than a guess.
    fn is_supported(&self) -> bool {
        self.other.effective_requests >= FEWEST && self.other.mean_weight >= COVERED
    }

    fn text(&self) -> String {
        let mut text = format!(
            "{}\n{} decisions; {} involved chance; effective sample size {:.0}; {} of the choices with these weights \
             were possible\n",
            self.head,
            count(self.decisions),
            count(self.by_chance),
            self.other.effective_requests,
            // A mean of sampled weights may exceed 1 by chance, but a share cannot.
            percent(Some(self.other.mean_weight.min(1.0)))
        );
        if !self.is_supported() {
            text.push_str(
                "not enough evidence: let chance decide some requests (`exploration = 0.02`, or a softmin picker), \
                 or try weights closer to those that decided\n",
            );
            return text;
        }
        let mut table: Table = numbers(&["", "as served", "with these weights"]);
        let shown = |figure: Option<MeanEstimate>| match figure {
            Some(MeanEstimate { mean, standard_error: error, .. }) => {
                format!("{} ± {}", millis(Some(mean)), millis(Some(error)))
            }
            None => millis(None),
        };
        let p95 = |figure: Option<MeanEstimate>| millis(figure.map(|figure| figure.p95));
        table.add_row(["TTFT mean ms".to_owned(), shown(self.served.ttft), shown(self.other.ttft)]);
        table.add_row(["TTFT p95 ms".to_owned(), p95(self.served.ttft), p95(self.other.ttft)]);
        table.add_row(["E2E mean ms".to_owned(), shown(self.served.e2e), shown(self.other.e2e)]);
        table.add_row(["E2E p95 ms".to_owned(), p95(self.served.e2e), p95(self.other.e2e)]);
        table.add_row(["errors".to_owned(), percent(self.served.error_share), percent(self.other.error_share)]);
        text.push_str(&format!("{table}\n"));
        text.push_str(
            "± is one standard error; effects of the weights on queues and caches are not included: use `gorgo \
             simulate` for those\n",
        );
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn weights_are_read_and_nonsense_is_not() {
        assert_eq!(weight("rtt=0.5"), Ok(("rtt".to_owned(), 0.5)));
        assert_eq!(weight(" long-queue = -1 "), Ok(("long-queue".to_owned(), -1.0)));
        for wrong in ["rtt", "rtt=", "rtt=x", "rtt=inf", "rtt=NaN"] {
            assert!(weight(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn thin_support_is_said_and_no_figure_is_shown() {
        let one = |weight| WeightedRequest { weight, ttft_ms: Some(100.0), e2e_ms: Some(300.0), failed: false };
        let answer = |seen: &[WeightedRequest]| WhatifReport {
            head: "policy p with rtt = 1".to_owned(),
            decisions: 500,
            by_chance: seen.len(),
            served: OffPolicyEstimate::served(seen),
            other: OffPolicyEstimate::of(seen),
        };
        let thin = answer(&[one(1.0); 50]);
        assert!(!thin.is_supported() && thin.text().contains("not enough evidence"), "{}", thin.text());
        let uncovered = answer(&[[one(1.0); 150], [one(0.0); 150]].concat());
        assert!(!uncovered.is_supported(), "half of its choices never had a chance");
        let enough = answer(&[one(1.0); 400]);
        assert!(enough.is_supported() && enough.text().contains("TTFT mean ms"), "{}", enough.text());
    }
}
