//! Figures that an experiment reads from a history: the run that it measured, and how often a decision differed from
//! what the policy preferred.

use crate::read::HistoryReader;
use crate::{StoreError, sql};
use gorgo_routing::model::DecisionId;

/// Newest run of a history.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredRun {
    /// Number of the run.
    pub run: i64,
    /// Version of gorgo.
    pub version: String,
    /// Name of the policy that served.
    pub policy: Option<String>,
    /// Digest of the policy's text and of what its terms resolve to.
    pub policy_sha256: Option<String>,
    /// Digest of the configuration, without secrets.
    pub config_sha256: Option<String>,
    /// Seed of its decisions.
    pub seed: u64,
    /// Newest stored generation of its weights; `None` if none was stored.
    pub generation: Option<i64>,
}

/// Number of decisions in a range, and of those that fell back. One decision may count in several of these.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct FallbackCounts {
    /// Decisions on inference paths.
    pub decisions: u64,
    /// No replica could be chosen.
    pub refused: u64,
    /// All replicas were over a limit, and the least violating were let back in.
    pub relaxed: u64,
    /// More than one attempt: failover or a hedge.
    pub tried_again: u64,
}

impl HistoryReader {
    /// Reads the newest run; `None` in a file without any.
    ///
    /// # Errors
    /// As [`HistoryReader::decisions`].
    pub async fn newest_run(&self) -> Result<Option<StoredRun>, StoreError> {
        let row = sqlx::query(sql::NEWEST_RUN).fetch_optional(self.pool()).await.map_err(|cause| self.failed(cause))?;
        let Some(row) = row else { return Ok(None) };
        Ok(Some(StoredRun {
            run: self.get(&row, 0)?,
            version: self.get(&row, 1)?,
            policy: self.get(&row, 2)?,
            policy_sha256: self.get(&row, 3)?,
            config_sha256: self.get(&row, 4)?,
            // Seeds are 64 bits; SQLite stores the same bits as a signed number.
            seed: self.get::<i64>(&row, 5)?.cast_unsigned(),
            generation: self.get(&row, 6)?,
        }))
    }

    /// Counts the decisions from `first` to `last`, both included, and those that fell back.
    ///
    /// # Errors
    /// As [`HistoryReader::decisions`].
    pub async fn fallbacks(&self, first: DecisionId, last: DecisionId) -> Result<FallbackCounts, StoreError> {
        let query = sqlx::query(sql::FALLBACKS).bind(first.0).bind(last.0);
        let row = query.fetch_one(self.pool()).await.map_err(|cause| self.failed(cause))?;
        // One row, even in an empty range: the query's aggregates are 0 then.
        let count = |place| self.get::<i64>(&row, place).map(i64::cast_unsigned);
        Ok(FallbackCounts { decisions: count(0)?, refused: count(1)?, relaxed: count(2)?, tried_again: count(3)? })
    }
}
