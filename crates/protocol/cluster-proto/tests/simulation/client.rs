//! Clients: caches that rely on promises, and what they may show.

use base::HostUuid;
use cluster_proto::CallKind;
use std::collections::BTreeMap;

/// A call of a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Call {
    pub client: usize,
    /// Number of the attempt, unique among those of the client.
    pub attempt: u64,
    pub partition: usize,
    pub file: usize,
    pub kind: CallKind,
    /// Number of the change, the same for each attempt.
    pub operation: u64,
}

/// What a client gets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reply {
    /// The version of the file, the operation that wrote it, and whether it is promised.
    Value { version: u64, operation: u64, is_promised: bool },
    /// The change is made, and has this version.
    Changed { version: u64 },
    /// An abort: begin anew.
    Restarting,
}

/// What a client keeps of a file.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Cached {
    pub version: u64,
}

/// A call that is not answered yet.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pending {
    pub call: Call,
    /// Value of `resets` when it began.
    pub resets: u64,
    /// Newest version that the reply has to show.
    pub version_min: u64,
}

#[derive(Default)]
pub(crate) struct Client {
    /// Files under a promise, by partition and file.
    pub cache: BTreeMap<(usize, usize), Cached>,
    /// Counts resets and breaks: a reply to a call that began before one gives no promise (kafs: `cb_break`).
    pub resets: u64,
    pub pending: Option<Pending>,
    pub attempts: u64,
    /// Cannot be reached, and reaches no node.
    pub is_cut: bool,
    /// Was not reached by a break or reset, and has not called since.
    pub is_excused: bool,
    pub preferred: usize,
}

impl Client {
    pub(crate) fn host(number: usize) -> HostUuid {
        HostUuid((number as u128 + 1).to_be_bytes())
    }

    pub(crate) fn number_of(host: HostUuid) -> usize {
        u128::from_be_bytes(host.0) as usize - 1
    }

    /// Drops everything.
    pub(crate) fn reset(&mut self) {
        self.cache.clear();
        self.resets += 1;
        self.is_excused = false;
    }

    /// Drops one file.
    pub(crate) fn break_promise(&mut self, partition: usize, file: usize) {
        self.cache.remove(&(partition, file));
        self.resets += 1;
    }
}
