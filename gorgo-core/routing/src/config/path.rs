//! Paths of keys as people read and write them: `policy.gorgo.term[0].weight.max`; a key that is not bare is quoted.

/// Most steps in a path; nothing in the file is nested that deeply.
pub(super) const DEEPEST: usize = 32;

/// One step down into a value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum PathStep {
    /// Into a table.
    Key(String),
    /// Into an array, 0-based.
    Index(usize),
}

/// Path of `key` in the table at `parent`.
pub(super) fn child(parent: &str, key: &str) -> String {
    let bare = !key.is_empty() && key.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_' || byte == b'-');
    let key = if bare { key.to_owned() } else { toml::Value::String(key.to_owned()).to_string() };
    if parent.is_empty() { key } else { format!("{parent}.{key}") }
}

/// Path of element `index` of the array at `parent`.
pub(super) fn element(parent: &str, index: usize) -> String {
    format!("{parent}[{index}]")
}

/// Path of a sequence of steps.
pub(super) fn join(steps: &[PathStep]) -> String {
    steps.iter().fold(String::new(), |path, step| match step {
        PathStep::Key(key) => child(&path, key),
        PathStep::Index(index) => element(&path, *index),
    })
}

/// Path without quotes. Paths are looked up in this form, so that a check that does not quote an odd name still finds
/// its line.
pub(super) fn plain(path: &str) -> String {
    path.chars().filter(|char| !matches!(char, '"' | '\'')).collect()
}

/// The path itself, followed by the paths around it, innermost first; without the root. Takes and returns plain paths.
pub(super) fn ancestors(plain: &str) -> impl Iterator<Item = &str> {
    std::iter::successors((!plain.is_empty()).then_some(plain), |path| {
        path.rfind(['.', '[']).map(|cut| &path[..cut]).filter(|rest| !rest.is_empty())
    })
}

/// Parses a path. The error describes the fault.
pub(super) fn parse(text: &str) -> Result<Vec<PathStep>, String> {
    let mut steps = Vec::new();
    let mut rest = text;
    while !rest.is_empty() || steps.is_empty() {
        if let Some(inside) = rest.strip_prefix('[').filter(|_| !steps.is_empty()) {
            let (index, after) = inside.split_once(']').ok_or_else(|| format!("no `]` in `{text}`"))?;
            // Elements may also be named, as in `replica[us-east].url`.
            match index.parse() {
                Ok(index) => steps.push(PathStep::Index(index)),
                Err(_) => steps.push(PathStep::Key(index.to_owned())),
            }
            rest = after;
        } else {
            if !steps.is_empty() {
                rest = rest.strip_prefix('.').ok_or_else(|| format!("expected `.` or `[` before `{rest}`"))?;
            }
            let (key, after) = match rest.chars().next() {
                Some(quote @ ('"' | '\'')) => {
                    rest[1..].split_once(quote).ok_or_else(|| format!("no closing quote in `{text}`"))?
                }
                _ => rest.split_at(rest.find(['.', '[', '"', '\'']).unwrap_or(rest.len())),
            };
            if key.is_empty() {
                return Err(format!("an empty key in `{text}`"));
            }
            steps.push(PathStep::Key(key.to_owned()));
            rest = after;
        }
        // Bounded, because the text comes from the command line and each step becomes a level of recursion.
        if steps.len() > DEEPEST {
            return Err(format!("more than {DEEPEST} levels deep"));
        }
    }
    Ok(steps)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_read_as_they_are_written() {
        for path in ["default_policy", "policy.gorgo.term[0].weight.max", r#"policy."a.b".unit"#, "a[1][2].b"] {
            assert_eq!(join(&parse(path).unwrap()), path);
        }
        assert_eq!(
            parse("replica[us-ashburn].url").unwrap(),
            [PathStep::Key("replica".into()), PathStep::Key("us-ashburn".into()), PathStep::Key("url".into())]
        );
        for bad in ["", ".", "a.", "a..b", "a[", "a]b[", "[0]", "\"a", "a\"b\"c"] {
            assert!(parse(bad).is_err(), "{bad:?} → {:?}", parse(bad));
        }
        assert!(parse(&"a.".repeat(10_000)).is_err());
    }

    #[test]
    fn outwards_goes_from_the_inside_to_the_top() {
        let all: Vec<_> = ancestors("policy.a.term[0].weight").collect();
        assert_eq!(all, ["policy.a.term[0].weight", "policy.a.term[0]", "policy.a.term", "policy.a", "policy"]);
        assert_eq!(ancestors("").count(), 0);
    }
}
