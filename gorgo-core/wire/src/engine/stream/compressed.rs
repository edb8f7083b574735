//! Reads a compressed stream of events as it passes. Only observes: the client gets the engine's own bytes.
//!
//! gorgo asks engines for uncompressed responses; this is for engines that compress anyway.

use std::io::{self, Write};

use bytes::Bytes;
use flate2::write::{GzDecoder, ZlibDecoder};

use crate::engine::stream::events::StreamDialect;
use crate::engine::stream::{StreamObservation, StreamReader};
use gorgo_routing::model::UnixMicros;

/// Reader behind a decompressor.
#[derive(Debug)]
pub struct CompressedStreamReader {
    decoder: Decoder,
    /// Decompression failed; earlier observations remain valid.
    failed: bool,
}

#[derive(Debug)]
enum Decoder {
    Gzip(GzDecoder<DecodedSink>),
    Deflate(ZlibDecoder<DecodedSink>),
}

/// Takes the decompressed bytes, at most a decoder's buffer at a time, so that nothing accumulates.
#[derive(Debug)]
struct DecodedSink {
    reader: StreamReader,
    at: UnixMicros,
    passed: Vec<Bytes>,
}

impl Write for DecodedSink {
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

impl CompressedStreamReader {
    /// Reader for this `Content-Encoding`; `None` for one that gorgo cannot decompress.
    #[must_use]
    pub fn new(encoding: &[u8], dialect: Option<StreamDialect>) -> Option<Self> {
        // Nothing can be removed from a compressed stream, so usage is not withheld.
        let feed = DecodedSink { reader: StreamReader::new(dialect, false), at: UnixMicros(0), passed: Vec::new() };
        let decoder = match encoding.trim_ascii().to_ascii_lowercase().as_slice() {
            b"gzip" | b"x-gzip" => Decoder::Gzip(GzDecoder::new(feed)),
            b"deflate" => Decoder::Deflate(ZlibDecoder::new(feed)),
            _ => return None,
        };
        Some(Self { decoder, failed: false })
    }

    fn feed(&self) -> &DecodedSink {
        match &self.decoder {
            Decoder::Gzip(decoder) => decoder.get_ref(),
            Decoder::Deflate(decoder) => decoder.get_ref(),
        }
    }

    fn feed_mut(&mut self) -> &mut DecodedSink {
        match &mut self.decoder {
            Decoder::Gzip(decoder) => decoder.get_mut(),
            Decoder::Deflate(decoder) => decoder.get_mut(),
        }
    }

    /// Observations so far.
    #[must_use]
    pub fn observed(&self) -> &StreamObservation {
        self.feed().reader.observed()
    }

    /// Returns `true` if the stream's end can be judged: it was decompressed without an error, and its format is known.
    #[must_use]
    pub fn readable(&self) -> bool {
        !self.failed && self.feed().reader.dialect().is_some()
    }

    /// Reads the next bytes, received at `at`.
    pub fn push(&mut self, packed: &[u8], at: UnixMicros) {
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
    pub fn finish(&mut self, at: UnixMicros) {
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
        let mut reader = CompressedStreamReader::new(b"GZIP", Some(StreamDialect::Chat)).unwrap();
        for byte in packed[..first].chunks(1) {
            reader.push(byte, UnixMicros(7));
        }
        assert_eq!(reader.observed().first_content, Some(UnixMicros(7)));
        reader.push(&packed[first..], UnixMicros(9));
        reader.finish(UnixMicros(9));
        assert!(reader.observed().done && reader.readable());
    }

    #[test]
    fn deflate_is_read_and_rubbish_is_survived() {
        let mut encoder = ZlibEncoder::new(Vec::new(), Compression::fast());
        encoder.write_all(TEXT).unwrap();
        let packed = encoder.finish().unwrap();
        let mut reader = CompressedStreamReader::new(b"deflate", Some(StreamDialect::Chat)).unwrap();
        reader.push(&packed, UnixMicros(7));
        assert_eq!(reader.observed().content_events, 1);
        let mut reader = CompressedStreamReader::new(b"gzip", Some(StreamDialect::Chat)).unwrap();
        reader.push(b"this is not gzip at all", UnixMicros(7));
        assert!(!reader.readable());
        assert!(CompressedStreamReader::new(b"br", None).is_none());
    }
}
