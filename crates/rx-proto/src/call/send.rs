//! The sending half of a call: what is written, cut into packets, sent, acknowledged, sent again.
//!
//! Bytes stay a rope until the window lets a packet go; then one is cut off the front and sealed by
//! the security class, and from then on only its serial number and flags change.
//!
//! Every transmission, first or repeated, has an *order*: its number among the call's
//! transmissions. A packet is lost if one sent three transmissions later has arrived, or one sent
//! later and long enough ago (RFC 9002, 6.1, with orders for packet numbers). Rx's own rule, to
//! send again what was sent before the packet that an ACK names, is the same with a patience of one.

use std::collections::VecDeque;
use std::time::Duration;

use base::Monotonic;
use bytes::Bytes;

use crate::ack::Ack;
use crate::congestion::Congestion;
use crate::pieces::Pieces;
use crate::rtt::Rtt;

/// Transmissions that must have overtaken a packet for it to be lost.
const REORDER_PACKETS: u64 = 3;

/// Round trips being measured at once.
const PROBES: usize = 4;

/// See the module's description.
#[derive(Debug)]
pub(crate) struct SendQueue {
    /// Written and not cut yet.
    pending: VecDeque<Bytes>,
    pending_bytes: usize,
    /// Bytes of `pending` that may leave in a packet that is not full.
    flush_bytes: usize,
    ended: bool,
    /// The peer does not want to hear more: what is written is dropped.
    muted: bool,
    /// The packet that carries LAST_PACKET has been cut.
    last_cut: bool,
    /// Sequence number of the first packet in `packets`; all before are done with.
    first: u32,
    packets: VecDeque<SentPacket>,
    in_flight: u32,
    lost: u32,
    received: u32,
    next_order: u64,
    /// Order of the latest transmission known to have arrived, plus one.
    arrived: u64,
    /// Packets from `first` on that the peer has room for.
    window: u32,
    pub(crate) congestion: Congestion,
    backoff: u32,
    timeout_at: Option<Monotonic>,
    loss_at: Option<Monotonic>,
    ack_serial: Option<u32>,
    probes: [Option<Probe>; PROBES],
}

/// Empty queues that have memory.
#[derive(Debug, Default)]
pub(crate) struct SpareQueues {
    pending: VecDeque<Bytes>,
    packets: VecDeque<SentPacket>,
}

/// More room than this is given back.
const SPARE_PACKETS_MAX: usize = 16;

/// A cut packet.
#[derive(Debug)]
pub(crate) struct SentPacket {
    pub(crate) body: Pieces,
    pub(crate) body_bytes: usize,
    pub(crate) checksum: u16,
    pub(crate) last: bool,
    state: SentState,
    order: u64,
    sent_at: Monotonic,
    transmissions: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum SentState {
    InFlight,
    Lost,
    /// The peer has it, but may still drop it.
    Received,
}

/// A packet whose answer tells the round trip time.
#[derive(Clone, Copy, Debug)]
struct Probe {
    serial: u32,
    sent_at: Monotonic,
}

/// What an ACK changed.
#[derive(Debug, Default)]
pub(crate) struct AckResult {
    /// Packets that arrived, as we now know.
    pub(crate) newly: u32,
    /// Packets lost, as we now know.
    pub(crate) lost: u32,
    /// The serial it names is one that we sent and were waiting to hear of.
    pub(crate) round_trip: Option<Duration>,
    /// The ACK is older than what is known already, or impossible.
    pub(crate) stale: bool,
}

/// What a timeout asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Timeout {
    Nothing,
    /// Packets have been marked for sending again.
    Resend,
    /// Only the peer's window keeps us waiting: ask whether it has opened.
    Ping,
}

impl SendQueue {
    pub(crate) fn new(window: u32, congestion: Congestion, spare: SpareQueues) -> SendQueue {
        SendQueue {
            pending: spare.pending,
            pending_bytes: 0,
            flush_bytes: 0,
            ended: false,
            muted: false,
            last_cut: false,
            first: 1,
            packets: spare.packets,
            in_flight: 0,
            lost: 0,
            received: 0,
            next_order: 0,
            arrived: 0,
            window,
            congestion,
            backoff: 0,
            timeout_at: None,
            loss_at: None,
            ack_serial: None,
            probes: [None; PROBES],
        }
    }

    /// Its memory, if that is little.
    pub(crate) fn into_spare(self) -> Option<SpareQueues> {
        let SendQueue { mut pending, mut packets, .. } = self;
        pending.clear();
        packets.clear();
        let room = pending.capacity().max(packets.capacity());
        (room <= SPARE_PACKETS_MAX).then_some(SpareQueues { pending, packets })
    }

    /// Takes bytes off the front of `data` while fewer than `limit` wait.
    pub(crate) fn push(&mut self, data: &mut Bytes, limit: usize) -> usize {
        if self.muted {
            return data.split_to(data.len()).len();
        }
        let room = limit.saturating_sub(self.pending_bytes).min(data.len());
        if room > 0 {
            self.pending.push_back(data.split_to(room));
            self.pending_bytes += room;
        }
        room
    }

    pub(crate) fn end(&mut self) {
        self.ended = true;
    }

    pub(crate) fn flush(&mut self) {
        self.flush_bytes = self.pending_bytes;
    }

    pub(crate) fn is_ended(&self) -> bool {
        self.ended
    }

    pub(crate) fn pending_bytes(&self) -> usize {
        self.pending_bytes
    }

    /// Everything has been sent and has arrived.
    pub(crate) fn is_finished(&self) -> bool {
        self.last_cut && self.received as usize == self.packets.len()
    }

    /// Nothing has been sent yet.
    pub(crate) fn is_unstarted(&self) -> bool {
        self.next_order == 0
    }

    /// Packets sent and not known to have arrived.
    pub(crate) fn is_waiting(&self) -> bool {
        self.in_flight + self.lost > 0
    }

    fn next_sequence(&self) -> u32 {
        self.first.wrapping_add(self.packets.len() as u32)
    }

    fn has_room(&self) -> bool {
        self.in_flight < self.congestion.window()
    }

    /// Whether a new packet of up to `payload_max` bytes is there to be cut. A full packet that may
    /// turn out to be the last is kept until that is known, so that no empty one has to follow.
    pub(crate) fn has_new(&self, payload_max: usize) -> bool {
        !self.last_cut && (self.ended || self.pending_bytes > payload_max || self.flush_bytes > 0)
    }

    /// Whether there may be anything to send at all, whatever the windows say.
    pub(crate) fn has_any(&self) -> bool {
        self.lost > 0 || !self.last_cut && (self.ended || self.pending_bytes > 0)
    }

    /// Whether the peer's window may be what keeps data from being sent: if there are new ones.
    pub(crate) fn may_be_blocked(&self) -> bool {
        !self.last_cut && !self.window_is_open()
    }

    fn window_is_open(&self) -> bool {
        (self.packets.len() as u32) < self.window
    }

    /// Whether there is anything to send now.
    pub(crate) fn wants_to_send(&self, payload_max: usize) -> bool {
        self.has_room() && (self.lost > 0 || (self.has_new(payload_max) && self.window_is_open()))
    }

    /// Payload bytes of the next new packet, if one may be sent now.
    pub(crate) fn next_new(&self, payload_max: usize) -> Option<usize> {
        (self.has_room() && self.has_new(payload_max) && self.window_is_open())
            .then(|| self.pending_bytes.min(payload_max))
    }

    /// How many new packets the windows let through now, if there is that much to send.
    pub(crate) fn new_packets_max(&self) -> usize {
        let unacknowledged = self.window.saturating_sub(self.packets.len() as u32);
        unacknowledged.min(self.congestion.window().saturating_sub(self.in_flight)) as usize
    }

    /// Place of the first packet to send again, if one may be sent now.
    pub(crate) fn next_lost(&self) -> Option<usize> {
        if self.lost == 0 || !self.has_room() {
            return None;
        }
        self.packets.iter().position(|packet| packet.state == SentState::Lost)
    }

    /// Cuts the next packet's payload. The first one's number is [`SendQueue::next_to_cut`].
    pub(crate) fn cut(&mut self, payload_max: usize) -> (Pieces, bool) {
        let mut want = self.pending_bytes.min(payload_max);
        self.pending_bytes -= want;
        self.flush_bytes = self.flush_bytes.saturating_sub(want);
        let mut payload = Pieces::new();
        while let Some(front) = self.pending.front_mut().filter(|_| want > 0) {
            let piece = front.split_to(front.len().min(want));
            want -= piece.len();
            if front.is_empty() {
                self.pending.pop_front();
            }
            payload.push(piece);
        }
        self.last_cut = self.ended && self.pending_bytes == 0;
        (payload, self.last_cut)
    }

    /// Sequence number of the packet stored next.
    pub(crate) fn next_to_cut(&self) -> u32 {
        self.next_sequence()
    }

    /// Stores a packet just cut and sealed. Until it is sent it counts as lost.
    pub(crate) fn push_sealed(&mut self, body: Pieces, checksum: u16, last: bool, now: Monotonic) -> usize {
        self.packets.push_back(SentPacket {
            body_bytes: body.len_bytes(),
            body,
            checksum,
            last,
            state: SentState::Lost,
            order: 0,
            sent_at: now,
            transmissions: 0,
        });
        self.lost += 1;
        self.packets.len() - 1
    }

    /// A packet in this place.
    pub(crate) fn packet(&self, place: usize) -> (&SentPacket, u32) {
        (&self.packets[place], self.first.wrapping_add(place as u32))
    }

    /// The packet in this place is sent now. Tells whether it was sent before.
    pub(crate) fn on_sent(&mut self, place: usize, now: Monotonic) -> bool {
        let order = self.next_order;
        self.next_order += 1;
        let packet = &mut self.packets[place];
        packet.order = order;
        packet.sent_at = now;
        packet.transmissions += 1;
        let again = packet.transmissions > 1;
        self.set_state(place, SentState::InFlight);
        again
    }

    /// Whether the peer should be asked to acknowledge the packet in this place at once: when it is
    /// sent again, when a measurement is wanted, and when there will be silence after it. A short
    /// transfer's last packet is answered anyway (by the reply, or by the next call).
    pub(crate) fn should_request_ack(&self, place: usize, payload_max: usize) -> bool {
        let packet = &self.packets[place];
        let (_, sequence) = self.packet(place);
        if packet.transmissions > 1 {
            return true;
        }
        if packet.last {
            return sequence > 3;
        }
        self.probes.iter().all(Option::is_none) || !self.wants_to_send(payload_max)
    }

    /// An answer to the packet with this serial will tell the round trip time.
    pub(crate) fn add_probe(&mut self, serial: u32, now: Monotonic) {
        self.probes.rotate_right(1);
        self.probes[0] = Some(Probe { serial, sent_at: now });
    }

    fn take_probe(&mut self, serial: u32, now: Monotonic) -> Option<Duration> {
        let place = self.probes.iter().position(|probe| probe.is_some_and(|probe| probe.serial == serial))?;
        let probe = self.probes[place]?;
        // Older ones may have been lost; an answer to them would tell nothing new.
        self.probes[place..].fill(None);
        Some(now.since(probe.sent_at))
    }

    fn set_state(&mut self, place: usize, state: SentState) {
        let old = std::mem::replace(&mut self.packets[place].state, state);
        *self.count_of(old) -= 1;
        *self.count_of(state) += 1;
    }

    fn count_of(&mut self, state: SentState) -> &mut u32 {
        match state {
            SentState::InFlight => &mut self.in_flight,
            SentState::Lost => &mut self.lost,
            SentState::Received => &mut self.received,
        }
    }

    /// Takes in an ACK. `header_serial` is the ACK packet's own: it tells whether the ACK is older
    /// than one seen before. (OpenAFS goes by `previous`, which older versions of it let go back.)
    pub(crate) fn on_ack(
        &mut self,
        ack: &Ack<'_>,
        header_serial: u32,
        now: Monotonic,
        rtt: &Rtt,
    ) -> AckResult {
        let mut result = AckResult { round_trip: self.take_probe(ack.serial, now), ..AckResult::default() };
        let done = ack.first.wrapping_sub(self.first);
        if done as usize > self.packets.len() {
            result.stale = true;
            return result;
        }
        let limited = self.in_flight + self.lost >= self.congestion.window() || !self.window_is_open();
        result.newly = self.drop_read(done, now, rtt);
        if self.is_news(header_serial) {
            self.ack_serial = Some(header_serial);
            if let Some(window) = ack.trailer.window {
                self.window = window.clamp(1, crate::limits::ACKS_MAX as u32);
            }
            result.newly += self.mark_received(ack.received, now, rtt);
        } else {
            result.stale = done == 0;
        }
        result.lost = self.detect_losses(now, rtt);
        self.congestion.on_acked(result.newly, limited);
        if result.newly > 0 {
            self.backoff = 0;
            self.timeout_at = None;
        }
        result
    }

    fn is_news(&self, header_serial: u32) -> bool {
        self.ack_serial.is_none_or(|last| header_serial.wrapping_sub(last) < 1 << 31)
    }

    /// Drops packets that the peer's application has read.
    fn drop_read(&mut self, count: u32, now: Monotonic, rtt: &Rtt) -> u32 {
        let mut newly = 0;
        for _ in 0..count {
            newly += self.note_arrival(0, now, rtt);
            if let Some(packet) = self.packets.pop_front() {
                *self.count_of(packet.state) -= 1;
            }
            self.first = self.first.wrapping_add(1);
        }
        newly
    }

    fn mark_received(&mut self, bits: &[u8], now: Monotonic, rtt: &Rtt) -> u32 {
        let mut newly = 0;
        for (place, bit) in bits.iter().enumerate().take(self.packets.len()) {
            if bit & 1 != 0 {
                newly += self.note_arrival(place, now, rtt);
            } else if self.packets[place].state == SentState::Received {
                self.set_state(place, SentState::Lost); // dropped again, as it may
            }
        }
        newly
    }

    /// The packet in this place has arrived; tells 1 if that is new.
    fn note_arrival(&mut self, place: usize, now: Monotonic, rtt: &Rtt) -> u32 {
        let packet = &self.packets[place];
        if packet.state == SentState::Received {
            return 0;
        }
        // After a retransmission it may be the earlier one that arrived.
        if packet.transmissions == 1 || now.since(packet.sent_at) >= rtt.least() {
            self.arrived = self.arrived.max(packet.order + 1);
        }
        self.set_state(place, SentState::Received);
        1
    }

    fn detect_losses(&mut self, now: Monotonic, rtt: &Rtt) -> u32 {
        self.loss_at = None;
        if self.received == 0 && self.arrived == 0 {
            return 0;
        }
        let patience = rtt.loss_delay();
        let mut lost = 0;
        for place in 0..self.packets.len() {
            let SentPacket { state, order, sent_at, .. } = self.packets[place];
            if state != SentState::InFlight || order >= self.arrived {
                continue;
            }
            if order + REORDER_PACKETS < self.arrived || now.since(sent_at) >= patience {
                self.set_state(place, SentState::Lost);
                self.congestion.on_lost(order, self.next_order);
                lost += 1;
            } else {
                self.loss_at = crate::timers::earlier(self.loss_at, Some(sent_at + patience));
            }
        }
        lost
    }

    /// All that was sent has arrived: an ACKALL, or the beginning of the reply, says so.
    pub(crate) fn on_all_received(&mut self) {
        self.first = self.next_sequence();
        self.packets.clear();
        (self.in_flight, self.lost, self.received) = (0, 0, 0);
        (self.timeout_at, self.loss_at) = (None, None);
        self.backoff = 0;
    }

    /// The peer has ended what we are saying by beginning its reply.
    pub(crate) fn cut_short(&mut self) {
        self.on_all_received();
        self.pending.clear();
        (self.pending_bytes, self.flush_bytes) = (0, 0);
        (self.ended, self.last_cut, self.muted) = (true, true, true);
    }

    /// What is written is dropped.
    pub(crate) fn is_muted(&self) -> bool {
        self.muted
    }

    /// Every packet, up to the last, has been sent at least once.
    pub(crate) fn is_all_cut(&self) -> bool {
        self.last_cut
    }

    /// When to look at lost packets or at a silent peer. Also decides from when to count. `is_blocked`: the
    /// peer's window keeps new packets from being sent.
    pub(crate) fn deadline(&mut self, now: Monotonic, rtt: &Rtt, is_blocked: bool) -> Option<Monotonic> {
        if !self.is_waiting() && !is_blocked {
            self.timeout_at = None;
            return None;
        }
        let timeout = rtt.timeout(self.backoff) + self.ack_allowance();
        let timeout_at = *self.timeout_at.get_or_insert(now + timeout);
        crate::timers::earlier(Some(timeout_at), self.loss_at)
    }

    /// Some receivers sit on the acknowledgement of the last packet for 400 ms.
    fn ack_allowance(&self) -> Duration {
        if self.last_cut && self.packets.back().is_some_and(|packet| packet.transmissions == 1) {
            Duration::from_millis(400)
        } else {
            Duration::ZERO
        }
    }

    /// Looks at the deadlines.
    pub(crate) fn on_time(&mut self, now: Monotonic, rtt: &Rtt) -> Timeout {
        if self.loss_at.is_some_and(|at| at <= now) && self.detect_losses(now, rtt) > 0 {
            return Timeout::Resend;
        }
        if self.timeout_at.is_none_or(|at| at > now) {
            return Timeout::Nothing;
        }
        self.timeout_at = None;
        self.backoff += 1;
        if self.in_flight + self.lost == 0 {
            return Timeout::Ping;
        }
        self.congestion.on_timeout(self.in_flight + self.lost, self.next_order);
        self.probes.fill(None);
        for place in 0..self.packets.len() {
            if self.packets[place].state == SentState::InFlight {
                self.set_state(place, SentState::Lost);
            }
        }
        Timeout::Resend
    }

    /// Timeouts in a row.
    pub(crate) fn backoff(&self) -> u32 {
        self.backoff
    }

    /// Packets held for possible retransmission.
    pub(crate) fn packets(&self) -> usize {
        self.packets.len()
    }

    /// Packets sent so far, and so the next sequence number less one.
    pub(crate) fn sequences(&self) -> u32 {
        self.next_sequence().wrapping_sub(1)
    }
}

#[cfg(test)]
#[path = "send_tests.rs"]
mod tests;
