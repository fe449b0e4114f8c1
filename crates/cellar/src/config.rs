//! What a server is told: one validated [`Settings`], from `cellar.toml` or from the files that an
//! OpenAFS server on the same machine would read.

pub mod announcing;
mod audit;
pub mod durability;
pub mod encryption;
pub mod file;
pub mod keys;
pub mod memory;
pub mod openafs;
pub mod security;
mod upkeep;
pub mod web;

pub use upkeep::Upkeep;

use afs_format::userlist::UserList;
use announcing::{AnnounceRules, Chosen};
use base::{CellName, PartitionId};
use durability::DurabilityPolicy;
use encryption::KeySource;
use events::lines::Choice;
use keys::KeyFiles;
use memory::CacheSizes;
use rx::{EndpointConfig, Fairness};
use rx_security::{KeySet, LocalRealms};
use security::SecuritySettings;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use store::Codec;
use volume::VolumeOptions;
use web::WebSettings;

/// A service of the cell, each on its own port.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Role {
    /// File server, port 7000.
    Fs,
    /// Protection server, port 7002.
    Pt,
    /// Volume location server, port 7003.
    Vl,
    /// Volume server, port 7005.
    Vol,
    /// Basic overseer, port 7007.
    Bos,
}

impl Role {
    /// All of them: a whole cell.
    pub const ALL: [Role; 5] = [Role::Fs, Role::Pt, Role::Vl, Role::Vol, Role::Bos];

    /// Those of a server in a cell whose databases are on other servers.
    pub const JOINING: [Role; 3] = [Role::Fs, Role::Vol, Role::Bos];

    /// The UDP port that clients expect the service on.
    pub fn port(self) -> u16 {
        match self {
            Role::Fs => 7000,
            Role::Pt => 7002,
            Role::Vl => 7003,
            Role::Vol => 7005,
            Role::Bos => 7007,
        }
    }

    /// The name that `bos status` shows: that of the OpenAFS program which does the same.
    pub fn instance(self) -> &'static str {
        match self {
            Role::Fs => "fileserver",
            Role::Pt => "ptserver",
            Role::Vl => "vlserver",
            Role::Vol => "volserver",
            Role::Bos => "bosserver",
        }
    }

    /// The name of the log that the OpenAFS program of this role writes.
    pub fn openafs_log(self) -> &'static str {
        match self {
            Role::Fs => "FileLog",
            Role::Pt => "PtLog",
            Role::Vl => "VLLog",
            Role::Vol => "VolserLog",
            Role::Bos => "BosLog",
        }
    }
}

/// One server partition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PartitionSettings {
    /// Its letter.
    pub id: PartitionId,
    /// The directory that holds it; Cellar's own files live in `cellar/` below it.
    pub path: PathBuf,
    /// Where its master key comes from, if it is encrypted.
    pub key: Option<KeySource>,
}

/// Sizes that have sane defaults.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tuning {
    /// Lanes (threads with a socket each) per port; the file server's port gets this many, others one.
    pub lanes: usize,
    /// Threads that serve calls, per port.
    pub workers: usize,
    /// How users and volumes share them.
    pub fairness: Fairness,
    /// Kernel receive buffer of each socket in bytes.
    pub socket_buffer_bytes: usize,
    /// The longest datagram that is sent or asked for, Rx header included, IP and UDP headers not.
    pub packet_bytes_max: usize,
    /// What is kept in memory, of all partitions together.
    pub caches: CacheSizes,
    /// Volumes that stay in memory while nobody uses them.
    pub loaded_volumes: usize,
    /// When an acknowledged change is on disk.
    pub durability: DurabilityPolicy,
    /// How file data is compressed in volumes that have no policy of their own.
    pub compression: Codec,
    /// How fast space is given back and damage looked for.
    pub upkeep: Upkeep,
    /// After how long without a call a transaction of the volume server is ended.
    pub idle_transaction_seconds: u32,
}

impl Default for Tuning {
    fn default() -> Tuning {
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        Tuning {
            lanes: cores.min(4),
            workers: 64,
            fairness: Fairness::default(),
            socket_buffer_bytes: 16 << 20,
            packet_bytes_max: EndpointConfig::default().packet_bytes_max,
            caches: memory::cache_sizes(),
            loaded_volumes: VolumeOptions::default().loaded_volumes_max,
            durability: DurabilityPolicy::ALWAYS,
            compression: Codec::default(),
            upkeep: Upkeep::default(),
            idle_transaction_seconds: volserver::IDLE_SECONDS_MAX,
        }
    }
}

/// From how many milliseconds calls are remembered as slow, if nothing else is said.
pub(crate) const SLOW_CALL_MS: u64 = 500;

/// Of which events the log has lines when the server starts.
#[derive(Clone, Copy, Debug)]
pub struct EventLines {
    /// Which.
    pub choice: Choice,
    /// At most so many a second.
    pub per_second: u64,
}

/// Of none.
impl Default for EventLines {
    fn default() -> EventLines {
        EventLines { choice: Choice::default(), per_second: EVENT_LINES_PER_SECOND.into() }
    }
}

/// How many lines of events the log has in a second, if nothing else is said.
pub(crate) const EVENT_LINES_PER_SECOND: u32 = 1000;

/// Everything a server needs to start.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Where the settings came from, for people.
    pub source: String,
    /// From how many milliseconds calls are remembered as slow; 0 for none.
    pub slow_call_ms: u64,
    /// Whether calls are counted; off only to measure what that costs.
    pub count_calls: bool,
    /// Of which events the log has lines.
    pub event_lines: EventLines,
    /// Sinks of the audit; none for no audit.
    pub audit: Vec<::audit::SinkSettings>,
    /// Where metrics and the state of the process are served over HTTP, if anywhere.
    pub metrics: Option<SocketAddr>,
    /// What `cellar probe run` keeps, to be shown with the metrics and on the page.
    pub probe_history: Option<PathBuf>,
    /// The web page, if there is to be one.
    pub web: Option<WebSettings>,
    /// The cell.
    pub cell: CellName,
    /// Kerberos realms that count as the cell's own, and who of them does not.
    pub realms: LocalRealms,
    /// The services to run.
    pub roles: Vec<Role>,
    /// Addresses to bind; empty binds every address of the machine.
    pub bind: Vec<Ipv4Addr>,
    /// Addresses that the file server registers in the location database.
    pub announce: Vec<Ipv4Addr>,
    /// How the addresses are chosen from the machine's, again while the server runs; `None` if the configuration names
    /// them.
    pub announce_rules: Option<AnnounceRules>,
    /// Database servers of the cell.
    pub database_servers: Vec<afs_format::cellservdb::CellServer>,
    /// Partitions in the order of their letters.
    pub partitions: Vec<PartitionSettings>,
    /// The cell's keys, as they were read.
    pub keys: KeySet,
    /// Where they are from.
    pub key_files: KeyFiles,
    /// What is amiss but does not stop the start, for the log.
    pub warnings: Vec<String>,
    /// The file of server administrators, and its contents at start.
    pub userlist_path: PathBuf,
    /// Administrators.
    pub userlist: UserList,
    /// Directory of the cell's databases.
    pub database_path: PathBuf,
    /// File with the file server's UUID (sysid).
    pub sysid_path: PathBuf,
    /// The roles in the form of OpenAFS's `BosConfig`, for tools of sites that read it.
    pub bos_config_path: PathBuf,
    /// Directory of log files, for `bos getlog`.
    pub log_path: PathBuf,
    /// What is demanded of callers.
    pub security: SecuritySettings,
    /// Sizes.
    pub tuning: Tuning,
}

impl Settings {
    /// The addresses to register as the machine has them now; `None` if that was not asked for, or
    /// there is none but loopback (a network that is down for a moment).
    pub fn announced_now(&self) -> Option<Chosen> {
        let chosen = self.announce_rules.as_ref()?.choose().ok()?;
        chosen.addresses.iter().any(|address| !address.is_loopback()).then_some(chosen)
    }

    /// Where the file server that these settings are of answers, if it is one.
    pub fn own_file_server(&self) -> Option<Ipv4Addr> {
        let addresses = self.bind.first().or(self.announce.first());
        addresses.copied().filter(|_| self.roles.contains(&Role::Fs))
    }

    /// The Unix socket at which a running server is replaced: beside the databases.
    pub fn handover_path(&self) -> PathBuf {
        self.database_path.with_file_name("handover")
    }

    /// The folder with the journal of jobs: beside the databases.
    pub fn jobs_path(&self) -> PathBuf {
        self.database_path.with_file_name("jobs")
    }

    /// The database servers that are not this one, which the protection and location servers of the
    /// cell are if this process is not them.
    pub fn other_database_servers(&self) -> Vec<Ipv4Addr> {
        let is_own = |address: &Ipv4Addr| self.announce.contains(address) || self.bind.contains(address);
        let addresses = self.database_servers.iter().map(|server| server.address);
        addresses.filter(|address| !is_own(address)).collect()
    }

    /// What is wrong with the roles, in words that follow the key `server.roles`.
    pub fn roles_refusal(&self) -> Option<&'static str> {
        let has = |role| self.roles.contains(&role);
        if has(Role::Fs) && !has(Role::Pt) && self.other_database_servers().is_empty() {
            Some(
                "\"fs\" without \"pt\" asks the cell's protection servers, and `cell.database_servers` \
                 (CellServDB) names none but this one",
            )
        } else if has(Role::Vol) && !has(Role::Fs) {
            Some("\"vol\" needs \"fs\" beside it: both have the volumes open")
        } else {
            None
        }
    }

    /// What is doubtful about them: databases that would not be replicated.
    pub fn roles_warning(&self) -> Option<String> {
        let has_databases = self.roles.contains(&Role::Pt) || self.roles.contains(&Role::Vl);
        let others = self.other_database_servers();
        (has_databases && !others.is_empty()).then(|| {
            format!(
                "the roles pt and vl keep databases of their own, which know nothing of those on the other \
                 database servers {others:?}; to join their cell, serve the roles fs, vol and bos"
            )
        })
    }
}
