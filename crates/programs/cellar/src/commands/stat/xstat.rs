//! `cellar stat xstat`: the extended statistics that file servers and clients, including OpenAFS's, return to
//! any caller (GetXStats).

use super::address::ServerAddress;
use super::again::Again;
use crate::commands::Context;
use crate::output::{Format, Row, line};
use afs_idl::ClientConnection;
use afs_idl::fs::statistics_collection as collection;
use afs_idl::{cb, fs};
use anyhow::Result;
use cell_client::Network;
use cell_client::describe::failed;
use cell_client::network::AfsNetwork;
use clap::Args;
use serde::Serialize;

pub(crate) mod layout;

use layout::{Figure, Layout, Operation};

/// Version of the layouts (AFS_XSTAT_VERSION, AFSCB_XSTAT_VERSION).
const VERSION: i32 = 2;

/// Show the extended statistics of a file server or client.
#[derive(Args)]
pub struct Xstat {
    /// Server or client to query; the port defaults to 7000, with --client to 7001.
    #[arg(value_name = "HOST[:PORT]")]
    at: ServerAddress,
    /// Collection: 0 calls, 1 performance, 2 performance with each type of call, 3 (file servers only)
    /// callbacks.
    #[arg(long, default_value_t = 2)]
    collection: i32,
    /// Query a client's cache manager; its figures are shown by number, without names.
    #[arg(long)]
    client: bool,
    #[command(flatten)]
    again: Again,
}

/// A decoded collection.
#[derive(Serialize)]
struct Decoded {
    server: String,
    collection: i32,
    server_version: i32,
    time: i32,
    figures: Vec<FigureRow>,
    operations: Vec<OperationRow>,
}

#[derive(Serialize)]
struct FigureRow {
    figure: String,
    value: i64,
    #[serde(skip_serializing_if = "Option::is_none")]
    since: Option<i64>,
}

#[derive(Serialize)]
struct OperationRow {
    operation: &'static str,
    calls: i64,
    successes: i64,
    time_us: u64,
    time_us_min: u64,
    time_us_max: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    kib: Option<i64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    calls_since: Option<i64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    time_us_since: Option<u64>,
}

/// Reply of a server or client.
struct Answer {
    version: i32,
    time: i32,
    layout: Layout,
}

/// Runs the command.
pub(super) fn run(context: &Context, xstat: &Xstat) -> Result<()> {
    let (port, service) = if xstat.client { (cb::PORT, cb::SERVICE_ID) } else { (fs::PORT, fs::SERVICE_ID) };
    let server = xstat.at.resolve(port)?;
    let network = AfsNetwork::start(None)?;
    let connection = network.connect(server.into(), service);
    let mut before = xstat.ask(&*connection, &server.to_string())?;
    show(context.format, &xstat.decode(&server.to_string(), &before, None))?;
    xstat.again.each(|| {
        let now = xstat.ask(&*connection, &server.to_string())?;
        show(context.format, &xstat.decode(&server.to_string(), &now, Some(&before)))?;
        before = now;
        Ok(())
    })
}

impl Xstat {
    fn ask(&self, connection: &dyn ClientConnection, server: &str) -> Result<Answer> {
        let collection = self.collection;
        let doing = failed(format!("ask {server} for collection {collection} of its statistics"));
        if self.client {
            let request = cb::GetXStatsRequest { client_version: VERSION, collection };
            let reply = cb::get_x_stats(connection, &request).map_err(doing)?;
            let layout = Layout::numbered(&reply.data);
            return Ok(Answer { version: reply.server_version, time: reply.time, layout });
        }
        let request = fs::GetXStatsRequest { client_version: VERSION, collection };
        let reply = fs::get_x_stats(connection, &request).map_err(doing)?;
        let layout = Layout::of_file_server(collection, &reply.data);
        Ok(Answer { version: reply.server_version, time: reply.time, layout })
    }

    fn decode(&self, server: &str, now: &Answer, before: Option<&Answer>) -> Decoded {
        let old = before.map(|before| &before.layout);
        let figures = now.layout.figures.iter().enumerate().map(|(place, figure)| {
            let old = old.and_then(|old| old.figures.get(place));
            FigureRow::new(figure, old)
        });
        let operations = now.layout.operations.iter().enumerate().map(|(place, operation)| {
            let old = old.and_then(|old| old.operations.get(place));
            OperationRow::new(operation, old)
        });
        Decoded {
            server: server.to_owned(),
            collection: self.collection,
            server_version: now.version,
            time: now.time,
            figures: figures.collect(),
            operations: operations.collect(),
        }
    }
}

impl FigureRow {
    fn new(figure: &Figure, old: Option<&Figure>) -> FigureRow {
        let since = old.map(|old| figure.value - old.value);
        FigureRow { figure: figure.name.clone(), value: figure.value, since }
    }
}

impl OperationRow {
    /// A restarted server counts from zero.
    fn new(operation: &Operation, old: Option<&Operation>) -> OperationRow {
        let old = old.filter(|old| old.calls <= operation.calls);
        OperationRow {
            operation: operation.name,
            calls: operation.calls,
            successes: operation.successes,
            time_us: operation.time_us,
            time_us_min: operation.time_us_min,
            time_us_max: operation.time_us_max,
            kib: operation.kib,
            calls_since: old.map(|old| operation.calls - old.calls),
            time_us_since: old.map(|old| operation.time_us.saturating_sub(old.time_us)),
        }
    }
}

/// Fetches a file server's performance with each type of call, and its callback counters.
pub(crate) fn collections(connection: &dyn ClientConnection) -> Result<[Layout; 2]> {
    let ask = |collection: i32| -> Result<Layout> {
        let request = fs::GetXStatsRequest { client_version: VERSION, collection };
        let reply = fs::get_x_stats(connection, &request)
            .map_err(failed(format!("ask for collection {collection} of the statistics")))?;
        Ok(Layout::of_file_server(collection, &reply.data))
    };
    Ok([ask(collection::FULL_PERFORMANCE)?, ask(collection::CALLBACKS)?])
}

fn show(format: Format, reported: &Decoded) -> Result<()> {
    if format == Format::Json {
        return format.done(reported, "");
    }
    line(format!(
        "{}: collection {}, version {}",
        reported.server, reported.collection, reported.server_version
    ))?;
    if reported.figures.is_empty() && reported.operations.is_empty() {
        return line("nothing in this collection");
    }
    format.rows(&reported.figures)?;
    if !reported.operations.is_empty() {
        line("")?;
        let called: Vec<&OperationRow> = reported.operations.iter().filter(|row| row.calls > 0).collect();
        format.rows(&called)?;
    }
    Ok(())
}

impl Row for FigureRow {
    const COLUMNS: &'static [&'static str] = &["FIGURE", "VALUE", "SINCE"];

    fn cells(&self) -> Vec<String> {
        let since = self.since.map_or_else(String::new, |since| since.to_string());
        vec![self.figure.clone(), self.value.to_string(), since]
    }
}

impl Row for &OperationRow {
    const COLUMNS: &'static [&'static str] =
        &["CALL", "COUNT", "SUCCEEDED", "MEAN us", "MIN us", "MAX us", "KiB", "+COUNT", "+MEAN us"];

    fn cells(&self) -> Vec<String> {
        let mean = |time_us: u64, calls: i64| {
            time_us
                .checked_div(u64::try_from(calls).unwrap_or(0))
                .map_or_else(|| "-".to_owned(), |us| us.to_string())
        };
        let some = |number: Option<i64>| number.map_or_else(String::new, |number| number.to_string());
        let mean_since =
            self.time_us_since.zip(self.calls_since).map(|(time_us, calls)| mean(time_us, calls));
        vec![
            self.operation.to_owned(),
            self.calls.to_string(),
            self.successes.to_string(),
            mean(self.time_us, self.successes),
            self.time_us_min.to_string(),
            self.time_us_max.to_string(),
            some(self.kib),
            some(self.calls_since),
            mean_since.unwrap_or_default(),
        ]
    }
}
