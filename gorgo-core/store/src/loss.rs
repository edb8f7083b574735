//! What could not be written: per table how many rows, and between which moments. Becomes rows of `gaps`.

use gorgo_routing::model::{DecisionId, Record};

/// A table that batches go to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Table {
    Decisions,
    Candidates,
    CandidateTerms,
    Attempts,
    Outcomes,
    Shadows,
    Probes,
    Scrapes,
    Events,
    Weights,
    Rates,
    Generations,
    GenerationScores,
    Alarms,
    Holds,
    IndexSnapshots,
    Learned,
}

impl Table {
    pub(super) const ALL: [Self; 17] = [
        Self::Decisions,
        Self::Candidates,
        Self::CandidateTerms,
        Self::Attempts,
        Self::Outcomes,
        Self::Shadows,
        Self::Probes,
        Self::Scrapes,
        Self::Events,
        Self::Weights,
        Self::Rates,
        Self::Generations,
        Self::GenerationScores,
        Self::Alarms,
        Self::Holds,
        Self::IndexSnapshots,
        Self::Learned,
    ];

    /// The text in `gaps.table_name`.
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Decisions => "decisions",
            Self::Candidates => "candidates",
            Self::CandidateTerms => "candidate_terms",
            Self::Attempts => "attempts",
            Self::Outcomes => "outcomes",
            Self::Shadows => "shadows",
            Self::Probes => "probes",
            Self::Scrapes => "scrapes",
            Self::Events => "events",
            Self::Weights => "weights",
            Self::Rates => "rates",
            Self::Generations => "generations",
            Self::GenerationScores => "generation_scores",
            Self::Alarms => "alarms",
            Self::Holds => "holds",
            Self::IndexSnapshots => "index_snapshots",
            Self::Learned => "learned",
        }
    }
}

/// Rows lost of one table, and the moments of the first and the last, µs since the epoch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Loss {
    pub(super) rows: u64,
    pub(super) from_us: i64,
    pub(super) to_us: i64,
}

/// Losses of all tables since they were last written down.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Losses([Option<Loss>; Table::ALL.len()]);

impl Losses {
    pub(super) fn add(&mut self, table: Table, loss: Loss) {
        if loss.rows == 0 {
            return;
        }
        let slot = &mut self.0[table as usize];
        *slot = Some(slot.map_or(loss, |known| Loss {
            rows: known.rows + loss.rows,
            from_us: known.from_us.min(loss.from_us),
            to_us: known.to_us.max(loss.to_us),
        }));
    }

    pub(super) fn add_record(&mut self, record: &Record) {
        tally(record, |table, at_us, rows| self.add(table, Loss { rows, from_us: at_us, to_us: at_us }));
    }

    pub(super) fn merge(&mut self, other: &Self) {
        for (table, loss) in other.iter() {
            self.add(table, loss);
        }
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (Table, Loss)> + '_ {
        Table::ALL.into_iter().filter_map(|table| Some((table, self.0[table as usize]?)))
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.iter().all(Option::is_none)
    }

    /// All rows of all tables.
    pub(super) fn rows(&self) -> u64 {
        self.iter().map(|(_, loss)| loss.rows).sum()
    }
}

/// The moment in a decision's id, µs since the epoch: what is known of when its attempts and its outcome were.
pub(super) fn moment_of(decision: DecisionId) -> i64 {
    (decision.0 >> 20).saturating_mul(1_000)
}

/// The rows a record becomes: table, moment, how many.
pub(super) fn tally(record: &Record, mut row: impl FnMut(Table, i64, u64)) {
    let count = |length: usize| u64::try_from(length).unwrap_or(u64::MAX);
    match record {
        Record::Decision(decision) => {
            let at_us = decision.received.micros();
            row(Table::Decisions, at_us, 1);
            row(Table::Candidates, at_us, count(decision.candidates.len()));
            let terms =
                decision.candidates.iter().map(|candidate| candidate.signals_milli.len().saturating_sub(8)).sum();
            row(Table::CandidateTerms, at_us, count(terms));
            row(Table::Shadows, at_us, count(decision.shadows.len()));
        }
        Record::Candidates { decision, rows, .. } => {
            let at_us = moment_of(*decision);
            row(Table::Candidates, at_us, count(rows.len()));
            let terms = rows.iter().map(|candidate| candidate.signals_milli.len().saturating_sub(8)).sum();
            row(Table::CandidateTerms, at_us, count(terms));
        }
        Record::Hold(hold) => row(Table::Holds, moment_of(hold.decision), 1),
        Record::Attempt(attempt) => row(Table::Attempts, moment_of(attempt.decision), 1),
        Record::Outcome(_, outcome) => row(Table::Outcomes, moment_of(outcome.decision), 1),
        Record::Probe(probe) => row(Table::Probes, probe.at.micros(), 1),
        Record::Scrape(scrape) => row(Table::Scrapes, scrape.at.micros(), 1),
        Record::Event(event) => row(Table::Events, event.at.micros(), 1),
        Record::Weights(weights) => row(Table::Weights, weights.at.micros(), count(weights.values.len())),
        Record::Rate(rate) => row(Table::Rates, rate.at.micros(), 1),
        Record::Generation(generation) => {
            let at_us = generation.ended.unwrap_or(generation.started).micros();
            row(Table::Generations, at_us, 1);
            row(Table::GenerationScores, at_us, count(generation.scores.len()));
        }
        Record::Alarm(alarm) => row(Table::Alarms, alarm.at.micros(), u64::from(!alarm.over)),
        Record::Index(index) => row(Table::IndexSnapshots, index.at.micros(), 1),
        Record::Learned(learned) => row(Table::Learned, learned.at.micros(), 1),
    }
}
