//! ServeGen: the traffic of a cloud's clients, each with its own rate, burstiness and lengths over the day. Tables as
//! alibaba/ServeGen's data (arXiv 2505.09999), one file of arrivals and one of lengths per model.
//!
//! Arrivals: `client,t_s,rate_rps,cv,pattern,arg1,arg2`, one line per client and 10 minutes with traffic; the gaps'
//! pattern is Gamma or Weibull, `arg1` its shape. Lengths: JSON lines `{"client", "t_s", "input_tokens": 101 quantiles,
//! "output_tokens": 101 quantiles}` per client and 6 hours of one day. No prefix data: all blocks are fresh.

use std::collections::BTreeMap;
use std::io::Read;
use std::sync::Arc;

use csv::StringRecord;
use flate2::read::MultiGzDecoder;
use serde::Deserialize;
use statrs::function::gamma::gamma;

use super::blocks::BlockIds;
use super::draw::{Draw, micros, millis, whole};
use super::trace;
use crate::records::records;
use crate::trace::{Trace, TraceRow};

/// How long a line of the arrivals holds, s.
const WINDOW_SECS: f64 = 600.0;
/// A day, s: lengths are known of one day and repeat.
const DAY_SECS: f64 = 86_400.0;
/// How long before the window clients run, s, so that long gaps are under way at its start.
const LEAD_SECS: f64 = 3600.0;
/// Tokens per block id.
const BLOCK_TOKENS: u32 = 256;
/// First bytes of a gzip member (RFC 1952).
const GZIP_MAGIC: [u8; 2] = [0x1f, 0x8b];

/// Why the tables could not be read.
#[derive(Debug, thiserror::Error)]
pub enum ServeGenError {
    /// Damaged gzip, or not text.
    #[error("damaged data: {0}")]
    Data(#[source] std::io::Error),
    /// A line that is not as it should be.
    #[error("{table}, line {line}: {message}")]
    Line {
        /// Which table.
        table: &'static str,
        /// Line in the (unpacked) file, from 1.
        line: usize,
        /// What is wrong.
        message: String,
    },
    /// No client has arrivals, or none has lengths.
    #[error("no clients with arrivals and lengths in it")]
    Empty,
}

/// How the gaps of a client vary; its shape.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Gaps {
    Gamma(f64),
    Weibull(f64),
}

/// Quantiles of a client's lengths in 6 hours, tokens.
#[derive(Debug, Clone, PartialEq)]
struct Lengths {
    t_s: f64,
    input: Vec<f64>,
    output: Vec<f64>,
}

/// A client's traffic in 10 minutes.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Window {
    /// Requests per second.
    pub rate: f64,
    gaps: Gaps,
}

/// One client.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Client {
    /// Its traffic by number of the 10 minutes since the start.
    pub windows: BTreeMap<u64, Window>,
    lengths: Arc<Vec<Lengths>>,
}

/// A model's clients.
#[derive(Debug, Clone, PartialEq)]
pub struct ServeGen {
    /// By number.
    pub clients: BTreeMap<u32, Client>,
    /// Clients whose lengths the tables lack; they use those of the next client that has some.
    pub without_lengths: usize,
}

impl ServeGen {
    /// Reads both tables, gzip or plain.
    ///
    /// # Errors
    /// Damaged gzip, a bad line, or nothing in them.
    pub fn read(arrivals: &[u8], lengths: &[u8]) -> Result<Self, ServeGenError> {
        let mut clients = read_arrivals(&text(arrivals)?)?;
        let mut known: BTreeMap<u32, Arc<Vec<Lengths>>> =
            read_lengths(&text(lengths)?)?.into_iter().map(|(client, lengths)| (client, Arc::new(lengths))).collect();
        let mut without_lengths = 0;
        let first = known.values().next().cloned().ok_or(ServeGenError::Empty)?;
        if clients.is_empty() {
            return Err(ServeGenError::Empty);
        }
        for (number, client) in &mut clients {
            client.lengths = known.remove(number).unwrap_or_else(|| {
                without_lengths += 1;
                known.range(number..).next().map_or(&first, |(_, lengths)| lengths).clone()
            });
        }
        Ok(Self { clients, without_lengths })
    }

    /// Requests per second of all clients together, on average from `from_secs` on for `minutes`.
    #[must_use]
    pub fn rate(&self, from_secs: f64, minutes: f64) -> f64 {
        let (first, last) = (window_at(from_secs), window_at(from_secs + minutes * 60.0 - 1e-3));
        let windows = self.clients.values().flat_map(|client| client.windows.range(first..=last));
        let sum: f64 = windows.map(|(_, window)| window.rate).sum();
        let count = u32::try_from(last.saturating_sub(first) + 1).map_or(f64::INFINITY, f64::from);
        sum / count
    }

    /// Generates `minutes` from `from_secs` on, all rates times `rate_factor`. Times count from `from_secs`. Gaps are
    /// those of the fitted pattern, with the mean that the measured rate gives.
    #[must_use]
    pub fn generate(&self, seed: u64, from_secs: f64, minutes: f64, rate_factor: f64) -> Trace {
        let mut draw = Draw::new(seed);
        let end = from_secs + minutes * 60.0;
        let mut arrivals = Vec::new();
        for (number, client) in &self.clients {
            client.arrivals((from_secs, end), rate_factor, &mut draw, |at, draw| {
                let (input, output) = client.length(at, draw);
                arrivals.push((micros(at - from_secs), *number, input, output));
            });
        }
        arrivals.sort_by_key(|(at_us, client, ..)| (*at_us, *client));
        let mut ids = BlockIds::new(BLOCK_TOKENS);
        let rows =
            arrivals.into_iter().enumerate().map(|(row, (at_us, client, input_tokens, output_tokens))| TraceRow {
                at_ms: millis(at_us),
                input_tokens,
                output_tokens,
                blocks: ids.of(input_tokens, row, input_tokens, row),
                user: Some(client.to_string().into()),
                ..TraceRow::default()
            });
        trace(rows.collect(), BLOCK_TOKENS)
    }
}

impl Client {
    /// Calls back at each arrival from `from` to `end`, s. A gap is drawn in units of its mean and used up at the rate
    /// of each window it passes through, so that a change of rate takes effect at once.
    fn arrivals(&self, (from, end): (f64, f64), factor: f64, draw: &mut Draw, mut arrival: impl FnMut(f64, &mut Draw)) {
        let mut at = (from - LEAD_SECS).max(0.0);
        let mut left: Option<f64> = None;
        while at < end {
            let number = window_at(at);
            let window_end = next_window(number);
            let Some(window) = self.windows.get(&number) else {
                at = window_end;
                continue;
            };
            let rate = window.rate * factor;
            let gap = left.take().unwrap_or_else(|| window.gaps.draw(draw));
            let in_window = (window_end - at) * rate;
            if gap > in_window {
                left = Some(gap - in_window);
                at = window_end;
                continue;
            }
            at += gap / rate;
            if at >= from && at < end {
                arrival(at, draw);
            }
        }
    }

    /// Prompt and answer at a time of the day, tokens.
    fn length(&self, at: f64, draw: &mut Draw) -> (u32, u32) {
        let time_of_day = at.rem_euclid(DAY_SECS);
        let within = |lengths: &&Lengths| lengths.t_s.rem_euclid(DAY_SECS) <= time_of_day;
        let lengths = self.lengths.iter().rfind(within).or_else(|| self.lengths.last());
        let (of_input, of_output) = (draw.uniform(), draw.uniform());
        let Some(lengths) = lengths else { return (1, 1) };
        (whole(at_quantile(&lengths.input, of_input)).max(1), whole(at_quantile(&lengths.output, of_output)))
    }
}

impl Gaps {
    /// A gap in units of its mean.
    fn draw(self, draw: &mut Draw) -> f64 {
        match self {
            Self::Gamma(shape) => draw.unit_gamma(shape),
            // Inverse of the distribution function; the mean of Weibull(shape, 1) is Γ(1 + 1/shape).
            Self::Weibull(shape) => (-(1.0 - draw.uniform()).ln()).powf(1.0 / shape) / gamma(1.0 + 1.0 / shape),
        }
    }
}

fn window_at(secs: f64) -> u64 {
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "saturates; NaN gives 0")]
    let number = (secs / WINDOW_SECS).floor() as u64;
    number
}

fn next_window(number: u64) -> f64 {
    u32::try_from(number + 1).map_or(f64::INFINITY, f64::from) * WINDOW_SECS
}

/// Linear between the quantiles of a grid that is even from 0 to 1.
fn at_quantile(grid: &[f64], quantile: f64) -> f64 {
    let steps = u32::try_from(grid.len().saturating_sub(1)).unwrap_or(u32::MAX);
    let place = quantile * f64::from(steps);
    let low = usize::try_from(whole(place.floor())).unwrap_or(usize::MAX);
    match (grid.get(low), grid.get(low + 1)) {
        (Some(short), Some(long)) => short + (long - short) * place.fract(),
        _ => grid.last().copied().unwrap_or(1.0),
    }
}

fn text(bytes: &[u8]) -> Result<String, ServeGenError> {
    let mut text = String::new();
    if bytes.starts_with(&GZIP_MAGIC) {
        MultiGzDecoder::new(bytes).read_to_string(&mut text).map_err(ServeGenError::Data)?;
    } else {
        let mut plain = bytes;
        plain.read_to_string(&mut text).map_err(ServeGenError::Data)?;
    }
    Ok(text)
}

fn numbered(text: &str) -> impl Iterator<Item = (usize, &str)> {
    text.lines().enumerate().map(|(index, line)| (index + 1, line)).filter(|(_, line)| !line.trim().is_empty())
}

fn read_arrivals(text: &str) -> Result<BTreeMap<u32, Client>, ServeGenError> {
    let mut clients: BTreeMap<u32, Client> = BTreeMap::new();
    for (line, record) in records(text.as_bytes()).skip(1) {
        let (client, number, window) = record
            .and_then(|record| arrival(&record))
            .map_err(|message| ServeGenError::Line { table: "arrivals", line, message })?;
        clients.entry(client).or_default().windows.insert(number, window);
    }
    Ok(clients)
}

fn arrival(record: &StringRecord) -> Result<(u32, u64, Window), String> {
    let fields: Vec<&str> = record.iter().collect();
    let &[client, t_s, rate, _, pattern, shape, _] = fields.as_slice() else {
        return Err(format!(
            "{} fields in place of the seven of client,t_s,rate_rps,cv,pattern,arg1,arg2",
            fields.len()
        ));
    };
    let positive = |name: &str, text: &str| match text.parse::<f64>() {
        Ok(value) if value.is_finite() && value > 0.0 => Ok(value),
        _ => Err(format!("{name} {text:?} is not a number above 0")),
    };
    let t_s = t_s.parse::<f64>().ok().filter(|t_s| *t_s >= 0.0).ok_or_else(|| format!("t_s {t_s:?} is not a time"))?;
    let shape = positive("arg1", shape)?;
    let gaps = match pattern {
        "Gamma" => Gaps::Gamma(shape),
        "Weibull" => Gaps::Weibull(shape),
        other => return Err(format!("pattern {other:?} is neither Gamma nor Weibull")),
    };
    let client = client.parse().map_err(|_| format!("client {client:?} is not a number"))?;
    Ok((client, window_at(t_s), Window { rate: positive("rate_rps", rate)?, gaps }))
}

fn read_lengths(text: &str) -> Result<BTreeMap<u32, Vec<Lengths>>, ServeGenError> {
    #[derive(Deserialize)]
    struct Line {
        client: u32,
        t_s: f64,
        input_tokens: Vec<f64>,
        output_tokens: Vec<f64>,
    }
    let mut all: BTreeMap<u32, Vec<Lengths>> = BTreeMap::new();
    for (line, row) in numbered(text) {
        let bad = |message: String| ServeGenError::Line { table: "lengths", line, message };
        let row: Line = serde_json::from_str(row).map_err(|error| bad(error.to_string()))?;
        if row.input_tokens.is_empty() || row.output_tokens.is_empty() {
            return Err(bad("no quantiles".to_owned()));
        }
        let lengths = Lengths { t_s: row.t_s, input: row.input_tokens, output: row.output_tokens };
        all.entry(row.client).or_default().push(lengths);
    }
    for lengths in all.values_mut() {
        lengths.sort_by(|a, b| a.t_s.rem_euclid(DAY_SECS).total_cmp(&b.t_s.rem_euclid(DAY_SECS)));
    }
    Ok(all)
}
