//! `gorgo check`: checks a configuration without starting anything, and prints effective values or the schema for
//! editors.

use std::ffi::OsString;
use std::io::{ErrorKind, Write};
use std::path::Path;

use gorgo_core::run::load;
use gorgo_routing::config::{Config, ConfigOverride, ReportStyle, effective, render, schema, summary};
use gorgo_routing::model::{ConfigFaults, KindDoc};

use crate::args::{ConfigArgs, environment, look, policy_setting};
use crate::cmd::CliCommand;
use crate::engine_settings::notes;
use crate::exit::CommandExit;
use crate::plugins::registry;

/// Arguments of `gorgo check`.
#[derive(Debug, clap::Args)]
pub(crate) struct CheckArgs {
    #[command(flatten)]
    config: ConfigArgs,
    /// Check as if this policy were the default, as `serve --policy` would run it
    #[arg(long, value_name = "NAME")]
    policy: Option<String>,
    /// Print every effective value, with its origin, as TOML
    #[arg(long)]
    effective: bool,
    /// Treat warnings as faults
    #[arg(long)]
    deny_warnings: bool,
    /// Print the JSON schema of configuration files, for editors; reads no configuration
    #[arg(long)]
    schema: bool,
}

/// Result of a check.
#[derive(Debug, PartialEq)]
struct CheckResult {
    exit: CommandExit,
    /// Text for standard output.
    out: String,
    /// Text for standard error.
    report: String,
}

impl CliCommand for CheckArgs {
    const NAME: &'static str = "check";
    const ABOUT: &'static str = "Check a configuration and report all that is wrong with it";

    fn run(self) -> CommandExit {
        let verdict = self.verdict(&environment(), look());
        // A closed pipe is ignored: the exit code still has the answer.
        let _ = anstream::stderr().write_all(verdict.report.as_bytes());
        let _ = std::io::stdout().write_all(verdict.out.as_bytes());
        verdict.exit
    }
}

impl CheckArgs {
    fn verdict(&self, environment: &[(OsString, OsString)], look: ReportStyle) -> CheckResult {
        let registry = registry(&self.config.config);
        // The schema depends on this program alone; it must be available without a valid configuration.
        if self.schema {
            let kinds: Vec<KindDoc> = registry.kind_docs().collect();
            return CheckResult {
                exit: CommandExit::Done,
                out: format!("{:#}\n", schema(&kinds)),
                report: String::new(),
            };
        }
        let policy = policy_setting(self.policy.as_deref());
        let settings: Vec<ConfigOverride> = self.config.set.iter().cloned().chain(policy).collect();
        let mut loading = load(&self.config.config, environment, &settings, &registry);
        if let Some((config, _)) = &loading.ready {
            // The only check that looks at this machine, so it is not among those of the configuration itself.
            look_at_store(config, &mut loading.faults);
        }
        let mut report = render(&loading.faults, &loading.origins, look);
        let name = loading.origins.source().name();
        if !loading.faults.list.is_empty() {
            report.push_str(&format!("{name}: {}\n", summary(&loading.faults)));
        }
        let refused = loading.faults.has_faults() || (self.deny_warnings && !loading.faults.list.is_empty());
        let out = match &loading.ready {
            Some((config, policies)) if self.effective && !refused => {
                let mut text = effective(config, &loading.origins);
                // A preset has no table in the file; without it the printed configuration would not be complete.
                let serves = policies
                    .get(policies.default)
                    .filter(|policy| config.policies.iter().all(|(name, _)| **name != *policy.name));
                if let Some(preset) = serves {
                    text.push_str(&format!("\n# the preset that serves\n{}", preset.text));
                }
                text
            }
            Some((config, policies)) if !refused => {
                let replicas = config.replicas.iter().filter(|replica| replica.enabled).count();
                let plural = if replicas == 1 { "" } else { "s" };
                let (policy, known) = (&config.default_policy, policies.list.len());
                let right = format!("{name}: valid; {replicas} replica{plural}, policy {policy} of {known}\n");
                // Notes are advice and not faults: `--deny-warnings` and the exit code ignore them.
                right + &notes(&config.replicas)
            }
            _ => String::new(),
        };
        CheckResult { exit: if refused { CommandExit::Configuration } else { CommandExit::Done }, out, report }
    }
}

/// Adds a warning if `serve` could not write its history where the configuration says. Only a warning, because the
/// configuration may be meant for another machine.
fn look_at_store(config: &Config, faults: &mut ConfigFaults) {
    let path = config.base.join(&config.store.path);
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    // An existing database must be writable itself; for a new one, create a file beside it and remove it again.
    let tried = if path.exists() {
        std::fs::OpenOptions::new().append(true).open(&path).map(drop)
    } else {
        // The process id keeps two checks at the same time from colliding.
        let probe = folder.join(format!(".gorgo-check-{}", std::process::id()));
        std::fs::File::create_new(&probe).and_then(|_| std::fs::remove_file(&probe))
    };
    let Err(cause) = tried else { return };
    let shown = folder.display();
    let message = match cause.kind() {
        ErrorKind::NotFound => {
            format!("folder {shown} does not exist on this machine; create it, or `serve` will not start")
        }
        _ => format!(
            "`serve` cannot write its history in {shown}: {cause}; fix its permissions or choose another folder"
        ),
    };
    faults.push_warning("store.path", message);
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::{Args, FromArgMatches};

    const SHIPPED: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../policies.toml");

    fn check(flags: &[&str], look: ReportStyle) -> CheckResult {
        let command = CheckArgs::augment_args(clap::Command::new("check"));
        let line = ["check", "--config", SHIPPED].iter().chain(flags);
        let matches = command.try_get_matches_from(line).unwrap();
        let mut verdict = CheckArgs::from_arg_matches(&matches).unwrap().verdict(&[], look);
        verdict.report = verdict.report.replace(SHIPPED, "policies.toml");
        verdict.out = verdict.out.replace(SHIPPED, "policies.toml");
        verdict
    }

    #[test]
    fn the_shipped_file_is_right() {
        let verdict = check(&["--deny-warnings"], ReportStyle::Plain);
        let known = gorgo_routing::policy::PRESETS.len() + 1;
        let right = format!("policies.toml: valid; 3 replicas, policy predicted-latency of {known}\n");
        let notes = verdict.out.strip_prefix(&right).unwrap();
        assert_eq!((verdict.exit, verdict.report.as_str()), (CommandExit::Done, ""));
        insta::assert_snapshot!(notes);
    }

    #[test]
    fn faults_and_denied_warnings_end_with_78() {
        let verdict = check(&["--set", "server.drain_secs=-1", "--effective"], ReportStyle::Plain);
        assert_eq!(verdict.exit, CommandExit::Configuration);
        assert_eq!(verdict.out, "");
        assert_eq!(verdict.report, "--set server.drain_secs: -1 is below 0\npolicies.toml: 1 fault\n");

        let late = ["--set", "scrape.stale_after_ms=2000"];
        assert_eq!(check(&late, ReportStyle::Plain).exit, CommandExit::Done);
        assert!(check(&late, ReportStyle::Plain).report.ends_with("policies.toml: 1 warning\n"));
        assert_eq!(check(&[late[0], late[1], "--deny-warnings"], ReportStyle::Plain).exit, CommandExit::Configuration);
    }

    #[test]
    fn one_policy_is_checked_as_if_it_were_the_default() {
        let verdict = check(&["--policy", "least-load"], ReportStyle::Plain);
        assert!(verdict.out.contains("policy least-load of"), "{verdict:?}");
        let slip = check(&["--policy", "predictd"], ReportStyle::Plain);
        assert_eq!(slip.exit, CommandExit::Configuration);
        assert!(
            slip.report.starts_with("--policy: unknown policy \"predictd\"; did you mean `predicted-latency`?\n"),
            "{}",
            slip.report
        );
        // Without a similar name each known name is listed once, also that of a preset which the file replaces.
        let strange = check(&["--policy", "nosuch"], ReportStyle::Plain).report;
        assert_eq!(strange.matches(" gorgo-tuned,").count(), 1, "{strange}");
    }

    #[test]
    fn a_history_that_cannot_be_written_is_a_warning() {
        let absent = ["--set", "store.path=no/such/folder/history.db"];
        let verdict = check(&absent, ReportStyle::Plain);
        assert_eq!(verdict.exit, CommandExit::Done);
        let report = &verdict.report;
        assert!(report.starts_with("--set store.path: warning: folder "), "{report}");
        assert!(report.contains("no/such/folder does not exist on this machine; create it"), "{report}");
        assert_eq!(
            check(&[absent[0], absent[1], "--deny-warnings"], ReportStyle::Plain).exit,
            CommandExit::Configuration
        );
        // A folder where the file should be.
        let folder = check(&["--set", "store.path=migrations"], ReportStyle::Plain);
        assert!(folder.report.contains("cannot write its history"), "{}", folder.report);
    }

    #[test]
    fn effective_names_the_origins() {
        let out = check(&["--effective", "--set", "log.format=json"], ReportStyle::Plain).out;
        let line = out.lines().find(|line| line.starts_with("format = ")).unwrap();
        assert_eq!(line.split_whitespace().collect::<Vec<_>>().join(" "), "format = \"json\" # --set log.format");
    }

    #[test]
    fn the_committed_schema_is_the_generated_one() {
        let committed = concat!(env!("CARGO_MANIFEST_DIR"), "/../gorgo-core/policies.schema.json");
        let committed = std::fs::read_to_string(committed).unwrap();
        assert!(
            committed == check(&["--schema"], ReportStyle::Plain).out,
            "policies.schema.json is stale: run `.ci/regenerate`"
        );
    }
}
