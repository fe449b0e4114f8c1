//! The receiving half of a call: packets in order for the reader, acknowledgements for the peer.

use std::collections::VecDeque;
use std::time::Duration;

use base::{Monotonic, Room};
use bytes::{Buf, Bytes};

use crate::ack::Reason;
use crate::header::Flags;

/// Packets received in a row, unasked, after which an ACK is due (rxi_SoftAckRate).
const RECEIVED_PER_ACK: u32 = 2;

/// Packets read since the peer last heard of it, after which an ACK is due. Linux counts its congestion window from the
/// first packet that was not read: with few packets under way, a client waits for this.
const READ_PER_ACK: u32 = 4;

/// How long an ACK waits for a reader who was told that there is something, so that what he reads is in it.
const READER_TIME: Duration = Duration::from_millis(2);

/// See the module's description.
#[derive(Debug)]
pub(crate) struct ReceiveQueue {
    /// First packet that the reader has not taken.
    next: u32,
    /// First packet that is missing.
    missing: u32,
    /// From `next` on; the packets beyond `missing` with gaps.
    slots: VecDeque<Option<Slot>>,
    highest: u32,
    last: Option<u32>,
    window: u32,
    held: usize,
    discarding: bool,
    /// Most calls have none.
    lent: Option<Box<Lent>>,
    pub(crate) acks: AckPlan,
}

/// Rooms in which the reader wants what comes next, in their order: full ones, then at most one that is partly filled.
#[derive(Debug, Default)]
struct Lent {
    rooms: VecDeque<Room>,
}

/// An empty queue that has memory.
#[derive(Debug, Default)]
pub(crate) struct SpareQueue(VecDeque<Option<Slot>>);

/// More room than this is given back.
const SPARE_PACKETS_MAX: usize = 256;

/// A received packet.
#[derive(Debug)]
struct Slot {
    body: Bytes,
    checksum: u16,
    /// Still as it came: its connection was not verified yet.
    sealed: bool,
}

/// What became of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Arrival {
    /// It is what the reader waits for, or follows that without a gap.
    InOrder,
    /// There is a gap before it.
    OutOfOrder,
    Duplicate,
    BeyondWindow,
    /// After the last packet, or a second last packet.
    Impossible,
}

/// The acknowledgements that are due.
#[derive(Debug, Default)]
pub(crate) struct AckPlan {
    /// To send at once: why, and in answer to which serial.
    due: Option<(Reason, u32)>,
    /// Serial of a ping to answer.
    pong: Option<u32>,
    at: Option<Monotonic>,
    /// What is due waits for the reader, until then.
    reader_until: Option<Monotonic>,
    received: u32,
    read: u32,
}

impl ReceiveQueue {
    /// See [`Call::look`](super::Call::look).
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

    /// Lets go of all packets; tells whether its memory is little.
    pub(crate) fn clear(&mut self) -> bool {
        self.slots.clear();
        self.lent = None;
        self.slots.capacity() <= SPARE_PACKETS_MAX
    }

    /// Its memory, once it is cleared.
    pub(crate) fn take_spare(&mut self) -> SpareQueue {
        SpareQueue(std::mem::take(&mut self.slots))
    }

    /// What storing this packet would give.
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

    /// Stores a packet that [`ReceiveQueue::classify`] found to be new.
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

    /// Takes the next payload, if it has arrived and is not sealed.
    pub(crate) fn pop(&mut self) -> Option<Bytes> {
        let body = std::mem::take(&mut self.front_mut()?.body);
        self.slots.pop_front();
        self.next += 1;
        self.held -= 1;
        self.acks.read += 1;
        Some(body)
    }

    /// Takes a room for what the reader wants next, behind those that are here already.
    pub(crate) fn lend(&mut self, room: Room) {
        self.lent.get_or_insert_default().rooms.push_back(room);
    }

    /// Whether what comes next is put into a room.
    pub(crate) fn has_rooms(&self) -> bool {
        self.lent.is_some()
    }

    /// Puts what can be read into the rooms, as far as it fits; tells how many packets that empties.
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

    /// The first room, if it is full or nothing more will come.
    pub(crate) fn take_room(&mut self) -> Option<Room> {
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

    /// Whether [`ReceiveQueue::take_room`] will give one.
    fn has_room_to_give(&self) -> bool {
        let first = self.lent.as_ref().and_then(|lent| lent.rooms.front());
        first.is_some_and(|first| first.left() == 0 || self.is_read())
    }

    /// What [`ReceiveQueue::pop`] would give.
    fn front_mut(&mut self) -> Option<&mut Slot> {
        self.slots.front_mut()?.as_mut().filter(|slot| !slot.sealed)
    }

    /// From now on nobody reads: what arrives is dropped.
    pub(crate) fn discard(&mut self) -> usize {
        self.discarding = true;
        self.lent = None;
        self.drop_unread()
    }

    /// Drops what can be read, if nobody reads; tells how many packets.
    pub(crate) fn drop_unread(&mut self) -> usize {
        let before = self.held;
        while self.discarding && self.pop().is_some() {}
        before - self.held
    }

    /// Opens packets that were kept sealed. Those that do not open are dropped, and may be sent
    /// again. Tells how many were dropped.
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

    /// All packets up to the last have arrived.
    pub(crate) fn is_complete(&self) -> bool {
        self.last.is_some_and(|last| self.missing > last)
    }

    /// All have been read, too.
    pub(crate) fn is_read(&self) -> bool {
        self.last.is_some_and(|last| self.next > last)
    }

    /// Whether there is something for the reader to take.
    pub(crate) fn is_readable(&self) -> bool {
        self.has_room_to_give() || matches!(self.slots.front(), Some(Some(slot)) if !slot.sealed)
    }

    /// Whether there are packets without a gap before them, sealed or not.
    pub(crate) fn has_unread(&self) -> bool {
        self.missing > self.next
    }

    /// Packets kept.
    pub(crate) fn held(&self) -> usize {
        self.held
    }

    /// The first packet not read: what ACKs begin with.
    pub(crate) fn next(&self) -> u32 {
        self.next
    }

    /// The first packet not received.
    pub(crate) fn missing(&self) -> u32 {
        self.missing
    }

    /// The highest packet received. It never goes back: peers drop ACKs in which it does.
    pub(crate) fn highest(&self) -> u32 {
        self.highest
    }

    /// Packets from `next` on that there is room for.
    pub(crate) fn window(&self) -> u32 {
        self.window
    }

    /// Changes the window; what is there stays.
    pub(crate) fn set_window(&mut self, window: u32) {
        self.window = window;
    }

    /// One byte per packet from `next` on: is it here?
    pub(crate) fn bits(&self) -> impl Iterator<Item = u8> {
        self.slots.iter().map(|slot| u8::from(slot.is_some()))
    }

    /// The reader, who was told at `now` that there is something, acknowledges what is due, with what he reads.
    pub(crate) fn leave_acks_to_reader(&mut self, now: Monotonic) {
        self.acks.reader_until.get_or_insert(now + READER_TIME);
    }

    /// Decides on acknowledging a packet. `at` is for the case that nothing else comes up.
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
                    acks.propose(Reason::OutOfSequence, serial); // another gap follows
                } else if acks.received >= RECEIVED_PER_ACK && self.last.is_none() {
                    acks.propose(Reason::Idle, serial);
                } else {
                    acks.propose_at(at);
                }
            }
        }
    }

    /// Decides on telling the peer that the reader has read.
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

/// See [`super::rest`].
impl ReceiveQueue {
    /// The last packet, if all have been read and nothing is to be said about them.
    pub(crate) fn rest(&self) -> Option<u32> {
        let is_through = self.is_read() && self.held == 0 && self.slots.is_empty() && self.discarding;
        let is_silent = self.acks.due.is_none() && self.acks.at.is_none() && self.acks.pong.is_none();
        self.last.filter(|last| is_through && is_silent && self.highest == *last)
    }

    /// All packets up to this one, the last, have been read.
    pub(crate) fn resume(&mut self, last: u32) {
        (self.next, self.missing, self.highest) = (last + 1, last + 1, last);
        (self.last, self.discarding) = (Some(last), true);
    }
}

impl AckPlan {
    /// An ACK is due now. One that reports trouble is not replaced by one that does not.
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

    /// An ACK is due at this time, if none is sent before.
    pub(crate) fn propose_at(&mut self, at: Monotonic) {
        self.at = crate::timers::earlier(self.at, Some(at));
    }

    /// The peer sent a ping.
    pub(crate) fn on_ping(&mut self, serial: u32) {
        self.pong = Some(serial);
    }

    /// The time of an ACK that is delayed, if there is one.
    pub(crate) fn deadline(&self) -> Option<Monotonic> {
        crate::timers::earlier(self.at, self.reader_until.filter(|_| self.due.is_some()))
    }

    /// Looks at the deadline.
    pub(crate) fn on_time(&mut self, now: Monotonic) {
        if self.at.is_some_and(|at| at <= now) {
            self.at = None;
            self.propose(Reason::Delay, 0);
        }
        self.reader_until.take_if(|until| *until <= now);
    }

    /// Whether an ACK is to be sent now.
    pub(crate) fn is_due(&self) -> bool {
        self.due.is_some() && self.reader_until.is_none() || self.pong.is_some()
    }

    /// Takes the ACK to send now. Any ACK says all there is to say.
    pub(crate) fn take(&mut self) -> Option<(Reason, u32)> {
        let chosen = match self.pong {
            Some(serial) => Some((Reason::PingResponse, serial)),
            None => self.due,
        }?;
        *self = AckPlan::default();
        Some(chosen)
    }

    /// Takes the serial of a ping to answer, and nothing else.
    pub(crate) fn take_pong(&mut self) -> Option<u32> {
        self.pong.take()
    }

    /// Whether a ping waits for its answer.
    pub(crate) fn has_pong(&self) -> bool {
        self.pong.is_some()
    }

    /// What is about to be sent makes ACKs superfluous, but not the answer to a ping.
    pub(crate) fn cancel(&mut self) {
        *self = AckPlan { pong: self.pong, ..AckPlan::default() };
    }
}

/// The delay of an ACK: a reply's last packet may be acknowledged by the next call.
pub(crate) fn ack_delay(config: &crate::EndpointConfig, last_of_reply: bool) -> Duration {
    if last_of_reply { config.last_ack_delay } else { config.ack_delay }
}

#[cfg(test)]
mod tests;
