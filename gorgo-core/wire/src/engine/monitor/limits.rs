//! Limits from an engine's own settings: how many requests it decodes cheaply and how many it runs at once, from a page
//! that shows them. Read when the engine first answers and after each restart.
//!
//! SGLang's `/get_server_info` shows its start arguments: `cuda_graph_max_bs` is the largest batch with a captured
//! graph, `disable_cuda_graph` says that there is none, and `max_running_requests` or its effective value limits what
//! runs. vLLM shows its capture sizes on no page that always exists; llama.cpp has no such batch.

use gorgo_routing::model::engine::LimitsPage;
use serde_json::Value;

/// Limits as read from such a page.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(in crate::engine) struct EngineLimits {
    /// Largest batch that is decoded cheaply, requests.
    pub(in crate::engine) decode_batch: Option<u32>,
    /// Most requests that run at once.
    pub(in crate::engine) max_running: Option<u32>,
}

/// Reads the page; limits that it does not show are unknown.
pub(in crate::engine) fn read(known: &LimitsPage, body: &[u8]) -> EngineLimits {
    let Ok(page) = serde_json::from_slice::<Value>(body) else { return EngineLimits::default() };
    let first = |members: &[&str]| members.iter().find_map(|member| find(&page, member, &largest));
    let no_graphs = find(&page, known.no_graphs, &|value| value.as_bool().filter(|said| *said).map(u32::from));
    // Without captured graphs no batch size is cheaper than another.
    EngineLimits { decode_batch: first(known.batch).filter(|_| no_graphs.is_none()), max_running: first(known.running) }
}

/// First value that `read` accepts among the members of that name, at any depth.
fn find(value: &Value, member: &str, read: &dyn Fn(&Value) -> Option<u32>) -> Option<u32> {
    match value {
        Value::Object(members) => {
            members.get(member).and_then(read).or_else(|| members.values().find_map(|value| find(value, member, read)))
        }
        Value::Array(values) => values.iter().find_map(|value| find(value, member, read)),
        _ => None,
    }
}

fn largest(value: &Value) -> Option<u32> {
    let whole = |value: &Value| value.as_u64().and_then(|whole| u32::try_from(whole).ok()).filter(|whole| *whole > 0);
    match value {
        Value::Array(values) => values.iter().filter_map(whole).max(),
        value => whole(value),
    }
}

#[cfg(test)]
mod tests {
    use gorgo_routing::model::EngineKind;

    fn read(body: &str) -> (Option<u32>, Option<u32>) {
        let limits = super::read(EngineKind::Sglang.adapter().limits.as_ref().unwrap(), body.as_bytes());
        (limits.decode_batch, limits.max_running)
    }

    #[test]
    fn sglang_says_its_largest_graph_and_what_it_runs() {
        assert_eq!(
            read(r#"{"cuda_graph_max_bs":20,"max_running_requests":64,"disable_cuda_graph":false}"#),
            (Some(20), Some(64))
        );
        let effective = r#"{"max_running_requests":null,"cuda_graph_max_bs":null,"cuda_graph_bs":[1,2,24,8],
            "internal_states":[{"effective_max_running_requests_per_dp":48}]}"#;
        assert_eq!(read(effective), (Some(24), Some(48)));
    }

    #[test]
    fn without_graphs_or_without_sense_nothing_is_known() {
        assert_eq!(read(r#"{"cuda_graph_max_bs":20,"disable_cuda_graph":true}"#), (None, None));
        for body in [
            "",
            "[]",
            "not json",
            r#"{"cuda_graph_max_bs":-3,"max_running_requests":"many"}"#,
            r#"{"cuda_graph_max_bs":0}"#,
        ] {
            assert_eq!(read(body), (None, None), "{body}");
        }
    }
}
