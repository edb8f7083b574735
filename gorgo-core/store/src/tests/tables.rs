//! Checks of everything that holds for all tables of [`TABLES`]; a new table is checked by adding its line there.

use std::collections::BTreeSet;

use proptest::strategy::{Strategy, ValueTree};
use proptest::test_runner::{Config, RngSeed, TestRunner};
use sqlx::{AssertSqlSafe, Either, Executor, Row, SqlSafeStr, SqliteConnection, Statement, TypeInfo, ValueRef};

use super::schema::dictionary;
use super::{StoreFixture, migrated, run_info};
use crate::codes::CODE_TABLES;
use crate::retain;
use crate::table::{HistoryTable, MIGRATIONS, RetentionRule, TABLES};
use crate::write::batch::Batch;
use crate::write::loss::RowLosses;
use crate::write::statement::{BatchStatements, BoundValue};
use crate::write::writer::HistoryWriter;
use gorgo_routing::model::StoreRecord;

/// Tables that are written where numbers are assigned and runs begin, not by batches.
const OTHER_TABLES: [&str; 9] =
    ["meta", "configs", "replicas", "models", "constraints", "policies", "terms", "runs", "sqlite_sequence"];
/// Generates records of each table.
const CASES: u32 = 48;

/// Columns that INSERTs fill.
fn inserted(table: &HistoryTable) -> BTreeSet<&'static str> {
    table.checks.inserts.iter().flat_map(|insert| insert.columns).copied().collect()
}

/// INSERT that names every column that rows have.
fn columns(table: &HistoryTable) -> &'static [&'static str] {
    table.checks.inserts.iter().map(|insert| insert.columns).max_by_key(|columns| columns.len()).unwrap()
}

fn samples(table: &HistoryTable) -> Vec<StoreRecord> {
    let config = Config { rng_seed: RngSeed::Fixed(20_261_130), failure_persistence: None, ..Config::default() };
    let mut runner = TestRunner::new(config);
    let sample = (table.checks.sample)();
    (0..CASES).map(|_| sample.new_tree(&mut runner).unwrap().current()).collect()
}

/// Rows of a table, in the columns that its INSERTs fill.
async fn stored(connection: &mut SqliteConnection, table: &HistoryTable) -> Vec<Vec<BoundValue>> {
    let query = format!("SELECT {} FROM {}", columns(table).join(", "), table.name);
    let rows = sqlx::query(AssertSqlSafe(query)).fetch_all(connection).await.unwrap();
    let cell = |row: &sqlx::sqlite::SqliteRow, place: usize| {
        let value = row.try_get_raw(place).unwrap();
        match value.type_info().name() {
            _ if value.is_null() => BoundValue::Null,
            "INTEGER" => BoundValue::Int(row.get_unchecked(place)),
            "REAL" => BoundValue::Real(row.get_unchecked(place)),
            "TEXT" => BoundValue::Text(row.get_unchecked(place)),
            _ => BoundValue::Blob(row.get_unchecked(place)),
        }
    };
    rows.iter().map(|row| (0..row.len()).map(|place| cell(row, place)).collect()).collect()
}

/// Writes records as the writer does, without its transaction; returns the rows that should be in `table`.
async fn write(
    writer: &mut HistoryWriter,
    table: &HistoryTable,
    records: &[StoreRecord],
    losses: &RowLosses,
) -> Vec<Vec<BoundValue>> {
    writer.numbers.learn_names(&mut writer.connection, records).await.unwrap();
    let mut statements = BatchStatements::default();
    (table.write)(&Batch { records, losses, numbers: &writer.numbers }, &mut statements);
    let mut rows = Vec::new();
    for statement in statements.0 {
        let cells = &statement.parameters.cells;
        // A statement without rows of its own changes those of others.
        if let Some(length) = cells.len().checked_div(statement.rows) {
            let insert = table.checks.inserts.iter().find(|insert| insert.columns.len() == length).unwrap();
            for values in cells.chunks(length) {
                let value = |column: &&str| {
                    let place = insert.columns.iter().position(|known| known == column);
                    place.map_or(BoundValue::Null, |place| values[place].clone())
                };
                rows.push(columns(table).iter().map(value).collect());
            }
        }
        let wanted = statement.rows;
        let (text, arguments) = statement.parts().unwrap();
        let taken = sqlx::query_with(text, arguments).execute(&mut writer.connection).await.unwrap().rows_affected();
        assert!(wanted == 0 || taken == wanted as u64, "{}: {taken} of {wanted} rows taken: {records:?}", table.name);
    }
    rows
}

async fn run(writer: &mut HistoryWriter, text: &'static str) {
    sqlx::query(text).execute(&mut writer.connection).await.unwrap();
}

/// The texts of every table can be prepared, and name exactly the columns that its migrations created.
#[tokio::test]
async fn inserts_fill_the_columns_of_the_schema() {
    let mut connection = migrated().await;
    for table in TABLES {
        let query = "SELECT name FROM pragma_table_info(?)";
        let schema: Vec<String> = sqlx::query_scalar(query).bind(table.name).fetch_all(&mut connection).await.unwrap();
        let schema: BTreeSet<&str> = schema.iter().map(String::as_str).collect();
        assert!(!schema.is_empty(), "no migration makes `{}`: add one to `MIGRATIONS`", table.name);
        let known: BTreeSet<&str> =
            inserted(table).into_iter().chain(table.checks.filled_later.iter().copied()).collect();
        assert_eq!(known, schema, "columns of `{}`: its INSERT and `filled_later`, and its migrations", table.name);
        assert_eq!(inserted(table).len(), columns(table).len(), "{}: no INSERT names all columns", table.name);
        for insert in table.checks.inserts {
            for (text, rows) in [(insert.fifty, 50), (insert.ten, 10), (Some(insert.one), 1)] {
                let Some(text) = text else { continue };
                let statement = (&mut connection).prepare(text.into_sql_str()).await.unwrap();
                assert_eq!(statement.parameters(), Some(Either::Right(rows * insert.columns.len())), "{text}");
            }
        }
        let rule = match table.retention {
            RetentionRule::WithDecision(text) | RetentionRule::ByAge(text) | RetentionRule::OnceEnded(text) => {
                Some(text)
            }
            RetentionRule::Never => None,
        };
        for text in table.checks.others.iter().copied().chain(rule) {
            (&mut connection).prepare(text.into_sql_str()).await.unwrap_or_else(|cause| panic!("{text}: {cause}"));
        }
    }
}

/// For any record, the bound values are found in the database, column by column; and queue, losses and writer count the
/// same number of rows.
#[tokio::test]
async fn any_record_comes_back_as_its_rows() {
    let bench = StoreFixture::new();
    let (_sink, mut writer) = bench.begin(&run_info()).await;
    for table in TABLES {
        let mut seen = 0;
        for record in samples(table) {
            let mut losses = RowLosses::default();
            losses.add_record(&record);
            assert_eq!(losses.rows(), record.rows(), "`Record::rows` and the tables' `loss` of {record:?}");
            run(&mut writer, "BEGIN").await;
            let before = stored(&mut writer.connection, table).await;
            let made = write(&mut writer, table, std::slice::from_ref(&record), &losses).await;
            let mut after = stored(&mut writer.connection, table).await;
            for row in &before {
                let place = after.iter().position(|known| known == row).unwrap();
                after.remove(place);
            }
            seen += made.len();
            for row in &made {
                let place = after.iter().position(|known| known == row);
                assert!(place.is_some(), "{}: {row:?} is not among {after:?}", table.name);
                after.remove(place.unwrap());
            }
            assert!(after.is_empty(), "{}: nobody wrote {after:?}", table.name);
            let place = TABLES.iter().position(|known| known.name == table.name);
            let lost = losses.iter().find(|(known, _)| Some(*known) == place).map_or(0, |(_, loss)| loss.rows);
            assert!(table.name == "gaps" || made.len() as u64 == lost, "{}: {lost} rows of {record:?}", table.name);
            run(&mut writer, "ROLLBACK").await;
        }
        assert!(seen > CASES as usize / 4, "{}: its `sample` makes {seen} rows in {CASES} records", table.name);
    }
}

/// Rows of tables with a rule are deleted by it, all of them; rows of tables without one stay.
#[tokio::test]
async fn retention_covers_every_table() {
    let bench = StoreFixture::new();
    let (_sink, mut writer) = bench.begin(&run_info()).await;
    for table in TABLES {
        let keeps = matches!(table.retention, RetentionRule::Never);
        for record in samples(table).into_iter().take(8) {
            let mut losses = RowLosses::default();
            losses.add_record(&record);
            let made = write(&mut writer, table, std::slice::from_ref(&record), &losses).await;
            if matches!(table.retention, RetentionRule::OnceEnded(_)) {
                let count = stored(&mut writer.connection, table).await.len();
                retain::prune(&mut writer.connection, i64::MAX, i64::MAX).await.unwrap();
                let open = stored(&mut writer.connection, table).await.len();
                assert!(open > 0 && open <= count, "{}: what has not ended stays", table.name);
                let end = format!("UPDATE {} SET to_us = 0", table.name);
                sqlx::query(AssertSqlSafe(end)).execute(&mut writer.connection).await.unwrap();
            }
            retain::prune(&mut writer.connection, i64::MAX, i64::MAX).await.unwrap();
            let left = stored(&mut writer.connection, table).await;
            if keeps {
                assert!(made.iter().all(|row| left.contains(row)), "{}: rows went that should stay", table.name);
            } else {
                assert!(left.is_empty(), "{}: {left:?} stays for ever", table.name);
            }
        }
    }
}

/// Every table of the schema is written and described.
#[tokio::test]
async fn every_table_of_the_schema_is_written_and_described() {
    let mut connection = migrated().await;
    let query = "SELECT name FROM sqlite_schema WHERE type = 'table' AND name NOT LIKE '\\_%' ESCAPE '\\'";
    let schema: Vec<String> = sqlx::query_scalar(query).fetch_all(&mut connection).await.unwrap();
    let names: BTreeSet<&str> = TABLES.iter().map(|table| table.name).collect();
    assert_eq!(names.len(), TABLES.len(), "each table is listed once in `TABLES`");
    let codes: BTreeSet<&str> = CODE_TABLES.iter().map(|(table, ..)| *table).collect();
    for table in &schema {
        let known = names.contains(table.as_str()) || codes.contains(table.as_str());
        assert!(
            known || OTHER_TABLES.contains(&table.as_str()),
            "`{table}` has no file in `table/` and no line in `TABLES`"
        );
    }
    let described = dictionary();
    for table in names {
        assert!(
            described.contains_key(table),
            "describe the columns of `{table}` under ### `{table}` in migrations/README.md"
        );
    }
}

#[test]
fn every_migration_has_its_line() {
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../migrations");
    let mut files: Vec<String> = std::fs::read_dir(folder)
        .unwrap()
        .map(|file| file.unwrap().file_name().into_string().unwrap())
        .filter(|name| name.ends_with(".sql"))
        .collect();
    files.sort();
    let lines: Vec<String> = MIGRATIONS.iter().map(|(number, name, _)| format!("{number:04}_{name}.sql")).collect();
    assert_eq!(lines, files, "each file of migrations/ has its line in `MIGRATIONS` (table/mod.rs), in order");
}
