//! Checks, once and for people, that the configured engine listens at an address, before traffic goes there. An HTTP
//! server that answers is not necessarily an engine: it must have a list of models, and its metrics must be those of
//! the engine that the configuration names.

use std::time::Duration;

use hyper::StatusCode;
use tokio_util::task::TaskTracker;

use crate::engine::client::{EngineClient, EngineClientError};
use crate::engine::monitor::metrics;
use crate::engine::monitor::scrape::{MOST_BYTES, model_names};
use crate::engine::monitor::{MonitoredReplica, key_warning};
use gorgo_routing::model::Clock;
use gorgo_routing::model::engine::MetricsPage;

/// Finding at an address.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum EngineFinding {
    /// Engine as configured: its models, and metrics that it could report but does not.
    Engine {
        /// Names of its models.
        models: Vec<String>,
        /// Missing metrics, and the remedy.
        lacks: Option<String>,
    },
    /// Something answers, but it is no engine, or it wants another key; the reason.
    NotAnEngine(String),
    /// Nothing answers; the reason.
    Unreachable(String),
}

/// Asks a replica for its models and its metrics. `limit`: for each connection and each response. HTTP/2 spawns on
/// `tasks`.
pub async fn examine(
    watched: &MonitoredReplica,
    limit: Duration,
    clock: &dyn Clock,
    tasks: &TaskTracker,
) -> EngineFinding {
    let mut client = EngineClient::new(watched.endpoint.clone(), tasks.clone());
    let path = watched.adapter.models_path;
    let answer = match client.get_following(path, MOST_BYTES, limit, clock).await {
        Ok((answer, _)) => answer,
        // Something accepted the connection, so the address is taken by another service.
        Err(cause @ EngineClientError::Broken(_)) => {
            return EngineFinding::NotAnEngine(format!("it does not speak HTTP: {cause}"));
        }
        Err(cause) => return EngineFinding::Unreachable(cause.to_string()),
    };
    // Before the body is judged: the page of a refusal is no list of models, but the engine may be the right one.
    if let Some(complaint) = key_warning(watched, path, answer.status) {
        return EngineFinding::NotAnEngine(complaint);
    }
    let models = answer.status.is_success().then(|| model_names(&answer.body)).flatten();
    let Some(models) = models else {
        let said = match answer.status {
            status if status.is_success() => "with something other than a list of models".to_owned(),
            status => format!("with {}", status.as_u16()),
        };
        return EngineFinding::NotAnEngine(format!(
            "it answers GET {path} {said}, so no engine listens there; check `url`"
        ));
    };
    // Only now: without an engine its metrics need no explanation.
    let lacks = match &watched.adapter.metrics {
        Some(page) => missing_metrics(watched, page, &mut client, limit, clock).await,
        None => None,
    };
    EngineFinding::Engine { models: models.iter().map(ToString::to_string).collect(), lacks }
}

async fn missing_metrics(
    watched: &MonitoredReplica,
    page: &MetricsPage,
    client: &mut EngineClient,
    limit: Duration,
    clock: &dyn Clock,
) -> Option<String> {
    let (path, engine) = (page.path, watched.adapter.kind.name());
    // A redirect is followed as in a scrape, so that both judge the same page.
    match client.get_following(path, MOST_BYTES, limit, clock).await {
        Ok((answer, _)) if answer.status.is_success() => metrics::read(&answer.body, page.series)
            .is_empty()
            .then(|| format!("GET {path} has no metrics of {engine}; check `engine`")),
        // A missing flag does not cause a 401, so naming it would mislead.
        Ok((answer, _)) => Some(match page.flag.filter(|_| answer.status != StatusCode::UNAUTHORIZED) {
            Some(flag) => format!("GET {path} answers {}: start {engine} with {flag}", answer.status.as_u16()),
            None => format!("GET {path} answers {}, so its metrics are unknown", answer.status.as_u16()),
        }),
        Err(cause) => Some(format!("GET {path}: {cause}, so its metrics are unknown")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::monitor::mock::{MockEngine, RefusingAddress, TickingClock, reply};
    use gorgo_routing::model::EngineKind;

    const MODELS: &str = r#"{"object":"list","data":[{"id":"small"}]}"#;

    async fn found(mock: &MockEngine, engine: EngineKind) -> EngineFinding {
        examined(&mock.watched(engine, None)).await
    }

    async fn examined(watched: &MonitoredReplica) -> EngineFinding {
        examine(watched, Duration::from_secs(5), &TickingClock::new(), &TaskTracker::new()).await
    }

    #[tokio::test]
    async fn an_engine_is_told_from_any_other_server() {
        let engine = MockEngine::start(|request| match request.uri().path() {
            "/v1/models" => reply(200, MODELS),
            "/metrics" => reply(200, "vllm:num_requests_running 1\n"),
            _ => reply(404, ""),
        })
        .await;
        let models = vec!["small".to_owned()];
        assert_eq!(
            found(&engine, EngineKind::Vllm).await,
            EngineFinding::Engine { models: models.clone(), lacks: None }
        );
        let lacks = Some("GET /metrics has no metrics of sglang; check `engine`".to_owned());
        assert_eq!(found(&engine, EngineKind::Sglang).await, EngineFinding::Engine { models: models.clone(), lacks });

        let plain = MockEngine::start(|request| match request.uri().path() {
            "/v1/models" => reply(200, MODELS),
            _ => reply(404, ""),
        })
        .await;
        let lacks = Some("GET /metrics answers 404: start sglang with --enable-metrics".to_owned());
        assert_eq!(found(&plain, EngineKind::Sglang).await, EngineFinding::Engine { models, lacks });

        let files = MockEngine::start(|_| reply(404, "not found")).await;
        let said = "it answers GET /v1/models with 404, so no engine listens there; check `url`";
        assert_eq!(found(&files, EngineKind::OpenAi).await, EngineFinding::NotAnEngine(said.to_owned()));
        for (status, body, part) in
            [(200, "<html>welcome</html>", "other than a list of models"), (401, "", "it requires an API key")]
        {
            let other = MockEngine::start(move |_| reply(status, body)).await;
            let EngineFinding::NotAnEngine(said) = found(&other, EngineKind::OpenAi).await else { panic!("{part}") };
            assert!(said.contains(part), "{said}");
        }
    }

    #[tokio::test]
    async fn where_nobody_listens_it_is_silent() {
        let mock = MockEngine::start(|_| reply(200, "")).await;
        let watched =
            MonitoredReplica { endpoint: RefusingAddress::new().endpoint(), ..mock.watched(EngineKind::Vllm, None) };
        let found = examined(&watched).await;
        assert!(
            matches!(&found, EngineFinding::Unreachable(cause) if cause.starts_with("cannot connect")),
            "{found:?}"
        );
    }
}
