//! Tracks connections and calls, and counts them.

mod connection;

use crate::bounded::Bounded;
use crate::call::Call;
use crate::frame::{self, Datagram, Frame, Link};
use crate::kind::{Kind, Place, Service};
use crate::packet;
use crate::report::Report;
use crate::segments;
use crate::traffic::{Calls, Ended, KindCounts, Traffic};
use base::AbortCode;
use connection::{Connection, Key};
use rx_proto::{Header, PacketType, ack, header};
use serde::Serialize;
use std::collections::HashMap;
use std::net::{Ipv4Addr, SocketAddrV4};

/// Number of packet types (rx_packet.h).
const PACKET_TYPES: usize = 13;

/// Selects datagrams.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Filter {
    /// Selects datagrams from or to one of these ports; all, if empty.
    pub ports: Vec<u16>,
    /// Selects datagrams from or to one of these hosts; all, if empty.
    pub hosts: Vec<Ipv4Addr>,
}

impl Filter {
    /// Whether a datagram is selected.
    pub fn takes(&self, source: SocketAddrV4, destination: SocketAddrV4) -> bool {
        let either = |is_one: &dyn Fn(SocketAddrV4) -> bool| is_one(source) || is_one(destination);
        (self.ports.is_empty() || either(&|address| self.ports.contains(&address.port())))
            && (self.hosts.is_empty() || either(&|address| self.hosts.contains(address.ip())))
    }
}

/// Limits on the size of tables.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Connections. Beyond the limit, the quarter with the longest inactivity is removed. A connection takes
    /// about a kilobyte, plus 600 bytes for each of up to four calls, and another half kilobyte per direction
    /// while packets are missing.
    pub connections: usize,
    /// Clients, and servers; those beyond the limit share a row.
    pub hosts: usize,
    /// Volumes; those beyond the limit share a row.
    pub volumes: usize,
    /// Kinds of calls; those beyond the limit share a row. A kind takes about 30 kilobytes.
    pub kinds: usize,
    /// Kinds of calls per client, and kinds of aborts; those beyond the limit are not distinguished.
    pub details: usize,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits { connections: 20_000, hosts: 20_000, volumes: 50_000, kinds: 400, details: 50_000 }
    }
}

/// Statistics of the capture.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Captured {
    /// Number of frames.
    pub frames: u64,
    /// Captured bytes of the frames.
    pub bytes: u64,
    /// Time of the first frame, in nanoseconds since 1970.
    pub first_ns: u64,
    /// Time of the last frame.
    pub last_ns: u64,
    /// Frames with neither IPv4 nor IPv6, or truncated within their headers.
    pub unknown: u64,
    /// Frames with IPv6.
    pub ipv6: u64,
    /// Frames with IPv4 but not UDP.
    pub other_protocols: u64,
    /// Datagrams rejected by the filter.
    pub filtered: u64,
    /// Datagrams of several IP fragments, of which the first is examined.
    pub fragmented: u64,
    /// IP fragments other than the first.
    pub fragments: u64,
    /// Truncated datagrams.
    pub cut: u64,
    /// Datagrams that were merged with others under one header.
    pub merged: u64,
    /// Datagrams that are not Rx.
    pub not_rx: u64,
    /// Rx packets with a valid header and a damaged body.
    pub malformed: u64,
    /// Frames dropped by the kernel before they were examined.
    pub dropped: u64,
    /// Connections removed to make room.
    pub forgotten: u64,
}

/// Tracks connections and calls, and counts them.
///
/// Pass every frame in capture order to [`Sniffer::frame`], and call [`Sniffer::report`] for a [`Report`] at
/// any time. [`Sniffer::reset`] sets the counts to zero but keeps calls in progress: the reports before and
/// after it add up.
#[derive(Debug)]
pub struct Sniffer {
    filter: Filter,
    limits: Limits,
    pub(crate) captured: Captured,
    pub(crate) packets: [u64; PACKET_TYPES],
    connections: HashMap<Key, Connection>,
    pub(crate) total: Traffic,
    pub(crate) kinds: Bounded<Kind, KindCounts>,
    pub(crate) servers: Bounded<(SocketAddrV4, Service), Traffic>,
    pub(crate) clients: Bounded<Ipv4Addr, Traffic>,
    pub(crate) client_kinds: Bounded<(Ipv4Addr, Kind), u64>,
    pub(crate) volumes: Bounded<u32, Calls>,
    pub(crate) aborts: Bounded<(AbortCode, Kind), u64>,
}

/// Where and when an Rx packet was seen.
#[derive(Clone, Copy, Debug)]
struct Seen {
    now_ns: u64,
    source: SocketAddrV4,
    destination: SocketAddrV4,
    /// Length of the body on the wire.
    body_bytes: usize,
}

impl Sniffer {
    /// Creates an empty sniffer.
    pub fn new(filter: Filter, limits: Limits) -> Sniffer {
        Sniffer {
            filter,
            limits,
            captured: Captured::default(),
            packets: [0; PACKET_TYPES],
            connections: HashMap::new(),
            total: Traffic::default(),
            kinds: Bounded::new(limits.kinds),
            servers: Bounded::new(limits.hosts),
            clients: Bounded::new(limits.hosts),
            client_kinds: Bounded::new(limits.details),
            volumes: Bounded::new(limits.volumes),
            aborts: Bounded::new(limits.details),
        }
    }

    /// Handles a captured frame.
    pub fn frame(&mut self, time_ns: u64, link: Link, frame: &[u8]) {
        self.see_frame(time_ns, frame.len());
        match frame::decode(link, frame) {
            Frame::Udp(datagram) => self.datagram(time_ns, &datagram),
            Frame::Fragment => self.captured.fragments += 1,
            Frame::OtherProtocol => self.captured.other_protocols += 1,
            Frame::Ipv6 => self.captured.ipv6 += 1,
            Frame::Unknown => self.captured.unknown += 1,
        }
    }

    /// Records that the kernel dropped frames.
    pub fn dropped(&mut self, frames: u64) {
        self.captured.dropped += frames;
    }

    fn see_frame(&mut self, time_ns: u64, bytes: usize) {
        let captured = &mut self.captured;
        if captured.frames == 0 {
            captured.first_ns = time_ns;
        }
        captured.frames += 1;
        captured.bytes += bytes as u64;
        captured.last_ns = captured.last_ns.max(time_ns);
    }

    fn datagram(&mut self, now_ns: u64, datagram: &Datagram<'_>) {
        let Datagram { source, destination, payload, payload_bytes, is_fragmented } = *datagram;
        if !self.filter.takes(source, destination) {
            self.captured.filtered += 1;
            return;
        }
        self.captured.fragmented += u64::from(is_fragmented);
        self.captured.cut += u64::from(payload_bytes > payload.len());
        let mut count = 0;
        for (packet, on_the_wire) in segments::datagrams(datagram) {
            count += 1;
            let body_bytes = on_the_wire.saturating_sub(header::HEADER_BYTES);
            self.packet(Seen { now_ns, source, destination, body_bytes }, packet);
        }
        self.captured.merged += if count > 1 { count } else { 0 };
    }

    fn packet(&mut self, seen: Seen, packet: &[u8]) {
        let Ok((header, body)) = header::parse(packet) else {
            self.captured.not_rx += 1;
            return;
        };
        self.packets[header.kind.index()] += 1;
        match header.kind {
            PacketType::Data => self.data(seen, &header, body),
            PacketType::Ack => self.acknowledgement(seen, &header, body),
            PacketType::Abort => self.abort(seen, &header, body),
            PacketType::AckAll => self.connection(seen, &header).1.flow(&header).acks += 1,
            PacketType::Busy => self.connection(seen, &header).1.traffic.busy += 1,
            PacketType::Challenge => self.connection(seen, &header).1.traffic.challenges += 1,
            PacketType::Response => self.connection(seen, &header).1.traffic.responses += 1,
            // Requests to the host itself, which belong to no connection.
            _ => {}
        }
    }

    fn data(&mut self, seen: Seen, header: &Header, body: &[u8]) {
        let (key, connection) = self.connection(seen, header);
        let replaced = connection.begin(header);
        connection.data(seen.now_ns, header, packet::pieces(header, body, seen.body_bytes));
        let answered = connection.take_answered(header.channel());
        for (call, ended) in replaced.into_iter().chain(answered) {
            self.record(key, &call, &ended);
        }
    }

    fn acknowledgement(&mut self, seen: Seen, header: &Header, body: &[u8]) {
        match ack::parse(body) {
            Ok(ack) => self.connection(seen, header).1.acknowledgement(seen.now_ns, header, &ack),
            Err(_) => self.captured.malformed += 1,
        }
    }

    fn abort(&mut self, seen: Seen, header: &Header, body: &[u8]) {
        let Some(code) = body.first_chunk() else {
            self.captured.malformed += 1;
            return;
        };
        let code = AbortCode(i32::from_be_bytes(*code));
        let (key, connection) = self.connection(seen, header);
        connection.traffic.aborts += 1;
        for (call, ended) in connection.abort(header) {
            *self.aborts.entry((code, call.kind)) += 1;
            self.record(key, &call, &ended);
        }
    }

    /// Returns the packet's connection, creating it if it is unknown.
    fn connection(&mut self, seen: Seen, header: &Header) -> (Key, &mut Connection) {
        let (client, server) = if connection::is_from_client(header) {
            (seen.source, seen.destination)
        } else {
            (seen.destination, seen.source)
        };
        let key = Key::new(header, client);
        if !self.connections.contains_key(&key) && self.connections.len() >= self.limits.connections {
            self.forget_silent();
        }
        let connection = self.connections.entry(key).or_insert_with(|| {
            let (client_port, server_port) = (client.port(), server.port());
            let service = Service::at(Place { service_id: header.service_id, client_port, server_port });
            Connection::new(server, service)
        });
        connection.seen_ns = seen.now_ns;
        (key, connection)
    }

    /// Removes the quarter of all connections that has been inactive longest.
    fn forget_silent(&mut self) {
        let mut times: Vec<u64> = self.connections.values().map(|connection| connection.seen_ns).collect();
        if times.is_empty() {
            return;
        }
        let place = times.len() / 4;
        let (_, oldest, _) = times.select_nth_unstable(place);
        let oldest = *oldest;
        let silent = self.connections.extract_if(|_, connection| connection.seen_ns <= oldest);
        let silent: Vec<(Key, Connection)> = silent.collect();
        self.captured.forgotten += silent.len() as u64;
        for (key, mut connection) in silent {
            for (call, ended) in connection.end_all() {
                self.count(key, &call, &ended);
                connection.count(&call, &ended);
            }
            self.settle(key, &connection);
        }
    }

    /// Counts a completed call for its connection and in the other tables.
    fn record(&mut self, key: Key, call: &CallFacts, ended: &Ended) {
        if let Some(connection) = self.connections.get_mut(&key) {
            connection.count(call, ended);
        }
        self.count(key, call, ended);
    }

    fn count(&mut self, key: Key, call: &CallFacts, ended: &Ended) {
        self.kinds.entry(call.kind).add(ended);
        *self.client_kinds.entry((*key.client.ip(), call.kind)) += 1;
        if let Some(volume) = call.volume {
            *self.volumes.entry(volume) += &ended.counts;
        }
    }

    /// Adds the counts of a connection to its hosts.
    fn settle(&mut self, key: Key, connection: &Connection) {
        self.total += &connection.traffic;
        *self.servers.entry((connection.server, connection.service)) += &connection.traffic;
        *self.clients.entry(*key.client.ip()) += &connection.traffic;
    }

    /// Returns the results since the start or the last [`Sniffer::reset`].
    pub fn report(&mut self) -> Report {
        let mut connections = std::mem::take(&mut self.connections);
        for (key, connection) in &mut connections {
            if connection.traffic != Traffic::default() {
                self.settle(*key, connection);
                connection.traffic = Traffic::default();
            }
        }
        self.connections = connections;
        let open = self.connections.values().map(Connection::open_calls).sum();
        Report::new(self, open)
    }

    /// Sets all counts to zero.
    pub fn reset(&mut self) {
        self.captured = Captured::default();
        self.packets = [0; PACKET_TYPES];
        self.total = Traffic::default();
        self.kinds.clear();
        self.servers.clear();
        self.clients.clear();
        self.client_kinds.clear();
        self.volumes.clear();
        self.aborts.clear();
    }
}

/// Attributes of a call that tables use.
#[derive(Clone, Copy, Debug)]
struct CallFacts {
    kind: Kind,
    volume: Option<u32>,
}

impl CallFacts {
    fn of(call: &Call) -> CallFacts {
        CallFacts { kind: call.kind, volume: call.volume }
    }
}
