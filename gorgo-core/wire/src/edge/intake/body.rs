//! Reads a client's request body into memory, with a limit per body and one for all bodies together. The bytes are kept
//! as they came.
//!
//! A compressed body is decompressed for reading only; the engine gets the client's own bytes.

use std::io::Read;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use flate2::read::{DeflateDecoder, MultiGzDecoder, ZlibDecoder};
use http_body_util::BodyExt;
use hyper::HeaderMap;
use hyper::body::{Body, Incoming};
use hyper::header::{CONTENT_ENCODING, EXPECT};
use tokio::time::timeout;

use crate::edge::budget::BufferedBytes;

/// Initial allocation for a body of more than one frame, bytes. A stated length is trusted only up to this, so that a
/// client cannot reserve memory by a header.
const INITIAL_CAPACITY: usize = 256 << 10;
/// Bytes of a refused body that are read and discarded, so that a client that writes before it reads gets the response.
const DRAIN_BYTES: u64 = 256 << 20;
/// Time limit for discarding a refused body.
const DRAIN_TIME: Duration = Duration::from_secs(10);
/// Decompressing or reading more than this is moved off the event loop. Bytes.
pub(in crate::edge) const BLOCKING_BYTES: usize = 1 << 20;

/// Reasons why a body could not be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::edge) enum BodyError {
    /// Over the limit of one body.
    TooLarge,
    /// Over the limit of all bodies together.
    BufferFull,
    /// The client left, or sent nothing for the idle limit.
    ClientGone,
    /// The transfer itself is malformed.
    Malformed,
}

/// Limits of one body.
#[derive(Debug, Clone, Copy)]
pub(in crate::edge) struct BodyLimits {
    pub(in crate::edge) max_bytes: u64,
    pub(in crate::edge) idle: Duration,
}

/// Reads the whole body and charges it to `held` as it arrives.
pub(in crate::edge) async fn read_body(
    incoming: &mut Incoming,
    limits: BodyLimits,
    held: &mut BufferedBytes,
) -> Result<Bytes, BodyError> {
    let stated = incoming.size_hint().exact();
    if stated.is_some_and(|bytes| bytes > limits.max_bytes) {
        return Err(BodyError::TooLarge);
    }
    let mut first = Bytes::new();
    let mut joined = BytesMut::new();
    let mut total = 0_u64;
    loop {
        let frame = match timeout(limits.idle, incoming.frame()).await {
            // An idle limit per frame, not one for the whole body: a large prompt over a slow link is legitimate.
            Err(_) => return Err(BodyError::ClientGone),
            Ok(None) => break,
            Ok(Some(Err(error))) => return Err(body_error(&error)),
            Ok(Some(Ok(frame))) => frame,
        };
        let Ok(piece) = frame.into_data() else { continue };
        let bytes = u64::try_from(piece.len()).unwrap_or(u64::MAX);
        total = total.saturating_add(bytes);
        if total > limits.max_bytes {
            return Err(BodyError::TooLarge);
        }
        // Charged before it is kept, so that many uploads at once cannot exceed the budget together.
        if !held.try_grow(bytes) {
            return Err(BodyError::BufferFull);
        }
        // The first frame is kept as it is, so that a body of a single frame is never copied.
        if first.is_empty() && joined.is_empty() {
            first = piece;
            continue;
        }
        if joined.is_empty() {
            let stated = stated.and_then(|bytes| usize::try_from(bytes).ok()).unwrap_or(INITIAL_CAPACITY);
            joined.reserve(stated.min(INITIAL_CAPACITY).max(first.len() + piece.len()));
            joined.extend_from_slice(&first);
            first = Bytes::new();
        }
        joined.extend_from_slice(&piece);
    }
    Ok(if joined.is_empty() { first } else { joined.freeze() })
}

fn body_error(error: &hyper::Error) -> BodyError {
    let malformed = error.is_parse() || error.is_user() || caused_by_bad_input(error);
    if malformed { BodyError::Malformed } else { BodyError::ClientGone }
}

/// Detects a malformed chunk, which hyper reports as an I/O error of kind `InvalidData` or `InvalidInput`.
fn caused_by_bad_input(error: &hyper::Error) -> bool {
    let cause = std::error::Error::source(error).and_then(|cause| cause.downcast_ref::<std::io::Error>());
    cause
        .is_some_and(|cause| matches!(cause.kind(), std::io::ErrorKind::InvalidData | std::io::ErrorKind::InvalidInput))
}

/// Reads and discards what a refused client still sends, within limits. A client that waits for `100 Continue` never
/// gets it and so sends nothing.
pub(in crate::edge) async fn discard_body(mut incoming: Incoming, headers: &HeaderMap) {
    if headers.contains_key(EXPECT) {
        return;
    }
    let mut rest = DRAIN_BYTES;
    let discard = async {
        while let Some(Ok(frame)) = incoming.frame().await {
            let bytes = frame.data_ref().map_or(0, |piece| u64::try_from(piece.len()).unwrap_or(u64::MAX));
            rest = rest.saturating_sub(bytes);
            if rest == 0 {
                break;
            }
        }
    };
    // A time-out here is no failure: the response is sent anyway.
    let _ = timeout(DRAIN_TIME, discard).await;
}

/// Content coding of a body.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::edge) enum ContentCoding {
    Gzip,
    Deflate,
}

impl ContentCoding {
    /// Reads `Content-Encoding`; `Ok(None)` for a plain body, `Err` for a coding that gorgo cannot decompress.
    pub(in crate::edge) fn of(headers: &HeaderMap) -> Result<Option<Self>, ()> {
        let mut packing = None;
        for value in headers.get_all(CONTENT_ENCODING) {
            for token in value.to_str().map_err(|_| ())?.split(',') {
                let found = match token.trim().to_ascii_lowercase().as_str() {
                    "" | "identity" => continue,
                    "gzip" | "x-gzip" => Self::Gzip,
                    "deflate" => Self::Deflate,
                    _ => return Err(()),
                };
                // A second coding on top of the first is refused rather than half decoded.
                if packing.replace(found).is_some() {
                    return Err(());
                }
            }
        }
        Ok(packing)
    }

    /// Decompresses to at most `max_bytes`.
    pub(in crate::edge) fn decode(self, packed: &[u8], max_bytes: u64) -> Result<Vec<u8>, BodyError> {
        match self {
            Self::Gzip => decode_bounded(MultiGzDecoder::new(packed), max_bytes),
            // The name means zlib, but some clients send bare deflate.
            Self::Deflate => match decode_bounded(ZlibDecoder::new(packed), max_bytes) {
                Err(BodyError::Malformed) => decode_bounded(DeflateDecoder::new(packed), max_bytes),
                done => done,
            },
        }
    }
}

fn decode_bounded(decoder: impl Read, max_bytes: u64) -> Result<Vec<u8>, BodyError> {
    let mut plain = Vec::new();
    // One byte over the limit is enough to detect an oversized body, so a decompression bomb stops here.
    let read = decoder.take(max_bytes.saturating_add(1)).read_to_end(&mut plain).map_err(|_| BodyError::Malformed)?;
    if u64::try_from(read).unwrap_or(u64::MAX) > max_bytes { Err(BodyError::TooLarge) } else { Ok(plain) }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use flate2::Compression;
    use flate2::write::{DeflateEncoder, GzEncoder, ZlibEncoder};

    use super::*;

    #[test]
    fn packed_bodies_are_unpacked_within_the_limit() {
        let plain = vec![b'a'; 100_000];
        let mut gzip = GzEncoder::new(Vec::new(), Compression::fast());
        gzip.write_all(&plain).unwrap();
        let gzip = gzip.finish().unwrap();
        assert_eq!(ContentCoding::Gzip.decode(&gzip, 100_000), Ok(plain.clone()));
        assert_eq!(ContentCoding::Gzip.decode(&gzip, 99_999), Err(BodyError::TooLarge));
        assert_eq!(ContentCoding::Gzip.decode(b"rubbish", 10), Err(BodyError::Malformed));
        let mut zlib = ZlibEncoder::new(Vec::new(), Compression::fast());
        zlib.write_all(&plain).unwrap();
        assert_eq!(ContentCoding::Deflate.decode(&zlib.finish().unwrap(), 100_000), Ok(plain.clone()));
        let mut bare = DeflateEncoder::new(Vec::new(), Compression::fast());
        bare.write_all(&plain).unwrap();
        assert_eq!(ContentCoding::Deflate.decode(&bare.finish().unwrap(), 100_000), Ok(plain));
    }

    #[test]
    fn encodings_are_named() {
        let of = |value: &'static str| {
            let mut headers = HeaderMap::new();
            headers.insert(CONTENT_ENCODING, hyper::header::HeaderValue::from_static(value));
            ContentCoding::of(&headers)
        };
        assert_eq!(of("identity"), Ok(None));
        assert_eq!(of("GZIP"), Ok(Some(ContentCoding::Gzip)));
        assert_eq!(of("deflate, identity"), Ok(Some(ContentCoding::Deflate)));
        assert_eq!(of("br"), Err(()));
        assert_eq!(of("gzip, gzip"), Err(()));
        assert_eq!(ContentCoding::of(&HeaderMap::new()), Ok(None));
    }
}
