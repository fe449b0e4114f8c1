//! `cellar stat rx`: transport state of any Rx server or client, including OpenAFS's, through the rxdebug
//! protocol.

use super::address::ServerAddress;
use super::again::Again;
use crate::commands::Context;
use crate::output::{Format, Row, line};
use anyhow::{Context as _, Result, bail, ensure};
use clap::Args;
use rx_proto::answers::{self, Basics, Connection, Peer, kind};
use rx_proto::header::{self, Header};
use rx_proto::{Flags, PacketType};
use serde::Serialize;
use std::collections::BTreeMap;
use std::io::ErrorKind;
use std::net::{SocketAddrV4, UdpSocket};
use std::time::{Duration, Instant};

/// Time limit for an answer before the request is repeated, and number of attempts.
const PATIENCE: Duration = Duration::from_secs(2);
const ATTEMPTS: u32 = 5;

/// Maximum number of entries requested per list; each takes one request.
const ENTRIES_MAX: u32 = 100_000;

/// Maximum size of an answer, that of a packet.
const ANSWER_BYTES_MAX: usize = 16_384;

/// Body size of most requests: servers limit answers to unproven addresses to three times the request.
const QUESTION_BYTES: usize = 84;

/// Body size of a version request.
const VERSION_BYTES: usize = 65;

/// Show the transport state of an Rx server or client.
#[derive(Args)]
pub struct Transport {
    /// Server or client to query; its port defaults to 7000.
    #[arg(value_name = "HOST[:PORT]")]
    at: ServerAddress,
    /// Show every connection.
    #[arg(long)]
    connections: bool,
    /// Show every peer, with round-trip time, window and retransmissions.
    #[arg(long)]
    peers: bool,
    #[command(flatten)]
    again: Again,
}

/// All answers.
#[derive(Serialize)]
struct Answers {
    server: String,
    version: String,
    basics: BasicsRow,
    counters: BTreeMap<&'static str, u64>,
    /// Increase since the previous sample.
    #[serde(skip_serializing_if = "Option::is_none")]
    since: Option<BTreeMap<&'static str, u64>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    connections: Option<Vec<ConnectionRow>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    peers: Option<Vec<PeerRow>>,
}

#[derive(Clone, Copy, Serialize)]
struct BasicsRow {
    packets: u32,
    free_packets: u32,
    calls: u32,
    waiting_for_packets: bool,
    waiting: u32,
    waited: u32,
    idle_threads: u32,
}

#[derive(Serialize)]
struct CounterRow {
    counter: &'static str,
    value: u64,
    since: Option<u64>,
}

#[derive(Serialize)]
struct ConnectionRow {
    peer: String,
    id: String,
    role: &'static str,
    serial: u32,
    error: i32,
    security: String,
    packets_received: u32,
    packets_sent: u32,
    bytes_received: u32,
    bytes_sent: u32,
    packet_bytes: u32,
    calls: Vec<ChannelRow>,
}

#[derive(Serialize)]
struct ChannelRow {
    number: u32,
    state: &'static str,
    mode: &'static str,
    has_input: bool,
    has_output: bool,
}

#[derive(Serialize)]
struct PeerRow {
    peer: String,
    connections: u16,
    round_trip_us: u32,
    round_trip_deviation_us: u32,
    timeout_us: u64,
    sent: u32,
    resent: u32,
    window_packets: u16,
    packet_bytes: u16,
    packet_bytes_max: u16,
    bytes_sent: u64,
    bytes_received: u64,
}

/// Runs the command.
pub(super) fn run(context: &Context, transport: &Transport) -> Result<()> {
    let mut asker = Asker::new(transport.at.resolve(7000)?)?;
    let mut reported = transport.ask(&mut asker)?;
    show(context.format, &reported)?;
    transport.again.each(|| {
        let mut now = transport.ask(&mut asker)?;
        now.since = Some(since(&now.counters, &reported.counters));
        show(context.format, &now)?;
        reported = now;
        Ok(())
    })
}

impl Transport {
    fn ask(&self, asker: &mut Asker) -> Result<Answers> {
        let connections = self.connections.then(|| asker.connections()).transpose()?;
        let peers = self.peers.then(|| asker.peers()).transpose()?;
        Ok(Answers {
            server: asker.server.to_string(),
            version: asker.version()?,
            basics: asker.basics()?.into(),
            counters: asker.counters()?,
            since: None,
            connections: connections.map(|all| all.into_iter().map(ConnectionRow::from).collect()),
            peers: peers.map(|all| all.into_iter().map(PeerRow::from).collect()),
        })
    }
}

/// Returns the counters that grew. A counter that fell belongs to a restarted server, which counts from zero.
pub(crate) fn since(
    now: &BTreeMap<&'static str, u64>,
    before: &BTreeMap<&'static str, u64>,
) -> BTreeMap<&'static str, u64> {
    let grown = |(&name, &value): (&&'static str, &u64)| {
        let old = before.get(name).copied().filter(|old| *old <= value).unwrap_or(0);
        (name, value - old)
    };
    now.iter().map(grown).collect()
}

fn show(format: Format, reported: &Answers) -> Result<()> {
    if format == Format::Json {
        return format.done(reported, "");
    }
    let Answers { server, version, basics, .. } = reported;
    line(format!("{server}: {version}"))?;
    line(format!(
        "{} packets, {} free; {} calls executed, {} wait for a thread, {} waited; {} threads are idle",
        basics.packets, basics.free_packets, basics.calls, basics.waiting, basics.waited, basics.idle_threads
    ))?;
    line("")?;
    let value = |counter: &'static str, map: &BTreeMap<_, u64>| map.get(counter).copied();
    let rows = answers::COUNTERS.into_iter().filter_map(|counter| {
        let row = CounterRow {
            counter,
            value: value(counter, &reported.counters)?,
            since: reported.since.as_ref().and_then(|since| value(counter, since)),
        };
        (row.value > 0).then_some(row)
    });
    format.rows(&rows.collect::<Vec<_>>())?;
    if let Some(connections) = &reported.connections {
        line("")?;
        format.rows(connections)?;
    }
    if let Some(peers) = &reported.peers {
        line("")?;
        format.rows(peers)?;
    }
    Ok(())
}

/// Returns the version of a Cellar or foreign server; fails quickly if nothing answers.
pub(crate) fn version(server: SocketAddrV4) -> Result<String> {
    let reported = Asker::new(server).and_then(|mut asker| asker.version());
    reported.with_context(|| {
        format!("{server} answers neither as a Cellar server nor as another one; --on ADDRESS names one")
    })
}

/// Queries one server, one request at a time.
pub(crate) struct Asker {
    socket: UdpSocket,
    server: SocketAddrV4,
    number: u32,
}

impl Asker {
    pub(crate) fn new(server: SocketAddrV4) -> Result<Asker> {
        let socket = UdpSocket::bind("0.0.0.0:0").context("cannot open a UDP port")?;
        socket.connect(server).with_context(|| format!("cannot reach {server}"))?;
        Ok(Asker { socket, server, number: 0 })
    }

    fn ask(&mut self, kind: PacketType, body: &[u8]) -> Result<Vec<u8>> {
        let server = self.server;
        for _ in 0..ATTEMPTS {
            self.number += 1;
            let header = Header {
                epoch: 999,
                cid: 0,
                call_number: self.number,
                sequence: 0,
                serial: 0,
                kind,
                flags: Flags::CLIENT_INITIATED.with(Flags::LAST_PACKET),
                user_status: 0,
                security_index: 0,
                checksum: 0,
                service_id: 0,
            };
            let sent = self.socket.send(&[&header.encode()[..], body].concat());
            // This may report an ICMP error for an earlier request.
            sent.or_else(|error| if is_refusal(&error) { Ok(0) } else { Err(error) })?;
            if let Some(answer) = self.receive(kind)? {
                return Ok(answer);
            }
        }
        bail!("{server} does not answer questions of rxdebug")
    }

    /// Waits for the answer to the last request; `None` after the time limit.
    fn receive(&self, kind: PacketType) -> Result<Option<Vec<u8>>> {
        let deadline = Instant::now() + PATIENCE;
        let mut buffer = vec![0; ANSWER_BYTES_MAX];
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Ok(None);
            }
            self.socket.set_read_timeout(Some(left))?;
            let length = match self.socket.recv(&mut buffer) {
                Ok(length) => length,
                Err(error) if is_timeout(&error) => return Ok(None),
                Err(error) if is_refusal(&error) => bail!("no program listens on {}", self.server),
                Err(error) => return Err(error).with_context(|| format!("cannot ask {}", self.server)),
            };
            match header::parse(&buffer[..length]) {
                Ok((header, body)) if header.kind == kind && header.call_number == self.number => {
                    return Ok(Some(body.to_vec()));
                }
                _ => {} // of an earlier question, or something else
            }
        }
    }

    fn question(&mut self, kind: u32, index: u32) -> Result<Vec<u8>> {
        let mut body = [kind.to_be_bytes(), index.to_be_bytes()].concat();
        body.resize(QUESTION_BYTES, 0);
        self.ask(PacketType::Debug, &body)
    }

    pub(crate) fn version(&mut self) -> Result<String> {
        let body = self.ask(PacketType::Version, &[0; VERSION_BYTES])?;
        let text = body.split(|byte| *byte == 0).next().unwrap_or_default();
        Ok(String::from_utf8_lossy(text).trim().to_owned())
    }

    pub(crate) fn basics(&mut self) -> Result<Basics> {
        let body = self.question(kind::BASICS, 0)?;
        Basics::parse(&body).with_context(|| self.short(&body))
    }

    pub(crate) fn counters(&mut self) -> Result<BTreeMap<&'static str, u64>> {
        let body = self.question(kind::COUNTERS, 0)?;
        let counters = answers::counters(&body);
        ensure!(counters.len() > 1, self.short(&body));
        Ok(counters.into_iter().collect())
    }

    pub(crate) fn connections(&mut self) -> Result<Vec<Connection>> {
        self.entries(kind::CONNECTION, Connection::parse)
    }

    pub(crate) fn peers(&mut self) -> Result<Vec<Peer>> {
        self.entries(kind::PEER, Peer::parse)
    }

    fn entries<T>(&mut self, kind: u32, parse: fn(&[u8]) -> Option<Option<T>>) -> Result<Vec<T>> {
        let mut entries = Vec::new();
        for index in 0..ENTRIES_MAX {
            let body = self.question(kind, index)?;
            match parse(&body).with_context(|| self.short(&body))? {
                Some(entry) => entries.push(entry),
                None => break,
            }
        }
        Ok(entries)
    }

    fn short(&self, body: &[u8]) -> String {
        format!("{} answers with {} bytes, which is too short or in an old format", self.server, body.len())
    }
}

fn is_timeout(error: &std::io::Error) -> bool {
    matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut)
}

fn is_refusal(error: &std::io::Error) -> bool {
    error.kind() == ErrorKind::ConnectionRefused
}

impl From<Basics> for BasicsRow {
    fn from(basics: Basics) -> BasicsRow {
        BasicsRow {
            packets: basics.packets,
            free_packets: basics.free_packets,
            calls: basics.calls,
            waiting_for_packets: basics.is_waiting_for_packets,
            waiting: basics.waiting,
            waited: basics.waited,
            idle_threads: basics.idle_threads,
        }
    }
}

impl From<Connection> for ConnectionRow {
    fn from(connection: Connection) -> ConnectionRow {
        let used = connection.channels.iter().filter(|channel| channel.call_number > 0);
        let calls = used.map(|channel| ChannelRow {
            number: channel.call_number,
            state: name(&["free", "precall", "active", "dally", "hold", "reset"], channel.state),
            mode: name(&["-", "sending", "receiving", "error", "eof"], channel.mode),
            has_input: channel.other & 1 != 0,
            has_output: channel.other & 2 != 0,
        });
        ConnectionRow {
            peer: connection.peer.to_string(),
            id: format!("{:08x}/{:08x}", connection.epoch, connection.id),
            role: if connection.is_server { "server" } else { "client" },
            serial: connection.serial,
            error: connection.error,
            security: security(&connection),
            packets_received: connection.packets[0],
            packets_sent: connection.packets[1],
            bytes_received: connection.bytes[0],
            bytes_sent: connection.bytes[1],
            packet_bytes: connection.packet_bytes,
            calls: calls.collect(),
        }
    }
}

fn name(names: &[&'static str], number: u8) -> &'static str {
    names.get(usize::from(number)).copied().unwrap_or("?")
}

fn security(connection: &Connection) -> String {
    match (connection.security_index, connection.security_level) {
        (0, _) => "none".to_owned(),
        (2, level) => format!("rxkad {}", name(&["clear", "auth", "crypt"], level)),
        (other, _) => format!("class {other}"),
    }
}

impl From<Peer> for PeerRow {
    fn from(peer: Peer) -> PeerRow {
        PeerRow {
            peer: peer.address.to_string(),
            connections: peer.connections,
            round_trip_us: peer.round_trip_us,
            round_trip_deviation_us: peer.round_trip_deviation_us,
            timeout_us: peer.timeout_us,
            sent: peer.sent,
            resent: peer.resent,
            window_packets: peer.window_packets,
            packet_bytes: peer.packet_bytes,
            packet_bytes_max: peer.packet_bytes_max,
            bytes_sent: peer.bytes_sent,
            bytes_received: peer.bytes_received,
        }
    }
}

impl Row for CounterRow {
    const COLUMNS: &'static [&'static str] = &["COUNTER", "VALUE", "SINCE"];

    fn cells(&self) -> Vec<String> {
        let since = self.since.map_or_else(String::new, |since| since.to_string());
        vec![self.counter.to_owned(), self.value.to_string(), since]
    }
}

impl Row for ConnectionRow {
    const COLUMNS: &'static [&'static str] =
        &["CONNECTION", "PEER", "ROLE", "SECURITY", "SERIAL", "RECEIVED", "SENT", "PACKET", "ERROR", "CALLS"];

    fn cells(&self) -> Vec<String> {
        let call = |call: &ChannelRow| format!("{} {} {}", call.number, call.state, call.mode);
        vec![
            self.id.clone(),
            self.peer.clone(),
            self.role.to_owned(),
            self.security.clone(),
            self.serial.to_string(),
            self.bytes_received.to_string(),
            self.bytes_sent.to_string(),
            self.packet_bytes.to_string(),
            self.error.to_string(),
            self.calls.iter().map(call).collect::<Vec<_>>().join(", "),
        ]
    }
}

impl Row for PeerRow {
    const COLUMNS: &'static [&'static str] = &[
        "PEER",
        "CONNECTIONS",
        "TRIP us",
        "DEVIATION us",
        "TIMEOUT us",
        "SENT",
        "AGAIN",
        "WINDOW",
        "PACKET",
        "LONGEST",
        "BYTES SENT",
        "BYTES RECEIVED",
    ];

    fn cells(&self) -> Vec<String> {
        let numbers = [
            u64::from(self.connections),
            self.round_trip_us.into(),
            self.round_trip_deviation_us.into(),
            self.timeout_us,
            self.sent.into(),
            self.resent.into(),
            self.window_packets.into(),
            self.packet_bytes.into(),
            self.packet_bytes_max.into(),
            self.bytes_sent,
            self.bytes_received,
        ];
        let mut cells = vec![self.peer.clone()];
        cells.extend(numbers.map(|number| number.to_string()));
        cells
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counters_of_a_server_started_again_count_from_zero() {
        let map = |value| BTreeMap::from([("calls", value), ("peers", 3)]);
        assert_eq!(since(&map(9), &map(4)), BTreeMap::from([("calls", 5), ("peers", 0)]));
        assert_eq!(since(&map(2), &map(4))["calls"], 2);
    }

    #[test]
    fn silent_servers_are_named() {
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        let address = socket.local_addr().unwrap().to_string().parse().unwrap();
        drop(socket);
        let error = Asker::new(address).unwrap().version().unwrap_err().to_string();
        assert!(error.contains(&address.to_string()), "{error}");
    }
}
