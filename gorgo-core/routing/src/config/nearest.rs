//! "Did you mean": the known name nearest to one that is not known.

/// Name in `known` that `given` is most likely a misspelling of: case, `-` instead of `_`, one or two letters missing,
/// swapped or added, the end left out. `None` if nothing is close.
#[must_use]
pub fn nearest<'a>(given: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let wanted = folded(given);
    // One slip, and one more per four letters: short names would otherwise match anything.
    let allowed = 1 + wanted.chars().count().min(64) / 4;
    known
        .into_iter()
        .map(|name| {
            let other = folded(name);
            let begun = wanted.len() > 2 && other.starts_with(&wanted);
            let distance = strsim::damerau_levenshtein(&wanted, &other);
            // A beginning may be many letters short of the name, so its distance is capped.
            (if begun || is_misspelt_prefix(&wanted, &other) { distance.min(allowed) } else { distance }, name)
        })
        .filter(|(distance, _)| *distance <= allowed)
        .min_by_key(|(distance, _)| *distance)
        .map(|(_, name)| name)
}

/// Returns true if the first is the beginning of the second with one wrong letter; below six letters that would match
/// anything.
fn is_misspelt_prefix(wanted: &str, other: &str) -> bool {
    let letters = wanted.chars().count();
    let head: String = other.chars().take(letters).collect();
    letters >= 6 && head.len() < other.len() && strsim::damerau_levenshtein(wanted, &head) <= 1
}

/// Form of names for comparison where spellings may differ: lower case, every character but letters and digits becomes
/// an underscore, at most 64 characters (longer is no misspelling, and distances cost the product of the lengths).
pub(super) fn folded(name: &str) -> String {
    name.chars()
        .take(64)
        .map(|char| if char.is_ascii_alphanumeric() { char.to_ascii_lowercase() } else { '_' })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::nearest;

    #[test]
    fn slips_are_found_and_strangers_are_not() {
        let known = ["weight", "kind", "unknown", "kv-usage"];
        assert_eq!(nearest("wieght", known), Some("weight"));
        assert_eq!(nearest("KV_usage", known), Some("kv-usage"));
        assert_eq!(nearest("kv", known), None);
        assert_eq!(nearest("wei", known), Some("weight"));
        assert_eq!(
            nearest("gorg", ["gorgo-tuned", "gorgo", "gorgo-es"]),
            Some("gorgo"),
            "the nearest of those it begins"
        );
        let policies = ["predicted-latency", "prefix-hash", "random"];
        assert_eq!(nearest("predictd", policies), Some("predicted-latency"), "a beginning with a slip");
        assert_eq!(nearest("nosuch", policies), None);
        assert_eq!(nearest("temperature", known), None);
        assert_eq!(nearest("", known), None);
        assert_eq!(nearest("x", []), None);
    }
}
