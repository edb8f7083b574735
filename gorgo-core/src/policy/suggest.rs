//! "Did you mean": the nearest known name, and the list of known ones where none is near.

/// The text after an unknown name: the nearest known one, else all.
pub(super) fn suggestion<'a>(name: &str, known: impl Iterator<Item = &'a str> + Clone) -> String {
    // Two letters swapped, missing or wrong in a short word; more in a long one.
    let reach = 2.max(name.len() / 4);
    let distance = |other: &&str| strsim::damerau_levenshtein(&name.to_lowercase(), other);
    match known.clone().min_by_key(distance).filter(|nearest| distance(nearest) <= reach) {
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
