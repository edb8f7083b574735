//! `gorgo doctor --fleet`: checks that the replicas of a configuration are equally fast. Each real one is asked
//! directly, bypassing the router, one request at a time: cold prompts, each after a tiny one. The time that a long
//! prompt takes beyond a tiny one is the engine's work, whatever the round trip; its ratio to the fastest replica's
//! measures how even the fleet is.
//!
//! An experiment that compares policies on an uneven fleet measures the fleet. The numbers of requests (16 after 4 to
//! warm up) are those of the GORGO authors' check before a run.

use std::fmt::Write as _;
use std::sync::Arc;
use std::time::Duration;

use gorgo_core::run::load;
use gorgo_lab::trace::{LatencyQuantiles, RequestSample};
use gorgo_routing::config::{Config, EngineUrl, ReplicaConfig, render, summary};
use gorgo_routing::model::Clock;
use serde_json::{Value, json};
use tokio_util::task::TaskTracker;

use crate::args::{ConfigArgs, environment, look};
use crate::exit::CommandExit;
use crate::load::{LiveEngine, ServerUrl, api_key};
use crate::plugins::registry;
use crate::report::json::number;
use crate::report::number::{count, millis};
use crate::report::table::numbers;

/// Tokens of the tiny prompt.
const TINY_TOKENS: u32 = 8;
/// Tokens of each answer: enough to measure the time between two.
const ANSWER_TOKENS: u32 = 16;

/// Arguments of `gorgo doctor --fleet`.
#[derive(Debug, Clone, clap::Args)]
pub(super) struct FleetArgs {
    #[command(flatten)]
    pub(super) config: ConfigArgs,
    /// With --fleet: measured requests to each replica
    #[arg(long, value_name = "N", default_value_t = 16, value_parser = clap::value_parser!(u32).range(1..=1000))]
    requests: u32,
    /// With --fleet: requests to each replica before the measured ones, to warm up
    #[arg(long, value_name = "N", default_value_t = 4, value_parser = clap::value_parser!(u32).range(0..=1000))]
    warm_up: u32,
    /// With --fleet: tokens of each prompt
    #[arg(long, value_name = "N", default_value_t = 2000, value_parser = clap::value_parser!(u32).range(64..=1_000_000))]
    prompt_tokens: u32,
    /// With --fleet: largest ratio of a replica's time to that of the fastest before the fleet counts as uneven
    #[arg(long, value_name = "RATIO", default_value_t = 1.25)]
    max_ttft_ratio: f64,
    /// With --fleet: result for an uneven fleet
    #[arg(long, value_enum, default_value_t = UnevenAction::Abort)]
    uneven: UnevenAction,
    /// With --fleet: print JSON
    #[arg(long)]
    json: bool,
    /// With --fleet: give up on a request after this many seconds
    #[arg(long, value_name = "SECS", default_value_t = 120)]
    timeout_secs: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum UnevenAction {
    /// Exit code 0
    Warn,
    /// Exit code 1, so that a script that measures stops
    Abort,
}

/// Measurements of one replica.
#[derive(Debug, Clone, PartialEq)]
struct ReplicaSpeed {
    name: String,
    /// Measured requests that failed, and the message of the first failure.
    failed: usize,
    first_error: Option<String>,
    /// Median time to the first token of the long prompts, and of the tiny ones, ms.
    ttft_ms: Option<f64>,
    tiny_ms: Option<f64>,
    /// Median of each request's mean gap between tokens, ms.
    itl_ms: Option<f64>,
}

impl FleetArgs {
    /// Text to print, and the exit code.
    pub(super) async fn measure(&self, clock: Arc<dyn Clock>) -> (String, CommandExit) {
        let registry = registry(&self.config.config);
        let loading = load(&self.config.config, &environment(), &self.config.set, &registry);
        let Some((config, _)) = loading.ready else {
            let report = render(&loading.faults, &loading.origins, look());
            let name = loading.origins.source().name();
            return (format!("{report}{name}: {}\n", summary(&loading.faults)), CommandExit::Configuration);
        };
        self.of(&config, clock).await
    }

    async fn of(&self, config: &Config, clock: Arc<dyn Clock>) -> (String, CommandExit) {
        let enabled = config.replicas.iter().filter(|replica| replica.enabled);
        let simulated = enabled.clone().filter(|replica| replica.url.is_none()).count();
        let real: Vec<_> = enabled.filter_map(|replica| Some((replica, replica.url.as_ref()?))).collect();
        if real.len() < 2 {
            let text = format!(
                "nothing to compare: {} replicas have a `url` (2 are needed), {} are simulated inside the router\n",
                real.len(),
                simulated
            );
            return (text, CommandExit::Usage);
        }
        // Futures are lazy: nothing runs until its turn in the loop.
        let asking = real.iter().map(|(replica, url)| self.measured(replica, url, &clock));
        let mut found = Vec::with_capacity(real.len());
        // One after the other: replicas on the same machine would slow each other down.
        for one in asking {
            found.push(one.await);
        }
        // A replica that fails requests cannot be compared, so the fleet is not even.
        let is_even =
            found.iter().all(|one| one.failed == 0 && ratio(one, &found).is_some_and(|of| of <= self.max_ttft_ratio));
        let text = if self.json { self.document(&found, is_even) } else { self.text(&found, is_even) };
        (text, if is_even || self.uneven == UnevenAction::Warn { CommandExit::Done } else { CommandExit::Negative })
    }

    async fn measured(&self, replica: &ReplicaConfig, url: &EngineUrl, clock: &Arc<dyn Clock>) -> ReplicaSpeed {
        // Counted as if all requests had failed, so that a replica that was not measured makes the fleet uneven.
        let unasked = |words: String| ReplicaSpeed {
            name: replica.name.clone(),
            failed: usize::try_from(self.requests).unwrap_or(usize::MAX),
            first_error: Some(words),
            ttft_ms: None,
            tiny_ms: None,
            itl_ms: None,
        };
        let key = match replica.api_key_env.as_deref().map(api_key).transpose() {
            Ok(key) => key,
            Err(error) => return unasked(error.to_string()),
        };
        let limit = Duration::from_secs(self.timeout_secs);
        let shared = (Arc::clone(clock), TaskTracker::new());
        // A new seed each time: the engines' caches must not contain any of the prompts.
        let seed = clock.now().0;
        let model = replica.models.first().map(String::as_str);
        let live =
            match LiveEngine::connect(ServerUrl::engine(url.clone()), key.as_ref(), model, shared, seed, limit).await {
                Ok(live) => live,
                Err(error) => return unasked(error.to_string()),
            };
        let pairs = |many: u32| -> Vec<(u32, u32)> {
            // Tiny and long prompts alternate, so that a drift during the measurement affects both alike.
            (0..many).flat_map(|_| [(TINY_TOKENS, 1), (self.prompt_tokens, ANSWER_TOKENS)]).collect()
        };
        live.measure_isolated(&pairs(self.warm_up), 0).await;
        ReplicaSpeed::of(&replica.name, &live.measure_isolated(&pairs(self.requests), 1).await)
    }

    fn text(&self, found: &[ReplicaSpeed], is_even: bool) -> String {
        let mut table = numbers(&["replica", "failed", "TTFT ms", "of 8 tokens", "beyond it", "ratio", "ITL ms"]);
        for one in found {
            let ratio = ratio(one, found).map_or_else(|| "–".to_owned(), |ratio| format!("{ratio:.2}"));
            let times = [one.ttft_ms, one.tiny_ms, one.work_ms()].map(millis);
            let cells = [one.name.clone(), count(one.failed)].into_iter().chain(times);
            table.add_row(cells.chain([ratio, millis(one.itl_ms)]));
        }
        let mut text = format!(
            "{} cold prompts of {} tokens to each replica, one at a time, after {} to warm up; medians\n{table}\n",
            count(self.requests),
            count(self.prompt_tokens),
            count(self.warm_up)
        );
        for one in found {
            if let Some(words) = &one.first_error {
                let _ = writeln!(text, "{}: {} requests failed: {words}", one.name, count(one.failed));
            }
        }
        if is_even {
            let _ =
                writeln!(text, "even: no replica takes more than {} times as long as the fastest", self.max_ttft_ratio);
        } else {
            let _ = writeln!(
                text,
                "NOT EVEN: differences measured between policies on this fleet are partly those of the fleet \
                 (--max-ttft-ratio {})",
                self.max_ttft_ratio
            );
        }
        text
    }

    fn document(&self, found: &[ReplicaSpeed], is_even: bool) -> String {
        let one = |one: &ReplicaSpeed| {
            json!({
                "replica": one.name, "failed": one.failed, "error": one.first_error, "ttft_ms": number(one.ttft_ms),
                "tiny_ttft_ms": number(one.tiny_ms), "work_ms": number(one.work_ms()),
                "ratio": number(ratio(one, found)), "itl_ms": number(one.itl_ms),
            })
        };
        let whole = json!({
            "even": is_even, "max_ttft_ratio": self.max_ttft_ratio, "requests": self.requests,
            "prompt_tokens": self.prompt_tokens, "replicas": found.iter().map(one).collect::<Vec<Value>>(),
        });
        format!("{whole:#}\n")
    }
}

impl ReplicaSpeed {
    fn of(name: &str, samples: &[RequestSample]) -> Self {
        let failed = || samples.iter().filter(|sample| sample.error.is_some());
        let good = |tiny: bool| {
            samples.iter().filter(move |one| one.error.is_none() && (one.input_tokens == TINY_TOKENS) == tiny)
        };
        let median = |values: &mut dyn Iterator<Item = f64>| LatencyQuantiles::from_values(values).p50;
        Self {
            name: name.to_owned(),
            failed: failed().count(),
            first_error: failed().find_map(|one| one.detail.as_deref().map(str::to_owned)),
            ttft_ms: median(&mut good(false).filter_map(|one| one.ttft_ms)),
            tiny_ms: median(&mut good(true).filter_map(|one| one.ttft_ms)),
            itl_ms: median(&mut good(false).filter_map(|one| one.itl_ms)),
        }
    }

    /// Time of a long prompt beyond that of a tiny one, ms.
    fn work_ms(&self) -> Option<f64> {
        // Both medians include the round trip once, so the difference does not contain it.
        Some((self.ttft_ms? - self.tiny_ms?).max(0.0))
    }
}

/// Ratio of this replica's time to that of the fastest; `None` if either is unknown.
fn ratio(of: &ReplicaSpeed, all: &[ReplicaSpeed]) -> Option<f64> {
    // A least time of 0 was too short to be measured, and ratios to it would be infinite.
    let least = all.iter().filter_map(ReplicaSpeed::work_ms).reduce(f64::min).filter(|least| *least > 0.0)?;
    Some(of.work_ms()? / least)
}

#[cfg(test)]
mod tests {
    use clap::{Args, FromArgMatches};
    use gorgo_lab::sim::EngineProfile;
    use gorgo_simulated::{EngineDialect, SimulatedSettings, start};
    use tokio::net::TcpListener;
    use tokio_util::sync::CancellationToken;

    use super::*;
    use crate::runtime::clock;

    fn args(line: &[&str]) -> FleetArgs {
        let command = FleetArgs::augment_args(clap::Command::new("doctor"));
        let matches = command.try_get_matches_from(std::iter::once(&"doctor").chain(line)).unwrap();
        FleetArgs::from_arg_matches(&matches).unwrap()
    }

    fn found(name: &str, ttft_ms: f64, tiny_ms: f64) -> ReplicaSpeed {
        ReplicaSpeed {
            name: name.to_owned(),
            failed: 0,
            first_error: None,
            ttft_ms: Some(ttft_ms),
            tiny_ms: Some(tiny_ms),
            itl_ms: Some(11.5),
        }
    }

    #[test]
    fn a_far_replica_is_not_a_slow_one() {
        // The same engine at 10 and at 280 ms, and one that is half as fast.
        let mut all = vec![found("near", 214.0, 10.0), found("far", 484.0, 280.0), found("slow", 418.0, 10.0)];
        let ratios: Vec<f64> = all.iter().map(|one| ratio(one, &all).unwrap()).collect();
        assert_eq!(ratios, [1.0, 1.0, 2.0]);
        all.push(ReplicaSpeed {
            failed: 16,
            first_error: Some("refused".to_owned()),
            ttft_ms: None,
            ..found("off", 0.0, 0.0)
        });
        insta::assert_snapshot!(args(&[]).text(&all, false));
        assert_eq!(ratio(&all[3], &all), None);
    }

    /// A fleet of simulated engines behind real sockets, of these speeds; and a replica at an address without a
    /// listener.
    async fn told(speeds: &[f64], more: &[&str], absent: bool) -> (String, CommandExit) {
        let (tracker, shutdown) = (TaskTracker::new(), CancellationToken::new());
        let mut text = String::new();
        for (number, speed) in speeds.iter().enumerate() {
            let settings = SimulatedSettings {
                profile: EngineProfile::find("l40s-qwen3.5-35b").unwrap().clone(),
                speed: *speed,
                rtt_ms: 0.0,
                dialect: EngineDialect::default(),
                models: vec!["sim".to_owned()],
                seed: 0,
                fault_injection: None,
            };
            let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
            let handle = start(settings, listener, clock(), &tracker, shutdown.clone()).unwrap();
            text +=
                &format!("[[replica]]\nname = \"r{number}\"\nengine = \"sglang\"\nurl = \"http://{}\"\n", handle.addr);
        }
        if absent {
            let closed = TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap();
            text += &format!("[[replica]]\nname = \"off\"\nengine = \"vllm\"\nurl = \"http://{closed}\"\n");
        }
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("policies.toml");
        std::fs::write(&path, text).unwrap();
        let words = ["--config", path.to_str().unwrap(), "--requests", "3", "--warm-up", "1"];
        let told = args(&[words.as_slice(), more].concat()).measure(clock()).await;
        shutdown.cancel();
        told
    }

    #[tokio::test]
    async fn engines_are_asked_and_an_uneven_fleet_is_told() {
        // Forty times as fast, against a limit of four: no load of this machine makes one of the other.
        let uneven = ["--max-ttft-ratio", "4", "--prompt-tokens", "20000"];
        let (text, exit) = told(&[5.0, 200.0], &[uneven.as_slice(), &["--json"]].concat(), false).await;
        let document: Value = serde_json::from_str(&text).unwrap();
        assert_eq!(
            (exit, &document["even"], &document["replicas"][0]["failed"]),
            (CommandExit::Negative, &json!(false), &json!(0))
        );
        // If the fast one is lost in noise there is no ratio; otherwise the ratio is beyond the limit.
        assert!(document["replicas"][0]["ratio"].as_f64().is_none_or(|ratio| ratio > 4.0), "{text}");
        let warned = told(&[5.0, 200.0], &[uneven.as_slice(), &["--uneven", "warn"]].concat(), false).await;
        assert_eq!(warned.1, CommandExit::Done);
        assert!(warned.0.contains("NOT EVEN"), "{}", warned.0);
        let (even, exit) = told(&[5.0, 5.0], &["--max-ttft-ratio", "1000000"], false).await;
        assert!(exit == CommandExit::Done && even.contains("even: no replica takes more than 1000000 times"), "{even}");
    }

    #[tokio::test]
    async fn who_cannot_be_asked_is_named_and_one_alone_is_nothing_to_compare() {
        let (text, exit) = told(&[50.0], &[], true).await;
        assert!(exit == CommandExit::Negative && text.contains("off: 3 requests failed: cannot connect"), "{text}");
        let (text, exit) = told(&[50.0], &[], false).await;
        assert_eq!(
            (exit, text.starts_with("nothing to compare: 1 replicas have a `url`")),
            (CommandExit::Usage, true),
            "{text}"
        );
    }
}
