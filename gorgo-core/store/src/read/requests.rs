//! Requests as read from the database: arrival, shared prefix and outcome. One row each, without candidates: for traces
//! and for calibration, which read whole histories.

use std::sync::Arc;

use crate::codes::ClosedList;
use crate::read::HistoryReader;
use crate::{StoreError, sql};
use gorgo_routing::model::{ApiPath, DecisionId, ErrorClass, UnixMicros};

/// Stored request. Times are µs after its head arrived.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredRequest {
    /// Decision of the request.
    pub decision: DecisionId,
    /// Run in which the decision was made.
    pub run: i64,
    /// Arrival of the request's head.
    pub received: UnixMicros,
    /// API of the request.
    pub path: ApiPath,
    /// Hash of the session key.
    pub session_hash: u64,
    /// Prompt tokens as estimated at the decision.
    pub prompt_tokens: u32,
    /// Earlier decision whose prompt shares the longest prefix with this one.
    pub parent: Option<DecisionId>,
    /// Tokens of that shared prefix, estimated as `prompt_tokens`.
    pub shared_tokens: u32,
    /// Replica of the first attempt; `None` on a refusal.
    pub replica: Option<Arc<str>>,
    /// Number of attempts.
    pub attempts: u32,
    /// Round trip to the chosen replica, µs.
    pub rtt_us: Option<i64>,
    /// Error class, if the request failed.
    pub error: Option<ErrorClass>,
    /// First generated content; `None` if none came.
    pub ttft_us: Option<i64>,
    /// Last byte; `None` if the outcome was not stored.
    pub e2e_us: Option<i64>,
    /// Prompt tokens as counted by the engine.
    pub engine_prompt_tokens: Option<u32>,
    /// Prompt tokens that the engine had cached.
    pub cached_tokens: Option<u32>,
    /// Cached tokens predicted at the decision, estimated as `prompt_tokens`.
    pub predicted_cached_tokens: Option<u32>,
    /// Tokens generated.
    pub completion_tokens: Option<u32>,
}

impl HistoryReader {
    /// Reads up to `limit` requests since `from`, oldest first.
    ///
    /// # Errors
    /// As [`HistoryReader::decisions`].
    pub async fn requests(&self, from: DecisionId, limit: u32) -> Result<Vec<StoredRequest>, StoreError> {
        // Names are resolved here instead of by a join: they are few, and the requests may be millions.
        let replicas = self.names(sql::READ_REPLICAS).await?;
        let query = sqlx::query(sql::READ_REQUESTS).bind(from.0).bind(limit);
        let rows = query.fetch_all(self.pool()).await.map_err(|cause| self.failed(cause))?;
        let mut requests = Vec::with_capacity(rows.len());
        for row in &rows {
            // The path column is never NULL, so an unknown number is an error; a replica whose name is lost is no
            // reason to fail.
            let path: i64 = self.get(row, 3)?;
            let replica: Option<i64> = self.get(row, 8)?;
            requests.push(StoredRequest {
                decision: DecisionId(self.get(row, 0)?),
                run: self.get(row, 1)?,
                received: UnixMicros(self.get::<i64>(row, 2)?.cast_unsigned()),
                path: self.needed(<ApiPath as ClosedList>::of(path), ApiPath::TABLE, ApiPath::COLUMN, path)?,
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
