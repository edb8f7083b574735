//! Text of a policy with other weights: cut out of the file that contains it, with comments, order and spelling kept,
//! and only the numbers replaced.

use std::ops::Range;

use gorgo_routing::policy::Policy;
use toml::de::{DeTable, DeValue};
use toml::{Table, Value};

/// The policy's own table with other weights, with its comments: cut out of the first of `sources` that contains it.
pub(crate) fn table(policy: &Policy, weights: &[f64], sources: &[&str]) -> String {
    // The policy was built from this text, so parsing it again does not fail.
    let Ok(mut whole) = policy.text.parse::<Table>() else { return String::new() };
    let terms = whole
        .get_mut("policy")
        .and_then(|all| all.get_mut(&*policy.name))
        .and_then(|table| table.get_mut("term"))
        .and_then(Value::as_array_mut);
    let mut moved = Vec::new();
    for (place, ((entry, term), weight)) in terms.into_iter().flatten().zip(&policy.terms).zip(weights).enumerate() {
        // Fixed weights are not replaced: their numbers keep the spelling that the user chose.
        if !term.weight.tune {
            continue;
        }
        if let Some(weight_table) = entry.get_mut("weight").and_then(Value::as_table_mut) {
            weight_table.insert("init".to_owned(), Value::Float(*weight));
            moved.push((place, *weight));
        }
    }
    // Without a source that contains exactly this policy, print the parsed table: right, but without comments.
    let own = sources.iter().find_map(|source| rewritten(source, &policy.name, &moved, &whole));
    own.unwrap_or_else(|| toml::to_string(&whole).unwrap_or_default())
}

/// The tables of `policy` in `source` with these weights, by position of their term, each as the `init` of its table.
/// `None` if that text, parsed again, is not `expected`: environment or command line changed the policy, or its
/// spelling is one that this function does not cut correctly.
fn rewritten(source: &str, policy: &str, weights: &[(usize, f64)], expected: &Table) -> Option<String> {
    let mut text = cut(source, policy);
    let mut places: Vec<(Range<usize>, f64)> =
        weights.iter().filter_map(|(term, weight)| Some((init(&text, policy, *term)?, *weight))).collect();
    if places.len() < weights.len() {
        return None;
    }
    // From the end backwards, so that replacing one number does not move the places of the others.
    places.sort_by_key(|(place, _)| std::cmp::Reverse(place.start));
    for (place, weight) in places {
        text.replace_range(place, &Value::Float(weight).to_string());
    }
    // Cutting by lines is not parsing: an example is a multi-line string with a line that looks like a header. Whatever
    // the cut got wrong shows up as a different table here.
    let read: Table = text.parse().ok()?;
    (read == *expected).then_some(text)
}

/// The lines of the policy's tables, and the comments directly above each.
fn cut(source: &str, policy: &str) -> String {
    let mut out = String::new();
    // Comments that may belong to the next table.
    let mut above = String::new();
    let mut inside = false;
    for line in source.split_inclusive('\n') {
        let trimmed = line.trim();
        if trimmed.starts_with('#') {
            above.push_str(line);
            continue;
        }
        if let Some(header) = header(trimmed) {
            inside =
                header.first().is_some_and(|key| key == "policy") && header.get(1).is_some_and(|key| key == policy);
        } else if trimmed.is_empty() {
            // A comment followed by an empty line belongs to the table before it.
            if inside {
                out.push_str(&above);
                out.push_str(line);
            }
            above.clear();
            continue;
        }
        // Comments collected since the last line belong to this one.
        if inside {
            out.push_str(&above);
            out.push_str(line);
        }
        above.clear();
    }
    if inside {
        out.push_str(&above);
    }
    format!("{}\n", out.trim_end())
}

/// The keys of a table's header; `None` for any other line.
fn header(line: &str) -> Option<Vec<String>> {
    if !line.starts_with('[') {
        return None;
    }
    // Let the TOML parser split the header: keys may be quoted and contain dots.
    let table: Table = format!("{line}\n").parse().ok()?;
    let mut keys = Vec::new();
    let mut next = table.into_iter().next();
    while let Some((key, value)) = next {
        keys.push(key);
        next = match value {
            toml::Value::Table(table) => table.into_iter().next(),
            toml::Value::Array(list) => match list.into_iter().next() {
                Some(toml::Value::Table(table)) => table.into_iter().next(),
                _ => None,
            },
            _ => None,
        };
    }
    Some(keys)
}

/// Byte range of the `init` of a term's weight.
fn init(text: &str, policy: &str, term: usize) -> Option<Range<usize>> {
    fn member<'a>(table: &'a DeTable<'_>, name: &str) -> Option<&'a toml::Spanned<DeValue<'a>>> {
        table.iter().find(|(key, _)| key.get_ref() == name).map(|(_, value)| value)
    }
    // `DeTable` keeps the spans of values, which `Table` drops.
    let root = DeTable::parse(text).ok()?;
    let policies = member(root.get_ref(), "policy")?.get_ref().as_table()?;
    let terms = member(member(policies, policy)?.get_ref().as_table()?, "term")?.get_ref().as_array()?;
    let weight = member(terms.get(term)?.get_ref().as_table()?, "weight")?.get_ref().as_table()?;
    Some(member(weight, "init")?.span())
}

#[cfg(test)]
mod tests {
    use super::*;

    const FILE: &str = "# The file.\n\n[server]\nlisten = \"x\"\n\n# Why it is.\n[policy.mine]\nunit = \"raw\"  # on purpose\n\
                        \n# The near one.\n[[policy.mine.term]]\nkind = \"rtt\"\nweight = { init = 0.2, min = 0.1, tune = true } # moved\n\
                        [[policy.mine.term]]\nkind = \"queue\"\n\n# Another.\n[policy.mine-2]\nunit = \"ms\"\n";

    fn expected(weight: f64) -> Table {
        let own = cut(FILE, "mine").replace("0.2", &weight.to_string());
        own.parse().unwrap()
    }

    #[test]
    fn comments_order_and_spelling_stay_and_only_the_weight_moves() {
        let text = rewritten(FILE, "mine", &[(0, 0.75)], &expected(0.75)).unwrap();
        assert_eq!(
            text,
            "# Why it is.\n[policy.mine]\nunit = \"raw\"  # on purpose\n\n# The near one.\n[[policy.mine.term]]\n\
             kind = \"rtt\"\nweight = { init = 0.75, min = 0.1, tune = true } # moved\n[[policy.mine.term]]\nkind = \"queue\"\n"
        );
        assert_eq!(cut(FILE, "mine-2"), "# Another.\n[policy.mine-2]\nunit = \"ms\"\n");
    }

    #[test]
    fn what_does_not_come_out_as_expected_is_not_written() {
        // Another value from the environment, a weight that is no table, a policy that is not there.
        assert_eq!(rewritten(FILE, "mine", &[(0, 0.75)], &expected(0.5)), None);
        assert_eq!(rewritten(FILE, "mine", &[(1, 0.75)], &expected(0.75)), None);
        assert_eq!(rewritten(FILE, "theirs", &[(0, 0.75)], &expected(0.75)), None);
        // A line within a text that looks like a header is cut wrong, and noticed.
        let odd = "[policy.mine]\nnote = '''\n[other]\n'''\n[[policy.mine.term]]\nweight = { init = 0.2 }\n";
        let read: Table = odd.replace("0.2", "0.75").parse().unwrap();
        assert_eq!(rewritten(odd, "mine", &[(0, 0.75)], &read), None);
    }
}
