//! A configuration value without its syntax: the input that kinds are built from.

/// A value of a TOML table, after all layers were merged. Tables keep the order of the file.
#[derive(Debug, Clone, PartialEq)]
pub enum ConfigValue {
    /// `true`, `false`.
    Bool(bool),
    /// A whole number.
    Integer(i64),
    /// A number with a fraction; NaN and infinities come through, range checks refuse them.
    Float(f64),
    /// A string.
    Text(String),
    /// An array.
    List(Vec<ConfigValue>),
    /// A table.
    Table(Vec<(String, ConfigValue)>),
}

impl ConfigValue {
    /// Type of this value, for messages.
    #[must_use]
    pub const fn type_name(&self) -> &'static str {
        match self {
            Self::Bool(_) => "true or false",
            Self::Integer(_) => "a whole number",
            Self::Float(_) => "a number",
            Self::Text(_) => "a string",
            Self::List(_) => "an array",
            Self::Table(_) => "a table",
        }
    }

    /// The member `key` of a table.
    #[must_use]
    pub fn get(&self, key: &str) -> Option<&Self> {
        match self {
            Self::Table(members) => members.iter().find(|(name, _)| name == key).map(|(_, value)| value),
            _ => None,
        }
    }

    /// The number, whole or not.
    #[must_use]
    #[expect(clippy::cast_precision_loss, reason = "configuration numbers are far below 2^53")]
    pub const fn number(&self) -> Option<f64> {
        match self {
            Self::Integer(whole) => Some(*whole as f64),
            Self::Float(number) => Some(*number),
            _ => None,
        }
    }

    /// The text.
    #[must_use]
    pub fn text(&self) -> Option<&str> {
        match self {
            Self::Text(text) => Some(text),
            _ => None,
        }
    }
}
