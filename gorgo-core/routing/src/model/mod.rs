//! Ring 0: the vocabulary that all modules share. No I/O, no clock, no runtime; imports std only.
//!
//! # Glossary
//!
//! One word, one meaning: a word has the same meaning as a type, a column, a metric and an option, and a word listed here is
//! used for nothing else. "Not:" lists the words it replaces.
//!
//! ## A request and its route
//!
//! | word | meaning |
//! |---|---|
//! | **client** | Program that sends requests to gorgo. |
//! | **engine** | Software that serves a model (vLLM, SGLang, llama.cpp, a simulated one), and its kind. Not one running instance: that is a replica. |
//! | **replica** | One running engine with an address: what a decision chooses among (`[[replica]]`, column `replica_id`). Parts that see one side of it say which: `ReplicaConfig`, `ReplicaHealth`, `ReplicaConnections`, `SimulatedReplica`. Not: upstream, member, target, endpoint. |
//! | **fleet** | All enabled replicas of one router. |
//! | **request** | One call of a client, from the arrival of its head to the last byte of its answer (`v_requests`). |
//! | **prompt** | Input text of a request. Its *canonical* form is the same for equal prompts whatever API carries them; it is hashed, never stored. |
//! | **session** | Conversation that requests belong to: named by a header, else by the body's `user`, the API key, or the prompt's head. Stored as a hash. |
//! | **decision** | Choice of a replica for a request by a policy, with all the facts it was made from. Each has an id (`decision_id`, header `x-gorgo-decision`). |
//! | **attempt** | One try to get an answer from one replica, numbered from 1 (`v_attempts`). Each attempt chooses its replica from the candidates that are left. |
//! | **retry** | Later attempt of a request after an earlier one failed, before the client received a byte (`[failover]`). |
//! | **hedge** | Second attempt while the first is still running, started because the first byte is late; the first usable answer wins, and the other attempt is aborted. Not: race. |
//! | **outcome** | How a request ended: status, error class, times, tokens. One per request (`outcomes`). An attempt has a *result*. |
//! | **refusal** | Answer of the router without an attempt: no replica, unknown model, queue full, draining (`refusals`). |
//! | **stream** | Answer sent as events while it is generated. *Chunk*: one piece of it. |
//!
//! ## Times and tokens
//!
//! | word | meaning |
//! |---|---|
//! | **TTFT** | Time to first token: arrival of the request's head to the first generated content. |
//! | **E2E** | End to end: arrival of the request's head to the last byte handed to the client. |
//! | **ITL** | Inter-token latency: gap between two pieces of content of an answer. |
//! | **prefill** | Engine's work on the prompt, up to the first token. **Decode**: its work on the answer, token by token. |
//! | **cached tokens** | Tokens of this prompt that are in a replica's KV cache; *uncached* is the rest. Predicted by the prefix index, reported by the engine afterwards. |
//! | **in flight** | Of a request: sent to a replica and not ended. *Running* and *waiting* are the engine's own words for the requests it works on and those it queues. |
//! | **queued tokens** | Prompt tokens of this router's requests in flight at a replica. |
//! | **backlog** | Prefill work ahead of a request at a replica, ms. |
//! | **round trip (RTT)** | Network time to a replica and back on a warm connection, ms. |
//!
//! ## A decision
//!
//! | word | meaning |
//! |---|---|
//! | **policy** | Rule that chooses a replica: terms, cost, constraints, picker (`[policy.NAME]`). *Preset*: a built-in one. |
//! | **kind** | Variety of a term, constraint, picker and so on, as `kind = "…"` names it (`gorgo kinds`). |
//! | **fact** | Number known about a request or a replica when a decision is made. Unknown is not zero. *Feature*: module that keeps one group of facts. |
//! | **candidate** | Replica as one decision sees it, with its facts. The only meaning; new weights on trial are a *proposal*. |
//! | **term** | Part of a policy that reads facts and gives one number per candidate. |
//! | **signal** | That number, in the term's unit, before weighting. |
//! | **weight** | Factor on a signal. |
//! | **rate** | Learned conversion of a signal into ms, such as ms per uncached token. |
//! | **cost** | Number per candidate made from the weighted signals; lowest is best. The *cost kind* (`sum`, `tail-aware`) says how. |
//! | **constraint** | Rule that excludes candidates. *Hard* ones always hold; others are *relaxed* if they would exclude every candidate. |
//! | **violation** | How far a candidate is beyond a constraint's limit; decides which candidates come back when it is relaxed. |
//! | **picker** | Turns costs into a probability per allowed candidate, from which the decision draws. |
//! | **propensity** | Probability with which the chosen candidate was chosen. |
//! | **exploration** | Share of decisions that take any allowed replica, whatever the cost. |
//! | **shadow** | Policy evaluated on the facts of each decision without acting. |
//! | **reservation** | Load added to a replica in the step that chooses it, released once when the attempt ends. |
//! | **slot** | Position of a term in its policy, from 1 (`s1_milli`, `c1_milli`). |
//!
//! ## The admission gate
//!
//! | word | meaning |
//! |---|---|
//! | **admission gate** | Limit on requests in flight per replica with a queue in front of it, in the router. It excludes no candidate, so it is not a constraint. |
//! | **admission wait** | Time that an attempt waits at the gate (`v_admissions`, `gorgo_admission_wait_seconds`). Replicas *cache* blocks; an object such as a stored response has an *owner*. |
//! | **queue** | Of the gate: attempts that wait for one replica. An engine's queue is always called the engine's. |
//! | **permit** | Right to be in flight at a replica, given back when the attempt ends. |
//!
//! ## A router's knowledge of its replicas
//!
//! | word | meaning |
//! |---|---|
//! | **probe** | Small request on a warm connection that measures the round trip and shows whether the replica is alive (`[probe]`). |
//! | **scrape** | One read of an engine's metrics page (`[scrape]`). *Report*: the load and cache figures on it. |
//! | **health** | Whether a replica is up, from probes and scrapes. |
//! | **ejection** | Temporary exclusion of a replica whose requests failed; it returns by one trial request and a slow start. Not: held back. |
//! | **drain** | Of a replica: nothing new is sent there. Of the router: nothing new is accepted while running requests finish. |
//! | **block** | Fixed number of prompt bytes, hashed in a chain with all the bytes before it. A block of an engine is a *token block*. A block of requests in a trial is a *trial block*. |
//! | **prefix index** | Blocks that each replica is believed to have cached. |
//! | **snapshot** | Copy of the prefix index in the database, for a restart. |
//! | **cache events** | Messages in which an engine reports which token blocks it stored and removed (`kv_events`). |
//! | **token mapping** | Which token blocks a prompt's text corresponds to, learned from an engine's `/tokenize`. |
//!
//! ## Tuning
//!
//! | word | meaning |
//! |---|---|
//! | **tuner** | Part of a policy that moves its weights (`[policy.NAME.tune]`). |
//! | **generation** | Set of weights that a trial compares with the incumbent, with its number and verdict; 0 is the configured weights. |
//! | **incumbent** | Weights in force. |
//! | **proposal** | Weights that an optimizer proposes, on trial as the next generation. Not: candidate, challenger, offspring. |
//! | **trial** | Comparison of a proposal with the incumbent on live traffic. |
//! | **arm** | One side of a trial: 0 the incumbent, 1 the proposal. |
//! | **trial block** | Run of consecutive requests of one arm; two under the same traffic make a *pair*. |
//! | **wash-out** | Requests after a change of arm that are not counted. |
//! | **cohort** | Counted requests of one arm, and their statistics. |
//! | **objective** | Number made from a cohort's statistics, to be minimised. *Score*: its value for an arm. |
//! | **optimizer** | Algorithm that makes the next proposal. |
//! | **verdict** | End of a trial: accepted, rejected, cut. |
//! | **guard** | Limits that no accepted proposal may exceed, whatever its score. |
//! | **alarm** | Condition that an operator should look into (`alarms`). |
//!
//! ## The history
//!
//! | word | meaning |
//! |---|---|
//! | **history** | The SQLite database with all decisions (`[store]`). |
//! | **run** | One start of the router, until it ends. In the simulator: one policy on one trace with one seed. |
//! | **record** | Something that happened, as it is written to the log, the metrics and the store. *Row*: a record in a table. |
//! | **event** | Record about the router or a replica, such as `replica-up` (`events`). Those of the simulator are *simulation events*. |
//! | **gap** | Rows that were lost (`gaps`). Missing cache events are a *sequence gap*. |
//! | **digest** | SHA-256 of a configuration, policy or plugin. |
//! | **trace** | Recorded or generated requests with times, sizes and block ids, for `simulate`, `replay` and `tune`. |
//! | **profile** | Constants of a simulated engine (`l40s-qwen3.5-35b`); for `trace generate`, the parameters of a workload. |
//!
//! `queue` is also the name of a term (queued tokens), and `turn` names a term and a turn of a conversation: both are words of
//! users' files.

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

pub use admission::{AdmissionEnd, AdmissionRecord, AdmissionRule};
pub use candidates::{Candidates, RequiredFacts, RttSource, ShareBasis, ShareWindow, WindowLength};
pub use canonical::CanonicalSink;
pub use connections::RoundTripEstimator;
pub use decision::{Decision, DecisionId, Exclusion, Generation, RefusalReason};
pub use engine::EngineKind;
pub use event::{EngineReport, FleetEvent, RequestOutcome};
pub use facts::{
    DecisionFacts, FACT_NAMES, FACT_UNITS, FACTS, FactDefinition, FactReader, FactScope, TEXT_FACT_NAMES, TEXT_FACTS,
    TextFact,
};
pub use fault::{ConfigFault, ConfigFaults, Severity};
pub use kv::{KvChange, KvEventStats, StoredBlocks};
pub use mixing::mix_bits;
pub use param::{KindDoc, ParamSpec, ParamType, ParamValues};
pub use plugin::PluginCounts;
pub use prompt::{BodySplice, ParsedRequest, TokenUsage};
pub use quantile::{nearest_rank, quantile};
pub use record::*;
pub use replica::{PolicyBuildId, PolicyIndex, Replica, ReplicaId};
pub use request::{ApiPath, RequestView};
pub use units::{Clock, Unit, UnixMicros, VOID_MILLI, from_milli, to_milli};
pub use value::ConfigValue;
pub use weights::PolicyWeights;
