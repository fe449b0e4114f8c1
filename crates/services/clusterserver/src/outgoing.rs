//! A client's call at its front, which may have to be sent more than once.

use crate::counters::add;
use crate::fetch::Fetch;
use afs_idl::{CallStream, ClientCall, ClientConnection, StreamSource};
use base::AbortCode;
use bytes::Bytes;
use std::sync::atomic::AtomicU64;

/// Maximum size of a request that is kept for a repetition. A longer one is a store of data, which clients begin anew
/// themselves.
const KEPT_BYTES_MAX: usize = 256 * 1024;

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
    is_complete: bool,
    has_replied: bool,
    fetch: Option<Fetch>,
}

impl<'s> Outgoing<'s> {
    /// `head` is what was read from the stream.
    pub(crate) fn new(head: Bytes, stream: &'s mut dyn CallStream) -> Outgoing<'s> {
        let (kept_bytes, kept) = (head.len(), vec![head]);
        Outgoing { stream, kept_bytes, kept, is_complete: false, has_replied: false, fetch: None }
    }

    /// Like [`Outgoing::new`], for a call that is this fetch and nothing else.
    pub(crate) fn of_fetch(
        head: Bytes,
        stream: &'s mut dyn CallStream,
        fetch: Option<Fetch>,
    ) -> Outgoing<'s> {
        Outgoing { fetch, ..Outgoing::new(head, stream) }
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
            && !self.fetch.as_ref().is_some_and(Fetch::has_begun)
    }

    /// Whether the call can be sent again, from its beginning or from where its reply was interrupted.
    pub(crate) fn can_go_on(&self) -> bool {
        self.is_whole() || self.fetch.is_some()
    }

    /// Returns the client's streams as they were in the beginning, for a call that is served here. The call must be
    /// whole.
    pub(crate) fn into_source(self) -> StreamSource<'s> {
        let ahead = match <[Bytes; 1]>::try_from(self.kept) {
            Ok([head]) => head,
            Err(pieces) => pieces.concat().into(),
        };
        StreamSource::continuing(ahead, self.stream)
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
        while !self.is_complete {
            let piece = self.stream.read_chunk(PIECE_BYTES).map_err(Trouble::Client)?;
            self.is_complete = piece.is_empty();
            if !self.is_complete {
                self.keep(&piece);
                call.write(piece).map_err(owner)?;
            }
        }
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
