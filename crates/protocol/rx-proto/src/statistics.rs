//! Counters of an endpoint.

use std::time::Duration;

use crate::call::Side;
use crate::header::PacketType;
use crate::standing::Standing;

/// Number of counted packet types; the index is the type less one (RX_N_PACKET_TYPES).
pub const PACKET_TYPES: usize = 13;

/// Counters since the endpoint was created; those named `*_now` are current numbers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Statistics {
    /// Packets received, by type.
    pub packets_received: [u64; PACKET_TYPES],
    /// Packets sent, by type.
    pub packets_sent: [u64; PACKET_TYPES],
    /// Bytes in datagrams received.
    pub bytes_received: u64,
    /// Bytes in datagrams sent.
    pub bytes_sent: u64,
    /// Datagrams that are not Rx packets or whose body is inconsistent.
    pub malformed: u64,
    /// Packets that match no connection or call.
    pub spurious: u64,
    /// Packets dropped that would have started a call after [`Endpoint::hold_new_calls`](crate::Endpoint::hold_new_calls) or
    /// [`Endpoint::hold_new_calls_at`](crate::Endpoint::hold_new_calls_at).
    pub calls_held: u64,
    /// Calls of an earlier process on the port whose clients were sent `RX_RESTARTING`.
    pub calls_orphaned: u64,
    /// Data packets received for the first time.
    pub data_received: u64,
    /// Data packets received again.
    pub data_duplicates: u64,
    /// Data packets dropped because they were beyond the window.
    pub data_beyond_window: u64,
    /// Data packets dropped because a limit on memory was reached.
    pub data_no_space: u64,
    /// Data packets that failed their integrity check.
    pub data_damaged: u64,
    /// Data packets sent for the first time.
    pub data_sent: u64,
    /// Data packets retransmitted.
    pub data_resent: u64,
    /// Data packets retransmitted early because acknowledgements showed a gap.
    pub data_resent_early: u64,
    /// Retransmission timeouts.
    pub timeouts: u64,
    /// Pings sent.
    pub pings_sent: u64,
    /// Calls started by clients.
    pub calls_accepted: u64,
    /// Calls started by this endpoint.
    pub calls_opened: u64,
    /// Calls that succeeded.
    pub calls_ended: u64,
    /// Calls that failed.
    pub calls_failed: u64,
    /// Calls refused because too many were waiting or running.
    pub calls_refused: u64,
    /// Aborts delayed to slow down a peer.
    pub aborts_delayed: u64,
    /// Connections refused at the limit.
    pub connections_refused: u64,
    /// Such notices that were ignored because they concerned other packets or were forged.
    pub unreachable: u64,
    /// Such notices about other packets, or forged.
    pub unreachable_ignored: u64,
    /// Security handshakes that failed.
    pub handshakes_failed: u64,
    /// Existing server connections.
    pub server_connections_now: u64,
    /// Existing client connections.
    pub client_connections_now: u64,
    /// Round-trip measurements.
    pub rtt_samples: u64,
    /// Sum of the measured round-trip times.
    pub rtt_total: Duration,
    /// Shortest measured round-trip time.
    pub rtt_min: Option<Duration>,
    /// Longest measured round-trip time.
    pub rtt_max: Duration,
    /// Existing connections.
    pub connections_now: u64,
    /// Existing calls.
    pub calls_now: u64,
    /// Existing peers.
    pub peers_now: u64,
    /// Packets received but not yet read.
    pub packets_now: u64,
    /// Existing connections, by [`Standing`].
    pub connections_by_standing: [u64; Standing::COUNT],
    /// Existing calls, by [`Standing`].
    pub calls_by_standing: [u64; Standing::COUNT],
    /// Packets received but not yet read, by [`Standing`].
    pub packets_by_standing: [u64; Standing::COUNT],
    /// Bytes of large replies that were written completely and not acknowledged when they were, by [`Standing`].
    pub unread_bytes_by_standing: [u64; Standing::COUNT],
    /// Connections dropped because their peers proved nothing, either to make room or after a timeout.
    pub unproven_dropped: u64,
    /// DEBUG and VERSION packets not answered because the host is not permitted or the rate limit was
    /// exceeded.
    pub questions_refused: u64,
    /// Datagrams not sent because the address had proved nothing and had sent too little.
    pub unproven_withheld: u64,
}

impl Statistics {
    /// Returns the number of existing connections on this side.
    pub(crate) fn connections_of(&mut self, side: Side) -> &mut u64 {
        match side {
            Side::Client => &mut self.client_connections_now,
            Side::Server => &mut self.server_connections_now,
        }
    }
}

impl std::ops::AddAssign<&Statistics> for Statistics {
    fn add_assign(&mut self, other: &Statistics) {
        add_each(&mut self.packets_received, &other.packets_received);
        add_each(&mut self.packets_sent, &other.packets_sent);
        self.bytes_received += other.bytes_received;
        self.bytes_sent += other.bytes_sent;
        self.malformed += other.malformed;
        self.spurious += other.spurious;
        self.calls_held += other.calls_held;
        self.calls_orphaned += other.calls_orphaned;
        self.data_received += other.data_received;
        self.data_duplicates += other.data_duplicates;
        self.data_beyond_window += other.data_beyond_window;
        self.data_no_space += other.data_no_space;
        self.data_damaged += other.data_damaged;
        self.data_sent += other.data_sent;
        self.data_resent += other.data_resent;
        self.data_resent_early += other.data_resent_early;
        self.timeouts += other.timeouts;
        self.pings_sent += other.pings_sent;
        self.calls_accepted += other.calls_accepted;
        self.calls_opened += other.calls_opened;
        self.calls_ended += other.calls_ended;
        self.calls_failed += other.calls_failed;
        self.calls_refused += other.calls_refused;
        self.aborts_delayed += other.aborts_delayed;
        self.connections_refused += other.connections_refused;
        self.unreachable += other.unreachable;
        self.unreachable_ignored += other.unreachable_ignored;
        self.handshakes_failed += other.handshakes_failed;
        self.server_connections_now += other.server_connections_now;
        self.client_connections_now += other.client_connections_now;
        self.rtt_samples += other.rtt_samples;
        self.rtt_total += other.rtt_total;
        self.rtt_min = self.rtt_min.into_iter().chain(other.rtt_min).min();
        self.rtt_max = self.rtt_max.max(other.rtt_max);
        self.connections_now += other.connections_now;
        self.calls_now += other.calls_now;
        self.peers_now += other.peers_now;
        self.packets_now += other.packets_now;
        add_each(&mut self.connections_by_standing, &other.connections_by_standing);
        add_each(&mut self.calls_by_standing, &other.calls_by_standing);
        add_each(&mut self.packets_by_standing, &other.packets_by_standing);
        add_each(&mut self.unread_bytes_by_standing, &other.unread_bytes_by_standing);
        self.unproven_dropped += other.unproven_dropped;
        self.questions_refused += other.questions_refused;
        self.unproven_withheld += other.unproven_withheld;
    }
}

fn add_each<const N: usize>(sums: &mut [u64; N], others: &[u64; N]) {
    for (sum, other) in sums.iter_mut().zip(others) {
        *sum += other;
    }
}

impl Statistics {
    /// Counts a received packet.
    pub(crate) fn received(&mut self, kind: PacketType) {
        self.packets_received[kind.index()] += 1;
    }

    /// Counts packets that are stored until they are read.
    pub(crate) fn keep(&mut self, standing: Standing, packets: usize) {
        self.packets_now += packets as u64;
        self.packets_by_standing[standing.index()] += packets as u64;
    }

    /// Counts stored packets that were read or dropped.
    pub(crate) fn let_go(&mut self, standing: Standing, packets: usize) {
        self.packets_now -= packets as u64;
        self.packets_by_standing[standing.index()] -= packets as u64;
    }

    /// Counts a sent packet.
    pub(crate) fn sent(&mut self, kind: PacketType, bytes: usize) {
        self.packets_sent[kind.index()] += 1;
        self.bytes_sent += bytes as u64;
    }

    /// Counts sent DATA packets, `resent` of which are retransmissions, with `bytes` bytes in total.
    pub(crate) fn sent_data(&mut self, packets: u64, resent: u64, bytes: u64) {
        self.packets_sent[PacketType::Data.index()] += packets;
        self.bytes_sent += bytes;
        self.data_sent += packets - resent;
        self.data_resent += resent;
    }

    /// Counts a measured round trip.
    pub(crate) fn rtt(&mut self, sample: Duration) {
        self.rtt_samples += 1;
        self.rtt_total += sample;
        self.rtt_min = Some(self.rtt_min.map_or(sample, |least| least.min(sample)));
        self.rtt_max = self.rtt_max.max(sample);
    }
}
