//! Failures reported for similar products, tried on gorgo: each case with the tests that check the right outcome.
//!
//! The cases are those of kinds streaming, load accounting, health, retries, connection pool and KV events in the
//! project's log of field reports. A case is named by its id there, beside the right outcome in our own words. This
//! file checks that the tests exist; what they check is up to them.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

/// A case: id, right outcome, and file and name of each test that checks it.
type Case = (&'static str, &'static str, &'static [(&'static str, &'static str)]);

const STREAMING: &str = "gorgo-core/wire/src/edge/tests/streaming.rs";
const LOAD: &str = "gorgo-core/wire/src/edge/tests/load.rs";
const POOL: &str = "gorgo-core/wire/src/edge/tests/pool.rs";
const RETRIES: &str = "gorgo-core/wire/src/edge/tests/retries.rs";
const EJECTION: &str = "gorgo-core/wire/src/edge/tests/ejection.rs";
const RACING: &str = "gorgo-core/wire/src/edge/tests/hedging.rs";
const INPUT: &str = "gorgo-core/wire/src/edge/tests/intake.rs";
const FACT_LOAD: &str = "gorgo-core/routing/src/feature/load.rs";
const HEALTH: &str = "gorgo-core/wire/src/engine/monitor/health.rs";
const EJECTIONS: &str = "gorgo-core/wire/src/engine/monitor/ejection.rs";
const PROBE: &str = "gorgo-core/wire/src/engine/monitor/probe/tests.rs";
const ROUTER: &str = "gorgo-core/routing/src/policy/router/tests.rs";
const SERVE: &str = "tests/serve.rs";
const KV_EVENTS: &str = "gorgo-core/wire/src/engine/kv_events/tests.rs";
const SEQUENCE: &str = "gorgo-core/wire/src/engine/kv_events/sequence/tests.rs";
const RESIDENCY: &str = "gorgo-core/routing/src/policy/router/tests/residency.rs";
const PREFIX: &str = "gorgo-core/routing/src/feature/prefix/tests.rs";

const CASES: &[Case] = &[
    (
        "B001",
        "a client that leaves during prefill is noticed at once, before and after the head; load back, one row, no TTFT",
        &[
            (STREAMING, "a_client_that_leaves_is_noticed_at_once_before_and_after_the_head"),
            (RACING, "a_client_that_leaves_ends_both"),
        ],
    ),
    (
        "B002",
        "requests aborted at any moment leave no load; a replica that begins anew with an honest zero does not get all",
        &[
            (LOAD, "requests_aborted_at_any_moment_leave_no_load_behind"),
            (FACT_LOAD, "any_interleaving_returns_to_zero"),
            (ROUTER, "a_newcomer_gets_its_part_of_new_sessions"),
            (ROUTER, "a_restarted_replica_gets_its_part_of_prompts_nobody_knows"),
        ],
    ),
    (
        "B004",
        "the last event is read however it is cut or written, bytes cross unchanged, and [DONE] may be missing",
        &[
            (STREAMING, "every_split_of_the_last_event_reads_the_same"),
            (STREAMING, "what_came_together_goes_on_together_and_what_came_alone_at_once"),
            (STREAMING, "a_stream_crosses_byte_for_byte_as_it_comes"),
        ],
    ),
    (
        "B005",
        "an engine that dies in mid-answer never looks finished; nothing is repeated after the first byte",
        &[
            (STREAMING, "an_engine_that_dies_in_mid_stream_never_looks_finished"),
            (STREAMING, "a_plain_answer_that_breaks_is_aborted"),
            (RETRIES, "failures_before_the_first_byte_go_elsewhere"),
        ],
    ),
    (
        "B007",
        "limits on the first byte and on silence, none on the whole",
        &[(STREAMING, "there_is_an_idle_limit_and_a_first_byte_limit_but_no_total_one")],
    ),
    (
        "B010",
        "usage is asked for and kept from a client that did not ask; an engine that refuses the option is asked without",
        &[
            (STREAMING, "usage_is_asked_for_and_its_chunk_kept_from_a_client_that_did_not"),
            (STREAMING, "an_engine_that_refuses_the_option_is_asked_without_it_from_then_on"),
        ],
    ),
    (
        "B014",
        "nothing but the end of requests lowers their count, least of all a report of the engine",
        &[
            (FACT_LOAD, "no_event_lowers_a_counter"),
            (ROUTER, "between_two_reports_a_burst_does_not_follow_the_old_numbers"),
        ],
    ),
    ("B016", "each path is counted and spread", &[(LOAD, "every_path_is_load_and_is_spread")]),
    ("B020", "load is the size of requests", &[(ROUTER, "load_is_the_size_of_requests_not_their_number")]),
    (
        "B022",
        "the prefill is released at the first token, and where none comes at the end",
        &[
            (LOAD, "the_prefill_is_over_at_the_first_token"),
            (FACT_LOAD, "prefill_is_released_at_the_first_token_and_the_rest_at_the_end"),
            (FACT_LOAD, "a_request_that_never_got_a_token_leaves_nothing"),
        ],
    ),
    (
        "B023",
        "client errors are passed on, never repeated, and hold nobody back",
        &[
            (EJECTION, "client_errors_hold_nobody_back"),
            (RETRIES, "client_errors_and_500_are_passed_on_and_never_repeated"),
        ],
    ),
    (
        "B025",
        "a busy engine is not a dead one",
        &[
            (HEALTH, "late_answers_alone_do_not_kill_while_streams_flow"),
            (HEALTH, "a_full_backlog_is_not_death_but_a_closed_listener_is"),
            (HEALTH, "an_engine_on_its_knees_does_not_flap"),
            (PROBE, "a_late_answer_is_lost_but_not_death"),
        ],
    ),
    (
        "B026",
        "a refused connection goes elsewhere with the whole body, by default, both attempts in the log",
        &[
            (RETRIES, "a_refused_connection_goes_elsewhere_with_the_whole_body_beyond_any_budget"),
            (EJECTION, "connections_that_fail_are_no_attempts_as_long_as_somebody_is_left"),
        ],
    ),
    (
        "B028",
        "the second attempt never goes to the first's replica; one that fails is avoided, then tried by one",
        &[
            (EJECTION, "a_replica_that_fails_is_avoided_for_a_while_and_then_tried_by_one"),
            (ROUTER, "replicas_that_were_tried_are_neither_chosen_nor_listed"),
        ],
    ),
    (
        "B029",
        "a replica that was held back or down returns each time",
        &[
            (EJECTIONS, "holds_double_and_are_forgotten_once_it_has_returned"),
            (EJECTIONS, "probes_end_a_hold"),
            (HEALTH, "a_replica_that_freezes_again_and_again_comes_back_each_time"),
            (PROBE, "a_refused_replica_goes_down_and_comes_back_restarted"),
            (PROBE, "the_loop_ends_when_told_and_only_then"),
        ],
    ),
    (
        "B032",
        "a kept connection is given up before the engine closes it; no request is seen twice",
        &[
            (POOL, "a_connection_that_the_engine_closed_is_not_used"),
            (POOL, "a_connection_is_given_up_before_the_engines_own_limit"),
        ],
    ),
    (
        "B034",
        "early answers, uploads that stop and empty last frames leave later requests right",
        &[
            (POOL, "an_answer_before_the_upload_ended_leaves_later_requests_right"),
            (POOL, "http2_bodies_that_end_in_an_empty_frame_leave_later_requests_right"),
            (INPUT, "a_client_that_stops_in_mid_upload_leaves_a_row"),
        ],
    ),
    (
        "B043",
        "one question per gap; a restart or a clear empties that engine only; bad frames are counted and skipped; requests \
         without events are counted; without events the engine's cached tokens correct the index",
        &[
            (KV_EVENTS, "gaps_repeats_bad_frames_a_restart_and_a_clear"),
            (KV_EVENTS, "without_a_replay_a_gap_is_a_loss_and_it_goes_on"),
            (KV_EVENTS, "an_answered_prompt_is_asked_for_once_and_the_index_set_right"),
            (SEQUENCE, "a_replay_with_holes_or_without_an_end_is_a_loss"),
            (SEQUENCE, "a_restart_that_looks_like_a_gap_is_found_by_the_last_batch"),
            (SEQUENCE, "a_clock_that_went_back_does_not_blind_for_ever"),
            (RESIDENCY, "decisions_believe_what_engines_say"),
            (PREFIX, "what_the_engine_disproves_is_dropped_and_what_it_read_stays"),
        ],
    ),
    (
        "B071",
        "limits on silent clients and idle connections; without a file handle a new client is refused at once",
        &[
            (POOL, "clients_that_say_nothing_or_half_a_request_are_closed_in_time"),
            (POOL, "a_connection_is_given_up_before_the_engines_own_limit"),
            (SERVE, "without_a_file_handle_clients_are_refused_and_later_served_again"),
        ],
    ),
];

const KINDS: [&str; 6] = ["streaming", "load accounting", "health/failover", "retries", "connection pool", "KV events"];

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("the workspace").to_owned()
}

/// True if the file has such a test: its `fn`, below an attribute of a test or within `proptest!`.
fn is_test(text: &str, name: &str) -> bool {
    let Some(at) = text.find(&format!("fn {name}(")) else { return false };
    let before = text[..at].trim_end_matches("async ").trim_end();
    before.ends_with("#[test]") || before.ends_with("#[tokio::test]")
}

#[test]
fn every_case_has_its_tests() {
    for (id, _, tests) in CASES {
        assert!(!tests.is_empty(), "{id}");
        for (file, name) in *tests {
            let text = fs::read_to_string(root().join(file)).unwrap_or_else(|cause| panic!("{id}: {file}: {cause}"));
            assert!(is_test(&text, name), "{id}: {file} has no test {name}");
        }
    }
    assert!(!is_test("fn helper() {}", "helper") && is_test("#[test]\nfn one() {}", "one"));
}

#[test]
fn every_case_of_these_kinds_is_here() {
    let shared = std::env::var_os("GORGO_SHARED").map_or_else(|| root().join("../shared"), PathBuf::from);
    let Ok(log) = fs::read_to_string(shared.join("design/field-reports.md")) else {
        println!("not run: whether the log of field reports has further cases");
        return;
    };
    let wanted: BTreeSet<&str> = log
        .lines()
        .filter_map(|line| {
            let mut columns = line.strip_prefix("| B")?.split('|').map(str::trim);
            let kind = columns.nth(2)?;
            KINDS.contains(&kind).then(|| &line[2..6])
        })
        .collect();
    let here: BTreeSet<&str> = CASES.iter().map(|(id, ..)| *id).collect();
    assert_eq!(here, wanted);
    assert_eq!(here.len(), CASES.len(), "one twice");
}
