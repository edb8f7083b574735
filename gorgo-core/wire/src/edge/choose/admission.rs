//! The wait between choosing and sending: a request whose chosen replica has enough in flight waits here for its turn.
//!
//! It is decided anew each time it is called, so a replica that is held back or down meanwhile loses those who wait for
//! it. There is no time-out: the queue is bounded, and the client may leave, which gives its place up at once. What it
//! waited is in its times, since these count from the arrival of its head.

use std::sync::Arc;

use crate::edge::Data;
use crate::edge::choose::{Choice, Entry, Place};
use crate::edge::forward::attempt::Attempt;
use crate::edge::forward::buffered_request::Asked;
use crate::edge::forward::seed;
use crate::edge::ledger::{Ledger, micros};
use gorgo_routing::model::{At, DecisionId, ErrorClass, HoldEnd, HoldRecord, Record, Refusal, ReplicaId};
use gorgo_routing::policy::{DecideError, DecisionContext};

/// An attempt whose replica was asked for.
pub(in crate::edge) struct Turn {
    number: u16,
    /// When deciding began.
    since: At,
    entry: Entry,
}

/// A request that goes nowhere.
pub(in crate::edge) struct NotRouted {
    pub(in crate::edge) refusal: Refusal,
    /// After how many seconds it may come again, where that is known.
    pub(in crate::edge) retry_secs: Option<u64>,
}

impl From<DecideError> for NotRouted {
    fn from(error: DecideError) -> Self {
        let retry_secs = if let DecideError::GateFull { retry_secs } = error { Some(retry_secs) } else { None };
        Self { refusal: error.into(), retry_secs }
    }
}

/// Asks for a replica. Those that the wire holds back are chosen only where nobody else is left. `since`: when deciding
/// began; for the first choice, reading the body is part of it.
pub(in crate::edge) fn enter(
    asked: &Asked,
    id: DecisionId,
    tried: &[ReplicaId],
    since: At,
) -> Result<Turn, DecideError> {
    let number = asked.next_number();
    let entry = decide(asked, id, number, tried, |context| asked.data.choose.enter(&asked.prompt, context))?;
    Ok(Turn { number, since, entry })
}

impl Turn {
    /// Waits for its turn, if it must, and begins the attempt.
    pub(in crate::edge) async fn taken(
        self,
        asked: &Asked,
        ledger: &mut Ledger,
        tried: &[ReplicaId],
    ) -> Result<Attempt, NotRouted> {
        let data = &asked.data;
        let Self { number, mut since, mut entry } = self;
        let mut hold = None;
        let choice: Choice = loop {
            match entry {
                Entry::Chosen(choice) => break choice,
                Entry::Waits(place) => {
                    let hold = hold.get_or_insert_with(|| Hold::begin(data, ledger.id, number));
                    hold.place(&*place);
                    tokio::select! {
                        // First: what is cut off makes room, which must not be used.
                        biased;
                        () = data.cut.wait() => {
                            hold.ended = HoldEnd::Shutdown;
                            return Err(NotRouted { refusal: Refusal::Draining, retry_secs: None });
                        }
                        () = place.called() => {}
                    }
                    since = data.clock.now();
                    entry = again(asked, ledger.id, number, tried, place).map_err(|error| {
                        hold.ended = HoldEnd::Refused;
                        NotRouted::from(error)
                    })?;
                }
            }
        };
        if let Some(mut hold) = hold {
            hold.ended = HoldEnd::Dispatched;
            hold.replica = choice.lease.replica();
            ledger.waited(data.clock.now().since(hold.began));
        }
        let reserved = ledger.decided(choice, number, since);
        Ok(Attempt::begin(data, &asked.prompt, ledger, number, data.clock.now(), reserved))
    }
}

/// Decides a request anew that waits. Where only replicas that the wire holds back are left, it enters afresh for them.
fn again(
    asked: &Asked,
    id: DecisionId,
    number: u16,
    tried: &[ReplicaId],
    place: Box<dyn Place>,
) -> Result<Entry, DecideError> {
    let mut place = Some(place);
    decide(asked, id, number, tried, |context| match place.take() {
        Some(place) => place.enter_again(&asked.prompt, context),
        None => asked.data.choose.enter(&asked.prompt, context),
    })
}

fn decide<T>(
    asked: &Asked,
    id: DecisionId,
    number: u16,
    tried: &[ReplicaId],
    mut by: impl FnMut(&DecisionContext<'_>) -> Result<T, DecideError>,
) -> Result<T, DecideError> {
    let data = &asked.data;
    let (at, seed) = (data.clock.now(), seed(data.seed, id.0, number));
    let mut by = |exclude: &[ReplicaId]| by(&DecisionContext { policy: data.serving.get(), id, seed, at, exclude });
    let mut held_back = data.vitals.ejections().held_back(at);
    if held_back.is_empty() {
        return by(tried);
    }
    held_back.extend_from_slice(tried);
    by(&held_back).or_else(|error| if matches!(error, DecideError::GateFull { .. }) { Err(error) } else { by(tried) })
}

/// Chooses a replica that has room now and begins an attempt there: for a second one beside one that is late, which
/// would be no use in a queue.
pub(in crate::edge) fn choose_now(
    asked: &Asked,
    ledger: &mut Ledger,
    tried: &[ReplicaId],
) -> Result<Attempt, DecideError> {
    let data = &asked.data;
    let (since, number) = (data.clock.now(), asked.next_number());
    let choice = decide(asked, ledger.id, number, tried, |context| data.choose.decide(&asked.prompt, context))?;
    let reserved = ledger.decided(choice, number, since);
    Ok(Attempt::begin(data, &asked.prompt, ledger, number, since, reserved))
}

/// A wait that goes on. Its row is written when it is dropped, whatever ended it.
struct Hold {
    data: Arc<Data>,
    decision: DecisionId,
    number: u16,
    began: At,
    replica: ReplicaId,
    moves: u16,
    ended: HoldEnd,
}

impl Hold {
    fn begin(data: &Arc<Data>, decision: DecisionId, number: u16) -> Self {
        let began = data.clock.now();
        let data = Arc::clone(data);
        Self { data, decision, number, began, replica: ReplicaId(0), moves: 0, ended: HoldEnd::ClientGone }
    }

    fn place(&mut self, place: &dyn Place) {
        (self.replica, self.moves) = (place.replica(), place.moves());
    }
}

impl Drop for Hold {
    fn drop(&mut self) {
        let abandoned = self.data.abandoned() == ErrorClass::Shutdown && self.ended == HoldEnd::ClientGone;
        self.data.outlet.record(Record::Hold(HoldRecord {
            decision: self.decision,
            attempt: self.number,
            replica: self.replica,
            moves: self.moves,
            held_us: micros(self.data.clock.now().since(self.began)),
            ended: if abandoned { HoldEnd::Shutdown } else { self.ended },
        }));
    }
}
