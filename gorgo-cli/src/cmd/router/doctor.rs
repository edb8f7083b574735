//! `gorgo doctor`: kernel settings of this machine that cost requests time on far links, and what they cost; and whether
//! what listens where the configuration says is the engine that it says. With `--fleet`: whether the replicas are equally
//! fast (`fleet`).
//!
//! It reads and never sets. The figures are of a POST of 70 KB over a link of 279 ms on HTTP/1.1, measured between
//! network namespaces with the kernel's own TCP at both ends. Where a setting cannot be read (another system, a locked-down
//! container) it says so.

mod fleet;

use std::fs;
use std::io::Write as _;

use gorgo_core::run::{examine_fleet, load};
use gorgo_wire::engine::examine::Finding;

use self::fleet::FleetArgs;
use crate::args::{ConfigArgs, environment};
use crate::cmd::Command;
use crate::exit::Exit;
use crate::plugins::registry;
use crate::runtime::{block_on, clock};

/// Streams times two (a client and an engine), with room.
const OPEN_FILES: u64 = 20_000;
/// Bytes that may wait to be acknowledged on one connection: 1 MiB per round trip.
const SEND_BUFFER: u64 = 1 << 20;

/// Arguments of `gorgo doctor`.
#[derive(Debug, clap::Args)]
pub(crate) struct Doctor {
    /// Look at the replicas in place of this machine: whether they are equally fast
    #[arg(long)]
    fleet: bool,
    #[command(flatten)]
    asked: FleetArgs,
}

impl Command for Doctor {
    const NAME: &'static str = "doctor";
    const ABOUT: &'static str =
        "Say what costs requests time: kernel settings, absent engines, or with --fleet uneven replicas";

    fn run(self) -> Exit {
        if self.fleet {
            return block_on(async move {
                let (text, exit) = self.asked.told(clock()).await;
                match exit {
                    // What stops it is told where errors are.
                    Exit::Configuration | Exit::Usage => {
                        let _ = anstream::stderr().write_all(text.as_bytes());
                    }
                    _ => say(&text),
                }
                exit
            });
        }
        say(&told(|path| fs::read_to_string(path).ok()));
        let ConfigArgs { config: path, set, .. } = &self.asked.config;
        if !path.exists() {
            say(&format!("engines  not asked: there is no {}; name the configuration with --config\n", path.display()));
            return Exit::Done;
        }
        let loading = load(path, &environment(), set, &registry(path));
        let Some((config, _)) = loading.ready else {
            let file = path.display();
            say(&format!("engines  not asked: {file} has faults; `gorgo check --config {file}` shows them\n"));
            return Exit::Configuration;
        };
        block_on(async move {
            match examine_fleet(&config, &*clock()).await {
                Ok(findings) => {
                    say(&engines(&findings));
                    let well = findings.iter().all(|(_, finding)| matches!(finding, Finding::Engine { .. }));
                    if well { Exit::Done } else { Exit::No }
                }
                Err(cause) => {
                    say(&format!("engines  not asked: {cause}\n"));
                    Exit::Configuration
                }
            }
        })
    }
}

/// A closed pipe is not worth an error.
fn say(text: &str) {
    let _ = std::io::stdout().write_all(text.as_bytes());
}

/// What was found of the engines.
fn engines(findings: &[(String, Finding)]) -> String {
    if findings.is_empty() {
        return "engines  none to ask: every enabled replica is simulated\n".to_owned();
    }
    let line = |(name, finding): &(String, Finding)| match finding {
        Finding::Engine { models, lacks: None } => format!("good     engine {name}: serves {}\n", listed(models)),
        Finding::Engine { models, lacks: Some(lacks) } => {
            format!("improve  engine {name}: serves {}\n         {lacks}\n", listed(models))
        }
        Finding::Other(why) => format!("wrong    engine {name}: {why}\n"),
        Finding::Silent(why) => format!("down     engine {name}: {why}\n"),
    };
    findings.iter().map(line).collect()
}

fn listed(models: &[String]) -> String {
    if models.is_empty() { "no model".to_owned() } else { models.join(", ") }
}

/// What was found of one setting.
#[derive(Debug, PartialEq, Eq)]
enum Found {
    /// It is as it should be.
    Good(String),
    /// It could be better: what is, and what to do.
    Better(String, String),
    /// It cannot be read.
    Unknown,
}

/// Reads a file as text, where it can be.
type Read<'a> = &'a dyn Fn(&str) -> Option<String>;

/// A setting: its name, what it is good for, and how to judge it.
struct Setting {
    name: &'static str,
    judge: fn(Read<'_>) -> Found,
    gain: &'static str,
}

const SETTINGS: &[Setting] = &[
    Setting {
        name: "slow start after idle",
        judge: |read| match value(read, "/proc/sys/net/ipv4/tcp_slow_start_after_idle").as_deref() {
            Some("0") => Found::Good("off".to_owned()),
            Some(_) => Found::Better("on".to_owned(), "sysctl -w net.ipv4.tcp_slow_start_after_idle=0".to_owned()),
            None => Found::Unknown,
        },
        gain: "on a kept connection after 1 s without a request: 280 ms in place of 561 (after 10 s, of 841; cubic)",
    },
    Setting {
        name: "congestion control",
        judge: |read| match value(read, "/proc/sys/net/ipv4/tcp_congestion_control") {
            Some(name) if name == "cubic" || name == "reno" => Found::Good(name),
            Some(name) if name == "bbr" => Found::Better(
                name,
                "ip route change ROUTE-TO-THE-ENGINES congctl cubic, where the link loses little".to_owned(),
            ),
            Some(name) => Found::Good(format!("{name} (not measured)")),
            None => Found::Unknown,
        },
        gain: "on a warm connection: 280 ms with cubic, 450 to 500 with bbr; on a new one 1,118 and 1,290",
    },
    Setting {
        name: "send buffer",
        judge: |read| {
            let most: Option<u64> = value(read, "/proc/sys/net/ipv4/tcp_wmem")
                .and_then(|text| text.split_whitespace().nth(2)?.parse().ok());
            match most {
                Some(bytes) if bytes >= SEND_BUFFER => Found::Good(format!("up to {bytes} bytes")),
                Some(bytes) => Found::Better(
                    format!("up to {bytes} bytes"),
                    "sysctl -w net.ipv4.tcp_wmem='4096 16384 4194304'".to_owned(),
                ),
                None => Found::Unknown,
            }
        },
        gain: "a longer prompt than this takes one more round trip per buffer",
    },
    Setting {
        name: "open files",
        judge: |read| {
            let limits = read("/proc/self/limits");
            let soft = limits.as_deref().and_then(|text| {
                let line = text.lines().find(|line| line.starts_with("Max open files"))?;
                line["Max open files".len()..].split_whitespace().next()
            });
            match soft.map(|soft| (soft, soft.parse::<u64>())) {
                Some((soft, Ok(files))) if files < OPEN_FILES => {
                    Found::Better(soft.to_owned(), format!("ulimit -n {OPEN_FILES}, or LimitNOFILE= of the service"))
                }
                Some((soft, _)) => Found::Good(soft.to_owned()),
                None => Found::Unknown,
            }
        },
        gain: "each stream holds two; beyond the limit new clients are not accepted",
    },
    Setting {
        name: "first window",
        judge: |_| {
            Found::Better(
                "not readable here; 10 segments unless a route says otherwise".to_owned(),
                "ip route change ROUTE-TO-THE-ENGINES initcwnd 64".to_owned(),
            )
        },
        gain: "on a new connection: 839 ms in place of 1,118; first use of an open one: 560 in place of 839",
    },
];

fn value(read: Read<'_>, path: &str) -> Option<String> {
    read(path).map(|text| text.trim().to_owned())
}

/// The report.
fn told(read: impl Fn(&str) -> Option<String>) -> String {
    let mut text = String::from("kernel settings; times are of a 70 KB prompt over a link of 279 ms\n");
    for setting in SETTINGS {
        let lines = match (setting.judge)(&read) {
            Found::Good(is) => format!("good     {}: {is}\n", setting.name),
            Found::Better(is, remedy) => {
                format!("improve  {}: {is}\n         {remedy}\n         {}\n", setting.name, setting.gain)
            }
            Found::Unknown => format!("unknown  {}: it cannot be read here\n", setting.name),
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
        let text = told(machine("1", "bbr", "1024"));
        assert_eq!(marks(&text), ["improve", "improve", "good", "improve", "improve"], "{text}");
        for part in
            ["net.ipv4.tcp_slow_start_after_idle=0", "280 ms in place of 561", "congctl cubic", "ulimit -n 20000"]
        {
            assert!(text.contains(part), "{part} in {text}");
        }
        let text = told(machine("0", "cubic", "unlimited"));
        assert_eq!(marks(&text), ["good", "good", "good", "good", "improve"], "{text}");
    }

    #[test]
    fn what_listens_and_is_no_engine_is_told_from_one() {
        let finding = |name: &str, finding| (name.to_owned(), finding);
        let lacks = Some("GET /metrics answers 404: start sglang with --enable-metrics".to_owned());
        let text = engines(&[
            finding("a", Finding::Engine { models: vec!["m".to_owned()], lacks: None }),
            finding("b", Finding::Engine { models: Vec::new(), lacks }),
            finding("c", Finding::Other("it answers GET /v1/models with 404: no engine listens there".to_owned())),
            finding("d", Finding::Silent("cannot connect: refused".to_owned())),
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
        let text = told(|_| None);
        assert_eq!(marks(&text), ["unknown", "unknown", "unknown", "unknown", "improve"], "{text}");
    }
}
