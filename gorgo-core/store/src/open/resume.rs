//! Reading the state that a restart continues from: tuners' states, prefix index, learned figures, the last round
//! trips. One row per replica, replaced by each newer one. Rows are read by the replica's name, so that those of a
//! replica that left the fleet are never read.

use crate::open::HistoryDatabase;
use crate::open::run::{PolicyInfo, ReplicaInfo};
use crate::{StoreError, sql};
use gorgo_routing::model::{EngineEpoch, UnixMicros};

/// Stored snapshot of a replica's part of the prefix index.
#[derive(Debug, Clone, PartialEq)]
pub struct StoredIndex {
    /// Time at which it was taken.
    pub taken: UnixMicros,
    /// Epoch of the engine that it describes.
    pub engine: EngineEpoch,
    /// Encoded blocks. Not validated: the reader must check them.
    pub blocks: Vec<u8>,
}

/// Stored figures that were learned about a replica.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredLearning {
    /// Time at which they were stored.
    pub at: UnixMicros,
    /// State as JSON. Not validated: the reader must check it.
    pub state: String,
}

/// Stored round trip of a probe.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StoredProbe {
    /// Time of the measurement.
    pub at: UnixMicros,
    /// Round trip, µs.
    pub rtt_us: u64,
}

/// State that a policy's tuner left in the database.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LastTuning {
    /// Newest saved state, JSON; it does not include generations that were cut later.
    pub state: Option<String>,
    /// Highest generation, cut or not.
    pub generation: u64,
}

impl HistoryDatabase {
    /// Reads the state of the tuner of exactly this policy (same name, same digest); `None` if it never ran.
    ///
    /// # Errors
    /// When SQLite fails.
    pub async fn last_tuning(&mut self, policy: &PolicyInfo) -> Result<Option<LastTuning>, StoreError> {
        let query = sqlx::query_as(sql::LAST_TUNING).bind(&policy.name).bind(policy.digest());
        let found: Option<(Option<String>, Option<i64>)> =
            query.fetch_optional(&mut self.connection).await.map_err(|cause| self.failed(cause))?;
        Ok(found.and_then(|(state, generation)| {
            Some(LastTuning { state, generation: u64::try_from(generation?).unwrap_or(0) })
        }))
    }

    /// Reads the newest snapshot of the index of the replica of that name, valid or not; `None` if there is none.
    ///
    /// # Errors
    /// When SQLite fails.
    pub async fn last_index(&mut self, replica: &ReplicaInfo) -> Result<Option<StoredIndex>, StoreError> {
        type Row = (i64, Option<i64>, Option<f64>, Vec<u8>);
        // By name only: engine and address are part of the snapshot's key, which `decode` checks, for the log.
        let query = sqlx::query_as(sql::READ_INDEX).bind(&replica.name);
        let found: Option<Row> =
            query.fetch_optional(&mut self.connection).await.map_err(|cause| self.failed(cause))?;
        Ok(found.map(|(taken, started_ms, prompt_tokens, blocks)| StoredIndex {
            taken: moment(taken),
            engine: EngineEpoch { started_ms, prompt_tokens },
            blocks,
        }))
    }

    /// Reads the figures learned last about exactly this replica: same name, engine and address.
    ///
    /// # Errors
    /// When SQLite fails.
    pub async fn last_learned(&mut self, replica: &ReplicaInfo) -> Result<Option<StoredLearning>, StoreError> {
        let query = sqlx::query_as(sql::READ_LEARNED).bind(&replica.name).bind(&replica.engine).bind(&replica.url);
        let found: Option<(i64, String)> =
            query.fetch_optional(&mut self.connection).await.map_err(|cause| self.failed(cause))?;
        Ok(found.map(|(at, state)| StoredLearning { at: moment(at), state }))
    }

    /// Reads the last `most` round trips to exactly this replica since `from`, oldest first, without lost probes.
    ///
    /// # Errors
    /// When SQLite fails.
    pub async fn last_probes(
        &mut self,
        replica: &ReplicaInfo,
        from: UnixMicros,
        most: u32,
    ) -> Result<Vec<StoredProbe>, StoreError> {
        let query = sqlx::query_as(sql::READ_LAST_PROBES).bind(&replica.name).bind(&replica.url);
        let query = query.bind(from.micros()).bind(most);
        let found: Vec<(i64, i64)> = query.fetch_all(&mut self.connection).await.map_err(|cause| self.failed(cause))?;
        let probe = |(at, rtt_us)| StoredProbe { at: moment(at), rtt_us: u64::try_from(rtt_us).unwrap_or(0) };
        // The query takes the newest, so it sorts downwards; estimates must be fed in the order of time.
        Ok(found.into_iter().rev().map(probe).collect())
    }

    fn failed(&self, cause: sqlx::Error) -> StoreError {
        StoreError::Sql { path: self.path.clone(), cause }
    }
}

fn moment(us: i64) -> UnixMicros {
    // Any program may have written the file: a negative time counts as the epoch, and is then too old.
    UnixMicros(u64::try_from(us).unwrap_or(0))
}
