//! `gorgo weights`: moves learned weights from a router's history to another configuration. `export` writes accepted
//! weights and learned rates as JSON; `import` checks such weights against a configuration and prints the
//! `[policy.NAME]` to paste.

use std::fs;
use std::io::Write as _;
use std::path::PathBuf;

use gorgo_core::run::load;
use gorgo_routing::config::{render, summary};
use gorgo_routing::policy::{PRESETS, Policy};
use gorgo_store::{HistoryReader, StoreError, StoredRate, StoredWeights};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::args::{ConfigArgs, environment, look};
use crate::cmd::CliCommand;
use crate::exit::CommandExit;
use crate::plugins::registry;
use crate::policy_table::table;
use crate::runtime::block_on;

/// Arguments of `gorgo weights`.
#[derive(Debug, clap::Args)]
pub(crate) struct WeightsArgs {
    #[command(subcommand)]
    what: WeightsCommand,
}

#[derive(Debug, clap::Subcommand)]
enum WeightsCommand {
    /// Export a policy's accepted weights, and the learned rates, as JSON
    Export(ExportArgs),
    /// Check exported weights against a configuration, and print the policy's table with them
    Import(ImportArgs),
}

#[derive(Debug, clap::Args)]
struct ExportArgs {
    /// History database, as `store.path` names it; a router may be writing it
    database: PathBuf,
    /// Policy to export
    #[arg(long, value_name = "NAME")]
    policy: String,
}

#[derive(Debug, clap::Args)]
struct ImportArgs {
    /// File written by `export`
    file: PathBuf,
    #[command(flatten)]
    config: ConfigArgs,
}

/// Exported weights and rates of one policy.
#[derive(Debug, Serialize, Deserialize)]
struct ExportedWeights {
    policy: String,
    /// Digest of the policy's text, so that a reader sees if it is the same policy.
    sha256: String,
    generation: u64,
    /// Weights by term.
    weights: Map<String, Value>,
    /// Learned rates, for people and for comparison; every router learns its own.
    #[serde(default)]
    rates: Vec<ExportedRate>,
}

#[derive(Debug, Serialize, Deserialize)]
struct ExportedRate {
    replica: String,
    kind: String,
    value: f64,
    low: Option<f64>,
    high: Option<f64>,
    samples: u64,
}

impl CliCommand for WeightsArgs {
    const NAME: &'static str = "weights";
    const ABOUT: &'static str = "Move learned weights from a router's history into a configuration";

    fn run(self) -> CommandExit {
        match self.what {
            WeightsCommand::Export(export) => export.run(),
            WeightsCommand::Import(import) => import.run(),
        }
    }
}

impl ExportArgs {
    fn run(self) -> CommandExit {
        block_on(async move {
            match read(&self.database).await {
                Ok((all, rates)) => match learned(&self.policy, all, rates) {
                    Ok(learned) => shown(&learned),
                    Err(known) => {
                        anstream::eprintln!(
                            "gorgo: the history has no weights of policy {}; policies with weights: {known}",
                            self.policy
                        );
                        CommandExit::Negative
                    }
                },
                Err(error) => {
                    anstream::eprintln!("gorgo: {error}");
                    CommandExit::Store
                }
            }
        })
    }
}

async fn read(database: &std::path::Path) -> Result<(Vec<StoredWeights>, Vec<StoredRate>), StoreError> {
    let reader = HistoryReader::open(database).await?;
    let found = (reader.incumbents().await?, reader.newest_rates().await?);
    reader.close().await;
    Ok(found)
}

/// Exported weights of this policy; else the names of the policies that have some.
fn learned(policy: &str, all: Vec<StoredWeights>, rates: Vec<StoredRate>) -> Result<ExportedWeights, String> {
    let known: Vec<String> = all.iter().map(|one| one.policy.clone()).collect();
    let one = all.into_iter().find(|one| one.policy == policy).ok_or_else(|| known.join(", "))?;
    let rate = |rate: StoredRate| {
        let StoredRate { replica, kind, value, low, high, samples } = rate;
        ExportedRate { replica, kind, value, low, high, samples }
    };
    Ok(ExportedWeights {
        policy: one.policy,
        sha256: one.sha256,
        generation: one.generation,
        weights: one.terms.into_iter().map(|(term, weight)| (term, Value::from(weight))).collect(),
        rates: rates.into_iter().map(rate).collect(),
    })
}

fn shown(learned: &ExportedWeights) -> CommandExit {
    match serde_json::to_string_pretty(learned) {
        Ok(text) => {
            // A closed pipe is ignored, as with `head`.
            let _ = std::io::stdout().write_all(format!("{text}\n").as_bytes());
            CommandExit::Done
        }
        Err(cause) => {
            anstream::eprintln!("gorgo: {cause}");
            CommandExit::Negative
        }
    }
}

impl ImportArgs {
    fn run(self) -> CommandExit {
        let path = &self.config.config;
        let loading = load(path, &environment(), &self.config.set, &registry(path));
        let Some((_, policies)) = loading.ready else {
            let text = render(&loading.faults, &loading.origins, look());
            let _ = anstream::stderr().write_all(text.as_bytes());
            anstream::eprintln!("{}: {}", loading.origins.source().name(), summary(&loading.faults));
            return CommandExit::Configuration;
        };
        let read = fs::read_to_string(&self.file).map_err(|cause| cause.to_string());
        let learned =
            read.and_then(|text| serde_json::from_str::<ExportedWeights>(&text).map_err(|cause| cause.to_string()));
        let learned = match learned {
            Ok(learned) => learned,
            Err(cause) => {
                anstream::eprintln!("gorgo: {}: {cause}", self.file.display());
                return CommandExit::Usage;
            }
        };
        // Checked against the configuration before anything is printed, because the output will be pasted there.
        let fitted = policies
            .by_name(&learned.policy)
            .ok_or_else(|| format!("{} has no policy {}", path.display(), learned.policy))
            .and_then(|policy| fitting(policy, &learned).map(|weights| (policy, weights)));
        match fitted {
            Ok((policy, weights)) => {
                // Keep the comments of the policy's own text, in the file or a preset. The file was just read; if it is
                // gone by now, only its comments are missing.
                let file = fs::read_to_string(path).unwrap_or_default();
                let preset =
                    PRESETS.iter().find(|preset| *preset.name == *policy.name).map_or("", |preset| preset.text);
                // Weights learned with another version may not suit this one, so the comment tells them apart.
                let from =
                    if policy.sha256 == learned.sha256 { "the same text" } else { "another version of its text" };
                let text = format!(
                    "# Weights of {}, found by generation {} of a router with {from}.\n{}",
                    policy.name,
                    learned.generation,
                    table(policy, &weights, &[&file, preset])
                );
                let _ = std::io::stdout().write_all(text.as_bytes());
                CommandExit::Done
            }
            Err(cause) => {
                anstream::eprintln!("gorgo: {cause}");
                CommandExit::Negative
            }
        }
    }
}

/// The weights in slot order: those of the file for weights that the policy may tune, its own for all others.
fn fitting(policy: &Policy, learned: &ExportedWeights) -> Result<Vec<f64>, String> {
    // An unknown term is an error and not skipped: weights only make sense together.
    let strangers: Vec<&str> = learned
        .weights
        .keys()
        .filter(|name| policy.terms.iter().all(|term| *term.name != ***name))
        .map(String::as_str)
        .collect();
    if !strangers.is_empty() {
        return Err(format!(
            "policy {} has no term {}: the weights belong to another policy",
            policy.name,
            strangers.join(", ")
        ));
    }
    let one = |term: &gorgo_routing::policy::PolicyTerm| {
        let own = term.weight.init;
        match learned.weights.get(&*term.name).map(Value::as_f64) {
            // A weight that is fixed here stays as configured, whatever the file has for it.
            _ if !term.weight.tune => Ok(own),
            None => Ok(own),
            // Bounds are limits that the user set for this fleet; a weight beyond them is refused and not clamped.
            Some(Some(value)) if value >= term.weight.min && value <= term.weight.max => Ok(value),
            Some(Some(value)) => Err(format!(
                "term {}: {value} is outside the bounds of its weight, {} to {}",
                term.name, term.weight.min, term.weight.max
            )),
            Some(None) => Err(format!("term {}: its weight is not a number", term.name)),
        }
    };
    policy.terms.iter().map(one).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use gorgo_routing::config::parse_toml;
    use gorgo_routing::policy::{KindRegistry, build};

    fn policies() -> gorgo_routing::policy::PolicySet {
        build(&KindRegistry::built_in(), &[], "gorgo-tuned", &[]).policies.unwrap()
    }

    fn learned_of(terms: &[(&str, f64)]) -> ExportedWeights {
        let terms = terms.iter().map(|(name, weight)| ((*name).to_owned(), *weight)).collect();
        let weights = StoredWeights { policy: "gorgo-tuned".to_owned(), sha256: "x".to_owned(), generation: 7, terms };
        learned("gorgo-tuned", vec![weights], Vec::new()).unwrap()
    }

    #[test]
    fn weights_fit_where_terms_and_bounds_do() {
        let policies = policies();
        let policy = policies.by_name("gorgo-tuned").unwrap();
        let weights = fitting(policy, &learned_of(&[("rtt", 0.4), ("prefill", 9.0), ("queue", 0.1)])).unwrap();
        assert_eq!(weights, [0.4, 1.0, 0.1], "one that may not move stays");
        let text = table(policy, &weights, &[]);
        let read = parse_toml(&text).unwrap();
        let again = read.get("policy").and_then(|all| all.get("gorgo-tuned")).unwrap().clone();
        let built = build(&KindRegistry::built_in(), &[("gorgo-tuned".to_owned(), again)], "gorgo-tuned", &[]);
        let begun = built.policies.unwrap().by_name("gorgo-tuned").unwrap().weights();
        assert_eq!(begun.values, weights, "what is pasted begins with them");
        let high = fitting(policy, &learned_of(&[("rtt", 3.0)])).unwrap_err();
        assert_eq!(high, "term rtt: 3 is outside the bounds of its weight, 0.05 to 2");
        let strange = fitting(policy, &learned_of(&[("carbon", 0.4)])).unwrap_err();
        assert!(strange.contains("has no term carbon"), "{strange}");
    }

    #[test]
    fn what_is_not_there_is_answered_with_what_is() {
        let weights = |name: &str| StoredWeights {
            policy: name.to_owned(),
            sha256: String::new(),
            generation: 0,
            terms: Vec::new(),
        };
        let known = learned("c", vec![weights("a"), weights("b")], Vec::new()).unwrap_err();
        assert_eq!(known, "a, b");
    }
}
