//! What every picker must hold to, run over the whole table.

use proptest::collection::vec;
use proptest::prelude::*;

use super::{PICKERS, Picker};
use crate::model::arbitrary::fixed;
use crate::model::{ConfigValue, ParamValues};

/// The picker of that name, at settings that the laws below hold for.
fn picker(kind: &str) -> Box<dyn Picker> {
    let kind = PICKERS.iter().find(|known| known.kind == kind).unwrap();
    let values = vec![("temperature", ConfigValue::Float(30.0)), ("tie_margin", ConfigValue::Float(2.0))];
    (kind.build)(&ParamValues { values }).unwrap()
}

/// Costs, some of them equal, and which of the rows are allowed (at least one), ascending.
fn costs() -> impl Strategy<Value = (Vec<f64>, Vec<usize>)> {
    let cost = prop_oneof![-1e4..1e4_f64, (-3..3_i32).prop_map(f64::from)];
    vec((cost, any::<bool>()), 1..12).prop_map(|rows| {
        let mut allowed: Vec<usize> = (0..rows.len()).filter(|row| rows[*row].1).collect();
        if allowed.is_empty() {
            allowed.push(rows.len() - 1);
        }
        (rows.into_iter().map(|(cost, _)| cost).collect(), allowed)
    })
}

proptest! {
    #![proptest_config(fixed(500))]

    #[test]
    fn it_is_a_distribution_over_the_allowed((costs, allowed) in costs()) {
        for kind in PICKERS {
            let mut out = vec![f64::NAN; costs.len()];
            let ties = picker(kind.kind).distribution(&costs, &allowed, &mut out);
            let sum: f64 = out.iter().sum();
            prop_assert!((sum - 1.0).abs() < 1e-9, "{}: {sum}", kind.kind);
            for (row, probability) in out.iter().enumerate() {
                prop_assert!((0.0..=1.0).contains(probability), "{}: {probability}", kind.kind);
                prop_assert!(allowed.contains(&row) || *probability == 0.0, "{}: row {row}", kind.kind);
            }
            prop_assert!(ties >= 1 && ties as usize <= allowed.len(), "{}: {ties}", kind.kind);
        }
    }

    #[test]
    fn cheaper_is_never_less_likely((costs, allowed) in costs()) {
        for kind in PICKERS {
            let mut out = vec![0.0; costs.len()];
            picker(kind.kind).distribution(&costs, &allowed, &mut out);
            for a in &allowed {
                for b in &allowed {
                    prop_assert!(costs[*a] > costs[*b] || out[*a] >= out[*b], "{}: {a} {b} {out:?}", kind.kind);
                }
            }
        }
    }

    #[test]
    fn permuted_rows_give_permuted_probabilities(
        (costs, allowed) in costs(), turn in 0..12_usize,
    ) {
        let rows = costs.len();
        let moved: Vec<f64> = (0..rows).map(|row| costs[(row + turn) % rows]).collect();
        let mut moved_allowed: Vec<usize> = allowed.iter().map(|row| (row + rows - turn % rows) % rows).collect();
        moved_allowed.sort_unstable();
        for kind in PICKERS {
            let (mut straight, mut permuted) = (vec![0.0; rows], vec![0.0; rows]);
            let picker = picker(kind.kind);
            prop_assert_eq!(
                picker.distribution(&costs, &allowed, &mut straight),
                picker.distribution(&moved, &moved_allowed, &mut permuted)
            );
            for row in 0..rows {
                let (a, b) = (straight[(row + turn) % rows], permuted[row]);
                prop_assert!((a - b).abs() < 1e-12, "{}: {a} {b}", kind.kind);
            }
        }
    }

    #[test]
    fn lowest_picks_what_is_within_the_margin_of_the_lowest((costs, allowed) in costs()) {
        let mut out = vec![0.0; costs.len()];
        picker("lowest").distribution(&costs, &allowed, &mut out);
        let least = allowed.iter().map(|row| costs[*row]).fold(f64::INFINITY, f64::min);
        for row in &allowed {
            prop_assert_eq!(out[*row] > 0.0, costs[*row] <= least + 2.0);
        }
    }
}

#[test]
fn power_of_two_has_the_probabilities_of_all_pairs() {
    let costs = [3.0_f64, 1.0, 2.0, 1.0, 9.0];
    let allowed = [0, 1, 2, 3];
    let mut counted = [0.0; 5];
    for (place, a) in allowed.iter().enumerate() {
        for b in &allowed[place + 1..] {
            match costs[*a].total_cmp(&costs[*b]) {
                std::cmp::Ordering::Less => counted[*a] += 1.0 / 6.0,
                std::cmp::Ordering::Greater => counted[*b] += 1.0 / 6.0,
                std::cmp::Ordering::Equal => {
                    counted[*a] += 0.5 / 6.0;
                    counted[*b] += 0.5 / 6.0;
                }
            }
        }
    }
    let mut out = [0.0; 5];
    assert_eq!(picker("power-of-two").distribution(&costs, &allowed, &mut out), 2);
    for (exact, counted) in out.iter().zip(counted) {
        assert!((exact - counted).abs() < 1e-12, "{out:?} {counted}");
    }
}

#[test]
fn softmin_gives_e_to_one_at_a_difference_of_one_temperature() {
    let mut out = [0.0; 2];
    picker("softmin").distribution(&[100.0, 130.0], &[0, 1], &mut out);
    assert!((out[0] / out[1] - std::f64::consts::E).abs() < 1e-9, "{out:?}");
}

#[test]
fn softmin_says_what_is_missing() {
    let softmin = PICKERS.iter().find(|kind| kind.kind == "softmin").unwrap();
    assert_eq!((softmin.build)(&ParamValues::default()).unwrap_err(), "`temperature` is missing");
}
