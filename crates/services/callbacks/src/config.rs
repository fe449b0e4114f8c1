//! Limits and durations of callback promises.

use std::time::Duration;

/// Limits of a [`Callbacks`](crate::Callbacks).
#[derive(Clone, Debug)]
pub struct CallbackConfig {
    /// Maximum number of promises and undelivered breaks together.
    pub promises_max: usize,
    /// Maximum number of client hosts.
    pub hosts_max: usize,
    /// Maximum number of client hosts at one IP address (or /64 network of IPv6). Address translators put
    /// many clients behind one address, each at its own port.
    pub hosts_per_ip_max: usize,
    /// The same limit while half of [`hosts_max`](Self::hosts_max) exist.
    pub hosts_per_ip_crowded: usize,
    /// Maximum number of remembered connections, in addition to one for each host. A client that calls on
    /// another connection is identified again.
    pub connections_max: usize,
    /// Maximum number of remembered connections of one host.
    pub host_connections_max: usize,
    /// Maximum number of concurrent identifications at one IP address. Further callers wait, each with its worker:
    /// as long as all answer, asking more of them at a time occupies no more workers.
    pub identifying_per_ip_max: usize,
    /// The same limit at an address with a port whose identification failed recently. Further callers are refused.
    pub identifying_per_silent_ip: usize,
    /// Maximum number of hosts at one IP address that must be reset and that changes wait for which do not concern them. Further
    /// ones are reset before their next calls, or when there is room again, and use what they have cached until then.
    pub owing_per_ip_max: usize,
    /// Maximum number of breaks kept for one host that is down; beyond that it is reset.
    pub delayed_max: usize,
    /// Maximum number of addresses with the same UUID, and of remembered interfaces of a client
    /// (AFS_MAX_INTERFACE_ADDR).
    pub addresses_max: usize,
    /// How long calls of a client are refused after it failed to identify itself: each attempt occupies a worker.
    pub refused_after_silence: Duration,
    /// The same for an address where no client has ever answered, from the second silence in a row on. It is sent one packet
    /// in this time then.
    pub stranger_refused_after_silence: Duration,
    /// Minimum time between two probes of a host because its UUID is claimed at other addresses.
    pub probe_interval: Duration,
    /// How long a host that holds nothing may be silent before it is removed.
    pub host_idle_max: Duration,
}

impl Default for CallbackConfig {
    fn default() -> CallbackConfig {
        CallbackConfig {
            promises_max: 1_500_000,
            hosts_max: 100_000,
            hosts_per_ip_max: 25_000,
            hosts_per_ip_crowded: 4_096,
            connections_max: 200_000,
            host_connections_max: 4_096,
            identifying_per_ip_max: 128,
            identifying_per_silent_ip: 8,
            owing_per_ip_max: 128,
            delayed_max: 2_000,
            addresses_max: 32,
            refused_after_silence: Duration::from_secs(10),
            stranger_refused_after_silence: Duration::from_secs(60),
            probe_interval: Duration::from_secs(60),
            host_idle_max: Duration::from_secs(2 * 60 * 60),
        }
    }
}

impl CallbackConfig {
    /// Returns how long a silence has consequences: those of a client are brief.
    pub(crate) fn refused_after_silence(&self, is_brief: bool) -> Duration {
        if is_brief { self.refused_after_silence } else { self.stranger_refused_after_silence }
    }

    /// Returns the limit of hosts at one IP address while there are `hosts` in total. A client beyond the limit
    /// displaces another one of its address, which is identified again at its next call and displaces a third:
    /// if more clients than the limit are active, most of their calls are identifications.
    pub(crate) fn hosts_per_ip(&self, hosts: usize) -> usize {
        if hosts < self.hosts_max / 2 { self.hosts_per_ip_max } else { self.hosts_per_ip_crowded }
    }
}

/// How long after its last call an address belongs to the same client for certain. Address translators keep the port of a UDP
/// client for two minutes at least (RFC 4787, REQ-5), and leases are longer.
pub(crate) const ADDRESS_HELD: Duration = Duration::from_secs(2 * 60);

/// How much longer the server keeps a promise than it promises, to allow for clock drift and delays.
pub(crate) const SERVER_BIAS_S: u64 = 3 * 60;

/// Duration of a promise on a whole read-only volume.
pub(crate) const VOLUME_PROMISE_S: u64 = 2 * 60 * 60;

/// Promises from bulk calls are made as if this many more clients used the file: they are numerous, and most
/// files in them will not be used for long.
pub(crate) const BULK_USERS: usize = 22;

/// Maximum duration of any promise on the server's side.
pub(crate) const PROMISE_S_MAX: u64 = 4 * 60 * 60 + SERVER_BIAS_S;

/// Maximum duration of any promise, with the time that the server allows for clock drift and delays.
pub const PROMISE_MAX: Duration = Duration::from_secs(PROMISE_S_MAX);

/// Returns the duration in seconds of a promise on a file with `users` other promises.
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
