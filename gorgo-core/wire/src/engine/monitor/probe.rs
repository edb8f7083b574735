//! The probe: how far a replica is, and whether it lives. One loop per replica, on a warm connection of its own.
//!
//! What is measured is what a request on a warm connection pays: from handing a light GET to the open connection to
//! the head of its answer. The first request on a fresh connection is a warm-up and not counted, and neither is
//! connecting. (The reference probed through idle pool connections and read 2.3 to 3 times what requests paid.)

use std::time::Duration;

use crate::engine::client::{Answer, Client, GetError};
use crate::engine::monitor::health::{Change, Health, Sign};
use crate::engine::monitor::{Complaint, Schedule, Senses, Watched, key_complaint, stranger_complaint};
use gorgo_routing::config::Probe;
use gorgo_routing::model::Clock;

/// Longest answer that is read; a longer one is no light page.
const MOST_BYTES: usize = 1 << 20;

/// What one probe found.
#[derive(Debug)]
pub enum Probed {
    /// An answer, of whatever status: any answer is a round trip.
    Answered {
        /// Request handed over to head received, ms.
        rtt_ms: f64,
        /// The answer.
        answer: Answer,
    },
    /// No answer.
    Lost(GetError),
}

/// Probes once. Connects and warms up first where it must; a connection that the engine closed just then is no loss.
/// An engine that closes after every answer is measured on its fresh connection, connecting left out.
pub async fn probe_once(client: &mut Client, path: &str, limit: Duration, clock: &dyn Clock) -> Probed {
    let mut warmed = None;
    for _ in 0..2 {
        if client.is_open().await {
            match client.get(path, MOST_BYTES, limit, clock).await {
                Ok(answer) if answer.fresh => warmed = Some(answer),
                Ok(answer) => return answered(answer),
                Err(GetError::Broken(_)) => {}
                Err(lost) => return Probed::Lost(lost),
            }
        } else {
            match client.get(path, MOST_BYTES, limit, clock).await {
                Ok(answer) => warmed = Some(answer),
                Err(lost) => return Probed::Lost(lost),
            }
            if client.is_open().await {
                return match client.get(path, MOST_BYTES, limit, clock).await {
                    Ok(answer) => answered(answer),
                    Err(lost) => Probed::Lost(lost),
                };
            }
        }
    }
    match warmed {
        Some(answer) => answered(answer),
        None => Probed::Lost(GetError::Broken("closed again and again".into())),
    }
}

fn answered(answer: Answer) -> Probed {
    Probed::Answered { rtt_ms: answer.head.millis_since(answer.sent), answer }
}

/// Probes a replica until `senses.stop`; returns only then, so a task that ends before is a defect to be reported.
pub async fn probe_loop(watched: Watched, senses: Senses, config: Probe) {
    let mut schedule = Schedule::new(config.interval_ms, senses.seed, watched.replica, 1);
    let mut prober = Prober::new(watched, Duration::from_millis(config.timeout_ms), &senses);
    loop {
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

/// A replica's probe and its health.
#[derive(Debug)]
pub struct Prober {
    watched: Watched,
    client: Client,
    limit: Duration,
    health: Health,
    complaint: Complaint,
}

impl Prober {
    /// Nothing is sent yet. `limit`: a probe without an answer by then is lost.
    #[must_use]
    pub fn new(watched: Watched, limit: Duration, senses: &Senses) -> Self {
        let client = Client::new(watched.endpoint.clone(), senses.tasks.clone());
        Self { watched, client, limit, health: Health::default(), complaint: Complaint::default() }
    }

    /// Probes once and tells what it found.
    pub async fn step(&mut self, senses: &Senses) {
        let (replica, path) = (self.watched.replica, self.watched.adapter.probe_path);
        let probed = probe_once(&mut self.client, path, self.limit, &*senses.clock).await;
        let at = senses.clock.now();
        let (rtt_ms, sign) = match &probed {
            Probed::Answered { rtt_ms, answer } => {
                let complaint = key_complaint(&self.watched, path, answer.status)
                    .or_else(|| stranger_complaint(&self.watched, path, answer.status));
                self.complaint.say(complaint, &self.watched, senses);
                (Some(*rtt_ms), if answer.status.is_server_error() { Sign::ServerError } else { Sign::Answered })
            }
            Probed::Lost(error) if error.is_refused() => (None, Sign::Refused),
            Probed::Lost(error) if error.is_connect() => (None, Sign::Unreachable),
            Probed::Lost(_) => (None, Sign::Late),
        };
        // Health first: who listens to the facts then knows the state in which this figure was taken.
        if let Some(change) = self.health.sign(at, sign, senses.vitals.last(replica)) {
            self.tell(change, &probed, senses);
        }
        senses.outlet.probed(replica, at, rtt_ms);
    }

    fn tell(&self, change: Change, probed: &Probed, senses: &Senses) {
        let (replica, name) = (self.watched.replica, &self.watched.name);
        if matches!(change, Change::Restarted | Change::Up { restarted: true }) {
            let text = format!("replica {name} refused connections and answers again; its cache is taken for empty");
            senses.outlet.restarted(replica, text);
        }
        match change {
            Change::Restarted => {}
            Change::Up { .. } => {
                senses.vitals.ejections().probes_answer(replica);
                senses.outlet.up(replica, format!("replica {name} answers probes"));
            }
            Change::Down { cause } => {
                let detail = match probed {
                    Probed::Answered { answer, .. } => format!("status {}", answer.status.as_u16()),
                    Probed::Lost(error) => error.to_string(),
                };
                senses.outlet.down(replica, format!("replica {name}: {cause} ({detail})"));
            }
        }
    }
}

#[cfg(test)]
mod tests;
