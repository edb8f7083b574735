//! Prefill work times batch size: the tokens that a replica would have to prefill, its queue included, times the
//! requests it would then have in flight.
//!
//! Source: LMetric (arXiv 2603.15202). A product needs no weight between its two factors; its unit compares with no
//! other term's, so it is best used as the only term.

use gorgo_plugins::{
    PluginAnswer, PluginColumns, PluginDeclaration, PluginFacts, PluginRequest, PluginSetup, ScorerPlugin, SignalUnit,
};

struct Lmetric;

impl PluginDeclaration for Lmetric {
    const NAME: &'static str = "lmetric";
    const VERSION: &'static str = env!("CARGO_PKG_VERSION");
    const SUMMARY: &'static str = "tokens to prefill times requests at the replica";
}

impl ScorerPlugin for Lmetric {
    const UNIT: SignalUnit = SignalUnit::One;
    const NEEDS: PluginFacts = PluginFacts::PREFIX.union(PluginFacts::LOAD);
    const SPREADS: bool = true;

    fn create(_setup: &PluginSetup<'_>) -> Result<Self, String> {
        Ok(Self)
    }

    fn score(
        &self,
        request: &PluginRequest,
        columns: &PluginColumns<'_>,
        out: &mut [Option<f64>],
    ) -> Result<PluginAnswer, String> {
        let facts = columns.cached_tokens().iter().zip(columns.queued_uncached_tokens()).zip(columns.inflight());
        for (signal, ((cached, queued), inflight)) in out.iter_mut().zip(facts) {
            // Saturating: the number of prompt tokens is an estimate and may be below the cached tokens.
            let own = f64::from(request.prompt_tokens.saturating_sub(*cached));
            #[expect(clippy::cast_precision_loss, reason = "queued tokens stay far below 2^53")]
            let tokens = own + *queued as f64;
            *signal = Some(tokens * (f64::from(*inflight) + 1.0));
        }
        Ok(PluginAnswer::Given)
    }
}

gorgo_plugins::export_scorer!(Lmetric);
