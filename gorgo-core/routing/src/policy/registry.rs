//! All kinds that a policy can be composed of: the built-in tables, and those that plugins add at start.

use std::iter;
use std::sync::Arc;

use super::admission::ADMISSION;
use super::loader::{DECLARED, PLUGIN_CONSTRAINT, PLUGIN_OBJECTIVE, PLUGIN_TERM, PluginLoader};
use crate::constrain::{CONSTRAINTS, ConstraintKind};
use crate::model::KindDoc;
use crate::model::engine::ENGINES;
use crate::pick::{PICKERS, PickerKind};
use crate::score::cost::COSTS;
use crate::score::term::TERMS;
use crate::score::{CostKind, TermKind};
use crate::tune::{OBJECTIVES, OPTIMIZERS, ObjectiveKind, OptimizerKind};

/// The kinds by family, in documentation order.
#[derive(Debug, Clone)]
pub struct KindRegistry {
    /// Cost terms.
    pub terms: Vec<&'static TermKind>,
    /// Costs.
    pub costs: Vec<&'static CostKind>,
    /// Constraints.
    pub constraints: Vec<&'static ConstraintKind>,
    /// Pickers.
    pub pickers: Vec<&'static PickerKind>,
    /// Objectives of tuners.
    pub objectives: Vec<&'static ObjectiveKind>,
    /// Optimizers of tuners.
    pub optimizers: Vec<&'static OptimizerKind>,
    /// Loader of the kind `plugin`; without it there is no such kind.
    pub loader: Option<Arc<dyn PluginLoader>>,
}

impl Default for KindRegistry {
    fn default() -> Self {
        Self::built_in()
    }
}

impl KindRegistry {
    /// The kinds that are compiled in.
    #[must_use]
    pub fn built_in() -> Self {
        Self {
            terms: TERMS.to_vec(),
            costs: COSTS.to_vec(),
            constraints: CONSTRAINTS.to_vec(),
            pickers: PICKERS.to_vec(),
            objectives: OBJECTIVES.to_vec(),
            optimizers: OPTIMIZERS.to_vec(),
            loader: None,
        }
    }

    /// The same with the kind `plugin` among the terms, the constraints and the objectives, loaded by `loader`.
    #[must_use]
    pub fn with_loader(mut self, loader: Arc<dyn PluginLoader>) -> Self {
        self.terms.push(&PLUGIN_TERM);
        self.constraints.push(&PLUGIN_CONSTRAINT);
        self.objectives.push(&PLUGIN_OBJECTIVE);
        self.loader = Some(loader);
        self
    }

    /// Every kind of every family.
    pub fn kind_docs(&self) -> impl Iterator<Item = KindDoc> + '_ {
        let row = |family, kind, unit, summary, params| KindDoc { family, kind, unit, summary, params };
        iter::empty()
            .chain(self.terms.iter().map(move |it| {
                let unit = if it.kind == PLUGIN_TERM.kind { DECLARED } else { "stated" };
                row("term", it.kind, it.unit.map_or(unit, crate::model::Unit::name), it.summary, it.params)
            }))
            .chain(self.costs.iter().map(move |it| row("cost", it.kind, "", it.summary, it.params)))
            .chain(self.constraints.iter().map(move |it| row("constraint", it.kind, "", it.summary, it.params)))
            .chain(iter::once(ADMISSION))
            .chain(self.pickers.iter().map(move |it| row("picker", it.kind, "", it.summary, it.params)))
            .chain(self.objectives.iter().map(move |it| row("objective", it.kind, it.unit, it.summary, it.params)))
            .chain(self.optimizers.iter().map(move |it| row("optimizer", it.kind, "", it.summary, it.params)))
            .chain(ENGINES.iter().map(move |it| row("engine", it.name, "", it.summary, &[])))
    }
}
