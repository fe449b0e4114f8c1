//! One connection, and the calls on its channels.

use super::CallFacts;
use crate::call::Call;
use crate::kind::Service;
use crate::packet::Piece;
use crate::sequences::Arrival;
use crate::traffic::{Ended, Flow, Traffic};
use rx_proto::ack::{Ack, Reason};
use rx_proto::limits::{CHANNEL_MASK, CHANNELS};
use rx_proto::{Flags, Header};
use std::net::SocketAddrV4;

/// Identifies a connection. It excludes the server's address, since a server with several addresses may reply
/// from another one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Key {
    epoch: u32,
    id: u32,
    pub(super) client: SocketAddrV4,
}

impl Key {
    pub(super) fn new(header: &Header, client: SocketAddrV4) -> Key {
        Key { epoch: header.epoch, id: header.cid & !CHANNEL_MASK, client }
    }
}

/// Whether the client sent the packet.
pub(super) fn is_from_client(header: &Header) -> bool {
    header.flags.contains(Flags::CLIENT_INITIATED)
}

/// A connection.
#[derive(Debug)]
pub(super) struct Connection {
    pub(super) server: SocketAddrV4,
    pub(super) service: Service,
    /// Time of its last packet.
    pub(super) seen_ns: u64,
    /// Counts since the last report.
    pub(super) traffic: Traffic,
    calls: [Option<Box<Call>>; CHANNELS],
    /// Highest serial numbers of the client and of the server.
    serials: [u32; 2],
}

/// A completed call.
type EndedCall = (CallFacts, Ended);

impl Connection {
    pub(super) fn new(server: SocketAddrV4, service: Service) -> Connection {
        Connection {
            server,
            service,
            seen_ns: 0,
            traffic: Traffic { connections: 1, ..Traffic::default() },
            calls: [const { None }; CHANNELS],
            serials: [0; 2],
        }
    }

    /// Returns the counts for the side that sent the packet.
    pub(super) fn flow(&mut self, header: &Header) -> &mut Flow {
        if is_from_client(header) { &mut self.traffic.from_client } else { &mut self.traffic.from_server }
    }

    /// Starts the packet's call if it is unknown. Returns the call that it replaces, if that had not ended.
    pub(super) fn begin(&mut self, header: &Header) -> Option<EndedCall> {
        let place = &mut self.calls[header.channel()];
        if place.as_ref().is_some_and(|call| call.number >= header.call_number) {
            return None;
        }
        let new = Box::new(Call::new(header.call_number, self.service));
        place.replace(new).and_then(|mut old| end(&mut old))
    }

    /// Handles the data packets of a datagram.
    pub(super) fn data<'a>(&mut self, now_ns: u64, header: &Header, pieces: impl Iterator<Item = Piece<'a>>) {
        let from_client = is_from_client(header);
        let Some(call) = &mut self.calls[header.channel()] else { return };
        let is_current = call.number == header.call_number;
        let serial = &mut self.serials[usize::from(from_client)];
        let flow = if from_client { &mut self.traffic.from_client } else { &mut self.traffic.from_server };
        for piece in pieces {
            // A needless retransmission of a packet of an earlier call.
            let arrival = if is_current {
                call.data(now_ns, from_client, header.security_index, &piece)
            } else {
                Arrival::Again
            };
            let is_newer = piece.serial.wrapping_sub(*serial) as i32 > 0;
            *serial = if is_newer { piece.serial } else { *serial };
            flow.data += 1;
            match arrival {
                Arrival::InOrder => {}
                Arrival::AfterGap(_) => flow.gaps += 1,
                Arrival::IntoGap => flow.late += 1,
                Arrival::Again if is_newer => flow.retransmitted += 1,
                Arrival::Again => flow.repeated += 1,
            }
        }
    }

    pub(super) fn acknowledgement(&mut self, now_ns: u64, header: &Header, ack: &Ack<'_>) {
        let by_client = is_from_client(header);
        self.flow(header).acknowledgement(ack.reason);
        // Other acknowledgements may have been delayed.
        if ack.reason != Reason::Requested || ack.serial == 0 {
            return;
        }
        let Some(call) = &mut self.calls[header.channel()] else { return };
        if call.number != header.call_number {
            return;
        }
        if let Some(span_us) = call.acknowledged(now_ns, by_client, ack.serial) {
            self.flow(header).round_trip(span_us);
        }
    }

    /// Takes the call on this channel if its reply is complete.
    pub(super) fn take_answered(&mut self, channel: usize) -> Option<EndedCall> {
        self.calls[channel].as_mut().filter(|call| call.is_answered()).and_then(|call| end(call))
    }

    /// Takes the calls that an ABORT ends: one, or all if it concerns the connection.
    pub(super) fn abort(&mut self, header: &Header) -> Vec<EndedCall> {
        let is_all = header.call_number == 0;
        let channel = header.channel();
        let calls =
            self.calls.iter_mut().enumerate().filter_map(|(place, call)| Some((place, call.as_mut()?)));
        let meant = calls.filter(|(place, call)| {
            !call.has_ended && (is_all || *place == channel && call.number == header.call_number)
        });
        meant
            .filter_map(|(_, call)| {
                call.abort();
                end(call)
            })
            .collect()
    }

    /// Takes all unfinished calls, of which no more packets will be seen.
    pub(super) fn end_all(&mut self) -> Vec<EndedCall> {
        self.calls.iter_mut().flatten().filter_map(|call| end(call)).collect()
    }

    /// Counts a completed call.
    pub(super) fn count(&mut self, call: &CallFacts, ended: &Ended) {
        self.traffic.calls += &ended.counts;
        if call.kind.service == Service::Callback {
            self.traffic.callbacks_unanswered += ended.counts.unanswered;
        }
    }

    /// Returns the number of calls in progress.
    pub(super) fn open_calls(&self) -> u64 {
        self.calls.iter().flatten().filter(|call| !call.has_ended).count() as u64
    }
}

fn end(call: &mut Call) -> Option<EndedCall> {
    let ended = call.end()?;
    Some((CallFacts::of(call), ended))
}
