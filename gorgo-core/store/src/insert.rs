//! Many rows in few statements: the parameters of a statement, and the split of rows into statements.

use sqlx::sqlite::SqliteArguments;
use sqlx::{Arguments, SqliteConnection};

use super::codes::Code;
use super::sql::Insert;
use gorgo_routing::model::to_milli;

/// Parameters of a statement, in column order.
#[derive(Default)]
pub(super) struct Parameters {
    arguments: SqliteArguments,
    failed: Option<sqlx::error::BoxDynError>,
}

impl Parameters {
    pub(super) fn add<'t, T: sqlx::Encode<'t, sqlx::Sqlite> + sqlx::Type<sqlx::Sqlite>>(&mut self, value: T) {
        if let Err(cause) = self.arguments.add(value) {
            self.failed = Some(cause);
        }
    }

    pub(super) fn int(&mut self, value: impl Into<i64>) {
        self.add(value.into());
    }

    pub(super) fn unsigned(&mut self, value: u64) {
        self.add(i64::try_from(value).unwrap_or(i64::MAX));
    }

    pub(super) fn maybe(&mut self, value: Option<impl Into<i64>>) {
        self.add(value.map(Into::into));
    }

    pub(super) fn code<C: Code>(&mut self, value: Option<C>) {
        self.add(value.map(Code::code));
    }

    /// A measured count: whole, unknown where it is not a number.
    pub(super) fn count(&mut self, value: Option<f64>) {
        self.add(value.filter(|value| value.is_finite()).map(|value| to_milli(value.round()) / 1_000));
    }

    pub(super) fn milli(&mut self, value: Option<f64>) {
        self.add(value.filter(|value| value.is_finite()).map(to_milli));
    }
}

/// Inserts all rows, fifty, ten or one to a statement; returns how many SQLite took.
pub(super) async fn insert_all<R>(
    connection: &mut SqliteConnection,
    insert: &Insert,
    mut rows: &[R],
    mut bind: impl FnMut(&mut Parameters, &R),
) -> Result<u64, sqlx::Error> {
    let mut taken = 0;
    while !rows.is_empty() {
        let (text, length) = insert.longest(rows.len());
        let (now, later) = rows.split_at(length);
        rows = later;
        let mut parameters = Parameters::default();
        parameters.arguments.reserve(length * insert.columns, 0);
        for row in now {
            bind(&mut parameters, row);
        }
        if let Some(cause) = parameters.failed {
            return Err(sqlx::Error::Encode(cause));
        }
        taken += sqlx::query_with(text, parameters.arguments).execute(&mut *connection).await?.rows_affected();
    }
    Ok(taken)
}
