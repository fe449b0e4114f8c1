//! The levels of proof of peers.

use crate::limits::UNREAD_WINDOW;

/// The level of proof of a connection's or call's peer. Each level includes those below it.
///
/// All limits and all orders of eviction depend on it, regardless of the security class: entries with less
/// proof are stored in smaller numbers, are evicted first, and never take the share of those with more proof.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Standing {
    /// Nothing is proved: the source address may be forged.
    #[default]
    Unproven,
    /// The address has echoed an unpredictable number sent to it.
    Reachable,
    /// The security class has proved the caller on this connection. Connections opened by this endpoint count
    /// as verified.
    Verified,
}

impl Standing {
    /// Number of levels.
    pub const COUNT: usize = 3;

    /// Returns the window of a call, up to `most` packets, after `read` packets have been read.
    pub(crate) fn window(self, most: u32, read: u32) -> u32 {
        if self == Standing::Verified { most } else { most.min(read + UNREAD_WINDOW) }
    }

    /// Returns the index of the level in arrays with one entry per level.
    pub fn index(self) -> usize {
        self as usize
    }
}
