//! Parameters of kinds: declared once, in the kind's row. From the declaration come parsing, range checks,
//! `gorgo kinds`, the schema for editors and the documentation; no default is written anywhere else.

use super::ConfigValue;

/// The type, default and range of a parameter.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum ParamType {
    /// A number in `[min, max]`; `default: None` means it may be absent.
    Number {
        /// Used when absent.
        default: Option<f64>,
        /// Smallest allowed.
        min: f64,
        /// Largest allowed.
        max: f64,
    },
    /// A whole number in `[min, max]`; `default: None` means it may be absent.
    Integer {
        /// Used when absent.
        default: Option<i64>,
        /// Smallest allowed.
        min: i64,
        /// Largest allowed.
        max: i64,
    },
    /// One of `choices` (any text when empty); `default: None` means it may be absent.
    Text {
        /// Used when absent.
        default: Option<&'static str>,
        /// Allowed values; empty: any text.
        choices: &'static [&'static str],
    },
    /// True or false.
    Bool {
        /// Used when absent.
        default: bool,
    },
    /// A list of texts; absent means empty.
    TextList,
    /// A free table, handed to a plugin as it is.
    Table,
}

/// One parameter of a kind.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct ParamSpec {
    /// The key, with its unit in the name where it has one (`window_secs`).
    pub name: &'static str,
    /// Type, default, range.
    pub ty: ParamType,
    /// Unit for people; empty where there is none.
    pub unit: &'static str,
    /// One-line description of its effect.
    pub help: &'static str,
}

/// One kind as documentation, the schema for editors and the reader of environment variables see it.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct KindDoc {
    /// `term`, `cost`, `constraint`, `picker`, `objective`, `optimizer`, `engine`.
    pub family: &'static str,
    /// Name of the kind.
    pub kind: &'static str,
    /// Unit of the result; empty where it has none.
    pub unit: &'static str,
    /// One-line description.
    pub summary: &'static str,
    /// Parameters of the kind.
    pub params: &'static [ParamSpec],
}

/// Parameters that were read, checked against their declarations, and completed with defaults.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct ParamValues {
    /// Name and value, in declaration order; a parameter that may be absent and is, is missing.
    pub values: Vec<(&'static str, ConfigValue)>,
}

impl ParamValues {
    fn get(&self, name: &str) -> Option<&ConfigValue> {
        self.values.iter().find(|(key, _)| *key == name).map(|(_, value)| value)
    }

    /// The number `name`, if given or defaulted.
    #[must_use]
    pub fn number(&self, name: &str) -> Option<f64> {
        self.get(name).and_then(ConfigValue::number)
    }

    /// The whole number `name`, if given or defaulted.
    #[must_use]
    pub fn integer(&self, name: &str) -> Option<i64> {
        match self.get(name) {
            Some(ConfigValue::Integer(whole)) => Some(*whole),
            _ => None,
        }
    }

    /// The text `name`, if given or defaulted.
    #[must_use]
    pub fn text(&self, name: &str) -> Option<&str> {
        self.get(name).and_then(ConfigValue::text)
    }

    /// The switch `name`; false where it was not declared.
    #[must_use]
    pub fn bool(&self, name: &str) -> bool {
        matches!(self.get(name), Some(ConfigValue::Bool(true)))
    }

    /// The texts in list `name`.
    #[must_use]
    pub fn texts(&self, name: &str) -> Vec<&str> {
        match self.get(name) {
            Some(ConfigValue::List(list)) => list.iter().filter_map(ConfigValue::text).collect(),
            _ => Vec::new(),
        }
    }

    /// The free table `name`.
    #[must_use]
    pub fn table(&self, name: &str) -> Option<&ConfigValue> {
        self.get(name)
    }
}
