//! The gorgo program: one binary, its commands in `cmd/`, requests to a server in `load`, what commands share on the
//! command line in `args`.
#![expect(rustdoc::broken_intra_doc_links, reason = "clap prints comments as help, where [table] is TOML")]

mod args;
mod cmd;
mod engine_settings;
mod exit;
mod load;
mod plugins;
mod policy_table;
mod report;
mod runtime;

use std::process::ExitCode;

/// Returns memory to the system when streams have ended; the delay is set in `.cargo/config.toml`.
#[cfg(feature = "jemalloc")]
#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

fn main() -> ExitCode {
    cmd::run(std::env::args_os()).into()
}
