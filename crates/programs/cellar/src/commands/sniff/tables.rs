//! A report as tables.

use crate::output::{Format, Row, line};
use anyhow::Result;
use indicatif::{HumanBytes, HumanCount};
use serde::Serialize;
use sniff::{AbortRow, CallRow, Calls, ClientRow, Flow, Report, ServerRow, Traffic, VolumeRow};

/// Number of call types that a client's row names.
const KINDS_SHOWN: usize = 3;

/// Prints a report: capture totals, the non-empty tables and the findings.
pub(super) fn show(report: &Report, top: usize) -> Result<()> {
    summary(report)?;
    table("CALLS", &report.calls, top, Call)?;
    table("SERVERS", &report.servers, top, Server)?;
    table("CLIENTS", &report.clients, top, Client)?;
    table("VOLUMES", &report.volumes, top, Volume)?;
    table("ABORTS", &report.aborts, top, Abort)?;
    line("\nFINDINGS")?;
    if report.findings.is_empty() {
        line("nothing unusual")?;
    }
    report.findings.iter().try_for_each(|finding| line(&finding.text))
}

fn summary(report: &Report) -> Result<()> {
    let captured = &report.captured;
    let packets: Vec<String> =
        report.packets.iter().map(|(kind, number)| format!("{} {kind}", count(*number))).collect();
    line(format!(
        "{:.1} s, {} frames, {}; Rx packets: {}",
        report.seconds,
        count(captured.frames),
        bytes(captured.bytes),
        if packets.is_empty() { "none".to_owned() } else { packets.join(", ") }
    ))?;
    let calls = report.total.calls;
    line(format!(
        "{} calls ended, {} aborted, {} unanswered; {} under way",
        count(calls.calls),
        count(calls.aborted),
        count(calls.unanswered),
        count(report.open)
    ))
}

fn table<'a, T, R: Row>(name: &str, rows: &'a [T], top: usize, row: impl Fn(&'a T) -> R) -> Result<()> {
    if rows.is_empty() {
        return Ok(());
    }
    let left_out = rows.len().saturating_sub(top);
    let note = if left_out > 0 { format!(" (and {left_out} more)") } else { String::new() };
    line(format!("\n{name}{note}"))?;
    Format::Text.rows(&rows.iter().take(top).map(row).collect::<Vec<R>>())
}

fn count(number: u64) -> String {
    HumanCount(number).to_string()
}

fn bytes(number: u64) -> String {
    HumanBytes(number).to_string()
}

/// Formats microseconds as milliseconds, with two decimals below 10 ms and one above.
fn ms(us: u64) -> String {
    match us {
        0..10_000 => format!("{}.{:02}", us / 1000, us % 1000 / 10),
        _ => format!("{}.{}", us / 1000, us % 1000 / 100),
    }
}

fn mean_trip(flow: &Flow) -> String {
    flow.round_trips_us.checked_div(flow.round_trips).map_or_else(|| "-".to_owned(), ms)
}

/// Headings, including those of [`call_cells`].
macro_rules! with_calls {
    ([$($before:literal),*], $count:literal, [$($after:literal),* $(,)?]) => {
        &[$($before,)* $count, "ABORTED", "UNANSWERED", "ASKED", "ANSWERED", $($after),*]
    };
}

/// Headings, including those of [`call_cells`] and [`traffic_cells`].
macro_rules! with_traffic {
    ([$($before:literal),*], $again:literal, $and_again:literal, [$($after:literal),*]) => {
        with_calls!([$($before),*], "CALLS", [
            "CONNECTIONS", "MEAN ms", "MAX ms", $again, $and_again, "DUPLICATE ACKS", "BUSY", "TRIP ms" $(, $after)*
        ])
    };
}

/// Columns common to all types of calls.
fn call_cells(calls: &Calls) -> Vec<String> {
    vec![
        count(calls.calls),
        count(calls.aborted),
        count(calls.unanswered),
        bytes(calls.request_bytes),
        bytes(calls.reply_bytes),
    ]
}

/// Columns for a host's packets.
fn traffic_cells(traffic: &Traffic) -> Vec<String> {
    let (client, server) = (&traffic.from_client, &traffic.from_server);
    let again = |flow: &Flow| format!("{}/{}", count(flow.retransmitted + flow.late), count(flow.data));
    vec![
        count(traffic.connections),
        ms(traffic.calls.latency_us_mean()),
        ms(traffic.calls.latency_us_max),
        again(client),
        again(server),
        count(client.acks_duplicate + server.acks_duplicate),
        count(traffic.busy),
        mean_trip(client),
    ]
}

#[derive(Serialize)]
struct Call<'a>(&'a CallRow);

impl Row for Call<'_> {
    const COLUMNS: &'static [&'static str] =
        with_calls!(["CALL"], "COUNT", ["FIRST ms p50", "p90", "p99", "max", "LAST ms p50", "p99", "max",]);

    fn cells(&self) -> Vec<String> {
        let (first, last) = (self.0.first, self.0.last);
        let mut cells = vec![self.0.kind.clone()];
        cells.extend(call_cells(&self.0.counts));
        let times =
            [first.p50_us, first.p90_us, first.p99_us, first.max_us, last.p50_us, last.p99_us, last.max_us];
        cells.extend(times.map(ms));
        cells
    }
}

#[derive(Serialize)]
struct Server<'a>(&'a ServerRow);

impl Row for Server<'_> {
    const COLUMNS: &'static [&'static str] =
        with_traffic!(["SERVER", "SERVICE"], "RESENT TO IT", "RESENT BY IT", []);

    fn cells(&self) -> Vec<String> {
        let mut cells = vec![self.0.server.clone(), self.0.service.clone()];
        cells.extend(call_cells(&self.0.traffic.calls));
        cells.extend(traffic_cells(&self.0.traffic));
        cells
    }
}

#[derive(Serialize)]
struct Client<'a>(&'a ClientRow);

impl Row for Client<'_> {
    const COLUMNS: &'static [&'static str] =
        with_traffic!(["CLIENT"], "RESENT BY IT", "RESENT TO IT", ["MAX OF ALL"]);

    fn cells(&self) -> Vec<String> {
        let mut cells = vec![self.0.client.clone()];
        cells.extend(call_cells(&self.0.traffic.calls));
        cells.extend(traffic_cells(&self.0.traffic));
        let mut kinds: Vec<_> = self.0.kinds.iter().collect();
        kinds.sort_by_key(|(kind, number)| (std::cmp::Reverse(**number), (*kind).clone()));
        let most = kinds.iter().take(KINDS_SHOWN).map(|(kind, number)| format!("{kind} {number}"));
        cells.push(most.collect::<Vec<_>>().join(", "));
        cells
    }
}

#[derive(Serialize)]
struct Volume<'a>(&'a VolumeRow);

impl Row for Volume<'_> {
    const COLUMNS: &'static [&'static str] = with_calls!(["VOLUME"], "CALLS", ["MEAN ms", "MAX ms"]);

    fn cells(&self) -> Vec<String> {
        let counts = &self.0.counts;
        let mut cells = vec![self.0.volume.clone()];
        cells.extend(call_cells(counts));
        cells.extend([ms(counts.latency_us_mean()), ms(counts.latency_us_max)]);
        cells
    }
}

#[derive(Serialize)]
struct Abort<'a>(&'a AbortRow);

impl Row for Abort<'_> {
    const COLUMNS: &'static [&'static str] = &["CODE", "NAME", "CALL", "COUNT"];

    fn cells(&self) -> Vec<String> {
        let AbortRow { code, name, kind, calls } = self.0;
        vec![code.to_string(), name.unwrap_or("-").to_owned(), kind.to_string(), count(*calls)]
    }
}
