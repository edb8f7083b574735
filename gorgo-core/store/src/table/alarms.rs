//! `alarms`: a row per alarm of a tuner that went on; the alarm's end completes the row.

#[cfg(test)]
use super::sample::*;
use super::{HistoryTable, RetentionRule};
use crate::write::batch::Batch;
use crate::write::loss::RowLoss;
use crate::write::statement::{BatchStatements, InsertStatement, insert_one};
#[cfg(test)]
use gorgo_routing::model::AlarmRecord;
use gorgo_routing::model::StoreRecord;

pub(super) const TABLE: HistoryTable = HistoryTable {
    name: "alarms",
    retention: RetentionRule::Never,
    loss: |record| match record {
        // The end of an alarm only updates a row: if that fails, no row is missing.
        StoreRecord::Alarm(alarm) => Some(RowLoss::at(alarm.at.micros(), usize::from(!alarm.cleared))),
        _ => None,
    },
    write,
    #[cfg(test)]
    checks: super::Checks { inserts: &[&RAISE], filled_later: &["alarm_id", "to_us"], others: &[CLEAR], sample },
};

const RAISE: InsertStatement = insert_one!("INSERT", alarms(run_id, kind, from_us, value), "");
const CLEAR: &str = "UPDATE alarms SET to_us = max(?3, from_us) WHERE run_id = ?1 AND kind = ?2 AND to_us IS NULL";

fn write(batch: &Batch<'_>, to: &mut BatchStatements) {
    // One by one, in order: an alarm may go on and off in the same batch.
    for record in batch.records {
        let StoreRecord::Alarm(alarm) = record else { continue };
        if alarm.cleared {
            to.other(CLEAR, |to| {
                to.int("run_id", batch.numbers.run());
                to.text("kind", alarm.kind.as_str());
                to.int("to_us", alarm.at.micros());
            });
        } else {
            to.insert(&RAISE, [alarm], |to, alarm| {
                to.int("run_id", batch.numbers.run());
                to.text("kind", alarm.kind.as_str());
                to.int("from_us", alarm.at.micros());
                to.real("value", alarm.value);
            });
        }
    }
}

#[cfg(test)]
fn sample() -> BoxedStrategy<StoreRecord> {
    let record = |(at, kind, value, over)| StoreRecord::Alarm(AlarmRecord { at, kind, value, cleared: over });
    (at(), "[a-z:-]{1,30}", option::of(-1e9..1e9_f64), any::<bool>()).prop_map(record).boxed()
}
