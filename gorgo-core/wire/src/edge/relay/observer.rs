//! How the bytes of an answer are read while they pass.

use bytes::Bytes;

use crate::engine::{AnswerReader, Observed, PackedReader, StreamReader};
use gorgo_routing::model::{At, Usage};

/// A reader of one answer.
pub(in crate::edge) enum Watch {
    /// A stream of events.
    Stream(Box<StreamReader>),
    /// A compressed stream of events.
    Packed(Box<PackedReader>),
    /// One JSON text.
    Answer(AnswerReader),
    /// Not read: no format that gorgo knows.
    Nothing,
}

/// What an answer that HTTP calls complete is worth.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::edge) enum Verdict {
    /// It is whole, or nobody can tell.
    Whole,
    /// It is a stream that neither said that it finished nor that it failed.
    Truncated,
    /// It is a stream that carried an error.
    Error,
}

impl Watch {
    /// What was seen of a stream.
    pub(in crate::edge) fn observed(&self) -> Option<&Observed> {
        match self {
            Self::Stream(reader) => Some(reader.observed()),
            Self::Packed(reader) => Some(reader.observed()),
            Self::Answer(_) | Self::Nothing => None,
        }
    }

    /// The counts of an answer that is not a stream; searched for, so asked for once.
    pub(in crate::edge) fn usage(&self) -> Usage {
        if let Self::Answer(reader) = self { reader.usage() } else { Usage::default() }
    }

    /// Reads the next piece; what may go on to the client is appended to `out`.
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

    /// The transfer is complete: is the answer?
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
        } else if judged && !(observed.done || observed.finished || observed.unread) {
            Verdict::Truncated
        } else {
            Verdict::Whole
        }
    }
}
