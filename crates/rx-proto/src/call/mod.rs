//! One call: its two halves, its place on a connection, its clocks.

mod pace;
pub(crate) mod receive;
pub(crate) mod rest;
pub(crate) mod rope;
pub(crate) mod send;

use std::time::Duration;

use base::{AbortCode, Monotonic};

use crate::congestion::Congestion;
use crate::limits::{BULK_PACKETS, PACKET_BYTES_MIN, UNREAD_WINDOW};
use crate::slab::Key;
use crate::standing::Standing;
use crate::timers::{Armed, earlier, look};
use receive::ReceiveQueue;
use send::SendQueue;

/// Which end of a connection we are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Side {
    Client,
    Server,
}

/// Where a call is in its life.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Phase {
    /// Server: packets have arrived, and the peer has to prove itself or its address. The user does not know of it.
    Waiting,
    /// The user reads and writes, or has released it and the rest is being sent.
    Active,
    /// Both directions are through.
    Done,
    /// Over.
    Failed(AbortCode),
}

/// See the module's description.
#[derive(Debug)]
pub(crate) struct Call {
    pub(crate) connection: Key,
    pub(crate) side: Side,
    pub(crate) channel: u8,
    pub(crate) number: u32,
    pub(crate) phase: Phase,
    pub(crate) send: SendQueue,
    pub(crate) receive: ReceiveQueue,
    /// The user has let go of it.
    pub(crate) released: bool,
    pub(crate) reader_waits: bool,
    pub(crate) writer_waits: bool,
    /// It is in the endpoint's queue of calls with something to send.
    pub(crate) ready: bool,
    /// It is in the endpoint's list of calls whose deadline has to be looked at.
    pub(crate) unarmed: bool,
    /// Its own deadline, once it has left its channel.
    pub(crate) armed: Armed,
    pub(crate) clocks: Clocks,
    pub(crate) limits: TimeLimits,
    /// A failed call whose abort is held back.
    pub(crate) abort_at: Option<Monotonic>,
    /// A ping is to be sent.
    pub(crate) ping: Option<Ping>,
    /// What it counts as.
    pub(crate) standing: Standing,
    pub(crate) damaged: u32,
    /// It is counted among those that receive much.
    pub(crate) is_bulk: bool,
    /// Client: the acknowledgement that the channel's last call still owes, until this call's first
    /// packet makes it superfluous.
    pub(crate) owed: Option<OwedAck>,
    /// Client: the network said that the peer is not there.
    pub(crate) doubt: Option<Doubt>,
}

/// A notice that the peer cannot be reached, and how long the peer has to prove it wrong.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Doubt {
    pub(crate) since: Monotonic,
    pub(crate) until: Monotonic,
}

/// What a ping is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ping {
    /// To hear whether the peer is there.
    Plain,
    /// To find out whether the path carries packets of so many bytes.
    Probe(usize),
}

/// The last acknowledgement of a call that has left its channel.
#[derive(Clone, Copy, Debug)]
pub(crate) struct OwedAck {
    pub(crate) number: u32,
    /// The first packet that was not received.
    pub(crate) missing: u32,
    pub(crate) at: Monotonic,
}

/// When things happened last.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Clocks {
    pub(crate) started: Monotonic,
    pub(crate) received: Monotonic,
    pub(crate) sent: Monotonic,
    /// Data moved in either direction, or the user did something.
    pub(crate) progress: Monotonic,
}

/// How long to wait for what.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TimeLimits {
    pub(crate) dead: Duration,
    pub(crate) idle: Option<Duration>,
    pub(crate) total: Option<Duration>,
}

impl TimeLimits {
    /// Time between pings to a silent peer.
    pub(crate) fn ping(&self) -> Duration {
        self.dead / 6
    }
}

/// The memory of a call's queues, for the next call. Most calls are small ones.
#[derive(Debug, Default)]
pub(crate) struct SpareQueues {
    pub(crate) send: send::SpareQueues,
    pub(crate) receive: receive::SpareQueue,
}

/// What a new call is made of.
pub(crate) struct NewCall {
    pub(crate) connection: Key,
    pub(crate) side: Side,
    pub(crate) channel: u8,
    pub(crate) number: u32,
    pub(crate) phase: Phase,
    pub(crate) send_window: u32,
    pub(crate) send_window_max: u32,
    pub(crate) receive_window: u32,
    pub(crate) congestion: Congestion,
    pub(crate) limits: TimeLimits,
    pub(crate) standing: Standing,
}

/// What has become too late.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Late {
    /// The peer is silent.
    Dead,
    /// There is no progress.
    TimedOut,
}

impl Call {
    /// Reads a little of each part, so that all of it is in the processor's caches.
    pub(crate) fn look(&self) -> u64 {
        let channel = u64::from(self.channel) ^ self.limits.dead.as_secs();
        let limits = self.limits.idle.map_or(0, |idle| idle.as_secs());
        let times = self.clocks.started.0 ^ self.clocks.received.0 ^ look(self.abort_at);
        let rare = self.owed.map_or(0, |owed| owed.at.0) ^ self.doubt.map_or(0, |doubt| doubt.since.0);
        channel ^ limits ^ times ^ rare ^ self.armed.look() ^ self.send.look() ^ self.receive.look()
    }

    /// A new one in the memory of one that is over and cleared.
    pub(crate) fn reusing(spare: Option<Box<Call>>, parts: NewCall, now: Monotonic) -> Box<Call> {
        let Some(mut call) = spare else { return Box::new(Call::new(parts, SpareQueues::default(), now)) };
        let queues = call.take_spare();
        *call = Call::new(parts, queues, now);
        call
    }

    fn new(parts: NewCall, spare: SpareQueues, now: Monotonic) -> Call {
        Call {
            connection: parts.connection,
            side: parts.side,
            channel: parts.channel,
            number: parts.number,
            phase: parts.phase,
            send: SendQueue::new(parts.send_window, parts.send_window_max, parts.congestion, spare.send),
            receive: ReceiveQueue::new(parts.receive_window, spare.receive),
            released: false,
            reader_waits: false,
            writer_waits: false,
            ready: false,
            unarmed: false,
            armed: Armed::default(),
            clocks: Clocks { started: now, received: now, sent: now, progress: now },
            limits: parts.limits,
            abort_at: None,
            ping: None,
            standing: parts.standing,
            damaged: 0,
            is_bulk: false,
            owed: None,
            doubt: None,
        }
    }

    /// Lets go of all packets. Tells whether the memory that is left is so little that it may be kept for
    /// another call.
    pub(crate) fn clear(&mut self) -> bool {
        let (send, receive) = (self.send.clear(), self.receive.clear());
        send && receive
    }

    /// The queues' memory of a call that was cleared.
    pub(crate) fn take_spare(&mut self) -> SpareQueues {
        SpareQueues { send: self.send.take_spare(), receive: self.receive.take_spare() }
    }

    /// Whether packets still go back and forth.
    pub(crate) fn is_running(&self) -> bool {
        matches!(self.phase, Phase::Waiting | Phase::Active)
    }

    /// The code it failed with.
    pub(crate) fn failure(&self) -> Option<AbortCode> {
        match self.phase {
            Phase::Failed(code) => Some(code),
            _ => None,
        }
    }

    /// Whether an ACK is to be sent now. While the peer has to prove itself only pings are answered: what is not
    /// acknowledged is sent again, and each time the peer is asked again.
    pub(crate) fn owes_ack(&self) -> bool {
        match self.phase {
            Phase::Waiting => self.receive.acks.has_pong(),
            _ => self.receive.acks.is_due(),
        }
    }

    /// Whether a server's reply may leave: a client that is still sending would take it as a breach
    /// of protocol (it means "I have heard enough").
    pub(crate) fn may_send(&self) -> bool {
        self.side == Side::Client || self.receive.is_complete()
    }

    /// Whether both directions are through.
    pub(crate) fn is_through(&self) -> bool {
        match self.side {
            Side::Client => self.receive.is_complete(),
            Side::Server => self.send.is_finished() && self.receive.is_complete(),
        }
    }

    /// Whether its caller is not verified, and about nothing of it has been read.
    pub(crate) fn is_unread_of_anonymous(&self) -> bool {
        self.standing != Standing::Verified && self.receive.next() <= UNREAD_WINDOW
    }

    /// Opens the window up to `most` packets: that of an anonymous caller by as much as has been read.
    pub(crate) fn open_window(&mut self, most: u32) {
        let read = self.receive.next() - 1;
        self.receive.set_window(self.standing.window(most, read));
    }

    /// Whether it receives much, and more is to come.
    pub(crate) fn receives_much(&self) -> bool {
        self.receive.highest() > BULK_PACKETS && !self.receive.is_complete()
    }

    /// Whether nothing is left to do for the protocol.
    pub(crate) fn is_over(&self) -> bool {
        match self.phase {
            Phase::Waiting | Phase::Active => false,
            Phase::Done => self.receive.acks.deadline().is_none() && !self.receive.acks.is_due(),
            Phase::Failed(_) => self.abort_at.is_none(),
        }
    }

    /// The longest plain payload that fits into the packets to send now.
    pub(crate) fn payload_max(room: usize, overhead: rx_security::Overhead) -> usize {
        overhead.payload_max(room.max(PACKET_BYTES_MIN / 2)).max(1)
    }

    /// Whether it waits for data or window from the peer rather than from its user.
    fn waits_for_peer(&self) -> bool {
        let wants_data = !self.receive.is_complete() && !self.receive.is_readable();
        let wants_window = self.send.is_waiting() || self.send.pending_bytes() > 0;
        match self.side {
            Side::Server => wants_data || wants_window,
            Side::Client => wants_data && self.send.is_ended() || wants_window,
        }
    }

    /// Looks at the limits on waiting.
    pub(crate) fn lateness(&self, now: Monotonic) -> Option<Late> {
        if !self.is_running() {
            return None;
        }
        if now >= self.clocks.received + self.limits.dead {
            return Some(Late::Dead);
        }
        let idle = self.limits.idle.is_some_and(|idle| now >= self.clocks.progress + idle);
        let total = self.limits.total.is_some_and(|total| now >= self.clocks.started + total);
        (total || idle && self.waits_for_peer()).then_some(Late::TimedOut)
    }

    /// When to send a ping if nothing else is heard or sent.
    pub(crate) fn ping_at(&self) -> Monotonic {
        self.clocks.received.max(self.clocks.sent) + self.limits.ping()
    }

    /// The earliest of all times to look at the call, but for its send queue's.
    pub(crate) fn deadline(&self, now: Monotonic) -> Option<Monotonic> {
        let acks = self.receive.acks.deadline();
        match self.phase {
            Phase::Failed(_) => self.abort_at,
            Phase::Done => acks,
            Phase::Waiting => Some(self.clocks.received + self.limits.dead),
            Phase::Active => {
                let limits = [
                    self.ping.is_none().then(|| self.ping_at()),
                    Some(self.clocks.received + self.limits.dead),
                    // What the user keeps waiting does not time out, but has to be looked at again.
                    self.limits.idle.map(|idle| (self.clocks.progress + idle).max(now + self.limits.ping())),
                    self.limits.total.map(|total| self.clocks.started + total),
                    self.owed.map(|owed| owed.at),
                    self.doubt.map(|doubt| doubt.until),
                ];
                limits.into_iter().fold(acks, earlier)
            }
        }
    }
}
