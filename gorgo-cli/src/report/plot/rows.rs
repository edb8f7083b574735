//! Row plots with one row per policy and several marks on each: their values and spread.

use std::fmt::Write as _;

use super::super::page::escaped;
use super::axis::PlotAxis;
use super::{MeanDeviation, WIDTH, many, short, width};

/// Height of a row.
const ROW: f64 = 22.0;
/// Space above the rows, for the legend.
const TOP: f64 = 30.0;
/// Space below, for the axis.
const BOTTOM: f64 = 46.0;

/// A row.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct DotRow {
    pub(crate) name: String,
    /// True for a highlighted row.
    pub(crate) marked: bool,
    /// One per entry of the legend.
    pub(crate) marks: Vec<Option<MeanDeviation>>,
}

/// A plot of rows.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct DotPlot<'a> {
    /// Names of the marks.
    pub(crate) legend: &'a [&'a str],
    pub(crate) rows: &'a [DotRow],
    /// Title of the axis.
    pub(crate) title: &'a str,
    /// True if the numbers are shares, 0 to 1.
    pub(crate) shares: bool,
}

impl DotPlot<'_> {
    /// The plot as SVG.
    pub(crate) fn svg(&self) -> String {
        let left = self.rows.iter().map(|row| width(&short(&row.name))).fold(80.0, f64::max) + 18.0;
        let bottom = TOP + many(self.rows.len()) * ROW;
        let right = WIDTH - 24.0;
        let marks = || self.rows.iter().flat_map(|row| &row.marks).flatten();
        let axis = if self.shares {
            PlotAxis::share(left, right)
        } else {
            PlotAxis::over(marks().flat_map(|mark| [mark.mean, mark.ends().1]), left, right)
        };
        let mut out = format!("<svg viewBox=\"0 0 {WIDTH} {:.0}\" role=\"img\">\n", bottom + BOTTOM);
        // Bands first: SVG paints in order, and the grid and the marks must be on top.
        for (number, _) in self.rows.iter().enumerate().filter(|(_, row)| row.marked) {
            let y = TOP + many(number) * ROW;
            let _ = writeln!(out, "<rect class=\"band\" x=\"0\" y=\"{y:.1}\" width=\"{WIDTH}\" height=\"{ROW}\"/>");
        }
        axis.across(&mut out, TOP, bottom, self.title);
        let mut x = left;
        for (place, name) in self.legend.iter().enumerate() {
            mark(&mut out, place, x + 6.0, 12.0);
            let _ = writeln!(out, "<text x=\"{:.1}\" y=\"16\">{}</text>", x + 17.0, escaped(name));
            x += width(name) + 44.0;
        }
        for (number, row) in self.rows.iter().enumerate() {
            row.draw(&mut out, &axis, left, TOP + (many(number) + 0.5) * ROW, self.legend);
        }
        out + "</svg>\n"
    }
}

impl DotRow {
    fn draw(&self, out: &mut String, axis: &PlotAxis, left: f64, y: f64, legend: &[&str]) {
        let class = if self.marked { "end marked" } else { "end" };
        let (full, name) = (escaped(&self.name), escaped(&short(&self.name)));
        let (x, base) = (left - 10.0, y + 4.0);
        let _ =
            writeln!(out, "<text class=\"{class}\" x=\"{x:.1}\" y=\"{base:.1}\">{name}<title>{full}</title></text>");
        let known = || self.marks.iter().enumerate().filter_map(|(place, mark)| mark.map(|mark| (place, mark)));
        let places: Vec<f64> = known().map(|(_, mark)| axis.at(mark.mean)).collect();
        if let (Some(first), Some(last)) =
            (places.iter().copied().reduce(f64::min), places.iter().copied().reduce(f64::max))
        {
            let _ = writeln!(out, "<path class=\"span\" d=\"M{first:.1} {y:.1}H{last:.1}\"/>");
        }
        for (place, estimate) in known() {
            let (from, to) = estimate.ends();
            let (from, to) = (axis.at(from), axis.at(to));
            let colour = place % super::super::page::COLOURS;
            // A whisker narrower than a pixel is hidden by its mark.
            if to - from > 1.0 {
                let _ = writeln!(
                    out,
                    "<path class=\"l{colour}\" stroke-width=\"2\" d=\"M{from:.1} {y:.1}H{to:.1}M{from:.1} {:.1}v8M{to:.1} {:.1}v8\"/>",
                    y - 4.0,
                    y - 4.0
                );
            }
            let name = legend.get(place).copied().unwrap_or_default();
            let deviation = estimate.deviation.map_or_else(String::new, |deviation| format!(" ± {deviation:.3}"));
            let _ = write!(out, "<g><title>{full}: {} {:.3}{deviation}</title>", escaped(name), estimate.mean);
            mark(out, place, axis.at(estimate.mean), y);
            out.push_str("</g>\n");
        }
    }
}

/// Draws the mark of this position: a circle, a square or a diamond, so that they can be told apart without colours.
fn mark(out: &mut String, place: usize, x: f64, y: f64) {
    let colour = place % super::super::page::COLOURS;
    let _ = match place {
        0 => write!(out, "<circle class=\"f{colour} halo\" cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"5\"/>"),
        1 => {
            let (x, y) = (x - 4.5, y - 4.5);
            write!(out, "<rect class=\"f{colour} halo\" x=\"{x:.1}\" y=\"{y:.1}\" width=\"9\" height=\"9\"/>")
        }
        _ => write!(out, "<path class=\"f{colour} halo\" d=\"M{:.1} {y:.1}l6 -6 6 6 -6 6z\"/>", x - 6.0),
    };
}
