//! `--seeds`: a number of seeds, or a range.

use std::str::FromStr;

/// Most seeds of one comparison.
const MOST: u64 = 10_000;

/// The seeds of a comparison.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::cmd) struct SeedList {
    pub(in crate::cmd) list: Vec<u64>,
}

impl FromStr for SeedList {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let number = |text: &str| text.trim().parse::<u64>().map_err(|_| format!("{text:?} is not a whole number"));
        let (first, last) = match text.split_once("..") {
            Some((first, last)) => (number(first)?, number(last)?),
            None => (1, number(text)?),
        };
        // A range includes both ends; one that runs backwards has 0 seeds and is refused below.
        let many = last.checked_sub(first).map_or(0, |more| more.saturating_add(1));
        if !(1..=MOST).contains(&many) {
            return Err(format!("{many} seeds; expected a number from 1 to {MOST}, or a range such as 101..105"));
        }
        Ok(Self { list: (first..=last).collect() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_counts_from_1_and_a_range_has_both_its_ends() {
        assert_eq!(SeedList::from_str("3").unwrap().list, [1, 2, 3]);
        assert_eq!(SeedList::from_str("101..103").unwrap().list, [101, 102, 103]);
        for wrong in ["0", "x", "5..4", "1..", "0..10000", "-1"] {
            assert!(SeedList::from_str(wrong).is_err(), "{wrong}");
        }
    }
}
