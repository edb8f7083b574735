//! File bytes → [`Trace`]: gzip is recognised by its magic bytes, the format by the first line.
//!
//! A file with bad rows is refused whole, with the first of them named by line: a replay of the rest would be
//! another workload under the same name.

use std::fmt;
use std::io::Read;

use flate2::read::MultiGzDecoder;

use super::{TraceRow, azure, blocks, mooncake};

/// First bytes of a gzip member (RFC 1952).
const GZIP_MAGIC: [u8; 2] = [0x1f, 0x8b];

/// Faults that are kept with their text; the rest is counted.
const FAULTS_KEPT: usize = 8;

/// Which kind of file a trace came from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum TraceFormat {
    /// JSON lines in the form of Mooncake's FAST'25 traces.
    Mooncake,
    /// CSV in the form of the Azure LLM inference traces of 2023; no prefix data.
    Azure,
}

/// A trace as recorded, in order of arrival.
#[derive(Debug, Clone, PartialEq)]
pub struct Trace {
    /// What kind of file it was.
    pub format: TraceFormat,
    /// Tokens per block id.
    pub block_tokens: u32,
    /// The requests, by time; of equal times, in file order.
    pub rows: Vec<TraceRow>,
    /// Rows without block ids, which got fresh ones: nothing of them is ever cached.
    pub rows_without_blocks: usize,
    /// Rows whose block ids were cut or filled up because they did not fit the block size asked for.
    pub rows_refitted: usize,
}

/// One thing wrong with a trace file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TraceFault {
    /// Line in the (unpacked) file, from 1.
    pub line: usize,
    /// What is wrong with it; lower case, no full stop.
    pub message: String,
}

/// Why a trace could not be read.
#[derive(Debug, thiserror::Error)]
pub enum TraceError {
    /// The gzip stream is damaged or cut.
    #[error("damaged gzip data: {0}")]
    Gzip(#[source] std::io::Error),
    /// Nothing in it.
    #[error("no requests in it")]
    Empty,
    /// Neither of the known formats.
    #[error(
        "unknown trace format: the first line is neither a JSON object with timestamp, input_length and output_length \
         (Mooncake) nor the header TIMESTAMP,ContextTokens,GeneratedTokens (Azure)"
    )]
    Format,
    /// A block size that cannot be.
    #[error("block size {0} is not between 1 and 1,000,000 tokens")]
    BlockSize(u32),
    /// Bad rows.
    #[error("{}", Faults { kept, total: *total })]
    Rows {
        /// The first of them.
        kept: Vec<TraceFault>,
        /// How many there are in all.
        total: usize,
    },
}

/// Writes the fault list: `line 3: …`, one per line.
struct Faults<'a> {
    kept: &'a [TraceFault],
    total: usize,
}

impl fmt::Display for Faults<'_> {
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

/// Faults while reading: the first few in words, all counted.
#[derive(Debug, Default)]
pub(super) struct FaultList {
    kept: Vec<TraceFault>,
    total: usize,
}

impl FaultList {
    /// Notes a fault.
    pub(super) fn push(&mut self, line: usize, message: String) {
        self.total += 1;
        if self.kept.len() < FAULTS_KEPT {
            self.kept.push(TraceFault { line, message });
        }
    }

    /// An error where any was noted.
    pub(super) fn check(self) -> Result<(), TraceError> {
        if self.total == 0 { Ok(()) } else { Err(TraceError::Rows { kept: self.kept, total: self.total }) }
    }
}

/// A row with the line it stood on, for faults found when the whole file is known.
pub(super) struct Numbered {
    pub(super) line: usize,
    pub(super) row: TraceRow,
    /// Whether the file gave block ids.
    pub(super) has_blocks: bool,
}

/// Reads a trace. `block_tokens` overrides the block size that is otherwise inferred from the file.
///
/// # Errors
/// Damaged gzip, an unknown format, an empty file, or bad rows: the first eight by line, the rest counted.
pub fn read(bytes: &[u8], block_tokens: Option<u32>) -> Result<Trace, TraceError> {
    if let Some(size) = block_tokens.filter(|size| !(1..=1_000_000).contains(size)) {
        return Err(TraceError::BlockSize(size));
    }
    if bytes.starts_with(&GZIP_MAGIC) {
        let mut unpacked = Vec::new();
        MultiGzDecoder::new(bytes).read_to_end(&mut unpacked).map_err(TraceError::Gzip)?;
        read_plain(&unpacked, block_tokens)
    } else {
        read_plain(bytes, block_tokens)
    }
}

/// The lines of a file with their numbers from 1, without line ends and blank lines.
pub(super) fn lines(bytes: &[u8]) -> impl Iterator<Item = (usize, &[u8])> {
    bytes
        .split(|byte| *byte == b'\n')
        .enumerate()
        .map(|(index, line)| (index + 1, line.trim_ascii()))
        .filter(|(_, line)| !line.is_empty())
}

fn read_plain(bytes: &[u8], block_tokens: Option<u32>) -> Result<Trace, TraceError> {
    let bytes = bytes.strip_prefix(b"\xef\xbb\xbf").unwrap_or(bytes); // a byte order mark, as spreadsheets write
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
    let block_tokens = match block_tokens {
        Some(size) => size,
        None => blocks::infer_size(&rows)?,
    };
    let (rows_without_blocks, rows_refitted) = blocks::fit(&mut rows, block_tokens);
    let mut rows: Vec<TraceRow> = rows.into_iter().map(|numbered| numbered.row).collect();
    rows.sort_by(|a, b| a.at_ms.total_cmp(&b.at_ms));
    Ok(Trace { format, block_tokens, rows, rows_without_blocks, rows_refitted })
}

#[cfg(test)]
mod tests;
