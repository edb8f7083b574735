//! A run as written by `gorgo replay --json` and `gorgo simulate --json`: its figures by policy, their uncertainty, and
//! the circumstances of the run.

use std::collections::BTreeSet;
use std::io;
use std::path::{Path, PathBuf};

use serde_json::Value;

/// A figure that is compared.
pub(super) struct RunFigure {
    /// Key in a policy's entry.
    pub(super) key: &'static str,
    /// JSON pointer, within the entry of a replay, to the 95 % interval.
    interval: Option<&'static str>,
    /// True if more is better, false if less is.
    pub(super) more_is_better: bool,
}

const fn time(key: &'static str, interval: &'static str) -> RunFigure {
    RunFigure { key, interval: Some(interval), more_is_better: false }
}

/// Figures that are compared, in the order in which they are shown.
pub(super) const FIGURES: &[RunFigure] = &[
    time("ttft_p50_ms", "/intervals/ttft_ms/p50"),
    time("ttft_p95_ms", "/intervals/ttft_ms/p95"),
    time("ttft_p99_ms", "/intervals/ttft_ms/p99"),
    time("e2e_p50_ms", "/intervals/e2e_ms/p50"),
    time("e2e_p95_ms", "/intervals/e2e_ms/p95"),
    time("e2e_p99_ms", "/intervals/e2e_ms/p99"),
    time("itl_ms", "/intervals/itl_ms/mean"),
    RunFigure { key: "hit_rate", interval: None, more_is_better: true },
    RunFigure { key: "busiest_share", interval: None, more_is_better: false },
    RunFigure { key: "hhi", interval: None, more_is_better: false },
    RunFigure { key: "requests", interval: None, more_is_better: true },
    RunFigure { key: "errors", interval: None, more_is_better: false },
];

/// Conditions that two runs must share for a comparison to be one of policies: name, and places in the document. The
/// first place found counts, because a replay and a simulation keep some conditions at different places.
const CONDITIONS: &[(&str, &[&str])] = &[
    ("trace", &["/run/trace_sha256", "/trace"]),
    ("time scale", &["/run/time_scale"]),
    ("in flight at most", &["/run/max_in_flight"]),
    ("rows", &["/run/rows"]),
    ("rows dropped", &["/run/dropped_over_input"]),
    ("rows beyond --limit", &["/run/beyond_limit"]),
    ("answers cut", &["/run/outputs_capped"]),
    ("scenario", &["/run/scenario"]),
    ("models", &["/run/server/models"]),
    ("engine", &["/run/server/engine"]),
];

/// Error: a file is not a run.
#[derive(Debug, thiserror::Error)]
pub(super) enum RunFileError {
    #[error("{}: {cause}", path.display())]
    File { path: PathBuf, cause: io::Error },
    #[error("{}: not JSON: {cause}", path.display())]
    Json { path: PathBuf, cause: serde_json::Error },
    #[error("{}: no `policies`; expected the output of `gorgo replay --json` or `simulate --json`", path.display())]
    NoRun { path: PathBuf },
    #[error("{}: written by a newer gorgo (schema {found}, this program supports {known})", path.display())]
    Newer { path: PathBuf, found: u64, known: u32 },
    #[error("{}: {name} appears more than once (several loads or settings); compare runs with one of each", path.display())]
    Several { path: PathBuf, name: String },
    #[error("--policy {name}: not in {}, which has {known}", path.display())]
    NoPolicy { path: PathBuf, name: String, known: String },
}

/// One run.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct RunFile {
    path: PathBuf,
    document: Value,
}

/// A figure of a run: its value and its uncertainty.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct FigureValue {
    pub(super) value: f64,
    uncertainty: FigureUncertainty,
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum FigureUncertainty {
    /// One run's 95 % interval.
    Interval(f64, f64),
    /// Standard error of a mean, and the number of seeds.
    StandardError(f64, u32),
    Unknown,
}

impl RunFile {
    pub(super) fn read(path: &Path) -> Result<Self, RunFileError> {
        let bytes = std::fs::read(path).map_err(|cause| RunFileError::File { path: path.to_owned(), cause })?;
        Self::parse(path, &bytes)
    }

    pub(super) fn parse(path: &Path, bytes: &[u8]) -> Result<Self, RunFileError> {
        let path = path.to_owned();
        let document: Value = match serde_json::from_slice(bytes) {
            Ok(document) => document,
            Err(cause) => return Err(RunFileError::Json { path, cause }),
        };
        let known = crate::report::json::SCHEMA_VERSION;
        // Refuse before reading any figure: a newer schema may use the same keys with other meanings.
        if let Some(found) = document.pointer("/run/schema_version").and_then(Value::as_u64)
            && found > u64::from(known)
        {
            return Err(RunFileError::Newer { path, found, known });
        }
        let run = Self { path, document };
        let names = run.policies();
        if names.is_empty() {
            return Err(RunFileError::NoRun { path: run.path });
        }
        // A sweep or several loads: the entries of a policy are not interchangeable, and choosing one silently would
        // mislead.
        let twice = names.iter().enumerate().find(|(place, name)| names[..*place].contains(name));
        if let Some(name) = twice.map(|(_, name)| (*name).to_owned()) {
            return Err(RunFileError::Several { path: run.path, name });
        }
        Ok(run)
    }

    fn entries(&self) -> Vec<&Value> {
        let all = self.document.get("policies").and_then(Value::as_array);
        all.into_iter().flatten().filter(|entry| entry.get("policy").is_some_and(Value::is_string)).collect()
    }

    /// Names of the policies, in the order of the document.
    pub(super) fn policies(&self) -> Vec<&str> {
        self.entries().into_iter().filter_map(|entry| entry["policy"].as_str()).collect()
    }

    /// The first entry of that policy.
    pub(super) fn entry(&self, policy: &str) -> Result<&Value, RunFileError> {
        let found = self.entries().into_iter().find(|entry| entry["policy"].as_str() == Some(policy));
        found.ok_or_else(|| RunFileError::NoPolicy {
            path: self.path.clone(),
            name: policy.to_owned(),
            known: self.policies().join(", "),
        })
    }

    /// A figure of an entry; `None` if it was not measured.
    pub(super) fn measured(&self, entry: &Value, figure: &RunFigure) -> Option<FigureValue> {
        let value = entry.get(figure.key)?.as_f64()?;
        let seeds = self.document.get("seeds").and_then(Value::as_array).map_or(1, Vec::len);
        let seeds = u32::try_from(seeds).unwrap_or(u32::MAX);
        let interval = figure.interval.and_then(|pointer| entry.pointer(pointer)?.as_array());
        let ends = interval.and_then(|ends| Some((ends.first()?.as_f64()?, ends.get(1)?.as_f64()?)));
        let deviation = entry.get(format!("{}_sd", figure.key)).and_then(Value::as_f64);
        // A replay is one run, with intervals; a simulation has several seeds, and a spread between them.
        let sure = match (ends, deviation) {
            (Some((low, high)), _) => FigureUncertainty::Interval(low, high),
            // A single seed has no spread, whatever the document has for it.
            (None, Some(deviation)) if seeds >= 2 => {
                FigureUncertainty::StandardError(deviation / f64::from(seeds).sqrt(), seeds)
            }
            _ => FigureUncertainty::Unknown,
        };
        Some(FigureValue { value, uncertainty: sure })
    }

    /// Values of the [`CONDITIONS`]; null if the document has none.
    pub(super) fn conditions(&self) -> Vec<(&'static str, Value)> {
        let of = |places: &[&str]| places.iter().find_map(|place| self.document.pointer(place)).cloned();
        CONDITIONS.iter().map(|(name, places)| (*name, of(places).unwrap_or(Value::Null))).collect()
    }

    /// Names of the replicas of the run: for a simulation the fleet, for a replay those that answered.
    pub(super) fn fleet(&self) -> BTreeSet<String> {
        let names = |list: &Value| {
            let all = list.as_array().into_iter().flatten();
            all.filter_map(|one| one.as_str().or_else(|| one.get("replica")?.as_str()).map(str::to_owned))
                .collect::<Vec<_>>()
        };
        let of_run = self.document.pointer("/run/replicas").map(names).unwrap_or_default();
        let of_entries = self.entries().into_iter().filter_map(|entry| entry.get("replicas")).flat_map(names);
        of_run.into_iter().chain(of_entries).collect()
    }

    /// Path of the file as given.
    pub(super) fn name(&self) -> String {
        self.path.display().to_string()
    }
}

impl FigureValue {
    /// True if two figures differ by more than chance: their 95 % intervals do not touch, or their means over seeds
    /// differ at the 5 % level. `None` if either has no uncertainty.
    pub(super) fn apart(self, other: Self) -> Option<bool> {
        if let (FigureUncertainty::StandardError(a, seeds), FigureUncertainty::StandardError(b, other_seeds)) =
            (self.uncertainty, other.uncertainty)
        {
            // Two independent means: their standard errors add as squares.
            return Some((self.value - other.value).abs() > student(seeds.min(other_seeds)) * a.hypot(b));
        }
        let ends = |one: Self| match one.uncertainty {
            FigureUncertainty::Interval(low, high) => Some((low, high)),
            FigureUncertainty::StandardError(error, seeds) => {
                let reach = student(seeds) * error;
                Some((one.value - reach, one.value + reach))
            }
            FigureUncertainty::Unknown => None,
        };
        let ((low, high), (other_low, other_high)) = (ends(self)?, ends(other)?);
        // Stricter than a test at the 5 % level: intervals may overlap although the difference is significant.
        Some(high < other_low || other_high < low)
    }
}

/// 97.5th percentile of Student's t with one degree of freedom less than there are seeds. This is on the safe side of
/// Welch's test for two means: two seeds say very little about a spread.
fn student(seeds: u32) -> f64 {
    const TABLE: [f64; 9] = [12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262];
    let place = usize::try_from(seeds.saturating_sub(2)).unwrap_or(usize::MAX);
    // Beyond the table use its next value, 10 degrees of freedom: larger than any later one, so again on the safe side.
    TABLE.get(place).copied().unwrap_or(2.228)
}
