//! What a restart goes on from: tuners' states, prefix index, learned figures, the last round trips. One row
//! per replica, replaced by each newer one; all is asked for by the replica's name, so that a replica that left the
//! fleet is never read.

use crate::open::Store;
use crate::open::run::{PolicyInfo, ReplicaInfo};
use crate::{StoreError, sql};
use gorgo_routing::model::{At, EngineEpoch};

/// A stored snapshot of a replica's part of the prefix index.
#[derive(Debug, Clone, PartialEq)]
pub struct StoredIndex {
    /// When it was taken.
    pub taken: At,
    /// The engine it is of.
    pub engine: EngineEpoch,
    /// Its bytes, which nothing vouches for.
    pub blocks: Vec<u8>,
}

/// What was stored of what had been learned of a replica.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredLearning {
    /// When.
    pub at: At,
    /// JSON, which nothing vouches for.
    pub state: String,
}

/// A round trip.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StoredProbe {
    /// When it was measured.
    pub at: At,
    /// How long it was, µs.
    pub rtt_us: u64,
}

/// What a policy's tuner left in the database.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LastTuning {
    /// The newest state that was saved, JSON; generations that were cut later are not in it.
    pub state: Option<String>,
    /// The highest generation, cut or not.
    pub generation: u64,
}

impl Store {
    /// What the tuner of exactly this policy (same name, same digest) left behind; `None` where it never ran.
    ///
    /// # Errors
    /// What SQLite says.
    pub async fn last_tuning(&mut self, policy: &PolicyInfo) -> Result<Option<LastTuning>, StoreError> {
        let query = sqlx::query_as(sql::LAST_TUNING).bind(&policy.name).bind(policy.digest());
        let found: Option<(Option<String>, Option<i64>)> =
            query.fetch_optional(&mut self.connection).await.map_err(|cause| self.failed(cause))?;
        Ok(found.and_then(|(state, generation)| {
            Some(LastTuning { state, generation: u64::try_from(generation?).unwrap_or(0) })
        }))
    }

    /// The newest snapshot of the index of the replica of that name, whatever it is worth; `None` where there is none.
    ///
    /// # Errors
    /// What SQLite says.
    pub async fn last_index(&mut self, replica: &ReplicaInfo) -> Result<Option<StoredIndex>, StoreError> {
        type Row = (i64, Option<i64>, Option<f64>, Vec<u8>);
        let query = sqlx::query_as(sql::READ_INDEX).bind(&replica.name);
        let found: Option<Row> =
            query.fetch_optional(&mut self.connection).await.map_err(|cause| self.failed(cause))?;
        Ok(found.map(|(taken, started_ms, prompt_tokens, blocks)| StoredIndex {
            taken: moment(taken),
            engine: EngineEpoch { started_ms, prompt_tokens },
            blocks,
        }))
    }

    /// What was learned last of exactly this replica: same name, engine and address.
    ///
    /// # Errors
    /// What SQLite says.
    pub async fn last_learned(&mut self, replica: &ReplicaInfo) -> Result<Option<StoredLearning>, StoreError> {
        let query = sqlx::query_as(sql::READ_LEARNED).bind(&replica.name).bind(&replica.engine).bind(&replica.url);
        let found: Option<(i64, String)> =
            query.fetch_optional(&mut self.connection).await.map_err(|cause| self.failed(cause))?;
        Ok(found.map(|(at, state)| StoredLearning { at: moment(at), state }))
    }

    /// The last `most` round trips to exactly this replica, from `from` on, oldest first; lost ones are left out.
    ///
    /// # Errors
    /// What SQLite says.
    pub async fn last_probes(
        &mut self,
        replica: &ReplicaInfo,
        from: At,
        most: u32,
    ) -> Result<Vec<StoredProbe>, StoreError> {
        let query = sqlx::query_as(sql::READ_LAST_PROBES).bind(&replica.name).bind(&replica.url);
        let query = query.bind(from.micros()).bind(most);
        let found: Vec<(i64, i64)> = query.fetch_all(&mut self.connection).await.map_err(|cause| self.failed(cause))?;
        let probe = |(at, rtt_us)| StoredProbe { at: moment(at), rtt_us: u64::try_from(rtt_us).unwrap_or(0) };
        Ok(found.into_iter().rev().map(probe).collect())
    }

    fn failed(&self, cause: sqlx::Error) -> StoreError {
        StoreError::Sql { path: self.path.clone(), cause }
    }
}

fn moment(us: i64) -> At {
    At(u64::try_from(us).unwrap_or(0))
}
