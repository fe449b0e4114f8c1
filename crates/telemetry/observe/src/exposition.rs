//! Figures in Prometheus's text format, version 0.0.4.

use crate::{Observed, Sheet, SheetRow, Table, Taker};
use events::catalogue::ProbeFigures;
use events::{Declaration, Declared, Figures, Histogram, Kind, Unit, Value};
use std::fmt::Write as _;

/// MIME type of the document.
pub const CONTENT_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

/// Bounds of the histogram buckets, as powers of two of nanoseconds: 1 us to 69 s, each four times the
/// previous one.
const BOUND_POWERS: [u32; 14] = [10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30, 32, 34, 36];

/// Returns the exported tables. Per-user tables are private and have too many rows.
fn exported() -> impl Iterator<Item = Table> {
    Table::ALL.iter().copied().filter(|table| !table.is_private() && !table.is_of_events())
}

/// Returns the text with all figures that are not private.
pub fn exposition(observed: &dyn Observed) -> String {
    let mut text = String::new();
    let is_node = observed.is_node();
    let shown = exported().filter(|table| is_node || !table.is_of_cluster());
    shown.for_each(|table| table.read(observed, Adding(&mut text)));
    add(&mut text, &observed.probes());
    text
}

/// Returns the declarations of all metrics.
pub fn metrics() -> Vec<Declaration> {
    exported().map(Table::declarations).chain([ProbeFigures::DECLARATIONS]).flatten().copied().collect()
}

/// Appends tables to the text.
struct Adding<'a>(&'a mut String);

impl Taker for Adding<'_> {
    type Made = ();

    fn take<F: Declared + Figures>(self, sheet: &Sheet<F>) {
        add(self.0, sheet);
    }
}

fn add<F: Declared>(text: &mut String, sheet: &Sheet<F>) {
    for (index, declaration) in F::DECLARATIONS.iter().enumerate() {
        let name = declaration.metric();
        let kind = match declaration.kind {
            Kind::Counter => "counter",
            Kind::Gauge | Kind::Highest | Kind::Longest => "gauge",
            Kind::Histogram => "histogram",
        };
        let _ = writeln!(text, "# HELP {name} {}", declaration.what.trim().replace('\\', "\\\\"));
        let _ = writeln!(text, "# TYPE {name} {kind}");
        for row in &sheet.rows {
            add_value(text, &name, declaration, &labels(sheet, row), row.figures.values()[index]);
        }
    }
}

fn add_value(text: &mut String, name: &str, declaration: &Declaration, labels: &[String], value: Value<'_>) {
    match value {
        Value::Number(number) => line(text, name, labels, &number_of(declaration, number)),
        Value::Longest(longest) => line(text, name, labels, &number_of(declaration, longest.value())),
        Value::List(numbers) => {
            for (value, number) in declaration.values.iter().zip(numbers) {
                let more = [labels, &[label(declaration.label, value)]].concat();
                line(text, name, &more, &number_of(declaration, *number));
            }
        }
        Value::Histogram(histogram) => add_histogram(text, name, declaration, labels, histogram),
    }
}

fn add_histogram(
    text: &mut String,
    name: &str,
    declaration: &Declaration,
    labels: &[String],
    histogram: &Histogram,
) {
    let bucket = format!("{name}_bucket");
    let mut add = |bound: &str, count: u64| {
        line(text, &bucket, &[labels, &[label("le", bound)]].concat(), &count.to_string());
    };
    for power in BOUND_POWERS {
        let bound = (1 << power) - 1;
        add(&number_of(declaration, bound), histogram.count_up_to(bound));
    }
    add("+Inf", histogram.count());
    line(text, &format!("{name}_sum"), labels, &number_of(declaration, histogram.sum()));
    line(text, &format!("{name}_count"), labels, &histogram.count().to_string());
}

/// Returns the number in the metric's unit, exactly.
fn number_of(declaration: &Declaration, number: u64) -> String {
    match declaration.unit {
        Unit::Nanoseconds => format!("{}.{:09}", number / 1_000_000_000, number % 1_000_000_000),
        Unit::Count | Unit::Bytes => number.to_string(),
    }
}

fn labels<F>(sheet: &Sheet<F>, row: &SheetRow<F>) -> Vec<String> {
    sheet.labels.iter().zip(&row.labels).map(|(name, value)| label(name, value)).collect()
}

fn label(name: &str, value: &str) -> String {
    let value = value.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n");
    format!("{name}=\"{value}\"")
}

fn line(text: &mut String, name: &str, labels: &[String], value: &str) {
    let labels = if labels.is_empty() { String::new() } else { format!("{{{}}}", labels.join(",")) };
    let _ = writeln!(text, "{name}{labels} {value}");
}

#[cfg(test)]
mod tests;
