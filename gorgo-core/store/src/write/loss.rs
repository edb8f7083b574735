//! Rows that could not be written: their number per table, times of the first and the last. Become rows of `gaps`.

use crate::table::TABLES;
use gorgo_routing::model::{DecisionId, StoreRecord};

/// Number of lost rows of one table, and times of the first and the last, µs since the epoch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct RowLoss {
    pub(crate) rows: u64,
    pub(crate) from_us: i64,
    pub(crate) to_us: i64,
}

impl RowLoss {
    /// Loss of rows that share one time.
    pub(crate) fn at(at_us: i64, rows: usize) -> Self {
        Self { rows: u64::try_from(rows).unwrap_or(u64::MAX), from_us: at_us, to_us: at_us }
    }
}

/// Losses of all tables since they were last written, by index in [`TABLES`]. Empty until there is one, so that taking
/// the losses of a batch that lost nothing copies nothing.
#[derive(Debug, Clone, Default)]
pub(crate) struct RowLosses(Vec<Option<RowLoss>>);

impl RowLosses {
    pub(crate) fn add(&mut self, table: usize, loss: RowLoss) {
        if loss.rows == 0 {
            return;
        }
        if self.0.is_empty() {
            self.0.resize(TABLES.len(), None);
        }
        // One row of `gaps` per table and batch, however many records were dropped: the time span grows instead.
        let slot = &mut self.0[table];
        *slot = Some(slot.map_or(loss, |known| RowLoss {
            rows: known.rows + loss.rows,
            from_us: known.from_us.min(loss.from_us),
            to_us: known.to_us.max(loss.to_us),
        }));
    }

    pub(crate) fn add_record(&mut self, record: &StoreRecord) {
        for (place, table) in TABLES.iter().enumerate() {
            if let Some(loss) = (table.loss)(record) {
                self.add(place, loss);
            }
        }
    }

    pub(crate) fn merge(&mut self, other: &Self) {
        for (place, loss) in other.iter() {
            self.add(place, loss);
        }
    }

    /// Iterates over index in [`TABLES`] and loss.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (usize, RowLoss)> + '_ {
        self.0.iter().enumerate().filter_map(|(place, loss)| Some((place, (*loss)?)))
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.iter().next().is_none()
    }

    /// Number of lost rows of all tables.
    pub(crate) fn rows(&self) -> u64 {
        self.iter().map(|(_, loss)| loss.rows).sum()
    }
}

/// Time in a decision's id, µs since the epoch; attempts and outcomes have no other absolute time.
pub(crate) fn moment_of(decision: DecisionId) -> i64 {
    // Ids are milliseconds × 2^20 + a counter.
    (decision.0 >> 20).saturating_mul(1_000)
}
