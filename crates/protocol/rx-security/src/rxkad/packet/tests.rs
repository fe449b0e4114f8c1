use base::AbortCode;

use super::*;

const CONNECTION: ConnectionFacts =
    ConnectionFacts { epoch: 0x8123_4567, connection_id: 0x89ab_cdec, service_id: 1, security_index: 2 };
const PACKET: PacketFacts = PacketFacts { call_number: 7, channel: 2, sequence: 3 };
const LEVELS: [SecurityLevel; 3] =
    [SecurityLevel::Clear, SecurityLevel::Authenticated, SecurityLevel::Encrypted];

fn protection(level: SecurityLevel) -> RxkadProtection {
    RxkadProtection::new(CONNECTION, &SessionKey(*b"\x12\x34\x56\x78\x9a\xbc\xde\xf0"), level)
}

fn whole(protected: &Protected) -> Bytes {
    Bytes::from(protected.pieces.concat())
}

#[test]
fn payloads_of_every_length_come_back() {
    for level in LEVELS {
        let mut protection = protection(level);
        for length in (0..40).chain([1400, 1411, 1412, 9000, 65_535]) {
            let payload: Vec<u8> = (0..length).map(|byte| (byte * 31) as u8).collect();
            for cut in [0, 1, 3, 4, 5, length].map(|cut| cut.min(length)) {
                let pieces =
                    [Bytes::copy_from_slice(&payload[..cut]), Bytes::copy_from_slice(&payload[cut..])];
                let sent = protection.protect(PACKET, &pieces).unwrap();
                let overhead = protection.overhead();
                let expected = (length + overhead.header_bytes)
                    .next_multiple_of(overhead.block_bytes)
                    .max(if level == SecurityLevel::Clear { 0 } else { 8 });
                assert_eq!(sent.len(), expected, "{level:?}, {length} bytes");
                let got = protection.unprotect(PACKET, sent.checksum, whole(&sent)).unwrap();
                assert_eq!(got, payload, "{level:?}, {length} bytes");
            }
        }
    }
}

#[test]
fn several_packets_are_protected_as_each_alone() {
    let payloads: Vec<[Bytes; 2]> = (0..11)
        .map(|index| [Bytes::from(vec![index; 100]), Bytes::from(vec![9; usize::from(index) * 3])])
        .collect();
    let packet = |index| PacketFacts { sequence: index as u32, ..PACKET };
    let packets: Vec<(PacketFacts, &[Bytes])> =
        payloads.iter().enumerate().map(|(index, pieces)| (packet(index), &pieces[..])).collect();
    for level in LEVELS {
        let mut protection = protection(level);
        let alone: Vec<_> =
            packets.iter().map(|(packet, pieces)| protection.protect(*packet, pieces).unwrap()).collect();
        assert_eq!(protection.protect_all(&packets).unwrap(), alone);
    }
}

#[test]
fn payload_max_fills_the_room() {
    for (level, room, payload) in [
        (SecurityLevel::Clear, 1416, 1416),
        (SecurityLevel::Authenticated, 1416, 1412),
        (SecurityLevel::Encrypted, 1416, 1408),
        (SecurityLevel::Encrypted, 1412, 1400),
    ] {
        let mut protection = protection(level);
        assert_eq!(protection.overhead().payload_max(room), payload);
        let sent = protection.protect(PACKET, &[Bytes::from(vec![1; payload])]).unwrap();
        assert!(sent.len() <= room);
    }
}

#[test]
fn clear_and_auth_do_not_copy_the_payload() {
    let payload = Bytes::from(vec![9; 1000]);
    for (level, last, offset) in [(SecurityLevel::Clear, 0, 0), (SecurityLevel::Authenticated, 1, 4)] {
        let sent = protection(level).protect(PACKET, std::slice::from_ref(&payload)).unwrap();
        assert_eq!(sent.pieces.len(), last + 1);
        assert_eq!(sent.pieces[last].as_ptr(), payload[offset..].as_ptr());
    }
}

#[test]
fn a_body_nobody_shares_is_opened_in_place() {
    for level in LEVELS {
        let mut protection = protection(level);
        let sent = protection.protect(PACKET, &[Bytes::from(vec![9; 1000])]).unwrap();
        let body = whole(&sent);
        let start = body.as_ptr() as usize;
        let got = protection.unprotect(PACKET, sent.checksum, body).unwrap();
        assert_eq!(got.as_ptr() as usize, start + protection.overhead().header_bytes);
    }
}

#[test]
fn packets_cannot_take_another_place() {
    for level in LEVELS {
        let mut protection = protection(level);
        let sent = protection.protect(PACKET, &[Bytes::from_static(b"some payload")]).unwrap();
        for other in [
            PacketFacts { call_number: 8, ..PACKET },
            PacketFacts { channel: 1, ..PACKET },
            PacketFacts { sequence: 4, ..PACKET },
        ] {
            let error = protection.unprotect(other, sent.checksum, whole(&sent)).unwrap_err();
            assert_eq!(error.abort_code(), AbortCode::RXKADSEALEDINCON, "{level:?}");
        }
        let checksum = sent.checksum ^ 1;
        assert!(protection.unprotect(PACKET, checksum, whole(&sent)).is_err(), "{level:?}");
        assert!(protection.unprotect(PACKET, 0, whole(&sent)).is_err(), "{level:?}");
    }
}

/// rxkad protects only the first block at level "auth". At level "crypt", damage after it garbles the rest,
/// but only the first block is checked: the class offers no more.
#[test]
fn damage_to_the_first_block_is_noticed() {
    for level in [SecurityLevel::Authenticated, SecurityLevel::Encrypted] {
        let mut protection = protection(level);
        let payload = vec![0x55; 100];
        let sent = protection.protect(PACKET, &[Bytes::from(payload.clone())]).unwrap();
        for at in 0..8 {
            for bit in 0..8 {
                let mut damaged = whole(&sent).to_vec();
                damaged[at] ^= 1 << bit;
                let result = protection.unprotect(PACKET, sent.checksum, damaged.into());
                assert_ne!(result.ok(), Some(Bytes::from(payload.clone())), "{level:?}");
            }
        }
        let mut damaged = whole(&sent).to_vec();
        damaged[0] ^= 1;
        assert!(protection.unprotect(PACKET, sent.checksum, damaged.into()).is_err());
    }
    let mut protection = protection(SecurityLevel::Encrypted);
    let sent = protection.protect(PACKET, &[Bytes::from(vec![0x55; 100])]).unwrap();
    let mut damaged = whole(&sent).to_vec();
    damaged[16] ^= 1;
    let got = protection.unprotect(PACKET, sent.checksum, damaged.into()).unwrap();
    assert!(got[8..].chunks_exact(8).all(|block| block != [0x55; 8]));
}

#[test]
fn wrong_lengths_are_refused() {
    for level in [SecurityLevel::Authenticated, SecurityLevel::Encrypted] {
        let mut protection = protection(level);
        let sent = protection.protect(PACKET, &[Bytes::from(vec![1; 92])]).unwrap();
        for length in 0..sent.len() {
            let cut = whole(&sent).slice(..length);
            let error = protection.unprotect(PACKET, sent.checksum, cut).unwrap_err();
            let expected = match length {
                0..8 => AbortCode::RXKADPACKETSHORT,
                _ if level == SecurityLevel::Encrypted && length % 8 != 0 => AbortCode::RXKADSEALEDINCON,
                _ => AbortCode::RXKADDATALEN,
            };
            assert_eq!(error.abort_code(), expected, "{level:?}, {length} bytes");
        }
        let long = protection.protect(PACKET, &[Bytes::from(vec![1; 65_536])]).unwrap_err();
        assert_eq!(long, SecurityError::PayloadLong { max: 65_535, got: 65_536 });
    }
}

/// A packet cannot be opened with another session key or on another connection.
#[test]
fn other_keys_do_not_open() {
    for level in LEVELS {
        let sent = protection(level).protect(PACKET, &[Bytes::from(vec![1; 92])]).unwrap();
        let mut other = RxkadProtection::new(CONNECTION, &SessionKey([4; 8]), level);
        assert!(other.unprotect(PACKET, sent.checksum, whole(&sent)).is_err());
        let elsewhere = ConnectionFacts { connection_id: 16, ..CONNECTION };
        let key = SessionKey(*b"\x12\x34\x56\x78\x9a\xbc\xde\xf0");
        let mut elsewhere = RxkadProtection::new(elsewhere, &key, level);
        assert!(elsewhere.unprotect(PACKET, sent.checksum, whole(&sent)).is_err());
    }
}
