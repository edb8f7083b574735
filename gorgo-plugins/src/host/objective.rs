//! A plugin as an objective: a cohort of requests → one number that an optimizer makes small.

use std::sync::Arc;

use super::columns::size;
use super::descriptor::About;
use super::instance::Instance;
use crate::abi;

/// The requests of one cohort that ended well, in order of arrival; a number that is not known is NaN. All columns have
/// the same length.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct CohortColumns {
    /// Time from arrival to the first generated content, ms.
    pub ttft_ms: Vec<f64>,
    /// Time from arrival to the last byte, ms.
    pub e2e_ms: Vec<f64>,
    /// Mean time between tokens, ms.
    pub itl_ms: Vec<f64>,
    /// Prompt tokens.
    pub prompt_tokens: Vec<f64>,
    /// Tokens generated.
    pub completion_tokens: Vec<f64>,
    /// From the first arrival to the last end, s.
    pub span_secs: f64,
    /// Requests of the cohort that failed, beyond those in the columns.
    pub failed: u64,
}

/// An objective that was loaded.
#[derive(Debug)]
pub struct PluginObjective {
    pub(super) instance: Instance,
    pub(super) measure: abi::MeasureFn,
    pub(super) about: Arc<About>,
    pub(super) sha256: Arc<str>,
}

impl PluginObjective {
    /// What it says of itself.
    #[must_use]
    pub fn about(&self) -> &About {
        &self.about
    }

    /// SHA-256 of its library, hexadecimal.
    #[must_use]
    pub fn sha256(&self) -> &str {
        &self.sha256
    }

    /// The number of a cohort, in the plugin's unit.
    ///
    /// # Errors
    /// Why there is none: columns of different lengths, what the plugin said, or a number that is not finite.
    pub fn measure(&self, cohort: &CohortColumns) -> Result<f64, String> {
        let count = cohort.ttft_ms.len();
        let others = [&cohort.e2e_ms, &cohort.itl_ms, &cohort.prompt_tokens, &cohort.completion_tokens];
        if others.iter().any(|column| column.len() != count) {
            return Err("the cohort's columns differ in length".to_owned());
        }
        let cohort = abi::Cohort {
            struct_size: size::<abi::Cohort>(),
            reserved: 0,
            count,
            ttft_ms: cohort.ttft_ms.as_ptr(),
            e2e_ms: cohort.e2e_ms.as_ptr(),
            itl_ms: cohort.itl_ms.as_ptr(),
            prompt_tokens: cohort.prompt_tokens.as_ptr(),
            completion_tokens: cohort.completion_tokens.as_ptr(),
            span_secs: cohort.span_secs,
            failed: cohort.failed,
        };
        self.instance.measure(self.measure, &cohort)
    }
}
