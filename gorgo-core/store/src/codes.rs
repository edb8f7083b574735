//! Closed lists as numbers. A migration fills one small table per list, and a test compares it with the list here, so
//! that a number always means the same in the program and in SQL: new entries are appended.

use gorgo_routing::model::{
    AdmissionEnd, ApiPath, ConnectionReuse, ErrorClass, EventKind, RateKind, RefusalReason, RttSource,
};

/// Closed list with a code table.
pub(crate) trait ClosedList: Copy + 'static {
    /// The code table, whose key column is [`ClosedList::COLUMN`].
    const TABLE: &'static str;
    /// The column that holds the code.
    const COLUMN: &'static str;
    /// All entries; the code is the position.
    const LIST: &'static [Self];

    /// Returns the stored number.
    fn code(self) -> i64;

    /// Returns the entry with that number.
    fn of(code: i64) -> Option<Self> {
        Self::LIST.get(usize::try_from(code).ok()?).copied()
    }
}

/// Name of a code table, of its key column, and its rows by number, for the test that compares them with SQL.
#[cfg(test)]
pub(crate) type CodeTable = (&'static str, &'static str, fn() -> Vec<(i64, String)>);

macro_rules! codes {
    ($($list:ty = $table:literal . $column:literal;)+) => {
        $(impl ClosedList for $list {
            const TABLE: &'static str = $table;
            const COLUMN: &'static str = $column;
            const LIST: &'static [Self] = &Self::ALL;

            // The variants of each list are declared in the order of `ALL`; the test compares both directions.
            fn code(self) -> i64 {
                self as i64
            }
        })+

        #[cfg(test)]
        pub(crate) const CODE_TABLES: &[CodeTable] = &[$((
            $table,
            $column,
            || {
                let row = |(code, entry): (i64, &$list)| {
                    assert_eq!((entry.code(), <$list as ClosedList>::of(code)), (code, Some(*entry)));
                    (code, entry.name().to_owned())
                };
                (0..).zip(<$list as ClosedList>::LIST).map(row).collect()
            },
        )),+];
    };
}

codes! {
    ApiPath = "paths"."path";
    RefusalReason = "refusals"."refusal";
    ErrorClass = "errors"."error";
    RttSource = "rtt_sources"."rtt_source";
    ConnectionReuse = "connections"."connection";
    EventKind = "event_kinds"."kind";
    RateKind = "rate_kinds"."kind";
    AdmissionEnd = "admission_ends"."ended";
}
