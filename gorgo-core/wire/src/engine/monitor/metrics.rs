//! Reads an engine's Prometheus page in one pass over its lines, looking only for the wanted names.
//!
//! A series usually appears several times, once per label set. Label sets of different work are combined (data-parallel
//! ranks, engines, models); label sets that report the same work several times (tensor and pipeline ranks, process ids)
//! count once, by the largest. Samples that are not finite, truncated lines and bytes that are not text are skipped: a
//! broken page makes readings unknown, but never wrong, and never causes a panic.

use gorgo_routing::model::EngineReport;
use gorgo_routing::model::engine::{LabelAggregation, MetricField, MetricSeries};

/// Labels that distinguish work within the same series.
const WORK_LABELS: [&[u8]; 4] = [b"dp_rank", b"engine", b"engine_type", b"model_name"];
/// Label sets kept per series; a page with more is not an engine's.
const MOST_LABEL_SETS: usize = 4_096;

/// Figures of a page.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct EngineMetrics {
    /// State of the engine.
    pub report: EngineReport,
    /// Prompt tokens since the engine started.
    pub prompt_tokens_total: Option<f64>,
    /// Tokens generated since the engine started.
    pub generated_tokens_total: Option<f64>,
}

impl EngineMetrics {
    /// Returns `true` if the page contained nothing that was wanted.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

/// Reads a page. Used tokens and used share are computed from one another if only one is present and the capacity is
/// known.
#[must_use]
pub fn read(page: &[u8], tables: &[&[MetricSeries]]) -> EngineMetrics {
    let wanted: Vec<&MetricSeries> = tables.iter().copied().flatten().collect();
    let mut found: Vec<Vec<(u64, f64)>> = vec![Vec::new(); wanted.len()];
    for line in lines(page) {
        let Some(sample) = MetricSample::parse(line) else { continue };
        // Every series is compared with every line: the tables are short, and most lines fail on the length of the
        // name.
        for (series, sets) in wanted.iter().zip(&mut found) {
            if same_name(sample.name, series.name.as_bytes())
                && let Some(value) = sample.value_for(series)
            {
                merge_sample(sets, sample.work_key(), value);
            }
        }
    }
    let mut out = EngineMetrics::default();
    // In the order of the tables: the first series that has a value for a field wins, see `fill`.
    for (series, sets) in wanted.iter().zip(&found) {
        if let Some(value) = combine(series.across, sets) {
            out.fill(series.field, value);
        }
    }
    out.complete();
    out
}

impl EngineMetrics {
    fn fill(&mut self, field: MetricField, value: f64) {
        let report = &mut self.report;
        let place = match field {
            MetricField::Running => &mut report.running,
            MetricField::Waiting => &mut report.waiting,
            MetricField::KvUsedTokens => &mut report.kv_used_tokens,
            MetricField::KvUsedShare => &mut report.kv_used_share,
            MetricField::Throughput => &mut report.throughput,
            MetricField::StartedSecs => &mut report.started_secs,
            MetricField::PromptTokensTotal => &mut self.prompt_tokens_total,
            MetricField::GeneratedTokensTotal => &mut self.generated_tokens_total,
            // A count and not a number of any value, hence not in the common path.
            MetricField::KvCapacityTokens => {
                report.kv_capacity_tokens = report.kv_capacity_tokens.or_else(|| whole(value));
                return;
            }
        };
        *place = place.or(Some(value));
    }

    fn complete(&mut self) {
        let report = &mut self.report;
        if let Some(capacity) = report.kv_capacity_tokens.filter(|&tokens| tokens > 0) {
            #[expect(clippy::cast_precision_loss, reason = "capacities are far below 2^53")]
            let capacity = capacity as f64;
            report.kv_used_tokens = report.kv_used_tokens.or(report.kv_used_share.map(|share| share * capacity));
            report.kv_used_share = report.kv_used_share.or(report.kv_used_tokens.map(|tokens| tokens / capacity));
        }
    }
}

#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "checked on the same line")]
fn whole(value: f64) -> Option<u64> {
    (0.0..=9e15).contains(&value).then_some(value as u64)
}

fn lines(page: &[u8]) -> impl Iterator<Item = &[u8]> {
    let mut rest = Some(page);
    std::iter::from_fn(move || {
        let text = rest?;
        let (line, after) = match memchr::memchr(b'\n', text) {
            Some(end) => (&text[..end], Some(&text[end + 1..])),
            None => (text, None),
        };
        rest = after;
        Some(line)
    })
}

/// Line of the form `name{labels} value [timestamp]`.
struct MetricSample<'a> {
    name: &'a [u8],
    labels: &'a [u8],
    value: &'a [u8],
}

impl<'a> MetricSample<'a> {
    fn parse(line: &'a [u8]) -> Option<Self> {
        let line = line.trim_ascii();
        if line.first().is_none_or(|first| *first == b'#') {
            return None;
        }
        let end = line.iter().position(|byte| matches!(byte, b'{' | b' ' | b'\t'))?;
        let (name, rest) = line.split_at(end);
        let (labels, rest) = match rest.first() {
            Some(b'{') => {
                let close = closing_brace(rest)?;
                (&rest[1..close], &rest[close + 1..])
            }
            _ => (&rest[..0], rest),
        };
        // The time stamp, if there is one, is ignored.
        let value = rest.trim_ascii_start().split(u8::is_ascii_whitespace).next()?;
        Some(Self { name, labels, value })
    }

    fn value_for(&self, series: &MetricSeries) -> Option<f64> {
        let value = match series.labels {
            None => number(self.value)?,
            Some((first, second)) => number(self.label(first.as_bytes())?)? * number(self.label(second.as_bytes())?)?,
        };
        value.is_finite().then_some(value)
    }

    /// Value of a label, with its escapes.
    fn label(&self, name: &[u8]) -> Option<&'a [u8]> {
        labels(self.labels).find(|(key, _)| *key == name).map(|(_, value)| value)
    }

    /// Hash of the labels that distinguish work; equal for samples of the same work.
    fn work_key(&self) -> u64 {
        let mut hash = 0;
        // Mixed in order, so that equal values of two different labels do not cancel out.
        for name in WORK_LABELS {
            let value = self.label(name).map_or(0, xxhash_rust::xxh3::xxh3_64);
            hash = (hash ^ value).wrapping_mul(0x9E37_79B9_7F4A_7C15).rotate_left(29);
        }
        hash
    }
}

/// Compares names; exporters write both `sglang:x` and `sglang_x`.
fn same_name(found: &[u8], wanted: &[u8]) -> bool {
    let plain = |byte: &u8| if *byte == b':' { b'_' } else { *byte };
    found.len() == wanted.len() && found.iter().map(plain).eq(wanted.iter().map(plain))
}

/// Position of the `}` that ends the labels, which may contain braces inside quotes.
fn closing_brace(labels: &[u8]) -> Option<usize> {
    let (mut quoted, mut escaped) = (false, false);
    labels.iter().position(|byte| {
        let ends = *byte == b'}' && !quoted;
        if escaped {
            escaped = false;
        } else if quoted && *byte == b'\\' {
            escaped = true;
        } else if *byte == b'"' {
            quoted = !quoted;
        }
        ends
    })
}

/// Labels of the form `name="value",…`, without the braces.
fn labels(text: &[u8]) -> impl Iterator<Item = (&[u8], &[u8])> {
    let mut rest = text;
    std::iter::from_fn(move || {
        let equals = memchr::memchr(b'=', rest)?;
        let name = rest[..equals].trim_ascii();
        let quoted = rest[equals + 1..].trim_ascii_start().strip_prefix(b"\"")?;
        let mut escaped = false;
        let end = quoted.iter().position(|byte| {
            let ends = *byte == b'"' && !escaped;
            escaped = *byte == b'\\' && !escaped;
            ends
        })?;
        let after = quoted[end + 1..].trim_ascii_start();
        rest = after.strip_prefix(b",").unwrap_or(after);
        Some((name, &quoted[..end]))
    })
}

fn number(text: &[u8]) -> Option<f64> {
    std::str::from_utf8(text).ok()?.parse().ok()
}

fn merge_sample(sets: &mut Vec<(u64, f64)>, work: u64, value: f64) {
    // The same work reported by another rank or process: the largest counts.
    if let Some((_, most)) = sets.iter_mut().find(|(known, _)| *known == work) {
        *most = most.max(value);
    } else if sets.len() < MOST_LABEL_SETS {
        sets.push((work, value));
    }
}

fn combine(across: LabelAggregation, sets: &[(u64, f64)]) -> Option<f64> {
    let values = || sets.iter().map(|(_, value)| *value);
    #[expect(clippy::cast_precision_loss, reason = "at most MOST_LABEL_SETS")]
    let count = sets.len() as f64;
    match across {
        _ if sets.is_empty() => None,
        LabelAggregation::Sum => Some(values().sum()),
        LabelAggregation::Mean => Some(values().sum::<f64>() / count),
        LabelAggregation::Max => values().reduce(f64::max),
    }
    // Sums of finite values may still overflow.
    .filter(|value| value.is_finite())
}

#[cfg(test)]
mod tests;
