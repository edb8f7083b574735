//! Records → rows: one transaction for a batch, table by table.

use sqlx::SqliteConnection;

use super::loss::{RowLoss, RowLosses};
use super::numbers::RowNumbers;
use super::statement::BatchStatements;
use crate::sql;
use crate::table::TABLES;
use gorgo_routing::model::StoreRecord;

/// Input from which tables make rows.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Batch<'r> {
    pub(crate) records: &'r [StoreRecord],
    /// Rows lost since the last batch.
    pub(crate) losses: &'r RowLosses,
    pub(crate) numbers: &'r RowNumbers,
}

/// Rows of a table that SQLite did not insert.
struct Missing {
    /// Index in [`TABLES`].
    table: usize,
    rows: u64,
}

/// Writes all records and the losses, or nothing. Returns the rows that SQLite ignored one by one: rows with a key that
/// exists already, or that break a rule of the schema.
pub(crate) async fn write(
    connection: &mut SqliteConnection,
    numbers: &mut RowNumbers,
    records: &[StoreRecord],
    losses: &RowLosses,
) -> Result<RowLosses, sqlx::Error> {
    numbers.learn_names(connection, records).await?;
    sqlx::query(sql::BEGIN).execute(&mut *connection).await?;
    let written = match write_tables(connection, &Batch { records, losses, numbers }).await {
        Ok(missing) => sqlx::query(sql::COMMIT).execute(&mut *connection).await.map(|_| missing),
        Err(cause) => Err(cause),
    };
    match written {
        Ok(missing) => Ok(refused(records, &missing)),
        Err(cause) => {
            // Fails if SQLite has already rolled back by itself, as it does on some errors: nothing is left to do then.
            let _ = sqlx::query(sql::ROLLBACK).execute(&mut *connection).await;
            Err(cause)
        }
    }
}

async fn write_tables(connection: &mut SqliteConnection, batch: &Batch<'_>) -> Result<Vec<Missing>, sqlx::Error> {
    let mut missing = Vec::new();
    // Table by table, so that rows of many records share a statement.
    for (place, table) in TABLES.iter().enumerate() {
        let mut statements = BatchStatements::default();
        (table.write)(batch, &mut statements);
        let mut rows = 0;
        for statement in statements.0 {
            let wanted = u64::try_from(statement.rows).unwrap_or(u64::MAX);
            let (text, arguments) = statement.parts()?;
            // `INSERT OR IGNORE` reports skipped rows only by the count.
            let taken = sqlx::query_with(text, arguments).execute(&mut *connection).await?.rows_affected();
            rows += wanted.saturating_sub(taken);
        }
        if rows > 0 {
            missing.push(Missing { table: place, rows });
        }
    }
    Ok(missing)
}

/// Turns missing rows into losses. SQLite does not say which it skipped, so each spans the batch's time.
fn refused(records: &[StoreRecord], missing: &[Missing]) -> RowLosses {
    let mut refused = RowLosses::default();
    if missing.is_empty() {
        return refused;
    }
    let mut whole = RowLosses::default();
    for record in records {
        whole.add_record(record);
    }
    for Missing { table, rows } in missing {
        if let Some((_, span)) = whole.iter().find(|(place, _)| place == table) {
            refused.add(*table, RowLoss { rows: *rows, ..span });
        }
    }
    refused
}
