//! JSON lines in the format of Mooncake's FAST'25 traces (kvcache-ai/Mooncake): `timestamp` (ms), `input_length`,
//! `output_length` (tokens), `hash_ids` (integers, or hexadecimal strings as some exporters write).
//!
//! Further fields are optional and read if present: `id`, `parent`, `shared_tokens`, `engine_prompt_tokens`,
//! `user`, `conversation`, `turn`. Fields with other names are ignored.

use std::fmt;
use std::sync::Arc;

use serde::Deserialize;
use serde::de::{Deserializer, Error, Visitor};
use xxhash_rust::xxh3::xxh3_64;

use super::read::{FaultList, NumberedRow, lines};
use super::row::MAX_TOKENS;
use super::{TraceError, TraceRow};

/// One line of the file.
#[derive(Deserialize)]
struct MooncakeLine {
    timestamp: Option<f64>,
    input_length: Option<f64>,
    output_length: Option<f64>,
    hash_ids: Option<Vec<BlockId>>,
    id: Option<ReadLabel>,
    parent: Option<ReadLabel>,
    shared_tokens: Option<u32>,
    engine_prompt_tokens: Option<u32>,
    user: Option<ReadLabel>,
    conversation: Option<ReadLabel>,
    turn: Option<u32>,
}

/// Returns all rows in the order of the file, or its faults.
pub(super) fn rows(bytes: &[u8]) -> Result<Vec<NumberedRow>, TraceError> {
    let mut rows = Vec::new();
    let mut faults = FaultList::default();
    for (line, text) in lines(bytes) {
        match row(text, rows.len()) {
            Ok((row, has_blocks)) => rows.push(NumberedRow { line, row, has_blocks }),
            Err(message) => faults.push(line, message),
        }
    }
    faults.check()?;
    Ok(rows)
}

fn row(text: &[u8], index: usize) -> Result<(TraceRow, bool), String> {
    let line: MooncakeLine = serde_json::from_slice(text).map_err(|error| {
        // serde_json sees a single line and would always report "line 1"; the caller adds the true line number.
        let message = error.to_string();
        let message = message.split(" at line ").next().unwrap_or_default();
        format!("{message} (column {})", error.column())
    })?;
    let at_ms = line.timestamp.ok_or("timestamp is missing")?;
    if !(at_ms.is_finite() && at_ms >= 0.0) {
        return Err(format!("timestamp is {at_ms}; must be a time in ms, 0 or more"));
    }
    let input_tokens = tokens("input_length", line.input_length, 1)?;
    let output_tokens = tokens("output_length", line.output_length, 0)?;
    // An empty list counts as absent: the row gets fresh blocks like one without the field.
    let has_blocks = line.hash_ids.as_ref().is_some_and(|ids| !ids.is_empty());
    let row = TraceRow {
        index,
        at_ms,
        input_tokens,
        output_tokens,
        blocks: line.hash_ids.unwrap_or_default().into_iter().map(|id| id.0).collect(),
        id: line.id.map(|label| label.0),
        parent: line.parent.map(|label| label.0),
        shared_tokens: line.shared_tokens,
        engine_prompt_tokens: line.engine_prompt_tokens,
        user: line.user.map(|label| label.0),
        conversation: line.conversation.map(|label| label.0),
        turn: line.turn,
    };
    Ok((row, has_blocks))
}

/// Checks a token count. Exporters that use a data frame write `128.0`, so any whole number is accepted.
pub(super) fn tokens(name: &str, value: Option<f64>, least: u32) -> Result<u32, String> {
    let value = value.ok_or_else(|| format!("{name} is missing"))?;
    if value >= f64::from(least) && value <= f64::from(MAX_TOKENS) && value.fract() == 0.0 {
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "a whole number in range, see above"
        )]
        Ok(value as u32)
    } else {
        Err(format!("{name} is {value}; must be a whole number from {least} to {MAX_TOKENS}"))
    }
}

/// Id of a block: an integer, or hexadecimal digits with or without `0x`. More than 16 digits are hashed to 64 bits.
struct BlockId(u64);

impl<'de> Deserialize<'de> for BlockId {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct BlockIdVisitor;
        impl Visitor<'_> for BlockIdVisitor {
            type Value = BlockId;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an integer or hexadecimal hash id")
            }

            fn visit_u64<E: Error>(self, value: u64) -> Result<BlockId, E> {
                Ok(BlockId(value))
            }

            fn visit_i64<E: Error>(self, value: i64) -> Result<BlockId, E> {
                // Python's hash() is signed. Only equality matters, and the cast keeps distinct values distinct.
                Ok(BlockId(value.cast_unsigned()))
            }

            fn visit_str<E: Error>(self, value: &str) -> Result<BlockId, E> {
                let digits = value.strip_prefix("0x").unwrap_or(value).to_ascii_lowercase();
                if digits.is_empty() || !digits.bytes().all(|digit| digit.is_ascii_hexdigit()) {
                    return Err(E::custom("hash id must be an integer or hexadecimal digits"));
                }
                // Leading zeros are dropped so that padded and unpadded spellings of one id stay equal.
                let digits = digits.trim_start_matches('0');
                if digits.is_empty() {
                    return Ok(BlockId(0));
                }
                Ok(BlockId(u64::from_str_radix(digits, 16).unwrap_or_else(|_| xxh3_64(digits.as_bytes()))))
            }
        }
        deserializer.deserialize_any(BlockIdVisitor)
    }
}

/// A label that some files write as a number.
struct ReadLabel(Arc<str>);

impl<'de> Deserialize<'de> for ReadLabel {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Reader;
        impl Visitor<'_> for Reader {
            type Value = ReadLabel;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an integer or a string")
            }

            fn visit_u64<E: Error>(self, value: u64) -> Result<ReadLabel, E> {
                Ok(ReadLabel(value.to_string().into()))
            }

            fn visit_i64<E: Error>(self, value: i64) -> Result<ReadLabel, E> {
                Ok(ReadLabel(value.to_string().into()))
            }

            fn visit_str<E: Error>(self, value: &str) -> Result<ReadLabel, E> {
                Ok(ReadLabel(value.into()))
            }
        }
        deserializer.deserialize_any(Reader)
    }
}
