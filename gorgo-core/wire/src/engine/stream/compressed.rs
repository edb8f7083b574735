//! Reads a compressed stream of events as it passes. Only observes: the client gets the engine's own bytes.
//!
//! gorgo asks engines for uncompressed responses; this is for engines that compress anyway.

use std::io::{self, Write};

use bytes::Bytes;
use flate2::write::{GzDecoder, ZlibDecoder};

use crate::engine::stream::events::Dialect;
use crate::engine::stream::{Observed, StreamReader};
use gorgo_routing::model::At;

/// Reader behind a decompressor.
#[derive(Debug)]
pub struct PackedReader {
    decoder: Decoder,
    /// Decompression failed; earlier observations remain valid.
    failed: bool,
}

#[derive(Debug)]
enum Decoder {
    Gzip(GzDecoder<Feed>),
    Deflate(ZlibDecoder<Feed>),
}

/// Takes the decompressed bytes, at most a decoder's buffer at a time, so that nothing accumulates.
#[derive(Debug)]
struct Feed {
    reader: StreamReader,
    at: At,
    passed: Vec<Bytes>,
}

impl Write for Feed {
    fn write(&mut self, plain: &[u8]) -> io::Result<usize> {
        // The reader's output is discarded: the client gets the compressed bytes.
        self.reader.push(&Bytes::copy_from_slice(plain), self.at, &mut self.passed);
        self.passed.clear();
        Ok(plain.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl PackedReader {
    /// Reader for this `Content-Encoding`; `None` for one that gorgo cannot decompress.
    #[must_use]
    pub fn new(encoding: &[u8], dialect: Option<Dialect>) -> Option<Self> {
        // Nothing can be removed from a compressed stream, so usage is not withheld.
        let feed = Feed { reader: StreamReader::new(dialect, false), at: At(0), passed: Vec::new() };
        let decoder = match encoding.trim_ascii().to_ascii_lowercase().as_slice() {
            b"gzip" | b"x-gzip" => Decoder::Gzip(GzDecoder::new(feed)),
            b"deflate" => Decoder::Deflate(ZlibDecoder::new(feed)),
            _ => return None,
        };
        Some(Self { decoder, failed: false })
    }

    fn feed(&self) -> &Feed {
        match &self.decoder {
            Decoder::Gzip(decoder) => decoder.get_ref(),
            Decoder::Deflate(decoder) => decoder.get_ref(),
        }
    }

    fn feed_mut(&mut self) -> &mut Feed {
        match &mut self.decoder {
            Decoder::Gzip(decoder) => decoder.get_mut(),
            Decoder::Deflate(decoder) => decoder.get_mut(),
        }
    }

    /// Observations so far.
    #[must_use]
    pub fn observed(&self) -> &Observed {
        self.feed().reader.observed()
    }

    /// Returns `true` if the stream's end can be judged: it was decompressed without an error, and its format is known.
    #[must_use]
    pub fn readable(&self) -> bool {
        !self.failed && self.feed().reader.dialect().is_some()
    }

    /// Reads the next bytes, received at `at`.
    pub fn push(&mut self, packed: &[u8], at: At) {
        if self.failed {
            return;
        }
        // Set before writing: the decoder calls `write` with no room for a time.
        self.feed_mut().at = at;
        let unpacked = match &mut self.decoder {
            // Flushed each time, or the decoder would keep events back and their times would be wrong.
            Decoder::Gzip(decoder) => decoder.write_all(packed).and_then(|()| decoder.flush()),
            Decoder::Deflate(decoder) => decoder.write_all(packed).and_then(|()| decoder.flush()),
        };
        // A damaged stream cannot be resumed; the bytes still pass to the client.
        self.failed = unpacked.is_err();
    }

    /// Ends the stream.
    pub fn finish(&mut self, at: At) {
        let feed = self.feed_mut();
        feed.reader.finish(at, &mut feed.passed);
        feed.passed.clear();
    }
}

#[cfg(test)]
mod tests {
    use flate2::Compression;
    use flate2::write::{GzEncoder, ZlibEncoder};

    use super::*;

    const TEXT: &[u8] = b"data: {\"choices\":[{\"delta\":{\"content\":\"a\"}}]}\n\ndata: [DONE]\n\n";

    #[test]
    fn content_is_seen_when_it_was_flushed() {
        let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
        encoder.write_all(&TEXT[..50]).unwrap();
        encoder.flush().unwrap();
        let first = encoder.get_ref().len();
        encoder.write_all(&TEXT[50..]).unwrap();
        let packed = encoder.finish().unwrap();
        let mut reader = PackedReader::new(b"GZIP", Some(Dialect::Chat)).unwrap();
        for byte in packed[..first].chunks(1) {
            reader.push(byte, At(7));
        }
        assert_eq!(reader.observed().first_content, Some(At(7)));
        reader.push(&packed[first..], At(9));
        reader.finish(At(9));
        assert!(reader.observed().done && reader.readable());
    }

    #[test]
    fn deflate_is_read_and_rubbish_is_survived() {
        let mut encoder = ZlibEncoder::new(Vec::new(), Compression::fast());
        encoder.write_all(TEXT).unwrap();
        let packed = encoder.finish().unwrap();
        let mut reader = PackedReader::new(b"deflate", Some(Dialect::Chat)).unwrap();
        reader.push(&packed, At(7));
        assert_eq!(reader.observed().content_events, 1);
        let mut reader = PackedReader::new(b"gzip", Some(Dialect::Chat)).unwrap();
        reader.push(b"this is not gzip at all", At(7));
        assert!(!reader.readable());
        assert!(PackedReader::new(b"br", None).is_none());
    }
}
