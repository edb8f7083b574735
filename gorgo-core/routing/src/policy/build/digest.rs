//! Identity of a policy by its content.

use std::fmt::Write;

use sha2::{Digest, Sha256};

use crate::model::ConfigValue;

/// SHA-256 of a table, written in a form that does not depend on the order of its keys.
pub(super) fn digest(table: &ConfigValue) -> String {
    let mut text = String::new();
    canonical(table, &mut text);
    Sha256::digest(text.as_bytes()).iter().fold(String::with_capacity(64), |mut hex, byte| {
        // Writing to a string cannot fail.
        let _ = write!(hex, "{byte:02x}");
        hex
    })
}

fn canonical(value: &ConfigValue, text: &mut String) {
    match value {
        ConfigValue::Bool(_) | ConfigValue::Integer(_) | ConfigValue::Float(_) => {
            let number = value.number().map_or_else(|| format!("{value:?}"), |number| format!("{number:?}"));
            // Through f64, so that `1` and `1.0`, which build the same policy, have the same digest.
            text.push_str(&number);
        }
        ConfigValue::Text(string) => text.push_str(&format!("{string:?}")),
        ConfigValue::List(list) => {
            text.push('[');
            for entry in list {
                canonical(entry, text);
                text.push(',');
            }
            text.push(']');
        }
        ConfigValue::Table(members) => {
            // TOML tables have no order, so neither may the digest.
            let mut sorted: Vec<_> = members.iter().collect();
            sorted.sort_by(|(a, _), (b, _)| a.cmp(b));
            text.push('{');
            for (key, member) in sorted {
                text.push_str(&format!("{key:?}:"));
                canonical(member, text);
                text.push(',');
            }
            text.push('}');
        }
    }
}
