//! Records → rows: one transaction for a batch, table by table.

use sqlx::SqliteConnection;

use super::loss::{Loss, Losses};
use super::numbers::Numbers;
use super::statement::Statements;
use crate::sql;
use crate::table::TABLES;
use gorgo_routing::model::Record;

/// What tables make rows of.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Batch<'r> {
    pub(crate) records: &'r [Record],
    /// Rows that were lost since the last batch.
    pub(crate) losses: &'r Losses,
    pub(crate) numbers: &'r Numbers,
}

/// Rows of a table that SQLite did not take.
struct Missing {
    /// Place in [`TABLES`].
    table: usize,
    rows: u64,
}

/// Writes all records and the losses, or nothing. Returns the rows that SQLite refused one by one: a number twice, or a
/// row that breaks a rule of the schema.
pub(crate) async fn write(
    connection: &mut SqliteConnection,
    numbers: &mut Numbers,
    records: &[Record],
    losses: &Losses,
) -> Result<Losses, sqlx::Error> {
    numbers.learn_names(connection, records).await?;
    sqlx::query(sql::BEGIN).execute(&mut *connection).await?;
    let written = match write_tables(connection, &Batch { records, losses, numbers }).await {
        Ok(missing) => sqlx::query(sql::COMMIT).execute(&mut *connection).await.map(|_| missing),
        Err(cause) => Err(cause),
    };
    match written {
        Ok(missing) => Ok(refused(records, &missing)),
        Err(cause) => {
            // Where SQLite has rolled back by itself this fails, which is fine.
            let _ = sqlx::query(sql::ROLLBACK).execute(&mut *connection).await;
            Err(cause)
        }
    }
}

async fn write_tables(connection: &mut SqliteConnection, batch: &Batch<'_>) -> Result<Vec<Missing>, sqlx::Error> {
    let mut missing = Vec::new();
    for (place, table) in TABLES.iter().enumerate() {
        let mut statements = Statements::default();
        (table.write)(batch, &mut statements);
        let mut rows = 0;
        for statement in statements.0 {
            let wanted = u64::try_from(statement.rows).unwrap_or(u64::MAX);
            let (text, arguments) = statement.parts()?;
            let taken = sqlx::query_with(text, arguments).execute(&mut *connection).await?.rows_affected();
            rows += wanted.saturating_sub(taken);
        }
        if rows > 0 {
            missing.push(Missing { table: place, rows });
        }
    }
    Ok(missing)
}

/// The rows that were given and not taken, with the moments between which the batch lies.
fn refused(records: &[Record], missing: &[Missing]) -> Losses {
    let mut refused = Losses::default();
    if missing.is_empty() {
        return refused;
    }
    let mut whole = Losses::default();
    for record in records {
        whole.add_record(record);
    }
    for Missing { table, rows } in missing {
        if let Some((_, span)) = whole.iter().find(|(place, _)| place == table) {
            refused.add(*table, Loss { rows: *rows, ..span });
        }
    }
    refused
}
