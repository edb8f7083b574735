//! Body of a request to an engine: the client's own bytes, with at most one piece spliced in. Cheap to clone, so that
//! an attempt can be repeated elsewhere.

use std::convert::Infallible;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use hyper::body::{Body, Frame, SizeHint};

use gorgo_routing::model::BodySplice;

/// Up to three pieces, sent in order without being joined.
///
/// Boxed, because hyper keeps room for 32 requests with each connection to an engine.
#[derive(Debug, Clone, Default)]
pub(in crate::edge) struct UpstreamBody {
    pieces: Box<[Bytes; 3]>,
}

impl UpstreamBody {
    pub(in crate::edge) fn whole(body: Bytes) -> Self {
        Self { pieces: Box::new([body, Bytes::new(), Bytes::new()]) }
    }

    /// Body with the splice applied; `None` if the splice does not fit the body.
    pub(in crate::edge) fn spliced(body: &Bytes, splice: &BodySplice) -> Option<Self> {
        let rest = splice.offset.checked_add(splice.removed_bytes).filter(|rest| *rest <= body.len())?;
        let pieces = [body.slice(..splice.offset), Bytes::from(splice.text.clone()), body.slice(rest..)];
        Some(Self { pieces: Box::new(pieces) })
    }

    fn len(&self) -> u64 {
        self.pieces.iter().map(|piece| u64::try_from(piece.len()).unwrap_or(u64::MAX)).sum()
    }
}

impl Body for UpstreamBody {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(self: Pin<&mut Self>, _cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        let next = self.get_mut().pieces.iter_mut().find(|piece| !piece.is_empty()).map(std::mem::take);
        Poll::Ready(next.map(|piece| Ok(Frame::data(piece))))
    }

    fn is_end_stream(&self) -> bool {
        self.pieces.iter().all(Bytes::is_empty)
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.len())
    }
}

#[cfg(test)]
mod tests {
    use http_body_util::BodyExt;

    use super::*;

    #[tokio::test]
    async fn pieces_are_sent_in_order() {
        let body = Bytes::from_static(b"{\"a\":1}");
        let splice = BodySplice { offset: 1, removed_bytes: 2, text: b"\"b\"".to_vec() };
        let payload = UpstreamBody::spliced(&body, &splice).unwrap();
        assert_eq!(payload.size_hint().exact(), Some(8));
        assert_eq!(payload.collect().await.unwrap().to_bytes(), "{\"b\"\":1}");
        assert!(UpstreamBody::whole(Bytes::new()).is_end_stream());
    }

    #[test]
    fn a_splice_beyond_the_body_does_not_fit() {
        let splice = BodySplice { offset: 3, removed_bytes: usize::MAX, text: Vec::new() };
        assert!(UpstreamBody::spliced(&Bytes::from_static(b"abc"), &splice).is_none());
        let splice = BodySplice { offset: 4, removed_bytes: 0, text: Vec::new() };
        assert!(UpstreamBody::spliced(&Bytes::from_static(b"abc"), &splice).is_none());
    }
}
