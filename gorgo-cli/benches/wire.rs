//! The wire from outside: time to the first token added by `gorgo serve`, compared with the direct path and with nginx,
//! if it is installed. `cargo bench -p gorgo-cli --bench wire`.
//!
//! Three mock engines answer each request at once with a stream of twenty tokens. The load is open: request `n` of a
//! run is due `n / rate` seconds after its beginning, whatever happened to those before, and its time counts from that
//! moment, so that every request delayed by a stall counts the stall (no coordinated omission). A run reports how many
//! requests were sent more than a millisecond late: if there are any, use more connections or a quieter machine. Then
//! 64 connections send without pause. If `taskset` is installed, the router has core 0 for itself, and engines and load
//! share core 1. One run, no statistics beyond its quantiles: for comparisons that decide something, use `.ci/peers`.

#![expect(clippy::unwrap_used, reason = "a benchmark that cannot start its parts has nothing to measure")]
#![expect(clippy::disallowed_methods, reason = "a load generator is its own clock")]

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use tempfile::TempDir;

/// Duration of one run.
const SPAN_SECS: u32 = 4;
const SPAN: Duration = Duration::from_secs(SPAN_SECS as u64);
/// Prompt bytes, requests a second.
const LOADS: [(usize, u32); 2] = [(1_000, 200), (70_000, 50)];
/// Connections of an open load: more than are ever busy at once unless something stalls.
const OPEN: u32 = 16;
/// Connections that send without pause.
const CLOSED: u32 = 64;
/// Lateness beyond which a request counts as late.
const LATE: Duration = Duration::from_millis(1);

fn main() {
    if !std::env::args().any(|argument| argument == "--bench") {
        println!("not run: the wire is measured by `cargo bench` alone");
        return;
    }
    let pinned = pin_self();
    let engines: Vec<SocketAddr> = (0..3).map(|_| engine()).collect();
    println!("router {}", if pinned { "on core 0, engines and load on core 1" } else { "not pinned: no `taskset`" });
    println!("{:<8}{:>7}{:>8}{:>9}{:>9}{:>9}{:>7}", "way", "bytes", "req/s", "p50 µs", "p99 µs", "max µs", "late");
    measure("direct", &engines);
    let folder = tempfile::tempdir().unwrap();
    let router = gorgo(&folder, &engines, pinned);
    measure("gorgo", &[router.address]);
    drop(router);
    match nginx(&folder, &engines, pinned) {
        Some(router) => measure("nginx", &[router.address]),
        None => println!("not run: nginx is not installed"),
    }
}

/// Measures one way and prints its lines.
fn measure(way: &str, targets: &[SocketAddr]) {
    for (bytes, rate) in LOADS {
        let request = request(bytes);
        let began = Instant::now() + Duration::from_millis(50);
        let runs = each(OPEN, targets, |number, target| {
            let due = (number..).step_by(OPEN as usize).map(|nth| began + Duration::from_secs(1) * nth / rate);
            ask_when_due(target, &request, due.take_while(|due| *due < began + SPAN))
        });
        let (mut spans, late) = runs.into_iter().fold((Vec::new(), 0), |(mut all, late), (spans, more)| {
            all.extend(spans);
            (all, late + more)
        });
        spans.sort_unstable();
        let at = |per_mille: usize| spans[(spans.len() * per_mille).div_ceil(1_000).max(1) - 1].as_micros();
        println!("{way:<8}{bytes:>7}{rate:>8}{:>9}{:>9}{:>9}{late:>7}", at(500), at(990), at(1_000));
    }
    let request = request(LOADS[0].0);
    let over = AtomicBool::new(false);
    let answered: u32 = thread::scope(|scope| {
        scope.spawn(|| {
            thread::sleep(SPAN);
            over.store(true, Ordering::Relaxed);
        });
        each(CLOSED, targets, |_, target| {
            let (mut stream, mut count) = (connect(target), 0);
            while !over.load(Ordering::Relaxed) {
                ask(&mut stream, &request);
                count += 1;
            }
            count
        })
        .into_iter()
        .sum()
    });
    println!("{way:<8}{:>7}{:>8}  without pause over {CLOSED} connections", LOADS[0].0, answered / SPAN_SECS);
}

/// Runs `work` on this many threads, each with its number and a target.
fn each<T: Send>(count: u32, targets: &[SocketAddr], work: impl Fn(u32, SocketAddr) -> T + Sync) -> Vec<T> {
    thread::scope(|scope| {
        let work = &work;
        let threads: Vec<_> = (0..count)
            .zip(targets.iter().cycle())
            .map(|(number, target)| scope.spawn(move || work(number, *target)))
            .collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    })
}

/// Sends a request at each of these moments, or as soon after it as the one before allows. Returns the times from the
/// due moment to the first token, and the number of requests sent late.
fn ask_when_due(target: SocketAddr, request: &[u8], due: impl Iterator<Item = Instant>) -> (Vec<Duration>, u32) {
    let mut stream = connect(target);
    let (mut spans, mut late) = (Vec::new(), 0);
    for due in due {
        thread::sleep(due.saturating_duration_since(Instant::now()));
        late += u32::from(due.elapsed() > LATE);
        spans.push(ask(&mut stream, request).saturating_duration_since(due));
    }
    (spans, late)
}

fn connect(target: SocketAddr) -> TcpStream {
    let stream = TcpStream::connect(target).unwrap();
    stream.set_nodelay(true).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
    stream
}

fn request(bytes: usize) -> Vec<u8> {
    let text = "word ".repeat(bytes / 5);
    let body = format!(r#"{{"model":"mock","stream":true,"messages":[{{"role":"user","content":"{text}"}}]}}"#);
    let length = body.len();
    format!("POST /v1/chat/completions HTTP/1.1\r\nhost: bench\r\ncontent-type: application/json\r\ncontent-length: {length}\r\n\r\n{body}")
        .into_bytes()
}

/// Sends one request and reads its whole answer; returns the moment of the first token.
fn ask(stream: &mut TcpStream, request: &[u8]) -> Instant {
    stream.write_all(request).unwrap();
    let (mut answer, mut piece, mut first) = (Vec::new(), [0; 16 << 10], None);
    while !answer.ends_with(b"\r\n0\r\n\r\n") {
        let read = stream.read(&mut piece).unwrap();
        assert!(read > 0, "closed: {}", String::from_utf8_lossy(&answer));
        answer.extend_from_slice(&piece[..read]);
        if first.is_none() && memchr::memmem::find(&answer, b"\"content\"").is_some() {
            first = Some(Instant::now());
        }
    }
    assert!(answer.starts_with(b"HTTP/1.1 200"), "{}", String::from_utf8_lossy(&answer));
    first.unwrap()
}

/// A mock engine, for the life of the program.
fn engine() -> SocketAddr {
    let event = |data: &str| format!("{:x}\r\ndata: {data}\n\n\r\n", data.len() + 8);
    let token = event(r#"{"choices":[{"index":0,"delta":{"content":"token"}}]}"#).repeat(20);
    let end = event(r#"{"choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}"#) + &event("[DONE]");
    let head = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n";
    let answer = format!("{head}{token}{end}0\r\n\r\n");
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let answer = answer.clone();
            thread::spawn(move || serve(stream, &answer));
        }
    });
    address
}

/// Serves one connection of the engine: streams for `POST`, an empty object for anything else.
fn serve(mut stream: TcpStream, answer: &str) {
    stream.set_nodelay(true).unwrap();
    let (mut bytes, mut piece) = (Vec::new(), [0; 64 << 10]);
    loop {
        let end = loop {
            if let Some(head) = memchr::memmem::find(&bytes, b"\r\n\r\n") {
                let text = String::from_utf8_lossy(&bytes[..head]).to_ascii_lowercase();
                let length = text.split("content-length: ").nth(1).and_then(|rest| rest.lines().next()?.parse().ok());
                let end = head + 4 + length.unwrap_or(0_usize);
                if bytes.len() >= end {
                    break end;
                }
            }
            match stream.read(&mut piece) {
                Ok(read) if read > 0 => bytes.extend_from_slice(&piece[..read]),
                _ => return,
            }
        };
        let plain = "HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{}";
        let text = if bytes.starts_with(b"POST") { answer } else { plain };
        bytes.drain(..end);
        if stream.write_all(text.as_bytes()).is_err() {
            return;
        }
    }
}

/// A running router; ended when dropped.
struct Running {
    process: Child,
    address: SocketAddr,
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

fn gorgo(folder: &TempDir, engines: &[SocketAddr], pinned: bool) -> Running {
    let (address, admin) = (free(), free());
    let mut text =
        format!("[server]\nlisten = \"{address}\"\n[admin]\nlisten = \"{admin}\"\n[store]\npath = \"history.db\"\n");
    for (number, engine) in engines.iter().enumerate() {
        text += &format!(
            "[[replica]]\nname = \"r{number}\"\nengine = \"openai\"\nurl = \"http://{engine}\"\nmodels = [\"mock\"]\n"
        );
    }
    let file = folder.path().join("policies.toml");
    std::fs::write(&file, format!("default_policy = \"predicted-latency\"\n{text}")).unwrap();
    let file = file.to_string_lossy().into_owned();
    start(Path::new(env!("CARGO_BIN_EXE_gorgo")), &["serve", "--config", &file], pinned, address).unwrap()
}

/// nginx as a plain proxy of the same engines; `None` if it is not installed.
fn nginx(folder: &TempDir, engines: &[SocketAddr], pinned: bool) -> Option<Running> {
    let address = free();
    let servers: String = engines.iter().map(|engine| format!("server {engine}; ")).collect();
    let place = folder.path().display();
    let text = format!(
        "daemon off; master_process off; worker_processes 1; pid {place}/nginx.pid; error_log {place}/error.log;
        events {{ worker_connections 4096; }}
        http {{
            access_log off; client_body_temp_path {place}; proxy_temp_path {place}; fastcgi_temp_path {place};
            uwsgi_temp_path {place}; scgi_temp_path {place}; client_body_buffer_size 128k; keepalive_requests 1000000;
            upstream engines {{ {servers} keepalive 256; keepalive_requests 1000000; }}
            server {{
                listen {address};
                location / {{
                    proxy_pass http://engines; proxy_http_version 1.1; proxy_set_header Connection \"\";
                    proxy_buffering off;
                }}
            }}
        }}"
    );
    let file = folder.path().join("nginx.conf");
    std::fs::write(&file, text).unwrap();
    let file = file.to_string_lossy().into_owned();
    start(Path::new("nginx"), &["-c", &file], pinned, address)
}

/// Starts a router on core 0 and waits until it answers requests.
fn start(program: &Path, arguments: &[&str], pinned: bool, address: SocketAddr) -> Option<Running> {
    let mut command = if pinned { Command::new("taskset") } else { Command::new(program) };
    if pinned {
        if Command::new(program).arg("-V").stdout(Stdio::null()).stderr(Stdio::null()).status().is_err() {
            return None;
        }
        command.args(["-c", "0"]).arg(program);
    }
    let process = command.args(arguments).stdout(Stdio::null()).stderr(Stdio::null()).spawn().ok()?;
    let running = Running { process, address };
    let request = request(10);
    let began = Instant::now();
    while began.elapsed() < Duration::from_secs(20) {
        thread::sleep(Duration::from_millis(50));
        let Ok(mut stream) = TcpStream::connect(address) else { continue };
        stream.set_read_timeout(Some(Duration::from_secs(1))).unwrap();
        let mut head = [0; 12];
        if stream.write_all(&request).is_ok() && stream.read_exact(&mut head).is_ok() && head.ends_with(b"200") {
            return Some(running);
        }
    }
    None
}

/// Pins this process to core 1, with all threads that it will start. Returns true on success.
fn pin_self() -> bool {
    let own = std::process::id().to_string();
    let pinned = Command::new("taskset").args(["-cp", "1", &own]).stdout(Stdio::null()).stderr(Stdio::null()).status();
    pinned.is_ok_and(|status| status.success())
}

/// A free address.
fn free() -> SocketAddr {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap()
}
