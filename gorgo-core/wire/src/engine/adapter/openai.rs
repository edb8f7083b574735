//! Any OpenAI-compatible server: nothing beyond the API is assumed, so no metrics; the router's own accounting serves.

use super::Adapter;
use gorgo_routing::model::EngineKind;

pub(super) const ENGINE: Adapter = Adapter {
    kind: EngineKind::OpenAi,
    probe_path: "/v1/models",
    models_path: "/v1/models",
    metrics: None,
    capacity: None,
    limits: None,
    cached_tokens_flag: None,
};
