//! CSV in the format of Azure's LLM inference traces of 2023: `TIMESTAMP,ContextTokens,GeneratedTokens`, times naive
//! or with a UTC offset. There is no prefix data: every row gets fresh blocks.

use csv::StringRecord;
use jiff::civil::DateTime;

use super::mooncake::tokens;
use super::read::{FaultList, NumberedRow};
use super::{TraceError, TraceRow};
use crate::records::records;

/// Header line; case is ignored.
const HEADER: &str = "TIMESTAMP,ContextTokens,GeneratedTokens";

/// Reports whether this first line is the header of an Azure trace.
pub(super) fn is_header(line: &[u8]) -> bool {
    line.eq_ignore_ascii_case(HEADER.as_bytes())
}

/// Returns all rows in the order of the file, with times in ms after the earliest one, or the faults of the file.
pub(super) fn rows(bytes: &[u8]) -> Result<Vec<NumberedRow>, TraceError> {
    let mut faults = FaultList::default();
    let mut parsed: Vec<(usize, DateTime, u32, u32)> = Vec::new();
    for (line, record) in records(bytes).skip(1) {
        match record.and_then(|record| row(&record)) {
            Ok((at, input, output)) => parsed.push((line, at, input, output)),
            Err(message) => faults.push(line, message),
        }
    }
    faults.check()?;
    // The earliest row need not be the first one, and no time may come out negative.
    let Some(start) = parsed.iter().map(|(_, at, ..)| *at).min() else { return Ok(Vec::new()) };
    let numbered = parsed.into_iter().enumerate().map(|(index, (line, at, input_tokens, output_tokens))| {
        let at_ms = at.duration_since(start).as_secs_f64() * 1e3;
        let row = TraceRow { index, at_ms, input_tokens, output_tokens, ..TraceRow::default() };
        NumberedRow { line, row, has_blocks: false }
    });
    Ok(numbered.collect())
}

fn row(record: &StringRecord) -> Result<(DateTime, u32, u32), String> {
    let fields: Vec<&str> = record.iter().collect();
    let &[at, input, output] = fields.as_slice() else {
        return Err(format!("{} fields instead of 3: {HEADER}", fields.len()));
    };
    // Only differences between times are used, and all rows are taken to have one offset, so it can be dropped.
    let naive = at.split_once('+').map_or(at, |(naive, _)| naive);
    let at: DateTime = naive.parse().map_err(|_| format!("TIMESTAMP is {at:?}; must be a date and time"))?;
    let count = |name: &str, text: &str, least: u32| {
        let number = text.parse::<f64>().map_err(|_| format!("{name} is {text:?}; must be a number"))?;
        tokens(name, Some(number), least)
    };
    Ok((at, count("ContextTokens", input, 1)?, count("GeneratedTokens", output, 0)?))
}
