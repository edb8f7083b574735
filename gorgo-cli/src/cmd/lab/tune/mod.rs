//! `gorgo tune --trace FILE --policy NAME`: runs the policy's own optimizer and objective offline, on the simulator.
//!
//! ```text
//! optimizer ─ask→ candidate ─→ one whole simulated run per seed ─→ contrast with the incumbent's runs, paired by seed
//!     ↑                                                                │
//!     └──tell── better by more than a standard error of the pairs, and within the guard rails
//! ```
//!
//! Offline there is no need for trial blocks: both arms see the same traffic in the same network, each from an empty
//! fleet to the end, so neither leaves queues or caches to the other. The result fits this trace and these seeds;
//! therefore the start and the result are run once more on seeds that the search did not see, and both figures are
//! reported. Deterministic: the same inputs and seeds make the same file, whatever `--jobs` is.
//!
//! Exit code: 0 done, 2 usage, 78 configuration.

mod report;
mod search;

use std::fs;
use std::io::Write;
use std::path::PathBuf;

use gorgo_routing::policy::PRESETS;

use self::report::TunedTable;
use self::search::WeightSearch;
use super::simulate::experiment::{ExperimentArgs, ExperimentError, progress};
use super::simulate::seeds::SeedList;
use crate::cmd::CliCommand;
use crate::exit::CommandExit;
use crate::report::unwritable;

/// Tune a policy's weights offline, on a recorded trace in virtual time.
#[derive(Debug, Clone, clap::Args)]
pub(crate) struct TuneArgs {
    #[command(flatten)]
    ground: ExperimentArgs,
    /// Policy to tune; must have a `tune` table, whose objective, optimizer and guard are used
    #[arg(long, value_name = "NAME")]
    policy: String,
    /// Seeds to compare candidates on: a number or a range; at least two
    #[arg(long, value_name = "N | A..B", default_value = "4")]
    seeds: SeedList,
    /// Seeds of the final check, which the search does not see
    #[arg(long, value_name = "N | A..B", default_value = "101..103")]
    check_seeds: SeedList,
    /// Most candidates to try
    #[arg(long, value_name = "N", default_value_t = 40)]
    generations: u32,
    /// Write the result to FILE [default: standard output]
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
}

impl CliCommand for TuneArgs {
    const NAME: &'static str = "tune";
    const ABOUT: &'static str = "Tune a policy's weights offline, on a recorded trace in virtual time";

    fn run(self) -> CommandExit {
        match self.found() {
            Ok(found) => {
                let text = if self.out.is_some() { found.comment() } else { found.toml() };
                // A closed pipe does not change the result.
                anstream::stdout().write_all(text.as_bytes()).ok();
                CommandExit::Done
            }
            Err(failure) => failure.told(Self::NAME),
        }
    }
}

impl TuneArgs {
    fn found(&self) -> Result<TunedTable, ExperimentError> {
        let ground = self.ground.prepare()?;
        let name = match self.policy.as_str() {
            "all" => {
                return Err(ExperimentError::Asked(
                    "--policy: `all` is not possible here; choose one policy".to_owned(),
                ));
            }
            name => ground.named("--policy", name)?.swap_remove(0),
        };
        // Opened before the runs, so that an unwritable path does not waste them.
        let out = self.out.as_ref().map(|path| (path, fs::File::create(path)));
        let out = out.map(|(path, file)| {
            file.map(|file| (path, file)).map_err(|cause| ExperimentError::Output(unwritable("--out", path, &cause)))
        });
        let out = out.transpose()?;
        // Fails before any run if the policy cannot be tuned.
        let search = WeightSearch::new(&ground, &name, self.ground.jobs(), &self.seeds.list)?;
        let runs = search.runs(self.generations, self.check_seeds.list.len());
        let bar = progress(runs);
        let result = search.run(self.generations, &self.check_seeds.list, || bar.inc(1))?;
        bar.finish_and_clear();
        // The file was read before; if it is gone by now, only its comments are lost.
        let file = fs::read_to_string(&self.ground.config.config).unwrap_or_default();
        let preset = PRESETS.iter().find(|preset| *preset.name == *name).map_or("", |preset| preset.text);
        let seeds = (self.seeds.list.clone(), self.check_seeds.list.clone());
        let trace = self.ground.trace.display().to_string();
        let found = TunedTable::new(search.policy(), &result, &trace, &seeds, &[&file, preset]);
        if let Some((path, mut file)) = out {
            file.write_all(found.toml().as_bytes()).map_err(|cause| ExperimentError::file(path, cause))?;
        }
        Ok(found)
    }
}

#[cfg(test)]
mod tests;
