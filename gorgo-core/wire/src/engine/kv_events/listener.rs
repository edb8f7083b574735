//! Listens to one engine's publisher as long as the router runs: connects, applies batches, requests missed ones, and
//! reconnects when the connection breaks.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use tokio::time::sleep;
use zeromq::{Socket, SocketEvent, SocketOptions, SocketRecv, SubSocket, ZmqError, ZmqMessage};

use super::decode::{self, FrameError, KvEventBatch};
use super::replay;
use super::sequence::{BatchSequence, BatchStamp, SequenceAction};
use super::{CacheFacts, KvEventCounters};
use crate::engine::monitor::ProbeContext;
use gorgo_routing::model::{EventKind, KvChange, ReplicaId, UnixMicros};

/// Time limit for connecting.
const CONNECT_LIMIT: Duration = Duration::from_secs(2);
/// Pause between two tries to connect.
const PAUSE: Duration = Duration::from_secs(1);
/// Silence after which the engine is asked for newer batches: the last ones may have been lost without notice.
const SILENCE: Duration = Duration::from_secs(15);
/// Shortest interval at which the same warning is repeated, ms.
const WARN_INTERVAL_MS: f64 = 60_000.0;

/// Source of a replica's events.
#[derive(Debug, Clone)]
pub struct KvEventSource {
    /// Replica.
    pub replica: ReplicaId,
    /// Name of the replica, for texts.
    pub name: Arc<str>,
    /// Address of its publisher; with the host `*`, the publisher connects to the router.
    pub events: String,
    /// Address at which it answers requests for missed events.
    pub replay: Option<String>,
}

/// Listens to a replica until `senses.stop`.
pub async fn listen_loop(
    source: KvEventSource,
    facts: Arc<dyn CacheFacts>,
    senses: ProbeContext,
    tally: Arc<KvEventCounters>,
) {
    let stop = senses.stop.clone();
    let sequence = BatchSequence::new(source.replay.is_some());
    let mut ear = KvEventListener {
        source,
        facts,
        senses,
        tally,
        sequence,
        bad: WarningThrottle::default(),
        lost: WarningThrottle::default(),
        warned: false,
    };
    loop {
        let step = async {
            let ended = ear.listen().await;
            // Before the warning: the facts must be marked as uncertain at once.
            ear.on_disconnect();
            if let Err(cause) = ended {
                ear.warn_unreachable(&cause);
            }
            // Also after a clean end, so that a publisher that closes at once does not cause a tight loop.
            sleep(PAUSE).await;
        };
        tokio::select! {
            () = step => {}
            () = stop.cancelled() => return,
        }
    }
}

/// Limits how often a warning is given.
#[derive(Debug, Default)]
struct WarningThrottle(Option<UnixMicros>);

impl WarningThrottle {
    fn allow(&mut self, now: UnixMicros) -> bool {
        let may = self.0.is_none_or(|last| now.millis_since(last) >= WARN_INTERVAL_MS);
        if may {
            self.0 = Some(now);
        }
        may
    }
}

struct KvEventListener {
    source: KvEventSource,
    facts: Arc<dyn CacheFacts>,
    senses: ProbeContext,
    tally: Arc<KvEventCounters>,
    sequence: BatchSequence,
    bad: WarningThrottle,
    lost: WarningThrottle,
    /// Set once it was reported that the publisher cannot be reached, until it can.
    warned: bool,
}

/// Address to bind to if the publisher connects to the router.
fn bound(address: &str) -> Option<String> {
    address.strip_prefix("tcp://*:").map(|port| format!("tcp://0.0.0.0:{port}"))
}

impl KvEventListener {
    /// Connects and listens until the connection breaks.
    async fn listen(&mut self) -> Result<(), ZmqError> {
        let mut options = SocketOptions::default();
        options.connect_timeout(CONNECT_LIMIT);
        let mut socket = SubSocket::with_options(options);
        // Before connecting, or the first event would be missed.
        let mut monitor = socket.monitor();
        socket.subscribe("").await?;
        let bound = bound(&self.source.events);
        if let Some(address) = &bound {
            socket.bind(address).await?;
        } else {
            socket.connect(&self.source.events).await?;
            self.on_connect().await;
        }
        loop {
            tokio::select! {
                message = socket.recv() => match message {
                    Ok(message) => self.on_message(message).await,
                    // A bound socket serves several publishers in turn; the failure of one connection does not end it.
                    Err(_) if bound.is_some() => {}
                    Err(cause) => return Err(cause),
                },
                event = monitor.recv() => match event {
                    Ok(SocketEvent::Accepted(..)) => self.on_connect().await,
                    Ok(SocketEvent::Disconnected(_)) if bound.is_some() => self.on_disconnect(),
                    Ok(SocketEvent::Disconnected(_)) | Err(_) => return Ok(()),
                    Ok(_) => {}
                },
                () = sleep(SILENCE) => {
                    if let Some(from) = self.sequence.on_silence() {
                        self.perform(vec![SequenceAction::Replay(from)], None).await;
                    }
                }
            }
        }
    }

    fn warn_unreachable(&mut self, cause: &ZmqError) {
        if !std::mem::replace(&mut self.warned, true) {
            let KvEventSource { replica, name, events, .. } = &self.source;
            let text = format!("replica {name}: cannot receive cache events from {events}: {cause}; retrying");
            self.senses.outlet.note(EventKind::MissingSignal, *replica, text);
        }
    }

    async fn on_connect(&mut self) {
        self.warned = false;
        self.tally.connected.store(true, Relaxed);
        if let Some(from) = self.sequence.on_connect() {
            self.perform(vec![SequenceAction::Replay(from)], None).await;
        }
    }

    /// Records a broken connection. Without a replay it is unknown what is missed from now on, and which engine comes
    /// back.
    fn on_disconnect(&self) {
        if self.tally.connected.swap(false, Relaxed) && self.source.replay.is_none() {
            self.facts.apply(self.source.replica, &[KvChange::EventsLost]);
        }
    }

    async fn on_message(&mut self, message: ZmqMessage) {
        let frames = message.into_vec();
        // The topic is ignored, since everything was subscribed to.
        let [_, number, payload] = &frames[..] else { return self.reject_frame(FrameError::Frames(frames.len())) };
        let number = match decode::batch_number(number).map(u64::try_from) {
            Ok(Ok(number)) => number,
            Ok(Err(_)) => return self.reject_frame(FrameError::Unexpected("a batch's number")),
            Err(bad) => return self.reject_frame(bad),
        };
        match decode::decode_batch(payload) {
            Ok(batch) => {
                let seen = BatchStamp { number, created_secs: batch.created_secs };
                let acts = self.sequence.on_batch(seen);
                if acts.iter().any(|act| matches!(act, SequenceAction::Replay(_) | SequenceAction::Unsure)) {
                    self.tally.gaps.fetch_add(1, Relaxed);
                }
                self.perform(acts, Some((seen, batch))).await;
            }
            Err(bad) => {
                // The number is known even if the changes are not, so the following batch does not look like a gap.
                self.reject_frame(bad);
                let acts = self.sequence.on_unreadable(number);
                self.perform(acts, None).await;
            }
        }
    }

    fn reject_frame(&mut self, bad: FrameError) {
        self.tally.bad_frames.fetch_add(1, Relaxed);
        if self.bad.allow(self.senses.clock.now()) {
            let text =
                format!("replica {}: unreadable cache event from {}: {bad}", self.source.name, self.source.events);
            self.senses.outlet.note(EventKind::MissingSignal, self.source.replica, text);
        }
    }

    /// Takes the actions of the sequence. `live`: the batch that they were returned for.
    async fn perform(&mut self, acts: Vec<SequenceAction>, mut live: Option<(BatchStamp, KvEventBatch)>) {
        let mut acts = acts;
        let mut batches = Vec::new();
        // A replay leads to at most one more, so this ends whatever the engine answers.
        for asked in 0..3 {
            let question =
                acts.iter().find_map(|act| if let SequenceAction::Replay(from) = act { Some(*from) } else { None });
            let Some(from) = question else {
                if asked == 0 {
                    batches.extend(live.take().map(|(_, batch)| batch));
                }
                self.apply_actions(&acts, &batches);
                break;
            };
            let Some(address) = &self.source.replay else { break };
            self.tally.replays.fetch_add(1, Relaxed);
            let answer = replay::request_replay(address, from).await;
            self.tally.bad_frames.fetch_add(answer.bad_frames, Relaxed);
            acts = self.sequence.on_replay(&answer.stamps, answer.complete);
            batches = answer.batches;
        }
        // A replay was made, so the batch that caused it is judged against what the replay brought.
        if let Some((seen, batch)) = live {
            let acts = self.sequence.after_replay(seen);
            self.apply_actions(&acts, &[batch]);
        }
    }

    fn apply_actions(&mut self, acts: &[SequenceAction], batches: &[KvEventBatch]) {
        let (replica, name) = (self.source.replica, Arc::clone(&self.source.name));
        for act in acts {
            match *act {
                SequenceAction::Whole => self.facts.apply(replica, &[KvChange::CompleteFromStart]),
                SequenceAction::Restarted => {
                    self.facts.apply(replica, &[KvChange::Restarted]);
                    let text = format!("replica {name}: its cache events start over; its index entries were dropped");
                    self.senses.outlet.note(EventKind::ReplicaRestarted, replica, text);
                }
                SequenceAction::Unsure => {
                    self.facts.apply(replica, &[KvChange::EventsLost]);
                    if self.lost.allow(self.senses.clock.now()) {
                        let remedy = match &self.source.replay {
                            Some(_) => "the engine no longer has them",
                            None => "set kv_replay to let the router request them",
                        };
                        let text = format!(
                            "replica {name}: cache events are missing ({remedy}); its cache contents are uncertain \
                             until it restarts or clears its cache"
                        );
                        self.senses.outlet.note(EventKind::MissingSignal, replica, text);
                    }
                }
                SequenceAction::Apply(place) => {
                    let Some(batch) = batches.get(place) else { continue };
                    self.tally.batches.fetch_add(1, Relaxed);
                    self.tally.unknown_events.fetch_add(batch.unknown, Relaxed);
                    // An event arrived, so answers without one are counted again from here.
                    self.tally.answers_since_batch.store(0, Relaxed);
                    self.facts.apply(replica, &batch.changes);
                }
                SequenceAction::Skip | SequenceAction::Replay(_) => {}
            }
        }
    }
}
