//! A malus for replicas outside the preferred regions, in milliseconds.
//!
//! Reads no facts but who the candidates are. A malus that grows with the prompt keeps short requests free to go
//! anywhere.

use gorgo_plugins::{Answer, Columns, Declared, Need, OptionDecl, OptionKind, Request, Scorer, Setup, Unit};

struct Prefer {
    /// By replica id: whether it is in a preferred region.
    preferred: Vec<bool>,
    malus_ms: f64,
    malus_ms_per_token: f64,
}

impl Declared for Prefer {
    const NAME: &'static str = "prefer";
    const VERSION: &'static str = env!("CARGO_PKG_VERSION");
    const SUMMARY: &'static str = "a malus for replicas outside the preferred regions";
    const OPTIONS: &'static [OptionDecl] = &[
        OptionDecl { name: "regions", unit: "", help: "the preferred regions; none: all are", kind: OptionKind::Texts },
        OptionDecl {
            name: "malus_ms",
            unit: "ms",
            help: "of every request that goes elsewhere",
            kind: OptionKind::Number { default: Some(100.0), min: 0.0, max: 10_000.0, tunable: true },
        },
        OptionDecl {
            name: "malus_ms_per_token",
            unit: "ms per prompt token",
            help: "added to it",
            kind: OptionKind::Number { default: Some(0.0), min: 0.0, max: 10.0, tunable: true },
        },
    ];
}

impl Scorer for Prefer {
    const UNIT: Unit = Unit::Millis;
    const NEEDS: Need = Need::NONE;

    fn create(setup: &Setup<'_>) -> Result<Self, String> {
        let regions: Vec<&str> = setup.texts("regions").collect();
        let mut preferred = Vec::new();
        for replica in setup.replicas() {
            let place = replica.id as usize;
            preferred.resize(preferred.len().max(place + 1), false);
            preferred[place] = regions.is_empty() || regions.contains(&replica.region);
        }
        Ok(Self {
            preferred,
            malus_ms: setup.number("malus_ms").ok_or("malus_ms is missing")?,
            malus_ms_per_token: setup.number("malus_ms_per_token").ok_or("malus_ms_per_token is missing")?,
        })
    }

    fn score(&self, request: &Request, columns: &Columns<'_>, out: &mut [Option<f64>]) -> Result<Answer, String> {
        let malus = self.malus_ms + self.malus_ms_per_token * f64::from(request.prompt_tokens);
        for (signal, replica) in out.iter_mut().zip(columns.replica()) {
            let preferred = self.preferred.get(*replica as usize).copied().unwrap_or(false);
            *signal = Some(if preferred { 0.0 } else { malus });
        }
        Ok(Answer::Given)
    }
}

gorgo_plugins::export_scorer!(Prefer);
