//! Conditions of a simulation other than the traffic, in TOML: the network, faults, and the intervals of the routers.
//!
//! ```toml
//! [network]                    # all optional; see `NetworkModel`
//! upload_mbps = 100.0
//! [[fault]]
//! at_s = 600.0                 # after the first request
//! replica = "us-ashburn"
//! kind = "slow"                # down | slow | restart | link-spike | rtt-step
//! factor = 2.5                 # for slow, link-spike, rtt-step
//! for_s = 600.0                # if absent: to the end (restart: back at once)
//! [[router]]                   # probe interval of the GORGO reference, for its own policy
//! policy = "gorgo"
//! probe_interval_ms = 30_000
//! probe_half_life_ms = 58_000
//! ```

use serde::Deserialize;

use super::network::NetworkModel;
use gorgo_routing::config::{ProbeConfig, ScrapeConfig};

/// Scenario of a simulation; see the module.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Scenario {
    /// Section `[network]`.
    pub network: NetworkModel,
    /// Sections `[[fault]]`.
    #[serde(rename = "fault")]
    pub faults: Vec<ScenarioFault>,
    /// Sections `[[router]]`.
    #[serde(rename = "router")]
    pub routers: Vec<RouterPace>,
}

/// A fault.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ScenarioFault {
    /// Start, s after the first request.
    pub at_s: f64,
    /// Name of the replica that has the fault.
    pub replica: String,
    /// Kind of the fault.
    pub kind: FaultKind,
    /// Factor on the engine's times or on the round trip.
    #[serde(default)]
    pub factor: Option<f64>,
    /// Duration, s. If absent, the fault lasts to the end of the run, except that a restart is over at once.
    #[serde(default)]
    pub for_s: Option<f64>,
}

/// Kind of a fault.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum FaultKind {
    /// The replica refuses connections and drops those it has. The cache survives, but the router cannot know that.
    Down,
    /// The engine takes `factor` times as long.
    Slow,
    /// The engine process is replaced by a new one with an empty cache; requests in it fail.
    Restart,
    /// The round trip is `factor` times as long, usually for a while.
    LinkSpike,
    /// The round trip is `factor` times as long, usually permanently.
    RttStep,
}

impl FaultKind {
    /// Reports whether the kind needs a factor.
    const fn needs_factor(self) -> bool {
        matches!(self, Self::Slow | Self::LinkSpike | Self::RttStep)
    }
}

/// Intervals at which the router of one policy probes and scrapes; absent ones are as configured.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RouterPace {
    /// Name of the policy.
    pub policy: String,
    /// Time between probes, ms.
    pub probe_interval_ms: Option<u64>,
    /// Age at which a measurement has half its weight, ms.
    pub probe_half_life_ms: Option<u64>,
    /// Time between reads of the metrics page, ms.
    pub scrape_interval_ms: Option<u64>,
    /// Age from which a report counts as unknown, ms.
    pub scrape_stale_after_ms: Option<u64>,
}

/// Reason why a scenario cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum ScenarioError {
    /// The text is not TOML, or has a key or a value that does not exist.
    #[error("{0}")]
    Toml(#[from] Box<toml::de::Error>),
    /// A value is out of range or unknown.
    #[error("{0}")]
    Value(String),
}

impl Scenario {
    /// Reads a scenario. `replicas` and `policies` are the names that it may use.
    ///
    /// # Errors
    /// The first fault found.
    pub fn parse(text: &str, replicas: &[&str], policies: &[&str]) -> Result<Self, ScenarioError> {
        let scenario: Self = toml::from_str(text).map_err(Box::new)?;
        // TOML errors carry line and column; the checks below name the key instead.
        let found = scenario.network.invalid_reason().or_else(|| scenario.invalid_reason(replicas, policies));
        found.map_or(Ok(scenario), |text| Err(ScenarioError::Value(text)))
    }

    fn invalid_reason(&self, replicas: &[&str], policies: &[&str]) -> Option<String> {
        for (number, fault) in self.faults.iter().enumerate() {
            let wrong = |text: String| Some(format!("fault[{number}].{text}"));
            if !replicas.contains(&fault.replica.as_str()) {
                return wrong(format!("replica: unknown \"{}\"; enabled: {}", fault.replica, replicas.join(", ")));
            }
            let times = [Some(("at_s", fault.at_s)), fault.for_s.map(|secs| ("for_s", secs))];
            for (key, secs) in times.into_iter().flatten() {
                if !(0.0..=1e9).contains(&secs) {
                    return wrong(format!("{key} is {secs}; must be from 0 to 1e9 seconds"));
                }
            }
            match (fault.kind.needs_factor(), fault.factor) {
                (true, None) => return wrong("factor: missing; this kind requires a factor".to_owned()),
                (true, Some(factor)) if !(0.01..=1000.0).contains(&factor) => {
                    return wrong(format!("factor is {factor}; must be from 0.01 to 1000"));
                }
                // A factor without effect is refused: it would hide a mistake.
                (false, Some(_)) => return wrong("factor: not allowed for this kind".to_owned()),
                _ => {}
            }
        }
        for (number, pace) in self.routers.iter().enumerate() {
            if !policies.contains(&pace.policy.as_str()) {
                return Some(format!("router[{number}].policy: no policy \"{}\"", pace.policy));
            }
            let times =
                [pace.probe_interval_ms, pace.probe_half_life_ms, pace.scrape_interval_ms, pace.scrape_stale_after_ms];
            if times.into_iter().flatten().any(|ms| !(10..=86_400_000).contains(&ms)) {
                return Some(format!("router[{number}]: all times must be from 10 to 86400000 ms"));
            }
        }
        None
    }

    /// Returns the probe and scrape settings of a policy's router.
    #[must_use]
    pub fn pace(&self, policy: &str, mut probe: ProbeConfig, mut scrape: ScrapeConfig) -> (ProbeConfig, ScrapeConfig) {
        // Several sections for one policy are allowed; a later one overrides an earlier one.
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
        let pace = |policy| scenario.pace(policy, ProbeConfig::default(), ScrapeConfig::default()).0.interval_ms;
        assert_eq!((pace("gorgo"), pace("random")), (30_000, 2_000));
        assert_eq!(parse("").unwrap(), Scenario::default());
    }

    #[test]
    fn what_cannot_be_is_named() {
        let fault = |more: &str| format!("[[fault]]\nat_s = 1\nreplica = \"near\"\n{more}");
        let message = |text: &str| parse(text).unwrap_err();
        assert_eq!(message(&fault("kind = \"slow\"")), "fault[0].factor: missing; this kind requires a factor");
        assert_eq!(message(&fault("kind = \"down\"\nfactor = 2.0")), "fault[0].factor: not allowed for this kind");
        assert_eq!(
            message(&fault("kind = \"down\"\nfor_s = -1")),
            "fault[0].for_s is -1; must be from 0 to 1e9 seconds"
        );
        let text = message(&fault("kind = \"down\"").replace("near", "nera"));
        assert_eq!(text, "fault[0].replica: unknown \"nera\"; enabled: near, far");
        assert_eq!(message("[[router]]\npolicy = \"x\""), "router[0].policy: no policy \"x\"");
        assert!(message("[network]\njiter = 1").contains("line 2"), "{}", message("[network]\njiter = 1"));
        assert!(message(&fault("kind = \"melt\"")).contains("unknown variant"));
    }
}
