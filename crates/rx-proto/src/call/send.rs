//! The sending half of a call: what is written, cut into packets, sent, acknowledged, sent again.
//!
//! Bytes stay a [`Rope`] until the window lets packets go; then some are cut off the front, as many as one
//! batch holds, and sealed by the security class if it wants that. From then on only their serial numbers
//! and flags change.
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
use crate::call::pace::Pace;
use crate::call::rest::{Body, Sent};
use crate::call::rope::{Gathered, Place, Rope};
use crate::congestion::Congestion;
use crate::rtt::Rtt;
use crate::timers::look;

/// Transmissions that must have overtaken a packet for it to be lost.
const REORDER_PACKETS: u64 = 3;

/// No ACK is overtaken by later ones for so long. One that is older by its number than what was heard before this time is
/// of a peer that counts anew, since it was restarted.
const OVERTAKEN_MAX: Duration = Duration::from_secs(1);

/// So many ACKs that ask again for what had been read, and no other, are of such a peer.
const BEHIND_ACKS: u32 = 3;

/// Round trips being measured at once.
const PROBES: usize = 4;

/// See the module's description.
#[derive(Debug)]
pub(crate) struct SendQueue {
    /// What has been written, from the first packet in `packets` on.
    rope: Rope,
    /// Bytes not cut yet that may leave in a packet that is not full.
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
    /// The largest that is used of it.
    window_max: u32,
    pub(crate) congestion: Congestion,
    pace: Pace,
    backoff: u32,
    timeout_at: Option<Monotonic>,
    loss_at: Option<Monotonic>,
    /// Of the last ACK that told something new, and when it came.
    ack_serial: Option<u32>,
    acked_at: Monotonic,
    /// ACKs since then that asked again for what had been read.
    behind: u32,
    /// An ACK was the answer to a DATA packet since the first timeout in a row.
    is_answered: bool,
    probes: [Option<Probe>; PROBES],
}

/// Empty queues that have memory.
#[derive(Debug, Default)]
pub(crate) struct SpareQueues {
    chunks: VecDeque<Bytes>,
    packets: VecDeque<SentPacket>,
}

/// More room than this is given back.
const SPARE_PACKETS_MAX: usize = 256;

/// A cut packet. Windows hold many: it is kept small.
#[derive(Debug)]
struct SentPacket {
    /// Where it begins in the rope.
    start: Place,
    /// Its body, if that is not what stands in the rope.
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
    /// Whether its arrival tells that its latest transmission arrived: after a retransmission it may be an
    /// earlier one.
    fn tells_order(&self, now: Monotonic, least: Duration) -> bool {
        self.transmissions == 1 || self.transmissions > 1 && now.since(self.sent_at) >= least
    }
}

/// What a header says of a packet.
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
    /// The peer wants again what it had read before, which is not kept: it was restarted, and knows nothing of the call.
    pub(crate) has_forgotten: bool,
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
    /// See [`Call::look`](super::Call::look).
    pub(crate) fn look(&self) -> u64 {
        let packet = self.packets.front().map_or(0, |packet| packet.order ^ u64::from(packet.checksum));
        let times = look(self.timeout_at) ^ look(self.loss_at) ^ self.acked_at.0;
        let first = self.probes[0].map_or(0, |probe| probe.sent_at.0);
        let last = self.probes[PROBES - 1].map_or(0, |probe| probe.sent_at.0);
        let windows = self.congestion.window() ^ self.pace.packets() ^ self.backoff;
        packet ^ self.rope.look() ^ self.arrived ^ times ^ first ^ last ^ u64::from(windows)
    }

    /// `window` is what the peer is believed to have room for, `window_max` how much of what it says is used.
    pub(crate) fn new(window: u32, window_max: u32, congestion: Congestion, spare: SpareQueues) -> SendQueue {
        SendQueue {
            rope: Rope::reusing(spare.chunks),
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
            is_answered: false,
            probes: [None; PROBES],
        }
    }

    /// Lets go of everything; tells whether its memory is little.
    pub(crate) fn clear(&mut self) -> bool {
        self.rope.clear();
        self.packets.clear();
        self.rope.room().max(self.packets.capacity()) <= SPARE_PACKETS_MAX
    }

    /// Its memory, once it is cleared.
    pub(crate) fn take_spare(&mut self) -> SpareQueues {
        SpareQueues { chunks: self.rope.take_memory(), packets: std::mem::take(&mut self.packets) }
    }

    /// Takes bytes off the front of `data` while fewer than `limit` wait.
    pub(crate) fn push(&mut self, data: &mut Bytes, limit: usize) -> usize {
        if self.muted {
            return data.split_to(data.len()).len();
        }
        let room = limit.saturating_sub(self.pending_bytes()).min(data.len());
        if room > 0 {
            self.rope.push(data.split_to(room));
        }
        room
    }

    pub(crate) fn end(&mut self) {
        self.ended = true;
    }

    pub(crate) fn flush(&mut self) {
        self.flush_bytes = self.pending_bytes();
    }

    pub(crate) fn is_ended(&self) -> bool {
        self.ended
    }

    /// Bytes written and not cut yet.
    pub(crate) fn pending_bytes(&self) -> usize {
        self.rope.uncut_bytes()
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
        self.in_flight < self.congestion.window() && self.pace.packets() > 0
    }

    /// Whether a new packet of up to `payload_max` bytes is there to be cut. A full packet that may
    /// turn out to be the last is kept until that is known, so that no empty one has to follow.
    pub(crate) fn has_new(&self, payload_max: usize) -> bool {
        !self.last_cut && (self.ended || self.pending_bytes() > payload_max || self.flush_bytes > 0)
    }

    /// Whether there may be anything to send at all, whatever the windows say.
    pub(crate) fn has_any(&self) -> bool {
        self.lost > 0 || !self.last_cut && (self.ended || self.pending_bytes() > 0)
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

    /// How many new packets the windows let through now, if there is that much to send.
    fn new_packets_max(&self) -> usize {
        let unacknowledged = self.window.saturating_sub(self.packets.len() as u32);
        let room = self.congestion.window().saturating_sub(self.in_flight);
        unacknowledged.min(room).min(self.pace.packets()) as usize
    }

    /// Place of the first packet from `from` on that is to be sent, if one may be sent now.
    pub(crate) fn next_unsent(&self, from: usize) -> Option<usize> {
        if self.lost == 0 || !self.has_room() {
            return None;
        }
        let place = self.packets.range(from..).position(|packet| packet.state == SentState::Lost)?;
        Some(from + place)
    }

    /// Cuts up to `packets_max` packets, as the windows allow. Until they are sent they count as lost.
    /// Tells how many there are, behind those that were there before.
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
        self.last_cut = self.ended && self.pending_bytes() == 0;
        self.packets.push_back(SentPacket {
            start,
            sealed: None,
            order: 0,
            sent_at: Monotonic(0),
            transmissions: 0,
            body_bytes: bytes as u32,
            checksum: 0,
            last: self.last_cut,
            state: SentState::Lost,
        });
        self.lost += 1;
    }

    /// The payload of a packet that was just cut.
    pub(crate) fn payload(&self, place: usize) -> Vec<Bytes> {
        let packet = &self.packets[place];
        self.rope.slices(packet.start, packet.body_bytes as usize)
    }

    /// The security class wants nothing of packets just cut, from this place on, but these checksums.
    pub(crate) fn set_checksums(&mut self, place: usize, checksums: &[u16]) {
        for (packet, checksum) in self.packets.range_mut(place..).zip(checksums) {
            packet.checksum = *checksum;
        }
    }

    /// The security class has made this of packets just cut, from this place on.
    pub(crate) fn set_sealed(&mut self, place: usize, sealed: Vec<rx_security::Protected>) {
        for (packet, sealed) in self.packets.range_mut(place..).zip(sealed) {
            packet.body_bytes = sealed.len() as u32;
            packet.checksum = sealed.checksum;
            packet.sealed = Some(sealed.pieces.into());
        }
        self.forget_sent();
    }

    /// Lets go of what is in no packet that may have to be sent again.
    fn forget_sent(&mut self) {
        let first = self.packets.front().filter(|packet| packet.sealed.is_none());
        self.rope.forget_before(first.map(|packet| packet.start));
    }

    /// The packet in this place.
    pub(crate) fn packet(&self, place: usize) -> SentFacts {
        let packet = &self.packets[place];
        SentFacts {
            sequence: self.first.wrapping_add(place as u32),
            checksum: packet.checksum,
            last: packet.last,
            body_bytes: packet.body_bytes as usize,
        }
    }

    /// Adds the body of the packet in this place to others of this queue.
    pub(crate) fn gather(&self, place: usize, bodies: &mut Gathered) {
        let packet = &self.packets[place];
        match &packet.sealed {
            Some(slices) => bodies.add_slices(&self.rope, slices),
            None => bodies.add(&self.rope, packet.start, packet.body_bytes as usize),
        }
    }

    /// Nothing more is added.
    pub(crate) fn close_gathered(&self, bodies: &mut Gathered) {
        bodies.close(&self.rope);
    }

    /// Packets are about to be sent. If none are under way, the time that their acknowledgement may take begins
    /// now, whatever was waited for before.
    pub(crate) fn begin_batch(&mut self) {
        if !self.is_waiting() {
            self.timeout_at = None;
        }
    }

    /// The packet in this place is sent now. Tells whether it was sent before.
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

    /// Whether the peer should be asked to acknowledge a packet that was just sent at once: when it is
    /// sent again, and when a measurement is wanted (and when there will be silence after it, which is known
    /// only later: [`SendQueue::should_ask_before_silence`]). A short transfer's last packet is answered
    /// anyway (by the reply, or by the next call).
    pub(crate) fn should_request_ack(&self, packet: SentFacts, again: bool) -> bool {
        again || if packet.last { packet.sequence > 3 } else { !self.is_measuring() }
    }

    /// Whether the peer should be asked to acknowledge a packet, not asked to yet, since nothing can follow it now.
    pub(crate) fn should_ask_before_silence(&self, packet: SentFacts, payload_max: usize) -> bool {
        !packet.last && !self.wants_to_send(payload_max)
    }

    /// New round trips are measured from the first place on.
    fn is_measuring(&self) -> bool {
        self.probes.iter().any(Option::is_some)
    }

    /// An answer to the packet with this serial will tell the round trip time. Where many are on their way, the oldest
    /// stay: of a path on which more packets than that are asked about in a round trip, nothing else would be learnt.
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
        // Older ones may have been lost; an answer to them would tell nothing new.
        self.probes[place..].fill(None);
        Some(now.since(probe.sent_at))
    }

    /// Takes in an ACK. `header_serial` is the ACK packet's own: it tells whether the ACK is older
    /// than one seen before. (OpenAFS goes by `previous`, which older versions of it let go back.) A peer that was
    /// restarted has other numbers: after [`OVERTAKEN_MAX`] they count, and if it lacks nothing but what is
    /// kept here, it is sent to it again.
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
            self.backoff = 0;
            self.timeout_at = None;
        }
        result
    }

    fn is_news(&self, header_serial: u32, now: Monotonic) -> bool {
        let is_later = |last| header_serial.wrapping_sub(last) < 1 << 31;
        self.ack_serial.is_none_or(is_later) || self.is_long_ago(now)
    }

    /// Whether no ACK that came before told something new for so long that none of them is on its way.
    fn is_long_ago(&self, now: Monotonic) -> bool {
        now.since(self.acked_at) >= OVERTAKEN_MAX
    }

    /// Drops packets that the peer's application has read.
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
            if packet.tells_order(now, least) {
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
                packet.state = SentState::Lost; // dropped again, as it may
                self.received -= 1;
                self.lost += 1;
                continue;
            }
            *(if packet.state == SentState::Lost { &mut self.lost } else { &mut self.in_flight }) -= 1;
            packet.state = SentState::Received;
            self.received += 1;
            newly += 1;
            if packet.tells_order(now, least) {
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
                break; // what follows was sent later still
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

    /// All that was sent has arrived: an ACKALL, or the beginning of the reply, says so.
    pub(crate) fn on_all_received(&mut self, now: Monotonic) {
        self.acked_at = now; // ACKs that the reply overtook are still on their way
        self.first = self.next_sequence();
        self.packets.clear();
        self.rope.forget_before(None);
        (self.in_flight, self.lost, self.received) = (0, 0, 0);
        (self.timeout_at, self.loss_at) = (None, None);
        self.backoff = 0;
    }

    /// The peer has ended what we are saying by beginning its reply.
    pub(crate) fn cut_short(&mut self, now: Monotonic) {
        self.on_all_received(now);
        self.rope.clear();
        self.flush_bytes = 0;
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
        let next = self.pace.next().filter(|_| self.has_any() && self.in_flight < self.congestion.window());
        if !self.is_waiting() && !is_blocked {
            self.timeout_at = None;
            return next;
        }
        let timeout = rtt.timeout(self.backoff) + self.ack_allowance();
        let timeout_at = *self.timeout_at.get_or_insert(now + timeout);
        crate::timers::earlier(crate::timers::earlier(Some(timeout_at), self.loss_at), next)
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

    /// Body bytes of the first packet that has not arrived, and when it was sent last, if it was sent at least
    /// `transmissions_min` times without any answer: a peer that has no room for a packet says so.
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

    /// Timeouts in a row.
    pub(crate) fn backoff(&self) -> u32 {
        self.backoff
    }

    /// Sequence number of the packet in this place.
    pub(crate) fn sequence(&self, place: usize) -> u32 {
        self.first.wrapping_add(place as u32)
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

/// See [`super::rest`].
impl SendQueue {
    /// What has to be kept of it, if it has sent one packet, which is all, and has heard nothing.
    pub(crate) fn rest(&self) -> Option<Sent> {
        let (packet, [probe, older @ ..]) = (self.packets.front()?, &self.probes);
        let body = match packet.sealed.as_deref() {
            Some([body]) => body,
            Some(_) => return None,
            None => self.rope.only_chunk()?,
        };
        let is_one =
            self.packets.len() == 1 && self.next_order == 1 && self.in_flight == 1 && self.first == 1;
        let is_all = self.last_cut && !self.muted && self.pending_bytes() == 0 && self.flush_bytes == 0;
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

    /// Makes an empty one what it was.
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

// Thousands of calls may have a window full of them under way.
const _: () = assert!(size_of::<SentPacket>() <= 56);
