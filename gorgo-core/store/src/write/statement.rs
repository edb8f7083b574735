//! Rows as statements: the texts of INSERTs, which are constants, and their parameters.
//!
//! Rows are inserted together, fifty, ten or one per statement, so that a batch costs few hops to the thread that
//! SQLite runs on. `OR IGNORE`: a row that breaks a rule of the schema is skipped and counted as lost; the rest of its
//! batch is still written.

use sqlx::Arguments;
use sqlx::sqlite::SqliteArguments;

use crate::codes::ClosedList;
use gorgo_routing::model::to_milli;

/// INSERT of a table, in the lengths that it is sent in.
#[derive(Debug, Clone, Copy)]
pub(crate) struct InsertStatement {
    /// Columns of a row, in the order of its parameters.
    pub(crate) columns: &'static [&'static str],
    /// Text for fifty rows; `None` if rows are sent one by one.
    pub(crate) fifty: Option<&'static str>,
    /// Text for ten rows; `None` likewise.
    pub(crate) ten: Option<&'static str>,
    /// Text for one row.
    pub(crate) one: &'static str,
}

impl InsertStatement {
    /// Returns the longest text for `rows` remaining rows, and the number of rows it inserts.
    const fn longest(&self, rows: usize) -> (&'static str, usize) {
        match (rows, self.fifty, self.ten) {
            (50.., Some(fifty), _) => (fifty, 50),
            (10.., _, Some(ten)) => (ten, 10),
            _ => (self.one, 1),
        }
    }
}

// The texts are built by macros, because `concat!` needs literals: constants cost nothing at run time, and sqlx caches
// a prepared statement per text.
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

/// INSERT of many rows that skips those that break a rule of the schema: `insert!(table(column, column))`.
macro_rules! insert {
    ($table:ident ($($column:ident),+ $(,)?)) => {
        $crate::write::statement::insert!(@ [$(stringify!($column)),+],
            $crate::write::statement::insert_head!("INSERT OR IGNORE", $table($($column),+)),
            $crate::write::statement::insert_row!($($column),+))
    };
    (@ [$($column:expr),+], $head:expr, $row:expr) => {
        $crate::write::statement::InsertStatement {
            columns: &[$($column),+],
            fifty: Some(concat!(
                $head, $crate::write::statement::ten!($row), ",", $crate::write::statement::ten!($row), ",", $crate::write::statement::ten!($row), ",", $crate::write::statement::ten!($row), ",", $crate::write::statement::ten!($row)
            )),
            ten: Some(concat!($head, $crate::write::statement::ten!($row))),
            one: concat!($head, $row),
        }
    };
}

/// INSERT of one row, with a verb and a tail: `insert_one!("INSERT", table(column), " ON CONFLICT …")`.
macro_rules! insert_one {
    ($verb:literal, $table:ident ($($column:ident),+ $(,)?), $tail:literal) => {
        $crate::write::statement::InsertStatement {
            columns: &[$(stringify!($column)),+],
            fifty: None,
            ten: None,
            one: concat!($crate::write::statement::insert_head!($verb, $table($($column),+)), $crate::write::statement::insert_row!($($column),+), $tail),
        }
    };
}

pub(crate) use {insert, insert_head, insert_one, insert_row, placeholder, ten};

/// Value of a column.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum BoundValue {
    Null,
    Int(i64),
    Real(f64),
    Text(String),
    Blob(Vec<u8>),
}

/// Parameters of a statement, in column order. Each is added with the name of its column, which debug builds compare
/// with the next column of the INSERT: a swapped pair fails the first test that writes the row, at no cost in release
/// builds.
#[derive(Debug, Default)]
pub(crate) struct StatementParameters {
    arguments: SqliteArguments,
    failed: Option<sqlx::error::BoxDynError>,
    #[cfg(debug_assertions)]
    columns: &'static [&'static str],
    /// The same values, for tests that look for them in the database.
    #[cfg(test)]
    pub(crate) cells: Vec<BoundValue>,
}

impl StatementParameters {
    #[cfg_attr(not(debug_assertions), expect(unused_variables, reason = "only debug builds compare columns"))]
    fn of_rows(insert: &InsertStatement, rows: usize) -> Self {
        let mut parameters = Self::default();
        // The size of the values is unknown; room for their number alone saves most of the reallocations.
        parameters.arguments.reserve(rows * insert.columns.len(), 0);
        #[cfg(debug_assertions)]
        {
            parameters.columns = insert.columns;
        }
        parameters
    }

    #[cfg_attr(not(debug_assertions), expect(unused_variables, reason = "only debug builds compare columns"))]
    fn add(&mut self, column: &'static str, value: BoundValue) {
        #[cfg(debug_assertions)]
        // Statements other than INSERTs have no list of columns. Remainder: the columns repeat for each row.
        if !self.columns.is_empty() {
            let place = self.arguments.len() % self.columns.len();
            debug_assert_eq!(column, self.columns[place], "parameters must follow the order of the INSERT's columns");
        }
        #[cfg(test)]
        self.cells.push(value.clone());
        let added = match value {
            BoundValue::Null => self.arguments.add(None::<i64>),
            BoundValue::Int(value) => self.arguments.add(value),
            BoundValue::Real(value) => self.arguments.add(value),
            BoundValue::Text(value) => self.arguments.add(value),
            BoundValue::Blob(value) => self.arguments.add(value),
        };
        // Kept until `parts`: the binding functions of the tables then need no error handling.
        if let Err(cause) = added {
            self.failed = Some(cause);
        }
    }

    pub(crate) fn int(&mut self, column: &'static str, value: impl Into<i64>) {
        self.add(column, BoundValue::Int(value.into()));
    }

    pub(crate) fn unsigned(&mut self, column: &'static str, value: u64) {
        // SQLite's integers are signed: a count of 2^63 or more saturates.
        self.add(column, BoundValue::Int(i64::try_from(value).unwrap_or(i64::MAX)));
    }

    pub(crate) fn maybe(&mut self, column: &'static str, value: Option<impl Into<i64>>) {
        self.add(column, value.map_or(BoundValue::Null, |value| BoundValue::Int(value.into())));
    }

    pub(crate) fn code<C: ClosedList>(&mut self, column: &'static str, value: Option<C>) {
        self.maybe(column, value.map(ClosedList::code));
    }

    pub(crate) fn real(&mut self, column: &'static str, value: impl Into<Option<f64>>) {
        self.add(column, value.into().map_or(BoundValue::Null, BoundValue::Real));
    }

    pub(crate) fn text<'t>(&mut self, column: &'static str, value: impl Into<Option<&'t str>>) {
        self.add(column, value.into().map_or(BoundValue::Null, |value| BoundValue::Text(value.to_owned())));
    }

    pub(crate) fn blob(&mut self, column: &'static str, value: &[u8]) {
        self.add(column, BoundValue::Blob(value.to_vec()));
    }

    /// Adds a measured count, rounded; NULL if it is not a finite number.
    pub(crate) fn count(&mut self, column: &'static str, value: Option<f64>) {
        let value = value.filter(|value| value.is_finite());
        // By way of `to_milli`, which clamps to a range where a cast is exact.
        self.maybe(column, value.map(|value| to_milli(value.round()) / 1_000));
    }

    pub(crate) fn milli(&mut self, column: &'static str, value: Option<f64>) {
        self.maybe(column, value.filter(|value| value.is_finite()).map(to_milli));
    }
}

/// SQL text with its parameters.
#[derive(Debug)]
pub(crate) struct Statement {
    pub(crate) text: &'static str,
    pub(crate) parameters: StatementParameters,
    /// Number of rows that it should add or replace; those that SQLite skips count as lost.
    pub(crate) rows: usize,
}

impl Statement {
    /// Returns text and arguments; an error if a value could not be encoded.
    pub(crate) fn parts(self) -> Result<(&'static str, SqliteArguments), sqlx::Error> {
        match self.parameters.failed {
            Some(cause) => Err(sqlx::Error::Encode(cause)),
            None => Ok((self.text, self.parameters.arguments)),
        }
    }
}

/// Statements that write a batch to one table.
#[derive(Debug, Default)]
pub(crate) struct BatchStatements(pub(crate) Vec<Statement>);

impl BatchStatements {
    /// Adds INSERTs for `rows`, as many rows per statement as `insert` allows.
    pub(crate) fn insert<R>(
        &mut self,
        insert: &InsertStatement,
        rows: impl IntoIterator<Item = R>,
        bind: impl Fn(&mut StatementParameters, &R),
    ) {
        // Their number must be known before the first text can be chosen.
        let rows: Vec<R> = rows.into_iter().collect();
        let mut rest = rows.as_slice();
        while !rest.is_empty() {
            let (text, length) = insert.longest(rest.len());
            let (now, later) = rest.split_at(length);
            rest = later;
            let mut parameters = StatementParameters::of_rows(insert, length);
            now.iter().for_each(|row| bind(&mut parameters, row));
            self.0.push(Statement { text, parameters, rows: length });
        }
    }

    /// Adds another statement on the same table; rows that it changes are not counted as rows of the batch.
    pub(crate) fn other(&mut self, text: &'static str, bind: impl FnOnce(&mut StatementParameters)) {
        let mut parameters = StatementParameters::default();
        bind(&mut parameters);
        self.0.push(Statement { text, parameters, rows: 0 });
    }
}
