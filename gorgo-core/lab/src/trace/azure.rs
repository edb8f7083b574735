//! CSV in the form of Azure's LLM inference traces of 2023: `TIMESTAMP,ContextTokens,GeneratedTokens`, times naive
//! or with a UTC offset. No prefix data: every row gets fresh blocks.

use csv::StringRecord;
use jiff::civil::DateTime;

use super::mooncake::tokens;
use super::read::{FaultList, Numbered};
use super::{TraceError, TraceRow};
use crate::records::records;

/// The header, compared without case.
const HEADER: &str = "TIMESTAMP,ContextTokens,GeneratedTokens";

/// Whether this first line makes the file one of these.
pub(super) fn is_header(line: &[u8]) -> bool {
    line.eq_ignore_ascii_case(HEADER.as_bytes())
}

/// All rows of the file in file order, their times in ms after the earliest, or its faults.
pub(super) fn rows(bytes: &[u8]) -> Result<Vec<Numbered>, TraceError> {
    let mut faults = FaultList::default();
    let mut parsed: Vec<(usize, DateTime, u32, u32)> = Vec::new();
    for (line, record) in records(bytes).skip(1) {
        match record.and_then(|record| row(&record)) {
            Ok((at, input, output)) => parsed.push((line, at, input, output)),
            Err(message) => faults.push(line, message),
        }
    }
    faults.check()?;
    let Some(start) = parsed.iter().map(|(_, at, ..)| *at).min() else { return Ok(Vec::new()) };
    let numbered = parsed.into_iter().enumerate().map(|(index, (line, at, input_tokens, output_tokens))| {
        let at_ms = at.duration_since(start).as_secs_f64() * 1e3;
        let row = TraceRow { index, at_ms, input_tokens, output_tokens, ..TraceRow::default() };
        Numbered { line, row, has_blocks: false }
    });
    Ok(numbered.collect())
}

fn row(record: &StringRecord) -> Result<(DateTime, u32, u32), String> {
    let fields: Vec<&str> = record.iter().collect();
    let &[at, input, output] = fields.as_slice() else {
        return Err(format!("{} fields in place of the three of {HEADER}", fields.len()));
    };
    let naive = at.split_once('+').map_or(at, |(naive, _)| naive);
    let at: DateTime = naive.parse().map_err(|_| format!("TIMESTAMP {at:?} is not a date and time"))?;
    let count = |name: &str, text: &str, least: u32| {
        let number = text.parse::<f64>().map_err(|_| format!("{name} {text:?} is not a number"))?;
        tokens(name, Some(number), least)
    };
    Ok((at, count("ContextTokens", input, 1)?, count("GeneratedTokens", output, 0)?))
}
