//! Requests of a history in one row each, and the trace that is made from them.

use super::{StoreFixture, at, decision, history, id, outcome};
use crate::{FallbackCounts, HistoryReader, StoredRequest};
use gorgo_lab::trace::{HistoryRow, TraceCompression, from_history, read, write};
use gorgo_routing::model::{ApiPath, DecisionId, DecisionRecord, ErrorClass, OutcomeRecord, StoreRecord};

async fn requests(bench: &StoreFixture, limit: u32) -> Vec<StoredRequest> {
    HistoryReader::open(&bench.path()).await.unwrap().requests(DecisionId(0), limit).await.unwrap()
}

#[tokio::test]
async fn each_request_is_one_row_with_what_came_of_it() {
    let bench = StoreFixture::new();
    bench.write(history()).await;
    let found = requests(&bench, 100).await;
    assert_eq!(found.len(), 10);
    let first = StoredRequest {
        decision: id(0),
        run: found[0].run,
        received: at(0),
        path: ApiPath::ChatCompletions,
        session_hash: u64::MAX - 1,
        prompt_tokens: 1_000,
        parent: None,
        shared_tokens: 600,
        replica: Some("us-ashburn".into()),
        attempts: 1,
        rtt_us: Some(37_000),
        error: None,
        ttft_us: Some(100_000),
        e2e_us: Some(300_000),
        engine_prompt_tokens: Some(1_010),
        cached_tokens: Some(512),
        predicted_cached_tokens: Some(600),
        completion_tokens: Some(64),
    };
    assert_eq!(found[0], first);
    assert_eq!((found[7].replica.as_deref(), found[7].rtt_us), (Some("eu-frankfurt"), Some(279_000)));
    // Retried: the first choice and both attempts. Refused: no replica, and the outcome says so.
    assert_eq!((found[8].replica.as_deref(), found[8].attempts), (Some("us-ashburn"), 2));
    let refused = &found[9];
    assert_eq!((refused.replica.as_deref(), refused.attempts, refused.rtt_us), (None, 0, None));
    assert_eq!((refused.error, refused.ttft_us), (Some(ErrorClass::Refused), None));

    assert_eq!(requests(&bench, 3).await, found[..3]);
    let reader = HistoryReader::open(&bench.path()).await.unwrap();
    assert_eq!(reader.requests(id(4), 2).await.unwrap(), found[4..6]);
}

#[tokio::test]
async fn an_experiment_finds_its_run_and_what_fell_back() {
    let bench = StoreFixture::new();
    let mut records = history();
    let mut relaxed = decision(10, 1);
    relaxed.candidates[1].excluded_by = Some("relaxed:max-inflight".into());
    relaxed.candidates[0].excluded_by = Some("relaxed:max-inflight".into());
    records.push(StoreRecord::Decision(Box::new(relaxed)));
    bench.write(records).await;
    let reader = HistoryReader::open(&bench.path()).await.unwrap();
    let run = reader.newest_run().await.unwrap().unwrap();
    assert_eq!((run.version.as_str(), run.policy.as_deref(), run.seed), ("0.1.0", Some("gorgo"), 7));
    assert_eq!(run.generation, Some(1));
    assert!(run.policy_sha256.is_some_and(|digest| digest.len() == 64) && run.config_sha256.is_some());
    // The ninth was tried again, the tenth refused, and the last one's caps relaxed.
    let all = reader.fallbacks(id(0), id(10)).await.unwrap();
    assert_eq!(all, FallbackCounts { decisions: 11, refused: 1, relaxed: 1, tried_again: 1 });
    let some = reader.fallbacks(id(0), id(8)).await.unwrap();
    assert_eq!(some, FallbackCounts { decisions: 9, refused: 0, relaxed: 0, tried_again: 1 });
    assert_eq!(reader.fallbacks(id(50), id(60)).await.unwrap(), FallbackCounts::default());
}

#[tokio::test]
async fn a_decision_whose_outcome_was_lost_is_still_an_arrival() {
    let bench = StoreFixture::new();
    bench.write([StoreRecord::Decision(Box::new(decision(0, 0)))]).await;
    let found = requests(&bench, 9).await;
    assert_eq!((found[0].e2e_us, found[0].completion_tokens, found[0].prompt_tokens), (None, None, 1_000));
}

/// Lengths, times and shared prefixes go from the database through a trace file and come out unchanged.
#[tokio::test]
async fn a_history_becomes_a_trace_with_the_same_lengths_and_shared_tokens() {
    // Prompt tokens, parent and tokens shared with it, answer.
    let made =
        [(500, None, 0, 40), (700, Some(0), 480, 7), (90, None, 0, 1), (700, Some(1), 700, 9), (650, Some(1), 601, 3)];
    let records = (0_u32..).zip(made).flat_map(|(n, (prompt_tokens, parent, shared_tokens, completion))| {
        let decision = DecisionRecord {
            prompt_tokens,
            parent: parent.map(id),
            shared_tokens,
            session_hash: u64::from(n % 2),
            ..decision(n, 0)
        };
        let outcome = OutcomeRecord { completion_tokens: Some(completion), ..outcome(n, Some(80)) };
        [StoreRecord::Decision(Box::new(decision)), StoreRecord::Outcome(super::ROUTE, Box::new(outcome))]
    });
    let bench = StoreFixture::new();
    bench.write(records).await;
    let history = requests(&bench, 100).await.into_iter().map(|request| HistoryRow {
        id: request.decision.0,
        parent: request.parent.map(|parent| parent.0),
        shared_tokens: request.shared_tokens,
        at_us: request.received.0,
        prompt_tokens: request.prompt_tokens,
        engine_prompt_tokens: request.engine_prompt_tokens,
        output_tokens: request.completion_tokens.unwrap_or_default(),
        session_hash: request.session_hash,
    });
    let trace = from_history(history, 16);
    let mut file = Vec::new();
    write(&trace.rows, TraceCompression::Gzip, &mut file).unwrap();
    let rows = read(&file, None).unwrap().rows;
    assert_eq!(rows, trace.rows);
    let facts: Vec<_> = rows
        .iter()
        .map(|row| {
            let parent = row.parent.as_deref().map(|parent| parent.parse::<u32>().unwrap());
            (row.input_tokens, parent, row.shared_tokens.unwrap(), row.output_tokens)
        })
        .collect();
    assert_eq!(facts, made);
    assert_eq!(rows.iter().map(|row| row.at_ms).collect::<Vec<_>>(), [0.0, 1.0, 2.0, 3.0, 4.0]);
    assert_eq!(rows.iter().map(|row| row.session().unwrap()).collect::<Vec<_>>(), ["0", "1", "0", "1", "0"]);
    let equal = |a: usize, b: usize| rows[a].blocks.iter().zip(&rows[b].blocks).take_while(|(a, b)| a == b).count();
    // 480 tokens are 30 blocks; the prompt sent again shares all 44; 601 tokens are 37 whole blocks.
    assert_eq!((equal(0, 1), equal(1, 3), equal(1, 4), equal(0, 2)), (30, 44, 37, 0));
}
