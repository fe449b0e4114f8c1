//! Replies that the service has written and released, and that the client has not acknowledged yet.
//!
//! They are held without a worker, for as long as the client is not considered dead. A client that acknowledges nothing
//! could call again and again, so each address may have a limited amount, and so may all anonymous callers together.
//! A new call beyond is answered with BUSY. A reply that is still being written does not count: it occupies a worker,
//! and the send queue limits it. Small replies do not count either: the numbers of calls limit them.

use super::Endpoint;
use crate::limits::{UNREAD_ADDRESS_BYTES_MAX, UNREAD_ANONYMOUS_BYTES_MAX};
use crate::slab::Key;
use crate::standing::Standing;

/// A reply that counts.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Unread {
    peer: Key,
    standing: Standing,
    bytes: u32,
}

impl Endpoint {
    /// Counts the reply of a server call that the service has released, unless it is small.
    pub(super) fn count_unread(&mut self, key: Key) {
        let Some(call) = self.calls.get_mut(key).filter(|call| call.unread.is_none()) else { return };
        let Some(bytes) = call.send.large_bytes() else { return };
        let Some(connection) = self.connections.all.get(call.connection) else { return };
        let unread = Unread { peer: connection.peer, standing: call.standing, bytes };
        call.unread = Some(unread);
        self.statistics.unread_bytes_by_standing[unread.standing.index()] += u64::from(bytes);
        if let Some(peer) = self.peers.all.get_mut(unread.peer) {
            peer.unread_bytes += u64::from(bytes);
        }
    }

    /// Ends the counting of a reply.
    pub(super) fn uncount_unread(&mut self, unread: Unread) {
        self.statistics.unread_bytes_by_standing[unread.standing.index()] -= u64::from(unread.bytes);
        if let Some(peer) = self.peers.all.get_mut(unread.peer) {
            peer.unread_bytes -= u64::from(unread.bytes);
        }
    }

    /// Whether the client of a connection, or all anonymous clients together, have too much that they did not acknowledge.
    pub(super) fn reads_too_little(&self, key: Key, standing: Standing) -> bool {
        let all = self.statistics.unread_bytes_by_standing[standing.index()];
        let most = UNREAD_ADDRESS_BYTES_MAX[standing.index()];
        // The peer is looked up only if one of them may be beyond its limit.
        if all < most {
            return false;
        }
        let peer = self.connections.all.get(key).and_then(|connection| self.peers.all.get(connection.peer));
        let is_anonymous = standing != Standing::Verified;
        is_anonymous && all >= UNREAD_ANONYMOUS_BYTES_MAX
            || peer.is_some_and(|peer| peer.unread_bytes >= most)
    }
}
