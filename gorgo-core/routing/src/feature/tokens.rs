//! Tokens per byte, learned per model from the engines' `usage.prompt_tokens`.
//!
//! Two rates per model: tokens per byte of canonical prompt, from requests without pictures, and tokens per byte of
//! base64 picture, from the tokens that requests with pictures have beyond their text. Both are averages weighted by
//! bytes, with older bytes fading, so a long prompt counts more than a short one. Before anything is learned: a quarter
//! token per byte, the usual figure for English, and 0.005 per picture byte (about 1,300 tokens for a photo of 200 KB).

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use arc_swap::ArcSwap;
use parking_lot::Mutex;

/// Tokens per byte of prompt before anything is learned.
pub const PRIOR_TOKENS_PER_BYTE: f64 = 0.25;
/// Tokens per base64 byte of picture before anything is learned.
pub const PRIOR_TOKENS_PER_MEDIA_BYTE: f64 = 0.005;
/// Weight of the prior, bytes.
const PRIOR_BYTES: f64 = 2048.0;
/// Number of bytes after which an old observation counts half.
const HALF_LIFE_BYTES: f64 = 4_194_304.0;
/// Most models remembered; beyond, the one that learned longest ago is forgotten.
pub const MAX_MODELS: usize = 256;

/// Token rates of all models. Reads take no lock.
#[derive(Debug, Default)]
pub struct TokenRates {
    models: ArcSwap<HashMap<Arc<str>, Arc<ModelTokenRates>>>,
    /// Number of lessons; locked while a model is added or learns.
    update_count: Mutex<u64>,
}

/// Rates of one model. Readers see `text` and `pictures`.
#[derive(Debug)]
struct ModelTokenRates {
    text: TokensPerByte,
    media: TokensPerByte,
    last_update: AtomicU64,
}

/// Rate and the bytes that it is based on; written by one thread at a time.
#[derive(Debug)]
struct TokensPerByte {
    tokens_per_byte: AtomicU64,
    bytes: AtomicU64,
}

impl TokensPerByte {
    fn new(prior: f64) -> Self {
        Self { tokens_per_byte: AtomicU64::new(prior.to_bits()), bytes: AtomicU64::new(PRIOR_BYTES.to_bits()) }
    }

    fn get(&self) -> f64 {
        f64::from_bits(self.tokens_per_byte.load(Relaxed))
    }

    fn learn(&self, bytes: f64, tokens: f64) {
        // Plain loads and stores suffice: writers hold `lessons`, and readers only need some recent rate.
        let weight = f64::from_bits(self.bytes.load(Relaxed)) * (-bytes / HALF_LIFE_BYTES).exp2();
        let total = weight + bytes;
        self.tokens_per_byte.store(((self.get() * weight + tokens) / total).to_bits(), Relaxed);
        self.bytes.store(total.to_bits(), Relaxed);
    }
}

impl TokenRates {
    /// Creates rates without any model.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Estimated prompt tokens of a model for `prompt_bytes` of text and `picture_bytes` of base64.
    #[must_use]
    pub fn estimate(&self, model: &str, prompt_bytes: u64, picture_bytes: u64) -> u32 {
        let (text, pictures) = self.rates(model);
        tokens(float(prompt_bytes) * text + float(picture_bytes) * pictures)
    }

    /// Tokens per prompt byte of a model, as learned so far.
    #[must_use]
    pub fn tokens_per_byte(&self, model: &str) -> f64 {
        self.rates(model).0
    }

    fn rates(&self, model: &str) -> (f64, f64) {
        match self.models.load().get(model) {
            Some(known) => (known.text.get(), known.media.get()),
            None => (PRIOR_TOKENS_PER_BYTE, PRIOR_TOKENS_PER_MEDIA_BYTE),
        }
    }

    /// Learns from an engine's count: `prompt_tokens` for these bytes.
    pub fn learn(&self, model: &str, prompt_bytes: u64, picture_bytes: u64, prompt_tokens: u32) {
        if prompt_tokens == 0 || prompt_bytes == 0 {
            return;
        }
        // One lock for all models: lessons are rare (one per finished request) and short.
        let mut lessons = self.update_count.lock();
        *lessons += 1;
        let known = self.entry(model);
        known.last_update.store(*lessons, Relaxed);
        let counted = f64::from(prompt_tokens);
        // Only prompts without pictures teach the text rate: in others the two shares cannot be separated.
        if picture_bytes == 0 {
            known.text.learn(float(prompt_bytes), counted);
        } else {
            // The text's share is estimated from its own rate; only the remainder is attributed to the pictures.
            let of_pictures = (counted - float(prompt_bytes) * known.text.get()).max(0.0);
            known.media.learn(float(picture_bytes), of_pictures);
        }
    }

    /// Entry of a model, created if missing. The caller holds `lessons`.
    fn entry(&self, model: &str) -> Arc<ModelTokenRates> {
        let now = self.models.load();
        if let Some(known) = now.get(model) {
            return Arc::clone(known);
        }
        let fresh = Arc::new(ModelTokenRates {
            text: TokensPerByte::new(PRIOR_TOKENS_PER_BYTE),
            media: TokensPerByte::new(PRIOR_TOKENS_PER_MEDIA_BYTE),
            last_update: AtomicU64::new(0),
        });
        // Copy on write: new models are rare, and readers keep a map that never changes under them.
        let mut next = HashMap::clone(&now);
        // Model names come from clients, so their number is limited.
        if next.len() >= MAX_MODELS {
            let oldest = next.iter().min_by_key(|(_, known)| known.last_update.load(Relaxed));
            if let Some(name) = oldest.map(|(name, _)| Arc::clone(name)) {
                next.remove(&name);
            }
        }
        next.insert(Arc::from(model), Arc::clone(&fresh));
        self.models.store(Arc::new(next));
        fresh
    }
}

#[expect(clippy::cast_precision_loss, reason = "bytes of one body are far below 2^53")]
const fn float(bytes: u64) -> f64 {
    bytes as f64
}

#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "never negative; `as` saturates")]
fn tokens(number: f64) -> u32 {
    number.round() as u32
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_prior_is_a_quarter_token_per_byte() {
        let rates = TokenRates::new();
        assert_eq!(rates.estimate("m", 4000, 0), 1000);
        assert_eq!(rates.estimate("m", 0, 0), 0);
        assert_eq!(rates.estimate("m", u64::MAX, 0), u32::MAX);
        assert_eq!(rates.estimate("m", 0, 200_000), 1000);
    }

    #[test]
    fn a_model_learns_its_own_rate_and_no_other_does() {
        let rates = TokenRates::new();
        for _ in 0..50 {
            rates.learn("chinese", 70_000, 0, 35_000);
        }
        let learned = rates.tokens_per_byte("chinese");
        assert!((learned - 0.5).abs() < 0.001, "{learned}");
        assert!((rates.tokens_per_byte("other") - PRIOR_TOKENS_PER_BYTE).abs() < f64::EPSILON);
    }

    #[test]
    fn long_prompts_teach_more_than_short_ones() {
        let rates = TokenRates::new();
        rates.learn("m", 100_000, 0, 30_000);
        rates.learn("m", 100, 0, 100);
        assert!((rates.tokens_per_byte("m") - 0.3).abs() < 0.005);
    }

    #[test]
    fn a_new_tokenizer_behind_the_same_name_is_learned_anew() {
        let rates = TokenRates::new();
        for tokens in [20_000, 40_000] {
            for _ in 0..400 {
                rates.learn("m", 80_000, 0, tokens);
            }
        }
        assert!((rates.tokens_per_byte("m") - 0.5).abs() < 0.01);
    }

    #[test]
    fn pictures_do_not_spoil_the_rate_of_text() {
        let rates = TokenRates::new();
        for _ in 0..50 {
            rates.learn("m", 10_000, 0, 2_500);
            rates.learn("m", 1_000, 300_000, 250 + 1_200);
        }
        assert!((rates.tokens_per_byte("m") - 0.25).abs() < 0.001);
        let with_picture = rates.estimate("m", 1_000, 300_000);
        assert!((1_440..1_460).contains(&with_picture), "{with_picture}");
    }

    #[test]
    fn models_are_bounded_and_the_idle_one_goes_first() {
        let rates = TokenRates::new();
        for model in 0..MAX_MODELS + 10 {
            rates.learn(&format!("m{model}"), 100_000, 0, 50_000);
            rates.learn("busy", 100_000, 0, 50_000);
        }
        assert_eq!(rates.models.load().len(), MAX_MODELS);
        assert!(rates.tokens_per_byte("busy") > 0.4);
        assert!((rates.tokens_per_byte("m0") - PRIOR_TOKENS_PER_BYTE).abs() < f64::EPSILON);
    }

    #[test]
    fn nothing_is_learned_from_nothing() {
        let rates = TokenRates::new();
        rates.learn("m", 0, 0, 5);
        rates.learn("m", 5, 0, 0);
        assert!(rates.models.load().is_empty());
    }
}
