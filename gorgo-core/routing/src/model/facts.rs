//! The facts that expressions and plugins may name: each with its unit, its group, and how it is read. This is the one
//! list for terms, constraints and plugins; the guide in `expr/README.md` has the same table, written by a test.
//!
//! Most facts are columns and are listed in the table of `candidates.rs`; here are those of the request, those of
//! the fleet as a whole, those made of several columns, and the texts.

use super::candidates::COLUMN_FACTS;
use super::{Candidates, Replica, RequestView, RequiredFacts};

/// Scope of a fact.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum FactScope {
    /// The request: the same for every candidate.
    Request,
    /// The candidate replica.
    Candidate,
    /// A learned rate of the candidate's speed.
    Rate,
    /// The fleet as a whole: the same for every candidate.
    Fleet,
}

/// One fact.
#[derive(Debug, Clone, Copy)]
pub struct FactDefinition {
    /// Name in expressions.
    pub name: &'static str,
    /// Scope of the fact.
    pub scope: FactScope,
    /// Unit: `ms`, `tokens`, `requests`, `bytes`, `share`, `ms/token`, `ms/request`.
    pub unit: &'static str,
    /// One-line description.
    pub help: &'static str,
    /// Group of facts that it belongs to.
    pub needs: RequiredFacts,
    /// Reads the value for a request at a candidate's row; `None` if it is unknown. For a fact of the fleet the row has no
    /// meaning.
    pub read: fn(&RequestView, &Candidates, usize) -> Option<f64>,
    /// All values at once, if they are stored side by side as plain numbers.
    pub plain: fn(&Candidates) -> Option<&[f64]>,
}

/// One fact that is a text: the same for a replica in every decision.
#[derive(Debug, Clone, Copy)]
pub struct TextFact {
    /// Name in expressions.
    pub name: &'static str,
    /// One-line description.
    pub help: &'static str,
    /// Reads the value for a replica.
    pub read: fn(&Replica) -> &str,
}

const fn fact(
    name: &'static str,
    of: FactScope,
    unit: &'static str,
    help: &'static str,
    needs: RequiredFacts,
    read: fn(&RequestView, &Candidates, usize) -> Option<f64>,
) -> FactDefinition {
    FactDefinition { name, scope: of, unit, help, needs, read, plain: |_| None }
}

/// Facts of the request.
const REQUEST_FACTS: &[FactDefinition] = &[
    fact(
        "prompt_tokens",
        FactScope::Request,
        "tokens",
        "prompt tokens, estimated from its bytes or counted",
        RequiredFacts::NONE,
        |request, _, _| Some(f64::from(request.prompt_tokens)),
    ),
    fact(
        "max_tokens",
        FactScope::Request,
        "tokens",
        "longest answer the client asked for; unknown where it did not say",
        RequiredFacts::NONE,
        |request, _, _| request.max_tokens.map(f64::from),
    ),
    fact(
        "body_bytes",
        FactScope::Request,
        "bytes",
        "size of the request body",
        RequiredFacts::NONE,
        |request, _, _| Some(whole(request.body_bytes)),
    ),
    fact(
        "slo_ttft_ms",
        FactScope::Request,
        "ms",
        "TTFT asked for with the header x-slo-ttft-ms; unknown where it did not say, and in traces",
        RequiredFacts::NONE,
        |request, _, _| request.slo_ttft_ms,
    ),
    fact(
        "turn",
        FactScope::Request,
        "1",
        "decisions of this policy before this one",
        RequiredFacts::NONE,
        |request, _, _| Some(whole(request.decision_number)),
    ),
];

/// Facts made of several columns, and columns that mark *unknown* in their own way.
const DERIVED_FACTS: &[FactDefinition] = &[
    fact(
        "uncached_tokens",
        FactScope::Candidate,
        "tokens",
        "prompt tokens of this request that it would have to compute",
        RequiredFacts::PREFIX,
        |request, all, row| Some(f64::from(all.uncached_tokens(request, row))),
    ),
    fact(
        "predicted_ttft_ms",
        FactScope::Candidate,
        "ms",
        "rtt_ms + intercept_ms + prefill_ms_per_token * uncached_tokens + queue_ms_per_token * queued_uncached_tokens + decode_ms_per_request * decoding",
        RequiredFacts::RTT.union(RequiredFacts::PREFIX).union(RequiredFacts::LOAD).union(RequiredFacts::RATES),
        predicted_ttft_ms,
    ),
    fact(
        "network_trips",
        FactScope::Candidate,
        "1",
        "round trips that this request needs on the connection that it would get; 1 where nothing is known of it",
        RequiredFacts::NETWORK,
        |_, all, row| Some(all.network_trips[row].unwrap_or(1.0)),
    ),
    fact(
        "kv_capacity_tokens",
        FactScope::Candidate,
        "tokens",
        "KV cache capacity, configured or reported; unknown where neither is",
        RequiredFacts::NONE,
        // This column marks an unknown capacity by 0.
        |_, all, row| Some(all.capacity_tokens[row]).filter(|tokens| *tokens > 0).map(whole),
    ),
    fact(
        "available",
        FactScope::Candidate,
        "1",
        "1 where it may be used at all: healthy, enabled, serves the model; else 0",
        RequiredFacts::NONE,
        |_, all, row| Some(f64::from(u8::from(all.available[row]))),
    ),
];

/// Facts of the fleet.
const FLEET_FACTS: &[FactDefinition] = &[
    fact(
        "mean_inflight",
        FactScope::Fleet,
        "requests",
        "this router's requests in flight per available replica",
        RequiredFacts::LOAD,
        |_, all, _| Some(all.mean_inflight()),
    ),
    fact(
        "answer_tokens",
        FactScope::Fleet,
        "tokens",
        "mean length of recent answers",
        RequiredFacts::SERVICE,
        |_, all, _| Some(all.answer_tokens),
    ),
    fact(
        "tail_start_ms",
        FactScope::Fleet,
        "ms",
        "88 % quantile of recent times to first token; unknown until enough were seen",
        RequiredFacts::SERVICE,
        |_, all, _| all.tail_start_ms,
    ),
];

const FACT_COUNT: usize = REQUEST_FACTS.len() + COLUMN_FACTS.len() + DERIVED_FACTS.len() + FLEET_FACTS.len();

/// All facts, in documentation order.
pub const FACTS: &[FactDefinition] = &{
    // Joined at compile time, with `while` because `for` is not allowed in a constant; the first fact is only a filler.
    let mut facts = [REQUEST_FACTS[0]; FACT_COUNT];
    let parts = [REQUEST_FACTS, COLUMN_FACTS, DERIVED_FACTS, FLEET_FACTS];
    let (mut place, mut part) = (0, 0);
    while part < parts.len() {
        let mut row = 0;
        while row < parts[part].len() {
            facts[place] = parts[part][row];
            place += 1;
            row += 1;
        }
        part += 1;
    }
    facts
};

/// The facts that are texts. An expression compares them with a text, by `==` or `!=`; plugins are given them with the
/// fleet.
pub const TEXT_FACTS: &[TextFact] = &[
    TextFact { name: "name", help: "the replica's name", read: |replica| &replica.name },
    TextFact { name: "region", help: "its region", read: |replica| &replica.region },
    TextFact {
        name: "engine",
        help: "its engine, as the configuration calls it",
        read: |replica| replica.engine.name(),
    },
];

/// The names of [`FACTS`], in their order.
pub const FACT_NAMES: &[&str] = &{
    let mut names = [""; FACTS.len()];
    let mut place = 0;
    while place < names.len() {
        names[place] = FACTS[place].name;
        place += 1;
    }
    names
};

/// The units of [`FACTS`], in their order.
pub const FACT_UNITS: &[&str] = &{
    let mut units = [""; FACTS.len()];
    let mut place = 0;
    while place < units.len() {
        units[place] = FACTS[place].unit;
        place += 1;
    }
    units
};

/// The names of [`TEXT_FACTS`], in their order.
pub const TEXT_FACT_NAMES: &[&str] = &{
    let mut names = [""; TEXT_FACTS.len()];
    let mut place = 0;
    while place < names.len() {
        names[place] = TEXT_FACTS[place].name;
        place += 1;
    }
    names
};

fn predicted_ttft_ms(request: &RequestView, all: &Candidates, row: usize) -> Option<f64> {
    // One unknown part makes the whole unknown: a partial sum would look like a fast replica.
    let prefill = all.prefill_ms_per_token[row]? * f64::from(all.uncached_tokens(request, row));
    let queue = all.queue_ms_per_token[row]? * whole(all.queued_uncached_tokens[row]);
    let decode = all.decode_ms_per_request[row]? * f64::from(all.decoding[row]);
    Some(all.rtt_ms[row]? + all.intercept_ms[row]? + prefill + queue + decode)
}

#[expect(clippy::cast_precision_loss, reason = "tokens and bytes stay far below 2^53")]
fn whole(count: u64) -> f64 {
    count as f64
}

/// Reads the facts that one expression names, for one fleet.
///
/// A slot is a position in [`FACTS`]; those beyond it are the expression's own comparisons of texts, computed once for each
/// replica when the policy is built.
#[derive(Debug, Clone)]
pub struct FactReader {
    needs: RequiredFacts,
    /// Facts of the fleet that are named: read once per decision, because some go through all candidates.
    fleet: Vec<usize>,
    /// Per comparison of texts, by replica id: 1 where it holds, else 0.
    texts: Vec<Vec<f64>>,
}

impl FactReader {
    /// Makes the reader for an expression that reads these slots and compares these facts of [`TEXT_FACTS`] with these
    /// texts.
    ///
    /// # Errors
    /// A text that no replica of the fleet has.
    pub fn new<'t>(
        slots: &[usize],
        comparisons: impl Iterator<Item = (usize, &'t str)>,
        fleet: &[Replica],
    ) -> Result<Self, String> {
        let named = || slots.iter().filter_map(|slot| FACTS.get(*slot).map(|fact| (*slot, fact)));
        // Slots beyond the table are text comparisons: they need no facts of the decision.
        let of_fleet = named().filter(|(_, fact)| fact.scope == FactScope::Fleet);
        Ok(Self {
            needs: named().fold(RequiredFacts::NONE, |needs, (_, fact)| needs.union(fact.needs)),
            fleet: of_fleet.map(|(slot, _)| slot).collect(),
            texts: comparisons
                .map(|(fact, text)| compared(&TEXT_FACTS[fact], text, fleet))
                .collect::<Result<_, _>>()?,
        })
    }

    /// The groups of the facts that are read.
    #[must_use]
    pub const fn needs(&self) -> RequiredFacts {
        self.needs
    }

    /// Returns true if any fact that is read can rise with the work that a replica was given.
    #[must_use]
    pub fn reads_load(&self) -> bool {
        [RequiredFacts::LOAD, RequiredFacts::REPORT, RequiredFacts::BACKLOG]
            .into_iter()
            .any(|group| self.needs.contains(group))
    }

    /// The facts of one decision.
    #[must_use]
    pub fn of<'a>(&'a self, request: &'a RequestView, candidates: &'a Candidates) -> DecisionFacts<'a> {
        // On the stack: an expression cannot name more fleet facts than there are.
        let mut fleet = [None; FLEET_FACTS.len()];
        for (place, slot) in self.fleet.iter().enumerate() {
            // The row has no meaning for a fact of the fleet.
            fleet[place] = (FACTS[*slot].read)(request, candidates, 0);
        }
        DecisionFacts { reader: self, request, candidates, fleet }
    }
}

/// The facts of one decision, as an expression reads them.
#[derive(Debug)]
pub struct DecisionFacts<'a> {
    reader: &'a FactReader,
    request: &'a RequestView,
    candidates: &'a Candidates,
    fleet: [Option<f64>; FLEET_FACTS.len()],
}

impl DecisionFacts<'_> {
    /// The value in that slot for that row; `None`: unknown.
    #[inline]
    #[must_use]
    pub fn read(&self, slot: u16, row: usize) -> Option<f64> {
        let slot = usize::from(slot);
        let Some(fact) = FACTS.get(slot) else {
            let replica = self.candidates.replica[row];
            // A replica that the fleet did not have when the policy was built has none of its texts.
            return self.reader.texts.get(slot - FACTS.len())?.get(replica.index()).copied();
        };
        if fact.scope == FactScope::Fleet {
            // Values of fleet facts were read once in `of`, in the order of `fleet`.
            let place = self.reader.fleet.iter().position(|known| *known == slot)?;
            return self.fleet[place];
        }
        (fact.read)(self.request, self.candidates, row)
    }
}

/// By replica id, 1 where the fact is this text, else 0.
fn compared(fact: &TextFact, text: &str, fleet: &[Replica]) -> Result<Vec<f64>, String> {
    if fleet.iter().all(|replica| (fact.read)(replica) != text) {
        // A text that no replica has is most likely a misspelling: the comparison would never hold.
        let mut known: Vec<_> = fleet.iter().map(fact.read).collect();
        known.sort_unstable();
        known.dedup();
        return Err(format!("no enabled replica has the {} \"{text}\"; known: {}", fact.name, known.join(", ")));
    }
    // By replica id, not by row: candidates come in any order.
    let mut holds = vec![0.0; fleet.iter().map(|replica| replica.id.index() + 1).max().unwrap_or(0)];
    for replica in fleet {
        holds[replica.id.index()] = f64::from(u8::from((fact.read)(replica) == text));
    }
    Ok(holds)
}
