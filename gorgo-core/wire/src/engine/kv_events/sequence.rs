//! The numbers of an engine's batches: which batch is next, which are missing, and whether it is still the same engine.
//!
//! No I/O: whoever reads the socket shows each batch's number and time, does what is answered, and where it is to ask,
//! shows what came of that. Engines number from 0, keep the last batches for who asks (a replay), and a restarted one
//! begins at 0 without a word. So a number that was passed already is a repeat if its batch is not newer than the last one,
//! else another life of the engine. What is missing is asked for once, from the last batch that was seen on: if that
//! one comes back with another time, or not at all, this is not the engine that sent it.

/// Repeats in a row after which it is no repeat: an engine whose clock went back when it restarted.
const MOST_REPEATS: u32 = 64;

/// Number and time of a batch.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Seen {
    /// From 0.
    pub number: u64,
    /// The engine's clock, seconds.
    pub made: f64,
}

/// What to do, in this order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Act {
    /// Nothing was known; what follows is all of the engine's life.
    Whole,
    /// The engine restarted: it holds nothing, what follows is all of its life.
    Restarted,
    /// Something is lost for good.
    Unsure,
    /// Take in the batch; of a replay, the one at that place.
    Take(usize),
    /// Leave the batch out: it was seen.
    Leave,
    /// Ask for what the engine still has from this number on, then show it by [`Sequence::replayed`].
    Ask(u64),
}

/// Why it was asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Why {
    /// For all, at the beginning of the router's life or of the engine's.
    All { restarted: bool },
    /// From the last batch that was seen on.
    Since,
}

/// See the module.
#[derive(Debug)]
pub struct Sequence {
    last: Option<Seen>,
    /// Whether the engine can be asked.
    replay: bool,
    asked: Option<Why>,
    repeats: u32,
    /// The connection broke, and nobody can say what was lost.
    doubt: bool,
}

impl Sequence {
    /// Nothing was seen. `replay`: whether the engine can be asked for what is missing.
    #[must_use]
    pub const fn new(replay: bool) -> Self {
        Self { last: None, replay, asked: None, repeats: 0, doubt: false }
    }

    /// The connection is new: whatever was sent before it is asked for from the number given. `None`: nobody to ask; then a
    /// connection that broke is a loss.
    #[must_use]
    pub fn connected(&mut self) -> Option<u64> {
        self.doubt = !self.replay && self.last.is_some();
        self.look()
    }

    /// It was silent for long: what may have been lost since the last batch is asked for from the number given.
    #[must_use]
    pub fn look(&mut self) -> Option<u64> {
        if !self.replay {
            return None;
        }
        self.asked = Some(self.last.map_or(Why::All { restarted: false }, |_| Why::Since));
        Some(self.last.map_or(0, |last| last.number))
    }

    /// A batch came.
    pub fn live(&mut self, batch: Seen) -> Vec<Act> {
        let Some(last) = self.last else {
            return match batch.number {
                0 => self.take(batch, Act::Whole),
                _ => self.ask(0, Why::All { restarted: false }).unwrap_or_else(|| self.take(batch, Act::Unsure)),
            };
        };
        if batch.number == last.number.wrapping_add(1) && !self.doubt {
            self.repeats = 0;
            self.last = Some(batch);
            return vec![Act::Take(0)];
        }
        let ahead = batch.number > last.number;
        // Not newer than the last one: seen before, or of the life before this one.
        if (batch.made < last.made || (batch.made == last.made && !ahead)) && self.repeats < MOST_REPEATS - 1 {
            self.repeats += 1;
            return vec![Act::Leave];
        }
        if ahead {
            return self.ask(last.number, Why::Since).unwrap_or_else(|| self.take(batch, Act::Unsure));
        }
        if batch.number == 0 {
            return self.take(batch, Act::Restarted);
        }
        self.last = None;
        self.ask(0, Why::All { restarted: true }).unwrap_or_else(|| {
            let mut acts = vec![Act::Restarted];
            acts.extend(self.take(batch, Act::Unsure));
            acts
        })
    }

    /// A batch came whose changes cannot be read.
    pub fn unreadable(&mut self, number: u64) -> Vec<Act> {
        let made = self.last.map_or(0.0, |last| last.made);
        if self.last.is_some_and(|last| number <= last.number) {
            return vec![Act::Leave];
        }
        self.repeats = 0;
        self.last = Some(Seen { number, made });
        vec![Act::Unsure]
    }

    /// What came of asking: the batches, in order; `whole`: to the end. Then the batch that made it ask is to be shown
    /// again by [`Sequence::after`].
    pub fn replayed(&mut self, batches: &[Seen], whole: bool) -> Vec<Act> {
        let Some(why) = self.asked.take() else { return Vec::new() };
        match (why, self.last, batches.first()) {
            (Why::Since, Some(last), first) => {
                let same = batches.iter().position(|batch| batch.number == last.number);
                match (same, first) {
                    (Some(at), _) if batches[at].made == last.made => self.follow(batches, at + 1, whole, None),
                    // It has forgotten that one; what begins right behind it may be another life's.
                    (None, Some(first)) if first.number > last.number => self.follow(batches, 0, false, None),
                    // Nothing at all, or nobody answered.
                    (None, None) if !whole => vec![Act::Unsure],
                    // Another life.
                    _ => {
                        self.last = None;
                        self.asked = Some(Why::All { restarted: true });
                        vec![Act::Ask(0)]
                    }
                }
            }
            (Why::All { restarted }, _, first) => {
                let begin = if restarted { Act::Restarted } else { Act::Whole };
                let complete = whole && first.is_none_or(|first| first.number == 0);
                match (complete, restarted) {
                    (true, _) => self.follow(batches, 0, true, Some(begin)),
                    (false, true) => {
                        let mut acts = vec![Act::Restarted];
                        acts.extend(self.follow(batches, 0, false, None));
                        acts
                    }
                    (false, false) => self.follow(batches, 0, false, None),
                }
            }
            (Why::Since, None, _) => vec![Act::Unsure],
        }
    }

    /// The batch that made it ask, once that was done: there is no second time.
    pub fn after(&mut self, batch: Seen) -> Vec<Act> {
        match self.last {
            Some(last) if batch.number <= last.number => vec![Act::Leave],
            Some(last) if batch.number == last.number.wrapping_add(1) => {
                self.last = Some(batch);
                vec![Act::Take(0)]
            }
            None if batch.number == 0 => {
                self.last = Some(batch);
                vec![Act::Take(0)]
            }
            _ => self.take(batch, Act::Unsure),
        }
    }

    /// Takes the batches from a place on; they must be one after the other, or something is lost.
    fn follow(&mut self, batches: &[Seen], from: usize, whole: bool, begin: Option<Act>) -> Vec<Act> {
        self.repeats = 0;
        let rest = batches.get(from..).unwrap_or_default();
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
        let mut acts: Vec<Act> = begin.into_iter().collect();
        if !unbroken {
            // What was known goes first: the batches that came are true whatever is missing between them.
            acts.push(Act::Unsure);
        }
        acts.extend((from..batches.len()).map(Act::Take));
        self.last = batches.last().copied().or(self.last);
        acts
    }

    fn ask(&mut self, from: u64, why: Why) -> Option<Vec<Act>> {
        if !self.replay {
            return None;
        }
        self.asked = Some(why);
        Some(vec![Act::Ask(from)])
    }

    fn take(&mut self, batch: Seen, before: Act) -> Vec<Act> {
        (self.repeats, self.doubt) = (0, false);
        self.last = Some(batch);
        vec![before, Act::Take(0)]
    }
}

#[cfg(test)]
mod tests;
