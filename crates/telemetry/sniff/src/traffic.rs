//! Counts for a server, a client, a volume, or a kind of call.

use hdrhistogram::Histogram;
use rx_proto::ack::Reason;
use serde::Serialize;
use std::ops::AddAssign;

/// Packets sent by one side.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Flow {
    /// Data packets; those of a jumbogram count separately.
    pub data: u64,
    /// Data packets seen before with another serial number: retransmitted by Rx.
    pub retransmitted: u64,
    /// Data packets seen before with the same serial number: duplicated by the network, or captured twice.
    pub repeated: u64,
    /// Data packets that arrived after later ones: reordered, or retransmissions of packets lost before the
    /// capture point.
    pub late: u64,
    /// Gaps in sequence numbers that appeared.
    pub gaps: u64,
    /// Acknowledgements.
    pub acks: u64,
    /// Acknowledgements of packets received before.
    pub acks_duplicate: u64,
    /// Acknowledgements of packets that left a gap.
    pub acks_out_of_sequence: u64,
    /// Acknowledgements of packets beyond the window.
    pub acks_exceeds_window: u64,
    /// Acknowledgements of packets dropped for lack of memory.
    pub acks_no_space: u64,
    /// Round trips measured, from a data packet of the other side to the acknowledgement that it requested.
    pub round_trips: u64,
    /// Sum of the round-trip times.
    pub round_trips_us: u64,
    /// Longest round-trip time.
    pub round_trip_us_max: u64,
}

impl Flow {
    /// Counts an acknowledgement by its reason.
    pub(crate) fn acknowledgement(&mut self, reason: Reason) {
        self.acks += 1;
        match reason {
            Reason::Duplicate => self.acks_duplicate += 1,
            Reason::OutOfSequence => self.acks_out_of_sequence += 1,
            Reason::ExceedsWindow => self.acks_exceeds_window += 1,
            Reason::NoSpace => self.acks_no_space += 1,
            _ => {}
        }
    }

    /// Counts a round trip.
    pub(crate) fn round_trip(&mut self, span_us: u64) {
        self.round_trips += 1;
        self.round_trips_us += span_us;
        self.round_trip_us_max = self.round_trip_us_max.max(span_us);
    }
}

impl AddAssign<&Flow> for Flow {
    fn add_assign(&mut self, other: &Flow) {
        self.data += other.data;
        self.retransmitted += other.retransmitted;
        self.repeated += other.repeated;
        self.late += other.late;
        self.gaps += other.gaps;
        self.acks += other.acks;
        self.acks_duplicate += other.acks_duplicate;
        self.acks_out_of_sequence += other.acks_out_of_sequence;
        self.acks_exceeds_window += other.acks_exceeds_window;
        self.acks_no_space += other.acks_no_space;
        self.round_trips += other.round_trips;
        self.round_trips_us += other.round_trips_us;
        self.round_trip_us_max = self.round_trip_us_max.max(other.round_trip_us_max);
    }
}

/// Completed calls by result.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Calls {
    /// All completed calls: answered, aborted and unanswered.
    pub calls: u64,
    /// Calls that ended with an ABORT.
    pub aborted: u64,
    /// Calls replaced by another one before a reply was seen, or inactive for a long time.
    pub unanswered: u64,
    /// Bytes of requests as carried by Rx, without retransmissions.
    pub request_bytes: u64,
    /// Bytes of replies as carried by Rx, without retransmissions.
    pub reply_bytes: u64,
    /// Packets of these calls that must have been sent but were not captured.
    pub missing: u64,
    /// Sum of the times from the end of the request to the end of the reply.
    pub latency_us: u64,
    /// Longest of these times.
    pub latency_us_max: u64,
}

impl Calls {
    /// Returns the mean time from the end of the request to the end of the reply.
    pub fn latency_us_mean(&self) -> u64 {
        let answered = self.calls - self.aborted - self.unanswered;
        self.latency_us.checked_div(answered).unwrap_or(0)
    }
}

impl AddAssign<&Calls> for Calls {
    fn add_assign(&mut self, other: &Calls) {
        self.calls += other.calls;
        self.aborted += other.aborted;
        self.unanswered += other.unanswered;
        self.request_bytes += other.request_bytes;
        self.reply_bytes += other.reply_bytes;
        self.missing += other.missing;
        self.latency_us += other.latency_us;
        self.latency_us_max = self.latency_us_max.max(other.latency_us_max);
    }
}

/// Counts of a connection, or of all connections of a host.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Traffic {
    /// Connections seen for the first time.
    pub connections: u64,
    /// Calls.
    #[serde(flatten)]
    pub calls: Calls,
    /// Unanswered calls to the callback service.
    pub callbacks_unanswered: u64,
    /// BUSY packets.
    pub busy: u64,
    /// ABORT packets of either side.
    pub aborts: u64,
    /// CHALLENGE packets.
    pub challenges: u64,
    /// RESPONSE packets.
    pub responses: u64,
    /// Packets of the client's side.
    pub from_client: Flow,
    /// Packets of the server's side.
    pub from_server: Flow,
}

impl AddAssign<&Traffic> for Traffic {
    fn add_assign(&mut self, other: &Traffic) {
        self.connections += other.connections;
        self.calls += &other.calls;
        self.callbacks_unanswered += other.callbacks_unanswered;
        self.busy += other.busy;
        self.aborts += other.aborts;
        self.challenges += other.challenges;
        self.responses += other.responses;
        self.from_client += &other.from_client;
        self.from_server += &other.from_server;
    }
}

/// A completed call.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ended {
    pub(crate) counts: Calls,
    /// Time from the last packet of the request to the first packet of the reply.
    pub(crate) first_us: Option<u64>,
    /// Time from the last packet of the request to the last packet of the reply.
    pub(crate) last_us: Option<u64>,
}

/// Upper limit of the histogram: an hour. Longer times are counted as this.
const TIME_US_MAX: u64 = 3_600_000_000;

/// Number of significant digits of percentiles.
const DIGITS: u8 = 2;

/// Times in microseconds.
#[derive(Clone, Debug)]
pub(crate) struct Times {
    histogram: Histogram<u32>,
    max_us: u64,
}

impl Times {
    pub(crate) fn record(&mut self, span_us: u64) {
        self.histogram.saturating_record(span_us.min(TIME_US_MAX));
        self.max_us = self.max_us.max(span_us);
    }

    pub(crate) fn summary(&self) -> Percentiles {
        let at = |percentile| self.histogram.value_at_percentile(percentile).min(self.max_us);
        Percentiles { p50_us: at(50.0), p90_us: at(90.0), p99_us: at(99.0), max_us: self.max_us }
    }
}

impl Default for Times {
    fn default() -> Times {
        let histogram = Histogram::new_with_bounds(1, TIME_US_MAX, DIGITS);
        Times { histogram: histogram.expect("bounds of a histogram that are in order"), max_us: 0 }
    }
}

/// Percentiles of times in microseconds, with two significant digits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Percentiles {
    /// Median.
    pub p50_us: u64,
    /// 90th percentile.
    pub p90_us: u64,
    /// 99th percentile.
    pub p99_us: u64,
    /// Maximum.
    pub max_us: u64,
}

/// One kind of call.
#[derive(Clone, Debug, Default)]
pub(crate) struct KindCounts {
    pub(crate) counts: Calls,
    pub(crate) first: Times,
    pub(crate) last: Times,
}

impl KindCounts {
    pub(crate) fn add(&mut self, ended: &Ended) {
        self.counts += &ended.counts;
        if let Some(span_us) = ended.first_us {
            self.first.record(span_us);
        }
        if let Some(span_us) = ended.last_us {
            self.last.record(span_us);
        }
    }
}
