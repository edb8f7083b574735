//! What every term must hold to, run over the whole table.

use proptest::prelude::*;

use super::TERMS;
use crate::model::arbitrary::{candidates, fixed, fleet, permuted, request, with_order};
use crate::model::{Candidates, ParamType, Params, RequestView, Value};
use crate::score::{CostTerm, TermKind};

/// The term with each parameter at its default, and with each at its other values.
fn variants(kind: &TermKind) -> Vec<Box<dyn CostTerm>> {
    let defaults = || -> Vec<(&'static str, Value)> {
        let default = |ty| match ty {
            ParamType::Number { default, .. } => default.map(Value::Float),
            ParamType::Integer { default, .. } => default.map(Value::Integer),
            ParamType::Text { default, .. } => default.map(|text: &str| Value::Text(text.to_owned())),
            ParamType::Bool { default } => Some(Value::Bool(default)),
            ParamType::TextList | ParamType::Table => None,
        };
        kind.params.iter().filter_map(|param| Some((param.name, default(param.ty)?))).collect()
    };
    let mut all = vec![defaults()];
    for param in kind.params {
        let others: Vec<Value> = match param.ty {
            ParamType::Text { choices, .. } => choices.iter().map(|text| Value::Text((*text).to_owned())).collect(),
            ParamType::Bool { .. } => vec![Value::Bool(false), Value::Bool(true)],
            ParamType::Number { min, max, .. } => vec![Value::Float(min), Value::Float(max)],
            _ => Vec::new(),
        };
        for other in others {
            let mut values = defaults();
            values.retain(|(name, _)| *name != param.name);
            values.push((param.name, other));
            all.push(values);
        }
    }
    all.into_iter().map(|values| (kind.build)(&Params { values }, &fleet(8)).unwrap()).collect()
}

fn signals(term: &dyn CostTerm, request: &RequestView, candidates: &Candidates) -> Vec<Option<f64>> {
    let mut out = vec![None; candidates.len()];
    term.signal(request, candidates, &mut out);
    out
}

#[test]
fn every_kind_has_a_name_of_its_own_and_says_what_it_is() {
    for (place, kind) in TERMS.iter().enumerate() {
        assert!(!kind.summary.is_empty(), "{}", kind.kind);
        assert!(TERMS[..place].iter().all(|other| other.kind != kind.kind), "{} twice", kind.kind);
    }
}

proptest! {
    #![proptest_config(fixed(200))]

    #[test]
    fn signals_are_finite_and_the_same_every_time(request in request(), facts in candidates()) {
        for kind in TERMS {
            for term in variants(kind) {
                let once = signals(&*term, &request, &facts);
                prop_assert!(once.iter().flatten().all(|signal| signal.is_finite()), "{}: {once:?}", kind.kind);
                prop_assert_eq!(&once, &signals(&*term, &request, &facts), "{}", kind.kind);
            }
        }
    }

    #[test]
    fn permuted_rows_give_permuted_signals(request in request(), (facts, order) in with_order()) {
        for kind in TERMS {
            for term in variants(kind) {
                let straight = signals(&*term, &request, &facts);
                let expected: Vec<_> = order.iter().map(|row| straight[*row]).collect();
                prop_assert_eq!(signals(&*term, &request, &permuted(&facts, &order)), expected, "{}", kind.kind);
            }
        }
    }

    #[test]
    fn a_signal_reads_no_more_than_it_says(request in request(), facts in candidates()) {
        for kind in TERMS {
            for term in variants(kind) {
                let needs = term.needs();
                let mut bare = facts.clone();
                let rows = bare.len();
                let unknown = vec![None; rows];
                use crate::model::Needs;
                if !needs.contains(Needs::RTT) {
                    (bare.rtt_ms, bare.rtt_p95_ms) = (unknown.clone(), unknown.clone());
                }
                if !needs.contains(Needs::PREFIX) {
                    bare.cached_tokens = vec![0; rows];
                }
                if !needs.contains(Needs::LOAD) {
                    bare.queued_tokens = vec![0; rows];
                    bare.queued_tokens_first = vec![0; rows];
                    bare.queued_uncached_tokens = vec![0; rows];
                    bare.queued_uncached_tokens_completion = vec![0; rows];
                    (bare.inflight, bare.decoding) = (vec![0; rows], vec![0; rows]);
                    bare.inflight_since_report = vec![0; rows];
                }
                if !needs.contains(Needs::REPORT) {
                    (bare.engine_running, bare.engine_waiting) = (unknown.clone(), unknown.clone());
                    (bare.kv_used_tokens, bare.kv_used_share) = (unknown.clone(), unknown.clone());
                    bare.engine_throughput = unknown.clone();
                }
                if !needs.contains(Needs::LATENCY) {
                    bare.latency_ms = unknown.clone();
                }
                if !needs.contains(Needs::RATES) {
                    (bare.prefill_ms_per_token, bare.queue_ms_per_token) = (unknown.clone(), unknown.clone());
                    (bare.decode_ms_per_request, bare.intercept_ms) = (unknown.clone(), unknown);
                }
                prop_assert_eq!(signals(&*term, &request, &facts), signals(&*term, &request, &bare), "{}", kind.kind);
            }
        }
    }
}

fn plain_request() -> RequestView {
    RequestView { prompt_tokens: 1_000, max_tokens: None, body_bytes: 4_000, session_hash: 1, head_hash: 2, turn: 0 }
}

fn term(kind: &str, params: &[(&'static str, Value)]) -> Box<dyn CostTerm> {
    let kind = TERMS.iter().find(|known| known.kind == kind).unwrap();
    (kind.build)(&Params { values: params.to_vec() }, &fleet(8)).unwrap()
}

#[test]
fn what_nobody_measured_is_unknown_and_never_zero() {
    let mut facts = Candidates::default();
    facts.reset(2, 0);
    for kind in ["rtt", "running", "waiting", "kv-usage", "kv-tokens", "throughput", "latency"] {
        assert_eq!(signals(&*term(kind, &[]), &plain_request(), &facts), [None, None], "{kind}");
    }
}

#[test]
fn each_queue_reads_its_own_column() {
    let mut facts = Candidates::default();
    facts.reset(1, 0);
    facts.queued_tokens = vec![1];
    facts.queued_tokens_first = vec![2];
    facts.queued_uncached_tokens_completion = vec![3];
    facts.queued_uncached_tokens = vec![4];
    for (counts, release, expected) in [
        ("prompt", "completion", 1.0),
        ("prompt", "first-token", 2.0),
        ("uncached", "completion", 3.0),
        ("uncached", "first-token", 4.0),
    ] {
        let params = [("counts", Value::Text(counts.into())), ("release", Value::Text(release.into()))];
        assert_eq!(signals(&*term("queue", &params), &plain_request(), &facts), [Some(expected)]);
    }
}

#[test]
fn a_report_is_carried_on_by_what_was_sent_since() {
    let mut facts = Candidates::default();
    facts.reset(2, 0);
    facts.engine_running = vec![Some(4.0), Some(4.0)];
    facts.inflight = vec![3, 3];
    facts.inflight_since_report = vec![2, -9];
    assert_eq!(signals(&*term("running", &[]), &plain_request(), &facts), [Some(6.0), Some(0.0)]);
    let reported = term("inflight", &[("reported", Value::Bool(true))]);
    assert_eq!(signals(&*reported, &plain_request(), &facts), [Some(6.0), Some(3.0)]);
    assert_eq!(signals(&*term("inflight", &[]), &plain_request(), &facts), [Some(3.0), Some(3.0)]);
}

#[test]
fn when_a_replica_goes_only_its_own_keys_move() {
    let mut facts = Candidates::default();
    facts.reset(4, 0);
    facts.name_hash = vec![0x1234, 0x9999, 0xabcd, 0x5555];
    let hash = term("hash", &[]);
    let home = |facts: &Candidates, key: u64| {
        let places = signals(&*hash, &RequestView { session_hash: key, ..plain_request() }, facts);
        facts.name_hash[places.iter().position(|place| *place == Some(0.0)).unwrap()]
    };
    let without = permuted(&facts, &[0, 1, 3]);
    let mut moved = 0;
    for key in 0..1_000 {
        let (before, after) = (home(&facts, key), home(&without, key));
        assert!(before == after || before == 0xabcd, "key {key} moved from {before:x}");
        moved += usize::from(before != after);
    }
    assert!((200..300).contains(&moved), "{moved}");
}

#[test]
fn turns_go_round_those_that_are_available() {
    let mut facts = Candidates::default();
    facts.reset(4, 0);
    facts.replica = fleet(4).iter().map(|replica| replica.id).collect();
    facts.available[1] = false;
    let turn = term("turn", &[]);
    let whose: Vec<usize> = (0..6)
        .map(|now| {
            let distances = signals(&*turn, &RequestView { turn: now, ..plain_request() }, &facts);
            (0..4).find(|row| facts.available[*row] && distances[*row] == Some(0.0)).unwrap()
        })
        .collect();
    assert_eq!(whose, [0, 2, 3, 0, 2, 3]);
}

#[test]
fn constants_are_by_name_and_strangers_are_refused() {
    let values = |name: &str| Value::Table(vec![(name.to_owned(), Value::Integer(7))]);
    let constant = term("constant", &[("value", Value::Float(1.5)), ("values", values("replica-1"))]);
    let mut facts = Candidates::default();
    facts.reset(2, 0);
    facts.replica = fleet(2).iter().map(|replica| replica.id).collect();
    assert_eq!(signals(&*constant, &plain_request(), &facts), [Some(1.5), Some(7.0)]);
    let kind = TERMS.iter().find(|kind| kind.kind == "constant").unwrap();
    let refused = (kind.build)(&Params { values: vec![("values", values("nobody"))] }, &fleet(2)).unwrap_err();
    assert_eq!(refused, "`values.nobody`: no replica of that name");
}
