//! The baselines and gorgo itself, as texts that could be part of a `policies.toml`. A table of the same name there
//! wins.

use crate::config::parse_toml;
use crate::model::ConfigValue;

/// A built-in policy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PolicyPreset {
    /// Name.
    pub name: &'static str,
    /// Text: one table `[policy.NAME]`.
    pub text: &'static str,
}

impl PolicyPreset {
    /// Summary: the first sentence of its text.
    #[must_use]
    pub fn summary(&self) -> String {
        let head: Vec<&str> = self.text.lines().map_while(|line| line.strip_prefix('#')).map(str::trim).collect();
        // The comment is wrapped, so a sentence may continue on the next line.
        let head = head.join(" ");
        head.split_inclusive(". ").next().unwrap_or_default().trim_end().trim_end_matches('.').to_owned()
    }
}

macro_rules! presets {
    ($($name:literal),+ $(,)?) => {
        &[$(PolicyPreset { name: $name, text: include_str!(concat!("presets/", $name, ".toml")) }),+]
    };
}

/// All presets. A new one is a file in `presets/` and a line here.
pub const PRESETS: &[PolicyPreset] = presets![
    "gorgo",
    "gorgo-tuned",
    "gorgo-es",
    "predicted-latency",
    "random",
    "round-robin",
    "least-request",
    "least-load",
    "least-latency",
    "least-kv-cache",
    "least-gpu-cache",
    "least-utilization",
    "least-busy-time",
    "queue-router",
    "power-of-two",
    "prefix-cache",
    "session-affinity",
    "simple-session-affinity",
    "throughput",
    "pack-load",
    "gorgo-2d",
    "smg-cache-aware",
    "smg-least-load",
    "prefix-hash",
    "consistent-hash",
    "dynamo-kv",
    "llm-d",
    "aibrix-prefix-cache",
    "vtc",
    "vtc-basic",
    "lmetric",
    "skywalker",
    "dualmap",
];

/// The table of the preset of that name.
///
/// # Errors
/// There is none of that name, or its text is not TOML with that table; the latter is a defect, and tested.
pub fn preset(name: &str) -> Result<ConfigValue, String> {
    let known = PRESETS.iter().find(|preset| preset.name == name).ok_or("no preset of that name")?;
    let file = parse_toml(known.text)?;
    let table = file.get("policy").and_then(|policies| policies.get(name)).ok_or("its table is missing")?;
    Ok(table.clone())
}
