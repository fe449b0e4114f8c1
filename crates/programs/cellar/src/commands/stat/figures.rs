//! A server's figures, and their changes between two samples.
#![allow(clippy::cast_precision_loss, reason = "rates and times are shown with three digits")]

use adminserver::{CALLS_OF_VOLUME, CLIENTS_OF_VOLUME};
use afs_idl::ClientConnection;
use afs_idl::cellar::{self, FigureRow, GetFiguresReply, GetFiguresRequest};
use anyhow::Result;
use cell_client::describe::failed;
pub(crate) use doctor::text::time;
use events::table::Look;
use events::{Declaration, Declared, Figures, Kind, Value};
use observe::Table;
use serde_json::{Map, json};
use std::net::Ipv4Addr;

/// Identifies a row.
pub(crate) type Labels = Vec<String>;

/// A table, or part of one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Source {
    Table(Table),
    /// The clients of one volume.
    ClientsOf(u32),
    /// Calls made by the clients of one volume.
    CallsOf(u32),
}

impl Source {
    fn request(self) -> GetFiguresRequest {
        let (table, volume) = match self {
            Source::Table(table) => (table.number(), 0),
            Source::ClientsOf(volume) => (CLIENTS_OF_VOLUME, volume),
            Source::CallsOf(volume) => (CALLS_OF_VOLUME, volume),
        };
        GetFiguresRequest { table, volume }
    }

    /// Returns the names of the row labels.
    pub(crate) fn labels(self) -> &'static [&'static str] {
        match self {
            Source::Table(table) => table.labels(),
            Source::ClientsOf(_) => Table::Clients.labels(),
            Source::CallsOf(_) => &["host", "user", "service", "procedure"],
        }
    }
}

/// Evaluates an expression with the figures type of a [`Source`] bound to a chosen name.
macro_rules! with_figures {
    ($source:expr, $figures:ident => $what:expr) => {
        match $source {
            $crate::commands::stat::figures::Source::Table(table) => {
                observe::with_table!(table, $figures => $what)
            }
            $crate::commands::stat::figures::Source::ClientsOf(_)
            | $crate::commands::stat::figures::Source::CallsOf(_) => {
                type $figures = events::catalogue::UsageFigures;
                $what
            }
        }
    };
}
pub(crate) use with_figures;

/// Display format of a column.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Show {
    /// Number of events.
    Count,
    /// Bytes transferred.
    Bytes,
    /// Time in nanoseconds.
    Time,
    /// Accumulated time in nanoseconds.
    Sum,
    /// Present number of things.
    Now,
    /// Present or average size in bytes.
    Size,
    /// A fraction, as returned by [`share`].
    Share,
    /// Events per second, in thousandths.
    Rate,
    /// Time in nanoseconds since 1970.
    Moment,
}

/// Returns a fraction in thousandths plus one, or 0 if `whole` is 0.
pub(crate) fn share(part: u64, whole: u64) -> u64 {
    part.saturating_mul(1000).checked_div(whole).map_or(0, |permille| permille + 1)
}

impl Show {
    /// Formats the number.
    pub(crate) fn text(self, number: u64) -> String {
        match self {
            Show::Count | Show::Now => indicatif::HumanCount(number).to_string(),
            Show::Bytes | Show::Size => indicatif::HumanBytes(number).to_string(),
            Show::Time | Show::Sum => time(number),
            Show::Moment => jiff::Timestamp::from_nanosecond(number.into())
                .map_or_else(|_| number.to_string(), |at| at.strftime("%F %T").to_string()),
            Show::Rate if (1..=9_900).contains(&number) => {
                let tenths = number.div_ceil(100);
                format!("{}.{}", tenths / 10, tenths % 10)
            }
            Show::Rate => indicatif::HumanCount((number + 500) / 1000).to_string(),
            Show::Share => number
                .checked_sub(1)
                .map_or_else(|| "-".to_owned(), |part| format!("{}.{} %", part / 10, part % 10)),
        }
    }

    /// Converts counts, bytes and accumulated times to rates per second; returns other numbers unchanged.
    pub(crate) fn rate(self, number: u64, seconds: f64) -> u64 {
        match self {
            Show::Bytes | Show::Sum => (number as f64 / seconds.max(0.001)).round() as u64,
            Show::Count => (number as f64 * 1000.0 / seconds.max(0.001)).round() as u64,
            Show::Time | Show::Now | Show::Size | Show::Share | Show::Rate | Show::Moment => number,
        }
    }

    /// Returns the display format of the rate.
    pub(crate) fn of_rate(self) -> Show {
        if self == Show::Count { Show::Rate } else { self }
    }
}

/// A column: heading, format and value.
pub(crate) type Column<F> = (&'static str, Show, fn(&F) -> u64);

/// Figures that can be shown as a table.
pub(crate) trait Tabular: Declared + Figures + 'static {
    /// Text columns.
    const COLUMNS: &'static [Column<Self>];
}

/// Fetches a table from a server.
pub(crate) fn look<F: Declared + Figures>(
    connection: &dyn ClientConnection,
    server: Ipv4Addr,
    source: Source,
) -> Result<Look<Labels, F>> {
    let reply = cellar::get_figures(connection, &source.request()).map_err(failed(format!(
        "read the figures of {server} (a Cellar server returns them to authenticated callers, and those of volumes and clients only to superusers)"
    )))?;
    Ok(read(&reply))
}

/// Decodes the figures in a reply.
pub(crate) fn read<F: Declared + Figures>(reply: &GetFiguresReply) -> Look<Labels, F> {
    let names: Vec<String> = reply.names.iter().map(|name| name.text.to_string()).collect();
    let mut look = (Vec::new(), F::default());
    for row in &reply.rows {
        let labels: Labels = row.labels.iter().map(|label| label.text.to_string()).collect();
        let figures = figures(&names, row);
        if labels.is_empty() { look.1.add(&figures) } else { look.0.push((labels, figures)) }
    }
    look
}

fn figures<F: Declared>(names: &[String], row: &FigureRow) -> F {
    F::from_numbers(|name| {
        let place = names.iter().position(|reported| reported == name);
        place.and_then(|place| row.values.get(place)).map(|value| value.numbers.clone()).unwrap_or_default()
    })
}

/// Returns all figures of a row by name, with distributions as percentiles and times in nanoseconds. If
/// `seconds` is given, counters become rates per second.
pub(crate) fn json_of<F: Declared>(
    headings: &[&str],
    labels: &Labels,
    figures: &F,
    seconds: Option<f64>,
) -> Map<String, serde_json::Value> {
    let mut object = Map::new();
    for (index, heading) in headings.iter().enumerate() {
        object.insert((*heading).to_owned(), labels.get(index).map_or(json!(null), |label| json!(label)));
    }
    for (declaration, value) in F::DECLARATIONS.iter().zip(figures.values()) {
        object.insert(declaration.key(), json_value(declaration, value, seconds));
    }
    object
}

/// Returns a rate per second with three decimals.
pub(crate) fn by_second(number: u64, seconds: f64) -> serde_json::Value {
    json!((number as f64 * 1000.0 / seconds.max(0.001)).round() / 1000.0)
}

fn json_value(declaration: &Declaration, value: Value<'_>, seconds: Option<f64>) -> serde_json::Value {
    let grown = |number| seconds.map_or_else(|| json!(number), |seconds| by_second(number, seconds));
    let number = |number| if declaration.kind == Kind::Counter { grown(number) } else { json!(number) };
    match value {
        Value::Number(value) => number(value),
        Value::Longest(longest) => number(longest.value()),
        Value::List(values) => declaration
            .values
            .iter()
            .zip(values)
            .map(|(name, value)| ((*name).to_owned(), number(*value)))
            .collect(),
        Value::Histogram(histogram) => json!({
            "count": grown(histogram.count()),
            "sum": grown(histogram.sum()),
            "mean": histogram.mean(),
            "p50": histogram.quantile(500),
            "p90": histogram.quantile(900),
            "p99": histogram.quantile(990),
            "p999": histogram.quantile(999),
            "max": histogram.max(),
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use afs_idl::cellar::{FigureText, FigureValue};
    use events::catalogue::UsageFigures;

    #[test]
    fn rates_below_ten_have_a_decimal() {
        let by_second = |number, seconds| Show::Count.of_rate().text(Show::Count.rate(number, seconds));
        assert_eq!(
            [0, 1, 20, 199, 200, 3000].map(|number| by_second(number, 20.0)),
            ["0", "0.1", "1.0", "10", "10", "150"]
        );
        assert_eq!(by_second(1, 1000.0), "0.1", "what happens is not nothing");
        assert_eq!((share(0, 0), share(1, 3)), (0, 334));
        assert_eq!([0, 1, 334, 1001].map(|part| Show::Share.text(part)), ["-", "0.0 %", "33.3 %", "100.0 %"]);
    }

    #[test]
    fn a_reply_is_read_by_names_whatever_else_it_has() {
        let text = |text: &str| FigureText { text: text.into() };
        let value = |numbers: &[u64]| FigureValue { numbers: numbers.to_vec() };
        let row = |labels: &[&str], values: &[&[u64]]| FigureRow {
            labels: labels.iter().map(|label| text(label)).collect(),
            values: values.iter().map(|numbers| value(numbers)).collect(),
        };
        let reply = GetFiguresReply {
            names: ["news", "calls", "classes"].map(text).to_vec(),
            rows: vec![row(&["7", "x"], &[&[9], &[5], &[1, 2]]), row(&[], &[&[], &[3]])],
        };
        let (rows, others) = read::<UsageFigures>(&reply);
        let [(labels, figures)] = &rows[..] else { panic!("{rows:?}") };
        assert_eq!((labels.join(" "), figures.calls, figures.classes[1]), ("7 x".to_owned(), 5, 2));
        assert_eq!(others.calls, 3);
        let json = json_of(&["volume", "name"], labels, figures, None);
        assert_eq!((&json["volume"], &json["classes"]["store"]), (&json!("7"), &json!(2)));
        assert!(json.contains_key("received_bytes") && json.contains_key("run_ns"));
        let rates = json_of(&["volume", "name"], labels, figures, Some(3.0));
        assert_eq!((&rates["calls"], &rates["classes"]["store"]), (&json!(1.667), &json!(0.667)));
    }
}
