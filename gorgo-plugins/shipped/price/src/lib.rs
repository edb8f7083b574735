//! Price of a request at each replica, in the currency of the prices.
//!
//! Uncached prompt tokens have one price, cached ones another, generated tokens a third. The length of the answer is
//! unknown before it ends, so the client's limit on it is used. Prices are per million tokens, by replica or by region;
//! a replica's own price wins.

use gorgo_plugins::{
    OptionDeclaration, OptionKind, PluginAnswer, PluginColumns, PluginDeclaration, PluginFacts, PluginRequest,
    PluginSetup, ScorerPlugin, SignalUnit,
};

/// Prices per million tokens.
#[derive(Clone, Copy, Default)]
struct Prices {
    input: f64,
    cached: f64,
    output: f64,
}

struct Price {
    /// By replica id; `None`: the replica's price is unknown.
    prices: Vec<Option<Prices>>,
    output_tokens: f64,
}

const PER_MILLION: &str = "currency per million tokens";

const fn prices(name: &'static str, help: &'static str) -> OptionDeclaration {
    OptionDeclaration { name, unit: PER_MILLION, help, kind: OptionKind::Numbers { min: 0.0, max: 1e6 } }
}

impl PluginDeclaration for Price {
    const NAME: &'static str = "price";
    const VERSION: &'static str = env!("CARGO_PKG_VERSION");
    const SUMMARY: &'static str = "price of the request at the replica";
    const OPTIONS: &'static [OptionDeclaration] = &[
        prices("input", "price of prompt tokens, by replica or region"),
        prices("cached", "price of cached prompt tokens; `input` if absent"),
        prices("output", "price of generated tokens; 0 if absent"),
        OptionDeclaration {
            name: "output_tokens",
            unit: "tokens",
            help: "assumed answer if the client sets no limit",
            kind: OptionKind::Number { default: Some(256.0), min: 0.0, max: 1e6, tunable: false },
        },
    ];
}

impl ScorerPlugin for Price {
    const UNIT: SignalUnit = SignalUnit::One;
    const NEEDS: PluginFacts = PluginFacts::PREFIX;

    fn create(setup: &PluginSetup<'_>) -> Result<Self, String> {
        let mut prices = Vec::new();
        for replica in setup.replicas() {
            let find = |option: &str, name: &str| setup.numbers(option).find(|(key, _)| *key == name);
            let of = |option: &str| {
                let found = find(option, replica.name).or_else(|| find(option, replica.region));
                found.map(|(_, price)| price)
            };
            // Without a price of prompt tokens the signal is unknown, not 0: a missing price must not look free.
            let place = replica.id as usize;
            prices.resize(prices.len().max(place + 1), None);
            prices[place] = of("input").map(|input| Prices {
                input,
                cached: of("cached").unwrap_or(input),
                output: of("output").unwrap_or(0.0),
            });
        }
        Ok(Self { prices, output_tokens: setup.number("output_tokens").ok_or("output_tokens is missing")? })
    }

    fn score(
        &self,
        request: &PluginRequest,
        columns: &PluginColumns<'_>,
        out: &mut [Option<f64>],
    ) -> Result<PluginAnswer, String> {
        let output = request.max_tokens.map_or(self.output_tokens, f64::from);
        for ((signal, replica), cached) in out.iter_mut().zip(columns.replica()).zip(columns.cached_tokens()) {
            // The number of prompt tokens is an estimate and may be below the cached tokens.
            let cached = (*cached).min(request.prompt_tokens);
            let uncached = request.prompt_tokens - cached;
            *signal = self.prices.get(*replica as usize).copied().flatten().map(|prices| {
                (prices.input * f64::from(uncached) + prices.cached * f64::from(cached) + prices.output * output) / 1e6
            });
        }
        Ok(PluginAnswer::Given)
    }
}

gorgo_plugins::export_scorer!(Price);
