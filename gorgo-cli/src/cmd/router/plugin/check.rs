//! `gorgo plugin check FILE`: runs the conformance checks in a separate process, and prints the results as a table.

use std::fmt::Write as _;
use std::io::{BufRead, BufReader, Write as _};
use std::os::unix::process::ExitStatusExt;
use std::path::PathBuf;
use std::process::{Command, ExitStatus, Stdio};

use comfy_table::{ContentArrangement, Table, presets};
use gorgo_plugins::conform::{self, CheckVerdict, SymbolReport};
use gorgo_routing::model::ConfigValue;
use serde_json::json;

use crate::exit::CommandExit;

/// Arguments of `gorgo plugin check`.
#[derive(Debug, clap::Args)]
pub(super) struct PluginCheckArgs {
    #[command(flatten)]
    what: ConformArgs,
}

/// Arguments of the process that runs the checks.
#[derive(Debug, clap::Args)]
pub(super) struct ConformArgs {
    /// Library to check
    file: PathBuf,
    /// Options as in a policy, a TOML table such as "malus_ms = 5" [default: those of each option]
    #[arg(long, value_name = "TOML", value_parser = options)]
    options: Option<PluginOptions>,
}

/// Options as text, to pass on, and as a value.
#[derive(Debug, Clone)]
struct PluginOptions {
    text: String,
    value: ConfigValue,
}

fn options(text: &str) -> Result<PluginOptions, String> {
    let table: toml::Table = text.parse().map_err(|cause: toml::de::Error| cause.message().to_owned())?;
    Ok(PluginOptions { text: text.to_owned(), value: value(toml::Value::Table(table))? })
}

/// Converts a TOML value to one of the plugin interface.
fn value(toml: toml::Value) -> Result<ConfigValue, String> {
    Ok(match toml {
        toml::Value::Boolean(truth) => ConfigValue::Bool(truth),
        toml::Value::Integer(whole) => ConfigValue::Integer(whole),
        toml::Value::Float(number) => ConfigValue::Float(number),
        toml::Value::String(text) => ConfigValue::Text(text),
        toml::Value::Array(list) => ConfigValue::List(list.into_iter().map(value).collect::<Result<_, _>>()?),
        toml::Value::Table(table) => ConfigValue::Table(
            table.into_iter().map(|(key, member)| Ok((key, value(member)?))).collect::<Result<_, String>>()?,
        ),
        toml::Value::Datetime(_) => return Err("options cannot be dates; use a text".to_owned()),
    })
}

impl PluginCheckArgs {
    pub(super) fn run(&self) -> CommandExit {
        let (right, text) = self.checked();
        // A closed pipe is ignored: the exit code still has the answer.
        let _ = std::io::stdout().write_all(text.as_bytes());
        if right { CommandExit::Done } else { CommandExit::Negative }
    }

    /// True if all checks passed, and the report.
    fn checked(&self) -> (bool, String) {
        let failed = |cause: std::io::Error| (false, format!("gorgo: the checks could not be run: {cause}\n"));
        let program = match std::env::current_exe() {
            Ok(program) => program,
            Err(cause) => return failed(cause),
        };
        let mut command = Command::new(program);
        // A wrong library may abort or crash its process; in a child that is a finding.
        command.args(["plugin", "conform"]).arg(&self.what.file);
        if let Some(options) = &self.what.options {
            command.arg(format!("--options={}", options.text));
        }
        let mut child = match command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn() {
            Ok(child) => child,
            Err(cause) => return failed(cause),
        };
        let mut lines = ConformOutput::default();
        if let Some(stdout) = child.stdout.take() {
            // Read to the end before waiting: a child whose pipe is full would never end.
            BufReader::new(stdout).lines().map_while(Result::ok).for_each(|line| lines.take(&line));
        }
        match child.wait() {
            Ok(status) => lines.told(&self.what.file.display().to_string(), status),
            Err(cause) => failed(cause),
        }
    }
}

/// Output of the process that runs the checks, a line of JSON each: `{"began": check}`, then at the end `{"report":
/// text, "right": bool}` or `{"refused": text}`.
#[derive(Debug, Default)]
struct ConformOutput {
    began: String,
    report: Option<(bool, String)>,
}

impl ConformOutput {
    fn take(&mut self, line: &str) {
        // A library may write to standard output, too: skip lines that are not JSON.
        let Ok(line) = serde_json::from_str::<serde_json::Value>(line) else { return };
        if let Some(began) = line["began"].as_str() {
            began.clone_into(&mut self.began);
        }
        if let Some(report) = line["report"].as_str() {
            self.report = Some((line["right"] == true, report.to_owned()));
        }
        if let Some(refused) = line["refused"].as_str() {
            self.report = Some((false, format!("{refused}\n")));
        }
    }

    fn told(self, file: &str, status: ExitStatus) -> (bool, String) {
        match (self.report, status.signal()) {
            (Some((right, report)), None) => (right, report),
            (Some((_, report)), Some(signal)) => {
                (false, format!("{report}\n{file}: the process ended by signal {signal} after the last check\n"))
            }
            (None, signal) => {
                // Without a report the last check that began is the one that ended the process.
                let how = match signal {
                    Some(6) => "aborted".to_owned(),
                    Some(11) => "crashed (segmentation fault)".to_owned(),
                    Some(signal) => format!("ended by signal {signal}"),
                    None => "ended".to_owned(),
                };
                (false, format!("{file}: the process {how} in check `{}`\n", self.began))
            }
        }
    }
}

impl ConformArgs {
    /// Runs the checks in this process.
    pub(super) fn run(&self) -> CommandExit {
        let say = |line: serde_json::Value| {
            let mut out = std::io::stdout().lock();
            // If the parent process is gone, nothing can be reported.
            let _ = writeln!(out, "{line}").and_then(|()| out.flush());
        };
        let given = self.options.as_ref().map(|options| &options.value);
        match conform::check(&self.file, given, |check| say(json!({ "began": check }))) {
            Ok(reports) => {
                let right = reports.iter().all(SymbolReport::passed);
                let text: String = reports.iter().map(shown).collect();
                say(json!({ "right": right, "report": text }));
            }
            Err(cause) => say(json!({ "refused": cause.to_string() })),
        }
        CommandExit::Done
    }
}

/// A report as text for people.
fn shown(report: &SymbolReport) -> String {
    let about = &report.plugin;
    let mut table = Table::new();
    table.load_style(presets::UTF8_BORDERS_ONLY).set_content_arrangement(ContentArrangement::Disabled);
    table.set_header(["check", "", "what was seen"]);
    for (check, verdict) in &report.results {
        let (sign, seen) = match verdict {
            CheckVerdict::Passed(seen) => ("ok", seen),
            CheckVerdict::Failed(what) => ("WRONG", what),
        };
        table.add_row([check, sign, &**seen]);
    }
    let wrong = report.results.iter().filter(|(_, verdict)| matches!(verdict, CheckVerdict::Failed(_))).count();
    let verdict = if wrong == 0 { "all checks passed".to_owned() } else { format!("{wrong} checks failed") };
    let mut text = String::new();
    // Writing to a string cannot fail.
    let _ =
        writeln!(text, "{} {} ({}): {}\n{table}\n{verdict}", about.name, about.version, report.symbol, about.summary);
    text
}
