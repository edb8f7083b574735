//! Last report of each engine (its metrics page), with the age of every reading.
//!
//! A reading older than `stale_after_ms` is unknown, never idle; so is one from before the engine went down or
//! restarted. The page's age remains readable, so that a decision's row shows why the figures are missing.
//! A replica without metrics has unknown readings forever, which disables nothing.

use crate::model::{Candidates, EngineReport, FleetEvent, Replica, ReplicaId, UnixMicros};

/// Difference up to which two start times are the same, seconds: some exporters round, some add steps of the clock.
const SAME_START_SECS: f64 = 1.0;

/// Last reports of all replicas.
#[derive(Debug, Clone)]
pub struct EngineReports {
    replicas: Vec<LastReport>,
    stale_after_ms: f64,
}

/// Engine that has restarted in place, noticed by its start time: its cache is empty.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use = "the prefix index still promises what this engine has forgotten"]
pub struct RestartedEngine(pub ReplicaId);

#[derive(Debug, Clone, Default)]
struct LastReport {
    at: Option<UnixMicros>,
    /// Readings; cleared when the replica goes down or restarts, while the age of the page is kept.
    report: EngineReport,
    started_secs: Option<f64>,
    configured_capacity: Option<u64>,
    learned_capacity: Option<u64>,
}

impl EngineReports {
    /// Creates the reports of a fleet; a configured KV capacity is never replaced by the engine's own.
    #[must_use]
    pub fn new(fleet: &[Replica], stale_after_ms: f64) -> Self {
        let replicas = fleet
            .iter()
            .map(|replica| LastReport { configured_capacity: replica.kv_capacity_tokens, ..LastReport::default() })
            .collect();
        Self { replicas, stale_after_ms }
    }

    /// Applies a metrics page. Returns the replica if its start time shows a restart since the page before.
    /// before.
    pub fn apply(&mut self, event: &FleetEvent) -> Option<RestartedEngine> {
        match *event {
            FleetEvent::Report { replica, at, report } => {
                let last = &mut self.replicas[replica.index()];
                last.at = Some(at);
                last.report = without_invalid(report);
                // Unlike the readings, capacity survives `Down` and pages without it: it does not change at run time.
                last.learned_capacity =
                    report.kv_capacity_tokens.filter(|&tokens| tokens > 0).or(last.learned_capacity);
                let restarted = matches!(
                    (last.started_secs, last.report.started_secs),
                    (Some(before), Some(now)) if (now - before).abs() > SAME_START_SECS
                );
                // A page may lack the start time (a partial scrape); the known one is kept, so that a restart is still
                // noticed.
                last.started_secs = last.report.started_secs.or(last.started_secs);
                restarted.then_some(RestartedEngine(replica))
            }
            FleetEvent::Down { replica } | FleetEvent::Restarted { replica } => {
                // Readings from before are of another state of the engine; unknown is honest, idle would attract
                // everybody.
                self.replicas[replica.index()].report = EngineReport::default();
                None
            }
            FleetEvent::Probe { .. }
            | FleetEvent::KernelRtt { .. }
            | FleetEvent::Models { .. }
            | FleetEvent::Up { .. } => None,
        }
    }

    /// KV capacity in tokens: as configured, else as last reported by the engine, else unknown. Limits the replica's
    /// part of the prefix index.
    #[must_use]
    pub fn capacity_tokens(&self, replica: ReplicaId) -> Option<u64> {
        let last = &self.replicas[replica.index()];
        last.configured_capacity.or(last.learned_capacity)
    }

    /// Fills `engine_*`, `kv_*`, `report_age_ms` and `capacity_tokens`.
    pub fn fill(&self, at: UnixMicros, candidates: &mut Candidates) {
        for row in 0..candidates.len() {
            let replica = candidates.replica[row];
            candidates.capacity_tokens[row] = self.capacity_tokens(replica).unwrap_or(0);
            let last = &self.replicas[replica.index()];
            let Some(age_ms) = last.at.map(|read_at| at.millis_since(read_at)) else { continue };
            candidates.report_age_ms[row] = Some(age_ms);
            // All other columns keep their initial `None`: unknown.
            if age_ms > self.stale_after_ms {
                continue;
            }
            candidates.engine_running[row] = last.report.running;
            candidates.engine_waiting[row] = last.report.waiting;
            candidates.kv_used_tokens[row] = last.report.kv_used_tokens;
            candidates.kv_used_share[row] = last.report.kv_used_share;
            candidates.engine_throughput[row] = last.report.throughput;
        }
    }
}

/// Removes figures that are impossible: negative or not finite.
fn without_invalid(report: EngineReport) -> EngineReport {
    let keep = |figure: Option<f64>| figure.filter(|value| value.is_finite() && *value >= 0.0);
    EngineReport {
        running: keep(report.running),
        waiting: keep(report.waiting),
        kv_used_tokens: keep(report.kv_used_tokens),
        kv_used_share: keep(report.kv_used_share),
        kv_capacity_tokens: report.kv_capacity_tokens,
        decode_batch: report.decode_batch,
        max_running: report.max_running,
        throughput: keep(report.throughput),
        started_secs: keep(report.started_secs),
        prompt_tokens_total: keep(report.prompt_tokens_total),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::EngineKind;

    const R: ReplicaId = ReplicaId(0);

    fn at(ms: u64) -> UnixMicros {
        UnixMicros(1_000_000_000 + ms * 1_000)
    }

    fn fleet(configured: Option<u64>) -> Vec<Replica> {
        vec![Replica {
            id: R,
            name: "a".into(),
            region: "a".into(),
            engine: EngineKind::Vllm,
            kv_capacity_tokens: configured,
            decode_batch: None,
        }]
    }

    fn page(ms: u64, report: EngineReport) -> FleetEvent {
        FleetEvent::Report { replica: R, at: at(ms), report }
    }

    fn busy() -> EngineReport {
        EngineReport {
            running: Some(7.0),
            waiting: Some(2.0),
            kv_used_tokens: Some(1_000.0),
            kv_used_share: Some(0.5),
            kv_capacity_tokens: Some(2_000),
            decode_batch: None,
            max_running: None,
            throughput: Some(900.0),
            started_secs: Some(1_790_000_000.0),
            prompt_tokens_total: None,
        }
    }

    fn read(reports: &EngineReports, ms: u64) -> Candidates {
        let mut candidates = Candidates::default();
        candidates.reset(1, 0);
        reports.fill(at(ms), &mut candidates);
        candidates
    }

    #[test]
    fn a_stale_reading_is_unknown_and_its_age_is_shown() {
        let mut reports = EngineReports::new(&fleet(None), 10_000.0);
        assert_eq!(read(&reports, 0).report_age_ms[0], None);
        assert_eq!(reports.apply(&page(0, busy())), None);
        let fresh = read(&reports, 10_000);
        assert_eq!((fresh.engine_running[0], fresh.engine_waiting[0]), (Some(7.0), Some(2.0)));
        assert_eq!((fresh.kv_used_tokens[0], fresh.kv_used_share[0]), (Some(1_000.0), Some(0.5)));
        assert_eq!((fresh.engine_throughput[0], fresh.report_age_ms[0]), (Some(900.0), Some(10_000.0)));
        let stale = read(&reports, 10_001);
        assert_eq!((stale.engine_running[0], stale.engine_waiting[0], stale.kv_used_share[0]), (None, None, None));
        assert_eq!(stale.report_age_ms[0], Some(10_001.0));
        assert_eq!(stale.capacity_tokens[0], 2_000, "capacity does not grow old");
    }

    #[test]
    fn configured_capacity_wins_over_learned() {
        let mut reports = EngineReports::new(&fleet(Some(700_000)), 10_000.0);
        assert_eq!(reports.apply(&page(0, busy())), None);
        assert_eq!(reports.capacity_tokens(R), Some(700_000));
        let mut reports = EngineReports::new(&fleet(None), 10_000.0);
        assert_eq!(reports.capacity_tokens(R), None);
        assert_eq!(reports.apply(&page(0, busy())), None);
        assert_eq!(reports.apply(&page(1, EngineReport { kv_capacity_tokens: Some(0), ..busy() })), None);
        assert_eq!(reports.apply(&page(2, EngineReport::default())), None);
        assert_eq!(reports.capacity_tokens(R), Some(2_000));
    }

    #[test]
    fn a_new_start_time_is_a_restart_once() {
        let mut reports = EngineReports::new(&fleet(None), 10_000.0);
        let started = |secs: f64| EngineReport { started_secs: Some(secs), ..busy() };
        assert_eq!(reports.apply(&page(0, started(100.0))), None);
        assert_eq!(reports.apply(&page(1, started(100.4))), None);
        assert_eq!(reports.apply(&page(2, EngineReport { started_secs: None, ..busy() })), None);
        assert_eq!(reports.apply(&page(3, started(160.0))), Some(RestartedEngine(R)));
        assert_eq!(reports.apply(&page(4, started(160.0))), None);
    }

    #[test]
    fn readings_from_before_a_failure_are_gone() {
        for event in [FleetEvent::Down { replica: R }, FleetEvent::Restarted { replica: R }] {
            let mut reports = EngineReports::new(&fleet(None), 10_000.0);
            assert_eq!(reports.apply(&page(0, busy())), None);
            assert_eq!(reports.apply(&event), None);
            let after = read(&reports, 5);
            assert_eq!((after.engine_running[0], after.report_age_ms[0]), (None, Some(5.0)));
        }
    }

    #[test]
    fn figures_that_cannot_be_are_unknown() {
        let mut reports = EngineReports::new(&fleet(None), 10_000.0);
        let odd =
            EngineReport { running: Some(f64::NAN), waiting: Some(-1.0), throughput: Some(f64::INFINITY), ..busy() };
        assert_eq!(reports.apply(&page(0, odd)), None);
        let row = read(&reports, 0);
        assert_eq!((row.engine_running[0], row.engine_waiting[0], row.engine_throughput[0]), (None, None, None));
        assert_eq!(row.kv_used_share[0], Some(0.5));
    }
}
