//! Lines in a frame with two axes and a legend, as SVG.
//!
//! Only what a report needs: no styles from outside, no scripts, fonts of the viewer. It reads on white and on dark
//! pages because it brings its own ground. Points that are no numbers are left out; a line without points stands in the
//! legend all the same, so that nobody has to wonder where it is.

use std::fmt::Write as _;

use super::axis::{Scale, Tick};

const WIDTH: f64 = 960.0;
const LEFT: f64 = 80.0;
const RIGHT: f64 = 24.0;
const TOP: f64 = 44.0;
const PLOT_HEIGHT: f64 = 400.0;
const BELOW: f64 = 58.0;
const LEGEND_LINE: f64 = 18.0;
/// Distinct for people who see few colours, too (Okabe and Ito, without yellow).
const COLOURS: [&str; 7] = ["#0072b2", "#d55e00", "#009e73", "#cc79a7", "#56b4e9", "#e69f00", "#000000"];
/// When the colours have been used up they come again with dashes.
const DASHES: [&str; 4] = ["", "7 3", "2 3", "9 3 2 3"];

/// A line of a plot.
#[derive(Clone, Debug)]
pub struct Series {
    /// Its name in the legend.
    pub name: String,
    /// Its points, in the order in which they are joined.
    pub points: Vec<(f64, f64)>,
}

/// One direction of a plot.
pub struct Axis {
    /// What it shows, with the unit.
    pub title: String,
    /// How values become places.
    pub scale: Scale,
    /// How values are named.
    pub label: fn(f64) -> String,
}

/// A plot.
pub struct Plot {
    /// What stands above it.
    pub title: String,
    /// From left to right.
    pub x: Axis,
    /// From the bottom to the top.
    pub y: Axis,
    /// Its lines.
    pub series: Vec<Series>,
}

/// Text in an element or an attribute; what XML does not allow at all becomes a question mark.
fn escaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            c if c.is_control() || matches!(c, '\u{fffe}' | '\u{ffff}') => out.push('?'),
            c => out.push(c),
        }
    }
    out
}

/// Colour and dashes of the n-th line.
fn stroke(n: usize) -> String {
    let dash = DASHES[n / COLOURS.len() % DASHES.len()];
    let dashes = if dash.is_empty() { String::new() } else { format!(" stroke-dasharray=\"{dash}\"") };
    format!("stroke=\"{}\"{dashes}", COLOURS[n % COLOURS.len()])
}

impl Plot {
    fn x_at(&self, value: f64) -> f64 {
        LEFT + self.x.scale.place(value) * (WIDTH - LEFT - RIGHT)
    }

    fn y_at(&self, value: f64) -> f64 {
        TOP + (1.0 - self.y.scale.place(value)) * PLOT_HEIGHT
    }

    /// The document.
    pub fn svg(&self) -> String {
        let height = TOP + PLOT_HEIGHT + BELOW + LEGEND_LINE * self.series.len() as f64;
        let mut out = format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {height}\" width=\"{WIDTH}\" \
             height=\"{height}\" font-family=\"sans-serif\" font-size=\"12\">\n\
             <title>{title}</title>\n\
             <rect width=\"{WIDTH}\" height=\"{height}\" fill=\"#ffffff\"/>\n\
             <text x=\"{LEFT}\" y=\"26\" font-size=\"16\" fill=\"#222222\">{title}</text>\n",
            title = escaped(&self.title)
        );
        self.grid(&mut out);
        for (n, series) in self.series.iter().enumerate() {
            self.line(&mut out, n, series);
        }
        self.legend(&mut out);
        out.push_str("</svg>\n");
        out
    }

    fn grid(&self, out: &mut String) {
        let (right, bottom) = (WIDTH - RIGHT, TOP + PLOT_HEIGHT);
        for Tick { value, label } in self.x.scale.ticks(self.x.label) {
            let (x, colour) = (self.x_at(value), grid_colour(label.is_some()));
            let _ = writeln!(out, "<path d=\"M{x:.1} {TOP}V{bottom}\" stroke=\"{colour}\"/>");
            if let Some(label) = label {
                let (y, label) = (bottom + 16.0, escaped(&label));
                let _ = writeln!(out, "<text x=\"{x:.1}\" y=\"{y}\" text-anchor=\"middle\">{label}</text>");
            }
        }
        for Tick { value, label } in self.y.scale.ticks(self.y.label) {
            let (y, colour) = (self.y_at(value), grid_colour(label.is_some()));
            let _ = writeln!(out, "<path d=\"M{LEFT} {y:.1}H{right}\" stroke=\"{colour}\"/>");
            if let Some(label) = label {
                let (x, y, label) = (LEFT - 6.0, y + 4.0, escaped(&label));
                let _ = writeln!(out, "<text x=\"{x}\" y=\"{y:.1}\" text-anchor=\"end\">{label}</text>");
            }
        }
        let _ = writeln!(out, "<path d=\"M{LEFT} {TOP}V{bottom}H{right}\" fill=\"none\" stroke=\"#444444\"/>");
        let (middle, below) = (f64::midpoint(LEFT, right), bottom + 36.0);
        let title = escaped(&self.x.title);
        let _ = writeln!(out, "<text x=\"{middle}\" y=\"{below}\" text-anchor=\"middle\">{title}</text>");
        let (middle, title) = (f64::midpoint(TOP, bottom), escaped(&self.y.title));
        let _ = writeln!(
            out,
            "<text transform=\"translate(16 {middle}) rotate(-90)\" text-anchor=\"middle\">{title}</text>"
        );
    }

    fn line(&self, out: &mut String, n: usize, series: &Series) {
        let shown: Vec<_> = series.points.iter().filter(|(x, y)| x.is_finite() && y.is_finite()).collect();
        if let [(x, y)] = shown[..] {
            let (x, y, colour) = (self.x_at(*x), self.y_at(*y), COLOURS[n % COLOURS.len()]);
            let _ = writeln!(out, "<circle cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"3\" fill=\"{colour}\"/>");
        }
        let mut path = String::new();
        for (at, (x, y)) in shown.iter().enumerate() {
            let verb = if at == 0 { 'M' } else { 'L' };
            let _ = write!(path, "{verb}{:.1} {:.1}", self.x_at(*x), self.y_at(*y));
        }
        if !path.is_empty() {
            let _ = writeln!(
                out,
                "<path d=\"{path}\" fill=\"none\" stroke-width=\"1.8\" stroke-linejoin=\"round\" {}/>",
                stroke(n)
            );
        }
    }

    fn legend(&self, out: &mut String) {
        for (n, series) in self.series.iter().enumerate() {
            let y = TOP + PLOT_HEIGHT + BELOW + LEGEND_LINE * n as f64;
            let (line_end, text, name) = (LEFT + 28.0, LEFT + 36.0, escaped(&series.name));
            let _ = writeln!(out, "<path d=\"M{LEFT} {y}H{line_end}\" stroke-width=\"2.5\" {}/>", stroke(n));
            let _ = writeln!(out, "<text x=\"{text}\" y=\"{}\">{name}</text>", y + 4.0);
        }
    }
}

fn grid_colour(named: bool) -> &'static str {
    if named { "#d8d8d8" } else { "#f0f0f0" }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::axis;

    fn plot(series: Vec<Series>) -> Plot {
        let x = Axis { title: "share & more".into(), scale: Scale::nines(1000), label: axis::short };
        let y = Axis { title: "latency <ns>".into(), scale: Scale::Log { min: 1e3, max: 1e5 }, label: axis::nanos };
        Plot { title: "One \"plot\" & its <lines>".into(), x, y, series }
    }

    fn series(name: &str, points: &[(f64, f64)]) -> Series {
        Series { name: name.into(), points: points.to_vec() }
    }

    #[test]
    fn it_is_well_formed_and_names_every_series() {
        let names = ["a <b> & \"c\"", "plain", "with\u{1}control", "nothing in it"];
        let all =
            names.map(|name| series(name, if name.starts_with("nothing") { &[] } else { &[(0.5, 2e3), (0.9, 3e4)] }));
        let svg = plot(all.to_vec()).svg();
        let document = roxmltree::Document::parse(&svg).expect("it is well formed");
        let texts: Vec<_> =
            document.descendants().filter(|n| n.has_tag_name("text")).filter_map(|n| n.text()).collect();
        for name in ["a <b> & \"c\"", "plain", "with?control", "nothing in it", "share & more", "latency <ns>", "99.9%"]
        {
            assert!(texts.contains(&name), "{name} is not in {texts:?}");
        }
        let lines = document.descendants().filter(|n| n.attribute("stroke-linejoin").is_some()).count();
        assert_eq!(lines, 3, "the empty one has no line");
    }

    #[test]
    fn points_stand_where_their_values_belong() {
        let svg = plot(vec![series("x", &[(0.0, 1e3), (f64::NAN, 1e4), (0.999, 1e5)])]).svg();
        let (right, bottom) = (WIDTH - RIGHT, TOP + PLOT_HEIGHT);
        assert!(svg.contains(&format!("d=\"M{LEFT:.1} {bottom:.1}L{right:.1} {TOP:.1}\"")), "{svg}");
    }

    #[test]
    fn a_single_point_is_a_dot_and_no_two_lines_of_a_report_look_alike() {
        assert!(plot(vec![series("x", &[(0.5, 2e3)])]).svg().contains("<circle"));
        let strokes: std::collections::BTreeSet<_> = (0..COLOURS.len() * DASHES.len()).map(stroke).collect();
        assert_eq!(strokes.len(), COLOURS.len() * DASHES.len());
    }
}
