//! Rates: planted coefficients are found again, signs stay physical, outliers do not rule.

use proptest::prelude::*;
use proptest::test_runner::RngSeed;
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;

use super::*;

const R: ReplicaId = ReplicaId(0);
const RTT_MS: f64 = 37.0;

/// A replica as the model has it, with noise.
#[derive(Debug, Clone, Copy)]
struct Planted {
    intercept: f64,
    prefill: f64,
    queue: f64,
    decode: f64,
    noise_ms: f64,
}

const L40S: Planted = Planted { intercept: 110.0, prefill: 0.062, queue: 0.02, decode: 0.8, noise_ms: 20.0 };

impl Planted {
    fn sample(&self, rng: &mut ChaCha8Rng) -> RateSample {
        let facts = RateFacts {
            rtt_ms: RTT_MS,
            uncached_tokens: rng.random_range(0..12_000),
            queued_uncached_tokens: rng.random_range(0..20_000),
            decoding: rng.random_range(0..40),
        };
        let noise = (0..4).map(|_| rng.random_range(-1.0..1.0)).sum::<f64>() * 0.866 * self.noise_ms;
        RateSample { facts, ttft_ms: self.truth(&facts) + noise }
    }

    #[expect(clippy::cast_precision_loss, reason = "small numbers")]
    fn truth(&self, facts: &RateFacts) -> f64 {
        facts.rtt_ms
            + self.intercept
            + self.prefill * f64::from(facts.uncached_tokens)
            + self.queue * facts.queued_uncached_tokens as f64
            + self.decode * f64::from(facts.decoding)
    }

    fn taught(&self, samples: usize, seed: u64) -> FleetRates {
        let mut rates = FleetRates::new(1);
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        for _ in 0..samples {
            rates.learn(R, &self.sample(&mut rng));
        }
        rates
    }
}

fn read(rates: &FleetRates, replica: ReplicaId) -> [f64; 4] {
    let mut candidates = Candidates::default();
    candidates.reset(1, 0);
    candidates.replica[0] = replica;
    rates.fill(&mut candidates);
    [
        candidates.intercept_ms[0].unwrap(),
        candidates.prefill_ms_per_token[0].unwrap(),
        candidates.queue_ms_per_token[0].unwrap(),
        candidates.decode_ms_per_request[0].unwrap(),
    ]
}

#[test]
fn before_the_first_sample_it_is_the_prior_and_predicts_nothing() {
    let rates = FleetRates::new(1);
    assert_eq!(read(&rates, R), [50.0, 0.08, 0.005, 1.0]);
    assert!(rates.snapshot(UnixMicros(1)).is_empty());
    let facts = RateFacts { rtt_ms: 1.0, uncached_tokens: 1, queued_uncached_tokens: 0, decoding: 0 };
    assert_eq!(rates.predict_ms(R, &facts), None);
    assert_eq!(L40S.taught(29, 1).predict_ms(R, &facts), None);
    assert!(L40S.taught(30, 1).predict_ms(R, &facts).is_some());
}

#[test]
fn a_straggler_teaches_little() {
    let mut rates = L40S.taught(300, 5);
    let before = read(&rates, R);
    let facts = RateFacts { rtt_ms: RTT_MS, uncached_tokens: 4_000, queued_uncached_tokens: 0, decoding: 4 };
    rates.learn(R, &RateSample { facts, ttft_ms: 60_000.0 });
    let after = read(&rates, R);
    assert!((after[1] - before[1]).abs() < 0.02 * before[1], "{before:?} {after:?}");
    assert!((after[0] - before[0]).abs() < 5.0, "{before:?} {after:?}");
}

#[test]
fn a_slower_engine_is_noticed() {
    let mut rates = L40S.taught(500, 6);
    let slow = Planted { prefill: 0.155, ..L40S };
    let mut rng = ChaCha8Rng::seed_from_u64(7);
    for _ in 0..1_500 {
        rates.learn(R, &slow.sample(&mut rng));
    }
    let prefill = read(&rates, R)[1];
    assert!((prefill - 0.155).abs() < 0.02, "{prefill}");
}

#[test]
fn signs_stay_physical_and_prefill_is_never_free() {
    let odd = Planted { intercept: -200.0, prefill: -0.05, queue: -0.02, decode: -5.0, noise_ms: 10.0 };
    let learned = read(&odd.taught(500, 8), R);
    assert!(learned.iter().all(|value| *value >= 0.0), "{learned:?}");
    assert!(learned[1] >= 1e-4, "{learned:?}");
}

#[test]
fn what_no_sample_speaks_of_stays_as_uncertain_as_it_was() {
    let mut rates = FleetRates::new(1);
    let idle = RateFacts { rtt_ms: RTT_MS, uncached_tokens: 1_000, queued_uncached_tokens: 0, decoding: 0 };
    for _ in 0..20_000 {
        rates.learn(R, &RateSample { facts: idle, ttft_ms: 200.0 });
    }
    let inverse = rates.replicas[0].inverse;
    for (k, row) in inverse.iter().enumerate() {
        assert!(row[k] <= prior_inverse(k) * (1.0 + 1e-9), "{inverse:?}");
        assert!(row.iter().all(|value| value.is_finite()), "{inverse:?}");
    }
    assert!((rates.predict_ms(R, &idle).unwrap() - 200.0).abs() < 1.0);
}

#[test]
fn a_newcomer_reads_the_median_of_the_fleet() {
    let mut rates = FleetRates::new(4);
    let mut rng = ChaCha8Rng::seed_from_u64(9);
    for (place, prefill) in [(0, 0.2), (1, 0.3), (2, 0.9)] {
        let planted = Planted { prefill, ..L40S };
        for _ in 0..300 {
            rates.learn(ReplicaId(place), &planted.sample(&mut rng));
        }
    }
    let newcomer = read(&rates, ReplicaId(3));
    assert!((newcomer[1] - 0.3).abs() < 0.03, "{newcomer:?}");
    let sample = Planted { prefill: 0.3, ..L40S }.sample(&mut rng);
    rates.learn(ReplicaId(3), &sample);
    assert!((read(&rates, ReplicaId(3))[1] - 0.3).abs() < 0.05, "its first sample goes on from there");
}

#[test]
fn numbers_that_are_none_teach_nothing() {
    let mut rates = L40S.taught(50, 10);
    let before = read(&rates, R);
    let facts = RateFacts { rtt_ms: RTT_MS, uncached_tokens: 1, queued_uncached_tokens: 0, decoding: 0 };
    rates.learn(R, &RateSample { facts, ttft_ms: f64::NAN });
    rates.learn(R, &RateSample { facts: RateFacts { rtt_ms: f64::INFINITY, ..facts }, ttft_ms: 1.0 });
    assert_eq!(read(&rates, R), before);
}

#[test]
fn snapshot_rows_bracket_the_truth() {
    let rows = L40S.taught(600, 11).snapshot(UnixMicros(42));
    assert_eq!(rows.len(), 4);
    for row in rows {
        let truth = match row.kind {
            RateKind::Intercept => L40S.intercept,
            RateKind::Prefill => L40S.prefill,
            RateKind::Queue => L40S.queue,
            RateKind::Decode => L40S.decode,
        };
        assert_eq!((row.at, row.samples, row.replica), (UnixMicros(42), 600, R));
        // one and a half times the 95 % interval: one seed of four estimates must not fail by chance
        let slack = 0.25 * (row.high - row.low);
        assert!(row.low - slack <= truth && truth <= row.high + slack, "{row:?} {truth}");
        assert!(row.low < row.value && row.value < row.high, "{row:?}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 64, rng_seed: RngSeed::Fixed(14), failure_persistence: None, ..ProptestConfig::default()
    })]

    /// Planted coefficients are recovered, also far from the priors (a CPU engine is 50 times slower).
    #[test]
    fn planted_coefficients_are_recovered(
        intercept in 20.0_f64..300.0,
        prefill in 0.02_f64..4.0,
        queue in 0.0_f64..1.0,
        decode in 0.0_f64..20.0,
        seed in any::<u64>(),
    ) {
        let planted = Planted { intercept, prefill, queue, decode, noise_ms: 20.0 };
        let rates = planted.taught(1_000, seed);
        let learned = read(&rates, R);
        prop_assert!((learned[0] - intercept).abs() < 30.0, "{learned:?}");
        prop_assert!((learned[1] - prefill).abs() < 0.002 + 0.01 * prefill, "{learned:?}");
        prop_assert!((learned[2] - queue).abs() < 0.001 + 0.01 * queue, "{learned:?}");
        prop_assert!((learned[3] - decode).abs() < 1.0 + 0.02 * decode, "{learned:?}");
        let sample = planted.sample(&mut ChaCha8Rng::seed_from_u64(seed ^ 1));
        let predicted = rates.predict_ms(R, &sample.facts).unwrap();
        let truth = planted.truth(&sample.facts);
        prop_assert!((predicted - truth).abs() < 30.0 + 0.01 * truth, "{predicted} {truth}");
    }

    /// Whatever the samples, the state stays finite and the rates physical.
    #[test]
    fn no_sample_breaks_it(
        samples in prop::collection::vec((any::<u32>(), any::<u64>(), any::<u32>(), any::<f64>()), 0..100),
    ) {
        let mut rates = FleetRates::new(1);
        for (uncached_tokens, queued_uncached_tokens, decoding, ttft_ms) in samples {
            rates.learn(R, &RateSample { facts: RateFacts { rtt_ms: 1.0, uncached_tokens, queued_uncached_tokens, decoding }, ttft_ms });
            prop_assert!(read(&rates, R).iter().all(|value| value.is_finite() && *value >= 0.0));
        }
    }
}
