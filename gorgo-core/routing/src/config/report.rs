//! Findings for people and programs: `FILE:LINE: PATH: MESSAGE`; on a terminal with the line and carets below.

use std::fmt::Write as _;
use std::ops::Range;

use annotate_snippets::{AnnotationKind, Group, Level, Renderer, Snippet};

use super::origin::{ConfigOrigins, FaultLocation};
use crate::model::{ConfigFault, ConfigFaults, Severity};

/// Style of a report.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReportStyle {
    /// One line per finding.
    Plain,
    /// Plain, followed by the line of the file with carets.
    Carets,
    /// The same in colour.
    Colour,
}

/// Renders the report: first findings in the file, by line, then variables, then flags. Each finding appears once.
#[must_use]
pub fn render(faults: &ConfigFaults, origins: &ConfigOrigins, look: ReportStyle) -> String {
    let mut findings: Vec<_> = faults.list.iter().map(|fault| (order(origins.locate(fault)), fault)).collect();
    findings.sort_by(|(one, a), (other, b)| one.cmp(other).then_with(|| a.path.cmp(&b.path)));
    // Two checks may find the same fault and give different advice.
    findings.dedup_by(|(_, a), (_, b)| a.path == b.path && message_without_advice(a) == message_without_advice(b));
    findings.iter().fold(String::new(), |mut report, (_, fault)| {
        line(fault, origins, look, &mut report);
        report
    })
}

/// Number of faults and warnings: `2 faults, 1 warning`.
#[must_use]
pub fn summary(faults: &ConfigFaults) -> String {
    let count = |severity, word: &str| match faults.list.iter().filter(|fault| fault.severity == severity).count() {
        0 => None,
        1 => Some(format!("1 {word}")),
        many => Some(format!("{many} {word}s")),
    };
    let parts = [count(Severity::Fault, "fault"), count(Severity::Warning, "warning")];
    parts.into_iter().flatten().collect::<Vec<_>>().join(", ")
}

/// Message without the advice after it.
fn message_without_advice(fault: &ConfigFault) -> &str {
    fault.message.split(';').next().unwrap_or_default()
}

/// Sort key: file before variables before flags; within these, by byte and by name.
fn order(spot: FaultLocation<'_>) -> (u8, usize, &str) {
    match spot {
        FaultLocation::Whole => (0, 0, ""),
        FaultLocation::File(span, _) => (1, span.start, ""),
        FaultLocation::Named(name, _) if name.starts_with("--") => (3, 0, name),
        FaultLocation::Named(name, _) => (2, 0, name),
    }
}

fn line(fault: &ConfigFault, origins: &ConfigOrigins, look: ReportStyle, report: &mut String) {
    let source = origins.source();
    let (place, span) = match origins.locate(fault) {
        FaultLocation::Whole => (source.name().to_owned(), None),
        FaultLocation::File(span, "") => {
            let column = source.column(span.start);
            (format!("{}:{}: column {column}", source.name(), source.line(span.start)), Some(span))
        }
        FaultLocation::File(span, path) => {
            (format!("{}:{}: {path}", source.name(), source.line(span.start)), Some(span))
        }
        FaultLocation::Named(name, "") => (name.to_owned(), None),
        FaultLocation::Named(name, within) => (format!("{name}: {within}"), None),
    };
    let warning = if fault.severity == Severity::Warning { "warning: " } else { "" };
    // Writing to a String cannot fail.
    let _ = writeln!(report, "{}: {warning}{}", printable(&place), printable(&fault.message));
    if let (Some(span), ReportStyle::Carets | ReportStyle::Colour) = (span, look) {
        // The text with secrets masked has the same length, so spans fit.
        let text = source.text_without_secrets();
        let renderer = if look == ReportStyle::Colour { Renderer::styled() } else { Renderer::plain() };
        let level = if fault.severity == Severity::Warning { Level::WARNING } else { Level::ERROR };
        let span = quoted_span(text, span.clone(), &fault.message).unwrap_or(span);
        let snippet = Snippet::source(text).annotation(AnnotationKind::Primary.span(on_one_line(text, span)));
        let _ = writeln!(report, "{}", renderer.render(&[Group::with_level(level).element(snippet)]));
    }
}

/// Position in a string to which a message refers that begins `column 12: `, to the end of the word there. `None` if
/// the message has no such beginning, or if the string is written with escapes or over several lines, so that its
/// columns are not those of the file.
fn quoted_span(text: &str, span: Range<usize>, message: &str) -> Option<Range<usize>> {
    let column: usize = message.strip_prefix("column ")?.split_once(':')?.0.parse().ok()?;
    let written = text.get(span.clone())?;
    let quote = written.chars().next().filter(|char| matches!(char, '"' | '\''))?;
    let inner = written.strip_prefix(quote)?.strip_suffix(quote)?;
    if inner.contains([quote, '\\', '\n']) {
        return None;
    }
    let at = inner.char_indices().map(|(at, _)| at).nth(column.checked_sub(1)?).unwrap_or(inner.len());
    let start = span.start + quote.len_utf8() + at;
    let rest = text.get(start..span.end)?;
    let length = rest.find(|char: char| !char.is_alphanumeric() && char != '_').unwrap_or(rest.len());
    Some(start..start + length.max(rest.chars().next().map_or(0, char::len_utf8)))
}

/// Part of a span on its first line, on whole characters.
fn on_one_line(text: &str, span: Range<usize>) -> Range<usize> {
    let start = (0..=span.start.min(text.len())).rev().find(|at| text.is_char_boundary(*at)).unwrap_or(0);
    let end = (start..=span.end.clamp(start, text.len())).rev().find(|at| text.is_char_boundary(*at)).unwrap_or(start);
    let first = text[start..end].find(['\n', '\r']).map_or(end, |length| start + length);
    start..first
}

/// Replaces control characters, with which a name in the file could break the line or control the terminal.
fn printable(text: &str) -> String {
    text.chars().map(|char| if char.is_control() { '\u{fffd}' } else { char }).collect()
}
