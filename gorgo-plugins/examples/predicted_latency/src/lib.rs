//! The terms of the built-in policy `predicted-latency`, computed from facts that any plugin can request; the option
//! `part` selects the term. A test checks that they equal the built-in ones bit for bit. `plugin.toml` beside this crate
//! is the policy, and `expressions.toml` the same policy without a plugin.

use gorgo_plugins::{
    OptionDeclaration, OptionKind, PluginAnswer, PluginColumns, PluginDeclaration, PluginRequest, PluginSetup,
    ScorerPlugin, SignalUnit,
};

#[derive(Clone, Copy)]
enum Part {
    Rtt,
    Backlog,
    Compute,
    Stall,
    Answer,
    TailStart,
}

const PARTS: [(&str, Part); 6] = [
    ("rtt", Part::Rtt),
    ("backlog", Part::Backlog),
    ("compute", Part::Compute),
    ("stall", Part::Stall),
    ("answer", Part::Answer),
    ("tail-start", Part::TailStart),
];

struct PredictedLatency {
    part: Part,
    batch_ms: f64,
    crowd_requests: f64,
    initial_ms: f64,
}

const fn number(
    name: &'static str,
    unit: &'static str,
    help: &'static str,
    default: f64,
    max: f64,
) -> OptionDeclaration {
    OptionDeclaration {
        name,
        unit,
        help,
        kind: OptionKind::Number { default: Some(default), min: 0.1, max, tunable: false },
    }
}

impl PluginDeclaration for PredictedLatency {
    const NAME: &'static str = "predicted-latency";
    const VERSION: &'static str = env!("CARGO_PKG_VERSION");
    const SUMMARY: &'static str = "one of the terms of the policy predicted-latency";
    const OPTIONS: &'static [OptionDeclaration] = &[
        OptionDeclaration {
            name: "part",
            unit: "",
            help: "term to compute: rtt, backlog, compute, stall, answer, tail-start; default compute",
            kind: OptionKind::Text,
        },
        number("batch_ms", "ms", "for stall: fixed time of a prefill batch", 60.0, 10_000.0),
        number(
            "crowd_requests",
            "requests",
            "for stall: mean requests in flight at which the harm counts twice",
            10.0,
            1e6,
        ),
        number("initial_ms", "ms", "for tail-start: value until enough requests were seen", 1_000.0, 600_000.0),
    ];
}

impl ScorerPlugin for PredictedLatency {
    const UNIT: SignalUnit = SignalUnit::Millis;
    const FACTS: &'static [&'static str] = &[
        "rtt_ms",
        "backlog_ms",
        "service_fixed_ms",
        "service_ms_per_token",
        "service_ms_per_decoding",
        "likely_uncached_tokens",
        "inflight",
        "decoding",
        "itl_alone_ms",
        "itl_ms_per_request",
        "mean_inflight",
        "answer_tokens",
        "tail_start_ms",
    ];
    const SPREADS: bool = true;

    fn create(setup: &PluginSetup<'_>) -> Result<Self, String> {
        let name = setup.texts("part").next().unwrap_or("compute");
        // One library for all terms: the policy names this plugin once per term, each time with another `part`.
        let part = PARTS.iter().find(|(known, _)| *known == name).map(|(_, part)| *part);
        let number = |name| setup.number(name).unwrap_or_default();
        Ok(Self {
            part: part
                .ok_or_else(|| format!("unknown part `{name}`; known: {}", PARTS.map(|(known, _)| known).join(", ")))?,
            batch_ms: number("batch_ms"),
            crowd_requests: number("crowd_requests"),
            initial_ms: number("initial_ms"),
        })
    }

    fn score(
        &self,
        _request: &PluginRequest,
        columns: &PluginColumns<'_>,
        out: &mut [Option<f64>],
    ) -> Result<PluginAnswer, String> {
        let [
            rtt_ms,
            backlog_ms,
            fixed_ms,
            ms_per_token,
            ms_per_decoding,
            uncached_tokens,
            inflight,
            decoding,
            itl_alone_ms,
            itl_ms_per_request,
            mean_inflight,
            answer_tokens,
            tail_start_ms,
        ] = columns.facts();
        for (row, signal) in out.iter_mut().enumerate() {
            // Operands in the order of the built-in terms: another order would round differently, and a test compares
            // all bits.
            let prefill = ms_per_token[row] * uncached_tokens[row];
            *signal = match self.part {
                // All other facts here are always known, except the start of the tail.
                Part::Rtt => Some(rtt_ms[row]).filter(|known| !known.is_nan()),
                Part::Backlog => Some(backlog_ms[row]),
                Part::Compute => Some(fixed_ms[row] + prefill + ms_per_decoding[row] * decoding[row]),
                Part::Stall => {
                    let crowd = mean_inflight[row] / self.crowd_requests;
                    let decode = answer_tokens[row] * itl_ms_per_request[row];
                    Some((1.0 + crowd * crowd) * inflight[row] * (prefill + self.batch_ms + decode))
                }
                Part::Answer => {
                    let gap = itl_ms_per_request[row] * inflight[row];
                    Some(answer_tokens[row] * (itl_alone_ms[row] + gap))
                }
                Part::TailStart => Some(if tail_start_ms[row].is_nan() { self.initial_ms } else { tail_start_ms[row] }),
            };
        }
        Ok(PluginAnswer::Given)
    }
}

gorgo_plugins::export_scorer!(PredictedLatency);
