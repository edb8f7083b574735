//! A trial load in a process of its own: what ends a process at load (an abort in an initialiser, a crash) ends that
//! one.

use std::ffi::OsString;
use std::io::Read;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::thread;
use std::time::Duration;

use super::error::PluginError;

/// How often a trial is looked after.
const GLANCE: Duration = Duration::from_millis(5);
/// Glances after which a trial is given up: 10 s.
const GLANCES: u32 = 2000;

/// The program that loads a library for trial: run with these arguments and then the file's path, it ends with 0 where
/// all is well, else it tells why on standard error.
#[derive(Debug, Clone)]
pub struct Trial {
    /// The program.
    pub program: PathBuf,
    /// Its arguments before the path.
    pub arguments: Vec<OsString>,
}

impl Trial {
    /// Loads `path` in a process of its own.
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
        let Some(status) = ended(&mut child).map_err(|cause| failed(format!("could not be watched ({cause})")))? else {
            return Err(failed("took more than 10 s".to_owned()));
        };
        if status.success() {
            return Ok(());
        }
        let mut said = Vec::new();
        if let Some(mut stderr) = child.stderr.take() {
            // What cannot be read is not worth another error.
            let _ = stderr.by_ref().take(4096).read_to_end(&mut said);
        }
        let said = String::from_utf8_lossy(&said);
        Err(failed(how(status, said.trim())))
    }
}

/// Waits for the end; `None`: it had to be killed.
fn ended(child: &mut Child) -> std::io::Result<Option<ExitStatus>> {
    for _ in 0..GLANCES {
        if let Some(status) = child.try_wait()? {
            return Ok(Some(status));
        }
        thread::sleep(GLANCE);
    }
    child.kill()?;
    child.wait()?;
    Ok(None)
}

fn how(status: ExitStatus, said: &str) -> String {
    let said = if said.is_empty() { String::new() } else { format!(": {said}") };
    match status.signal() {
        Some(libc::SIGABRT) => format!("aborted{said}"),
        Some(libc::SIGSEGV) => format!("crashed (segmentation fault){said}"),
        Some(signal) => format!("ended by signal {signal}{said}"),
        None => format!("failed{said}"),
    }
}
