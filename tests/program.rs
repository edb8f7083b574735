//! Starts the built program and talks to it over loopback.

use std::fs::File;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};

use tempfile::TempDir;

/// The built `gorgo`.
pub(crate) fn gorgo() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_gorgo"));
    // The environment of the person who runs the tests must not configure the router.
    for (name, _) in std::env::vars_os().filter(|(name, _)| name.to_string_lossy().starts_with("GORGO_")) {
        command.env_remove(name);
    }
    command
}

/// A port that was free a moment ago.
pub(crate) fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

/// Three simulated replicas, 500 times as fast as a real one, with short round trips.
pub(crate) const FLEET: &str = r#"
[[replica]]
name = "near"
engine = "simulated"
models = ["sim"]
simulated = { rtt_ms = 1.0, speed = 500.0 }
[[replica]]
name = "middle"
engine = "simulated"
models = ["sim"]
simulated = { rtt_ms = 4.0, speed = 500.0 }
[[replica]]
name = "far"
engine = "simulated"
models = ["sim"]
simulated = { rtt_ms = 8.0, speed = 500.0 }
"#;

/// A running `gorgo serve` in its own folder. Killed when dropped.
pub(crate) struct Serve {
    pub(crate) folder: TempDir,
    pub(crate) port: u16,
    pub(crate) admin: u16,
    pub(crate) child: Child,
}

impl Serve {
    /// Starts with `top` before the sections of the listeners and `rest` after them; waits until it is ready.
    pub(crate) fn start(top: &str, rest: &str) -> Self {
        Self::start_in(tempfile::tempdir().unwrap(), top, rest)
    }

    pub(crate) fn start_in(folder: TempDir, top: &str, rest: &str) -> Self {
        Self::start_with(folder, top, &format!("{rest}\n{FLEET}"), &[])
    }

    /// With a fleet of three in `rest`, and further flags.
    pub(crate) fn start_with(folder: TempDir, top: &str, rest: &str, flags: &[&str]) -> Self {
        let (port, admin) = (free_port(), free_port());
        let config = folder.path().join("policies.toml");
        let text =
            format!("{top}\n[server]\nlisten = \"127.0.0.1:{port}\"\n[admin]\nlisten = \"127.0.0.1:{admin}\"\n{rest}");
        std::fs::write(&config, text).unwrap();
        let log = File::create(folder.path().join("serve.log")).unwrap();
        let child =
            gorgo().args(["serve", "--seed", "7", "--config"]).arg(&config).args(flags).stderr(log).spawn().unwrap();
        let mut serve = Self { folder, port, admin, child };
        serve.wait_until_ready();
        serve
    }

    /// Waits until all three replicas answer probes. The only wait here that polls: there is no other signal from
    /// another process.
    fn wait_until_ready(&mut self) {
        for _ in 0..2_000 {
            assert!(self.child.try_wait().unwrap().is_none(), "serve ended at once: {}", self.log());
            if let Some((200, page)) = get(self.admin, "/metrics")
                && page.matches("gorgo_replica_available{").count() == 3
                && page
                    .lines()
                    .filter(|line| line.starts_with("gorgo_replica_available"))
                    .all(|line| line.ends_with(" 1"))
            {
                return;
            }
            std::thread::park_timeout(std::time::Duration::from_millis(10));
        }
        panic!("serve never became ready: {}", self.log());
    }

    pub(crate) fn log(&self) -> String {
        std::fs::read_to_string(self.folder.path().join("serve.log")).unwrap_or_default()
    }

    pub(crate) fn database(&self) -> PathBuf {
        self.folder.path().join("history.db")
    }

    pub(crate) fn url(&self) -> String {
        format!("http://127.0.0.1:{}", self.port)
    }

    /// Sends a signal by its name.
    pub(crate) fn signal(&self, name: &str) {
        let sent = Command::new("kill").args(["-s", name, &self.child.id().to_string()]).status().unwrap();
        assert!(sent.success());
    }

    /// SIGTERM, and the end of it.
    pub(crate) fn stop(&mut self) -> ExitStatus {
        self.signal("TERM");
        self.child.wait().unwrap()
    }

    /// The gauges that must be zero when nothing runs.
    pub(crate) fn gauges(&self) -> Vec<(String, f64)> {
        let (_, page) = get(self.admin, "/metrics").unwrap();
        page.lines()
            .filter(|line| line.starts_with("gorgo_inflight") || line.starts_with("gorgo_queued_"))
            .map(|line| {
                let (name, value) = line.rsplit_once(' ').unwrap();
                (name.to_owned(), value.parse().unwrap())
            })
            .collect()
    }

    /// Replays a trace through the router; returns the JSON report of its one policy.
    pub(crate) fn replay(&self, trace: &Path, flags: &[&str]) -> serde_json::Value {
        let done = gorgo()
            .args(["replay", "--json", "--model", "sim", "--to", &self.url()])
            .arg(trace)
            .args(flags)
            .stderr(Stdio::piped())
            .output()
            .unwrap();
        let report: serde_json::Value = serde_json::from_slice(&done.stdout)
            .unwrap_or_else(|cause| panic!("{cause}: {}", String::from_utf8_lossy(&done.stderr)));
        report["policies"][0].clone()
    }
}

impl Drop for Serve {
    fn drop(&mut self) {
        // Already gone if the test stopped it.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// One request on its own connection: status and body. `None`: nothing listens.
pub(crate) fn get(port: u16, path: &str) -> Option<(u16, String)> {
    request(port, &format!("GET {path} HTTP/1.1\r\nhost: gorgo\r\nconnection: close\r\n\r\n"))
}

/// A POST of JSON.
pub(crate) fn post(port: u16, path: &str, body: &str) -> (u16, String) {
    let length = body.len();
    request(
        port,
        &format!(
            "POST {path} HTTP/1.1\r\nhost: gorgo\r\nconnection: close\r\ncontent-type: application/json\r\n\
             content-length: {length}\r\n\r\n{body}"
        ),
    )
    .expect("the router listens")
}

/// Whole answer as text, head included.
pub(crate) fn request(port: u16, text: &str) -> Option<(u16, String)> {
    let mut stream = TcpStream::connect(("127.0.0.1", port)).ok()?;
    stream.write_all(text.as_bytes()).ok()?;
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).ok()?;
    let answer = String::from_utf8_lossy(&answer).into_owned();
    let status = answer.split_whitespace().nth(1)?.parse().ok()?;
    Some((status, answer))
}
