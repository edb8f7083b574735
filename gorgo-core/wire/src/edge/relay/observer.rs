//! Reading of a response's bytes while they pass.

use bytes::Bytes;

use crate::engine::{AnswerReader, Observed, PackedReader, StreamReader};
use gorgo_routing::model::{At, Usage};

/// Reader of one response.
pub(in crate::edge) enum Watch {
    /// Stream of events.
    Stream(Box<StreamReader>),
    /// Compressed stream of events.
    Packed(Box<PackedReader>),
    /// One JSON text.
    Answer(AnswerReader),
    /// Not read: no format that gorgo knows.
    Nothing,
}

/// Judgement of a response that is complete as far as HTTP goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::edge) enum Verdict {
    /// Complete, or its format does not tell.
    Whole,
    /// A stream that reported neither its end nor an error.
    Truncated,
    /// A stream that carried an error.
    Error,
}

impl Watch {
    /// Observations of a stream.
    pub(in crate::edge) fn observed(&self) -> Option<&Observed> {
        match self {
            Self::Stream(reader) => Some(reader.observed()),
            Self::Packed(reader) => Some(reader.observed()),
            Self::Answer(_) | Self::Nothing => None,
        }
    }

    /// Counts of a response that is not a stream. Searches for them, so call it once.
    pub(in crate::edge) fn usage(&self) -> Usage {
        if let Self::Answer(reader) = self { reader.usage() } else { Usage::default() }
    }

    /// Reads the next piece and appends to `out` what may go on to the client.
    pub(in crate::edge) fn push(&mut self, piece: Bytes, now: At, out: &mut Vec<Bytes>) {
        match self {
            Self::Stream(reader) => reader.push(&piece, now, out),
            Self::Packed(reader) => {
                reader.push(&piece, now);
                out.push(piece);
            }
            Self::Answer(reader) => {
                reader.push(&piece);
                out.push(piece);
            }
            Self::Nothing => out.push(piece),
        }
    }

    /// Judges the response when its transfer is complete.
    pub(in crate::edge) fn finish(&mut self, now: At, out: &mut Vec<Bytes>) -> Verdict {
        let judged = match self {
            Self::Stream(reader) => {
                reader.finish(now, out);
                reader.dialect().is_some()
            }
            Self::Packed(reader) => {
                reader.finish(now);
                reader.readable()
            }
            Self::Answer(_) | Self::Nothing => false,
        };
        let Some(observed) = self.observed() else { return Verdict::Whole };
        if observed.error.is_some() {
            Verdict::Error
        // A stream with an event too long to read may have ended in it, so it gets the benefit of the doubt.
        } else if judged && !(observed.done || observed.finished || observed.unread) {
            Verdict::Truncated
        } else {
            Verdict::Whole
        }
    }
}
