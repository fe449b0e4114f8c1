//! Tickets and packets made by other programs (see testdata/README.md).

use std::sync::Arc;

use base::{AbortCode, Identity, SecurityLevel, UnixTime};
use bytes::Bytes;
use rx_security::{
    ClientSecurity, ConnectionFacts, KeySet, LocalRealms, PacketFacts, RxkadClient, RxkadServer,
    SecurityError, ServerSecurity, ServiceKey, Ticket, Verified,
};

/// Nonce of the challenge that the recorded responses answer.
const NONCE: [u8; 16] = [1, 2, 3, 4, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
const NOW: UnixTime = UnixTime(1_800_000_000);

fn keys() -> KeySet {
    let mut keys = KeySet::new();
    for (enctype, length) in [(18, 32), (17, 16), (16, 24), (23, 16)] {
        let bytes: Vec<u8> = (0..length).map(|index| (7 * index + length) as u8).collect();
        keys.insert(3, ServiceKey::new(enctype, &bytes).unwrap());
    }
    let des = [0x01, 0x23, 0x45, 0x67, 0x89, 0xab, 0xcd, 0xef];
    keys.insert(4, ServiceKey::new(1, &des).unwrap());
    keys
}

fn server() -> RxkadServer {
    RxkadServer::new(Arc::new(keys()), LocalRealms::of_cell("test.example"))
}

fn name(verified: &Verified) -> String {
    match &verified.identity {
        Identity::Known(principal) => principal.to_string(),
        Identity::Anonymous => "nobody".to_owned(),
    }
}

/// An Rx packet's properties, checksum and body.
struct Packet {
    connection: ConnectionFacts,
    facts: PacketFacts,
    checksum: u16,
    body: Bytes,
}

fn packet(datagram: &'static [u8]) -> Packet {
    let word = |at: usize| u32::from_be_bytes(datagram[at..at + 4].try_into().unwrap());
    let half = |at: usize| u16::from_be_bytes(datagram[at..at + 2].try_into().unwrap());
    Packet {
        connection: ConnectionFacts {
            epoch: word(0),
            connection_id: word(4) & !3,
            service_id: half(26),
            security_index: datagram[23],
        },
        facts: PacketFacts { call_number: word(8), channel: (word(4) & 3) as u8, sequence: word(12) },
        checksum: half(24),
        body: Bytes::from_static(&datagram[28..]),
    }
}

macro_rules! recorded {
    ($name:literal) => {
        (
            packet(include_bytes!(concat!("../testdata/openafs-localauth-", $name, ".response"))),
            packet(include_bytes!(concat!("../testdata/openafs-localauth-", $name, ".data"))),
        )
    };
}

#[test]
fn openafs_tools_with_localauth() {
    for (recorded, level, length, expires) in [
        (recorded!("crypt"), SecurityLevel::Encrypted, 4, Some(UnixTime(0x7fff_ffff))),
        (recorded!("clear"), SecurityLevel::Clear, 8, Some(UnixTime(0x7fff_ffff))),
        (recorded!("des"), SecurityLevel::Clear, 8, None),
    ] {
        let (response, data) = recorded;
        let mut accept = server().accept(response.connection, NONCE);
        let mut verified = accept.verify(&response.body, NOW).unwrap();
        assert_eq!((name(&verified).as_str(), verified.level), ("afs", level));
        assert_eq!(verified.expires, expires);
        let payload = verified.protection.unprotect(data.facts, data.checksum, data.body).unwrap();
        assert!(payload.len() >= length && payload.len().is_multiple_of(4), "{level:?}");
        // The first word of a call is its opcode: AFSVolXListPartitions, BOZO_EnumerateInstance.
        let opcode = u32::from_be_bytes(payload[..4].try_into().unwrap());
        assert_eq!(opcode, if level == SecurityLevel::Encrypted { 127 } else { 84 });
    }
}

#[test]
fn openafs_response_replayed_elsewhere() {
    let (response, _) = recorded!("crypt");
    let other =
        ConnectionFacts { connection_id: response.connection.connection_id + 4, ..response.connection };
    let code = |connection, nonce| {
        let result = server().accept(connection, nonce).verify(&response.body, NOW);
        result.map(|_| ()).map_err(|error: SecurityError| error.abort_code())
    };
    assert_eq!(code(other, NONCE), Err(AbortCode::RXKADSEALEDINCON));
    assert_eq!(code(response.connection, [9; 16]), Err(AbortCode::RXKADOUTOFSEQUENCE));
    assert_eq!(code(response.connection, NONCE), Ok(()));
}

/// The required fields of a credentials cache, from its first entry for the cell.
struct Credentials {
    session_enctype: i32,
    session_key: Vec<u8>,
    start: u32,
    end: u32,
    ticket: Vec<u8>,
}

/// Reads a version 4 cache, which is trusted here.
fn credentials(cache: &[u8]) -> Credentials {
    struct Reader<'a>(&'a [u8]);
    impl Reader<'_> {
        fn number(&mut self, bytes: usize) -> u32 {
            let (number, rest) = self.0.split_at(bytes);
            self.0 = rest;
            number.iter().fold(0, |value, byte| value << 8 | u32::from(*byte))
        }
        fn data(&mut self) -> Vec<u8> {
            let length = self.number(4) as usize;
            let (data, rest) = self.0.split_at(length);
            self.0 = rest;
            data.to_vec()
        }
        fn principal(&mut self) -> Vec<Vec<u8>> {
            self.number(4);
            let count = self.number(4);
            (0..=count).map(|_| self.data()).collect()
        }
    }
    let mut reader = Reader(cache);
    assert_eq!(reader.number(2), 0x0504);
    let header = reader.number(2) as usize;
    reader.0 = &reader.0[header..];
    reader.principal();
    loop {
        reader.principal();
        let service = reader.principal();
        let session_enctype = reader.number(2) as i32;
        let session_key = reader.data();
        let times = [0; 4].map(|_: u32| reader.number(4));
        reader.number(1);
        reader.number(4);
        for _ in 0..2 {
            for _ in 0..reader.number(4) {
                reader.number(2);
                reader.data();
            }
        }
        let ticket = reader.data();
        reader.data();
        if service[0] == b"TEST.EXAMPLE" && service[1] == b"afs" {
            let [_, start, end, _] = times;
            return Credentials { session_enctype, session_key, start, end, ticket };
        }
    }
}

#[test]
fn heimdal_tickets() {
    for (enctype, cache) in [
        (18, &include_bytes!("../testdata/heimdal-aes256.ccache")[..]),
        (17, include_bytes!("../testdata/heimdal-aes128.ccache")),
        (23, include_bytes!("../testdata/heimdal-rc4.ccache")),
        (16, include_bytes!("../testdata/heimdal-des3.ccache")),
    ] {
        let found = credentials(cache);
        assert_eq!(found.session_enctype, enctype);
        let expires = UnixTime(found.end);
        let ticket = Ticket::from_kerberos(found.ticket, found.session_enctype, &found.session_key, expires);
        let client = RxkadClient::from_ticket(ticket.unwrap(), SecurityLevel::Encrypted).unwrap();
        let connection = ConnectionFacts {
            epoch: 0x9000_0001,
            connection_id: 0x1234_5678,
            service_id: 1,
            security_index: 2,
        };
        let mut client = client.start(connection).unwrap();
        let mut accept = server().accept(connection, NONCE);
        let response = client.respond(&accept.challenge(), [1, 0, 0, 0]).unwrap();
        let begin = UnixTime(found.start.max(found.end - 36_000));
        let verified = accept.verify(&response, begin).unwrap();
        assert_eq!(name(&verified), "alice.admin", "type {enctype}");
        assert_eq!(verified.expires, Some(expires));
        let late = accept.verify(&response, expires).unwrap_err();
        assert_eq!(late.abort_code(), AbortCode::RXKADEXPIRED);
    }
}
