//! ServeGen: the traffic of a cloud's clients, each with its own rate, burstiness and lengths over the day. The tables
//! are the data of alibaba/ServeGen (arXiv 2505.09999), one file of arrivals and one of lengths per model.
//!
//! Arrivals: `client,t_s,rate_rps,cv,pattern,arg1,arg2`, one line per client and 10 minutes with traffic. `pattern` is
//! the distribution of gaps, Gamma or Weibull, and `arg1` its shape. Lengths: JSON lines `{"client", "t_s",
//! "input_tokens": 101 quantiles, "output_tokens": 101 quantiles}` per client and 6 hours of one day. There is no
//! prefix data: all blocks are fresh.

use std::collections::BTreeMap;
use std::io::Read;
use std::sync::Arc;

use csv::StringRecord;
use flate2::read::MultiGzDecoder;
use serde::Deserialize;
use statrs::function::gamma::gamma;

use super::blocks::BlockIds;
use super::draw::{WorkloadRng, micros, millis, whole};
use super::trace;
use crate::records::records;
use crate::trace::{RecordedTrace, TraceRow};

/// Time that a line of the arrivals covers, s.
const WINDOW_SECS: f64 = 600.0;
/// Length of a day, s: lengths are known for one day and repeat.
const DAY_SECS: f64 = 86_400.0;
/// Time before the window from which clients run, s, so that long gaps are under way at its start.
const LEAD_SECS: f64 = 3600.0;
/// Tokens per block id.
const BLOCK_TOKENS: u32 = 256;
/// First bytes of a gzip member (RFC 1952).
const GZIP_MAGIC: [u8; 2] = [0x1f, 0x8b];

/// Reason why the tables could not be read.
#[derive(Debug, thiserror::Error)]
pub enum ServeGenError {
    /// The gzip data is damaged, or the file is not text.
    #[error("damaged data: {0}")]
    Data(#[source] std::io::Error),
    /// A line has the wrong format.
    #[error("{table}, line {line}: {message}")]
    Line {
        /// Table that the line is in.
        table: &'static str,
        /// Line in the (decompressed) file, from 1.
        line: usize,
        /// Description of the fault.
        message: String,
    },
    /// No client has arrivals, or none has lengths.
    #[error("the tables contain no client with arrivals and lengths")]
    Empty,
}

/// Distribution of a client's gaps, with its shape.
#[derive(Debug, Clone, Copy, PartialEq)]
enum GapDistribution {
    Gamma(f64),
    Weibull(f64),
}

/// Quantiles of a client's prompt and answer lengths in 6 hours, tokens.
#[derive(Debug, Clone, PartialEq)]
struct LengthQuantiles {
    t_s: f64,
    input: Vec<f64>,
    output: Vec<f64>,
}

/// Traffic of a client in 10 minutes.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct TrafficWindow {
    /// Requests per second.
    pub rate: f64,
    gaps: GapDistribution,
}

/// A client of the tables.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct TrafficClient {
    /// Traffic by the number of the 10-minute window since the start.
    pub windows: BTreeMap<u64, TrafficWindow>,
    lengths: Arc<Vec<LengthQuantiles>>,
}

/// Clients of one model.
#[derive(Debug, Clone, PartialEq)]
pub struct ServeGen {
    /// Clients by number.
    pub clients: BTreeMap<u32, TrafficClient>,
    /// Number of clients without lengths in the tables; they use those of the next client that has some.
    pub without_lengths: usize,
}

impl ServeGen {
    /// Reads both tables, gzip or plain.
    ///
    /// # Errors
    /// The gzip data is damaged, a line is bad, or the tables are empty.
    pub fn read(arrivals: &[u8], lengths: &[u8]) -> Result<Self, ServeGenError> {
        let mut clients = read_arrivals(&text(arrivals)?)?;
        let mut known: BTreeMap<u32, Arc<Vec<LengthQuantiles>>> =
            read_lengths(&text(lengths)?)?.into_iter().map(|(client, lengths)| (client, Arc::new(lengths))).collect();
        let mut without_lengths = 0;
        // Taken before the loop, which removes entries: clients after the last one with lengths fall back to these.
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

    /// Returns the average rate of all clients together, requests per second, in the `minutes` from `from_secs` on.
    #[must_use]
    pub fn rate(&self, from_secs: f64, minutes: f64) -> f64 {
        // The end is exclusive: one that falls on a window's boundary must not count the window behind it.
        let (first, last) = (window_at(from_secs), window_at(from_secs + minutes * 60.0 - 1e-3));
        let windows = self.clients.values().flat_map(|client| client.windows.range(first..=last));
        let sum: f64 = windows.map(|(_, window)| window.rate).sum();
        let count = u32::try_from(last.saturating_sub(first) + 1).map_or(f64::INFINITY, f64::from);
        sum / count
    }

    /// Generates `minutes` of traffic from `from_secs` on, with all rates multiplied by `rate_factor`. Times count from
    /// `from_secs`. Gaps follow the fitted distribution, with a mean of 1 / measured rate.
    #[must_use]
    pub fn generate(&self, seed: u64, from_secs: f64, minutes: f64, rate_factor: f64) -> RecordedTrace {
        let mut draw = WorkloadRng::new(seed);
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
                blocks: ids.ids_for_prompt(input_tokens, row, input_tokens, row),
                user: Some(client.to_string().into()),
                ..TraceRow::default()
            });
        trace(rows.collect(), BLOCK_TOKENS)
    }
}

impl TrafficClient {
    /// Calls `arrival` for each arrival from `from` to `end`, s. A gap is drawn in units of its mean and used up at the
    /// rate of each window it passes through, so that a change of rate takes effect at once.
    fn arrivals(
        &self,
        (from, end): (f64, f64),
        factor: f64,
        draw: &mut WorkloadRng,
        mut arrival: impl FnMut(f64, &mut WorkloadRng),
    ) {
        let mut at = (from - LEAD_SECS).max(0.0);
        let mut left: Option<f64> = None;
        while at < end {
            let number = window_at(at);
            let window_end = next_window(number);
            // A window without a line has no traffic: the gap pauses, and its remainder is kept in `left`.
            let Some(window) = self.windows.get(&number) else {
                at = window_end;
                continue;
            };
            let rate = window.rate * factor;
            let gap = left.take().unwrap_or_else(|| window.gaps.draw(draw));
            // Number of mean gaps that fit into the rest of this window.
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

    /// Draws the lengths of a prompt and its answer at a time of the day, tokens.
    fn length(&self, at: f64, draw: &mut WorkloadRng) -> (u32, u32) {
        let time_of_day = at.rem_euclid(DAY_SECS);
        let within = |lengths: &&LengthQuantiles| lengths.t_s.rem_euclid(DAY_SECS) <= time_of_day;
        // Lines are sorted by time of day. Before the first one of a day, the last one of the day before applies.
        let lengths = self.lengths.iter().rfind(within).or_else(|| self.lengths.last());
        let (of_input, of_output) = (draw.uniform(), draw.uniform());
        let Some(lengths) = lengths else { return (1, 1) };
        (whole(at_quantile(&lengths.input, of_input)).max(1), whole(at_quantile(&lengths.output, of_output)))
    }
}

impl GapDistribution {
    /// Draws a gap in units of its mean.
    fn draw(self, draw: &mut WorkloadRng) -> f64 {
        match self {
            Self::Gamma(shape) => draw.unit_gamma(shape),
            // Inverse of the distribution function, divided by the mean of Weibull(shape, 1), which is Γ(1 + 1/shape).
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

/// Interpolates linearly between the quantiles of a grid with even steps from 0 to 1.
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

fn read_arrivals(text: &str) -> Result<BTreeMap<u32, TrafficClient>, ServeGenError> {
    let mut clients: BTreeMap<u32, TrafficClient> = BTreeMap::new();
    for (line, record) in records(text.as_bytes()).skip(1) {
        let (client, number, window) = record
            .and_then(|record| arrival(&record))
            .map_err(|message| ServeGenError::Line { table: "arrivals", line, message })?;
        clients.entry(client).or_default().windows.insert(number, window);
    }
    Ok(clients)
}

fn arrival(record: &StringRecord) -> Result<(u32, u64, TrafficWindow), String> {
    let fields: Vec<&str> = record.iter().collect();
    let &[client, t_s, rate, _, pattern, shape, _] = fields.as_slice() else {
        return Err(format!("{} fields instead of 7: client,t_s,rate_rps,cv,pattern,arg1,arg2", fields.len()));
    };
    let positive = |name: &str, text: &str| match text.parse::<f64>() {
        Ok(value) if value.is_finite() && value > 0.0 => Ok(value),
        _ => Err(format!("{name} is {text:?}; must be a number above 0")),
    };
    let t_s = t_s
        .parse::<f64>()
        .ok()
        .filter(|t_s| *t_s >= 0.0)
        .ok_or_else(|| format!("t_s is {t_s:?}; must be 0 or more seconds"))?;
    let shape = positive("arg1", shape)?;
    let gaps = match pattern {
        "Gamma" => GapDistribution::Gamma(shape),
        "Weibull" => GapDistribution::Weibull(shape),
        other => return Err(format!("pattern is {other:?}; must be Gamma or Weibull")),
    };
    let client = client.parse().map_err(|_| format!("client is {client:?}; must be a whole number"))?;
    Ok((client, window_at(t_s), TrafficWindow { rate: positive("rate_rps", rate)?, gaps }))
}

fn read_lengths(text: &str) -> Result<BTreeMap<u32, Vec<LengthQuantiles>>, ServeGenError> {
    #[derive(Deserialize)]
    struct LengthsLine {
        client: u32,
        t_s: f64,
        input_tokens: Vec<f64>,
        output_tokens: Vec<f64>,
    }
    let mut all: BTreeMap<u32, Vec<LengthQuantiles>> = BTreeMap::new();
    for (line, row) in numbered(text) {
        let bad = |message: String| ServeGenError::Line { table: "lengths", line, message };
        let row: LengthsLine = serde_json::from_str(row).map_err(|error| bad(error.to_string()))?;
        if row.input_tokens.is_empty() || row.output_tokens.is_empty() {
            return Err(bad("input_tokens and output_tokens must not be empty".to_owned()));
        }
        let lengths = LengthQuantiles { t_s: row.t_s, input: row.input_tokens, output: row.output_tokens };
        all.entry(row.client).or_default().push(lengths);
    }
    // `length` searches by time of day, and the table need not start at midnight.
    for lengths in all.values_mut() {
        lengths.sort_by(|a, b| a.t_s.rem_euclid(DAY_SECS).total_cmp(&b.t_s.rem_euclid(DAY_SECS)));
    }
    Ok(all)
}
