//! `gorgo plugin list`: the plugins that a configuration loads, and the description that each has of itself.

use std::io::Write as _;

use comfy_table::{ContentArrangement, Table, presets};
use gorgo_core::run::load;
use gorgo_plugins::conform::{candidates, cohort, request};
use gorgo_plugins::host::{AskedFacts, PluginUse, QuarantineMode};
use gorgo_routing::config::{render, summary};
use gorgo_routing::model::{FACT_NAMES, RequiredFacts};

use crate::args::{ConfigArgs, environment, look};
use crate::exit::CommandExit;
use crate::plugins::with_host;

/// Arguments of `gorgo plugin list`.
#[derive(Debug, clap::Args)]
pub(super) struct PluginListArgs {
    #[command(flatten)]
    config: ConfigArgs,
}

impl PluginListArgs {
    pub(super) fn run(&self) -> CommandExit {
        let (registry, host) = with_host(&self.config.config, QuarantineMode::Reported);
        let loading = load(&self.config.config, &environment(), &self.config.set, &registry);
        let report = render(&loading.faults, &loading.origins, look());
        // A closed pipe is ignored, here and below.
        let _ = anstream::stderr().write_all(report.as_bytes());
        // Plugins that did load are listed even if the configuration has faults elsewhere.
        if loading.faults.has_faults() {
            let name = loading.origins.source().name();
            anstream::eprintln!("{name}: {}", summary(&loading.faults));
        }
        let _ = std::io::stdout().write_all(shown(&host.loaded()).as_bytes());
        if loading.faults.has_faults() { CommandExit::Configuration } else { CommandExit::Done }
    }
}

/// Calls over which the time of a call is averaged.
const CALLS: u32 = 1000;
/// Replicas in the facts of a timed call.
const REPLICAS: u16 = 3;
/// Requests of an arm in a timed call of an objective.
const COHORT: u16 = 512;

/// The list as text for people.
fn shown(loaded: &[PluginUse]) -> String {
    if loaded.is_empty() {
        return "no plugin is loaded\n".to_owned();
    }
    let mut table = Table::new();
    table.load_style(presets::UTF8_BORDERS_ONLY).set_content_arrangement(ContentArrangement::Disabled);
    table.set_header(["plugin", "version", "as", "unit", "reads", "options (tunable*)", "µs a call", "sha256", "file"]);
    // Invented facts: what is timed is the plugin, not a fleet.
    let (facts, requests) = (candidates(REPLICAS), cohort(COHORT));
    for using in loaded {
        let about = &using.about;
        let star = |spec: &gorgo_plugins::host::DeclaredOption| {
            format!("{}{}", spec.name, if spec.tunable() { "*" } else { "" })
        };
        let options: Vec<String> = about.options.iter().map(star).collect();
        let micros = using.micros_per_call(&request(), &facts, &requests, CALLS);
        table.add_row([
            about.name.clone(),
            about.version.clone(),
            using.family.to_owned(),
            // A constraint answers yes or no, which has no unit.
            if using.family == "constraint" { "–".to_owned() } else { about.unit.to_string() },
            reads(&about.asks),
            options.join(" "),
            format!("{micros:.2}"),
            using.sha256.chars().take(12).collect(),
            using.path.display().to_string(),
        ]);
    }
    format!("{table}\n")
}

/// The facts that a plugin reads: groups, and single facts by name.
fn reads(asks: &AskedFacts) -> String {
    const NAMES: [(RequiredFacts, &str); 6] = [
        (RequiredFacts::RTT, "rtt"),
        (RequiredFacts::PREFIX, "prefix"),
        (RequiredFacts::LOAD, "load"),
        (RequiredFacts::REPORT, "report"),
        (RequiredFacts::RATES, "rates"),
        (RequiredFacts::LATENCY, "latency"),
    ];
    let groups = NAMES.iter().filter(|(need, _)| asks.groups.contains(*need)).map(|(_, name)| *name);
    let names: Vec<_> = groups.chain(asks.named.iter().map(|place| FACT_NAMES[*place])).collect();
    if names.is_empty() { "nothing".to_owned() } else { names.join(" ") }
}
