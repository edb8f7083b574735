//! Request bytes → [`ParsedRequest`], and a prompt as terms see it. Takes no lock.

use std::sync::Arc;

use xxhash_rust::xxh3::xxh3_64_with_seed;

use super::{ReadError, Router};
use crate::feature::prefix::{ChainHasher, ChainKey};
use crate::model::{ApiPath, ParsedRequest, RequestView};
use crate::parse;

/// Origin of a session hash; mixed into its key, so that a header with the same text as another client's API key is
/// another session.
#[derive(Debug, Clone, Copy)]
enum SessionKeySource {
    Header = 1,
    User = 2,
    Key = 3,
}

impl Router {
    /// Parses a request body once and extracts the values that routing needs. `session` is the session header's value,
    /// `key` the client's API key; only hashes of them are kept. Takes no lock.
    ///
    /// # Errors
    /// [`ReadError::Malformed`] if the body is not what the path needs.
    pub fn parse_request(
        &self,
        path: &str,
        body: &[u8],
        session: Option<&[u8]>,
        key: Option<&[u8]>,
    ) -> Result<ParsedRequest, ReadError> {
        let malformed = |error: parse::ParseError| ReadError::Malformed(error.to_string());
        // A query string does not change which API the client calls.
        let api = ApiPath::from_path(path.split('?').next().unwrap_or(path));
        let head = parse::read_head(api, body).map_err(malformed)?;
        let seed = ChainKey {
            secret: self.secret,
            model: head.model.as_deref(),
            adapter: head.adapter.as_deref(),
            cache_salt: head.cache_salt.as_deref(),
        }
        .seed();
        let mut chainer = ChainHasher::new(self.block_bytes, seed, body.len());
        head.canonical(&mut chainer).map_err(malformed)?;
        let chain = chainer.finish();
        let user = head.user.as_deref().map(str::as_bytes);
        let session_hash =
            [(SessionKeySource::Header, session), (SessionKeySource::User, user), (SessionKeySource::Key, key)]
                .into_iter()
                // An empty value would put all clients that send one into the same session.
                .find_map(|(of, text)| Some(self.keyed_hash(of, text.filter(|text| !text.is_empty())?)))
                .unwrap_or(chain.head_hash);
        Ok(ParsedRequest {
            path: api,
            model: head.model.as_deref().map(Arc::from),
            stream: head.stream,
            chain: chain.blocks,
            prompt_bytes: chain.prompt_bytes,
            media_bytes: chain.media_bytes,
            exact_tokens: head.exact_tokens,
            max_tokens: head.max_tokens,
            body_bytes: body.len() as u64,
            session_hash,
            head_hash: chain.head_hash,
            has_extra_keys: head.adapter.is_some() || head.cache_salt.is_some(),
            slo_ttft_ms: None,
            usage_splice: head.usage_splice,
        })
    }

    fn keyed_hash(&self, of: SessionKeySource, text: &[u8]) -> u64 {
        // Keyed with the secret, so that a stored hash differs from that of the same text in another database.
        xxh3_64_with_seed(text, self.secret.wrapping_add(of as u64))
    }

    /// A prompt as terms see it; the policy's turn is filled in later.
    pub(super) fn request_view(&self, prompt: &ParsedRequest) -> RequestView {
        let model = prompt.model.as_deref().unwrap_or_default();
        let estimate = || self.tokens.estimate(model, prompt.prompt_bytes, prompt.media_bytes);
        RequestView {
            prompt_tokens: prompt.exact_tokens.unwrap_or_else(estimate),
            max_tokens: prompt.max_tokens,
            body_bytes: prompt.body_bytes,
            session_hash: prompt.session_hash,
            head_hash: prompt.head_hash,
            slo_ttft_ms: prompt.slo_ttft_ms,
            decision_number: 0,
        }
    }

    /// Conversion of this prompt's blocks to tokens.
    pub(super) fn block_token_scale(&self, prompt: &ParsedRequest, prompt_tokens: u32) -> BlockTokenScale {
        BlockTokenScale {
            prompt_tokens,
            // `tokens` divides by it, and a prompt may be empty.
            prompt_bytes: prompt.prompt_bytes.max(1),
            block_bytes: self.block_bytes as u64,
        }
    }
}

/// Conversion of blocks to tokens for one prompt: all its bytes are all its tokens.
#[derive(Debug, Clone, Copy)]
pub(super) struct BlockTokenScale {
    prompt_tokens: u32,
    prompt_bytes: u64,
    block_bytes: u64,
}

impl BlockTokenScale {
    /// Tokens in that many leading blocks, rounded down; never more than the prompt has.
    pub(super) fn tokens(self, blocks: u32) -> u32 {
        // In 128 bits, because tokens times bytes may exceed 64.
        let bytes = u128::from(blocks) * u128::from(self.block_bytes);
        let tokens = u128::from(self.prompt_tokens) * bytes / u128::from(self.prompt_bytes);
        u32::try_from(tokens).unwrap_or(u32::MAX).min(self.prompt_tokens)
    }
}
