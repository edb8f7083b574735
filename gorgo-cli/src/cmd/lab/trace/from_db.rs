//! `gorgo trace from-db`: converts a router's history to a trace. The trace has times, lengths and shared prefixes, and
//! nothing of any prompt: the database has no prompts either.

use std::path::{Path, PathBuf};

use gorgo_lab::trace::{HistoryRow, from_history};
use gorgo_routing::model::{ApiPath, DecisionId, ErrorClass, UnixMicros};
use gorgo_store::{HistoryReader, StoreError, StoredRequest};
use jiff::Timestamp;

use super::TraceCommandError;
use super::output::OutputArgs;

/// Requests per read.
const PAGE: u32 = 10_000;

/// Arguments of `gorgo trace from-db`.
#[derive(Debug, Clone, clap::Args)]
pub(super) struct FromDbArgs {
    /// History database, as `store.path` names it; a router may be writing it
    database: PathBuf,
    /// Use requests at or after this time, such as 2026-04-05T16:15:00Z
    #[arg(long, value_name = "TIME")]
    from: Option<Timestamp>,
    /// Use requests before this time
    #[arg(long, value_name = "TIME")]
    to: Option<Timestamp>,
    /// Tokens per block id of the trace
    #[arg(long = "block", value_name = "TOKENS", default_value_t = 16, value_parser = clap::value_parser!(u32).range(1..=1024))]
    block: u32,
    #[command(flatten)]
    output: OutputArgs,
}

impl FromDbArgs {
    pub(super) fn run(self) -> Result<String, TraceCommandError> {
        let micros = |time: Timestamp| UnixMicros(u64::try_from(time.as_microsecond()).unwrap_or(0));
        let span = (self.from.map_or(UnixMicros(0), micros), self.to.map_or(UnixMicros(u64::MAX), micros));
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let runtime = runtime.map_err(TraceCommandError::Output)?;
        let requests = runtime.block_on(read(&self.database, span))?;
        // Refused requests never reached an engine: a giant prompt that was turned away is no load.
        let refused = requests.iter().filter(|request| is_refused(request)).count();
        let routed = requests.iter().filter(|request| !is_refused(request));
        let history = routed.filter(|request| request.path != ApiPath::Other).map(row);
        let trace = from_history(history, self.block);
        self.output.write(&trace.rows)?;
        let left_out = requests.len() - refused - trace.rows.len();
        let written = trace.rows.len();
        anstream::eprintln!("{written} requests written; left out: {refused} refused, {left_out} without a prompt");
        Ok(String::new())
    }
}

/// All requests that arrived at or after the first time and before the second.
pub(crate) async fn read(
    database: &Path,
    (from, to): (UnixMicros, UnixMicros),
) -> Result<Vec<StoredRequest>, StoreError> {
    let reader = HistoryReader::open(database).await?;
    let mut all = Vec::new();
    let mut next = DecisionId(i64::MIN);
    loop {
        let page = reader.requests(next, PAGE).await?;
        let Some(last) = page.last() else { break };
        // Pages by id and not by offset: the router may add rows meanwhile.
        next = DecisionId(last.decision.0.saturating_add(1));
        let full = page.len() == usize::try_from(PAGE).unwrap_or(usize::MAX);
        all.extend(page.into_iter().filter(|request| request.received >= from && request.received < to));
        // A short page is the last one; asking again would find only rows written meanwhile.
        if !full {
            break;
        }
    }
    reader.close().await;
    Ok(all)
}

fn is_refused(request: &StoredRequest) -> bool {
    request.error == Some(ErrorClass::Refused)
}

fn row(request: &StoredRequest) -> HistoryRow {
    HistoryRow {
        id: request.decision.0,
        parent: request.parent.map(|parent| parent.0),
        shared_tokens: request.shared_tokens,
        at_us: request.received.0,
        prompt_tokens: request.prompt_tokens,
        engine_prompt_tokens: request.engine_prompt_tokens,
        output_tokens: request.completion_tokens.unwrap_or_default(),
        session_hash: request.session_hash,
    }
}
