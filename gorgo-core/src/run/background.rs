//! The thread that writes the history: it has its own runtime and a lower priority than the threads that serve.
//!
//! A transaction of a few hundred rows takes milliseconds. On a machine whose cores are all busy, requests would wait
//! for it; a lower priority lets the history wait instead. The backlog is bounded by `store.queue_decisions`. Threads
//! inherit their priority, so that the thread on which SQLite runs, which is started from here, has it too. On systems
//! other than Linux, priorities belong to processes and are left alone.

use std::io;
use std::thread::{Builder, JoinHandle};

use tokio::runtime::Handle;
use tokio::sync::oneshot;
use tokio_util::sync::CancellationToken;

/// Niceness added to that of the serving threads: 5 means a third of their share when both want a core.
#[cfg(target_os = "linux")]
const NICER: i32 = 5;

/// Handle of the thread. Dropping it ends the thread after the poll in progress.
#[derive(Debug)]
pub(super) struct HistoryThread {
    handle: Handle,
    stop: CancellationToken,
    thread: Option<JoinHandle<()>>,
}

impl HistoryThread {
    /// Starts the thread. The output of `first` arrives by the receiver; later tasks are spawned on [`Self::handle`].
    ///
    /// # Errors
    /// When the system provides no thread or no runtime.
    pub(super) fn start<F>(
        first: impl FnOnce() -> F + Send + 'static,
    ) -> io::Result<(Self, oneshot::Receiver<F::Output>)>
    where
        F: Future<Output: Send + 'static>,
    {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let (handle, stop) = (runtime.handle().clone(), CancellationToken::new());
        let stopped = stop.clone();
        let (tell, told) = oneshot::channel();
        let thread = Builder::new().name("gorgo-history".to_owned()).spawn(move || {
            // Before `first`, which starts SQLite's thread: a thread inherits the priority of the one that starts it.
            lower_priority();
            // The receiver is gone if the start was abandoned in the meantime.
            let _ = tell.send(runtime.block_on(first()));
            // A current-thread runtime drives its spawned tasks only inside `block_on`.
            runtime.block_on(stopped.cancelled());
        })?;
        Ok((Self { handle, stop, thread: Some(thread) }, told))
    }

    /// Handle for spawning tasks on the thread.
    pub(super) const fn handle(&self) -> &Handle {
        &self.handle
    }
}

impl Drop for HistoryThread {
    fn drop(&mut self) {
        self.stop.cancel();
        if let Some(thread) = self.thread.take() {
            // The panic hook has already reported a panic of that thread.
            let _ = thread.join();
        }
    }
}

/// Lowers the priority of this thread and of those it starts. If refused, the history is as urgent as requests.
fn lower_priority() {
    #[cfg(target_os = "linux")]
    let _ = rustix::process::nice(NICER);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[cfg(target_os = "linux")]
    #[test]
    fn tasks_run_at_a_lower_priority_and_so_do_threads_that_they_start() {
        let own = rustix::process::getpriority_process(None).unwrap();
        let here = || rustix::process::getpriority_process(None).unwrap();
        let (background, first) = HistoryThread::start(async move || here()).unwrap();
        assert_eq!(first.blocking_recv().unwrap(), own + NICER);
        let (tell, told) = std::sync::mpsc::channel();
        drop(background.handle().spawn(async move {
            let started = std::thread::spawn(here);
            tell.send((here(), started.join().unwrap())).unwrap();
        }));
        assert_eq!(told.recv().unwrap(), (own + NICER, own + NICER));
        assert_eq!(rustix::process::getpriority_process(None).unwrap(), own, "the others are as they were");
    }
}
