//! Calls that arrive at a lane, and their receiver.

use base::{AbortCode, Caller, Monotonic};
use bytes::Bytes;
use rx_proto::CallId;

/// Packets of a call read before it is served: the first, and a second to detect longer requests.
pub(super) const FIRST_PACKETS: usize = 2;

/// Receiver of the calls that arrive.
pub(crate) trait Arrivals: Send + Sync {
    /// Accepts a call, or returns the code to abort it with. Returns the call evicted to make room, if any.
    /// Called under the lane's lock.
    fn take(&self, call: Arrived) -> Result<Option<Displaced>, AbortCode>;

    /// Returns the reply to a completely read request if its service has one without waiting for anything.
    /// Called by the lane's thread, without its lock.
    fn try_answer(&self, _call: &Arrived) -> Option<Bytes> {
        None
    }

    /// Prefetches for several calls that will be answered next, if there are very many clients; see
    /// [`Service::prefetch`](crate::Service::prefetch).
    fn prefetch(&self, _calls: &[Arrived]) {}

    /// Returns the load for rxdebug: waiting calls, calls that ever waited, idle workers.
    fn load(&self) -> Load;
}

/// A call, possibly of another lane, that was accepted but is refused after all.
#[derive(Debug)]
pub(crate) struct Displaced {
    pub(crate) lane: usize,
    pub(crate) call: CallId,
    pub(crate) code: AbortCode,
}

/// See [`Arrivals::load`].
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Load {
    pub(crate) waiting: usize,
    pub(crate) waited: u64,
    pub(crate) idle: usize,
}

/// A call that no worker has taken yet.
pub(crate) struct Arrived {
    pub(crate) lane: usize,
    pub(crate) call: CallId,
    pub(crate) service_id: u16,
    pub(crate) caller: Caller,
    /// Data read so far: up to two packets, in order; unused entries are empty.
    pub(crate) request: [Bytes; FIRST_PACKETS],
    /// Whether the request has been read completely.
    pub(crate) is_whole: bool,
    /// Arrival time.
    pub(crate) at: Monotonic,
}

impl Arrived {
    /// Returns the request if it has been read completely and is a single packet.
    pub(crate) fn whole_request(&self) -> Option<&[u8]> {
        let [packet, next] = &self.request;
        (self.is_whole && !packet.is_empty() && next.is_empty()).then_some(packet)
    }
}

/// Receives no calls, for endpoints that only make outgoing ones.
pub(crate) struct NoArrivals;

impl Arrivals for NoArrivals {
    fn take(&self, _call: Arrived) -> Result<Option<Displaced>, AbortCode> {
        Err(AbortCode::RX_INVALID_OPERATION)
    }

    fn load(&self) -> Load {
        Load::default()
    }
}
