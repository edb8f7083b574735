//! Canonical byte stream of a prompt: made by `parse`, hashed by `feature::prefix`.

/// Takes a canonical prompt piece by piece, so that no copy of it has to be built.
///
/// Piece boundaries carry no meaning: the concatenation of the pieces is the prompt. Equal prompts give equal
/// bytes however their JSON was written, and if one prompt continues another, its bytes continue the other's bytes.
pub trait CanonicalSink {
    /// The next bytes of the prompt.
    fn bytes(&mut self, piece: &[u8]);

    /// A picture (or sound, or file) that came in the body as base64: the digest of its data, and how many bytes the
    /// data had. Those are counted apart, since they are no text.
    fn media(&mut self, digest: u64, bytes: u64);
}
