//! The receiving half of a call: delivers packets in order to the reader and plans acknowledgements for the
//! peer.

use std::collections::VecDeque;
use std::time::Duration;

use base::{Monotonic, RecvBuffer};
use bytes::{Buf, Bytes};

use crate::ack::Reason;
use crate::header::Flags;

/// Number of consecutive packets, received without a request for an ACK, after which an ACK is due
/// (rxi_SoftAckRate).
const RECEIVED_PER_ACK: u32 = 2;

/// Number of packets read since the last ACK after which another ACK is due. Linux counts its congestion
/// window from the first unread packet, so a client with few packets in flight waits for this ACK.
const READ_PER_ACK: u32 = 4;

/// Maximum delay of an ACK after the reader was notified of data, so that the ACK includes what the reader
/// reads.
const READER_TIME: Duration = Duration::from_millis(2);

/// The received packets of a call and its planned acknowledgements.
#[derive(Debug)]
pub(crate) struct ReceiveQueue {
    /// Sequence number of the first unread packet.
    next: u32,
    /// Sequence number of the first missing packet.
    missing: u32,
    /// Packets from `next` on; those beyond `missing` have gaps.
    slots: VecDeque<Option<Slot>>,
    highest: u32,
    last: Option<u32>,
    window: u32,
    held: usize,
    discarding: bool,
    /// Receive buffers provided by the reader; most calls have none.
    lent: Option<Box<Lent>>,
    pub(crate) acks: AckPlan,
}

/// Receive buffers for the next data, in order: full ones, then at most one that is partly filled.
#[derive(Debug, Default)]
struct Lent {
    rooms: VecDeque<RecvBuffer>,
}

/// An empty queue whose allocation is reused.
#[derive(Debug, Default)]
pub(crate) struct SpareQueue(VecDeque<Option<Slot>>);

/// Maximum capacity of a queue whose allocation is kept, in packets.
const SPARE_PACKETS_MAX: usize = 256;

/// A received packet.
#[derive(Debug)]
struct Slot {
    body: Bytes,
    checksum: u16,
    /// Whether the body is still encrypted, because the connection was not verified when it arrived.
    sealed: bool,
}

/// Classification of an arriving packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Arrival {
    /// The packet is the next one for the reader, or follows the received ones without a gap.
    InOrder,
    /// A gap precedes the packet.
    OutOfOrder,
    Duplicate,
    BeyondWindow,
    /// The packet follows the last packet, or is a second last packet.
    Impossible,
}

/// The acknowledgements that are due.
#[derive(Debug, Default)]
pub(crate) struct AckPlan {
    /// Reason and answered serial of an ACK to send immediately.
    due: Option<(Reason, u32)>,
    /// Serial of an unanswered ping.
    pong: Option<u32>,
    at: Option<Monotonic>,
    /// Time until which a due ACK waits for the reader.
    reader_until: Option<Monotonic>,
    received: u32,
    read: u32,
}

impl ReceiveQueue {
    /// Prefetches the queue: see [`Call::look`](super::Call::look).
    pub(crate) fn look(&self) -> u64 {
        let times = crate::timers::look(self.acks.at) ^ crate::timers::look(self.acks.reader_until);
        u64::from(self.next) ^ self.held as u64 ^ times
    }

    pub(crate) fn new(window: u32, spare: SpareQueue) -> ReceiveQueue {
        ReceiveQueue {
            next: 1,
            missing: 1,
            slots: spare.0,
            highest: 0,
            last: None,
            window,
            held: 0,
            discarding: false,
            lent: None,
            acks: AckPlan::default(),
        }
    }

    /// Drops all packets. Returns whether the remaining allocation is small.
    pub(crate) fn clear(&mut self) -> bool {
        self.slots.clear();
        self.lent = None;
        self.slots.capacity() <= SPARE_PACKETS_MAX
    }

    /// Takes the allocation of a cleared queue.
    pub(crate) fn take_spare(&mut self) -> SpareQueue {
        SpareQueue(std::mem::take(&mut self.slots))
    }

    /// Returns how an arriving packet would be classified.
    pub(crate) fn classify(&self, sequence: u32, flags: Flags) -> Arrival {
        if sequence == 0 {
            return Arrival::Impossible;
        }
        if sequence < self.missing {
            return Arrival::Duplicate;
        }
        if sequence - self.next >= self.window {
            return Arrival::BeyondWindow;
        }
        if matches!(self.slots.get((sequence - self.next) as usize), Some(Some(_))) {
            return Arrival::Duplicate;
        }
        let is_last = flags.contains(Flags::LAST_PACKET);
        if self.last.is_some_and(|last| sequence > last) || (is_last && sequence < self.highest) {
            return Arrival::Impossible;
        }
        if sequence == self.missing { Arrival::InOrder } else { Arrival::OutOfOrder }
    }

    /// Stores a packet that [`ReceiveQueue::classify`] has found to be new.
    pub(crate) fn insert(&mut self, sequence: u32, flags: Flags, body: Bytes, checksum: u16, sealed: bool) {
        let place = (sequence - self.next) as usize;
        let slot = Some(Slot { body, checksum, sealed });
        if self.slots.len() == place {
            self.slots.push_back(slot);
        } else {
            if self.slots.len() < place {
                self.slots.resize_with(place + 1, || None);
            }
            self.slots[place] = slot;
        }
        self.held += 1;
        self.highest = self.highest.max(sequence);
        if flags.contains(Flags::LAST_PACKET) {
            self.last = Some(sequence);
        }
        self.advance();
    }

    fn advance(&mut self) {
        while matches!(self.slots.get((self.missing - self.next) as usize), Some(Some(_))) {
            self.missing += 1;
        }
    }

    /// Takes the next payload, if it has arrived and is not encrypted.
    pub(crate) fn pop(&mut self) -> Option<Bytes> {
        let body = std::mem::take(&mut self.front_mut()?.body);
        self.slots.pop_front();
        self.next += 1;
        self.held -= 1;
        self.acks.read += 1;
        Some(body)
    }

    /// Adds a receive buffer for the reader's next data, after those already present.
    pub(crate) fn post_buffer(&mut self, room: RecvBuffer) {
        self.lent.get_or_insert_default().rooms.push_back(room);
    }

    /// Whether the next data is put into a receive buffer.
    pub(crate) fn has_rooms(&self) -> bool {
        self.lent.is_some()
    }

    /// Copies readable data into the receive buffers as far as it fits. Returns the number of packets that
    /// this empties.
    pub(crate) fn land(&mut self) -> usize {
        let Some(mut lent) = self.lent.take() else { return 0 };
        let before = self.held;
        for room in &mut lent.rooms {
            while room.left() > 0
                && let Some(slot) = self.front_mut()
            {
                let put = room.put(&slot.body);
                slot.body.advance(put);
                if slot.body.is_empty() {
                    self.pop();
                }
            }
        }
        self.lent = Some(lent);
        before - self.held
    }

    /// Returns the first receive buffer, if it is full or no more data will come.
    pub(crate) fn take_room(&mut self) -> Option<RecvBuffer> {
        if !self.has_room_to_give() {
            return None;
        }
        let rooms = &mut self.lent.as_mut()?.rooms;
        let first = rooms.pop_front();
        if rooms.is_empty() {
            self.lent = None;
        }
        first
    }

    /// Whether [`ReceiveQueue::take_room`] would return a buffer.
    fn has_room_to_give(&self) -> bool {
        let first = self.lent.as_ref().and_then(|lent| lent.rooms.front());
        first.is_some_and(|first| first.left() == 0 || self.is_read())
    }

    /// Returns the packet that [`ReceiveQueue::pop`] would take.
    fn front_mut(&mut self) -> Option<&mut Slot> {
        self.slots.front_mut()?.as_mut().filter(|slot| !slot.sealed)
    }

    /// Drops unread packets and all that arrive from now on. Returns the number of packets dropped.
    pub(crate) fn discard(&mut self) -> usize {
        self.discarding = true;
        self.lent = None;
        self.drop_unread()
    }

    /// Drops readable packets if reading has ended. Returns the number of packets dropped.
    pub(crate) fn drop_unread(&mut self) -> usize {
        let before = self.held;
        while self.discarding && self.pop().is_some() {}
        before - self.held
    }

    /// Decrypts the packets that were stored encrypted. Those that fail to decrypt are dropped and may be
    /// retransmitted. Returns the number of packets dropped.
    pub(crate) fn unseal(&mut self, mut open: impl FnMut(u32, u16, Bytes) -> Option<Bytes>) -> usize {
        let before = self.held;
        for (place, entry) in self.slots.iter_mut().enumerate() {
            let Some(slot) = entry.as_mut().filter(|slot| slot.sealed) else { continue };
            let sequence = self.next + place as u32;
            if let Some(body) = open(sequence, slot.checksum, std::mem::take(&mut slot.body)) {
                *slot = Slot { body, checksum: slot.checksum, sealed: false };
            } else {
                *entry = None;
                self.held -= 1;
            }
        }
        self.missing = self.next;
        self.advance();
        before - self.held
    }

    /// Whether all packets up to the last have arrived.
    pub(crate) fn is_complete(&self) -> bool {
        self.last.is_some_and(|last| self.missing > last)
    }

    /// Whether all packets up to the last have been read.
    pub(crate) fn is_read(&self) -> bool {
        self.last.is_some_and(|last| self.next > last)
    }

    /// Whether the reader has something to take.
    pub(crate) fn is_readable(&self) -> bool {
        self.has_room_to_give() || matches!(self.slots.front(), Some(Some(slot)) if !slot.sealed)
    }

    /// Whether unread packets without a gap before them are present, encrypted or not.
    pub(crate) fn has_unread(&self) -> bool {
        self.missing > self.next
    }

    /// Returns the number of stored packets.
    pub(crate) fn held(&self) -> usize {
        self.held
    }

    /// Returns the sequence number of the first unread packet, with which ACKs begin.
    pub(crate) fn next(&self) -> u32 {
        self.next
    }

    /// Returns the sequence number of the first missing packet.
    pub(crate) fn missing(&self) -> u32 {
        self.missing
    }

    /// Returns the highest sequence number received. It never decreases: peers drop ACKs in which it does.
    pub(crate) fn highest(&self) -> u32 {
        self.highest
    }

    /// Returns the number of packets from `next` on for which there is room.
    pub(crate) fn window(&self) -> u32 {
        self.window
    }

    /// Changes the window; packets already stored remain.
    pub(crate) fn set_window(&mut self, window: u32) {
        self.window = window;
    }

    /// Returns one byte per packet from `next` on: 1 if the packet is stored, otherwise 0.
    pub(crate) fn bits(&self) -> impl Iterator<Item = u8> {
        self.slots.iter().map(|slot| u8::from(slot.is_some()))
    }

    /// Delays due ACKs until the reader, notified at `now`, has read, so that they include what it reads.
    pub(crate) fn leave_acks_to_reader(&mut self, now: Monotonic) {
        self.acks.reader_until.get_or_insert(now + READER_TIME);
    }

    /// Decides how to acknowledge a packet. `at` is the time to acknowledge it if nothing else causes an ACK.
    pub(crate) fn plan_ack(&mut self, arrival: Arrival, flags: Flags, serial: u32, at: Monotonic) {
        let acks = &mut self.acks;
        match arrival {
            Arrival::Impossible => {}
            Arrival::Duplicate => acks.propose(Reason::Duplicate, serial),
            Arrival::BeyondWindow => acks.propose(Reason::ExceedsWindow, serial),
            Arrival::OutOfOrder => acks.propose(Reason::OutOfSequence, serial),
            Arrival::InOrder => {
                acks.received += 1;
                if flags.contains(Flags::REQUEST_ACK) {
                    acks.propose(Reason::Requested, serial);
                } else if self.missing <= self.highest {
                    acks.propose(Reason::OutOfSequence, serial); // a gap follows the packet
                } else if acks.received >= RECEIVED_PER_ACK && self.last.is_none() {
                    acks.propose(Reason::Idle, serial);
                } else {
                    acks.propose_at(at);
                }
            }
        }
    }

    /// Decides how to report the reader's progress to the peer.
    pub(crate) fn plan_window_ack(&mut self, at: Monotonic) {
        self.acks.reader_until = None;
        if self.is_complete() {
            self.acks.propose_at(at);
        } else if self.acks.read >= READ_PER_ACK.min(self.window) {
            self.acks.propose(Reason::Delay, 0);
        } else if self.acks.read > 0 {
            self.acks.propose_at(at);
        }
    }
}

/// Compact storage: see [`super::rest`].
impl ReceiveQueue {
    /// Returns the last packet's sequence number, if all packets have been read and no acknowledgement is
    /// pending.
    pub(crate) fn rest(&self) -> Option<u32> {
        let is_through = self.is_read() && self.held == 0 && self.slots.is_empty() && self.discarding;
        let is_silent = self.acks.due.is_none() && self.acks.at.is_none() && self.acks.pong.is_none();
        self.last.filter(|last| is_through && is_silent && self.highest == *last)
    }

    /// Sets the state after all packets up to `last`, the last one, have been read.
    pub(crate) fn resume(&mut self, last: u32) {
        (self.next, self.missing, self.highest) = (last + 1, last + 1, last);
        (self.last, self.discarding) = (Some(last), true);
    }
}

impl AckPlan {
    /// Makes an ACK due now. One that reports a problem is not replaced by one that does not.
    pub(crate) fn propose(&mut self, reason: Reason, serial: u32) {
        let trouble = |reason| {
            matches!(
                reason,
                Reason::Duplicate | Reason::OutOfSequence | Reason::ExceedsWindow | Reason::NoSpace
            )
        };
        let weight = |reason| match reason {
            reason if trouble(reason) => 2,
            Reason::Requested => 1,
            _ => 0,
        };
        if trouble(reason) {
            self.reader_until = None;
        }
        if self.due.is_none_or(|(old, _)| weight(old) <= weight(reason)) {
            self.due = Some((reason, serial));
        }
    }

    /// Makes an ACK due at this time, unless one is sent before.
    pub(crate) fn propose_at(&mut self, at: Monotonic) {
        self.at = crate::timers::earlier(self.at, Some(at));
    }

    /// Records a ping from the peer.
    pub(crate) fn on_ping(&mut self, serial: u32) {
        self.pong = Some(serial);
    }

    /// Returns the time of a delayed ACK, if there is one.
    pub(crate) fn deadline(&self) -> Option<Monotonic> {
        crate::timers::earlier(self.at, self.reader_until.filter(|_| self.due.is_some()))
    }

    /// Handles expired deadlines.
    pub(crate) fn on_time(&mut self, now: Monotonic) {
        if self.at.is_some_and(|at| at <= now) {
            self.at = None;
            self.propose(Reason::Delay, 0);
        }
        self.reader_until.take_if(|until| *until <= now);
    }

    /// Whether an ACK has to be sent now.
    pub(crate) fn is_due(&self) -> bool {
        self.due.is_some() && self.reader_until.is_none() || self.pong.is_some()
    }

    /// Takes the ACK to send now. Any ACK contains the complete state, so all other plans are dropped.
    pub(crate) fn take(&mut self) -> Option<(Reason, u32)> {
        let chosen = match self.pong {
            Some(serial) => Some((Reason::PingResponse, serial)),
            None => self.due,
        }?;
        *self = AckPlan::default();
        Some(chosen)
    }

    /// Takes the serial of an unanswered ping and leaves the other plans unchanged.
    pub(crate) fn take_pong(&mut self) -> Option<u32> {
        self.pong.take()
    }

    /// Whether a ping is unanswered.
    pub(crate) fn has_pong(&self) -> bool {
        self.pong.is_some()
    }

    /// Cancels ACKs that the next packet makes unnecessary, but not the answer to a ping.
    pub(crate) fn cancel(&mut self) {
        *self = AckPlan { pong: self.pong, ..AckPlan::default() };
    }
}

/// Returns the delay of an ACK. The delay for a reply's last packet is configured separately, because the
/// next call may acknowledge it.
pub(crate) fn ack_delay(config: &crate::EndpointConfig, last_of_reply: bool) -> Duration {
    if last_of_reply { config.last_ack_delay } else { config.ack_delay }
}

#[cfg(test)]
mod tests;
