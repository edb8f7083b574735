//! Ring 1: facts per replica. Each file is one pure state machine: it is fed with events and a time argument, and
//! fills its columns of [`Candidates`](crate::model::Candidates). Locking is left to the code that owns them.

pub mod admission;
pub mod answer_stats;
pub mod backlog;
pub mod capacity_correction;
mod decaying_mean;
pub mod fleet;
pub mod hit_correction;
pub mod latency;
pub mod load;
pub mod prefix;
pub mod rates;
pub mod report;
pub mod residency;
pub mod rtt;
pub mod share;
pub mod tokens;
pub mod ttft_quantile;
