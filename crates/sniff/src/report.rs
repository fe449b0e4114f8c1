//! What was counted, as tables.

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

/// The name of the row that those beyond a limit share.
const OTHERS: &str = "others";

/// Everything that was counted.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    /// What was captured.
    pub captured: Captured,
    /// Seconds between the first and the last frame.
    pub seconds: f64,
    /// Rx packets by type; a jumbogram counts once.
    pub packets: BTreeMap<&'static str, u64>,
    /// All connections together.
    pub total: Traffic,
    /// Calls that have not ended.
    pub open: u64,
    /// By kind, the most frequent first.
    pub calls: Vec<CallRow>,
    /// By server, the one with most calls first.
    pub servers: Vec<ServerRow>,
    /// By client, likewise.
    pub clients: Vec<ClientRow>,
    /// By volume, the one with most bytes first.
    pub volumes: Vec<VolumeRow>,
    /// By code and kind, the most frequent first.
    pub aborts: Vec<AbortRow>,
    /// What is out of the ordinary, in sentences.
    pub findings: Vec<Finding>,
}

/// A kind of call.
#[derive(Clone, Debug, Serialize)]
pub struct CallRow {
    /// Its name.
    pub kind: String,
    /// What was counted.
    #[serde(flatten)]
    pub counts: Calls,
    /// From the request's last packet to the reply's first.
    pub first: Percentiles,
    /// From the request's last packet to the reply's last.
    pub last: Percentiles,
}

/// A server.
#[derive(Clone, Debug, Serialize)]
pub struct ServerRow {
    /// Its address and port.
    pub server: String,
    /// Its service.
    pub service: String,
    /// What was counted.
    #[serde(flatten)]
    pub traffic: Traffic,
}

/// A client.
#[derive(Clone, Debug, Serialize)]
pub struct ClientRow {
    /// Its address.
    pub client: String,
    /// What was counted.
    #[serde(flatten)]
    pub traffic: Traffic,
    /// Its calls that ended, by kind.
    pub kinds: BTreeMap<String, u64>,
}

/// A volume, by the first file that calls name. Where opcodes are enciphered, it is told by what looks
/// like a file's identifier.
#[derive(Clone, Debug, Serialize)]
pub struct VolumeRow {
    /// Its number.
    pub volume: String,
    /// What was counted.
    #[serde(flatten)]
    pub counts: Calls,
}

/// Calls of one kind that ended with one code.
#[derive(Clone, Debug, Serialize)]
pub struct AbortRow {
    /// The code.
    pub code: i32,
    /// Its name, if it has one.
    pub name: Option<&'static str>,
    /// The kind of call.
    pub kind: Kind,
    /// How many.
    pub calls: u64,
}

/// Something out of the ordinary.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// What it is about: a host, a kind of call, the capture.
    pub about: String,
    /// The finding in a sentence.
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

/// The table's rows by name, with those beyond its limit.
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
