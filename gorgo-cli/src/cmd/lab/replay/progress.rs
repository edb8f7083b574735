//! The progress bar: on a terminal only, on stderr, so that piped output stays clean.

use std::io::IsTerminal;

use gorgo_lab::trace::RequestSample;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

/// Redraws per second.
const REDRAWS: u8 = 4;

/// Progress of a replay. Clones show the same bar.
#[derive(Clone)]
pub(super) struct ReplayProgress {
    bar: ProgressBar,
    errors: usize,
}

impl ReplayProgress {
    /// A bar over this number of requests; invisible if stderr is no terminal.
    pub(super) fn new(requests: usize) -> Self {
        let visible = std::io::stderr().is_terminal();
        let target = if visible { ProgressDrawTarget::stderr_with_hz(REDRAWS) } else { ProgressDrawTarget::hidden() };
        let bar = ProgressBar::with_draw_target(u64::try_from(requests).ok(), target);
        let template = "{elapsed_precise} {wide_bar} {human_pos}/{human_len} answered, {msg}";
        if let Ok(style) = ProgressStyle::with_template(template) {
            bar.set_style(style);
        }
        bar.set_message("0 errors");
        Self { bar, errors: 0 }
    }

    /// Counts a request that ended.
    pub(super) fn ended(&mut self, sample: &RequestSample) {
        if sample.error.is_some() {
            self.errors += 1;
            self.bar.set_message(format!("{} errors", self.errors));
        }
        self.bar.inc(1);
    }

    /// Removes the bar.
    pub(super) fn finish(self) {
        self.bar.finish_and_clear();
    }

    /// Writes a line above the bar, or plainly if there is none.
    pub(super) fn note(&self, text: &str) {
        self.bar.suspend(|| anstream::eprintln!("{text}"));
    }
}
