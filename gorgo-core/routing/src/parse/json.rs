//! Cursors over JSON text that serde_json has already found valid: where members, elements and strings lie.
//!
//! serde_json reads a body once and hands out the raw text of the members that matter; these cursors walk that text
//! without recursion and without a copy. On text that is not valid they return nonsense, but they end and never panic.

use std::borrow::Cow;

use memchr::{memchr, memchr_iter};
use serde_json::value::RawValue;

/// What a value is, by its first byte.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Null,
    Bool,
    Number,
    Text,
    List,
    Table,
}

/// One value: its text without white space around it.
#[derive(Debug, Clone, Copy)]
pub(super) struct Json<'a> {
    bytes: &'a [u8],
}

/// Members of one table, in the order they came.
pub(super) type MemberList<'a> = Vec<(Cow<'a, [u8]>, Json<'a>)>;

/// An element of a list.
pub(super) enum Element<'a> {
    /// A table; its members were put into the caller's list.
    Table,
    /// Anything else.
    Value(Json<'a>),
}

impl<'a> Json<'a> {
    pub(super) fn of(raw: &'a RawValue) -> Self {
        Self { bytes: raw.get().as_bytes() }
    }

    pub(super) const fn bytes(self) -> &'a [u8] {
        self.bytes
    }

    pub(super) fn kind(self) -> Kind {
        match self.bytes.first() {
            Some(b'"') => Kind::Text,
            Some(b'[') => Kind::List,
            Some(b'{') => Kind::Table,
            Some(b't' | b'f') => Kind::Bool,
            Some(b'-' | b'0'..=b'9') => Kind::Number,
            _ => Kind::Null,
        }
    }

    /// The inside of a string, escapes as they came.
    pub(super) fn text(self) -> Option<&'a [u8]> {
        match self.bytes {
            [b'"', inside @ .., b'"'] => Some(inside),
            _ => None,
        }
    }

    /// A string, unescaped; `None` where it is none, or holds half a surrogate pair, which no Rust string can.
    pub(super) fn string(self) -> Option<Cow<'a, str>> {
        let inside = self.text()?;
        if memchr(b'\\', inside).is_none() {
            return std::str::from_utf8(inside).ok().map(Cow::Borrowed);
        }
        serde_json::from_slice::<String>(self.bytes).ok().map(Cow::Owned)
    }

    /// A whole number; one with a fraction of zero counts, as it does for the engines. Beyond `u32`: its largest.
    pub(super) fn whole(self) -> Option<u32> {
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

    /// Whether an engine takes this for true: Python's request models also take 1 and some words.
    pub(super) fn is_true(self) -> bool {
        let word = self.text().unwrap_or(self.bytes);
        [&b"true"[..], b"1", b"1.0", b"yes", b"on", b"y", b"t"].iter().any(|yes| word.eq_ignore_ascii_case(yes))
    }

    /// The members of a table; none for any other value. Keys are the insides of their strings.
    pub(super) fn members(self) -> Members<'a> {
        let at = if self.kind() == Kind::Table { 1 } else { self.bytes.len() };
        Members { bytes: self.bytes, at }
    }

    /// The last member of that name, as Python and JavaScript read it; `null` counts as absent.
    pub(super) fn member(self, name: &str) -> Option<Json<'a>> {
        let found = self.members().filter(|(key, _)| spells(key, name)).last();
        found.map(|(_, value)| value).filter(|value| value.kind() != Kind::Null)
    }

    /// The elements of a list; none for any other value.
    pub(super) fn elements(self) -> Elements<'a> {
        let at = if self.kind() == Kind::List { 1 } else { self.bytes.len() };
        Elements { bytes: self.bytes, at }
    }
}

/// Whether the inside of a JSON string, a key or a short value, is `word`, however it was escaped.
pub(super) fn spells(inside: &[u8], word: &str) -> bool {
    if memchr(b'\\', inside).is_none() {
        return inside == word.as_bytes();
    }
    let quoted = [b"\"", inside, b"\""].concat();
    serde_json::from_slice::<String>(&quoted).is_ok_and(|text| text == word)
}

/// Iterates over the members of a table.
pub(super) struct Members<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Iterator for Members<'a> {
    type Item = (&'a [u8], Json<'a>);

    fn next(&mut self) -> Option<Self::Item> {
        let open = skip_gap(self.bytes, self.at);
        self.at = open;
        if self.bytes.get(open) != Some(&b'"') {
            return None;
        }
        let closed = string_end(self.bytes, open);
        let key = self.bytes.get(open + 1..closed.saturating_sub(1))?;
        let value = skip_gap(self.bytes, closed);
        self.at = value_end(self.bytes, value);
        Some((key, Json { bytes: self.bytes.get(value..self.at)? }))
    }
}

/// Iterates over the elements of a list.
pub(super) struct Elements<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Elements<'a> {
    /// The next element; of a table its members, in one scan.
    pub(super) fn next_into(&mut self, members: &mut MemberList<'a>) -> Option<Element<'a>> {
        let value = skip_gap(self.bytes, self.at);
        if self.bytes.get(value) != Some(&b'{') {
            return self.next().map(Element::Value);
        }
        let mut inside = Members { bytes: self.bytes, at: value + 1 };
        members.clear();
        members.extend(inside.by_ref().map(|(key, value)| (Cow::Borrowed(key), value)));
        self.at = inside.at + 1;
        Some(Element::Table)
    }
}

impl<'a> Iterator for Elements<'a> {
    type Item = Json<'a>;

    fn next(&mut self) -> Option<Self::Item> {
        let value = skip_gap(self.bytes, self.at);
        if matches!(self.bytes.get(value), None | Some(b']')) {
            return None;
        }
        self.at = value_end(self.bytes, value);
        let bytes = self.bytes.get(value..self.at).filter(|bytes| !bytes.is_empty())?;
        Some(Json { bytes })
    }
}

/// The first byte at or after `at` that is neither white space nor `,` nor `:`.
fn skip_gap(bytes: &[u8], at: usize) -> usize {
    let rest = bytes.get(at..).unwrap_or_default();
    let gap = rest.iter().position(|byte| !matches!(byte, b' ' | b'\n' | b'\r' | b'\t' | b',' | b':'));
    gap.map_or(bytes.len(), |gap| at + gap)
}

/// Just past the closing quote of the string that opens at `open`. It looks for quotes and not for backslashes: most
/// text has many `\n` and fewer `\"`.
pub(super) fn string_end(bytes: &[u8], open: usize) -> usize {
    let inside = bytes.get(open + 1..).unwrap_or_default();
    for quote in memchr_iter(b'"', inside) {
        let backslashes = inside[..quote].iter().rev().take_while(|&&byte| byte == b'\\').count();
        if backslashes % 2 == 0 {
            return open + 1 + quote + 1;
        }
    }
    bytes.len()
}

/// Just past the value that begins at `start`.
fn value_end(bytes: &[u8], start: usize) -> usize {
    match bytes.get(start) {
        Some(b'"') => return string_end(bytes, start),
        Some(b'{' | b'[') => {}
        _ => {
            let rest = bytes.get(start..).unwrap_or_default();
            let end = rest.iter().position(|byte| matches!(byte, b',' | b']' | b'}' | b' ' | b'\n' | b'\r' | b'\t'));
            return end.map_or(bytes.len(), |end| start + end);
        }
    }
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
