//! Sequence of an engine's batch numbers: which batch is next, which are missing, and whether it is still the same
//! engine.
//!
//! No I/O: the reader of the socket passes each batch's number and time, does what is returned, and after a replay
//! passes its result. Engines number from 0, keep the last batches for replays, and a restarted one begins at 0 without
//! notice. So a number that was passed already is a repeat if its batch is not newer than the last one; otherwise the
//! engine has restarted. Missing batches are requested once, from the last batch that was seen on: if that one comes
//! back with another time, or not at all, this is not the engine that sent it.

/// Repeats in a row after which a batch no longer counts as one: an engine whose clock went back when it restarted.
const MOST_REPEATS: u32 = 64;

/// Number and time of a batch.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct BatchStamp {
    /// Number, from 0.
    pub number: u64,
    /// Time by the engine's clock, seconds.
    pub created_secs: f64,
}

/// Action to take; actions are taken in order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SequenceAction {
    /// Nothing was known before; what follows is everything since the engine started.
    Whole,
    /// The engine restarted: its cache is empty, and what follows is everything since.
    Restarted,
    /// Something is lost for good.
    Unsure,
    /// Apply the batch; of a replay, the one at that position.
    Apply(usize),
    /// Skip the batch: it was seen.
    Skip,
    /// Request what the engine still has from this number on, then pass it to [`BatchSequence::on_replay`].
    Replay(u64),
}

/// Reason for a replay.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ReplayReason {
    /// Everything, at the start of the router or of the engine.
    All { restarted: bool },
    /// From the last batch that was seen on.
    Since,
}

/// State of the sequence; see the module.
#[derive(Debug)]
pub struct BatchSequence {
    last: Option<BatchStamp>,
    /// True if the engine answers replays.
    replay: bool,
    asked: Option<ReplayReason>,
    repeats: u32,
    /// The connection broke, so an unknown number of batches may be lost.
    may_have_lost: bool,
}

impl BatchSequence {
    /// Sequence without any batch. `replay`: whether the engine can be asked for missing ones.
    #[must_use]
    pub const fn new(replay: bool) -> Self {
        Self { last: None, replay, asked: None, repeats: 0, may_have_lost: false }
    }

    /// Records a new connection. Returns the number from which batches must be requested, because some may have been
    /// sent before it. `None`: no replay is possible; a connection that broke is then a loss.
    #[must_use]
    pub fn on_connect(&mut self) -> Option<u64> {
        self.may_have_lost = !self.replay && self.last.is_some();
        self.on_silence()
    }

    /// Records a long silence. Returns the number from which batches must be requested, because the last may be lost.
    #[must_use]
    pub fn on_silence(&mut self) -> Option<u64> {
        if !self.replay {
            return None;
        }
        self.asked = Some(self.last.map_or(ReplayReason::All { restarted: false }, |_| ReplayReason::Since));
        Some(self.last.map_or(0, |last| last.number))
    }

    /// Takes a batch.
    pub fn on_batch(&mut self, batch: BatchStamp) -> Vec<SequenceAction> {
        let Some(last) = self.last else {
            // Number 0 is the start of the engine's life; with any other, everything before it is missing.
            return match batch.number {
                0 => self.take(batch, SequenceAction::Whole),
                _ => self
                    .ask(0, ReplayReason::All { restarted: false })
                    .unwrap_or_else(|| self.take(batch, SequenceAction::Unsure)),
            };
        };
        // The usual case. After a broken connection the next number proves nothing: a restarted engine may have reached
        // it too.
        if batch.number == last.number.wrapping_add(1) && !self.may_have_lost {
            self.repeats = 0;
            self.last = Some(batch);
            return vec![SequenceAction::Apply(0)];
        }
        let ahead = batch.number > last.number;
        // Not newer than the last one: seen before, or from before a restart.
        if (batch.created_secs < last.created_secs || (batch.created_secs == last.created_secs && !ahead))
            && self.repeats < MOST_REPEATS - 1
        {
            self.repeats += 1;
            return vec![SequenceAction::Skip];
        }
        // Newer and further: batches in between are missing.
        if ahead {
            return self
                .ask(last.number, ReplayReason::Since)
                .unwrap_or_else(|| self.take(batch, SequenceAction::Unsure));
        }
        if batch.number == 0 {
            return self.take(batch, SequenceAction::Restarted);
        }
        // Newer, yet with a smaller number: the engine restarted and its first batches were missed.
        self.last = None;
        self.ask(0, ReplayReason::All { restarted: true }).unwrap_or_else(|| {
            let mut acts = vec![SequenceAction::Restarted];
            acts.extend(self.take(batch, SequenceAction::Unsure));
            acts
        })
    }

    /// Takes a batch whose changes cannot be read.
    pub fn on_unreadable(&mut self, number: u64) -> Vec<SequenceAction> {
        // Its time is unknown; the last known one keeps the comparisons above valid.
        let made = self.last.map_or(0.0, |last| last.created_secs);
        if self.last.is_some_and(|last| number <= last.number) {
            return vec![SequenceAction::Skip];
        }
        self.repeats = 0;
        self.last = Some(BatchStamp { number, created_secs: made });
        vec![SequenceAction::Unsure]
    }

    /// Takes the result of a replay: the batches, in order; `whole`: received to the end. Pass the batch that caused
    /// the replay to [`BatchSequence::after_replay`] next.
    pub fn on_replay(&mut self, batches: &[BatchStamp], whole: bool) -> Vec<SequenceAction> {
        let Some(why) = self.asked.take() else { return Vec::new() };
        match (why, self.last, batches.first()) {
            (ReplayReason::Since, Some(last), first) => {
                let same = batches.iter().position(|batch| batch.number == last.number);
                match (same, first) {
                    (Some(at), _) if batches[at].created_secs == last.created_secs => {
                        self.follow(batches, at + 1, whole, None)
                    }
                    // The engine no longer has that batch; the next one it has may already be from after a restart.
                    (None, Some(first)) if first.number > last.number => self.follow(batches, 0, false, None),
                    // Nothing was received, or nothing answered.
                    (None, None) if !whole => vec![SequenceAction::Unsure],
                    // The engine restarted.
                    _ => {
                        self.last = None;
                        self.asked = Some(ReplayReason::All { restarted: true });
                        vec![SequenceAction::Replay(0)]
                    }
                }
            }
            (ReplayReason::All { restarted }, _, first) => {
                let begin = if restarted { SequenceAction::Restarted } else { SequenceAction::Whole };
                // An answer that begins later than 0 lacks the engine's first batches.
                let complete = whole && first.is_none_or(|first| first.number == 0);
                match (complete, restarted) {
                    (true, _) => self.follow(batches, 0, true, Some(begin)),
                    (false, true) => {
                        let mut acts = vec![SequenceAction::Restarted];
                        acts.extend(self.follow(batches, 0, false, None));
                        acts
                    }
                    (false, false) => self.follow(batches, 0, false, None),
                }
            }
            (ReplayReason::Since, None, _) => vec![SequenceAction::Unsure],
        }
    }

    /// Takes the batch that caused the replay, after it; there is no second replay.
    pub fn after_replay(&mut self, batch: BatchStamp) -> Vec<SequenceAction> {
        match self.last {
            Some(last) if batch.number <= last.number => vec![SequenceAction::Skip],
            Some(last) if batch.number == last.number.wrapping_add(1) => {
                self.last = Some(batch);
                vec![SequenceAction::Apply(0)]
            }
            None if batch.number == 0 => {
                self.last = Some(batch);
                vec![SequenceAction::Apply(0)]
            }
            _ => self.take(batch, SequenceAction::Unsure),
        }
    }

    /// Applies the batches from a position on; they must be consecutive, or something is lost.
    fn follow(
        &mut self,
        batches: &[BatchStamp],
        from: usize,
        whole: bool,
        begin: Option<SequenceAction>,
    ) -> Vec<SequenceAction> {
        self.repeats = 0;
        let rest = batches.get(from..).unwrap_or_default();
        // Expected first number: 0 for a whole life, the one after the known batch, or whatever comes first.
        let mut expected = match (begin, from.checked_sub(1).and_then(|before| batches.get(before))) {
            (Some(_), _) => Some(0),
            (None, Some(before)) => Some(before.number.wrapping_add(1)),
            (None, None) => rest.first().map(|first| first.number),
        };
        let mut unbroken = whole;
        for batch in rest {
            unbroken &= Some(batch.number) == expected;
            expected = Some(batch.number.wrapping_add(1));
        }
        let mut acts: Vec<SequenceAction> = begin.into_iter().collect();
        if !unbroken {
            // First forget what was known; the batches received are true whatever is missing between them.
            acts.push(SequenceAction::Unsure);
        }
        acts.extend((from..batches.len()).map(SequenceAction::Apply));
        self.last = batches.last().copied().or(self.last);
        acts
    }

    fn ask(&mut self, from: u64, why: ReplayReason) -> Option<Vec<SequenceAction>> {
        if !self.replay {
            return None;
        }
        self.asked = Some(why);
        Some(vec![SequenceAction::Replay(from)])
    }

    fn take(&mut self, batch: BatchStamp, before: SequenceAction) -> Vec<SequenceAction> {
        (self.repeats, self.may_have_lost) = (0, false);
        self.last = Some(batch);
        vec![before, SequenceAction::Apply(0)]
    }
}

#[cfg(test)]
mod tests;
