//! Ring 0: the words all modules share. No I/O, no clock, no runtime; imports std only.

#[cfg(any(test, feature = "arbitrary"))]
pub mod arbitrary;
mod candidates;
mod canonical;
mod connections;
mod decision;
mod event;
mod facts;
mod fault;
mod gate;
mod kv;
mod param;
mod plugin;
mod prompt;
mod record;
mod replica;
mod request;
mod units;
mod value;
mod weights;

pub use candidates::{Candidates, Needs, RttSource, ShareOf, ShareWindow, WindowLength};
pub use canonical::CanonicalSink;
pub use connections::Connections;
pub use decision::{Decision, DecisionId, Exclusion, Generation, Refusal};
pub use event::{Ending, EngineReport, Event};
pub use facts::{
    DecisionFacts, FACT_NAMES, FACT_UNITS, FACTS, Fact, FactOf, FactReader, TEXT_FACT_NAMES, TEXT_FACTS, TextFact,
};
pub use fault::{Fault, Faults, Severity};
pub use gate::{GateRule, HoldEnd, HoldRecord};
pub use kv::{KvChange, KvCount, KvStored};
pub use param::{KindDoc, Param, ParamType, Params};
pub use plugin::PluginCount;
pub use prompt::{Prompt, Splice, Usage};
pub use record::{
    AlarmRecord, AttemptRecord, CandidateRecord, Connection, DecisionRecord, EngineEpoch, ErrorClass, EventKind,
    EventRecord, GenerationRecord, ITL_BOUNDS_MS, IndexRecord, ItlCounts, LearnedRecord, OutcomeRecord, ProbeRecord,
    RateKind, RateRecord, Record, Route, ScoreRecord, ScrapeRecord, ShadowRecord, Verdict, WeightRecord,
};
pub use replica::{EngineKind, PolicyId, Replica, ReplicaId};
pub use request::{ApiPath, RequestView};
pub use units::{At, Clock, Unit, VOID_MILLI, from_milli, to_milli};
pub use value::Value;
pub use weights::Weights;
