//! Invariants of the engine as a whole, and its times in cases that can be computed by hand.

use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;
use proptest::test_runner::RngSeed;

use super::*;
use gorgo_routing::model::UnixMicros;

/// A chain of page hashes: the first `shared` pages are those of `head`, the rest is private to the prompt.
fn chain(head: u64, shared: u64, own: u64, pages: u64) -> Vec<u64> {
    (0..pages)
        .map(|page| if page < shared { head * 1_000_000 + page } else { own * 1_000_000 + 500_000 + page })
        .collect()
}

fn job(id: u64, prompt_tokens: u32, max_tokens: u32) -> SimulatedRequest {
    SimulatedRequest {
        id,
        pages: chain(id + 1, u64::MAX, 0, u64::from(prompt_tokens / PAGE_TOKENS)),
        prompt_tokens,
        max_tokens,
    }
}

/// Runs until idle and returns all outputs.
fn drain(engine: &mut SimulatedEngine) -> Vec<EngineOutput> {
    let mut outputs = Vec::new();
    while let Some(due) = engine.next_event() {
        engine.advance(due, &mut outputs);
    }
    outputs
}

fn token_times(outputs: &[EngineOutput], of: u64) -> Vec<u64> {
    let at =
        |output: &EngineOutput| matches!(output, EngineOutput::Token { id, .. } if *id == of).then_some(output.at().0);
    outputs.iter().filter_map(at).collect()
}

fn cached(outputs: &[EngineOutput], of: u64) -> Option<u32> {
    outputs.iter().find_map(|output| match output {
        EngineOutput::Prefilled { id, cached_tokens, .. } if *id == of => Some(*cached_tokens),
        _ => None,
    })
}

fn engine(profile: &EngineProfile, speed: f64) -> SimulatedEngine {
    SimulatedEngine::new(profile.clone(), speed).unwrap()
}

fn l40s() -> &'static EngineProfile {
    EngineProfile::find("l40s-qwen3.5-35b").unwrap()
}

#[test]
fn an_idle_engine_takes_the_times_of_its_profile() {
    for speed in [1.0, 10.0] {
        let mut engine = engine(l40s(), speed);
        engine.submit(UnixMicros(1_000), job(1, 10_000, 4)).unwrap();
        let outputs = drain(&mut engine);
        let times = token_times(&outputs, 1);
        // 34 ms outside the GPU, three chunks of 80 ms, 0.062 ms per token; then a step of 7.7 + 0.6 ms per token.
        let first = 1_000.0 + (34.0 + 3.0 * 80.0 + 0.062 * 10_000.0) * 1e3 / speed;
        assert!((f64::from(u32::try_from(times[0]).unwrap()) - first).abs() < 5.0, "{times:?} {first}");
        assert_eq!(times.len(), 4);
        for pair in times.windows(2) {
            assert!((f64::from(u32::try_from(pair[1] - pair[0]).unwrap()) - 8_300.0 / speed).abs() <= 1.0, "{times:?}");
        }
        assert_eq!(outputs.last().map(|last| (last.id(), last.at().0)), Some((1, times[3])));
    }
}

#[test]
fn a_late_call_changes_no_time() {
    let mut punctual = engine(l40s(), 1.0);
    let mut late = engine(l40s(), 1.0);
    for id in 0..5 {
        punctual.submit(UnixMicros(id * 1000), job(id, 3000, 9)).unwrap();
        late.submit(UnixMicros(id * 1000), job(id, 3000, 9)).unwrap();
    }
    let mut outputs = Vec::new();
    late.advance(UnixMicros(u64::MAX), &mut outputs);
    assert_eq!(drain(&mut punctual), outputs);
}

#[test]
fn the_same_prompt_again_is_cached_up_to_its_last_page() {
    for profile in PROFILES {
        let mut engine = engine(profile, 1.0);
        for (id, tokens, expected) in [(1, 1000, 0), (2, 1000, 992), (3, 1040, 992), (4, 992, 976)] {
            let pages = chain(7, u64::MAX, 0, u64::from(tokens / PAGE_TOKENS));
            engine.submit(UnixMicros(0), SimulatedRequest { id, pages, prompt_tokens: tokens, max_tokens: 1 }).unwrap();
            let outputs = drain(&mut engine);
            // Where no prompt ended, a hybrid model finds only the state at the last boundary of 256 before that point.
            let expected = if id == 4 && profile.prefix_cache != PrefixCacheKind::AnyPage { 768 } else { expected };
            assert_eq!(cached(&outputs, id), Some(expected), "{} job {id}", profile.name);
        }
        assert_eq!(engine.stats().totals.prompt_tokens, 1000 + 1000 + 1040 + 992);
    }
}

#[test]
fn prompts_are_computed_in_order_of_arrival_and_decoding_waits_for_them() {
    let mut engine = engine(l40s(), 1.0);
    engine.submit(UnixMicros(0), job(1, 100, 50)).unwrap();
    let mut outputs = Vec::new();
    engine.advance(UnixMicros(125_000), &mut outputs); // the first has its first token, its decode step runs
    assert_eq!(token_times(&outputs, 1).len(), 1);
    engine.submit(UnixMicros(125_000), job(2, 9_000, 1)).unwrap();
    engine.submit(UnixMicros(125_000), job(3, 10, 1)).unwrap();
    outputs.extend(drain(&mut engine));
    assert_eq!(
        token_times(&outputs, 2),
        token_times(&outputs, 3),
        "the short prompt rides in the last batch of the long"
    );
    let longest_gap = token_times(&outputs, 1).windows(2).map(|pair| pair[1] - pair[0]).max().unwrap();
    assert!(longest_gap > 3 * 80_000 + 9_010 * 62, "three chunks and one decode step: {longest_gap}");
}

#[test]
fn a_mixed_schedule_goes_on_decoding_beside_a_long_prompt() {
    let profile = EngineProfile::find("mixed-2048").unwrap();
    let mut engine = engine(profile, 1.0);
    engine.submit(UnixMicros(0), job(1, 100, 10)).unwrap();
    engine.submit(UnixMicros(1), job(2, 20_000, 1)).unwrap();
    let outputs = drain(&mut engine);
    assert!(token_times(&outputs, 1)[9] < token_times(&outputs, 2)[0]);
}

#[test]
fn a_cancelled_job_is_silent_and_leaves_nothing_in_use() {
    let mut engine = engine(l40s(), 1.0);
    for id in 0..3 {
        engine.submit(UnixMicros(0), job(id, 5000, 50)).unwrap();
    }
    engine.cancel(2); // still outside the GPU
    let mut outputs = Vec::new();
    engine.advance(UnixMicros(100_000), &mut outputs); // in the first chunk
    assert_eq!(engine.stats().running, 1);
    engine.cancel(0);
    engine.cancel(0);
    engine.cancel(77);
    assert_eq!(engine.stats().running, 1, "the running step goes on with it");
    engine.advance(UnixMicros(368_000), &mut outputs); // that step has ended 34 + 80 + 0.062 × 4096 ms after the start
    assert_eq!(engine.stats().used_tokens, 5008, "only the second job holds pages now");
    outputs.extend(drain(&mut engine));
    assert!(outputs.iter().all(|output| output.id() == 1), "{outputs:?}");
    let numbers = engine.stats();
    assert_eq!((numbers.running, numbers.waiting, numbers.used_tokens), (0, 0, 0));
    assert_eq!((numbers.totals.cancelled, numbers.totals.finished), (2, 1));
}

#[test]
fn absurd_jobs_are_answered() {
    let mut engine = engine(l40s(), 1e6);
    let capacity = engine.stats().capacity_tokens;
    engine
        .submit(
            UnixMicros(5),
            SimulatedRequest { id: 1, pages: vec![9; 7], prompt_tokens: u32::MAX, max_tokens: u32::MAX },
        )
        .unwrap();
    engine
        .submit(UnixMicros(5), SimulatedRequest { id: 2, pages: vec![9; 70_000], prompt_tokens: 0, max_tokens: 0 })
        .unwrap();
    engine
        .submit(
            UnixMicros(5),
            SimulatedRequest { id: 3, pages: vec![9; 3], prompt_tokens: capacity - 1, max_tokens: u32::MAX },
        )
        .unwrap();
    assert_eq!(engine.submit(UnixMicros(5), job(3, 1, 1)), Err(EngineError::LiveId(3)));
    let reasons: BTreeMap<u64, FinishReason> = drain(&mut engine)
        .into_iter()
        .filter_map(|output| match output {
            EngineOutput::Finished { id, reason, .. } => Some((id, reason)),
            _ => None,
        })
        .collect();
    assert_eq!(
        reasons,
        BTreeMap::from([(1, FinishReason::TooLong), (2, FinishReason::Stop), (3, FinishReason::Length)])
    );
    assert_eq!(engine.stats().totals.generation_tokens, 1, "what the cache cannot hold is not generated");
    assert!(SimulatedEngine::new(l40s().clone(), f64::NAN).is_err());
    assert!(SimulatedEngine::new(EngineProfile { chunk_tokens: 0, ..l40s().clone() }, 1.0).is_err());
}

#[test]
fn under_pressure_the_least_advanced_is_retracted_and_all_still_finish() {
    let profile = EngineProfile { kv_tokens: 640, ..l40s().clone() };
    let profile =
        EngineProfile { reserve: AnswerReserve { start: 0.0, least: 0.0, steps: 1, longest_answer: 0 }, ..profile };
    let mut engine = engine(&profile, 1.0);
    for id in 0..4 {
        engine.submit(UnixMicros(0), job(id, 100, 300)).unwrap();
    }
    let outputs = drain(&mut engine);
    assert!(engine.stats().totals.retractions > 0);
    for id in 0..4 {
        assert_eq!(token_times(&outputs, id).len(), 300);
    }
}

#[test]
fn nobody_overtakes_a_retracted_job() {
    let reserve = AnswerReserve { start: 0.0, least: 0.0, steps: 1, longest_answer: 0 };
    let profile = EngineProfile { kv_tokens: 640, max_running: 2, reserve, ..l40s().clone() };
    let mut engine = engine(&profile, 1.0);
    for (id, prompt_tokens, max_tokens) in [(0, 100, 300), (1, 100, 300), (2, 16, 1)] {
        engine.submit(UnixMicros(0), job(id, prompt_tokens, max_tokens)).unwrap();
    }
    let outputs = drain(&mut engine);
    assert_eq!(engine.stats().totals.retractions, 1);
    let times = token_times(&outputs, 1);
    let back = times.windows(2).max_by_key(|pair| pair[1] - pair[0]).unwrap()[1];
    assert!(token_times(&outputs, 2)[0] >= back, "there was room for the small job, but it came later");
}

/// Action on an engine in a random test case.
#[derive(Debug, Clone)]
enum EngineAct {
    Submit { head: u64, shared: u64, prompt_tokens: u32, max_tokens: u32 },
    Cancel { nth: usize },
    Wait { micros: u64 },
}

fn act() -> impl Strategy<Value = EngineAct> {
    prop_oneof![
        4 => (0..4_u64, 0..40_u64, 0..1500_u32, 0..60_u32)
            .prop_map(|(head, shared, prompt_tokens, max_tokens)| EngineAct::Submit { head, shared, prompt_tokens, max_tokens }),
        1 => any::<usize>().prop_map(|nth| EngineAct::Cancel { nth }),
        4 => (0..400_000_u64).prop_map(|micros| EngineAct::Wait { micros }),
    ]
}

/// Small enough that slots, pages, states and the reserve all run out.
fn cramped() -> impl Strategy<Value = EngineProfile> {
    let cache =
        prop_oneof![Just(PrefixCacheKind::AnyPage), (0..4_u32).prop_map(|slots| PrefixCacheKind::PromptEnds { slots })];
    let schedule = prop_oneof![Just(StepSchedule::PrefillFirst), Just(StepSchedule::Mixed)];
    (1..6_u32, 1..100_u32, 1..700_u32, cache, schedule, prop_oneof![Just(0.0), Just(0.7)]).prop_map(
        |(max_running, pages, chunk_tokens, prefix_cache, schedule, start)| EngineProfile {
            kv_tokens: pages * PAGE_TOKENS,
            max_running,
            chunk_tokens,
            prefix_cache,
            schedule,
            reserve: AnswerReserve { start, least: 0.0, steps: 50, longest_answer: 4096 },
            ..l40s().clone()
        },
    )
}

/// Result of a random test case.
struct EngineStory {
    outputs: Vec<EngineOutput>,
    /// Prompt tokens and answer limit of each job.
    jobs: BTreeMap<u64, (u32, u32)>,
    cancelled: BTreeSet<u64>,
    totals: EngineTotals,
}

/// Runs a test case to its end and checks the invariants after each event.
fn play(profile: &EngineProfile, acts: &[EngineAct]) -> EngineStory {
    let mut engine = engine(profile, 1.0);
    let (mut now, mut outputs, mut jobs, mut cancelled) = (UnixMicros(0), Vec::new(), BTreeMap::new(), BTreeSet::new());
    for act in acts {
        match *act {
            EngineAct::Submit { head, shared, prompt_tokens, max_tokens } => {
                let id = u64::try_from(jobs.len()).unwrap();
                let pages = chain(head, shared, id + 10, u64::from(prompt_tokens / PAGE_TOKENS));
                engine.submit(now, SimulatedRequest { id, pages, prompt_tokens, max_tokens }).unwrap();
                jobs.insert(id, (prompt_tokens, max_tokens));
            }
            EngineAct::Cancel { nth } => {
                if let Some(id) = (!jobs.is_empty()).then(|| u64::try_from(nth % jobs.len()).unwrap()) {
                    let over = outputs
                        .iter()
                        .any(|output| matches!(output, EngineOutput::Finished { id: of, .. } if *of == id));
                    engine.cancel(id);
                    if !over {
                        cancelled.insert(id);
                    }
                }
            }
            EngineAct::Wait { micros } => {
                let end = UnixMicros(now.0 + micros);
                while let Some(due) = engine.next_event().filter(|due| *due <= end) {
                    engine.advance(due, &mut outputs);
                    check_room(&engine.stats(), profile);
                }
                engine.advance(end, &mut outputs);
                now = end;
            }
        }
    }
    while let Some(due) = engine.next_event() {
        engine.advance(due, &mut outputs);
        check_room(&engine.stats(), profile);
    }
    let numbers = engine.stats();
    assert_eq!((numbers.running, numbers.waiting, numbers.used_tokens), (0, 0, 0), "all is given back");
    let totals = numbers.totals;
    assert_eq!(totals.submitted, totals.finished + totals.cancelled + totals.refused);
    assert!(totals.cached_tokens <= totals.prompt_tokens);
    EngineStory { outputs, jobs, cancelled, totals }
}

fn check_room(numbers: &EngineStats, profile: &EngineProfile) {
    assert!(numbers.used_tokens + numbers.cached_tokens <= numbers.capacity_tokens, "{numbers:?}");
    assert!(numbers.running <= profile.max_running, "{numbers:?}");
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 400, rng_seed: RngSeed::Fixed(20), failure_persistence: None, ..ProptestConfig::default()
    })]

    #[test]
    fn any_story_ends_well(profile in cramped(), acts in proptest::collection::vec(act(), 0..60)) {
        let EngineStory { outputs, jobs, cancelled, .. } = play(&profile, &acts);
        let mut last = UnixMicros(0);
        let mut tokens: BTreeMap<u64, u32> = BTreeMap::new();
        let (mut prefilled, mut finished) = (BTreeSet::new(), BTreeSet::new());
        for output in &outputs {
            prop_assert!(output.at() >= last, "in order of time");
            last = output.at();
            let (prompt, limit) = jobs[&output.id()];
            prop_assert!(!finished.contains(&output.id()), "nothing follows the end");
            match *output {
                EngineOutput::Prefilled { id, cached_tokens, .. } => {
                    prop_assert!(prefilled.insert(id), "once");
                    prop_assert!(cached_tokens < prompt.max(1), "the last token is always computed");
                }
                EngineOutput::Token { id, index, .. } => {
                    prop_assert!(prefilled.contains(&id));
                    let seen = tokens.entry(id).or_default();
                    prop_assert_eq!(index, *seen, "in order, none twice");
                    *seen += 1;
                }
                EngineOutput::Finished { id, reason, .. } => {
                    finished.insert(id);
                    let seen = tokens.get(&id).copied().unwrap_or(0);
                    match reason {
                        FinishReason::TooLong => prop_assert!(prompt >= profile.pages() * PAGE_TOKENS),
                        FinishReason::Stop => prop_assert_eq!((seen, limit), (0, 0)),
                        FinishReason::Length => {
                            prop_assert_eq!(seen, limit.min(profile.pages() * PAGE_TOKENS - prompt.max(1)));
                        }
                    }
                }
            }
        }
        let ended: BTreeSet<u64> = finished.union(&cancelled).copied().collect();
        prop_assert!(finished.is_disjoint(&cancelled));
        prop_assert_eq!(ended, jobs.keys().copied().collect::<BTreeSet<u64>>(), "each ends, once");
    }

    #[test]
    fn the_same_story_gives_the_same_outputs(profile in cramped(), acts in proptest::collection::vec(act(), 0..40)) {
        prop_assert_eq!(play(&profile, &acts).outputs, play(&profile, &acts).outputs);
    }

    #[test]
    fn first_come_first_served(profile in cramped(), acts in proptest::collection::vec(act(), 0..40)) {
        let EngineStory { outputs, totals, .. } = play(&profile, &acts);
        let prefilled = |output: &EngineOutput| matches!(output, EngineOutput::Prefilled { .. }).then(|| (output.at(), output.id()));
        let order: Vec<(UnixMicros, u64)> = outputs.iter().filter_map(prefilled).collect();
        // A retracted job starts over, so others may be computed before it.
        if totals.retractions == 0 {
            prop_assert!(order.is_sorted(), "{:?}", order);
            prop_assert!(order.is_sorted_by_key(|(_, id)| *id), "{:?}", order);
        }
    }
}
