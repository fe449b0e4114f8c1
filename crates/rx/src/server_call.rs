//! A call that a service answers.

use afs_idl::CallStream;
use base::{AbortCode, Caller, Room};
use bytes::Bytes;
use fair_queue::Demand;
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use crate::call::CallHandle;
use crate::connector::Connector;
use crate::lane::Lane;
use crate::workers::PANIC_CODE;

/// What a server offers under one service id.
pub trait Service: Send + Sync {
    /// Serves one call: reads the request from `call` and writes the reply to it. What is returned
    /// ends the call, well or with an abort code. A panic is caught; it aborts the call.
    ///
    /// Runs on a worker thread, which it may block.
    fn serve(&self, call: &mut ServerCall) -> Result<(), AbortCode>;

    /// The reply to a request of one packet, if it can be given without waiting for anything: not for
    /// a disk, nor for anybody's lock that is held while he waits, nor for the network. `None` changes
    /// nothing, and the call is [`Service::serve`]d.
    ///
    /// Runs on the thread that receives, which then needs no other to answer.
    fn answer_at_once(&self, _caller: &Caller, _request: &[u8]) -> Option<Bytes> {
        None
    }

    /// Called before [`Service::answer_at_once`] of each of these, when several have come together and there are very many
    /// clients: of those nothing is in a processor's caches, and what is looked at here for all is fetched from memory at a time. Changes
    /// nothing.
    fn look_ahead(&self, _requests: &[(&Caller, &[u8])]) {}

    /// What a request asks for, by its first packet, for its place among calls that wait. Called under
    /// the lane's lock: it only looks.
    fn demand(&self, _caller: &Caller, _request: &[u8]) -> Demand {
        Demand::SMALL
    }
}

/// A call in the hands of a [`Service`]: who calls, and the two streams.
pub struct ServerCall {
    handle: CallHandle,
    caller: Caller,
    service_id: u16,
    connector: Connector,
    /// A little that was written last: it leaves together with the end of the call.
    last: Bytes,
    bytes_moved: u64,
    /// Of them, those of the reply.
    written: u64,
    waited: Duration,
    later: Option<Later>,
}

/// Who ends a call later; see [`ServerCall::conclude_later`].
type Later = Box<dyn FnOnce(Conclusion)>;

/// More than this does not wait for the end of the call.
const LAST_BYTES_MAX: usize = 8192;

impl ServerCall {
    pub(crate) fn new(
        handle: CallHandle,
        caller: Caller,
        service_id: u16,
        connector: Connector,
    ) -> ServerCall {
        ServerCall {
            handle,
            caller,
            service_id,
            connector,
            last: Bytes::new(),
            bytes_moved: 0,
            written: 0,
            waited: Duration::ZERO,
            later: None,
        }
    }

    /// The same call, which waited so long for a worker.
    pub(crate) fn that_waited(self, waited: Duration) -> ServerCall {
        ServerCall { waited, ..self }
    }

    /// How long the call waited for a worker.
    pub fn waited(&self) -> Duration {
        self.waited
    }

    /// Who calls, as the security class proved it.
    pub fn caller(&self) -> &Caller {
        &self.caller
    }

    /// The service that was called.
    pub fn service_id(&self) -> u16 {
        self.service_id
    }

    /// For calling others, the caller among them, from the server's own port.
    pub fn connector(&self) -> &Connector {
        &self.connector
    }

    /// Whether the whole reply is still here, so that ending the call waits for nobody.
    pub fn reply_is_small(&self) -> bool {
        self.written == self.last.len() as u64
    }

    /// If the service returns `Ok`, the call does not end then: `later` is given what ends it, to keep it
    /// until it may be answered. The worker is free meanwhile.
    pub fn conclude_later(&mut self, later: impl FnOnce(Conclusion) + 'static) {
        self.later = Some(Box::new(later));
    }

    /// Bytes that were read and written.
    pub(crate) fn bytes_moved(&self) -> u64 {
        self.bytes_moved
    }

    /// Ends the call as the service said. What has been written is delivered in the background.
    pub(crate) fn conclude(mut self, result: Result<(), AbortCode>) {
        let later = self.later.take();
        let conclusion = Conclusion { call: Some((self.handle, self.last)) };
        match later.filter(|_| result.is_ok()) {
            Some(later) => later(conclusion),
            None => conclusion.end(result),
        }
    }
}

/// The end of a call that was served. Dropped, it aborts the call as if the service had panicked.
#[must_use = "the client waits for it"]
pub struct Conclusion {
    /// `None` once it has ended.
    call: Option<(CallHandle, Bytes)>,
}

impl Conclusion {
    /// Ends the call. What has been written is delivered in the background.
    pub fn end(self, result: Result<(), AbortCode>) {
        drop(self.end_with_others(result));
    }

    /// The same, but the reply leaves when what is returned is dropped, or earlier: with it those of all calls
    /// that were ended so.
    pub fn end_with_others(mut self, result: Result<(), AbortCode>) -> Option<Departure> {
        let (mut handle, last) = self.call.take()?;
        match result {
            // Fails only if the server is being stopped, which has aborted the call.
            Ok(()) => handle.finish(last).ok().flatten(),
            Err(code) => {
                handle.abort(code);
                None
            }
        }
    }
}

/// A reply that may leave; see [`Conclusion::end_with_others`].
#[must_use = "the client waits for it"]
pub struct Departure(pub(crate) Arc<Lane>);

impl Drop for Departure {
    fn drop(&mut self) {
        self.0.flush_if_wanted();
    }
}

impl Drop for Conclusion {
    fn drop(&mut self) {
        if let Some((mut handle, _)) = self.call.take() {
            handle.abort(PANIC_CODE);
        }
    }
}

impl CallStream for ServerCall {
    fn read(&mut self, buf: &mut [u8]) -> Result<usize, AbortCode> {
        let bytes = self.handle.read(buf)?;
        self.bytes_moved += bytes as u64;
        Ok(bytes)
    }

    fn read_chunk(&mut self, max: usize) -> Result<Bytes, AbortCode> {
        let piece = self.handle.read_chunk(max)?;
        self.bytes_moved += piece.len() as u64;
        Ok(piece)
    }

    fn fill(&mut self, rooms: &mut VecDeque<Room>) -> Result<Room, AbortCode> {
        let known = rooms.front().map_or(0, |first| first.filled().len());
        let room = self.handle.fill(rooms)?;
        self.bytes_moved += (room.filled().len() - known) as u64;
        Ok(room)
    }

    fn write(&mut self, data: Bytes) -> Result<(), AbortCode> {
        self.bytes_moved += data.len() as u64;
        self.written += data.len() as u64;
        let before = std::mem::take(&mut self.last);
        if data.len() > LAST_BYTES_MAX {
            return self.handle.write_all(&mut [before, data]);
        }
        self.last = data;
        self.handle.write(before)
    }
}
