//! The results as tables.

use crate::bounded::Bounded;
use crate::findings;
use crate::kind::{Kind, Service};
use crate::sniffer::{Captured, Sniffer};
use crate::traffic::{Calls, KindCounts, Percentiles, Traffic};
use base::AbortCode;
use rx_proto::PacketType;
use serde::Serialize;
use std::collections::BTreeMap;
use std::hash::Hash;
use std::net::Ipv4Addr;
use std::time::Duration;

/// Name of the row shared by all keys beyond a limit.
const OTHERS: &str = "others";

/// All results.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    /// Statistics of the capture.
    pub captured: Captured,
    /// Seconds between the first and the last frame.
    pub seconds: f64,
    /// Rx packets by type; a jumbogram counts once.
    pub packets: BTreeMap<&'static str, u64>,
    /// Sum over all connections.
    pub total: Traffic,
    /// Calls in progress.
    pub open: u64,
    /// By kind, the most frequent first.
    pub calls: Vec<CallRow>,
    /// By server, the one with most calls first.
    pub servers: Vec<ServerRow>,
    /// By client, the one with most calls first.
    pub clients: Vec<ClientRow>,
    /// By volume, the one with most bytes first.
    pub volumes: Vec<VolumeRow>,
    /// By code and kind, the most frequent first.
    pub aborts: Vec<AbortRow>,
    /// Unusual observations, in sentences.
    pub findings: Vec<Finding>,
}

/// A kind of call.
#[derive(Clone, Debug, Serialize)]
pub struct CallRow {
    /// Name of the kind.
    pub kind: String,
    /// Counts of its calls.
    #[serde(flatten)]
    pub counts: Calls,
    /// Time from the last packet of the request to the first packet of the reply.
    pub first: Percentiles,
    /// Time from the last packet of the request to the last packet of the reply.
    pub last: Percentiles,
}

/// A server.
#[derive(Clone, Debug, Serialize)]
pub struct ServerRow {
    /// Address and port.
    pub server: String,
    /// Service at that port.
    pub service: String,
    /// Counts of its traffic.
    #[serde(flatten)]
    pub traffic: Traffic,
}

/// A client.
#[derive(Clone, Debug, Serialize)]
pub struct ClientRow {
    /// Address of the client.
    pub client: String,
    /// Counts of its traffic.
    #[serde(flatten)]
    pub traffic: Traffic,
    /// Its completed calls, by kind.
    pub kinds: BTreeMap<String, u64>,
}

/// A volume, identified by the first FID in a call. If opcodes are encrypted, anything that looks like a FID
/// is used.
#[derive(Clone, Debug, Serialize)]
pub struct VolumeRow {
    /// Volume id.
    pub volume: String,
    /// Counts of its calls.
    #[serde(flatten)]
    pub counts: Calls,
}

/// Calls of one kind that ended with one abort code.
#[derive(Clone, Debug, Serialize)]
pub struct AbortRow {
    /// Abort code.
    pub code: i32,
    /// Name of the code, if known.
    pub name: Option<&'static str>,
    /// Kind of call.
    pub kind: Kind,
    /// Number of calls.
    pub calls: u64,
}

/// An unusual observation.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// Subject: a host, a kind of call, or the capture.
    pub about: String,
    /// Description in one sentence.
    pub text: String,
}

impl Report {
    pub(crate) fn new(sniffer: &Sniffer, open: u64) -> Report {
        let captured = sniffer.captured;
        let mut report = Report {
            captured,
            seconds: Duration::from_nanos(captured.last_ns.saturating_sub(captured.first_ns)).as_secs_f64(),
            packets: packets(sniffer),
            total: sniffer.total,
            open,
            calls: calls(&sniffer.kinds),
            servers: servers(sniffer),
            clients: clients(sniffer),
            volumes: volumes(sniffer),
            aborts: aborts(sniffer),
            findings: Vec::new(),
        };
        report.findings = findings::find(&report);
        report
    }
}

fn packets(sniffer: &Sniffer) -> BTreeMap<&'static str, u64> {
    let types = (1..).map_while(PacketType::from_wire);
    types
        .map(|kind| (type_name(kind), sniffer.packets[kind.index()]))
        .filter(|(_, count)| *count > 0)
        .collect()
}

fn type_name(kind: PacketType) -> &'static str {
    match kind {
        PacketType::Data => "data",
        PacketType::Ack => "ack",
        PacketType::Busy => "busy",
        PacketType::Abort => "abort",
        PacketType::AckAll => "ackall",
        PacketType::Challenge => "challenge",
        PacketType::Response => "response",
        PacketType::Debug => "debug",
        PacketType::Params => "params",
        PacketType::Unused10 => "type-10",
        PacketType::Unused11 => "type-11",
        PacketType::Unused12 => "type-12",
        PacketType::Version => "version",
    }
}

/// Returns the table's rows by name, including the one for keys beyond its limit.
fn named<'a, K: Eq + Hash + 'a, V: Default>(
    table: &'a Bounded<K, V>,
    name: impl Fn(&K) -> String,
) -> Vec<(String, &'a V)> {
    let rows = table.iter().map(|(key, value)| (name(key), value));
    rows.chain(table.others().map(|value| (OTHERS.to_owned(), value))).collect()
}

fn calls(kinds: &Bounded<Kind, KindCounts>) -> Vec<CallRow> {
    let row = |(kind, counts): (String, &KindCounts)| CallRow {
        kind,
        counts: counts.counts,
        first: counts.first.summary(),
        last: counts.last.summary(),
    };
    let mut rows: Vec<CallRow> = named(kinds, Kind::to_string).into_iter().map(row).collect();
    rows.sort_by(|a, b| (b.counts.calls, &a.kind).cmp(&(a.counts.calls, &b.kind)));
    rows
}

fn servers(sniffer: &Sniffer) -> Vec<ServerRow> {
    let row = |server, service: Option<Service>, traffic: &Traffic| ServerRow {
        server,
        service: service.map_or_else(String::new, |service| service.to_string()),
        traffic: *traffic,
    };
    let known = sniffer.servers.iter();
    let mut rows: Vec<ServerRow> = known
        .map(|((address, service), traffic)| row(address.to_string(), Some(*service), traffic))
        .collect();
    rows.extend(sniffer.servers.others().map(|traffic| row(OTHERS.to_owned(), None, traffic)));
    rows.sort_by(|a, b| order(&a.traffic, &a.server, &b.traffic, &b.server));
    rows
}

fn clients(sniffer: &Sniffer) -> Vec<ClientRow> {
    let mut kinds: BTreeMap<Ipv4Addr, BTreeMap<String, u64>> = BTreeMap::new();
    for ((client, kind), count) in sniffer.client_kinds.iter() {
        kinds.entry(*client).or_default().insert(kind.to_string(), *count);
    }
    let known = sniffer.clients.iter().map(|(client, traffic)| ClientRow {
        client: client.to_string(),
        traffic: *traffic,
        kinds: kinds.remove(client).unwrap_or_default(),
    });
    let mut rows: Vec<ClientRow> = known.collect();
    rows.extend(sniffer.clients.others().map(|traffic| ClientRow {
        client: OTHERS.to_owned(),
        traffic: *traffic,
        kinds: BTreeMap::new(),
    }));
    rows.sort_by(|a, b| order(&a.traffic, &a.client, &b.traffic, &b.client));
    rows
}

fn order(a: &Traffic, a_name: &str, b: &Traffic, b_name: &str) -> std::cmp::Ordering {
    (b.calls.calls, a_name).cmp(&(a.calls.calls, b_name))
}

fn volumes(sniffer: &Sniffer) -> Vec<VolumeRow> {
    let rows = named(&sniffer.volumes, u32::to_string).into_iter();
    let mut rows: Vec<VolumeRow> =
        rows.map(|(volume, counts)| VolumeRow { volume, counts: *counts }).collect();
    let bytes = |row: &VolumeRow| row.counts.request_bytes + row.counts.reply_bytes;
    rows.sort_by(|a, b| (bytes(b), &a.volume).cmp(&(bytes(a), &b.volume)));
    rows
}

fn aborts(sniffer: &Sniffer) -> Vec<AbortRow> {
    let row = |(&(code, kind), &calls): (&(AbortCode, Kind), &u64)| AbortRow {
        code: code.0,
        name: code.name(),
        kind,
        calls,
    };
    let mut rows: Vec<AbortRow> = sniffer.aborts.iter().map(row).collect();
    rows.sort_by_key(|row| (std::cmp::Reverse(row.calls), row.code, row.kind));
    rows
}
