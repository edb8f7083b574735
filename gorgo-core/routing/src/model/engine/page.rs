//! Pages of an engine, and what to look for on them.

/// A Prometheus page.
#[derive(Debug)]
pub struct MetricsPage {
    /// Its path.
    pub path: &'static str,
    /// What to read of it.
    pub series: &'static [&'static [Series]],
    /// The engine flag without which the page is missing; `None`: it is always there.
    pub flag: Option<&'static str>,
}

/// A JSON page with the KV capacity somewhere in it.
#[derive(Debug)]
pub struct CapacityPage {
    /// Its path.
    pub path: &'static str,
    /// The member that holds it, tokens.
    pub member: &'static str,
}

/// A JSON page with the engine's settings somewhere in it.
#[derive(Debug)]
pub struct LimitsPage {
    /// Its path.
    pub path: &'static str,
    /// Members that hold the largest batch with a graph, a number or a list of numbers; the first that is there counts.
    pub batch: &'static [&'static str],
    /// A member that says `true` where there are no graphs.
    pub no_graphs: &'static str,
    /// Members that hold how many run at once; the first that is there counts.
    pub running: &'static [&'static str],
}

/// What a series tells.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Field {
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

/// How label sets of different work become one number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Across {
    /// Their sum.
    Sum,
    /// Their mean.
    Mean,
    /// The largest.
    Most,
}

/// A series to look for. Where several tell the same field, the first that the page has wins.
#[derive(Debug, Clone, Copy)]
pub struct Series {
    /// Name on the page.
    pub name: &'static str,
    /// What it tells.
    pub field: Field,
    /// How its label sets become one number.
    pub across: Across,
    /// The value is not the sample but the product of these two labels.
    pub labels: Option<(&'static str, &'static str)>,
}

impl Series {
    /// A series whose sample is the value.
    #[must_use]
    pub const fn sample(name: &'static str, field: Field, across: Across) -> Self {
        Self { name, field, across, labels: None }
    }

    /// An info series whose value is the product of two labels (pages × page size), summed.
    #[must_use]
    pub const fn labels(name: &'static str, field: Field, first: &'static str, second: &'static str) -> Self {
        Self { name, field, across: Across::Sum, labels: Some((first, second)) }
    }
}
