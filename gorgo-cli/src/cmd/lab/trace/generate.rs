//! `gorgo trace generate`: makes a trace file from a profile and a seed.

use std::path::{Path, PathBuf};

use gorgo_lab::trace::RecordedTrace;
use gorgo_lab::trace::generate::{GENERATED, GeneratedProfile, MINUTES, ServeGen, generate};

use super::TraceCommandError;
use super::output::OutputArgs;

/// Start of the day whose lengths are in ServeGen's tables, s.
const SERVEGEN_START: f64 = 86_400.0;
/// Length of a window of ServeGen's tables, s.
const WINDOW_S: f64 = 600.0;

/// Arguments of `gorgo trace generate`.
#[derive(Debug, Clone, clap::Args)]
pub(super) struct GenerateArgs {
    /// Profile to generate: a name of `gorgo trace profiles`, or servegen:MODEL with --tables
    #[arg(long, value_name = "NAME")]
    profile: String,
    /// Seed; equal seeds make equal traces
    #[arg(long, value_name = "N", default_value_t = 0)]
    seed: u64,
    /// Length of the trace
    #[arg(long, value_name = "MINUTES", default_value_t = MINUTES, value_parser = above_zero)]
    minutes: f64,
    /// Requests per second, on average [default: the profile's]
    #[arg(long, value_name = "PER_SECOND", value_parser = above_zero)]
    rate: Option<f64>,
    /// Override one number of the profile, such as global_prompt_p=1 (repeatable)
    #[arg(long = "set", value_name = "NAME=VALUE", value_parser = assignment)]
    set: Vec<(String, f64)>,
    /// Folder with ServeGen's tables: MODEL_client_arrivals.csv[.gz], MODEL_client_lengths.jsonl[.gz]
    #[arg(long, value_name = "FOLDER")]
    tables: Option<PathBuf>,
    /// Start within ServeGen's two weeks, s [default: 86400, or the start of the model's tables]
    #[arg(long, value_name = "SECONDS")]
    from_s: Option<f64>,
    #[command(flatten)]
    output: OutputArgs,
}

fn above_zero(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(value) if value.is_finite() && value > 0.0 => Ok(value),
        _ => Err("must be a number above 0".to_owned()),
    }
}

fn assignment(text: &str) -> Result<(String, f64), String> {
    let (name, value) = text.split_once('=').ok_or("expected NAME=VALUE, such as global_prompt_p=1")?;
    let value = value.trim().parse().map_err(|_| format!("{value:?} is not a number"))?;
    Ok((name.trim().to_owned(), value))
}

impl GenerateArgs {
    pub(super) fn run(self) -> Result<String, TraceCommandError> {
        let trace = match self.profile.strip_prefix("servegen:") {
            Some(model) => self.servegen(model)?,
            None => self.profile()?,
        };
        self.output.write(&trace.rows)?;
        // Without --out the trace itself goes to standard output, and no message is needed.
        if let Some(path) = &self.output.out {
            anstream::eprintln!("{}: {} requests", path.display(), trace.rows.len());
        }
        Ok(String::new())
    }

    fn profile(&self) -> Result<RecordedTrace, TraceCommandError> {
        let profile = GeneratedProfile::find(&self.profile).ok_or_else(|| {
            let known: Vec<&str> = GENERATED.iter().map(|profile| profile.name).collect();
            TraceCommandError::Profile { name: self.profile.clone(), known: known.join(", ") }
        })?;
        let mut workload = profile.workload.clone();
        if let Some(rate) = self.rate {
            workload.scale_rate(rate / profile.rate());
        }
        for (name, value) in &self.set {
            workload.set(name, *value)?;
        }
        Ok(generate(&workload, self.seed, self.minutes))
    }

    fn servegen(&self, model: &str) -> Result<RecordedTrace, TraceCommandError> {
        if !self.set.is_empty() {
            return Err(TraceCommandError::Arguments(
                "--set does not apply to servegen:MODEL, whose numbers come from its tables",
            ));
        }
        let folder = self.tables.as_deref();
        let folder = folder.ok_or(TraceCommandError::Arguments("servegen:MODEL needs --tables FOLDER"))?;
        let arrivals = table(folder, &format!("{model}_client_arrivals.csv"))?;
        let lengths = table(folder, &format!("{model}_client_lengths.jsonl"))?;
        let tables = ServeGen::read(&arrivals, &lengths)
            .map_err(|cause| TraceCommandError::Tables { path: folder.to_owned(), cause })?;
        if tables.without_lengths > 0 {
            let (without, clients) = (tables.without_lengths, tables.clients.len());
            anstream::eprintln!(
                "{without} of {clients} clients have no lengths in the table; using those of a neighbour"
            );
        }
        let (first_s, last_s) = covered(&tables);
        // Some models' tables cover less than a day.
        let has_start = tables.rate(SERVEGEN_START, self.minutes) > 0.0;
        let from_s = self.from_s.unwrap_or(if has_start { SERVEGEN_START } else { first_s });
        let own = tables.rate(from_s, self.minutes);
        // Scaling nothing to the wanted rate would divide by zero.
        if own <= 0.0 {
            return Err(TraceCommandError::NoTraffic { from_s, first_s, last_s });
        }
        // The rate is scaled relative to the chosen stretch, because traffic varies over the day.
        let factor = self.rate.map_or(1.0, |rate| rate / own);
        Ok(tables.generate(self.seed, from_s, self.minutes, factor))
    }
}

/// First and last time with traffic in the tables, s.
fn covered(tables: &ServeGen) -> (f64, f64) {
    let windows = || tables.clients.values().flat_map(|client| client.windows.keys().copied());
    let seconds = |window: Option<u64>| {
        window.and_then(|window| u32::try_from(window).ok()).map_or(0.0, |window| f64::from(window) * WINDOW_S)
    };
    (seconds(windows().min()), seconds(windows().max().map(|last| last + 1)))
}

/// Reads a table, packed or not.
fn table(folder: &Path, name: &str) -> Result<Vec<u8>, TraceCommandError> {
    // A packed copy is preferred if both are there.
    let packed = folder.join(format!("{name}.gz"));
    let path = if packed.exists() { packed } else { folder.join(name) };
    std::fs::read(&path).map_err(|cause| TraceCommandError::File { path, cause })
}
