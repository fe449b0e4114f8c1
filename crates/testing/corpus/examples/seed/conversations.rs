//! Packets, single and as conversations between two endpoints.

use crate::{Seed, seed};
use corpus::frames::push;
use corpus::rx::{Machine, SERVICE, Step};
use rx_proto::ack::{Ack, Reason, Trailer};
use rx_proto::{Flags, Header, PacketType};

/// Values of the level byte of [`Step::Call`].
const LEVELS: [(u8, &str); 4] = [(0, "clear"), (1, "authenticated"), (2, "encrypted"), (3, "open")];

pub(crate) fn seeds() -> Vec<Seed> {
    let mut seeds = headers();
    for (level, name) in LEVELS {
        seeds.extend(conversation(&format!("{name}_short"), level, &[20], usize::MAX));
        seeds.extend(conversation(&format!("{name}_lossy"), level, &[5000, 20], 5));
    }
    seeds.extend(conversation("open_long", 3, &[30_000], usize::MAX));
    seeds.extend(conversation("open_many", 3, &[10, 20, 30, 40, 50], 7));
    seeds.push(seed("rx_endpoint", "server_questions", questions()));
    seeds.push(seed("rx_endpoint", "client_notices", notices()));
    seeds
}

fn header(kind: PacketType) -> Header {
    Header {
        epoch: 0x8000_0001,
        cid: 0x1234_5678,
        call_number: 1,
        sequence: 1,
        serial: 1,
        kind,
        flags: Flags::CLIENT_INITIATED,
        user_status: 0,
        security_index: 0,
        checksum: 0,
        service_id: SERVICE,
    }
}

fn ack() -> Vec<u8> {
    let trailer = Trailer {
        packet_bytes_max: Some(1472),
        interface_bytes: Some(1472),
        window: Some(255),
        jumbo_packets: Some(1),
    };
    let ack = Ack {
        first: 2,
        previous: 5,
        serial: 9,
        reason: Reason::Requested,
        received: &[0, 1, 1, 0],
        trailer,
        beyond: &[],
    };
    let mut body = Vec::new();
    ack.encode(&mut body);
    body
}

fn packets() -> Vec<(&'static str, Vec<u8>)> {
    let debug = |kind: u32| [kind.to_be_bytes(), 0u32.to_be_bytes()].concat();
    let outside = |kind| Header { epoch: 0, cid: 0, call_number: 0, ..header(kind) };
    let jumbo = Flags::CLIENT_INITIATED.with(Flags::JUMBO_PACKET);
    let small = [&[0x11; 1412][..], &[4, 0, 0, 0], &[0x22; 50]].concat();
    let mut packets = vec![
        ("data", [&header(PacketType::Data).encode()[..], &[7; 40]].concat()),
        ("jumbogram", [&Header { flags: jumbo, ..header(PacketType::Data) }.encode()[..], &small].concat()),
        ("ack", [&header(PacketType::Ack).encode()[..], &ack()].concat()),
        ("abort", [&header(PacketType::Abort).encode()[..], &(-3i32).to_be_bytes()].concat()),
        ("busy", header(PacketType::Busy).encode().to_vec()),
        ("ack_all", header(PacketType::AckAll).encode().to_vec()),
        ("challenge", [&header(PacketType::Challenge).encode()[..], &[0; 16]].concat()),
        ("response", [&header(PacketType::Response).encode()[..], &[0; 80]].concat()),
        ("version", [&outside(PacketType::Version).encode()[..], &[0; 65]].concat()),
    ];
    for (kind, name) in
        ["basics", "busy_connection", "connection", "counters", "peer"].into_iter().enumerate()
    {
        packets.push((name, [&outside(PacketType::Debug).encode()[..], &debug(kind as u32 + 1)].concat()));
    }
    packets
}

fn headers() -> Vec<Seed> {
    packets().into_iter().map(|(name, packet)| seed("rx_header", name, packet)).collect()
}

/// Returns an input with every kind of packet, sent to a server.
fn questions() -> Vec<u8> {
    let mut input = vec![0];
    for (_, packet) in packets() {
        push(&mut input, &[&[Step::Datagram as u8], &packet[..]].concat());
    }
    push(&mut input, &[Step::TooBig as u8, 4, 0]);
    push(&mut input, &[Step::Pass as u8, 200, 0]);
    input
}

/// Returns an input for a client whose calls are not answered, with reports of undelivered packets.
fn notices() -> Vec<u8> {
    let mut input = vec![1];
    let [call, unreachable] = [Step::Call as u8, Step::Unreachable as u8];
    for (_, packet) in packets() {
        push(&mut input, &[call, 3, 1, 2, 3, 4]);
        push(&mut input, &[&[unreachable], &packet[..]].concat());
        push(&mut input, &[unreachable]);
        push(&mut input, &[Step::Timeout as u8]);
    }
    input
}

/// The two ends of a conversation, and the recorded input of each.
struct Talk {
    machines: [Machine; 2],
    inputs: [Vec<u8>; 2],
    datagrams: usize,
    lost: usize,
}

impl Talk {
    /// Performs a step at one end and everything that follows from it at both. Every `lost`-th datagram is
    /// dropped.
    fn step(&mut self, end: usize, frame: &[u8]) {
        push(&mut self.inputs[end], frame);
        for datagram in self.machines[end].step(frame) {
            self.datagrams += 1;
            if !self.datagrams.is_multiple_of(self.lost) {
                self.step(1 - end, &[&[Step::Datagram as u8], &datagram[..]].concat());
            }
        }
    }
}

fn conversation(name: &str, level: u8, requests: &[usize], lost: usize) -> [Seed; 2] {
    let machines = [Machine::server(), Machine::client()];
    let mut talk = Talk { machines, inputs: [vec![0], vec![1]], datagrams: 0, lost };
    for length in requests {
        let request: Vec<u8> = (0..*length).map(|index| index as u8).collect();
        talk.step(1, &[&[Step::Call as u8, level][..], &request].concat());
    }
    for _ in 0..6 {
        talk.step(0, &[Step::Timeout as u8]);
        talk.step(1, &[Step::Timeout as u8]);
    }
    let [server, client] = talk.inputs;
    [
        seed("rx_endpoint", format!("server_{name}"), server),
        seed("rx_endpoint", format!("client_{name}"), client),
    ]
}
