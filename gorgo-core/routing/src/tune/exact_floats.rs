//! Numbers in saved states as text that reads back bit for bit, including infinities, which JSON cannot express.

use serde::{Deserialize, Deserializer, Serializer, de::Error};

/// Writes the shortest text that reads back exactly.
pub(super) fn serialize<S: Serializer>(number: &f64, to: S) -> Result<S::Ok, S::Error> {
    to.serialize_str(&format!("{number:?}"))
}

/// Reads a number back.
pub(super) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<f64, D::Error> {
    String::deserialize(from)?.parse().map_err(D::Error::custom)
}

/// The same for lists of numbers.
pub(super) mod list {
    use serde::{Deserialize, Deserializer, Serializer, de::Error};

    /// Writes each number as text.
    pub(in crate::tune) fn serialize<S: Serializer>(numbers: &[f64], to: S) -> Result<S::Ok, S::Error> {
        to.collect_seq(numbers.iter().map(|number| format!("{number:?}")))
    }

    /// Reads a list of numbers back.
    pub(in crate::tune) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<f64>, D::Error> {
        let texts = Vec::<String>::deserialize(from)?;
        texts.iter().map(|text| text.parse().map_err(D::Error::custom)).collect()
    }
}
