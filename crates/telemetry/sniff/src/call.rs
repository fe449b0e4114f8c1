//! One call, as seen on the wire between two hosts.

use crate::kind::{self, Kind, Procedure, Service};
use crate::packet::Piece;
use crate::sequences::{Arrival, Sequences};
use crate::traffic::{Calls, Ended};
use rx_proto::Flags;

/// A call that is in progress, or has ended and may still receive packets.
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
    /// Time of the last new packet.
    newest_ns: u64,
    /// Sequence number of the last packet, once it has been seen.
    last: Option<u32>,
    /// Latest packet that requested an acknowledgement, and its time.
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

    /// Handles a data packet; returns how its sequence number relates to earlier ones.
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

    /// Handles an acknowledgement by this side of the packet with this serial number. Returns the round-trip
    /// time if that packet had requested it.
    pub(crate) fn acknowledged(&mut self, now_ns: u64, by_client: bool, serial: u32) -> Option<u64> {
        let sent = if by_client { &mut self.reply } else { &mut self.request };
        let (_, at_ns) = sent.probe.take_if(|(probe, _)| *probe == serial)?;
        Some(now_ns.saturating_sub(at_ns) / 1000)
    }

    /// Whether the complete reply has been seen.
    pub(crate) fn is_answered(&self) -> bool {
        self.reply.last.is_some_and(|last| self.reply.sequences.is_complete(last))
    }

    pub(crate) fn abort(&mut self) {
        self.aborted = true;
    }

    /// Ends the call and returns its counts, once.
    pub(crate) fn end(&mut self) -> Option<Ended> {
        if std::mem::replace(&mut self.has_ended, true) {
            return None;
        }
        // The call counts as answered even if the end of the reply was not captured, since the client
        // continued.
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

    /// Returns the number of packets below the last one that were not seen.
    fn missing(&self) -> u64 {
        self.sequences.missing()
    }
}
