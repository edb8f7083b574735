//! Prompts without a chat template: a string, several strings, token ids, several lists of token ids.

use super::ParseError;
use super::canonical::{CanonicalWriter, PART, RAW, TOKENS};
use super::json::{JsonKind, RawJson};

/// Exact number of prompt tokens in a prompt of token ids; `None` if it is text. In a list of prompts all of them
/// count; `n` answers to one prompt prefill it once.
pub(super) fn count_tokens(field: &'static str, prompt: RawJson<'_>) -> Result<Option<u32>, ParseError> {
    let mut tokens = 0_u32;
    let mut ids = false;
    for element in prompt.elements() {
        match element.kind() {
            JsonKind::Number => {
                ids = true;
                token(element).ok_or(ParseError::NotTokenIds { field })?;
                tokens = tokens.saturating_add(1);
            }
            JsonKind::List => {
                ids = true;
                for inner in element.elements() {
                    token(inner).ok_or(ParseError::NotTokenIds { field })?;
                    tokens = tokens.saturating_add(1);
                }
            }
            _ if ids => return Err(ParseError::NotTokenIds { field }),
            _ => return Ok(None),
        }
    }
    Ok(ids.then_some(tokens))
}

/// Writes a prompt of any of these forms. The prompts of a list follow each other.
pub(super) fn write_prompt(prompt: RawJson<'_>, out: &mut CanonicalWriter<'_>) {
    let ids = |value: RawJson<'_>| value.elements().next().is_some_and(|first| first.kind() == JsonKind::Number);
    match prompt.kind() {
        JsonKind::Text => {
            out.mark(RAW);
            out.string(prompt);
        }
        JsonKind::List if ids(prompt) => write_ids(prompt, out),
        JsonKind::List => {
            for (index, element) in prompt.elements().enumerate() {
                if index > 0 {
                    out.mark(PART);
                }
                match element.kind() {
                    JsonKind::Text => {
                        out.mark(RAW);
                        out.string(element);
                    }
                    JsonKind::List if ids(element) => write_ids(element, out),
                    _ => out.value(element),
                }
            }
        }
        _ => out.value(prompt),
    }
}

/// Writes token ids, 4 bytes each, little-endian.
fn write_ids(list: RawJson<'_>, out: &mut CanonicalWriter<'_>) {
    // In pieces on the stack: a sink call per id would be slow, and a prompt may have a hundred thousand of them.
    const PIECE: usize = 256;
    let mut piece = [0_u8; PIECE];
    let mut length = 0;
    out.mark(TOKENS);
    for id in list.elements().filter_map(token) {
        piece[length..length + 4].copy_from_slice(&id.to_le_bytes());
        length += 4;
        if length == PIECE {
            out.raw(&piece);
            length = 0;
        }
    }
    out.raw(&piece[..length]);
}

/// Token id, if the value is one.
fn token(value: RawJson<'_>) -> Option<u32> {
    let digits = value.bytes();
    // Ten digits hold any u32 and cannot overflow the u64 below.
    if digits.is_empty() || digits.len() > 10 {
        return None;
    }
    let number = digits
        .iter()
        .try_fold(0_u64, |number, digit| digit.is_ascii_digit().then(|| number * 10 + u64::from(digit - b'0')))?;
    u32::try_from(number).ok()
}
