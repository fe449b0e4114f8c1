//! Evaluates tshark's dissection of a capture: packets, calls and their times, computed independently of
//! `cellar sniff`.

use anyhow::{Context, Result, bail, ensure};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet, HashMap};

/// Packet types by number (rx_packet.h), with the names of `cellar sniff`.
const TYPES: [(u32, &str); 8] = [
    (DATA, "data"),
    (ACK, "ack"),
    (3, "busy"),
    (ABORT, "abort"),
    (6, "challenge"),
    (7, "response"),
    (8, "debug"),
    (13, "version"),
];
const DATA: u32 = 1;
const ACK: u32 = 2;
const ABORT: u32 = 4;

/// Length of the UDP and Rx headers in bytes.
const HEADER_BYTES: u64 = 8 + 28;

/// Fields that tshark prints for each packet: first those of Rx, then the opcodes of [`SERVICES`].
pub(super) const FIELDS: [&str; 21] = [
    "frame.time_epoch",
    "ip.src",
    "udp.srcport",
    "ip.dst",
    "udp.dstport",
    "udp.length",
    "rx.epoch",
    "rx.type",
    "rx.flags.client_init",
    "rx.flags.last_packet",
    "rx.cid",
    "rx.callnumber",
    "rx.seq",
    "rx.serial",
    "rx.reason",
    "afs.fs.opcode",
    "afs.cb.opcode",
    "afs.prot.opcode",
    "afs.vldb.opcode",
    "afs.vol.opcode",
    "afs.bos.opcode",
];

/// Returns the name of an opcode.
type Name = fn(u32) -> Option<&'static str>;

/// Services with the names of `cellar sniff`, and their opcodes.
const SERVICES: [(&str, Name); 6] = [
    ("fs", afs_idl::fs::procedure_name),
    ("cb", afs_idl::cb::procedure_name),
    ("pt", afs_idl::pr::procedure_name),
    ("vl", afs_idl::vl::procedure_name),
    ("vol", afs_idl::vol::procedure_name),
    ("bos", afs_idl::bozo::procedure_name),
];

/// Figures of a row of `cellar sniff --json`, by JSON pointer.
pub(super) type Figures = BTreeMap<String, u64>;

/// Figures computed from tshark's output.
#[derive(Default)]
pub(super) struct Dissected {
    /// Number of packets by type.
    pub(super) packets: BTreeMap<&'static str, u64>,
    /// Number of ACK packets by reason.
    pub(super) reasons: BTreeMap<u32, u64>,
    /// Completed calls by type, if it can be decoded and has a name.
    pub(super) calls: BTreeMap<String, Kind>,
    /// Number of calls whose type tshark cannot decode although it was captured: their first packet was late.
    pub(super) misread: u64,
    pub(super) total: Figures,
    /// Figures by address and port.
    pub(super) servers: BTreeMap<String, Figures>,
    /// Figures by address.
    pub(super) clients: BTreeMap<String, Figures>,
    connections: HashMap<Key, Connection>,
}

/// Calls of one type.
#[derive(Default)]
pub(super) struct Kind {
    pub(super) figures: Figures,
    /// Times in microseconds from the end of each request to the start of its reply, and to its end.
    pub(super) times: [Vec<u64>; 2],
}

/// Client, epoch, and connection id without the channel.
type Key = (String, String, u32);

struct Connection {
    client: String,
    server: String,
    /// Highest serial numbers of the client's and the server's data packets.
    serials: [u32; 2],
    calls: HashMap<u32, Call>,
}

/// The current call on a channel.
#[derive(Default)]
struct Call {
    number: u32,
    kind: Option<String>,
    /// Request and reply.
    halves: [Half; 2],
    is_aborted: bool,
    is_over: bool,
}

#[derive(Default)]
struct Half {
    seen: BTreeSet<u32>,
    last: Option<u32>,
    bytes: u64,
    first_ns: Option<u64>,
    newest_ns: u64,
}

/// A line of tshark's output.
struct Packet<'a> {
    at_ns: u64,
    /// Address and port.
    source: String,
    destination: String,
    epoch: &'a str,
    kind: u32,
    from_client: bool,
    is_last: bool,
    body_bytes: u64,
    cid: u32,
    call: u32,
    sequence: u32,
    serial: u32,
    reason: Option<u32>,
    opcodes: Vec<Option<u32>>,
}

impl<'a> Packet<'a> {
    fn read(line: &'a str) -> Result<Packet<'a>> {
        let fields: Vec<&str> = line.split('\t').collect();
        ensure!(fields.len() == FIELDS.len(), "tshark printed {line:?}");
        let number = |at: usize| -> Result<u32> {
            fields[at].parse().with_context(|| format!("{}: {line:?}", FIELDS[at]))
        };
        let is = |at: usize| matches!(fields[at], "1" | "True");
        let (seconds, fraction) = fields[0].split_once('.').context("a time without a fraction")?;
        Ok(Packet {
            at_ns: seconds.parse::<u64>()? * 1_000_000_000 + format!("{fraction:0<9}")[..9].parse::<u64>()?,
            source: format!("{}:{}", fields[1], fields[2]),
            destination: format!("{}:{}", fields[3], fields[4]),
            body_bytes: u64::from(number(5)?).checked_sub(HEADER_BYTES).context("a datagram too short")?,
            epoch: fields[6],
            kind: number(7)?,
            from_client: is(8),
            is_last: is(9),
            cid: number(10)?,
            call: number(11)?,
            sequence: number(12)?,
            serial: number(13)?,
            reason: number(14).ok(),
            opcodes: fields[15..].iter().map(|opcode| opcode.parse().ok()).collect(),
        })
    }

    /// Returns the client and the server.
    fn ends(&self) -> [&String; 2] {
        let ends = [&self.source, &self.destination];
        if self.from_client { ends } else { [ends[1], ends[0]] }
    }

    fn channel(&self) -> u32 {
        self.cid & 3
    }

    fn opcode_name(&self) -> Option<String> {
        let mut names = SERVICES.iter().zip(&self.opcodes);
        names.find_map(|((service, name), opcode)| Some(format!("{service}.{}", name((*opcode)?)?)))
    }
}

impl Dissected {
    /// Evaluates tshark's output for [`FIELDS`], one line per packet.
    pub(super) fn read(listed: &str) -> Result<Dissected> {
        let mut all = Dissected::default();
        for line in listed.lines() {
            all.packet(&Packet::read(line)?).with_context(|| line.to_owned())?;
        }
        Ok(all)
    }

    fn packet(&mut self, packet: &Packet<'_>) -> Result<()> {
        let name = TYPES.iter().find(|(number, _)| *number == packet.kind).map_or("others", |(_, name)| name);
        *self.packets.entry(name).or_default() += 1;
        match packet.kind {
            DATA => {
                self.begin(packet);
                self.data(packet);
            }
            ACK => {
                *self.reasons.entry(packet.reason.context("an ACK without a reason")?).or_default() += 1;
                self.connection(packet);
                self.count(packet, &format!("{}/acks", side(packet)), 1);
            }
            ABORT => self.abort(packet),
            // Debug requests, which belong to no connection, and packets that only count by type.
            _ => {}
        }
        Ok(())
    }

    fn connection(&mut self, packet: &Packet<'_>) -> &mut Connection {
        let [client, server] = packet.ends().map(String::clone);
        let key = key(packet);
        if !self.connections.contains_key(&key) {
            let calls = HashMap::new();
            self.connections.insert(key.clone(), Connection { client, server, serials: [0; 2], calls });
            self.count(packet, "/connections", 1);
        }
        self.connections.get_mut(&key).expect("a connection that was there or was just made")
    }

    /// Starts a call; a new call ends the previous one on its channel.
    fn begin(&mut self, packet: &Packet<'_>) {
        let calls = &mut self.connection(packet).calls;
        let call = calls.entry(packet.channel()).or_default();
        if call.number < packet.call {
            let old = std::mem::replace(call, Call { number: packet.call, ..Call::default() });
            if old.number > 0 {
                self.end(packet, &old);
            }
        }
    }

    fn data(&mut self, packet: &Packet<'_>) {
        let connection = self.connection(packet);
        let call = connection.calls.get_mut(&packet.channel()).expect("a call that has begun");
        let serial = &mut connection.serials[usize::from(!packet.from_client)];
        let is_newer = packet.serial > *serial;
        *serial = packet.serial.max(*serial);
        let half = &mut call.halves[usize::from(!packet.from_client)];
        let highest = half.seen.last().copied().unwrap_or(0);
        let is_new = call.number == packet.call && half.seen.insert(packet.sequence);
        let mut is_misread = false;
        if is_new {
            half.bytes += packet.body_bytes;
            half.first_ns.get_or_insert(packet.at_ns);
            half.newest_ns = packet.at_ns;
            half.last = half.last.or(packet.is_last.then_some(packet.sequence));
        }
        if packet.from_client && packet.sequence == 1 && is_new {
            // tshark decodes the opcode of the first packet that it sees of a call, whichever that is.
            let is_first = half.seen.len() == 1;
            call.kind = packet.opcode_name().filter(|_| is_first);
            is_misread = !is_first;
        }
        let what = match (is_new, is_newer) {
            (true, _) if packet.sequence < highest => Some("late"),
            (true, _) if packet.sequence > highest + 1 => Some("gaps"),
            (true, _) => None,
            (false, true) => Some("retransmitted"),
            (false, false) => Some("repeated"),
        };
        let reply = &call.halves[1];
        let is_answered = reply.last.is_some_and(|last| reply.seen.len() == last as usize);
        let ended = (is_answered && !call.is_over).then(|| {
            call.is_over = true;
            std::mem::take(call)
        });
        self.misread += u64::from(is_misread);
        self.count(packet, &format!("{}/data", side(packet)), 1);
        if let Some(what) = what {
            self.count(packet, &format!("{}/{what}", side(packet)), 1);
        }
        if let Some(mut call) = ended {
            call.is_over = false;
            self.end(packet, &call);
            call.is_over = true;
            self.connection(packet).calls.insert(packet.channel(), call);
        }
    }

    fn abort(&mut self, packet: &Packet<'_>) {
        self.connection(packet);
        self.count(packet, "/aborts", 1);
        let channels: Vec<u32> = self.connection(packet).calls.keys().copied().collect();
        for channel in channels {
            let calls = &mut self.connection(packet).calls;
            let is_meant =
                |call: &Call| packet.call == 0 || channel == packet.channel() && call.number == packet.call;
            if let Some(mut call) = calls.remove(&channel) {
                if is_meant(&call) && !call.is_over {
                    call.is_aborted = true;
                    self.end(packet, &call);
                    call.is_over = true;
                }
                self.connection(packet).calls.insert(channel, call);
            }
        }
    }

    /// Counts a call that has ended, unless it was counted already.
    fn end(&mut self, packet: &Packet<'_>, call: &Call) {
        if call.is_over {
            return;
        }
        let [request, reply] = &call.halves;
        let is_answered = !call.is_aborted && reply.first_ns.is_some();
        // Time since the request was sent.
        let since = |ns: u64| {
            let sent_ns = request.first_ns.map(|_| request.newest_ns)?;
            Some(ns.checked_sub(sent_ns).filter(|_| is_answered)? / 1000)
        };
        let times = [reply.first_ns.and_then(since), since(reply.newest_ns)];
        let latency_us = times[1].unwrap_or(0);
        for (what, number) in [
            ("/calls", 1),
            ("/aborted", u64::from(call.is_aborted)),
            ("/unanswered", u64::from(!call.is_aborted && !is_answered)),
            ("/request_bytes", request.bytes),
            ("/reply_bytes", reply.bytes),
            ("/latency_us", latency_us),
        ] {
            self.count(packet, what, number);
            if let Some(kind) = &call.kind {
                *self.calls.entry(kind.clone()).or_default().figures.entry(what.into()).or_default() +=
                    number;
            }
        }
        if let Some(kind) = &call.kind {
            let all = &mut self.calls.entry(kind.clone()).or_default().times;
            all.iter_mut().zip(times).for_each(|(all, time)| all.extend(time));
        }
    }

    /// Adds to a figure of the packet's connection.
    fn count(&mut self, packet: &Packet<'_>, what: &str, number: u64) {
        let connection = &self.connections[&key(packet)];
        let client = connection.client.split(':').next().unwrap_or_default();
        for row in [
            &mut self.total,
            self.servers.entry(connection.server.clone()).or_default(),
            self.clients.entry(client.to_owned()).or_default(),
        ] {
            *row.entry(what.to_owned()).or_default() += number;
        }
    }
}

/// Returns the key of the packet's connection.
fn key(packet: &Packet<'_>) -> Key {
    (packet.ends()[0].clone(), packet.epoch.to_owned(), packet.cid & !3)
}

fn side(packet: &Packet<'_>) -> &'static str {
    if packet.from_client { "/from_client" } else { "/from_server" }
}

/// Compares the sum of rows with tshark's figures.
pub(super) fn compare(what: &str, rows: &[&Value], theirs: &Figures) -> Result<()> {
    for (place, theirs) in theirs {
        let ours: u64 = rows.iter().map(|row| row.pointer(place).and_then(Value::as_u64).unwrap_or(0)).sum();
        ensure!(ours == *theirs, "{what}, {place}: tshark {theirs}, cellar sniff {ours} in {rows:?}");
    }
    Ok(())
}

/// Compares percentiles with these times to two digits, and the maximum to the microsecond.
pub(super) fn compare_times(what: &str, reported: &Value, times: &[u64]) -> Result<()> {
    let mut times = times.to_vec();
    times.sort_unstable();
    let Some(longest) = times.last() else { return Ok(()) };
    let us = |name: &str| reported[name].as_u64().with_context(|| format!("{what}: {name} of {reported}"));
    ensure!(us("max_us")? == *longest, "{what}: the longest is {longest} us by tshark, not {reported}");
    for (name, percent) in [("p50_us", 50), ("p90_us", 90), ("p99_us", 99)] {
        let exact = times[(times.len() * percent).div_ceil(100) - 1];
        let ours = us(name)?;
        if ours < exact || ours > exact + exact / 100 + 1 {
            bail!("{what}: {name} is {exact} us by tshark, not {ours}");
        }
    }
    Ok(())
}
