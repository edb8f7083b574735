//! Ring 1: the cost of a replica. A *term* reads facts and gives one signal per candidate, in its declared unit;
//! a *cost* makes one number from a policy's weighted signals.
//!
//! A term never weighs, rounds, or replaces unknown facts: `policy::decide` does so, in the same way for all.

pub mod cost;
pub mod term;

use std::fmt::Debug;

use crate::model::{Candidates, ParamSpec, ParamValues, Replica, RequestView, RequiredFacts, Unit};

/// One signal of a policy. Built once, called once per decision for all candidates together.
pub trait CostTerm: Debug + Send + Sync {
    /// The facts that are read; others may be missing from the candidates.
    fn needs(&self) -> RequiredFacts;

    /// Returns true if this one's signal rises with load; `None`: as its kind declares.
    fn spreads(&self) -> Option<bool> {
        None
    }

    /// Checks the signal against the unit that the policy states, for kinds without a fixed unit.
    /// The error names the parameter.
    ///
    /// # Errors
    /// The signal is plainly in another unit.
    fn check_unit(&self, _unit: Unit) -> Result<(), String> {
        Ok(())
    }

    /// Writes the signal of row *i* to `out[i]`, in the kind's unit; `None` where it is unknown. `out` is as long as
    /// the candidates and full of `None`. Row order does not matter: permuted rows give permuted signals.
    fn signal(&self, request: &RequestView, candidates: &Candidates, out: &mut [Option<f64>]);

    /// The same, for a term that may have no signal at all in a decision, such as a plugin that failed: `false` then.
    /// Such a term has no effect on that decision, and is stored as void.
    fn try_signal(&self, request: &RequestView, candidates: &Candidates, out: &mut [Option<f64>]) -> bool {
        self.signal(request, candidates, out);
        true
    }

    /// Returns true if the policy must not decide without this term and it is not available now. No built-in term
    /// refuses.
    fn blocks_decision(&self) -> bool {
        false
    }
}

/// A kind of term: its row in [`term::TERMS`].
#[derive(Debug, Clone, Copy)]
pub struct TermKind {
    /// Name in configuration files, kebab-case.
    pub kind: &'static str,
    /// Unit of its signal; `None`: the term's `unit` key in the policy states it.
    pub unit: Option<Unit>,
    /// One-line description.
    pub summary: &'static str,
    /// True if the signal rises with the work a replica was given, so that it keeps one replica from getting
    /// everything.
    pub spreads: bool,
    /// Parameters, beyond those that all terms have.
    pub params: &'static [ParamSpec],
    /// Makes the term for a fleet.
    pub build: fn(&ParamValues, &[Replica]) -> BuiltTerm,
}

/// A term, or what is wrong with its parameters: the text names the parameter and what is allowed.
pub type BuiltTerm = Result<Box<dyn CostTerm>, String>;

/// Combines a policy's terms into one number per candidate.
pub trait CostFunction: Debug + Send + Sync {
    /// The cost of one candidate from its signals, each in its term's unit, the weights, and both multiplied; all in
    /// term order. Must add in term order: a decision is repeated bit for bit from stored signals.
    fn total(&self, signals: &[f64], weights: &[f64], weighted: &[f64]) -> f64;
}

/// A policy's term as its cost sees it.
#[derive(Debug, Clone, Copy)]
pub struct TermSlot<'a> {
    /// Name in the policy.
    pub name: &'a str,
    /// Kind of the term.
    pub kind: &'a str,
    /// True if weight × signal is in ms.
    pub millis: bool,
}

/// A kind of cost: its row in [`cost::COSTS`].
#[derive(Debug, Clone, Copy)]
pub struct CostKind {
    /// Name in configuration files.
    pub kind: &'static str,
    /// One-line description.
    pub summary: &'static str,
    /// Parameters.
    pub params: &'static [ParamSpec],
    /// Makes the cost of a policy with these terms. The text of an error names the parameter and what is allowed.
    pub build: fn(&ParamValues, &[TermSlot<'_>]) -> BuiltCost,
}

/// A cost, or what is wrong with its parameters or its policy's terms.
pub type BuiltCost = Result<Box<dyn CostFunction>, String>;
