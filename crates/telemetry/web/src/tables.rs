//! The tables of the page: those of [`observe::Table`], as JSON. The page draws every table declared here.

use crate::Source;
use events::{Declaration, Declared, Figures, Kind, Unit};
use observe::{Sheet, Table, Taker};
use serde_json::{Value, json};

/// Describes a table for the code that draws it.
pub(crate) fn describe(table: Table) -> Value {
    json!({
        "name": table.name(),
        "title": table.title(),
        "about": table.about(),
        "private": table.is_private(),
        "labels": table.labels(),
        "figures": table.declarations().iter().map(figure).collect::<Vec<_>>(),
    })
}

/// Returns the current rows: labels, empty for the sum of all others, and the numbers of each figure in the
/// form of `GetFigures` of idl/cellar.idl. Clients may be limited to those of one volume.
pub(crate) fn rows(table: Table, source: &dyn Source, volume: u32) -> Value {
    if table == Table::Clients && volume != 0 {
        return Rows.take(&source.observed().snapshot().clients_of(volume));
    }
    table.read(source.observed(), Rows)
}

fn figure(declaration: &Declaration) -> Value {
    let kind = match declaration.kind {
        Kind::Counter => "counter",
        Kind::Gauge => "gauge",
        Kind::Highest => "highest",
        Kind::Longest => "longest",
        Kind::Histogram => "histogram",
    };
    let unit = match declaration.unit {
        Unit::Count => "count",
        Unit::Bytes => "bytes",
        Unit::Nanoseconds => "ns",
    };
    json!({
        "name": declaration.name,
        "what": declaration.what.trim(),
        "kind": kind,
        "unit": unit,
        "label": declaration.label,
        "values": declaration.values,
    })
}

/// Converts a table to rows.
struct Rows;

impl Taker for Rows {
    type Made = Value;

    fn take<F: Declared + Figures>(self, sheet: &Sheet<F>) -> Value {
        let row = |labels: &Vec<String>, figures: &F| {
            let values: Vec<Vec<u64>> = figures.values().iter().map(events::Value::numbers).collect();
            json!([labels, values])
        };
        sheet.rows.iter().map(|one| row(&one.labels, &one.figures)).collect()
    }
}
