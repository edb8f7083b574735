//! Scatter plots with one dot per policy. Names are beside their dots if there is room, else numbers that the list
//! below explains.

use std::fmt::Write as _;

use super::super::page::escaped;
use super::axis::PlotAxis;
use super::{MeanDeviation, WIDTH, short, width};

const HEIGHT: f64 = 460.0;
const LEFT: f64 = 66.0;
const TOP: f64 = 34.0;
/// Height of a label.
const LABEL: f64 = 13.0;

/// A dot.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct ScatterPoint {
    pub(crate) name: String,
    pub(crate) marked: bool,
    pub(crate) x: MeanDeviation,
    pub(crate) y: MeanDeviation,
}

/// A plot of dots.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct ScatterPlot<'a> {
    pub(crate) dots: &'a [ScatterPoint],
    pub(crate) x_title: &'a str,
    pub(crate) y_title: &'a str,
}

/// Occupied rectangle: left, top, right, bottom.
type PixelBox = (f64, f64, f64, f64);

impl ScatterPlot<'_> {
    /// The plot as SVG.
    pub(crate) fn svg(&self) -> String {
        let (right, bottom) = (WIDTH - 24.0, HEIGHT - 48.0);
        let x_axis = PlotAxis::around(self.dots.iter().flat_map(|dot| <[f64; 2]>::from(dot.x.ends())), LEFT, right);
        let y_axis = PlotAxis::around(self.dots.iter().flat_map(|dot| <[f64; 2]>::from(dot.y.ends())), bottom, TOP);
        let mut body = String::new();
        x_axis.across(&mut body, TOP, bottom, self.x_title);
        y_axis.up(&mut body, LEFT, right, self.y_title);
        let at = |dot: &ScatterPoint| (x_axis.at(dot.x.mean), y_axis.at(dot.y.mean));
        // Greedy placement: dots are fixed, and every label that finds room becomes an obstacle for those after it.
        let mut taken: Vec<PixelBox> = self.dots.iter().map(|dot| around(at(dot), 6.0)).collect();
        // Whiskers are thin: a label is placed beside them if possible, and over them before it becomes a number.
        let mut whiskers: Vec<PixelBox> = Vec::new();
        let mut crowded = Vec::new();
        for dot in self.dots {
            let ((x, y), colour) = (at(dot), if dot.marked { 1 } else { 0 });
            let ((left, end), (low, high)) = (dot.x.ends(), dot.y.ends());
            whiskers.push((x_axis.at(left), y - 1.0, x_axis.at(end), y + 1.0));
            whiskers.push((x - 1.0, y_axis.at(high), x + 1.0, y_axis.at(low)));
            let _ = writeln!(
                body,
                "<path class=\"l{colour}\" opacity=\".5\" d=\"M{:.1} {y:.1}H{:.1}M{x:.1} {:.1}V{:.1}\"/>",
                x_axis.at(left),
                x_axis.at(end),
                y_axis.at(low),
                y_axis.at(high)
            );
            let name = escaped(&dot.name);
            let _ = writeln!(
                body,
                "<circle class=\"f{colour} halo\" cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"5\"><title>{name}: {:.1}, {:.1}</title></circle>",
                dot.x.mean, dot.y.mean
            );
        }
        // Highlighted dots choose their label's position first, then the others in order.
        let order = self.dots.iter().filter(|dot| dot.marked).chain(self.dots.iter().filter(|dot| !dot.marked));
        for dot in order {
            let class = if dot.marked { " class=\"over marked\"" } else { " class=\"over\"" };
            let full = short(&dot.name);
            let number = (crowded.len() + 1).to_string();
            let free = |label: &str, taken: &[PixelBox], whiskers: &[PixelBox]| {
                places(at(dot), width(label)).into_iter().find(|place| {
                    let inside = place.0 >= LEFT && place.2 <= right && place.1 >= TOP && place.3 <= bottom;
                    inside && !taken.iter().chain(whiskers).any(|other| overlap(*place, *other))
                })
            };
            let free =
                |label: &str, taken: &[PixelBox]| free(label, taken, &whiskers).or_else(|| free(label, taken, &[]));
            let (label, place) = match free(&full, &taken) {
                Some(place) => (full, Some(place)),
                None => {
                    crowded.push(full);
                    let place = free(&number, &taken);
                    (number, place)
                }
            };
            // If there is no room even for a number, the dot's tooltip has the name.
            if let Some(place) = place {
                taken.push(place);
                let (x, y) = (place.0, place.3 - 3.0);
                let _ = writeln!(body, "<text{class} x=\"{x:.1}\" y=\"{y:.1}\">{}</text>", escaped(&label));
            }
        }
        let lines = listed(&crowded);
        let mut height = HEIGHT;
        for line in lines {
            let _ = writeln!(body, "<text class=\"soft\" x=\"4\" y=\"{:.1}\">{}</text>", height + 8.0, escaped(&line));
            height += 17.0;
        }
        format!("<svg viewBox=\"0 0 {WIDTH} {:.0}\" role=\"img\">\n{body}</svg>\n", height + 4.0)
    }
}

/// Lines that explain the numbers, as many names on each as fit.
fn listed(names: &[String]) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for (number, name) in names.iter().enumerate() {
        let entry = format!("{} {name}", number + 1);
        match lines.last_mut() {
            Some(line) if width(line) + width(&entry) + 30.0 < WIDTH => {
                line.push_str(" · ");
                line.push_str(&entry);
            }
            _ => lines.push(entry),
        }
    }
    lines
}

const fn around((x, y): (f64, f64), radius: f64) -> PixelBox {
    (x - radius, y - radius, x + radius, y + radius)
}

/// Candidate positions of a label: right, left, above, below, and the corners.
fn places((x, y): (f64, f64), width: f64) -> [PixelBox; 8] {
    let (half, near) = (LABEL / 2.0, 8.0);
    let boxed = |left: f64, middle: f64| (left, middle - half, left + width, middle + half);
    [
        boxed(x + near, y),
        boxed(x - near - width, y),
        boxed(x - width / 2.0, y - near - half),
        boxed(x - width / 2.0, y + near + half),
        boxed(x + near, y - near - 2.0),
        boxed(x + near, y + near + 2.0),
        boxed(x - near - width, y - near - 2.0),
        boxed(x - near - width, y + near + 2.0),
    ]
}

fn overlap(one: PixelBox, other: PixelBox) -> bool {
    one.0 < other.2 && other.0 < one.2 && one.1 < other.3 && other.1 < one.3
}

#[cfg(test)]
mod tests {
    use super::*;

    fn dot(name: &str, x: f64, y: f64) -> ScatterPoint {
        let exact = |mean| MeanDeviation { mean, deviation: None };
        ScatterPoint { name: name.to_owned(), marked: false, x: exact(x), y: exact(y) }
    }

    #[test]
    fn names_that_have_no_room_are_numbers_with_a_list() {
        let dots: Vec<ScatterPoint> = (0..40).map(|number| dot(&format!("policy-{number}"), 500.0, 900.0)).collect();
        let svg = ScatterPlot { dots: &dots, x_title: "x", y_title: "y" }.svg();
        assert!(svg.contains(">policy-0</text>"), "the first has room");
        assert!(svg.contains(" · ") && svg.contains("policy-39"), "the last stands in the list: {svg}");
        let svg = ScatterPlot { dots: &dots[..1], x_title: "x", y_title: "y" }.svg();
        assert!(!svg.contains(" · "));
    }

    #[test]
    fn a_label_stands_beside_whiskers_where_there_is_room() {
        // Wide whiskers on both sides would cross a label beside the dot; above it there is room.
        let wide = |mean, deviation| MeanDeviation { mean, deviation: Some(deviation) };
        let one = ScatterPoint { name: "one".to_owned(), marked: false, x: wide(500.0, 200.0), y: wide(900.0, 1.0) };
        let far = dot("far", 1_000.0, 2_000.0);
        let svg = ScatterPlot { dots: &[one, far], x_title: "x", y_title: "y" }.svg();
        let place = |what: &str, key: &str| -> f64 {
            let line = svg.lines().find(|line| line.contains(what)).unwrap();
            line.split(&format!(" {key}=\"")).nth(1).unwrap().split('"').next().unwrap().parse().unwrap()
        };
        let (label, dot) = (place(">one</text>", "y"), place("<title>one:", "cy"));
        assert!((label - dot).abs() > 5.0, "the whisker goes through {label}, as it does through {dot}");
    }

    #[test]
    fn boxes_that_touch_do_not_overlap() {
        assert!(!overlap((0.0, 0.0, 1.0, 1.0), (1.0, 0.0, 2.0, 1.0)));
        assert!(overlap((0.0, 0.0, 1.0, 1.0), (0.5, 0.5, 2.0, 2.0)));
    }
}
