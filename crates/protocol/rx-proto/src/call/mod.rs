//! A call: its sending and receiving halves, its state and its deadlines.

mod pace;
pub(crate) mod receive;
pub(crate) mod rest;
pub(crate) mod rope;
pub(crate) mod send;
mod state;

use std::time::Duration;

use base::{AbortCode, Monotonic};

use crate::congestion::Congestion;
use crate::endpoint::unread::Unread;
use crate::limits::{BULK_PACKETS, PACKET_BYTES_MIN, UNREAD_WINDOW};
use crate::slab::Key;
use crate::standing::Standing;
use crate::timers::{Armed, earlier, look};
use receive::ReceiveQueue;
use send::SendQueue;

pub(crate) use state::{State, StateEvent};

/// The local end of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Side {
    Client,
    Server,
}

/// A call on a channel of a connection.
#[derive(Debug)]
pub(crate) struct Call {
    pub(crate) connection: Key,
    pub(crate) side: Side,
    pub(crate) channel: u8,
    pub(crate) number: u32,
    pub(crate) state: State,
    pub(crate) send: SendQueue,
    pub(crate) receive: ReceiveQueue,
    pub(crate) reader_waits: bool,
    pub(crate) writer_waits: bool,
    /// Whether the call is in the endpoint's queue of calls with something to send.
    pub(crate) ready: bool,
    /// Whether the call is in the endpoint's list of calls whose deadline has to be updated.
    pub(crate) unarmed: bool,
    /// The call's own deadline, used once the call has left its channel.
    pub(crate) armed: Armed,
    pub(crate) clocks: Clocks,
    pub(crate) limits: TimeLimits,
    /// Time at which the delayed abort of a failed call is sent.
    pub(crate) abort_at: Option<Monotonic>,
    /// A ping to send.
    pub(crate) ping: Option<Ping>,
    /// Level of proof under which the call is counted.
    pub(crate) standing: Standing,
    /// Its reply counts as one that the client has not acknowledged.
    pub(crate) unread: Option<Unread>,
    pub(crate) damaged: u32,
    /// Whether the call is counted among the calls that receive much data.
    pub(crate) is_bulk: bool,
    /// Client: the deferred final acknowledgement of the channel's previous call, until this call's first
    /// packet makes it unnecessary.
    pub(crate) owed: Option<OwedAck>,
    /// Client: an unconfirmed ICMP notice that the peer is unreachable.
    pub(crate) doubt: Option<Doubt>,
}

/// A notice that the peer is unreachable, and the time by which the peer has to disprove it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Doubt {
    pub(crate) since: Monotonic,
    pub(crate) until: Monotonic,
}

/// Purpose of a ping.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ping {
    /// Checks whether the peer is alive.
    Plain,
    /// Checks whether the path carries packets of this many bytes.
    Probe(usize),
}

/// The deferred final acknowledgement of a call that has left its channel.
#[derive(Clone, Copy, Debug)]
pub(crate) struct OwedAck {
    pub(crate) number: u32,
    /// The first packet that was not received.
    pub(crate) missing: u32,
    pub(crate) at: Monotonic,
}

/// Times of a call's latest events.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Clocks {
    pub(crate) started: Monotonic,
    pub(crate) received: Monotonic,
    pub(crate) sent: Monotonic,
    /// Time at which data last moved in either direction or the application last acted on the call.
    pub(crate) progress: Monotonic,
}

/// Limits on the waiting times of a call.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TimeLimits {
    pub(crate) dead: Duration,
    pub(crate) idle: Option<Duration>,
    pub(crate) total: Option<Duration>,
}

impl TimeLimits {
    /// Returns the time between pings to a silent peer.
    pub(crate) fn ping(&self) -> Duration {
        self.dead / 6
    }
}

/// The allocations of a call's queues, kept for the next call. Most calls are small.
#[derive(Debug, Default)]
pub(crate) struct SpareQueues {
    pub(crate) send: send::SpareQueues,
    pub(crate) receive: receive::SpareQueue,
}

/// Parameters of a new call.
pub(crate) struct NewCall {
    pub(crate) connection: Key,
    pub(crate) side: Side,
    pub(crate) channel: u8,
    pub(crate) number: u32,
    pub(crate) state: State,
    pub(crate) send_window: u32,
    pub(crate) send_window_max: u32,
    pub(crate) receive_window: u32,
    pub(crate) congestion: Congestion,
    pub(crate) limits: TimeLimits,
    pub(crate) standing: Standing,
}

/// The limit that a call has exceeded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Late {
    /// The peer has been silent for too long.
    Dead,
    /// The call has made no progress, or has taken too long in total.
    TimedOut,
}

impl Call {
    /// Prefetches each part of the call into the processor's caches; the result is meaningless.
    pub(crate) fn look(&self) -> u64 {
        let channel = u64::from(self.channel) ^ self.limits.dead.as_secs();
        let limits = self.limits.idle.map_or(0, |idle| idle.as_secs());
        let times = self.clocks.started.0 ^ self.clocks.received.0 ^ look(self.abort_at);
        let rare = self.owed.map_or(0, |owed| owed.at.0) ^ self.doubt.map_or(0, |doubt| doubt.since.0);
        channel ^ limits ^ times ^ rare ^ self.armed.look() ^ self.send.look() ^ self.receive.look()
    }

    /// Creates a call, reusing the allocations of a completed and cleared call if there is one.
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
            state: parts.state,
            send: SendQueue::new(parts.send_window, parts.send_window_max, parts.congestion, spare.send),
            receive: ReceiveQueue::new(parts.receive_window, spare.receive),
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
            unread: None,
            damaged: 0,
            is_bulk: false,
            owed: None,
            doubt: None,
        }
    }

    /// Drops all packets. Returns whether the remaining allocations are small enough to be kept for another
    /// call.
    pub(crate) fn clear(&mut self) -> bool {
        let (send, receive) = (self.send.clear(), self.receive.clear());
        send && receive
    }

    /// Takes the queues' allocations from a cleared call.
    pub(crate) fn take_spare(&mut self) -> SpareQueues {
        SpareQueues { send: self.send.take_spare(), receive: self.receive.take_spare() }
    }

    /// Changes the state, if the event does so.
    #[inline]
    pub(crate) fn apply(&mut self, event: StateEvent) {
        if let Some(next) = self.state.after(event) {
            self.state = next;
        }
    }

    /// Returns the code with which the call failed.
    pub(crate) fn failure(&self) -> Option<AbortCode> {
        match self.state {
            State::Failed(code) | State::Aborted(code) => Some(code),
            _ => None,
        }
    }

    /// Whether an ACK has to be sent now. Until the peer has proved itself, only its pings are answered: it
    /// then retransmits unacknowledged packets, and each of them makes this side repeat its challenge.
    pub(crate) fn owes_ack(&self) -> bool {
        match self.state {
            State::Waiting => self.receive.acks.has_pong(),
            _ => self.receive.acks.is_due(),
        }
    }

    /// Whether a server's reply may be sent. A client that is still sending would take the reply for a
    /// protocol violation, since it means that the server needs no more data.
    pub(crate) fn may_send(&self) -> bool {
        self.side == Side::Client || self.receive.is_complete()
    }

    /// Whether both directions are complete.
    pub(crate) fn is_through(&self) -> bool {
        match self.side {
            Side::Client => self.receive.is_complete(),
            Side::Server => self.send.is_finished() && self.receive.is_complete(),
        }
    }

    /// Whether the caller is not verified and almost nothing of the call has been read.
    pub(crate) fn is_unread_of_anonymous(&self) -> bool {
        self.standing != Standing::Verified && self.receive.next() <= UNREAD_WINDOW
    }

    /// Opens the receive window up to `most` packets; the window of an anonymous caller only grows as its
    /// data is read.
    pub(crate) fn open_window(&mut self, most: u32) {
        let read = self.receive.next() - 1;
        self.receive.set_window(self.standing.window(most, read));
    }

    /// Whether the call receives much data and expects more.
    pub(crate) fn receives_much(&self) -> bool {
        self.receive.highest() > BULK_PACKETS && !self.receive.is_complete()
    }

    /// Whether the protocol has nothing left to do for this call.
    pub(crate) fn is_over(&self) -> bool {
        match self.state {
            State::Waiting | State::Active | State::Replying => false,
            State::Done | State::Lingering => {
                self.receive.acks.deadline().is_none() && !self.receive.acks.is_due()
            }
            State::Failed(_) | State::Aborted(_) => self.abort_at.is_none(),
        }
    }

    /// Returns the longest plain payload that fits into the packets to send now.
    pub(crate) fn payload_max(room: usize, overhead: rx_security::Overhead) -> usize {
        overhead.payload_max(room.max(PACKET_BYTES_MIN / 2)).max(1)
    }

    /// Whether the call waits for data or window from the peer rather than for its application.
    fn waits_for_peer(&self) -> bool {
        let wants_data = !self.receive.is_complete() && !self.receive.is_readable();
        let wants_window = self.send.is_waiting() || self.send.pending_bytes() > 0;
        match self.side {
            Side::Server => wants_data || wants_window,
            Side::Client => wants_data && self.send.is_ended() || wants_window,
        }
    }

    /// Returns the limit that the call has exceeded, if any.
    pub(crate) fn lateness(&self, now: Monotonic) -> Option<Late> {
        if !self.state.is_running() {
            return None;
        }
        if now >= self.clocks.received + self.limits.dead {
            return Some(Late::Dead);
        }
        let idle = self.limits.idle.is_some_and(|idle| now >= self.clocks.progress + idle);
        let total = self.limits.total.is_some_and(|total| now >= self.clocks.started + total);
        (total || idle && self.waits_for_peer()).then_some(Late::TimedOut)
    }

    /// Returns the time to send a ping if nothing is received or sent before.
    pub(crate) fn ping_at(&self) -> Monotonic {
        self.clocks.received.max(self.clocks.sent) + self.limits.ping()
    }

    /// Returns the earliest of the call's deadlines, except that of its send queue.
    pub(crate) fn deadline(&self, now: Monotonic) -> Option<Monotonic> {
        let acks = self.receive.acks.deadline();
        match self.state {
            State::Failed(_) | State::Aborted(_) => self.abort_at,
            State::Done | State::Lingering => acks,
            State::Waiting => Some(self.clocks.received + self.limits.dead),
            State::Active | State::Replying => {
                let limits = [
                    self.ping.is_none().then(|| self.ping_at()),
                    Some(self.clocks.received + self.limits.dead),
                    // A call that waits for its application does not time out, but has to be checked again.
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
