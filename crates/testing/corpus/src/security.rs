//! The security classes' challenges, responses, tickets and packets.

use crate::frames::Fields;
use base::{Identity, SecurityLevel, UnixTime};
use bytes::Bytes;
use rx_security::rxkad::{KVNO_KERBEROS_5, KVNO_KERBEROS_5_SEALED_PART, fuzzing};
use rx_security::{
    ClientSecurity, ConnectionFacts, KeySet, LOCAL_TICKET_END_MAX, LocalRealms, PacketFacts, RxkadClient,
    RxkadServer, SecurityError, ServerSecurity, ServiceKey, SessionKey, Ticket, Verified, forge_local_ticket,
};
use std::sync::Arc;

/// Connection that responses refer to.
pub const CONNECTION: ConnectionFacts =
    ConnectionFacts { epoch: 1, connection_id: 4, service_id: 1, security_index: 2 };
/// Current time.
pub const NOW: UnixTime = UnixTime(1_700_000_000);
/// Version of the key of type 18 (AES-256).
pub const KVNO: u32 = 3;
/// Version of the DES key.
pub const KVNO_DES: u32 = 4;
/// Nonce of challenges, with which the server accepts the responses recorded from OpenAFS.
const NONCE: [u8; 16] = [1, 2, 3, 4, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
const LEVELS: [SecurityLevel; 3] =
    [SecurityLevel::Clear, SecurityLevel::Authenticated, SecurityLevel::Encrypted];
const DES: i32 = 1;
const DES_KEY: [u8; 8] = [0x01, 0x23, 0x45, 0x67, 0x89, 0xab, 0xcd, 0xef];
/// Types of the server's keys, and their lengths.
const KEYS: [(i32, u8); 4] = [(18, 32), (17, 16), (16, 24), (23, 16)];

fn service_key(enctype: i32, bytes: u8) -> ServiceKey {
    let bytes: Vec<u8> = (0..bytes).map(|index| 7 * index + bytes).collect();
    ServiceKey::new(enctype, &bytes).expect("a good key")
}

fn des_key() -> ServiceKey {
    ServiceKey::new(DES, &DES_KEY).expect("a good key")
}

/// Returns the cell's keys, which the recordings of `rx-security` were made with.
pub fn keys() -> KeySet {
    let mut keys = KeySet::new();
    for (enctype, bytes) in KEYS {
        keys.insert(KVNO, service_key(enctype, bytes));
    }
    keys.insert(KVNO_DES, des_key());
    keys
}

/// Returns the cell's server.
pub fn server() -> RxkadServer {
    let realms = LocalRealms::of_cell("test.example");
    RxkadServer::new(Arc::new(keys()), realms)
}

/// Returns a client with a ticket encrypted with the cell's key.
pub fn client(level: SecurityLevel) -> RxkadClient {
    let ticket =
        forge_local_ticket(&keys(), [0x34; 8], [9; 16], LOCAL_TICKET_END_MAX).expect("a good session key");
    RxkadClient::from_ticket(ticket, level).expect("a good ticket")
}

fn level(byte: u8) -> SecurityLevel {
    LEVELS[usize::from(byte) % LEVELS.len()]
}

fn verify(response: &[u8]) -> Result<Verified, SecurityError> {
    server().accept(CONNECTION, NONCE).verify(response, NOW)
}

/// Exercises challenges at a client.
pub fn challenge(data: &[u8]) {
    for level in LEVELS {
        let mut handshake = client(level).start(CONNECTION).expect("a good ticket");
        let _ = handshake.respond(data, [1, 2, 3, 4]);
    }
}

/// Exercises responses at a server. An accepted client must have a proved identity.
pub fn rxkad_response(data: &[u8]) {
    if let Ok(verified) = verify(data) {
        assert_ne!(verified.identity, Identity::Anonymous);
    }
}

/// Exercises tickets in valid responses. The first byte selects the kind; see [`TicketKind`].
pub fn ticket(data: &[u8]) {
    let Some((kind, bytes)) = data.split_first() else { return };
    let (kvno, bytes) = wrapped(*kind, bytes);
    let session_key = SessionKey::from_random([0x34; 8]).expect("a good session key");
    let ticket = Ticket { kvno, bytes, session_key, expires: UnixTime(u32::MAX) };
    let Ok(client) = RxkadClient::from_ticket(ticket, level(kind >> 4)) else { return };
    let challenge = server().accept(CONNECTION, NONCE).challenge();
    let mut handshake = client.start(CONNECTION).expect("a client with a ticket");
    if let Ok(response) = handshake.respond(&challenge, [0; 4]) {
        let _ = verify(&response);
    }
}

/// Kind of bytes in an input of [`ticket`]: the low four bits of the first byte.
#[derive(Clone, Copy, Debug)]
#[repr(u8)]
pub enum TicketKind {
    /// A complete Kerberos 5 ticket.
    Kerberos5 = 0,
    /// The encrypted part of a Kerberos 5 ticket.
    SealedPart = 1,
    /// A Kerberos 4 ticket.
    Kerberos4 = 2,
    /// Plaintext of a Kerberos 4 ticket.
    Kerberos4Plain = 3,
    /// Plaintext of a Kerberos 5 ticket, to be encrypted with AES-256.
    Kerberos5Plain = 4,
    /// Plaintext of a Kerberos 5 ticket, to be encrypted with DES.
    Kerberos5PlainDes = 5,
}

fn wrapped(kind: u8, bytes: &[u8]) -> (u32, Vec<u8>) {
    match kind & 15 {
        0 => (KVNO_KERBEROS_5, bytes.to_vec()),
        1 => (KVNO_KERBEROS_5_SEALED_PART, bytes.to_vec()),
        2 => (KVNO_DES, bytes.to_vec()),
        3 => (KVNO_DES, fuzzing::kerberos_4_ticket(&des_key(), bytes)),
        4 => (KVNO_KERBEROS_5_SEALED_PART, fuzzing::kerberos_5_ticket(KVNO, &service_key(18, 32), bytes)),
        5 => (KVNO_KERBEROS_5_SEALED_PART, fuzzing::kerberos_5_ticket(KVNO_DES, &des_key(), bytes)),
        kvno => (kvno.into(), bytes.to_vec()),
    }
}

/// Exercises packet bodies, with the given checksum and with the right one: level, call number, channel,
/// sequence number, checksum, body.
pub fn rxkad_packet(data: &[u8]) {
    let mut fields = Fields(data);
    let handshake = client(level(fields.byte())).start(CONNECTION).expect("a good ticket");
    let mut protection = handshake.protection();
    let (call_number, channel) = (fields.word(), fields.byte() & 3);
    let packet = PacketFacts { call_number, channel, sequence: fields.word() };
    let checksum = fields.half();
    let body = Bytes::copy_from_slice(fields.0);
    let _ = protection.unprotect(packet, checksum, body.clone());
    let sent = protection.protect(packet, std::slice::from_ref(&body)).expect("any body can be protected");
    let got = protection.unprotect(packet, sent.checksum, sent.pieces.concat().into());
    assert_eq!(got.expect("a packet that was protected"), body);
    if let Ok(payload) = protection.unprotect(packet, sent.checksum, body.clone()) {
        assert!(payload.len() <= body.len());
    }
}

/// Exercises krb.conf and krb.excl, as used by the server.
pub fn krb_conf(data: &[u8]) {
    let text = String::from_utf8_lossy(data);
    let realms = LocalRealms::of_cell("test.example").with_krb_conf(&text).with_krb_excl(&text);
    let server = RxkadServer::new(Arc::new(keys()), realms).with_dotted_names();
    let mut accept = server.accept(CONNECTION, NONCE);
    let mut handshake = client(SecurityLevel::Clear).start(CONNECTION).expect("a good ticket");
    let response = handshake.respond(&accept.challenge(), [0; 4]).expect("a good challenge");
    assert!(accept.verify(&response, NOW).is_ok(), "a good ticket is refused because of its realm");
}
