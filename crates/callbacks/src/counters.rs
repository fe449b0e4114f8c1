//! What has happened, as counts.

/// Counts since the start, in the terms of the callback collection of `xstat_fs_test` (collection 3).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Files whose promises were all dropped because the file is gone.
    pub files_deleted: u64,
    /// Single promises given up or dropped without a break.
    pub promises_deleted: u64,
    /// Changes for which promises were looked up.
    pub breaks: u64,
    /// Promises made or renewed.
    pub promises_made: u64,
    /// Times that space had to be found.
    pub space_searches: u64,
    /// Times that all promises of one host were dropped.
    pub hosts_cleared: u64,
    /// Promises that ended by their time.
    pub expired: u64,
    /// Searches that found no other host to clear (GSS1) and cleared the asking one (GSS2).
    pub cleared_asking_host: u64,
    /// Searches that were satisfied by expired promises (GSS3).
    pub cleared_expired: u64,
    /// Hosts cleared for space (GSS4).
    pub cleared_idle_host: u64,
    /// Break messages that reached their host.
    pub breaks_delivered: u64,
    /// Break messages that did not.
    pub breaks_failed: u64,
    /// Breaks kept for a host that was down.
    pub breaks_delayed: u64,
    /// Promises that were given up from another address than the one they were made to, and stand.
    pub give_ups_ignored: u64,
    /// Times that a UUID was named at one address while a client answered to it at another.
    pub uuid_conflicts: u64,
    /// UUIDs that two clients used at the same time within the last day.
    pub uuids_shared: u64,
    /// Files with promises now.
    pub files: u64,
    /// Promises and undelivered breaks now.
    pub promises: u64,
    /// The most promises that there may be.
    pub promises_max: u64,
    /// Deliveries under way now.
    pub deliveries_under_way: u64,
    /// Hosts known now.
    pub hosts: u64,
    /// Hosts down now.
    pub hosts_down: u64,
}
