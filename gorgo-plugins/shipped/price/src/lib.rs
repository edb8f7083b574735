//! What a request costs at each replica, in the currency of the prices.
//!
//! Uncached prompt tokens at one price, cached ones at another, and the answer at its limit: what is not known before
//! it ends is taken as the client allows it. Prices are per million tokens, by replica or by region; a replica's own
//! price wins.

use gorgo_plugins::{Answer, Columns, Declared, Need, OptionDecl, OptionKind, Request, Scorer, Setup, Unit};

/// Prices per million tokens.
#[derive(Clone, Copy, Default)]
struct Prices {
    input: f64,
    cached: f64,
    output: f64,
}

struct Price {
    /// By replica id; `None`: no price is known there.
    prices: Vec<Option<Prices>>,
    output_tokens: f64,
}

const PER_MILLION: &str = "currency per million tokens";

const fn prices(name: &'static str, help: &'static str) -> OptionDecl {
    OptionDecl { name, unit: PER_MILLION, help, kind: OptionKind::Numbers { min: 0.0, max: 1e6 } }
}

impl Declared for Price {
    const NAME: &'static str = "price";
    const VERSION: &'static str = env!("CARGO_PKG_VERSION");
    const SUMMARY: &'static str = "what the request costs there";
    const OPTIONS: &'static [OptionDecl] = &[
        prices("input", "of prompt tokens, by replica or region"),
        prices("cached", "of prompt tokens in the cache; those of `input` where absent"),
        prices("output", "of generated tokens; 0 where absent"),
        OptionDecl {
            name: "output_tokens",
            unit: "tokens",
            help: "answer expected where the client states no limit",
            kind: OptionKind::Number { default: Some(256.0), min: 0.0, max: 1e6, tunable: false },
        },
    ];
}

impl Scorer for Price {
    const UNIT: Unit = Unit::One;
    const NEEDS: Need = Need::PREFIX;

    fn create(setup: &Setup<'_>) -> Result<Self, String> {
        let mut prices = Vec::new();
        for replica in setup.replicas() {
            let find = |option: &str, name: &str| setup.numbers(option).find(|(key, _)| *key == name);
            let of = |option: &str| {
                let found = find(option, replica.name).or_else(|| find(option, replica.region));
                found.map(|(_, price)| price)
            };
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

    fn score(&self, request: &Request, columns: &Columns<'_>, out: &mut [Option<f64>]) -> Result<Answer, String> {
        let output = request.max_tokens.map_or(self.output_tokens, f64::from);
        for ((signal, replica), cached) in out.iter_mut().zip(columns.replica()).zip(columns.cached_tokens()) {
            let cached = (*cached).min(request.prompt_tokens);
            let uncached = request.prompt_tokens - cached;
            *signal = self.prices.get(*replica as usize).copied().flatten().map(|prices| {
                (prices.input * f64::from(uncached) + prices.cached * f64::from(cached) + prices.output * output) / 1e6
            });
        }
        Ok(Answer::Given)
    }
}

gorgo_plugins::export_scorer!(Price);
