//! The ladder of proof: what a peer has shown about itself.

use crate::limits::UNREAD_WINDOW;

/// How much is proved about the peer of a connection or call. Each rung includes those below it.
///
/// Every limit and every order of eviction goes by it, whatever the security class is: what is proved less is kept in
/// smaller numbers, goes first, and never takes the room of what is proved more.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Standing {
    /// Nothing: the source address may be forged.
    #[default]
    Unproven,
    /// The address has echoed an unpredictable number that was sent to it.
    Reachable,
    /// The security class has proved the caller on this connection. Connections made from here count as verified.
    Verified,
}

impl Standing {
    /// The number of rungs.
    pub const COUNT: usize = 3;

    /// The window of a call, up to `most` packets, of which `read` have been read.
    pub(crate) fn window(self, most: u32, read: u32) -> u32 {
        if self == Standing::Verified { most } else { most.min(read + UNREAD_WINDOW) }
    }

    /// Its place in arrays with an entry for each rung.
    pub fn index(self) -> usize {
        self as usize
    }
}
