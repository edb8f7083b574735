//! Recent work of each replica, per sliding window that a constraint needs.
//!
//! Counted at the decision (dispatched work, requests still in flight included), in the window's own unit. A window in
//! decisions keeps each of them; a window in seconds keeps 64 buckets, so that its memory does not grow with traffic
//! and its far edge is exact to 1/64 of its length. Amounts are integers, so sums do not drift.

use std::collections::VecDeque;

use crate::model::{Candidates, ReplicaId, ShareBasis, ShareWindow, UnixMicros, WindowLength};

/// Number of buckets of a window in seconds.
const BUCKETS: u64 = 64;

/// Windows of one policy, in the order in which the policy lists them.
#[derive(Debug, Clone)]
pub struct WorkShares {
    windows: Vec<WorkWindow>,
}

#[derive(Debug, Clone)]
struct WorkWindow {
    basis: ShareBasis,
    /// Amount per replica, and number of decisions, in the window.
    sum: RoutedWork,
    span: WindowSpan,
}

#[derive(Debug, Clone, Default)]
struct RoutedWork {
    amounts: Vec<u64>,
    decisions: u64,
}

#[derive(Debug, Clone)]
enum WindowSpan {
    Decisions {
        most: usize,
        each: VecDeque<(ReplicaId, u64)>,
    },
    /// Non-empty buckets by their number since the epoch; oldest first.
    Seconds {
        bucket_us: u64,
        buckets: VecDeque<(u64, RoutedWork)>,
    },
}

impl WorkShares {
    /// Creates these windows over a fleet of `replicas`. A length of 0, below 0 or NaN becomes one decision or one
    /// microsecond; range checks are the constraint's task.
    #[must_use]
    pub fn new(windows: Vec<ShareWindow>, replicas: usize) -> Self {
        let windows = windows
            .into_iter()
            .map(|window| WorkWindow {
                basis: window.basis,
                sum: RoutedWork { amounts: vec![0; replicas], decisions: 0 },
                span: match window.length {
                    WindowLength::Decisions(most) => WindowSpan::Decisions {
                        most: usize::try_from(most).unwrap_or(usize::MAX).max(1),
                        each: VecDeque::new(),
                    },
                    WindowLength::Seconds(seconds) => {
                        WindowSpan::Seconds { bucket_us: bucket_us(seconds), buckets: VecDeque::new() }
                    }
                },
            })
            .collect();
        Self { windows }
    }

    /// Counts a request that was assigned to a replica.
    pub fn record(&mut self, at: UnixMicros, replica: ReplicaId, prompt_tokens: u32, uncached_tokens: u32) {
        for window in &mut self.windows {
            let amount = match window.basis {
                ShareBasis::UncachedTokens => u64::from(uncached_tokens),
                ShareBasis::PromptTokens => u64::from(prompt_tokens),
                ShareBasis::Requests => 1,
            };
            window.record(at, replica, amount);
        }
    }

    /// Drops expired work, then fills as many `windows` and `window_decisions` as the candidates have.
    pub fn fill(&mut self, at: UnixMicros, candidates: &mut Candidates) {
        for (number, window) in self.windows.iter_mut().enumerate().take(candidates.windows.len()) {
            // Work also leaves the window while no decisions are made.
            window.expire(at);
            candidates.window_decisions[number] = window.sum.decisions;
            for (amount, replica) in candidates.windows[number].iter_mut().zip(&candidates.replica) {
                #[expect(clippy::cast_precision_loss, reason = "a window holds far fewer than 2^53 tokens")]
                let total = window.sum.amounts[replica.index()] as f64;
                *amount = total;
            }
        }
    }
}

impl WorkWindow {
    fn record(&mut self, at: UnixMicros, replica: ReplicaId, amount: u64) {
        // Before the amount is added: expired buckets must not share a window with it.
        self.expire(at);
        // The sum is kept current, so that no decision has to add up the window.
        self.sum.amounts[replica.index()] += amount;
        self.sum.decisions += 1;
        match &mut self.span {
            WindowSpan::Decisions { most, each } => {
                // The window is never longer than `most`, so exactly one decision leaves for each that enters.
                each.push_back((replica, amount));
                if each.len() > *most
                    && let Some((oldest, amount)) = each.pop_front()
                {
                    self.sum.amounts[oldest.index()] -= amount;
                    self.sum.decisions -= 1;
                }
            }
            WindowSpan::Seconds { bucket_us, buckets } => {
                // A clock that stops or steps back adds to the newest bucket, so that buckets stay in order.
                let number = (at.0 / *bucket_us).max(buckets.back().map_or(0, |(newest, _)| *newest));
                if buckets.back().is_none_or(|(newest, _)| *newest != number) {
                    // Only buckets with work exist, so a quiet period costs no memory.
                    buckets.push_back((number, RoutedWork { amounts: vec![0; self.sum.amounts.len()], decisions: 0 }));
                }
                if let Some((_, work)) = buckets.back_mut() {
                    work.amounts[replica.index()] += amount;
                    work.decisions += 1;
                }
            }
        }
    }

    fn expire(&mut self, at: UnixMicros) {
        let WindowSpan::Seconds { bucket_us, buckets } = &mut self.span else { return };
        let now = at.0 / *bucket_us;
        while let Some((number, work)) = buckets.front() {
            // The bucket that began `BUCKETS` ago has left the window as a whole.
            if number.saturating_add(BUCKETS) > now {
                break;
            }
            self.sum.decisions -= work.decisions;
            for (sum, amount) in self.sum.amounts.iter_mut().zip(&work.amounts) {
                *sum -= amount;
            }
            buckets.pop_front();
        }
    }
}

fn bucket_us(seconds: f64) -> u64 {
    let micros = std::time::Duration::try_from_secs_f64(seconds).map_or(0, |length| length.as_micros());
    // At least 1 µs, or the division by the bucket's length would fail.
    (u64::try_from(micros).unwrap_or(u64::MAX) / BUCKETS).max(1)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use proptest::test_runner::RngSeed;

    use super::*;

    fn at(ms: u64) -> UnixMicros {
        UnixMicros(1_000_000_000 + ms * 1_000)
    }

    fn window(basis: ShareBasis, length: WindowLength) -> WorkShares {
        WorkShares::new(vec![ShareWindow { basis, length }], 2)
    }

    fn read(shares: &mut WorkShares, ms: u64) -> (Vec<f64>, u64) {
        let mut candidates = Candidates::default();
        candidates.reset(2, 1);
        candidates.replica = vec![ReplicaId(0), ReplicaId(1)];
        shares.fill(at(ms), &mut candidates);
        (candidates.windows[0].clone(), candidates.window_decisions[0])
    }

    #[test]
    fn each_window_counts_in_its_own_unit() {
        for (of, expected) in [
            (ShareBasis::UncachedTokens, vec![30.0, 5.0]),
            (ShareBasis::PromptTokens, vec![300.0, 50.0]),
            (ShareBasis::Requests, vec![2.0, 1.0]),
        ] {
            let mut shares = window(of, WindowLength::Seconds(60.0));
            shares.record(at(0), ReplicaId(0), 100, 10);
            shares.record(at(1), ReplicaId(0), 200, 20);
            shares.record(at(2), ReplicaId(1), 50, 5);
            assert_eq!(read(&mut shares, 3), (expected, 3));
        }
    }

    #[test]
    fn decisions_leave_one_by_one() {
        let mut shares = window(ShareBasis::PromptTokens, WindowLength::Decisions(2));
        for (replica, tokens) in [(0, 7), (1, 11), (0, 13)] {
            shares.record(at(0), ReplicaId(replica), tokens, 0);
        }
        assert_eq!(read(&mut shares, 1_000_000), (vec![13.0, 11.0], 2));
    }

    #[test]
    fn seconds_leave_after_the_window_also_when_nothing_comes() {
        let mut shares = window(ShareBasis::Requests, WindowLength::Seconds(64.0));
        shares.record(at(0), ReplicaId(0), 1, 1);
        shares.record(at(32_000), ReplicaId(1), 1, 1);
        assert_eq!(read(&mut shares, 62_999), (vec![1.0, 1.0], 2));
        assert_eq!(read(&mut shares, 64_000), (vec![0.0, 1.0], 1));
        assert_eq!(read(&mut shares, 97_000), (vec![0.0, 0.0], 0));
    }

    #[test]
    fn memory_does_not_grow_with_traffic() {
        let mut shares = window(ShareBasis::Requests, WindowLength::Seconds(60.0));
        for ms in 0..200_000 {
            shares.record(at(ms), ReplicaId(0), 1, 1);
        }
        let WindowSpan::Seconds { buckets, .. } = &shares.windows[0].span else { panic!("a window in seconds") };
        assert!(buckets.len() <= usize::try_from(BUCKETS).unwrap());
    }

    proptest! {
        #![proptest_config(ProptestConfig {
            rng_seed: RngSeed::Fixed(13), failure_persistence: None, ..ProptestConfig::default()
        })]

        /// A window in seconds holds all that is younger than 63/64 of it and nothing older than it.
        #[test]
        fn the_far_edge_is_sharp_to_one_bucket(
            gaps in prop::collection::vec((0_u64..3_000, 0_u16..2, 0_u32..10_000), 1..120),
        ) {
            let mut shares = window(ShareBasis::PromptTokens, WindowLength::Seconds(16.0));
            let (mut now, mut all) = (0, Vec::new());
            for (gap, replica, tokens) in gaps {
                now += gap;
                shares.record(at(now), ReplicaId(replica), tokens, 0);
                all.push((now, replica, u64::from(tokens)));
                let total = |replica: u16, youngest_out: u64| -> u64 {
                    all.iter().filter(|row| row.1 == replica && now - row.0 < youngest_out).map(|row| row.2).sum()
                };
                let (sums, decisions) = read(&mut shares, now);
                prop_assert!(decisions <= all.len() as u64);
                for replica in 0..2 {
                    let sum = sums[usize::from(replica)];
                    prop_assert!(sum >= total(replica, 15_750) as f64 && sum <= total(replica, 16_000) as f64);
                }
            }
        }
    }
}
