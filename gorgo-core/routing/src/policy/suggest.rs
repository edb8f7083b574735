//! "Did you mean": the nearest known name, and the list of known ones where none is near.

use crate::config::nearest;

/// The advice after an unknown name: the nearest known one, else all known names.
pub(super) fn suggestion<'a>(name: &str, known: impl Iterator<Item = &'a str> + Clone) -> String {
    match nearest(name, known.clone()) {
        Some(nearest) => format!("did you mean `{nearest}`?"),
        None => format!("known: {}", known.collect::<Vec<_>>().join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_near_name_is_suggested_and_a_far_one_gets_the_list() {
        let known = ["lowest", "softmin"];
        assert_eq!(suggestion("Lowset", known.into_iter()), "did you mean `lowest`?");
        assert_eq!(suggestion("best", known.into_iter()), "known: lowest, softmin");
        assert_eq!(suggestion("x", [].into_iter()), "known: ");
    }
}
