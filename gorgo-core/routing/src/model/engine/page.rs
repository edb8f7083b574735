//! Pages of an engine, and the values that are read from them.

/// A Prometheus page.
#[derive(Debug)]
pub struct MetricsPage {
    /// Path of the page.
    pub path: &'static str,
    /// Series to read, by engine; the groups are searched in this order.
    pub series: &'static [&'static [MetricSeries]],
    /// The engine flag without which the page is missing; `None`: it is always available.
    pub flag: Option<&'static str>,
}

/// A JSON page with the KV capacity somewhere in it.
#[derive(Debug)]
pub struct CapacityPage {
    /// Path of the page.
    pub path: &'static str,
    /// The member that holds it, tokens.
    pub member: &'static str,
}

/// A JSON page with the engine's settings somewhere in it.
#[derive(Debug)]
pub struct LimitsPage {
    /// Path of the page.
    pub path: &'static str,
    /// Members that hold the largest batch with a graph, a number or a list of numbers; the first one present counts.
    pub batch: &'static [&'static str],
    /// Member that is `true` where there are no graphs.
    pub no_graphs: &'static str,
    /// Members that hold the number of requests that run at once; the first one present counts.
    pub running: &'static [&'static str],
}

/// Meaning of a series.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MetricField {
    /// Running requests.
    Running,
    /// Waiting requests.
    Waiting,
    /// KV tokens in use.
    KvUsedTokens,
    /// Share of the KV cache in use, 0 to 1.
    KvUsedShare,
    /// KV capacity, tokens.
    KvCapacityTokens,
    /// Generation throughput, tokens/s.
    Throughput,
    /// Process start, seconds since the epoch.
    StartedSecs,
    /// Counter of prompt tokens: it falls when the engine restarts.
    PromptTokensTotal,
    /// Counter of generated tokens: between two pages it is the throughput.
    GeneratedTokensTotal,
}

/// How the label sets of parallel workers become one number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LabelAggregation {
    /// Their sum.
    Sum,
    /// Their mean.
    Mean,
    /// The largest.
    Max,
}

/// A series to look for. Where several give the same field, the first that the page has wins.
#[derive(Debug, Clone, Copy)]
pub struct MetricSeries {
    /// Name on the page.
    pub name: &'static str,
    /// Field that it gives.
    pub field: MetricField,
    /// How its label sets become one number.
    pub across: LabelAggregation,
    /// The value is not the sample but the product of these two labels.
    pub labels: Option<(&'static str, &'static str)>,
}

impl MetricSeries {
    /// A series whose sample is the value.
    #[must_use]
    pub const fn sample(name: &'static str, field: MetricField, across: LabelAggregation) -> Self {
        Self { name, field, across, labels: None }
    }

    /// An info series whose value is the product of two labels (pages × page size), summed.
    #[must_use]
    pub const fn labels(name: &'static str, field: MetricField, first: &'static str, second: &'static str) -> Self {
        Self { name, field, across: LabelAggregation::Sum, labels: Some((first, second)) }
    }
}
