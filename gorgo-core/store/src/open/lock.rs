//! One writer per database: an advisory lock on `<file>.lock`, for the life of the process. The system releases the
//! lock when the process ends, however it ends; the file remains, with the id of the last process.

use std::fs::{File, OpenOptions, TryLockError};
use std::io::{ErrorKind, Read, Seek, Write};
use std::path::{Path, PathBuf};

use crate::StoreError;

/// The lock; released when dropped.
#[derive(Debug)]
pub(crate) struct WriterLock {
    _file: File,
}

/// Path of the lock file of a database.
pub(crate) fn lock_path(database: &Path) -> PathBuf {
    let mut name = database.as_os_str().to_owned();
    name.push(".lock");
    PathBuf::from(name)
}

impl WriterLock {
    /// Takes the lock of `database`, or fails at once if another process has it.
    pub(crate) fn take(database: &Path) -> Result<Self, StoreError> {
        let path = || database.to_owned();
        let not_writable = |cause: std::io::Error| StoreError::NotWritable { path: path(), cause: cause.to_string() };
        // Not truncated: before the lock is ours, the content is the other process's id.
        let mut file =
            OpenOptions::new().read(true).write(true).create(true).truncate(false).open(lock_path(database)).map_err(
                |cause| match cause.kind() {
                    ErrorKind::NotFound | ErrorKind::NotADirectory => StoreError::Folder { path: path(), cause },
                    _ => not_writable(cause),
                },
            )?;
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                let mut text = String::new();
                // The other process may be between truncating and writing its id: then the error names no process.
                let pid = file.read_to_string(&mut text).ok().and_then(|_| text.trim().parse().ok());
                return Err(StoreError::InUse { path: path(), pid });
            }
            Err(TryLockError::Error(cause)) => return Err(not_writable(cause)),
        }
        file.set_len(0)
            .and_then(|()| file.rewind())
            .and_then(|()| writeln!(file, "{}", std::process::id()))
            .map_err(not_writable)?;
        Ok(Self { _file: file })
    }
}
