//! A library: its file is checked, read once, hashed, and the very bytes that were hashed are bound.
//!
//! The bytes are bound from memory, not from the file: overwriting the file in place, as linkers and copies do, does no
//! harm to the running code, and a new build is another library beside the old one. Nothing is ever unloaded: a
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

use super::descriptor::{self, About, Functions};
use super::error::PluginError;
use crate::abi::{self, CONSTRAINT_SYMBOL, EntryFn, OBJECTIVE_SYMBOL, SCORER_SYMBOL};

/// Larger files are no plugins, bytes.
const LARGEST: u64 = 256 << 20;

/// The bytes of a library's file.
#[derive(Debug)]
pub(crate) struct Image {
    path: PathBuf,
    pub(crate) sha256: Arc<str>,
    bytes: Vec<u8>,
}

impl Image {
    /// Reads the file at `path`. `pinned`: refuses any other than the one of this SHA-256.
    pub(crate) fn read(path: &Path, pinned: Option<&str>) -> Result<Self, PluginError> {
        let failed = |cause| PluginError::Read { path: path.to_owned(), cause };
        // The file that is checked and the file that is read are the same, whatever happens to its name meanwhile.
        let file = File::open(path).map_err(failed)?;
        let about = file.metadata().map_err(failed)?;
        if !about.is_file() {
            return Err(failed(io::Error::other("it is not a file")));
        }
        if about.permissions().mode() & 0o002 != 0 {
            return Err(PluginError::WorldWritable { path: path.to_owned() });
        }
        // Who may write to its folder may put another file into its place; a sticky folder keeps others' files safe.
        if let Some(folder) = fs::canonicalize(path).map_err(failed)?.parent() {
            let mode = fs::metadata(folder).map_err(failed)?.permissions().mode();
            if mode & 0o002 != 0 && mode & 0o1000 == 0 {
                return Err(PluginError::WorldWritable { path: folder.to_owned() });
            }
        }
        if about.len() > LARGEST {
            return Err(failed(io::Error::other(format!("its {} bytes are too many for a plugin", about.len()))));
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

    /// Binds the library, all its symbols at once: what is missing shows now, not in the middle of a request.
    pub(crate) fn bind(self) -> Result<Library, PluginError> {
        let refused = |cause: String| PluginError::Load { path: self.path.clone(), cause };
        let name = in_memory(&self.path, &self.bytes).map_err(|cause| refused(cause.to_string()))?;
        // SAFETY: initialisers of the library run here. They are the operator's choice, made in the policy; a trial in a
        // process of its own came before where the program asked for it.
        let bound = unsafe { Bound::open(Some(&name), RTLD_NOW | RTLD_LOCAL) };
        let bound = bound.map_err(|cause| {
            // The loader names the memory, which tells nobody anything.
            let said = cause.source().map_or_else(|| cause.to_string(), ToString::to_string);
            let shown = name.to_string_lossy();
            refused(said.replace(&format!("{shown}: "), "").replace(&*shown, "the file"))
        })?;
        Ok(Library { path: self.path, sha256: self.sha256, bound: mem::ManuallyDrop::new(bound) })
    }
}

/// A name under which the loader finds these bytes. It stays valid for ever: another library must never get it.
#[cfg(target_os = "linux")]
fn in_memory(path: &Path, bytes: &[u8]) -> io::Result<PathBuf> {
    let name = path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
    let name = CString::new(name).map_err(io::Error::other)?;
    // SAFETY: the name ends with a zero and lives for the call.
    let memory = unsafe { libc::memfd_create(name.as_ptr(), libc::MFD_CLOEXEC) };
    if memory < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: a descriptor that was just opened and is nobody else's.
    let mut memory = unsafe { File::from_raw_fd(memory) };
    memory.write_all(bytes)?;
    let name = PathBuf::from(format!("/proc/self/fd/{}", memory.as_raw_fd()));
    // Left open on purpose: the loader knows libraries by name, and a number that is used again would be the old one.
    let _ = memory.into_raw_fd();
    Ok(name)
}

/// Elsewhere the file itself is bound.
#[cfg(not(target_os = "linux"))]
fn in_memory(path: &Path, _bytes: &[u8]) -> io::Result<PathBuf> {
    path.canonicalize()
}

/// A bound library. It stays for ever.
#[derive(Debug)]
pub(crate) struct Library {
    path: PathBuf,
    pub(crate) sha256: Arc<str>,
    bound: mem::ManuallyDrop<Bound>,
}

impl Library {
    /// What it exports.
    pub(crate) fn symbols(&self) -> Vec<&'static str> {
        let all = [SCORER_SYMBOL, CONSTRAINT_SYMBOL, OBJECTIVE_SYMBOL];
        all.into_iter().filter(|symbol| self.entry::<()>(symbol).is_some()).collect()
    }

    /// Its term or its constraint, whichever symbol says.
    pub(crate) fn judge(&self, symbol: &'static str) -> Result<(About, Functions<abi::CallFn>), PluginError> {
        let entry = self.entry::<abi::Judge>(symbol).ok_or_else(|| self.lacks(symbol))?;
        // SAFETY: by the contract the symbol is a function of this type; its library stays for ever.
        unsafe { descriptor::judge(entry(), &self.path) }
    }

    /// Its objective.
    pub(crate) fn objective(&self) -> Result<(About, Functions<abi::MeasureFn>), PluginError> {
        let entry = self.entry::<abi::Objective>(OBJECTIVE_SYMBOL).ok_or_else(|| self.lacks(OBJECTIVE_SYMBOL))?;
        // SAFETY: as above.
        unsafe { descriptor::objective(entry(), &self.path) }
    }

    fn lacks(&self, symbol: &'static str) -> PluginError {
        PluginError::Symbol { path: self.path.clone(), symbol, has: self.symbols() }
    }

    fn entry<D>(&self, symbol: &str) -> Option<EntryFn<D>> {
        // SAFETY: by the contract the symbol is a function of this type; it is only called by who knows `D`.
        unsafe { self.bound.get::<EntryFn<D>>(symbol.as_bytes()) }.ok().map(|found| *found)
    }
}
