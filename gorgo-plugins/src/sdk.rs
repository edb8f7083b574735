//! What authors of plugins in Rust write against: three traits without a line of unsafe code, and a macro for each.

use crate::abi;
use crate::shim::{Cohort, Columns, Request, Setup};

/// The unit of a signal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unit {
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

impl Unit {
    /// Its number in the contract.
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

/// Groups of facts with a column of their own that a plugin reads. Columns of others are empty.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Need(pub(crate) u32);

impl Need {
    /// None.
    pub const NONE: Self = Self(0);
    /// Round trips.
    pub const RTT: Self = Self(abi::need::RTT);
    /// Cached tokens.
    pub const PREFIX: Self = Self(abi::need::PREFIX);
    /// Queued tokens and requests in flight.
    pub const LOAD: Self = Self(abi::need::LOAD);
    /// What the engine reports.
    pub const REPORT: Self = Self(abi::need::REPORT);
    /// Learned rates.
    pub const RATES: Self = Self(abi::need::RATES);
    /// Observed latency.
    pub const LATENCY: Self = Self(abi::need::LATENCY);

    /// Both.
    #[must_use]
    pub const fn and(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }
}

/// What an option takes.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum OptionKind {
    /// A number in `[min, max]`.
    Number {
        /// Where it is not given; `None`: it must be given.
        default: Option<f64>,
        /// Smallest allowed.
        min: f64,
        /// Largest allowed.
        max: f64,
        /// Whether an optimizer may move it.
        tunable: bool,
    },
    /// Numbers in `[min, max]` by name, such as one per region. May be left out.
    Numbers {
        /// Smallest allowed.
        min: f64,
        /// Largest allowed.
        max: f64,
    },
    /// Text. May be left out.
    Text,
    /// Several texts. May be left out.
    Texts,
    /// True or false.
    Bool {
        /// Where it is not given.
        default: bool,
    },
}

/// An option: a key of `options` in the policy.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct OptionDecl {
    /// The key, with its unit in the name where it has one.
    pub name: &'static str,
    /// The unit for people; empty where there is none.
    pub unit: &'static str,
    /// What it does, one line.
    pub help: &'static str,
    /// What it takes.
    pub kind: OptionKind,
}

/// Whether a plugin has something to say on a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Answer {
    /// Every row of `out` was written.
    Given,
    /// Nothing: the plugin counts for nothing in this decision.
    NoOpinion,
}

/// What every plugin says of itself.
pub trait Declared {
    /// Its name: lower case, digits, `-`.
    const NAME: &'static str;
    /// Its version, for people.
    const VERSION: &'static str;
    /// What it is, one line.
    const SUMMARY: &'static str;
    /// Its options.
    const OPTIONS: &'static [OptionDecl] = &[];
}

/// A cost term: a signal per replica. Calls of one instance come from several threads at once.
pub trait Scorer: Declared + Send + Sync + Sized + 'static {
    /// The unit of the signal.
    const UNIT: Unit;
    /// The facts with a column of their own that it reads.
    const NEEDS: Need = Need::NONE;
    /// Names of further facts that it reads, as expressions have them: [`Columns::facts`], in this order.
    const FACTS: &'static [&'static str] = &[];
    /// Whether the signal rises with the work that a replica was given.
    const SPREADS: bool = false;

    /// Makes an instance. Options have been checked as declared.
    ///
    /// # Errors
    /// What is wrong with the options, for the reader of the configuration.
    fn create(setup: &Setup<'_>) -> Result<Self, String>;

    /// Writes the signal of row *i* to `out[i]`; `None` where it is not known. `out` is as long as the columns.
    ///
    /// # Errors
    /// Why there is no signal. The term then counts for nothing, and the failure is counted.
    fn score(&self, request: &Request, columns: &Columns<'_>, out: &mut [Option<f64>]) -> Result<Answer, String>;
}

/// A limit that replicas may be over. Calls of one instance come from several threads at once.
pub trait Constraint: Declared + Send + Sync + Sized + 'static {
    /// The facts with a column of their own that it reads.
    const NEEDS: Need = Need::NONE;
    /// Names of further facts that it reads, as expressions have them: [`Columns::facts`], in this order.
    const FACTS: &'static [&'static str] = &[];
    /// Whether it holds even when nobody is left.
    const HARD: bool;

    /// Makes an instance. Options have been checked as declared.
    ///
    /// # Errors
    /// What is wrong with the options, for the reader of the configuration.
    fn create(setup: &Setup<'_>) -> Result<Self, String>;

    /// Writes to `out[i]` how far the replica of row *i* is over the limit, as a ratio above 0; 0 where it is within.
    /// Infinity: never to be picked.
    ///
    /// # Errors
    /// Why there is no judgement. The constraint then excludes nobody, and the failure is counted.
    fn judge(&self, request: &Request, columns: &Columns<'_>, out: &mut [f64]) -> Result<Answer, String>;
}

/// One number of a cohort of requests; an optimizer makes it small.
pub trait Objective: Declared + Send + Sync + Sized + 'static {
    /// The unit of the number.
    const UNIT: Unit;

    /// Makes an instance. Options have been checked as declared.
    ///
    /// # Errors
    /// What is wrong with the options, for the reader of the configuration.
    fn create(setup: &Setup<'_>) -> Result<Self, String>;

    /// The number. Not finite: the cohort says nothing.
    ///
    /// # Errors
    /// Why there is none.
    fn measure(&self, cohort: &Cohort<'_>) -> Result<f64, String>;
}

/// Exports a [`Scorer`] as the library's term.
#[macro_export]
macro_rules! export_scorer {
    ($scorer:ty) => {
        #[expect(unsafe_code, reason = "the symbol is the contract's, and no other item of the library has its name")]
        const _: () = {
            /// The term's descriptor.
            #[unsafe(no_mangle)]
            extern "C" fn gorgo_scorer_v1() -> *const $crate::abi::Judge {
                const OPTIONS: &[$crate::abi::OptionSpec] = &$crate::shim::options::<
                    { <$scorer as $crate::Declared>::OPTIONS.len() },
                >(<$scorer as $crate::Declared>::OPTIONS);
                const FACTS: &[$crate::abi::Text] = &$crate::shim::texts::<{ <$scorer as $crate::Scorer>::FACTS.len() }>(
                    <$scorer as $crate::Scorer>::FACTS,
                );
                const DESCRIPTOR: &$crate::shim::Static<$crate::abi::Judge> =
                    &$crate::shim::scorer::<$scorer>(OPTIONS, FACTS);
                DESCRIPTOR.get()
            }
        };
    };
}

/// Exports a [`Constraint`] as the library's constraint.
#[macro_export]
macro_rules! export_constraint {
    ($constraint:ty) => {
        #[expect(unsafe_code, reason = "the symbol is the contract's, and no other item of the library has its name")]
        const _: () = {
            /// The constraint's descriptor.
            #[unsafe(no_mangle)]
            extern "C" fn gorgo_constraint_v1() -> *const $crate::abi::Judge {
                const OPTIONS: &[$crate::abi::OptionSpec] = &$crate::shim::options::<
                    { <$constraint as $crate::Declared>::OPTIONS.len() },
                >(<$constraint as $crate::Declared>::OPTIONS);
                const FACTS: &[$crate::abi::Text] = &$crate::shim::texts::<
                    { <$constraint as $crate::Constraint>::FACTS.len() },
                >(<$constraint as $crate::Constraint>::FACTS);
                const DESCRIPTOR: &$crate::shim::Static<$crate::abi::Judge> =
                    &$crate::shim::constraint::<$constraint>(OPTIONS, FACTS);
                DESCRIPTOR.get()
            }
        };
    };
}

/// Exports an [`Objective`] as the library's objective.
#[macro_export]
macro_rules! export_objective {
    ($objective:ty) => {
        #[expect(unsafe_code, reason = "the symbol is the contract's, and no other item of the library has its name")]
        const _: () = {
            /// The objective's descriptor.
            #[unsafe(no_mangle)]
            extern "C" fn gorgo_objective_v1() -> *const $crate::abi::Objective {
                const OPTIONS: &[$crate::abi::OptionSpec] = &$crate::shim::options::<
                    { <$objective as $crate::Declared>::OPTIONS.len() },
                >(<$objective as $crate::Declared>::OPTIONS);
                const DESCRIPTOR: &$crate::shim::Static<$crate::abi::Objective> =
                    &$crate::shim::objective::<$objective>(OPTIONS);
                DESCRIPTOR.get()
            }
        };
    };
}
