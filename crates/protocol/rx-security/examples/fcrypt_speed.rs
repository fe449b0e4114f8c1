//! Measures how fast packets are protected and unprotected at each level. Run it with `--release`.

use std::time::{Duration, Instant};

use base::SecurityLevel;
use bytes::Bytes;
use rx_security::{
    ClientSecurity, ConnectionFacts, KeySet, LOCAL_TICKET_END_MAX, PacketFacts, PacketProtection,
    RxkadClient, ServiceKey, forge_local_ticket,
};

/// Payload of each packet.
const PAYLOAD_BYTES: u16 = 1400;
/// Number of packets protected together.
const BATCH: u32 = 16;
const RUN: Duration = Duration::from_millis(500);

fn main() {
    for level in [SecurityLevel::Clear, SecurityLevel::Authenticated, SecurityLevel::Encrypted] {
        let mut protection = protection(level);
        let payload = Bytes::from(vec![0x5a; usize::from(PAYLOAD_BYTES)]);
        let protect = rate(|packet| {
            let sent = protection.protect(packet, std::slice::from_ref(&payload));
            std::hint::black_box(sent.expect("the payload is short enough"));
        });
        let pieces = std::slice::from_ref(&payload);
        let together = rate_of(BATCH, |packet| {
            let packets = [(packet, pieces); BATCH as usize];
            std::hint::black_box(protection.protect_all(&packets)).expect("payloads are short enough");
        });
        let packet = facts(1);
        let sent = protection.protect(packet, pieces).expect("the payload is short enough");
        let body = sent.pieces.concat();
        let unprotect = rate(|_| {
            let opened = protection.unprotect(packet, sent.checksum, Bytes::from(body.clone()));
            std::hint::black_box(opened.expect("the packet is sound"));
        });
        print!("{level:?}: protect {protect:.0} MB/s, {BATCH} at once {together:.0} MB/s, ");
        println!("unprotect {unprotect:.0} MB/s");
    }
}

/// Returns the megabytes of payload per second that `work` processes, one packet at a time.
fn rate(work: impl FnMut(PacketFacts)) -> f64 {
    rate_of(1, work)
}

/// Returns the megabytes per second, `step` packets at a time.
fn rate_of(step: u32, mut work: impl FnMut(PacketFacts)) -> f64 {
    let (begin, mut packets) = (Instant::now(), 0u32);
    while begin.elapsed() < RUN {
        for _ in 0..100 {
            packets += step;
            work(facts(packets));
        }
    }
    f64::from(packets) * f64::from(PAYLOAD_BYTES) / begin.elapsed().as_secs_f64() / 1e6
}

fn facts(sequence: u32) -> PacketFacts {
    PacketFacts { call_number: 1, channel: 0, sequence }
}

fn protection(level: SecurityLevel) -> Box<dyn PacketProtection> {
    let mut keys = KeySet::new();
    keys.insert(1, ServiceKey::new(18, &[7; 32]).expect("a key of 32 bytes"));
    let ticket =
        forge_local_ticket(&keys, [0x34; 8], [9; 16], LOCAL_TICKET_END_MAX).expect("a key that is not weak");
    let client = RxkadClient::from_ticket(ticket, level).expect("a ticket of proper length");
    let connection = ConnectionFacts { epoch: 1, connection_id: 4, service_id: 1, security_index: 2 };
    client.start(connection).expect("rxkad clients always start").protection()
}
