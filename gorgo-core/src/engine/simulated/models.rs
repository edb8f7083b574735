//! `/v1/models`.

use serde_json::{Value, json};

use super::settings::{Dialect, Settings};

/// The list of models, as the engine words it.
pub(super) fn list(settings: &Settings, created_secs: u64) -> Value {
    let owner = match settings.dialect {
        Dialect::Sglang => "sglang",
        Dialect::Vllm => "vllm",
    };
    let models: Vec<Value> = settings
        .models
        .iter()
        .map(|name| {
            json!({
                "id": name, "object": "model", "created": created_secs, "owned_by": owner, "root": name,
                "parent": null, "max_model_len": settings.profile.longest_prompt(),
            })
        })
        .collect();
    json!({ "object": "list", "data": models })
}
