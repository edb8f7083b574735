//! `attempts`: a row per attempt of a request.

#[cfg(test)]
use super::sample::*;
use super::{HistoryTable, with_decision};
use crate::write::batch::Batch;
use crate::write::loss::{RowLoss, moment_of};
use crate::write::statement::{BatchStatements, InsertStatement, insert};
use gorgo_routing::model::{AttemptRecord, StoreRecord};
#[cfg(test)]
use gorgo_routing::model::{ConnectionReuse, ErrorClass};

pub(super) const TABLE: HistoryTable = HistoryTable {
    name: "attempts",
    retention: with_decision!(attempts),
    loss: |record| row(record).map(|row| RowLoss::at(moment_of(row.decision), 1)),
    write,
    #[cfg(test)]
    checks: super::Checks { inserts: &[&INSERT], filled_later: &[], others: &[], sample },
};

const INSERT: InsertStatement = insert!(attempts(
    decision_id,
    attempt,
    replica_id,
    connection,
    connect_us,
    sent_us,
    first_byte_us,
    ended_us,
    status,
    error
));

fn row(record: &StoreRecord) -> Option<&AttemptRecord> {
    if let StoreRecord::Attempt(attempt) = record { Some(attempt) } else { None }
}

fn write(batch: &Batch<'_>, to: &mut BatchStatements) {
    to.insert(&INSERT, batch.records.iter().filter_map(row), |to, row| {
        to.int("decision_id", row.decision.0);
        to.int("attempt", row.attempt);
        // NULL breaks NOT NULL: an attempt at an unknown replica is not stored, but counted as lost.
        to.maybe("replica_id", batch.numbers.replica(row.replica));
        // NULL: no connection could be made, so no time was spent on it either.
        to.code("connection", row.connection);
        to.maybe("connect_us", row.connect_us);
        to.maybe("sent_us", row.sent_us);
        to.maybe("first_byte_us", row.first_byte_us);
        to.int("ended_us", row.ended_us);
        to.maybe("status", row.status);
        to.code("error", row.error);
    });
}

#[cfg(test)]
fn sample() -> BoxedStrategy<StoreRecord> {
    let times = (option::of(any::<i64>()), option::of(any::<i64>()), option::of(any::<i64>()), any::<i64>());
    let ends = (option::of(any::<u16>()), option::of(select(&ErrorClass::ALL[..])));
    let who = (decision_id(), any::<u16>(), replica(), option::of(select(&ConnectionReuse::ALL[..])));
    let record = |((decision, attempt, replica, connection), times, ends): (_, (_, _, _, _), (_, _))| AttemptRecord {
        decision,
        attempt,
        replica,
        connection,
        connect_us: times.0,
        sent_us: times.1,
        first_byte_us: times.2,
        ended_us: times.3,
        status: ends.0,
        error: ends.1,
    };
    (who, times, ends).prop_map(move |all| StoreRecord::Attempt(record(all))).boxed()
}
