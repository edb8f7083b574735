//! `/v1/embeddings`: short vectors that depend on the input only.

use serde_json::{Value, json};

use super::TokenCounts;

/// Returns the answer to inputs with these digests.
pub(in super::super) fn embeddings(model: &str, digests: &[u64], counts: TokenCounts) -> Value {
    let data: Vec<Value> = digests
        .iter()
        .enumerate()
        .map(|(index, digest)| json!({ "object": "embedding", "index": index, "embedding": vector(*digest) }))
        .collect();
    json!({
        "object": "list", "model": model, "data": data,
        "usage": {
            "prompt_tokens": counts.prompt, "total_tokens": counts.prompt,
            "prompt_tokens_details": { "cached_tokens": counts.cached },
        },
    })
}

/// Returns numbers from -1 to 1, one for each byte of the digest.
fn vector(digest: u64) -> Vec<f64> {
    digest.to_le_bytes().into_iter().map(|byte| f64::from(byte) / 127.5 - 1.0).collect()
}
