//! GPU profiles: the constants that determine the times of a simulated engine. Plain data, each number with its unit
//! and origin.
//!
//! "Calibrated" numbers were fitted in simulation to the 20 policy rows that the GORGO paper publishes for three
//! windows of the ART-Chat trace (mean absolute log error 0.30). They were fitted together, so that effects which vary
//! little within those windows, such as the cost of attention over the tokens in the KV cache, are contained in the
//! others.

use std::borrow::Cow;

/// Tokens per page of the KV cache: the granularity of allocation and sharing. vLLM's default block has 16 tokens;
/// SGLang's page has 1 token, so this differs from it by at most 15 tokens per prompt.
pub const PAGE_TOKENS: u32 = 16;

/// Speed at which one GPU (or group of GPUs) serves one model, and the settings of its engine.
#[derive(Debug, Clone, PartialEq)]
pub struct EngineProfile {
    /// Name in configuration files.
    pub name: Cow<'static, str>,
    /// Description in one line.
    pub summary: Cow<'static, str>,
    /// Time that a request spends outside the GPU before it can be scheduled (HTTP, tokenizer), ms.
    pub host_ms: f64,
    /// Time of a prefill batch regardless of its size, ms.
    pub prefill_batch_ms: f64,
    /// Time of a prefill batch per computed token, ms.
    pub prefill_token_ms: f64,
    /// Time of a decode step regardless of its size, ms.
    pub decode_step_ms: f64,
    /// Time of a decode step per request in it, ms.
    pub decode_request_ms: f64,
    /// Time of a decode step per 1,000 KV tokens of its requests, ms.
    pub decode_kilotoken_ms: f64,
    /// Extra cost of decode steps whose batch is larger than any captured CUDA graph.
    pub beyond_graph: Option<CudaGraphCliff>,
    /// Maximum number of prompt tokens in one prefill batch.
    pub chunk_tokens: u32,
    /// Maximum number of requests that run at once.
    pub max_running: u32,
    /// Size of the KV cache, tokens, shared by running requests and cached prefixes.
    pub kv_tokens: u32,
    /// Order of prefill and decode.
    pub schedule: StepSchedule,
    /// Prefixes that can be reused from the cache.
    pub prefix_cache: PrefixCacheKind,
    /// Room that admission leaves for the answers of running requests.
    pub reserve: AnswerReserve,
}

/// Jump in decode cost above the largest captured CUDA graph.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct CudaGraphCliff {
    /// Largest decode batch that has a graph, requests.
    pub batch: u32,
    /// Extra time per step above that batch, ms.
    pub step_ms: f64,
    /// Extra time per request of the whole batch above that size, ms.
    pub request_ms: f64,
}

/// Order of prefill and decode.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StepSchedule {
    /// No decode step runs while any prompt can be prefilled (SGLang without mixed chunks).
    PrefillFirst,
    /// Each step decodes all requests and fills up with prompt tokens to the chunk size (vLLM).
    Mixed,
}

/// Prefixes that can be reused from the cache.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PrefixCacheKind {
    /// Full attention: any common prefix of whole pages.
    AnyPage,
    /// Hybrid attention (Mamba-like layers beside attention): only prefixes that end where a recurrent state was kept,
    /// which is at the end of an earlier prompt.
    PromptEnds {
        /// Number of prompts whose states are kept; the least recently used is dropped first.
        slots: u32,
    },
}

/// SGLang's admission reserve: the share of the tokens that running requests may still generate for which room must
/// remain. The share starts high, falls with each decode step, and is reset after a retraction or an idle period.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct AnswerReserve {
    /// Share at start, 0 to 1.
    pub start: f64,
    /// Share that it falls to.
    pub least: f64,
    /// Number of decode steps from the first to the last share.
    pub steps: u32,
    /// Limit on the answer length that is counted per request, tokens; longer limits count as this.
    pub longest_answer: u32,
}

/// SGLang's defaults (`new_token_ratio` on its metrics page starts at 0.7 and falls to 0.14 × that in 600 steps;
/// answers count as at most 4096 tokens).
const SGLANG_RESERVE: AnswerReserve = AnswerReserve { start: 0.7, least: 0.098, steps: 600, longest_answer: 4096 };

/// Jump for the launch flags of the GORGO paper, which capture CUDA graphs up to a batch of 20. Calibrated.
const CLIFF_ABOVE_20: CudaGraphCliff = CudaGraphCliff { batch: 20, step_ms: 30.0, request_ms: 1.2 };

/// All named profiles.
pub const PROFILES: &[EngineProfile] = &[
    EngineProfile {
        name: Cow::Borrowed("l40s-qwen3.5-35b"),
        summary: Cow::Borrowed("SGLang with Qwen3.5-35B-A3B-FP8 on two L40S: the replicas of the GORGO paper"),
        host_ms: 34.0,            // calibrated
        prefill_batch_ms: 80.0,   // calibrated
        prefill_token_ms: 0.062,  // calibrated; the night trace measured alone gives 0.054
        decode_step_ms: 7.7,      // calibrated
        decode_request_ms: 0.6,   // calibrated; includes the cost per KV token, see the next
        decode_kilotoken_ms: 0.0, // not published; at 7,000 tokens per request inseparable from the last
        beyond_graph: Some(CLIFF_ABOVE_20),
        chunk_tokens: 4096,                                       // the paper's launch flags
        max_running: 64,                                          // the paper's launch flags
        kv_tokens: 700_000, // a published metrics page shows 788,766; calibrated with 700,000
        schedule: StepSchedule::PrefillFirst, // SGLang's default
        prefix_cache: PrefixCacheKind::PromptEnds { slots: 200 }, // calibrated; the page shows 225, one in use per prompt
        reserve: SGLANG_RESERVE,
    },
    EngineProfile {
        name: Cow::Borrowed("h100-qwen3.5-35b"),
        summary: Cow::Borrowed("SGLang with the same model on one H100: the paper's WildChat fleet"),
        host_ms: 34.0,                      // as calibrated on L40S
        prefill_batch_ms: 20.0,             // assumed
        prefill_token_ms: 0.070,            // the authors of the paper: 0.069 to 0.083
        decode_step_ms: 6.5,                // assumed
        decode_request_ms: 0.12,            // assumed
        decode_kilotoken_ms: 0.0,           // no figure published
        beyond_graph: Some(CLIFF_ABOVE_20), // assumed as on L40S
        chunk_tokens: 8192,                 // SGLang's default on 80 GB
        max_running: 64,
        kv_tokens: 700_000,
        schedule: StepSchedule::PrefillFirst,
        prefix_cache: PrefixCacheKind::PromptEnds { slots: 200 },
        reserve: SGLANG_RESERVE,
    },
    EngineProfile {
        name: Cow::Borrowed("mixed-2048"),
        summary: Cow::Borrowed("vLLM-like: mixed chunked prefill, full attention, no cliff"),
        host_ms: 0.0,
        prefill_batch_ms: 0.0,
        prefill_token_ms: 0.070, // H100 as above
        decode_step_ms: 6.0,     // default of the SMG mock worker
        decode_request_ms: 0.35, // default of the SMG mock worker
        decode_kilotoken_ms: 0.0,
        beyond_graph: None,
        chunk_tokens: 2048,
        max_running: 256,
        kv_tokens: 524_288, // that mock's watermarks of 0.92 and 0.85 are not modelled: eviction is on demand
        schedule: StepSchedule::Mixed,
        prefix_cache: PrefixCacheKind::AnyPage,
        reserve: AnswerReserve { start: 0.0, least: 0.0, steps: 1, longest_answer: 0 }, // vLLM reserves nothing
    },
];

impl EngineProfile {
    /// Finds a profile by name.
    #[must_use]
    pub fn find(name: &str) -> Option<&'static Self> {
        PROFILES.iter().find(|profile| profile.name == name)
    }

    /// Returns all names, in documentation order.
    pub fn names() -> impl Iterator<Item = &'static str> {
        PROFILES.iter().map(|profile| profile.name.as_ref())
    }

    /// Returns the largest batch that is decoded without the extra cost; `None` if there is no such jump.
    #[must_use]
    pub fn decode_batch(&self) -> Option<u32> {
        self.beyond_graph.map(|beyond| beyond.batch)
    }

    /// Returns the time of a prefill batch of `tokens`, ms.
    #[must_use]
    pub fn prefill_ms(&self, tokens: u32) -> f64 {
        self.prefill_batch_ms + self.prefill_token_ms * f64::from(tokens)
    }

    /// Returns the time of a decode step of `batch` requests that have `kv_tokens` together, ms.
    #[must_use]
    pub fn decode_ms(&self, batch: u32, kv_tokens: u32) -> f64 {
        // The whole step runs without a graph, so the extra cost is per request of the batch, not of the excess.
        let cliff = match self.beyond_graph {
            Some(beyond) if batch > beyond.batch => beyond.step_ms + beyond.request_ms * f64::from(batch),
            _ => 0.0,
        };
        self.decode_step_ms
            + self.decode_request_ms * f64::from(batch)
            + self.decode_kilotoken_ms * f64::from(kv_tokens) / 1e3
            + cliff
    }

    /// Returns the number of pages of the KV cache.
    #[must_use]
    pub const fn pages(&self) -> u32 {
        self.kv_tokens / PAGE_TOKENS
    }

    /// Returns the longest prompt that can be served: the whole KV cache minus room for one token of the answer.
    #[must_use]
    pub const fn longest_prompt(&self) -> u32 {
        (self.pages() * PAGE_TOKENS).saturating_sub(1)
    }

    /// Returns the first fault of the profile, if any: a time that is negative or not a number, or a limit of 0.
    #[must_use]
    pub fn invalid_reason(&self) -> Option<&'static str> {
        let cliff = self.beyond_graph.map_or([0.0; 2], |beyond| [beyond.step_ms, beyond.request_ms]);
        let times = [
            self.host_ms,
            self.prefill_batch_ms,
            self.prefill_token_ms,
            self.decode_step_ms,
            self.decode_request_ms,
            self.decode_kilotoken_ms,
            cliff[0],
            cliff[1],
        ];
        // NaN is in no range, so this check refuses it too.
        if !times.iter().all(|ms| (0.0..=1e9).contains(ms)) {
            return Some("all times must be numbers from 0 to 1e9 ms");
        }
        if self.chunk_tokens == 0 || self.max_running == 0 || self.pages() == 0 {
            return Some("chunk size, running requests and KV cache must be above 0");
        }
        let shares = [self.reserve.start, self.reserve.least];
        if !shares.iter().all(|share| (0.0..=1.0).contains(share)) || self.reserve.least > self.reserve.start {
            return Some("the reserve must fall from a share of 0 to 1 to a smaller one");
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_profiles_are_sound_and_found_by_their_name() {
        for profile in PROFILES {
            assert_eq!(profile.invalid_reason(), None, "{}", profile.name);
            assert_eq!(EngineProfile::find(&profile.name), Some(profile));
        }
        assert_eq!(EngineProfile::names().count(), PROFILES.len());
        assert_eq!(EngineProfile::find("l40s"), None);
    }

    #[test]
    fn the_cliff_stands_above_the_graph_batch_and_not_on_it() {
        let profile = &PROFILES[0];
        assert!((profile.decode_ms(20, 0) - (7.7 + 12.0)).abs() < 1e-9);
        assert!((profile.decode_ms(21, 0) - (7.7 + 12.6 + 30.0 + 25.2)).abs() < 1e-9);
    }

    #[test]
    fn a_decode_step_grows_with_the_tokens_held_where_a_profile_says_so() {
        let profile = EngineProfile { decode_kilotoken_ms: 0.5, ..PROFILES[2].clone() };
        assert!((profile.decode_ms(1, 8000) - profile.decode_ms(1, 0) - 4.0).abs() < 1e-9);
    }

    #[test]
    fn unsound_profiles_are_named() {
        let base = &PROFILES[0];
        let bad = [
            EngineProfile { host_ms: f64::NAN, ..base.clone() },
            EngineProfile { decode_step_ms: -1.0, ..base.clone() },
            EngineProfile { chunk_tokens: 0, ..base.clone() },
            EngineProfile { kv_tokens: PAGE_TOKENS - 1, ..base.clone() },
            EngineProfile { reserve: AnswerReserve { start: 0.1, least: 0.2, ..SGLANG_RESERVE }, ..base.clone() },
        ];
        for profile in bad {
            assert!(profile.invalid_reason().is_some(), "{profile:?}");
        }
    }
}
