//! `--spec FILE`: an experiment as one TOML file for `simulate`, `tune` and `replay` alike. Its keys are their flags;
//! they are inserted before the command line's own flags, which win, and are checked like those before anything runs.
//!
//! ```toml
//! [experiment]                  # flags of each command that has them
//! trace = "traces/apr5.jsonl.gz"
//! max-output-tokens = 128
//! [experiment.simulate]         # of this command alone
//! policies = ["gorgo", "predicted-latency"]
//! seeds = "101..105"
//! [experiment.replay]
//! to = "http://10.0.0.5:8080"
//! ```

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use toml::{Table, Value};

/// Commands with `--spec`.
const COMMANDS: [&str; 3] = ["simulate", "tune", "replay"];
/// Flags that name files; paths are relative to the experiment's file, as paths in a configuration are relative to it.
const PATHS: [&str; 9] = ["trace", "config", "scenario", "resume", "csv", "html", "out", "out-dir", "history"];

/// Error: an experiment's file cannot be used.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub(in crate::cmd) enum SpecError {
    #[error("--spec: a file name is missing")]
    Nothing,
    #[error("--spec {}: {cause}", path.display())]
    File { path: PathBuf, cause: String },
    #[error("--spec {}: experiment.{key}: {message}", path.display())]
    Key { path: PathBuf, key: String, message: String },
}

/// The arguments with `--spec` replaced by the flags of its file; unchanged if there is no `--spec`.
pub(in crate::cmd) fn expanded(arguments: Vec<OsString>, program: &clap::Command) -> Result<Vec<OsString>, SpecError> {
    let command = arguments.get(1).and_then(|name| name.to_str()).filter(|name| COMMANDS.contains(name));
    // Other commands pass `--spec` on to clap, which refuses it.
    let Some(command) = command.and_then(|name| program.find_subcommand(name)) else { return Ok(arguments) };
    let mut own = Vec::new();
    let mut file = None;
    let mut rest = arguments.iter().skip(2);
    while let Some(argument) = rest.next() {
        match argument.to_str() {
            // Taken out by hand, in both spellings, because clap cannot parse the line before the file's flags are in
            // it.
            Some("--spec") => file = Some(PathBuf::from(rest.next().ok_or(SpecError::Nothing)?)),
            Some(text) if text.starts_with("--spec=") => file = text.split_once('=').map(|(_, path)| path.into()),
            _ => own.push(argument.clone()),
        }
    }
    // The file is read before clap checks anything, because it may contain required flags such as --trace.
    let Some(path) = file else { return Ok(arguments) };
    let text = std::fs::read_to_string(&path)
        .map_err(|cause| SpecError::File { path: path.clone(), cause: cause.to_string() })?;
    let table: Table = text
        .parse()
        .map_err(|cause: toml::de::Error| SpecError::File { path: path.clone(), cause: cause.to_string() })?;
    let mut all: Vec<OsString> = arguments.iter().take(2).cloned().collect();
    all.extend(of_table(&table, &path, command, program, &own)?);
    all.extend(own);
    Ok(all)
}

fn of_table(
    table: &Table,
    path: &Path,
    command: &clap::Command,
    program: &clap::Command,
    own: &[OsString],
) -> Result<Vec<OsString>, SpecError> {
    let fault = |key: &str, message: String| SpecError::Key { path: path.to_owned(), key: key.to_owned(), message };
    let missing = || SpecError::File { path: path.to_owned(), cause: "the table [experiment] is missing".to_owned() };
    let experiment = table.get("experiment").and_then(Value::as_table).ok_or_else(missing)?;
    let mut words = Vec::new();
    for (key, value) in experiment.iter().filter(|(key, _)| !COMMANDS.contains(&key.as_str())) {
        let has = |name: &str| program.find_subcommand(name).is_some_and(|command| argument(command, key).is_some());
        // A common key must be a flag of some command; the commands without it ignore it.
        if !COMMANDS.into_iter().any(has) {
            return Err(fault(key, format!("not a flag of {}", COMMANDS.join(", "))));
        }
        // The command's own table wins over the common keys.
        let for_itself = experiment.get(command.get_name()).and_then(|own| own.get(key)).is_some();
        if let Some(argument) = argument(command, key).filter(|_| !for_itself) {
            words.extend(written(argument, key, value, path, own).map_err(|message| fault(key, message))?);
        }
    }
    // Check the tables of all commands, whichever runs: a mistake must not show up when half of the experiment is done.
    for name in COMMANDS {
        let Some(table) = experiment.get(name) else { continue };
        let table = table.as_table().ok_or_else(|| fault(name, "must be a table of flags".to_owned()))?;
        let Some(of) = program.find_subcommand(name) else { continue };
        for (key, value) in table {
            let place = format!("{name}.{key}");
            let argument = argument(of, key).ok_or_else(|| fault(&place, format!("not a flag of `gorgo {name}`")))?;
            let flags = written(argument, key, value, path, own).map_err(|message| fault(&place, message))?;
            if name == command.get_name() {
                words.extend(flags);
            }
        }
    }
    Ok(words)
}

fn argument<'a>(command: &'a clap::Command, key: &str) -> Option<&'a clap::Arg> {
    let is_it = |argument: &&clap::Arg| match argument.get_long() {
        Some(long) => long == key && long != "spec",
        None => argument.is_positional() && argument.get_id().as_str() == key,
    };
    command.get_arguments().find(is_it)
}

/// A key as words of a command line; none if the command line has that flag itself.
fn written(
    argument: &clap::Arg,
    key: &str,
    value: &Value,
    path: &Path,
    own: &[OsString],
) -> Result<Vec<OsString>, String> {
    let flag = format!("--{key}");
    let said =
        own.iter().filter_map(|word| word.to_str()).any(|word| word == flag || word.starts_with(&format!("{flag}=")));
    if said {
        return Ok(Vec::new());
    }
    // Asked of clap's own definition, so that a new flag works in experiments without a change here.
    let takes_value = argument.is_positional() || argument.get_action().takes_values();
    let text = |value: &Value| match value {
        // Relative to the experiment's file, so that it works from any folder.
        Value::String(text) if PATHS.contains(&key) => {
            Ok(path.parent().unwrap_or(Path::new("")).join(text).to_string_lossy().into_owned())
        }
        Value::String(text) => Ok(text.clone()),
        Value::Integer(_) | Value::Float(_) | Value::Datetime(_) => Ok(value.to_string()),
        _ => Err("must be a text, a number, true or false, or a list of these".to_owned()),
    };
    match (value, takes_value) {
        (Value::Boolean(true), false) => Ok(vec![flag.into()]),
        (Value::Boolean(false), false) => Ok(Vec::new()),
        (_, false) => Err("must be true or false".to_owned()),
        // A flag with a delimiter takes one joined value; other lists repeat the flag.
        (Value::Array(list), true) if argument.get_value_delimiter().is_some() => {
            let all = list.iter().map(text).collect::<Result<Vec<_>, _>>()?;
            Ok(vec![format!("{flag}={}", all.join(",")).into()])
        }
        (Value::Array(list), true) => list.iter().map(|one| Ok(format!("{flag}={}", text(one)?).into())).collect(),
        (value, true) if argument.is_positional() => Ok(vec![text(value)?.into()]),
        (value, true) => Ok(vec![format!("{flag}={}", text(value)?).into()]),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SPEC: &str = "[experiment]\ntrace = \"t.jsonl\"\nmax-output-tokens = 128\ntime-scale = [1, 0.5]\nno-spread = true\n\
                        json = false\nset = [\"log.format=json\", \"index.block_bytes=128\"]\n\
                        [experiment.simulate]\npolicies = [\"gorgo\", \"random\"]\nseeds = \"101..105\"\n\
                        [experiment.replay]\nto = \"http://h:1\"\ntime-scale = 2\nstart-at = 2026-04-05T16:15:00Z\n";

    /// Expansion of a command line with this file.
    fn of(text: &str, line: &str) -> Result<Vec<String>, String> {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("e.toml");
        std::fs::write(&path, text).unwrap();
        let shown = path.display().to_string();
        let line = line.replace("FILE", &shown);
        let words = line.split(' ').map(OsString::from).collect();
        let place = |text: String| text.replace(&folder.path().display().to_string(), "AT");
        match expanded(words, &crate::cmd::program()) {
            Ok(words) => Ok(words.into_iter().map(|word| place(word.into_string().unwrap())).collect()),
            Err(error) => Err(place(error.to_string())),
        }
    }

    fn alphabetical(words: &[&str]) -> Vec<String> {
        let mut words: Vec<String> = words.iter().map(|word| (*word).to_owned()).collect();
        words.sort();
        words
    }

    #[test]
    fn one_file_serves_simulation_and_replay() {
        // In the order of the file or of the alphabet, which is the same to the command.
        let sorted = |words: &[String]| {
            let mut words: Vec<String> = words[2..].to_vec();
            words.sort();
            words
        };
        let simulate = of(SPEC, "gorgo simulate --spec FILE --seeds 3").unwrap();
        let expected = [
            "--max-output-tokens=128",
            "--no-spread",
            "--set=log.format=json",
            "--set=index.block_bytes=128",
            "--time-scale=1,0.5",
            "--trace=AT/t.jsonl",
            "--policies=gorgo,random",
            "--seeds",
            "3",
        ];
        assert_eq!(sorted(&simulate), alphabetical(&expected));
        let replay = of(SPEC, "gorgo replay --spec=FILE").unwrap();
        let expected = [
            "--max-output-tokens=128",
            "--no-spread",
            "AT/t.jsonl",
            "--start-at=2026-04-05T16:15:00Z",
            "--time-scale=2",
            "--to=http://h:1",
        ];
        assert_eq!(sorted(&replay), alphabetical(&expected));
        // The command accepts the expansion.
        assert!(crate::cmd::program().try_get_matches_from(&replay).is_ok());
        assert!(crate::cmd::program().try_get_matches_from(&simulate).is_ok());
        assert_eq!(of(SPEC, "gorgo check --config x").unwrap().len(), 4);
    }

    #[test]
    fn the_whole_experiment_is_checked_before_any_of_it_runs() {
        let fault = |text: &str| of(text, "gorgo simulate --spec FILE").unwrap_err();
        assert_eq!(
            fault("[experiment]\ntarce = 1\n"),
            "--spec AT/e.toml: experiment.tarce: not a flag of simulate, tune, replay"
        );
        let later = "[experiment.replay]\npolicies = [\"gorgo\"]\n";
        assert_eq!(fault(later), "--spec AT/e.toml: experiment.replay.policies: not a flag of `gorgo replay`");
        assert_eq!(fault("[experiment]\njson = 1\n"), "--spec AT/e.toml: experiment.json: must be true or false");
        assert_eq!(fault("x = 1\n"), "--spec AT/e.toml: the table [experiment] is missing");
        let table = fault("[experiment]\nlimit = { a = 1 }\n");
        assert!(table.ends_with("must be a text, a number, true or false, or a list of these"), "{table}");
        assert_eq!(of("", "gorgo simulate --spec").unwrap_err(), "--spec: a file name is missing");
    }
}
