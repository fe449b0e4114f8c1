//! The identity of a call that may arrive more than once.

/// A call of a client at the node of a cluster that the client has called. Repetitions of it by that node have the same
/// identity, and no other call ever has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CallId {
    /// The random number of the node's process.
    pub process: u128,
    /// Number of the call in that process. They are assigned in ascending order, when calls arrive.
    pub number: u64,
}
