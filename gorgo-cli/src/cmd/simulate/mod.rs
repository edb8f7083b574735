//! `gorgo simulate --trace FILE`: a recorded trace through the router on virtual time, by every policy that is asked
//! for, from the same configuration that `serve` reads.
//!
//! ```text
//! policies.toml ─→ fleet, policies ─┐
//! trace ─→ shape ─→ Workload ───────┼→ compare: one run per policy and seed, on all cores → Summary → table, JSON, CSV
//! scenario ─→ network, faults ──────┘
//! ```
//!
//! Exit code: 0 done, 2 usage (also a trace or a scenario that cannot be used), 78 configuration.

mod compare;
mod report;
mod seeds;

use std::fs;
use std::io::{self, IsTerminal, Write};
use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use gorgo_core::config::{Config, nearest, render, summary};
use gorgo_core::policy::{Policies, Registry};
use gorgo_core::run::load;
use gorgo_core::sim::world::{Member, MemberError, Scenario, ScenarioError, SimulateError, Workload, members};
use gorgo_core::trace::{self, Shape, TraceError};
use gorgo_plugins::host::Conduct;
use indicatif::{ProgressBar, ProgressDrawTarget};

use self::compare::{Plan, compare};
use self::report::{Frame, Report};
use self::seeds::Seeds;
use super::Command;
use crate::args::{ConfigArgs, environment, look};
use crate::exit::Exit;
use crate::plugins::with_host;

/// Compare policies on a recorded trace, in virtual time.
#[derive(Debug, Clone, clap::Args)]
pub(crate) struct Simulate {
    #[command(flatten)]
    config: ConfigArgs,
    /// Trace file: Mooncake-format JSON lines or Azure CSV, gzip or plain
    #[arg(long, value_name = "FILE")]
    trace: PathBuf,
    /// Policies to compare, with commas between; `all`: those of the file and all presets
    #[arg(long, value_name = "NAMES", value_delimiter = ',', default_value = "all")]
    policies: Vec<String>,
    /// How many seeds, from 1 on, or which: 101..105
    #[arg(long, value_name = "N | A..B", default_value = "3")]
    seeds: Seeds,
    /// Network and faults, a TOML file with [network], [[fault]] and [[router]]
    #[arg(long, value_name = "FILE")]
    scenario: Option<PathBuf>,
    /// Factor on the gaps between requests: larger is lighter
    #[arg(long, value_name = "FACTOR", default_value_t = 1.0, value_parser = factor)]
    time_scale: f64,
    /// At most N requests, counted after --max-input-tokens dropped its rows
    #[arg(long, value_name = "N")]
    limit: Option<usize>,
    /// Drop rows with longer prompts, and say how many
    #[arg(long, value_name = "N")]
    max_input_tokens: Option<u32>,
    /// Cut longer answers to N tokens, and say how many
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    max_output_tokens: Option<u32>,
    /// Most requests in flight at once, 0 for no limit; latencies count from the actual send
    #[arg(long, value_name = "N", default_value_t = 64)]
    max_in_flight: usize,
    /// Keep the times of rows that share a timestamp, in place of spreading them to the next one
    #[arg(long)]
    no_spread: bool,
    /// Tokens per hash id [default: inferred from the trace]
    #[arg(long, value_name = "TOKENS")]
    block_size: Option<u32>,
    /// Runs at the same time [default: one per core]; the results do not depend on it
    #[arg(long, value_name = "N")]
    jobs: Option<NonZeroUsize>,
    /// Print JSON in place of the table
    #[arg(long)]
    json: bool,
    /// Write one line per policy and seed to FILE
    #[arg(long, value_name = "FILE")]
    csv: Option<PathBuf>,
}

fn factor(text: &str) -> Result<f64, String> {
    let factor: f64 = text.parse().map_err(|_| "not a number".to_owned())?;
    if factor.is_finite() && factor >= 0.0 { Ok(factor) } else { Err("not a finite number from 0 up".to_owned()) }
}

/// Why there is nothing to report.
#[derive(Debug, thiserror::Error)]
enum Failure {
    /// What `check` would print.
    #[error("{0}")]
    Configuration(String),
    #[error("{0}")]
    Members(#[from] MemberError),
    #[error("--policies: unknown policy \"{name}\"{near}; `gorgo kinds` lists the presets")]
    Policy { name: String, near: String },
    #[error("{}: {cause}", path.display())]
    File { path: PathBuf, cause: io::Error },
    #[error("{}: {cause}", path.display())]
    Trace { path: PathBuf, cause: TraceError },
    #[error("{}: {cause}", path.display())]
    Scenario { path: PathBuf, cause: ScenarioError },
    #[error("{}: no request is left; all {rows} rows are over --max-input-tokens, or --limit is 0", path.display())]
    Nothing { path: PathBuf, rows: usize },
    #[error("{0}")]
    Simulate(#[from] SimulateError),
}

impl Failure {
    const fn exit(&self) -> Exit {
        match self {
            Self::Configuration(_) | Self::Members(_) | Self::Simulate(_) => Exit::Configuration,
            _ => Exit::Usage,
        }
    }
}

impl Command for Simulate {
    const NAME: &'static str = "simulate";
    const ABOUT: &'static str = "Compare policies on a recorded trace, in virtual time";

    fn run(self) -> Exit {
        match self.compared() {
            Ok(report) => {
                let text = if self.json { report.json() } else { report.text() };
                // A reader that has left (a closed pipe) does not change what was found.
                anstream::stdout().write_all(text.as_bytes()).ok();
                Exit::Done
            }
            Err(failure) => {
                match &failure {
                    Failure::Configuration(report) => anstream::eprint!("{report}"),
                    _ => anstream::eprintln!("gorgo simulate: {failure}"),
                }
                failure.exit()
            }
        }
    }
}

impl Simulate {
    /// Reads everything, runs everything.
    fn compared(&self) -> Result<Report, Failure> {
        // Plugins run here as in `serve`, but are not quarantined: the same seed gives the same result.
        let (registry, _host) = with_host(&self.config.config, Conduct::Reported);
        let (config, policies) = self.configuration(&registry)?;
        let members = members(&config.replicas)?;
        warn_of_real_ones(&members);
        let wanted = self.wanted(&policies)?;
        let scenario = self.scenario(&members, &policies)?;
        let bytes = self.read(&self.trace)?;
        let recorded =
            trace::read(&bytes, self.block_size).map_err(|cause| Failure::Trace { path: self.trace.clone(), cause })?;
        drop(bytes);
        let rows_without_blocks = recorded.rows_without_blocks;
        let shaped = trace::shape(
            recorded,
            &Shape {
                time_scale: self.time_scale,
                limit: self.limit,
                max_input_tokens: self.max_input_tokens,
                max_output_tokens: self.max_output_tokens,
                spread: !self.no_spread,
            },
        );
        let counts = shaped.counts;
        if shaped.rows.is_empty() {
            return Err(Failure::Nothing { path: self.trace.clone(), rows: counts.rows });
        }
        // Opened before the runs, so that a path that cannot be written does not cost them.
        let csv = self.csv.as_ref().map(|path| (path, fs::File::create(path)));
        let csv = csv.map(|(path, file)| file.map(|file| (path, file)).map_err(|cause| self.file(path, cause)));
        let csv = csv.transpose()?;
        let plan = Plan {
            registry: &registry,
            config: &config,
            members: &members,
            scenario: &scenario,
            workload: &Workload::new(shaped),
            max_in_flight: (self.max_in_flight > 0).then_some(self.max_in_flight),
            policies: wanted,
            seeds: self.seeds.list.clone(),
        };
        let cores = || std::thread::available_parallelism().unwrap_or(NonZeroUsize::MIN);
        let bar = progress(plan.runs());
        let rows = compare(&plan, self.jobs.unwrap_or_else(cores), || bar.inc(1))?;
        bar.finish_and_clear();
        let report = Report::new(
            Frame {
                default: config.default_policy.clone(),
                trace: self.trace.display().to_string(),
                scenario: self.scenario.as_ref().map(|path| path.display().to_string()),
                seeds: plan.seeds.clone(),
                time_scale: self.time_scale,
                max_in_flight: plan.max_in_flight,
                replicas: members.iter().map(|member| member.replica.name.to_string()).collect(),
                rows_without_blocks,
                counts,
                max_input_tokens: self.max_input_tokens,
                max_output_tokens: self.max_output_tokens,
            },
            rows,
        );
        if let Some((path, file)) = csv {
            report.csv(file).map_err(|cause| self.file(path, cause))?;
        }
        Ok(report)
    }

    fn configuration(&self, registry: &Registry) -> Result<(Config, Policies), Failure> {
        let loading = load(&self.config.config, &environment(), &self.config.set, registry);
        let mut text = render(&loading.faults, &loading.origins, look());
        if loading.ready.is_some() && !text.is_empty() {
            anstream::eprint!("{text}");
        }
        loading.ready.ok_or_else(|| {
            text.push_str(&format!("{}: {}\n", loading.origins.source().name(), summary(&loading.faults)));
            Failure::Configuration(text)
        })
    }

    /// The policies asked for, in the order asked for.
    fn wanted(&self, policies: &Policies) -> Result<Vec<Arc<str>>, Failure> {
        let mut wanted: Vec<Arc<str>> = Vec::new();
        let known = || policies.list.iter().map(|policy| &policy.name);
        for name in &self.policies {
            let found: Vec<&Arc<str>> = known().filter(|known| name == "all" || ***known == **name).collect();
            if found.is_empty() {
                let near = nearest(name, known().map(|name| &**name));
                let near = near.map_or_else(String::new, |near| format!("; did you mean \"{near}\"?"));
                return Err(Failure::Policy { name: name.clone(), near });
            }
            for name in found {
                if !wanted.contains(name) {
                    wanted.push(Arc::clone(name));
                }
            }
        }
        Ok(wanted)
    }

    fn scenario(&self, members: &[Member], policies: &Policies) -> Result<Scenario, Failure> {
        let Some(path) = &self.scenario else { return Ok(Scenario::default()) };
        let bytes = self.read(path)?;
        let replicas: Vec<&str> = members.iter().map(|member| &*member.replica.name).collect();
        let names: Vec<&str> = policies.list.iter().map(|policy| &*policy.name).collect();
        Scenario::parse(&String::from_utf8_lossy(&bytes), &replicas, &names)
            .map_err(|cause| Failure::Scenario { path: path.clone(), cause })
    }

    fn read(&self, path: &Path) -> Result<Vec<u8>, Failure> {
        fs::read(path).map_err(|cause| self.file(path, cause))
    }

    fn file(&self, path: &Path, cause: io::Error) -> Failure {
        Failure::File { path: path.to_owned(), cause }
    }
}

fn warn_of_real_ones(members: &[Member]) {
    for member in members.iter().filter(|member| !member.described) {
        anstream::eprintln!(
            "gorgo simulate: replica {} has no `simulated`: simulated as {} at {} ms",
            member.replica.name,
            member.profile.name,
            member.rtt_ms
        );
    }
}

/// A bar over the runs, on a terminal only.
fn progress(runs: usize) -> ProgressBar {
    let target = if io::stderr().is_terminal() { ProgressDrawTarget::stderr() } else { ProgressDrawTarget::hidden() };
    ProgressBar::with_draw_target(u64::try_from(runs).ok(), target)
}

#[cfg(test)]
mod tests;
