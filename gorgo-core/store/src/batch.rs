//! Records → rows: one transaction for a batch, fifty rows to a statement.

use sqlx::SqliteConnection;

use super::bind::outcome;
use super::insert::insert_all;
use super::loss::{Loss, Losses, Table};
use super::run::{Ids, Names};
use super::sql;
use gorgo_routing::model::{
    AlarmRecord, AttemptRecord, CandidateRecord, DecisionId, DecisionRecord, EventRecord, GenerationRecord, HoldRecord,
    IndexRecord, LearnedRecord, OutcomeRecord, ProbeRecord, RateRecord, Record, ScrapeRecord, ShadowRecord, VOID_MILLI,
    WeightRecord,
};

/// What turns records into rows.
#[derive(Debug)]
pub(super) struct Batcher {
    pub(super) ids: Ids,
    pub(super) models: Names,
    pub(super) constraints: Names,
}

/// The records of a batch, table by table.
#[derive(Default)]
struct Rows<'r> {
    decisions: Vec<&'r DecisionRecord>,
    candidates_4: Vec<Candidate<'r>>,
    candidates_8: Vec<Candidate<'r>>,
    candidate_terms: Vec<Term<'r>>,
    shadows: Vec<(DecisionId, &'r ShadowRecord)>,
    holds: Vec<&'r HoldRecord>,
    attempts: Vec<&'r AttemptRecord>,
    outcomes: Vec<&'r OutcomeRecord>,
    probes: Vec<&'r ProbeRecord>,
    scrapes: Vec<&'r ScrapeRecord>,
    events: Vec<&'r EventRecord>,
    weights: Vec<&'r WeightRecord>,
    rates: Vec<&'r RateRecord>,
    generations: Vec<&'r GenerationRecord>,
    alarms: Vec<&'r AlarmRecord>,
    index: Vec<&'r IndexRecord>,
    learned: Vec<&'r LearnedRecord>,
}

/// A candidate with what its row says beyond its record.
#[derive(Clone, Copy)]
pub(super) struct Candidate<'r> {
    pub(super) decision: DecisionId,
    pub(super) attempt: u16,
    pub(super) position: i64,
    pub(super) row: &'r CandidateRecord,
}

/// A term beyond the eighth.
pub(super) struct Term<'r> {
    pub(super) of: Candidate<'r>,
    pub(super) slot: i64,
    pub(super) signal_milli: i64,
    pub(super) cost_milli: i64,
}

impl<'r> Rows<'r> {
    fn of(records: &'r [Record]) -> Self {
        let mut rows = Self::default();
        for record in records {
            match record {
                Record::Decision(decision) => {
                    rows.add_candidates(decision.decision, 1, &decision.candidates);
                    rows.shadows.extend(decision.shadows.iter().map(|shadow| (decision.decision, shadow)));
                    rows.decisions.push(decision);
                }
                Record::Candidates { decision, attempt, rows: candidates } => {
                    rows.add_candidates(*decision, *attempt, candidates);
                }
                Record::Hold(hold) => rows.holds.push(hold),
                Record::Attempt(attempt) => rows.attempts.push(attempt),
                Record::Outcome(_, outcome) => rows.outcomes.push(outcome),
                Record::Probe(probe) => rows.probes.push(probe),
                Record::Scrape(scrape) => rows.scrapes.push(scrape),
                Record::Event(event) => rows.events.push(event),
                Record::Weights(weights) => rows.weights.push(weights),
                Record::Rate(rate) => rows.rates.push(rate),
                Record::Generation(generation) => rows.generations.push(generation),
                Record::Alarm(alarm) => rows.alarms.push(alarm),
                Record::Index(index) => rows.index.push(index),
                Record::Learned(learned) => rows.learned.push(learned),
            }
        }
        rows
    }

    fn add_candidates(&mut self, decision: DecisionId, attempt: u16, candidates: &'r [CandidateRecord]) {
        for (position, row) in (0..).zip(candidates) {
            let of = Candidate { decision, attempt, position, row };
            if row.signals_milli.len() <= 4 { &mut self.candidates_4 } else { &mut self.candidates_8 }.push(of);
            let terms = (1..).zip(row.signals_milli.iter().zip(&row.costs_milli)).skip(8);
            // A row that is not there is void, too.
            let terms = terms.filter(|(_, (signal_milli, _))| **signal_milli != VOID_MILLI);
            self.candidate_terms.extend(terms.map(|(slot, (signal_milli, cost_milli))| Term {
                of,
                slot,
                signal_milli: *signal_milli,
                cost_milli: *cost_milli,
            }));
        }
    }
}

/// One table's part of a batch: how many rows it has, how many SQLite took.
pub(super) struct Part {
    pub(super) table: Table,
    pub(super) rows: usize,
    pub(super) taken: u64,
}

impl Batcher {
    /// Gives the batch's new names their numbers. Outside the batch's transaction, so that a rollback takes none back.
    async fn learn_names(&mut self, connection: &mut SqliteConnection, records: &[Record]) -> Result<(), sqlx::Error> {
        for record in records {
            let candidates = match record {
                Record::Decision(decision) => {
                    if let Some(model) = &decision.model {
                        self.models.learn(connection, model).await?;
                    }
                    &decision.candidates
                }
                Record::Candidates { rows, .. } => rows,
                _ => continue,
            };
            for constraint in candidates.iter().filter_map(|candidate| candidate.excluded_by.as_ref()) {
                self.constraints.learn(connection, constraint).await?;
            }
        }
        Ok(())
    }

    /// Writes all records and the losses, or nothing. Returns the rows that SQLite refused one by one: a number twice,
    /// or a row that breaks a rule of the schema.
    pub(super) async fn write(
        &mut self,
        connection: &mut SqliteConnection,
        records: &[Record],
        losses: &Losses,
    ) -> Result<Losses, sqlx::Error> {
        self.learn_names(connection, records).await?;
        sqlx::query(sql::BEGIN).execute(&mut *connection).await?;
        let written = match self.write_rows(connection, records, losses).await {
            Ok(parts) => sqlx::query(sql::COMMIT).execute(&mut *connection).await.map(|_| parts),
            Err(cause) => Err(cause),
        };
        match written {
            Ok(parts) => Ok(refused(records, &parts)),
            Err(cause) => {
                // Where SQLite has rolled back by itself this fails, which is fine.
                let _ = sqlx::query(sql::ROLLBACK).execute(&mut *connection).await;
                Err(cause)
            }
        }
    }

    async fn write_rows(
        &self,
        connection: &mut SqliteConnection,
        records: &[Record],
        losses: &Losses,
    ) -> Result<Vec<Part>, sqlx::Error> {
        let rows = Rows::of(records);
        let mut parts = Vec::new();
        macro_rules! insert {
            ($table:expr, $insert:expr, $rows:expr, $bind:expr) => {
                if !$rows.is_empty() {
                    let taken = insert_all(connection, &$insert, &$rows, $bind).await?;
                    parts.push(Part { table: $table, rows: $rows.len(), taken });
                }
            };
        }
        insert!(Table::Decisions, sql::DECISIONS, rows.decisions, |to, row| self.decision(to, row));
        insert!(Table::Candidates, sql::CANDIDATES_4, rows.candidates_4, |to, row| self.candidate(to, row, 4));
        insert!(Table::Candidates, sql::CANDIDATES_8, rows.candidates_8, |to, row| self.candidate(to, row, 8));
        insert!(Table::CandidateTerms, sql::CANDIDATE_TERMS, rows.candidate_terms, |to, row| self.term(to, row));
        insert!(Table::Shadows, sql::SHADOWS, rows.shadows, |to, row| self.shadow(to, row.0, row.1));
        insert!(Table::Holds, sql::HOLDS, rows.holds, |to, row| self.hold(to, row));
        insert!(Table::Attempts, sql::ATTEMPTS, rows.attempts, |to, row| self.attempt(to, row));
        insert!(Table::Outcomes, sql::OUTCOMES, rows.outcomes, |to, row| outcome(to, row));
        insert!(Table::Probes, sql::PROBES, rows.probes, |to, row| self.probe(to, row));
        insert!(Table::Scrapes, sql::SCRAPES, rows.scrapes, |to, row| self.scrape(to, row));
        insert!(Table::Events, sql::EVENTS, rows.events, |to, row| self.event(to, row));
        insert!(Table::Rates, sql::RATES, rows.rates, |to, row| self.rate(to, row));
        for weights in rows.weights {
            let taken = self.write_weights(connection, weights).await?;
            parts.push(Part { table: Table::Weights, rows: weights.values.len(), taken });
        }
        self.write_tuning(connection, &rows.generations, &rows.alarms, &mut parts).await?;
        self.write_warm(connection, &rows.index, &rows.learned, &mut parts).await?;
        let gaps: Vec<(Table, Loss)> = losses.iter().collect();
        insert_all(connection, &sql::GAPS, &gaps, |to, (table, loss)| {
            to.int(self.ids.run);
            to.add(table.name());
            to.int(loss.from_us);
            to.int(loss.to_us);
            to.unsigned(loss.rows);
        })
        .await?;
        Ok(parts)
    }

    /// Ends the weights that were valid so far and adds the new ones, one by one: they are few.
    async fn write_weights(
        &self,
        connection: &mut SqliteConnection,
        weights: &WeightRecord,
    ) -> Result<u64, sqlx::Error> {
        let (policy, from_us) = (self.ids.policy(weights.policy), weights.at.micros());
        let close = sqlx::query(sql::CLOSE_WEIGHTS).bind(from_us).bind(self.ids.run).bind(policy);
        close.execute(&mut *connection).await?;
        let values: Vec<(i64, f64)> = (1..).zip(weights.values.iter().copied()).collect();
        insert_all(connection, &sql::WEIGHTS, &values, |to, (slot, value)| {
            to.int(self.ids.run);
            to.maybe(policy);
            to.unsigned(weights.generation.0);
            to.int(*slot);
            to.int(from_us);
            to.add(*value);
        })
        .await
    }
}

/// The rows that were given and not taken, with the moments between which the batch lies.
fn refused(records: &[Record], parts: &[Part]) -> Losses {
    let mut refused = Losses::default();
    let missing = |part: &Part| u64::try_from(part.rows).unwrap_or(u64::MAX).saturating_sub(part.taken);
    if parts.iter().all(|part| missing(part) == 0) {
        return refused;
    }
    let mut whole = Losses::default();
    for record in records {
        whole.add_record(record);
    }
    for part in parts {
        if let Some((_, span)) = whole.iter().find(|(table, _)| *table == part.table) {
            refused.add(part.table, Loss { rows: missing(part), ..span });
        }
    }
    refused
}
