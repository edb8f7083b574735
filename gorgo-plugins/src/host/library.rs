//! A library: its file is checked, read once and hashed, and exactly the bytes that were hashed are loaded.
//!
//! The bytes are loaded from memory, not from the file: overwriting the file in place, as linkers and `cp` do, does not
//! harm the running code, and a new build becomes another library beside the old one. Nothing is ever unloaded: a
//! thread-local of an unloaded library would crash its thread later.
#![expect(unsafe_code, reason = "binding a library, and calling its entries")]

use std::error::Error;
use std::ffi::CString;
use std::fmt::Write as _;
use std::fs::{self, File};
use std::io::{self, Read, Write as _};
use std::mem;
use std::os::fd::{AsRawFd, FromRawFd, IntoRawFd};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use libloading::os::unix::{Library as Bound, RTLD_LOCAL, RTLD_NOW};
use sha2::{Digest, Sha256};

use super::descriptor::{self, PluginFunctions, PluginInfo};
use super::error::PluginError;
use crate::abi::{self, CONSTRAINT_SYMBOL, EntryFn, OBJECTIVE_SYMBOL, SCORER_SYMBOL};

/// Largest file that is accepted as a plugin, bytes.
const LARGEST: u64 = 256 << 20;

/// The bytes of a library's file.
#[derive(Debug)]
pub(crate) struct LibraryImage {
    path: PathBuf,
    pub(crate) sha256: Arc<str>,
    bytes: Vec<u8>,
}

impl LibraryImage {
    /// Reads the file at `path`. `pinned`: the SHA-256 that it must have.
    pub(crate) fn read(path: &Path, pinned: Option<&str>) -> Result<Self, PluginError> {
        let failed = |cause| PluginError::Read { path: path.to_owned(), cause };
        // Opened once: the file that is checked is the file that is read, whatever happens to its name meanwhile.
        let file = File::open(path).map_err(failed)?;
        let about = file.metadata().map_err(failed)?;
        if !about.is_file() {
            return Err(failed(io::Error::other("not a regular file")));
        }
        if about.permissions().mode() & 0o002 != 0 {
            return Err(PluginError::WorldWritable { path: path.to_owned() });
        }
        // A user who may write to the folder can replace the file; in a sticky folder only the file's owner can.
        if let Some(folder) = fs::canonicalize(path).map_err(failed)?.parent() {
            let mode = fs::metadata(folder).map_err(failed)?.permissions().mode();
            if mode & 0o002 != 0 && mode & 0o1000 == 0 {
                return Err(PluginError::WorldWritable { path: folder.to_owned() });
            }
        }
        if about.len() > LARGEST {
            return Err(failed(io::Error::other(format!(
                "its {} bytes are more than the 256 MiB that a plugin may have",
                about.len()
            ))));
        }
        let mut bytes = Vec::with_capacity(usize::try_from(about.len()).unwrap_or(0));
        file.take(LARGEST).read_to_end(&mut bytes).map_err(failed)?;
        let sha256 = Sha256::digest(&bytes).iter().fold(String::with_capacity(64), |mut hex, byte| {
            // Writing to a string cannot fail.
            let _ = write!(hex, "{byte:02x}");
            hex
        });
        if let Some(pinned) = pinned.filter(|pinned| !pinned.eq_ignore_ascii_case(&sha256)) {
            return Err(PluginError::Hash { path: path.to_owned(), found: sha256, pinned: pinned.to_owned() });
        }
        Ok(Self { path: path.to_owned(), sha256: Arc::from(sha256), bytes })
    }

    /// Loads the library and binds all its symbols at once: a missing one shows now, not during a request.
    pub(crate) fn bind(self) -> Result<PluginLibrary, PluginError> {
        let refused = |cause: String| PluginError::Load { path: self.path.clone(), cause };
        let name = in_memory(&self.path, &self.bytes).map_err(|cause| refused(cause.to_string()))?;
        // SAFETY: initialisers of the library run here. The operator chose it in the policy; a trial in a separate
        // process came first if the program asked for one.
        let bound = unsafe { Bound::open(Some(&name), RTLD_NOW | RTLD_LOCAL) };
        let bound = bound.map_err(|cause| {
            // The loader names the file in memory, which means nothing to the user.
            let said = cause.source().map_or_else(|| cause.to_string(), ToString::to_string);
            let shown = name.to_string_lossy();
            refused(said.replace(&format!("{shown}: "), "").replace(&*shown, "the file"))
        })?;
        Ok(PluginLibrary { path: self.path, sha256: self.sha256, bound: mem::ManuallyDrop::new(bound) })
    }
}

/// Returns a name under which the loader finds these bytes. The name stays valid forever: no other library may get it.
#[cfg(target_os = "linux")]
fn in_memory(path: &Path, bytes: &[u8]) -> io::Result<PathBuf> {
    let name = path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
    let name = CString::new(name).map_err(io::Error::other)?;
    // SAFETY: the name ends with a zero and lives for the call.
    let memory = unsafe { libc::memfd_create(name.as_ptr(), libc::MFD_CLOEXEC) };
    if memory < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the descriptor was just opened, and nothing else owns it.
    let mut memory = unsafe { File::from_raw_fd(memory) };
    memory.write_all(bytes)?;
    let name = PathBuf::from(format!("/proc/self/fd/{}", memory.as_raw_fd()));
    // Left open on purpose: the loader knows libraries by name, so with a reused descriptor number it would return the
    // old library.
    let _ = memory.into_raw_fd();
    Ok(name)
}

/// Returns the file's own name: elsewhere than on Linux the file itself is loaded.
#[cfg(not(target_os = "linux"))]
fn in_memory(path: &Path, _bytes: &[u8]) -> io::Result<PathBuf> {
    path.canonicalize()
}

/// A loaded library. It is never unloaded.
#[derive(Debug)]
pub(crate) struct PluginLibrary {
    path: PathBuf,
    pub(crate) sha256: Arc<str>,
    bound: mem::ManuallyDrop<Bound>,
}

impl PluginLibrary {
    /// Symbols of plugins that it exports.
    pub(crate) fn symbols(&self) -> Vec<&'static str> {
        let all = [SCORER_SYMBOL, CONSTRAINT_SYMBOL, OBJECTIVE_SYMBOL];
        all.into_iter().filter(|symbol| self.entry::<()>(symbol).is_some()).collect()
    }

    /// Returns its term or its constraint, depending on `symbol`.
    pub(crate) fn judge(
        &self,
        symbol: &'static str,
    ) -> Result<(PluginInfo, PluginFunctions<abi::CallFn>), PluginError> {
        let entry = self.entry::<abi::JudgeDescriptor>(symbol).ok_or_else(|| self.lacks(symbol))?;
        // SAFETY: by the contract the symbol is a function of this type; its library is never unloaded.
        unsafe { descriptor::judge(entry(), &self.path) }
    }

    /// Returns its objective.
    pub(crate) fn objective(&self) -> Result<(PluginInfo, PluginFunctions<abi::MeasureFn>), PluginError> {
        let entry =
            self.entry::<abi::ObjectiveDescriptor>(OBJECTIVE_SYMBOL).ok_or_else(|| self.lacks(OBJECTIVE_SYMBOL))?;
        // SAFETY: as above.
        unsafe { descriptor::objective(entry(), &self.path) }
    }

    fn lacks(&self, symbol: &'static str) -> PluginError {
        PluginError::Symbol { path: self.path.clone(), symbol, has: self.symbols() }
    }

    fn entry<D>(&self, symbol: &str) -> Option<EntryFn<D>> {
        // SAFETY: by the contract the symbol is a function of this type; only callers that know `D` call it.
        unsafe { self.bound.get::<EntryFn<D>>(symbol.as_bytes()) }.ok().map(|found| *found)
    }
}
