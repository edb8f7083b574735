//! The commands on small files.

mod history;

use clap::{Args, FromArgMatches};

use super::*;

fn trace(line: &[&str]) -> Result<String, TraceCommandError> {
    let command = TraceArgs::augment_args(clap::Command::new("trace"));
    let matches = command.try_get_matches_from(std::iter::once(&"trace").chain(line)).unwrap();
    match TraceArgs::from_arg_matches(&matches).unwrap().what {
        TraceCommand::Generate(generate) => generate.run(),
        TraceCommand::Stats(stats) => stats.run(),
        TraceCommand::Slice(slice) => slice.run(),
        TraceCommand::FromDb(from_db) => from_db.run(),
        TraceCommand::Profiles(profiles) => profiles.run(),
    }
}

#[test]
fn what_is_generated_can_be_cut_and_measured() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).to_string_lossy().into_owned();
    let (whole, part) = (path("whole.jsonl.gz"), path("part.jsonl"));
    let profile = ["generate", "--profile", "art-chat-apr5", "--seed", "7", "--minutes", "4"];
    trace(&[&profile[..], &["--out", &whole]].concat()).unwrap();
    insta::assert_snapshot!(trace(&["stats", &whole]).unwrap());

    trace(&["slice", &whole, "--from-s", "60", "--to-s", "120", "--min-input-tokens", "100", "--out", &part]).unwrap();
    let stats: serde_json::Value = serde_json::from_str(&trace(&["stats", &part, "--json"]).unwrap()).unwrap();
    assert!(stats["rows"].as_u64().unwrap() > 50 && stats["duration_s"].as_f64().unwrap() < 60.0, "{stats}");
    assert!(stats["input_tokens"]["p50"].as_f64().unwrap() > 1000.0, "{stats}");
    assert_eq!((&stats["block_tokens"], &stats["sessions"]["source"]), (&256.into(), &"named".into()));

    let again = path("again.jsonl.gz");
    trace(&[&profile[..], &["--out", &again]].concat()).unwrap();
    assert!(std::fs::read(whole).unwrap() == std::fs::read(again).unwrap());
}

#[test]
fn servegen_tables_are_found_by_the_models_name() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(
        folder.path().join("small_client_arrivals.csv"),
        "client,t_s,rate_rps,cv,pattern,arg1,arg2\n0,86400,2.0,1.0,Gamma,1.0,0.5\n",
    )
    .unwrap();
    let lengths = "{\"client\":0,\"t_s\":86400,\"input_tokens\":[9,9],\"output_tokens\":[4,4]}\n";
    std::fs::write(folder.path().join("small_client_lengths.jsonl"), lengths).unwrap();
    let out = folder.path().join("out.jsonl").to_string_lossy().into_owned();
    let tables = folder.path().to_string_lossy().into_owned();
    let line = ["generate", "--profile", "servegen:small", "--minutes", "10", "--out", &out];
    assert!(matches!(trace(&line), Err(TraceCommandError::Arguments(_))));
    trace(&[&line[..], &["--tables", &tables, "--rate", "1"]].concat()).unwrap();
    let rows = read(Path::new(&out), None).unwrap().rows;
    assert!((500..700).contains(&rows.len()) && rows[0].input_tokens == 9, "{}", rows.len());
    let early = [&line[..], &["--tables", &tables, "--from-s", "0"]].concat();
    let said = trace(&early).unwrap_err().to_string();
    assert!(said.ends_with("they cover 86400 to 87000 s"), "{said}");
    // A model whose tables end before the usual start.
    std::fs::write(
        folder.path().join("small_client_arrivals.csv"),
        "client,t_s,rate_rps,cv,pattern,arg1,arg2\n0,1200,2.0,1.0,Gamma,1.0,0.5\n",
    )
    .unwrap();
    trace(&[&line[..], &["--tables", &tables]].concat()).unwrap();
    let rows = read(Path::new(&out), None).unwrap().rows;
    assert!((1_000..1_400).contains(&rows.len()), "{}", rows.len());
}

#[test]
fn what_is_wrong_is_said() {
    let said = |line: &[&str]| trace(line).unwrap_err().to_string();
    let said = [
        said(&["generate", "--profile", "art-chat"]),
        said(&["generate", "--profile", "hot", "--set", "users=0.5"]),
        said(&["profiles", "nothing"]),
        said(&["stats", "no-such-file"]),
    ];
    insta::assert_snapshot!(said.join("\n"));
}

#[test]
fn profiles_and_their_numbers_are_listed() {
    insta::assert_snapshot!(trace(&["profiles"]).unwrap() + "\n" + &trace(&["profiles", "wildchat"]).unwrap());
}

#[test]
fn a_history_is_written_as_a_trace_of_the_time_asked_for() {
    let folder = tempfile::tempdir().unwrap();
    let (database, out) = (folder.path().join("history.db"), folder.path().join("trace.jsonl.gz"));
    // The third has a parent outside the requested span; the last has no prompt.
    let requests =
        [(90, None, 0, 1), (300, None, 0, 5), (400, Some(1), 300, 6), (410, Some(2), 400, 7), (0, None, 0, 0)];
    tokio::runtime::Runtime::new().unwrap().block_on(history::write(&database, &requests));
    let (database, out) = (database.to_string_lossy().into_owned(), out.to_string_lossy().into_owned());
    trace(&["from-db", &database, "--out", &out, "--from", "2026-11-30T03:12:07Z"]).unwrap();
    let rows = read(Path::new(&out), None).unwrap().rows;
    let facts: Vec<_> = rows
        .iter()
        .map(|row| (row.at_ms, row.input_tokens, row.parent.as_deref(), row.shared_tokens, row.output_tokens))
        .collect();
    assert_eq!(facts, [(0.0, 400, None, Some(300), 6), (1000.0, 410, Some("0"), Some(400), 7)]);
    assert_eq!(rows[0].blocks[..25], rows[1].blocks[..25]);
    trace(&["from-db", &database, "--out", &out, "--block", "256"]).unwrap();
    assert_eq!(read(Path::new(&out), None).unwrap().rows.len(), 4);
    let said = trace(&["from-db", &database, "--to", "2026-01-01T00:00:00Z"]).unwrap_err();
    assert_eq!(
        (said.exit(), said.to_string().as_str()),
        (CommandExit::Usage, "no request to write: all were dropped or left out")
    );
    assert_eq!(trace(&["from-db", "no-such.db"]).unwrap_err().exit(), CommandExit::Store);
}
