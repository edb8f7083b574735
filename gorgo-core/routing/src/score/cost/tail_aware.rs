//! A sum that bends upwards where the tail begins, so that the slow requests get the fast replicas:
//!
//! `J = T + T² / (curve·T0) + w·max(0, T − T0) + rest`   (ms)
//!
//! T, the predicted time to first token, is the sum of all terms that are not named below; T0 is the signal of the term
//! named by `start`, else of the policy's one term of kind `tail-start`, and w is its weight. Terms of kind `stall` and
//! `answer`, and those listed in `outside`, are the rest: prices that have no tail. Everything is computed from signals
//! and weights as stored, so that a stored decision can be repeated.

use crate::model::{ParamSpec, ParamType, ParamValues};
use crate::score::{CostFunction, CostKind, TermSlot};

pub(super) const KIND: CostKind = CostKind {
    kind: "tail-aware",
    summary: "predicted TTFT, bent upwards beyond the signal of `tail-start`, + time taken from other requests",
    params: &[
        ParamSpec {
            name: "curve",
            ty: ParamType::Number { default: Some(3.0), min: 0.01, max: 1e9 },
            unit: "",
            help: "T² / (curve × tail start) is added; a larger value bends less",
        },
        ParamSpec {
            name: "outside",
            ty: ParamType::TextList,
            unit: "",
            help: "names of further terms that are not part of TTFT: they are only added",
        },
        ParamSpec {
            name: "start",
            ty: ParamType::Text { default: None, choices: &[] },
            unit: "",
            help: "name of the term whose signal is the start of the tail; absent: the one of kind tail-start",
        },
    ],
    build: |params, slots| Ok(Box::new(TailAware::new(params, slots)?)),
};

/// Kinds of term that are never part of TTFT.
const OUTSIDE: [&str; 2] = ["stall", "answer"];

/// Lower limit of the tail's start, ms.
const LEAST_START_MS: f64 = 1.0;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum CostPart {
    Ttft,
    TailStart,
    Outside,
}

#[derive(Debug)]
struct TailAware {
    curve: f64,
    /// By slot.
    parts: Vec<CostPart>,
    /// The slot of `tail-start`.
    start: usize,
}

impl TailAware {
    fn new(params: &ParamValues, slots: &[TermSlot<'_>]) -> Result<Self, String> {
        let outside = params.texts("outside");
        if let Some(name) = outside.iter().find(|name| slots.iter().all(|slot| slot.name != **name)) {
            return Err(format!("`outside`: no term \"{name}\""));
        }
        let start = params.text("start");
        if let Some(name) = start.filter(|name| slots.iter().all(|slot| slot.name != *name)) {
            return Err(format!("`start`: no term \"{name}\""));
        }
        // T0 is a time and the formula adds squares of times, so no other unit makes sense.
        if let Some(slot) = slots.iter().find(|slot| !slot.millis) {
            return Err(format!("the term \"{}\" is not in ms: `tail-aware` needs all terms in ms", slot.name));
        }
        // An explicit name wins over the kind, so that an expression can provide the start.
        let starts = |slot: &TermSlot<'_>| start.map_or(slot.kind == "tail-start", |name| slot.name == name);
        let part = |slot: &TermSlot<'_>| match slot.kind {
            _ if starts(slot) => CostPart::TailStart,
            kind if OUTSIDE.contains(&kind) || outside.contains(&slot.name) => CostPart::Outside,
            _ => CostPart::Ttft,
        };
        // The start comes first: a term of kind `stall` may be named as the start.
        let parts: Vec<CostPart> = slots.iter().map(part).collect();
        let start = parts.iter().position(|part| *part == CostPart::TailStart);
        // Two starts would make the choice of T0 depend on the order of terms.
        match (start, parts.iter().filter(|part| **part == CostPart::TailStart).count()) {
            (Some(start), 1) => Ok(Self { curve: params.number("curve").unwrap_or(f64::INFINITY), parts, start }),
            (_, count) => Err(format!("`tail-aware` needs one term of kind \"tail-start\", found {count}")),
        }
    }

    fn sum(&self, part: CostPart, weighted: &[f64]) -> f64 {
        // Added in term order, so that a repeated decision is equal bit for bit.
        let of_part = self.parts.iter().zip(weighted).filter(|(own, _)| **own == part);
        of_part.fold(0.0, |total, (_, cost)| total + cost)
    }
}

impl CostFunction for TailAware {
    fn total(&self, signals: &[f64], weights: &[f64], weighted: &[f64]) -> f64 {
        let ttft = self.sum(CostPart::Ttft, weighted);
        // The quadratic part divides by the start, so it must not be near 0; a negative T must not raise the cost by its square.
        let start = signals[self.start].max(LEAST_START_MS);
        let bent = ttft.max(0.0);
        ttft + bent * bent / (self.curve * start)
            + weights[self.start] * (ttft - start).max(0.0)
            + self.sum(CostPart::Outside, weighted)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::ConfigValue;

    const SLOTS: [TermSlot<'static>; 4] = [
        TermSlot { name: "rtt", kind: "rtt", millis: true },
        TermSlot { name: "tail-start", kind: "tail-start", millis: true },
        TermSlot { name: "harm", kind: "stall", millis: true },
        TermSlot { name: "backlog", kind: "backlog", millis: true },
    ];

    fn params(outside: &[&str]) -> ParamValues {
        let list = outside.iter().map(|name| ConfigValue::Text((*name).to_owned())).collect();
        ParamValues { values: vec![("curve", ConfigValue::Float(3.0)), ("outside", ConfigValue::List(list))] }
    }

    fn total(cost: &TailAware, signals: [f64; 4], weights: [f64; 4]) -> f64 {
        let weighted: Vec<f64> = signals.iter().zip(&weights).map(|(signal, weight)| signal * weight).collect();
        cost.total(&signals, &weights, &weighted)
    }

    #[test]
    fn the_formula_of_the_study() {
        let cost = TailAware::new(&params(&[]), &SLOTS).unwrap();
        let weights = [1.0, 1.5, 0.5, 1.0];
        // T = 300 + 300, T0 = 1,000: no hinge. 600 + 600² / 3,000 + 0.5 · 80.
        assert_eq!(total(&cost, [300.0, 1_000.0, 80.0, 300.0], weights), 600.0 + 120.0 + 40.0);
        // T = 2,000: 2,000 + 2,000² / 3,000 + 1.5 · 1,000 + 40.
        let bent = total(&cost, [300.0, 1_000.0, 80.0, 1_700.0], weights);
        assert!((bent - (2_000.0 + 4_000.0 / 3.0 + 1_500.0 + 40.0)).abs() < 1e-9);
    }

    #[test]
    fn what_is_outside_has_no_tail() {
        let cost = TailAware::new(&params(&["rtt"]), &SLOTS).unwrap();
        let weights = [1.0, 1.5, 0.5, 1.0];
        let at = |rtt| total(&cost, [rtt, 1_000.0, 0.0, 0.0], weights);
        assert_eq!((at(0.0), at(50_000.0)), (0.0, 50_000.0));
    }

    #[test]
    fn the_start_may_be_a_term_of_any_kind() {
        let mut slots = SLOTS;
        (slots[1].kind, slots[2].kind) = ("expression", "expression");
        let mut named = params(&["harm"]);
        named.values.push(("start", ConfigValue::Text("tail-start".to_owned())));
        let cost = TailAware::new(&named, &slots).unwrap();
        let (signals, weights) = ([300.0, 1_000.0, 80.0, 1_700.0], [1.0, 1.5, 0.5, 1.0]);
        let built_in = TailAware::new(&params(&[]), &SLOTS).unwrap();
        assert_eq!(total(&cost, signals, weights), total(&built_in, signals, weights));
    }

    #[test]
    fn any_start_gives_a_finite_cost() {
        let cost = TailAware::new(&params(&[]), &SLOTS).unwrap();
        for start in [0.0, -5.0, 9e12] {
            assert!(total(&cost, [9e12, start, 9e12, 9e12], [1e3; 4]).is_finite());
        }
    }

    #[test]
    fn what_cannot_be_is_said() {
        let error = |slots: &[TermSlot<'_>], outside: &[&str]| TailAware::new(&params(outside), slots).unwrap_err();
        assert_eq!(error(&SLOTS[..1], &[]), "`tail-aware` needs one term of kind \"tail-start\", found 0");
        assert_eq!(error(&[SLOTS[1], SLOTS[1]], &[]), "`tail-aware` needs one term of kind \"tail-start\", found 2");
        assert_eq!(error(&SLOTS, &["carbon"]), "`outside`: no term \"carbon\"");
        let mut named = params(&[]);
        named.values.push(("start", ConfigValue::Text("carbon".to_owned())));
        assert_eq!(TailAware::new(&named, &SLOTS).unwrap_err(), "`start`: no term \"carbon\"");
        let tokens = TermSlot { name: "queue", kind: "queue", millis: false };
        assert_eq!(
            error(&[SLOTS[1], tokens], &[]),
            "the term \"queue\" is not in ms: `tail-aware` needs all terms in ms"
        );
    }
}
