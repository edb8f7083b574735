//! What happens to the world beside the traffic, in TOML: how the network behaves, faults, how often the routers look.
//!
//! ```toml
//! [network]                    # all optional; see `Network`
//! upload_mbps = 100.0
//! [[fault]]
//! at_s = 600.0                 # from the first request on
//! replica = "us-ashburn"
//! kind = "slow"                # down | slow | restart | link-spike | rtt-step
//! factor = 2.5                 # of slow, link-spike, rtt-step
//! for_s = 600.0                # without: to the end (restart: at once back)
//! [[router]]                   # the reference's probe, for its own policy
//! policy = "gorgo"
//! probe_interval_ms = 30_000
//! probe_half_life_ms = 58_000
//! ```

use serde::Deserialize;

use super::network::Network;
use gorgo_routing::config::{Probe, Scrape};

/// See the module.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Scenario {
    /// `[network]`
    pub network: Network,
    /// `[[fault]]`
    #[serde(rename = "fault")]
    pub faults: Vec<Fault>,
    /// `[[router]]`
    #[serde(rename = "router")]
    pub routers: Vec<RouterPace>,
}

/// Something that goes wrong.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Fault {
    /// When it begins, s after the first request.
    pub at_s: f64,
    /// At which replica.
    pub replica: String,
    /// What.
    pub kind: FaultKind,
    /// How much worse: factor on the engine's times or on the round trip.
    #[serde(default)]
    pub factor: Option<f64>,
    /// How long, s; to the end where absent, but a restart is over at once.
    #[serde(default)]
    pub for_s: Option<f64>,
}

/// What goes wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum FaultKind {
    /// It refuses connections and drops those it has. Its cache is there when it comes back, but the router cannot know.
    Down,
    /// The engine takes `factor` times as long.
    Slow,
    /// Its process is a new one, with an empty cache; what was in it fails.
    Restart,
    /// The round trip is `factor` times as long, usually for a while.
    LinkSpike,
    /// The same, usually for good.
    RttStep,
}

impl FaultKind {
    /// Whether it needs a factor.
    const fn scales(self) -> bool {
        matches!(self, Self::Slow | Self::LinkSpike | Self::RttStep)
    }
}

/// How often the router of one policy looks at the world; what is absent is as configured.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RouterPace {
    /// The policy.
    pub policy: String,
    /// Time between probes, ms.
    pub probe_interval_ms: Option<u64>,
    /// Age at which a measurement counts half, ms.
    pub probe_half_life_ms: Option<u64>,
    /// Time between reads of the metrics page, ms.
    pub scrape_interval_ms: Option<u64>,
    /// An older report is unknown, ms.
    pub scrape_stale_after_ms: Option<u64>,
}

/// Why a scenario cannot be played.
#[derive(Debug, thiserror::Error)]
pub enum ScenarioError {
    /// It is not TOML, or has a key or a value that does not exist.
    #[error("{0}")]
    Toml(#[from] Box<toml::de::Error>),
    /// A value that cannot be.
    #[error("{0}")]
    Value(String),
}

impl Scenario {
    /// Reads a scenario. `replicas` and `policies` are the names that it may use.
    ///
    /// # Errors
    /// The first thing wrong with it.
    pub fn parse(text: &str, replicas: &[&str], policies: &[&str]) -> Result<Self, ScenarioError> {
        let scenario: Self = toml::from_str(text).map_err(Box::new)?;
        let found = scenario.network.fault().or_else(|| scenario.wrong(replicas, policies));
        found.map_or(Ok(scenario), |text| Err(ScenarioError::Value(text)))
    }

    fn wrong(&self, replicas: &[&str], policies: &[&str]) -> Option<String> {
        for (number, fault) in self.faults.iter().enumerate() {
            let wrong = |text: String| Some(format!("fault[{number}].{text}"));
            if !replicas.contains(&fault.replica.as_str()) {
                return wrong(format!("replica: unknown \"{}\"; enabled: {}", fault.replica, replicas.join(", ")));
            }
            let times = [Some(("at_s", fault.at_s)), fault.for_s.map(|secs| ("for_s", secs))];
            for (key, secs) in times.into_iter().flatten() {
                if !(0.0..=1e9).contains(&secs) {
                    return wrong(format!("{key}: {secs} is not from 0 to 1e9 seconds"));
                }
            }
            match (fault.kind.scales(), fault.factor) {
                (true, None) => return wrong("factor: missing; this kind needs one".to_owned()),
                (true, Some(factor)) if !(0.01..=1000.0).contains(&factor) => {
                    return wrong(format!("factor: {factor} is not from 0.01 to 1000"));
                }
                (false, Some(_)) => return wrong("factor: this kind has none".to_owned()),
                _ => {}
            }
        }
        for (number, pace) in self.routers.iter().enumerate() {
            if !policies.contains(&pace.policy.as_str()) {
                return Some(format!("router[{number}].policy: unknown \"{}\"", pace.policy));
            }
            let times =
                [pace.probe_interval_ms, pace.probe_half_life_ms, pace.scrape_interval_ms, pace.scrape_stale_after_ms];
            if times.into_iter().flatten().any(|ms| !(10..=86_400_000).contains(&ms)) {
                return Some(format!("router[{number}]: a time is not from 10 to 86400000 ms"));
            }
        }
        None
    }

    /// The settings of a policy's router.
    #[must_use]
    pub fn pace(&self, policy: &str, mut probe: Probe, mut scrape: Scrape) -> (Probe, Scrape) {
        for pace in self.routers.iter().filter(|pace| pace.policy == policy) {
            let set = |value: &mut u64, to: Option<u64>| *value = to.unwrap_or(*value);
            set(&mut probe.interval_ms, pace.probe_interval_ms);
            set(&mut probe.half_life_ms, pace.probe_half_life_ms);
            set(&mut scrape.interval_ms, pace.scrape_interval_ms);
            set(&mut scrape.stale_after_ms, pace.scrape_stale_after_ms);
        }
        (probe, scrape)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<Scenario, String> {
        Scenario::parse(text, &["near", "far"], &["gorgo"]).map_err(|error| error.to_string())
    }

    #[test]
    fn a_whole_one_is_read_and_paces_only_its_policy() {
        let text = "[network]\njitter = 0.0\n[[fault]]\nat_s = 600\nreplica = \"near\"\nkind = \"link-spike\"\n\
                    factor = 8.0\nfor_s = 60.0\n[[router]]\npolicy = \"gorgo\"\nprobe_interval_ms = 30_000\n";
        let scenario = parse(text).unwrap();
        assert_eq!((scenario.faults[0].kind, scenario.faults[0].for_s), (FaultKind::LinkSpike, Some(60.0)));
        let pace = |policy| scenario.pace(policy, Probe::default(), Scrape::default()).0.interval_ms;
        assert_eq!((pace("gorgo"), pace("random")), (30_000, 2_000));
        assert_eq!(parse("").unwrap(), Scenario::default());
    }

    #[test]
    fn what_cannot_be_is_named() {
        let fault = |more: &str| format!("[[fault]]\nat_s = 1\nreplica = \"near\"\n{more}");
        let message = |text: &str| parse(text).unwrap_err();
        assert_eq!(message(&fault("kind = \"slow\"")), "fault[0].factor: missing; this kind needs one");
        assert_eq!(message(&fault("kind = \"down\"\nfactor = 2.0")), "fault[0].factor: this kind has none");
        assert_eq!(message(&fault("kind = \"down\"\nfor_s = -1")), "fault[0].for_s: -1 is not from 0 to 1e9 seconds");
        let text = message(&fault("kind = \"down\"").replace("near", "nera"));
        assert_eq!(text, "fault[0].replica: unknown \"nera\"; enabled: near, far");
        assert_eq!(message("[[router]]\npolicy = \"x\""), "router[0].policy: unknown \"x\"");
        assert!(message("[network]\njiter = 1").contains("line 2"), "{}", message("[network]\njiter = 1"));
        assert!(message(&fault("kind = \"melt\"")).contains("unknown variant"));
    }
}
