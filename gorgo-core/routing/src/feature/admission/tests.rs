//! The gate's laws, over random histories, and what each rule is for.

use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;

use super::*;
use crate::model::EngineReport;
use crate::model::arbitrary::{fixed, fleet};

const R: ReplicaId = ReplicaId(0);

fn at(ms: u64) -> UnixMicros {
    UnixMicros(1_000_000_000 + ms * 1_000)
}

fn rule(max_in_flight: u32, max_queued: u32) -> AdmissionRule {
    AdmissionRule {
        max_in_flight: Some(max_in_flight),
        max_queued,
        hold_cold: true,
        cold_ms: 100.0,
        backlog_ms: 400.0,
        ageing: 0.5,
    }
}

fn wish(work_ms: f64, gap_ms: f64) -> AdmissionRequest {
    AdmissionRequest { prompt_tokens: 100, uncached_tokens: 60, work_ms, backlog_ms: 0.0, gap_ms }
}

/// Somebody who drives a gate: sends requests, answers calls, and keeps book.
struct GateDriver {
    gate: AdmissionGate,
    rule: AdmissionRule,
    now: u64,
    waiting: BTreeMap<u64, (QueueTicket, AdmissionRequest)>,
    passes: Vec<AdmissionPermit>,
    /// In order.
    sent: Vec<(ReplicaId, u64)>,
    left: BTreeSet<u64>,
    shed: u32,
}

impl GateDriver {
    fn new(replicas: u16, rule: AdmissionRule) -> Self {
        Self {
            gate: AdmissionGate::new(&fleet(replicas)),
            rule,
            now: 0,
            waiting: BTreeMap::new(),
            passes: Vec::new(),
            sent: Vec::new(),
            left: BTreeSet::new(),
            shed: 0,
        }
    }

    fn admit(&mut self, replica: ReplicaId, wish: AdmissionRequest, again: Option<WithdrawnTicket>) {
        let again = again.map(|before| (before, true));
        match self.gate.admit(&self.rule, at(self.now), replica, &wish, again) {
            AdmissionResult::Pass(pass) => {
                self.sent.push((pass.replica, pass.number));
                self.passes.push(pass);
            }
            AdmissionResult::Wait(ticket) => {
                assert!(self.waiting.insert(ticket.number(), (ticket, wish)).is_none(), "it waits twice");
            }
            AdmissionResult::Full => self.shed += 1,
        }
    }

    fn arrive(&mut self, replica: ReplicaId, wish: AdmissionRequest) {
        self.now += 1;
        self.admit(replica, wish, None);
    }

    /// All who are called are decided anew, by `choose`.
    fn answer(&mut self, choose: impl Fn(u64, ReplicaId) -> ReplicaId) {
        loop {
            let called = self.gate.take_called();
            if called.is_empty() {
                return;
            }
            for number in called {
                let Some((ticket, wish)) = self.waiting.remove(&number) else { continue };
                let replica = ticket.replica();
                let before = self.gate.withdraw(ticket);
                let chosen = before.settled().unwrap_or_else(|| choose(number, replica));
                self.admit(chosen, wish, Some(before));
                self.gate.call(before.replica(), 0.0);
            }
        }
    }

    fn finish(&mut self, place: usize) {
        self.now += 1;
        let pass = self.passes.remove(place);
        let replica = pass.replica;
        self.gate.release(pass);
        self.gate.call(replica, 0.0);
    }

    fn leave(&mut self, number: u64) {
        let Some((ticket, _)) = self.waiting.remove(&number) else { return };
        let before = self.gate.withdraw(ticket);
        self.gate.call(before.replica(), 0.0);
        assert!(self.left.insert(number));
    }
}

/// Whoever is called takes the replica that it waited for.
fn stays(_: u64, replica: ReplicaId) -> ReplicaId {
    replica
}

#[test]
fn who_is_shed_is_told_how_long_those_who_wait_will_take() {
    let mut driver = GateDriver::new(1, rule(2, 6));
    for _ in 0..2 {
        driver.arrive(R, wish(10.0, 0.0));
    }
    assert_eq!(driver.gate.patience_secs(R, at(driver.now)), 1, "nobody waits");
    for _ in 0..6 {
        driver.arrive(R, wish(10.0, 0.0));
    }
    // None has gone since the queue formed, 4 s ago: six times 4 s and a little at least.
    driver.now += 4_000;
    assert_eq!(driver.gate.patience_secs(R, at(driver.now)), 25);
    for _ in 0..4 {
        driver.now += 500;
        driver.finish(0);
        driver.answer(stays);
    }
    // Four in 6 s, and two are left.
    assert_eq!((driver.gate.counts(R).1, driver.gate.patience_secs(R, at(driver.now))), (2, 4));
    driver.now += 10_000_000;
    assert_eq!(driver.gate.patience_secs(R, at(driver.now)), 60, "never longer");
    while !driver.passes.is_empty() {
        driver.finish(0);
        driver.answer(stays);
    }
    assert_eq!(driver.gate.patience_secs(R, at(driver.now)), 1, "the queue is gone");
}

#[test]
fn beyond_its_room_a_replica_makes_wait_then_shed() {
    let mut driver = GateDriver::new(1, rule(2, 3));
    for _ in 0..8 {
        driver.arrive(R, wish(10.0, 0.0));
    }
    assert_eq!((driver.sent.len(), driver.waiting.len(), driver.shed), (2, 3, 3));
    let ahead = driver.gate.ahead(R, None);
    assert_eq!((ahead.requests, ahead.prompt_tokens, ahead.uncached_tokens), (3, 300, 180));
    assert!((ahead.work_ms - 150.0).abs() < 1e-9, "each takes its own 10 ms and 40 ms of a batch");
    driver.finish(0);
    driver.answer(stays);
    assert_eq!(driver.sent.last(), Some(&(R, 2)), "first come, first served");
    assert_eq!(driver.gate.counts(R), (2, 2));
}

#[test]
fn a_place_that_was_set_aside_is_nobody_elses() {
    let mut driver = GateDriver::new(1, rule(1, 9));
    for _ in 0..2 {
        driver.arrive(R, wish(10.0, 0.0));
    }
    driver.finish(0);
    // The one that waited is called and has not answered; another comes in between.
    driver.arrive(R, wish(10.0, 0.0));
    assert_eq!(driver.gate.counts(R), (0, 2));
    // It leaves without answering: the place goes on to the next.
    driver.leave(1);
    driver.answer(stays);
    assert_eq!(driver.sent, [(R, 0), (R, 2)]);
}

#[test]
fn the_largest_gap_goes_first_and_age_catches_up() {
    let order = |gaps: &[(u64, f64)]| {
        let mut driver = GateDriver::new(1, rule(1, 99));
        driver.arrive(R, wish(10.0, 0.0));
        for (now, gap_ms) in gaps {
            driver.now = *now;
            driver.admit(R, wish(10.0, *gap_ms), None);
        }
        while !driver.passes.is_empty() {
            driver.finish(0);
            driver.answer(stays);
        }
        driver.sent.iter().skip(1).map(|(_, number)| *number).collect::<Vec<_>>()
    };
    assert_eq!(order(&[(10, 0.0), (20, 300.0), (30, 100.0)]), [2, 3, 1]);
    // A gap of 300 ms is worth 600 ms of waiting.
    assert_eq!(order(&[(10, 0.0), (609, 300.0)]), [2, 1]);
    assert_eq!(order(&[(10, 0.0), (611, 300.0)]), [1, 2]);
    // However large a gap is, it overtakes 20 s of waiting at most.
    assert_eq!(order(&[(0, 0.0), (20_001, 1e12)]), [1, 2]);
}

#[test]
fn a_cold_prompt_waits_for_the_prefill_before_it_and_the_small_ones_pass() {
    let mut gate = AdmissionGate::new(&fleet(1));
    let rule = rule(3, 9);
    let cold = |backlog_ms| AdmissionRequest { backlog_ms, ..wish(500.0, 0.0) };
    let AdmissionResult::Wait(held) = gate.admit(&rule, at(0), R, &cold(650.0), None) else { panic!("sent") };
    assert_eq!(held.look(), at(250), "when 400 ms are left");
    let AdmissionResult::Pass(_first) = gate.admit(&rule, at(1), R, &wish(20.0, 0.0), None) else { panic!("held") };
    // It keeps its claim: one of the three places is its own, so the third small one waits.
    let AdmissionResult::Pass(_second) = gate.admit(&rule, at(2), R, &wish(20.0, 0.0), None) else { panic!("held") };
    let AdmissionResult::Wait(third) = gate.admit(&rule, at(3), R, &wish(20.0, 0.0), None) else { panic!("sent") };
    gate.call(R, 500.0);
    assert_eq!(gate.take_called(), [0_u64; 0], "there is still much before it");
    gate.call(R, 300.0);
    assert_eq!(gate.take_called(), [held.number()]);
    let before = gate.withdraw(held);
    let AdmissionResult::Pass(_) = gate.admit(&rule, at(260), R, &cold(300.0), Some((before, true))) else {
        panic!("held")
    };
    assert_eq!((gate.counts(R), third.replica()), ((3, 1), R));
    // Where prompts are not held for that, only the room counts.
    let mut gate = AdmissionGate::new(&fleet(1));
    let plain = AdmissionRule { hold_cold: false, ..rule };
    assert!(matches!(gate.admit(&plain, at(0), R, &cold(5_000.0), None), AdmissionResult::Pass(_)));
}

#[test]
fn where_the_batch_is_unknown_or_never_exceeded_there_is_no_gate() {
    let mut gate = AdmissionGate::new(&fleet(2));
    let auto = AdmissionRule { max_in_flight: None, ..rule(1, 9) };
    assert_eq!(gate.limit(&auto, R), None);
    let say = |gate: &mut AdmissionGate, decode_batch, max_running| {
        let report = EngineReport { decode_batch, max_running, ..EngineReport::default() };
        assert_eq!(gate.apply(&FleetEvent::Report { replica: R, at: at(0), report }), None);
    };
    say(&mut gate, Some(20), Some(64));
    assert_eq!((gate.limit(&auto, R), gate.limit(&auto, ReplicaId(1))), (Some(18), None));
    say(&mut gate, None, None);
    assert_eq!(gate.limit(&auto, R), Some(18), "what it said once holds");
    say(&mut gate, Some(20), Some(20));
    assert_eq!(gate.limit(&auto, R), None, "the engine keeps below its batch by itself");
    assert_eq!(gate.limit(&rule(7, 9), R), Some(7), "what is configured holds in any case");
    say(&mut gate, Some(2), Some(64));
    assert_eq!(gate.limit(&auto, R), Some(1), "never closed for good");
    let mut configured = fleet(1);
    configured[0].decode_batch = Some(34);
    assert_eq!(AdmissionGate::new(&configured).limit(&auto, R), Some(32));
}

fn page(gate: &mut AdmissionGate, ms: u64, running: f64, waiting: f64) -> Option<CountCorrection> {
    let report = EngineReport { running: Some(running), waiting: Some(waiting), ..EngineReport::default() };
    gate.apply(&FleetEvent::Report { replica: R, at: at(ms), report })
}

#[test]
fn a_count_that_leaked_is_set_right_by_the_engines_and_the_gate_opens() {
    let mut driver = GateDriver::new(1, rule(4, 9));
    for _ in 0..5 {
        driver.arrive(R, wish(10.0, 0.0));
    }
    // Three of the four were lost somewhere: nobody will ever give them back.
    let leaked = driver.passes.split_off(1);
    assert_eq!(driver.gate.counts(R), (4, 1));
    assert_eq!(page(&mut driver.gate, 5_000, 1.0, 0.0), None);
    assert_eq!(page(&mut driver.gate, 7_000, 1.0, 0.0), None);
    assert_eq!(page(&mut driver.gate, 9_000, 1.0, 0.0), None, "too young to be surely there");
    assert_eq!(page(&mut driver.gate, 11_000, 1.0, 0.0), None, "the first of three pages is too early");
    assert_eq!(page(&mut driver.gate, 13_000, 1.0, 0.0), None);
    let resync = page(&mut driver.gate, 15_000, 1.0, 0.0).unwrap();
    assert_eq!((resync.written_off, driver.gate.counts(R)), (3, (1, 1)));
    driver.gate.call(R, 0.0);
    driver.now = 15_001;
    driver.answer(stays);
    assert_eq!(driver.gate.counts(R), (2, 0));
    // Should one of them come back after all, nothing is counted twice.
    for pass in leaked {
        driver.gate.release(pass);
    }
    assert!(driver.gate.counts(R).0 <= 2);
}

#[test]
fn an_engine_that_has_what_is_counted_is_believed() {
    let mut driver = GateDriver::new(1, rule(4, 9));
    for _ in 0..4 {
        driver.arrive(R, wish(10.0, 0.0));
    }
    for second in 0..30 {
        // One page in three lags; that alone says nothing.
        let running = if second % 3 == 0 { 0.0 } else { 3.0 };
        assert_eq!(page(&mut driver.gate, second * 2_000, running, 1.0), None);
    }
    assert_eq!(driver.gate.counts(R), (4, 0));
}

#[test]
fn what_others_send_narrows_the_gate_but_never_closes_it() {
    let mut driver = GateDriver::new(1, rule(6, 9));
    for (ms, running) in [(0, 5.0), (2_000, 4.0), (4_000, 9.0)] {
        assert_eq!(page(&mut driver.gate, ms, running, 0.0), None);
    }
    assert_eq!(driver.gate.limit(&driver.rule, R), Some(2), "the least of three pages");
    for ms in [6_000, 8_000, 10_000] {
        page(&mut driver.gate, ms, 50.0, 10.0);
    }
    assert_eq!(driver.gate.limit(&driver.rule, R), Some(1));
    driver.gate.apply(&FleetEvent::Restarted { replica: R });
    assert_eq!(driver.gate.limit(&driver.rule, R), Some(6));
}

#[test]
fn a_replica_that_goes_down_sends_away_all_who_wait_for_it() {
    let mut driver = GateDriver::new(2, rule(1, 9));
    for _ in 0..4 {
        driver.arrive(R, wish(10.0, 0.0));
    }
    driver.gate.apply(&FleetEvent::Down { replica: R });
    driver.answer(|_, _| ReplicaId(1));
    assert_eq!((driver.gate.counts(R), driver.gate.counts(ReplicaId(1))), ((1, 0), (1, 2)));
    assert_eq!(driver.sent, [(R, 0), (ReplicaId(1), 1)]);
}

#[test]
fn who_wandered_enough_takes_the_place_it_is_called_to() {
    let mut driver = GateDriver::new(2, rule(1, 9));
    let other = |replica: ReplicaId| ReplicaId(1 - replica.0);
    for replica in [R, ReplicaId(1), R] {
        driver.arrive(replica, wish(10.0, 0.0));
    }
    // Whoever is called always wants to go to the other replica, which is full.
    for _ in 0..=MOST_MOVES {
        let waits_for = driver.waiting[&2].0.replica();
        let place = driver.passes.iter().position(|pass| pass.replica == waits_for).unwrap();
        driver.finish(place);
        driver.answer(|_, replica| other(replica));
        if driver.waiting.is_empty() {
            return;
        }
        driver.arrive(waits_for, wish(10.0, 0.0));
    }
    panic!("it still wanders");
}

proptest! {
    #![proptest_config(fixed(300))]

    /// Whatever happens, no replica has more in flight than its room, no queue is longer than its bound, and each
    /// request is sent, shed or gone exactly once; at the end nobody is left waiting.
    #[test]
    fn laws_of_the_gate(
        room in 1_u32..5,
        queue in 0_u32..6,
        hold_cold in any::<bool>(),
        steps in prop::collection::vec((0_u8..10, 0_u16..3, 0.0_f64..600.0, 0.0_f64..900.0, any::<prop::sample::Index>()), 0..150),
    ) {
        let rule = AdmissionRule { hold_cold, ..rule(room, queue) };
        let mut driver = GateDriver::new(3, rule);
        let mut came = 0_u32;
        let mut moves = false;
        for (step, replica, work_ms, gap_ms, which) in steps {
            match step {
                0..5 => {
                    came += 1;
                    driver.arrive(ReplicaId(replica), wish(work_ms, gap_ms));
                }
                5 | 6 if !driver.passes.is_empty() => driver.finish(which.index(driver.passes.len())),
                7 if !driver.waiting.is_empty() => {
                    let number = *driver.waiting.keys().nth(which.index(driver.waiting.len())).unwrap();
                    driver.leave(number);
                }
                8 => {
                    driver.answer(stays);
                }
                9 => {
                    moves = true;
                    driver.answer(|number, _| ReplicaId(u16::try_from(number % 3).unwrap()));
                }
                _ => {}
            }
            for replica in (0..3).map(ReplicaId) {
                let (inside, queued) = driver.gate.counts(replica);
                prop_assert!(inside <= room, "{inside} in flight in a room of {room}");
                prop_assert!(queued <= queue, "{queued} in a queue of {queue}");
                let flying = driver.passes.iter().filter(|pass| pass.replica == replica).count();
                prop_assert_eq!(usize::try_from(inside).unwrap(), flying);
            }
            let sent = driver.sent.len() + driver.waiting.len() + driver.left.len();
            prop_assert_eq!(u32::try_from(sent).unwrap() + driver.shed, came);
        }
        // Everything ends; nobody is forgotten.
        driver.answer(stays);
        while !driver.passes.is_empty() {
            driver.finish(0);
            driver.answer(stays);
        }
        prop_assert!(driver.waiting.is_empty(), "{} wait for ever", driver.waiting.len());
        let numbers: BTreeSet<u64> = driver.sent.iter().map(|(_, number)| *number).collect();
        prop_assert_eq!(numbers.len(), driver.sent.len(), "nobody is sent twice");
        prop_assert!(driver.left.is_disjoint(&numbers));
        for replica in (0..3).map(ReplicaId) {
            prop_assert_eq!(driver.gate.counts(replica), (0, 0));
            prop_assert_eq!(driver.gate.ahead(replica, None), WorkAhead::default());
            // Without gaps and moves it is first come, first served.
            let order: Vec<u64> = driver.sent.iter().filter(|(of, _)| *of == replica).map(|(_, number)| *number).collect();
            if !hold_cold && !moves {
                prop_assert!(order.is_sorted(), "{order:?}");
            }
        }
    }
}
