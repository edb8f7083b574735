//! Whether values make sense together: what types and ranges cannot say. Reads the merged values, not the sections, so
//! that one fault elsewhere does not hide the others; a value of a wrong type was reported by `shape` and is passed over.

use std::collections::HashMap;
use std::ffi::OsString;
use std::net::SocketAddr;

use tracing_subscriber::filter::EnvFilter;

use super::endpoint::EngineUrl;
use super::schema_check::suggestion;
use super::{Known, path, secrets};
use crate::model::engine::ENGINES;
use crate::model::{EngineKind, Faults, Value};

/// Longest name of a replica: it stands in response headers and in metric labels.
const LONGEST_NAME: usize = 128;

/// Checks the whole configuration.
pub(super) fn check(root: &Value, environment: &[(OsString, OsString)], known: &Known<'_>, faults: &mut Faults) {
    listeners(root, faults);
    limits(root, faults);
    fleet(root, environment, known, faults);
    if let Some(name) = text(root, &["default_policy"]) {
        let own = if let Some(Value::Table(members)) = root.get("policy") { &members[..] } else { &[] };
        let mut names: Vec<_> = own.iter().map(|(name, _)| name.as_str()).collect();
        // A table of the file may stand for a preset of its name.
        let presets = known.presets.iter().map(|(name, _)| name.as_str());
        names.extend(presets.filter(|preset| own.iter().all(|(name, _)| name != preset)));
        if !names.contains(&name) {
            faults.fault("default_policy", format!("unknown policy \"{name}\"; {}", suggestion(name, &names)));
        }
    }
}

fn listeners(root: &Value, faults: &mut Faults) {
    let mut read = |section: &str| {
        let address = text(root, &[section, "listen"])?;
        let read = address.parse::<SocketAddr>().ok();
        if read.is_none() {
            let message = "expected an IP address and a port, such as \"127.0.0.1:8080\", \"0.0.0.0:8080\" or \
                           \"[::]:8080\"";
            faults.fault(format!("{section}.listen"), message);
        }
        read
    };
    if let (Some(server), Some(admin)) = (read("server"), read("admin")) {
        let everywhere = server.ip().is_unspecified() || admin.ip().is_unspecified();
        if server.port() == admin.port() && server.port() != 0 && (server.ip() == admin.ip() || everywhere) {
            faults.fault("admin.listen", format!("port {} is taken by server.listen", admin.port()));
        }
    }
    if let Some(header) = text(root, &["server", "session_header"])
        && http::HeaderName::from_bytes(header.as_bytes()).is_err()
    {
        faults.fault("server.session_header", "is no header name; letters, digits and `-`, such as \"x-session-id\"");
    }
}

fn limits(root: &Value, faults: &mut Faults) {
    let number = |section: &str, key: &str| root.get(section)?.get(key)?.number();
    if let (Some(body), Some(all)) = (number("server", "max_body_bytes"), number("server", "max_buffered_bytes"))
        && body > all
    {
        faults.fault("server.max_buffered_bytes", format!("{all} is below max_body_bytes, {body}: no such body fits"));
    }
    if let (Some(flush), Some(queue)) = (number("store", "flush_decisions"), number("store", "queue_decisions"))
        && flush > queue
    {
        faults.warn("store.flush_decisions", "is above queue_decisions, so that it never comes to that");
    }
    if let (Some(every), Some(stale)) = (number("scrape", "interval_ms"), number("scrape", "stale_after_ms"))
        && stale <= every
    {
        let message = "is not above interval_ms, so that reports are unknown before the next one comes";
        faults.warn("scrape.stale_after_ms", message);
    }
    if text(root, &["store", "path"]).is_some_and(str::is_empty) {
        faults.fault("store.path", "is empty; write a file name, such as \"history.db\"");
    }
    if let Some(filter) = text(root, &["log", "filter"])
        && let Err(cause) = EnvFilter::builder().parse(filter)
    {
        faults.fault("log.filter", format!("is no filter: {cause}; such as \"info\" or \"info,gorgo_observe=debug\""));
    }
}

fn fleet(root: &Value, environment: &[(OsString, OsString)], known: &Known<'_>, faults: &mut Faults) {
    let Some(Value::List(replicas)) = root.get("replica") else { return };
    let mut names = HashMap::new();
    let mut urls = HashMap::new();
    for (index, replica) in replicas.iter().enumerate() {
        let path = path::element("replica", index);
        if let Some(name) = text(replica, &["name"]) {
            let path = path::child(&path, "name");
            if name.is_empty() || name.len() > LONGEST_NAME || !name.bytes().all(|byte| byte.is_ascii_graphic()) {
                let message = format!("1 to {LONGEST_NAME} visible ASCII characters: it stands in response headers");
                faults.fault(&path, message);
            }
            if let Some(first) = names.insert(name, index) {
                faults.fault(path, format!("\"{name}\" is the name of replica[{first}] too"));
            }
        }
        engine(replica, &path, known, faults);
        api_key(replica, &path, environment, faults);
        cache_events(replica, &path, faults);
        if let Some(url) = text(replica, &["url"])
            && let Ok(url) = EngineUrl::parse(url)
            && let Some(first) = urls.insert((url.host().to_owned(), url.port()), index)
        {
            faults.warn(path::child(&path, "url"), format!("is the engine of replica[{first}] too"));
        }
        if text(replica, &["region"]).is_some_and(str::is_empty) {
            faults.fault(path::child(&path, "region"), "is empty; leave it out, and the name stands for it");
        }
        if let Some(Value::List(models)) = replica.get("models") {
            for (model, _) in models.iter().enumerate().filter(|(_, model)| model.text().is_some_and(str::is_empty)) {
                faults.fault(path::element(&path::child(&path, "models"), model), "is empty");
            }
        }
    }
    if u16::try_from(replicas.len()).is_err() {
        faults.fault("replica", format!("{} replicas; at most {} can be told apart", replicas.len(), u16::MAX));
    }
    if !replicas.iter().any(|replica| replica.get("enabled") != Some(&Value::Bool(false))) {
        let all = if replicas.is_empty() { "no [[replica]]" } else { "every [[replica]] has enabled = false" };
        faults.fault("replica", format!("{all}; at least one must be there"));
    }
}

fn engine(replica: &Value, path: &str, known: &Known<'_>, faults: &mut Faults) {
    let Some(engine) = text(replica, &["engine"]).and_then(EngineKind::parse) else { return };
    let at = |key| path::child(path, key);
    let (url, simulated) = (replica.get("url"), replica.get("simulated"));
    if engine == EngineKind::Simulated {
        if url.is_some() {
            faults.fault(
                at("url"),
                "a simulated engine has no url: gorgo starts it itself; name a real engine or go \
                                     without",
            );
        }
        if let Some(profile) = simulated.and_then(|table| text(table, &["profile"]))
            && !known.profiles.is_empty()
            && !known.profiles.contains(&profile)
        {
            let path = path::child(&at("simulated"), "profile");
            faults.fault(path, format!("unknown profile \"{profile}\"; {}", suggestion(profile, known.profiles)));
        }
        return;
    }
    if simulated.is_some() {
        faults.fault(at("simulated"), format!("only for engine = \"simulated\"; this one is \"{}\"", engine.name()));
    }
    match url {
        None => faults.fault(at("url"), format!("is required for engine = \"{}\"; `http://host:port`", engine.name())),
        Some(url) => {
            if let Some(Err(message)) = url.text().map(EngineUrl::parse) {
                faults.fault(at("url"), message);
            }
        }
    }
}

fn api_key(replica: &Value, path: &str, environment: &[(OsString, OsString)], faults: &mut Faults) {
    let Some(name) = text(replica, &["api_key_env"]) else { return };
    let path = path::child(path, "api_key_env");
    if !secrets::is_variable_name(name) {
        // Not quoted: somebody may have written the key itself.
        faults.fault(path, "expected the name of an environment variable: letters, digits and `_`; not the key itself");
    } else if replica.get("enabled") != Some(&Value::Bool(false)) && !environment.iter().any(|(set, _)| set == name) {
        faults.warn(path, format!("the environment variable {name} is not set; requests go without a key"));
    }
}

/// Where cache events come from.
fn cache_events(replica: &Value, path: &str, faults: &mut Faults) {
    for key in ["kv_events", "kv_replay"] {
        let at = path::child(path, key);
        let Some(address) = text(replica, &[key]) else { continue };
        if !cfg!(feature = "kv-events") {
            let message = "this gorgo was built without cache events; build it with `--features kv-events`, or leave the \
                           key out";
            faults.fault(at, message);
        } else if let Err(message) = publisher(address) {
            faults.fault(at, message);
        } else if key == "kv_replay" && address.starts_with("tcp://*:") {
            faults.fault(at, "replays are asked for at the engine; write its host in place of `*`");
        } else if key == "kv_replay" && replica.get("kv_events").is_none() {
            faults.fault(at, "only with `kv_events`, which says where events are published");
        } else if text(replica, &["engine"]).is_some_and(|engine| !publishing().any(|name| name == engine)) {
            let names: Vec<&str> = publishing().collect();
            faults.fault(at, format!("only {} publish cache events", names.join(" and ")));
        }
    }
}

/// Names of the engines that publish cache events.
fn publishing() -> impl Iterator<Item = &'static str> {
    ENGINES.iter().filter(|engine| engine.cache_events).map(|engine| engine.name)
}

/// Whether a ZeroMQ address can be one of an engine's.
fn publisher(address: &str) -> Result<(), &'static str> {
    const EXPECTED: &str = "write `tcp://host:port` or `ipc://path` to connect to the engine, `tcp://*:port` where the \
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

fn text<'v>(value: &'v Value, keys: &[&str]) -> Option<&'v str> {
    keys.iter().try_fold(value, |value, key| value.get(key))?.text()
}
