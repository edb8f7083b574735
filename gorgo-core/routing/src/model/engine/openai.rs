//! Any OpenAI-compatible server: nothing beyond the API is assumed, so there are no metrics, only the router's own counts.

use super::{EngineAdapter, EngineKind};

pub(super) const ENGINE: EngineAdapter = EngineAdapter {
    kind: EngineKind::OpenAi,
    name: "openai",
    summary: "any server with OpenAI's API; nothing beyond it is assumed",
    probe_path: "/v1/models",
    models_path: "/v1/models",
    metrics: None,
    capacity: None,
    limits: None,
    cached_tokens_flag: None,
    cache_events: false,
    setting_flags: &[],
};
