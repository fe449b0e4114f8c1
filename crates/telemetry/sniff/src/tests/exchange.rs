//! Calls built by hand: each packet at a chosen time.

use crate::pcap::{Reader, Writer};
use crate::{Calls, Filter, Limits, Link, Percentiles, Report, Sniffer, frame};
use afs_idl::common::Fid;
use afs_idl::fs::{self, FetchDataRequest, FetchStatusRequest, StoreDataRequest};
use rx_proto::ack::{Ack, Reason, Trailer};
use rx_proto::{Flags, Header, PacketType};
use std::net::SocketAddrV4;
use xdr::Encode;

const CLIENT: &str = "10.0.0.9:7001";
const SERVER: &str = "10.0.0.1:7000";
const MS: u64 = 1_000_000;
const LAST: Flags = Flags::LAST_PACKET;
const FID: Fid = Fid { volume: 0x2000_0003, vnode: 1, unique: 1 };

/// One conversation, packet by packet.
struct Exchange {
    client: SocketAddrV4,
    server: SocketAddrV4,
    now_ns: u64,
    serials: [u32; 2],
    header: Header,
    frames: Vec<(u64, Vec<u8>)>,
}

impl Exchange {
    fn new(client: &str, server: &str) -> Exchange {
        let header = Header {
            epoch: 0x9000_0000,
            cid: 0x40,
            call_number: 1,
            sequence: 0,
            serial: 0,
            kind: PacketType::Data,
            flags: Flags(0),
            user_status: 0,
            security_index: 0,
            checksum: 0,
            service_id: fs::SERVICE_ID,
        };
        let (client, server) = (client.parse().unwrap(), server.parse().unwrap());
        Exchange { client, server, now_ns: 1000 * MS, serials: [0; 2], header, frames: Vec::new() }
    }

    /// Advances the time.
    fn after(&mut self, ns: u64) -> &mut Exchange {
        self.now_ns += ns;
        self
    }

    fn channel(&mut self, channel: u32, call_number: u32) -> &mut Exchange {
        self.header.cid = self.header.cid & !3 | channel;
        self.header.call_number = call_number;
        self
    }

    /// Sends a packet with the next serial number of its side.
    fn packet(&mut self, from_client: bool, kind: PacketType, sequence: u32, flags: Flags, body: &[u8]) {
        let serial = &mut self.serials[usize::from(from_client)];
        *serial += 1;
        let flags = flags.with_if(from_client, Flags::CLIENT_INITIATED);
        let header = Header { kind, sequence, serial: *serial, flags, ..self.header };
        self.send(from_client, &[&header.encode()[..], body].concat());
    }

    fn send(&mut self, from_client: bool, packet: &[u8]) {
        let (source, destination) =
            if from_client { (self.client, self.server) } else { (self.server, self.client) };
        let frame = frame::encode(source, destination, packet, packet.len());
        self.frames.push((self.now_ns, frame));
    }

    fn request(&mut self, sequence: u32, flags: Flags, body: &[u8]) -> &mut Exchange {
        self.packet(true, PacketType::Data, sequence, flags, body);
        self
    }

    fn reply(&mut self, sequence: u32, flags: Flags, body: &[u8]) -> &mut Exchange {
        self.packet(false, PacketType::Data, sequence, flags, body);
        self
    }

    fn ack(&mut self, from_client: bool, reason: Reason, serial: u32) -> &mut Exchange {
        let ack = Ack {
            first: 1,
            previous: 0,
            serial,
            reason,
            received: &[],
            trailer: Trailer::default(),
            beyond: &[],
        };
        let mut body = Vec::new();
        ack.encode(&mut body);
        self.packet(from_client, PacketType::Ack, 0, Flags(0), &body);
        self
    }

    fn report(&self) -> Report {
        let mut sniffer = Sniffer::new(Filter::default(), Limits::default());
        self.frames.iter().for_each(|(ns, frame)| sniffer.frame(*ns, Link::Raw, frame));
        sniffer.report()
    }
}

fn message(opcode: u32, arguments: &impl Encode) -> Vec<u8> {
    [opcode.to_be_bytes().to_vec(), xdr::to_vec(arguments)].concat()
}

fn fetch_status() -> Vec<u8> {
    message(fs::FETCH_STATUS, &FetchStatusRequest { fid: FID })
}

#[test]
fn a_call_is_counted_with_its_times() {
    let mut exchange = Exchange::new(CLIENT, SERVER);
    exchange.request(1, LAST, &fetch_status());
    exchange.after(3000).reply(1, Flags(0), &[0; 100]);
    exchange.after(4000).reply(2, LAST, &[0; 20]);
    let report = exchange.report();
    let counts = Calls {
        calls: 1,
        request_bytes: 16,
        reply_bytes: 120,
        latency_us: 7,
        latency_us_max: 7,
        ..Calls::default()
    };
    assert_eq!(report.calls.len(), 1);
    let row = &report.calls[0];
    assert_eq!((row.kind.as_str(), row.counts), ("fs.FetchStatus", counts));
    assert_eq!(row.first, Percentiles { p50_us: 3, p90_us: 3, p99_us: 3, max_us: 3 });
    assert_eq!(row.last.max_us, 7);
    assert_eq!((report.volumes[0].volume.as_str(), report.volumes[0].counts), ("536870915", counts));
    assert_eq!((report.servers[0].server.as_str(), report.servers[0].service.as_str()), (SERVER, "fs"));
    assert_eq!(report.servers[0].traffic, report.total);
    assert_eq!((report.clients[0].client.as_str(), report.clients[0].traffic), ("10.0.0.9", report.total));
    assert_eq!(report.clients[0].kinds["fs.FetchStatus"], 1);
    assert_eq!((report.total.connections, report.total.calls, report.open), (1, counts, 0));
    assert_eq!((report.total.from_client.data, report.total.from_server.data), (1, 2));
    assert_eq!(report.packets["data"], 3);
    assert!(report.findings.is_empty(), "{:?}", report.findings);
}

#[test]
fn packets_that_come_again_late_or_not_at_all() {
    let mut exchange = Exchange::new(CLIENT, SERVER);
    let store = StoreDataRequest { fid: FID, length: 3000, file_length: 3000, ..StoreDataRequest::default() };
    let first = [message(fs::STORE_DATA, &store), vec![1; 1300]].concat();
    exchange.request(1, Flags(0), &first);
    exchange.after(MS).request(3, Flags::REQUEST_ACK, &[2; 700]); // 2 is lost before the capture point
    exchange.after(MS).ack(false, Reason::OutOfSequence, 2);
    exchange.after(MS).request(2, Flags(0), &[2; 800]);
    exchange.after(MS).request(1, Flags(0), &first);
    exchange.after(MS).ack(false, Reason::Duplicate, 4);
    let twice = exchange.frames.last().unwrap().clone();
    exchange.frames.push(twice);
    exchange.request(4, LAST.with(Flags::REQUEST_ACK), &[3; 200]);
    exchange.after(2 * MS).ack(false, Reason::Requested, 5);
    let data = exchange.frames[0].clone();
    exchange.frames.push((exchange.now_ns, data.1)); // with its old serial number
    exchange.after(8 * MS).reply(1, LAST, &[0; 10]);
    exchange.after(MS).reply(1, LAST, &[0; 10]);
    exchange.ack(true, Reason::NoSpace, 3).ack(true, Reason::ExceedsWindow, 3);
    let report = exchange.report();
    let (client, server) = (report.total.from_client, report.total.from_server);
    assert_eq!((client.data, client.retransmitted, client.repeated), (6, 1, 1));
    assert_eq!((client.gaps, client.late), (1, 1));
    assert_eq!((server.data, server.retransmitted), (2, 1));
    assert_eq!((server.acks, server.acks_out_of_sequence, server.acks_duplicate), (4, 1, 2));
    assert_eq!((server.round_trips, server.round_trips_us), (1, 2000));
    assert_eq!((client.acks_no_space, client.acks_exceeds_window), (1, 1));
    let row = &report.calls[0];
    assert_eq!((row.kind.as_str(), row.first.max_us), ("fs.StoreData", 10_000));
    assert_eq!(row.counts.request_bytes, (first.len() + 800 + 700 + 200) as u64);
    assert_eq!((row.counts.calls, row.counts.missing), (1, 0));
    let reported: Vec<&str> = report.findings.iter().map(|finding| finding.text.as_str()).collect();
    assert_eq!(
        reported,
        [
            "1 data packets arrived twice with the same serial number: repeated by the network, or captured \
            twice",
            "clients of 10.0.0.1:7000 had no buffer for 2 packets: they read slowly",
        ]
    );
}

#[test]
fn calls_that_do_not_end_well() {
    let mut exchange = Exchange::new(CLIENT, SERVER);
    exchange.request(1, LAST, &fetch_status());
    exchange.after(MS).packet(false, PacketType::Abort, 0, Flags(0), &110i32.to_be_bytes());
    exchange.after(MS).packet(false, PacketType::Abort, 0, Flags(0), &110i32.to_be_bytes());
    exchange.channel(1, 1).request(1, LAST, &fetch_status());
    exchange.after(MS).packet(false, PacketType::Busy, 0, Flags(0), &[]);
    exchange.after(MS).channel(1, 2).request(1, LAST, &fetch_status());
    exchange.channel(2, 1).request(1, Flags(0), &fetch_status());
    // The connection is aborted: both open calls end.
    exchange.channel(0, 0).packet(false, PacketType::Abort, 0, Flags(0), &(-3i32).to_be_bytes());
    exchange.channel(3, 1).request(1, LAST, &fetch_status());
    let report = exchange.report();
    let calls = report.total.calls;
    assert_eq!((calls.calls, calls.aborted, calls.unanswered, report.open), (4, 3, 1, 1));
    assert_eq!((report.total.busy, report.total.aborts), (1, 3));
    let aborts: Vec<_> = report.aborts.iter().map(|row| (row.code, row.name, row.calls)).collect();
    assert_eq!(aborts, [(-3, Some("RX_CALL_TIMEOUT"), 2), (110, Some("VBUSY"), 1)]);
    assert_eq!(report.calls[0].counts, calls);
    let reported: Vec<&str> = report.findings.iter().map(|finding| finding.text.as_str()).collect();
    assert_eq!(
        reported,
        [
            "10.0.0.1:7000 left calls unanswered: 25.0 % (1 of 4)",
            "client 10.0.0.9 got 1 busy replies from the server, which is short of threads or connections",
        ]
    );
}

#[test]
fn a_server_that_says_nothing_is_named() {
    let reported = |exchange: &Exchange| {
        let findings = exchange.report().findings;
        findings.into_iter().map(|finding| finding.text).collect::<Vec<_>>()
    };
    let mut exchange = Exchange::new(CLIENT, SERVER);
    exchange.request(1, LAST, &fetch_status());
    assert!(reported(&exchange).is_empty(), "it may answer yet");
    exchange.after(500 * MS).request(1, LAST, &fetch_status());
    let expected = "10.0.0.1:7000 sends nothing: 1 of 2 packets to it were retransmitted; it is not \
        running, or its packets take another path";
    assert_eq!(reported(&exchange), [expected]);
    exchange.after(MS).ack(false, Reason::Duplicate, 2);
    assert!(reported(&exchange).is_empty(), "it is slow, but it is there");
}

#[test]
fn a_capture_without_rx_is_not_called_ordinary() {
    let mut exchange = Exchange::new(CLIENT, SERVER);
    let reported = |exchange: &Exchange| exchange.report().findings[0].text.clone();
    assert_eq!(
        reported(&exchange),
        "no packets were seen: wrong interface, host or ports, or there are no calls"
    );
    exchange.send(true, b"something else");
    exchange.frames.push((exchange.now_ns, vec![0x60; 60])); // IPv6
    assert_eq!(
        reported(&exchange),
        "none of 2 frames is Rx: 0 are of other hosts or ports, 1 are UDP but not Rx, 1 are not UDP over IPv4"
    );
}

#[test]
fn a_client_that_does_not_answer_callbacks_is_named() {
    let mut exchange = Exchange::new("10.0.0.1:7000", "10.0.0.9:7001");
    let probe = message(afs_idl::cb::PROBE, &afs_idl::cb::ProbeRequest);
    exchange.request(1, LAST, &probe).after(50_000 * MS).channel(0, 2).request(1, LAST, &probe);
    let report = exchange.report();
    assert_eq!((report.calls[0].kind.as_str(), report.servers[0].service.as_str()), ("cb.Probe", "cb"));
    let expected =
        "client 10.0.0.9:7001 does not answer callbacks: 100.0 % (1 of 1); calls that wait for them are slow";
    assert_eq!(report.findings[0].text, expected);
}

#[test]
fn jumbograms_and_runs_are_taken_apart() {
    let mut exchange = Exchange::new(CLIENT, SERVER);
    let fetch = message(fs::FETCH_DATA, &FetchDataRequest { fid: FID, position: 0, length: 4000 });
    exchange.request(1, LAST, &fetch);
    // Packets 1 and 2 in one datagram: 1412 bytes, a header of 4, the rest.
    let jumbo = [&[1; 1412][..], &[0, 0, 0, 0], &[2; 300]].concat();
    exchange.after(MS).reply(1, Flags::JUMBO_PACKET, &jumbo);
    exchange.serials[0] += 1; // the second packet's
    // Packets 3 and 4 under one UDP header, as the sender's kernel shows them.
    let mut run = Vec::new();
    for (sequence, flags, length) in [(3, Flags(0), 600), (4, LAST, 50)] {
        exchange.reply(sequence, flags, &vec![sequence as u8; length]);
        run.extend_from_slice(&exchange.frames.pop().unwrap().1[28..]);
    }
    exchange.send(false, &run);
    let report = exchange.report();
    assert_eq!((report.packets["data"], report.total.from_server.data), (4, 4));
    assert_eq!(report.captured.merged, 2);
    let counts = report.calls[0].counts;
    assert_eq!((counts.calls, counts.reply_bytes, counts.missing), (1, 1412 + 300 + 600 + 50, 0));
    assert_eq!((report.total.from_server.gaps, report.total.from_server.retransmitted), (0, 0));
}

#[test]
fn truncated_and_filtered_packets_are_counted() {
    let mut exchange = Exchange::new(CLIENT, SERVER);
    exchange.request(1, LAST, &fetch_status());
    exchange.after(MS).reply(1, LAST, &[0; 500]);
    exchange.frames[1].1.truncate(28 + 28 + 10);
    exchange.send(true, b"not Rx");
    exchange.packet(true, PacketType::Ack, 0, Flags(0), &[]);
    exchange.frames.push((exchange.now_ns, vec![0x60; 60]));
    let report = exchange.report();
    assert_eq!((report.captured.cut, report.captured.not_rx), (1, 1));
    assert_eq!((report.captured.malformed, report.captured.ipv6, report.captured.frames), (1, 1, 5));
    assert_eq!(report.total.calls.reply_bytes, 500, "as on the wire");

    let takes = |filter: Filter| {
        let mut sniffer = Sniffer::new(filter, Limits::default());
        exchange.frames.iter().for_each(|(ns, frame)| sniffer.frame(*ns, Link::Raw, frame));
        let captured = sniffer.report().captured;
        (captured.filtered, captured.not_rx)
    };
    assert_eq!(takes(Filter { ports: vec![7000], hosts: vec![] }), (0, 1));
    assert_eq!(takes(Filter { ports: vec![7003], hosts: vec![] }), (4, 0));
    assert_eq!(takes(Filter { ports: vec![], hosts: vec!["10.0.0.2".parse().unwrap()] }), (4, 0));
    assert_eq!(takes(Filter { ports: vec![], hosts: vec!["10.0.0.9".parse().unwrap()] }), (0, 1));
}

#[test]
fn reports_of_intervals_add_up() {
    let mut sniffer = Sniffer::new(Filter::default(), Limits::default());
    let mut exchange = Exchange::new(CLIENT, SERVER);
    for number in 1..=10 {
        exchange.channel(0, number).request(1, LAST, &fetch_status());
        exchange.after(MS).reply(1, LAST, &[0; 100]);
    }
    let mut sums = (0, 0, 0, 0);
    for frames in exchange.frames.chunks(3) {
        for (ns, frame) in frames {
            sniffer.frame(*ns, Link::Raw, frame);
        }
        let report = sniffer.report();
        let total = report.total;
        sums.0 += total.calls.calls;
        sums.1 += total.connections;
        sums.2 += total.from_client.data + total.from_server.data;
        sums.3 += report.volumes.iter().map(|row| row.counts.reply_bytes).sum::<u64>();
        sniffer.reset();
    }
    assert_eq!(sums, (10, 1, 20, 1000));
}

#[test]
fn memory_is_bounded_whatever_the_traffic() {
    let limits = Limits { connections: 100, hosts: 10, volumes: 10, kinds: 5, details: 20 };
    let mut sniffer = Sniffer::new(Filter::default(), limits);
    let mut exchange = Exchange::new(CLIENT, SERVER);
    for number in 0..5000u32 {
        exchange.client = SocketAddrV4::new((0x0a00_0000 + number).into(), 7001);
        exchange.header.service_id = number as u16;
        exchange.header.epoch = number;
        let fid = Fid { volume: number, ..FID };
        let request = message(fs::FETCH_STATUS, &FetchStatusRequest { fid });
        exchange.after(1).request(1, LAST, &request);
    }
    exchange.frames.iter().for_each(|(ns, frame)| sniffer.frame(*ns, Link::Raw, frame));
    let report = sniffer.report();
    let lengths = (report.calls.len(), report.clients.len(), report.volumes.len());
    assert!(lengths.0 <= 6 && lengths.1 <= 11 && lengths.2 <= 11, "{lengths:?}");
    assert_eq!(report.total.connections, 5000);
    assert_eq!(report.total.calls.calls + report.open, 5000);
    assert_eq!(report.clients.iter().map(|row| row.traffic.connections).sum::<u64>(), 5000);
    assert!(report.captured.forgotten >= 4900, "{}", report.captured.forgotten);
}

#[test]
fn a_written_capture_decodes_the_same() {
    let mut exchange = Exchange::new(CLIENT, SERVER);
    exchange.request(1, LAST, &fetch_status()).after(MS).reply(1, LAST, &[0; 500]);
    let mut writer = Writer::new(Vec::new()).unwrap();
    for (ns, frame) in &exchange.frames {
        let crate::Frame::Udp(it) = frame::decode(Link::Raw, frame) else { panic!("no datagram") };
        writer.datagram(*ns, it.source, it.destination, it.payload, it.payload_bytes).unwrap();
    }
    let file = writer.finish().unwrap();
    let mut reader = Reader::new(&file[..]).unwrap();
    let mut sniffer = Sniffer::new(Filter::default(), Limits::default());
    while let Some(packet) = reader.packet().unwrap() {
        sniffer.frame(packet.time_ns, packet.link, packet.data);
    }
    assert_eq!(sniffer.report().total, exchange.report().total);
}
