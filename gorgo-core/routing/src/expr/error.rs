//! Mistakes in an expression, with their location.

use std::fmt;

/// Why a text is not an expression. Shown as `column 12: unknown name …`; in a text of several lines as `line 2, column
/// 3: …`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ExprError {
    /// The line within the text, from 1.
    pub line: usize,
    /// The column within that line, from 1, in characters.
    pub column: usize,
    /// The mistake and what was expected; lower case, no full stop.
    pub message: String,
    several_lines: bool,
}

impl ExprError {
    /// An error at a byte of `text`.
    pub(super) fn at(text: &str, byte: usize, message: impl Into<String>) -> Self {
        // A byte inside a character must not panic while an error is being reported.
        let before = text.get(..byte.min(text.len())).unwrap_or(text);
        let line_start = before.rfind('\n').map_or(0, |at| at + 1);
        Self {
            line: before.matches('\n').count() + 1,
            column: before[line_start..].chars().count() + 1,
            message: message.into(),
            several_lines: text.contains('\n'),
        }
    }
}

impl fmt::Display for ExprError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.several_lines {
            write!(f, "line {}, ", self.line)?;
        }
        write!(f, "column {}: {}", self.column, self.message)
    }
}

impl std::error::Error for ExprError {}

/// The advice after an unknown name: the nearest known one, else all known names.
pub(super) fn suggestion(name: &str, known: &[&str]) -> String {
    // The number of letters is bounded, because the time for a distance grows with it.
    let folded: Vec<char> = name.to_ascii_lowercase().chars().take(64).collect();
    // A quarter of the letters may differ: short names need a close match, long ones may have several slips.
    let reach = 2.max(folded.len() / 4);
    // The name may be an abbreviation: its end was left out.
    let begun: String = folded.iter().collect();
    if let Some(whole) = known.iter().find(|other| begun.len() > 2 && other.starts_with(&begun)) {
        return format!("did you mean `{whole}`?");
    }
    let nearest = known.iter().map(|other| (distance(&folded, other), *other)).min_by_key(|(distance, _)| *distance);
    match nearest {
        Some((distance, other)) if distance <= reach => format!("did you mean `{other}`?"),
        _ => format!("known: {}", known.join(", ")),
    }
}

/// Number of letters to insert, delete, replace or swap with their neighbour (each pair once).
fn distance(name: &[char], other: &str) -> usize {
    let other: Vec<char> = other.chars().collect();
    let mut before: Vec<usize> = Vec::new();
    let mut above: Vec<usize> = (0..=other.len()).collect();
    for (i, letter) in name.iter().enumerate() {
        let mut row = vec![i + 1];
        for (j, with) in other.iter().enumerate() {
            let mut least = (above[j] + usize::from(letter != with)).min(above[j + 1] + 1).min(row[j] + 1);
            if i > 0 && j > 0 && *letter == other[j - 1] && name[i - 1] == *with {
                least = least.min(before[j - 1] + 1);
            }
            row.push(least);
        }
        before = std::mem::replace(&mut above, row);
    }
    above[other.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn distances_are_those_of_typing_slips() {
        let of = |a: &str, b| distance(&a.chars().collect::<Vec<_>>(), b);
        assert_eq!(of("rtt_ms", "rtt_ms"), 0);
        assert_eq!(of("rtt_m", "rtt_ms"), 1);
        assert_eq!(of("rrtt_ms", "rtt_ms"), 1);
        assert_eq!(of("rtt_sm", "rtt_ms"), 1, "a swap is one slip");
        assert_eq!(of("", "abc"), 3);
        assert_eq!(of("abc", ""), 3);
        assert_eq!(of("kitten", "sitting"), 3);
    }

    #[test]
    fn a_near_name_is_suggested_and_a_far_one_gets_the_list() {
        assert_eq!(suggestion("RTT_MS", &["rtt_ms", "inflight"]), "did you mean `rtt_ms`?");
        assert_eq!(suggestion("infl", &["rtt_ms", "inflight"]), "did you mean `inflight`?");
        assert_eq!(suggestion("temperature", &["rtt_ms", "inflight"]), "known: rtt_ms, inflight");
    }

    #[test]
    fn places_are_counted_in_characters() {
        assert_eq!(ExprError::at("é + x", 5, "no").to_string(), "column 5: no");
        assert_eq!(ExprError::at("1 +\n é x", 8, "no").to_string(), "line 2, column 4: no");
        assert_eq!(ExprError::at("", 9, "no").to_string(), "column 1: no");
    }
}
