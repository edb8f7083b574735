//! Grams of CO2 that a request causes at each replica.
//!
//! Carbon intensity of the region's grid × energy of the request. Without energy options the signal is the intensity
//! itself, g/kWh, which is enough to prefer clean regions; for real grams, measure your machines. Intensities change by
//! the hour: set averages of your regions, or update them every hour.

use gorgo_plugins::{
    OptionDeclaration, OptionKind, PluginAnswer, PluginColumns, PluginDeclaration, PluginFacts, PluginRequest,
    PluginSetup, ScorerPlugin, SignalUnit,
};

struct Carbon {
    /// By replica id, g/kWh.
    grams_per_kwh: Vec<f64>,
    other_grams_per_kwh: f64,
    request_wh: f64,
    wh_per_1000_tokens: f64,
}

impl PluginDeclaration for Carbon {
    const NAME: &'static str = "carbon";
    const VERSION: &'static str = env!("CARGO_PKG_VERSION");
    const SUMMARY: &'static str = "grams of CO2 that the request causes there";
    const OPTIONS: &'static [OptionDeclaration] = &[
        OptionDeclaration {
            name: "grams_per_kwh",
            unit: "g/kWh",
            help: "carbon intensity by region",
            kind: OptionKind::Numbers { min: 0.0, max: 2000.0 },
        },
        OptionDeclaration {
            name: "other_grams_per_kwh",
            unit: "g/kWh",
            help: "carbon intensity of regions that are not listed; the default is the world's mean",
            kind: OptionKind::Number { default: Some(475.0), min: 0.0, max: 2000.0, tunable: false },
        },
        OptionDeclaration {
            name: "request_wh",
            unit: "Wh",
            help: "energy per request; with the default the signal is the intensity itself",
            kind: OptionKind::Number { default: Some(1000.0), min: 0.0, max: 10_000.0, tunable: false },
        },
        OptionDeclaration {
            name: "wh_per_1000_tokens",
            unit: "Wh per 1000 uncached prompt tokens",
            help: "energy of prefill, in addition to `request_wh`",
            kind: OptionKind::Number { default: Some(0.0), min: 0.0, max: 1000.0, tunable: false },
        },
    ];
}

impl ScorerPlugin for Carbon {
    const UNIT: SignalUnit = SignalUnit::One;
    const NEEDS: PluginFacts = PluginFacts::PREFIX;

    fn create(setup: &PluginSetup<'_>) -> Result<Self, String> {
        let number = |name: &str| setup.number(name).ok_or_else(|| format!("{name} is missing"));
        let other_grams_per_kwh = number("other_grams_per_kwh")?;
        let mut grams_per_kwh = Vec::new();
        for replica in setup.replicas() {
            let place = replica.id as usize;
            // Ids need not be consecutive; gaps are filled with the default.
            grams_per_kwh.resize(grams_per_kwh.len().max(place + 1), other_grams_per_kwh);
            if let Some((_, grams)) = setup.numbers("grams_per_kwh").find(|(region, _)| *region == replica.region) {
                grams_per_kwh[place] = grams;
            }
        }
        Ok(Self {
            grams_per_kwh,
            other_grams_per_kwh,
            request_wh: number("request_wh")?,
            wh_per_1000_tokens: number("wh_per_1000_tokens")?,
        })
    }

    fn score(
        &self,
        request: &PluginRequest,
        columns: &PluginColumns<'_>,
        out: &mut [Option<f64>],
    ) -> Result<PluginAnswer, String> {
        for ((signal, replica), cached) in out.iter_mut().zip(columns.replica()).zip(columns.cached_tokens()) {
            // Saturating: the number of prompt tokens is an estimate and may be below the cached tokens.
            let uncached = request.prompt_tokens.saturating_sub(*cached);
            let wh = self.request_wh + self.wh_per_1000_tokens * f64::from(uncached) / 1000.0;
            let grams = self.grams_per_kwh.get(*replica as usize).copied().unwrap_or(self.other_grams_per_kwh);
            *signal = Some(grams * wh / 1000.0);
        }
        Ok(PluginAnswer::Given)
    }
}

gorgo_plugins::export_scorer!(Carbon);
