//! The tables of records: a file each, which defines its rows, the records that become them, and their retention. A new
//! table is its migration and its description in `migrations/`, its record in `model/record.rs`, a file here, and its
//! lines in [`MIGRATIONS`] and [`TABLES`]; the tests of the list (`tests/tables.rs`) then check everything that holds
//! for all tables, with records that the file's `sample` makes.
//!
//! Tables of names and of closed lists (`replicas`, …) are not here: they are written where numbers are assigned.

mod admissions;
mod alarms;
mod attempts;
mod candidate_terms;
mod candidates;
mod decisions;
mod events;
mod gaps;
mod generation_scores;
mod generations;
mod index_snapshots;
mod learned;
mod outcomes;
mod probes;
mod rates;
#[cfg(test)]
pub(crate) mod sample;
mod scrapes;
mod shadows;
pub(crate) mod weights;

#[cfg(test)]
use proptest::strategy::BoxedStrategy;

use crate::write::batch::Batch;
use crate::write::loss::RowLoss;
use crate::write::statement::BatchStatements;
#[cfg(test)]
use crate::write::statement::InsertStatement;
use gorgo_routing::model::StoreRecord;

/// Number, name and text of each migration, in order.
pub(crate) const MIGRATIONS: &[(i64, &str, &str)] = &[
    (1, "history", include_str!("../../../../migrations/0001_history.sql")),
    (2, "tuner", include_str!("../../../../migrations/0002_tuner.sql")),
    (5, "plugins", include_str!("../../../../migrations/0005_plugins.sql")),
    (6, "restart", include_str!("../../../../migrations/0006_restart.sql")),
    (7, "gate", include_str!("../../../../migrations/0007_gate.sql")),
    (8, "bench", include_str!("../../../../migrations/0008_bench.sql")),
    (9, "operators", include_str!("../../../../migrations/0009_operators.sql")),
];

/// All tables, in the order in which a batch is written and `gaps` names them.
pub(crate) const TABLES: &[&HistoryTable] = &[
    // First, because pruning runs through the list backwards: rows that belong to a decision go before the decision.
    &decisions::TABLE,
    &candidates::TABLE,
    &candidate_terms::TABLE,
    &attempts::TABLE,
    &outcomes::TABLE,
    &shadows::TABLE,
    &probes::TABLE,
    &scrapes::TABLE,
    &events::TABLE,
    &weights::TABLE,
    &rates::TABLE,
    &generations::TABLE,
    &generation_scores::TABLE,
    &alarms::TABLE,
    &admissions::TABLE,
    &index_snapshots::TABLE,
    &learned::TABLE,
    // Last, so that the losses of a batch come after the rows that were written.
    &gaps::TABLE,
];

/// A table that batches of records are written to.
#[derive(Debug)]
pub(crate) struct HistoryTable {
    /// Name in the schema and in `gaps.table_name`.
    pub(crate) name: &'static str,
    /// Rule by which its rows are deleted.
    pub(crate) retention: RetentionRule,
    /// Counts and dates the rows that a record becomes here, for `gaps` in case they are lost.
    pub(crate) loss: fn(&StoreRecord) -> Option<RowLoss>,
    /// Turns a batch into the statements that write its rows of this table.
    pub(crate) write: fn(&Batch<'_>, &mut BatchStatements),
    /// Further data for the tests of the list.
    #[cfg(test)]
    pub(crate) checks: Checks,
}

/// Data with which the tests of [`TABLES`] check a table.
#[cfg(test)]
#[derive(Debug)]
pub(crate) struct Checks {
    /// INSERTs of the table; together they name every column except those in `filled_later`.
    pub(crate) inserts: &'static [&'static InsertStatement],
    /// Columns that no INSERT names: a number that SQLite assigns, a time that another statement sets.
    pub(crate) filled_later: &'static [&'static str],
    /// Other statements that write the table.
    pub(crate) others: &'static [&'static str],
    /// Generates records that become rows here.
    pub(crate) sample: fn() -> BoxedStrategy<StoreRecord>,
}

/// Rule by which rows are deleted.
#[derive(Debug, Clone, Copy)]
pub(crate) enum RetentionRule {
    /// With the decision: deletes the rows of decisions below `?`.
    WithDecision(&'static str),
    /// By age: deletes at most `?2` rows older than `?1`; the subquery lets SQLite search the primary key.
    ByAge(&'static str),
    /// By the age of the end: deletes rows that ended before `?1`. Rows without an end stay.
    OnceEnded(&'static str),
    /// Never: rows are few, and later runs continue from them.
    Never,
}

/// Rule of a table whose rows have a `decision_id`.
// A macro, because a constant's text can only be composed from literals.
macro_rules! with_decision {
    ($table:ident) => {
        $crate::table::RetentionRule::WithDecision(concat!(
            "DELETE FROM ",
            stringify!($table),
            " WHERE decision_id < ?"
        ))
    };
}
use with_decision;
