//! Requests to one OpenAI-compatible server and the result of each: the load that `replay` drives, and the prompts that
//! `calibrate` and `doctor --fleet` send to one engine at a time.

mod body;
mod client;
mod failure;
mod key;
mod live;
mod stream;
mod target;

pub(crate) use self::body::BodyWriter;
pub(crate) use self::client::{ReplayClient, ReplayRequest, RequestOptions};
pub(crate) use self::failure::RequestFailure;
pub(crate) use self::key::{KeyError, api_key};
pub(crate) use self::live::LiveEngine;
pub(crate) use self::target::{ReplayApi, ServerUrl, ServerUrlError};
