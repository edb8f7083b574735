//! Settings of a simulated engine at its start.

use gorgo_lab::sim::EngineProfile;

/// Settings of one simulated engine.
#[derive(Debug, Clone, PartialEq)]
pub struct SimulatedSettings {
    /// Profile that determines the times of the engine.
    pub profile: EngineProfile,
    /// Factor that divides all times of the engine, but not those of the network.
    pub speed: f64,
    /// Round trip between router and engine, ms.
    pub rtt_ms: f64,
    /// Engine that it imitates.
    pub dialect: EngineDialect,
    /// Names of the models that it offers; the first is the label of its metrics.
    pub models: Vec<String>,
    /// Seed that determines the words of answers.
    pub seed: u64,
    /// Fault to inject, if any.
    pub fault_injection: Option<FaultInjection>,
}

/// Engine that is imitated: metrics, error bodies, the time at which the response head is sent, unknown models.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum EngineDialect {
    /// SGLang: sends the head with the first token; accepts every model name.
    #[default]
    Sglang,
    /// vLLM: sends the head before prefill; answers 404 for an unknown model; has no `/generate`.
    Vllm,
}

impl EngineDialect {
    /// All dialects.
    pub const ALL: [Self; 2] = [Self::Sglang, Self::Vllm];

    /// Returns the name on the command line.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Sglang => "sglang",
            Self::Vllm => "vllm",
        }
    }
}

/// A fault and the requests it is injected into. Only requests for generation or embeddings count.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FaultInjection {
    /// Fault to inject.
    pub fault: EngineFault,
    /// Interval in requests: 1 affects all of them, 3 the third, the sixth and so on. 0 counts as 1.
    pub every_nth: u64,
}

/// Kind of fault, as observed on real engines.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EngineFault {
    /// Answers with this status and an error body, before anything is computed.
    Status(u16),
    /// Reads the request and never answers.
    Hang,
    /// Breaks the connection after this many tokens of a stream, as if the engine process were killed. An answer that
    /// is not a stream breaks before its head.
    DieAfter(u32),
    /// Stalls after this many tokens of a stream: nothing more comes, not even an end (vLLM after SIGTERM). An answer
    /// that is not a stream never comes.
    StallAfter(u32),
    /// Sends an error event and a regular end after this many tokens of a stream. With 0 it is a refusal that looks
    /// like a success: status 200, then the error (a full queue in SGLang and vLLM). An answer that is not a stream is
    /// a 503.
    ErrorAfter(u32),
}

/// Reason why settings cannot be made from a configuration.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SettingsError {
    /// The profile does not exist.
    #[error("unknown profile {name:?}; known: {known}")]
    UnknownProfile {
        /// Requested name.
        name: String,
        /// Names of all profiles.
        known: String,
    },
}

impl SimulatedSettings {
    /// Returns the settings of an SGLang-like engine without faults, with speed 1 and no round trip.
    ///
    /// # Errors
    /// The profile does not exist.
    pub fn new(profile: &str) -> Result<Self, SettingsError> {
        let found = EngineProfile::find(profile).ok_or_else(|| SettingsError::UnknownProfile {
            name: profile.to_owned(),
            known: EngineProfile::names().collect::<Vec<_>>().join(", "),
        })?;
        Ok(Self {
            profile: found.clone(),
            speed: 1.0,
            rtt_ms: 0.0,
            dialect: EngineDialect::default(),
            models: vec!["sim".to_owned()],
            seed: 0,
            fault_injection: None,
        })
    }
}
