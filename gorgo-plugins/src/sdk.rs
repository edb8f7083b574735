//! Interface for authors of plugins in Rust: three traits without a line of unsafe code, and a macro for each.

use crate::abi;
use crate::shim::{PluginCohort, PluginColumns, PluginRequest, PluginSetup};

/// The unit of a signal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SignalUnit {
    /// Milliseconds.
    Millis,
    /// Prompt tokens.
    Tokens,
    /// Requests.
    Requests,
    /// A fraction, 0 to 1.
    Share,
    /// Tokens per second.
    TokensPerSecond,
    /// None: a price, a hash, grams.
    One,
}

impl SignalUnit {
    /// Number of the unit in [`abi::unit`].
    #[must_use]
    pub const fn code(self) -> u32 {
        match self {
            Self::Millis => abi::unit::MILLIS,
            Self::Tokens => abi::unit::TOKENS,
            Self::Requests => abi::unit::REQUESTS,
            Self::Share => abi::unit::SHARE,
            Self::TokensPerSecond => abi::unit::TOKENS_PER_SECOND,
            Self::One => abi::unit::ONE,
        }
    }
}

/// Groups of facts that a plugin reads as separate columns. Columns of other groups are empty.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PluginFacts(pub(crate) u32);

impl PluginFacts {
    /// None.
    pub const NONE: Self = Self(0);
    /// Round trips.
    pub const RTT: Self = Self(abi::need::RTT);
    /// Cached tokens.
    pub const PREFIX: Self = Self(abi::need::PREFIX);
    /// Queued tokens and requests in flight.
    pub const LOAD: Self = Self(abi::need::LOAD);
    /// Load and cache use that the engine reports.
    pub const REPORT: Self = Self(abi::need::REPORT);
    /// Learned rates.
    pub const RATES: Self = Self(abi::need::RATES);
    /// Observed latency.
    pub const LATENCY: Self = Self(abi::need::LATENCY);

    /// Both sets of groups.
    #[must_use]
    pub const fn union(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }
}

/// Type of an option's value.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum OptionKind {
    /// A number in `[min, max]`.
    Number {
        /// Value if the option is not set; `None`: it must be set.
        default: Option<f64>,
        /// Smallest allowed value.
        min: f64,
        /// Largest allowed value.
        max: f64,
        /// True if an optimizer may move it.
        tunable: bool,
    },
    /// Numbers in `[min, max]` by name, such as one per region. May be left out.
    Numbers {
        /// Smallest allowed value.
        min: f64,
        /// Largest allowed value.
        max: f64,
    },
    /// Text. May be left out.
    Text,
    /// Several texts. May be left out.
    Texts,
    /// True or false.
    Bool {
        /// Value if the option is not set.
        default: bool,
    },
}

/// An option: a key of `options` in the policy.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct OptionDeclaration {
    /// The key, with the unit in its name if it has one.
    pub name: &'static str,
    /// Unit as shown to users; empty if there is none.
    pub unit: &'static str,
    /// Effect of the option, in one line.
    pub help: &'static str,
    /// Type of its value.
    pub kind: OptionKind,
}

/// Result of a call that did not fail.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PluginAnswer {
    /// Every row of `out` was written.
    Given,
    /// No answer for this request: the plugin has no influence on this decision.
    NoOpinion,
}

/// Description that every plugin has.
pub trait PluginDeclaration {
    /// Name of the plugin: lower-case letters, digits, `-`.
    const NAME: &'static str;
    /// Version as shown to users.
    const VERSION: &'static str;
    /// Description in one line.
    const SUMMARY: &'static str;
    /// Options that a policy can set.
    const OPTIONS: &'static [OptionDeclaration] = &[];
}

/// A cost term: one signal per replica. Several threads call one instance at the same time.
pub trait ScorerPlugin: PluginDeclaration + Send + Sync + Sized + 'static {
    /// The unit of the signal.
    const UNIT: SignalUnit;
    /// Groups of facts that it reads as separate columns.
    const NEEDS: PluginFacts = PluginFacts::NONE;
    /// Names of further facts that it reads, spelled as in expressions: [`PluginColumns::facts`] has them in this order.
    const FACTS: &'static [&'static str] = &[];
    /// True if the signal rises with the work that a replica was given.
    const SPREADS: bool = false;

    /// Makes an instance. The options have already been checked against their declarations.
    ///
    /// # Errors
    /// Says what is wrong with the options, to be shown to the author of the configuration.
    fn create(setup: &PluginSetup<'_>) -> Result<Self, String>;

    /// Writes the signal of row *i* to `out[i]`; `None` if it is unknown. `out` is as long as the columns.
    ///
    /// # Errors
    /// Says why there is no signal. The term then has no influence on this decision, and the failure is counted.
    fn score(
        &self,
        request: &PluginRequest,
        columns: &PluginColumns<'_>,
        out: &mut [Option<f64>],
    ) -> Result<PluginAnswer, String>;
}

/// A limit that replicas must not exceed. Several threads call one instance at the same time.
pub trait ConstraintPlugin: PluginDeclaration + Send + Sync + Sized + 'static {
    /// Groups of facts that it reads as separate columns.
    const NEEDS: PluginFacts = PluginFacts::NONE;
    /// Names of further facts that it reads, spelled as in expressions: [`PluginColumns::facts`] has them in this order.
    const FACTS: &'static [&'static str] = &[];
    /// True if the limit holds even when no replica is left.
    const HARD: bool;

    /// Makes an instance. The options have already been checked against their declarations.
    ///
    /// # Errors
    /// Says what is wrong with the options, to be shown to the author of the configuration.
    fn create(setup: &PluginSetup<'_>) -> Result<Self, String>;

    /// Writes to `out[i]` how far the replica of row *i* exceeds the limit, as a ratio above 0; 0 if it is within it.
    /// Infinity: the replica must never be picked.
    ///
    /// # Errors
    /// Says why there is no answer. The constraint then excludes no replica, and the failure is counted.
    fn judge(
        &self,
        request: &PluginRequest,
        columns: &PluginColumns<'_>,
        out: &mut [f64],
    ) -> Result<PluginAnswer, String>;
}

/// One number computed from a cohort of requests; an optimizer minimises it.
pub trait ObjectivePlugin: PluginDeclaration + Send + Sync + Sized + 'static {
    /// The unit of the number.
    const UNIT: SignalUnit;

    /// Makes an instance. The options have already been checked against their declarations.
    ///
    /// # Errors
    /// Says what is wrong with the options, to be shown to the author of the configuration.
    fn create(setup: &PluginSetup<'_>) -> Result<Self, String>;

    /// Returns the number. If it is not finite, this cohort has no score.
    ///
    /// # Errors
    /// Says why there is no number.
    fn measure(&self, cohort: &PluginCohort<'_>) -> Result<f64, String>;
}

/// Exports a [`ScorerPlugin`] as the library's term.
#[macro_export]
macro_rules! export_scorer {
    ($scorer:ty) => {
        #[expect(
            unsafe_code,
            reason = "the plugin contract fixes the symbol, and no other item of the library has its name"
        )]
        // An unnamed constant is a scope: the names in it cannot clash with the author's.
        const _: () = {
            /// The term's descriptor.
            #[unsafe(no_mangle)]
            extern "C" fn gorgo_scorer_v1() -> *const $crate::abi::JudgeDescriptor {
                // Constants, so that the descriptor and all it points to are static memory, as the contract demands.
                const OPTIONS: &[$crate::abi::AbiOption] = &$crate::shim::options::<
                    { <$scorer as $crate::PluginDeclaration>::OPTIONS.len() },
                >(<$scorer as $crate::PluginDeclaration>::OPTIONS);
                const FACTS: &[$crate::abi::AbiText] = &$crate::shim::texts::<
                    { <$scorer as $crate::ScorerPlugin>::FACTS.len() },
                >(<$scorer as $crate::ScorerPlugin>::FACTS);
                const DESCRIPTOR: &$crate::shim::StaticDescriptor<$crate::abi::JudgeDescriptor> =
                    &$crate::shim::scorer::<$scorer>(OPTIONS, FACTS);
                DESCRIPTOR.get()
            }
        };
    };
}

/// Exports a [`ConstraintPlugin`] as the library's constraint.
#[macro_export]
macro_rules! export_constraint {
    ($constraint:ty) => {
        #[expect(
            unsafe_code,
            reason = "the plugin contract fixes the symbol, and no other item of the library has its name"
        )]
        // An unnamed constant is a scope: the names in it cannot clash with the author's.
        const _: () = {
            /// The constraint's descriptor.
            #[unsafe(no_mangle)]
            extern "C" fn gorgo_constraint_v1() -> *const $crate::abi::JudgeDescriptor {
                // Constants, so that the descriptor and all it points to are static memory, as the contract demands.
                const OPTIONS: &[$crate::abi::AbiOption] =
                    &$crate::shim::options::<{ <$constraint as $crate::PluginDeclaration>::OPTIONS.len() }>(
                        <$constraint as $crate::PluginDeclaration>::OPTIONS,
                    );
                const FACTS: &[$crate::abi::AbiText] = &$crate::shim::texts::<
                    { <$constraint as $crate::ConstraintPlugin>::FACTS.len() },
                >(<$constraint as $crate::ConstraintPlugin>::FACTS);
                const DESCRIPTOR: &$crate::shim::StaticDescriptor<$crate::abi::JudgeDescriptor> =
                    &$crate::shim::constraint::<$constraint>(OPTIONS, FACTS);
                DESCRIPTOR.get()
            }
        };
    };
}

/// Exports an [`ObjectivePlugin`] as the library's objective.
#[macro_export]
macro_rules! export_objective {
    ($objective:ty) => {
        #[expect(
            unsafe_code,
            reason = "the plugin contract fixes the symbol, and no other item of the library has its name"
        )]
        // An unnamed constant is a scope: the names in it cannot clash with the author's.
        const _: () = {
            /// The objective's descriptor.
            #[unsafe(no_mangle)]
            extern "C" fn gorgo_objective_v1() -> *const $crate::abi::ObjectiveDescriptor {
                // Constants, so that the descriptor and all it points to are static memory, as the contract demands.
                const OPTIONS: &[$crate::abi::AbiOption] =
                    &$crate::shim::options::<{ <$objective as $crate::PluginDeclaration>::OPTIONS.len() }>(
                        <$objective as $crate::PluginDeclaration>::OPTIONS,
                    );
                const DESCRIPTOR: &$crate::shim::StaticDescriptor<$crate::abi::ObjectiveDescriptor> =
                    &$crate::shim::objective::<$objective>(OPTIONS);
                DESCRIPTOR.get()
            }
        };
    };
}
