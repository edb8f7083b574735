//! A trial load in a separate process: a library that ends the process as it is loaded (by an abort in an initialiser, or
//! a crash) ends that one and not the router.

use std::ffi::OsString;
use std::io::Read;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::thread;
use std::time::Duration;

use super::error::PluginError;

/// Interval between two looks at a running trial.
const POLL_INTERVAL: Duration = Duration::from_millis(5);
/// Looks after which a trial is given up: 10 s.
const MAX_POLLS: u32 = 2000;

/// The program that loads a library for trial: run with these arguments followed by the file's path, it exits with 0 if
/// the library can be loaded; otherwise it prints the reason on standard error.
#[derive(Debug, Clone)]
pub struct TrialLoader {
    /// The program.
    pub program: PathBuf,
    /// Arguments before the path.
    pub arguments: Vec<OsString>,
}

impl TrialLoader {
    /// Loads `path` in a separate process.
    pub(super) fn run(&self, path: &Path) -> Result<(), PluginError> {
        let failed = |what: String| PluginError::Trial { path: path.to_owned(), what };
        let mut child = Command::new(&self.program)
            .args(&self.arguments)
            .arg(path)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .map_err(|cause| failed(format!("could not be started ({cause})")))?;
        let Some(status) =
            wait_or_kill(&mut child).map_err(|cause| failed(format!("could not be watched ({cause})")))?
        else {
            return Err(failed("took more than 10 s".to_owned()));
        };
        if status.success() {
            return Ok(());
        }
        let mut said = Vec::new();
        if let Some(mut stderr) = child.stderr.take() {
            // The trial has failed anyway; text that cannot be read is not worth another error.
            let _ = stderr.by_ref().take(4096).read_to_end(&mut said);
        }
        let said = String::from_utf8_lossy(&said);
        Err(failed(exit_reason(status, said.trim())))
    }
}

/// Waits for the end of the trial; `None`: it had to be killed.
fn wait_or_kill(child: &mut Child) -> std::io::Result<Option<ExitStatus>> {
    for _ in 0..MAX_POLLS {
        if let Some(status) = child.try_wait()? {
            return Ok(Some(status));
        }
        thread::sleep(POLL_INTERVAL);
    }
    // The standard library has no wait with a time limit, hence the loop above.
    child.kill()?;
    child.wait()?;
    Ok(None)
}

fn exit_reason(status: ExitStatus, said: &str) -> String {
    let said = if said.is_empty() { String::new() } else { format!(": {said}") };
    match status.signal() {
        Some(libc::SIGABRT) => format!("aborted{said}"),
        Some(libc::SIGSEGV) => format!("crashed (segmentation fault){said}"),
        Some(signal) => format!("ended by signal {signal}{said}"),
        None => format!("failed{said}"),
    }
}
