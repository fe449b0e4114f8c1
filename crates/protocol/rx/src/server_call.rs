//! The server's side of a call.

use afs_idl::CallStream;
use base::{AbortCode, Caller, RecvBuffer};
use bytes::Bytes;
use fair_queue::Demand;
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use crate::call::CallHandle;
use crate::connector::Connector;
use crate::lane::Lane;
use crate::workers::PANIC_CODE;

/// The implementation of one service id.
pub trait Service: Send + Sync {
    /// Serves one call: reads the request from `call` and writes the reply to it. The result ends the call,
    /// with success or with an abort code. A panic is caught and aborts the call.
    ///
    /// Runs on a worker thread, which it may block.
    fn serve(&self, call: &mut ServerCall) -> Result<(), AbortCode>;

    /// Returns the reply to a request of one packet if that is possible without waiting for a disk, for the
    /// network or for a lock that is held across such a wait. On `None`, which must have no side effects, the
    /// call is passed to [`Service::serve`].
    ///
    /// Runs on the receiving thread, which saves a switch to a worker.
    fn try_answer(&self, _caller: &Caller, _request: &[u8]) -> Option<Bytes> {
        None
    }

    /// Prefetches the data that [`Service::try_answer`] will need for these requests. Called when several
    /// requests have arrived together and there are so many clients that their data is in no processor's
    /// cache: prefetching for all requests overlaps the cache misses. Has no side effects.
    fn prefetch(&self, _requests: &[(&Caller, &[u8])]) {}

    /// Classifies a request by its first packet, for scheduling. Called under the lane's lock, so it must
    /// neither block nor have side effects.
    fn demand(&self, _caller: &Caller, _request: &[u8]) -> Demand {
        Demand::SMALL
    }
}

/// A call that a [`Service`] handles: the caller and the two streams.
pub struct ServerCall {
    handle: CallHandle,
    caller: Caller,
    service_id: u16,
    connector: Connector,
    /// The last written bytes, if few; they are sent together with the end of the call.
    last: Bytes,
    bytes_moved: u64,
    /// Bytes of the reply.
    written: u64,
    waited: Duration,
    later: Option<Later>,
}

/// Receives the [`Conclusion`] of a call; see [`ServerCall::conclude_later`].
type Later = Box<dyn FnOnce(Conclusion)>;

/// Maximum number of bytes held back until the end of the call.
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

    /// Sets the time that the call waited for a worker.
    pub(crate) fn that_waited(self, waited: Duration) -> ServerCall {
        ServerCall { waited, ..self }
    }

    /// Returns how long the call waited for a worker.
    pub fn waited(&self) -> Duration {
        self.waited
    }

    /// Returns the caller, as verified by the security class.
    pub fn caller(&self) -> &Caller {
        &self.caller
    }

    /// Returns the id of the service that was called.
    pub fn service_id(&self) -> u16 {
        self.service_id
    }

    /// Returns a connector for calling others, including this caller, from the server's own port.
    pub fn connector(&self) -> &Connector {
        &self.connector
    }

    /// Whether the whole reply is still buffered here, so that ending the call does not wait for the client.
    pub fn reply_is_small(&self) -> bool {
        self.written == self.last.len() as u64
    }

    /// Defers the end of the call: if the service returns `Ok`, the [`Conclusion`] is passed to `later`,
    /// which keeps it until the call may be answered. The worker is free in the meantime.
    pub fn conclude_later(&mut self, later: impl FnOnce(Conclusion) + 'static) {
        self.later = Some(Box::new(later));
    }

    /// Returns the number of bytes read and written.
    pub(crate) fn bytes_moved(&self) -> u64 {
        self.bytes_moved
    }

    /// Ends the call with the service's result. The remaining reply is delivered in the background.
    pub(crate) fn conclude(mut self, result: Result<(), AbortCode>) {
        let later = self.later.take();
        let conclusion = Conclusion { call: Some((self.handle, self.last)) };
        match later.filter(|_| result.is_ok()) {
            Some(later) => later(conclusion),
            None => conclusion.end(result),
        }
    }
}

/// Ends a served call. If dropped unused, it aborts the call as if the service had panicked.
#[must_use = "the client waits for it"]
pub struct Conclusion {
    /// `None` once the call has ended.
    call: Option<(CallHandle, Bytes)>,
}

impl Conclusion {
    /// Ends the call. The remaining reply is delivered in the background.
    pub fn end(self, result: Result<(), AbortCode>) {
        drop(self.end_with_others(result));
    }

    /// Ends the call like [`Conclusion::end`], but sends the reply only when the returned [`Departure`] is
    /// dropped, or earlier. The replies of all calls that end this way leave together.
    pub fn end_with_others(mut self, result: Result<(), AbortCode>) -> Option<Departure> {
        let (mut handle, last) = self.call.take()?;
        match result {
            Ok(()) => handle.finish(last),
            Err(code) => {
                handle.abort(code);
                None
            }
        }
    }
}

/// A reply that is ready to be sent; see [`Conclusion::end_with_others`].
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

    fn fill(&mut self, rooms: &mut VecDeque<RecvBuffer>) -> Result<RecvBuffer, AbortCode> {
        let known = rooms.front().map_or(0, |first| first.filled().len());
        let room = self.handle.fill(rooms)?;
        self.bytes_moved += (room.filled().len() - known) as u64;
        Ok(room)
    }

    fn write(&mut self, data: Bytes) -> Result<(), AbortCode> {
        if data.is_empty() {
            return Ok(());
        }
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
