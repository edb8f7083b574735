//! Everything that an engine may do, with the resulting actions.

use proptest::prelude::*;
use proptest::test_runner::RngSeed;

use super::Act::{Ask, Leave, Restarted, Take, Unsure, Whole};
use super::*;

fn config(cases: u32, seed: u64) -> ProptestConfig {
    ProptestConfig { cases, rng_seed: RngSeed::Fixed(seed), failure_persistence: None, ..ProptestConfig::default() }
}

/// Batch of an engine's life: lives are a thousand seconds apart.
fn batch(life: u32, number: u32) -> Seen {
    Seen { number: u64::from(number), made: f64::from(life) * 1_000.0 + f64::from(number) }
}

fn batches(life: u32, numbers: std::ops::Range<u32>) -> Vec<Seen> {
    numbers.map(|number| batch(life, number)).collect()
}

fn begun(replay: bool, last: u32) -> Sequence {
    let mut sequence = Sequence::new(replay);
    for seen in batches(0, 0..last + 1) {
        sequence.live(seen);
    }
    sequence
}

#[test]
fn in_order_from_the_beginning() {
    let mut sequence = Sequence::new(false);
    assert_eq!(sequence.live(batch(0, 0)), [Whole, Take(0)]);
    assert_eq!(sequence.live(batch(0, 1)), [Take(0)]);
    assert_eq!(sequence.live(batch(0, 1)), [Leave]);
    assert_eq!(sequence.live(batch(0, 2)), [Take(0)]);
}

#[test]
fn a_gap_without_a_replay_is_a_loss_and_said_once() {
    let mut sequence = begun(false, 10);
    assert_eq!(sequence.live(batch(0, 16)), [Unsure, Take(0)]);
    assert_eq!(sequence.live(batch(0, 16)), [Leave]);
    assert_eq!(sequence.live(batch(0, 17)), [Take(0)]);
    assert_eq!(Sequence::new(false).live(batch(0, 5)), [Unsure, Take(0)], "what came before is not known");
    assert_eq!(Sequence::new(false).look(), None);
}

#[test]
fn a_gap_is_asked_for_once_and_filled() {
    let mut sequence = begun(true, 10);
    assert_eq!(sequence.live(batch(0, 16)), [Ask(10)]);
    // The engine's buffer also contains the batch that caused the replay.
    let answer = batches(0, 10..17);
    assert_eq!(sequence.replayed(&answer, true), (1..7).map(Take).collect::<Vec<_>>());
    assert_eq!(sequence.after(batch(0, 16)), [Leave]);
    assert_eq!(sequence.live(batch(0, 17)), [Take(0)]);
}

#[test]
fn a_replay_with_holes_or_without_an_end_is_a_loss() {
    let mut sequence = begun(true, 10);
    sequence.live(batch(0, 16));
    let mut answer = batches(0, 10..17);
    answer.remove(3);
    assert_eq!(sequence.replayed(&answer, true), [vec![Unsure], (1..6).map(Take).collect()].concat());

    let mut sequence = begun(true, 10);
    sequence.live(batch(0, 16));
    assert_eq!(sequence.replayed(&batches(0, 10..13), false), [Unsure, Take(1), Take(2)]);
    assert_eq!(sequence.after(batch(0, 16)), [Unsure, Take(0)], "and is not asked for again");
    assert_eq!(sequence.live(batch(0, 17)), [Take(0)]);

    // The buffer begins later.
    let mut sequence = begun(true, 10);
    sequence.live(batch(0, 50));
    let acts = sequence.replayed(&batches(0, 40..51), true);
    assert_eq!((acts[0], acts.len()), (Unsure, 12));
    // The buffer begins right after the last batch seen, which may also be the case after a restart.
    let mut sequence = begun(true, 10);
    sequence.live(batch(0, 13));
    assert_eq!(sequence.replayed(&batches(0, 11..14), true), [Unsure, Take(0), Take(1), Take(2)]);
    // Nothing answers.
    let mut sequence = begun(true, 10);
    sequence.live(batch(0, 13));
    assert_eq!(sequence.replayed(&[], false), [Unsure]);
    assert_eq!(sequence.after(batch(0, 13)), [Unsure, Take(0)]);
}

#[test]
fn a_restart_begins_at_zero() {
    let mut sequence = begun(true, 10);
    assert_eq!(sequence.live(batch(1, 0)), [Restarted, Take(0)]);
    assert_eq!(sequence.live(batch(1, 1)), [Take(0)]);
    assert_eq!(sequence.live(batch(0, 9)), [Leave], "one of the life before");
}

#[test]
fn a_restart_whose_beginning_was_missed() {
    let mut sequence = begun(true, 10);
    assert_eq!(sequence.live(batch(1, 3)), [Ask(0)]);
    assert_eq!(sequence.replayed(&batches(1, 0..4), true), [Restarted, Take(0), Take(1), Take(2), Take(3)]);
    assert_eq!(sequence.after(batch(1, 3)), [Leave]);

    let mut sequence = begun(false, 10);
    assert_eq!(sequence.live(batch(1, 3)), [Restarted, Unsure, Take(0)]);
}

#[test]
fn a_restart_that_looks_like_a_gap_is_found_by_the_last_batch() {
    // Ten were seen; the restarted engine is at sixteen already.
    let mut sequence = begun(true, 10);
    assert_eq!(sequence.live(batch(1, 16)), [Ask(10)]);
    assert_eq!(sequence.replayed(&batches(1, 10..17), true), [Ask(0)]);
    let acts = sequence.replayed(&batches(1, 0..17), true);
    assert_eq!((acts[0], acts.len()), (Restarted, 18));
    assert_eq!(sequence.after(batch(1, 16)), [Leave]);
}

#[test]
fn a_look_after_silence_or_a_new_connection() {
    // Nothing was seen, and the engine has published nothing.
    let mut sequence = Sequence::new(true);
    assert_eq!(sequence.look(), Some(0));
    assert_eq!(sequence.replayed(&[], true), [Whole]);
    assert_eq!(sequence.live(batch(0, 0)), [Whole, Take(0)]);
    // It has published, all of it is there.
    let mut sequence = Sequence::new(true);
    assert_eq!(sequence.look(), Some(0));
    assert_eq!(sequence.replayed(&batches(0, 0..3), true), [Whole, Take(0), Take(1), Take(2)]);
    assert_eq!(sequence.live(batch(0, 2)), [Leave]);
    // The beginning is gone.
    let mut sequence = Sequence::new(true);
    let _ = sequence.look();
    assert_eq!(sequence.replayed(&batches(0, 7..9), true), [Unsure, Take(0), Take(1)]);
    // Everything was seen: nothing is new.
    let mut sequence = begun(true, 10);
    assert_eq!(sequence.look(), Some(10));
    assert_eq!(sequence.replayed(&batches(0, 10..11), true), []);
    // The last ones were lost without notice.
    assert_eq!(sequence.look(), Some(10));
    assert_eq!(sequence.replayed(&batches(0, 10..13), true), [Take(1), Take(2)]);
    // The engine restarted and has published nothing since.
    assert_eq!(sequence.look(), Some(12));
    assert_eq!(sequence.replayed(&[], true), [Ask(0)]);
    assert_eq!(sequence.replayed(&[], true), [Restarted]);
    assert_eq!(sequence.live(batch(1, 0)), [Whole, Take(0)]);
}

#[test]
fn without_a_replay_a_connection_that_broke_is_a_loss() {
    let mut sequence = begun(false, 10);
    assert_eq!(sequence.connected(), None);
    assert_eq!(sequence.live(batch(0, 10)), [Leave]);
    assert_eq!(sequence.live(batch(0, 11)), [Unsure, Take(0)], "perhaps another life's");
    assert_eq!(sequence.live(batch(0, 12)), [Take(0)]);
    assert_eq!(sequence.connected(), None);
    assert_eq!(sequence.live(batch(1, 0)), [Restarted, Take(0)]);
    let mut fresh = Sequence::new(false);
    assert_eq!((fresh.connected(), fresh.live(batch(0, 0))), (None, vec![Whole, Take(0)]));
}

#[test]
fn a_clock_that_went_back_does_not_blind_for_ever() {
    let mut sequence = begun(false, 1_000);
    let mut left = 0;
    for number in 0..200 {
        let acts = sequence.live(Seen { number, made: -5.0 });
        left += usize::from(acts == [Leave]);
        if acts == [Restarted, Unsure, Take(0)] {
            break;
        }
    }
    assert_eq!(left, 63);
    assert_eq!(sequence.live(Seen { number: 64, made: -4.0 }), [Take(0)]);
}

#[test]
fn an_unreadable_batch_is_a_loss_of_its_own() {
    let mut sequence = begun(true, 3);
    assert_eq!(sequence.unreadable(4), [Unsure]);
    assert_eq!(sequence.live(batch(0, 5)), [Take(0)], "no replay: it would be as unreadable");
    assert_eq!(sequence.unreadable(2), [Leave]);
}

/// Engine: the batches published in this life, and how many of them are still in its buffer.
#[derive(Debug, Default)]
struct Engine {
    life: u32,
    published: u32,
    keeps: u32,
}

impl Engine {
    fn answer(&self, from: u64) -> Vec<Seen> {
        let first = self.published.saturating_sub(self.keeps).max(u32::try_from(from).unwrap());
        batches(self.life, first.min(self.published)..self.published)
    }
}

#[derive(Debug, Clone, Copy)]
enum Happening {
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
            6 => Just(Happening::Published),
            2 => Just(Happening::PublishedInVain),
            1 => Just(Happening::Repeated),
            1 => (0..12_u32).prop_map(Happening::RestartedAfter),
            1 => Just(Happening::Looked),
        ], 1..80),
        keeps in 1..20_u32,
        replay in any::<bool>(),
    ) {
        let mut engine = Engine { life: 0, published: 0, keeps };
        let mut sequence = Sequence::new(replay);
        let (mut taken, mut whole): (Vec<Seen>, bool) = (Vec::new(), false);
        for happening in happenings {
            let (mut acts, mut source, pending) = match happening {
                Happening::Published => {
                    let seen = batch(engine.life, engine.published);
                    engine.published += 1;
                    (sequence.live(seen), vec![seen], Some(seen))
                }
                Happening::PublishedInVain => {
                    engine.published += 1;
                    continue;
                }
                Happening::Repeated => {
                    let Some(number) = engine.published.checked_sub(1) else { continue };
                    let seen = batch(engine.life, number);
                    // Repeats are of what was delivered.
                    if !taken.contains(&seen) { continue }
                    (sequence.live(seen), vec![seen], Some(seen))
                }
                // Its connections break with it.
                Happening::RestartedAfter(in_vain) => {
                    engine = Engine { life: engine.life + 1, published: in_vain, keeps };
                    match sequence.connected() {
                        Some(from) => (vec![Ask(from)], Vec::new(), None),
                        None => continue,
                    }
                }
                Happening::Looked => match sequence.look() {
                    Some(from) => (vec![Ask(from)], Vec::new(), None),
                    None => continue,
                },
            };
            let (mut asked, mut place) = (0, 0);
            loop {
                let Some(act) = acts.get(place).copied() else {
                    // After a replay the batch that caused it is passed again, once.
                    if asked > 0 && asked < 10 && let Some(pending) = pending {
                        (acts, source, place, asked) = (sequence.after(pending), vec![pending], 0, 10);
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
                    Take(at) => taken.push(source[at]),
                    Leave => {}
                    Ask(from) => {
                        asked += 1;
                        prop_assert!(asked <= 2, "it asks without end");
                        source = engine.answer(from);
                        (acts, place) = (sequence.replayed(&source, true), 0);
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
