//! A plugin for tests: misbehaves as its option `how` says, after `after` calls.

use std::sync::atomic::{AtomicU64, Ordering};

use gorgo_plugins::{Answer, Columns, Declared, Need, OptionDecl, OptionKind, Request, Scorer, Setup, Unit};

struct Hostile {
    how: String,
    after: f64,
    calls: AtomicU64,
}

impl Declared for Hostile {
    const NAME: &'static str = "hostile";
    const VERSION: &'static str = env!("CARGO_PKG_VERSION");
    const SUMMARY: &'static str = "misbehaves as its options say";
    const OPTIONS: &'static [OptionDecl] = &[
        OptionDecl { name: "how", unit: "", help: "what it does", kind: OptionKind::Text },
        OptionDecl {
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

impl Scorer for Hostile {
    const UNIT: Unit = Unit::Millis;
    const NEEDS: Need = Need::RTT;

    fn create(setup: &Setup<'_>) -> Result<Self, String> {
        let how = setup.texts("how").next().unwrap_or_default().to_owned();
        match &*how {
            "panic-at-create" => boom(),
            "refuse" => Err("it does not like its options".to_owned()),
            _ => Ok(Self { how, after: setup.number("after").unwrap_or(0.0), calls: AtomicU64::new(0) }),
        }
    }

    #[expect(clippy::cast_precision_loss, reason = "few calls")]
    #[expect(clippy::panic, reason = "what is tested")]
    fn score(&self, _request: &Request, columns: &Columns<'_>, out: &mut [Option<f64>]) -> Result<Answer, String> {
        for (signal, rtt) in out.iter_mut().zip(columns.rtt_ms()) {
            *signal = Some(*rtt).filter(|rtt| rtt.is_finite());
        }
        if (self.calls.fetch_add(1, Ordering::Relaxed) as f64) < self.after {
            return Ok(Answer::Given);
        }
        match &*self.how {
            "panic" => panic!("row 3 of 2"),
            "nan" => out[0] = Some(f64::NAN),
            "infinite" => out[0] = Some(f64::INFINITY),
            "error" => return Err("the moon is full".to_owned()),
            "no-opinion" => return Ok(Answer::NoOpinion),
            "slow" => {
                let mut sum = 0.0_f64;
                for turn in 0..400_000 {
                    sum = std::hint::black_box(sum + f64::from(turn).sqrt());
                }
                out[0] = Some(sum);
            }
            _ => {}
        }
        Ok(Answer::Given)
    }
}

gorgo_plugins::export_scorer!(Hostile);
