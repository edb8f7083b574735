//! Line plots with one line per series over a common axis: latency over load, or over a swept key.

use std::fmt::Write as _;

use super::super::page::{COLOURS, escaped};
use super::axis::PlotAxis;
use super::{MeanDeviation, WIDTH, short, width};

const HEIGHT: f64 = 400.0;
const LEFT: f64 = 72.0;
/// Most series that colours and dashes can distinguish.
const MOST: usize = 3 * COLOURS;

/// A series.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct LineSeries {
    pub(crate) name: String,
    pub(crate) marked: bool,
    /// Points in order of rising x.
    pub(crate) points: Vec<(f64, MeanDeviation)>,
}

/// A plot of series.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct LinePlot<'a> {
    pub(crate) lines: &'a [LineSeries],
    pub(crate) x_title: &'a str,
    pub(crate) y_title: &'a str,
    /// Horizontal line to compare with, and its label.
    pub(crate) limit: Option<(f64, &'a str)>,
}

impl LinePlot<'_> {
    /// The plot as SVG.
    pub(crate) fn svg(&self) -> String {
        let lines = &self.lines[..self.lines.len().min(MOST)];
        let (legend, legend_bottom) = legend(lines);
        let (top, right) = (legend_bottom + 34.0, WIDTH - 24.0);
        let bottom = top + HEIGHT - 80.0;
        let points = || lines.iter().flat_map(|line| &line.points);
        let x_axis = PlotAxis::over(points().map(|(x, _)| *x), LEFT, right);
        let limit = self.limit.map(|(level, _)| level);
        // The limit belongs to the range: a plot in which it is off the scale does not show that all policies are
        // within it.
        let y_axis = PlotAxis::over(points().flat_map(|(_, y)| [y.mean, y.ends().1]).chain(limit), bottom, top);
        let mut out = format!("<svg viewBox=\"0 0 {WIDTH} {:.0}\" role=\"img\">\n{legend}", bottom + 46.0);
        x_axis.across(&mut out, top, bottom, self.x_title);
        y_axis.up(&mut out, LEFT, right, self.y_title);
        if let Some((level, name)) = self.limit {
            let y = y_axis.at(level);
            // SVG has no tooltips but `title`, so every point has its figures in one.
            let _ = writeln!(out, "<path class=\"limit\" d=\"M{LEFT:.1} {y:.1}H{right:.1}\"/>");
            let _ = writeln!(out, "<text x=\"{:.1}\" y=\"{:.1}\">{}</text>", LEFT + 6.0, y - 5.0, escaped(name));
        }
        for (number, line) in lines.iter().enumerate() {
            line.draw(&mut out, number, &x_axis, &y_axis);
        }
        out + "</svg>\n"
    }
}

impl LineSeries {
    fn draw(&self, out: &mut String, number: usize, x_axis: &PlotAxis, y_axis: &PlotAxis) {
        let colour = number % COLOURS;
        let thick = if self.marked { 3.0 } else { 1.8 };
        let place = |(x, y): &(f64, MeanDeviation)| (x_axis.at(*x), y_axis.at(y.mean));
        let mut path = String::new();
        for (x, y) in self.points.iter().map(place) {
            let _ = write!(path, "{}{x:.1} {y:.1}", if path.is_empty() { 'M' } else { 'L' });
        }
        let dash = dashes(number);
        let _ = writeln!(out, "<path class=\"l{colour}\" stroke-width=\"{thick}\"{dash} d=\"{path}\"/>");
        for point in &self.points {
            let ((x, y), (low, high)) = (place(point), point.1.ends());
            let (low, high) = (y_axis.at(low), y_axis.at(high));
            let name = escaped(&self.name);
            let _ = writeln!(
                out,
                "<path class=\"l{colour}\" opacity=\".6\" d=\"M{x:.1} {low:.1}V{high:.1}\"/><circle class=\"f{colour} halo\" \
                 cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"4\"><title>{name}: {:.4}, {:.1}</title></circle>",
                point.0, point.1.mean
            );
        }
    }
}

/// Dash pattern: the first eight series are solid, the next dashed, the next dotted.
const fn dashes(number: usize) -> &'static str {
    match number / COLOURS {
        0 => "",
        1 => " stroke-dasharray=\"7 4\"",
        _ => " stroke-dasharray=\"2 4\"",
    }
}

/// Legend above the plot, as many names on a line as fit; and the height at which it ends.
fn legend(lines: &[LineSeries]) -> (String, f64) {
    let (mut out, mut x, mut y) = (String::new(), 4.0, 14.0);
    for (number, line) in lines.iter().enumerate() {
        let name = short(&line.name);
        if x + width(&name) + 50.0 > WIDTH {
            (x, y) = (4.0, y + 19.0);
        }
        let colour = number % COLOURS;
        let dash = dashes(number);
        let _ = writeln!(out, "<path class=\"l{colour}\" stroke-width=\"3\"{dash} d=\"M{x:.1} {:.1}h22\"/>", y - 4.0);
        let class = if line.marked { " class=\"marked\"" } else { "" };
        let _ = writeln!(out, "<text{class} x=\"{:.1}\" y=\"{y:.1}\">{}</text>", x + 28.0, escaped(&name));
        x += width(&name) + 50.0;
    }
    (out, y)
}
