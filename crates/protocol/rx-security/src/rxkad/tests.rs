//! Complete handshakes between client and server.

use std::sync::Arc;

use base::{AbortCode, Identity, SecurityLevel, UnixTime};
use bytes::Bytes;

use super::*;
use crate::key::{Enctype, KeyRing, KeySet, ServiceKey};
use crate::krb5::cipher::{self, USAGE_TICKET};
use crate::krb5::message::tests::{body, encode_ticket};
use crate::krb5::message::{Sealed, TicketBody};
use crate::{
    ClientSecurity, ConnectionFacts, PacketFacts, PacketProtection, SecurityError, ServerSecurity, Verified,
};

const NOW: UnixTime = UnixTime(1_700_000_100);
const CONNECTION: ConnectionFacts =
    ConnectionFacts { epoch: 0x8123_4567, connection_id: 0x89ab_cdec, service_id: 52, security_index: 2 };
const CALLS: [u32; 4] = [3, 0, 9, 0x7fff_ffff];
const LEVELS: [SecurityLevel; 3] =
    [SecurityLevel::Clear, SecurityLevel::Authenticated, SecurityLevel::Encrypted];
const KVNO: u32 = 5;

fn service_key(enctype: Enctype) -> ServiceKey {
    let bytes: Vec<u8> = (0..enctype.key_bytes()).map(|byte| (byte * 5 + 3) as u8).collect();
    ServiceKey::new(enctype.number(), &bytes).unwrap()
}

fn keys(enctype: Enctype) -> KeySet {
    let mut keys = KeySet::new();
    keys.insert(KVNO - 1, ServiceKey::new(enctype.number(), &vec![1; enctype.key_bytes()]).unwrap());
    keys.insert(KVNO, service_key(enctype));
    keys
}

fn server(keys: KeySet) -> RxkadServer {
    RxkadServer::new(Arc::new(keys), LocalRealms::of_cell("test.example"))
}

/// Builds a ticket as a KDC issues it.
fn ticket(enctype: Enctype, kvno: u32, body: &TicketBody) -> Ticket {
    let ciphertext = cipher::seal(&service_key(enctype), USAGE_TICKET, [8; 16], &body.encode());
    let sealed = Sealed { enctype: enctype.number(), kvno, ciphertext: &ciphertext };
    let service = [b"afs".to_vec(), b"test.example".to_vec()];
    let bytes = encode_ticket(&sealed, "TEST.EXAMPLE", &service);
    let expires = UnixTime(body.end);
    Ticket::from_kerberos(bytes, body.session_enctype, &body.session_key, expires).unwrap()
}

fn handshake(
    ticket: Ticket,
    level: SecurityLevel,
    server: &RxkadServer,
    now: UnixTime,
) -> Result<Verified, SecurityError> {
    let client = RxkadClient::from_ticket(ticket, level)?;
    let mut client = client.start(CONNECTION)?;
    let mut server = server.accept(CONNECTION, [0xff; 16]);
    let response = client.respond(&server.challenge(), CALLS)?;
    let mut verified = server.verify(&response, now)?;
    exchange(&mut *client.protection(), &mut *verified.protection);
    Ok(verified)
}

/// Sends a packet each way.
fn exchange(client: &mut dyn PacketProtection, server: &mut dyn PacketProtection) {
    send(client, server);
    send(server, client);
}

fn send(from: &mut dyn PacketProtection, to: &mut dyn PacketProtection) {
    let packet = PacketFacts { call_number: 4, channel: 1, sequence: 2 };
    let sent = from.protect(packet, &[Bytes::from_static(b"hello, cell")]).unwrap();
    let body = Bytes::from(sent.pieces.concat());
    let got = to.unprotect(packet, sent.checksum, body).unwrap();
    assert_eq!(got, &b"hello, cell"[..]);
}

fn name(verified: &Verified) -> String {
    match &verified.identity {
        Identity::Known(principal) => principal.to_string(),
        Identity::Anonymous => "nobody".to_owned(),
    }
}

fn code(result: Result<Verified, SecurityError>) -> AbortCode {
    result.unwrap_err().abort_code()
}

#[test]
fn every_level_with_every_key_type() {
    for enctype in Enctype::ALL {
        for level in LEVELS {
            let ticket = ticket(enctype, KVNO, &body());
            let verified = handshake(ticket, level, &server(keys(enctype)), NOW).unwrap();
            assert_eq!(name(&verified), "alice.admin", "{enctype:?}");
            assert_eq!(verified.level, level);
            assert_eq!(verified.expires, Some(UnixTime(body().end)));
            assert_eq!(verified.call_numbers, Some(CALLS));
        }
    }
}

#[test]
fn every_session_key_type() {
    for (session_enctype, bytes) in [(1, 8), (2, 8), (3, 8), (16, 24), (17, 16), (18, 32), (23, 16)] {
        let session_key = zeroize::Zeroizing::new(vec![0x35; bytes]);
        let body = TicketBody { session_enctype, session_key, ..body() };
        let ticket = ticket(Enctype::Aes256CtsHmacSha1, KVNO, &body);
        let server = server(keys(Enctype::Aes256CtsHmacSha1));
        assert!(handshake(ticket, SecurityLevel::Encrypted, &server, NOW).is_ok());
    }
}

#[test]
fn local_tickets_are_the_servers_own() {
    for enctype in Enctype::ALL {
        let keys = keys(enctype);
        let ticket =
            forge_local_ticket(&keys, *b"\x12\x34\x56\x78\x9a\xbc\xde\xf0", [6; 16], LOCAL_TICKET_END_MAX)
                .unwrap();
        let kerberos_4 = matches!(enctype, Enctype::DesCbcCrc | Enctype::DesCbcMd5);
        assert_eq!(ticket.kvno, if kerberos_4 { KVNO } else { KVNO_KERBEROS_5_SEALED_PART });
        for level in LEVELS {
            let server = server(keys.clone());
            let verified = handshake(ticket.clone(), level, &server, NOW).unwrap();
            assert_eq!(name(&verified), "afs");
        }
    }
    let none = forge_local_ticket(&KeySet::new(), [1; 8], [0; 16], LOCAL_TICKET_END_MAX).unwrap_err();
    assert_eq!(none.abort_code(), AbortCode::RXKADUNKNOWNKEY);
    let weak =
        forge_local_ticket(&keys(Enctype::Rc4Hmac), [1; 8], [0; 16], LOCAL_TICKET_END_MAX).unwrap_err();
    assert_eq!(weak.abort_code(), AbortCode::RXKADBADKEY);
}

#[test]
fn wrong_keys_and_versions() {
    for enctype in Enctype::ALL {
        let server = server(keys(enctype));
        for (kvno, expected) in
            [(KVNO - 1, AbortCode::RXKADBADTICKET), (KVNO + 1, AbortCode::RXKADUNKNOWNKEY)]
        {
            let ticket = ticket(enctype, kvno, &body());
            assert_eq!(code(handshake(ticket, SecurityLevel::Clear, &server, NOW)), expected);
        }
    }
    let ticket = ticket(Enctype::Aes256CtsHmacSha1, KVNO, &body());
    for (kvno, expected) in [
        (KVNO_KERBEROS_5_SEALED_PART, AbortCode::RXKADBADTICKET),
        (1, AbortCode::RXKADUNKNOWNKEY),
        (257, AbortCode::RXKADUNKNOWNKEY),
        (u32::MAX, AbortCode::RXKADUNKNOWNKEY),
    ] {
        let ticket = Ticket { kvno, ..ticket.clone() };
        let server = server(keys(Enctype::Aes256CtsHmacSha1));
        assert_eq!(code(handshake(ticket, SecurityLevel::Clear, &server, NOW)), expected);
    }
}

#[test]
fn keys_can_be_exchanged_under_a_server() {
    let ring = Arc::new(KeyRing::default());
    let server = RxkadServer::new(ring.clone(), LocalRealms::of_cell("test.example"));
    let ticket = ticket(Enctype::Aes128CtsHmacSha1, KVNO, &body());
    let early = handshake(ticket.clone(), SecurityLevel::Clear, &server, NOW);
    assert_eq!(code(early), AbortCode::RXKADUNKNOWNKEY);
    ring.replace(keys(Enctype::Aes128CtsHmacSha1));
    assert!(handshake(ticket, SecurityLevel::Clear, &server, NOW).is_ok());
}

#[test]
fn times_and_flags() {
    let enctype = Enctype::Aes256CtsHmacSha1;
    let server = server(keys(enctype));
    let try_at = |now| {
        let ticket = ticket(enctype, KVNO, &body());
        handshake(ticket, SecurityLevel::Clear, &server, UnixTime(now))
    };
    assert!(try_at(body().start - 900).is_ok());
    assert!(try_at(body().end - 1).is_ok());
    assert_eq!(code(try_at(body().start - 901)), AbortCode::RXKADNOAUTH);
    assert_eq!(code(try_at(body().end)), AbortCode::RXKADEXPIRED);
    let strict = server.clone().with_clock_skew(300);
    let early = |seconds| {
        let ticket = ticket(enctype, KVNO, &body());
        handshake(ticket, SecurityLevel::Clear, &strict, UnixTime(body().start - seconds))
    };
    assert!(early(300).is_ok());
    assert_eq!(code(early(301)), AbortCode::RXKADNOAUTH);
    let invalid = ticket(enctype, KVNO, &TicketBody { invalid: true, ..body() });
    let invalid = handshake(invalid, SecurityLevel::Clear, &server, NOW);
    assert_eq!(code(invalid), AbortCode::RXKADNOAUTH);
}

#[test]
fn levels_below_the_least_are_refused_by_both_ends() {
    let enctype = Enctype::Aes256CtsHmacSha1;
    let strict = server(keys(enctype)).with_level_min(SecurityLevel::Authenticated);
    let attempt = |level| handshake(ticket(enctype, KVNO, &body()), level, &strict, NOW);
    assert_eq!(code(attempt(SecurityLevel::Clear)), AbortCode::RXKADLEVELFAIL);
    assert!(attempt(SecurityLevel::Authenticated).is_ok());
    assert!(attempt(SecurityLevel::Encrypted).is_ok());
    // The server refuses a client that ignores the challenge's level.
    let lax = server(keys(enctype));
    let client = RxkadClient::from_ticket(ticket(enctype, KVNO, &body()), SecurityLevel::Clear);
    let mut client = client.unwrap().start(CONNECTION).unwrap();
    let response = client.respond(&lax.accept(CONNECTION, [0xff; 16]).challenge(), CALLS).unwrap();
    let verified = strict.accept(CONNECTION, [0xff; 16]).verify(&response, NOW);
    assert_eq!(code(verified), AbortCode::RXKADLEVELFAIL);
}

#[test]
fn replays_are_refused() {
    let enctype = Enctype::Aes256CtsHmacSha1;
    let server = server(keys(enctype));
    let client = RxkadClient::from_ticket(ticket(enctype, KVNO, &body()), SecurityLevel::Clear);
    let mut client = client.unwrap().start(CONNECTION).unwrap();
    let mut first = server.accept(CONNECTION, [7; 16]);
    let response = client.respond(&first.challenge(), CALLS).unwrap();
    assert!(first.verify(&response, NOW).is_ok());
    // First the same connection with another nonce, then another connection with the same nonce.
    let again = server.accept(CONNECTION, [8; 16]).verify(&response, NOW);
    assert_eq!(code(again), AbortCode::RXKADOUTOFSEQUENCE);
    for other in [
        ConnectionFacts { connection_id: 0x89ab_cdf0, ..CONNECTION },
        ConnectionFacts { epoch: 0x8123_4568, ..CONNECTION },
    ] {
        let replayed = server.accept(other, [7; 16]).verify(&response, NOW);
        assert_eq!(code(replayed), AbortCode::RXKADSEALEDINCON);
    }
}

#[test]
fn every_damaged_byte_of_a_response_is_noticed() {
    for enctype in [Enctype::Aes256CtsHmacSha1, Enctype::DesCbcCrc] {
        let server = server(keys(enctype));
        let local = forge_local_ticket(&keys(enctype), [0x5b; 8], [6; 16], LOCAL_TICKET_END_MAX).unwrap();
        let client = RxkadClient::from_ticket(local, SecurityLevel::Encrypted);
        let mut client = client.unwrap().start(CONNECTION).unwrap();
        let mut accept = server.accept(CONNECTION, [7; 16]);
        let response = client.respond(&accept.challenge(), CALLS).unwrap();
        // A Kerberos 4 ticket does not protect its last block, which contains only the service's name.
        let end = if enctype == Enctype::DesCbcCrc { response.len() - 8 } else { response.len() };
        for at in 0..end {
            let mut damaged = response.clone();
            damaged[at] ^= 0x41;
            assert!(accept.verify(&damaged, NOW).is_err(), "{enctype:?}, byte {at}");
            assert!(accept.verify(&response[..at], NOW).is_err(), "{enctype:?}, byte {at}");
        }
        assert!(accept.verify(&response, NOW).is_ok());
    }
}

#[test]
fn tickets_out_of_bounds() {
    let ticket = ticket(Enctype::Aes256CtsHmacSha1, KVNO, &body());
    for length in [0, 31, 12_001] {
        let ticket = Ticket { bytes: vec![0; length], ..ticket.clone() };
        let error = RxkadClient::from_ticket(ticket, SecurityLevel::Clear).unwrap_err();
        assert_eq!(error.abort_code(), AbortCode::RXKADTICKETLEN);
    }
}

#[test]
fn challenges_stay_the_same_and_old_ones_are_refused() {
    let enctype = Enctype::Aes256CtsHmacSha1;
    let mut accept = server(keys(enctype)).accept(CONNECTION, [7; 16]);
    assert_eq!(accept.challenge(), accept.challenge());
    let client = RxkadClient::from_ticket(ticket(enctype, KVNO, &body()), SecurityLevel::Clear);
    let mut client = client.unwrap().start(CONNECTION).unwrap();
    assert!(client.respond(&[0; 8], CALLS).is_err());
    assert!(client.respond(&accept.challenge(), [u32::MAX; 4]).is_err());
}

#[test]
fn secrets_are_not_printed() {
    let ticket = ticket(Enctype::Aes256CtsHmacSha1, KVNO, &body());
    let shown = format!("{:?}", RxkadClient::from_ticket(ticket, SecurityLevel::Clear).unwrap());
    assert!(shown.contains("SessionKey(secret)"));
}
