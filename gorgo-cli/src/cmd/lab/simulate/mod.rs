//! `gorgo simulate --trace FILE`: a recorded trace through the router on virtual time, by every policy that is asked
//! for, from the same configuration that `serve` reads.
//!
//! ```text
//! policies.toml, --sweep ─→ fleet, policies ─┐
//! trace, --time-scale ─→ shape ─→ Workload ──┼→ compare: one run per case and seed, on all cores → Summary → table, …
//! scenario ─→ network, faults ───────────────┘          ↑ --resume: runs that a file has already
//! ```
//!
//! A *ground* is a configuration at a load, a *case* a policy there, whole or without one of its parts (`--ablate`).
//!
//! Exit code: 0 done, 2 usage (also a trace or a scenario that cannot be used), 78 configuration.

mod ablation;
mod compare;
pub(super) mod ground;
mod kept;
mod report;
pub(super) mod seeds;
mod sweep;

use std::fs;
use std::io::Write;
use std::path::PathBuf;
use std::sync::Arc;

use self::ablation::Part;
use self::compare::{Ablation, Case, Plan, compare};
use self::ground::{Failure, Ground, GroundArgs, progress};
use self::kept::Kept;
use self::report::{Frame, Place, Report};
use self::seeds::Seeds;
use self::sweep::{Axis, Point, points, touches};
use crate::cmd::Command;
use crate::exit::Exit;
use crate::report::folder::Folder;
use crate::report::page::command_line;
use crate::report::unwritable;

pub(super) use self::compare::each;

/// Compare policies on a recorded trace, in virtual time.
#[derive(Debug, Clone, clap::Args)]
pub(crate) struct Simulate {
    #[command(flatten)]
    ground: GroundArgs,
    /// Policies to compare, with commas between; `all`: those of the file and all presets
    #[arg(long, value_name = "NAMES", value_delimiter = ',', default_value = "all")]
    policies: Vec<String>,
    /// How many seeds, from 1 on, or which: 101..105
    #[arg(long, value_name = "N | A..B", default_value = "3")]
    seeds: Seeds,
    /// Values of one key of the configuration, as --set takes it: KEY=V1,V2 or KEY=LOW..HIGH:COUNT[log][int]; several
    /// make a grid
    #[arg(long, value_name = "KEY=VALUES")]
    sweep: Vec<Axis>,
    /// Draw N points of the --sweep keys at random, in place of the grid
    #[arg(long, value_name = "N", requires = "sweep", value_parser = clap::value_parser!(u32).range(1..=100_000))]
    samples: Option<u32>,
    /// Seed of --samples
    #[arg(long, value_name = "N", default_value_t = 0)]
    sweep_seed: u64,
    /// Where --time-scale has several loads: how much of them each policy sustains with p95 of E2E up to this, ms
    #[arg(long, value_name = "MS", default_value_t = 6_000.0)]
    e2e_limit_ms: f64,
    /// Take this policy apart: the same traffic without each of its terms and constraints in turn
    #[arg(long, value_name = "POLICY", conflicts_with_all = ["policies", "sweep"])]
    ablate: Option<String>,
    /// Keep finished runs in FILE, and make only those that it does not have
    #[arg(long, value_name = "FILE")]
    resume: Option<PathBuf>,
    /// Print JSON in place of the table
    #[arg(long)]
    json: bool,
    /// Write one line per policy and seed to FILE
    #[arg(long, value_name = "FILE")]
    csv: Option<PathBuf>,
    /// Write a page with tables and plots to FILE; it stands alone and shows no folders
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
    /// Write run.json, run.csv and run.html into this folder, which must not be there yet
    #[arg(long, value_name = "FOLDER", conflicts_with_all = ["csv", "html"])]
    out_dir: Option<PathBuf>,
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
            Err(failure) => failure.told(Self::NAME),
        }
    }
}

/// A file to be written when the runs are made.
struct Sink {
    path: PathBuf,
    file: fs::File,
}

impl Sink {
    /// Opened before the runs, so that a path that cannot be written does not cost them.
    fn open(flag: &'static str, path: Option<&PathBuf>) -> Result<Option<Self>, Failure> {
        let open = |path: &PathBuf| match fs::File::create(path) {
            Ok(file) => Ok(Self { path: path.clone(), file }),
            Err(cause) => Err(Failure::Output(unwritable(flag, path, &cause))),
        };
        path.map(open).transpose()
    }
}

impl Simulate {
    /// Reads everything, runs everything.
    fn compared(&self) -> Result<Report, Failure> {
        let (grounds, places, trace_sha256) = self.grounds()?;
        let cases = self.cases(&grounds, &places)?;
        let folder = self.out_dir.as_deref().map(Folder::make).transpose().map_err(Failure::Output)?;
        let named =
            |own: Option<&PathBuf>, name: &str| own.cloned().or_else(|| folder.as_ref().map(|at| at.file(name)));
        let csv = Sink::open("--csv", named(self.csv.as_ref(), "run.csv").as_ref())?;
        let html = Sink::open("--html", named(self.html.as_ref(), "run.html").as_ref())?;
        let json = Sink::open("--out-dir", named(None, "run.json").as_ref())?;
        let shape = self.ground.shape(1.0);
        let kept = self.resume.as_ref().map(|path| Kept::open(path, &trace_sha256, &shape)).transpose()?;
        let plan = Plan { grounds: &grounds, cases, seeds: self.seeds.list.clone(), kept: kept.as_ref() };
        let bar = progress(plan.runs());
        let rows = compare(&plan, self.ground.jobs(), || bar.inc(1))?;
        bar.finish_and_clear();
        let report = Report::new(self.frame(&grounds, places, trace_sha256), rows);
        if let Some(Sink { path, file }) = csv {
            report.csv(file).map_err(|cause| Failure::file(&path, cause))?;
        }
        if let Some(Sink { path, mut file }) = json {
            file.write_all(report.json().as_bytes()).map_err(|cause| Failure::file(&path, cause))?;
        }
        if let Some(Sink { path, mut file }) = html {
            let page = report.html(&command_line(std::env::args()));
            file.write_all(page.as_bytes()).map_err(|cause| Failure::file(&path, cause))?;
        }
        Ok(report)
    }

    /// Every configuration at every load, loads fastest; what tells them apart; and the trace's hash.
    fn grounds(&self) -> Result<(Vec<Ground>, Vec<Place>, String), Failure> {
        if self.ablate.is_some() && self.ground.time_scale.len() > 1 {
            return Err(Failure::Asked("--ablate: one --time-scale at a time".to_owned()));
        }
        let asked: Vec<Point> = points(&self.sweep, self.samples, self.sweep_seed).map_err(Failure::Asked)?;
        let roots = self.ground.roots()?;
        let loads = self.ground.time_scale.iter().map(|scale| self.ground.load(&roots, *scale));
        let loads = loads.collect::<Result<Vec<_>, _>>()?;
        let (mut grounds, mut places): (Vec<Ground>, Vec<Place>) = (Vec::new(), Vec::new());
        for point in asked {
            let settings = point.settings(&self.sweep);
            for load in &loads {
                let ground = self.ground.ground(&roots, &settings, load)?;
                ground.warn(grounds.last());
                grounds.push(ground);
                places.push(Place {
                    values: point.values.clone(),
                    time_scale: load.time_scale,
                    requests_per_s: load.requests_per_s,
                    counts: load.counts,
                });
            }
        }
        Ok((grounds, places, roots.trace_sha256))
    }

    /// What is run on each ground.
    fn cases(&self, grounds: &[Ground], places: &[Place]) -> Result<Vec<Case>, Failure> {
        let mut cases = Vec::new();
        let compared = grounds.first().map(|ground| self.wanted(ground)).transpose()?.unwrap_or_default();
        let nobodys = self.sweep.iter().find(|axis| !compared.iter().any(|name| touches(&axis.path, name)));
        if let Some(axis) = nobodys.filter(|_| self.ablate.is_none()) {
            let text = format!("--sweep {}: of no policy that is compared; name that one in --policies", axis.path);
            return Err(Failure::Asked(text));
        }
        for (place, ground) in grounds.iter().enumerate() {
            let case = |policy: Option<Arc<str>>, ablation| Case { ground: place, policy, ablation };
            if let Some(name) = &self.ablate {
                let [name] = &ground.named("--ablate", name)?[..] else {
                    return Err(Failure::Asked("--ablate: one policy at a time".to_owned()));
                };
                let parts = ground.policies.named(name).map(Part::all).unwrap_or_default();
                cases.push(case(Some(Arc::clone(name)), Ablation::Whole));
                let without = |part| case(Some(Arc::clone(name)), Ablation::Without(part));
                cases.extend(parts.into_iter().map(without));
                continue;
            }
            // What no swept key can change is run once for all values of those keys.
            let own = |name: &str, place: &Place| {
                let axes = self.sweep.iter().zip(&place.values).filter(|(axis, _)| touches(&axis.path, name));
                (axes.map(|(_, value)| value.clone()).collect::<Vec<_>>(), place.time_scale.to_bits())
            };
            let is_new = |name: &str| {
                let Some((here, before)) = places.get(place).zip(places.get(..place)) else { return true };
                let mine = own(name, here);
                !before.iter().any(|earlier| own(name, earlier) == mine)
            };
            let wanted = self.wanted(ground)?.into_iter().filter(|name| is_new(name));
            cases.extend(wanted.map(|name| case(Some(name), Ablation::None)));
            // Beside a sweep it would say the same again and again.
            if self.sweep.is_empty() {
                cases.push(case(None, Ablation::None));
            }
        }
        Ok(cases)
    }

    fn frame(&self, grounds: &[Ground], places: Vec<Place>, trace_sha256: String) -> Frame {
        let first = grounds.first();
        let ablated = self.ablate.as_ref().zip(first).and_then(|(name, ground)| ground.policies.named(name));
        let part = |policy, part: Part| (part.family(), part.name(policy).to_owned());
        Frame {
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
            places,
            e2e_limit_ms: self.e2e_limit_ms,
            parts: ablated
                .map_or_else(Vec::new, |policy| Part::all(policy).into_iter().map(|one| part(policy, one)).collect()),
        }
    }

    /// The policies asked for, in the order asked for.
    fn wanted(&self, ground: &Ground) -> Result<Vec<Arc<str>>, Failure> {
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
