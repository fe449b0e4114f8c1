//! Results of a client, in OpenAFS's format with additions.

use super::request::{Request, Work};
use crate::watch::{Limit, Used};
use serde::Serialize;
use std::fmt::Write;

/// The results of a run.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Outcome {
    /// Number of concurrent calls.
    pub threads: usize,
    /// Number of calls per thread.
    pub times: u32,
    /// Total number of calls.
    pub calls: u64,
    /// Payload of all calls in both directions, in bytes.
    pub bytes: u64,
    /// Packet counts of the client.
    pub packets: Packets,
    /// Resources used by the run.
    pub used: Used,
    /// The bottleneck of the run.
    pub limit: Limit,
}

/// Data packets as counted by the client.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Packets {
    /// Packets sent for the first time.
    pub sent: u64,
    /// Packets retransmitted.
    pub sent_again: u64,
    /// Packets received for the first time.
    pub received: u64,
    /// Duplicates received: packets that the server retransmitted although they had arrived.
    pub received_again: u64,
}

impl std::ops::AddAssign for Packets {
    fn add_assign(&mut self, other: Packets) {
        self.sent += other.sent;
        self.sent_again += other.sent_again;
        self.received += other.received;
        self.received_again += other.received_again;
    }
}

impl Packets {
    /// Returns the sums over several endpoints.
    pub fn of(endpoints: &[rx_proto::Statistics]) -> Packets {
        let mut all = Packets::default();
        for endpoint in endpoints {
            all.add(endpoint);
        }
        all
    }

    /// Adds the counts of one endpoint.
    pub fn add(&mut self, endpoint: &rx_proto::Statistics) {
        self.sent += endpoint.data_sent;
        self.sent_again += endpoint.data_resent;
        self.received += endpoint.data_received;
        self.received_again += endpoint.data_duplicates;
    }

    /// Returns the ratio of repeated packets to all packets, usually between 0 and 1.
    pub fn repeated_share(&self) -> f64 {
        (self.sent_again + self.received_again) as f64 / (self.sent + self.received).max(1) as f64
    }
}

impl Outcome {
    /// Returns the payload per second.
    pub fn bits_per_second(&self) -> f64 {
        self.bytes as f64 * 8.0 / self.used.seconds.max(1e-9)
    }

    /// Formats the line that OpenAFS's rxperf prints, followed by additions. `file` is the name of the list.
    pub fn text(&self, request: &Request, file: &str) -> String {
        let milliseconds = (self.used.seconds * 1e3) as u64;
        let mut text = format!(
            "{}:\t{milliseconds:>8} msec\t[{}]",
            self.stamp(request, file),
            rate(self.bits_per_second())
        );
        let packets = &self.packets;
        let _ = write!(
            text,
            "\n{:.0} calls/s; {}\npackets sent {} + {} again, received {} + {} again ({:.3} %)\nlimit: {}",
            self.calls as f64 / self.used.seconds.max(1e-9),
            self.used,
            packets.sent,
            packets.sent_again,
            packets.received,
            packets.received_again,
            packets.repeated_share() * 100.0,
            self.limit
        );
        text
    }

    fn stamp(&self, request: &Request, file: &str) -> String {
        let Outcome { threads, times, .. } = self;
        let who = format!("threads\t{threads}, times\t{times}");
        match &request.work {
            Work::Send(bytes) => format!("SEND: {who}, bytes\t{bytes}"),
            Work::Receive(bytes) => format!("RECV: {who}, bytes\t{bytes}"),
            Work::Rpc(there, back) => format!("RPC: {who}, write bytes\t{there}, read bytes\t{back}"),
            Work::File(_) => format!("FILE {file}: {who}, bytes\t{}", request.work.bytes()),
        }
    }
}

/// Formats bits per second with four digits, like C's `%.4g`.
pub(super) fn rate(bits_per_second: f64) -> String {
    let (value, unit) = match bits_per_second {
        rate if rate > 1e9 => (rate / 1e9, "Gbit/s"),
        rate if rate > 1e6 => (rate / 1e6, "Mbit/s"),
        rate => (rate / 1e3, "kbit/s"),
    };
    let digits = value.abs().max(1.0).log10().floor() as usize;
    let text = format!("{value:.*}", 3usize.saturating_sub(digits));
    let short = if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.') } else { &text };
    format!("{short} {unit}")
}
