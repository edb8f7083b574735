//! The thread that writes the history: its own runtime, of lower priority than the threads that serve.
//!
//! A transaction of some hundred rows takes milliseconds. On a machine whose cores are all busy, requests would wait for
//! it; so the scheduler is told that the history can wait. It is bounded by `store.queue_decisions`. Threads inherit their
//! priority, so that the thread on which SQLite runs, which is started from here, has it too. On systems other than Linux
//! priorities are of processes, and left alone.

use std::io;
use std::thread::{Builder, JoinHandle};

use tokio::runtime::Handle;
use tokio::sync::oneshot;
use tokio_util::sync::CancellationToken;

/// How much nicer than the serving threads: 5 is a third of their share where both want a core.
#[cfg(target_os = "linux")]
const NICER: i32 = 5;

/// The thread. Dropped, it ends with the poll it is in.
#[derive(Debug)]
pub(super) struct Background {
    handle: Handle,
    stop: CancellationToken,
    thread: Option<JoinHandle<()>>,
}

impl Background {
    /// Starts it. What it does first comes back by the receiver; then it does the tasks it is given.
    ///
    /// # Errors
    /// Where the system gives no thread or no runtime.
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
            lower_priority();
            // Nobody waits any more where the start was given up meanwhile.
            let _ = tell.send(runtime.block_on(first()));
            runtime.block_on(stopped.cancelled());
        })?;
        Ok((Self { handle, stop, thread: Some(thread) }, told))
    }

    /// Where tasks are spawned on it.
    pub(super) const fn handle(&self) -> &Handle {
        &self.handle
    }
}

impl Drop for Background {
    fn drop(&mut self) {
        self.stop.cancel();
        if let Some(thread) = self.thread.take() {
            // A panic there has been reported by the task that panicked.
            let _ = thread.join();
        }
    }
}

/// Of this thread and those it starts. Where that is refused, the history is merely as urgent as requests.
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
        let (background, first) = Background::start(async move || here()).unwrap();
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
