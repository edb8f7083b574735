//! What tuners write down, and what they go on from: generations, their scores, alarms. Few rows, one by one.

use sqlx::SqliteConnection;

use super::batch::{Batcher, Part};
use super::insert::insert_all;
use super::loss::Table;
use super::open::Store;
use super::run::PolicyInfo;
use super::{StoreError, sql};
use gorgo_routing::model::{AlarmRecord, GenerationRecord, Verdict};

/// What a policy's tuner left in the database.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LastTuning {
    /// The newest state that was saved, JSON; generations that were cut later are not in it.
    pub state: Option<String>,
    /// The highest generation, cut or not.
    pub generation: u64,
}

impl Batcher {
    pub(super) async fn write_tuning(
        &self,
        connection: &mut SqliteConnection,
        generations: &[&GenerationRecord],
        alarms: &[&AlarmRecord],
        parts: &mut Vec<Part>,
    ) -> Result<(), sqlx::Error> {
        for row in generations {
            let policy = self.ids.policy(row.policy);
            let generation = i64::try_from(row.generation.0).unwrap_or(i64::MAX);
            let parent = row.parent.map(|parent| i64::try_from(parent.0).unwrap_or(i64::MAX));
            let query = sqlx::query(sql::ADD_GENERATION).bind(policy).bind(generation).bind(self.ids.run);
            let query =
                query.bind(parent).bind(row.started.micros()).bind(row.ended.map(gorgo_routing::model::At::micros));
            let query = query.bind(row.optimizer).bind(row.sigma).bind(row.state.as_deref());
            let query = query.bind(row.blocks.0).bind(row.blocks.1);
            let query = query.bind(row.verdict.map(Verdict::name)).bind(row.reason.as_deref());
            let taken = query.execute(&mut *connection).await?.rows_affected();
            parts.push(Part { table: Table::Generations, rows: 1, taken });
            let taken = insert_all(connection, &sql::GENERATION_SCORES, &row.scores, |to, score| {
                to.maybe(policy);
                to.int(generation);
                to.int(score.arm);
                to.add(score.statistic);
                to.add(score.value);
                to.add(score.low);
                to.add(score.high);
                to.unsigned(score.samples);
            })
            .await?;
            parts.push(Part { table: Table::GenerationScores, rows: row.scores.len(), taken });
        }
        for alarm in alarms {
            let text = if alarm.over { sql::CLEAR_ALARM } else { sql::RAISE_ALARM };
            let query = sqlx::query(text).bind(self.ids.run).bind(alarm.kind.as_str()).bind(alarm.at.micros());
            if alarm.over {
                query.execute(&mut *connection).await?;
            } else {
                let taken = query.bind(alarm.value).execute(&mut *connection).await?.rows_affected();
                parts.push(Part { table: Table::Alarms, rows: 1, taken });
            }
        }
        Ok(())
    }
}

impl Store {
    /// What the tuner of exactly this policy (same name, same digest) left behind; `None` where it never ran.
    ///
    /// # Errors
    /// What SQLite says.
    pub async fn last_tuning(&mut self, policy: &PolicyInfo) -> Result<Option<LastTuning>, StoreError> {
        let query = sqlx::query_as(sql::LAST_TUNING).bind(&policy.name).bind(policy.digest());
        let found: Option<(Option<String>, Option<i64>)> = query
            .fetch_optional(&mut self.connection)
            .await
            .map_err(|cause| StoreError::Sql { path: self.path.clone(), cause })?;
        Ok(found.and_then(|(state, generation)| {
            Some(LastTuning { state, generation: u64::try_from(generation?).unwrap_or(0) })
        }))
    }
}
