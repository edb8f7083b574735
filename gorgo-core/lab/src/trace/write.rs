//! Rows → a trace file in the format of Mooncake's FAST'25 traces, which [`super::read()`] reads back unchanged.
//!
//! Times are written in ms with at most three decimals. Optional fields are written if a row has them; a label that is
//! a number is written as a number.

use std::io::{self, Write};

use flate2::Compression;
use flate2::write::GzEncoder;
use serde::{Serialize, Serializer};

use super::TraceRow;

/// Compression of the file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TraceCompression {
    /// Uncompressed text.
    Plain,
    /// gzip without file name and time stamp, so that equal rows give equal bytes.
    Gzip,
}

impl TraceCompression {
    /// Chooses the compression by file name: gzip if it ends in `.gz`.
    #[must_use]
    pub fn from_file_name(name: &str) -> Self {
        if name.ends_with(".gz") { Self::Gzip } else { Self::Plain }
    }
}

/// Writes the rows, one JSON object per line, in the order given.
///
/// # Errors
/// Any error of `out`.
pub fn write(rows: &[TraceRow], packing: TraceCompression, mut out: impl Write) -> io::Result<()> {
    match packing {
        TraceCompression::Plain => lines(rows, &mut out)?,
        TraceCompression::Gzip => {
            let mut packed = GzEncoder::new(&mut out, Compression::default());
            lines(rows, &mut packed)?;
            // Dropping the encoder would also write the trailer, but swallow its error.
            packed.finish()?;
        }
    }
    out.flush()
}

fn lines(rows: &[TraceRow], out: &mut impl Write) -> io::Result<()> {
    for row in rows {
        serde_json::to_writer(&mut *out, &WrittenLine::from_row(row))?;
        out.write_all(b"\n")?;
    }
    Ok(())
}

/// One line of the file.
#[derive(Serialize)]
struct WrittenLine<'a> {
    timestamp: WrittenMillis,
    input_length: u32,
    output_length: u32,
    hash_ids: &'a [u64],
    #[serde(skip_serializing_if = "Option::is_none")]
    id: Option<WrittenLabel<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    parent: Option<WrittenLabel<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    shared_tokens: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    engine_prompt_tokens: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    user: Option<WrittenLabel<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    conversation: Option<WrittenLabel<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    turn: Option<u32>,
}

impl<'a> WrittenLine<'a> {
    fn from_row(row: &'a TraceRow) -> Self {
        Self {
            timestamp: WrittenMillis(row.at_ms),
            input_length: row.input_tokens,
            output_length: row.output_tokens,
            hash_ids: &row.blocks,
            id: row.id.as_deref().map(WrittenLabel),
            parent: row.parent.as_deref().map(WrittenLabel),
            shared_tokens: row.shared_tokens,
            engine_prompt_tokens: row.engine_prompt_tokens,
            user: row.user.as_deref().map(WrittenLabel),
            conversation: row.conversation.as_deref().map(WrittenLabel),
            turn: row.turn,
        }
    }
}

/// A time in ms, rounded to µs; whole numbers are written without a fraction.
struct WrittenMillis(f64);

impl Serialize for WrittenMillis {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let micros = (self.0 * 1e3).round();
        let millis = micros / 1e3;
        // Mooncake's own files have integer timestamps. From 2^53, about 9e15, an f64 no longer holds every integer.
        if millis.fract() == 0.0 && (0.0..9e15).contains(&millis) {
            #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "whole and in range")]
            serializer.serialize_u64(millis as u64)
        } else {
            serializer.serialize_f64(millis)
        }
    }
}

/// A label; written as a number if that number, written by Rust, gives the same label.
struct WrittenLabel<'a>(&'a str);

impl Serialize for WrittenLabel<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self.0.parse::<u64>() {
            // `007` or `+7` must stay strings, or reading the file back would change the label.
            Ok(number) if number.to_string() == self.0 => serializer.serialize_u64(number),
            _ => serializer.serialize_str(self.0),
        }
    }
}

#[cfg(test)]
mod tests;
