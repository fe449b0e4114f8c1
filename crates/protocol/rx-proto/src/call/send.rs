//! The sending half of a call: cuts written data into packets, sends them, tracks acknowledgements and
//! retransmits.
//!
//! Bytes stay in a [`Rope`] until the window admits packets. Then as many packets as one batch holds are cut
//! off the front and, if the security class requires it, transformed by it. From then on only their serial
//! numbers and flags change.
//!
//! Every transmission, first or repeated, has an *order*: its number among the call's transmissions. A packet
//! is lost if one sent three transmissions later has arrived, or one sent later and long enough ago (RFC
//! 9002, 6.1, with orders in place of packet numbers). Rx's own rule, to retransmit everything sent before
//! the packet that an ACK names, is the same with a threshold of one.

use std::collections::VecDeque;
use std::time::Duration;

use base::Monotonic;
use bytes::Bytes;

use crate::ack::Ack;
use crate::call::pace::Pace;
use crate::call::rest::{Body, Sent};
use crate::call::rope::{Gathered, Place, Rope};
use crate::call::state::{SendEvent, SendStage};
use crate::congestion::Congestion;
use crate::rtt::Rtt;
use crate::timers::look;

/// Number of transmissions by which a packet must be overtaken to count as lost.
const REORDER_PACKETS: u64 = 3;

/// Maximum time by which later ACKs overtake an ACK. After this time an ACK with a lower serial comes from a
/// peer that has restarted and numbers its packets from the beginning.
const OVERTAKEN_MAX: Duration = Duration::from_secs(1);

/// Number of ACKs, all requesting packets that were already read, after which the peer is taken to have
/// restarted.
const BEHIND_ACKS: u32 = 3;

/// Maximum number of concurrent round-trip measurements.
const PROBES: usize = 4;

/// The written data and the sent packets of a call.
#[derive(Debug)]
pub(crate) struct SendQueue {
    /// Written data, from the first packet in `packets` on.
    rope: Rope,
    /// Number of bytes, not cut into packets yet, that may be sent in a packet that is not full.
    flush_bytes: usize,
    stage: SendStage,
    /// Sequence number of the first packet in `packets`; all earlier ones are complete.
    first: u32,
    packets: VecDeque<SentPacket>,
    in_flight: u32,
    lost: u32,
    received: u32,
    next_order: u64,
    /// One more than the order of the latest transmission known to have arrived.
    arrived: u64,
    /// Number of packets from `first` on for which the peer has room.
    window: u32,
    /// Maximum window that is used, whatever the peer offers.
    window_max: u32,
    pub(crate) congestion: Congestion,
    pace: Pace,
    backoff: u32,
    timeout_at: Option<Monotonic>,
    loss_at: Option<Monotonic>,
    /// Serial of the last ACK with new information; `acked_at` is its time of arrival.
    ack_serial: Option<u32>,
    acked_at: Monotonic,
    /// Number of ACKs since then that requested packets already read.
    behind: u32,
    /// Whether the peer's window has held back data since it last opened.
    is_stalled: bool,
    /// Whether an ACK has responded to a DATA packet since the first of the consecutive timeouts.
    is_answered: bool,
    probes: [Option<Probe>; PROBES],
}

/// Empty queues whose allocations are reused.
#[derive(Debug, Default)]
pub(crate) struct SpareQueues {
    chunks: VecDeque<Bytes>,
    packets: VecDeque<SentPacket>,
}

/// Maximum capacity of a queue whose allocation is kept, in packets.
const SPARE_PACKETS_MAX: usize = 256;

/// Maximum number of packets of a small reply.
const FEW_PACKETS: usize = 2;

/// Maximum number of bytes of a small reply that are not in packets yet.
const FEW_BYTES: usize = 4096;

/// A packet cut from the rope. It is kept small because windows hold many.
#[derive(Debug)]
struct SentPacket {
    /// Start of the packet in the rope.
    start: Place,
    /// Body of the packet, if it differs from the bytes in the rope.
    sealed: Option<Box<[Bytes]>>,
    order: u64,
    sent_at: Monotonic,
    transmissions: u32,
    body_bytes: u32,
    checksum: u16,
    last: bool,
    state: SentState,
}

impl SentPacket {
    /// Whether an acknowledgement of the packet proves that its latest transmission arrived. After a
    /// retransmission an earlier one may have arrived instead.
    fn proves_delivery(&self, now: Monotonic, least: Duration) -> bool {
        self.transmissions == 1 || self.transmissions > 1 && now.since(self.sent_at) >= least
    }
}

/// The properties of a packet that its header contains.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SentFacts {
    pub(crate) sequence: u32,
    pub(crate) checksum: u16,
    pub(crate) last: bool,
    pub(crate) body_bytes: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum SentState {
    InFlight,
    Lost,
    /// The peer has received the packet but may still drop it.
    Received,
}

/// A packet whose acknowledgement measures the round-trip time.
#[derive(Clone, Copy, Debug)]
struct Probe {
    serial: u32,
    sent_at: Monotonic,
}

/// The effects of an ACK.
#[derive(Debug, Default)]
pub(crate) struct AckResult {
    /// Number of packets newly known to have arrived.
    pub(crate) newly: u32,
    /// Number of packets newly known to be lost.
    pub(crate) lost: u32,
    /// Measured round-trip time, if the ACK answers a packet that was being measured.
    pub(crate) round_trip: Option<Duration>,
    /// Whether the ACK is outdated or impossible.
    pub(crate) stale: bool,
    /// Whether the peer requests packets that it had read and that are no longer stored: it has restarted and
    /// does not know the call.
    pub(crate) has_forgotten: bool,
}

/// The action that a timeout requires.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Timeout {
    Nothing,
    /// Packets have been marked for retransmission.
    Resend,
    /// Only the peer's window holds back data: a ping has to find out whether it has opened.
    Ping,
}

impl SendQueue {
    /// Prefetches the queue: see [`Call::look`](super::Call::look).
    pub(crate) fn look(&self) -> u64 {
        let packet = self.packets.front().map_or(0, |packet| packet.order ^ u64::from(packet.checksum));
        let times = look(self.timeout_at) ^ look(self.loss_at) ^ self.acked_at.0;
        let first = self.probes[0].map_or(0, |probe| probe.sent_at.0);
        let last = self.probes[PROBES - 1].map_or(0, |probe| probe.sent_at.0);
        let windows = self.congestion.window() ^ self.pace.packets() ^ self.backoff;
        packet ^ self.rope.look() ^ self.arrived ^ times ^ first ^ last ^ u64::from(windows)
    }

    /// Creates a queue. `window` is the number of packets for which the peer is assumed to have room,
    /// `window_max` the maximum that is used of the window it reports.
    pub(crate) fn new(window: u32, window_max: u32, congestion: Congestion, spare: SpareQueues) -> SendQueue {
        SendQueue {
            rope: Rope::reusing(spare.chunks),
            flush_bytes: 0,
            stage: SendStage::Open,
            first: 1,
            packets: spare.packets,
            in_flight: 0,
            lost: 0,
            received: 0,
            next_order: 0,
            arrived: 0,
            window: window.min(window_max),
            window_max,
            congestion,
            pace: Pace::new(),
            backoff: 0,
            timeout_at: None,
            loss_at: None,
            ack_serial: None,
            acked_at: Monotonic(0),
            behind: 0,
            is_stalled: false,
            is_answered: false,
            probes: [None; PROBES],
        }
    }

    /// Drops all data. Returns whether the remaining allocations are small.
    pub(crate) fn clear(&mut self) -> bool {
        self.rope.clear();
        self.packets.clear();
        self.rope.room().max(self.packets.capacity()) <= SPARE_PACKETS_MAX
    }

    /// Takes the allocations of a cleared queue.
    pub(crate) fn take_spare(&mut self) -> SpareQueues {
        SpareQueues { chunks: self.rope.take_memory(), packets: std::mem::take(&mut self.packets) }
    }

    /// Takes bytes off the front of `data` as long as fewer than `limit` are pending. Returns the number of
    /// bytes taken.
    pub(crate) fn push(&mut self, data: &mut Bytes, limit: usize) -> usize {
        if self.is_muted() {
            return data.split_to(data.len()).len();
        }
        let room = limit.saturating_sub(self.pending_bytes()).min(data.len());
        if room > 0 {
            self.rope.push(data.split_to(room));
        }
        room
    }

    /// Changes the stage, if the event does so.
    #[inline]
    fn apply(&mut self, event: SendEvent) {
        if let Some(next) = self.stage.after(event) {
            self.stage = next;
        }
    }

    pub(crate) fn end(&mut self) {
        self.apply(SendEvent::Ended);
    }

    pub(crate) fn flush(&mut self) {
        self.flush_bytes = self.pending_bytes();
    }

    pub(crate) fn is_ended(&self) -> bool {
        self.stage != SendStage::Open
    }

    /// Returns the number of bytes written but not cut into packets yet.
    pub(crate) fn pending_bytes(&self) -> usize {
        self.rope.uncut_bytes()
    }

    /// Returns the number of bytes that are not known to have arrived, unless they are few.
    pub(crate) fn large_bytes(&self) -> Option<u32> {
        if self.pending_bytes() <= FEW_BYTES && self.packets.len() <= FEW_PACKETS {
            return None;
        }
        let cut: u32 = self.packets.iter().map(|packet| packet.body_bytes).sum();
        Some(cut.saturating_add(self.pending_bytes() as u32))
    }

    /// Whether everything has been sent and has arrived.
    pub(crate) fn is_finished(&self) -> bool {
        self.is_all_cut() && self.received as usize == self.packets.len()
    }

    /// Whether nothing has been sent yet.
    pub(crate) fn is_unstarted(&self) -> bool {
        self.next_order == 0
    }

    /// Whether any packets have been sent but are not known to have arrived.
    pub(crate) fn is_waiting(&self) -> bool {
        self.in_flight + self.lost > 0
    }

    fn next_sequence(&self) -> u32 {
        self.first.wrapping_add(self.packets.len() as u32)
    }

    fn has_room(&self) -> bool {
        self.in_flight < self.congestion.window() && self.pace.packets() > 0
    }

    /// Whether a new packet of up to `payload_max` bytes can be cut. A full packet that may turn out to be
    /// the last is held back until that is certain, so that no empty packet has to follow it.
    pub(crate) fn has_new(&self, payload_max: usize) -> bool {
        !self.is_all_cut() && (self.is_ended() || self.pending_bytes() > payload_max || self.flush_bytes > 0)
    }

    /// Whether there may be anything to send at all, regardless of the windows.
    pub(crate) fn has_any(&self) -> bool {
        self.lost > 0 || !self.is_all_cut() && (self.is_ended() || self.pending_bytes() > 0)
    }

    /// Whether the peer's window would hold back new packets, if there are any.
    pub(crate) fn may_be_blocked(&self) -> bool {
        !self.is_all_cut() && !self.window_is_open()
    }

    /// Records that the peer's window holds back data. Returns whether it did not before, since it last opened.
    pub(crate) fn begins_to_stall(&mut self) -> bool {
        !std::mem::replace(&mut self.is_stalled, true)
    }

    fn window_is_open(&self) -> bool {
        (self.packets.len() as u32) < self.window
    }

    /// Whether there is anything to send now.
    pub(crate) fn wants_to_send(&self, payload_max: usize) -> bool {
        self.has_room() && (self.lost > 0 || (self.has_new(payload_max) && self.window_is_open()))
    }

    /// Returns the number of new packets that the windows admit now, if there is enough to send.
    fn new_packets_max(&self) -> usize {
        let unacknowledged = self.window.saturating_sub(self.packets.len() as u32);
        let room = self.congestion.window().saturating_sub(self.in_flight);
        unacknowledged.min(room).min(self.pace.packets()) as usize
    }

    /// Returns the index of the first packet from `from` on that has to be sent, if one may be sent now.
    pub(crate) fn next_unsent(&self, from: usize) -> Option<usize> {
        if self.lost == 0 || !self.has_room() {
            return None;
        }
        let place = self.packets.range(from..).position(|packet| packet.state == SentState::Lost)?;
        Some(from + place)
    }

    /// Cuts up to `packets_max` packets, as the windows allow. They count as lost until they are sent.
    /// Returns the number of packets cut; they follow those already in the queue.
    pub(crate) fn cut(&mut self, payload_max: usize, packets_max: usize) -> usize {
        let before = self.packets.len();
        let mut left = packets_max.min(self.new_packets_max());
        while left > 0 && self.has_new(payload_max) {
            self.cut_one(payload_max);
            left -= 1;
        }
        self.packets.len() - before
    }

    fn cut_one(&mut self, payload_max: usize) {
        let bytes = self.pending_bytes().min(payload_max);
        self.flush_bytes = self.flush_bytes.saturating_sub(bytes);
        let start = self.rope.cut(bytes);
        if self.pending_bytes() == 0 {
            self.apply(SendEvent::Emptied);
        }
        self.packets.push_back(SentPacket {
            start,
            sealed: None,
            order: 0,
            sent_at: Monotonic(0),
            transmissions: 0,
            body_bytes: bytes as u32,
            checksum: 0,
            last: self.is_all_cut(),
            state: SentState::Lost,
        });
        self.lost += 1;
    }

    /// Returns the payload of a packet that was just cut.
    pub(crate) fn payload(&self, place: usize) -> Vec<Bytes> {
        let packet = &self.packets[place];
        self.rope.slices(packet.start, packet.body_bytes as usize)
    }

    /// Sets the checksums of packets just cut, from this index on. The security class leaves their payloads
    /// unchanged.
    pub(crate) fn set_checksums(&mut self, place: usize, checksums: &[u16]) {
        for (packet, checksum) in self.packets.range_mut(place..).zip(checksums) {
            packet.checksum = *checksum;
        }
    }

    /// Stores the bodies that the security class has produced for packets just cut, from this index on.
    pub(crate) fn set_sealed(&mut self, place: usize, sealed: Vec<rx_security::Protected>) {
        for (packet, sealed) in self.packets.range_mut(place..).zip(sealed) {
            packet.body_bytes = sealed.len() as u32;
            packet.checksum = sealed.checksum;
            packet.sealed = Some(sealed.pieces.into());
        }
        self.forget_sent();
    }

    /// Drops the bytes that no packet needs for a retransmission.
    fn forget_sent(&mut self) {
        let first = self.packets.front().filter(|packet| packet.sealed.is_none());
        self.rope.forget_before(first.map(|packet| packet.start));
    }

    /// Returns the properties of the packet at this index.
    pub(crate) fn packet(&self, place: usize) -> SentFacts {
        let packet = &self.packets[place];
        SentFacts {
            sequence: self.first.wrapping_add(place as u32),
            checksum: packet.checksum,
            last: packet.last,
            body_bytes: packet.body_bytes as usize,
        }
    }

    /// Appends the body of the packet at this index to other bodies of this queue.
    pub(crate) fn gather(&self, place: usize, bodies: &mut Gathered) {
        let packet = &self.packets[place];
        match &packet.sealed {
            Some(slices) => bodies.add_slices(&self.rope, slices),
            None => bodies.add(&self.rope, packet.start, packet.body_bytes as usize),
        }
    }

    /// Completes the gathered bodies.
    pub(crate) fn close_gathered(&self, bodies: &mut Gathered) {
        bodies.close(&self.rope);
    }

    /// Prepares for sending a batch. If no packets are in flight, the time for their acknowledgement starts
    /// now, regardless of any earlier timeout.
    pub(crate) fn begin_batch(&mut self) {
        if !self.is_waiting() {
            self.timeout_at = None;
        }
    }

    /// Records that the packet at this index is sent now. Returns whether it was sent before.
    pub(crate) fn on_sent(&mut self, place: usize, now: Monotonic) -> bool {
        let packet = &mut self.packets[place];
        packet.order = self.next_order;
        packet.sent_at = now;
        packet.transmissions += 1;
        packet.state = SentState::InFlight;
        self.next_order += 1;
        self.lost -= 1;
        self.in_flight += 1;
        self.pace.on_sent();
        packet.transmissions > 1
    }

    /// Whether the peer should be asked to acknowledge a packet immediately: a retransmission, or a packet
    /// whose round trip is to be measured. (A packet before a pause should request an ACK too, which is known
    /// only later: [`SendQueue::should_ask_before_silence`].) The last packet of a short transfer is
    /// acknowledged anyway, by the reply or by the next call.
    pub(crate) fn should_request_ack(&self, packet: SentFacts, again: bool) -> bool {
        again || if packet.last { packet.sequence > 3 } else { !self.is_measuring() }
    }

    /// Whether the peer should be asked to acknowledge a packet that does not request it yet, because nothing
    /// can follow the packet now.
    pub(crate) fn should_ask_before_silence(&self, packet: SentFacts, payload_max: usize) -> bool {
        !packet.last && !self.wants_to_send(payload_max)
    }

    /// Whether a round trip is being measured.
    fn is_measuring(&self) -> bool {
        self.probes.iter().any(Option::is_some)
    }

    /// Starts a measurement of the round trip with the packet of this serial. If all slots are in use, the
    /// oldest measurements stay: on a path where more packets than that request an ACK per round trip, no
    /// measurement would ever complete otherwise.
    pub(crate) fn add_probe(&mut self, serial: u32, now: Monotonic, rtt: &Rtt) {
        let oldest = self.probes[PROBES - 1];
        if oldest.is_none_or(|probe| now.since(probe.sent_at) > rtt.timeout(0)) {
            self.probes.rotate_right(1);
        }
        self.probes[0] = Some(Probe { serial, sent_at: now });
    }

    fn take_probe(&mut self, serial: u32, now: Monotonic) -> Option<Duration> {
        let place = self.probes.iter().position(|probe| probe.is_some_and(|probe| probe.serial == serial))?;
        let probe = self.probes[place]?;
        // Older packets may have been lost, and an answer to them would provide no new information.
        self.probes[place..].fill(None);
        Some(now.since(probe.sent_at))
    }

    /// Processes an ACK. `header_serial`, the serial of the ACK packet itself, shows whether the ACK is older
    /// than an earlier one. (OpenAFS uses `previous`, which its older versions allow to decrease.) A
    /// restarted peer starts from other serials: they are accepted after [`OVERTAKEN_MAX`], and if the peer
    /// lacks only packets that are still stored here, these are retransmitted.
    pub(crate) fn on_ack(
        &mut self,
        ack: &Ack<'_>,
        header_serial: u32,
        now: Monotonic,
        rtt: &Rtt,
    ) -> AckResult {
        self.pace.refill(now, self.congestion.window(), rtt);
        self.is_answered |= ack.reason.answers_data();
        let mut result = AckResult { round_trip: self.take_probe(ack.serial, now), ..AckResult::default() };
        let done = ack.first.wrapping_sub(self.first);
        if done as usize > self.packets.len() {
            let is_behind = ack.first > 0 && self.first.wrapping_sub(ack.first) < 1 << 31;
            self.behind += u32::from(is_behind);
            result.has_forgotten = self.behind >= BEHIND_ACKS && self.is_long_ago(now);
            result.stale = true;
            return result;
        }
        let limited = self.in_flight + self.lost >= self.congestion.window()
            || self.pace.take_held()
            || !self.window_is_open();
        result.newly = self.drop_read(done as usize, now, rtt.least());
        if self.is_news(header_serial, now) {
            (self.ack_serial, self.acked_at, self.behind) = (Some(header_serial), now, 0);
            if let Some(window) = ack.trailer.window {
                self.window = window.clamp(1, self.window_max);
            }
            result.newly += self.mark_received(ack, now, rtt.least());
        } else {
            result.stale = done == 0;
        }
        result.lost = self.detect_losses(now, rtt);
        self.congestion.on_acked(result.newly, limited, rtt);
        if result.newly > 0 {
            self.is_stalled = false;
            self.backoff = 0;
            self.timeout_at = None;
        }
        result
    }

    fn is_news(&self, header_serial: u32, now: Monotonic) -> bool {
        let is_later = |last| header_serial.wrapping_sub(last) < 1 << 31;
        self.ack_serial.is_none_or(is_later) || self.is_long_ago(now)
    }

    /// Whether the last ACK with new information is so old that no earlier ACK can still be in flight.
    fn is_long_ago(&self, now: Monotonic) -> bool {
        now.since(self.acked_at) >= OVERTAKEN_MAX
    }

    /// Drops the first `count` packets, which the peer's application has read.
    fn drop_read(&mut self, count: usize, now: Monotonic, least: Duration) -> u32 {
        let mut newly = 0;
        for packet in self.packets.drain(..count) {
            match packet.state {
                SentState::Received => {
                    self.received -= 1;
                    continue;
                }
                SentState::InFlight => self.in_flight -= 1,
                SentState::Lost => self.lost -= 1,
            }
            newly += 1;
            if packet.proves_delivery(now, least) {
                self.arrived = self.arrived.max(packet.order + 1);
            }
        }
        self.first = self.first.wrapping_add(count as u32);
        if count > 0 {
            self.forget_sent();
        }
        newly
    }

    fn mark_received(&mut self, ack: &Ack<'_>, now: Monotonic, least: Duration) -> u32 {
        let mut newly = 0;
        for (packet, bit) in self.packets.iter_mut().zip(ack.bits()) {
            let is_received = packet.state == SentState::Received;
            if bit == is_received {
                continue;
            }
            if is_received {
                packet.state = SentState::Lost; // the peer may drop a packet again
                self.received -= 1;
                self.lost += 1;
                continue;
            }
            *(if packet.state == SentState::Lost { &mut self.lost } else { &mut self.in_flight }) -= 1;
            packet.state = SentState::Received;
            self.received += 1;
            newly += 1;
            if packet.proves_delivery(now, least) {
                self.arrived = self.arrived.max(packet.order + 1);
            }
        }
        newly
    }

    fn detect_losses(&mut self, now: Monotonic, rtt: &Rtt) -> u32 {
        self.loss_at = None;
        if self.received == 0 && self.arrived == 0 {
            return 0;
        }
        let patience = rtt.loss_delay();
        let mut lost = 0;
        for packet in &mut self.packets {
            if packet.transmissions == 0 || packet.transmissions == 1 && packet.order >= self.arrived {
                break; // later packets were sent after this one
            }
            if packet.state != SentState::InFlight || packet.order >= self.arrived {
                continue;
            }
            if packet.order + REORDER_PACKETS < self.arrived || now.since(packet.sent_at) >= patience {
                packet.state = SentState::Lost;
                self.congestion.on_lost(packet.order, self.next_order, rtt);
                lost += 1;
            } else {
                self.loss_at = crate::timers::earlier(self.loss_at, Some(packet.sent_at + patience));
            }
        }
        self.in_flight -= lost;
        self.lost += lost;
        lost
    }

    /// Marks everything sent as received, as reported by an ACKALL or by the beginning of the reply.
    pub(crate) fn on_all_received(&mut self, now: Monotonic) {
        self.acked_at = now; // ACKs overtaken by the reply are still in flight
        self.first = self.next_sequence();
        self.packets.clear();
        self.rope.forget_before(None);
        (self.in_flight, self.lost, self.received) = (0, 0, 0);
        (self.timeout_at, self.loss_at) = (None, None);
        self.backoff = 0;
    }

    /// Ends the data early, because the peer has begun its reply.
    pub(crate) fn cut_short(&mut self, now: Monotonic) {
        self.on_all_received(now);
        self.rope.clear();
        self.flush_bytes = 0;
        self.apply(SendEvent::Muted);
    }

    /// Whether written data is dropped.
    pub(crate) fn is_muted(&self) -> bool {
        self.stage == SendStage::Muted
    }

    /// Whether every packet up to the last has been cut.
    pub(crate) fn is_all_cut(&self) -> bool {
        matches!(self.stage, SendStage::Cut | SendStage::Muted)
    }

    /// Returns the time to check for lost packets or a silent peer, and starts that time if necessary.
    /// `is_blocked` states that the peer's window holds back new packets.
    pub(crate) fn deadline(&mut self, now: Monotonic, rtt: &Rtt, is_blocked: bool) -> Option<Monotonic> {
        let next = self.pace.next().filter(|_| self.has_any() && self.in_flight < self.congestion.window());
        if !self.is_waiting() && !is_blocked {
            self.timeout_at = None;
            return next;
        }
        let timeout = rtt.timeout(self.backoff) + self.ack_allowance();
        let timeout_at = *self.timeout_at.get_or_insert(now + timeout);
        crate::timers::earlier(crate::timers::earlier(Some(timeout_at), self.loss_at), next)
    }

    /// Returns the extra time for the acknowledgement of the last packet, which some receivers delay by 400
    /// ms.
    fn ack_allowance(&self) -> Duration {
        if self.is_all_cut() && self.packets.back().is_some_and(|packet| packet.transmissions == 1) {
            Duration::from_millis(400)
        } else {
            Duration::ZERO
        }
    }

    /// Handles expired deadlines.
    pub(crate) fn on_time(&mut self, now: Monotonic, rtt: &Rtt) -> Timeout {
        self.pace.refill(now, self.congestion.window(), rtt);
        if self.loss_at.is_some_and(|at| at <= now) && self.detect_losses(now, rtt) > 0 {
            return Timeout::Resend;
        }
        if self.timeout_at.is_none_or(|at| at > now) {
            return Timeout::Nothing;
        }
        self.timeout_at = None;
        self.is_answered &= self.backoff > 0;
        self.backoff += 1;
        if self.in_flight + self.lost == 0 {
            return Timeout::Ping;
        }
        self.congestion.on_timeout(self.in_flight + self.lost, self.next_order);
        self.probes.fill(None);
        for packet in self.packets.iter_mut().filter(|packet| packet.state == SentState::InFlight) {
            packet.state = SentState::Lost;
        }
        self.lost += std::mem::take(&mut self.in_flight);
        Timeout::Resend
    }

    /// Returns the body length of the first packet that has not arrived and the time it was last sent, if it
    /// was sent at least `transmissions_min` times without any answer. A peer that has no room for a packet
    /// would answer.
    pub(crate) fn stuck(&self, transmissions_min: u32) -> Option<(usize, Monotonic)> {
        if self.is_answered {
            return None;
        }
        let packet = self.packets.iter().find(|packet| packet.state != SentState::Received)?;
        let is_stuck = packet.transmissions >= transmissions_min;
        is_stuck.then_some((packet.body_bytes as usize, packet.sent_at))
    }

    /// Whether the peer has acknowledged anything.
    pub(crate) fn is_heard(&self) -> bool {
        self.ack_serial.is_some()
    }

    /// Returns the number of consecutive timeouts.
    pub(crate) fn backoff(&self) -> u32 {
        self.backoff
    }

    /// Returns the sequence number of the packet at this index.
    pub(crate) fn sequence(&self, place: usize) -> u32 {
        self.first.wrapping_add(place as u32)
    }

    /// Returns the number of packets stored for possible retransmission.
    pub(crate) fn packets(&self) -> usize {
        self.packets.len()
    }

    /// Returns the number of packets cut so far, which is the next sequence number less one.
    pub(crate) fn sequences(&self) -> u32 {
        self.next_sequence().wrapping_sub(1)
    }
}

/// Compact storage: see [`super::rest`].
impl SendQueue {
    /// Returns the queue's compact form, if it consists of a single packet, sent once, and the peer has not
    /// acknowledged anything.
    pub(crate) fn rest(&self) -> Option<Sent> {
        let (packet, [probe, older @ ..]) = (self.packets.front()?, &self.probes);
        let body = match packet.sealed.as_deref() {
            Some([body]) => body,
            Some(_) => return None,
            None => self.rope.only_chunk()?,
        };
        let is_one =
            self.packets.len() == 1 && self.next_order == 1 && self.in_flight == 1 && self.first == 1;
        let is_all = self.stage == SendStage::Cut && self.pending_bytes() == 0 && self.flush_bytes == 0;
        let is_first = self.backoff == 0 && self.pace.is_of_first() && self.loss_at.is_none();
        let is_silent = self.ack_serial.is_none() && self.acked_at == Monotonic(0) && self.behind == 0;
        let is_probe = probe.is_none_or(|probe| probe.sent_at == packet.sent_at);
        if !(is_one && is_all && is_first && is_silent && is_probe) || older.iter().any(Option::is_some) {
            return None;
        }
        Some(Sent {
            at: packet.sent_at,
            timeout_at: self.timeout_at?,
            window: self.window,
            learnt: self.congestion.learnt(packet.sent_at),
            probe: probe.map(|probe| probe.serial),
            checksum: packet.checksum,
            is_sealed: packet.sealed.is_some(),
            body: Body::of(body),
        })
    }

    /// Restores the stored state in an empty queue.
    pub(crate) fn resume(&mut self, sent: &Sent) {
        let mut body = sent.body.bytes();
        let sealed = sent.is_sealed.then(|| Box::from([body.clone()]));
        let body_bytes = self.push(&mut body, usize::MAX);
        self.end();
        self.cut(body_bytes, 1);
        self.on_sent(0, sent.at);
        if let Some(packet) = self.packets.front_mut() {
            (packet.checksum, packet.sealed) = (sent.checksum, sealed);
        }
        self.forget_sent();
        self.timeout_at = Some(sent.timeout_at);
        self.probes[0] = sent.probe.map(|serial| Probe { serial, sent_at: sent.at });
    }
}

// Thousands of calls may have a full window of them in flight.
const _: () = assert!(size_of::<SentPacket>() <= 56);
