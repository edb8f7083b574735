//! The numbers under which the parts of a run are stored; rows contain them instead of names.

use std::collections::HashMap;
use std::sync::Arc;

use sqlx::SqliteConnection;

use crate::open::run::StoredIds;
use crate::sql;
use gorgo_routing::model::{PolicyBuildId, ReplicaId, StoreRecord};

/// All numbers that rows may refer to.
#[derive(Debug)]
pub(crate) struct RowNumbers {
    /// Numbers assigned when the run began or a policy was loaded.
    pub(crate) ids: StoredIds,
    models: NameTable,
    constraints: NameTable,
}

impl RowNumbers {
    pub(crate) fn new(ids: StoredIds) -> Self {
        Self { ids, models: NameTable::models(), constraints: NameTable::constraints() }
    }

    pub(crate) fn run(&self) -> i64 {
        self.ids.run
    }

    /// Number of a replica; `None` if the run did not begin with it.
    pub(crate) fn replica(&self, replica: ReplicaId) -> Option<i64> {
        self.ids.replica(replica)
    }

    /// Number of a policy; `None` if it has none yet.
    pub(crate) fn policy(&self, policy: PolicyBuildId) -> Option<i64> {
        self.ids.policy(policy)
    }

    /// Number of a model; `None` if its name came after the limit of names.
    pub(crate) fn model(&self, name: Option<&Arc<str>>) -> Option<i64> {
        name.and_then(|name| self.models.id(name))
    }

    /// Number of a constraint; `None` likewise.
    pub(crate) fn constraint(&self, name: Option<&Arc<str>>) -> Option<i64> {
        name.and_then(|name| self.constraints.id(name))
    }

    /// Assigns numbers to new names of a batch. Outside the batch's transaction, so that a rollback cannot revoke a
    /// number that `known` keeps.
    pub(crate) async fn learn_names(
        &mut self,
        connection: &mut SqliteConnection,
        records: &[StoreRecord],
    ) -> Result<(), sqlx::Error> {
        for record in records {
            let candidates = match record {
                StoreRecord::Decision(decision) => {
                    if let Some(model) = &decision.model {
                        self.models.learn(connection, model).await?;
                    }
                    &decision.candidates
                }
                // Candidates of later attempts may be excluded by a constraint that excluded nobody before.
                StoreRecord::Candidates { rows, .. } => rows,
                _ => continue,
            };
            for constraint in candidates.iter().filter_map(|candidate| candidate.excluded_by.as_ref()) {
                self.constraints.learn(connection, constraint).await?;
            }
        }
        Ok(())
    }
}

/// Limit of different names that a run writes to one list. Clients choose model names, and a client that invents them
/// must not fill the disk.
const MAX_NAMES: usize = 10_000;
/// Length to which a name is cut, bytes; for the same reason.
const MAX_NAME_BYTES: usize = 200;

/// Names that get their number when they first occur.
#[derive(Debug)]
struct NameTable {
    known: HashMap<Arc<str>, i64>,
    add: &'static str,
    id: &'static str,
}

impl NameTable {
    fn models() -> Self {
        Self { known: HashMap::new(), add: sql::ADD_MODEL, id: sql::MODEL_ID }
    }

    fn constraints() -> Self {
        Self { known: HashMap::new(), add: sql::ADD_CONSTRAINT, id: sql::CONSTRAINT_ID }
    }

    /// Assigns a number to `name` if it has none, unless there are too many names.
    async fn learn(&mut self, connection: &mut SqliteConnection, name: &Arc<str>) -> Result<(), sqlx::Error> {
        // Checked first, so that the common case costs one lookup and no statement.
        if self.known.contains_key(name) || self.known.len() >= MAX_NAMES {
            return Ok(());
        }
        // Names that differ only beyond the limit share a number.
        let stored = &name[..name.floor_char_boundary(MAX_NAME_BYTES)];
        sqlx::query(self.add).bind(stored).execute(&mut *connection).await?;
        let id = sqlx::query_scalar(self.id).bind(stored).fetch_one(&mut *connection).await?;
        self.known.insert(Arc::clone(name), id);
        Ok(())
    }

    /// Number of `name`, if it has one.
    fn id(&self, name: &str) -> Option<i64> {
        self.known.get(name).copied()
    }
}
