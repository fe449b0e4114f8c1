//! What a server counted, as it tells it, and what came between two looks.
#![allow(clippy::cast_precision_loss, reason = "rates and times are shown with three digits")]

use crate::client::describe::failed;
use adminserver::tables;
use afs_idl::ClientConnection;
use afs_idl::cellar::{self, FigureRow, GetFiguresReply, GetFiguresRequest};
use anyhow::Result;
pub(crate) use doctor::text::time;
use events::catalogue::{
    AuditFigures, CacheCounts, CallFigures, DiskFigures, EventFigures, HostFigures, LaneFigures, LockFigures,
    PeerFigures, UsageFigures, WorkerFigures,
};
use events::table::Look;
use events::{Declaration, Declared, Figures, Value};
use serde_json::{Map, json};
use std::net::Ipv4Addr;

/// What a row is about.
pub(crate) type Labels = Vec<String>;

/// Which table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Source {
    Calls,
    Volumes,
    Clients,
    ClientsOf(u32),
    CallsOf(u32),
    Hosts,
    Disks,
    Lanes,
    Workers,
    Caches,
    Locks,
    Events,
    Callbacks,
    Partitions,
    Process,
    Audit,
    Peers,
}

impl Source {
    fn request(self) -> GetFiguresRequest {
        let (table, volume) = match self {
            Source::Calls => (tables::CALLS, 0),
            Source::Volumes => (tables::VOLUMES, 0),
            Source::Clients => (tables::CLIENTS, 0),
            Source::ClientsOf(volume) => (tables::CLIENTS_OF_VOLUME, volume),
            Source::CallsOf(volume) => (tables::CALLS_OF_VOLUME, volume),
            Source::Hosts => (tables::HOSTS, 0),
            Source::Disks => (tables::DISKS, 0),
            Source::Lanes => (tables::LANES, 0),
            Source::Workers => (tables::WORKERS, 0),
            Source::Caches => (tables::CACHES, 0),
            Source::Locks => (tables::LOCKS, 0),
            Source::Events => (tables::EVENT_LINES, 0),
            Source::Callbacks => (tables::CALLBACKS, 0),
            Source::Partitions => (tables::PARTITIONS, 0),
            Source::Process => (tables::PROCESS, 0),
            Source::Audit => (tables::AUDIT, 0),
            Source::Peers => (tables::PEERS, 0),
        };
        GetFiguresRequest { table, volume }
    }
}

/// How the number of a column is shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Show {
    /// Things that happened.
    Count,
    /// Bytes that were moved.
    Bytes,
    /// Nanoseconds.
    Time,
    /// Nanoseconds that add up.
    Sum,
    /// Things that there are now.
    Now,
    /// Bytes as they are now, or on average.
    Size,
    /// A part of a whole, as [`share`] makes it.
    Share,
    /// Thousandths of things that happened in a second.
    Rate,
}

/// A part of a whole in thousandths and one more, so that of nothing it is 0.
pub(crate) fn share(part: u64, whole: u64) -> u64 {
    part.saturating_mul(1000).checked_div(whole).map_or(0, |permille| permille + 1)
}

impl Show {
    /// The number for people.
    pub(crate) fn text(self, number: u64) -> String {
        match self {
            Show::Count | Show::Now => indicatif::HumanCount(number).to_string(),
            Show::Bytes | Show::Size => indicatif::HumanBytes(number).to_string(),
            Show::Time | Show::Sum => time(number),
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

    /// The number by second, if it is one of those that grow while something happens.
    pub(crate) fn rate(self, number: u64, seconds: f64) -> u64 {
        match self {
            Show::Bytes | Show::Sum => (number as f64 / seconds.max(0.001)).round() as u64,
            Show::Count => (number as f64 * 1000.0 / seconds.max(0.001)).round() as u64,
            Show::Time | Show::Now | Show::Size | Show::Share | Show::Rate => number,
        }
    }

    /// How that is shown.
    pub(crate) fn of_rate(self) -> Show {
        if self == Show::Count { Show::Rate } else { self }
    }
}

/// A column: its heading, and what stands in it.
pub(crate) type Column<F> = (&'static str, Show, fn(&F) -> u64);

/// Figures that tables show.
pub(crate) trait Shown: Declared + Figures + 'static {
    /// Columns for people.
    const COLUMNS: &'static [Column<Self>];
}

/// Asks a server.
pub(crate) fn look<F: Declared + Figures>(
    connection: &dyn ClientConnection,
    server: Ipv4Addr,
    source: Source,
) -> Result<Look<Labels, F>> {
    let reply = cellar::get_figures(connection, &source.request()).map_err(failed(format!(
        "ask {server} what it counted (Cellar's servers tell it, of volumes and clients only to superusers)"
    )))?;
    Ok(read(&reply))
}

/// The figures of a reply.
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
    F::told(|name| {
        let place = names.iter().position(|told| told == name);
        place.and_then(|place| row.values.get(place)).map(|value| value.numbers.clone()).unwrap_or_default()
    })
}

/// All figures of a row under their names, distributions as what people ask of them; times in nanoseconds.
pub(crate) fn json_of<F: Declared>(
    headings: &[&str],
    labels: &Labels,
    figures: &F,
) -> Map<String, serde_json::Value> {
    let mut object = Map::new();
    for (index, heading) in headings.iter().enumerate() {
        object.insert((*heading).to_owned(), labels.get(index).map_or(json!(null), |label| json!(label)));
    }
    for (declaration, value) in F::DECLARATIONS.iter().zip(figures.values()) {
        object.insert(key(declaration), json_value(declaration, value));
    }
    object
}

/// The name with the unit, as style has it.
fn key(declaration: &Declaration) -> String {
    let unit = match declaration.unit {
        events::Unit::Count => "",
        events::Unit::Bytes => "_bytes",
        events::Unit::Nanoseconds => "_ns",
    };
    format!("{}{unit}", declaration.name)
}

fn json_value(declaration: &Declaration, value: Value<'_>) -> serde_json::Value {
    match value {
        Value::Number(number) => json!(number),
        Value::List(numbers) => declaration
            .values
            .iter()
            .zip(numbers)
            .map(|(name, number)| ((*name).to_owned(), json!(number)))
            .collect(),
        Value::Histogram(histogram) => json!({
            "count": histogram.count(),
            "sum": histogram.sum(),
            "mean": histogram.mean(),
            "p50": histogram.quantile(500),
            "p90": histogram.quantile(900),
            "p99": histogram.quantile(990),
            "p999": histogram.quantile(999),
            "max": histogram.max(),
        }),
    }
}

fn mean(sum: u64, of: u64) -> u64 {
    sum.checked_div(of).unwrap_or(0)
}

impl Shown for CallFigures {
    const COLUMNS: &'static [Column<CallFigures>] = &[
        ("CALLS", Show::Count, |row| row.calls),
        ("FAILED", Show::Count, |row| row.calls.saturating_sub(row.outcomes[0])),
        ("AT ONCE", Show::Count, |row| row.at_once),
        ("IN", Show::Bytes, |row| row.received),
        ("OUT", Show::Bytes, |row| row.sent),
        ("WAIT P50", Show::Time, |row| row.wait.quantile(500)),
        ("WAIT P99", Show::Time, |row| row.wait.quantile(990)),
        ("RUN MEAN", Show::Time, |row| row.run.mean()),
        ("P50", Show::Time, |row| row.run.quantile(500)),
        ("P90", Show::Time, |row| row.run.quantile(900)),
        ("P99", Show::Time, |row| row.run.quantile(990)),
        ("MAX", Show::Time, |row| row.run.max()),
    ];
}

/// Columns, with those of calls by class between the first and the last.
macro_rules! with_classes {
    ([$($first:expr),* $(,)?], [$($last:expr),* $(,)?]) => {
        &[
            $($first,)*
            ("FETCH", Show::Count, |row| row.classes[0]),
            ("STORE", Show::Count, |row| row.classes[1]),
            ("STATUS", Show::Count, |row| row.classes[2]),
            ("CHANGE", Show::Count, |row| row.classes[3]),
            ("LOCK", Show::Count, |row| row.classes[4]),
            ("OTHER", Show::Count, |row| row.classes[5]),
            ("FAILED", Show::Count, |row| row.failed),
            $($last,)*
        ]
    };
}

impl Shown for UsageFigures {
    const COLUMNS: &'static [Column<UsageFigures>] = with_classes!(
        [("CALLS", Show::Count, |row| row.calls)],
        [
            ("IN", Show::Bytes, |row| row.received),
            ("OUT", Show::Bytes, |row| row.sent),
            ("MEAN SIZE", Show::Size, |row| mean(row.received.saturating_add(row.sent), row.calls)),
            ("MEAN", Show::Time, |row| mean(row.wait.saturating_add(row.run), row.calls)),
            ("LONGEST", Show::Time, |row| row.longest),
        ]
    );
}

impl Shown for HostFigures {
    const COLUMNS: &'static [Column<HostFigures>] = with_classes!(
        [
            ("CALLS", Show::Count, |row| row.calls),
            ("CONNECTIONS", Show::Now, |row| row.connections),
            ("OPENED", Show::Count, |row| row.opened),
        ],
        [
            ("I/O", Show::Count, |row| row.data_calls),
            ("I/O BYTES", Show::Bytes, |row| row.data),
            ("MEAN SIZE", Show::Size, |row| mean(row.data, row.data_calls)),
            ("MEAN", Show::Time, |row| mean(row.data_time, row.data_calls)),
            ("LONGEST", Show::Time, |row| row.data_longest),
        ]
    );
}

impl Shown for DiskFigures {
    const COLUMNS: &'static [Column<DiskFigures>] = &[
        ("ACCESSES", Show::Count, |row| row.accesses),
        ("FAILED", Show::Count, |row| row.failed),
        ("BUFFERED", Show::Count, |row| row.buffered),
        ("BYTES", Show::Bytes, |row| row.moved),
        ("MEAN SIZE", Show::Size, |row| mean(row.moved, row.accesses)),
        ("MEAN", Show::Time, |row| row.time.mean()),
        ("P50", Show::Time, |row| row.time.quantile(500)),
        ("P99", Show::Time, |row| row.time.quantile(990)),
        ("MAX", Show::Time, |row| row.time.max()),
    ];
}

impl Shown for LockFigures {
    const COLUMNS: &'static [Column<LockFigures>] = &[
        ("WAITS", Show::Count, |row| row.waits),
        ("WAITED", Show::Sum, |row| row.wait.sum()),
        ("MEAN", Show::Time, |row| row.wait.mean()),
        ("P50", Show::Time, |row| row.wait.quantile(500)),
        ("P99", Show::Time, |row| row.wait.quantile(990)),
        ("MAX", Show::Time, |row| row.wait.max()),
        ("WAITING", Show::Now, |row| row.waiting),
    ];
}

impl Shown for EventFigures {
    const COLUMNS: &'static [Column<EventFigures>] = &[
        ("ON", Show::Now, |row| row.on),
        ("FROM", Show::Time, |row| row.from),
        ("LINES", Show::Count, |row| row.written),
        ("LEFT OUT", Show::Count, |row| row.dropped),
    ];
}

impl Shown for LaneFigures {
    const COLUMNS: &'static [Column<LaneFigures>] = &[
        ("PACKETS IN", Show::Count, |row| row.received_datagrams),
        ("BYTES IN", Show::Bytes, |row| row.received),
        ("PACKETS OUT", Show::Count, |row| row.sent_datagrams),
        ("BYTES OUT", Show::Bytes, |row| row.sent),
        ("DROPPED", Show::Count, |row| row.kernel_drops),
        ("TWICE", Show::Count, |row| row.data_duplicates),
        ("RESENT", Show::Count, |row| row.data_resent),
        ("TIMEOUTS", Show::Count, |row| row.timeouts),
        ("SEND WAITS", Show::Count, |row| row.send_waits),
        ("MEAN RTT", Show::Time, |row| mean(row.round_trip, row.round_trips)),
        ("CONNECTIONS", Show::Now, |row| row.connections),
        ("CALLS", Show::Now, |row| row.calls_present),
        ("PEERS", Show::Now, |row| row.peers),
    ];
}

impl Shown for WorkerFigures {
    const COLUMNS: &'static [Column<WorkerFigures>] = &[
        ("THREADS", Show::Now, |row| row.threads),
        ("LIMIT", Show::Now, |row| row.limit),
        ("BUSY", Show::Now, |row| row.busy),
        ("FULL", Show::Now, |row| row.full),
        ("WAITING", Show::Now, |row| row.waiting),
        ("ARRIVED", Show::Count, |row| row.arrived),
        ("REFUSED", Show::Count, |row| row.refused),
        ("PANICKED", Show::Count, |row| row.panicked),
    ];
}

impl Shown for CacheCounts {
    const COLUMNS: &'static [Column<CacheCounts>] = &[
        ("HITS", Show::Count, |row| row.hits),
        ("MISSES", Show::Count, |row| row.misses),
        ("RATE", Show::Share, |row| share(row.hits, row.hits.saturating_add(row.misses))),
        ("EVICTED", Show::Count, |row| row.evictions),
        ("PURGED", Show::Count, |row| row.purged),
        ("ENTRIES", Show::Now, |row| row.entries),
        ("IN USE", Show::Size, |row| row.held),
        ("PEAK", Show::Size, |row| row.held_max),
        ("LIMIT", Show::Size, |row| row.limit),
        ("RECYCLE AGE", Show::Time, |row| row.recycle_age),
    ];
}

impl Shown for PeerFigures {
    const COLUMNS: &'static [Column<PeerFigures>] = &[
        ("PACKETS IN", Show::Count, |row| row.received_packets),
        ("BYTES IN", Show::Bytes, |row| row.received),
        ("DATA OUT", Show::Count, |row| row.data_sent),
        ("RESENT", Show::Count, |row| row.data_resent),
        ("BYTES OUT", Show::Bytes, |row| row.sent),
        ("OPENED", Show::Count, |row| row.opened),
        ("CONNECTIONS", Show::Now, |row| row.connections),
        ("RTT", Show::Time, |row| row.round_trip),
        ("+-", Show::Time, |row| row.variation),
        ("RTT P50", Show::Time, |row| row.round_trips.quantile(500)),
        ("RTT P99", Show::Time, |row| row.round_trips.quantile(990)),
        ("TIMEOUT", Show::Time, |row| row.timeout),
        ("WINDOW", Show::Now, |row| row.window),
        ("CWND", Show::Now, |row| row.congestion_window),
        ("PACKET", Show::Size, |row| row.packet),
    ];
}

impl Shown for AuditFigures {
    const COLUMNS: &'static [Column<AuditFigures>] = &[
        ("RECORDS", Show::Count, |row| row.records),
        ("BYTES", Show::Bytes, |row| row.written),
        ("DROPPED", Show::Count, |row| row.dropped),
        ("WAITS", Show::Count, |row| row.waits),
        ("MEAN WAIT", Show::Time, |row| mean(row.blocked, row.waits)),
        ("FAILURES", Show::Count, |row| row.failures),
        ("FAILING", Show::Now, |row| row.failing),
        ("QUEUED", Show::Now, |row| row.queued),
        ("OF", Show::Now, |row| row.queue_limit),
    ];
}

#[cfg(test)]
mod tests {
    use super::*;
    use afs_idl::cellar::{FigureText, FigureValue};

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
        let json = json_of(&["volume", "name"], labels, figures);
        assert_eq!((&json["volume"], &json["classes"]["store"]), (&json!("7"), &json!(2)));
        assert!(json.contains_key("received_bytes") && json.contains_key("run_ns"));
    }
}
