//! `gorgo doctor`: reports kernel settings of this machine that cost requests time on far links, and how much; and asks
//! every configured address if the configured engine listens there. With `--fleet`: checks that the replicas are
//! equally fast (`fleet`).
//!
//! Reads settings and never changes them. The figures are for a POST of 70 KB over a link of 279 ms on HTTP/1.1,
//! measured between network namespaces with the kernel's own TCP at both ends. A setting that cannot be read (another
//! system, a locked-down container) is reported as unknown.

mod fleet;

use std::fs;
use std::io::Write as _;

use gorgo_core::run::{examine_fleet, load};
use gorgo_wire::engine::examine::EngineFinding;

use self::fleet::FleetArgs;
use crate::args::{ConfigArgs, environment};
use crate::cmd::CliCommand;
use crate::exit::CommandExit;
use crate::plugins::registry;
use crate::runtime::{block_on, clock};

/// Open files wanted: two for each stream (a client and an engine), with room to spare.
const OPEN_FILES: u64 = 20_000;
/// Send buffer wanted, bytes that may be unacknowledged on one connection: 1 MiB per round trip.
const SEND_BUFFER: u64 = 1 << 20;

/// Arguments of `gorgo doctor`.
#[derive(Debug, clap::Args)]
pub(crate) struct DoctorArgs {
    /// Check that the replicas are equally fast, instead of checking this machine
    #[arg(long)]
    fleet: bool,
    #[command(flatten)]
    asked: FleetArgs,
}

impl CliCommand for DoctorArgs {
    const NAME: &'static str = "doctor";
    const ABOUT: &'static str =
        "Find what costs requests time: kernel settings, absent engines, or with --fleet uneven replicas";

    fn run(self) -> CommandExit {
        if self.fleet {
            return block_on(async move {
                let (text, exit) = self.asked.measure(clock()).await;
                match exit {
                    // Errors of the command itself go to standard error; findings do not.
                    CommandExit::Configuration | CommandExit::Usage => {
                        let _ = anstream::stderr().write_all(text.as_bytes());
                    }
                    _ => say(&text),
                }
                exit
            });
        }
        say(&settings_report(|path| fs::read_to_string(path).ok()));
        let ConfigArgs { config: path, set, .. } = &self.asked.config;
        // Kernel settings can be checked on a machine without a configuration, so this is no error.
        if !path.exists() {
            say(&format!(
                "engines  not asked: {} does not exist; pass the configuration with --config\n",
                path.display()
            ));
            return CommandExit::Done;
        }
        let loading = load(path, &environment(), set, &registry(path));
        let Some((config, _)) = loading.ready else {
            let file = path.display();
            say(&format!("engines  not asked: {file} has faults; run `gorgo check --config {file}`\n"));
            return CommandExit::Configuration;
        };
        block_on(async move {
            match examine_fleet(&config, &*clock()).await {
                Ok(findings) => {
                    say(&engines(&findings));
                    // A missing signal makes policies worse, but only an absent or wrong engine is a failure.
                    let well = findings.iter().all(|(_, finding)| matches!(finding, EngineFinding::Engine { .. }));
                    if well { CommandExit::Done } else { CommandExit::Negative }
                }
                Err(cause) => {
                    say(&format!("engines  not asked: {cause}\n"));
                    CommandExit::Configuration
                }
            }
        })
    }
}

/// Prints a text; a closed pipe is ignored, because the exit code still has the answer.
fn say(text: &str) {
    let _ = std::io::stdout().write_all(text.as_bytes());
}

/// Lines about the engines.
fn engines(findings: &[(String, EngineFinding)]) -> String {
    if findings.is_empty() {
        return "engines  none to ask: all enabled replicas are simulated\n".to_owned();
    }
    let line = |(name, finding): &(String, EngineFinding)| match finding {
        EngineFinding::Engine { models, lacks: None } => format!("good     engine {name}: serves {}\n", listed(models)),
        EngineFinding::Engine { models, lacks: Some(lacks) } => {
            format!("improve  engine {name}: serves {}\n         {lacks}\n", listed(models))
        }
        EngineFinding::NotAnEngine(why) => format!("wrong    engine {name}: {why}\n"),
        EngineFinding::Unreachable(why) => format!("down     engine {name}: {why}\n"),
    };
    findings.iter().map(line).collect()
}

fn listed(models: &[String]) -> String {
    if models.is_empty() { "no model".to_owned() } else { models.join(", ") }
}

/// Finding about one setting.
#[derive(Debug, PartialEq, Eq)]
enum SettingFinding {
    /// Set as it should be; the value.
    Good(String),
    /// Improvable: the value, and what to do.
    Improvable(String, String),
    /// Not readable.
    Unknown,
}

/// Reads a file as text, if possible. Replaced in tests.
type FileReader<'a> = &'a dyn Fn(&str) -> Option<String>;

/// A kernel setting: its name, how to judge it, and what the right value gains.
struct MachineSetting {
    name: &'static str,
    check: fn(FileReader<'_>) -> SettingFinding,
    gain: &'static str,
}

const SETTINGS: &[MachineSetting] = &[
    MachineSetting {
        name: "slow start after idle",
        check: |read| match value(read, "/proc/sys/net/ipv4/tcp_slow_start_after_idle").as_deref() {
            Some("0") => SettingFinding::Good("off".to_owned()),
            Some(_) => {
                SettingFinding::Improvable("on".to_owned(), "sysctl -w net.ipv4.tcp_slow_start_after_idle=0".to_owned())
            }
            None => SettingFinding::Unknown,
        },
        gain: "on a kept connection after 1 s without a request: 280 ms instead of 561 (after 10 s, of 841; cubic)",
    },
    MachineSetting {
        name: "congestion control",
        check: |read| match value(read, "/proc/sys/net/ipv4/tcp_congestion_control") {
            // On a warm connection bbr took 450 to 500 ms where cubic took 280.
            Some(name) if name == "cubic" || name == "reno" => SettingFinding::Good(name),
            Some(name) if name == "bbr" => SettingFinding::Improvable(
                name,
                "ip route change ROUTE-TO-THE-ENGINES congctl cubic, where the link loses little".to_owned(),
            ),
            // Other algorithms were not compared, so there is nothing to advise.
            Some(name) => SettingFinding::Good(format!("{name} (not measured)")),
            None => SettingFinding::Unknown,
        },
        gain: "on a warm connection: 280 ms with cubic, 450 to 500 with bbr; on a new one 1,118 and 1,290",
    },
    MachineSetting {
        name: "send buffer",
        check: |read| {
            let most: Option<u64> = value(read, "/proc/sys/net/ipv4/tcp_wmem")
                // Three numbers: minimum, default and maximum; the kernel grows the buffer up to the third by itself.
                .and_then(|text| text.split_whitespace().nth(2)?.parse().ok());
            match most {
                Some(bytes) if bytes >= SEND_BUFFER => SettingFinding::Good(format!("up to {bytes} bytes")),
                Some(bytes) => SettingFinding::Improvable(
                    format!("up to {bytes} bytes"),
                    "sysctl -w net.ipv4.tcp_wmem='4096 16384 4194304'".to_owned(),
                ),
                None => SettingFinding::Unknown,
            }
        },
        gain: "a longer prompt than this takes one more round trip per buffer",
    },
    MachineSetting {
        name: "open files",
        check: |read| {
            let limits = read("/proc/self/limits");
            let soft = limits.as_deref().and_then(|text| {
                let line = text.lines().find(|line| line.starts_with("Max open files"))?;
                line["Max open files".len()..].split_whitespace().next()
            });
            // `unlimited` is no number, and is good.
            match soft.map(|soft| (soft, soft.parse::<u64>())) {
                Some((soft, Ok(files))) if files < OPEN_FILES => SettingFinding::Improvable(
                    soft.to_owned(),
                    format!("ulimit -n {OPEN_FILES}, or LimitNOFILE= of the service"),
                ),
                Some((soft, _)) => SettingFinding::Good(soft.to_owned()),
                None => SettingFinding::Unknown,
            }
        },
        gain: "each stream holds two; beyond the limit new clients are not accepted",
    },
    MachineSetting {
        name: "first window",
        // The initial window is an attribute of routes, which no file under /proc/sys shows.
        check: |_| {
            SettingFinding::Improvable(
                "not readable here; 10 segments unless a route sets another".to_owned(),
                "ip route change ROUTE-TO-THE-ENGINES initcwnd 64".to_owned(),
            )
        },
        gain: "on a new connection: 839 ms instead of 1,118; first use of an open one: 560 instead of 839",
    },
];

fn value(read: FileReader<'_>, path: &str) -> Option<String> {
    // The kernel ends these files with a line break.
    read(path).map(|text| text.trim().to_owned())
}

/// Report on the kernel settings.
fn settings_report(read: impl Fn(&str) -> Option<String>) -> String {
    let mut text = String::from("kernel settings; times are of a 70 KB prompt over a link of 279 ms\n");
    for setting in SETTINGS {
        let lines = match (setting.check)(&read) {
            SettingFinding::Good(is) => format!("good     {}: {is}\n", setting.name),
            SettingFinding::Improvable(is, remedy) => {
                format!("improve  {}: {is}\n         {remedy}\n         {}\n", setting.name, setting.gain)
            }
            SettingFinding::Unknown => format!("unknown  {}: not readable here\n", setting.name),
        };
        text.push_str(&lines);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn machine(idle: &'static str, control: &'static str, files: &'static str) -> impl Fn(&str) -> Option<String> {
        move |path| {
            Some(match path {
                "/proc/sys/net/ipv4/tcp_slow_start_after_idle" => format!("{idle}\n"),
                "/proc/sys/net/ipv4/tcp_congestion_control" => format!("{control}\n"),
                "/proc/sys/net/ipv4/tcp_wmem" => "4096\t16384\t4194304\n".to_owned(),
                "/proc/self/limits" => {
                    format!("Limit  Soft  Hard  Units\nMax open files            {files}  524288  files\n")
                }
                _ => return None,
            })
        }
    }

    fn marks(text: &str) -> Vec<&str> {
        text.lines().skip(1).filter(|line| !line.starts_with(' ')).filter_map(|line| line.split(' ').next()).collect()
    }

    #[test]
    fn what_costs_time_is_named_with_its_remedy() {
        let text = settings_report(machine("1", "bbr", "1024"));
        assert_eq!(marks(&text), ["improve", "improve", "good", "improve", "improve"], "{text}");
        for part in
            ["net.ipv4.tcp_slow_start_after_idle=0", "280 ms instead of 561", "congctl cubic", "ulimit -n 20000"]
        {
            assert!(text.contains(part), "{part} in {text}");
        }
        let text = settings_report(machine("0", "cubic", "unlimited"));
        assert_eq!(marks(&text), ["good", "good", "good", "good", "improve"], "{text}");
    }

    #[test]
    fn what_listens_and_is_no_engine_is_told_from_one() {
        let finding = |name: &str, finding| (name.to_owned(), finding);
        let lacks = Some("GET /metrics answers 404: start sglang with --enable-metrics".to_owned());
        let text = engines(&[
            finding("a", EngineFinding::Engine { models: vec!["m".to_owned()], lacks: None }),
            finding("b", EngineFinding::Engine { models: Vec::new(), lacks }),
            finding(
                "c",
                EngineFinding::NotAnEngine("it answers GET /v1/models with 404: no engine listens there".to_owned()),
            ),
            finding("d", EngineFinding::Unreachable("cannot connect: refused".to_owned())),
        ]);
        let expected = "good     engine a: serves m\n\
                        improve  engine b: serves no model\n\
                        \x20        GET /metrics answers 404: start sglang with --enable-metrics\n\
                        wrong    engine c: it answers GET /v1/models with 404: no engine listens there\n\
                        down     engine d: cannot connect: refused\n";
        assert_eq!(text, expected);
        assert!(engines(&[]).contains("simulated"));
    }

    #[test]
    fn a_system_that_tells_nothing_is_no_error() {
        let text = settings_report(|_| None);
        assert_eq!(marks(&text), ["unknown", "unknown", "unknown", "unknown", "improve"], "{text}");
    }
}
