//! Reports, layers and `--effective` as people see them; and what must hold for every text.

use std::ffi::OsString;
use std::path::Path;

use proptest::prelude::*;
use proptest::test_runner::RngSeed;

use super::*;

const SHIPPED: &str = include_str!("../../../../policies.toml");

/// A small correct file.
const SMALL: &str = r#"default_policy = "mine"
[server]
listen = "127.0.0.1:0"
[[replica]]
name = "us-ashburn"
engine = "simulated"
simulated = { rtt_ms = 37, profile = "l40s" }
[[replica]]
name = "a.b.c"
engine = "vllm"
url = "http://10.0.0.1:8000"
[policy.mine]
picker = { kind = "lowest", tie_margin = 1.0 }
[[policy.mine.term]]
kind = "rtt"
weight = 1.0
[[policy.mine.term]]
kind = "queue"
weight = { init = 0.5, max = 2.0 }
"#;

fn presets() -> Vec<(String, ConfigValue)> {
    let table = parse_toml("term = [{ kind = \"rtt\", weight = 0.276 }, { kind = \"prefill\" }]").unwrap();
    vec![("gorgo".to_owned(), table.clone()), ("predicted-latency".to_owned(), table)]
}

fn run(text: &str, environment: &[(&str, &str)], flags: &[&str]) -> LoadedConfig {
    let environment: Vec<_> =
        environment.iter().map(|(name, value)| (OsString::from(name), OsString::from(value))).collect();
    let settings: Vec<_> = flags.iter().map(|flag| ConfigOverride::parse(flag).unwrap()).collect();
    let presets = presets();
    let known = KnownNames { presets: &presets, profiles: &["l40s", "l40s-qwen3.5-35b"], kinds: &KINDS };
    load("policies.toml", text, Path::new(""), ConfigInputs { environment: &environment, overrides: &settings, known })
}

const KINDS: [KindDoc; 1] = [KindDoc {
    family: "constraint",
    kind: "max-inflight",
    unit: "",
    summary: "",
    params: &[crate::model::ParamSpec {
        name: "of",
        ty: crate::model::ParamType::Text { default: None, choices: &[] },
        unit: "",
        help: "",
    }],
}];

fn report(text: &str, environment: &[(&str, &str)], flags: &[&str]) -> String {
    let loaded = run(text, environment, flags);
    assert_eq!(loaded.config.is_none(), loaded.faults.has_faults());
    render(&loaded.faults, &loaded.origins, ReportStyle::Plain)
}

/// The configuration; panics with the report where there is a fault.
fn good(text: &str, environment: &[(&str, &str)], flags: &[&str]) -> (Config, ConfigOrigins) {
    let loaded = run(text, environment, flags);
    let report = render(&loaded.faults, &loaded.origins, ReportStyle::Plain);
    (loaded.config.expect(&report), loaded.origins)
}

const NASTY: &str = r#"default_policy = "gorgoo"
listen = "0.0.0.0:80"

[server]
listen = "localhost:8080"
lisen = "127.0.0.1:8080"
headers = "yes"
session_header = "x session"
max_body_bytes = 12.5
idle_timeout_ms = 0
drain_secs = 1979-05-27

[log]
filter = "info,=,"
format = "xml"

[store]
retention = { max_age_days = nan, max_size_mb = 99999999999999999999 }

[failover]
budget_share = 1.4
hedge = { after = inf }

[servr]
x = 1

[[replica]]
name = "eu west"
engine = "sglan"

[[replica]]
name = "ap"
engine = "vllm"
url = "https://10.0.0.1:8000"
http = 1.1
api_key_env = "sk-not-a-name"
simulated = { rtt_ms = -1 }

[[replica]]
name = "ap"
engine = "sglang"

[[replica]]
engine = "simulated"
url = "http://me:hunter2@10.0.0.1"
kv_capacity_tokens = 0
simulated = { profile = "h100", speed = 0.0, sped = 2 }
models = ["", 3]

[policy]
mine = "lowest"
"#;

#[test]
fn all_faults_are_reported_at_once_in_line_order() {
    insta::assert_snapshot!(report(NASTY, &[], &[]));
}

#[test]
fn carets_show_the_place_and_no_secret() {
    let loaded = run(NASTY, &[], &[]);
    let report = render(&loaded.faults, &loaded.origins, ReportStyle::Carets);
    assert!(!report.contains("hunter2") && !report.contains("sk-not"));
    insta::assert_snapshot!(report);
    let coloured = render(&loaded.faults, &loaded.origins, ReportStyle::Colour);
    assert!(coloured.contains("\u{1b}["));
}

#[test]
fn carets_point_into_an_expression() {
    let text = "[[policy.mine.term]]\nsignal = \"é + rtt_sm\"\n[[policy.mine.term]]\nsignal = \"1 +\"\n\
                [[policy.mine.term]]\nsignal = \"\\t1 +\"\n[[policy.mine.term]]\nsignal = '''1 +'''\n";
    let loaded = run(text, &[], &[]);
    let mut faults = ConfigFaults::default();
    faults.push_fault("policy.mine.term[0].signal", "column 5: unknown name `rtt_sm`");
    faults.push_fault("policy.mine.term[1].signal", "column 4: expected a number, found the end");
    faults.push_fault("policy.mine.term[2].signal", "column 5: expected a number, found the end");
    faults.push_fault("policy.mine.term[3].signal", "column 4: expected a number, found the end");
    insta::assert_snapshot!(render(&faults, &loaded.origins, ReportStyle::Carets));
}

#[test]
fn faults_of_syntax_say_where_and_what_was_expected() {
    insta::assert_snapshot!(report("[server]\nlisten = \n= 3\nx = 012\n[admin\n", &[], &[]));
}

#[test]
fn double_keys_and_tables_are_faults_beside_others() {
    let text = "[server]\nlisten = \"127.0.0.1:1\"\nlisten = \"127.0.0.1:2\"\n[[replica]]\nname = \"a\"\nengine = \
                \"simulated\"\nenabled = false\n[server]\nheaders = true\n";
    insta::assert_snapshot!(report(text, &[], &[]));
    // What stands below a second header belongs to no other table, and is no fault of one.
    let twice = format!(
        "{SMALL}\n[policy.other]\nunit = \"ms\"\n\n[policy.mine] # again\nunit = \"ms\"\n[log]\nfilter = \"info\"\n"
    );
    let said = report(&twice, &[], &[]);
    assert_eq!(said.lines().count(), 1, "{said}");
    assert!(said.contains("policy.mine: is defined twice; first on line"), "{said}");
}

#[test]
fn an_empty_file_has_one_fault() {
    insta::assert_snapshot!(report("", &[], &[]));
}

#[test]
fn a_file_that_is_not_there_says_so() {
    let inputs = ConfigInputs { environment: &[], overrides: &[], known: KnownNames::default() };
    let loaded = read(Path::new("no/such.toml"), inputs);
    let report = render(&loaded.faults, &loaded.origins, ReportStyle::Carets);
    assert!(report.starts_with("no/such.toml: this configuration file cannot be read: "), "{report}");
    assert!(report.contains("/no/such.toml); create it"), "it says where it looked: {report}");
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("x.toml");
    std::fs::write(&file, b"a = 1\nb = \"\xff\"\n").unwrap();
    let loaded = read(&file, inputs);
    assert!(loaded.faults.list[0].message.contains("not UTF-8, starting at line 2 on"));
}

#[test]
fn policies_faults_get_their_lines() {
    let loaded = run(SMALL, &[("GORGO_POLICY__MINE__PICKER", "best")], &["policy.mine.term[1].weight.max=0.1"]);
    let mut faults = ConfigFaults::default();
    faults.push_fault("policy.mine.term[1].weight.init", "0.5 is above 0.1");
    faults.push_fault("policy.mine.term[1].weight.max", "too small");
    faults.push_fault("policy.mine.term[0].unit", "is missing");
    faults.push_fault("policy.mine.picker", "unknown picker \"best\"; known: lowest, softmin");
    faults.push_warning("policy.mine", "terms of different units summed with no rate");
    insta::assert_snapshot!(render(&faults, &loaded.origins, ReportStyle::Plain));
}

#[test]
fn the_environment_sets_the_key_that_is_meant_and_keeps_its_type() {
    let (config, origins) = good(
        SMALL,
        &[
            ("gorgo_Server__max_BODY_bytes", "2048"),
            ("GORGO_SERVER__SESSION_HEADER", "0123"),
            ("GORGO_REPLICA__0__REGION", "1e5"),
            ("GORGO_REPLICA__A_B_C__REGION", "true"),
            ("GORGO_REPLICA__US_ASHBURN__MODELS", r#"["a", "b"]"#),
            ("GORGO_STORE__RETENTION", "{ max_age_days = 3 }"),
            ("GORGO_POLICY__MINE__TERM__0__WEIGHT", "0.25"),
            ("GORGO_POLICY__MINE__TERM__QUEUE__NAME", "007"),
            ("GORGO_POLICY__MINE__TERM__1__WEIGHT__MAX", "3"),
            ("GORGO_POLICY__MINE__CONSTRAINT__MAX_INFLIGHT__OF", "12"),
            ("GORGO_POLICY__MINE__PICKER", r#"{ kind = "softmin" }"#),
            ("GORGO_SHARED", "/x"),
            ("HOME", "/y"),
        ],
        &[],
    );
    assert_eq!(config.server.max_body_bytes, 2048);
    assert_eq!(config.server.session_header, "0123");
    assert_eq!(config.replicas[0].region.as_deref(), Some("1e5"));
    assert_eq!(config.replicas[0].models, ["a", "b"]);
    assert_eq!(config.replicas[1].region.as_deref(), Some("true"));
    assert_eq!(config.replicas[1].url.as_ref().map(EngineUrl::as_str), Some("http://10.0.0.1:8000"));
    assert_eq!(config.store.retention.max_age_days, 3.0);
    // What a table in the environment leaves out has its default.
    assert_eq!(config.store.retention.max_size_mb, RetentionConfig::default().max_size_mb);
    let (name, mine) = &config.policies[0];
    assert_eq!(name, "mine");
    let Some(ConfigValue::List(terms)) = mine.get("term") else { panic!("no terms: {mine:?}") };
    assert_eq!(terms[0].get("weight"), Some(&ConfigValue::Float(0.25)));
    assert_eq!(terms[1].get("name"), Some(&ConfigValue::Text("007".into())));
    assert_eq!(terms[1].get("weight").unwrap().get("max"), Some(&ConfigValue::Integer(3)));
    assert_eq!(terms[1].get("weight").unwrap().get("init"), Some(&ConfigValue::Float(0.5)));
    let constraint = mine.get("constraint").unwrap().get("max-inflight").unwrap();
    assert_eq!(constraint.get("of"), Some(&ConfigValue::Text("12".into())));
    // A table in the environment replaces the file's: no `tie_margin` is left.
    assert_eq!(
        mine.get("picker"),
        Some(&ConfigValue::Table(vec![("kind".into(), ConfigValue::Text("softmin".into()))]))
    );
    assert_eq!(origins.describe("policy.mine.term[0].weight"), "GORGO_POLICY__MINE__TERM__0__WEIGHT");
    assert_eq!(origins.describe("policy.mine.term[0].kind"), "policies.toml:15");
    assert_eq!(origins.describe("replica[1].region"), "GORGO_REPLICA__A_B_C__REGION");
    assert_eq!(origins.describe("store.flush_ms"), "default");
}

#[test]
fn faulty_variables_and_flags_are_named() {
    let environment = [
        ("GORGO_SERVER__LISTN", "x"),
        ("GORGO_SERVR__LISTEN", "x"),
        ("GORGO_QUITE_ANOTHER_THING", "sk-secret"),
        ("GORGO_SERVER__HEADERS", "yes"),
        ("GORGO_STORE__FLUSH_MS", "fast"),
        ("GORGO_STORE__RETENTION", "{ max_age = 3, max_size_mb = 0 }"),
        ("GORGO_REPLICA__7__URL", "http://h"),
        ("GORGO_REPLICA__0__MODELS", "[1, "),
        ("GORGO_POLICY__GORGOO__PICKER", "lowest"),
        ("GORGO_ADMIN__", "x"),
        ("GORGO_LOG__FORMAT", "xml"),
    ];
    let flags = ["servr.listen=x", "server.listen=127.0.0.1", "replica[9].url=x", "a..b=1", "server.headers.x=1"];
    let report = report(SMALL, &environment, &flags);
    assert!(!report.contains("sk-secret"));
    insta::assert_snapshot!(report);
}

#[test]
fn odd_names_keep_their_lines_and_their_settings() {
    let text = format!("{SMALL}[policy.\"a.b c\"]\nunit = \"raw\"\n");
    let deep = format!("GORGO_POLICY__MINE{}", "__A".repeat(10_000));
    let (config, origins) = good(&text, &[("GORGO_POLICY__A_B_C__UNIT", "1")], &["policy.'a.b c'.cost=x"]);
    let expected =
        [("unit", "1"), ("cost", "x")].map(|(key, text)| (key.to_owned(), ConfigValue::Text(text.to_owned())));
    assert_eq!(config.policies[1], ("a.b c".to_owned(), ConfigValue::Table(expected.into())));
    let mut faults = ConfigFaults::default();
    faults.push_fault("policy.a.b c.term", "is missing");
    faults.push_fault("policy.\"a.b c\".unit", "is odd");
    let expected = "policies.toml:20: policy.a.b c.term: is missing\n\
                    GORGO_POLICY__A_B_C__UNIT: policy.\"a.b c\".unit: is odd\n";
    assert_eq!(render(&faults, &origins, ReportStyle::Plain), expected);
    assert!(report(&text, &[(&deep, "1")], &[]).ends_with("unknown key; more than 32 levels deep\n"));
}

#[test]
fn a_key_of_a_preset_changes_a_copy_of_it() {
    let (config, origins) = good(SMALL, &[("GORGO_POLICY__GORGO__TERM__0__WEIGHT", "2")], &["default_policy=gorgo"]);
    let (_, gorgo) = config.policies.iter().find(|(name, _)| name == "gorgo").unwrap();
    let Some(ConfigValue::List(terms)) = gorgo.get("term") else { panic!("no terms: {gorgo:?}") };
    assert_eq!(terms.len(), 2);
    assert_eq!(terms[0].get("weight"), Some(&ConfigValue::Integer(2)));
    assert_eq!(origins.describe("policy.gorgo.term[1].kind"), "preset");
    assert_eq!(config.default_policy, "gorgo");
}

#[test]
fn flags_win_over_the_environment_and_that_over_the_file() {
    let key = "GORGO_SERVER__LISTEN";
    assert_eq!(good(SMALL, &[], &[]).0.server.listen, "127.0.0.1:0");
    assert_eq!(good(SMALL, &[(key, "[::1]:2")], &[]).0.server.listen, "[::1]:2");
    let (config, origins) = good(SMALL, &[(key, "[::1]:2")], &["server.listen=[::1]:3", "server.listen = [::1]:4"]);
    assert_eq!(config.server.listen, "[::1]:4");
    assert_eq!(origins.describe("server.listen"), "--set server.listen");
}

#[test]
fn warnings_do_not_stop_and_are_marked() {
    let text = format!("{SMALL}\n[scrape]\nstale_after_ms = 2000\n")
        .replace("url = ", "api_key_env = \"GORGO_NO_SUCH_KEY\"\nurl = ");
    let loaded = run(&text, &[], &[]);
    assert!(loaded.config.is_some());
    insta::assert_snapshot!(render(&loaded.faults, &loaded.origins, ReportStyle::Plain));
    assert_eq!(summary(&loaded.faults), "2 warnings");
    assert!(run(&text.replace("2000", "9000"), &[("GORGO_NO_SUCH_KEY", "k")], &[]).faults.list.is_empty());
}

#[test]
fn cache_events_are_told_at_an_address_of_zeromq() {
    let with = |keys: &str| {
        let url = "url = \"http://10.0.0.1:8000\"";
        report(&SMALL.replace(url, &format!("{url}\n{keys}")), &[], &[])
    };
    let events = |address: &str| with(&format!("kv_events = \"{address}\""));
    if !cfg!(feature = "kv-events") {
        let said = events("tcp://10.0.0.1:5557");
        assert!(said.contains("built without cache events") && said.contains("--features kv-events"), "{said}");
        return;
    }
    for right in ["tcp://10.0.0.1:5557", "tcp://engine.local:5557", "tcp://[::1]:5557", "tcp://*:5557", "ipc:///run/kv"]
    {
        assert_eq!(events(right), "", "{right}");
    }
    for wrong in
        ["10.0.0.1:5557", "tcp://10.0.0.1", "tcp://:5557", "tcp://a:0", "tcp://a:99999", "ipc://", "udp://a:1", ""]
    {
        let said = events(wrong);
        assert!(said.contains("kv_events: write `tcp://host:port`"), "{wrong}: {said}");
    }
    let both = |replay: &str| with(&format!("kv_events = \"tcp://*:5557\"\nkv_replay = \"{replay}\""));
    assert_eq!(both("tcp://10.0.0.1:5558"), "");
    assert!(
        both("tcp://*:5558").contains("kv_replay: replays are requested from the engine"),
        "{}",
        both("tcp://*:5558")
    );
    assert!(with("kv_replay = \"tcp://a:1\"").contains("kv_replay: needs `kv_events`"));
    let llama = SMALL.replace("\"vllm\"", "\"llama-cpp\"").replace("url = ", "kv_events = \"tcp://a:1\"\nurl = ");
    assert!(report(&llama, &[], &[]).contains("kv_events: only sglang and vllm publish cache events"));
}

#[test]
fn ports_must_differ() {
    let flags = |admin: &str| report(SMALL, &[], &["server.listen=0.0.0.0:9090", &format!("admin.listen={admin}")]);
    assert_eq!(flags("127.0.0.1:9090"), "--set admin.listen: port 9090 is already used by server.listen\n");
    assert_eq!(flags("127.0.0.1:9091"), "");
}

#[test]
fn effective_shows_every_value_with_its_origin() {
    let (config, origins) = good(
        SMALL,
        &[("GORGO_STORE__FLUSH_MS", "100"), ("GORGO_POLICY__GORGO__TERM__0__WEIGHT", "2")],
        &["replica.us-ashburn.simulated.speed=10"],
    );
    insta::assert_snapshot!(effective(&config, &origins));
}

#[test]
fn effective_reads_back_as_the_same_configuration() {
    for text in [SMALL, SHIPPED] {
        let (config, origins) = good(text, &[], &[]);
        let (mut again, _) = good(&effective(&config, &origins), &[], &[]);
        let mut config = config;
        // Arrays of tables come last in a table there.
        for (_, policy) in again.policies.iter_mut().chain(&mut config.policies) {
            let ConfigValue::Table(members) = policy else { panic!("no table") };
            members.sort_by(|(one, _), (other, _)| one.cmp(other));
        }
        assert_eq!(again, config);
    }
}

#[test]
fn effective_masks_what_looks_like_a_secret() {
    let text = format!("{SMALL}options = {{ token = \"t0p\", grams = 3 }}\n");
    let (config, origins) = good(&text, &[], &[]);
    let page = effective(&config, &origins);
    assert!(page.contains("options.token = \"***\"") && !page.contains("t0p"), "{page}");
    assert!(!origins.source().text_without_secrets().contains("t0p"));
    // The plugin itself gets it.
    let Some(ConfigValue::List(terms)) = config.policies[0].1.get("term") else { panic!("no terms") };
    assert_eq!(terms[1].get("options").unwrap().get("token"), Some(&ConfigValue::Text("t0p".into())));
}

#[test]
fn the_shipped_file_is_correct_and_states_the_defaults() {
    let (config, origins) = good(SHIPPED, &[], &[]);
    assert_eq!(config.default_policy, "predicted-latency");
    assert_eq!(config.server, ServerConfig::default());
    assert_eq!(config.admin, AdminConfig::default());
    assert_eq!(config.log, LogConfig::default());
    assert_eq!(config.store, StoreConfig::default());
    assert_eq!(config.index, IndexConfig::default());
    assert_eq!(config.probe, ProbeConfig::default());
    assert_eq!(config.scrape, ScrapeConfig::default());
    assert_eq!(config.failover, FailoverConfig::default());
    let rtts: Vec<_> = config.replicas.iter().map(|replica| replica.simulated.clone().unwrap().rtt_ms).collect();
    assert_eq!(rtts, [37.0, 279.0, 456.0]);
    assert_eq!(origins.source().sha256().len(), 64);
    // Every fixed key stands in it.
    let page = effective(&config, &origins);
    let left_out: Vec<_> = page.lines().filter(|line| line.ends_with("# default")).collect();
    assert_eq!(left_out, Vec::<&str>::new());
}

#[test]
fn the_hash_is_that_of_the_text() {
    // FIPS 180-2, example B.1.
    let source = ConfigSource::parse("x", "abc").source;
    assert_eq!(source.sha256(), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
}

/// What must hold for every text: no panic, no configuration with faults, every line that is named exists.
fn holds(text: &str, environment: &[(&str, &str)], flags: &[&str]) {
    let flags: Vec<_> = flags.iter().filter(|flag| flag.contains('=')).copied().collect();
    let loaded = run(text, environment, &flags);
    assert_eq!(loaded.config.is_none(), loaded.faults.has_faults());
    let lines = loaded.origins.source().line_count();
    let plain = render(&loaded.faults, &loaded.origins, ReportStyle::Plain);
    for line in plain.lines() {
        if let Some(rest) = line.strip_prefix("policies.toml:")
            && !rest.starts_with(' ')
        {
            let number: usize = rest.split(':').next().unwrap().parse().expect(line);
            assert!((1..=lines).contains(&number), "{line}");
        }
    }
    let _ = render(&loaded.faults, &loaded.origins, ReportStyle::Carets);
    if let Some(config) = loaded.config {
        let page = effective(&config, &loaded.origins);
        assert!(!page.is_empty());
    }
}

fn settings() -> ProptestConfig {
    ProptestConfig { rng_seed: RngSeed::Fixed(7), failure_persistence: None, cases: 256, ..ProptestConfig::default() }
}

/// Keys of every type.
const KEYS: [&str; 9] = [
    "server.session_header",
    "server.headers",
    "store.flush_ms",
    "failover.budget_share",
    "failover.hedge",
    "log.format",
    "replica.us-ashburn.models",
    "replica.0.simulated.profile",
    "policy.mine.term.rtt.weight",
];

/// Values as people and accidents write them.
fn value() -> impl Strategy<Value = String> {
    prop_oneof![
        piece(),
        "[a-z-]{1,8}",
        "[0-9]{1,5}",
        Just("{ after = 2, min_ms = 7 }".to_owned()),
        Just("[\"a\"]".to_owned()),
        Just("json".to_owned()),
        Just("false".to_owned()),
    ]
    .prop_filter("the environment holds no NUL", |value| !value.contains('\0'))
}

/// Pieces that TOML gives a meaning to.
fn piece() -> impl Strategy<Value = String> {
    let signs = ["=", "[", "]", "[[", "]]", "{", "}", "\"", "'", "\"\"\"", "\n", "\r\n", ".", ",", "#", "@", "é", "\\"];
    let words = ["server", "listen", "replica", "name", "policy", "mine", "term", "nan", "1979-05-27", "0x1F", "-1"];
    prop_oneof![
        prop::sample::select(signs.to_vec()).prop_map(str::to_owned),
        prop::sample::select(words.to_vec()).prop_map(str::to_owned),
        any::<i64>().prop_map(|whole| whole.to_string()),
        any::<f64>().prop_map(|number| format!("{number:?}")),
        "\\PC{0,4}",
    ]
}

proptest! {
    #![proptest_config(settings())]

    #[test]
    fn any_text_is_read_or_refused(text in any::<String>(), name in "[A-Za-z_0-9]{0,20}", value in any::<String>()) {
        holds(&text, &[], &[]);
        if !value.contains('\0') {
            holds(SMALL, &[(&format!("GORGO_{name}"), &value)], &[&format!("{name}={value}"), &value]);
        }
    }

    #[test]
    fn any_value_of_a_key_is_taken_or_refused(key in prop::sample::select(KEYS.to_vec()), value in value()) {
        let variable = format!("GORGO_{}", key.replace('.', "__").replace('-', "_"));
        let flag = format!("{key}={value}");
        let outcome = |loaded: LoadedConfig| loaded.config;
        let by_variable = outcome(run(SMALL, &[(&variable, &value)], &[]));
        holds(SMALL, &[(&variable, &value)], &[&flag]);
        // A flag and a variable mean the same; only blanks around a flag's value go.
        let trimmed = outcome(run(SMALL, &[(&variable, value.trim())], &[]));
        prop_assert_eq!(format!("{:?}", outcome(run(SMALL, &[], &[&flag]))), format!("{trimmed:?}"));
        if let (Some(config), true) = (by_variable, key == "server.session_header") {
            prop_assert_eq!(config.server.session_header, value);
        }
    }

    #[test]
    fn any_toml_like_text_is_read_or_refused(pieces in prop::collection::vec(piece(), 0..40)) {
        holds(&pieces.concat(), &[], &[]);
        holds(&pieces.join(" "), &[], &[]);
    }

    #[test]
    fn the_shipped_file_with_a_hole_or_a_splinter_is_read_or_refused(
        at in 0..SHIPPED.len(), length in 0_usize..30, splinter in piece(),
    ) {
        let start = (0..=at).rev().find(|at| SHIPPED.is_char_boundary(*at)).unwrap();
        let end = (start..=(start + length).min(SHIPPED.len())).rev().find(|at| SHIPPED.is_char_boundary(*at)).unwrap();
        holds(&format!("{}{splinter}{}", &SHIPPED[..start], &SHIPPED[end..]), &[], &[]);
    }

    #[test]
    fn a_number_passes_exactly_where_it_is_in_range(number in prop_oneof![any::<f64>(), -1.0..2.0_f64]) {
        let text = format!("{SMALL}\n[failover]\nbudget_share = {number:?}\n").replace("NaN", "nan");
        let passed = run(&text, &[], &[]).config.is_some();
        prop_assert_eq!(passed, (0.0..=1.0).contains(&number), "{}", report(&text, &[], &[]));
    }
}
