//! What an experiment asks of a history: which run it measured, and how often its decisions were not what the policy
//! wanted.

use crate::read::Reader;
use crate::{StoreError, sql};
use gorgo_routing::model::DecisionId;

/// The newest run of a history.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredRun {
    /// Its number.
    pub run: i64,
    /// Version of gorgo.
    pub version: String,
    /// The policy that serves.
    pub policy: Option<String>,
    /// Digest of its text and of what its terms resolve to.
    pub policy_sha256: Option<String>,
    /// Digest of the configuration, without secrets.
    pub config_sha256: Option<String>,
    /// Seed of its decisions.
    pub seed: u64,
    /// The newest generation of its weights that was stored; `None` where none was.
    pub generation: Option<i64>,
}

/// Decisions of a stretch, and how many of them fell back. One decision may be in several of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Fallbacks {
    /// Decisions on inference paths.
    pub decisions: u64,
    /// Nobody could be had.
    pub refused: u64,
    /// All were over a limit, and the least violating were let back in.
    pub relaxed: u64,
    /// More than one attempt: failover or a hedge.
    pub tried_again: u64,
}

impl Reader {
    /// The newest run; `None` in a file without any.
    ///
    /// # Errors
    /// As [`Reader::decisions`].
    pub async fn newest_run(&self) -> Result<Option<StoredRun>, StoreError> {
        let row = sqlx::query(sql::NEWEST_RUN).fetch_optional(self.pool()).await.map_err(|cause| self.failed(cause))?;
        let Some(row) = row else { return Ok(None) };
        Ok(Some(StoredRun {
            run: self.get(&row, 0)?,
            version: self.get(&row, 1)?,
            policy: self.get(&row, 2)?,
            policy_sha256: self.get(&row, 3)?,
            config_sha256: self.get(&row, 4)?,
            seed: self.get::<i64>(&row, 5)?.cast_unsigned(),
            generation: self.get(&row, 6)?,
        }))
    }

    /// How often the decisions from the first to the last, both with it, fell back.
    ///
    /// # Errors
    /// As [`Reader::decisions`].
    pub async fn fallbacks(&self, first: DecisionId, last: DecisionId) -> Result<Fallbacks, StoreError> {
        let query = sqlx::query(sql::FALLBACKS).bind(first.0).bind(last.0);
        let row = query.fetch_one(self.pool()).await.map_err(|cause| self.failed(cause))?;
        let count = |place| self.get::<i64>(&row, place).map(i64::cast_unsigned);
        Ok(Fallbacks { decisions: count(0)?, refused: count(1)?, relaxed: count(2)?, tried_again: count(3)? })
    }
}
