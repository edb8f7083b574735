//! Share of a cohort's requests that missed a limit on time to first token. Failures count as misses.

use gorgo_plugins::{
    ObjectivePlugin, OptionDeclaration, OptionKind, PluginCohort, PluginDeclaration, PluginSetup, SignalUnit,
};

struct SloMisses {
    ttft_ms: f64,
}

impl PluginDeclaration for SloMisses {
    const NAME: &'static str = "slo-misses";
    const VERSION: &'static str = env!("CARGO_PKG_VERSION");
    const SUMMARY: &'static str = "share of requests over a limit on TTFT, or failed";
    const OPTIONS: &'static [OptionDeclaration] = &[OptionDeclaration {
        name: "ttft_ms",
        unit: "ms",
        help: "limit on the time to first token",
        kind: OptionKind::Number { default: Some(1000.0), min: 1.0, max: 1e6, tunable: false },
    }];
}

impl ObjectivePlugin for SloMisses {
    const UNIT: SignalUnit = SignalUnit::Share;

    fn create(setup: &PluginSetup<'_>) -> Result<Self, String> {
        Ok(Self { ttft_ms: setup.number("ttft_ms").ok_or("ttft_ms is missing")? })
    }

    #[expect(clippy::cast_precision_loss, reason = "requests of a cohort stay far below 2^53")]
    fn measure(&self, cohort: &PluginCohort<'_>) -> Result<f64, String> {
        let known = cohort.ttft_ms().iter().filter(|ttft| ttft.is_finite());
        let (all, late) =
            known.fold((0_u64, 0_u64), |(all, late), ttft| (all + 1, late + u64::from(*ttft > self.ttft_ms)));
        // Failed requests are not in the columns. Without them a policy that fails quickly would look good.
        let (all, missed) = (all + cohort.failed(), late + cohort.failed());
        if all == 0 {
            Err("the cohort has neither a request with a known TTFT nor a failed one".to_owned())
        } else {
            Ok(missed as f64 / all as f64)
        }
    }
}

gorgo_plugins::export_objective!(SloMisses);
