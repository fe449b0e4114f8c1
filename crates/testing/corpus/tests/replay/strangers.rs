//! Memory that an endpoint holds for connections whose clients have proved nothing.

use crate::memory;
use base::{Monotonic, UnixTime};
use bytes::Bytes;
use rx_proto::{Endpoint, EndpointConfig, Flags, Header, PacketType, Path, ServiceConfig};
use rx_security::{KeySet, LocalRealms, Null, RxkadServer, ServiceKey};
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;

const SERVICE: u16 = 1;
const NOW: Monotonic = Monotonic(1);
const WALL: UnixTime = UnixTime(1_700_000_000);

/// Maximum memory for one such connection with a call, without the bodies of its packets, in bytes.
const CONNECTION_BYTES_MAX: usize = 4096;

fn endpoint() -> Endpoint {
    let mut keys = KeySet::new();
    keys.insert(3, ServiceKey::new(18, &[7; 32]).expect("a key of the right length"));
    let rxkad = RxkadServer::new(Arc::new(keys), LocalRealms::of_cell("corpus.example"));
    let mut endpoint = Endpoint::new(EndpointConfig::default(), 1, NOW);
    endpoint.add_service(ServiceConfig {
        id: SERVICE,
        name: String::from("corpus"),
        security: vec![Arc::new(Null), Arc::new(rxkad)],
    });
    endpoint
}

/// The first packet of a stranger's call, with a body of this length.
fn first(security_index: u8, body_bytes: usize) -> Bytes {
    let header = Header {
        epoch: 0x8765_4321,
        cid: 0x1234_5670,
        call_number: 1,
        sequence: 1,
        serial: 1,
        kind: PacketType::Data,
        flags: Flags::CLIENT_INITIATED.with(Flags::LAST_PACKET),
        user_status: 0,
        security_index,
        checksum: 0,
        service_id: SERVICE,
    };
    Bytes::from([&header.encode()[..], &vec![0; body_bytes]].concat())
}

fn stranger(number: usize) -> SocketAddr {
    SocketAddr::from((Ipv4Addr::from_bits(0x0c00_0000 + number as u32), 7001))
}

/// The most that an endpoint holds for each of the strangers, in bytes.
fn held(security_index: u8, body_bytes: usize) -> usize {
    let mut endpoint = endpoint();
    let strangers = endpoint.config().unproven_connections_max;
    let datagram = first(security_index, body_bytes);
    let peak = memory::peak(|| {
        // As many again come when the room is full.
        for number in 0..2 * strangers {
            // Each in a buffer of its own.
            let datagram = Bytes::copy_from_slice(&datagram);
            endpoint.handle_datagram(NOW, WALL, Path::to(stranger(number)), datagram);
            while endpoint.poll_event().is_some() {}
            while let Some(transmit) = endpoint.poll_transmit(NOW) {
                endpoint.recycle(transmit);
            }
        }
    });
    peak / strangers
}

#[test]
fn an_unproven_connection_takes_little() {
    for (security_index, body_bytes) in [(0, 16), (0, 1400), (2, 16), (2, 1400)] {
        let held = held(security_index, body_bytes);
        println!("class {security_index}, {body_bytes} bytes: {held} bytes");
        assert!(held <= CONNECTION_BYTES_MAX + body_bytes, "class {security_index}: {held} bytes");
    }
}
