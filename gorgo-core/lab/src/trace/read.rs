//! File bytes → [`RecordedTrace`]: gzip is recognised by its magic bytes, the format by the first line.
//!
//! A file with bad rows is refused as a whole, and the error lists the first of them by line: replaying only the good
//! rows would be a different workload under the same name.

use std::fmt;
use std::io::Read;

use flate2::read::MultiGzDecoder;

use super::{TraceRow, azure, blocks, mooncake};

/// First bytes of a gzip member (RFC 1952).
const GZIP_MAGIC: [u8; 2] = [0x1f, 0x8b];

/// Number of faults kept with their text; further ones are only counted.
const FAULTS_KEPT: usize = 8;

/// Format of the file that a trace was read from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum TraceFormat {
    /// JSON lines in the format of Mooncake's FAST'25 traces.
    Mooncake,
    /// CSV in the format of the Azure LLM inference traces of 2023; no prefix data.
    Azure,
}

/// A trace as recorded, in order of arrival.
#[derive(Debug, Clone, PartialEq)]
pub struct RecordedTrace {
    /// Format of the file.
    pub format: TraceFormat,
    /// Tokens per block id.
    pub block_tokens: u32,
    /// The requests by time; requests with equal times keep their order in the file.
    pub rows: Vec<TraceRow>,
    /// Rows without block ids; they got fresh ids, so none of their blocks is ever found in a cache.
    pub rows_without_blocks: usize,
    /// Rows whose block ids were cut or filled up because they did not fit the requested block size.
    pub rows_refitted: usize,
}

/// One fault in a trace file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TraceFault {
    /// Line in the (decompressed) file, from 1.
    pub line: usize,
    /// Description of the fault; lower case, no full stop.
    pub message: String,
}

/// Reason why a trace could not be read.
#[derive(Debug, thiserror::Error)]
pub enum TraceError {
    /// The gzip stream is damaged or truncated.
    #[error("damaged gzip data: {0}")]
    Gzip(#[source] std::io::Error),
    /// The file has no requests.
    #[error("the file contains no requests")]
    Empty,
    /// The file has none of the known formats.
    #[error(
        "unknown trace format: the first line is neither a JSON object with timestamp, input_length and output_length \
         (Mooncake) nor the header TIMESTAMP,ContextTokens,GeneratedTokens (Azure)"
    )]
    Format,
    /// The requested block size is out of range.
    #[error("block size is {0}; must be from 1 to 1,000,000 tokens")]
    BlockSize(u32),
    /// Some rows are bad.
    #[error("{}", FaultLines { kept, total: *total })]
    Rows {
        /// The first of the faults.
        kept: Vec<TraceFault>,
        /// Number of faults in the whole file.
        total: usize,
    },
}

/// Displays the list of faults: `line 3: …`, one per line.
struct FaultLines<'a> {
    kept: &'a [TraceFault],
    total: usize,
}

impl fmt::Display for FaultLines<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (position, fault) in self.kept.iter().enumerate() {
            let separator = if position == 0 { "" } else { "\n" };
            write!(f, "{separator}line {}: {}", fault.line, fault.message)?;
        }
        match self.total.saturating_sub(self.kept.len()) {
            0 => Ok(()),
            more => write!(f, "\nand {more} more bad lines"),
        }
    }
}

/// Faults found while reading: the first few with their text, all of them counted.
#[derive(Debug, Default)]
pub(super) struct FaultList {
    kept: Vec<TraceFault>,
    total: usize,
}

impl FaultList {
    /// Records a fault.
    pub(super) fn push(&mut self, line: usize, message: String) {
        self.total += 1;
        if self.kept.len() < FAULTS_KEPT {
            self.kept.push(TraceFault { line, message });
        }
    }

    /// Returns an error if any fault was recorded.
    pub(super) fn check(self) -> Result<(), TraceError> {
        if self.total == 0 { Ok(()) } else { Err(TraceError::Rows { kept: self.kept, total: self.total }) }
    }
}

/// A row with its line number, for faults that can only be found once the whole file has been read.
pub(super) struct NumberedRow {
    pub(super) line: usize,
    pub(super) row: TraceRow,
    /// The file has block ids for this row.
    pub(super) has_blocks: bool,
}

/// Reads a trace. `block_tokens` overrides the block size that is otherwise inferred from the file.
///
/// # Errors
/// The gzip data is damaged, the format is unknown, the file is empty, or rows are bad: the first eight are listed by
/// line, the rest is counted.
pub fn read(bytes: &[u8], block_tokens: Option<u32>) -> Result<RecordedTrace, TraceError> {
    if let Some(size) = block_tokens.filter(|size| !(1..=1_000_000).contains(size)) {
        return Err(TraceError::BlockSize(size));
    }
    if bytes.starts_with(&GZIP_MAGIC) {
        // A file may consist of several gzip members (concatenated files, parallel compressors), hence the multi-member
        // decoder.
        let mut unpacked = Vec::new();
        MultiGzDecoder::new(bytes).read_to_end(&mut unpacked).map_err(TraceError::Gzip)?;
        read_plain(&unpacked, block_tokens)
    } else {
        read_plain(bytes, block_tokens)
    }
}

/// Returns the lines of a file with their numbers from 1, without line ends; blank lines are skipped.
pub(super) fn lines(bytes: &[u8]) -> impl Iterator<Item = (usize, &[u8])> {
    bytes
        .split(|byte| *byte == b'\n')
        .enumerate()
        .map(|(index, line)| (index + 1, line.trim_ascii()))
        .filter(|(_, line)| !line.is_empty())
}

fn read_plain(bytes: &[u8], block_tokens: Option<u32>) -> Result<RecordedTrace, TraceError> {
    // Spreadsheets write a byte order mark, which is part of neither format.
    let bytes = bytes.strip_prefix(b"\xef\xbb\xbf").unwrap_or(bytes);
    let (_, first) = lines(bytes).next().ok_or(TraceError::Empty)?;
    let (format, mut rows) = if first.starts_with(b"{") {
        (TraceFormat::Mooncake, mooncake::rows(bytes)?)
    } else if azure::is_header(first) {
        (TraceFormat::Azure, azure::rows(bytes)?)
    } else {
        return Err(TraceError::Format);
    };
    if rows.is_empty() {
        return Err(TraceError::Empty);
    }
    // Inference needs all rows at once: each narrows the range of sizes that fit.
    let block_tokens = match block_tokens {
        Some(size) => size,
        None => blocks::infer_size(&rows)?,
    };
    let (rows_without_blocks, rows_refitted) = blocks::fit(&mut rows, block_tokens);
    let mut rows: Vec<TraceRow> = rows.into_iter().map(|numbered| numbered.row).collect();
    // The sort is stable: rows with equal times keep the order that the file gives them.
    rows.sort_by(|a, b| a.at_ms.total_cmp(&b.at_ms));
    Ok(RecordedTrace { format, block_tokens, rows, rows_without_blocks, rows_refitted })
}

#[cfg(test)]
mod tests;
