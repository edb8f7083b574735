//! Measured tables → [`Measurements`]: CSV with a header, gzip or plain; columns are found by name.

use std::collections::HashMap;
use std::io::Read;

use csv::StringRecord;
use flate2::read::MultiGzDecoder;

use super::{MeasuredRequest, Measurements};
use crate::records::records;

/// First bytes of a gzip member (RFC 1952).
const GZIP_MAGIC: [u8; 2] = [0x1f, 0x8b];

/// Reason why a table could not be read.
#[derive(Debug, thiserror::Error)]
pub enum TableError {
    /// The gzip data is damaged, or the file is not text.
    #[error("damaged data: {0}")]
    Data(#[source] std::io::Error),
    /// A column is missing from the header.
    #[error("line 1: the header has no column {0:?}")]
    Column(String),
    /// A line has the wrong format.
    #[error("line {line}: {message}")]
    Line {
        /// Line in the (decompressed) file, from 1.
        line: usize,
        /// Description of the fault.
        message: String,
    },
}

/// Reads routing decisions with what the proxy knew of each replica: `policy`, `decision_s`, `target`,
/// `request_tokens`, `status`, `ttft_ms`, `total_ms`, `prompt_tokens`, `completion_tokens`, and per replica
/// `XXX_cached_tokens`, where `XXX` are the first three letters of the last part of the replica's name (`us-ashburn`:
/// `ash`). Each policy is a run.
///
/// Cached tokens are counted by the proxy, but prompts by the engine, which adds template and tools. The cached share
/// is assumed to be the same for both.
///
/// # Errors
/// The data is damaged, a column is missing, or a line is bad.
pub fn decisions(bytes: &[u8]) -> Result<Measurements, TableError> {
    let text = text(bytes)?;
    let table = MeasuredTable::new(&text)?;
    let columns = ["policy", "decision_s", "target", "request_tokens", "status"].map(|name| table.column(name));
    let [policy, decision_s, target, request_tokens, status] = columns.map(TableColumn::checked);
    let (policy, decision_s, target) = (policy?, decision_s?, target?);
    let (request_tokens, status) = (request_tokens?, status?);
    let times = TimeColumns::of(&table, "prompt_tokens", "completion_tokens")?;
    let mut found = Measurements { shared_by: 1.0, ..Measurements::default() };
    for line in &table.lines {
        let name = line.text(target)?;
        let city: String = name.rsplit('-').next().unwrap_or(name).chars().take(3).collect();
        // Only the column of the chosen replica matters: the others did not serve the request.
        let cached = table.column(&format!("{city}_cached_tokens")).checked()?;
        let Some(times) = times.read(line, status)? else {
            found.left_out += 1;
            continue;
        };
        let (cached, request) = (line.number(cached)?, line.number(request_tokens)?);
        // Two separate columns of the file: more cached tokens than request tokens must not make the share negative.
        let uncached_share = if request > 0.0 { (1.0 - cached / request).clamp(0.0, 1.0) } else { 1.0 };
        let run = index_of_name(&mut found.runs, line.text(policy)?);
        let replica = Some(index_of_name(&mut found.replicas, name));
        let sent_ms = line.number(decision_s)? * 1e3;
        let uncached_tokens = Some(times.prompt_tokens * uncached_share);
        found.observations.push(MeasuredRequest { run, replica, sent_ms, uncached_tokens, ..times });
    }
    found.sort();
    Ok(found)
}

/// Reads a client's measurements: `run`, `policy`, `sent_ms`, `ttft_ms`, `total_ms`, `input_tokens`, `output_tokens`,
/// `status`. Neither the replica nor the cache is known, so the load is divided among `replicas`. Each combination of
/// run and policy is a run.
///
/// # Errors
/// The data is damaged, a column is missing, or a line is bad.
pub fn measured(bytes: &[u8], replicas: u32) -> Result<Measurements, TableError> {
    let text = text(bytes)?;
    let table = MeasuredTable::new(&text)?;
    let (run, policy) = (table.column("run").checked()?, table.column("policy").checked()?);
    let (sent_ms, status) = (table.column("sent_ms").checked()?, table.column("status").checked()?);
    let times = TimeColumns::of(&table, "input_tokens", "output_tokens")?;
    let mut found = Measurements { shared_by: f64::from(replicas.max(1)), ..Measurements::default() };
    for line in &table.lines {
        let Some(times) = times.read(line, status)? else {
            found.left_out += 1;
            continue;
        };
        let run = index_of_name(&mut found.runs, &format!("{}/{}", line.text(run)?, line.text(policy)?));
        found.observations.push(MeasuredRequest { run, sent_ms: line.number(sent_ms)?, ..times });
    }
    found.sort();
    Ok(found)
}

/// Columns that all tables have, under different names.
struct TimeColumns {
    ttft_ms: usize,
    total_ms: usize,
    prompt_tokens: usize,
    output_tokens: usize,
}

impl TimeColumns {
    fn of(table: &MeasuredTable, prompt_tokens: &str, output_tokens: &str) -> Result<Self, TableError> {
        Ok(Self {
            ttft_ms: table.column("ttft_ms").checked()?,
            total_ms: table.column("total_ms").checked()?,
            prompt_tokens: table.column(prompt_tokens).checked()?,
            output_tokens: table.column(output_tokens).checked()?,
        })
    }

    /// Reads a row; `None` if the request failed. Fields that these columns do not contain are left empty.
    fn read(&self, line: &TableLine, status: usize) -> Result<Option<MeasuredRequest>, TableError> {
        // A failed request has no meaningful times; it is counted as left out.
        if line.text(status)? != "200" || line.text(self.ttft_ms)?.is_empty() {
            return Ok(None);
        }
        Ok(Some(MeasuredRequest {
            run: 0,
            replica: None,
            sent_ms: 0.0,
            ttft_ms: line.number(self.ttft_ms)?,
            e2e_ms: line.number(self.total_ms)?,
            prompt_tokens: line.number(self.prompt_tokens)?,
            uncached_tokens: None,
            output_tokens: line.number(self.output_tokens)?,
            rtt_ms: None,
        }))
    }
}

/// Returns the index of a name, which is added if it is new.
fn index_of_name(names: &mut Vec<String>, name: &str) -> usize {
    names.iter().position(|known| known == name).unwrap_or_else(|| {
        names.push(name.to_owned());
        names.len() - 1
    })
}

fn text(bytes: &[u8]) -> Result<String, TableError> {
    let mut text = String::new();
    let mut plain = bytes;
    let read = if bytes.starts_with(&GZIP_MAGIC) {
        MultiGzDecoder::new(bytes).read_to_string(&mut text)
    } else {
        plain.read_to_string(&mut text)
    };
    read.map_err(TableError::Data)?;
    Ok(text)
}

/// Records of a table and its columns by name.
struct MeasuredTable {
    columns: HashMap<String, usize>,
    lines: Vec<TableLine>,
}

/// A column that may be missing.
struct TableColumn<'a> {
    name: &'a str,
    place: Option<usize>,
}

impl TableColumn<'_> {
    fn checked(self) -> Result<usize, TableError> {
        self.place.ok_or_else(|| TableError::Column(self.name.to_owned()))
    }
}

impl MeasuredTable {
    fn new(text: &str) -> Result<Self, TableError> {
        let mut all = records(text.as_bytes());
        let head = all.next().and_then(|(_, head)| head.ok()).unwrap_or_default();
        let columns = head.iter().enumerate().map(|(place, name)| (name.to_owned(), place)).collect();
        let lines = all.map(|(number, record)| match record {
            Ok(fields) => Ok(TableLine { number, fields }),
            Err(message) => Err(TableError::Line { line: number, message }),
        });
        Ok(Self { columns, lines: lines.collect::<Result<_, _>>()? })
    }

    fn column<'n>(&self, name: &'n str) -> TableColumn<'n> {
        TableColumn { name, place: self.columns.get(name).copied() }
    }
}

/// A record and the line that it begins on.
struct TableLine {
    number: usize,
    fields: StringRecord,
}

impl TableLine {
    fn text(&self, column: usize) -> Result<&str, TableError> {
        let missing = || TableError::Line { line: self.number, message: format!("only {} fields", self.fields.len()) };
        self.fields.get(column).ok_or_else(missing)
    }

    fn number(&self, column: usize) -> Result<f64, TableError> {
        let text = self.text(column)?;
        let bad = || TableError::Line {
            line: self.number,
            message: format!("field {} is {text:?}; must be a number, 0 or more", column + 1),
        };
        // `parse` accepts "NaN" and "inf", which would spread through the whole fit.
        text.parse().ok().filter(|number: &f64| number.is_finite() && *number >= 0.0).ok_or_else(bad)
    }
}
