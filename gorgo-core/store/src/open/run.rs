//! The beginning of a run: which program, configuration, fleet and policies, and under which numbers they are stored.
//!
//! Numbers are stable: a replica keeps its number by name, a policy by name and digest, over restarts. A run without
//! `ended_at_us` is running or was killed.

use std::sync::Arc;

use sha2::{Digest, Sha256};
use sqlx::SqliteConnection;

use crate::open::Store;
use crate::table::weights;
use crate::write::sink::{Sink, Trouble};
use crate::write::writer::Writer;
use crate::{StoreError, sql};
use gorgo_routing::config;
use gorgo_routing::model::{At, Clock, PolicyBuildId, ReplicaId, Weights};

/// What a run is made of.
#[derive(Debug, Clone, PartialEq)]
pub struct RunInfo {
    /// When it started.
    pub started: At,
    /// The program's version.
    pub version: String,
    /// The effective configuration as text, without secrets.
    pub config_text: String,
    /// The policy that serves.
    pub default_policy: PolicyBuildId,
    /// Seed of the run's randomness.
    pub seed: u64,
    /// The fleet; positions are [`ReplicaId`]s.
    pub replicas: Vec<ReplicaInfo>,
    /// The policies that were built; positions are [`PolicyBuildId`]s.
    pub policies: Vec<PolicyInfo>,
}

/// A replica as the database names it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReplicaInfo {
    /// Its unique name, which keeps its number.
    pub name: String,
    /// Its region.
    pub region: String,
    /// Its engine.
    pub engine: String,
    /// Its address, without user or password.
    pub url: Option<String>,
}

/// A policy as the database names it.
#[derive(Debug, Clone, PartialEq)]
pub struct PolicyInfo {
    /// Its name.
    pub name: String,
    /// Its effective TOML text, from which it can be built again; also of a preset.
    pub text: String,
    /// Its terms, in slot order.
    pub terms: Vec<TermInfo>,
    /// The weights it starts with.
    pub weights: Weights,
}

/// A term of a policy as the database names it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TermInfo {
    /// Its name, unique in the policy.
    pub name: String,
    /// Its kind.
    pub kind: String,
    /// The unit of its signal.
    pub unit: String,
    /// SHA-256 of the plugin's library, hexadecimal, where it is one.
    pub plugin_sha256: Option<String>,
}

/// The numbers under which a run's parts are stored.
#[derive(Debug)]
pub(crate) struct Ids {
    pub(crate) run: i64,
    replicas: Vec<i64>,
    policies: Vec<i64>,
}

impl Ids {
    /// `None` for a replica that the run did not begin with.
    pub(crate) fn replica(&self, replica: ReplicaId) -> Option<i64> {
        self.replicas.get(replica.index()).copied()
    }

    /// Gives numbers to policies that came later.
    pub(crate) async fn add(
        &mut self,
        connection: &mut SqliteConnection,
        policies: &[PolicyInfo],
        from: At,
    ) -> Result<(), sqlx::Error> {
        sqlx::query(sql::BEGIN).execute(&mut *connection).await?;
        match write_later(connection, self.run, policies, from).await {
            Ok(mut ids) => {
                sqlx::query(sql::COMMIT).execute(&mut *connection).await?;
                self.policies.append(&mut ids);
                Ok(())
            }
            Err(cause) => {
                // The first failure is the one to tell.
                let _ = sqlx::query(sql::ROLLBACK).execute(&mut *connection).await;
                Err(cause)
            }
        }
    }

    /// `None` for a policy that has no number yet.
    pub(crate) fn policy(&self, policy: PolicyBuildId) -> Option<i64> {
        self.policies.get(policy.index()).copied()
    }
}

impl Store {
    /// Writes down the run, and returns where its records go and what writes them: the caller spawns
    /// [`Writer::run`]. `trouble` is told of what a person should know; it must not wait.
    ///
    /// # Errors
    /// What SQLite says.
    pub async fn begin_run(
        mut self,
        run: &RunInfo,
        settings: &config::Store,
        clock: Arc<dyn Clock>,
        trouble: Box<dyn Fn(Trouble) + Send + Sync>,
    ) -> Result<(Sink, Writer), StoreError> {
        let ids = match write_run(&mut self.connection, run).await {
            Ok(ids) => ids,
            Err(cause) => return Err(StoreError::Sql { path: self.path, cause }),
        };
        Ok(Writer::new(self, ids, settings, clock, trouble))
    }
}

async fn write_run(connection: &mut SqliteConnection, run: &RunInfo) -> Result<Ids, sqlx::Error> {
    sqlx::query(sql::BEGIN).execute(&mut *connection).await?;
    match write_parts(connection, run).await {
        Ok(ids) => {
            sqlx::query(sql::COMMIT).execute(&mut *connection).await?;
            Ok(ids)
        }
        Err(cause) => {
            // The first failure is the one to tell.
            let _ = sqlx::query(sql::ROLLBACK).execute(&mut *connection).await;
            Err(cause)
        }
    }
}

async fn write_parts(connection: &mut SqliteConnection, run: &RunInfo) -> Result<Ids, sqlx::Error> {
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

    // A run that was killed left its weights open, its alarms on, and a generation without a verdict.
    for text in [sql::CLOSE_ALL_WEIGHTS, sql::CLEAR_ALL_ALARMS, sql::CUT_GENERATIONS] {
        sqlx::query(text).bind(started_us).execute(&mut *connection).await?;
    }
    for (policy, policy_id) in run.policies.iter().zip(&policies) {
        write_weights(connection, (run_id, *policy_id), &policy.weights, started_us).await?;
    }
    Ok(Ids { run: run_id, replicas, policies })
}

/// Policies that came while the run was going on. The weights of their predecessors stay open for what still runs.
async fn write_later(
    connection: &mut SqliteConnection,
    run_id: i64,
    policies: &[PolicyInfo],
    from: At,
) -> Result<Vec<i64>, sqlx::Error> {
    let mut ids = Vec::with_capacity(policies.len());
    for policy in policies {
        let id = write_policy(connection, policy).await?;
        // One that was there before, in another build, may have weights that are still open.
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
    weights: &Weights,
    from_us: i64,
) -> Result<(), sqlx::Error> {
    let generation = i64::try_from(weights.generation.0).unwrap_or(i64::MAX);
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
    /// SHA-256 over the text and all that the terms resolve to, so that a rebuilt plugin makes another policy.
    /// Each part is preceded by its length; no two policies share a digest by the way their parts are cut.
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
