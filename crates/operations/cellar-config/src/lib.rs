//! Configuration of a server: validated [`Settings`], from `cellar.toml` or from the files that an OpenAFS
//! server on the same machine would read.

pub mod announcing;
mod audit;
pub mod cluster;
pub mod durability;
pub mod effective;
pub mod encryption;
pub mod file;
pub mod files;
pub mod keys;
pub mod memory;
pub mod openafs;
pub mod partitions;
pub mod security;
mod upkeep;
pub mod web;

pub use cluster::ClusterSettings;
pub use partitions::{BucketSettings, PartitionSettings, Place, SharedLeases};
pub use upkeep::Upkeep;

use afs_format::userlist::UserList;
use announcing::{AnnounceRules, Chosen};
use base::CellName;
use durability::DurabilityPolicy;
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
    /// All roles: a whole cell.
    pub const ALL: [Role; 5] = [Role::Fs, Role::Pt, Role::Vl, Role::Vol, Role::Bos];

    /// Roles of a server in a cell whose databases are on other servers.
    pub const JOINING: [Role; 3] = [Role::Fs, Role::Vol, Role::Bos];

    /// Returns the UDP port of the service.
    pub fn port(self) -> u16 {
        match self {
            Role::Fs => 7000,
            Role::Pt => 7002,
            Role::Vl => 7003,
            Role::Vol => 7005,
            Role::Bos => 7007,
        }
    }

    /// Returns the name that `bos status` shows: that of the corresponding OpenAFS program.
    pub fn instance(self) -> &'static str {
        match self {
            Role::Fs => "fileserver",
            Role::Pt => "ptserver",
            Role::Vl => "vlserver",
            Role::Vol => "volserver",
            Role::Bos => "bosserver",
        }
    }

    /// Returns the name of the corresponding OpenAFS program's log.
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

/// Returns the ports of the services that AFS's clients and tools call.
fn afs_ports() -> [u16; 5] {
    Role::ALL.map(Role::port)
}

/// Sizes and limits, all with defaults.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tuning {
    /// Number of lanes (threads with a socket each) of the file server's port; other ports have one.
    pub lanes: usize,
    /// Number of threads that serve calls, per port.
    pub workers: usize,
    /// How users and volumes share the workers.
    pub fairness: Fairness,
    /// Size of each socket's kernel receive buffer in bytes.
    pub socket_buffer_bytes: usize,
    /// Maximum size of datagrams sent or requested, including the Rx header but not the IP and UDP headers.
    pub packet_bytes_max: usize,
    /// Cache sizes, for all partitions together.
    pub caches: CacheSizes,
    /// Number of unused volumes that stay in memory.
    pub loaded_volumes: usize,
    /// When an acknowledged change must be on disk.
    pub durability: DurabilityPolicy,
    /// Compression of file data in volumes without a policy of their own.
    pub compression: Codec,
    /// Rates of compaction and scrubbing.
    pub upkeep: Upkeep,
    /// Time without a call after which a volume server transaction is ended, in seconds.
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

/// Default nice value: that of OpenAFS's file server. Without it, other programs on the machine, such as backups,
/// come before the callers.
pub(crate) const NICE: i32 = -5;

/// Default minimum duration of slow calls, in milliseconds.
pub(crate) const SLOW_CALL_MS: u64 = 500;

/// Events logged when the server starts.
#[derive(Clone, Copy, Debug)]
pub struct EventLines {
    /// The selected events.
    pub choice: Choice,
    /// Maximum number of lines per second.
    pub per_second: u64,
}

/// Logs no events.
impl Default for EventLines {
    fn default() -> EventLines {
        EventLines { choice: Choice::default(), per_second: EVENT_LINES_PER_SECOND.into() }
    }
}

/// Default maximum number of event lines per second.
pub const EVENT_LINES_PER_SECOND: u32 = 1000;

/// Everything a server needs to start.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Origin of the settings, for messages.
    pub source: String,
    /// Minimum duration of calls recorded as slow, in milliseconds; 0 records none.
    pub slow_call_ms: u64,
    /// Whether calls are counted; turned off only to measure the cost of counting.
    pub count_calls: bool,
    /// Events logged at start.
    pub event_lines: EventLines,
    /// Audit sinks; empty for no audit.
    pub audit: Vec<::audit::SinkSettings>,
    /// Address where metrics and health checks are served over HTTP, if enabled.
    pub metrics: Option<SocketAddr>,
    /// History of `cellar probe run`, shown in the metrics and on the web page.
    pub probe_history: Option<PathBuf>,
    /// The web page, if enabled.
    pub web: Option<WebSettings>,
    /// Name of the cell.
    pub cell: CellName,
    /// Kerberos realms that count as the cell's own, and principals excluded from them.
    pub realms: LocalRealms,
    /// Nice value of the program, -20 to 19.
    pub nice: i32,
    /// The services to run.
    pub roles: Vec<Role>,
    /// Addresses to bind; if empty, all addresses of the machine.
    pub bind: Vec<Ipv4Addr>,
    /// Addresses that the file server registers in the location database.
    pub announce: Vec<Ipv4Addr>,
    /// Rules that select these addresses from the machine's, also while the server runs; `None` if the
    /// configuration lists the addresses.
    pub announce_rules: Option<AnnounceRules>,
    /// Database servers of the cell.
    pub database_servers: Vec<afs_format::cellservdb::CellServer>,
    /// Partitions in order of their letters.
    pub partitions: Vec<PartitionSettings>,
    /// The cluster that this server belongs to. If there is one, all partitions are in its bucket.
    pub cluster: Option<ClusterSettings>,
    /// The cell's keys as read at start.
    pub keys: KeySet,
    /// Files of the keys.
    pub key_files: KeyFiles,
    /// Problems that do not prevent the start, for the log.
    pub warnings: Vec<String>,
    /// UserList, the file of server administrators.
    pub userlist_path: PathBuf,
    /// Contents of that file at start.
    pub userlist: UserList,
    /// Directory of the cell's databases.
    pub database_path: PathBuf,
    /// File with the file server's UUID (sysid).
    pub sysid_path: PathBuf,
    /// Path of a `BosConfig` with the roles, for site tools that read OpenAFS's.
    pub bos_config_path: PathBuf,
    /// Directory of log files, for `bos getlog`.
    pub log_path: PathBuf,
    /// Requirements for callers.
    pub security: SecuritySettings,
    /// Sizes and limits.
    pub tuning: Tuning,
}

impl Settings {
    /// Returns the machine's current addresses to register; `None` if the configuration lists the addresses,
    /// or while there are none but loopback (a network that is down for a moment).
    pub fn announced_now(&self) -> Option<Chosen> {
        let chosen = self.announce_rules.as_ref()?.choose().ok()?;
        chosen.addresses.iter().any(|address| !address.is_loopback()).then_some(chosen)
    }

    /// Returns the address of the file server with these settings, if it has that role.
    pub fn own_file_server(&self) -> Option<Ipv4Addr> {
        let addresses = self.bind.first().or(self.announce.first());
        addresses.copied().filter(|_| self.roles.contains(&Role::Fs))
    }

    /// Returns the Unix socket for replacing a running server, next to the databases.
    pub fn handover_path(&self) -> PathBuf {
        self.database_path.with_file_name("handover")
    }

    /// Returns the directory of the job journal, next to the databases.
    pub fn jobs_path(&self) -> PathBuf {
        self.database_path.with_file_name("jobs")
    }

    /// Returns the database servers other than this process; they are the cell's protection and location
    /// servers if this process has neither role.
    pub fn other_database_servers(&self) -> Vec<Ipv4Addr> {
        let is_own = |address: &Ipv4Addr| self.announce.contains(address) || self.bind.contains(address);
        let addresses = self.database_servers.iter().map(|server| server.address);
        addresses.filter(|address| !is_own(address)).collect()
    }

    /// Whether there are partitions, and all are in buckets: a process on another machine can be this server.
    pub fn has_buckets_only(&self) -> bool {
        !self.partitions.is_empty()
            && self.partitions.iter().all(|partition| partition.place.bucket().is_some())
    }

    /// Describes what is wrong with the roles, as a continuation of the key `server.roles`.
    pub fn roles_refusal(&self) -> Option<&'static str> {
        let has = |role| self.roles.contains(&role);
        if has(Role::Fs) && !has(Role::Pt) && self.other_database_servers().is_empty() {
            Some(
                "\"fs\" without \"pt\" asks the cell's protection servers, and `cell.database_servers` \
                 (CellServDB) names none but this one",
            )
        } else if has(Role::Vol) && !has(Role::Fs) {
            Some("\"vol\" needs \"fs\" in the same process: both have the volumes open")
        } else {
            None
        }
    }

    /// Whether the cell's databases are in the bucket of a cluster: this process and the other nodes serve the same ones.
    pub fn shares_databases(&self) -> bool {
        self.cluster.as_ref().is_some_and(|cluster| cluster.databases.is_some())
    }

    /// Describes a doubtful set of roles: databases that would not be replicated.
    pub fn roles_warning(&self) -> Option<String> {
        if self.shares_databases() {
            return None;
        }
        let has_databases = self.roles.contains(&Role::Pt) || self.roles.contains(&Role::Vl);
        let others = self.other_database_servers();
        (has_databases && !others.is_empty()).then(|| {
            format!(
                "the roles pt and vl keep databases of their own, separate from those on the other database \
                servers {others:?}; to join their cell, serve the roles fs, vol and bos"
            )
        })
    }
}
