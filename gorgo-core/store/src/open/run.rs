//! The beginning of a run: its program, configuration, fleet and policies, and the numbers under which they are stored.
//!
//! Numbers are stable over restarts: a replica keeps its number by name, a policy by name and digest. A run without
//! `ended_at_us` is running or was killed.

use std::sync::Arc;

use sha2::{Digest, Sha256};
use sqlx::SqliteConnection;

use crate::open::HistoryDatabase;
use crate::table::weights;
use crate::write::sink::{HistorySink, StoreTrouble};
use crate::write::writer::HistoryWriter;
use crate::{StoreError, sql};
use gorgo_routing::config;
use gorgo_routing::model::{Clock, PolicyBuildId, PolicyWeights, ReplicaId, UnixMicros};

/// Description of a run.
#[derive(Debug, Clone, PartialEq)]
pub struct RunInfo {
    /// Start of the run.
    pub started: UnixMicros,
    /// Version of the program.
    pub version: String,
    /// Effective configuration as text, without secrets.
    pub config_text: String,
    /// Policy that serves.
    pub default_policy: PolicyBuildId,
    /// Seed of the run's randomness.
    pub seed: u64,
    /// The fleet; positions are [`ReplicaId`]s.
    pub replicas: Vec<ReplicaInfo>,
    /// The policies that were built; positions are [`PolicyBuildId`]s.
    pub policies: Vec<PolicyInfo>,
}

/// Replica as stored in the database.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReplicaInfo {
    /// Unique name, by which the replica keeps its number.
    pub name: String,
    /// Region.
    pub region: String,
    /// Name of the engine's kind.
    pub engine: String,
    /// Address, without user or password.
    pub url: Option<String>,
}

/// Policy as stored in the database.
#[derive(Debug, Clone, PartialEq)]
pub struct PolicyInfo {
    /// Name of the policy.
    pub name: String,
    /// Effective TOML text, from which the policy can be built again; presets have one too.
    pub text: String,
    /// Terms, in slot order.
    pub terms: Vec<TermInfo>,
    /// Weights that the policy starts with.
    pub weights: PolicyWeights,
}

/// Term of a policy as stored in the database.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TermInfo {
    /// Name, unique in the policy.
    pub name: String,
    /// Kind of the term.
    pub kind: String,
    /// Unit of the signal.
    pub unit: String,
    /// SHA-256 of the plugin's library, hexadecimal, if the term is a plugin.
    pub plugin_sha256: Option<String>,
}

/// Numbers under which a run's parts are stored.
#[derive(Debug)]
pub(crate) struct StoredIds {
    pub(crate) run: i64,
    replicas: Vec<i64>,
    policies: Vec<i64>,
}

impl StoredIds {
    /// Number of a replica; `None` if the run did not begin with it.
    pub(crate) fn replica(&self, replica: ReplicaId) -> Option<i64> {
        self.replicas.get(replica.index()).copied()
    }

    /// Assigns numbers to policies that were loaded later.
    pub(crate) async fn add(
        &mut self,
        connection: &mut SqliteConnection,
        policies: &[PolicyInfo],
        from: UnixMicros,
    ) -> Result<(), sqlx::Error> {
        sqlx::query(sql::BEGIN).execute(&mut *connection).await?;
        match write_later(connection, self.run, policies, from).await {
            Ok(mut ids) => {
                sqlx::query(sql::COMMIT).execute(&mut *connection).await?;
                // After the commit: positions are `PolicyBuildId`s, and a failed attempt must not shift them.
                self.policies.append(&mut ids);
                Ok(())
            }
            Err(cause) => {
                // Report the first failure; a rollback that fails too adds nothing.
                let _ = sqlx::query(sql::ROLLBACK).execute(&mut *connection).await;
                Err(cause)
            }
        }
    }

    /// Number of a policy; `None` if it has none yet.
    pub(crate) fn policy(&self, policy: PolicyBuildId) -> Option<i64> {
        self.policies.get(policy.index()).copied()
    }
}

impl HistoryDatabase {
    /// Stores the run, and returns the sink for its records and their writer: the caller spawns [`HistoryWriter::run`].
    /// `trouble` is called with everything that an operator should know; it must not wait.
    ///
    /// # Errors
    /// When SQLite fails.
    pub async fn begin_run(
        mut self,
        run: &RunInfo,
        settings: &config::StoreConfig,
        clock: Arc<dyn Clock>,
        trouble: Box<dyn Fn(StoreTrouble) + Send + Sync>,
    ) -> Result<(HistorySink, HistoryWriter), StoreError> {
        let ids = match write_run(&mut self.connection, run).await {
            Ok(ids) => ids,
            Err(cause) => return Err(StoreError::Sql { path: self.path, cause }),
        };
        Ok(HistoryWriter::new(self, ids, settings, clock, trouble))
    }
}

async fn write_run(connection: &mut SqliteConnection, run: &RunInfo) -> Result<StoredIds, sqlx::Error> {
    sqlx::query(sql::BEGIN).execute(&mut *connection).await?;
    match write_parts(connection, run).await {
        Ok(ids) => {
            sqlx::query(sql::COMMIT).execute(&mut *connection).await?;
            Ok(ids)
        }
        Err(cause) => {
            // Report the first failure; a rollback that fails too adds nothing.
            let _ = sqlx::query(sql::ROLLBACK).execute(&mut *connection).await;
            Err(cause)
        }
    }
}

async fn write_parts(connection: &mut SqliteConnection, run: &RunInfo) -> Result<StoredIds, sqlx::Error> {
    // By digest, so that restarts with the same configuration or policy share one row.
    let config_sha256 = format!("{:x}", Sha256::digest(&run.config_text));
    sqlx::query(sql::ADD_CONFIG).bind(&config_sha256).bind(&run.config_text).execute(&mut *connection).await?;
    let config: i64 = sqlx::query_scalar(sql::CONFIG_ID).bind(&config_sha256).fetch_one(&mut *connection).await?;

    let mut replicas = Vec::with_capacity(run.replicas.len());
    for replica in &run.replicas {
        let query = sqlx::query_scalar(sql::PUT_REPLICA);
        let query = query.bind(&replica.name).bind(&replica.region).bind(&replica.engine).bind(&replica.url);
        replicas.push(query.fetch_one(&mut *connection).await?);
    }
    let mut policies = Vec::with_capacity(run.policies.len());
    for policy in &run.policies {
        policies.push(write_policy(connection, policy).await?);
    }

    let default_policy = policies.get(run.default_policy.index()).copied();
    let started_us = run.started.micros();
    let query = sqlx::query_scalar(sql::ADD_RUN).bind(started_us).bind(&run.version).bind(config);
    let query = query.bind(default_policy).bind(run.seed.cast_signed()).bind(i64::from(std::process::id()));
    let run_id = query.fetch_one(&mut *connection).await?;

    // A killed run left its weights without an end, its alarms on, and a generation without a verdict. This is the
    // first moment at which that is certain: the lock shows that no other process writes.
    for text in [sql::CLOSE_ALL_WEIGHTS, sql::CLEAR_ALL_ALARMS, sql::CUT_GENERATIONS] {
        sqlx::query(text).bind(started_us).execute(&mut *connection).await?;
    }
    for (policy, policy_id) in run.policies.iter().zip(&policies) {
        write_weights(connection, (run_id, *policy_id), &policy.weights, started_us).await?;
    }
    Ok(StoredIds { run: run_id, replicas, policies })
}

/// Stores policies that were loaded during the run. Weights of replaced policies stay open for requests in flight.
async fn write_later(
    connection: &mut SqliteConnection,
    run_id: i64,
    policies: &[PolicyInfo],
    from: UnixMicros,
) -> Result<Vec<i64>, sqlx::Error> {
    let mut ids = Vec::with_capacity(policies.len());
    for policy in policies {
        let id = write_policy(connection, policy).await?;
        // A build that was used before in this run, and is now back, may have weights that are still open.
        let query = sqlx::query(weights::CLOSE).bind(from.micros()).bind(run_id).bind(id);
        query.execute(&mut *connection).await?;
        write_weights(connection, (run_id, id), &policy.weights, from.micros()).await?;
        ids.push(id);
    }
    Ok(ids)
}

async fn write_weights(
    connection: &mut SqliteConnection,
    (run_id, policy_id): (i64, i64),
    weights: &PolicyWeights,
    from_us: i64,
) -> Result<(), sqlx::Error> {
    let generation = i64::try_from(weights.generation.0).unwrap_or(i64::MAX);
    // Slots count from 1 in the database.
    for (slot, value) in (1_i64..).zip(&weights.values) {
        let query = sqlx::query(weights::INSERT.one).bind(run_id).bind(policy_id).bind(generation);
        query.bind(slot).bind(from_us).bind(value).execute(&mut *connection).await?;
    }
    Ok(())
}

async fn write_policy(connection: &mut SqliteConnection, policy: &PolicyInfo) -> Result<i64, sqlx::Error> {
    let sha256 = policy.digest();
    let query = sqlx::query(sql::ADD_POLICY).bind(&policy.name).bind(&sha256).bind(&policy.text);
    query.execute(&mut *connection).await?;
    let query = sqlx::query_scalar(sql::POLICY_ID).bind(&policy.name).bind(&sha256);
    let id: i64 = query.fetch_one(&mut *connection).await?;
    for (slot, term) in (1_i64..).zip(&policy.terms) {
        let query = sqlx::query(sql::ADD_TERM).bind(id).bind(slot).bind(&term.name).bind(&term.kind);
        query.bind(&term.unit).bind(&term.plugin_sha256).execute(&mut *connection).await?;
    }
    Ok(id)
}

impl PolicyInfo {
    /// Computes SHA-256 over the text and everything that the terms resolve to, so that a rebuilt plugin makes another
    /// policy. Each part is preceded by its length, so that shifting text between parts changes the digest.
    #[must_use]
    pub fn digest(&self) -> String {
        let mut hash = Sha256::new();
        let mut part = |text: &str| {
            hash.update(text.len().to_le_bytes());
            hash.update(text);
        };
        part(&self.text);
        for term in &self.terms {
            part(&term.name);
            part(&term.kind);
            part(&term.unit);
            part(term.plugin_sha256.as_deref().unwrap_or_default());
        }
        format!("{:x}", hash.finalize())
    }
}
