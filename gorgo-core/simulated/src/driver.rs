//! One task per engine moves the state machine along with real time and hands each job's outputs to whoever asked.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::sync::{mpsc, oneshot};
use tokio_util::task::TaskTracker;

use gorgo_lab::sim::{Engine, Job, Numbers, Output, Profile};
use gorgo_routing::model::{At, Clock};

/// Most commands taken between two looks at the time.
const COMMANDS_AT_ONCE: usize = 256;

/// How long an idle engine sleeps before it looks again; any command wakes it earlier.
const IDLE: Duration = Duration::from_secs(3600);

#[derive(Debug)]
enum Command {
    Submit(Job, mpsc::UnboundedSender<Output>),
    Cancel(u64),
    Numbers(oneshot::Sender<Numbers>),
}

/// The way to an engine's task. The task ends when the last of these is gone.
#[derive(Debug, Clone)]
pub(super) struct EngineHandle {
    commands: mpsc::UnboundedSender<Command>,
    next_id: Arc<AtomicU64>,
    longest_prompt: u32,
}

/// What a job has done. Dropped before its end, the job is cancelled.
#[derive(Debug)]
pub(super) struct Outputs {
    id: u64,
    outputs: mpsc::UnboundedReceiver<Output>,
    commands: mpsc::UnboundedSender<Command>,
    finished: bool,
}

/// Starts the task of an engine.
pub(super) fn start(engine: Engine, clock: Arc<dyn Clock>, tracker: &TaskTracker) -> EngineHandle {
    // Not bounded: its length is that of the requests under way, and a dropped stream must always be able to cancel.
    let (commands, receiver) = mpsc::unbounded_channel();
    let longest_prompt = Profile::longest_prompt(engine.profile());
    tracker.spawn(drive(engine, clock, receiver));
    EngineHandle { commands, next_id: Arc::new(AtomicU64::new(1)), longest_prompt }
}

impl EngineHandle {
    /// Longest prompt it takes, tokens.
    pub(super) const fn longest_prompt(&self) -> u32 {
        self.longest_prompt
    }

    /// Gives the engine a job.
    pub(super) fn submit(&self, pages: Vec<u64>, prompt_tokens: u32, max_tokens: u32) -> Outputs {
        let id = self.next_id.fetch_add(1, Ordering::Relaxed);
        // Not bounded: a job has as many outputs as tokens, which the KV cache bounds, and the engine waits for nobody.
        let (sender, outputs) = mpsc::unbounded_channel();
        // Where the task is gone, the sender goes with the command and the outputs end at once.
        let _ = self.commands.send(Command::Submit(Job { id, pages, prompt_tokens, max_tokens }, sender));
        Outputs { id, outputs, commands: self.commands.clone(), finished: false }
    }

    /// What the metrics page says; `None` when the engine's task is gone.
    pub(super) async fn numbers(&self) -> Option<Numbers> {
        let (sender, receiver) = oneshot::channel();
        self.commands.send(Command::Numbers(sender)).ok()?;
        receiver.await.ok()
    }
}

impl Outputs {
    /// The next output; `None` after the last.
    pub(super) async fn next(&mut self) -> Option<Output> {
        std::future::poll_fn(|cx| self.poll_next(cx)).await
    }

    /// The same for a body.
    pub(super) fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Option<Output>> {
        let output = std::task::ready!(self.outputs.poll_recv(cx));
        self.finished |= matches!(output, None | Some(Output::Finished { .. }));
        Poll::Ready(output)
    }
}

impl Drop for Outputs {
    fn drop(&mut self) {
        if !self.finished {
            let _ = self.commands.send(Command::Cancel(self.id));
        }
    }
}

async fn drive(mut engine: Engine, clock: Arc<dyn Clock>, mut commands: mpsc::UnboundedReceiver<Command>) {
    let mut listeners: HashMap<u64, mpsc::UnboundedSender<Output>> = HashMap::new();
    let mut outputs = Vec::new();
    let mut batch = Vec::new();
    loop {
        let now = clock.now();
        engine.advance(now, &mut outputs);
        hand_out(&mut outputs, &mut listeners);
        let sleep = engine.next_event().map_or(IDLE, |due| due.since(now));
        tokio::select! {
            biased;
            taken = commands.recv_many(&mut batch, COMMANDS_AT_ONCE) => {
                if taken == 0 {
                    return; // nobody is left who could ask or listen
                }
                let now = clock.now();
                engine.advance(now, &mut outputs);
                hand_out(&mut outputs, &mut listeners);
                for command in batch.drain(..) {
                    obey(command, now, &mut engine, &mut listeners);
                }
            }
            () = tokio::time::sleep(sleep) => {}
        }
    }
}

fn obey(command: Command, now: At, engine: &mut Engine, listeners: &mut HashMap<u64, mpsc::UnboundedSender<Output>>) {
    match command {
        Command::Submit(job, sender) => {
            let id = job.id;
            // Ids are counted up, so none is taken; were one, its listener would see an end without a finish.
            if engine.submit(now, job).is_ok() {
                listeners.insert(id, sender);
            }
        }
        Command::Cancel(id) => {
            engine.cancel(id);
            listeners.remove(&id);
        }
        Command::Numbers(sender) => {
            let _ = sender.send(engine.numbers());
        }
    }
}

fn hand_out(outputs: &mut Vec<Output>, listeners: &mut HashMap<u64, mpsc::UnboundedSender<Output>>) {
    for output in outputs.drain(..) {
        // A listener that left has sent, or is about to send, its cancel.
        if let Some(listener) = listeners.get(&output.id()) {
            let _ = listener.send(output);
        }
        if matches!(output, Output::Finished { .. }) {
            listeners.remove(&output.id());
        }
    }
}
