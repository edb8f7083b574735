//! Log lines: the only file that calls the tracing macros, one function per event, fields and no formatting.
//!
//! INFO is what an operator did, WARN what gorgo recovered from, ERROR what needs a person; per-request lines are
//! DEBUG. Field names are the same everywhere: `decision`, `replica`, `policy`, `generation`, `ttft_ms`, `e2e_ms`,
//! `cost_ms`, `cause`. Never prompt text, never keys.

use std::fmt::Display;
use std::io::IsTerminal;
use std::net::SocketAddr;

use tracing::{debug, error, info, warn};
use tracing_subscriber::EnvFilter;

use gorgo_routing::config::{LogConfig, LogFormat};
use gorgo_routing::model::{AlarmRecord, DecisionRecord, EventKind, EventRecord, GenerationRecord, OutcomeRecord};

/// Sends log lines to standard error as configured by `[log]`. Called once, by the program.
///
/// # Errors
/// When the filter cannot be parsed, with the parser's message.
pub fn init(log: &LogConfig) -> Result<(), String> {
    let filter = EnvFilter::try_new(&log.filter).map_err(|cause| format!("log.filter: {cause}"))?;
    // https://no-color.org: any value but an empty one switches colours off.
    let colour = std::io::stderr().is_terminal() && std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty());
    let lines = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr)
        .with_ansi(colour)
        // All lines come from this file: the target would be the same in each.
        .with_target(false);
    let installed = match log.format {
        LogFormat::Text => lines.try_init(),
        // Fields at the top level, where log collectors index them without configuration.
        LogFormat::Json => lines.json().flatten_event(true).try_init(),
    };
    installed.map_err(|cause| cause.to_string())
}

/// Checks that `filter` can be parsed, for the configuration check.
///
/// # Errors
/// The parser's message.
pub fn check_filter(filter: &str) -> Result<(), String> {
    EnvFilter::try_new(filter).map(|_| ()).map_err(|cause| cause.to_string())
}

/// The router is up.
pub fn listening(clients: SocketAddr, operators: SocketAddr, policy: &str, replicas: usize) {
    info!(%clients, %operators, policy, replicas, "listening");
}

/// A tuner's generation ended; one that began is DEBUG.
pub fn generation(row: &GenerationRecord) {
    let (generation, policy) = (row.generation.0, row.policy.0);
    match (row.verdict, &row.reason) {
        (Some(verdict), Some(reason)) => {
            info!(generation, policy, verdict = verdict.name(), reason, "generation ended")
        }
        _ => debug!(generation, policy, "generation began"),
    }
}

/// A tuner's alarm went on or off.
pub fn alarm(row: &AlarmRecord) {
    if row.cleared {
        info!(alarm = row.kind, "alarm over");
    } else {
        warn!(alarm = row.kind, value = row.value, "alarm");
    }
}

/// The policy that an earlier run pinned serves instead of the default one.
pub fn policy_pinned(policy: &str) {
    warn!(policy, "an earlier run pinned this policy; run `gorgo ctl unpin` to serve with the default one");
}

/// The pinned policy is no longer in the configuration.
pub fn pin_refused(policy: &str) {
    error!(policy, "the pinned policy is not in this configuration; serving with the default one");
}

/// A tuner continues from the last run.
pub fn tuning_resumed(policy: &str, text: &str) {
    info!(policy, text, "tuner resumed");
}

/// Tuner state stored by the last run is not used.
pub fn tuning_refused(policy: &str, cause: &str) {
    warn!(policy, cause, "stored tuner state refused; starting with the weights as configured");
}

/// A replica's part of the prefix index was restored.
pub fn index_restored(replica: &str, blocks: u64, left_out: u64, age_secs: u64) {
    info!(replica, blocks, left_out, age_secs, "prefix index restored");
}

/// A stored snapshot of the prefix index is not used.
pub fn index_refused(replica: &str, cause: &dyn Display) {
    warn!(replica, %cause, "stored prefix index refused; starting with an empty one");
}

/// Figures learned by the last run about a replica are used again, except for parts that were refused.
pub fn learning_resumed(replica: &str, age_secs: u64, round_trips: usize) {
    info!(replica, age_secs, round_trips, "learned rates resumed");
}

/// Part of the figures learned about a replica is not used.
pub fn learning_refused(replica: &str, part: &str, cause: &dyn Display) {
    warn!(replica, part, %cause, "stored learned figures refused; starting without them");
}

/// A simulated engine was started inside the process.
pub fn simulated_engine(replica: &str, address: SocketAddr, rtt_ms: f64, speed: f64) {
    info!(replica, %address, rtt_ms, speed, "simulated engine");
}

/// The configuration is valid but probably not intended.
pub fn config_warning(text: &str) {
    warn!(text, "configuration");
}

/// An earlier run on this database never ended: it was killed, or the machine went down.
pub fn unfinished_run(run: i64) {
    warn!(
        run,
        "the last run on this database did not end cleanly; at most the rows of its last flush interval are missing"
    );
}

/// A shutdown began.
pub fn draining(signal: &str, secs: u64) {
    info!(signal, secs, "draining");
}

/// A second signal: running requests are cut off now.
pub fn aborting(signal: &str) {
    warn!(signal, "running requests are cut off");
}

/// Everything is flushed.
pub fn stopped(dropped_rows: u64) {
    info!(dropped_rows, "stopped");
}

/// An event that an operator should be able to look up, as in the store's `events`.
pub fn event(record: &EventRecord, replica: Option<&str>) {
    let kind = record.kind.name();
    let text = record.text.as_str();
    match record.kind {
        // The operator expects the new configuration to be in effect: somebody must act.
        EventKind::ConfigRefused => error!(kind, text, "reload refused; the running configuration stays in effect"),
        // Handled without anybody's help, but traffic is affected: WARN.
        EventKind::ReplicaDown
        | EventKind::ReplicaDraining
        | EventKind::ReplicaRestarted
        | EventKind::MissingSignal
        | EventKind::PluginQuarantined => {
            warn!(kind, replica, text, "event");
        }
        _ => info!(kind, replica, text, "event"),
    }
}

/// A request was routed or refused.
pub fn decided(record: &DecisionRecord, replica: Option<&str>) {
    // DEBUG: at thousands of requests per second INFO would flood the log; the history has every decision.
    debug!(
        decision = record.decision.0,
        replica,
        refusal = record.refusal.map(gorgo_routing::model::RefusalReason::name),
        prompt_tokens = record.prompt_tokens,
        decide_us = record.decide_us,
        "decided"
    );
}

/// A request ended.
pub fn ended(record: &OutcomeRecord) {
    debug!(
        decision = record.decision.0,
        status = record.status,
        error = record.error.map(gorgo_routing::model::ErrorClass::name),
        ttft_us = record.ttft_us,
        e2e_us = record.e2e_us,
        "ended"
    );
}

/// The history cannot be written at present; rows wait, and are dropped when the queue is full.
pub fn store_stuck(cause: &str) {
    error!(cause, "history database not writable; requests continue, rows wait in memory");
}

/// The history is writable again.
pub fn store_recovered() {
    warn!("history database writable again; lost rows are listed in table `gaps`");
}

/// Rows are lost.
pub fn store_lost(rows: u64, cause: &str) {
    error!(rows, cause, "rows of the history were lost; table `gaps` will list them");
}

/// The write-ahead log cannot be truncated.
pub fn store_long_log(bytes: u64) {
    warn!(bytes, "the history's write-ahead log cannot be truncated: a reader has been open for a long time");
}

/// Old rows could not be pruned this time.
pub fn store_not_pruned(cause: &str) {
    warn!(cause, "old rows of the history could not be deleted; will retry");
}

/// A listener could not accept a connection; most likely the process is out of file handles.
pub fn accept_failed(listener: &str, cause: &dyn Display) {
    warn!(listener, %cause, "a connection could not be accepted");
}

/// A background task ended unexpectedly.
pub fn task_died(task: &str, cause: &dyn Display) {
    error!(task, %cause, "a background task ended");
}
