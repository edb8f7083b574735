//! Milliseconds by which the predicted first token of a replica would miss the client's limit (`x-slo-ttft-ms`); 0 if it
//! would be in time.
//!
//! The time is predicted from the round trip and the learned rates:
//!
//! ```text
//! rtt + intercept + uncached tokens × prefill rate + queued uncached tokens × queue rate
//! ```
//!
//! If one of them is unknown, so is the signal. On a request without a limit the term has no opinion, unless
//! `default_ms` sets one.

use gorgo_plugins::{
    OptionDeclaration, OptionKind, PluginAnswer, PluginColumns, PluginDeclaration, PluginFacts, PluginRequest,
    PluginSetup, ScorerPlugin, SignalUnit,
};

struct SloHeadroom {
    default_ms: Option<f64>,
    margin: f64,
}

impl PluginDeclaration for SloHeadroom {
    const NAME: &'static str = "slo-headroom";
    const VERSION: &'static str = env!("CARGO_PKG_VERSION");
    const SUMMARY: &'static str = "how far the predicted TTFT is over x-slo-ttft-ms";
    const OPTIONS: &'static [OptionDeclaration] = &[
        OptionDeclaration {
            name: "default_ms",
            unit: "ms",
            help: "limit of requests without the header; 0: no limit",
            kind: OptionKind::Number { default: Some(0.0), min: 0.0, max: 1e6, tunable: false },
        },
        OptionDeclaration {
            name: "margin",
            unit: "share of the limit",
            help: "safety margin for errors of the prediction",
            kind: OptionKind::Number { default: Some(0.1), min: 0.0, max: 0.9, tunable: true },
        },
    ];
}

impl ScorerPlugin for SloHeadroom {
    const UNIT: SignalUnit = SignalUnit::Millis;
    const NEEDS: PluginFacts =
        PluginFacts::RTT.union(PluginFacts::PREFIX).union(PluginFacts::LOAD).union(PluginFacts::RATES);
    const SPREADS: bool = true;

    fn create(setup: &PluginSetup<'_>) -> Result<Self, String> {
        Ok(Self {
            default_ms: setup.number("default_ms").filter(|limit| *limit > 0.0),
            margin: setup.number("margin").ok_or("margin is missing")?,
        })
    }

    #[expect(clippy::cast_precision_loss, reason = "queues stay far below 2^53 tokens")]
    fn score(
        &self,
        request: &PluginRequest,
        columns: &PluginColumns<'_>,
        out: &mut [Option<f64>],
    ) -> Result<PluginAnswer, String> {
        let Some(limit) = request.slo_ttft_ms.or(self.default_ms) else { return Ok(PluginAnswer::NoOpinion) };
        let limit = limit * (1.0 - self.margin);
        for (row, signal) in out.iter_mut().enumerate() {
            let uncached = f64::from(request.prompt_tokens.saturating_sub(columns.cached_tokens()[row]));
            let queued = columns.queued_uncached_tokens()[row] as f64;
            let predicted = columns.rtt_ms()[row]
                + columns.intercept_ms()[row]
                + uncached * columns.prefill_ms_per_token()[row]
                + queued * columns.queue_ms_per_token()[row];
            // Unknown facts are NaN and make the sum NaN.
            *signal = (!predicted.is_nan()).then(|| (predicted - limit).max(0.0));
        }
        Ok(PluginAnswer::Given)
    }
}

gorgo_plugins::export_scorer!(SloHeadroom);
