//! `generations`: a row per generation of a tuner; the record of its end completes the row made by that of its start.

#[cfg(test)]
use super::sample::*;
use super::{HistoryTable, RetentionRule};
use crate::write::batch::Batch;
use crate::write::loss::RowLoss;
use crate::write::statement::{BatchStatements, InsertStatement, insert_one};
#[cfg(test)]
use gorgo_routing::model::{Generation, ScoreRecord};
use gorgo_routing::model::{GenerationRecord, GenerationVerdict, StoreRecord, UnixMicros};

pub(super) const TABLE: HistoryTable = HistoryTable {
    name: "generations",
    retention: RetentionRule::Never,
    loss: |record| row(record).map(|row| RowLoss::at(moment(row), 1)),
    write,
    #[cfg(test)]
    checks: super::Checks { inserts: &[&INSERT], filled_later: &[], others: &[], sample },
};

const INSERT: InsertStatement = insert_one!(
    "INSERT",
    generations(
        policy_id,
        generation_id,
        run_id,
        parent_id,
        started_at_us,
        ended_at_us,
        optimizer,
        sigma,
        state,
        first_block,
        end_block,
        verdict,
        reason,
    ),
    " ON CONFLICT (policy_id, generation_id) DO UPDATE SET ended_at_us = excluded.ended_at_us, \
     sigma = excluded.sigma, state = excluded.state, first_block = excluded.first_block, \
     end_block = excluded.end_block, verdict = excluded.verdict, reason = excluded.reason"
);

fn row(record: &StoreRecord) -> Option<&GenerationRecord> {
    if let StoreRecord::Generation(generation) = record { Some(generation) } else { None }
}

/// Time of the record: the generation's end, or its start if it has not ended.
pub(super) fn moment(row: &GenerationRecord) -> i64 {
    row.ended.unwrap_or(row.started).micros()
}

fn write(batch: &Batch<'_>, to: &mut BatchStatements) {
    // Start and end have the same columns: the INSERT's ON CONFLICT clause lets the end complete the row of the start.
    to.insert(&INSERT, batch.records.iter().filter_map(row), |to, row| {
        to.maybe("policy_id", batch.numbers.policy(row.policy));
        to.unsigned("generation_id", row.generation.0);
        to.int("run_id", batch.numbers.run());
        to.maybe("parent_id", row.parent.map(|parent| i64::try_from(parent.0).unwrap_or(i64::MAX)));
        to.int("started_at_us", row.started.micros());
        to.maybe("ended_at_us", row.ended.map(UnixMicros::micros));
        to.text("optimizer", row.optimizer);
        to.real("sigma", row.sigma);
        to.text("state", row.state.as_deref());
        to.int("first_block", row.blocks.0);
        to.int("end_block", row.blocks.1);
        // As text, not as a code: a CHECK in the schema lists the verdicts.
        to.text("verdict", row.verdict.map(GenerationVerdict::name));
        to.text("reason", row.reason.as_deref());
    });
}

#[cfg(test)]
pub(super) fn sample() -> BoxedStrategy<StoreRecord> {
    let verdict = option::of(select(vec![
        GenerationVerdict::Accepted,
        GenerationVerdict::Rejected,
        GenerationVerdict::Interrupted,
    ]));
    let who = (policy(), count(), option::of(count()), at(), option::of(at()), verdict);
    let texts = (option::of("[ -~]{0,40}"), option::of(any::<String>()), any::<(u32, u32)>());
    let figure = || -1e9..1e9_f64;
    let score = (figure(), option::of(figure()), option::of(figure()), count());
    // Each statistic once per arm.
    let scores = vec(score, 0..5).prop_map(|scores| {
        let score = |((value, low, high, samples), place): (_, u8)| ScoreRecord {
            arm: place % 2,
            statistic: ["ttft_p95", "e2e_p95", "score"][usize::from(place / 2)],
            value,
            low,
            high,
            samples,
        };
        scores.into_iter().zip(0..).map(score).collect::<Vec<_>>()
    });
    let record = |(who, texts, sigma, scores): ((_, _, Option<u64>, _, _, _), (_, _, _), _, _)| GenerationRecord {
        policy: who.0,
        generation: Generation(who.1),
        parent: who.2.map(Generation),
        started: who.3,
        ended: who.4,
        optimizer: "es-1plus1",
        sigma,
        state: texts.0,
        blocks: texts.2,
        verdict: who.5,
        reason: texts.1,
        scores,
    };
    let all = (who, texts, option::of(figure()), scores);
    all.prop_map(move |all| StoreRecord::Generation(Box::new(record(all)))).boxed()
}
