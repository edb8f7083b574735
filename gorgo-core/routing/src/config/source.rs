//! One TOML text, parsed once: its values in the order of the file, and the bytes of every key path.

use std::collections::HashMap;
use std::fmt::Write as _;
use std::ops::Range;

use sha2::{Digest, Sha256};
use toml::de::{DeTable, DeValue};

use super::{path, secrets};
use crate::model::{ConfigFaults, ConfigValue};

/// Position of a key, in bytes of the text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct KeySpan {
    /// Range of the key; for an element of an array, of the element.
    pub(super) key: Range<usize>,
    /// Range of its value; for a table with a header, of the header.
    pub(super) value: Range<usize>,
}

/// Configuration file that was read.
#[derive(Debug, Clone, PartialEq)]
pub struct ConfigSource {
    name: String,
    text: String,
    sha256: String,
    /// Positions by plain path.
    key_spans: HashMap<String, KeySpan>,
    /// Byte at which each line begins.
    lines: Vec<usize>,
}

impl ConfigSource {
    /// Parses a text. `name` is used in reports. The faults are those of the syntax: if there are any except for
    /// duplicate keys, the values are unusable.
    pub(super) fn parse(name: &str, text: &str) -> ParsedSource {
        // Of the text as read, not of the masked one: it identifies the file.
        let sha256 = Sha256::digest(text.as_bytes()).iter().fold(String::with_capacity(64), |mut hex, byte| {
            // Writing to a String cannot fail.
            let _ = write!(hex, "{byte:02x}");
            hex
        });
        let lines = std::iter::once(0).chain(memchr::memchr_iter(b'\n', text.as_bytes()).map(|at| at + 1)).collect();
        let mut source =
            Self { name: name.to_owned(), text: secrets::masked(text), sha256, key_spans: HashMap::new(), lines };
        let (root, errors) = DeTable::parse_recoverable(text);
        let mut faults = ConfigFaults::default();
        let root = source.table(root.into_inner(), "", &mut faults);
        let mut readable = true;
        let mut misplaced = None;
        for error in errors {
            let span = error.span().unwrap_or(0..0);
            // Consequences of a header that the parser ignored are no faults of their own.
            if misplaced.as_ref().is_some_and(|table: &Range<usize>| table.contains(&span.start)) {
                continue;
            }
            if error.message().starts_with("duplicate key") {
                if let Some((path, message)) = source.duplicate_header(text, &span) {
                    // The parser continues as if the header were not there: its keys end up in the table above.
                    misplaced = Some(span.start..next_header(text, span.end));
                    readable = false;
                    faults.push_fault(span_path(&span, &path), message);
                    continue;
                }
                let (path, message) = source.duplicate(&span);
                faults.push_fault(span_path(&span, &path), message);
            } else {
                if readable {
                    // Values read from a broken text are guesswork, and so are faults in them.
                    faults.list.clear();
                }
                readable = false;
                // This is how a TOML parser reports `listen = 127.0.0.1:8080`.
                let bare = error.message().starts_with("invalid") && error.message().ends_with("expected nothing");
                let hint = if bare { "; text needs quotes, as in listen = \"127.0.0.1:8080\"" } else { "" };
                faults.push_fault(span_path(&span, ""), format!("{}{hint}", error.message()));
            }
        }
        ParsedSource { source, root, faults, has_values: readable }
    }

    fn table(&mut self, table: DeTable<'_>, parent: &str, faults: &mut ConfigFaults) -> ConfigValue {
        let mut members: Vec<_> = table.into_iter().collect();
        // The parser sorts keys by name; positions restore the order of the file.
        members.sort_by_key(|(key, _)| key.span().start);
        let members = members.into_iter().map(|(key, value)| {
            let path = path::child(parent, key.get_ref());
            self.key_spans.insert(path::plain(&path), KeySpan { key: key.span(), value: value.span() });
            let value = self.value(value.into_inner(), &path, faults);
            (key.into_inner().into_owned(), value)
        });
        ConfigValue::Table(members.collect())
    }

    fn value(&mut self, value: DeValue<'_>, path: &str, faults: &mut ConfigFaults) -> ConfigValue {
        match value {
            DeValue::String(text) => ConfigValue::Text(text.into_owned()),
            DeValue::Boolean(truth) => ConfigValue::Bool(truth),
            DeValue::Integer(digits) => i64::from_str_radix(digits.as_str(), digits.radix()).map_or_else(
                |_| {
                    faults.push_fault(path, format!("{digits} does not fit in 64 bits"));
                    ConfigValue::Integer(0)
                },
                ConfigValue::Integer,
            ),
            // A float that is too large reads as infinite; range checks reject it.
            DeValue::Float(digits) => ConfigValue::Float(digits.as_str().parse().unwrap_or(f64::NAN)),
            DeValue::Datetime(date) => {
                faults.push_fault(path, "no key takes a date; write a string");
                ConfigValue::Text(date.to_string())
            }
            DeValue::Array(list) => {
                let list = list.into_iter().enumerate().map(|(index, item)| {
                    let path = path::element(path, index);
                    self.key_spans.insert(path::plain(&path), KeySpan { key: item.span(), value: item.span() });
                    self.value(item.into_inner(), &path, faults)
                });
                ConfigValue::List(list.collect())
            }
            DeValue::Table(table) => self.table(table, path, faults),
        }
    }

    /// Path and message of a duplicate key. The parser reports the position of the second one, not its table; that is
    /// the table of the nearest preceding key of the same name.
    fn duplicate(&self, span: &Range<usize>) -> (String, String) {
        let key = path::plain(self.text.get(span.clone()).unwrap_or_default());
        let first = self
            .key_spans
            .iter()
            .filter(|(path, place)| {
                let last = path.strip_suffix(key.as_str());
                place.key.start < span.start && last.is_some_and(|rest| rest.is_empty() || rest.ends_with('.'))
            })
            .max_by_key(|(_, place)| place.key.start);
        match first {
            Some((path, place)) => {
                (path.clone(), format!("is defined twice; first on line {}", self.line(place.key.start)))
            }
            None => (key, "is defined twice".to_owned()),
        }
    }

    /// Path and message of a duplicate table header, if the key at `span` belongs to one.
    fn duplicate_header(&self, text: &str, span: &Range<usize>) -> Option<(String, String)> {
        let path = header(text, line_start(text, span.start))?;
        let mut at = 0;
        while at < line_start(text, span.start) {
            if header(text, at).as_ref() == Some(&path) {
                return Some((
                    path,
                    format!("is defined twice; first on line {}; merge the two tables", self.line(at)),
                ));
            }
            at = next_line(text, at);
        }
        Some((path, "is defined twice; write a table under one header or as a value, not both".to_owned()))
    }

    /// Name of the file in reports.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Text with secrets masked: the form that the database may store.
    #[must_use]
    pub fn text_without_secrets(&self) -> &str {
        &self.text
    }

    /// SHA-256 of the text as it was read, in hexadecimal.
    #[must_use]
    pub fn sha256(&self) -> &str {
        &self.sha256
    }

    /// Position of the key at a plain path.
    pub(super) fn span_of_key(&self, plain: &str) -> Option<&KeySpan> {
        self.key_spans.get(plain)
    }

    /// Line of a byte, from 1.
    pub(super) fn line(&self, byte: usize) -> usize {
        self.lines.partition_point(|start| *start <= byte).max(1)
    }

    /// Column of a byte, from 1 and in characters.
    pub(super) fn column(&self, byte: usize) -> usize {
        let start = self.lines.get(self.line(byte) - 1).copied().unwrap_or(0);
        self.text.get(start..byte).map_or(1, |before| before.chars().count() + 1)
    }

    /// Number of lines; a final line break does not begin another, but every text has at least one.
    #[cfg(test)]
    pub(super) fn line_count(&self) -> usize {
        self.lines.len()
    }
}

/// Path of the header `[…]` on the line that begins at `start`, if it is one; not for `[[…]]`.
fn header(text: &str, start: usize) -> Option<String> {
    let line = text.get(start..next_line(text, start))?.trim();
    if !line.starts_with('[') || line.starts_with("[[") {
        return None;
    }
    let mut table = DeTable::parse(line).ok()?.into_inner();
    let mut path = String::new();
    while let Some((key, value)) = table.into_iter().next() {
        path = path::child(&path, key.get_ref());
        let DeValue::Table(below) = value.into_inner() else { return None };
        table = below;
    }
    Some(path)
}

/// Start of the next header, including `[[…]]`; the end of the text if there is none.
fn next_header(text: &str, from: usize) -> usize {
    let mut at = next_line(text, from);
    while at < text.len() && !text.get(at..).is_some_and(|rest| rest.trim_start_matches([' ', '\t']).starts_with('[')) {
        at = next_line(text, at);
    }
    at
}

fn line_start(text: &str, at: usize) -> usize {
    text.get(..at).and_then(|before| before.rfind('\n')).map_or(0, |end| end + 1)
}

fn next_line(text: &str, at: usize) -> usize {
    text.get(at..).and_then(|rest| rest.find('\n')).map_or(text.len(), |end| at + end + 1)
}

/// Parses the TOML text of one value, as given by environment variables and flags.
pub(super) fn parse_value(text: &str) -> Result<ConfigValue, String> {
    let value = DeValue::parse(text).map_err(|error| error.message().to_owned())?;
    let mut faults = ConfigFaults::default();
    let value = ConfigSource::parse("", "").source.value(value.into_inner(), "", &mut faults);
    faults.list.into_iter().next().map_or(Ok(value), |fault| Err(fault.message))
}

/// Parses a complete TOML text that is not the user's file, such as that of a preset.
///
/// # Errors
/// The first fault of its syntax, with its line.
pub fn parse_toml(text: &str) -> Result<ConfigValue, String> {
    let parsed = ConfigSource::parse("", text);
    match parsed.faults.list.first() {
        None => Ok(parsed.root),
        Some(fault) => {
            let line = parse_span_path(&fault.path).map_or(1, |(span, _)| parsed.source.line(span.start));
            Err(format!("line {line}: {}", fault.message))
        }
    }
}

/// Text with its parsed contents.
#[derive(Debug)]
pub(super) struct ParsedSource {
    /// Positions and lines.
    pub(super) source: ConfigSource,
    /// Values of the text.
    pub(super) root: ConfigValue,
    /// Faults of syntax.
    pub(super) faults: ConfigFaults,
    /// True if the values can be used.
    pub(super) has_values: bool,
}

/// Path of a fault at bytes of the file instead of a key: `@start..end` and, after a blank, the path as far as it is
/// known. [`unmark`] takes it apart.
fn span_path(span: &Range<usize>, path: &str) -> String {
    format!("@{}..{} {path}", span.start, span.end)
}

/// Bytes, and the rest of a path that `mark` made.
pub(super) fn parse_span_path(path: &str) -> Option<(Range<usize>, &str)> {
    let (span, rest) = path.strip_prefix('@')?.split_once(' ')?;
    let (start, end) = span.split_once("..")?;
    Some((start.parse().ok()?..end.parse().ok()?, rest))
}
