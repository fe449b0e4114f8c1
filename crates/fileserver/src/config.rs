//! Settings of the file service.

use base::{HostUuid, Rights};
use callbacks::CallbackConfig;
use std::time::Duration;

/// Settings of a [`FileServer`](crate::FileServer).
#[derive(Clone, Debug)]
pub struct FileServerConfig {
    /// The server's UUID, under which the location database knows it and clients tell it apart.
    pub uuid: HostUuid,
    /// Rights that administrators have everywhere (`-implicit`).
    pub implicit_admin_rights: Rights,
    /// How long a caller's groups are believed before they are looked up again.
    pub membership_lifetime: Duration,
    /// Limits of hosts and promises.
    pub callbacks: CallbackConfig,
    /// Most files with locks.
    pub locks_max: usize,
    /// Most hosts that one change talks to at the same time.
    pub break_threads_max: usize,
    /// Most calls of each kind, verified and anonymous, that may wait at the same time until another call has talked to
    /// their host.
    pub waiting_calls_max: usize,
    /// How long a silent client is waited for when it is asked who it is.
    pub identify_patience: Duration,
    /// Likewise if it did not answer a minute ago: shorter than the time after which Rx sends a packet again.
    pub once_patience: Duration,
    /// How long a silent client is waited for when its promise is broken.
    pub break_patience: Duration,
    /// How long a silent client is waited for at an address that it may not have any more.
    pub probe_patience: Duration,
    /// File data goes to the network in pieces of about this many bytes.
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
            probe_patience: Duration::from_secs(2),
            piece_bytes: 256 * 1024,
        }
    }
}
