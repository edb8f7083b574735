//! Which of two engines an objective prefers: raw times count, whatever the length of answers is.

use super::synthetic::params;
use crate::model::GenerationVerdict;
use crate::tune::contrast::BlockPair;
use crate::tune::sample::{SampleOutcome, TuningSample};
use crate::tune::trial::BlockSettings;
use crate::tune::verdict::{PairNoise, judge};
use crate::tune::{GuardLimits, OBJECTIVES, Objective};

fn objective(kind: &str) -> Box<dyn Objective> {
    let row = OBJECTIVES.iter().find(|row| row.kind == kind).unwrap();
    (row.build)(&params(row.params, &[])).unwrap()
}

/// Twenty pairs of blocks: all of the incumbent's requests on one engine, all of the candidate's on the other. An engine
/// is TTFT in ms and answer tokens of its `n`th request; tokens come every 10 ms.
fn pairs(incumbent: impl Fn(u32) -> (f64, u32), candidate: impl Fn(u32) -> (f64, u32)) -> Vec<BlockPair> {
    let sample = |(ttft_ms, tokens): (f64, u32), replica: u16| TuningSample {
        ttft_ms: Some(ttft_ms),
        e2e_ms: ttft_ms + f64::from(tokens) * 10.0,
        itl_ms: Some(10.0),
        prompt_tokens: None,
        completion_tokens: Some(tokens),
        replica,
        size: 5.0,
        fate: SampleOutcome::Served,
    };
    let block = |pair: u32| pair * 40..(pair + 1) * 40;
    (0..20)
        .map(|pair| BlockPair {
            incumbent: block(pair).map(|n| sample(incumbent(n), 0)).collect(),
            candidate: block(pair).map(|n| sample(candidate(n), 1)).collect(),
        })
        .collect()
}

fn verdict(kind: &str, pairs: &[BlockPair]) -> Option<GenerationVerdict> {
    // Nothing but the objective decides.
    let guard = GuardLimits { max_e2e_p95_ratio: 100.0, max_error_share: 1.0 };
    judge(&*objective(kind), pairs, 2, (&BlockSettings::default(), &guard), &mut PairNoise::default(), true)
        .map(|ended| ended.verdict)
}

/// A little noise, so that errors are not zero.
fn noise(n: u32) -> f64 {
    f64::from(n.wrapping_mul(2_654_435_761) >> 25)
}

fn quick(n: u32) -> (f64, u32) {
    (300.0 + noise(n), 5)
}

fn late_with_long_answers(n: u32) -> (f64, u32) {
    (900.0 + noise(n), 500)
}

fn mostly_fast(n: u32) -> (f64, u32) {
    (if n % 10 == 3 { 3_000.0 } else { 100.0 } + noise(n), 5)
}

#[test]
fn tune_an_engine_that_starts_later_is_not_preferred_for_its_longer_answers() {
    for row in OBJECTIVES.iter().filter(|row| row.kind.starts_with("ttft")) {
        let seen = pairs(quick, late_with_long_answers);
        assert_eq!(verdict(row.kind, &seen), Some(GenerationVerdict::Rejected), "{}", row.kind);
        let turned = pairs(late_with_long_answers, quick);
        assert_eq!(verdict(row.kind, &turned), Some(GenerationVerdict::Accepted), "{}", row.kind);
    }
}

#[test]
fn tune_a_tail_is_seen_by_the_mean_and_by_p95_and_not_by_the_median() {
    let seen = pairs(quick, mostly_fast);
    for kind in ["ttft-mean", "ttft-p95", "ttft-p99"] {
        assert_eq!(verdict(kind, &seen), Some(GenerationVerdict::Rejected), "{kind}");
    }
    assert_eq!(verdict("ttft-p50", &seen), Some(GenerationVerdict::Accepted), "and that is what was asked for");
}
