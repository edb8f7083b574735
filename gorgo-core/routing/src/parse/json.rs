//! Cursors over JSON text that serde_json has already validated: positions of members, elements and strings.
//!
//! serde_json reads a body once and returns the raw text of the members that matter; these cursors walk that text
//! without recursion and without copies. On invalid text they return nonsense, but they terminate and never panic.

use std::borrow::Cow;

use memchr::{memchr, memchr_iter};
use serde_json::value::RawValue;

/// Kind of a value, by its first byte.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum JsonKind {
    Null,
    Bool,
    Number,
    Text,
    List,
    Table,
}

/// One value: its text without surrounding white space.
#[derive(Debug, Clone, Copy)]
pub(super) struct RawJson<'a> {
    bytes: &'a [u8],
}

/// Members of one table, in their original order.
pub(super) type MemberList<'a> = Vec<(Cow<'a, [u8]>, RawJson<'a>)>;

/// Element of a list.
pub(super) enum JsonElement<'a> {
    /// A table; its members are in the caller's list.
    Table,
    /// Any other value.
    Value(RawJson<'a>),
}

impl<'a> RawJson<'a> {
    pub(super) fn from_raw(raw: &'a RawValue) -> Self {
        Self { bytes: raw.get().as_bytes() }
    }

    pub(super) const fn bytes(self) -> &'a [u8] {
        self.bytes
    }

    pub(super) fn kind(self) -> JsonKind {
        match self.bytes.first() {
            Some(b'"') => JsonKind::Text,
            Some(b'[') => JsonKind::List,
            Some(b'{') => JsonKind::Table,
            Some(b't' | b'f') => JsonKind::Bool,
            Some(b'-' | b'0'..=b'9') => JsonKind::Number,
            _ => JsonKind::Null,
        }
    }

    /// Inside of a string, with its original escapes.
    pub(super) fn text(self) -> Option<&'a [u8]> {
        match self.bytes {
            [b'"', inside @ .., b'"'] => Some(inside),
            _ => None,
        }
    }

    /// Unescaped string; `None` if the value is not a string, or contains half a surrogate pair, which no Rust string
    /// can.
    pub(super) fn string(self) -> Option<Cow<'a, str>> {
        let inside = self.text()?;
        // Without a backslash the inside is the text: no copy.
        if memchr(b'\\', inside).is_none() {
            return std::str::from_utf8(inside).ok().map(Cow::Borrowed);
        }
        serde_json::from_slice::<String>(self.bytes).ok().map(Cow::Owned)
    }

    /// Whole number; a fraction of zero is accepted, as engines do. Values beyond `u32` become its maximum.
    pub(super) fn as_u32(self) -> Option<u32> {
        let text = std::str::from_utf8(self.bytes).ok()?;
        if let Ok(number) = text.parse::<u64>() {
            return Some(u32::try_from(number).unwrap_or(u32::MAX));
        }
        let number = text.parse::<f64>().ok()?;
        (number >= 0.0 && number.fract() == 0.0).then(|| {
            #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "not negative; `as` saturates")]
            let whole = number as u32;
            whole
        })
    }

    /// Returns true if an engine takes this for true: Python's request models also accept 1 and some words.
    pub(super) fn is_true(self) -> bool {
        let word = self.text().unwrap_or(self.bytes);
        [&b"true"[..], b"1", b"1.0", b"yes", b"on", b"y", b"t"].iter().any(|yes| word.eq_ignore_ascii_case(yes))
    }

    /// Members of a table; empty for any other value. Keys are the insides of their strings.
    pub(super) fn members(self) -> JsonMembers<'a> {
        let at = if self.kind() == JsonKind::Table { 1 } else { self.bytes.len() };
        JsonMembers { bytes: self.bytes, at }
    }

    /// Last member of that name, as Python and JavaScript read it; `null` counts as absent.
    pub(super) fn member(self, name: &str) -> Option<RawJson<'a>> {
        let found = self.members().filter(|(key, _)| equals_word(key, name)).last();
        found.map(|(_, value)| value).filter(|value| value.kind() != JsonKind::Null)
    }

    /// Elements of a list; empty for any other value.
    pub(super) fn elements(self) -> JsonElements<'a> {
        let at = if self.kind() == JsonKind::List { 1 } else { self.bytes.len() };
        JsonElements { bytes: self.bytes, at }
    }
}

/// Returns true if the inside of a JSON string, a key or a short value, is `word`, however it was escaped.
pub(super) fn equals_word(inside: &[u8], word: &str) -> bool {
    // The fast path of nearly every key; escapes in keys are legal but rare.
    if memchr(b'\\', inside).is_none() {
        return inside == word.as_bytes();
    }
    let quoted = [b"\"", inside, b"\""].concat();
    serde_json::from_slice::<String>(&quoted).is_ok_and(|text| text == word)
}

/// Iterator over the members of a table.
pub(super) struct JsonMembers<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Iterator for JsonMembers<'a> {
    type Item = (&'a [u8], RawJson<'a>);

    fn next(&mut self) -> Option<Self::Item> {
        let open = skip_gap(self.bytes, self.at);
        self.at = open;
        // The closing brace, or text that is not valid JSON.
        if self.bytes.get(open) != Some(&b'"') {
            return None;
        }
        let closed = string_end(self.bytes, open);
        let key = self.bytes.get(open + 1..closed.saturating_sub(1))?;
        let value = skip_gap(self.bytes, closed);
        self.at = value_end(self.bytes, value);
        Some((key, RawJson { bytes: self.bytes.get(value..self.at)? }))
    }
}

/// Iterator over the elements of a list.
pub(super) struct JsonElements<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> JsonElements<'a> {
    /// Advances to the next element; puts the members of a table into `members`, in one scan.
    pub(super) fn next_into(&mut self, members: &mut MemberList<'a>) -> Option<JsonElement<'a>> {
        let value = skip_gap(self.bytes, self.at);
        if self.bytes.get(value) != Some(&b'{') {
            return self.next().map(JsonElement::Value);
        }
        let mut inside = JsonMembers { bytes: self.bytes, at: value + 1 };
        members.clear();
        members.extend(inside.by_ref().map(|(key, value)| (Cow::Borrowed(key), value)));
        // Past the closing brace, at which `JsonMembers` stopped.
        self.at = inside.at + 1;
        Some(JsonElement::Table)
    }
}

impl<'a> Iterator for JsonElements<'a> {
    type Item = RawJson<'a>;

    fn next(&mut self) -> Option<Self::Item> {
        let value = skip_gap(self.bytes, self.at);
        if matches!(self.bytes.get(value), None | Some(b']')) {
            return None;
        }
        self.at = value_end(self.bytes, value);
        let bytes = self.bytes.get(value..self.at).filter(|bytes| !bytes.is_empty())?;
        Some(RawJson { bytes })
    }
}

/// Position of the first byte at or after `at` that is neither white space nor `,` nor `:`.
fn skip_gap(bytes: &[u8], at: usize) -> usize {
    let rest = bytes.get(at..).unwrap_or_default();
    let gap = rest.iter().position(|byte| !matches!(byte, b' ' | b'\n' | b'\r' | b'\t' | b',' | b':'));
    gap.map_or(bytes.len(), |gap| at + gap)
}

/// End of the string that opens at `open`, just past its closing quote. Searches for quotes, not for backslashes: most
/// text has many `\n` and fewer `\"`.
pub(super) fn string_end(bytes: &[u8], open: usize) -> usize {
    let inside = bytes.get(open + 1..).unwrap_or_default();
    for quote in memchr_iter(b'"', inside) {
        let backslashes = inside[..quote].iter().rev().take_while(|&&byte| byte == b'\\').count();
        // An even number of backslashes escapes only themselves, so the quote closes the string.
        if backslashes % 2 == 0 {
            return open + 1 + quote + 1;
        }
    }
    bytes.len()
}

/// End of the value that begins at `start`.
fn value_end(bytes: &[u8], start: usize) -> usize {
    match bytes.get(start) {
        Some(b'"') => return string_end(bytes, start),
        Some(b'{' | b'[') => {}
        _ => {
            let rest = bytes.get(start..).unwrap_or_default();
            // Numbers and literals end at the next separator.
            let end = rest.iter().position(|byte| matches!(byte, b',' | b']' | b'}' | b' ' | b'\n' | b'\r' | b'\t'));
            return end.map_or(bytes.len(), |end| start + end);
        }
    }
    // Brackets within strings must not count, hence the jump over each string.
    let (mut at, mut depth) = (start, 0_usize);
    while let Some(byte) = bytes.get(at) {
        match byte {
            b'"' => {
                at = string_end(bytes, at);
                continue;
            }
            b'{' | b'[' => depth += 1,
            b'}' | b']' => {
                depth = depth.saturating_sub(1);
                if depth == 0 {
                    return at + 1;
                }
            }
            _ => {}
        }
        at += 1;
    }
    bytes.len()
}
