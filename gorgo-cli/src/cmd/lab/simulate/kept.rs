//! `--resume FILE`: finished runs, one JSON line each, so that a sweep that was stopped goes on where it was, and one
//! with more points, seeds or policies makes only what is new.
//!
//! A run is found again by a hash of all that its result depends on: this program's file, the trace, how it is shaped,
//! fleet, scenario, probes and scrapes, the policy's table and plugins, what an ablation takes away, the seed. Numbers
//! are written so that they are read back bit for bit.

use std::collections::{BTreeMap, HashMap};
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use gorgo_lab::sim::world::Tuning;
use gorgo_lab::trace::Shape;
use gorgo_routing::config::{Admin, Config, Log, Server, Store};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use sha2::{Digest, Sha256};

use super::compare::{Case, Outcome};
use super::ground::{Failure, Ground, hexadecimal};
use super::report::FIGURES;

/// Runs that were kept, and the file that more are written to.
#[derive(Debug)]
pub(super) struct Kept {
    path: PathBuf,
    /// What all keys begin with.
    base: Sha256,
    known: HashMap<String, Outcome>,
    file: Mutex<File>,
}

/// A line of the file.
#[derive(Debug, Serialize, Deserialize)]
struct Line {
    key: String,
    /// For who reads the file; the key says all of it.
    policy: String,
    seed: u64,
    time_scale: f64,
    requests: usize,
    errors: usize,
    /// By the names of the CSV.
    figures: BTreeMap<String, Option<Box<RawValue>>>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    decisive: Vec<Box<RawValue>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    tuning: Option<TuningLine>,
}

#[derive(Debug, Serialize, Deserialize)]
struct TuningLine {
    accepted: u32,
    rejected: u32,
    cut: u32,
    last: u64,
    alarms: Vec<String>,
    weights: Vec<(String, Box<RawValue>)>,
    incumbent: u64,
    said: String,
}

impl Kept {
    /// Opens the file, or begins one. `trace_sha256` and `shape` are of the trace that is run.
    pub(super) fn open(path: &Path, trace_sha256: &str, shape: &Shape) -> Result<Self, Failure> {
        let failed = |cause| Failure::file(path, cause);
        let text = match fs::read_to_string(path) {
            Ok(text) => text,
            Err(cause) if cause.kind() == io::ErrorKind::NotFound => String::new(),
            Err(cause) => return Err(failed(cause)),
        };
        let mut known = HashMap::new();
        for (number, line) in text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty()) {
            match serde_json::from_str::<Line>(line).ok().and_then(|line| Some((line.key.clone(), line.outcome()?))) {
                Some((key, outcome)) => {
                    known.insert(key, outcome);
                }
                None => anstream::eprintln!(
                    "gorgo simulate: {}:{}: no finished run (cut off?); left out",
                    path.display(),
                    number + 1
                ),
            }
        }
        let mut file = OpenOptions::new().create(true).append(true).open(path).map_err(failed)?;
        if !text.is_empty() && !text.ends_with('\n') {
            file.write_all(b"\n").map_err(failed)?;
        }
        let mut base = Sha256::new();
        // Another build may simulate otherwise.
        let program = std::env::current_exe().and_then(fs::read).map_err(failed)?;
        base.update(Sha256::digest(&program));
        base.update(trace_sha256);
        base.update(format!("{:?}", Shape { time_scale: 1.0, ..*shape }));
        Ok(Self { path: path.to_owned(), base, known, file: Mutex::new(file) })
    }

    /// The key of a run.
    pub(super) fn key(&self, ground: &Ground, case: &Case, seed: u64) -> String {
        let mut hash = self.base.clone();
        let setup = ground.setup(case.policy.as_deref().unwrap_or_default());
        // What no simulated run reads is left out, so that a change there costs nothing.
        let config = Config {
            server: Server::default(),
            admin: Admin::default(),
            log: Log::default(),
            store: Store::default(),
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
        if let Some(policy) = case.policy.as_deref().and_then(|name| ground.policies.named(name)) {
            hash.update(&policy.sha256);
            policy.libraries().for_each(|library| hash.update(library.as_bytes()));
        }
        hexadecimal(&hash.finalize())
    }

    /// A run that was made before.
    pub(super) fn get(&self, key: &str) -> Option<&Outcome> {
        self.known.get(key)
    }

    /// Writes a run down.
    pub(super) fn put(
        &self,
        key: &str,
        ground: &Ground,
        case: &Case,
        seed: u64,
        outcome: &Outcome,
    ) -> Result<(), Failure> {
        let line = Line::of(key, ground, case, seed, outcome);
        let text = line.and_then(|line| serde_json::to_string(&line)).map_err(io::Error::other);
        let mut file = self.file.lock().unwrap_or_else(PoisonError::into_inner);
        // In one piece, so that a kill cuts at most the last line.
        text.and_then(|text| file.write_all((text + "\n").as_bytes())).map_err(|cause| Failure::file(&self.path, cause))
    }
}

fn raw(value: f64) -> Result<Box<RawValue>, serde_json::Error> {
    serde_json::value::to_raw_value(&value)
}

/// Rust reads what it wrote bit for bit; serde's own reader may differ in the last.
fn read(value: &RawValue) -> Option<f64> {
    value.get().parse().ok()
}

impl Line {
    fn of(key: &str, ground: &Ground, case: &Case, seed: u64, outcome: &Outcome) -> Result<Self, serde_json::Error> {
        let figures = FIGURES.iter().map(|figure| {
            let value = (figure.read)(outcome).filter(|value| value.is_finite()).map(raw).transpose()?;
            Ok((figure.name.to_owned(), value))
        });
        let tuning = outcome.tuning.as_ref().map(|tuning| {
            Ok::<_, serde_json::Error>(TuningLine {
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
                said: tuning.said.clone(),
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

    /// What the reports need of the run; `None` where a figure is missing or no number.
    fn outcome(&self) -> Option<Outcome> {
        let mut outcome = Outcome::default();
        (outcome.summary.requests, outcome.summary.errors) = (self.requests, self.errors);
        for figure in &FIGURES {
            let value = self.figures.get(figure.name)?;
            *(figure.place)(&mut outcome) = match value {
                Some(value) => Some(read(value)?),
                None => None,
            };
        }
        outcome.decisive = self.decisive.iter().map(|share| read(share)).collect::<Option<_>>()?;
        if let Some(tuning) = &self.tuning {
            let weights = tuning.weights.iter().map(|(term, weight)| Some((term.clone(), read(weight)?)));
            outcome.tuning = Some(Tuning {
                accepted: tuning.accepted,
                rejected: tuning.rejected,
                cut: tuning.cut,
                last: tuning.last,
                alarms: tuning.alarms.clone(),
                weights: weights.collect::<Option<_>>()?,
                incumbent: tuning.incumbent,
                said: tuning.said.clone(),
            });
        }
        Some(outcome)
    }
}
