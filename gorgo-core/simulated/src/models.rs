//! `/v1/models`, and the page on which SGLang shows its settings.

use serde_json::{Value, json};

use super::settings::{EngineDialect, SimulatedSettings};
use gorgo_lab::sim::EngineProfile;

/// Returns the list of models in the format of the engine.
pub(super) fn list(settings: &SimulatedSettings, created_secs: u64) -> Value {
    let owner = match settings.dialect {
        EngineDialect::Sglang => "sglang",
        EngineDialect::Vllm => "vllm",
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

/// Returns `/get_server_info`, as far as routers read it.
pub(super) fn settings(profile: &EngineProfile) -> Value {
    json!({
        "cuda_graph_max_bs": profile.decode_batch(),
        "disable_cuda_graph": profile.decode_batch().is_none(),
        "max_running_requests": profile.max_running,
        "max_total_num_tokens": profile.kv_tokens,
        "chunked_prefill_size": profile.chunk_tokens,
    })
}
