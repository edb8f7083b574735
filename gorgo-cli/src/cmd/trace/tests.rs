//! The commands on small files.

use clap::{Args, FromArgMatches};

use super::*;

fn trace(line: &[&str]) -> Result<String, TraceCommandError> {
    let command = Trace::augment_args(clap::Command::new("trace"));
    let matches = command.try_get_matches_from(std::iter::once(&"trace").chain(line)).unwrap();
    match Trace::from_arg_matches(&matches).unwrap().what {
        What::Generate(generate) => generate.run(),
        What::Stats(stats) => stats.run(),
        What::Slice(slice) => slice.run(),
        What::FromDb(from_db) => from_db.run(),
        What::Profiles(profiles) => profiles.run(),
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
