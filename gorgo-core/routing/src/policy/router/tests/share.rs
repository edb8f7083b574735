//! The concentration limit as a law: whatever comes, nobody gets more than its share, or the row says so.

use std::collections::VecDeque;

use proptest::prelude::*;

use super::*;
use crate::model::CandidateRecord;
use crate::model::arbitrary::fixed;
use crate::policy::RELAXED;

/// What happens next.
#[derive(Debug, Clone)]
enum TrafficStep {
    /// A request of so many tokens, of one of a few conversations.
    Request(usize, usize),
    /// The oldest request ends.
    End,
    /// A replica goes down, or comes back.
    Down(u16),
    Up(u16),
}

fn step() -> impl Strategy<Value = TrafficStep> {
    prop_oneof![
        12 => (0_usize..9, 1_usize..400).prop_map(|(who, tokens)| TrafficStep::Request(who, tokens)),
        4 => Just(TrafficStep::End),
        1 => (0_u16..3).prop_map(TrafficStep::Down),
        2 => (0_u16..3).prop_map(TrafficStep::Up),
    ]
}

/// All that this policy wants is the nearest replica.
fn nearest(max_share: f64, window: usize) -> Router {
    let text = format!(
        "[policy.nearest]\nunit = \"raw\"\n[[policy.nearest.term]]\nkind = \"rtt\"\n\
         [policy.nearest.constraint.concentration]\nmax_share = {max_share:?}\nof = \"requests\"\n\
         window_decisions = {window}\nmin_requests = 0\n"
    );
    let router = router_of(3, &text);
    for (replica, rtt_ms) in [(0, 10.0), (1, 200.0), (2, 400.0)] {
        router.apply(&FleetEvent::Up { replica: ReplicaId(replica) });
        router.apply(&FleetEvent::Probe { replica: ReplicaId(replica), at: UnixMicros(0), rtt_ms: Some(rtt_ms) });
    }
    router
}

proptest! {
    #![proptest_config(fixed(200))]

    /// Counted from the rows alone: over the window no replica has more than its share of requests and one more, unless
    /// a row of the window says that the limit was relaxed, which happens only where nobody else was left.
    #[test]
    fn tune_no_share_exceeds_the_limit_by_more_than_one_request_unless_the_row_says_so(
        max_share in 0.34_f64..0.95,
        window in 3_usize..120,
        steps in prop::collection::vec(step(), 1..400),
    ) {
        let router = nearest(max_share, window);
        let (mut recent, mut held, mut number) = (VecDeque::<(usize, bool)>::new(), VecDeque::new(), 0_u64);
        for step in steps {
            let at = UnixMicros(1_000_000 + number * 10_000);
            match step {
                TrafficStep::Request(who, tokens) => {
                    number += 1;
                    let prompt = unique(&router, who, tokens);
                    let decision = DecisionId(i64::try_from(number).unwrap());
                    let routed = router.decide(&prompt, &DecisionContext { policy: id(&router, "nearest"), id: decision, seed: number, at, exclude: &[] });
                    let Ok(RoutedRequest { record, reservation, .. }) = routed else { continue };
                    let chosen = reservation.replica().index();
                    let says = |row: &CandidateRecord| row.excluded_by.as_deref().map(str::to_owned);
                    let rule = record.candidates.iter().find(|row| row.replica.index() == chosen).and_then(says);
                    let relaxed = rule.as_deref() == Some(&*format!("{RELAXED}concentration"));
                    prop_assert!(rule.is_none() || relaxed, "{rule:?}");
                    if relaxed {
                        let free = record.candidates.iter().filter(|row| row.excluded_by.is_none()).count();
                        prop_assert_eq!(free, 0, "somebody was left");
                    }
                    recent.push_back((chosen, relaxed));
                    if recent.len() > window {
                        recent.pop_front();
                    }
                    held.push_back((reservation, prompt));
                    if recent.iter().all(|(_, relaxed)| !relaxed) {
                        for replica in 0..3 {
                            let got = recent.iter().filter(|(who, _)| *who == replica).count();
                            #[expect(clippy::cast_precision_loss, reason = "a few hundred")]
                            let (got, all) = (got as f64, recent.len() as f64);
                            prop_assert!(got <= max_share * all + 1.0 + 1e-9, "{replica} got {got} of {all}");
                        }
                    }
                }
                TrafficStep::End => {
                    if let Some((reservation, prompt)) = held.pop_front() {
                        router.finish(reservation, &prompt, &done(10, 0, 50.0), at);
                    }
                }
                TrafficStep::Down(replica) => drop(router.apply(&FleetEvent::Down { replica: ReplicaId(replica) })),
                TrafficStep::Up(replica) => drop(router.apply(&FleetEvent::Up { replica: ReplicaId(replica) })),
            }
        }
        for (reservation, prompt) in held {
            router.finish(reservation, &prompt, &RequestOutcome::default(), UnixMicros(1));
        }
    }
}
