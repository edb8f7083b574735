//! Numbers formatted for people. A value that was not measured is a dash, never a zero.

/// Text shown for an unknown number.
const UNKNOWN: &str = "–";

/// A whole number with a comma every three digits.
pub(crate) fn count(number: impl TryInto<u64>) -> String {
    let Ok(number) = number.try_into() else { return UNKNOWN.to_owned() };
    let digits = number.to_string();
    let mut grouped = String::with_capacity(digits.len() + digits.len() / 3);
    for (position, digit) in digits.chars().enumerate() {
        if position > 0 && (digits.len() - position) % 3 == 0 {
            grouped.push(',');
        }
        grouped.push(digit);
    }
    grouped
}

/// A count with its noun, which has a plural in `s`.
pub(crate) fn counted(number: usize, thing: &str) -> String {
    format!("{} {thing}{}", count(number), if number == 1 { "" } else { "s" })
}

/// Milliseconds with three significant digits, whole numbers from 100 upwards.
pub(crate) fn millis(value: Option<f64>) -> String {
    match value {
        Some(value) if value.is_finite() && value >= 0.0 => {
            // The number of decimals follows the rounded value, so that 9.6 and 99.6 do not gain a digit by rounding.
            let rounded = value.round();
            if rounded < 10.0 {
                format!("{value:.2}")
            } else if rounded < 100.0 {
                format!("{value:.1}")
            } else {
                #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "saturates; not negative")]
                count(rounded as u64)
            }
        }
        _ => UNKNOWN.to_owned(),
    }
}

/// A share, 0 to 1, in percent.
pub(crate) fn percent(share: Option<f64>) -> String {
    share.map_or_else(|| UNKNOWN.to_owned(), |share| format!("{:.1} %", share * 100.0))
}

/// A number from 0 to 1 without a unit.
pub(crate) fn fraction(value: Option<f64>) -> String {
    value.map_or_else(|| UNKNOWN.to_owned(), |value| format!("{value:.3}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_read_like_this() {
        let counts = [0_u64, 7, 999, 1_000, 12_345, 1_234_567].map(count);
        assert_eq!(counts, ["0", "7", "999", "1,000", "12,345", "1,234,567"]);
        assert_eq!([0, 1, 1_000].map(|number| counted(number, "seed")), ["0 seeds", "1 seed", "1,000 seeds"]);
        let times = [0.0, 0.004, 9.444, 9.6, 12.34, 99.4, 99.6, 1347.6].map(|value| millis(Some(value)));
        assert_eq!(times, ["0.00", "0.00", "9.44", "9.6", "12.3", "99.4", "100", "1,348"]);
        assert_eq!([millis(None), millis(Some(f64::NAN)), percent(None), fraction(None)], ["–"; 4]);
        assert_eq!((percent(Some(0.3456)), fraction(Some(1.0 / 3.0))), ("34.6 %".into(), "0.333".into()));
    }
}
