//! Event counters.

/// Counters since the start, named as in the callback collection of `xstat_fs_test` (collection 3).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Files whose promises were all dropped because the file was deleted.
    pub files_deleted: u64,
    /// Single promises given up or dropped without a break.
    pub promises_deleted: u64,
    /// Changes for which promises were looked up.
    pub breaks: u64,
    /// Promises made or renewed.
    pub promises_made: u64,
    /// Searches for space.
    pub space_searches: u64,
    /// Times that all promises of one host were dropped.
    pub hosts_cleared: u64,
    /// Promises that expired.
    pub expired: u64,
    /// Searches that found no other host to clear (GSS1) and cleared the asking one (GSS2).
    pub cleared_asking_host: u64,
    /// Searches that were satisfied by expired promises (GSS3).
    pub cleared_expired: u64,
    /// Hosts cleared for space (GSS4).
    pub cleared_idle_host: u64,
    /// Break messages that reached their host.
    pub breaks_delivered: u64,
    /// Break messages that did not reach their host.
    pub breaks_failed: u64,
    /// Breaks kept for a host that was down.
    pub breaks_delayed: u64,
    /// Attempts to give up promises from an address other than the one they were made to; the promises
    /// remain.
    pub give_ups_ignored: u64,
    /// Times that a UUID was claimed at one address while a client answered to it at another.
    pub uuid_conflicts: u64,
    /// UUIDs that two clients used at the same time within the last day.
    pub uuids_shared: u64,
    /// Files with promises at present.
    pub files: u64,
    /// Current promises and undelivered breaks.
    pub promises: u64,
    /// Maximum number of promises.
    pub promises_max: u64,
    /// Deliveries currently in flight.
    pub deliveries_under_way: u64,
    /// Current number of known hosts.
    pub hosts: u64,
    /// Current number of hosts that are down.
    pub hosts_down: u64,
}
