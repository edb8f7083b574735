//! `--sweep KEY=…`: values of a configuration key, and the points of a sweep: every combination (a grid), or a number
//! of them drawn at random (`--samples`), the same ones for the same `--sweep-seed`.

use std::str::FromStr;

use gorgo_routing::config::ConfigOverride;
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;

/// Most points of one sweep.
const MOST: usize = 100_000;

/// A key and its values.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct SweepAxis {
    /// Path of the key, as in `--set`.
    pub(super) path: String,
    span: AxisValues,
}

#[derive(Debug, Clone, PartialEq)]
enum AxisValues {
    /// Listed values, as TOML text.
    Values(Vec<String>),
    /// Numbers in a range.
    Range(AxisRange),
}

#[derive(Debug, Clone, Copy, PartialEq)]
struct AxisRange {
    low: f64,
    high: f64,
    /// Number of values in a grid.
    count: Option<u32>,
    /// Evenly spaced in the logarithm.
    log: bool,
    /// Whole numbers only.
    whole: bool,
}

/// One configuration of a sweep: a value per axis, in their order.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct SweepValues {
    pub(super) values: Vec<String>,
}

impl FromStr for SweepAxis {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (path, values) = text
            .split_once('=')
            .ok_or("expected KEY=V1,V2,… or KEY=LOW..HIGH:COUNT, such as policy.gorgo.term.queue.weight=0.05,0.5")?;
        let (path, values) = (path.trim().to_owned(), values.trim());
        if path.is_empty() || values.is_empty() {
            return Err("the key and its values must not be empty".to_owned());
        }
        let span = match values.split_once("..") {
            // Two dots may also be part of a text value, so a range is only recognized by a number before them.
            Some((low, rest)) if low.trim().parse::<f64>().is_ok() => AxisValues::Range(AxisRange::parse(low, rest)?),
            _ => AxisValues::Values(split(values)?),
        };
        Ok(Self { path, span })
    }
}

impl AxisRange {
    /// A range from `LOW` and the text after the two dots: `HIGH[:COUNT][log][int]`.
    fn parse(low: &str, rest: &str) -> Result<Self, String> {
        let number = |text: &str| {
            let number = text.trim().parse::<f64>().ok().filter(|number| number.is_finite());
            number.ok_or_else(|| format!("{text:?} is not a number"))
        };
        let mut left = rest.trim();
        let (mut log, mut whole) = (false, false);
        // The two suffixes come in any order.
        loop {
            if let Some(before) = left.strip_suffix("log") {
                (left, log) = (before.trim_end(), true);
            } else if let Some(before) = left.strip_suffix("int") {
                (left, whole) = (before.trim_end(), true);
            } else {
                break;
            }
        }
        let (high, count) = match left.split_once(':') {
            Some((high, count)) => {
                let count = count.trim().parse().ok().filter(|count| *count >= 2);
                (high, Some(count.ok_or("the count after `:` must be a whole number, 2 or more")?))
            }
            None => (left, None),
        };
        let (low, high) = (number(low)?, number(high)?);
        if low >= high {
            return Err(format!("{low} is not less than {high}"));
        }
        if log && low <= 0.0 {
            return Err("a logarithmic range must begin above 0".to_owned());
        }
        Ok(Self { low, high, count, log, whole })
    }

    /// The number at a share of the way, 0 to 1, as TOML text of six digits.
    fn at(&self, share: f64) -> String {
        let value = if self.log {
            (self.low.ln() + share * (self.high.ln() - self.low.ln())).exp()
        } else {
            self.low + share * (self.high - self.low)
        };
        // Six digits, so that keys and labels stay readable and rounding errors do not show.
        let value = if self.whole { value.round() } else { value };
        format!("{value:.5e}").parse::<f64>().map_or_else(|_| value.to_string(), |short| short.to_string())
    }
}

impl SweepAxis {
    /// Values of the axis in a grid.
    fn grid(&self) -> Result<Vec<String>, String> {
        match &self.span {
            AxisValues::Values(values) => Ok(values.clone()),
            AxisValues::Range(range) => {
                let count = range.count.ok_or_else(|| {
                    format!("--sweep {}: the number of values is missing; use LOW..HIGH:COUNT, or --samples", self.path)
                })?;
                let mut values: Vec<String> =
                    (0..count).map(|step| range.at(f64::from(step) / f64::from(count - 1))).collect();
                // Whole numbers in a narrow range round to the same value.
                values.dedup();
                Ok(values)
            }
        }
    }

    fn drawn(&self, rng: &mut ChaCha8Rng) -> String {
        // The upper 53 bits, as many as a double has, as a number in [0, 1).
        #[expect(clippy::cast_precision_loss, reason = "53 bits fit")]
        let share = (rng.next_u64() >> 11) as f64 / (1_u64 << 53) as f64;
        match &self.span {
            AxisValues::Range(range) => range.at(share),
            AxisValues::Values(values) => {
                let many = f64::from(u32::try_from(values.len()).unwrap_or(u32::MAX));
                #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "0 ≤ share < 1")]
                let place = (share * many) as usize;
                values.get(place).or_else(|| values.last()).cloned().unwrap_or_default()
            }
        }
    }
}

/// All points: the grid, or `samples` drawn at random. Without axes there is one point, which sets nothing.
pub(super) fn points(axes: &[SweepAxis], samples: Option<u32>, seed: u64) -> Result<Vec<SweepValues>, String> {
    let mut paths: Vec<&str> = axes.iter().map(|axis| axis.path.as_str()).collect();
    paths.sort_unstable();
    if let Some(twice) = paths.windows(2).find(|pair| pair[0] == pair[1]) {
        return Err(format!("--sweep {}: given twice; list all its values in one --sweep", twice[0]));
    }
    if let Some(samples) = samples {
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        return Ok((0..samples)
            .map(|_| SweepValues { values: axes.iter().map(|axis| axis.drawn(&mut rng)).collect() })
            .collect());
    }
    let mut points = vec![SweepValues::default()];
    for axis in axes {
        let values = axis.grid()?;
        // Before building the product: a few long axes can exceed memory.
        if points.len().saturating_mul(values.len()) > MOST {
            return Err(format!("--sweep: more than {MOST} combinations; use --samples to draw some of them"));
        }
        points = points
            .iter()
            .flat_map(|point| {
                values.iter().map(|value| SweepValues { values: point.values.iter().chain([value]).cloned().collect() })
            })
            .collect();
    }
    Ok(points)
}

impl SweepValues {
    /// The values of the point as settings.
    pub(super) fn settings(&self, axes: &[SweepAxis]) -> Vec<ConfigOverride> {
        let one = |(axis, value): (&SweepAxis, &String)| ConfigOverride {
            flag: format!("--sweep {}", axis.path),
            path: axis.path.clone(),
            value: value.clone(),
        };
        axes.iter().zip(&self.values).map(one).collect()
    }
}

/// True if a run of this policy can depend on the key at `path`: a key in the policy's own table, or outside all
/// policies.
pub(super) fn touches(path: &str, policy: &str) -> bool {
    // Names with dots are quoted: policy."a.b".unit.
    let Some(rest) = path.strip_prefix("policy.") else { return true };
    let quoted = rest.strip_prefix('"').and_then(|rest| rest.split('"').next());
    // A path continues with a dot, or with an index such as `term[0]`.
    quoted.or_else(|| rest.split(['.', '[']).next()) == Some(policy)
}

/// Splits at commas outside arrays, tables and strings.
fn split(text: &str) -> Result<Vec<String>, String> {
    let (mut depth, mut quote, mut values) = (0_i32, None, vec![String::new()]);
    for char in text.chars() {
        match (quote, char) {
            (None, '"' | '\'') => quote = Some(char),
            (Some(open), _) if open == char => quote = None,
            (None, '[' | '{') => depth += 1,
            (None, ']' | '}') => depth -= 1,
            (None, ',') if depth == 0 => {
                values.push(String::new());
                continue;
            }
            _ => {}
        }
        if let Some(last) = values.last_mut() {
            last.push(char);
        }
    }
    let values: Vec<String> = values.iter().map(|value| value.trim().to_owned()).collect();
    if values.iter().any(String::is_empty) { Err(format!("an empty value in `{text}`")) } else { Ok(values) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all(axes: &[&str], samples: Option<u32>, seed: u64) -> Vec<Vec<String>> {
        let axes: Vec<SweepAxis> = axes.iter().map(|axis| axis.parse().unwrap()).collect();
        points(&axes, samples, seed).unwrap().into_iter().map(|point| point.values).collect()
    }

    #[test]
    fn a_grid_has_every_combination_the_last_axis_fastest() {
        assert_eq!(all(&[], None, 0), [[""; 0]]);
        let grid = all(&["a.b=0.5,1", "c=0..10:3"], None, 0);
        assert_eq!(grid, [["0.5", "0"], ["0.5", "5"], ["0.5", "10"], ["1", "0"], ["1", "5"], ["1", "10"]]);
        assert_eq!(all(&["w=0.01..1:3log"], None, 0), [["0.01"], ["0.1"], ["1"]]);
        assert_eq!(all(&["w=1..4:7int"], None, 0), [["1"], ["2"], ["3"], ["4"]]);
    }

    #[test]
    fn commas_in_tables_arrays_and_strings_divide_nothing() {
        let grid = all(&[r#"p={ kind = "softmin", t = 3 },"a,b",[1, 2]"#], None, 0);
        assert_eq!(grid, [[r#"{ kind = "softmin", t = 3 }"#], [r#""a,b""#], ["[1, 2]"]]);
        assert_eq!(all(&["s=a..b,c"], None, 0), [["a..b"], ["c"]], "what is no range is a text");
    }

    #[test]
    fn samples_lie_in_their_ranges_and_are_the_seeds() {
        let drawn = all(&["w=0.05..2log", "n=1..9int", "k=a,b"], Some(200), 7);
        assert_eq!(drawn, all(&["w=0.05..2log", "n=1..9int", "k=a,b"], Some(200), 7));
        assert_ne!(drawn, all(&["w=0.05..2log", "n=1..9int", "k=a,b"], Some(200), 8));
        for point in &drawn {
            let (weight, number): (f64, u32) = (point[0].parse().unwrap(), point[1].parse().unwrap());
            assert!((0.05..=2.0).contains(&weight) && (1..=9).contains(&number), "{point:?}");
        }
        let below = drawn.iter().filter(|point| point[0].parse::<f64>().unwrap() < 0.3162).count();
        assert!((70..130).contains(&below), "half of the logarithm's range: {below} of 200");
        assert!(drawn.iter().any(|point| point[2] == "a") && drawn.iter().any(|point| point[2] == "b"));
    }

    #[test]
    fn a_key_of_one_policy_touches_no_other() {
        assert!(touches("policy.gorgo.term.rtt.weight", "gorgo") && touches("policy.\"my.own\".unit", "my.own"));
        assert!(!touches("policy.gorgo.unit", "gorgo-2d") && !touches("policy.gorgo-2d.unit", "gorgo"));
        assert!(touches("replica[near].simulated.rtt_ms", "gorgo") && touches("default_policy", "random"));
    }

    #[test]
    fn what_is_no_sweep_is_refused() {
        for wrong in ["", "a", "=1", "a=", "a=1,,2", "a=2..1:3", "a=0..1:3log", "a=0..1:1", "a=0..x:3"] {
            assert!(wrong.parse::<SweepAxis>().is_err(), "{wrong}");
        }
        let axes: Vec<SweepAxis> = vec!["a=0..1".parse().unwrap()];
        assert!(points(&axes, None, 0).unwrap_err().contains("use LOW..HIGH:COUNT"));
        let axes: Vec<SweepAxis> = vec!["a=0..1:400".parse().unwrap(), "b=0..1:400".parse().unwrap()];
        assert!(points(&axes, None, 0).is_err());
        let axes: Vec<SweepAxis> = vec!["a=1,2".parse().unwrap(), "a=3,4".parse().unwrap()];
        assert_eq!(points(&axes, None, 0).unwrap_err(), "--sweep a: given twice; list all its values in one --sweep");
    }
}
