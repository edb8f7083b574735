//! Record of the circumstances of a replay, for comparing it with another: program, machine, trace, server, and, if the
//! router's history can be read, its run and how often it fell back.

use std::path::Path;
use std::time::Duration;

use gorgo_lab::trace::RequestSample;
use gorgo_routing::model::{DecisionId, ErrorClass, UnixMicros};
use gorgo_store::{FallbackCounts, HistoryReader, StoreError, StoredRun};
use jiff::Timestamp;
use serde_json::{Map, Value, json};
use sha2::{Digest, Sha256};

use super::ReplayError;
use super::args::ReplayArgs;
use crate::cmd::lab::simulate::experiment::hexadecimal;
use crate::load::{ReplayClient, RequestFailure};
use crate::report::json::SCHEMA_VERSION;

/// Keys recorded from SGLang's `/get_server_info`.
const ENGINE_KEYS: [&str; 11] = [
    "version",
    "model_path",
    "context_length",
    "max_total_num_tokens",
    "max_prefill_tokens",
    "chunked_prefill_size",
    "max_running_requests",
    "cuda_graph_max_bs",
    "schedule_policy",
    "tp_size",
    "disable_radix_cache",
];

/// Longest wait for a list of models that is not needed.
const LIST_LIMIT: Duration = Duration::from_secs(10);

/// Number of reads of the history until it is complete. The router writes it with a delay of at most its flush
/// interval, 250 ms by default.
const LOOKS: u32 = 20;
/// Pause between two reads.
const LOOK_PAUSE: Duration = Duration::from_millis(250);

/// Circumstances of a replay.
#[derive(Debug, Clone, PartialEq, Default)]
pub(super) struct RunProvenance {
    /// Hash of the trace file's bytes, packed as it is.
    pub(super) trace_sha256: String,
    /// The command line, without folders.
    pub(super) command: String,
    /// Time when the first request could leave.
    pub(super) started_at: UnixMicros,
    /// Models listed by `/v1/models`; null if the server does not list them.
    pub(super) models: Value,
    /// The engine's own settings, if asked for and reported.
    pub(super) engine: Value,
}

impl RunProvenance {
    /// A record of a trace file's bytes.
    pub(super) fn of(trace: &[u8], command: &str) -> Self {
        Self { trace_sha256: hexadecimal(&Sha256::digest(trace)), command: command.to_owned(), ..Self::default() }
    }

    /// Asks the server for its models and settings; returns the model to use.
    pub(super) async fn ask(&mut self, client: &ReplayClient, args: &ReplayArgs) -> Result<String, ReplayError> {
        // With --model the list is only information, so do not wait long for a server that has none.
        let limit = if args.model.is_some() { LIST_LIMIT } else { Duration::MAX };
        let late = || RequestFailure::new(ErrorClass::FirstByteTimeout, "no answer in time");
        let listed = tokio::time::timeout(limit, client.get_json("/v1/models")).await.unwrap_or_else(|_| Err(late()));
        let model = match (&args.model, listed) {
            // Nothing listens there at all: fail before the load does, request by request.
            (Some(_), Err(failure)) if failure.class == ErrorClass::Connect => {
                return Err(ReplayError::Unreachable(failure));
            }
            (Some(model), Err(_)) => model.clone(),
            (Some(model), Ok(list)) => {
                self.models = models(&list);
                model.clone()
            }
            (None, Err(failure)) => return Err(ReplayError::Model(failure)),
            (None, Ok(list)) => {
                self.models = models(&list);
                let first = list.pointer("/data/0/id").and_then(Value::as_str);
                first.map(str::to_owned).ok_or(ReplayError::NoModel)?
            }
        };
        if args.engine_info {
            let told = client.get_json("/get_server_info").await.map_err(ReplayError::Engine)?;
            // Only these keys: the full answer may contain secrets, which must not end up in a report.
            let keys = ENGINE_KEYS.into_iter().filter_map(|key| Some((key.to_owned(), told.get(key)?.clone())));
            self.engine = Value::Object(keys.collect());
        }
        Ok(model)
    }

    /// The record as JSON.
    pub(super) fn json(&self) -> Map<String, Value> {
        let started = i64::try_from(self.started_at.0).ok().and_then(|us| Timestamp::from_microsecond(us).ok());
        // Enough to see that two runs were made on different machines, nothing that identifies one.
        let cores = std::thread::available_parallelism().map(std::num::NonZeroUsize::get);
        let members = [
            ("schema_version", json!(SCHEMA_VERSION)),
            ("gorgo", json!(env!("CARGO_PKG_VERSION"))),
            ("trace_sha256", json!(self.trace_sha256)),
            ("command", json!(self.command)),
            ("started_at", json!(started.map(|time| time.to_string()))),
            ("environment", json!({ "os": std::env::consts::OS, "arch": std::env::consts::ARCH, "cores": cores.ok() })),
            ("server", json!({ "models": self.models, "engine": self.engine })),
        ];
        members.map(|(name, value)| (name.to_owned(), value)).into_iter().collect()
    }
}

/// Name of each model and, if reported (vLLM, SGLang), its context length.
fn models(list: &Value) -> Value {
    let one = |model: &Value| json!({ "id": model.get("id"), "max_model_len": model.get("max_model_len") });
    list.get("data").and_then(Value::as_array).map_or(Value::Null, |all| all.iter().map(one).collect())
}

/// Facts about the replay from the router's history.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct RouterHistory {
    /// Newest run in the history; `None` if it is empty.
    pub(super) run: Option<StoredRun>,
    /// Fallbacks among the decisions from the replay's first to its last, including those of other clients in between.
    pub(super) fallbacks: FallbackCounts,
    /// Answers that named a decision.
    pub(super) named: u64,
}

impl RouterHistory {
    /// Reads the history, and waits until its last rows are written.
    pub(super) async fn read(path: &Path, samples: &[RequestSample]) -> Result<Self, StoreError> {
        let ids = || samples.iter().filter_map(|sample| sample.decision).filter_map(|id| i64::try_from(id).ok());
        let named = u64::try_from(ids().count()).unwrap_or(u64::MAX);
        let reader = HistoryReader::open(path).await?;
        let mut fallbacks = FallbackCounts::default();
        // Ids rise from decision to decision, so the replay's decisions lie in a range.
        if let Some((first, last)) = ids().min().zip(ids().max()) {
            for _ in 0..LOOKS {
                fallbacks = reader.fallbacks(DecisionId(first), DecisionId(last)).await?;
                // Other clients' decisions may be in the range as well, hence "at least".
                if fallbacks.decisions >= named {
                    break;
                }
                tokio::time::sleep(LOOK_PAUSE).await;
            }
        }
        let run = reader.newest_run().await?;
        reader.close().await;
        Ok(Self { run, fallbacks, named })
    }

    /// Upper bound of the share of decisions that fell back: one that did so twice counts twice.
    pub(super) fn fallback_share(&self) -> Option<f64> {
        let FallbackCounts { decisions, refused, relaxed, tried_again } = self.fallbacks;
        let count = |count: u64| u32::try_from(count).map_or(f64::INFINITY, f64::from);
        (decisions > 0)
            .then(|| (count(refused.saturating_add(relaxed).saturating_add(tried_again)) / count(decisions)).min(1.0))
    }

    /// The facts as JSON.
    pub(super) fn json(&self) -> Value {
        let FallbackCounts { decisions, refused, relaxed, tried_again } = self.fallbacks;
        let run = self.run.as_ref();
        json!({
            "run": run.map(|run| run.run), "version": run.map(|run| &run.version),
            "policy": run.map(|run| &run.policy), "policy_sha256": run.map(|run| &run.policy_sha256),
            "generation": run.map(|run| run.generation), "config_sha256": run.map(|run| &run.config_sha256),
            "seed": run.map(|run| run.seed), "decisions": decisions, "named": self.named, "refused": refused,
            "relaxed": relaxed, "tried_again": tried_again,
            "fallback_share": crate::report::json::number(self.fallback_share()),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_share_of_nothing_is_unknown_and_of_all_is_one() {
        let of = |fallbacks| RouterHistory { run: None, fallbacks, named: 0 }.fallback_share();
        assert_eq!(of(FallbackCounts::default()), None);
        assert_eq!(of(FallbackCounts { decisions: 8, refused: 1, relaxed: 0, tried_again: 1 }), Some(0.25));
        assert_eq!(of(FallbackCounts { decisions: 1, refused: 0, relaxed: 1, tried_again: 1 }), Some(1.0));
    }

    #[test]
    fn models_are_put_down_with_what_is_told_of_them() {
        let list = json!({ "data": [{ "id": "a", "max_model_len": 32_768, "owned_by": "x" }, { "id": "b" }] });
        assert_eq!(
            models(&list),
            json!([{ "id": "a", "max_model_len": 32_768 }, { "id": "b", "max_model_len": null }])
        );
        assert_eq!(models(&json!([])), Value::Null);
        let record = RunProvenance::of(b"abc", "gorgo replay t");
        // FIPS 180-2, appendix B.1.
        assert!(record.trace_sha256.starts_with("ba7816bf8f01cfea"), "{}", record.trace_sha256);
        assert_eq!(record.json()["schema_version"], 1);
    }
}
