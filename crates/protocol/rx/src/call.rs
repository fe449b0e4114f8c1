//! The two streams of a call on an endpoint, common to server calls and client calls.

use std::collections::VecDeque;
use std::sync::Arc;

use base::{AbortCode, Monotonic, RecvBuffer};
use bytes::{Buf, Bytes};
use events::parts::Part;
use parking_lot::Condvar;
use rx_proto::{CallId, Filled, Read, Write};

use crate::clock;
use crate::lane::{Lane, LaneState};
use crate::server_call::Departure;

/// Maximum number of packets taken from the endpoint per lock acquisition.
const READ_PACKETS: usize = 256;

/// A call, used by one thread at a time. Dropping it releases the call.
pub(crate) struct CallHandle {
    lane: Arc<Lane>,
    call: CallId,
    condvar: Arc<Condvar>,
    /// Data taken from the endpoint and not read yet.
    incoming: VecDeque<Bytes>,
    /// Whether the peer's last data is in `incoming`.
    at_end: bool,
    /// Number of buffers that the endpoint holds.
    lent: usize,
    is_released: bool,
}

impl CallHandle {
    pub(crate) fn new(lane: Arc<Lane>, call: CallId) -> CallHandle {
        CallHandle::begun(lane, call, Vec::new(), false)
    }

    /// A handle of a call of which some data has been read already, all of it if `at_end`.
    pub(crate) fn begun(
        lane: Arc<Lane>,
        call: CallId,
        read: impl IntoIterator<Item = Bytes>,
        at_end: bool,
    ) -> CallHandle {
        let incoming = read.into_iter().filter(|piece| !piece.is_empty()).collect();
        let condvar = Arc::new(Condvar::new());
        CallHandle { lane, call, condvar, incoming, at_end, lent: 0, is_released: false }
    }

    /// See [`afs_idl::CallStream::read`].
    pub(crate) fn read(&mut self, buf: &mut [u8]) -> Result<usize, AbortCode> {
        let piece = self.read_chunk(buf.len())?;
        buf[..piece.len()].copy_from_slice(&piece);
        Ok(piece.len())
    }

    /// See [`afs_idl::CallStream::read_chunk`].
    pub(crate) fn read_chunk(&mut self, max: usize) -> Result<Bytes, AbortCode> {
        debug_assert_eq!(self.lent, 0, "incoming data is copied into a caller's buffer");
        if self.incoming.is_empty() && !self.at_end && max > 0 {
            self.wait_for_packets()?;
        }
        let Some(front) = self.incoming.front_mut() else { return Ok(Bytes::new()) };
        let piece = front.split_to(max.min(front.len()));
        if front.is_empty() {
            self.incoming.pop_front();
        }
        Ok(piece)
    }

    /// See [`afs_idl::CallStream::fill`].
    pub(crate) fn fill(&mut self, rooms: &mut VecDeque<RecvBuffer>) -> Result<RecvBuffer, AbortCode> {
        while self.lent == 0 {
            self.put_incoming(rooms);
            if self.at_end || rooms.front().is_none_or(|first| first.left() == 0) {
                return Ok(rooms.pop_front().unwrap_or_default());
            }
            self.take_or_post(rooms)?;
        }
        loop {
            let lane = Arc::clone(&self.lane);
            let mut state = lane.lock();
            state.check()?;
            let now = clock::now();
            self.post_buffer(now, &mut state, rooms);
            match state.endpoint.take_filled(now, self.call) {
                Filled::RecvBuffer(room) => {
                    self.lent -= 1;
                    drop(state);
                    lane.flush();
                    return Ok(room);
                }
                Filled::Blocked => timed(|| lane.wait_for_call(state, self.call, &self.condvar)),
                Filled::Failed(code) => return Err(code),
            }
        }
    }

    /// Copies the data in `incoming` into the first buffer.
    fn put_incoming(&mut self, rooms: &mut VecDeque<RecvBuffer>) {
        let Some(room) = rooms.front_mut() else { return };
        while let Some(piece) = self.incoming.front_mut() {
            let put = room.put(piece);
            piece.advance(put);
            if !piece.is_empty() {
                return;
            }
            self.incoming.pop_front();
        }
    }

    /// Takes the data that the endpoint already has, to copy it without the lock; if it has none, lends it
    /// the buffers.
    fn take_or_post(&mut self, rooms: &mut VecDeque<RecvBuffer>) -> Result<(), AbortCode> {
        let lane = Arc::clone(&self.lane);
        let mut state = lane.lock();
        state.check()?;
        let blocked = self.take_packets(&mut state);
        if !self.at_end && self.incoming.is_empty() {
            blocked?;
            self.post_buffer(clock::now(), &mut state, rooms);
            return Ok(());
        }
        drop(state);
        lane.flush();
        Ok(())
    }

    fn post_buffer(&mut self, now: Monotonic, state: &mut LaneState, rooms: &mut VecDeque<RecvBuffer>) {
        for room in rooms.drain(..) {
            state.endpoint.post_buffer(now, self.call, room);
            self.lent += 1;
        }
    }

    /// Waits until `incoming` has data or the peer has sent everything.
    fn wait_for_packets(&mut self) -> Result<(), AbortCode> {
        loop {
            let lane = Arc::clone(&self.lane);
            let mut state = lane.lock();
            state.check()?;
            let blocked = self.take_packets(&mut state);
            if self.at_end || !self.incoming.is_empty() {
                drop(state);
                lane.flush();
                return Ok(());
            }
            blocked?;
            timed(|| lane.wait_for_call(state, self.call, &self.condvar));
        }
    }

    /// Takes up to [`READ_PACKETS`] packets from the endpoint. Fails if the call has failed.
    fn take_packets(&mut self, state: &mut LaneState) -> Result<(), AbortCode> {
        let incoming = &mut self.incoming;
        let after =
            state.endpoint.read_some(clock::now(), self.call, READ_PACKETS, |body| incoming.push_back(body));
        match after {
            Some(Read::Failed(code)) => return Err(code),
            Some(Read::End) => self.at_end = true,
            Some(Read::Data(_) | Read::Blocked) | None => {}
        }
        Ok(())
    }

    /// See [`afs_idl::CallStream::write`].
    pub(crate) fn write(&mut self, data: Bytes) -> Result<(), AbortCode> {
        self.write_all(&mut [data])
    }

    /// Writes several pieces, under one lock acquisition if the send queue has room for them.
    pub(crate) fn write_all(&mut self, pieces: &mut [Bytes]) -> Result<(), AbortCode> {
        while pieces.iter().any(|piece| !piece.is_empty()) {
            let mut state = self.lane.lock();
            state.check()?;
            if self.write_some(&mut state, pieces)? {
                drop(state);
                self.lane.flush();
            } else {
                timed(|| self.lane.wait_for_call(state, self.call, &self.condvar));
            }
        }
        Ok(())
    }

    /// Writes as much as the send queue has room for. Returns whether that was everything.
    fn write_some(&self, state: &mut LaneState, pieces: &mut [Bytes]) -> Result<bool, AbortCode> {
        let now = clock::now();
        for piece in pieces {
            while !piece.is_empty() {
                match state.endpoint.write(now, self.call, piece) {
                    Write::Accepted(_) => {}
                    Write::Blocked => return Ok(false),
                    Write::Failed(code) => return Err(code),
                }
            }
        }
        Ok(true)
    }

    /// See [`afs_idl::ClientCall::heard_at`].
    pub(crate) fn heard_at(&self) -> Option<Monotonic> {
        self.lane.lock().endpoint.heard_at(self.call)
    }

    /// Sends what was written, also a part of a packet.
    pub(crate) fn flush(&mut self) -> Result<(), AbortCode> {
        self.with_endpoint(|state, call| {
            state.check()?;
            state.endpoint.flush(clock::now(), call);
            Ok(())
        })
    }

    /// Marks the end of the written data.
    pub(crate) fn end(&mut self) -> Result<(), AbortCode> {
        self.with_endpoint(|state, call| {
            state.check()?;
            state.endpoint.end(clock::now(), call);
            Ok(())
        })
    }

    /// Writes the last bytes, marks the end of the data and releases the call, under one lock acquisition if
    /// the send queue has room. In that case the data leaves when the returned [`Departure`] is dropped. This also ends the
    /// call of a server that stops, so that a change which was made is not repeated; without room, the call is aborted then.
    pub(crate) fn finish(mut self, mut last: Bytes) -> Option<Departure> {
        {
            let mut state = self.lane.lock();
            let now = clock::now();
            let written = state.endpoint.write(now, self.call, &mut last);
            if last.is_empty() && !matches!(written, Write::Failed(_)) {
                state.endpoint.end(now, self.call);
                state.release(self.call);
                self.is_released = true;
            }
        }
        if self.is_released {
            self.lane.want_flush();
            return Some(Departure(Arc::clone(&self.lane)));
        }
        if let Err(code) = self.write(last).and_then(|()| self.end()) {
            self.abort(code);
        }
        None
    }

    /// Ends the call with an error: that of the lane, if it refuses work. Does nothing if the call has ended.
    pub(crate) fn abort(&mut self, code: AbortCode) {
        self.with_endpoint(|state, call| {
            let code = state.check().err().unwrap_or(code);
            state.endpoint.abort(clock::now(), call, code);
        });
    }

    fn with_endpoint<T>(&mut self, action: impl FnOnce(&mut LaneState, CallId) -> T) -> T {
        let result = action(&mut self.lane.lock(), self.call);
        self.lane.flush();
        result
    }
}

/// Waits for the peer, and attributes the time to the call that this thread serves.
fn timed(wait: impl FnOnce()) {
    let begun = clock::now();
    wait();
    let time = clock::now().since(begun);
    waits::waited(Part::Client, u64::try_from(time.as_nanos()).unwrap_or(u64::MAX));
}

impl Drop for CallHandle {
    fn drop(&mut self) {
        if self.is_released {
            return;
        }
        self.with_endpoint(LaneState::release);
    }
}
