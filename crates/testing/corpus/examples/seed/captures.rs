//! Capture files in both formats, with successful and failed calls.

use crate::{Seed, seed};
use afs_idl::common::Fid;
use afs_idl::fs::{self, FetchStatusRequest};
use rx_proto::ack::{Ack, Reason, Trailer};
use rx_proto::{Flags, Header, PacketType};
use sniff::frame;
use sniff::pcap::Writer;
use std::net::{Ipv4Addr, SocketAddrV4};

const LAST: Flags = Flags::LAST_PACKET;

pub(crate) fn seeds() -> Vec<Seed> {
    let packets = packets();
    vec![seed("capture", "calls.pcap", classic(&packets)), seed("capture", "calls.pcapng", blocks(&packets))]
}

/// Returns packets, each with whether the client sent it.
fn packets() -> Vec<(bool, Vec<u8>)> {
    let fid = Fid { volume: 0x2000_0001, vnode: 1, unique: 1 };
    let request =
        [fs::FETCH_STATUS.to_be_bytes().to_vec(), xdr::to_vec(&FetchStatusRequest { fid })].concat();
    let jumbo = [&[1; 1412][..], &[LAST.0, 0, 0, 0], &[2; 40]].concat();
    let ack = Ack {
        first: 1,
        previous: 1,
        serial: 2,
        reason: Reason::Requested,
        received: &[1, 0, 1],
        trailer: Trailer { window: Some(32), ..Trailer::default() },
        beyond: &[],
    };
    let mut body = Vec::new();
    ack.encode(&mut body);
    let busy = 110i32.to_be_bytes();
    vec![
        packet(true, PacketType::Data, 1, LAST, 1, &request),
        packet(false, PacketType::Data, 1, Flags::REQUEST_ACK, 1, &[0; 60]),
        packet(false, PacketType::Data, 3, LAST, 1, &[0; 4]),
        packet(true, PacketType::Ack, 0, Flags(0), 1, &body),
        packet(false, PacketType::Data, 2, Flags(0), 1, &[0; 60]),
        packet(false, PacketType::Data, 2, Flags(0), 1, &[0; 60]),
        packet(true, PacketType::Data, 1, LAST, 2, &request),
        packet(false, PacketType::Data, 1, Flags::JUMBO_PACKET, 2, &jumbo),
        packet(true, PacketType::Data, 1, LAST, 3, &request),
        packet(false, PacketType::Abort, 0, Flags(0), 3, &busy),
        packet(false, PacketType::Challenge, 0, Flags(0), 0, &[0; 16]),
        packet(false, PacketType::Abort, 0, Flags(0), 0, &busy),
    ]
}

fn packet(
    client: bool,
    kind: PacketType,
    sequence: u32,
    flags: Flags,
    call: u32,
    body: &[u8],
) -> (bool, Vec<u8>) {
    let header = Header {
        epoch: 0x9000_0001,
        cid: 0x100,
        call_number: call,
        sequence,
        serial: sequence + 1,
        kind,
        flags: flags.with_if(client, Flags::CLIENT_INITIATED),
        user_status: 0,
        security_index: 0,
        checksum: 0,
        service_id: fs::SERVICE_ID,
    };
    (client, [&header.encode()[..], body].concat())
}

fn ends(from_client: bool) -> (SocketAddrV4, SocketAddrV4) {
    let client = SocketAddrV4::new(Ipv4Addr::new(10, 0, 0, 9), 7001);
    let server = SocketAddrV4::new(Ipv4Addr::new(10, 0, 0, 1), fs::PORT);
    if from_client { (client, server) } else { (server, client) }
}

fn classic(packets: &[(bool, Vec<u8>)]) -> Vec<u8> {
    let mut writer = Writer::new(Vec::new()).expect("writes to memory succeed");
    for (place, (client, packet)) in packets.iter().enumerate() {
        let (from, to) = ends(*client);
        let time_ns = 1_700_000_000_000_000_000 + place as u64 * 1_000_000;
        writer.datagram(time_ns, from, to, packet, packet.len()).expect("writes to memory succeed");
    }
    writer.finish().expect("writes to memory succeed")
}

fn blocks(packets: &[(bool, Vec<u8>)]) -> Vec<u8> {
    let words = |words: &[u32]| words.iter().flat_map(|word| word.to_le_bytes()).collect::<Vec<u8>>();
    let mut file = block(0x0a0d_0d0a, &words(&[0x1a2b_3c4d, 1, u32::MAX, u32::MAX]));
    file.extend(block(1, &words(&[1, 0, 0x0001_0009, 9, 0])));
    for (place, (client, packet)) in packets.iter().enumerate() {
        let (from, to) = ends(*client);
        let frame = [&[2; 12][..], &[8, 0], &frame::encode(from, to, packet, packet.len())].concat();
        let length = frame.len() as u32;
        file.extend(block(6, &[words(&[0, 0, place as u32 * 1000, length, length]), frame].concat()));
    }
    file
}

fn block(kind: u32, content: &[u8]) -> Vec<u8> {
    let padding = vec![0; content.len().next_multiple_of(4) - content.len()];
    let length = ((content.len() + padding.len() + 12) as u32).to_le_bytes();
    [&kind.to_le_bytes()[..], &length, content, &padding, &length].concat()
}
