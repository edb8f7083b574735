//! Reasons why a plugin cannot be used. All of them show at `check` and at start, none while requests are served.

use std::io;
use std::path::PathBuf;

use crate::abi;

/// Reason why a plugin cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum PluginError {
    /// The policy names no file.
    #[error("`library` is missing; set it to the plugin's file, relative to the configuration file")]
    NoLibrary,
    /// The file cannot be read.
    #[error("{path}: {cause}", path = .path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// Error of the system.
        cause: io::Error,
    },
    /// Any user could replace the file.
    #[error("{path}: every user of this machine may write to it; run: chmod o-w {path}", path = .path.display())]
    WorldWritable {
        /// The file or folder.
        path: PathBuf,
    },
    /// The file is not the one that the policy pins.
    #[error("{path}: its SHA-256 is {found}, but the policy pins {pinned}", path = .path.display())]
    Hash {
        /// The file.
        path: PathBuf,
        /// SHA-256 of the file.
        found: String,
        /// SHA-256 in the policy.
        pinned: String,
    },
    /// The system's loader refuses the file.
    #[error("{path}: not a library that can be loaded ({cause})", path = .path.display())]
    Load {
        /// The file.
        path: PathBuf,
        /// Error of the loader.
        cause: String,
    },
    /// A trial load in a separate process failed.
    #[error("{path}: a trial load in a separate process {what}; the plugin was not loaded", path = .path.display())]
    Trial {
        /// The file.
        path: PathBuf,
        /// End of the trial, as a verb.
        what: String,
    },
    /// The library does not export the requested symbol.
    #[error(
        "{path}: it does not export `{symbol}`; {has}",
        path = .path.display(),
        has = if .has.is_empty() { "nor any other symbol of a plugin".to_owned() } else { format!("it has {}", .has.join(", ")) }
    )]
    Symbol {
        /// The file.
        path: PathBuf,
        /// The requested symbol.
        symbol: &'static str,
        /// Symbols of plugins that it exports.
        has: Vec<&'static str>,
    },
    /// The library was built for another version of the contract.
    #[error(
        "{path}: it was built for version {found} of the plugin contract, but this gorgo has version {ours}; rebuild it \
         with this gorgo's kit",
        path = .path.display(),
        ours = abi::ABI_MAJOR
    )]
    Version {
        /// The file.
        path: PathBuf,
        /// Version that the library was built for.
        found: u32,
    },
    /// The descriptor violates the contract.
    #[error("{path}: its descriptor is wrong: {what}", path = .path.display())]
    Descriptor {
        /// The file.
        path: PathBuf,
        /// The violation.
        what: String,
    },
    /// The options do not match their declarations.
    #[error("{0}")]
    Options(String),
    /// The plugin refused to make an instance.
    #[error("the plugin {plugin} refuses: {cause}")]
    Create {
        /// Name of the plugin.
        plugin: String,
        /// Reason that the plugin gave.
        cause: String,
    },
}
