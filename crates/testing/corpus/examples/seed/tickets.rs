//! Challenges, responses, tickets and packets of rxkad, segments of chunks, and key rings.

use crate::{Seed, seed, testdata};
use base::SecurityLevel;
use corpus::frames::push;
use corpus::security::{CONNECTION, TicketKind, client, keys, server};
use rx_security::rxkad::fuzzing;
use rx_security::{
    ClientSecurity, KeySet, LOCAL_TICKET_END_MAX, PacketFacts, ServerSecurity, ServiceKey, forge_local_ticket,
};

const HEADER_BYTES: usize = 28;
const RESPONSE_BYTES: usize = 56;
const KERBEROS_4: &[u8] = b"\0alice\0admin\0TEST\0\x0a\x63\0\x01SESSKEY!\x82\x65\x53\xf1\0afs\0test\0";

pub(crate) fn seeds() -> Vec<Seed> {
    let challenge = server().accept(CONNECTION, [1; 16]).challenge();
    let mut seeds = vec![seed("challenge", "usual", challenge.clone())];
    for (level, name) in [
        (SecurityLevel::Clear, "clear"),
        (SecurityLevel::Authenticated, "authenticated"),
        (SecurityLevel::Encrypted, "encrypted"),
    ] {
        let mut handshake = client(level).start(CONNECTION).expect("a good ticket");
        let nonce = [1, 2, 3, 4, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
        let challenge = server().accept(CONNECTION, nonce).challenge();
        let response = handshake.respond(&challenge, [1, 0, 0, 2]).expect("a good challenge");
        seeds.push(seed("rxkad_response", name, response));
        seeds.push(seed("rxkad_packet", name, packet(level)));
    }
    for recording in ["clear", "crypt", "des"] {
        let path = format!("../protocol/rx-security/testdata/openafs-localauth-{recording}.response");
        let response = testdata(&path).split_off(HEADER_BYTES);
        let kind = if recording == "des" { TicketKind::Kerberos4 } else { TicketKind::SealedPart };
        seeds.push(seed("ticket", format!("openafs_{recording}"), kinded(kind, &response[RESPONSE_BYTES..])));
        seeds.push(seed("rxkad_response", format!("openafs_{recording}"), response));
    }
    seeds.extend(tickets());
    seeds.extend(segments());
    seeds
}

fn kinded(kind: TicketKind, bytes: &[u8]) -> Vec<u8> {
    [&[kind as u8], bytes].concat()
}

fn tickets() -> Vec<Seed> {
    let body = fuzzing::kerberos_5_body(&["alice", "admin"], 18, &[5; 32], 1_800_000_000);
    let des = fuzzing::kerberos_5_body(&["host", "a.example"], 1, &[0x34; 8], 1_800_000_000);
    let own =
        forge_local_ticket(&keys(), [0x34; 8], [9; 16], LOCAL_TICKET_END_MAX).expect("a good session key");
    let mut des_only = KeySet::new();
    let key = [0x01, 0x23, 0x45, 0x67, 0x89, 0xab, 0xcd, 0xef];
    des_only.insert(4, ServiceKey::new(1, &key).expect("a good key"));
    let kerberos_4 =
        forge_local_ticket(&des_only, [0x34; 8], [9; 16], LOCAL_TICKET_END_MAX).expect("a good session key");
    let mut seeds = vec![
        seed("ticket", "own", kinded(TicketKind::SealedPart, &own.bytes)),
        seed("ticket", "own_kerberos_4", kinded(TicketKind::Kerberos4, &kerberos_4.bytes)),
        seed("ticket", "plain_kerberos_4", kinded(TicketKind::Kerberos4Plain, KERBEROS_4)),
        seed("ticket", "plain_kerberos_5", kinded(TicketKind::Kerberos5Plain, &body)),
        seed("ticket", "plain_kerberos_5_des", kinded(TicketKind::Kerberos5PlainDes, &des)),
    ];
    for name in ["aes256", "aes128", "rc4", "des3"] {
        let cache = testdata(&format!("../protocol/rx-security/testdata/heimdal-{name}.ccache"));
        seeds.push(seed(
            "ticket",
            format!("heimdal_{name}"),
            kinded(TicketKind::Kerberos5, ticket_in(&cache)),
        ));
    }
    seeds
}

/// Extracts the last ticket of a credentials cache: the cache ends with it, an APPLICATION 1 with a two-byte
/// length, and with the length of a second ticket, which is 0.
fn ticket_in(cache: &[u8]) -> &[u8] {
    let begin = cache.windows(2).position(|pair| pair == [0x61, 0x82]);
    &cache[begin.expect("a ticket")..cache.len() - 4]
}

fn packet(level: SecurityLevel) -> Vec<u8> {
    let mut protection = client(level).start(CONNECTION).expect("a good ticket").protection();
    let facts = PacketFacts { call_number: 3, channel: 1, sequence: 7 };
    let sent = protection.protect(facts, &[vec![5; 100].into()]).expect("a short packet");
    let head = [&[level as u8][..], &3u32.to_be_bytes(), &[1], &7u32.to_be_bytes()].concat();
    [&head[..], &sent.checksum.to_be_bytes(), &sent.pieces.concat()].concat()
}

fn segments() -> Vec<Seed> {
    let record = |codec: u8, raw: u32, stored: &[u8]| [&[codec], &raw.to_be_bytes()[..], stored].concat();
    // The letter a, 64 times, in either compression.
    let lz4 = [&[0x1f, b'a', 1, 0, 43, 0x50][..], b"aaaaa"].concat();
    let zstd = [0x28, 0xb5, 0x2f, 0xfd, 0x20, 0x40, 0x4d, 0, 0, 0x10, b'a', b'a', 1, 0, 0x3b, 0x8b, 0x05];
    let mut sealed = vec![1];
    for record in [record(0, 5, b"hello"), record(1, 64, &lz4), record(2, 64, &zstd)] {
        push(&mut sealed, &record);
    }
    let mut raw = vec![0];
    raw.extend_from_slice(b"CELLSEGM\0\0\0\x01");
    raw.extend([0; 20]);
    raw.extend_from_slice(b"CHNK");
    raw.extend([0; 60]);
    let ring = corpus::rings::new_ring().expect("a disk in memory");
    let without_checksum = &ring[..ring.len() - 4];
    vec![
        seed("segment", "sealed", sealed),
        seed("segment", "raw", raw),
        seed("key_ring", "whole", [&[0], &ring[..]].concat()),
        seed("key_ring", "without_checksum", [&[1], without_checksum].concat()),
    ]
}
