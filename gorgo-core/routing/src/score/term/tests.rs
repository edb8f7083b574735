//! What every term must hold to, run over the whole table.

use proptest::prelude::*;

use super::TERMS;
use crate::model::arbitrary::{candidates, fixed, fleet, permuted, request, with_order};
use crate::model::{Candidates, ConfigValue, FACT_NAMES, FACTS, ParamType, ParamValues, RequestView, RequiredFacts};
use crate::score::{CostTerm, TermKind};

/// Expressions of every sort; each fact alone comes to them.
const SIGNALS: [&str; 4] = [
    "max(0, uncached_tokens - 512) * prefill_ms_per_token + (queued_tokens > 4000 ? 50 : 0)",
    "report_age_ms < 5000 ? engine_waiting * decode_ms_per_request : 2 * rtt_ms",
    "inflight > 3 && kv_used_share > 0.5 || rtt_p95_ms > 100",
    "ln(1 + queued_uncached_tokens) / exp(clamp(kv_used_share, 0, 1)) - sqrt(body_bytes)",
];

/// The term with each parameter at its default, and with each at its other values.
fn variants(kind: &TermKind) -> Vec<Box<dyn CostTerm>> {
    let defaults = || -> Vec<(&'static str, ConfigValue)> {
        let default = |ty| match ty {
            ParamType::Number { default, .. } => default.map(ConfigValue::Float),
            ParamType::Integer { default, .. } => default.map(ConfigValue::Integer),
            ParamType::Text { default, .. } => default.map(|text: &str| ConfigValue::Text(text.to_owned())),
            ParamType::Bool { default } => Some(ConfigValue::Bool(default)),
            ParamType::TextList | ParamType::Table => None,
        };
        kind.params.iter().filter_map(|param| Some((param.name, default(param.ty)?))).collect()
    };
    let mut all = vec![defaults()];
    if kind.kind == "expression" {
        all = SIGNALS.iter().map(|text| vec![("signal", ConfigValue::Text((*text).to_owned()))]).collect();
        all.extend(FACT_NAMES.iter().map(|name| vec![("signal", ConfigValue::Text((*name).to_owned()))]));
    }
    for param in kind.params {
        let others: Vec<ConfigValue> = match param.ty {
            ParamType::Text { choices, .. } => {
                choices.iter().map(|text| ConfigValue::Text((*text).to_owned())).collect()
            }
            ParamType::Bool { .. } => vec![ConfigValue::Bool(false), ConfigValue::Bool(true)],
            ParamType::Number { min, max, .. } => vec![ConfigValue::Float(min), ConfigValue::Float(max)],
            _ => Vec::new(),
        };
        for other in others {
            let mut values = defaults();
            values.retain(|(name, _)| *name != param.name);
            values.push((param.name, other));
            all.push(values);
        }
    }
    all.into_iter().map(|values| (kind.build)(&ParamValues { values }, &fleet(8)).unwrap()).collect()
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
                let mut bare = facts.clone();
                bare.forget_all_but(term.needs());
                if !term.needs().contains(RequiredFacts::NETWORK) {
                    bare.network_trips = vec![None; bare.len()];
                }
                prop_assert_eq!(signals(&*term, &request, &facts), signals(&*term, &request, &bare), "{}", kind.kind);
            }
        }
    }
}

fn plain_request() -> RequestView {
    RequestView {
        prompt_tokens: 1_000,
        max_tokens: None,
        body_bytes: 4_000,
        session_hash: 1,
        head_hash: 2,
        slo_ttft_ms: None,
        decision_number: 0,
    }
}

fn term(kind: &str, params: &[(&'static str, ConfigValue)]) -> Box<dyn CostTerm> {
    let kind = TERMS.iter().find(|known| known.kind == kind).unwrap();
    (kind.build)(&ParamValues { values: params.to_vec() }, &fleet(8)).unwrap()
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
        let params = [("counts", ConfigValue::Text(counts.into())), ("release", ConfigValue::Text(release.into()))];
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
    let reported = term("inflight", &[("reported", ConfigValue::Bool(true))]);
    assert_eq!(signals(&*reported, &plain_request(), &facts), [Some(6.0), Some(3.0)]);
    assert_eq!(signals(&*term("inflight", &[]), &plain_request(), &facts), [Some(3.0), Some(3.0)]);
}

#[test]
fn a_report_can_be_taken_as_it_came() {
    let mut facts = Candidates::default();
    facts.reset(3, 0);
    facts.engine_running = vec![Some(4.0), Some(4.0), None];
    facts.inflight = vec![3, 6, 1];
    facts.inflight_since_report = vec![2, -9, 1];
    let as_reported = ("as_reported", ConfigValue::Bool(true));
    let running = term("running", std::slice::from_ref(&as_reported));
    assert_eq!(signals(&*running, &plain_request(), &facts), [Some(4.0), Some(4.0), None]);
    let larger = term("inflight", &[("reported", ConfigValue::Bool(true)), as_reported]);
    assert_eq!(signals(&*larger, &plain_request(), &facts), [Some(4.0), Some(6.0), Some(1.0)]);
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
            let distances = signals(&*turn, &RequestView { decision_number: now, ..plain_request() }, &facts);
            (0..4).find(|row| facts.available[*row] && distances[*row] == Some(0.0)).unwrap()
        })
        .collect();
    assert_eq!(whose, [0, 2, 3, 0, 2, 3]);
}

#[test]
fn constants_are_by_name_and_strangers_are_refused() {
    let values = |name: &str| ConfigValue::Table(vec![(name.to_owned(), ConfigValue::Integer(7))]);
    let constant = term("constant", &[("value", ConfigValue::Float(1.5)), ("values", values("replica-1"))]);
    let mut facts = Candidates::default();
    facts.reset(2, 0);
    facts.replica = fleet(2).iter().map(|replica| replica.id).collect();
    assert_eq!(signals(&*constant, &plain_request(), &facts), [Some(1.5), Some(7.0)]);
    let kind = TERMS.iter().find(|kind| kind.kind == "constant").unwrap();
    let refused = (kind.build)(&ParamValues { values: vec![("values", values("nobody"))] }, &fleet(2)).unwrap_err();
    assert_eq!(refused, "`values.nobody`: no replica of that name");
}

fn expression(text: &str) -> Result<Box<dyn CostTerm>, String> {
    let kind = TERMS.iter().find(|known| known.kind == "expression").unwrap();
    (kind.build)(&ParamValues { values: vec![("signal", ConfigValue::Text(text.to_owned()))] }, &fleet(8))
}

#[test]
fn an_expression_needs_what_it_names_and_no_more() {
    for fact in FACTS {
        assert_eq!(expression(fact.name).unwrap().needs(), fact.needs, "{}", fact.name);
    }
    let needs = |text| expression(text).unwrap().needs();
    assert_eq!(needs("rtt_ms + 0.1 * uncached_tokens"), RequiredFacts::RTT.union(RequiredFacts::PREFIX));
    assert_eq!(needs("1 ? rtt_ms : report_age_ms"), RequiredFacts::RTT, "what cannot make a difference is not needed");
    assert_eq!(needs("max_tokens"), RequiredFacts::NONE);
    assert_eq!(expression("rtt_ms").unwrap().spreads(), Some(false));
    assert_eq!(expression("rtt_ms + 2 * inflight").unwrap().spreads(), Some(true));
}

#[test]
fn an_expression_of_something_unknown_is_unknown_for_that_replica_alone() {
    let mut facts = Candidates::default();
    facts.reset(3, 0);
    facts.rtt_ms = vec![Some(10.0), None, Some(30.0)];
    facts.inflight = vec![2, 2, 0];
    let of = |text| signals(&*expression(text).unwrap(), &plain_request(), &facts);
    assert_eq!(of("2 * rtt_ms + inflight"), [Some(22.0), None, Some(60.0)]);
    assert_eq!(of("inflight > 0 ? 7 : rtt_ms"), [Some(7.0), Some(7.0), Some(30.0)]);
    assert_eq!(of("max_tokens"), [None; 3], "the client did not say");
    // What is not finite is handed on as it is: `policy::decide` voids it.
    let odd = of("rtt_ms / inflight");
    assert_eq!(odd[..2], [Some(5.0), None]);
    assert!(odd[2].is_some_and(f64::is_infinite));
}

#[test]
fn texts_of_a_replica_are_compared_for_each_replica() {
    let mut facts = Candidates::default();
    facts.reset(4, 0);
    facts.replica = [2, 0, 1, 9].map(crate::model::ReplicaId).to_vec();
    facts.inflight = vec![1, 2, 3, 4];
    let of = |text: &str| signals(&*expression(text).unwrap(), &plain_request(), &facts);
    // Replicas 0 to 2 are in east, west and north; nobody knows replica 9.
    assert_eq!(of("(region == 'west') * 50 + inflight"), [Some(1.0), Some(2.0), Some(53.0), None]);
    assert_eq!(of("region != \"west\" && name != 'replica-0'"), [Some(1.0), Some(0.0), Some(0.0), None]);
    assert_eq!(of("engine == 'openai' ? inflight : 0")[..3], [Some(1.0), Some(2.0), Some(3.0)]);
    let refused = expression("region == 'wset' ? 1 : 0").unwrap_err();
    assert_eq!(refused, "`signal`: no enabled replica has the region \"wset\"; known: east, north, west");
}

#[test]
fn a_fact_of_the_fleet_is_read_with_any_row() {
    let mut facts = Candidates::default();
    facts.reset(3, 0);
    (facts.inflight, facts.available[2]) = (vec![2, 4, 30], false);
    facts.answer_tokens = 7.0;
    let of = |text: &str| signals(&*expression(text).unwrap(), &plain_request(), &facts);
    assert_eq!(of("0.0 * answer_tokens + mean_inflight"), [Some(3.0); 3]);
    assert_eq!(of("tail_start_ms"), [None; 3]);
    assert_eq!(of("mean_inflight > 2 ? 1 * answer_tokens : tail_start_ms"), [Some(7.0); 3]);
}

#[test]
fn an_expression_that_is_none_says_where() {
    let refused = |text| expression(text).unwrap_err();
    assert_eq!(
        refused("rtt_ms + temperature"),
        format!(
            "`signal`: column 10: unknown name `temperature`; known: {}, name, region, engine",
            FACT_NAMES.join(", ")
        )
    );
    assert!(refused("rtt_ms + queued_tokens").starts_with("`signal`: column 10: adds ms and tokens"));
    let kind = TERMS.iter().find(|known| known.kind == "expression").unwrap();
    assert_eq!((kind.build)(&ParamValues::default(), &fleet(1)).unwrap_err(), "`signal` is missing");
}
