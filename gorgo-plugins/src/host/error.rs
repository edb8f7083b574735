//! Why a plugin cannot be had. All of it shows at `check` and at start, none of it while requests are served.

use std::io;
use std::path::PathBuf;

use crate::abi;

/// Why a plugin cannot be had.
#[derive(Debug, thiserror::Error)]
pub enum PluginError {
    /// The policy names no file.
    #[error("`library` is missing: the plugin's file, relative to the configuration file")]
    NoLibrary,
    /// The file cannot be read.
    #[error("{path}: {cause}", path = .path.display())]
    Read {
        /// Which file.
        path: PathBuf,
        /// What the system said.
        cause: io::Error,
    },
    /// Anybody could replace it.
    #[error("{path}: every user of this machine may write to it; run: chmod o-w {path}", path = .path.display())]
    WorldWritable {
        /// Which file or folder.
        path: PathBuf,
    },
    /// It is another file than the policy wants.
    #[error("{path}: its SHA-256 is {found}, the policy wants {pinned}", path = .path.display())]
    Hash {
        /// Which file.
        path: PathBuf,
        /// Its hash.
        found: String,
        /// The one in the policy.
        pinned: String,
    },
    /// The system's loader refuses it.
    #[error("{path}: not a library that can be loaded ({cause})", path = .path.display())]
    Load {
        /// Which file.
        path: PathBuf,
        /// What the loader said.
        cause: String,
    },
    /// A trial in a process of its own did not end well.
    #[error("{path}: a trial load {what}; it was not loaded here", path = .path.display())]
    Trial {
        /// Which file.
        path: PathBuf,
        /// How the trial ended.
        what: String,
    },
    /// It exports nothing of what was asked for.
    #[error(
        "{path}: it does not export `{symbol}`; {has}",
        path = .path.display(),
        has = if .has.is_empty() { "nor any other symbol of a plugin".to_owned() } else { format!("it has {}", .has.join(", ")) }
    )]
    Symbol {
        /// Which file.
        path: PathBuf,
        /// What was asked for.
        symbol: &'static str,
        /// What it has instead.
        has: Vec<&'static str>,
    },
    /// It was written for another version of the contract.
    #[error(
        "{path}: it was built for version {found} of the plugin contract, this gorgo speaks version {ours}; build it again \
         with the kit of this gorgo",
        path = .path.display(),
        ours = abi::ABI_MAJOR
    )]
    Version {
        /// Which file.
        path: PathBuf,
        /// Its version.
        found: u32,
    },
    /// Its descriptor is not what the contract says.
    #[error("{path}: its descriptor is wrong: {what}", path = .path.display())]
    Descriptor {
        /// Which file.
        path: PathBuf,
        /// What is wrong.
        what: String,
    },
    /// The options are not what it declares.
    #[error("{0}")]
    Options(String),
    /// It would not make an instance.
    #[error("the plugin {plugin} refuses: {cause}")]
    Create {
        /// Its name.
        plugin: String,
        /// What it said.
        cause: String,
    },
}
