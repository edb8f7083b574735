//! `gorgo simulate --trace FILE`: sends a recorded trace through the router in virtual time, once per policy, with the
//! same configuration that `serve` reads.
//!
//! ```text
//! policies.toml, --sweep ─→ fleet, policies ─┐
//! trace, --time-scale ─→ shape ─→ Workload ──┼→ compare: one run per case and seed, on all cores → Summary → table, …
//! scenario ─→ network, faults ───────────────┘          ↑ --resume: runs that a file has already
//! ```
//!
//! A *ground* is a configuration at a load; a *case* is a policy there, whole or without one of its parts (`--ablate`).
//!
//! Exit code: 0 done, 2 usage (also a trace or a scenario that cannot be used), 78 configuration.

mod ablation;
mod compare;
pub(super) mod experiment;
mod report;
mod run_cache;
pub(super) mod seeds;
mod sweep;

use std::fs;
use std::io::Write;
use std::path::PathBuf;
use std::sync::Arc;

use self::ablation::PolicyPart;
use self::compare::{AblationMode, SimulationCase, SimulationPlan, compare};
use self::experiment::{ExperimentArgs, ExperimentError, ExperimentSetup, progress};
use self::report::{ReportHeader, SimulationReport, SweepPoint};
use self::run_cache::RunCache;
use self::seeds::SeedList;
use self::sweep::{SweepAxis, SweepValues, points, touches};
use crate::cmd::CliCommand;
use crate::exit::CommandExit;
use crate::report::folder::RunFolder;
use crate::report::page::command_line;
use crate::report::unwritable;

pub(super) use self::compare::each;

/// Compare policies on a recorded trace, in virtual time.
#[derive(Debug, Clone, clap::Args)]
pub(crate) struct SimulateArgs {
    #[command(flatten)]
    ground: ExperimentArgs,
    /// Policies to compare, separated by commas; `all`: those of the file and all presets
    #[arg(long, value_name = "NAMES", value_delimiter = ',', default_value = "all")]
    policies: Vec<String>,
    /// Number of seeds (1..=N), or a range such as 101..105
    #[arg(long, value_name = "N | A..B", default_value = "3")]
    seeds: SeedList,
    /// Values of one configuration key, as for --set: KEY=V1,V2 or KEY=LOW..HIGH:COUNT[log][int]; repeat for a grid
    #[arg(long, value_name = "KEY=VALUES")]
    sweep: Vec<SweepAxis>,
    /// Draw N points of the --sweep keys at random, instead of the whole grid
    #[arg(long, value_name = "N", requires = "sweep", value_parser = clap::value_parser!(u32).range(1..=100_000))]
    samples: Option<u32>,
    /// Seed of --samples
    #[arg(long, value_name = "N", default_value_t = 0)]
    sweep_seed: u64,
    /// Limit on p95 of E2E, ms: with several loads in --time-scale, report the highest load that each policy sustains
    /// within it
    #[arg(long, value_name = "MS", default_value_t = 6_000.0)]
    e2e_limit_ms: f64,
    /// Measure each part of this policy: the same traffic without each term and constraint in turn
    #[arg(long, value_name = "POLICY", conflicts_with_all = ["policies", "sweep"])]
    ablate: Option<String>,
    /// Keep finished runs in FILE, and only make the missing ones
    #[arg(long, value_name = "FILE")]
    resume: Option<PathBuf>,
    /// Print JSON instead of the table
    #[arg(long)]
    json: bool,
    /// Write one line per policy and seed to FILE
    #[arg(long, value_name = "FILE")]
    csv: Option<PathBuf>,
    /// Write a self-contained page with tables and plots to FILE; it shows no folders of this machine
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
    /// Write run.json, run.csv and run.html into this folder, which must not exist yet
    #[arg(long, value_name = "FOLDER", conflicts_with_all = ["csv", "html"])]
    out_dir: Option<PathBuf>,
}

impl CliCommand for SimulateArgs {
    const NAME: &'static str = "simulate";
    const ABOUT: &'static str = "Compare policies on a recorded trace, in virtual time";

    fn run(self) -> CommandExit {
        match self.compared() {
            Ok(report) => {
                let text = if self.json { report.json() } else { report.text() };
                // A closed pipe does not change the result.
                anstream::stdout().write_all(text.as_bytes()).ok();
                CommandExit::Done
            }
            Err(failure) => failure.told(Self::NAME),
        }
    }
}

/// An open file, to be written after the runs.
struct OutputFile {
    path: PathBuf,
    file: fs::File,
}

impl OutputFile {
    /// Opens the file before the runs, so that an unwritable path does not waste them.
    fn open(flag: &'static str, path: Option<&PathBuf>) -> Result<Option<Self>, ExperimentError> {
        let open = |path: &PathBuf| match fs::File::create(path) {
            Ok(file) => Ok(Self { path: path.clone(), file }),
            Err(cause) => Err(ExperimentError::Output(unwritable(flag, path, &cause))),
        };
        path.map(open).transpose()
    }
}

impl SimulateArgs {
    /// Reads all inputs and makes all runs.
    fn compared(&self) -> Result<SimulationReport, ExperimentError> {
        // All configurations are checked before the first run: a fault in the last point of a sweep must not waste the
        // others.
        let (grounds, places, trace_sha256) = self.grounds()?;
        let cases = self.cases(&grounds, &places)?;
        let folder = self.out_dir.as_deref().map(RunFolder::make).transpose().map_err(ExperimentError::Output)?;
        let named =
            |own: Option<&PathBuf>, name: &str| own.cloned().or_else(|| folder.as_ref().map(|at| at.file(name)));
        let csv = OutputFile::open("--csv", named(self.csv.as_ref(), "run.csv").as_ref())?;
        let html = OutputFile::open("--html", named(self.html.as_ref(), "run.html").as_ref())?;
        let json = OutputFile::open("--out-dir", named(None, "run.json").as_ref())?;
        let shape = self.ground.shape(1.0);
        let kept = self.resume.as_ref().map(|path| RunCache::open(path, &trace_sha256, &shape)).transpose()?;
        let plan = SimulationPlan { setups: &grounds, cases, seeds: self.seeds.list.clone(), cache: kept.as_ref() };
        let bar = progress(plan.runs());
        let rows = compare(&plan, self.ground.jobs(), || bar.inc(1))?;
        bar.finish_and_clear();
        // Files are written from the same report that is printed, so that they cannot disagree.
        let report = SimulationReport::new(self.frame(&grounds, places, trace_sha256), rows);
        if let Some(OutputFile { path, file }) = csv {
            report.csv(file).map_err(|cause| ExperimentError::file(&path, cause))?;
        }
        if let Some(OutputFile { path, mut file }) = json {
            file.write_all(report.json().as_bytes()).map_err(|cause| ExperimentError::file(&path, cause))?;
        }
        if let Some(OutputFile { path, mut file }) = html {
            let page = report.html(&command_line(std::env::args()));
            file.write_all(page.as_bytes()).map_err(|cause| ExperimentError::file(&path, cause))?;
        }
        Ok(report)
    }

    /// Every configuration at every load, loads fastest; the values that distinguish them; and the trace's hash.
    fn grounds(&self) -> Result<(Vec<ExperimentSetup>, Vec<SweepPoint>, String), ExperimentError> {
        if self.ablate.is_some() && self.ground.time_scale.len() > 1 {
            return Err(ExperimentError::Asked("--ablate: only one --time-scale is possible".to_owned()));
        }
        let asked: Vec<SweepValues> =
            points(&self.sweep, self.samples, self.sweep_seed).map_err(ExperimentError::Asked)?;
        let roots = self.ground.read_inputs()?;
        // Each load is shaped once and shared by all points.
        let loads = self.ground.time_scale.iter().map(|scale| self.ground.load(&roots, *scale));
        let loads = loads.collect::<Result<Vec<_>, _>>()?;
        let (mut grounds, mut places): (Vec<ExperimentSetup>, Vec<SweepPoint>) = (Vec::new(), Vec::new());
        for point in asked {
            let settings = point.settings(&self.sweep);
            for load in &loads {
                let ground = self.ground.setup(&roots, &settings, load)?;
                ground.warn(grounds.last());
                grounds.push(ground);
                places.push(SweepPoint {
                    values: point.values.clone(),
                    time_scale: load.time_scale,
                    requests_per_s: load.requests_per_s,
                    counts: load.counts,
                });
            }
        }
        Ok((grounds, places, roots.trace_sha256))
    }

    /// Cases to run on each ground.
    fn cases(
        &self,
        grounds: &[ExperimentSetup],
        places: &[SweepPoint],
    ) -> Result<Vec<SimulationCase>, ExperimentError> {
        let mut cases = Vec::new();
        let compared = grounds.first().map(|ground| self.wanted(ground)).transpose()?.unwrap_or_default();
        // A swept key that no compared policy reads would repeat the same run at every point, most likely by mistake.
        let nobodys = self.sweep.iter().find(|axis| !compared.iter().any(|name| touches(&axis.path, name)));
        if let Some(axis) = nobodys.filter(|_| self.ablate.is_none()) {
            let text = format!("--sweep {}: no compared policy has this key; add its policy to --policies", axis.path);
            return Err(ExperimentError::Asked(text));
        }
        for (place, ground) in grounds.iter().enumerate() {
            let case = |policy: Option<Arc<str>>, ablation| SimulationCase { setup: place, policy, ablation };
            if let Some(name) = &self.ablate {
                let [name] = &ground.named("--ablate", name)?[..] else {
                    return Err(ExperimentError::Asked("--ablate: only one policy is possible".to_owned()));
                };
                let parts = ground.policies.by_name(name).map(PolicyPart::all).unwrap_or_default();
                cases.push(case(Some(Arc::clone(name)), AblationMode::Whole));
                let without = |part| case(Some(Arc::clone(name)), AblationMode::Without(part));
                cases.extend(parts.into_iter().map(without));
                continue;
            }
            // A policy that a swept key cannot change is run once for all values of that key.
            let own = |name: &str, place: &SweepPoint| {
                let axes = self.sweep.iter().zip(&place.values).filter(|(axis, _)| touches(&axis.path, name));
                (axes.map(|(_, value)| value.clone()).collect::<Vec<_>>(), place.time_scale.to_bits())
            };
            let is_new = |name: &str| {
                let Some((here, before)) = places.get(place).zip(places.get(..place)) else { return true };
                let mine = own(name, here);
                !before.iter().any(|earlier| own(name, earlier) == mine)
            };
            let wanted = self.wanted(ground)?.into_iter().filter(|name| is_new(name));
            cases.extend(wanted.map(|name| case(Some(name), AblationMode::None)));
            // In a sweep the clairvoyant would repeat the same figures at every point.
            if self.sweep.is_empty() {
                cases.push(case(None, AblationMode::None));
            }
        }
        Ok(cases)
    }

    fn frame(&self, grounds: &[ExperimentSetup], places: Vec<SweepPoint>, trace_sha256: String) -> ReportHeader {
        let first = grounds.first();
        let ablated = self.ablate.as_ref().zip(first).and_then(|(name, ground)| ground.policies.by_name(name));
        let part = |policy, part: PolicyPart| (part.family(), part.name(policy).to_owned());
        ReportHeader {
            default: first.map_or_else(String::new, |ground| ground.config.default_policy.clone()),
            trace: self.ground.trace.display().to_string(),
            trace_sha256,
            scenario: self.ground.scenario.as_ref().map(|path| path.display().to_string()),
            seeds: self.seeds.list.clone(),
            max_in_flight: first.and_then(|ground| ground.max_in_flight),
            replicas: first.map_or_else(Vec::new, |ground| {
                ground.members.iter().map(|member| member.replica.name.to_string()).collect()
            }),
            rows_without_blocks: first.map_or(0, |ground| ground.rows_without_blocks),
            max_input_tokens: self.ground.max_input_tokens,
            max_output_tokens: self.ground.max_output_tokens,
            axes: self.sweep.iter().map(|axis| axis.path.clone()).collect(),
            points: places,
            e2e_limit_ms: self.e2e_limit_ms,
            parts: ablated.map_or_else(Vec::new, |policy| {
                PolicyPart::all(policy).into_iter().map(|one| part(policy, one)).collect()
            }),
        }
    }

    /// The requested policies, in the order given.
    fn wanted(&self, ground: &ExperimentSetup) -> Result<Vec<Arc<str>>, ExperimentError> {
        let mut wanted: Vec<Arc<str>> = Vec::new();
        for name in &self.policies {
            for name in ground.named("--policies", name)? {
                if !wanted.contains(&name) {
                    wanted.push(name);
                }
            }
        }
        Ok(wanted)
    }
}

#[cfg(test)]
mod tests;
