//! The header and `abi.rs` agree: a compiled C program asserts every size, offset and number.

use std::fmt::Write as _;
use std::mem::{offset_of, size_of};
use std::process::Command;

use gorgo_plugins::abi::{self, flag, kind, need, option_flag, status, unit};

use crate::bench::root;

/// `(C struct, its size, fields in C with their offsets)`.
macro_rules! layout {
    ($rust:ty, $c:literal: $($field:ident $(as $named:literal)?),* $(,)?) => {{
        let fields: Vec<(String, usize)> = vec![$((
            [$($named.to_owned(),)? stringify!($field).to_owned()].into_iter().next().unwrap(),
            offset_of!($rust, $field),
        )),*];
        ($c, size_of::<$rust>(), fields)
    }};
}

#[test]
fn every_size_offset_and_number_is_the_same_in_c() {
    let structs = [
        layout!(abi::AbiText, "gorgo_text": ptr, len),
        layout!(abi::AbiErrorText, "gorgo_error": ptr, cap, len),
        layout!(abi::AbiOption, "gorgo_option": name, unit, help, kind, flags, default as "fallback", min, max),
        layout!(abi::AbiSetting, "gorgo_setting": key, kind, reserved, number, text),
        layout!(abi::AbiReplica, "gorgo_replica": id, reserved, name, region, engine),
        layout!(abi::AbiSetup, "gorgo_setup": struct_size, replica_size, setting_size, reserved, replicas, replica_count,
            settings, setting_count),
        layout!(abi::AbiRequest, "gorgo_request": struct_size, prompt_tokens, max_tokens, reserved, body_bytes,
            session_hash, head_hash, turn, slo_ttft_ms),
        layout!(abi::AbiColumns, "gorgo_columns": struct_size, present, count, replica, available, name_hash,
            capacity_tokens, rtt_ms, rtt_p95_ms, cached_tokens, queued_tokens, queued_tokens_first,
            queued_uncached_tokens_completion, queued_uncached_tokens, inflight, decoding, inflight_since_report,
            engine_running, engine_waiting, kv_used_tokens, kv_used_share, engine_throughput, report_age_ms,
            latency_ms, prefill_ms_per_token, queue_ms_per_token, decode_ms_per_request, intercept_ms,
            facts, fact_count),
        layout!(abi::AbiOutput, "gorgo_output": struct_size, reserved, count, value, known),
        layout!(abi::AbiCohort, "gorgo_cohort": struct_size, reserved, count, ttft_ms, e2e_ms, itl_ms, prompt_tokens,
            completion_tokens, span_secs, failed),
        layout!(abi::DescriptorHead, "gorgo_head": abi_major, struct_size, name, version, summary, unit, needs, flags,
            option_size, options, option_count),
        layout!(abi::JudgeDescriptor, "gorgo_judge": head, create, destroy, call, facts, fact_count),
        layout!(abi::ObjectiveDescriptor, "gorgo_objective": head, create, destroy, measure),
    ];
    let mut source = String::from("#include \"gorgo_plugin.h\"\n");
    for (name, size, fields) in &structs {
        writeln!(source, "GORGO_STATIC_ASSERT(sizeof({name}) == {size}, \"{name}\");").unwrap();
        for (field, offset) in fields {
            let what = format!("{name}.{field}");
            writeln!(source, "GORGO_STATIC_ASSERT(offsetof({name}, {field}) == {offset}, \"{what}\");").unwrap();
        }
    }
    let numbers = [
        ("GORGO_ABI_MAJOR", abi::ABI_MAJOR),
        ("GORGO_DONE", status::DONE.unsigned_abs()),
        ("GORGO_BAD_INPUT", status::BAD_INPUT.unsigned_abs()),
        ("GORGO_ERROR", status::ERROR.unsigned_abs()),
        ("GORGO_PANICKED", status::PANICKED.unsigned_abs()),
        ("GORGO_NO_OPINION", status::NO_OPINION.unsigned_abs()),
        ("GORGO_NEED_RTT", need::RTT),
        ("GORGO_NEED_PREFIX", need::PREFIX),
        ("GORGO_NEED_LOAD", need::LOAD),
        ("GORGO_NEED_REPORT", need::REPORT),
        ("GORGO_NEED_RATES", need::RATES),
        ("GORGO_NEED_LATENCY", need::LATENCY),
        ("GORGO_UNIT_MILLIS", unit::MILLIS),
        ("GORGO_UNIT_TOKENS", unit::TOKENS),
        ("GORGO_UNIT_REQUESTS", unit::REQUESTS),
        ("GORGO_UNIT_SHARE", unit::SHARE),
        ("GORGO_UNIT_TOKENS_PER_SECOND", unit::TOKENS_PER_SECOND),
        ("GORGO_UNIT_ONE", unit::ONE),
        ("GORGO_FLAG_SPREADS", flag::SPREADS),
        ("GORGO_FLAG_HARD", flag::HARD),
        ("GORGO_KIND_NUMBER", kind::NUMBER),
        ("GORGO_KIND_TEXT", kind::TEXT),
        ("GORGO_KIND_BOOL", kind::BOOL),
        ("GORGO_KIND_NUMBERS", kind::NUMBERS),
        ("GORGO_KIND_TEXTS", kind::TEXTS),
        ("GORGO_OPTION_REQUIRED", option_flag::REQUIRED),
        ("GORGO_OPTION_TUNABLE", option_flag::TUNABLE),
    ];
    for (name, number) in numbers {
        writeln!(source, "GORGO_STATIC_ASSERT({name} == {number}, \"{name}\");").unwrap();
    }
    let named = include_str!("../include/gorgo_plugin.h");
    let in_header = named.lines().filter_map(|line| line.trim().strip_prefix("GORGO_")?.split_once(" = ")).count();
    assert_eq!(in_header + 1, numbers.len(), "a number is in the header and not above, or the other way round");
    let folder = tempfile::tempdir().unwrap();
    for (file, compiler, standard) in [("layout.c", "cc", "-std=c11"), ("layout.cpp", "c++", "-std=c++17")] {
        let file = folder.path().join(file);
        std::fs::write(&file, &source).unwrap();
        let compiled = Command::new(compiler)
            .args([standard, "-Wall", "-Wextra", "-Werror", "-fsyntax-only", "-I"])
            .arg(root().join("gorgo-plugins/include"))
            .arg(&file)
            .status();
        assert!(compiled.expect("a C compiler").success(), "the header and abi.rs differ");
    }
    // A field that is only in the header would go unnoticed by the offsets, but not by the sizes.
    let header = std::fs::read_to_string(root().join("gorgo-plugins/include/gorgo_plugin.h")).unwrap();
    assert_eq!(header.matches("\ntypedef struct gorgo_").count(), structs.len());
}

/// Bits and units are the same as the router's.
#[test]
fn needs_and_units_are_the_routers() {
    use gorgo_routing::model::{RequiredFacts, Unit};
    let needs = [
        (need::RTT, RequiredFacts::RTT),
        (need::PREFIX, RequiredFacts::PREFIX),
        (need::LOAD, RequiredFacts::LOAD),
        (need::REPORT, RequiredFacts::REPORT),
        (need::RATES, RequiredFacts::RATES),
        (need::LATENCY, RequiredFacts::LATENCY),
    ];
    let all = needs.into_iter().fold(0, |all, (bit, need)| {
        assert_eq!(RequiredFacts::from_bits(bit), Some(need));
        all | bit
    });
    assert_eq!(all, need::ALL);
    assert_eq!(RequiredFacts::from_bits(RequiredFacts::ALL.bits() + 1), None);
    for (code, unit) in (0_u32..).zip(Unit::ALL) {
        let mine = [
            gorgo_plugins::SignalUnit::Millis,
            gorgo_plugins::SignalUnit::Tokens,
            gorgo_plugins::SignalUnit::Requests,
            gorgo_plugins::SignalUnit::Share,
            gorgo_plugins::SignalUnit::TokensPerSecond,
            gorgo_plugins::SignalUnit::One,
        ];
        let mine = mine[usize::try_from(code).unwrap()];
        assert_eq!((mine.code(), format!("{mine:?}")), (code, format!("{unit:?}")));
    }
}
