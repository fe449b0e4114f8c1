//! The state of a peer, a host and port: path, congestion, reachability, behaviour.

use std::net::SocketAddr;
use std::time::Duration;

use base::{AbortCode, Monotonic};

use crate::EndpointConfig;
use crate::ack::Trailer;
use crate::congestion::Learnt;
use crate::limits::{AMPLIFICATION_MAX, REACH_LIFETIME};
use crate::packet_length::{PacketLength, Short};
use crate::rtt::Rtt;
use crate::timers::{Armed, look};

/// Window that a peer is assumed to have until it reports one (rx_initSendWindow).
const WINDOW_INITIAL: u32 = 16;

/// Time for which a peer without connections is remembered (rx_idlePeerTime).
pub(crate) const PEER_LIFETIME: Duration = Duration::from_secs(60);

/// A host and port with which the endpoint communicates.
#[derive(Debug)]
pub(crate) struct Peer {
    pub(crate) address: SocketAddr,
    pub(crate) rtt: Rtt,
    pub(crate) learnt: Option<Learnt>,
    /// Number of connections that refer to this peer.
    pub(crate) connections: usize,
    pub(crate) idle_since: Monotonic,
    /// Time at which the last packet arrived on one of the peer's connections.
    pub(crate) heard_at: Monotonic,
    pub(crate) armed: Armed,
    pub(crate) mtu: PacketLength,
    pub(crate) counters: PeerCounters,
    /// Bytes of large replies that it has not acknowledged.
    pub(crate) unread_bytes: u64,
    window: u32,
    reach: Reach,
    aborts: AbortBrake,
}

/// Counters of a peer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PeerCounters {
    /// Number of connections created by either side.
    pub connections: u64,
    /// Number of packets received on the connections.
    pub received: u64,
    /// Number of bytes in these packets.
    pub bytes_received: u64,
    /// Number of DATA packets sent, retransmissions included.
    pub sent: u64,
    /// Number of DATA packets retransmitted.
    pub resent: u64,
    /// Number of bytes in all packets sent on the connections.
    pub bytes_sent: u64,
    /// Number of times that a call had data to send and the peer's window had no room for it.
    pub stalls: u64,
    /// Measured round trips.
    pub round_trips: RoundTrips,
}

/// A histogram of round-trip times.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RoundTrips {
    /// Number of round trips shorter than a microsecond, then number of the others shorter than two, four
    /// microseconds and so on; the last entry counts all longer ones.
    pub counts: [u32; RoundTrips::POWERS],
    /// Sum of all round-trip times.
    pub total: Duration,
}

impl RoundTrips {
    /// Number of ranges, which cover times up to a minute.
    pub const POWERS: usize = 28;

    /// Adds a round trip.
    pub(crate) fn record(&mut self, round_trip: Duration) {
        let power = round_trip.as_micros().checked_ilog2().map_or(0, |power| power as usize + 1);
        let count = &mut self.counts[power.min(RoundTrips::POWERS - 1)];
        *count = count.saturating_add(1);
        self.total = self.total.saturating_add(round_trip);
    }

    fn add(&mut self, other: &RoundTrips) {
        for (own, their) in self.counts.iter_mut().zip(other.counts) {
            *own = own.saturating_add(their);
        }
        self.total = self.total.saturating_add(other.total);
    }
}

impl PeerCounters {
    /// Adds the counts of another set of counters.
    pub fn add(&mut self, other: &PeerCounters) {
        self.connections += other.connections;
        self.received += other.received;
        self.bytes_received += other.bytes_received;
        self.sent += other.sent;
        self.resent += other.resent;
        self.bytes_sent += other.bytes_sent;
        self.stalls += other.stalls;
        self.round_trips.add(&other.round_trips);
    }
}

/// A snapshot of a peer's state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PeerReport {
    /// Address of the peer.
    pub address: SocketAddr,
    /// Number of existing connections.
    pub connections: usize,
    /// Counters of the peer.
    pub counters: PeerCounters,
    /// Smoothed round-trip time; zero before the first measurement.
    pub rtt: Duration,
    /// Mean deviation of the round-trip time.
    pub rtt_variation: Duration,
    /// Retransmission timeout.
    pub timeout: Duration,
    /// Number of packets for which the peer's last call had room.
    pub window_packets: u32,
    /// Congestion window in packets at the end of the last call; 0 if there is none.
    pub congestion_window_packets: u32,
    /// Maximum length of packets sent to the peer.
    pub packet_bytes: usize,
}

impl Peer {
    pub(crate) fn new(
        address: SocketAddr,
        config: &EndpointConfig,
        short: Option<Short>,
        now: Monotonic,
    ) -> Peer {
        Peer {
            address,
            rtt: Rtt::default(),
            learnt: None,
            connections: 0,
            idle_since: now,
            heard_at: Monotonic(0),
            armed: Armed::default(),
            mtu: PacketLength::new(address, config, short),
            counters: PeerCounters::default(),
            unread_bytes: 0,
            window: WINDOW_INITIAL,
            reach: Reach::default(),
            aborts: AbortBrake::default(),
        }
    }

    /// Returns a snapshot of the peer's state.
    pub(crate) fn report(&self) -> PeerReport {
        PeerReport {
            address: self.address,
            connections: self.connections,
            counters: self.counters,
            rtt: self.rtt.smoothed().unwrap_or_default(),
            rtt_variation: self.rtt.variation(),
            timeout: self.rtt.timeout(0),
            window_packets: self.window,
            congestion_window_packets: self.learnt.map_or(0, |learnt| learnt.window),
            packet_bytes: self.mtu.packet_bytes(),
        }
    }

    /// Prefetches each part that a call needs: see [`crate::Endpoint::prefetch`].
    pub(crate) fn look(&self) -> u64 {
        let learnt = self.learnt.map_or(0, |learnt| learnt.at.0);
        let counters = self.counters.connections ^ self.counters.bytes_sent;
        let reached = look(self.reach.until) ^ u64::from(self.aborts.count) ^ u64::from(self.window);
        let rtt = self.rtt.least().as_secs() ^ self.rtt.variation().as_secs();
        self.heard_at.0 ^ self.armed.look() ^ learnt ^ counters ^ reached ^ rtt ^ self.mtu.look()
    }

    /// Returns the number of packets for which the peer's last call had room.
    pub(crate) fn window(&self) -> u32 {
        self.window
    }

    /// Applies the limits that an ACK reports.
    pub(crate) fn on_trailer(&mut self, trailer: &Trailer) {
        if let Some(window) = trailer.window {
            self.window = window.max(1);
        }
        if let (Some(max), Some(interface)) = (trailer.packet_bytes_max, trailer.interface_bytes) {
            self.mtu.advertised(max.min(interface) as usize);
        }
    }

    /// Records that the peer has echoed an unpredictable number sent to its address.
    pub(crate) fn on_reached(&mut self, now: Monotonic) {
        self.reach.until = Some(now + REACH_LIFETIME);
    }

    /// Whether the address was proved recently, so that new calls are served immediately.
    pub(crate) fn is_reached(&self, now: Monotonic) -> bool {
        self.reach.until.is_some_and(|until| now < until)
    }

    /// Whether the proof of the address is so recent that no new one is requested.
    pub(crate) fn is_fresh(&self, now: Monotonic) -> bool {
        self.reach.until.is_some_and(|until| now + REACH_LIFETIME / 2 < until)
    }

    /// Whether the address has ever been proved, after which bytes are no longer counted.
    pub(crate) fn is_proven(&self) -> bool {
        self.reach.until.is_some()
    }

    /// Adds the credit for bytes received from the address.
    pub(crate) fn on_bytes(&mut self, bytes: u32) {
        if !self.is_proven() {
            let credit = (AMPLIFICATION_MAX as u32).saturating_mul(bytes);
            self.reach.credit_bytes = self.reach.credit_bytes.saturating_add(credit);
        }
    }

    /// Whether a datagram of this length may be sent to the address. An address that has proved nothing pays
    /// for it with its credit.
    pub(crate) fn spend(&mut self, bytes: usize) -> bool {
        if self.is_proven() {
            return true;
        }
        let left = u32::try_from(bytes).ok().and_then(|bytes| self.reach.credit_bytes.checked_sub(bytes));
        self.reach.credit_bytes = left.unwrap_or(self.reach.credit_bytes);
        left.is_some()
    }

    /// Returns the length of a padded ping to send now, if one is worthwhile.
    pub(crate) fn probe(&mut self, now: Monotonic) -> Option<usize> {
        self.mtu.probe(now, self.heard_at, self.rtt.timeout(0))
    }

    /// Resets the delay of aborts after a successful call.
    pub(crate) fn on_success(&mut self) {
        self.aborts = AbortBrake::default();
    }

    /// Returns the delay of an abort, if it has to be delayed.
    pub(crate) fn abort_delay(&mut self, code: AbortCode, config: &EndpointConfig) -> Option<Duration> {
        self.aborts.delay(code, config)
    }
}

/// Reachability of the peer's address. Without this check, answers to forged addresses would let a server be
/// used to attack other hosts.
#[derive(Debug, Default)]
struct Reach {
    /// Expiry of the last proof; `None` if the address has proved nothing yet.
    until: Option<Monotonic>,
    /// Number of bytes that may be sent before the address is proved.
    credit_bytes: u32,
}

/// Slows down clients that repeat a failing call (rxi_SendCallAbort: after a number of equal aborts, each
/// further one is delayed).
#[derive(Debug, Default)]
struct AbortBrake {
    code: Option<AbortCode>,
    count: u32,
}

impl AbortBrake {
    fn delay(&mut self, code: AbortCode, config: &EndpointConfig) -> Option<Duration> {
        if self.code != Some(code) {
            *self = AbortBrake { code: Some(code), count: 0 };
        }
        self.count = self.count.saturating_add(1);
        (self.count > config.abort_burst).then_some(config.abort_interval)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn peer() -> Peer {
        Peer::new("127.0.0.1:7001".parse().unwrap(), &EndpointConfig::default(), None, Monotonic(0))
    }

    fn at(seconds: u64) -> Monotonic {
        Monotonic(seconds * 1_000_000_000)
    }

    #[test]
    fn brakes_only_repeated_aborts() {
        let (mut peer, config) = (peer(), EndpointConfig::default());
        for _ in 0..10 {
            assert_eq!(peer.abort_delay(AbortCode::VNOVNODE, &config), None);
        }
        assert_eq!(peer.abort_delay(AbortCode::VNOVNODE, &config), Some(config.abort_interval));
        assert_eq!(peer.abort_delay(AbortCode::VNOVOL, &config), None);
        for _ in 0..20 {
            let _delay = peer.abort_delay(AbortCode::VNOVNODE, &config);
        }
        peer.on_success();
        assert_eq!(peer.abort_delay(AbortCode::VNOVNODE, &config), None);
    }

    #[test]
    fn the_abort_brake_spares_no_code() {
        let (mut peer, config) = (peer(), EndpointConfig::default());
        for _ in 0..config.abort_burst {
            assert_eq!(peer.abort_delay(AbortCode::RXGEN_OPCODE, &config), None);
        }
        assert_eq!(peer.abort_delay(AbortCode::RXGEN_OPCODE, &config), Some(config.abort_interval));
    }

    #[test]
    fn unproven_addresses_get_three_times_their_bytes() {
        let mut peer = peer();
        assert!(!peer.spend(1));
        peer.on_bytes(28);
        assert!(peer.spend(65) && !peer.spend(20) && peer.spend(19) && !peer.spend(1));
        peer.on_bytes(u32::MAX);
        peer.on_bytes(u32::MAX);
        assert!(peer.spend(u32::MAX as usize) && !peer.spend(usize::MAX));
    }

    #[test]
    fn proofs_of_an_address_age() {
        let mut peer = peer();
        peer.on_reached(at(2));
        assert!(peer.is_fresh(at(31)) && !peer.is_fresh(at(32)));
        assert!(peer.is_reached(at(61)) && !peer.is_reached(at(62)));
        assert!(peer.is_proven() && peer.spend(usize::MAX));
    }

    #[test]
    fn round_trips_are_counted_by_powers_of_two() {
        let mut trips = RoundTrips::default();
        for ns in [0, 999, 1000, 1999, 2000, 3999, 4000, 1_000_000, u64::MAX] {
            trips.record(Duration::from_nanos(ns));
        }
        let counted: Vec<_> = (0..).zip(trips.counts).filter(|(_, count)| *count > 0).collect();
        assert_eq!(counted, [(0, 2), (1, 2), (2, 2), (3, 1), (10, 1), (RoundTrips::POWERS - 1, 1)]);
        let once = trips;
        trips.add(&once);
        assert_eq!((trips.counts[1], trips.total), (4, once.total * 2));
    }
}
