//! Compact storage of a resting call: a server call that has sent its short reply and awaits the
//! acknowledgement.
//!
//! Nearly all calls end this way: the client's next call on the channel acknowledges the reply. Until then
//! thousands of idle calls, one per client, would stay in memory, and each would have to be fetched into a
//! processor's caches only to be dropped. A resting call is therefore reduced to a few facts in one
//! allocation, from which the call is restored exactly if anything else happens. The call's own allocation,
//! which is still in the cache, serves the next calls.

use base::Monotonic;
use bytes::Bytes;

use super::{Call, Clocks, Side, State, StateEvent};
use crate::congestion::Learnt;
use crate::slab::Key;
use crate::standing::Standing;

/// Maximum length of a reply that is copied into the resting call; longer ones stay in place. The reply to
/// FetchStatus takes 120 bytes.
const SHORT_BYTES: usize = 128;

/// The facts from which a resting call can be restored.
#[derive(Debug)]
pub(crate) struct LingeringReply {
    pub(crate) connection: Key,
    pub(crate) channel: u8,
    pub(crate) number: u32,
    /// Time at which the call has to be restored.
    pub(crate) deadline: Monotonic,
    /// Sequence number of the request's last packet.
    pub(crate) request_last: u32,
    pub(crate) damaged: u32,
    pub(crate) standing: Standing,
    pub(crate) clocks: Clocks,
    pub(crate) sent: Sent,
}

/// The single packet of the reply, sent once.
#[derive(Debug)]
pub(crate) struct Sent {
    pub(crate) at: Monotonic,
    /// Time at which its acknowledgement is overdue.
    pub(crate) timeout_at: Monotonic,
    /// Number of packets for which the peer had room.
    pub(crate) window: u32,
    pub(crate) learnt: Learnt,
    /// Serial of the packet, if its acknowledgement measures the round-trip time.
    pub(crate) probe: Option<u32>,
    pub(crate) checksum: u16,
    /// Whether the security class has transformed the body.
    pub(crate) is_sealed: bool,
    pub(crate) body: Body,
}

/// The body of a packet.
#[derive(Debug)]
pub(crate) enum Body {
    Short(u8, [u8; SHORT_BYTES]),
    Long(Bytes),
}

impl Body {
    pub(crate) fn of(bytes: &Bytes) -> Body {
        let mut short = [0; SHORT_BYTES];
        match short.get_mut(..bytes.len()) {
            Some(place) => {
                place.copy_from_slice(bytes);
                Body::Short(bytes.len() as u8, short)
            }
            None => Body::Long(bytes.clone()),
        }
    }

    /// Returns the bytes, copied into a new allocation if they are short.
    pub(crate) fn bytes(&self) -> Bytes {
        match self {
            Body::Short(length, bytes) => Bytes::copy_from_slice(&bytes[..usize::from(*length)]),
            Body::Long(bytes) => bytes.clone(),
        }
    }
}

impl LingeringReply {
    /// Prefetches each part that the next call needs: see [`crate::Endpoint::prefetch`].
    pub(crate) fn look(&self) -> u64 {
        let body = match &self.sent.body {
            Body::Short(length, _) => u64::from(*length),
            Body::Long(bytes) => u64::from(bytes.is_unique()),
        };
        body ^ self.deadline.0 ^ self.clocks.started.0 ^ self.sent.learnt.at.0 ^ u64::from(self.number)
    }
}

impl Call {
    /// Returns the call's compact form with this deadline, if the call may rest.
    pub(crate) fn rest(&self, deadline: Monotonic) -> Option<LingeringReply> {
        let is_replying = self.side == Side::Server && self.state == State::Replying;
        let is_waited_for = self.ready || self.unarmed || self.reader_waits || self.writer_waits;
        let is_asking = self.ping.is_some();
        if !is_replying
            || is_waited_for
            || is_asking
            || self.is_bulk
            || self.unread.is_some()
            || self.abort_at.is_some()
        {
            return None;
        }
        Some(LingeringReply {
            connection: self.connection,
            channel: self.channel,
            number: self.number,
            deadline,
            request_last: self.receive.rest()?,
            damaged: self.damaged,
            standing: self.standing,
            clocks: self.clocks,
            sent: self.send.rest()?,
        })
    }

    /// Restores the stored state in a new call.
    pub(crate) fn resume(&mut self, rest: &LingeringReply) {
        self.apply(StateEvent::Released);
        self.damaged = rest.damaged;
        self.clocks = rest.clocks;
        self.receive.resume(rest.request_last);
        self.send.resume(&rest.sent);
    }
}

// Each of thousands of clients has one: together with its slot it takes four cache lines.
const _: () = assert!(size_of::<LingeringReply>() <= 248);

#[cfg(test)]
mod tests;
