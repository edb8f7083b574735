//! `gorgo calibrate --engine URL`: measures an engine directly, bypassing any router: cold synthetic prompts of many
//! lengths, one at a time. Nothing else may use the engine meanwhile.

use std::sync::Arc;
use std::time::Duration;

use gorgo_lab::calibrate::{FittedConstant, IsolatedFit, MeasuredRequest, fit_isolated};
use gorgo_lab::sim::EngineProfile;
use gorgo_lab::trace::RequestSample;
use gorgo_routing::model::Clock;
use serde_json::{Value, json};
use tokio_util::task::TaskTracker;

use super::{digits, of_profile, optional, table};
use crate::engine_settings;
use crate::exit::CommandExit;
use crate::load::{LiveEngine, ServerUrl, api_key};
use crate::report::json::number;
use crate::report::number::count;

/// Shortest prompt, tokens; about the 2,000 characters that the GORGO authors' calibration begins with.
const SHORTEST: u32 = 512;

/// Flags that only go with `--engine`.
#[derive(Debug, Clone, clap::Args)]
pub(super) struct MeasureArgs {
    /// Engine to measure, such as http://10.0.1.7:30000; nothing else may use it meanwhile
    #[arg(long, value_name = "URL")]
    pub(super) engine: Option<String>,
    /// With --engine: measured prompts
    #[arg(long, value_name = "N", default_value_t = 32, value_parser = clap::value_parser!(u32).range(8..=10_000))]
    samples: u32,
    /// With --engine: prompts before the measured ones, to warm up
    #[arg(long, value_name = "N", default_value_t = 4, value_parser = clap::value_parser!(u32).range(0..=1_000))]
    warm_up: u32,
    /// With --engine: tokens of each answer
    #[arg(long, value_name = "N", default_value_t = 256, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    decode_tokens: u32,
    /// With --engine: tokens of the longest prompt; the shortest has 512
    #[arg(long, value_name = "N", default_value_t = 8_000, value_parser = clap::value_parser!(u32).range(1_024..=1_000_000))]
    longest_prompt: u32,
    /// With --engine: connections whose set-up is timed; the shortest time is the round trip
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=100))]
    pings: u32,
    /// With --engine: model to ask for [default: the first that /v1/models lists]
    #[arg(long, value_name = "NAME")]
    model: Option<String>,
    /// With --engine: environment variable that holds the API key
    #[arg(long, value_name = "VAR")]
    api_key_env: Option<String>,
    /// With --engine: give up on a request after this many seconds
    #[arg(long, value_name = "SECS", default_value_t = 120)]
    timeout_secs: u64,
}

/// Answers of the engine.
struct EngineMeasurement {
    url: String,
    rtt_ms: Option<f64>,
    samples: Vec<RequestSample>,
    failed: usize,
}

impl MeasureArgs {
    /// Text to print, and the exit code; or an error message.
    pub(super) async fn measure(
        &self,
        url: &str,
        clock: Arc<dyn Clock>,
        (profile, seed, as_json): (&EngineProfile, u64, bool),
    ) -> Result<(String, CommandExit), String> {
        let key = self.api_key_env.as_deref().map(api_key).transpose().map_err(|error| error.to_string())?;
        // The time as a seed: texts that no cache has seen, not even from an earlier run of this command.
        let text_seed = clock.now().0;
        let limit = Duration::from_secs(self.timeout_secs);
        let shared = (clock, TaskTracker::new());
        let target = ServerUrl::parse(url).map_err(|error| format!("--engine {url}: {error}"))?;
        let live = LiveEngine::connect(target, key.as_ref(), self.model.as_deref(), shared, text_seed, limit).await;
        let live = live.map_err(|error| format!("--engine {url}: {error}"))?;
        let rtt_ms = live.rtt_ms(self.pings).await;
        // The first requests of an idle engine may compile kernels or allocate memory; their times are dropped.
        live.measure_isolated(&self.lengths(self.warm_up), 0).await;
        let mut samples = live.measure_isolated(&self.lengths(self.samples), 1).await;
        let sent = samples.len();
        // Failed prompts are counted and reported, but they have no time to fit.
        samples.retain(|sample| sample.error.is_none() && sample.ttft_ms.is_some());
        let answers = EngineMeasurement { url: url.to_owned(), rtt_ms, failed: sent - samples.len(), samples };
        let found = fit_isolated(&observations(&answers), seed);
        let text = if as_json {
            format!("{:#}\n", self.document(&answers, found.as_ref(), profile))
        } else {
            self.text(&answers, found.as_ref(), profile)
        };
        Ok((text, if found.is_some() { CommandExit::Done } else { CommandExit::Negative }))
    }

    /// Evenly spaced lengths from the shortest to the longest, not in order, so that a drift during the measurement
    /// does not look like a slope.
    fn lengths(&self, many: u32) -> Vec<(u32, u32)> {
        // n prompts are n − 1 steps apart.
        let steps = f64::from(many.saturating_sub(1).max(1));
        let span = f64::from(self.longest_prompt.saturating_sub(SHORTEST));
        let of = |place: u32| {
            #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "0 to the longest prompt")]
            let more = (span * f64::from(place) / steps).round() as u32;
            (SHORTEST + more, self.decode_tokens)
        };
        // Up over the even positions and down over the odd ones: each length range occurs early and late.
        let (even, odd): (Vec<u32>, Vec<u32>) = (0..many).partition(|place| place.is_multiple_of(2));
        even.into_iter().chain(odd.into_iter().rev()).map(of).collect()
    }

    fn text(&self, answers: &EngineMeasurement, found: Option<&IsolatedFit>, profile: &EngineProfile) -> String {
        let mut out = format!(
            "{}: {} cold prompts of {SHORTEST} to {} tokens, one at a time, after {}; answers of {} tokens; {} failed; round \
             trip {} ms\n",
            answers.url,
            count(answers.samples.len()),
            count(self.longest_prompt),
            count(self.warm_up),
            count(self.decode_tokens),
            count(answers.failed),
            optional(answers.rtt_ms)
        );
        let Some(found) = found else {
            out += "too few prompts were answered to fit anything\n";
            return out;
        };
        let mut constants = table(&["constant", "ms", "95 % from", "to", "least squares", &profile.name]);
        let (floor, slope) = found.least_squares;
        let rows = [(&found.floor, Some(floor)), (&found.prefill, Some(slope))].into_iter();
        for (FittedConstant { name, per, value, low, high }, squares) in
            rows.chain(found.step.as_ref().map(|step| (step, None)))
        {
            let name = if per.is_empty() { name.clone() } else { format!("{name}, per {per}") };
            // Least squares is shown beside the robust fit: where they differ, outliers distort it.
            let known = known(profile, &name);
            constants.add_row([name, digits(*value), digits(*low), digits(*high), optional(squares), optional(known)]);
        }
        let off = found.median_error_share.map_or_else(|| "–".to_owned(), |share| format!("{:.1} %", 100.0 * share));
        out + &format!("{constants}\nmedian error of first tokens: {off}; the floor includes the round trip\n")
            + &engine_settings::text(profile)
    }

    fn document(&self, answers: &EngineMeasurement, found: Option<&IsolatedFit>, profile: &EngineProfile) -> Value {
        let constant = |constant: &FittedConstant| {
            json!({
                "name": constant.name, "per": constant.per, "ms": number(Some(constant.value)),
                "low_ms": number(Some(constant.low)), "high_ms": number(Some(constant.high)),
                "profile_ms": number(known(profile, &constant.name)),
            })
        };
        json!({
            "engine": answers.url, "rows": answers.samples.len(), "failed": answers.failed, "profile": profile.name,
            "rtt_ms": number(answers.rtt_ms), "longest_prompt": self.longest_prompt, "decode_tokens": self.decode_tokens,
            "floor": found.map(|found| constant(&found.floor)), "prefill": found.map(|found| constant(&found.prefill)),
            "step": found.and_then(|found| found.step.as_ref()).map(constant),
            "least_squares": found.map(|found| {
                json!({ "floor_ms": number(Some(found.least_squares.0)), "prefill_ms": number(Some(found.least_squares.1)) })
            }),
            "median_error_share": number(found.and_then(|found| found.median_error_share)),
            "engine_settings": engine_settings::document(profile),
        })
    }
}

/// Value of a profile for the same constant; a step is one of a single request.
fn known(profile: &EngineProfile, name: &str) -> Option<f64> {
    match name.split(',').next().unwrap_or_default() {
        "step" => Some(profile.decode_ms(1, 0)),
        "floor" => Some(profile.host_ms + profile.prefill_batch_ms),
        name => of_profile(profile, name),
    }
}

fn observations(answers: &EngineMeasurement) -> Vec<MeasuredRequest> {
    let one = |sample: &RequestSample| {
        let tokens = sample.usage.prompt_tokens.unwrap_or(sample.input_tokens);
        // Prompts are new each time, but an engine may still report cached tokens, such as those of a common prefix of
        // its template.
        let cached = sample.usage.cached_tokens.map(|cached| f64::from(tokens.saturating_sub(cached)));
        let generated = sample.usage.completion_tokens.unwrap_or(sample.content_events);
        let ttft_ms = sample.ttft_ms.unwrap_or_default();
        // Up to the last token, not to the last byte: closing a stream is not decoding.
        let decoding_ms = sample.itl_ms.map_or(0.0, |itl_ms| itl_ms * f64::from(generated.saturating_sub(1)));
        MeasuredRequest {
            run: 0,
            replica: None,
            sent_ms: sample.sent_ms,
            ttft_ms,
            e2e_ms: ttft_ms + decoding_ms,
            prompt_tokens: f64::from(tokens),
            uncached_tokens: cached,
            output_tokens: f64::from(generated),
            rtt_ms: answers.rtt_ms,
        }
    };
    answers.samples.iter().map(one).collect()
}

#[cfg(test)]
mod tests {
    use clap::{Args, FromArgMatches};
    use gorgo_simulated::{EngineDialect, SimulatedSettings, start};
    use tokio::net::TcpListener;
    use tokio_util::sync::CancellationToken;

    use super::*;
    use crate::runtime::clock;

    fn args(line: &[&str]) -> MeasureArgs {
        let command = MeasureArgs::augment_args(clap::Command::new("calibrate"));
        let matches = command.try_get_matches_from(std::iter::once(&"calibrate").chain(line)).unwrap();
        MeasureArgs::from_arg_matches(&matches).unwrap()
    }

    #[test]
    fn lengths_are_even_and_out_of_order() {
        let mut lengths = args(&["--longest-prompt", "2048"]).lengths(5);
        assert_eq!(lengths.iter().map(|one| one.0).collect::<Vec<_>>(), [512, 1280, 2048, 1664, 896]);
        lengths.sort_unstable();
        assert!(lengths.windows(2).all(|pair| pair[1].0 - pair[0].0 == 384) && lengths[0].1 == 256);
        assert_eq!(args(&[]).lengths(0), []);
    }

    #[tokio::test]
    async fn the_simulated_engine_answers_with_its_own_constants() {
        let (tracker, shutdown) = (TaskTracker::new(), CancellationToken::new());
        let profile = EngineProfile::find("l40s-qwen3.5-35b").unwrap();
        let settings = SimulatedSettings {
            profile: profile.clone(),
            speed: 2.0,
            rtt_ms: 0.0,
            dialect: EngineDialect::default(),
            models: vec!["sim".to_owned()],
            seed: 0,
            fault_injection: None,
        };
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", start(settings, listener, clock(), &tracker, shutdown.clone()).unwrap().addr);
        let few = args(&["--samples", "10", "--warm-up", "1", "--decode-tokens", "4", "--longest-prompt", "4096"]);
        let (text, exit) = few.measure(&url, clock(), (profile, 1, true)).await.unwrap();
        let document: Value = serde_json::from_str(&text).unwrap();
        assert_eq!((exit, &document["rows"], &document["failed"]), (CommandExit::Done, &json!(10), &json!(0)));
        let prefill = &document["prefill"];
        assert!(prefill["low_ms"].as_f64() <= prefill["ms"].as_f64(), "{text}");
        assert!(prefill["ms"].as_f64() <= prefill["high_ms"].as_f64() && prefill["ms"].is_f64(), "{text}");
        assert_eq!(document["prefill"]["profile_ms"], json!(0.062));
        let (text, _) = few.measure(&url, clock(), (profile, 1, false)).await.unwrap();
        assert!(text.contains("10 cold prompts of 512 to 4,096 tokens, one at a time, after 1;"), "{text}");
        shutdown.cancel();
        let closed = TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap();
        let gone = few.measure(&format!("http://{closed}"), clock(), (profile, 1, false)).await.unwrap_err();
        assert!(gone.contains("cannot connect"), "{gone}");
    }
}
