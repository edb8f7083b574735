//! Round trips: half-life, quantile, losses, and when the kernel is believed.

use proptest::prelude::*;
use proptest::test_runner::RngSeed;

use super::*;

const R: ReplicaId = ReplicaId(0);

fn at(ms: u64) -> UnixMicros {
    UnixMicros(1_000_000_000 + ms * 1_000)
}

fn probe(ms: u64, rtt_ms: Option<f64>) -> FleetEvent {
    FleetEvent::Probe { replica: R, at: at(ms), rtt_ms }
}

fn kernel(ms: u64, smoothed_ms: f64, min_ms: f64) -> FleetEvent {
    FleetEvent::KernelRtt { replica: R, at: at(ms), smoothed_ms, min_ms }
}

fn read(rtt: &RoundTrips, ms: u64) -> (Option<f64>, Option<f64>, RttSource) {
    let mut candidates = Candidates::default();
    candidates.reset(1, 0);
    rtt.fill(at(ms), &mut candidates);
    (candidates.rtt_ms[0], candidates.rtt_p95_ms[0], candidates.rtt_source[0])
}

fn fed(events: &[FleetEvent]) -> RoundTrips {
    let mut rtt = RoundTrips::new(1, 4_000.0, 2_000.0);
    events.iter().for_each(|event| rtt.apply(event));
    rtt
}

#[test]
fn unmeasured_is_unknown_also_when_the_kernel_speaks_first() {
    assert_eq!(read(&fed(&[]), 0), (None, None, RttSource::Unknown));
    assert_eq!(read(&fed(&[kernel(0, 37.0, 36.0)]), 0), (None, None, RttSource::Unknown));
}

#[test]
fn a_probe_counts_half_after_a_half_life() {
    let rtt = fed(&[probe(0, Some(30.0)), probe(4_000, Some(60.0))]);
    let (smoothed, p95, source) = read(&rtt, 4_000);
    assert!((smoothed.unwrap() - 50.0).abs() < 1e-9);
    assert_eq!((p95, source), (Some(60.0), RttSource::Probe));
}

#[test]
fn a_replica_that_is_back_is_as_far_as_it_was_at_once() {
    let mut rtt = fed(&[probe(0, Some(37.0)), probe(2_000, None), probe(4_000, None), probe(6_000, None)]);
    assert!(read(&rtt, 6_000).0.unwrap() > 1_000.0);
    rtt.apply(&FleetEvent::Up { replica: R });
    rtt.apply(&probe(8_000, Some(38.0)));
    assert_eq!(read(&rtt, 8_000), (Some(38.0), Some(38.0), RttSource::Probe));
}

#[test]
fn a_loss_counts_as_the_time_out_and_silences_the_kernel() {
    let mut rtt = fed(&[probe(0, Some(37.0)), kernel(100, 36.0, 36.0)]);
    assert_eq!(read(&rtt, 200).2, RttSource::Kernel);
    rtt.apply(&probe(2_000, None));
    let (smoothed, p95, source) = read(&rtt, 2_000);
    assert!(smoothed.unwrap() > 1_000.0, "{smoothed:?}");
    assert_eq!((p95, source), (Some(2_000.0), RttSource::Probe));
    // a link that is dead from the start is as far as the time-out, not unknown
    assert_eq!(read(&fed(&[probe(0, None)]), 0).0, Some(2_000.0));
}

#[test]
fn the_kernel_refines_where_it_agrees() {
    let rtt = fed(&[probe(0, Some(40.0)), probe(2_000, Some(37.0)), kernel(2_100, 36.5, 36.0)]);
    assert_eq!(read(&rtt, 2_200), (Some(36.5), Some(40.0), RttSource::Kernel));
    assert_eq!(read(&rtt, 2_100 + 4_001).2, RttSource::Probe, "an old estimate is not fresher than the probe");
}

#[test]
fn a_tcp_proxy_on_the_way_is_noticed() {
    // the simulated engine on loopback: the kernel sees 0.05 ms, a request pays 37
    let near = fed(&[probe(0, Some(37.0)), kernel(1, 0.05, 0.02)]);
    assert_eq!(read(&near, 10), (Some(37.0), Some(37.0), RttSource::Probe));
    // the limits of the rule: 20 % + 2 ms of 100 is 22
    assert_eq!(read(&fed(&[probe(0, Some(100.0)), kernel(1, 90.0, 78.0)]), 10).2, RttSource::Kernel);
    assert_eq!(read(&fed(&[probe(0, Some(100.0)), kernel(1, 90.0, 77.9)]), 10).2, RttSource::Probe);
    assert_eq!(read(&fed(&[probe(0, Some(100.0)), kernel(1, 130.0, 122.1)]), 10).2, RttSource::Probe);
}

#[test]
fn numbers_that_are_none_are_ignored() {
    let rtt = fed(&[
        probe(0, Some(37.0)),
        probe(1, Some(f64::NAN)),
        probe(2, Some(-1.0)),
        kernel(3, f64::INFINITY, 37.0),
        kernel(4, 37.0, f64::NAN),
    ]);
    assert_eq!(read(&rtt, 10), (Some(37.0), Some(37.0), RttSource::Probe));
}

#[test]
fn the_quantile_is_the_nearest_rank_of_a_bounded_window() {
    let mut rtt = fed(&[probe(0, Some(9_999.0))]);
    for (step, rtt_ms) in (1_u64..).zip(1_u32..=32) {
        rtt.apply(&probe(step, Some(f64::from(rtt_ms))));
    }
    // ⌈0.95·32⌉ = 31; the 9,999 left the window
    assert_eq!(read(&rtt, 40).1, Some(31.0));
}

proptest! {
    #![proptest_config(ProptestConfig {
        rng_seed: RngSeed::Fixed(12), failure_persistence: None, ..ProptestConfig::default()
    })]

    /// Both figures lie within what was measured, whatever the order and spacing of the samples.
    #[test]
    fn figures_lie_within_the_samples(
        samples in prop::collection::vec((0_u64..100_000, prop::option::of(0.0_f64..1_999.0)), 1..80),
    ) {
        let events: Vec<FleetEvent> = samples.iter().map(|&(ms, rtt_ms)| probe(ms, rtt_ms)).collect();
        let (smoothed, p95, _) = read(&fed(&events), 100_000);
        let counted: Vec<f64> = samples.iter().map(|(_, rtt_ms)| rtt_ms.unwrap_or(2_000.0)).collect();
        let least = counted.iter().copied().fold(f64::INFINITY, f64::min);
        let most = counted.iter().copied().fold(0.0, f64::max);
        prop_assert!(smoothed.unwrap() >= least - 1e-6 && smoothed.unwrap() <= most + 1e-6);
        prop_assert!(counted.contains(&p95.unwrap()));
    }
}
