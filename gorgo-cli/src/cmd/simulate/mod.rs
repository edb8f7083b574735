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
pub(super) mod ground;
mod report;
pub(super) mod seeds;

use std::fs;
use std::io::Write;
use std::path::PathBuf;
use std::sync::Arc;

use self::compare::{Plan, compare};
use self::ground::{Failure, Ground, GroundArgs, progress};
use self::report::{Frame, Report};
use self::seeds::Seeds;
use super::Command;
use crate::exit::Exit;

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
    /// Print JSON in place of the table
    #[arg(long)]
    json: bool,
    /// Write one line per policy and seed to FILE
    #[arg(long, value_name = "FILE")]
    csv: Option<PathBuf>,
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

impl Simulate {
    /// Reads everything, runs everything.
    fn compared(&self) -> Result<Report, Failure> {
        let ground = self.ground.prepared()?;
        let wanted = self.wanted(&ground)?;
        // Opened before the runs, so that a path that cannot be written does not cost them.
        let csv = self.csv.as_ref().map(|path| (path, fs::File::create(path)));
        let csv = csv.map(|(path, file)| file.map(|file| (path, file)).map_err(|cause| Failure::file(path, cause)));
        let csv = csv.transpose()?;
        let plan = Plan { ground: &ground, policies: wanted, seeds: self.seeds.list.clone() };
        let bar = progress(plan.runs());
        let rows = compare(&plan, self.ground.jobs(), || bar.inc(1))?;
        bar.finish_and_clear();
        let report = Report::new(
            Frame {
                default: ground.config.default_policy.clone(),
                trace: self.ground.trace.display().to_string(),
                scenario: self.ground.scenario.as_ref().map(|path| path.display().to_string()),
                seeds: plan.seeds.clone(),
                time_scale: self.ground.time_scale,
                max_in_flight: ground.max_in_flight,
                replicas: ground.members.iter().map(|member| member.replica.name.to_string()).collect(),
                rows_without_blocks: ground.rows_without_blocks,
                counts: ground.counts,
                max_input_tokens: self.ground.max_input_tokens,
                max_output_tokens: self.ground.max_output_tokens,
            },
            rows,
        );
        if let Some((path, file)) = csv {
            report.csv(file).map_err(|cause| Failure::file(path, cause))?;
        }
        Ok(report)
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
