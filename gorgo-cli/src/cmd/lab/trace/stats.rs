//! `gorgo trace stats`: describes a trace, as text or JSON.

use std::path::PathBuf;

use comfy_table::{CellAlignment, Table, presets};
use gorgo_lab::trace::{DistributionStats, FANO_SECS, RecordedTrace, SessionSource, TraceStats};
use serde_json::{Value, json};

use super::{TraceCommandError, read};
use crate::report::json::number;
use crate::report::number::{count, percent};

/// Arguments of `gorgo trace stats`.
#[derive(Debug, Clone, clap::Args)]
pub(super) struct StatsArgs {
    /// Trace file: Mooncake-format JSON lines or Azure CSV, gzip or plain
    trace: PathBuf,
    /// Print JSON
    #[arg(long)]
    json: bool,
    /// Tokens per block id [default: inferred from the file]
    #[arg(long = "block", value_name = "TOKENS")]
    block: Option<u32>,
}

impl StatsArgs {
    pub(super) fn run(self) -> Result<String, TraceCommandError> {
        let trace = read(&self.trace, self.block)?;
        let stats = TraceStats::from_trace(&trace);
        Ok(if self.json { format!("{:#}\n", document(&trace, &stats)) } else { text(&trace, &stats) })
    }
}

/// A number with at most two decimals.
fn plain(value: Option<f64>) -> String {
    match value {
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "not negative; saturates")]
        Some(value) if value.is_finite() && value >= 100.0 => count(value.round() as u64),
        Some(value) if value.is_finite() => format!("{value:.2}"),
        _ => "–".to_owned(),
    }
}

/// The statistics as text for people.
pub(super) fn text(trace: &RecordedTrace, stats: &TraceStats) -> String {
    let mut out = format!(
        "{} requests in {:.0} s, {}/s; gaps' coefficient of variation {}\n",
        count(stats.rows),
        stats.duration_secs,
        plain(stats.rate),
        plain(stats.gap_cv)
    );
    // The Fano factor at several widths shows on which scale traffic is bursty; 1 is a Poisson process.
    let widths = FANO_SECS.map(|secs| format!("{secs} s")).join(" / ");
    let fano = stats.fano.map(plain).join(" / ");
    out += &format!("variance / mean of arrivals per {widths}: {fano} (Poisson: 1)\n");

    let mut table = Table::new();
    table.load_style(presets::UTF8_BORDERS_ONLY);
    table.set_header(["", "mean", "p50", "p90", "p95", "p99", "max"]);
    for column in table.column_iter_mut().skip(1) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    let mut row = |name: &str, spread: &DistributionStats| {
        let numbers = [spread.mean, spread.p50, spread.p90, spread.p95, spread.p99, spread.max].map(plain);
        table.add_row(std::iter::once(name.to_owned()).chain(numbers));
    };
    row("input tokens", &stats.input);
    row("output tokens", &stats.output);
    if let Some(sessions) = &stats.sessions {
        row("requests/session", &sessions.turns);
    }
    out += &format!("{table}\n");

    // Reuse is only known from block ids; an endless cache is its upper bound.
    match &stats.reuse {
        Some(reuse) => {
            let own = reuse
                .same_user_tokens
                .map_or_else(String::new, |own| format!(", {} by the same user", percent(Some(own))));
            out += &format!(
                "reuse with an endless cache: {} of tokens{own}, {} of blocks of {} tokens\n",
                percent(Some(reuse.tokens)),
                percent(Some(reuse.blocks)),
                stats.block_tokens
            );
        }
        None => out += "reuse: unknown, because the file has no block ids\n",
    }
    if let Some(users) = stats.users {
        out += &format!("{} users, the busiest with {} of the requests\n", count(users), percent(stats.largest_user));
    }
    // Inferred sessions are a guess from shared prefixes, so the text says which kind these are.
    if let Some(sessions) = &stats.sessions {
        let source = match sessions.source {
            SessionSource::Named => "named in the file",
            SessionSource::Inferred => "inferred from the blocks",
        };
        let single = percent(Some(sessions.single_request_share));
        out += &format!("{} sessions ({source}), {single} of one request\n", count(sessions.count));
    }
    if trace.rows_refitted > 0 {
        out += &format!("{} requests' ids did not fit the block size\n", count(trace.rows_refitted));
    }
    out
}

/// The statistics as JSON. All keys are always present; unknown values are null.
fn document(trace: &RecordedTrace, stats: &TraceStats) -> Value {
    let spread = |spread: &DistributionStats| {
        json!({
            "mean": number(spread.mean), "p50": number(spread.p50), "p90": number(spread.p90),
            "p95": number(spread.p95), "p99": number(spread.p99), "max": number(spread.max),
        })
    };
    let fano: serde_json::Map<String, Value> =
        FANO_SECS.iter().zip(stats.fano).map(|(secs, fano)| (format!("{secs}s"), number(fano))).collect();
    json!({
        "rows": stats.rows,
        "duration_s": number(Some(stats.duration_secs)),
        "rate_per_s": number(stats.rate),
        "gap_cv": number(stats.gap_cv),
        "fano": fano,
        "input_tokens": spread(&stats.input),
        "output_tokens": spread(&stats.output),
        "block_tokens": stats.block_tokens,
        "rows_without_blocks": trace.rows_without_blocks,
        "rows_refitted": trace.rows_refitted,
        "reuse_tokens": number(stats.reuse.map(|reuse| reuse.tokens)),
        "reuse_blocks": number(stats.reuse.map(|reuse| reuse.blocks)),
        "reuse_same_user_tokens": number(stats.reuse.and_then(|reuse| reuse.same_user_tokens)),
        "users": stats.users,
        "largest_user_share": number(stats.largest_user),
        "sessions": stats.sessions.map(|sessions| json!({
            "source": match sessions.source {
                SessionSource::Named => "named",
                SessionSource::Inferred => "inferred",
            },
            "count": sessions.count,
            "turns": spread(&sessions.turns),
            "single_share": number(Some(sessions.single_request_share)),
        })),
    })
}
