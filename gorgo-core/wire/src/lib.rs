//! The wire: requests from clients, attempts at engines, and what engines report beside the requests.

pub mod edge;
pub mod engine;
