//! A record's numbers as the parameters of its row, in the order of the columns in `sql`.

use super::batch::{Batcher, Candidate, Term};
use super::insert::Parameters;
use gorgo_routing::model::{
    AttemptRecord, DecisionId, DecisionRecord, EventRecord, HoldRecord, OutcomeRecord, ProbeRecord, RateRecord,
    ScrapeRecord, ShadowRecord, VOID_MILLI,
};

impl Batcher {
    pub(super) fn decision(&self, to: &mut Parameters, row: &DecisionRecord) {
        to.int(row.decision.0);
        to.int(self.ids.run);
        to.int(row.received.micros());
        to.code(Some(row.path));
        to.maybe(row.model.as_ref().and_then(|model| self.models.id(model)));
        to.int(row.session_hash.cast_signed());
        to.maybe(self.ids.policy(row.policy));
        to.unsigned(row.generation.0);
        to.maybe(row.arm);
        to.maybe(row.block);
        to.maybe(row.arm.map(|_| i64::from(row.counted)));
        to.int(row.seed.cast_signed());
        to.maybe(row.replica.and_then(|replica| self.ids.replica(replica)));
        to.code(row.refusal);
        to.add(row.propensity);
        to.int(row.ties);
        to.int(row.prompt_tokens);
        to.maybe(row.parent.map(|parent| parent.0));
        to.int(row.shared_tokens);
        to.unsigned(row.body_bytes);
        to.int(row.decide_us);
    }

    pub(super) fn candidate(&self, to: &mut Parameters, candidate: &Candidate<'_>, slots: usize) {
        let row = candidate.row;
        to.int(candidate.decision.0);
        to.int(candidate.attempt);
        to.maybe(self.ids.replica(row.replica));
        to.int(candidate.position);
        to.maybe(row.excluded_by.as_ref().and_then(|name| self.constraints.id(name)));
        to.int(row.cost_milli);
        to.maybe(row.rtt_us);
        to.code(Some(row.rtt_source));
        to.int(row.cached_tokens);
        to.unsigned(row.queued_tokens);
        to.unsigned(row.queued_uncached_tokens);
        to.int(row.inflight);
        to.maybe(row.report_age_ms);
        for values in [&row.signals_milli, &row.costs_milli] {
            for slot in 0..slots {
                to.maybe(values.get(slot).copied().filter(|milli| *milli != VOID_MILLI));
            }
        }
    }

    pub(super) fn term(&self, to: &mut Parameters, term: &Term<'_>) {
        to.int(term.of.decision.0);
        to.int(term.of.attempt);
        to.maybe(self.ids.replica(term.of.row.replica));
        to.int(term.slot);
        to.int(term.signal_milli);
        to.int(term.cost_milli);
    }

    pub(super) fn shadow(&self, to: &mut Parameters, decision: DecisionId, row: &ShadowRecord) {
        to.int(decision.0);
        to.maybe(self.ids.policy(row.policy));
        to.maybe(self.ids.replica(row.replica));
        to.int(row.cost_milli);
    }

    pub(super) fn hold(&self, to: &mut Parameters, row: &HoldRecord) {
        to.int(row.decision.0);
        to.int(row.attempt);
        to.maybe(self.ids.replica(row.replica));
        to.int(row.moves);
        to.int(row.held_us);
        to.code(Some(row.ended));
    }

    pub(super) fn attempt(&self, to: &mut Parameters, row: &AttemptRecord) {
        to.int(row.decision.0);
        to.int(row.attempt);
        to.maybe(self.ids.replica(row.replica));
        to.code(row.connection);
        to.maybe(row.connect_us);
        to.maybe(row.sent_us);
        to.maybe(row.first_byte_us);
        to.int(row.ended_us);
        to.maybe(row.status);
        to.code(row.error);
    }

    pub(super) fn probe(&self, to: &mut Parameters, row: &ProbeRecord) {
        to.maybe(self.ids.replica(row.replica));
        to.int(row.at.micros());
        to.maybe(row.rtt_us);
        to.int(row.rtt_us.is_none());
    }

    pub(super) fn scrape(&self, to: &mut Parameters, row: &ScrapeRecord) {
        to.maybe(self.ids.replica(row.replica));
        to.int(row.at.micros());
        to.int(row.ok);
        to.count(row.running);
        to.count(row.waiting);
        to.count(row.kv_used_tokens);
        to.milli(row.kv_used_share);
        to.milli(row.throughput);
    }

    pub(super) fn event(&self, to: &mut Parameters, row: &EventRecord) {
        to.int(self.ids.run);
        to.int(row.at.micros());
        to.code(Some(row.kind));
        to.maybe(row.replica.and_then(|replica| self.ids.replica(replica)));
        to.add(row.text.as_str());
    }

    pub(super) fn rate(&self, to: &mut Parameters, row: &RateRecord) {
        to.maybe(self.ids.replica(row.replica));
        to.code(Some(row.kind));
        to.int(row.at.micros());
        to.add(row.value);
        to.add(row.low);
        to.add(row.high);
        to.unsigned(row.samples);
    }
}

pub(super) fn outcome(to: &mut Parameters, row: &OutcomeRecord) {
    to.int(row.decision.0);
    to.maybe(row.status);
    to.code(row.error);
    to.maybe(row.ttft_us);
    to.maybe(row.first_byte_us);
    to.int(row.e2e_us);
    to.maybe(row.itl_mean_us);
    to.maybe(row.itl_p99_us);
    to.maybe(row.prompt_tokens);
    to.maybe(row.cached_tokens);
    to.maybe(row.completion_tokens);
    to.maybe(row.predicted_ttft_us);
    to.maybe(row.predicted_cached_tokens);
    for place in 0..8 {
        to.maybe(row.itl_counts.map(|counts| counts[place]));
    }
}
