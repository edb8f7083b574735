//! Mapping of numbers to positions: linear or logarithmic, with ticks at round numbers.

use std::fmt::Write as _;

/// An axis is logarithmic if its largest number exceeds its smallest by more than this factor.
const WIDE: f64 = 5.0;

/// An axis between two positions.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct PlotAxis {
    low: f64,
    high: f64,
    is_log: bool,
    /// Positions of its ends; from high to low if the axis points up.
    pub(super) from: f64,
    pub(super) to: f64,
}

impl PlotAxis {
    /// An axis with room for these numbers, all at least 0. Linear ones begin at 0.
    pub(super) fn over(values: impl IntoIterator<Item = f64>, from: f64, to: f64) -> Self {
        let (mut least, mut most) = (f64::INFINITY, 0.0_f64);
        for value in values.into_iter().filter(|value| value.is_finite() && *value > 0.0) {
            (least, most) = (least.min(value), most.max(value));
        }
        if most <= 0.0 {
            // Nothing measured: any range will do, as long as it is not empty, because `at` divides by it.
            return Self { low: 0.0, high: 1.0, is_log: false, from, to };
        }
        if most / least > WIDE {
            // Room of 12 % on both sides, so that marks are not drawn on the frame.
            return Self { low: least / 1.12, high: most * 1.12, is_log: true, from, to };
        }
        Self { low: 0.0, high: most * 1.06, is_log: false, from, to }
    }

    /// The same for numbers that are not drawn as lengths: linear ones begin slightly below the least.
    pub(super) fn around(values: impl IntoIterator<Item = f64> + Clone, from: f64, to: f64) -> Self {
        let over = Self::over(values.clone(), from, to);
        let least = values.into_iter().filter(|value| value.is_finite()).fold(f64::INFINITY, f64::min);
        if over.is_log || !least.is_finite() {
            return over;
        }
        let room = (over.high - least).max(over.high * 0.05) * 0.1;
        Self { low: (least - room).max(0.0), ..over }
    }

    /// An axis from 0 to 1.
    pub(super) const fn share(from: f64, to: f64) -> Self {
        Self { low: 0.0, high: 1.0, is_log: false, from, to }
    }

    /// Position of a number; values outside the axis are placed at its end.
    pub(super) fn at(&self, value: f64) -> f64 {
        // Values below the axis, zeros among them, have no logarithm: clamp before taking it.
        let share = if self.is_log {
            (value.max(self.low).ln() - self.low.ln()) / (self.high.ln() - self.low.ln())
        } else {
            (value - self.low) / (self.high - self.low)
        };
        self.from + share.clamp(0.0, 1.0) * (self.to - self.from)
    }

    /// Round numbers on the axis.
    pub(super) fn ticks(&self) -> Vec<f64> {
        if !self.is_log {
            // About six ticks, at the next larger step of the form 1, 2 or 5 × 10ⁿ.
            let rough = (self.high - self.low) / 6.0;
            let power = 10_f64.powf(rough.log10().floor());
            let step = [1.0, 2.0, 5.0, 10.0].into_iter().map(|digit| digit * power).find(|step| *step >= rough);
            let step = step.unwrap_or(rough);
            let mut ticks = Vec::new();
            let mut tick = (self.low / step).ceil() * step;
            // The factor admits the last tick despite rounding; the count ends the loop if a step vanishes in rounding.
            while tick <= self.high * 1.000_001 && ticks.len() < 20 {
                ticks.push(tick);
                tick += step;
            }
            return ticks;
        }
        // Over more than two and a half decades labels at 2 and 5 would overlap.
        let digits: &[f64] = if self.high / self.low > 300.0 { &[1.0] } else { &[1.0, 2.0, 5.0] };
        let mut ticks = Vec::new();
        let mut power = 10_f64.powf(self.low.log10().floor());
        while power <= self.high && ticks.len() < 40 {
            ticks.extend(digits.iter().map(|digit| digit * power).filter(|tick| (self.low..=self.high).contains(tick)));
            power *= 10.0;
        }
        ticks
    }

    /// Ticks from left to right, lines from `top` to `bottom`.
    pub(super) fn across(&self, out: &mut String, top: f64, bottom: f64, title: &str) {
        for tick in self.ticks() {
            let (x, label) = (self.at(tick), label(tick));
            let _ = writeln!(out, "<path class=\"grid\" d=\"M{x:.1} {top:.1}V{bottom:.1}\"/>");
            let _ = writeln!(out, "<text class=\"soft mid\" x=\"{x:.1}\" y=\"{:.1}\">{label}</text>", bottom + 16.0);
        }
        let (middle, y) = (f64::midpoint(self.from, self.to), bottom + 36.0);
        let title = self.titled(title);
        let _ = writeln!(out, "<text class=\"soft mid\" x=\"{middle:.1}\" y=\"{y:.1}\">{title}</text>");
    }

    /// Ticks from bottom to top, lines from `left` to `right`.
    pub(super) fn up(&self, out: &mut String, left: f64, right: f64, title: &str) {
        for tick in self.ticks() {
            let (y, label) = (self.at(tick), label(tick));
            let _ = writeln!(out, "<path class=\"grid\" d=\"M{left:.1} {y:.1}H{right:.1}\"/>");
            let (x, y) = (left - 8.0, y + 4.0);
            let _ = writeln!(out, "<text class=\"soft end\" x=\"{x:.1}\" y=\"{y:.1}\">{label}</text>");
        }
        let (y, title) = (self.to - 12.0, self.titled(title));
        let _ = writeln!(out, "<text class=\"soft\" x=\"4\" y=\"{y:.1}\">{title}</text>");
    }

    fn titled(&self, title: &str) -> String {
        let title = super::super::page::escaped(title);
        if self.is_log { format!("{title}, logarithmic") } else { title }
    }
}

/// Label of a tick: as many digits as needed, with thousands separators.
fn label(tick: f64) -> String {
    let text = if tick >= 10.0 { format!("{tick:.0}") } else { format!("{:.2}", tick) };
    let (whole, part) = text.split_once('.').unwrap_or((&text, ""));
    let part = part.trim_end_matches('0');
    let whole = whole.parse::<u64>().map_or_else(|_| whole.to_owned(), crate::report::number::count);
    if part.is_empty() { whole } else { format!("{whole}.{part}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticks_are_round_and_in_range() {
        let narrow = PlotAxis::over([600.0, 2_500.0], 100.0, 900.0);
        assert!(!narrow.is_log);
        let labels: Vec<String> = narrow.ticks().into_iter().map(label).collect();
        assert_eq!(labels, ["0", "500", "1,000", "1,500", "2,000", "2,500"]);
        let wide = PlotAxis::over([100.0, 2_500.0], 0.0, 1.0);
        assert!(wide.is_log);
        let labels: Vec<String> = wide.ticks().into_iter().map(label).collect();
        assert_eq!(labels, ["100", "200", "500", "1,000", "2,000"]);
        let shares: Vec<String> = PlotAxis::share(0.0, 1.0).ticks().into_iter().map(label).collect();
        assert_eq!(shares, ["0", "0.2", "0.4", "0.6", "0.8", "1"]);
        assert_eq!(PlotAxis::over([], 0.0, 1.0).ticks().len(), 6);
        let near = PlotAxis::around([900.0, 1_100.0], 0.0, 1.0);
        let labels: Vec<String> = near.ticks().into_iter().map(label).collect();
        assert_eq!(labels, ["900", "950", "1,000", "1,050", "1,100", "1,150"]);
    }

    #[test]
    fn places_rise_with_numbers_and_stay_inside() {
        for axis in [PlotAxis::over([1.0, 5.0], 10.0, 20.0), PlotAxis::over([1.0, 900.0], 10.0, 20.0)] {
            let places: Vec<f64> = [0.0, 1.0, 2.0, 4.9, 5.0, 1e9].iter().map(|value| axis.at(*value)).collect();
            assert!(places.is_sorted() && places.iter().all(|place| (10.0..=20.0).contains(place)), "{places:?}");
        }
    }
}
