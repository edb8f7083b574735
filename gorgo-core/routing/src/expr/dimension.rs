//! Units of the parts of an expression, as far as they follow from the units of the names.
//!
//! A number written in the text may mean anything: `50` is milliseconds where milliseconds are added, and a factor of
//! 50 may convert anything into anything. So units are known only for parts made of names, and only plain
//! contradictions are refused: milliseconds plus tokens, or tokens where the policy says ms.

use std::{fmt, iter};

/// Base units, as they are written in a numerator and in a denominator.
const BASES: [(&str, &str); 5] =
    [("ms", "ms"), ("s", "s"), ("token", "tokens"), ("request", "requests"), ("byte", "bytes")];

/// The unit of a part of an expression.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum UnitDimension {
    /// A number of the text, or a product with one: fits everywhere.
    Any,
    /// 1 or 0 from a comparison: fits everywhere, and leaves the unit of the other factor unchanged.
    Truth,
    /// The product of the base units with these exponents.
    Exponents([i8; BASES.len()]),
}

impl UnitDimension {
    /// Parses `ms`, `tokens`, `ms/token`, `ms/token/request`, `tokens/s`, `share`, `1`. An unknown unit fits
    /// everywhere.
    pub(super) fn parse(unit: &str) -> Self {
        let mut exponents = [0; BASES.len()];
        for (part, step) in unit.split('/').zip(iter::once(1_i8).chain(iter::repeat(-1))) {
            match BASES.iter().position(|(one, many)| part == *one || part == *many) {
                Some(base) => exponents[base] += step,
                None if part == "1" || part == "share" => {}
                None => return Self::Any,
            }
        }
        Self::Exponents(exponents)
    }

    /// Unit of a sum, a comparison, or a choice between two branches. `None`: the units contradict each other.
    pub(super) fn unify(self, other: Self) -> Option<Self> {
        match (self, other) {
            (Self::Exponents(a), Self::Exponents(b)) => (a == b).then_some(self),
            (Self::Exponents(_), _) => Some(self),
            (_, Self::Exponents(_)) => Some(other),
            (Self::Truth, Self::Truth) => Some(Self::Truth),
            _ => Some(Self::Any),
        }
    }

    /// Unit of a product (`sign` 1) or a quotient (−1).
    pub(super) fn times(self, other: Self, sign: i8) -> Self {
        match (self, other) {
            (Self::Any, _) | (_, Self::Any) => Self::Any,
            (Self::Truth, Self::Truth) => Self::Truth,
            (Self::Exponents(_), Self::Truth) => self,
            (Self::Truth, Self::Exponents(b)) => Self::Exponents(b.map(|exponent| exponent.saturating_mul(sign))),
            (Self::Exponents(mut a), Self::Exponents(b)) => {
                for (a, b) in a.iter_mut().zip(b) {
                    // A product of more than 127 factors of one unit would overflow the exponent.
                    *a = a.saturating_add(b.saturating_mul(sign));
                }
                Self::Exponents(a)
            }
        }
    }
}

impl fmt::Display for UnitDimension {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self::Exponents(exponents) = self else { return f.write_str("any unit") };
        let side = |sign: i8, many: bool| -> Vec<String> {
            let named = BASES.iter().zip(exponents).filter(|(_, exponent)| exponent.signum() == sign);
            named
                .map(|((one, plural), exponent)| {
                    let name = if many { plural } else { one };
                    match exponent.unsigned_abs() {
                        1 => (*name).to_owned(),
                        power => format!("{name}^{power}"),
                    }
                })
                .collect()
        };
        let (above, below) = (side(1, true), side(-1, false));
        match (above.is_empty(), below.is_empty()) {
            (true, true) => f.write_str("no unit"),
            (false, true) => f.write_str(&above.join("*")),
            (true, false) => write!(f, "1/{}", below.join("/")),
            (false, false) => write!(f, "{}/{}", above.join("*"), below.join("/")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_turn_amounts_into_time() {
        let of = UnitDimension::parse;
        let time = of("tokens").times(of("ms/token"), 1);
        assert_eq!(time, of("ms"));
        assert_eq!(time.unify(of("ms")), Some(of("ms")));
        assert_eq!(time.unify(of("tokens")), None);
        assert_eq!(of("tokens").times(of("tokens"), -1), of("share"));
        assert_eq!(of("ms").times(UnitDimension::Any, 1), UnitDimension::Any);
        assert_eq!(of("ms").times(UnitDimension::Truth, 1), of("ms"));
        assert_eq!(of("furlong"), UnitDimension::Any);
    }

    #[test]
    fn they_read_as_they_are_written() {
        for unit in ["ms", "tokens", "requests", "bytes", "ms/token", "ms/request", "ms/token/request", "tokens/s"] {
            assert_eq!(UnitDimension::parse(unit).to_string(), unit);
        }
        assert_eq!(UnitDimension::parse("share").to_string(), "no unit");
        let square = UnitDimension::parse("ms").times(UnitDimension::parse("ms"), 1);
        assert_eq!(square.to_string(), "ms^2");
        assert_eq!(UnitDimension::parse("1").times(square, -1).to_string(), "1/ms^2");
    }
}
