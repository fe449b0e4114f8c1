//! A server's call that has sent its short reply and hears nothing of it yet, in little memory.
//!
//! Nearly all calls end so: the client's next call on the channel says that it has the reply. Until then thousands of calls,
//! one for each client, would lie about, and each would have to be fetched into a processor's caches to be thrown away. So
//! what rests is a few facts in one piece, from which the call is made again, just as it was, if anything else happens; and
//! its memory, which is at hand now, serves the next calls.

use base::Monotonic;
use bytes::Bytes;

use super::{Call, Clocks, Phase, Side};
use crate::congestion::Learnt;
use crate::slab::Key;
use crate::standing::Standing;

/// Longer replies are kept where they are. FetchStatus's takes 120.
const SHORT_BYTES: usize = 128;

/// See the module's description.
#[derive(Debug)]
pub(crate) struct Rest {
    pub(crate) connection: Key,
    pub(crate) channel: u8,
    pub(crate) number: u32,
    /// When it has to be looked at.
    pub(crate) deadline: Monotonic,
    /// The request's last packet.
    pub(crate) request_last: u32,
    pub(crate) damaged: u32,
    pub(crate) standing: Standing,
    pub(crate) clocks: Clocks,
    pub(crate) sent: Sent,
}

/// The reply's one packet, which was sent once.
#[derive(Debug)]
pub(crate) struct Sent {
    pub(crate) at: Monotonic,
    /// When its acknowledgement is overdue.
    pub(crate) timeout_at: Monotonic,
    /// What the peer had room for.
    pub(crate) window: u32,
    pub(crate) learnt: Learnt,
    /// Its serial, if its acknowledgement tells the round trip time.
    pub(crate) probe: Option<u32>,
    pub(crate) checksum: u16,
    /// The security class has made the body.
    pub(crate) is_sealed: bool,
    pub(crate) body: Body,
}

/// A packet's body.
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

    /// In memory of its own if it is short.
    pub(crate) fn bytes(&self) -> Bytes {
        match self {
            Body::Short(length, bytes) => Bytes::copy_from_slice(&bytes[..usize::from(*length)]),
            Body::Long(bytes) => bytes.clone(),
        }
    }
}

impl Rest {
    /// Reads a little of each part that the next call needs: see [`crate::Endpoint::look_ahead`].
    pub(crate) fn look(&self) -> u64 {
        let body = match &self.sent.body {
            Body::Short(length, _) => u64::from(*length),
            Body::Long(bytes) => u64::from(bytes.is_unique()),
        };
        body ^ self.deadline.0 ^ self.clocks.started.0 ^ self.sent.learnt.at.0 ^ u64::from(self.number)
    }
}

impl Call {
    /// What has to be kept of it, if it may rest until `deadline`.
    pub(crate) fn rest(&self, deadline: Monotonic) -> Option<Rest> {
        let is_released = self.side == Side::Server && self.phase == Phase::Active && self.released;
        let is_waited_for = self.ready || self.unarmed || self.reader_waits || self.writer_waits;
        let is_asking = self.ping.is_some();
        if !is_released || is_waited_for || is_asking || self.is_bulk || self.abort_at.is_some() {
            return None;
        }
        Some(Rest {
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

    /// Makes a new call what it was.
    pub(crate) fn resume(&mut self, rest: &Rest) {
        self.released = true;
        self.damaged = rest.damaged;
        self.clocks = rest.clocks;
        self.receive.resume(rest.request_last);
        self.send.resume(&rest.sent);
    }
}

// Of thousands of clients each has one: four lines of a processor's caches, with what its place takes.
const _: () = assert!(size_of::<Rest>() <= 248);

#[cfg(test)]
mod tests;
