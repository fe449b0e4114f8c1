//! A call's two streams on an endpoint: what server calls and client calls have in common.

use std::collections::VecDeque;
use std::sync::Arc;

use base::{AbortCode, Monotonic, Room};
use bytes::{Buf, Bytes};
use events::current::Part;
use parking_lot::Condvar;
use rx_proto::{CallId, Landed, Read, Write};

use crate::clock;
use crate::lane::{Lane, LaneState};
use crate::server_call::Departure;

/// Packets that are taken from the endpoint under one hold of its lock.
const READ_PACKETS: usize = 256;

/// One call, used by one thread at a time. Dropped, it is released.
pub(crate) struct CallHandle {
    lane: Arc<Lane>,
    call: CallId,
    condvar: Arc<Condvar>,
    /// Taken from the endpoint, not yet read.
    incoming: VecDeque<Bytes>,
    /// The peer has sent all, and it is in `incoming`.
    at_end: bool,
    /// Rooms that the endpoint has.
    lent: usize,
    is_released: bool,
}

impl CallHandle {
    pub(crate) fn new(lane: Arc<Lane>, call: CallId) -> CallHandle {
        CallHandle::begun(lane, call, Vec::new(), false)
    }

    /// A call of which something has been read already; `at_end`: all of it.
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
        debug_assert_eq!(self.lent, 0, "what comes next is put into a room");
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
    pub(crate) fn fill(&mut self, rooms: &mut VecDeque<Room>) -> Result<Room, AbortCode> {
        while self.lent == 0 {
            self.put_incoming(rooms);
            if self.at_end || rooms.front().is_none_or(|first| first.left() == 0) {
                return Ok(rooms.pop_front().unwrap_or_default());
            }
            self.lend_or_take(rooms)?;
        }
        loop {
            let lane = Arc::clone(&self.lane);
            let mut state = lane.lock();
            state.check()?;
            let now = clock::now();
            self.lend(now, &mut state, rooms);
            match state.endpoint.landed(now, self.call) {
                Landed::Room(room) => {
                    self.lent -= 1;
                    drop(state);
                    lane.flush();
                    return Ok(room);
                }
                Landed::Blocked => timed(|| lane.wait_for_call(state, self.call, &self.condvar)),
                Landed::Failed(code) => return Err(code),
            }
        }
    }

    /// Puts what was taken from the endpoint into the first room.
    fn put_incoming(&mut self, rooms: &mut VecDeque<Room>) {
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

    /// Takes what the endpoint has already, to be copied without its lock; if it has nothing, lends it the rooms.
    fn lend_or_take(&mut self, rooms: &mut VecDeque<Room>) -> Result<(), AbortCode> {
        let lane = Arc::clone(&self.lane);
        let mut state = lane.lock();
        state.check()?;
        let blocked = self.take_packets(&mut state);
        if !self.at_end && self.incoming.is_empty() {
            blocked?;
            self.lend(clock::now(), &mut state, rooms);
            return Ok(());
        }
        drop(state);
        lane.flush();
        Ok(())
    }

    fn lend(&mut self, now: Monotonic, state: &mut LaneState, rooms: &mut VecDeque<Room>) {
        for room in rooms.drain(..) {
            state.endpoint.lend(now, self.call, room);
            self.lent += 1;
        }
    }

    /// Waits until there is something in `incoming` or the peer has sent all.
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

    /// Takes what the endpoint has, within reason; fails if the call has.
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

    /// Writes several pieces, with one hold of the lock if there is room for them.
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

    /// Writes as much as there is room for; tells whether that was all.
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

    /// Says that nothing more will be written.
    pub(crate) fn end(&mut self) -> Result<(), AbortCode> {
        self.with_endpoint(|state, call| {
            state.check()?;
            state.endpoint.end(clock::now(), call);
            Ok(())
        })
    }

    /// Writes the last bytes, says that nothing more will be written, and releases the call: with one
    /// hold of the lock, if the send queue has room. Then they leave when what is returned is dropped.
    pub(crate) fn finish(mut self, mut last: Bytes) -> Result<Option<Departure>, AbortCode> {
        {
            let mut state = self.lane.lock();
            state.check()?;
            let now = clock::now();
            if let Write::Failed(code) = state.endpoint.write(now, self.call, &mut last) {
                return Err(code);
            }
            if last.is_empty() {
                state.endpoint.end(now, self.call);
                state.release(self.call);
                self.is_released = true;
            }
        }
        if self.is_released {
            self.lane.want_flush();
            return Ok(Some(Departure(Arc::clone(&self.lane))));
        }
        self.write(last)?;
        self.end().map(|()| None)
    }

    /// Ends the call with an error; nothing happens if it has ended.
    pub(crate) fn abort(&mut self, code: AbortCode) {
        self.with_endpoint(|state, call| state.endpoint.abort(clock::now(), call, code));
    }

    fn with_endpoint<T>(&mut self, action: impl FnOnce(&mut LaneState, CallId) -> T) -> T {
        let result = action(&mut self.lane.lock(), self.call);
        self.lane.flush();
        result
    }
}

/// Waits for the peer; how long is noted for the call that this thread serves.
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
