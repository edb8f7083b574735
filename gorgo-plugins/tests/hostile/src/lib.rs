//! A plugin for tests: misbehaves as its option `how` says, after `after` calls.

use std::sync::atomic::{AtomicU64, Ordering};

use gorgo_plugins::{
    OptionDeclaration, OptionKind, PluginAnswer, PluginColumns, PluginDeclaration, PluginFacts, PluginRequest,
    PluginSetup, ScorerPlugin, SignalUnit,
};

struct Hostile {
    how: String,
    after: f64,
    calls: AtomicU64,
}

impl PluginDeclaration for Hostile {
    const NAME: &'static str = "hostile";
    const VERSION: &'static str = env!("CARGO_PKG_VERSION");
    const SUMMARY: &'static str = "misbehaves as its options say";
    const OPTIONS: &'static [OptionDeclaration] = &[
        OptionDeclaration { name: "how", unit: "", help: "what it does", kind: OptionKind::Text },
        OptionDeclaration {
            name: "after",
            unit: "calls",
            help: "how long it behaves",
            kind: OptionKind::Number { default: Some(0.0), min: 0.0, max: 1e9, tunable: false },
        },
    ];
}

#[expect(clippy::panic, reason = "what is tested")]
fn boom() -> Result<Hostile, String> {
    panic!("not today")
}

impl ScorerPlugin for Hostile {
    const UNIT: SignalUnit = SignalUnit::Millis;
    const NEEDS: PluginFacts = PluginFacts::RTT;

    fn create(setup: &PluginSetup<'_>) -> Result<Self, String> {
        let how = setup.texts("how").next().unwrap_or_default().to_owned();
        match &*how {
            "panic-at-create" => boom(),
            "refuse" => Err("it does not like its options".to_owned()),
            _ => Ok(Self { how, after: setup.number("after").unwrap_or(0.0), calls: AtomicU64::new(0) }),
        }
    }

    #[expect(clippy::cast_precision_loss, reason = "few calls")]
    #[expect(clippy::panic, reason = "what is tested")]
    fn score(
        &self,
        _request: &PluginRequest,
        columns: &PluginColumns<'_>,
        out: &mut [Option<f64>],
    ) -> Result<PluginAnswer, String> {
        for (signal, rtt) in out.iter_mut().zip(columns.rtt_ms()) {
            *signal = Some(*rtt).filter(|rtt| rtt.is_finite());
        }
        if (self.calls.fetch_add(1, Ordering::Relaxed) as f64) < self.after {
            return Ok(PluginAnswer::Given);
        }
        match &*self.how {
            "panic" => panic!("row 3 of 2"),
            "nan" => out[0] = Some(f64::NAN),
            "infinite" => out[0] = Some(f64::INFINITY),
            "error" => return Err("the moon is full".to_owned()),
            "no-opinion" => return Ok(PluginAnswer::NoOpinion),
            "slow" => {
                let mut sum = 0.0_f64;
                for turn in 0..400_000 {
                    sum = std::hint::black_box(sum + f64::from(turn).sqrt());
                }
                out[0] = Some(sum);
            }
            _ => {}
        }
        Ok(PluginAnswer::Given)
    }
}

gorgo_plugins::export_scorer!(Hostile);
