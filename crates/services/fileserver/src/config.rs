//! Settings of the file service.

use base::{HostUuid, Rights};
use callbacks::CallbackConfig;
use std::time::Duration;

/// Settings of a [`FileServer`](crate::FileServer).
#[derive(Clone, Debug)]
pub struct FileServerConfig {
    /// The server's UUID, by which the location database and clients identify it.
    pub uuid: HostUuid,
    /// Rights that administrators have everywhere (`-implicit`).
    pub implicit_admin_rights: Rights,
    /// How long a caller's groups are cached.
    pub membership_lifetime: Duration,
    /// Limits of hosts and promises.
    pub callbacks: CallbackConfig,
    /// Maximum number of locked files.
    pub locks_max: usize,
    /// Maximum number of threads that notify the clients of one change. Each waits for several at a time.
    pub break_threads_max: usize,
    /// Maximum number of calls of each kind, verified and anonymous, that may wait at the same time while
    /// another call contacts their host.
    pub waiting_calls_max: usize,
    /// How long to wait for a silent client that is being identified.
    pub identify_patience: Duration,
    /// The same for a client that did not answer recently: shorter than Rx's retransmission timeout.
    pub once_patience: Duration,
    /// How long to wait for a silent client when its promise is broken.
    pub break_patience: Duration,
    /// How long to wait for a silent client that may hold promises of the last owner of a partition. Changes on it wait
    /// meanwhile.
    pub reset_patience: Duration,
    /// Maximum number of threads that notify such clients.
    pub reset_threads_max: usize,
    /// How long clients are notified with the patience above. If some have not been notified then, since many are silent, these are
    /// sent their messages many more at a time, and waited for `probe_patience`.
    pub notifying_time_max: Duration,
    /// How long to wait for a silent client at an address that it may have lost.
    pub probe_patience: Duration,
    /// Approximate size in bytes of the pieces in which file data is sent.
    pub piece_bytes: usize,
}

impl Default for FileServerConfig {
    fn default() -> FileServerConfig {
        FileServerConfig {
            uuid: HostUuid::default(),
            implicit_admin_rights: Rights::LOOKUP,
            membership_lifetime: Duration::from_secs(60),
            callbacks: CallbackConfig::default(),
            locks_max: 200_000,
            break_threads_max: 16,
            waiting_calls_max: 128,
            identify_patience: Duration::from_secs(12),
            once_patience: Duration::from_millis(950),
            break_patience: Duration::from_secs(4),
            reset_patience: Duration::from_secs(3),
            reset_threads_max: 256,
            notifying_time_max: Duration::from_secs(12),
            probe_patience: Duration::from_secs(2),
            piece_bytes: 256 * 1024,
        }
    }
}
