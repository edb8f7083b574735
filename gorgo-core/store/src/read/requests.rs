//! Requests as they come back from the database: what arrived, whom it shares its prefix with, and how it went. One
//! row each, without candidates: for traces and for calibration, which read whole histories.

use std::sync::Arc;

use crate::codes::Code;
use crate::read::Reader;
use crate::{StoreError, sql};
use gorgo_routing::model::{ApiPath, At, DecisionId, ErrorClass};

/// A request as it was stored. Times are µs after its head arrived.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredRequest {
    /// Its decision.
    pub decision: DecisionId,
    /// The run it was made in.
    pub run: i64,
    /// When its head arrived.
    pub received: At,
    /// By which API.
    pub path: ApiPath,
    /// Hash of the session key.
    pub session_hash: u64,
    /// Prompt tokens as estimated at the decision.
    pub prompt_tokens: u32,
    /// The earlier decision that this prompt shares its longest prefix with.
    pub parent: Option<DecisionId>,
    /// Tokens of that shared prefix, estimated as `prompt_tokens`.
    pub shared_tokens: u32,
    /// Who was chosen first; `None` on a refusal.
    pub replica: Option<Arc<str>>,
    /// How many attempts were made.
    pub attempts: u32,
    /// Round trip to the replica chosen, µs.
    pub rtt_us: Option<i64>,
    /// What went wrong.
    pub error: Option<ErrorClass>,
    /// First generated content; `None` where none came.
    pub ttft_us: Option<i64>,
    /// Last byte; `None` where the outcome was not stored.
    pub e2e_us: Option<i64>,
    /// Prompt tokens the engine counted.
    pub engine_prompt_tokens: Option<u32>,
    /// Prompt tokens the engine had cached.
    pub cached_tokens: Option<u32>,
    /// Cached tokens predicted at the decision, estimated as `prompt_tokens`.
    pub predicted_cached_tokens: Option<u32>,
    /// Tokens generated.
    pub completion_tokens: Option<u32>,
}

impl Reader {
    /// Up to `limit` requests from `from` on, oldest first.
    ///
    /// # Errors
    /// As [`Reader::decisions`].
    pub async fn requests(&self, from: DecisionId, limit: u32) -> Result<Vec<StoredRequest>, StoreError> {
        let replicas = self.names(sql::READ_REPLICAS).await?;
        let query = sqlx::query(sql::READ_REQUESTS).bind(from.0).bind(limit);
        let rows = query.fetch_all(self.pool()).await.map_err(|cause| self.failed(cause))?;
        let mut requests = Vec::with_capacity(rows.len());
        for row in &rows {
            let path: i64 = self.get(row, 3)?;
            let replica: Option<i64> = self.get(row, 8)?;
            requests.push(StoredRequest {
                decision: DecisionId(self.get(row, 0)?),
                run: self.get(row, 1)?,
                received: At(self.get::<i64>(row, 2)?.cast_unsigned()),
                path: self.needed(<ApiPath as Code>::of(path), ApiPath::TABLE, ApiPath::COLUMN, path)?,
                session_hash: self.get::<i64>(row, 4)?.cast_unsigned(),
                prompt_tokens: self.get(row, 5)?,
                parent: self.get::<Option<i64>>(row, 6)?.map(DecisionId),
                shared_tokens: self.get(row, 7)?,
                replica: replica.and_then(|id| replicas.get(&id).cloned()),
                attempts: self.get(row, 9)?,
                rtt_us: self.get(row, 10)?,
                error: self.code(row, 11)?,
                ttft_us: self.get(row, 12)?,
                e2e_us: self.get(row, 13)?,
                engine_prompt_tokens: self.get(row, 14)?,
                cached_tokens: self.get(row, 15)?,
                predicted_cached_tokens: self.get(row, 16)?,
                completion_tokens: self.get(row, 17)?,
            });
        }
        Ok(requests)
    }
}
