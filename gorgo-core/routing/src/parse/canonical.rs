//! JSON values → canonical bytes.
//!
//! Text is written as the inside of a JSON string with the shortest escapes: `\"`, `\\`, `\n` and the like stay,
//! `\u00e9` becomes the letter, `\/` the slash. So equal texts give equal bytes however a client escaped them, and text
//! with the usual escapes, which is nearly all of it, is passed on without a copy. Other values are written as JSON
//! without white space. Parts are separated by bytes that never occur in UTF-8, so no text can look like a mark.

use memchr::memchr_iter;
use memchr::memmem::Finder;
use xxhash_rust::xxh3::{Xxh3, xxh3_64};

use super::json::{JsonKind, RawJson, equals_word, string_end};
use crate::model::CanonicalSink;

/// Deepest nesting of values, as in serde_json and the engines.
pub(super) const MAX_DEPTH: usize = 128;

/// Depth down to which pictures are searched in a content part (a tool's result within a message needs four); below,
/// values are taken as they are. Each level scans everything below it once more, so this also bounds the time.
const MEDIA_DEPTH: usize = 8;

/// Mark before each message; its role follows.
pub(super) const MESSAGE: u8 = 0xff;
/// Mark between a role and the content.
pub(super) const CONTENT: u8 = 0xfe;
/// Mark between two parts of a content, two prompts of a list, two lists of token ids.
pub(super) const PART: u8 = 0xfd;
/// Mark before a member that is neither role nor content; its key follows.
pub(super) const MEMBER: u8 = 0xfc;
/// Mark between the key of a member and its value.
pub(super) const VALUE: u8 = 0xfb;
/// Mark before items that chat templates put into the system part: tools, documents.
pub(super) const TOOLS: u8 = 0xfa;
/// Mark before other inputs of a chat template than the messages.
pub(super) const TAIL: u8 = 0xf9;
/// Mark before a prompt without a chat template.
pub(super) const RAW: u8 = 0xc0;
/// Mark before token ids, each 4 bytes, little-endian.
pub(super) const TOKENS: u8 = 0xc1;

/// Writer of canonical bytes into a sink.
pub(super) struct CanonicalWriter<'s> {
    sink: &'s mut dyn CanonicalSink,
    odd: EscapeFinder,
    too_deep: bool,
}

impl<'s> CanonicalWriter<'s> {
    pub(super) fn new(sink: &'s mut dyn CanonicalSink) -> Self {
        Self { sink, odd: EscapeFinder::new(), too_deep: false }
    }

    /// Returns true if a value was nested deeper than [`MAX_DEPTH`]; the output is then incomplete.
    pub(super) const fn too_deep(&self) -> bool {
        self.too_deep
    }

    pub(super) fn mark(&mut self, mark: u8) {
        self.sink.bytes(&[mark]);
    }

    pub(super) fn raw(&mut self, bytes: &[u8]) {
        self.sink.bytes(bytes);
    }

    /// Writes the inside of a JSON string.
    pub(super) fn text(&mut self, inside: &[u8]) {
        if self.odd.may_occur_in(inside) {
            normalise(inside, &mut |piece| self.sink.bytes(piece));
        } else {
            self.sink.bytes(inside);
        }
    }

    /// Writes a string; nothing if the value is not a string.
    pub(super) fn string(&mut self, value: RawJson<'_>) {
        self.text(value.text().unwrap_or_default());
    }

    /// Writes a key and its value of any type.
    pub(super) fn member(&mut self, key: &[u8], value: RawJson<'_>) {
        self.mark(MEMBER);
        self.text(key);
        self.mark(VALUE);
        self.value(value);
    }

    /// Writes any value, as JSON without white space.
    pub(super) fn value(&mut self, value: RawJson<'_>) {
        let bytes = value.bytes();
        // Copies runs between white space and odd escapes, so that usual values are passed on in one piece.
        let (mut run, mut at, mut depth) = (0, 0, 0_usize);
        while let Some(byte) = bytes.get(at) {
            match byte {
                b'"' => {
                    let end = string_end(bytes, at);
                    let inside = &bytes[at + 1..end.saturating_sub(1).max(at + 1)];
                    // The quotes are part of the runs around the string; only its inside is rewritten.
                    if first_odd_escape(inside).is_some() {
                        self.sink.bytes(&bytes[run..=at]);
                        self.text(inside);
                        run = end.saturating_sub(1);
                    }
                    at = end;
                    continue;
                }
                b' ' | b'\n' | b'\r' | b'\t' => {
                    self.sink.bytes(&bytes[run..at]);
                    run = at + 1;
                }
                b'{' | b'[' => {
                    depth += 1;
                    if depth > MAX_DEPTH {
                        // Stops here: a deeper value is refused as a whole, so its rest need not be read.
                        self.too_deep = true;
                        return;
                    }
                }
                b'}' | b']' => depth = depth.saturating_sub(1),
                _ => {}
            }
            at += 1;
        }
        self.sink.bytes(&bytes[run.min(bytes.len())..]);
    }

    /// Writes a value that may contain pictures, sounds or files: those as digests, everything else as it is. `key` is
    /// the name of its member.
    pub(super) fn media(&mut self, key: &[u8], value: RawJson<'_>, depth: usize) {
        if depth > MEDIA_DEPTH {
            return self.value(value);
        }
        match value.kind() {
            JsonKind::Text => {
                let inside = value.text().unwrap_or_default();
                if holds_base64(key, inside) { self.media_digest(inside) } else { self.string(value) }
            }
            JsonKind::List => {
                for (index, element) in value.elements().enumerate() {
                    if index > 0 {
                        self.mark(PART);
                    }
                    self.media(key, element, depth + 1);
                }
            }
            JsonKind::Table => {
                for (name, member) in value.members() {
                    // Absent and null are the same to engines, and cache hints are not part of the prompt.
                    if member.kind() == JsonKind::Null || equals_word(name, "cache_control") {
                        continue;
                    }
                    self.mark(MEMBER);
                    self.text(name);
                    self.mark(VALUE);
                    self.media(name, member, depth + 1);
                }
            }
            JsonKind::Null | JsonKind::Bool | JsonKind::Number => self.value(value),
        }
    }

    /// Writes the digest of base64 data instead of its bytes.
    fn media_digest(&mut self, inside: &[u8]) {
        // Escapes are normalised here as well, so that `\/` in base64 does not make a second picture of it.
        let digest = if self.odd.may_occur_in(inside) {
            let mut hasher = Xxh3::new();
            normalise(inside, &mut |piece| hasher.update(piece));
            hasher.digest()
        } else {
            xxh3_64(inside)
        };
        self.sink.media(digest, inside.len() as u64);
    }
}

/// Keys whose strings are base64 anywhere in a content part.
const BASE64_KEYS: [&str; 8] =
    ["data", "file_data", "image_data", "audio_data", "video_data", "image_embeds", "audio_embeds", "prompt_embeds"];
/// Shortest string under one of those keys that counts as data; a shorter one is a name or an address.
const BASE64_LEAST: usize = 512;

/// Returns true if a string is data, not text: a `data:` address, or a long string under a key that only holds data.
fn holds_base64(key: &[u8], inside: &[u8]) -> bool {
    inside.get(..5).is_some_and(|head| head.eq_ignore_ascii_case(b"data:"))
        || (inside.len() >= BASE64_LEAST
            && BASE64_KEYS.iter().any(|name| equals_word(key, name))
            && !inside.starts_with(b"http:")
            && !inside.starts_with(b"https:"))
}

/// Searcher for escapes that have a shorter form; fast if there are none.
struct EscapeFinder {
    unicode: Finder<'static>,
    slash: Finder<'static>,
}

impl EscapeFinder {
    fn new() -> Self {
        Self { unicode: Finder::new(br"\u"), slash: Finder::new(br"\/") }
    }

    /// Returns true if there may be one; an escaped backslash followed by `u` looks like one.
    fn may_occur_in(&self, inside: &[u8]) -> bool {
        self.unicode.find(inside).is_some() || self.slash.find(inside).is_some()
    }
}

/// Position of the first `\u` or `\/`, the escapes that have a shorter form.
fn first_odd_escape(inside: &[u8]) -> Option<usize> {
    let mut past = 0;
    for at in memchr_iter(b'\\', inside) {
        if at < past {
            continue; // the second of two backslashes
        }
        if matches!(inside.get(at + 1), Some(b'u' | b'/')) {
            return Some(at);
        }
        past = at + 2;
    }
    None
}

/// Feeds the inside of a JSON string to `emit`, with the shortest escapes.
fn normalise(inside: &[u8], emit: &mut impl FnMut(&[u8])) {
    let mut rest = inside;
    while let Some(at) = first_odd_escape(rest) {
        if at > 0 {
            emit(&rest[..at]);
        }
        rest = &rest[at..];
        // `\/` is the only other escape with a shorter form, and is one letter long.
        if rest.get(1) == Some(&b'/') {
            emit(b"/");
            rest = &rest[2..];
        } else {
            rest = unescape_run(rest, emit);
        }
    }
    if !rest.is_empty() {
        emit(rest);
    }
}

/// Writes the `\uXXXX` escapes at the start of `rest`, in one piece if they fit. Returns the bytes after them.
fn unescape_run<'a>(mut rest: &'a [u8], emit: &mut impl FnMut(&[u8])) -> &'a [u8] {
    let mut piece = [0_u8; 240];
    let mut length = 0;
    while let Some(unit) = code_unit(rest) {
        // Characters beyond the basic plane are escaped as a surrogate pair, two units for one letter.
        let (point, used) = match (unit, code_unit(&rest[6..])) {
            (0xd800..=0xdbff, Some(low @ 0xdc00..=0xdfff)) => {
                (0x1_0000 + ((u32::from(unit) - 0xd800) << 10) + (u32::from(low) - 0xdc00), 12)
            }
            _ => (u32::from(unit), 6),
        };
        let mut room = [0_u8; 6];
        let shortest: &[u8] = match char::from_u32(point) {
            Some('"') => br#"\""#,
            Some('\\') => br"\\",
            Some('\n') => br"\n",
            Some('\r') => br"\r",
            Some('\t') => br"\t",
            Some('\u{8}') => br"\b",
            Some('\u{c}') => br"\f",
            Some(letter) if point >= 0x20 => letter.encode_utf8(&mut room).as_bytes(),
            // A control character, or half a surrogate pair: it stays an escape, in lower case.
            _ => {
                room.copy_from_slice(&rest[..6]);
                room.make_ascii_lowercase();
                &room
            }
        };
        if length + shortest.len() > piece.len() {
            emit(&piece[..length]);
            length = 0;
        }
        piece[length..length + shortest.len()].copy_from_slice(shortest);
        length += shortest.len();
        rest = &rest[used..];
    }
    if length == 0 {
        // Not valid JSON after all: pass the backslash on, so that the caller moves.
        emit(&rest[..1]);
        return &rest[1..];
    }
    emit(&piece[..length]);
    rest
}

/// UTF-16 unit of a `\uXXXX` escape at the start of `text`.
fn code_unit(text: &[u8]) -> Option<u16> {
    let digits = text.strip_prefix(br"\u")?.get(..4)?;
    digits.iter().try_fold(0_u16, |unit, &digit| {
        let value = char::from(digit).to_digit(16)?;
        Some((unit << 4) | u16::try_from(value).ok()?)
    })
}
