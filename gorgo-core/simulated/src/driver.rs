//! Task that advances an engine's state machine with real time and delivers the outputs of each job to its receiver.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::sync::{mpsc, oneshot};
use tokio_util::task::TaskTracker;

use gorgo_lab::sim::{EngineOutput, EngineProfile, EngineStats, SimulatedEngine, SimulatedRequest};
use gorgo_routing::model::{Clock, UnixMicros};

/// Maximum number of commands taken between two reads of the clock.
const COMMANDS_AT_ONCE: usize = 256;

/// Longest sleep of an idle engine; any command wakes it earlier.
const IDLE: Duration = Duration::from_secs(3600);

#[derive(Debug)]
enum DriverCommand {
    Submit(SimulatedRequest, mpsc::UnboundedSender<EngineOutput>),
    Cancel(u64),
    Numbers(oneshot::Sender<EngineStats>),
}

/// Handle of an engine's task. The task ends when the last handle is dropped.
#[derive(Debug, Clone)]
pub(super) struct EngineHandle {
    commands: mpsc::UnboundedSender<DriverCommand>,
    next_id: Arc<AtomicU64>,
    longest_prompt: u32,
}

/// Outputs of one job. Dropping this before the job's end cancels the job.
#[derive(Debug)]
pub(super) struct JobOutputs {
    id: u64,
    outputs: mpsc::UnboundedReceiver<EngineOutput>,
    commands: mpsc::UnboundedSender<DriverCommand>,
    finished: bool,
}

/// Starts the task of an engine.
pub(super) fn start(engine: SimulatedEngine, clock: Arc<dyn Clock>, tracker: &TaskTracker) -> EngineHandle {
    // Unbounded: its length is limited by the requests in flight, and `drop` must be able to send a cancellation
    // without waiting.
    let (commands, receiver) = mpsc::unbounded_channel();
    let longest_prompt = EngineProfile::longest_prompt(engine.profile());
    tracker.spawn(drive(engine, clock, receiver));
    EngineHandle { commands, next_id: Arc::new(AtomicU64::new(1)), longest_prompt }
}

impl EngineHandle {
    /// Returns the longest prompt that the engine accepts, tokens.
    pub(super) const fn longest_prompt(&self) -> u32 {
        self.longest_prompt
    }

    /// Submits a job to the engine.
    pub(super) fn submit(&self, pages: Vec<u64>, prompt_tokens: u32, max_tokens: u32) -> JobOutputs {
        let id = self.next_id.fetch_add(1, Ordering::Relaxed);
        // Unbounded: a job has about as many outputs as tokens, which the KV cache limits, and a slow client must not
        // delay the engine.
        let (sender, outputs) = mpsc::unbounded_channel();
        // If the task has ended, the sender is dropped with the command, and the outputs end at once.
        let _ = self
            .commands
            .send(DriverCommand::Submit(SimulatedRequest { id, pages, prompt_tokens, max_tokens }, sender));
        JobOutputs { id, outputs, commands: self.commands.clone(), finished: false }
    }

    /// Returns the numbers of the metrics page; `None` if the engine's task has ended.
    pub(super) async fn numbers(&self) -> Option<EngineStats> {
        let (sender, receiver) = oneshot::channel();
        self.commands.send(DriverCommand::Numbers(sender)).ok()?;
        receiver.await.ok()
    }
}

impl JobOutputs {
    /// Waits for the next output; `None` after the last.
    pub(super) async fn next(&mut self) -> Option<EngineOutput> {
        std::future::poll_fn(|cx| self.poll_next(cx)).await
    }

    /// Polls for the next output, for use in a body.
    pub(super) fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Option<EngineOutput>> {
        let output = std::task::ready!(self.outputs.poll_recv(cx));
        self.finished |= matches!(output, None | Some(EngineOutput::Finished { .. }));
        Poll::Ready(output)
    }
}

impl Drop for JobOutputs {
    fn drop(&mut self) {
        // An error means that the engine's task has ended, and the job with it.
        if !self.finished {
            let _ = self.commands.send(DriverCommand::Cancel(self.id));
        }
    }
}

async fn drive(
    mut engine: SimulatedEngine,
    clock: Arc<dyn Clock>,
    mut commands: mpsc::UnboundedReceiver<DriverCommand>,
) {
    let mut listeners: HashMap<u64, mpsc::UnboundedSender<EngineOutput>> = HashMap::new();
    let mut outputs = Vec::new();
    let mut batch = Vec::new();
    loop {
        let now = clock.now();
        engine.advance(now, &mut outputs);
        deliver_outputs(&mut outputs, &mut listeners);
        // A step may end while the outputs above are delivered; `since` is then 0, and the loop goes on at once.
        let sleep = engine.next_event().map_or(IDLE, |due| due.elapsed_since(now));
        tokio::select! {
            // Commands first. The engine is advanced before each batch of them, so a flood does not hold up its steps.
            biased;
            taken = commands.recv_many(&mut batch, COMMANDS_AT_ONCE) => {
                if taken == 0 {
                    return; // all handles and outputs have been dropped
                }
                let now = clock.now();
                // Time has passed since the clock was read: bring the engine up to date before the commands apply.
                engine.advance(now, &mut outputs);
                deliver_outputs(&mut outputs, &mut listeners);
                for command in batch.drain(..) {
                    run_command(command, now, &mut engine, &mut listeners);
                }
            }
            () = tokio::time::sleep(sleep) => {}
        }
    }
}

fn run_command(
    command: DriverCommand,
    now: UnixMicros,
    engine: &mut SimulatedEngine,
    listeners: &mut HashMap<u64, mpsc::UnboundedSender<EngineOutput>>,
) {
    match command {
        DriverCommand::Submit(job, sender) => {
            let id = job.id;
            // Ids are counted up, so this cannot fail. If it did, the receiver would see the end without `Finished`.
            if engine.submit(now, job).is_ok() {
                listeners.insert(id, sender);
            }
        }
        DriverCommand::Cancel(id) => {
            engine.cancel(id);
            listeners.remove(&id);
        }
        DriverCommand::Numbers(sender) => {
            let _ = sender.send(engine.stats());
        }
    }
}

fn deliver_outputs(outputs: &mut Vec<EngineOutput>, listeners: &mut HashMap<u64, mpsc::UnboundedSender<EngineOutput>>) {
    for output in outputs.drain(..) {
        // An error means that the receiver was dropped; its cancellation is on the way.
        if let Some(listener) = listeners.get(&output.id()) {
            let _ = listener.send(output);
        }
        if matches!(output, EngineOutput::Finished { .. }) {
            listeners.remove(&output.id());
        }
    }
}
