//! Everything that an engine may do, with the resulting actions.

use proptest::prelude::*;
use proptest::test_runner::RngSeed;

use super::SequenceAction::{Apply, Replay, Restarted, Skip, Unsure, Whole};
use super::*;

fn config(cases: u32, seed: u64) -> ProptestConfig {
    ProptestConfig { cases, rng_seed: RngSeed::Fixed(seed), failure_persistence: None, ..ProptestConfig::default() }
}

/// Batch of an engine's life: lives are a thousand seconds apart.
fn batch(life: u32, number: u32) -> BatchStamp {
    BatchStamp { number: u64::from(number), created_secs: f64::from(life) * 1_000.0 + f64::from(number) }
}

fn batches(life: u32, numbers: std::ops::Range<u32>) -> Vec<BatchStamp> {
    numbers.map(|number| batch(life, number)).collect()
}

fn begun(replay: bool, last: u32) -> BatchSequence {
    let mut sequence = BatchSequence::new(replay);
    for seen in batches(0, 0..last + 1) {
        sequence.on_batch(seen);
    }
    sequence
}

#[test]
fn in_order_from_the_beginning() {
    let mut sequence = BatchSequence::new(false);
    assert_eq!(sequence.on_batch(batch(0, 0)), [Whole, Apply(0)]);
    assert_eq!(sequence.on_batch(batch(0, 1)), [Apply(0)]);
    assert_eq!(sequence.on_batch(batch(0, 1)), [Skip]);
    assert_eq!(sequence.on_batch(batch(0, 2)), [Apply(0)]);
}

#[test]
fn a_gap_without_a_replay_is_a_loss_and_said_once() {
    let mut sequence = begun(false, 10);
    assert_eq!(sequence.on_batch(batch(0, 16)), [Unsure, Apply(0)]);
    assert_eq!(sequence.on_batch(batch(0, 16)), [Skip]);
    assert_eq!(sequence.on_batch(batch(0, 17)), [Apply(0)]);
    assert_eq!(BatchSequence::new(false).on_batch(batch(0, 5)), [Unsure, Apply(0)], "what came before is not known");
    assert_eq!(BatchSequence::new(false).on_silence(), None);
}

#[test]
fn a_gap_is_asked_for_once_and_filled() {
    let mut sequence = begun(true, 10);
    assert_eq!(sequence.on_batch(batch(0, 16)), [Replay(10)]);
    // The engine's buffer also contains the batch that caused the replay.
    let answer = batches(0, 10..17);
    assert_eq!(sequence.on_replay(&answer, true), (1..7).map(Apply).collect::<Vec<_>>());
    assert_eq!(sequence.after_replay(batch(0, 16)), [Skip]);
    assert_eq!(sequence.on_batch(batch(0, 17)), [Apply(0)]);
}

#[test]
fn a_replay_with_holes_or_without_an_end_is_a_loss() {
    let mut sequence = begun(true, 10);
    sequence.on_batch(batch(0, 16));
    let mut answer = batches(0, 10..17);
    answer.remove(3);
    assert_eq!(sequence.on_replay(&answer, true), [vec![Unsure], (1..6).map(Apply).collect()].concat());

    let mut sequence = begun(true, 10);
    sequence.on_batch(batch(0, 16));
    assert_eq!(sequence.on_replay(&batches(0, 10..13), false), [Unsure, Apply(1), Apply(2)]);
    assert_eq!(sequence.after_replay(batch(0, 16)), [Unsure, Apply(0)], "and is not asked for again");
    assert_eq!(sequence.on_batch(batch(0, 17)), [Apply(0)]);

    // The buffer begins later.
    let mut sequence = begun(true, 10);
    sequence.on_batch(batch(0, 50));
    let acts = sequence.on_replay(&batches(0, 40..51), true);
    assert_eq!((acts[0], acts.len()), (Unsure, 12));
    // The buffer begins right after the last batch seen, which may also be the case after a restart.
    let mut sequence = begun(true, 10);
    sequence.on_batch(batch(0, 13));
    assert_eq!(sequence.on_replay(&batches(0, 11..14), true), [Unsure, Apply(0), Apply(1), Apply(2)]);
    // Nothing answers.
    let mut sequence = begun(true, 10);
    sequence.on_batch(batch(0, 13));
    assert_eq!(sequence.on_replay(&[], false), [Unsure]);
    assert_eq!(sequence.after_replay(batch(0, 13)), [Unsure, Apply(0)]);
}

#[test]
fn a_restart_begins_at_zero() {
    let mut sequence = begun(true, 10);
    assert_eq!(sequence.on_batch(batch(1, 0)), [Restarted, Apply(0)]);
    assert_eq!(sequence.on_batch(batch(1, 1)), [Apply(0)]);
    assert_eq!(sequence.on_batch(batch(0, 9)), [Skip], "one of the life before");
}

#[test]
fn a_restart_whose_beginning_was_missed() {
    let mut sequence = begun(true, 10);
    assert_eq!(sequence.on_batch(batch(1, 3)), [Replay(0)]);
    assert_eq!(sequence.on_replay(&batches(1, 0..4), true), [Restarted, Apply(0), Apply(1), Apply(2), Apply(3)]);
    assert_eq!(sequence.after_replay(batch(1, 3)), [Skip]);

    let mut sequence = begun(false, 10);
    assert_eq!(sequence.on_batch(batch(1, 3)), [Restarted, Unsure, Apply(0)]);
}

#[test]
fn a_restart_that_looks_like_a_gap_is_found_by_the_last_batch() {
    // Ten were seen; the restarted engine is at sixteen already.
    let mut sequence = begun(true, 10);
    assert_eq!(sequence.on_batch(batch(1, 16)), [Replay(10)]);
    assert_eq!(sequence.on_replay(&batches(1, 10..17), true), [Replay(0)]);
    let acts = sequence.on_replay(&batches(1, 0..17), true);
    assert_eq!((acts[0], acts.len()), (Restarted, 18));
    assert_eq!(sequence.after_replay(batch(1, 16)), [Skip]);
}

#[test]
fn a_look_after_silence_or_a_new_connection() {
    // Nothing was seen, and the engine has published nothing.
    let mut sequence = BatchSequence::new(true);
    assert_eq!(sequence.on_silence(), Some(0));
    assert_eq!(sequence.on_replay(&[], true), [Whole]);
    assert_eq!(sequence.on_batch(batch(0, 0)), [Whole, Apply(0)]);
    // It has published, all of it is there.
    let mut sequence = BatchSequence::new(true);
    assert_eq!(sequence.on_silence(), Some(0));
    assert_eq!(sequence.on_replay(&batches(0, 0..3), true), [Whole, Apply(0), Apply(1), Apply(2)]);
    assert_eq!(sequence.on_batch(batch(0, 2)), [Skip]);
    // The beginning is gone.
    let mut sequence = BatchSequence::new(true);
    let _ = sequence.on_silence();
    assert_eq!(sequence.on_replay(&batches(0, 7..9), true), [Unsure, Apply(0), Apply(1)]);
    // Everything was seen: nothing is new.
    let mut sequence = begun(true, 10);
    assert_eq!(sequence.on_silence(), Some(10));
    assert_eq!(sequence.on_replay(&batches(0, 10..11), true), []);
    // The last ones were lost without notice.
    assert_eq!(sequence.on_silence(), Some(10));
    assert_eq!(sequence.on_replay(&batches(0, 10..13), true), [Apply(1), Apply(2)]);
    // The engine restarted and has published nothing since.
    assert_eq!(sequence.on_silence(), Some(12));
    assert_eq!(sequence.on_replay(&[], true), [Replay(0)]);
    assert_eq!(sequence.on_replay(&[], true), [Restarted]);
    assert_eq!(sequence.on_batch(batch(1, 0)), [Whole, Apply(0)]);
}

#[test]
fn without_a_replay_a_connection_that_broke_is_a_loss() {
    let mut sequence = begun(false, 10);
    assert_eq!(sequence.on_connect(), None);
    assert_eq!(sequence.on_batch(batch(0, 10)), [Skip]);
    assert_eq!(sequence.on_batch(batch(0, 11)), [Unsure, Apply(0)], "perhaps another life's");
    assert_eq!(sequence.on_batch(batch(0, 12)), [Apply(0)]);
    assert_eq!(sequence.on_connect(), None);
    assert_eq!(sequence.on_batch(batch(1, 0)), [Restarted, Apply(0)]);
    let mut fresh = BatchSequence::new(false);
    assert_eq!((fresh.on_connect(), fresh.on_batch(batch(0, 0))), (None, vec![Whole, Apply(0)]));
}

#[test]
fn a_clock_that_went_back_does_not_blind_for_ever() {
    let mut sequence = begun(false, 1_000);
    let mut left = 0;
    for number in 0..200 {
        let acts = sequence.on_batch(BatchStamp { number, created_secs: -5.0 });
        left += usize::from(acts == [Skip]);
        if acts == [Restarted, Unsure, Apply(0)] {
            break;
        }
    }
    assert_eq!(left, 63);
    assert_eq!(sequence.on_batch(BatchStamp { number: 64, created_secs: -4.0 }), [Apply(0)]);
}

#[test]
fn an_unreadable_batch_is_a_loss_of_its_own() {
    let mut sequence = begun(true, 3);
    assert_eq!(sequence.on_unreadable(4), [Unsure]);
    assert_eq!(sequence.on_batch(batch(0, 5)), [Apply(0)], "no replay: it would be as unreadable");
    assert_eq!(sequence.on_unreadable(2), [Skip]);
}

/// Engine: the batches published in this life, and how many of them are still in its buffer.
#[derive(Debug, Default)]
struct NumberedEngine {
    life: u32,
    published: u32,
    keeps: u32,
}

impl NumberedEngine {
    fn answer(&self, from: u64) -> Vec<BatchStamp> {
        let first = self.published.saturating_sub(self.keeps).max(u32::try_from(from).unwrap());
        batches(self.life, first.min(self.published)..self.published)
    }
}

#[derive(Debug, Clone, Copy)]
enum EngineStep {
    Published,
    PublishedInVain,
    Repeated,
    RestartedAfter(u32),
    Looked,
}

proptest! {
    #![proptest_config(config(512, 41))]

    /// Whatever is lost, repeated or restarted: without an `Unsure` since the last beginning, the applied batches are
    /// all that the engine of this life published up to the last batch, each once and in order.
    #[test]
    fn what_is_believed_whole_is_whole(
        happenings in proptest::collection::vec(prop_oneof![
            6 => Just(EngineStep::Published),
            2 => Just(EngineStep::PublishedInVain),
            1 => Just(EngineStep::Repeated),
            1 => (0..12_u32).prop_map(EngineStep::RestartedAfter),
            1 => Just(EngineStep::Looked),
        ], 1..80),
        keeps in 1..20_u32,
        replay in any::<bool>(),
    ) {
        let mut engine = NumberedEngine { life: 0, published: 0, keeps };
        let mut sequence = BatchSequence::new(replay);
        let (mut taken, mut whole): (Vec<BatchStamp>, bool) = (Vec::new(), false);
        for happening in happenings {
            let (mut acts, mut source, pending) = match happening {
                EngineStep::Published => {
                    let seen = batch(engine.life, engine.published);
                    engine.published += 1;
                    (sequence.on_batch(seen), vec![seen], Some(seen))
                }
                EngineStep::PublishedInVain => {
                    engine.published += 1;
                    continue;
                }
                EngineStep::Repeated => {
                    let Some(number) = engine.published.checked_sub(1) else { continue };
                    let seen = batch(engine.life, number);
                    // Repeats are of what was delivered.
                    if !taken.contains(&seen) { continue }
                    (sequence.on_batch(seen), vec![seen], Some(seen))
                }
                // Its connections break with it.
                EngineStep::RestartedAfter(in_vain) => {
                    engine = NumberedEngine { life: engine.life + 1, published: in_vain, keeps };
                    match sequence.on_connect() {
                        Some(from) => (vec![Replay(from)], Vec::new(), None),
                        None => continue,
                    }
                }
                EngineStep::Looked => match sequence.on_silence() {
                    Some(from) => (vec![Replay(from)], Vec::new(), None),
                    None => continue,
                },
            };
            let (mut asked, mut place) = (0, 0);
            loop {
                let Some(act) = acts.get(place).copied() else {
                    // After a replay the batch that caused it is passed again, once.
                    if asked > 0 && asked < 10 && let Some(pending) = pending {
                        (acts, source, place, asked) = (sequence.after_replay(pending), vec![pending], 0, 10);
                        continue;
                    }
                    break;
                };
                place += 1;
                match act {
                    Whole | Restarted => {
                        taken.clear();
                        whole = true;
                    }
                    Unsure => whole = false,
                    Apply(at) => taken.push(source[at]),
                    Skip => {}
                    Replay(from) => {
                        asked += 1;
                        prop_assert!(asked <= 2, "it asks without end");
                        source = engine.answer(from);
                        (acts, place) = (sequence.on_replay(&source, true), 0);
                    }
                }
            }
            if whole && let Some(last) = taken.last() {
                let end = u32::try_from(last.number).unwrap() + 1;
                let life = (0..=engine.life).find(|life| batch(*life, end - 1) == *last).unwrap();
                prop_assert_eq!(&taken, &batches(life, 0..end), "of a life without a loss all was taken");
            }
        }
    }
}
