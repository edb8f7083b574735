//! Consistency of values: rules that types and ranges cannot express. Reads the merged values, not the sections, so
//! that a fault elsewhere does not hide others; a value of a wrong type was reported by `shape` and is skipped here.

use std::collections::HashMap;
use std::ffi::OsString;
use std::net::SocketAddr;

use tracing_subscriber::filter::EnvFilter;

use super::endpoint::EngineUrl;
use super::schema_check::suggestion;
use super::{KnownNames, path, secrets};
use crate::model::engine::ENGINES;
use crate::model::{ConfigFaults, ConfigValue, EngineKind};

/// Longest name of a replica: it is sent in response headers and used in metric labels.
const LONGEST_NAME: usize = 128;

/// Checks the whole configuration.
pub(super) fn check_consistency(
    root: &ConfigValue,
    environment: &[(OsString, OsString)],
    known: &KnownNames<'_>,
    faults: &mut ConfigFaults,
) {
    listeners(root, faults);
    limits(root, faults);
    fleet(root, environment, known, faults);
    if let Some(name) = text(root, &["default_policy"]) {
        let own = if let Some(ConfigValue::Table(members)) = root.get("policy") { &members[..] } else { &[] };
        let mut names: Vec<_> = own.iter().map(|(name, _)| name.as_str()).collect();
        // A table of the file may replace a preset of the same name, which is then listed once.
        let presets = known.presets.iter().map(|(name, _)| name.as_str());
        names.extend(presets.filter(|preset| own.iter().all(|(name, _)| name != preset)));
        if !names.contains(&name) {
            faults.push_fault("default_policy", format!("unknown policy \"{name}\"; {}", suggestion(name, &names)));
        }
    }
}

fn listeners(root: &ConfigValue, faults: &mut ConfigFaults) {
    let mut read = |section: &str| {
        let address = text(root, &[section, "listen"])?;
        let read = address.parse::<SocketAddr>().ok();
        if read.is_none() {
            let message = "expected an IP address and a port, such as \"127.0.0.1:8080\", \"0.0.0.0:8080\" or \
                           \"[::]:8080\"";
            faults.push_fault(format!("{section}.listen"), message);
        }
        read
    };
    if let (Some(server), Some(admin)) = (read("server"), read("admin")) {
        // An unspecified address covers every interface. Port 0 is chosen by the system, and never clashes.
        let everywhere = server.ip().is_unspecified() || admin.ip().is_unspecified();
        if server.port() == admin.port() && server.port() != 0 && (server.ip() == admin.ip() || everywhere) {
            faults.push_fault("admin.listen", format!("port {} is already used by server.listen", admin.port()));
        }
    }
    if let Some(header) = text(root, &["server", "session_header"])
        && http::HeaderName::from_bytes(header.as_bytes()).is_err()
    {
        faults.push_fault(
            "server.session_header",
            "is not a header name; use letters, digits and `-`, such as \"x-session-id\"",
        );
    }
}

fn limits(root: &ConfigValue, faults: &mut ConfigFaults) {
    let number = |section: &str, key: &str| root.get(section)?.get(key)?.number();
    if let (Some(body), Some(all)) = (number("server", "max_body_bytes"), number("server", "max_buffered_bytes"))
        && body > all
    {
        faults.push_fault(
            "server.max_buffered_bytes",
            format!("{all} is below max_body_bytes, {body}: a body of that size would never fit"),
        );
    }
    // Not a fault: rows are still written, after `flush_ms`.
    if let (Some(flush), Some(queue)) = (number("store", "flush_decisions"), number("store", "queue_decisions"))
        && flush > queue
    {
        faults.push_warning("store.flush_decisions", "is above queue_decisions, so it is never reached");
    }
    if let (Some(every), Some(stale)) = (number("scrape", "interval_ms"), number("scrape", "stale_after_ms"))
        && stale <= every
    {
        let message = "is not above interval_ms, so reports expire before the next one arrives";
        faults.push_warning("scrape.stale_after_ms", message);
    }
    if text(root, &["store", "path"]).is_some_and(str::is_empty) {
        faults.push_fault("store.path", "is empty; write a file name, such as \"history.db\"");
    }
    if let Some(filter) = text(root, &["log", "filter"])
        && let Err(cause) = EnvFilter::builder().parse(filter)
    {
        faults.push_fault(
            "log.filter",
            format!("is not a log filter: {cause}; write one such as \"info\" or \"info,gorgo_observe=debug\""),
        );
    }
}

fn fleet(root: &ConfigValue, environment: &[(OsString, OsString)], known: &KnownNames<'_>, faults: &mut ConfigFaults) {
    let Some(ConfigValue::List(replicas)) = root.get("replica") else { return };
    let mut names = HashMap::new();
    let mut urls = HashMap::new();
    for (index, replica) in replicas.iter().enumerate() {
        let path = path::element("replica", index);
        if let Some(name) = text(replica, &["name"]) {
            let path = path::child(&path, "name");
            // Header values and metric labels must not need escapes.
            if name.is_empty() || name.len() > LONGEST_NAME || !name.bytes().all(|byte| byte.is_ascii_graphic()) {
                let message = format!(
                    "must be 1 to {LONGEST_NAME} visible ASCII characters, since it is sent in response headers"
                );
                faults.push_fault(&path, message);
            }
            if let Some(first) = names.insert(name, index) {
                faults.push_fault(path, format!("\"{name}\" is already the name of replica[{first}]"));
            }
        }
        engine(replica, &path, known, faults);
        api_key(replica, &path, environment, faults);
        cache_events(replica, &path, faults);
        // Only a warning: one engine under two names is unusual, but works.
        if let Some(url) = text(replica, &["url"])
            && let Ok(url) = EngineUrl::parse(url)
            && let Some(first) = urls.insert((url.host().to_owned(), url.port()), index)
        {
            faults.push_warning(path::child(&path, "url"), format!("is also the engine of replica[{first}]"));
        }
        if text(replica, &["region"]).is_some_and(str::is_empty) {
            faults.push_fault(path::child(&path, "region"), "is empty; leave it out to use the replica's name");
        }
        if let Some(ConfigValue::List(models)) = replica.get("models") {
            for (model, _) in models.iter().enumerate().filter(|(_, model)| model.text().is_some_and(str::is_empty)) {
                faults.push_fault(path::element(&path::child(&path, "models"), model), "is empty");
            }
        }
    }
    // Replica ids have 16 bits.
    if u16::try_from(replicas.len()).is_err() {
        faults.push_fault("replica", format!("{} replicas; at most {} are supported", replicas.len(), u16::MAX));
    }
    if !replicas.iter().any(|replica| replica.get("enabled") != Some(&ConfigValue::Bool(false))) {
        let all = if replicas.is_empty() { "no [[replica]]" } else { "every [[replica]] has enabled = false" };
        faults.push_fault("replica", format!("{all}; at least one enabled replica is required"));
    }
}

fn engine(replica: &ConfigValue, path: &str, known: &KnownNames<'_>, faults: &mut ConfigFaults) {
    let Some(engine) = text(replica, &["engine"]).and_then(EngineKind::parse) else { return };
    let at = |key| path::child(path, key);
    let (url, simulated) = (replica.get("url"), replica.get("simulated"));
    if engine == EngineKind::Simulated {
        if url.is_some() {
            faults.push_fault(
                at("url"),
                "a simulated engine has no url, because gorgo starts it itself; name a real engine or go \
                                     without",
            );
        }
        if let Some(profile) = simulated.and_then(|table| text(table, &["profile"]))
            // An empty list: the caller does not know the profiles.
            && !known.profiles.is_empty()
            && !known.profiles.contains(&profile)
        {
            let path = path::child(&at("simulated"), "profile");
            faults.push_fault(path, format!("unknown profile \"{profile}\"; {}", suggestion(profile, known.profiles)));
        }
        return;
    }
    if simulated.is_some() {
        faults
            .push_fault(at("simulated"), format!("only for engine = \"simulated\"; this one is \"{}\"", engine.name()));
    }
    match url {
        None => faults
            .push_fault(at("url"), format!("is required for engine = \"{}\"; write `http://host:port`", engine.name())),
        Some(url) => {
            if let Some(Err(message)) = url.text().map(EngineUrl::parse) {
                faults.push_fault(at("url"), message);
            }
        }
    }
}

fn api_key(replica: &ConfigValue, path: &str, environment: &[(OsString, OsString)], faults: &mut ConfigFaults) {
    let Some(name) = text(replica, &["api_key_env"]) else { return };
    let path = path::child(path, "api_key_env");
    if !secrets::is_variable_name(name) {
        // Not quoted: somebody may have written the key itself.
        faults.push_fault(
            path,
            "expected the name of an environment variable: letters, digits and `_`; not the key itself",
        );
    // Disabled replicas get no requests, so their keys may be absent.
    } else if replica.get("enabled") != Some(&ConfigValue::Bool(false))
        && !environment.iter().any(|(set, _)| set == name)
    {
        faults
            .push_warning(path, format!("the environment variable {name} is not set; requests are sent without a key"));
    }
}

/// Checks the addresses of cache events.
fn cache_events(replica: &ConfigValue, path: &str, faults: &mut ConfigFaults) {
    for key in ["kv_events", "kv_replay"] {
        let at = path::child(path, key);
        let Some(address) = text(replica, &[key]) else { continue };
        // Better a fault than a key without effect.
        if !cfg!(feature = "kv-events") {
            let message = "this gorgo was built without cache events; build it with `--features kv-events`, or leave the \
                           key out";
            faults.push_fault(at, message);
        } else if let Err(message) = publisher(address) {
            faults.push_fault(at, message);
        // With `*` gorgo would listen, but replays are requests, for which it must know the engine's address.
        } else if key == "kv_replay" && address.starts_with("tcp://*:") {
            faults.push_fault(at, "replays are requested from the engine; write its host instead of `*`");
        } else if key == "kv_replay" && replica.get("kv_events").is_none() {
            faults.push_fault(at, "needs `kv_events`, the address at which events are published");
        } else if text(replica, &["engine"]).is_some_and(|engine| !publishing().any(|name| name == engine)) {
            let names: Vec<&str> = publishing().collect();
            faults.push_fault(at, format!("only {} publish cache events", names.join(" and ")));
        }
    }
}

/// Names of the engines that publish cache events.
fn publishing() -> impl Iterator<Item = &'static str> {
    ENGINES.iter().filter(|engine| engine.cache_events).map(|engine| engine.name)
}

/// Checks a ZeroMQ address of an engine.
fn publisher(address: &str) -> Result<(), &'static str> {
    const EXPECTED: &str = "write `tcp://host:port` or `ipc://path` to connect to the engine, `tcp://*:port` if the \
                            engine connects to gorgo";
    match address.split_once("://") {
        Some(("ipc", file)) if !file.is_empty() => Ok(()),
        Some(("tcp", rest)) => {
            let (host, port) = rest.rsplit_once(':').ok_or(EXPECTED)?;
            let port = port.parse::<u16>().ok().filter(|port| *port > 0);
            if host.is_empty() || port.is_none() { Err(EXPECTED) } else { Ok(()) }
        }
        _ => Err(EXPECTED),
    }
}

fn text<'v>(value: &'v ConfigValue, keys: &[&str]) -> Option<&'v str> {
    keys.iter().try_fold(value, |value, key| value.get(key))?.text()
}
