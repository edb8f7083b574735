//! `gorgo trace slice`: writes a part of a trace as a separate file.

use std::path::PathBuf;

use gorgo_lab::trace;

use super::output::OutputArgs;
use super::{TraceCommandError, read};

/// Arguments of `gorgo trace slice`.
#[derive(Debug, Clone, clap::Args)]
pub(super) struct SliceArgs {
    /// Trace file: Mooncake-format JSON lines or Azure CSV, gzip or plain
    trace: PathBuf,
    /// Begin this many seconds after the first request; times in the new file count from there
    #[arg(long, value_name = "SECONDS", default_value_t = 0.0)]
    from_s: f64,
    /// End this many seconds after the first request
    #[arg(long, value_name = "SECONDS")]
    to_s: Option<f64>,
    /// Keep at most N requests, counted after dropping
    #[arg(long, value_name = "N")]
    limit: Option<usize>,
    /// Drop requests with longer prompts
    #[arg(long, value_name = "N")]
    max_input_tokens: Option<u32>,
    /// Drop requests with shorter prompts, such as probes
    #[arg(long, value_name = "N")]
    min_input_tokens: Option<u32>,
    /// Cut longer answers to N tokens
    #[arg(long, value_name = "N")]
    max_output_tokens: Option<u32>,
    /// Tokens per block id [default: inferred from the file]
    #[arg(long = "block", value_name = "TOKENS")]
    block: Option<u32>,
    #[command(flatten)]
    output: OutputArgs,
}

impl SliceArgs {
    pub(super) fn run(self) -> Result<String, TraceCommandError> {
        let mut trace = read(&self.trace, self.block)?;
        let part = trace::SliceOptions {
            from_ms: self.from_s * 1e3,
            to_ms: self.to_s.map(|to_s| to_s * 1e3),
            max_input_tokens: self.max_input_tokens,
            min_input_tokens: self.min_input_tokens,
            max_output_tokens: self.max_output_tokens,
            limit: self.limit,
        };
        let counts = trace::slice(&mut trace, &part);
        self.output.write(&trace.rows)?;
        let trace::SliceCounts { rows, outside, dropped, beyond_limit, outputs_capped } = counts;
        anstream::eprintln!(
            "{} of {rows} requests written; {outside} outside the time span, {dropped} dropped for their length, \
             {beyond_limit} beyond the limit, {outputs_capped} answers cut",
            trace.rows.len()
        );
        Ok(String::new())
    }
}
