//! Cold prompts to one engine, one at a time and bypassing any router: the time they take on an idle engine.

use std::sync::Arc;
use std::time::Duration;

use gorgo_lab::trace::{PromptText, RequestSample, TraceRow};
use gorgo_routing::model::Clock;
use hyper::header::HeaderValue;
use tokio_util::task::TaskTracker;

use super::{BodyWriter, ReplayApi, ReplayClient, ReplayRequest, RequestFailure, RequestOptions, ServerUrl};

/// Tokens per block of the prompts.
const BLOCK_TOKENS: u32 = 16;
/// Size of the range of block numbers reserved for each prompt.
const BLOCKS_OF_A_PROMPT: u64 = 1 << 20;

/// Error: an engine cannot be measured.
#[derive(Debug, thiserror::Error)]
pub(crate) enum LiveEngineError {
    #[error("its address is not valid: {0}")]
    Address(#[from] hyper::http::Error),
    #[error("{0}")]
    Unreachable(RequestFailure),
    #[error("/v1/models lists no model; name one in the replica's `models`")]
    NoModel,
}

/// An engine that answers requests.
pub(crate) struct LiveEngine {
    client: Arc<ReplayClient>,
    bodies: BodyWriter,
}

impl LiveEngine {
    /// Connects to the engine and finds its model. `seed` makes texts that no cache has seen.
    pub(crate) async fn connect(
        target: ServerUrl,
        key: Option<&HeaderValue>,
        model: Option<&str>,
        (clock, tracker): (Arc<dyn Clock>, TaskTracker),
        seed: u64,
        limit: Duration,
    ) -> Result<Self, LiveEngineError> {
        let asked = RequestOptions { api: ReplayApi::Completions, stream: true, limit, retries: 0 };
        let client = ReplayClient::new(target, &asked, key, clock, tracker)?;
        // Asked for even if the model is given: it shows that an engine is there.
        let listed = client.get_json("/v1/models").await.map_err(LiveEngineError::Unreachable)?;
        let first = listed.pointer("/data/0/id").and_then(serde_json::Value::as_str);
        let model = model.or(first).ok_or(LiveEngineError::NoModel)?;
        let bodies = BodyWriter::new(PromptText::new(BLOCK_TOKENS, seed), &asked, model, true);
        Ok(Self { client: Arc::new(client), bodies })
    }

    /// Round trip: the shortest of `pings` connection set-ups, ms; `None` if no connection succeeded.
    pub(crate) async fn rtt_ms(&self, pings: u32) -> Option<f64> {
        // The minimum, because delays of the network and the machine only add to a round trip.
        let mut least = None::<f64>;
        for _ in 0..pings {
            if let Ok(ms) = self.client.connect_ms().await {
                least = Some(least.map_or(ms, |least| least.min(ms)));
            }
        }
        least
    }

    /// Sends prompts of these lengths, each with the length of its answer, in tokens, one after the other. No two
    /// prompts share a prefix, neither within a call nor between calls with different `call` numbers.
    pub(crate) async fn measure_isolated(&self, lengths: &[(u32, u32)], call: u64) -> Vec<RequestSample> {
        let start = self.client.clock().now();
        let mut samples = Vec::with_capacity(lengths.len());
        for (row, (input_tokens, output_tokens)) in lengths.iter().copied().enumerate() {
            // A range of block numbers per prompt and call: distinct first blocks mean that no prefix is shared, so the
            // engine's cache never helps.
            let number = u64::try_from(row).unwrap_or(u64::MAX).wrapping_add(call << 16);
            let first = number.wrapping_mul(BLOCKS_OF_A_PROMPT);
            let blocks = (0..u64::from(input_tokens.div_ceil(BLOCK_TOKENS))).map(|block| first.wrapping_add(block));
            let row_text =
                TraceRow { index: row, input_tokens, output_tokens, blocks: blocks.collect(), ..TraceRow::default() };
            let sample = RequestSample { row, input_tokens, ..RequestSample::default() };
            let job = ReplayRequest { sample, start, session: None, body: self.bodies.write(&row_text) };
            samples.push(self.client.exchange(job).await);
        }
        samples
    }
}
