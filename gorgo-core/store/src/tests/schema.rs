//! The schema against the program: statements, code tables, the data dictionary and its queries, the views.

use std::collections::{BTreeMap, BTreeSet};

use sqlx::{AssertSqlSafe, Executor, SqlSafeStr};

use super::{StoreFixture, history, migrated, table};
use crate::codes::{CODE_TABLES, ClosedList};
use crate::sql;
use gorgo_routing::model::ApiPath;

const DICTIONARY: &str = include_str!("../../../../migrations/README.md");

#[tokio::test]
async fn every_statement_prepares() {
    let mut connection = migrated().await;
    for text in sql::SINGLE {
        (&mut connection).prepare(text.into_sql_str()).await.unwrap_or_else(|cause| panic!("{text}: {cause}"));
    }
}

#[tokio::test]
async fn code_tables_say_what_the_program_means() {
    let mut connection = migrated().await;
    for (table, column, entries) in CODE_TABLES {
        let query = format!("SELECT {column}, name FROM {table} ORDER BY 1");
        let rows: Vec<(i64, String)> = sqlx::query_as(AssertSqlSafe(query)).fetch_all(&mut connection).await.unwrap();
        assert_eq!(rows, entries(), "{table}");
    }
    assert_eq!(<ApiPath as ClosedList>::of(-1), None);
}

/// Table or view → its columns, as the dictionary lists them: `### name`, then a table whose first cell names columns.
pub(super) fn dictionary() -> BTreeMap<String, BTreeSet<String>> {
    let mut named = BTreeMap::new();
    let mut current = None;
    for line in DICTIONARY.lines() {
        if let Some(name) = line.strip_prefix("### `") {
            current = Some(name.trim_end_matches('`').to_owned());
            named.insert(name.trim_end_matches('`').to_owned(), BTreeSet::new());
        } else if let (Some(row), Some(name)) = (line.strip_prefix("| `"), &current) {
            let cell = row.split(" | ").next().unwrap();
            named.get_mut(name).unwrap().extend(cell.split(", ").map(|column| column.trim_matches('`').to_owned()));
        }
    }
    named
}

#[tokio::test]
async fn the_dictionary_has_each_column_and_no_other() {
    let mut connection = migrated().await;
    let rows: Vec<(String, String)> = sqlx::query_as(
        "SELECT s.name, c.name FROM sqlite_schema s, pragma_table_info(s.name) c \
         WHERE s.type IN ('table', 'view') AND s.name NOT LIKE '\\_%' ESCAPE '\\' AND s.name NOT LIKE 'sqlite%'",
    )
    .fetch_all(&mut connection)
    .await
    .unwrap();
    let mut schema: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for (of, column) in rows {
        schema.entry(of).or_default().insert(column);
    }
    assert_eq!(dictionary(), schema);
}

#[tokio::test]
async fn the_queries_of_the_dictionary_answer() {
    let bench = StoreFixture::new();
    bench.write(history()).await;
    let mut connection = bench.connect().await;
    let queries: Vec<&str> =
        DICTIONARY.split("```sql\n").skip(1).map(|rest| rest.split("```").next().unwrap()).collect();
    assert!(queries.len() >= 6);
    let mut answers = Vec::new();
    for query in queries {
        let answer = table(&mut connection, query).await;
        assert!(!answer.is_empty(), "no row from\n{query}");
        answers.push(answer);
    }
    insta::assert_snapshot!(answers.join("\n\n"));
}

#[tokio::test]
async fn views_show_a_small_history() {
    let bench = StoreFixture::new();
    bench.write(history()).await;
    let mut connection = bench.connect().await;
    let views: Vec<String> = sqlx::query_scalar("SELECT name FROM sqlite_schema WHERE type = 'view' ORDER BY name")
        .fetch_all(&mut connection)
        .await
        .unwrap();
    let mut shown = Vec::new();
    for view in views {
        let rows = table(&mut connection, &format!("SELECT * FROM {view} LIMIT 14")).await;
        shown.push(format!("{view}\n{rows}"));
    }
    let mut settings = insta::Settings::clone_current();
    // Drawn per database and per process.
    settings.add_filter(r"\| [0-9a-f]{16} \| \d+ \| ([0-9a-f]{64})", "| ROUTER | PID | $1");
    settings.bind(|| insta::assert_snapshot!(shown.join("\n\n")));
}

/// The queries that an on-call engineer runs first must not read the whole history.
#[tokio::test]
async fn a_span_of_time_is_found_by_key() {
    let mut connection = migrated().await;
    for view in ["v_requests", "v_candidates", "v_terms", "v_attempts"] {
        let query =
            format!("EXPLAIN QUERY PLAN SELECT * FROM {view} WHERE decision_id >= 1 << 20 AND decision_id < 2 << 20");
        let plan = table(&mut connection, &query).await;
        let scans: Vec<&str> = plan.lines().filter(|line| line.contains("SCAN")).collect();
        assert!(scans.is_empty(), "{view}: {scans:?}\n{plan}");
    }
}

#[tokio::test]
async fn the_file_is_set_up_for_pruning_and_readers() {
    let bench = StoreFixture::new();
    bench.write([]).await;
    assert_eq!(bench.number("PRAGMA auto_vacuum").await, 2);
    assert_eq!(bench.number("PRAGMA application_id").await, 0x676f_7267);
    let mut connection = bench.connect().await;
    let mode: String = sqlx::query_scalar("PRAGMA journal_mode").fetch_one(&mut connection).await.unwrap();
    assert_eq!(mode, "wal");
}
