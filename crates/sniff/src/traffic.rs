//! What is counted: of a server, of a client, of a volume, of a kind of call.

use hdrhistogram::Histogram;
use rx_proto::ack::Reason;
use serde::Serialize;
use std::ops::AddAssign;

/// Packets that one side sent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Flow {
    /// Data packets, those of jumbograms one by one.
    pub data: u64,
    /// Among them those that had been seen before, sent again by Rx.
    pub retransmitted: u64,
    /// Among them those that had been seen before with the very same serial number: repeated by the
    /// network, or captured twice.
    pub repeated: u64,
    /// Among them those that came after later ones: overtaken, or a second attempt for one that was lost
    /// before it was captured.
    pub late: u64,
    /// Gaps in sequence numbers that were seen to open.
    pub gaps: u64,
    /// Acknowledgements.
    pub acks: u64,
    /// Among them those for packets that had come before.
    pub acks_duplicate: u64,
    /// Among them those for packets that left a gap.
    pub acks_out_of_sequence: u64,
    /// Among them those for packets beyond the window.
    pub acks_exceeds_window: u64,
    /// Among them those for packets that there was no memory for.
    pub acks_no_space: u64,
    /// Round trips measured: from a data packet of the other side to the acknowledgement that it asked
    /// for.
    pub round_trips: u64,
    /// Their sum.
    pub round_trips_us: u64,
    /// The longest.
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

/// Calls that ended, and how.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Calls {
    /// All: answered, aborted and unanswered ones.
    pub calls: u64,
    /// Those that ended with an ABORT.
    pub aborted: u64,
    /// Those whose place was taken by another call although no answer had been seen, or of which nothing
    /// was seen for long.
    pub unanswered: u64,
    /// Bytes of requests, as Rx carried them, without packets sent again.
    pub request_bytes: u64,
    /// Bytes of replies, likewise.
    pub reply_bytes: u64,
    /// Packets of these calls that must have been sent, but were not captured.
    pub missing: u64,
    /// The sum of the times from requests' ends to replies' ends.
    pub latency_us: u64,
    /// The longest of them.
    pub latency_us_max: u64,
}

impl Calls {
    /// The mean time from requests' ends to replies' ends.
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

/// What is counted of a connection, and of all connections of a host.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Traffic {
    /// Connections first seen.
    pub connections: u64,
    /// Calls.
    #[serde(flatten)]
    pub calls: Calls,
    /// Calls to the callback service without an answer.
    pub callbacks_unanswered: u64,
    /// BUSY packets.
    pub busy: u64,
    /// ABORT packets, of whichever side.
    pub aborts: u64,
    /// CHALLENGE packets.
    pub challenges: u64,
    /// RESPONSE packets.
    pub responses: u64,
    /// What the client's side sent.
    pub from_client: Flow,
    /// What the server's side sent.
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

/// A call that has ended.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ended {
    pub(crate) counts: Calls,
    /// From the request's last packet to the reply's first.
    pub(crate) first_us: Option<u64>,
    /// From the request's last packet to the reply's last.
    pub(crate) last_us: Option<u64>,
}

/// The longest time that is told apart from longer ones: an hour.
const TIME_US_MAX: u64 = 3_600_000_000;

/// Digits that percentiles are exact to.
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

/// A distribution of times in microseconds, to two digits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Percentiles {
    /// Half of all took no longer.
    pub p50_us: u64,
    /// Nine of ten.
    pub p90_us: u64,
    /// 99 of a hundred.
    pub p99_us: u64,
    /// The longest.
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
