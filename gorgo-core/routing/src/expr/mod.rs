//! Ring 0: expressions, the small language of terms, constraints and objectives. Imports std only.
//!
//! ```text
//! max(0, uncached_tokens - 512) * prefill_ms_per_token + (queued_tokens > 4000 ? 50 : 0)
//! ```
//!
//! A text is compiled once, when the configuration is read: names become slots, parts without names become numbers, and
//! length, nesting and memory are bounded. There are no loops, so an evaluation takes as many steps as the text has
//! operators, at most. `README.md` beside this file is the user's guide.
//!
//! Every value is an `f64`. **Unknown** and **no value** are different: a name whose value is unknown ends the
//! evaluation where its value is needed (not in a branch of `?:`, `&&`, `||` that is not taken); arithmetic without a
//! result (`0 / 0`) is NaN, and anything computed from NaN is NaN, comparisons too.

mod compile;
mod dimension;
mod error;
mod lexer;
mod program;

pub use error::ExprError;
pub use program::EvalStack;

use program::StackInstruction;

/// Longest text, bytes.
pub const MAX_TEXT_BYTES: usize = 4_096;

/// Limit on the nesting of brackets, prefixes and choices.
pub const MAX_NESTING: usize = 64;

/// Names for objectives: statistics of one arm's requests. Times are in ms; `…_ref` is the same statistic of the
/// incumbent's own requests under the same traffic.
pub const OBJECTIVE_NAMES: &[&str] = &[
    "ttft_mean",
    "ttft_p50",
    "ttft_p95",
    "ttft_p99",
    "e2e_mean",
    "e2e_p50",
    "e2e_p95",
    "e2e_p99",
    "itl_mean",
    "itl_p99",
    "ttft_mean_ref",
    "ttft_p50_ref",
    "ttft_p95_ref",
    "ttft_p99_ref",
    "e2e_mean_ref",
    "e2e_p50_ref",
    "e2e_p95_ref",
    "e2e_p99_ref",
    "itl_mean_ref",
    "itl_p99_ref",
    "error_share",
    "share_max",
    "hhi",
    "requests",
    "tokens_per_second",
    "ttft_geometric",
    "e2e_geometric",
    "ttft_geometric_ref",
    "e2e_geometric_ref",
];

/// An expression that was parsed, checked and compiled.
#[derive(Debug, Clone, PartialEq)]
pub struct Expression {
    steps: Vec<StackInstruction>,
    comparisons: Vec<TextComparison>,
}

/// A name with a text value, compared with a text of the expression: a separate slot, 1 or 0.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TextComparison {
    /// The name's position in the list of names with text values.
    pub name: usize,
    /// The text that it is compared with.
    pub text: String,
}

impl Expression {
    /// Compiles a text with these names; a name's slot is its position in the list.
    ///
    /// # Errors
    /// The first mistake, with its column and what was expected.
    pub fn compile(text: &str, names: &[&str]) -> Result<Self, ExprError> {
        Self::compile_in(text, names, &[], None)
    }

    /// The same, with the units of the names (`ms`, `tokens`, `ms/token`, `tokens/s`, `share`, `1`), in their order,
    /// and the unit that the result must have: plain contradictions are errors. Units that are missing or unknown fit
    /// everywhere.
    ///
    /// # Errors
    /// The first mistake, with its column and what was expected.
    pub fn compile_in(text: &str, names: &[&str], units: &[&str], result: Option<&str>) -> Result<Self, ExprError> {
        Self::compile_with_texts(text, names, units, &[], result)
    }

    /// The same with names that have text values. They can only be compared with a text, by `==` or `!=`; each text
    /// that one is compared with is a slot after those of `names`, in the order of [`Expression::comparisons`].
    ///
    /// # Errors
    /// The first mistake, with its column and what was expected.
    pub fn compile_with_texts(
        text: &str,
        names: &[&str],
        units: &[&str],
        texts: &[&str],
        result: Option<&str>,
    ) -> Result<Self, ExprError> {
        let (steps, comparisons) = compile::ExpressionCompiler::compile(text, names, units, texts, result)?;
        Ok(Self { steps, comparisons })
    }

    /// Comparisons of names with texts; their slots follow those of the names.
    #[must_use]
    pub fn comparisons(&self) -> &[TextComparison] {
        &self.comparisons
    }

    /// The value, given that of each name in the order of the names; NaN for an unknown one. The result is NaN if a
    /// value that was needed is unknown or missing, or if the arithmetic has no result; it may be infinite.
    #[must_use]
    pub fn eval(&self, values: &[f64], stack: &mut EvalStack) -> f64 {
        let known = |slot| values.get(usize::from(slot)).copied().filter(|value| !value.is_nan());
        program::run(&self.steps, stack, known).unwrap_or(f64::NAN)
    }

    /// The value, with the names' values requested by slot as they are needed. `None` if one of them is
    /// unknown; the result may be infinite or NaN.
    #[inline]
    pub fn eval_with(&self, stack: &mut EvalStack, value: impl FnMut(u16) -> Option<f64>) -> Option<f64> {
        program::run(&self.steps, stack, value)
    }

    /// The slots of the names that can make a difference, ascending, without duplicates.
    #[must_use]
    pub fn slots(&self) -> Vec<usize> {
        let slot = |step: &StackInstruction| match step {
            StackInstruction::Value(slot) | StackInstruction::WithValue(_, slot) => Some(usize::from(*slot)),
            _ => None,
        };
        let mut slots: Vec<usize> = self.steps.iter().filter_map(slot).collect();
        // A name may be used several times.
        slots.sort_unstable();
        slots.dedup();
        slots
    }

    /// The value of an expression that reads no names.
    #[must_use]
    pub fn constant(&self) -> Option<f64> {
        match self.steps[..] {
            [StackInstruction::Number(number)] => Some(number),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests;
