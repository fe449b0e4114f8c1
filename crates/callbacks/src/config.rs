//! Limits and times of callback promises.

use std::time::Duration;

/// Limits of a [`Callbacks`](crate::Callbacks), and how long promises last.
#[derive(Clone, Debug)]
pub struct CallbackConfig {
    /// Most promises and undelivered breaks together.
    pub promises_max: usize,
    /// Most client hosts.
    pub hosts_max: usize,
    /// Most client hosts at one IP address (or /64 network of IPv6). Address translators put many clients behind
    /// one address, each at a port of its own.
    pub hosts_per_ip_max: usize,
    /// Most connections that are remembered, besides one for each host; on another connection a client is identified
    /// again.
    pub connections_max: usize,
    /// Most connections of one host that are remembered.
    pub host_connections_max: usize,
    /// Most identifications under way at one IP address.
    pub identifying_per_ip_max: usize,
    /// Most breaks kept for one host that is down; beyond that it is told to forget everything.
    pub delayed_max: usize,
    /// Most addresses at which one UUID is known, and most interfaces of a client that are remembered (AFS_MAX_INTERFACE_ADDR).
    pub addresses_max: usize,
    /// A known client that did not answer when it was identified is refused for so long: asking costs
    /// a worker's patience.
    pub refused_after_silence: Duration,
    /// Likewise for an address where no client has ever answered. It is sent one packet in this time.
    pub stranger_refused_after_silence: Duration,
    /// Shortest time between two probes of a host because its UUID is named at other addresses.
    pub probe_interval: Duration,
    /// A host that holds nothing and has been silent this long is forgotten.
    pub host_idle_max: Duration,
}

impl Default for CallbackConfig {
    fn default() -> CallbackConfig {
        CallbackConfig {
            promises_max: 1_500_000,
            hosts_max: 100_000,
            hosts_per_ip_max: 4_096,
            connections_max: 200_000,
            host_connections_max: 4_096,
            identifying_per_ip_max: 8,
            delayed_max: 2_000,
            addresses_max: 32,
            refused_after_silence: Duration::from_secs(10),
            stranger_refused_after_silence: Duration::from_secs(60),
            probe_interval: Duration::from_secs(60),
            host_idle_max: Duration::from_secs(2 * 60 * 60),
        }
    }
}

/// The server keeps a promise this much longer than it says, for clocks and delays.
pub(crate) const SERVER_BIAS_S: u64 = 3 * 60;

/// How long a promise on a whole read-only volume lasts.
pub(crate) const VOLUME_PROMISE_S: u64 = 2 * 60 * 60;

/// Promises from bulk calls are made as if this many more clients used the file: they are many at
/// once, and most are not for things that will be used for long.
pub(crate) const BULK_USERS: usize = 22;

/// The longest that any promise lasts, on the server's side.
pub(crate) const PROMISE_S_MAX: u64 = 4 * 60 * 60 + SERVER_BIAS_S;

/// Seconds that a promise on a file lasts when `users` other promises on it exist.
pub(crate) fn promise_s(users: usize) -> u64 {
    const MINUTES: [u64; 8] = [240, 60, 30, 15, 15, 10, 10, 10];
    const MINUTES_MIN: u64 = 7;
    60 * MINUTES.get(users / 8).copied().unwrap_or(MINUTES_MIN)
}

#[cfg(test)]
mod tests {
    use super::promise_s;

    #[test]
    fn a_file_with_many_users_gets_shorter_promises() {
        let table = [(0, 14_400), (7, 14_400), (8, 3_600), (22, 1_800), (63, 600), (64, 420), (10_000, 420)];
        for (users, seconds) in table {
            assert_eq!(promise_s(users), seconds, "{users} users");
        }
    }
}
