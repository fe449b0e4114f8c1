//! Capture files, and the packets in them.

use sniff::pcap::Reader;
use sniff::{Filter, Limits, Sniffer};

/// Exercises a capture file as read by `cellar sniff`.
pub fn capture(data: &[u8]) {
    let Ok(mut reader) = Reader::new(data) else { return };
    let limits = Limits { connections: 16, hosts: 8, volumes: 8, kinds: 4, details: 16 };
    let mut sniffer = Sniffer::new(Filter::default(), limits);
    let mut frames = 0;
    while let Ok(Some(packet)) = reader.packet() {
        sniffer.frame(packet.time_ns, packet.link, packet.data);
        frames += 1;
    }
    let report = sniffer.report();
    let calls = report.total.calls;
    assert_eq!(report.captured.frames, frames);
    assert!(calls.aborted + calls.unanswered <= calls.calls);
    assert_eq!(report.calls.iter().map(|row| row.counts.calls).sum::<u64>(), calls.calls);
    assert_eq!(report.clients.iter().map(|row| row.traffic.calls.calls).sum::<u64>(), calls.calls);
    assert!(report.servers.len() <= 9 && report.clients.len() <= 9 && report.volumes.len() <= 9);
}
