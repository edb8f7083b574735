//! Case and whole-program tests: one binary, declared by gorgo-cli.
#![expect(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "helpers of tests may fail loudly")]

mod cases;
mod documents;
mod extending;
mod field_reports;
mod layout;
mod operate;
mod plain_english;
mod plugins;
mod program;
mod serve;
mod tune_restart;
