//! Decoders return a value or an error for any input.

use std::sync::Arc;

use base::{SecurityLevel, UnixTime};
use bytes::Bytes;
use proptest::prelude::*;
use rx_security::rxkad::{KVNO_KERBEROS_5, KVNO_KERBEROS_5_SEALED_PART};
use rx_security::{
    ClientSecurity, ConnectionFacts, KeySet, LOCAL_TICKET_END_MAX, LocalRealms, PacketFacts, RxkadClient,
    RxkadServer, ServerSecurity, ServiceKey, forge_local_ticket,
};

const CONNECTION: ConnectionFacts =
    ConnectionFacts { epoch: 1, connection_id: 4, service_id: 1, security_index: 2 };
const NOW: UnixTime = UnixTime(1_700_000_000);
const LEVELS: [SecurityLevel; 3] =
    [SecurityLevel::Clear, SecurityLevel::Authenticated, SecurityLevel::Encrypted];

fn keys(enctype: i32, length: usize) -> KeySet {
    let mut keys = KeySet::new();
    keys.insert(3, ServiceKey::new(enctype, &vec![0x5c; length]).unwrap());
    keys
}

fn server() -> RxkadServer {
    let mut all = keys(18, 32);
    all.insert(3, ServiceKey::new(1, &[0x5c; 8]).unwrap());
    RxkadServer::new(Arc::new(all), LocalRealms::of_cell("test.example"))
}

fn client(enctype: i32, length: usize, level: SecurityLevel) -> RxkadClient {
    let ticket =
        forge_local_ticket(&keys(enctype, length), [0x34; 8], [9; 16], LOCAL_TICKET_END_MAX).unwrap();
    RxkadClient::from_ticket(ticket, level).unwrap()
}

fn response(client: &RxkadClient) -> Vec<u8> {
    let challenge = server().accept(CONNECTION, [0; 16]).challenge();
    client.start(CONNECTION).unwrap().respond(&challenge, [0; 4]).unwrap()
}

proptest! {
    #[test]
    fn challenges(bytes in prop::collection::vec(any::<u8>(), 0..40)) {
        let mut client = client(18, 32, SecurityLevel::Clear).start(CONNECTION).unwrap();
        let _ = client.respond(&bytes, [0; 4]);
    }

    #[test]
    fn responses(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
        prop_assert!(server().accept(CONNECTION, [0; 16]).verify(&bytes, NOW).is_err());
    }

    /// Wraps arbitrary bytes as a ticket in a well-formed frame.
    #[test]
    fn tickets(
        ticket in prop::collection::vec(any::<u8>(), 32..300),
        kvno in prop_oneof![Just(3), Just(KVNO_KERBEROS_5), Just(KVNO_KERBEROS_5_SEALED_PART)],
    ) {
        let mut bytes = response(&client(18, 32, SecurityLevel::Clear));
        bytes.truncate(56);
        bytes[48..52].copy_from_slice(&kvno.to_be_bytes());
        bytes[52..56].copy_from_slice(&(ticket.len() as u32).to_be_bytes());
        bytes.extend_from_slice(&ticket);
        prop_assert!(server().accept(CONNECTION, [0; 16]).verify(&bytes, NOW).is_err());
    }

    #[test]
    fn mutated_responses(
        des: bool, at in 0..240usize, byte: u8, cut in 0..240usize, kvno in prop::option::of(0..300u32),
    ) {
        let client = if des { client(1, 8, SecurityLevel::Clear) } else { client(18, 32, SecurityLevel::Clear) };
        let mut bytes = response(&client);
        if let Some(place) = bytes.get_mut(at) {
            *place = byte;
        }
        if let Some(kvno) = kvno {
            bytes[48..52].copy_from_slice(&kvno.to_be_bytes());
        }
        let _ = server().accept(CONNECTION, [0; 16]).verify(&bytes, NOW);
        bytes.truncate(cut);
        let _ = server().accept(CONNECTION, [0; 16]).verify(&bytes, NOW);
    }

    #[test]
    fn packets(
        level in 0..3usize,
        call_number: u32, channel in 0..4u8, sequence: u32, checksum: u16,
        body in prop::collection::vec(any::<u8>(), 0..100),
    ) {
        let client = client(18, 32, LEVELS[level]).start(CONNECTION).unwrap();
        let mut protection = client.protection();
        let packet = PacketFacts { call_number, channel, sequence };
        let body = Bytes::from(body);
        let _ = protection.unprotect(packet, checksum, body.clone());
        let right = protection.protect(packet, &[]).unwrap().checksum;
        if let Ok(payload) = protection.unprotect(packet, right, body.clone()) {
            prop_assert!(payload.len() <= body.len());
        }
    }

    #[test]
    fn payloads_come_back(
        level in 0..3usize,
        call_number: u32, channel in 0..4u8, sequence: u32,
        payload in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..50), 0..6),
    ) {
        let client = client(18, 32, LEVELS[level]).start(CONNECTION).unwrap();
        let mut protection = client.protection();
        let packet = PacketFacts { call_number, channel, sequence };
        let pieces: Vec<Bytes> = payload.iter().map(|piece| Bytes::copy_from_slice(piece)).collect();
        let sent = protection.protect(packet, &pieces).unwrap();
        let got = protection.unprotect(packet, sent.checksum, sent.pieces.concat().into()).unwrap();
        prop_assert_eq!(&got[..], payload.concat());
    }
}
