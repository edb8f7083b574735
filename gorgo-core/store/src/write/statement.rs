//! Rows as statements: the texts of INSERTs, which are constants, and the parameters that go with them.
//!
//! A row is inserted together with others: fifty, ten or one to a statement, so that a batch costs few hops to the
//! thread that SQLite runs on. `OR IGNORE`: a row that breaks a rule of the schema is left out and counted as lost,
//! it never takes its batch with it.

use sqlx::Arguments;
use sqlx::sqlite::SqliteArguments;

use crate::codes::Code;
use gorgo_routing::model::to_milli;

/// The INSERT of a table, in as many lengths as it may be sent in.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Insert {
    /// Columns of a row, in the order of its parameters.
    pub(crate) columns: &'static [&'static str],
    /// Text for fifty rows; `None` where rows are sent one by one.
    pub(crate) fifty: Option<&'static str>,
    /// Text for ten rows; `None` likewise.
    pub(crate) ten: Option<&'static str>,
    /// Text for one row.
    pub(crate) one: &'static str,
}

impl Insert {
    /// The longest text for `rows` rows that are left, and the number of rows it takes.
    const fn longest(&self, rows: usize) -> (&'static str, usize) {
        match (rows, self.fifty, self.ten) {
            (50.., Some(fifty), _) => (fifty, 50),
            (10.., _, Some(ten)) => (ten, 10),
            _ => (self.one, 1),
        }
    }
}

macro_rules! placeholder {
    ($column:ident) => {
        ",?"
    };
}

macro_rules! ten {
    ($row:expr) => {
        concat!($row, ",", $row, ",", $row, ",", $row, ",", $row, ",", $row, ",", $row, ",", $row, ",", $row, ",", $row)
    };
}

/// Head and row of an INSERT, by its verb, table and columns.
macro_rules! insert_head {
    ($verb:literal, $table:ident ($first:ident $(, $more:ident)*)) => {
        concat!($verb, " INTO ", stringify!($table), " (", stringify!($first) $(, ", ", stringify!($more))*, ") VALUES ")
    };
}

macro_rules! insert_row {
    ($first:ident $(, $more:ident)*) => {
        concat!("(?" $(, $crate::write::statement::placeholder!($more))*, ")")
    };
}

/// An INSERT of many rows that leaves out what the schema refuses: `insert!(table(column, column))`.
macro_rules! insert {
    ($table:ident ($($column:ident),+ $(,)?)) => {
        $crate::write::statement::insert!(@ [$(stringify!($column)),+],
            $crate::write::statement::insert_head!("INSERT OR IGNORE", $table($($column),+)),
            $crate::write::statement::insert_row!($($column),+))
    };
    (@ [$($column:expr),+], $head:expr, $row:expr) => {
        $crate::write::statement::Insert {
            columns: &[$($column),+],
            fifty: Some(concat!(
                $head, $crate::write::statement::ten!($row), ",", $crate::write::statement::ten!($row), ",", $crate::write::statement::ten!($row), ",", $crate::write::statement::ten!($row), ",", $crate::write::statement::ten!($row)
            )),
            ten: Some(concat!($head, $crate::write::statement::ten!($row))),
            one: concat!($head, $row),
        }
    };
}

/// An INSERT of one row, with its verb and what follows the row: `insert_one!("INSERT", table(column), " ON CONFLICT …")`.
macro_rules! insert_one {
    ($verb:literal, $table:ident ($($column:ident),+ $(,)?), $tail:literal) => {
        $crate::write::statement::Insert {
            columns: &[$(stringify!($column)),+],
            fifty: None,
            ten: None,
            one: concat!($crate::write::statement::insert_head!($verb, $table($($column),+)), $crate::write::statement::insert_row!($($column),+), $tail),
        }
    };
}

pub(crate) use {insert, insert_head, insert_one, insert_row, placeholder, ten};

/// A value of a column.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Cell {
    Null,
    Int(i64),
    Real(f64),
    Text(String),
    Blob(Vec<u8>),
}

/// Parameters of a statement, in column order. Each comes with the name of its column, which debug builds compare with
/// the column whose turn it is: a swapped pair fails the first test that writes the row, and release builds pay nothing.
#[derive(Debug, Default)]
pub(crate) struct Parameters {
    arguments: SqliteArguments,
    failed: Option<sqlx::error::BoxDynError>,
    #[cfg(debug_assertions)]
    columns: &'static [&'static str],
    /// The same values, for the tests that look for them in the database.
    #[cfg(test)]
    pub(crate) cells: Vec<Cell>,
}

impl Parameters {
    #[cfg_attr(not(debug_assertions), expect(unused_variables, reason = "only debug builds compare columns"))]
    fn of_rows(insert: &Insert, rows: usize) -> Self {
        let mut parameters = Self::default();
        parameters.arguments.reserve(rows * insert.columns.len(), 0);
        #[cfg(debug_assertions)]
        {
            parameters.columns = insert.columns;
        }
        parameters
    }

    #[cfg_attr(not(debug_assertions), expect(unused_variables, reason = "only debug builds compare columns"))]
    fn add(&mut self, column: &'static str, value: Cell) {
        #[cfg(debug_assertions)]
        if !self.columns.is_empty() {
            let place = self.arguments.len() % self.columns.len();
            debug_assert_eq!(column, self.columns[place], "parameters stand in the order of the INSERT's columns");
        }
        #[cfg(test)]
        self.cells.push(value.clone());
        let added = match value {
            Cell::Null => self.arguments.add(None::<i64>),
            Cell::Int(value) => self.arguments.add(value),
            Cell::Real(value) => self.arguments.add(value),
            Cell::Text(value) => self.arguments.add(value),
            Cell::Blob(value) => self.arguments.add(value),
        };
        if let Err(cause) = added {
            self.failed = Some(cause);
        }
    }

    pub(crate) fn int(&mut self, column: &'static str, value: impl Into<i64>) {
        self.add(column, Cell::Int(value.into()));
    }

    pub(crate) fn unsigned(&mut self, column: &'static str, value: u64) {
        self.add(column, Cell::Int(i64::try_from(value).unwrap_or(i64::MAX)));
    }

    pub(crate) fn maybe(&mut self, column: &'static str, value: Option<impl Into<i64>>) {
        self.add(column, value.map_or(Cell::Null, |value| Cell::Int(value.into())));
    }

    pub(crate) fn code<C: Code>(&mut self, column: &'static str, value: Option<C>) {
        self.maybe(column, value.map(Code::code));
    }

    pub(crate) fn real(&mut self, column: &'static str, value: impl Into<Option<f64>>) {
        self.add(column, value.into().map_or(Cell::Null, Cell::Real));
    }

    pub(crate) fn text<'t>(&mut self, column: &'static str, value: impl Into<Option<&'t str>>) {
        self.add(column, value.into().map_or(Cell::Null, |value| Cell::Text(value.to_owned())));
    }

    pub(crate) fn blob(&mut self, column: &'static str, value: &[u8]) {
        self.add(column, Cell::Blob(value.to_vec()));
    }

    /// A measured count: whole, unknown where it is not a number.
    pub(crate) fn count(&mut self, column: &'static str, value: Option<f64>) {
        let value = value.filter(|value| value.is_finite());
        self.maybe(column, value.map(|value| to_milli(value.round()) / 1_000));
    }

    pub(crate) fn milli(&mut self, column: &'static str, value: Option<f64>) {
        self.maybe(column, value.filter(|value| value.is_finite()).map(to_milli));
    }
}

/// A text with its parameters.
#[derive(Debug)]
pub(crate) struct Statement {
    pub(crate) text: &'static str,
    pub(crate) parameters: Parameters,
    /// Rows that it must add or replace, each of which counts as lost where SQLite leaves it out.
    pub(crate) rows: usize,
}

impl Statement {
    /// Text and arguments, as SQLite takes them.
    pub(crate) fn parts(self) -> Result<(&'static str, SqliteArguments), sqlx::Error> {
        match self.parameters.failed {
            Some(cause) => Err(sqlx::Error::Encode(cause)),
            None => Ok((self.text, self.parameters.arguments)),
        }
    }
}

/// What a batch becomes in one table.
#[derive(Debug, Default)]
pub(crate) struct Statements(pub(crate) Vec<Statement>);

impl Statements {
    /// Inserts rows, as many to a statement as the INSERT allows.
    pub(crate) fn insert<R>(
        &mut self,
        insert: &Insert,
        rows: impl IntoIterator<Item = R>,
        bind: impl Fn(&mut Parameters, &R),
    ) {
        // Their number must be known before the first text is chosen.
        let rows: Vec<R> = rows.into_iter().collect();
        let mut rest = rows.as_slice();
        while !rest.is_empty() {
            let (text, length) = insert.longest(rest.len());
            let (now, later) = rest.split_at(length);
            rest = later;
            let mut parameters = Parameters::of_rows(insert, length);
            now.iter().for_each(|row| bind(&mut parameters, row));
            self.0.push(Statement { text, parameters, rows: length });
        }
    }

    /// Another statement on the same table; the rows it changes are none of the batch.
    pub(crate) fn other(&mut self, text: &'static str, bind: impl FnOnce(&mut Parameters)) {
        let mut parameters = Parameters::default();
        bind(&mut parameters);
        self.0.push(Statement { text, parameters, rows: 0 });
    }
}
