//! Rows → model: decisions with everything that is needed to repeat them, and their outcomes. Read-only, over separate
//! connections, so that a long read delays no write.

pub(crate) mod bench;
pub(crate) mod requests;
pub(crate) mod stored;
pub(crate) mod weights;

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use sqlx::sqlite::{SqliteConnectOptions, SqlitePoolOptions, SqliteRow};
use sqlx::{ConnectOptions, Row, SqlitePool};

use self::stored::{StoredAttempt, StoredCandidate, StoredDecision, StoredPolicy, StoredShadow};
use crate::codes::ClosedList;
use crate::open::run::TermInfo;
use crate::open::schema;
use crate::{StoreError, sql};
use gorgo_routing::model::{ApiPath, DecisionId, Generation, OutcomeRecord, UnixMicros, VOID_MILLI};

/// Number of connections that may read at once.
const CONNECTIONS: u32 = 4;
/// Rows per query: the most decisions in a page.
const PAGE: u32 = 1_000;

/// Reader of a history database.
#[derive(Debug, Clone)]
pub struct HistoryReader {
    pool: SqlitePool,
    path: PathBuf,
}

/// Names and policies by number, read once per call.
struct NameLists {
    replicas: HashMap<i64, Arc<str>>,
    models: HashMap<i64, Arc<str>>,
    constraints: HashMap<i64, Arc<str>>,
    policies: HashMap<i64, Arc<StoredPolicy>>,
}

impl HistoryReader {
    /// Opens a history database for reading; a router may be writing it.
    ///
    /// # Errors
    /// When the file is missing, damaged, of another program, or of another version of gorgo.
    pub async fn open(path: &Path) -> Result<Self, StoreError> {
        let unreadable = |cause| StoreError::Unreadable { path: path.to_owned(), cause };
        // SQLite's own error for a missing file does not name the cause.
        std::fs::File::open(path).map_err(unreadable)?;
        let options = SqliteConnectOptions::new()
            .filename(path)
            .read_only(true)
            .busy_timeout(Duration::from_secs(5))
            .disable_statement_logging();
        let failed = |cause| schema::opening(path, cause);
        let pool = SqlitePoolOptions::new().max_connections(CONNECTIONS).connect_with(options).await.map_err(failed)?;
        let mut connection = pool.acquire().await.map_err(failed)?;
        let found = schema::version(&mut connection, path).await?;
        drop(connection);
        // A reader cannot migrate: views and columns that its queries name are missing in an older file.
        if found < schema::NEWEST {
            return Err(StoreError::Older { path: path.to_owned(), found, known: schema::NEWEST });
        }
        Ok(Self { pool, path: path.to_owned() })
    }

    /// Reads up to `limit` decisions since `from`, oldest first.
    ///
    /// # Errors
    /// When SQLite fails, or a row has a number without meaning in this program.
    pub async fn decisions(&self, from: DecisionId, limit: u32) -> Result<Vec<StoredDecision>, StoreError> {
        let lists = self.lists().await?;
        // Shared by all decisions of a run, policy and generation: thousands have the same weights.
        let mut weights = HashMap::new();
        let mut decisions = Vec::new();
        let mut from = from.0;
        let mut left = limit;
        // In pages: a long read transaction would keep the write-ahead log from being truncated.
        while left > 0 {
            let page = left.min(PAGE);
            let query = sqlx::query(sql::READ_DECISIONS).bind(from).bind(page);
            let rows = query.fetch_all(&self.pool).await.map_err(|cause| self.failed(cause))?;
            let (Some(first), Some(last)) = (rows.first(), rows.last()) else {
                break;
            };
            let (first, last): (i64, i64) = (self.get(first, 0)?, self.get(last, 0)?);
            // One query per table and page, not per decision: the rows are then sorted to their decisions.
            let mut candidates = self.candidates(first, last, &lists).await?;
            let mut shadows = self.shadows(first, last, &lists).await?;
            for row in &rows {
                let mut decision = self.decision(row, &lists)?;
                let key = (decision.run, self.get::<i64>(row, 6)?, self.get::<i64>(row, 7)?);
                decision.weights = match weights.get(&key) {
                    Some(known) => Arc::clone(known),
                    None => {
                        let read = self.weights(key).await?;
                        weights.insert(key, Arc::clone(&read));
                        read
                    }
                };
                decision.candidates = candidates.remove(&decision.decision).unwrap_or_default();
                decision.shadows = shadows.remove(&decision.decision).unwrap_or_default();
                // `candidates` fills eight slots or more; the policy's terms are the number that counts.
                let slots = decision.policy.terms.len();
                for candidate in &mut decision.candidates {
                    candidate.signals_milli.resize(slots, VOID_MILLI);
                    candidate.costs_milli.resize(slots, VOID_MILLI);
                }
                decisions.push(decision);
            }
            left -= page;
            // Not an OFFSET, which would read all skipped rows again and shift when old ones are pruned.
            from = last.saturating_add(1);
        }
        Ok(decisions)
    }

    /// Reads the newest `limit` decisions, oldest first.
    ///
    /// # Errors
    /// As [`HistoryReader::decisions`].
    pub async fn newest_decisions(&self, limit: u32) -> Result<Vec<StoredDecision>, StoreError> {
        let query = sqlx::query_scalar(sql::NEWEST_START).bind(limit);
        let start: Option<i64> = query.fetch_one(&self.pool).await.map_err(|cause| self.failed(cause))?;
        match start {
            Some(start) => self.decisions(DecisionId(start), limit).await,
            None => Ok(Vec::new()),
        }
    }

    /// Reads up to `limit` outcomes since `from`, oldest decision first.
    ///
    /// # Errors
    /// As [`HistoryReader::decisions`].
    pub async fn outcomes(&self, from: DecisionId, limit: u32) -> Result<Vec<OutcomeRecord>, StoreError> {
        let query = sqlx::query(sql::READ_OUTCOMES).bind(from.0).bind(limit);
        let rows = query.fetch_all(&self.pool).await.map_err(|cause| self.failed(cause))?;
        rows.iter().map(|row| self.outcome(row)).collect()
    }

    /// Reads up to `limit` attempts since `from`, oldest decision first.
    ///
    /// # Errors
    /// As [`HistoryReader::decisions`].
    pub async fn attempts(&self, from: DecisionId, limit: u32) -> Result<Vec<StoredAttempt>, StoreError> {
        let replicas = self.names(sql::READ_REPLICAS).await?;
        let query = sqlx::query(sql::READ_ATTEMPTS).bind(from.0).bind(limit);
        let rows = query.fetch_all(&self.pool).await.map_err(|cause| self.failed(cause))?;
        rows.iter().map(|row| self.attempt(row, &replicas)).collect()
    }

    /// Closes all connections.
    pub async fn close(self) {
        self.pool.close().await;
    }

    pub(crate) const fn pool(&self) -> &SqlitePool {
        &self.pool
    }

    pub(crate) fn failed(&self, cause: sqlx::Error) -> StoreError {
        schema::opening(&self.path, cause)
    }

    pub(crate) fn get<'r, T>(&self, row: &'r SqliteRow, column: usize) -> Result<T, StoreError>
    where
        T: sqlx::Decode<'r, sqlx::Sqlite> + sqlx::Type<sqlx::Sqlite>,
    {
        row.try_get(column).map_err(|cause| self.failed(cause))
    }

    pub(crate) fn code<C: ClosedList>(&self, row: &SqliteRow, column: usize) -> Result<Option<C>, StoreError> {
        let code: Option<i64> = self.get(row, column)?;
        // NULL is unknown; a number that is not in the list is an error, never a default.
        code.map(|value| {
            let unknown =
                || StoreError::UnknownCode { path: self.path.clone(), table: C::TABLE, column: C::COLUMN, value };
            C::of(value).ok_or_else(unknown)
        })
        .transpose()
    }

    pub(crate) fn needed<T>(
        &self,
        value: Option<T>,
        table: &'static str,
        column: &'static str,
        code: i64,
    ) -> Result<T, StoreError> {
        value.ok_or_else(|| StoreError::UnknownCode { path: self.path.clone(), table, column, value: code })
    }

    pub(crate) async fn names(&self, list: &'static str) -> Result<HashMap<i64, Arc<str>>, StoreError> {
        let rows: Vec<(i64, String)> =
            sqlx::query_as(list).fetch_all(&self.pool).await.map_err(|cause| self.failed(cause))?;
        Ok(rows.into_iter().map(|(id, name)| (id, name.into())).collect())
    }

    async fn lists(&self) -> Result<NameLists, StoreError> {
        let failed = |cause| self.failed(cause);
        let policies: Vec<(i64, String, String, String)> =
            sqlx::query_as(sql::READ_POLICIES).fetch_all(&self.pool).await.map_err(failed)?;
        let mut terms: HashMap<i64, Vec<TermInfo>> = HashMap::new();
        let rows: Vec<(i64, String, String, String, Option<String>)> =
            sqlx::query_as(sql::READ_TERMS).fetch_all(&self.pool).await.map_err(failed)?;
        for (policy, name, kind, unit, plugin_sha256) in rows {
            terms.entry(policy).or_default().push(TermInfo { name, kind, unit, plugin_sha256 });
        }
        let policies = policies.into_iter().map(|(id, name, sha256, text)| {
            let terms = terms.remove(&id).unwrap_or_default();
            (id, Arc::new(StoredPolicy { name, sha256, text, terms }))
        });
        Ok(NameLists {
            replicas: self.names(sql::READ_REPLICAS).await?,
            models: self.names(sql::READ_MODELS).await?,
            constraints: self.names(sql::READ_CONSTRAINTS).await?,
            policies: policies.collect(),
        })
    }

    async fn weights(&self, (run, policy, generation): (i64, i64, i64)) -> Result<Arc<[f64]>, StoreError> {
        let query = sqlx::query_scalar(sql::READ_WEIGHTS).bind(run).bind(policy).bind(generation);
        let values: Vec<f64> = query.fetch_all(&self.pool).await.map_err(|cause| self.failed(cause))?;
        Ok(values.into())
    }

    /// Reads the candidates of the decisions from `first` to `last`, with eight slots each, or more if there are more.
    async fn candidates(
        &self,
        first: i64,
        last: i64,
        lists: &NameLists,
    ) -> Result<HashMap<DecisionId, Vec<StoredCandidate>>, StoreError> {
        let failed = |cause| self.failed(cause);
        let query = sqlx::query_as(sql::READ_CANDIDATE_TERMS).bind(first).bind(last);
        let rows: Vec<(i64, i64, i64, i64, i64)> = query.fetch_all(&self.pool).await.map_err(failed)?;
        // Terms beyond the eighth first, to be appended while the candidates are read.
        let mut more: HashMap<(i64, i64), Vec<[i64; 3]>> = HashMap::new();
        for (decision, replica, slot, signal_milli, cost_milli) in rows {
            more.entry((decision, replica)).or_default().push([slot, signal_milli, cost_milli]);
        }
        let query = sqlx::query(sql::READ_CANDIDATES).bind(first).bind(last);
        let mut candidates: HashMap<DecisionId, Vec<StoredCandidate>> = HashMap::new();
        for row in query.fetch_all(&self.pool).await.map_err(failed)? {
            let (decision, replica): (i64, i64) = (self.get(&row, 0)?, self.get(&row, 1)?);
            let mut candidate = self.candidate(&row, replica, lists)?;
            for [slot, signal_milli, cost_milli] in more.remove(&(decision, replica)).unwrap_or_default() {
                // Slots count from 1; skipped slots have no row, because their terms gave no signal.
                let before = usize::try_from(slot - 1).unwrap_or(0);
                candidate.signals_milli.resize(before, VOID_MILLI);
                candidate.costs_milli.resize(before, VOID_MILLI);
                candidate.signals_milli.push(signal_milli);
                candidate.costs_milli.push(cost_milli);
            }
            candidates.entry(DecisionId(decision)).or_default().push(candidate);
        }
        Ok(candidates)
    }

    async fn shadows(
        &self,
        first: i64,
        last: i64,
        lists: &NameLists,
    ) -> Result<HashMap<DecisionId, Vec<StoredShadow>>, StoreError> {
        let query = sqlx::query_as(sql::READ_SHADOWS).bind(first).bind(last);
        let rows: Vec<(i64, i64, i64, i64)> = query.fetch_all(&self.pool).await.map_err(|cause| self.failed(cause))?;
        let mut shadows: HashMap<DecisionId, Vec<StoredShadow>> = HashMap::new();
        for (decision, policy, replica, cost_milli) in rows {
            let policy = self.needed(lists.policies.get(&policy), "policies", "policy_id", policy)?.name.clone();
            let replica = Arc::clone(self.needed(lists.replicas.get(&replica), "replicas", "replica_id", replica)?);
            shadows.entry(DecisionId(decision)).or_default().push(StoredShadow { policy, replica, cost_milli });
        }
        Ok(shadows)
    }

    /// Reads a decision without weights, candidates and shadows.
    fn decision(&self, row: &SqliteRow, lists: &NameLists) -> Result<StoredDecision, StoreError> {
        let policy: i64 = self.get(row, 6)?;
        let replica: Option<i64> = self.get(row, 9)?;
        let replica =
            replica.map(|id| self.needed(lists.replicas.get(&id), "replicas", "replica_id", id)).transpose()?;
        let model: Option<i64> = self.get(row, 4)?;
        let path: i64 = self.get(row, 3)?;
        Ok(StoredDecision {
            decision: DecisionId(self.get(row, 0)?),
            run: self.get(row, 1)?,
            // Columns of unsigned numbers below: the sign bit is the highest bit of the number.
            received: UnixMicros(self.get::<i64>(row, 2)?.cast_unsigned()),
            path: self.needed(<ApiPath as ClosedList>::of(path), ApiPath::TABLE, ApiPath::COLUMN, path)?,
            model: model.and_then(|id| lists.models.get(&id).cloned()),
            session_hash: self.get::<i64>(row, 5)?.cast_unsigned(),
            policy: Arc::clone(self.needed(lists.policies.get(&policy), "policies", "policy_id", policy)?),
            generation: Generation(self.get::<i64>(row, 7)?.cast_unsigned()),
            weights: Arc::default(),
            seed: self.get::<i64>(row, 8)?.cast_unsigned(),
            replica: replica.cloned(),
            refusal: self.code(row, 10)?,
            propensity: self.get(row, 11)?,
            ties: self.get(row, 12)?,
            prompt_tokens: self.get(row, 13)?,
            parent: self.get::<Option<i64>>(row, 14)?.map(DecisionId),
            shared_tokens: self.get(row, 15)?,
            body_bytes: self.get::<i64>(row, 16)?.cast_unsigned(),
            decide_us: self.get(row, 17)?,
            arm: self.get(row, 18)?,
            block: self.get(row, 19)?,
            counted: self.get::<Option<bool>>(row, 20)?.unwrap_or(false),
            candidates: Vec::new(),
            shadows: Vec::new(),
        })
    }

    fn candidate(&self, row: &SqliteRow, replica: i64, lists: &NameLists) -> Result<StoredCandidate, StoreError> {
        let excluded_by: Option<i64> = self.get(row, 2)?;
        // NULL means that a term gave no signal, or that the policy has fewer terms.
        let slots = |first: usize| -> Result<Vec<i64>, StoreError> {
            let mut values = Vec::with_capacity(8);
            for column in first..first + 8 {
                values.push(self.get::<Option<i64>>(row, column)?.unwrap_or(VOID_MILLI));
            }
            Ok(values)
        };
        Ok(StoredCandidate {
            replica: Arc::clone(self.needed(lists.replicas.get(&replica), "replicas", "replica_id", replica)?),
            excluded_by: excluded_by.and_then(|id| lists.constraints.get(&id).cloned()),
            cost_milli: self.get(row, 3)?,
            rtt_us: self.get(row, 4)?,
            rtt_source: self.code(row, 5)?.unwrap_or_default(),
            cached_tokens: self.get(row, 6)?,
            queued_tokens: self.get::<i64>(row, 7)?.cast_unsigned(),
            queued_uncached_tokens: self.get::<i64>(row, 8)?.cast_unsigned(),
            inflight: self.get(row, 9)?,
            report_age_ms: self.get(row, 10)?,
            signals_milli: slots(11)?,
            costs_milli: slots(19)?,
        })
    }

    fn outcome(&self, row: &SqliteRow) -> Result<OutcomeRecord, StoreError> {
        let mut counts = [None; 8];
        for (count, place) in counts.iter_mut().zip(13..) {
            *count = self.get::<Option<u32>>(row, place)?;
        }
        // All eight are NULL or none: an answer with fewer than two contents has no gaps.
        let counted = counts[0].map(|_| counts.map(Option::unwrap_or_default));
        Ok(OutcomeRecord {
            decision: DecisionId(self.get(row, 0)?),
            status: self.get(row, 1)?,
            error: self.code(row, 2)?,
            ttft_us: self.get(row, 3)?,
            first_byte_us: self.get(row, 4)?,
            e2e_us: self.get(row, 5)?,
            itl_mean_us: self.get(row, 6)?,
            itl_p99_us: self.get(row, 7)?,
            itl_counts: counted,
            prompt_tokens: self.get(row, 8)?,
            cached_tokens: self.get(row, 9)?,
            completion_tokens: self.get(row, 10)?,
            predicted_ttft_us: self.get(row, 11)?,
            predicted_cached_tokens: self.get(row, 12)?,
        })
    }

    fn attempt(&self, row: &SqliteRow, replicas: &HashMap<i64, Arc<str>>) -> Result<StoredAttempt, StoreError> {
        let replica: i64 = self.get(row, 2)?;
        Ok(StoredAttempt {
            decision: DecisionId(self.get(row, 0)?),
            attempt: self.get(row, 1)?,
            replica: Arc::clone(self.needed(replicas.get(&replica), "replicas", "replica_id", replica)?),
            connection: self.code(row, 3)?,
            connect_us: self.get(row, 4)?,
            sent_us: self.get(row, 5)?,
            first_byte_us: self.get(row, 6)?,
            ended_us: self.get(row, 7)?,
            status: self.get(row, 8)?,
            error: self.code(row, 9)?,
        })
    }
}
