//! The probe: round trip and health of a replica. One loop per replica, on its own warm connection.
//!
//! The measured time is the network time of a request on a warm connection: from handing a light GET to the open
//! connection to the head of its response. The first request on a fresh connection is a warm-up and not counted, and
//! neither is connecting. (Probing through idle pool connections instead reads 2.3 to 3 times what requests pay.)

use std::time::Duration;

use crate::engine::client::{EngineClient, EngineClientError, EngineResponse};
use crate::engine::monitor::health::{HealthChange, HealthSignal, ReplicaHealth};
use crate::engine::monitor::{
    JitteredInterval, MonitoredReplica, ProbeContext, WarningLatch, key_warning, not_found_warning,
};
use gorgo_routing::config::ProbeConfig;
use gorgo_routing::model::Clock;

/// Longest response that is read; a longer one is no light page.
const MOST_BYTES: usize = 1 << 20;

/// Result of one probe.
#[derive(Debug)]
pub enum ProbeOutcome {
    /// Response of whatever status: any response is a round trip.
    Answered {
        /// Time from handing the request over to receiving the head, ms.
        rtt_ms: f64,
        /// Response.
        answer: EngineResponse,
    },
    /// No response.
    Lost(EngineClientError),
}

/// Probes once. Connects and warms up first if necessary; a connection that the engine closed just then does not count
/// as a loss. An engine that closes after every response is measured on its fresh connection, without connecting.
pub async fn probe_once(client: &mut EngineClient, path: &str, limit: Duration, clock: &dyn Clock) -> ProbeOutcome {
    let mut warmed = None;
    // Twice: the kept connection may turn out to be closed, and the second round then uses a fresh one.
    for _ in 0..2 {
        if client.is_open().await {
            match client.get(path, MOST_BYTES, limit, clock).await {
                // Closed between the check and the request, so the client dialled: a warm-up.
                Ok(answer) if answer.fresh => warmed = Some(answer),
                Ok(answer) => return answered(answer),
                // The engine closed an idle connection, which says nothing about its health.
                Err(EngineClientError::Broken(_)) => {}
                Err(lost) => return ProbeOutcome::Lost(lost),
            }
        } else {
            match client.get(path, MOST_BYTES, limit, clock).await {
                Ok(answer) => warmed = Some(answer),
                Err(lost) => return ProbeOutcome::Lost(lost),
            }
            if client.is_open().await {
                return match client.get(path, MOST_BYTES, limit, clock).await {
                    Ok(answer) => answered(answer),
                    Err(lost) => ProbeOutcome::Lost(lost),
                };
            }
        }
    }
    match warmed {
        Some(answer) => answered(answer),
        None => ProbeOutcome::Lost(EngineClientError::Broken("closed again and again".into())),
    }
}

fn answered(answer: EngineResponse) -> ProbeOutcome {
    ProbeOutcome::Answered { rtt_ms: answer.head_at.millis_since(answer.sent_at), answer }
}

/// Probes a replica until `senses.stop`; returns only then, so a task that ends earlier is a defect to be reported.
pub async fn probe_loop(watched: MonitoredReplica, senses: ProbeContext, config: ProbeConfig) {
    let mut schedule = JitteredInterval::new(config.interval_ms, senses.seed, watched.replica, 1);
    let mut prober = ReplicaProber::new(watched, Duration::from_millis(config.timeout_ms), &senses);
    loop {
        // Started before the step, so that the interval does not grow by the duration of the probe.
        let pause = tokio::time::sleep(schedule.next());
        let step = async {
            prober.step(&senses).await;
            pause.await;
        };
        tokio::select! {
            () = step => {}
            () = senses.stop.cancelled() => return,
        }
    }
}

/// Probe of a replica, with its health.
#[derive(Debug)]
pub struct ReplicaProber {
    watched: MonitoredReplica,
    client: EngineClient,
    limit: Duration,
    health: ReplicaHealth,
    complaint: WarningLatch,
}

impl ReplicaProber {
    /// Prober that has not sent anything yet. `limit`: a probe without a response by then is lost.
    #[must_use]
    pub fn new(watched: MonitoredReplica, limit: Duration, senses: &ProbeContext) -> Self {
        let client = EngineClient::new(watched.endpoint.clone(), senses.tasks.clone());
        Self { watched, client, limit, health: ReplicaHealth::default(), complaint: WarningLatch::default() }
    }

    /// Probes once and reports the result.
    pub async fn step(&mut self, senses: &ProbeContext) {
        let (replica, path) = (self.watched.replica, self.watched.adapter.probe_path);
        let probed = probe_once(&mut self.client, path, self.limit, &*senses.clock).await;
        let at = senses.clock.now();
        let (rtt_ms, sign) = match &probed {
            ProbeOutcome::Answered { rtt_ms, answer } => {
                // A refusal is a round trip all the same; the warning only tells the operator about the key or the
                // address.
                let complaint = key_warning(&self.watched, path, answer.status)
                    .or_else(|| not_found_warning(&self.watched, path, answer.status));
                self.complaint.update(complaint, &self.watched, senses);
                (
                    Some(*rtt_ms),
                    if answer.status.is_server_error() { HealthSignal::ServerError } else { HealthSignal::Answered },
                )
            }
            ProbeOutcome::Lost(error) if error.is_refused() => (None, HealthSignal::Refused),
            ProbeOutcome::Lost(error) if error.is_connect() => (None, HealthSignal::Unreachable),
            ProbeOutcome::Lost(_) => (None, HealthSignal::Late),
        };
        // Health first: listeners to the facts then know the state in which this figure was measured.
        if let Some(change) = self.health.observe(at, sign, senses.liveness.last_activity(replica)) {
            self.report_change(change, &probed, senses);
        }
        senses.outlet.probed(replica, at, rtt_ms);
    }

    fn report_change(&self, change: HealthChange, probed: &ProbeOutcome, senses: &ProbeContext) {
        let (replica, name) = (self.watched.replica, &self.watched.name);
        if matches!(change, HealthChange::Restarted | HealthChange::Up { restarted: true }) {
            let text = format!("replica {name} refused connections and answers again; its cache is assumed empty");
            senses.outlet.restarted(replica, text);
        }
        match change {
            HealthChange::Restarted => {}
            HealthChange::Up { .. } => {
                // Probes see a recovery before requests do, so the rest of an ejection is not waited out.
                senses.liveness.ejections().probes_recovered(replica);
                senses.outlet.up(replica, format!("replica {name} answers probes"));
            }
            HealthChange::Down { cause } => {
                let detail = match probed {
                    ProbeOutcome::Answered { answer, .. } => format!("status {}", answer.status.as_u16()),
                    ProbeOutcome::Lost(error) => error.to_string(),
                };
                senses.outlet.down(replica, format!("replica {name}: {cause} ({detail})"));
            }
        }
    }
}

#[cfg(test)]
mod tests;
