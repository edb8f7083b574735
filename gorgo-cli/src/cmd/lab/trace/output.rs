//! Destination of a trace: a file, packed if its name ends in `.gz`, or standard output.

use std::fs::File;
use std::io::BufWriter;
use std::path::PathBuf;

use gorgo_lab::trace::{TraceCompression, TraceRow, write};

use super::TraceCommandError;

/// Destination of a trace.
#[derive(Debug, Clone, clap::Args)]
pub(super) struct OutputArgs {
    /// File to write, gzip if its name ends in .gz [default: standard output]
    #[arg(long, value_name = "FILE")]
    pub(super) out: Option<PathBuf>,
}

impl OutputArgs {
    /// Writes the rows.
    pub(super) fn write(&self, rows: &[TraceRow]) -> Result<(), TraceCommandError> {
        // Refused before the file is created, so that an existing one is not replaced by nothing.
        if rows.is_empty() {
            return Err(TraceCommandError::Nothing);
        }
        match &self.out {
            Some(path) => {
                let file = |cause| TraceCommandError::File { path: path.clone(), cause };
                let packing = TraceCompression::from_file_name(&path.to_string_lossy());
                write(rows, packing, BufWriter::new(File::create(path).map_err(file)?)).map_err(file)
            }
            None => match write(rows, TraceCompression::Plain, BufWriter::new(std::io::stdout().lock())) {
                // A reader that has seen enough, such as `head`.
                Err(cause) if cause.kind() == std::io::ErrorKind::BrokenPipe => Ok(()),
                written => written.map_err(TraceCommandError::Output),
            },
        }
    }
}
