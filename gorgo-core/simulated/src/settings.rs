//! What a simulated engine is told at its start.

use gorgo_lab::sim::Profile;

/// Everything about one simulated engine.
#[derive(Debug, Clone, PartialEq)]
pub struct Settings {
    /// The times of the engine.
    pub profile: Profile,
    /// Divides all times of the engine, not the network's.
    pub speed: f64,
    /// Round trip between router and engine, ms.
    pub rtt_ms: f64,
    /// Which engine it looks like.
    pub dialect: Dialect,
    /// The models it says it serves; the first names the metrics.
    pub models: Vec<String>,
    /// Chooses the words it says.
    pub seed: u64,
    /// What it does wrong, if anything.
    pub faulty: Option<Faulty>,
}

/// Which engine it looks like: metrics, error bodies, when the response head is sent, unknown models.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Dialect {
    /// Head with the first token; serves every model name.
    #[default]
    Sglang,
    /// Head before prefill; 404 for an unknown model; no `/generate`.
    Vllm,
}

impl Dialect {
    /// All dialects.
    pub const ALL: [Self; 2] = [Self::Sglang, Self::Vllm];

    /// Its name on the command line.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Sglang => "sglang",
            Self::Vllm => "vllm",
        }
    }
}

/// A fault and which requests it strikes. Only requests for generation or embeddings are struck.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Faulty {
    /// What goes wrong.
    pub fault: Fault,
    /// Every so many requests: 1 all of them, 3 the third, the sixth and so on. 0 counts as 1.
    pub every: u64,
}

/// What goes wrong, as seen on real engines.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// Answers with this status and an error body, before anything is computed.
    Status(u16),
    /// Reads the request and never answers.
    Hang,
    /// The connection breaks after so many tokens of a stream, as when the engine's process is killed; an answer that is
    /// not a stream breaks before its head.
    DieAfter(u32),
    /// After so many tokens of a stream nothing more comes, and no end either (vLLM after SIGTERM); an answer that is
    /// not a stream never comes.
    StallAfter(u32),
    /// After so many tokens of a stream, an error event and a regular end. After 0 it is a refusal that looks like a
    /// success: status 200, then the error (a full queue in SGLang and vLLM). An answer that is not a stream is a 503.
    ErrorAfter(u32),
}

/// Why settings cannot be made from a configuration.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SettingsError {
    /// No such profile.
    #[error("unknown profile {name:?}; known: {known}")]
    UnknownProfile {
        /// What was asked for.
        name: String,
        /// All names.
        known: String,
    },
}

impl Settings {
    /// A flawless SGLang-like engine of that profile, with speed 1 and no distance.
    ///
    /// # Errors
    /// There is no such profile.
    pub fn new(profile: &str) -> Result<Self, SettingsError> {
        let found = Profile::find(profile).ok_or_else(|| SettingsError::UnknownProfile {
            name: profile.to_owned(),
            known: Profile::names().collect::<Vec<_>>().join(", "),
        })?;
        Ok(Self {
            profile: found.clone(),
            speed: 1.0,
            rtt_ms: 0.0,
            dialect: Dialect::default(),
            models: vec!["sim".to_owned()],
            seed: 0,
            faulty: None,
        })
    }
}
