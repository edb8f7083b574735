//! Reading of a response's bytes while they pass.

use bytes::Bytes;

use crate::engine::{CompressedStreamReader, StreamObservation, StreamReader, UsageReader};
use gorgo_routing::model::{TokenUsage, UnixMicros};

/// Reader of one response.
pub(in crate::edge) enum ResponseObserver {
    /// Stream of events.
    Stream(Box<StreamReader>),
    /// Compressed stream of events.
    Compressed(Box<CompressedStreamReader>),
    /// One JSON text.
    Json(UsageReader),
    /// Not read: no format that gorgo knows.
    Unread,
}

/// Judgement of a response that is complete as far as HTTP goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::edge) enum ResponseCompletion {
    /// Complete, or its format does not tell.
    Complete,
    /// A stream that reported neither its end nor an error.
    Truncated,
    /// A stream that carried an error.
    Failed,
}

impl ResponseObserver {
    /// Observations of a stream.
    pub(in crate::edge) fn observed(&self) -> Option<&StreamObservation> {
        match self {
            Self::Stream(reader) => Some(reader.observed()),
            Self::Compressed(reader) => Some(reader.observed()),
            Self::Json(_) | Self::Unread => None,
        }
    }

    /// Counts of a response that is not a stream. Searches for them, so call it once.
    pub(in crate::edge) fn usage(&self) -> TokenUsage {
        if let Self::Json(reader) = self { reader.usage() } else { TokenUsage::default() }
    }

    /// Reads the next piece and appends to `out` what may go on to the client.
    pub(in crate::edge) fn push(&mut self, piece: Bytes, now: UnixMicros, out: &mut Vec<Bytes>) {
        match self {
            Self::Stream(reader) => reader.push(&piece, now, out),
            Self::Compressed(reader) => {
                reader.push(&piece, now);
                out.push(piece);
            }
            Self::Json(reader) => {
                reader.push(&piece);
                out.push(piece);
            }
            Self::Unread => out.push(piece),
        }
    }

    /// Judges the response when its transfer is complete.
    pub(in crate::edge) fn completion(&mut self, now: UnixMicros, out: &mut Vec<Bytes>) -> ResponseCompletion {
        let judged = match self {
            Self::Stream(reader) => {
                reader.finish(now, out);
                reader.dialect().is_some()
            }
            Self::Compressed(reader) => {
                reader.finish(now);
                reader.readable()
            }
            Self::Json(_) | Self::Unread => false,
        };
        let Some(observed) = self.observed() else { return ResponseCompletion::Complete };
        if observed.error.is_some() {
            ResponseCompletion::Failed
        // A stream with an event too long to read may have ended in it, so it gets the benefit of the doubt.
        } else if judged && !(observed.done || observed.finished || observed.overlong) {
            ResponseCompletion::Truncated
        } else {
            ResponseCompletion::Complete
        }
    }
}
