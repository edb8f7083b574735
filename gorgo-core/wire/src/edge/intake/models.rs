//! `GET /v1/models`: the models of all replicas.
//!
//! Each replica is asked, with its own key; one that does not answer in time is represented by its configured models.
//! Entries are the engines' own objects, the first of each id in fleet order.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt, Limited};
use hyper::{HeaderMap, Method, Request, Response, StatusCode};
use serde_json::{Value, json};
use tokio::task::JoinSet;
use tokio::time::timeout;

use crate::edge::DataPlane;
use crate::edge::headers::upstream;
use crate::edge::local_reply::{error, json_text};
use crate::edge::relay::ResponseBody;
use crate::edge::upstream::UpstreamReplica;
use crate::edge::upstream::body::UpstreamBody;
use crate::edge::upstream::pool::{SendTiming, request_target};

/// Time limit for a replica to list its models.
const TIME_LIMIT: Duration = Duration::from_secs(2);
/// Longest list that is read, bytes.
const MAX_LIST: usize = 1 << 20;

/// Merged list.
pub(in crate::edge) async fn list(data: &Arc<DataPlane>, client: &HeaderMap) -> Response<ResponseBody> {
    let models = merged(data, client).await;
    json_text(StatusCode::OK, json!({ "object": "list", "data": models }).to_string())
}

/// One entry of the merged list.
pub(in crate::edge) async fn one(data: &Arc<DataPlane>, client: &HeaderMap, id: &str) -> Response<ResponseBody> {
    let found = merged(data, client).await.into_iter().find(|model| id_of(model) == Some(id));
    match found {
        Some(model) => json_text(StatusCode::OK, model.to_string()),
        None => error(
            StatusCode::NOT_FOUND,
            "model_not_found",
            "no replica serves this model; GET /v1/models lists those that are served",
        ),
    }
}

async fn merged(data: &Arc<DataPlane>, client: &HeaderMap) -> Vec<Value> {
    // The tasks are aborted when this set is dropped, that is when the client leaves.
    let mut asked = JoinSet::new();
    for index in 0..data.replicas.len() {
        let (data, client) = (Arc::clone(data), client.clone());
        asked.spawn(async move { (index, fetch_models(&data, index, &client).await) });
    }
    // By index, so that the order does not depend on which replica answers first.
    let mut lists: Vec<Vec<Value>> = vec![Vec::new(); data.replicas.len()];
    while let Some(answered) = asked.join_next().await {
        if let Ok((index, Some(list))) = answered {
            lists[index] = list;
        }
    }
    let mut seen = HashSet::new();
    let mut merged = Vec::new();
    for (list, replica) in lists.into_iter().zip(&data.replicas) {
        let known = if list.is_empty() { configured(replica) } else { list };
        for model in known {
            if id_of(&model).is_some_and(|id| seen.insert(id.to_owned())) {
                merged.push(model);
            }
        }
    }
    merged
}

fn id_of(model: &Value) -> Option<&str> {
    model.get("id").and_then(Value::as_str)
}

fn configured(replica: &UpstreamReplica) -> Vec<Value> {
    let entry = |id: &Arc<str>| json!({ "id": **id, "object": "model", "created": 0, "owned_by": "gorgo" });
    replica.models.iter().map(entry).collect()
}

async fn fetch_models(data: &DataPlane, index: usize, client: &HeaderMap) -> Option<Vec<Value>> {
    let to = data.replicas.get(index)?;
    let mut headers = upstream(client, to.endpoint.authority(), to.endpoint.bearer());
    let uri = request_target(&to.endpoint, "/v1/models", &mut headers)?;
    let mut request = Request::new(UpstreamBody::whole(Bytes::new()));
    *request.method_mut() = Method::GET;
    *request.uri_mut() = uri;
    *request.headers_mut() = headers;
    let answer = async {
        let mut trip = SendTiming::default();
        let (response, mut carrier) = to.pool.send(request, &*data.clock, &mut trip).await.ok()?;
        if response.status() != StatusCode::OK {
            return None;
        }
        let text = carrier.run(Limited::new(response.into_body(), MAX_LIST).collect()).await.ok()?.to_bytes();
        to.pool.release(carrier, data.clock.now());
        let list: Value = serde_json::from_slice(&text).ok()?;
        list.get("data").and_then(Value::as_array).cloned()
    };
    timeout(TIME_LIMIT, answer).await.ok().flatten()
}
