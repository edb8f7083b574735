//! Independent requests: Poisson arrivals, fresh prompts, and a pool of prompts that are repeated. Models the WildChat
//! and LMSYS windows that GORGO's authors replayed, which have no usable arrival times and almost no reuse.

use super::blocks::BlockIds;
use super::draw::{WorkloadRng, micros, millis, whole};
use super::parameter::parameters;
use super::trace;
use crate::trace::{RecordedTrace, TraceRow};

parameters! {
    /// Parameters of a workload of independent requests. Counts and numbers of tokens are rounded to whole numbers.
    Independent {
        rate: "/s", 1e-6, 1e6, "rate of arrivals (Poisson)";
        input_mu: "ln tokens", 0.0, 16.0, "prompt length: logarithm of the median";
        input_sigma: "1", 0.0, 10.0, "prompt length: spread (lognormal)";
        input_most: "tokens", 1.0, 1e6, "prompt length: maximum";
        pool_p: "share", 0.0, 1.0, "share of requests whose prompt comes from the pool";
        pool: "prompts", 1.0, 1e7, "number of prompts in the pool";
        pool_mu: "ln tokens", 0.0, 16.0, "prompt length in the pool: logarithm of the median";
        pool_sigma: "1", 0.0, 10.0, "prompt length in the pool: spread (lognormal)";
        pool_exponent: "1", 0.0, 10.0, "how strongly requests favour the first prompts of the pool (Zipf)";
        output_mean: "tokens", 0.0, 1e6, "answer length: mean";
        output_sigma: "1", 0.0, 10.0, "answer length: spread (lognormal)";
        output_most: "tokens", 1.0, 1e6, "answer length: maximum";
        block_tokens: "tokens", 1.0, 1e6, "tokens per block id";
    }
}

/// Origin of a prompt.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum PromptOrigin {
    Pool(u32),
    Fresh(usize),
}

pub(super) fn generate(numbers: &Independent, seed: u64, minutes: f64) -> RecordedTrace {
    let mut draw = WorkloadRng::new(seed);
    let length = |draw: &mut WorkloadRng, mu, sigma| whole(draw.lognormal(mu, sigma).min(numbers.input_most)).max(1);
    // Drawn before any arrival: the pool does not depend on the duration.
    let pool: Vec<u32> =
        (0..whole(numbers.pool)).map(|_| length(&mut draw, numbers.pool_mu, numbers.pool_sigma)).collect();
    let prompts = u32::try_from(pool.len()).unwrap_or(u32::MAX);
    // Choose the median so that the lognormal distribution has the requested mean: mean = exp(mu + sigma²/2).
    let output_mu = numbers.output_mean.max(1e-9).ln() - numbers.output_sigma.powi(2) / 2.0;
    let mut ids = BlockIds::new(whole(numbers.block_tokens));
    let mut rows = Vec::new();
    let mut at = 0.0;
    loop {
        at += draw.exponential(1.0 / numbers.rate);
        if at >= minutes * 60.0 {
            return trace(rows, whole(numbers.block_tokens));
        }
        let (creator, input_tokens) = if draw.chance(numbers.pool_p) {
            let prompt = draw.zipf(prompts, numbers.pool_exponent);
            let tokens = usize::try_from(prompt).ok().and_then(|prompt| pool.get(prompt)).copied();
            (PromptOrigin::Pool(prompt), tokens.unwrap_or(1))
        } else {
            (PromptOrigin::Fresh(rows.len()), length(&mut draw, numbers.input_mu, numbers.input_sigma))
        };
        let output = draw.lognormal(output_mu, numbers.output_sigma).min(numbers.output_most);
        rows.push(TraceRow {
            at_ms: millis(micros(at)),
            input_tokens,
            output_tokens: whole(output),
            blocks: ids.ids_for_prompt(input_tokens, creator, input_tokens, creator),
            // Nearly every conversation of these corpora has a single request, so each row gets its own.
            conversation: Some(rows.len().to_string().into()),
            turn: Some(1),
            ..TraceRow::default()
        });
    }
}
