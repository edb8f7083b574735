//! Ring 0: the words all modules share. No I/O, no clock, no runtime; imports std only.

mod admission;
#[cfg(any(test, feature = "arbitrary"))]
pub mod arbitrary;
mod candidates;
mod canonical;
mod connections;
mod decision;
pub mod engine;
mod event;
mod facts;
mod fault;
mod kv;
mod mixing;
mod param;
mod plugin;
mod prompt;
mod quantile;
mod record;
mod replica;
mod request;
mod units;
mod value;
mod weights;

pub use admission::{AdmissionRule, HoldEnd, HoldRecord};
pub use candidates::{Candidates, Needs, RttSource, ShareOf, ShareWindow, WindowLength};
pub use canonical::CanonicalSink;
pub use connections::Connections;
pub use decision::{Decision, DecisionId, Exclusion, Generation, Refusal};
pub use engine::EngineKind;
pub use event::{Ending, EngineReport, Event};
pub use facts::{
    DecisionFacts, FACT_NAMES, FACT_UNITS, FACTS, Fact, FactOf, FactReader, TEXT_FACT_NAMES, TEXT_FACTS, TextFact,
};
pub use fault::{Fault, Faults, Severity};
pub use kv::{KvChange, KvCount, KvStored};
pub use mixing::mix_bits;
pub use param::{KindDoc, Param, ParamType, Params};
pub use plugin::PluginCount;
pub use prompt::{Prompt, Splice, Usage};
pub use quantile::{nearest_rank, quantile};
pub use record::*;
pub use replica::{PolicyBuildId, PolicyIndex, Replica, ReplicaId};
pub use request::{ApiPath, RequestView};
pub use units::{At, Clock, Unit, VOID_MILLI, from_milli, to_milli};
pub use value::Value;
pub use weights::Weights;
