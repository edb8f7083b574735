//! Plots as SVG text. Colours are CSS classes of the page around them; nothing is random, so equal figures make equal
//! text.

mod axis;
mod lines;
mod rows;
mod scatter;

pub(crate) use self::lines::{LinePlot, LineSeries};
pub(crate) use self::rows::{DotPlot, DotRow};
pub(crate) use self::scatter::{ScatterPlot, ScatterPoint};

/// Width of all plots, in their own units; the page scales them.
const WIDTH: f64 = 960.0;
/// Approximate width of a character of a label.
const CHARACTER: f64 = 6.9;
/// Longest label that is not shortened, characters.
const LONGEST: usize = 46;

/// A mean, and its standard deviation if there are several seeds.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct MeanDeviation {
    pub(crate) mean: f64,
    pub(crate) deviation: Option<f64>,
}

impl MeanDeviation {
    /// One deviation below and above the mean; the mean alone if there is none.
    fn ends(self) -> (f64, f64) {
        let deviation = self.deviation.unwrap_or(0.0);
        (self.mean - deviation, self.mean + deviation)
    }
}

/// A label cut to the longest length.
fn short(label: &str) -> String {
    if label.chars().count() <= LONGEST {
        return label.to_owned();
    }
    let mut text: String = label.chars().take(LONGEST - 1).collect();
    text.push('…');
    text
}

/// Width of a label.
fn width(label: &str) -> f64 {
    f64::from(u16::try_from(label.chars().count()).unwrap_or(u16::MAX)) * CHARACTER
}

/// A count as a floating-point number.
fn many(count: usize) -> f64 {
    f64::from(u32::try_from(count).unwrap_or(u32::MAX))
}
