//! `--resume FILE`: finished runs, one JSON line each, so that a stopped sweep continues from there, and one with more
//! points, seeds or policies only makes the new runs.
//!
//! A run is identified by a hash of everything that its result depends on: the file of this program, the trace, its
//! shape, fleet, scenario, probes and scrapes, the policy's table and plugins, the part that an ablation removes, the
//! seed. Numbers are written so that they are read back bit for bit.

use std::collections::{BTreeMap, HashMap};
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use gorgo_lab::sim::world::TuningSummary;
use gorgo_lab::trace::ShapeOptions;
use gorgo_routing::config::{AdminConfig, Config, LogConfig, ServerConfig, StoreConfig};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use sha2::{Digest, Sha256};

use super::compare::{SimulationCase, SimulationOutcome};
use super::experiment::{ExperimentError, ExperimentSetup, hexadecimal};
use super::report::FIGURES;

/// Kept runs, and the file that new ones are added to.
#[derive(Debug)]
pub(super) struct RunCache {
    path: PathBuf,
    /// Common beginning of the hash of all keys.
    base: Sha256,
    known: HashMap<String, SimulationOutcome>,
    file: Mutex<File>,
}

/// A line of the file.
#[derive(Debug, Serialize, Deserialize)]
struct CachedRun {
    key: String,
    /// For human readers; the key covers all of it.
    policy: String,
    seed: u64,
    time_scale: f64,
    requests: usize,
    errors: usize,
    /// Figures by their names in the CSV.
    figures: BTreeMap<String, Option<Box<RawValue>>>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    decisive: Vec<Box<RawValue>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    tuning: Option<CachedTuning>,
}

#[derive(Debug, Serialize, Deserialize)]
struct CachedTuning {
    accepted: u32,
    rejected: u32,
    cut: u32,
    last: u64,
    alarms: Vec<String>,
    weights: Vec<(String, Box<RawValue>)>,
    incumbent: u64,
    said: String,
}

impl RunCache {
    /// Opens the file, or creates it. `trace_sha256` and `shape` describe the trace.
    pub(super) fn open(path: &Path, trace_sha256: &str, shape: &ShapeOptions) -> Result<Self, ExperimentError> {
        let failed = |cause| ExperimentError::file(path, cause);
        let text = match fs::read_to_string(path) {
            Ok(text) => text,
            Err(cause) if cause.kind() == io::ErrorKind::NotFound => String::new(),
            Err(cause) => return Err(failed(cause)),
        };
        let mut known = HashMap::new();
        for (number, line) in text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty()) {
            match serde_json::from_str::<CachedRun>(line)
                .ok()
                .and_then(|line| Some((line.key.clone(), line.outcome()?)))
            {
                Some((key, outcome)) => {
                    known.insert(key, outcome);
                }
                None => anstream::eprintln!(
                    "gorgo simulate: {}:{}: not a finished run (cut off?); ignored",
                    path.display(),
                    number + 1
                ),
            }
        }
        let mut file = OpenOptions::new().create(true).append(true).open(path).map_err(failed)?;
        // The last line was cut off: without a line end the next run would be appended to it, and lost with it.
        if !text.is_empty() && !text.ends_with('\n') {
            file.write_all(b"\n").map_err(failed)?;
        }
        let mut base = Sha256::new();
        // Another build of the program may simulate differently.
        let program = std::env::current_exe().and_then(fs::read).map_err(failed)?;
        base.update(Sha256::digest(&program));
        base.update(trace_sha256);
        // The time scale is part of each run's own key.
        base.update(format!("{:?}", ShapeOptions { time_scale: 1.0, ..*shape }));
        Ok(Self { path: path.to_owned(), base, known, file: Mutex::new(file) })
    }

    /// Key of a run.
    pub(super) fn key(&self, ground: &ExperimentSetup, case: &SimulationCase, seed: u64) -> String {
        let mut hash = self.base.clone();
        let setup = ground.setup(case.policy.as_deref().unwrap_or_default());
        // Sections that no simulated run reads are left out, so that changing them does not repeat any run.
        let config = Config {
            server: ServerConfig::default(),
            admin: AdminConfig::default(),
            log: LogConfig::default(),
            store: StoreConfig::default(),
            default_policy: String::new(),
            policies: Vec::new(),
            base: PathBuf::new(),
            ..ground.config.clone()
        };
        hash.update(format!(
            "{config:?} {:?} {:?} {:?} {:?} {:?} {:?} {seed}",
            ground.members,
            ground.scenario,
            (setup.probe, setup.scrape, setup.max_in_flight),
            ground.load.time_scale,
            case.policy,
            case.ablation,
        ));
        // All policies were removed above: only the table and the libraries of the one that runs count.
        if let Some(policy) = case.policy.as_deref().and_then(|name| ground.policies.by_name(name)) {
            hash.update(&policy.sha256);
            policy.libraries().for_each(|library| hash.update(library.as_bytes()));
        }
        hexadecimal(&hash.finalize())
    }

    /// A run that was made before.
    pub(super) fn get(&self, key: &str) -> Option<&SimulationOutcome> {
        self.known.get(key)
    }

    /// Appends a run to the file.
    pub(super) fn put(
        &self,
        key: &str,
        ground: &ExperimentSetup,
        case: &SimulationCase,
        seed: u64,
        outcome: &SimulationOutcome,
    ) -> Result<(), ExperimentError> {
        let line = CachedRun::of(key, ground, case, seed, outcome);
        let text = line.and_then(|line| serde_json::to_string(&line)).map_err(io::Error::other);
        let mut file = self.file.lock().unwrap_or_else(PoisonError::into_inner);
        // In one write, so that a kill cuts at most the last line.
        text.and_then(|text| file.write_all((text + "\n").as_bytes()))
            .map_err(|cause| ExperimentError::file(&self.path, cause))
    }
}

fn raw(value: f64) -> Result<Box<RawValue>, serde_json::Error> {
    serde_json::value::to_raw_value(&value)
}

/// A number parsed by Rust, which reads its own output bit for bit; serde's parser may differ in the last bit.
fn read(value: &RawValue) -> Option<f64> {
    value.get().parse().ok()
}

impl CachedRun {
    fn of(
        key: &str,
        ground: &ExperimentSetup,
        case: &SimulationCase,
        seed: u64,
        outcome: &SimulationOutcome,
    ) -> Result<Self, serde_json::Error> {
        let figures = FIGURES.iter().map(|figure| {
            let value = (figure.read)(outcome).filter(|value| value.is_finite()).map(raw).transpose()?;
            Ok((figure.name.to_owned(), value))
        });
        let tuning = outcome.tuning.as_ref().map(|tuning| {
            Ok::<_, serde_json::Error>(CachedTuning {
                accepted: tuning.accepted,
                rejected: tuning.rejected,
                cut: tuning.cut,
                last: tuning.last,
                alarms: tuning.alarms.clone(),
                weights: tuning
                    .weights
                    .iter()
                    .map(|(term, weight)| Ok((term.clone(), raw(*weight)?)))
                    .collect::<Result<_, serde_json::Error>>()?,
                incumbent: tuning.incumbent,
                said: tuning.status.clone(),
            })
        });
        Ok(Self {
            key: key.to_owned(),
            policy: case.policy.as_deref().unwrap_or(super::compare::CLAIRVOYANT).to_owned(),
            seed,
            time_scale: ground.load.time_scale,
            requests: outcome.summary.requests,
            errors: outcome.summary.errors,
            figures: figures.collect::<Result<_, serde_json::Error>>()?,
            decisive: outcome.decisive.iter().map(|share| raw(*share)).collect::<Result<_, _>>()?,
            tuning: tuning.transpose()?,
        })
    }

    /// The parts of the run that reports need; `None` if a figure is missing or is not a number.
    fn outcome(&self) -> Option<SimulationOutcome> {
        let mut outcome = SimulationOutcome::default();
        (outcome.summary.requests, outcome.summary.errors) = (self.requests, self.errors);
        for figure in &FIGURES {
            // A figure added since the line was written: make the run again.
            let value = self.figures.get(figure.name)?;
            *(figure.place)(&mut outcome) = match value {
                Some(value) => Some(read(value)?),
                None => None,
            };
        }
        outcome.decisive = self.decisive.iter().map(|share| read(share)).collect::<Option<_>>()?;
        if let Some(tuning) = &self.tuning {
            let weights = tuning.weights.iter().map(|(term, weight)| Some((term.clone(), read(weight)?)));
            outcome.tuning = Some(TuningSummary {
                accepted: tuning.accepted,
                rejected: tuning.rejected,
                cut: tuning.cut,
                last: tuning.last,
                alarms: tuning.alarms.clone(),
                weights: weights.collect::<Option<_>>()?,
                incumbent: tuning.incumbent,
                status: tuning.said.clone(),
            });
        }
        Some(outcome)
    }
}
