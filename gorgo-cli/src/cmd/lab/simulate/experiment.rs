//! Basis of simulated runs, as given on the command line: configuration, fleet, scenario, trace. Shared by `simulate`
//! and `tune`.

use std::fs;
use std::io::{self, IsTerminal};
use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use gorgo_core::run::load;
use gorgo_lab::sim::world::{
    ReplicaSpec, ReplicaSpecError, Scenario, ScenarioError, SimulateError, SimulatedWorkload, SimulationSetup,
    replica_specs,
};
use gorgo_lab::trace::{self, RecordedTrace, ShapeCounts, ShapeOptions, TraceError};
use gorgo_plugins::host::{PluginHost, QuarantineMode};
use gorgo_routing::config::{Config, ConfigOverride, nearest, render, summary};
use gorgo_routing::model::Replica;
use gorgo_routing::policy::{KindRegistry, PolicySet, build};
use indicatif::{ProgressBar, ProgressDrawTarget};
use sha2::{Digest, Sha256};

use crate::args::{ConfigArgs, environment, look};
use crate::exit::CommandExit;
use crate::plugins::with_host;

/// Flags of all commands that simulate.
#[derive(Debug, Clone, clap::Args)]
pub(in crate::cmd) struct ExperimentArgs {
    #[command(flatten)]
    pub(in crate::cmd) config: ConfigArgs,
    /// Experiment as a TOML file whose keys are flags: [experiment], and a table for each command; flags given here win
    #[arg(long, value_name = "FILE")]
    spec: Option<PathBuf>,
    /// Trace file: Mooncake-format JSON lines or Azure CSV, gzip or plain
    #[arg(long, value_name = "FILE")]
    pub(in crate::cmd) trace: PathBuf,
    /// Network and faults, as a TOML file with [network], [[fault]] and [[router]]
    #[arg(long, value_name = "FILE")]
    pub(in crate::cmd) scenario: Option<PathBuf>,
    /// Factor on the gaps between requests: larger is lighter; `simulate` accepts several, separated by commas
    #[arg(long, value_name = "FACTOR", value_delimiter = ',', default_value = "1", value_parser = factor)]
    pub(in crate::cmd) time_scale: Vec<f64>,
    /// Simulate at most N requests, counted after dropping rows by --max-input-tokens
    #[arg(long, value_name = "N")]
    limit: Option<usize>,
    /// Drop rows with longer prompts, and report their number
    #[arg(long, value_name = "N")]
    pub(in crate::cmd) max_input_tokens: Option<u32>,
    /// Cut longer answers to N tokens, and report their number
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub(in crate::cmd) max_output_tokens: Option<u32>,
    /// Most requests in flight at once, 0 for no limit; latencies count from the actual send
    #[arg(long, value_name = "N", default_value_t = 64)]
    max_in_flight: usize,
    /// Keep the times of rows that share a timestamp, instead of spreading them to the next one
    #[arg(long)]
    no_spread: bool,
    /// Tokens per hash id [default: inferred from the trace]
    #[arg(long, value_name = "TOKENS")]
    block_size: Option<u32>,
    /// Number of runs at the same time [default: one per core]; results do not depend on it
    #[arg(long, value_name = "N")]
    jobs: Option<NonZeroUsize>,
}

fn factor(text: &str) -> Result<f64, String> {
    let factor: f64 = text.parse().map_err(|_| "not a number".to_owned())?;
    if factor.is_finite() && factor >= 0.0 { Ok(factor) } else { Err("must be a finite number, 0 or more".to_owned()) }
}

/// Error: there is nothing to report.
#[derive(Debug, thiserror::Error)]
pub(in crate::cmd) enum ExperimentError {
    /// Faults of the configuration, as `check` prints them.
    #[error("{0}")]
    Configuration(String),
    #[error("{0}")]
    Members(#[from] ReplicaSpecError),
    #[error("{flag}: unknown policy \"{name}\"{near}; `gorgo kinds` lists the presets")]
    Policy { flag: &'static str, name: String, near: String },
    #[error("{}: {cause}", path.display())]
    File { path: PathBuf, cause: io::Error },
    #[error("{}: {cause}", path.display())]
    Trace { path: PathBuf, cause: TraceError },
    #[error("{}: {cause}", path.display())]
    Scenario { path: PathBuf, cause: ScenarioError },
    #[error("{}: no request to simulate: all {rows} rows are over --max-input-tokens, or --limit is 0", path.display())]
    Nothing { path: PathBuf, rows: usize },
    #[error("{0}")]
    Simulate(#[from] SimulateError),
    /// A file that cannot be written, with the flag that named it.
    #[error("{0}")]
    Output(String),
    /// Flags of the command that do not work together.
    #[error("{0}")]
    Asked(String),
}

impl ExperimentError {
    pub(in crate::cmd) fn file(path: &Path, cause: io::Error) -> Self {
        Self::File { path: path.to_owned(), cause }
    }

    /// Prints the error on standard error, and returns the exit code.
    pub(in crate::cmd) fn told(&self, command: &str) -> CommandExit {
        match self {
            Self::Configuration(report) => anstream::eprint!("{report}"),
            _ => anstream::eprintln!("gorgo {command}: {self}"),
        }
        self.exit()
    }

    pub(in crate::cmd) const fn exit(&self) -> CommandExit {
        match self {
            Self::Configuration(_) | Self::Members(_) | Self::Simulate(_) => CommandExit::Configuration,
            _ => CommandExit::Usage,
        }
    }
}

/// Inputs that are the same for all swept keys and all loads.
pub(in crate::cmd) struct ExperimentInputs {
    registry: Arc<KindRegistry>,
    host: Arc<PluginHost>,
    recorded: RecordedTrace,
    /// SHA-256 of the trace file, hexadecimal, and its tokens per block.
    pub(in crate::cmd) trace_sha256: String,
}

/// A trace at one time scale.
#[derive(Debug, Clone)]
pub(in crate::cmd) struct TraceLoad {
    pub(in crate::cmd) workload: Arc<SimulatedWorkload>,
    pub(in crate::cmd) counts: ShapeCounts,
    pub(in crate::cmd) time_scale: f64,
    /// Requests per second that the trace offers; `None` if it has no duration.
    pub(in crate::cmd) requests_per_s: Option<f64>,
}

/// A configuration at a load, read and checked.
pub(in crate::cmd) struct ExperimentSetup {
    registry: Arc<KindRegistry>,
    _host: Arc<PluginHost>,
    pub(in crate::cmd) config: Config,
    pub(in crate::cmd) policies: PolicySet,
    pub(in crate::cmd) members: Vec<ReplicaSpec>,
    pub(in crate::cmd) scenario: Scenario,
    pub(in crate::cmd) load: TraceLoad,
    pub(in crate::cmd) max_in_flight: Option<usize>,
    pub(in crate::cmd) rows_without_blocks: usize,
    /// Warnings about the configuration, as printed.
    warnings: String,
}

impl ExperimentArgs {
    /// Reads everything, for a command that simulates one load.
    pub(in crate::cmd) fn prepare(&self) -> Result<ExperimentSetup, ExperimentError> {
        let [time_scale] = self.time_scale[..] else {
            return Err(ExperimentError::Asked("--time-scale: this command accepts only one".to_owned()));
        };
        let roots = self.read_inputs()?;
        let ground = self.setup(&roots, &[], &self.load(&roots, time_scale)?)?;
        ground.warn(None);
        Ok(ground)
    }

    /// Reads the trace, and prepares the registry that policies are built from.
    pub(in crate::cmd) fn read_inputs(&self) -> Result<ExperimentInputs, ExperimentError> {
        // Plugins run as in `serve` but are not quarantined, which would depend on their running time: the same seed
        // must always have the same result.
        let (registry, host) = with_host(&self.config.config, QuarantineMode::Reported);
        let bytes = read(&self.trace)?;
        let recorded = trace::read(&bytes, self.block_size)
            .map_err(|cause| ExperimentError::Trace { path: self.trace.clone(), cause })?;
        // With another block size the same file is a different trace.
        let trace_sha256 = format!("{} {}", hexadecimal(&Sha256::digest(&bytes)), recorded.block_tokens);
        Ok(ExperimentInputs { registry: Arc::new(registry), host, recorded, trace_sha256 })
    }

    /// The trace at one time scale.
    pub(in crate::cmd) fn load(&self, roots: &ExperimentInputs, time_scale: f64) -> Result<TraceLoad, ExperimentError> {
        let shaped = trace::shape(roots.recorded.clone(), &self.shape(time_scale));
        let counts = shaped.counts;
        if shaped.rows.is_empty() {
            return Err(ExperimentError::Nothing { path: self.trace.clone(), rows: counts.rows });
        }
        // The first request is at 0, so the last one's time is the duration.
        let span_s = shaped.rows.last().map_or(0.0, |row| row.at_ms / 1e3);
        let requests = u32::try_from(shaped.rows.len()).ok().filter(|_| span_s > 0.0);
        let requests_per_s = requests.map(|requests| f64::from(requests) / span_s);
        Ok(TraceLoad { workload: Arc::new(SimulatedWorkload::new(shaped)), counts, time_scale, requests_per_s })
    }

    /// Shape of the trace at this time scale.
    pub(in crate::cmd) const fn shape(&self, time_scale: f64) -> ShapeOptions {
        ShapeOptions {
            time_scale,
            limit: self.limit,
            max_input_tokens: self.max_input_tokens,
            max_output_tokens: self.max_output_tokens,
            spread: !self.no_spread,
        }
    }

    /// The configuration at a load, with `more` keys overriding all others.
    pub(in crate::cmd) fn setup(
        &self,
        roots: &ExperimentInputs,
        more: &[ConfigOverride],
        load: &TraceLoad,
    ) -> Result<ExperimentSetup, ExperimentError> {
        let (config, policies, warnings) = self.configuration(&roots.registry, more)?;
        let members = replica_specs(&config.replicas)?;
        let scenario = self.scenario(&members, &policies)?;
        Ok(ExperimentSetup {
            registry: Arc::clone(&roots.registry),
            _host: Arc::clone(&roots.host),
            config,
            policies,
            members,
            scenario,
            load: load.clone(),
            max_in_flight: (self.max_in_flight > 0).then_some(self.max_in_flight),
            rows_without_blocks: roots.recorded.rows_without_blocks,
            warnings,
        })
    }

    /// Number of runs at the same time.
    pub(in crate::cmd) fn jobs(&self) -> NonZeroUsize {
        self.jobs.unwrap_or_else(|| std::thread::available_parallelism().unwrap_or(NonZeroUsize::MIN))
    }

    fn configuration(
        &self,
        registry: &KindRegistry,
        more: &[ConfigOverride],
    ) -> Result<(Config, PolicySet, String), ExperimentError> {
        let settings: Vec<ConfigOverride> = self.config.set.iter().chain(more).cloned().collect();
        let loading = load(&self.config.config, &environment(), &settings, registry);
        // The same loading and checking as in `serve`, so that a simulation accepts no configuration that `serve`
        // refuses.
        let mut text = render(&loading.faults, &loading.origins, look());
        // Warnings are returned and not printed, because a sweep would repeat them at every point.
        let Some((config, policies)) = loading.ready else {
            text.push_str(&format!("{}: {}\n", loading.origins.source().name(), summary(&loading.faults)));
            return Err(ExperimentError::Configuration(text));
        };
        Ok((config, policies, text))
    }

    fn scenario(&self, members: &[ReplicaSpec], policies: &PolicySet) -> Result<Scenario, ExperimentError> {
        let Some(path) = &self.scenario else { return Ok(Scenario::default()) };
        let bytes = read(path)?;
        let replicas: Vec<&str> = members.iter().map(|member| &*member.replica.name).collect();
        let names: Vec<&str> = policies.list.iter().map(|policy| &*policy.name).collect();
        Scenario::parse(&String::from_utf8_lossy(&bytes), &replicas, &names)
            .map_err(|cause| ExperimentError::Scenario { path: path.clone(), cause })
    }
}

impl ExperimentSetup {
    /// Prints warnings on standard error, unless they were printed for the ground `before`.
    pub(in crate::cmd) fn warn(&self, before: Option<&Self>) {
        if before.is_none_or(|before| before.warnings != self.warnings) {
            anstream::eprint!("{}", self.warnings);
        }
        if before.is_none_or(|before| before.members != self.members) {
            warn_of_real_ones(&self.members);
        }
    }

    /// Setup of runs of this policy, or of the clairvoyant.
    pub(in crate::cmd) fn setup(&self, policy: &str) -> SimulationSetup<'_> {
        let (probe, scrape) = self.scenario.pace(policy, self.config.probe, self.config.scrape);
        SimulationSetup {
            workload: &self.load.workload,
            replicas: &self.members,
            scenario: &self.scenario,
            max_in_flight: self.max_in_flight,
            index: self.config.index,
            probe,
            scrape,
            failover: self.config.failover,
        }
    }

    /// All policies, built for one run alone. They were built before, so building them again succeeds.
    pub(in crate::cmd) fn built(&self) -> Option<PolicySet> {
        let fleet: Vec<Replica> = self.members.iter().map(|member| member.replica.clone()).collect();
        build(&self.registry, &self.config.policies, &self.config.default_policy, &fleet).policies
    }

    /// The policy with the name that `flag` gives; all of them for `all`.
    pub(in crate::cmd) fn named(&self, flag: &'static str, name: &str) -> Result<Vec<Arc<str>>, ExperimentError> {
        let known = || self.policies.list.iter().map(|policy| &policy.name);
        // `all` is resolved here, so that every flag that takes policies accepts it.
        let found: Vec<Arc<str>> = known().filter(|known| name == "all" || ***known == *name).cloned().collect();
        if found.is_empty() {
            let near = nearest(name, known().map(|name| &**name));
            let near = near.map_or_else(String::new, |near| format!("; did you mean \"{near}\"?"));
            return Err(ExperimentError::Policy { flag, name: name.to_owned(), near });
        }
        Ok(found)
    }
}

fn read(path: &Path) -> Result<Vec<u8>, ExperimentError> {
    fs::read(path).map_err(|cause| ExperimentError::file(path, cause))
}

/// Bytes as hexadecimal digits.
pub(in crate::cmd) fn hexadecimal(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn warn_of_real_ones(members: &[ReplicaSpec]) {
    for member in members.iter().filter(|member| !member.has_simulation_settings) {
        anstream::eprintln!(
            "gorgo: replica {} has no table `simulated`; using profile {} at {} ms",
            member.replica.name,
            member.profile.name,
            member.rtt_ms
        );
    }
}

/// A progress bar over the runs, on a terminal only.
pub(in crate::cmd) fn progress(runs: usize) -> ProgressBar {
    // On standard error, so that piped results stay clean.
    let target = if io::stderr().is_terminal() { ProgressDrawTarget::stderr() } else { ProgressDrawTarget::hidden() };
    ProgressBar::with_draw_target(u64::try_from(runs).ok(), target)
}
