//! A client's call at its front, which may have to be sent more than once.

use crate::counters::add;
use crate::fetch::Fetch;
use crate::stores::Store;
use afs_idl::{CallStream, ClientCall, ClientConnection, StreamSource};
use base::AbortCode;
use bytes::{Buf as _, Bytes};
use std::sync::atomic::AtomicU64;

/// Maximum size of a request that is kept for a repetition. A longer one is a store of data, which clients begin anew
/// themselves.
pub(crate) const KEPT_BYTES_MAX: usize = 256 * 1024;

/// Maximum size of the pieces that are passed on.
pub(crate) const PIECE_BYTES: usize = 64 * 1024;

/// Who has ended an attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Trouble {
    /// The client, or the way to it.
    Client(AbortCode),
    /// The owner, or the way to it.
    Owner(AbortCode),
}

/// The two streams of the client, and what was read from it.
pub(crate) struct Outgoing<'s> {
    stream: &'s mut dyn CallStream,
    kept: Vec<Bytes>,
    kept_bytes: usize,
    /// Maximum size of the request.
    bytes_max: usize,
    is_complete: bool,
    has_replied: bool,
    fetch: Option<Fetch>,
    /// The store that the call is.
    store: Option<Store>,
    /// Whether data of a store was read that is not kept.
    has_passed_data: bool,
}

impl<'s> Outgoing<'s> {
    /// `head` is what was read from the stream.
    pub(crate) fn new(head: Bytes, stream: &'s mut dyn CallStream) -> Outgoing<'s> {
        let (kept_bytes, kept) = (head.len(), vec![head]);
        Outgoing {
            stream,
            kept_bytes,
            kept,
            bytes_max: usize::MAX,
            is_complete: false,
            has_replied: false,
            fetch: None,
            store: None,
            has_passed_data: false,
        }
    }

    /// Like [`Outgoing::new`], for a call that is this fetch and nothing else.
    pub(crate) fn of_fetch(
        head: Bytes,
        stream: &'s mut dyn CallStream,
        fetch: Option<Fetch>,
    ) -> Outgoing<'s> {
        Outgoing { fetch, ..Outgoing::new(head, stream) }
    }

    /// Like [`Outgoing::new`], for a call that begins as this store.
    pub(crate) fn of_store(
        head: Bytes,
        stream: &'s mut dyn CallStream,
        store: Option<Store>,
    ) -> Outgoing<'s> {
        Outgoing { store, ..Outgoing::new(head, stream) }
    }

    /// Refuses a request that is longer than any without data: its owner may have answered long since, and a client may send on for
    /// ever.
    pub(crate) fn without_data(self) -> Outgoing<'s> {
        Outgoing { bytes_max: KEPT_BYTES_MAX, ..self }
    }

    /// Returns the store whose data is to be written to the bucket.
    pub(crate) fn store(&self) -> Option<&Store> {
        self.store.as_ref().filter(|store| store.is_long())
    }

    /// Returns the data of a store: what was read after its arguments, also by earlier attempts, and the rest. The call cannot be
    /// repeated then.
    pub(crate) fn take_data(&mut self, head_bytes: usize) -> StreamSource<'_> {
        self.has_passed_data = true;
        let mut read = joined(std::mem::take(&mut self.kept));
        read.advance(head_bytes.min(read.len()));
        StreamSource::continuing(read, self.stream)
    }

    /// Returns the fetch that is to be answered from the bucket, and the stream to the client.
    pub(crate) fn fetch(&mut self) -> Option<(&mut Fetch, &mut dyn CallStream)> {
        Some((self.fetch.as_mut()?, self.stream))
    }

    /// Lets the fetch be forwarded as it is.
    pub(crate) fn give_up_fetch(&mut self) {
        self.fetch = None;
    }

    /// Whether the call can be sent again from its beginning.
    pub(crate) fn is_whole(&self) -> bool {
        self.kept_bytes <= KEPT_BYTES_MAX
            && !self.has_replied
            && !self.has_passed_data
            && !self.fetch.as_ref().is_some_and(Fetch::has_begun)
    }

    /// Whether the call can be sent again, from its beginning or from where its reply was interrupted.
    pub(crate) fn can_go_on(&self) -> bool {
        self.is_whole() || self.fetch.is_some()
    }

    /// Returns the client's streams as they were in the beginning, for a call that is served here. The call must be
    /// whole.
    pub(crate) fn into_source(self) -> StreamSource<'s> {
        StreamSource::continuing(joined(self.kept), self.stream)
    }

    fn keep(&mut self, piece: &Bytes) {
        self.kept_bytes += piece.len();
        if self.kept_bytes <= KEPT_BYTES_MAX {
            self.kept.push(piece.clone());
        } else {
            self.kept.clear();
        }
    }

    /// Sends the call after `header`, and its reply to the client.
    pub(crate) fn send(
        &mut self,
        header: Bytes,
        connection: &dyn ClientConnection,
        relayed_bytes: &AtomicU64,
    ) -> Result<(), Trouble> {
        let owner = Trouble::Owner;
        let mut call = connection.begin().map_err(owner)?;
        call.write(header).map_err(owner)?;
        for piece in &self.kept {
            call.write(piece.clone()).map_err(owner)?;
        }
        let kept_bytes = self.kept_bytes as u64;
        if self.store.as_ref().is_some_and(|store| kept_bytes < store.call_bytes()) {
            // Otherwise the call would begin with the next data, for which the client may take any time.
            call.flush().map_err(owner)?;
        }
        while !self.is_complete {
            let piece = self.stream.read_chunk(PIECE_BYTES).map_err(Trouble::Client)?;
            self.is_complete = piece.is_empty();
            if !self.is_complete {
                self.keep(&piece);
                if self.kept_bytes > self.bytes_max {
                    return Err(Trouble::Client(AbortCode::RXGEN_SS_UNMARSHAL));
                }
                call.write(piece).map_err(owner)?;
            }
        }
        self.relay_reply(call, relayed_bytes)
    }

    /// Ends the request of a call, and sends its reply to the client.
    pub(crate) fn relay_reply(
        &mut self,
        mut call: Box<dyn ClientCall>,
        relayed_bytes: &AtomicU64,
    ) -> Result<(), Trouble> {
        let owner = Trouble::Owner;
        call.end_request().map_err(owner)?;
        loop {
            let (piece, is_last) = read_piece(&mut *call).map_err(owner)?;
            if is_last {
                // A short reply is repeated as a whole if its end is missing.
                call.finish().map_err(owner)?;
                add(relayed_bytes, piece.len());
                return self.stream.write(piece).map_err(Trouble::Client);
            }
            self.has_replied = true;
            add(relayed_bytes, piece.len());
            self.stream.write(piece).map_err(Trouble::Client)?;
        }
    }
}

fn joined(pieces: Vec<Bytes>) -> Bytes {
    match <[Bytes; 1]>::try_from(pieces) {
        Ok([one]) => one,
        Err(pieces) => pieces.concat().into(),
    }
}

/// Reads a piece of a reply that is as large as possible, so that few datagrams are sent; returns whether it is the last.
fn read_piece(call: &mut dyn ClientCall) -> Result<(Bytes, bool), AbortCode> {
    let mut piece = Vec::new();
    while piece.len() < PIECE_BYTES {
        let next = call.read_chunk(PIECE_BYTES - piece.len())?;
        if next.is_empty() {
            return Ok((piece.into(), true));
        }
        piece.extend_from_slice(&next);
    }
    Ok((piece.into(), false))
}

#[cfg(test)]
mod tests {
    use super::*;
    use afs_idl::MemoryStream;
    use base::RecvBuffer;
    use std::collections::VecDeque;
    use std::net::SocketAddr;

    /// A node that refuses a call after it has got some pieces of the request.
    #[derive(Clone)]
    struct Refusing(usize);

    impl ClientConnection for Refusing {
        fn begin(&self) -> Result<Box<dyn ClientCall>, AbortCode> {
            Ok(Box::new(self.clone()))
        }

        fn peer(&self) -> SocketAddr {
            ([192, 0, 2, 1], 7010).into()
        }
    }

    impl CallStream for Refusing {
        fn read(&mut self, _: &mut [u8]) -> Result<usize, AbortCode> {
            Err(AbortCode::VBUSY)
        }

        fn read_chunk(&mut self, _: usize) -> Result<Bytes, AbortCode> {
            Err(AbortCode::VBUSY)
        }

        fn write(&mut self, _: Bytes) -> Result<(), AbortCode> {
            self.0 = self.0.checked_sub(1).ok_or(AbortCode::VBUSY)?;
            Ok(())
        }
    }

    impl ClientCall for Refusing {
        fn end_request(&mut self) -> Result<(), AbortCode> {
            Ok(())
        }

        fn finish(self: Box<Self>) -> Result<(), AbortCode> {
            Err(AbortCode::VBUSY)
        }
    }

    /// Whatever earlier attempts have read, the data of a store begins after its arguments and has no gap.
    #[test]
    fn the_data_of_a_store_is_whole_after_earlier_attempts() {
        let request: Vec<u8> = (0..300_000_u32).map(|n| (n.wrapping_mul(n) >> 7) as u8).collect();
        for (head_bytes, attempts) in [(64, 0), (64, 1), (100, 1), (1000, 3)] {
            let mut stream = MemoryStream::new(&request[head_bytes..], 10_000);
            let head = Bytes::copy_from_slice(&request[..head_bytes]);
            let mut outgoing = Outgoing::new(head, &mut stream);
            for attempt in 0..attempts {
                let sent = outgoing.send(Bytes::new(), &Refusing(4 + 2 * attempt), &AtomicU64::new(0));
                assert_eq!(sent, Err(Trouble::Owner(AbortCode::VBUSY)));
                assert!(outgoing.is_whole());
            }
            let mut data = outgoing.take_data(64);
            let mut room = RecvBuffer::new(vec![0; request.len()], 0..request.len() - 64);
            room = data.fill(&mut VecDeque::from([room])).unwrap();
            assert_eq!(room.left(), 0, "{head_bytes} {attempts}");
            assert!(room.filled() == &request[64..]);
            assert!(!outgoing.is_whole() && !outgoing.can_go_on());
        }
    }
}
