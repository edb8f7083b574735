//! A malus for replicas outside the preferred regions, in milliseconds.
//!
//! Reads no facts, only the ids of the candidates. With a malus that grows with the prompt, short requests can still go
//! anywhere.

use gorgo_plugins::{
    OptionDeclaration, OptionKind, PluginAnswer, PluginColumns, PluginDeclaration, PluginFacts, PluginRequest,
    PluginSetup, ScorerPlugin, SignalUnit,
};

struct Prefer {
    /// True if the replica is in a preferred region, by replica id.
    preferred: Vec<bool>,
    malus_ms: f64,
    malus_ms_per_token: f64,
}

impl PluginDeclaration for Prefer {
    const NAME: &'static str = "prefer";
    const VERSION: &'static str = env!("CARGO_PKG_VERSION");
    const SUMMARY: &'static str = "a malus for replicas outside the preferred regions";
    const OPTIONS: &'static [OptionDeclaration] = &[
        OptionDeclaration {
            name: "regions",
            unit: "",
            help: "preferred regions; if empty, all are",
            kind: OptionKind::Texts,
        },
        OptionDeclaration {
            name: "malus_ms",
            unit: "ms",
            help: "malus of a request that goes elsewhere",
            kind: OptionKind::Number { default: Some(100.0), min: 0.0, max: 10_000.0, tunable: true },
        },
        OptionDeclaration {
            name: "malus_ms_per_token",
            unit: "ms per prompt token",
            help: "malus per prompt token, added to `malus_ms`",
            kind: OptionKind::Number { default: Some(0.0), min: 0.0, max: 10.0, tunable: true },
        },
    ];
}

impl ScorerPlugin for Prefer {
    const UNIT: SignalUnit = SignalUnit::Millis;
    const NEEDS: PluginFacts = PluginFacts::NONE;

    fn create(setup: &PluginSetup<'_>) -> Result<Self, String> {
        let regions: Vec<&str> = setup.texts("regions").collect();
        let mut preferred = Vec::new();
        // Names and regions are only passed in here, so what a call needs is looked up now, by replica id.
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

    fn score(
        &self,
        request: &PluginRequest,
        columns: &PluginColumns<'_>,
        out: &mut [Option<f64>],
    ) -> Result<PluginAnswer, String> {
        let malus = self.malus_ms + self.malus_ms_per_token * f64::from(request.prompt_tokens);
        for (signal, replica) in out.iter_mut().zip(columns.replica()) {
            let preferred = self.preferred.get(*replica as usize).copied().unwrap_or(false);
            *signal = Some(if preferred { 0.0 } else { malus });
        }
        Ok(PluginAnswer::Given)
    }
}

gorgo_plugins::export_scorer!(Prefer);
