//! One call, as seen on its way between two hosts.

use crate::kind::{self, Kind, Procedure, Service};
use crate::packet::Piece;
use crate::sequences::{Arrival, Sequences};
use crate::traffic::{Calls, Ended};
use rx_proto::Flags;

/// A call that is under way, or has ended and may still see packets.
#[derive(Debug)]
pub(crate) struct Call {
    pub(crate) number: u32,
    pub(crate) kind: Kind,
    pub(crate) volume: Option<u32>,
    pub(crate) has_ended: bool,
    request: Half,
    reply: Half,
    aborted: bool,
}

/// One direction of a call.
#[derive(Debug, Default)]
struct Half {
    sequences: Sequences,
    bytes: u64,
    first_ns: Option<u64>,
    /// Of the last packet that was new.
    newest_ns: u64,
    /// The number of the last packet, once that has been seen.
    last: Option<u32>,
    /// The packet that asked for an acknowledgement last, and when.
    probe: Option<(u32, u64)>,
}

impl Call {
    pub(crate) fn new(number: u32, service: Service) -> Call {
        Call {
            number,
            kind: Kind { service, procedure: Procedure::Unseen },
            volume: None,
            has_ended: false,
            request: Half::default(),
            reply: Half::default(),
            aborted: false,
        }
    }

    /// A data packet. Tells how it came.
    pub(crate) fn data(
        &mut self,
        now_ns: u64,
        from_client: bool,
        security_index: u8,
        piece: &Piece<'_>,
    ) -> Arrival {
        let half = if from_client { &mut self.request } else { &mut self.reply };
        let arrival = half.data(now_ns, piece);
        if from_client && piece.sequence == 1 && self.kind.procedure == Procedure::Unseen {
            (self.kind, self.volume) = kind::read(self.kind.service, security_index, piece.body);
        }
        arrival
    }

    /// An acknowledgement of the packet with this serial number, by this side. Tells the round trip if
    /// that packet had asked for it.
    pub(crate) fn acknowledged(&mut self, now_ns: u64, by_client: bool, serial: u32) -> Option<u64> {
        let sent = if by_client { &mut self.reply } else { &mut self.request };
        let (_, at_ns) = sent.probe.take_if(|(probe, _)| *probe == serial)?;
        Some(now_ns.saturating_sub(at_ns) / 1000)
    }

    /// Whether the whole reply has been seen.
    pub(crate) fn is_answered(&self) -> bool {
        self.reply.last.is_some_and(|last| self.reply.sequences.is_complete(last))
    }

    pub(crate) fn abort(&mut self) {
        self.aborted = true;
    }

    /// What is counted of the call, which has ended. It is counted once.
    pub(crate) fn end(&mut self) -> Option<Ended> {
        if std::mem::replace(&mut self.has_ended, true) {
            return None;
        }
        // A reply whose end was not captured is one nevertheless: the client went on.
        let is_answered = !self.aborted && self.reply.first_ns.is_some();
        let since_request = |ns: u64| {
            let sent_ns = self.request.first_ns.map(|_| self.request.newest_ns)?;
            (is_answered && ns >= sent_ns).then(|| (ns - sent_ns) / 1000)
        };
        let first_us = self.reply.first_ns.and_then(since_request);
        let last_us = since_request(self.reply.newest_ns);
        let counts = Calls {
            calls: 1,
            aborted: self.aborted.into(),
            unanswered: u64::from(!self.aborted && !is_answered),
            request_bytes: self.request.bytes,
            reply_bytes: self.reply.bytes,
            missing: self.request.missing() + self.reply.missing(),
            latency_us: last_us.unwrap_or(0),
            latency_us_max: last_us.unwrap_or(0),
        };
        Some(Ended { counts, first_us, last_us })
    }
}

impl Half {
    fn data(&mut self, now_ns: u64, piece: &Piece<'_>) -> Arrival {
        let arrival = self.sequences.see(piece.sequence);
        if arrival != Arrival::Again {
            self.bytes += piece.bytes as u64;
            self.first_ns.get_or_insert(now_ns);
            self.newest_ns = now_ns;
        }
        if piece.flags.contains(Flags::LAST_PACKET) {
            self.last = Some(piece.sequence);
        }
        if piece.flags.contains(Flags::REQUEST_ACK) {
            self.probe = Some((piece.serial, now_ns));
        }
        arrival
    }

    /// Packets below the last that were not seen.
    fn missing(&self) -> u64 {
        self.sequences.missing()
    }
}
