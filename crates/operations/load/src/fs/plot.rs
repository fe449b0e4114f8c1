//! A plot of latency over time.

use super::latency::{Distribution, Interval};
use super::report::Report;
use std::fmt::Write;

/// Size of the picture and of the plotting area, in its units.
const WIDTH: f64 = 900.0;
const HEIGHT: f64 = 420.0;
const LEFT: f64 = 70.0;
const RIGHT: f64 = 720.0;
const TOP: f64 = 40.0;
const BOTTOM: f64 = 370.0;

/// Colours of the groups, reused after the last.
const COLOURS: [&str; 6] = ["#1b6ca8", "#c8553d", "#3c8d53", "#7d4e9e", "#b5892b", "#555555"];

/// A percentile to draw: name, dash pattern, value.
type Line = (&'static str, &'static str, fn(&Distribution) -> f64);
const LINES: [Line; 3] = [
    ("p50", "", |latency| latency.p50_us),
    ("p99", "6 3", |latency| latency.p99_us),
    ("max", "1 3", |latency| latency.max_us),
];

/// Renders the plot as SVG, with time from left to right and latency upwards on a logarithmic scale.
pub fn svg(report: &Report) -> String {
    let scale = Scale::of(report);
    let mut out = String::new();
    let _ = write!(
        out,
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {HEIGHT}\" font-family=\"sans-serif\" \
         font-size=\"12\">\n<rect width=\"{WIDTH}\" height=\"{HEIGHT}\" fill=\"white\"/>\n"
    );
    text(&mut out, LEFT, TOP - 16.0, "start", &format!("{} ({} clients)", report.title, report.clients));
    scale.axes(&mut out);
    for (number, group) in report.groups.iter().enumerate() {
        let colour = COLOURS[number % COLOURS.len()];
        let y = TOP + 14.0 + 70.0 * number as f64;
        text(&mut out, RIGHT + 20.0, y, "start", &group.name);
        for (line, (name, dashes, value)) in LINES.iter().enumerate() {
            let y = y + 16.0 * (line + 1) as f64;
            let stroke = format!("stroke=\"{colour}\" stroke-width=\"1.5\" stroke-dasharray=\"{dashes}\"");
            let _ = writeln!(
                out,
                "<line x1=\"{}\" y1=\"{}\" x2=\"{}\" y2=\"{}\" {stroke}/>",
                RIGHT + 20.0,
                y - 4.0,
                RIGHT + 50.0,
                y - 4.0
            );
            text(&mut out, RIGHT + 56.0, y, "start", name);
            let points = scale.points(&group.timeline, *value);
            let _ = writeln!(out, "<polyline fill=\"none\" {stroke} points=\"{points}\"/>");
        }
    }
    out.push_str("</svg>\n");
    out
}

/// Converts seconds and microseconds to coordinates.
struct Scale {
    seconds: f64,
    /// Exponents of ten, in microseconds, of the lower and upper edge.
    from: i32,
    to: i32,
}

impl Scale {
    fn of(report: &Report) -> Scale {
        let intervals = report.groups.iter().flat_map(|group| &group.timeline);
        let intervals: Vec<&Interval> = intervals.filter(|interval| interval.latency.calls > 0).collect();
        let least = intervals.iter().map(|interval| interval.latency.p50_us).fold(f64::MAX, f64::min);
        let most = intervals.iter().map(|interval| interval.latency.max_us).fold(1.0, f64::max);
        let from = least.clamp(1.0, 1e9).log10().floor() as i32;
        let to = most.clamp(1.0, 1e12).log10().ceil() as i32;
        Scale { seconds: report.used.seconds.max(1e-3), from, to: to.max(from + 1) }
    }

    fn x(&self, second: f64) -> f64 {
        LEFT + (RIGHT - LEFT) * (second / self.seconds).clamp(0.0, 1.0)
    }

    fn y(&self, microseconds: f64) -> f64 {
        let power = microseconds.max(1e-3).log10();
        let share = (power - f64::from(self.from)) / f64::from(self.to - self.from);
        BOTTOM - (BOTTOM - TOP) * share.clamp(0.0, 1.0)
    }

    fn points(&self, timeline: &[Interval], value: fn(&Distribution) -> f64) -> String {
        let seen = timeline.iter().filter(|interval| interval.latency.calls > 0);
        let point = |interval: &Interval| {
            format!("{:.1},{:.1}", self.x(interval.second), self.y(value(&interval.latency)))
        };
        seen.map(point).collect::<Vec<_>>().join(" ")
    }

    fn axes(&self, out: &mut String) {
        for power in self.from..=self.to {
            let y = self.y(10f64.powi(power));
            let _ = writeln!(out, "<path d=\"M{LEFT} {y:.1}H{RIGHT}\" stroke=\"#cccccc\"/>");
            text(out, LEFT - 8.0, y + 4.0, "end", &format!("{} ms", 10f64.powi(power) / 1e3));
        }
        for tenth in [0.0, 0.25, 0.5, 0.75, 1.0] {
            let second = self.seconds * tenth;
            text(out, self.x(second), BOTTOM + 18.0, "middle", &format!("{second:.0} s"));
        }
    }
}

fn text(out: &mut String, x: f64, y: f64, anchor: &str, text: &str) {
    let text = text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;");
    let _ = writeln!(out, "<text x=\"{x:.1}\" y=\"{y:.1}\" text-anchor=\"{anchor}\">{text}</text>");
}
