//! Closed lists as numbers. The migration fills one small table per list; a test holds both equal, so that a number
//! means the same in the program and in SQL, for ever: new entries are appended.

use gorgo_routing::model::{ApiPath, Connection, ErrorClass, EventKind, HoldEnd, RateKind, Refusal, RttSource};

/// A closed list with a code table.
pub(super) trait Code: Copy + 'static {
    /// The code table, whose key column is [`Code::COLUMN`].
    const TABLE: &'static str;
    /// The column that holds the code.
    const COLUMN: &'static str;
    /// All entries; the code is the position.
    const LIST: &'static [Self];

    /// The number stored.
    fn code(self) -> i64;

    /// The text in the code table.
    #[cfg(test)]
    fn text(self) -> &'static str;

    /// The entry of that number.
    fn of(code: i64) -> Option<Self> {
        Self::LIST.get(usize::try_from(code).ok()?).copied()
    }
}

macro_rules! code {
    ($list:ty, $table:literal, $column:literal) => {
        impl Code for $list {
            const TABLE: &'static str = $table;
            const COLUMN: &'static str = $column;
            const LIST: &'static [Self] = &Self::ALL;

            fn code(self) -> i64 {
                self as i64
            }

            #[cfg(test)]
            fn text(self) -> &'static str {
                self.name()
            }
        }
    };
}

code!(ApiPath, "paths", "path");
code!(Refusal, "refusals", "refusal");
code!(ErrorClass, "errors", "error");
code!(RttSource, "rtt_sources", "rtt_source");
code!(Connection, "connections", "connection");
code!(EventKind, "event_kinds", "kind");
code!(RateKind, "rate_kinds", "kind");
code!(HoldEnd, "hold_ends", "ended");
