//! The one stream of bytes that stands for a prompt: made by `parse`, hashed by `feature::prefix`.

/// Takes a canonical prompt piece by piece, so that nobody builds a copy of it.
///
/// Where a piece ends carries no meaning: the concatenation of the pieces is the prompt. Equal prompts give equal
/// bytes however their JSON was written, and a prompt that another one continues gives a prefix of its bytes.
pub trait CanonicalSink {
    /// The next bytes of the prompt.
    fn bytes(&mut self, piece: &[u8]);

    /// A picture (or sound, or file) that came in the body as base64: the digest of its data, and how many bytes the
    /// data had. Those are counted apart, since they are no text.
    fn picture(&mut self, digest: u64, bytes: u64);
}
