//! `cellar.toml`: the server's own configuration file. docs/reference/configuration.md describes every key.

use super::announcing::AnnounceRules;
use super::audit::AuditSection;
use super::durability::DurabilityPolicy;
use super::effective::Source;
use super::encryption::KeySource;
use super::keys::{self, KeyFiles};
use super::memory::CacheSizes;
use super::openafs::local_realms;
use super::security::{SecuritySection, SecuritySettings};
use super::web::{WebSection, WebSettings};
use crate::files::Exposure;
mod cluster;
mod fairness;
mod partitions;
mod reach;

use super::partitions::PartitionSettings;
use super::{ClusterSettings, EventLines, Role, Settings, Tuning, Upkeep};
use afs_format::cellservdb::CellServer;
use afs_format::userlist::{UserList, parse_principal};
use anyhow::{Context, Result};
use base::{CellName, PartitionId};
use cluster::ClusterSection;
use events::lines::{Choice, PER_SECOND};
use fairness::FairnessSection;
use partitions::{BucketSection, LocalSection, partitions};
use rx_proto::limits::{PACKET_BYTES_MAX, PACKET_BYTES_MIN};
use serde::Deserialize;
use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use store::Codec;
use toml::Spanned;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    cell: CellSection,
    #[serde(default)]
    server: ServerSection,
    #[serde(default)]
    partitions: LocalSection,
    #[serde(default)]
    partition: Vec<BucketSection>,
    cluster: Option<ClusterSection>,
    #[serde(default)]
    encryption: BTreeMap<Spanned<String>, EncryptionSection>,
    #[serde(default)]
    store: StoreSection,
    #[serde(default)]
    volume_server: VolumeServerSection,
    #[serde(default)]
    rx: RxSection,
    #[serde(default)]
    fairness: FairnessSection,
    metrics: Option<MetricsSection>,
    web: Option<WebSection>,
    #[serde(default)]
    audit: BTreeMap<Spanned<String>, AuditSection>,
    #[serde(default)]
    observe: ObserveSection,
    #[serde(default)]
    security: SecuritySection,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct CellSection {
    name: Spanned<String>,
    realms: Option<Vec<String>>,
    #[serde(default)]
    foreign: Vec<Spanned<String>>,
    keyfile: Option<PathBuf>,
    des_keyfile: Option<PathBuf>,
    keytab: Option<PathBuf>,
    #[serde(default)]
    administrators: Vec<Spanned<String>>,
    userlist: Option<PathBuf>,
    #[serde(default)]
    database_servers: Vec<Address>,
}

/// An IPv4 address, with an error message that describes the format.
#[derive(Clone, Copy, Deserialize)]
#[serde(try_from = "String")]
struct Address(Ipv4Addr);

impl TryFrom<String> for Address {
    type Error = String;

    fn try_from(text: String) -> Result<Address, String> {
        let refusal = |_| format!("`{text}` is not an IPv4 address like `192.0.2.1` (ports are fixed)");
        text.parse().map(Address).map_err(refusal)
    }
}

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct ServerSection {
    roles: Option<Spanned<Vec<Role>>>,
    #[serde(default)]
    bind: Vec<Address>,
    #[serde(default)]
    announce: Vec<Address>,
    announce_containers: Option<bool>,
    state: Option<PathBuf>,
    logs: Option<PathBuf>,
    nice: Option<Spanned<i32>>,
}

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct StoreSection {
    status_cache_mb: Option<Spanned<u64>>,
    directory_cache_mb: Option<Spanned<u64>>,
    chunk_cache_mb: Option<Spanned<u64>>,
    loaded_volumes: Option<Spanned<usize>>,
    durability: Option<Spanned<String>>,
    compression: Option<Spanned<String>>,
    compaction_mb_per_s: Option<Spanned<u64>>,
    compaction_dead_percent: Option<Spanned<u8>>,
    scrub_mb_per_s: Option<Spanned<u64>>,
    scrub_days: Option<Spanned<u32>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct EncryptionSection {
    key_file: Option<PathBuf>,
    key_command: Option<String>,
}

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct VolumeServerSection {
    idle_transaction_seconds: Option<Spanned<u32>>,
}

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct RxSection {
    lanes: Option<Spanned<usize>>,
    workers: Option<Spanned<usize>>,
    socket_buffer_mb: Option<Spanned<usize>>,
    packet_bytes_max: Option<Spanned<usize>>,
}

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct ObserveSection {
    slow_call_ms: Option<Spanned<u64>>,
    count_calls: Option<bool>,
    log_events: Option<Spanned<Vec<String>>>,
    log_events_per_second: Option<Spanned<u64>>,
}

impl ObserveSection {
    /// Returns the events to log and their limit.
    fn event_lines(&self, origin: &Origin<'_>) -> Result<EventLines> {
        let choice = match &self.log_events {
            None => Choice::default(),
            Some(words) => Choice::parse(words.get_ref().iter().map(String::as_str))
                .map_err(|refusal| origin.bad(words, "observe.log_events", refusal))?,
        };
        let (wanted, default) = (self.log_events_per_second.as_ref(), EventLines::default());
        let (key, least, most) = ("observe.log_events_per_second", *PER_SECOND.start(), *PER_SECOND.end());
        Ok(EventLines { choice, per_second: origin.bounded(wanted, key, default.per_second, least, most)? })
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct MetricsSection {
    port: u16,
    address: Option<IpAddr>,
    probe_history: Option<PathBuf>,
}

pub(super) const DAY_SECONDS: u32 = 24 * 3600;

/// Minimum idle time of transactions. Between two calls of a transaction, `vos` waits 90 s for a location
/// server that does not answer (vsu_ClientInit in `volser/vsutils.c`), and a transaction must outlast that.
const IDLE_TRANSACTION_SECONDS_MIN: u32 = 120;

/// Text and name of a file, for error messages with a position.
pub struct Origin<'a> {
    path: &'a Path,
    text: &'a str,
}

impl<'a> Origin<'a> {
    /// Creates the origin of values of this text.
    pub fn new(path: &'a Path, text: &'a str) -> Origin<'a> {
        Origin { path, text }
    }

    /// Returns the line of a value, from 1.
    pub fn line<T>(&self, value: &Spanned<T>) -> usize {
        1 + self.text[..value.span().start.min(self.text.len())].matches('\n').count()
    }

    /// Returns the text of a value.
    pub(super) fn text<T>(&self, value: &Spanned<T>) -> &'a str {
        self.text.get(value.span()).unwrap_or_default()
    }

    /// Returns the place of a value.
    pub(super) fn source<T>(&self, value: &Spanned<T>) -> Source {
        Source::Line { file: self.path.display().to_string(), line: self.line(value) }
    }

    /// Returns the error of a value: the file, the line, the key and what is wrong.
    pub fn bad<T>(&self, value: &Spanned<T>, key: &str, what: impl std::fmt::Display) -> anyhow::Error {
        anyhow::anyhow!("{}, line {}, `{key}`: {what}", self.path.display(), self.line(value))
    }

    pub(super) fn bounded<T: PartialOrd + Copy + std::fmt::Display>(
        &self,
        value: Option<&Spanned<T>>,
        key: &str,
        default: T,
        least: T,
        most: T,
    ) -> Result<T> {
        match value {
            None => Ok(default),
            Some(value) if (least..=most).contains(value.get_ref()) => Ok(*value.get_ref()),
            Some(value) => {
                Err(self.bad(value, key, format!("{} is not within {least} to {most}", value.get_ref())))
            }
        }
    }
}

/// Reads `cellar.toml`; relative paths in it are relative to its directory.
pub fn load(path: &Path) -> Result<Settings> {
    let text = std::fs::read_to_string(path)
        .with_context(|| format!("cannot read the configuration {}", path.display()))?;
    parse(path, &text)
}

/// Reads the text that `path` has or is to have.
///
/// # Errors
/// As [`load`], but for the file itself.
pub fn parse(path: &Path, text: &str) -> Result<Settings> {
    let file: File =
        toml::from_str(text).with_context(|| format!("in the configuration {}", path.display()))?;
    let origin = Origin::new(path, text);
    let folder = path.parent().unwrap_or(Path::new("."));
    resolve(&origin, folder, file)
}

fn resolve(origin: &Origin<'_>, folder: &Path, file: File) -> Result<Settings> {
    let name = &file.cell.name;
    let cell: CellName = name.get_ref().parse().map_err(|error| origin.bad(name, "cell.name", error))?;
    let state = folder.join(file.server.state.unwrap_or_else(|| "state".into()));
    let named_roles = file.server.roles;
    let roles = roles(origin, named_roles.as_ref())?;
    let security = SecuritySettings::new(origin, &file.security)?;
    let exposure = security.key_files;
    let key_files = key_files(folder, &file.cell, exposure);
    let keys = keys::load(&key_files, &security)?;
    let realms = file.cell.realms.unwrap_or_else(|| vec![cell.default_realm()]);
    let realms = local_realms(&cell, &realms, &foreign(origin, &file.cell.foreign)?);
    let userlist_path = file.cell.userlist.map_or_else(|| state.join("UserList"), |path| folder.join(path));
    let userlist = administrators(origin, &userlist_path, &file.cell.administrators)?;
    let bind = plain(&file.server.bind);
    let databases = plain(&file.cell.database_servers);
    let containers = file.server.announce_containers.unwrap_or_default();
    let automatic = AnnounceRules { containers, databases, ..AnnounceRules::default() };
    let (announce, announce_rules) = announced(plain(&file.server.announce), &bind, automatic)?;
    let sections = (file.partitions, file.partition, file.cluster);
    let cluster;
    let settings = Settings {
        source: origin.path.display().to_string(),
        realms,
        keys: keys.set,
        key_files,
        warnings: keys.warnings,
        security,
        slow_call_ms: origin.bounded(
            file.observe.slow_call_ms.as_ref(),
            "observe.slow_call_ms",
            super::SLOW_CALL_MS,
            0,
            3_600_000,
        )?,
        count_calls: file.observe.count_calls.unwrap_or(true),
        event_lines: file.observe.event_lines(origin)?,
        audit: super::audit::resolve(origin, folder, file.audit)?,
        metrics: file.metrics.as_ref().map(|metrics| {
            SocketAddr::new(metrics.address.unwrap_or(Ipv4Addr::LOCALHOST.into()), metrics.port)
        }),
        probe_history: probe_history(file.metrics.as_ref(), file.web.as_ref()).map(|path| folder.join(path)),
        web: file.web.map(|web| WebSettings::new(web, folder, &state)),
        nice: origin.bounded(file.server.nice.as_ref(), "server.nice", super::NICE, -20, 19)?,
        tuning: tuning(origin, &file.store, &file.volume_server, &file.rx, &file.fairness)?,
        partitions: {
            let all;
            (cluster, all) = places(origin, folder, sections, (&roles, &announce), exposure)?;
            encrypted(origin, folder, all, file.encryption, exposure)?
        },
        database_servers: database_servers(&plain(&file.cell.database_servers), &announce, cluster.as_ref()),
        cluster,
        bind,
        announce,
        announce_rules,
        roles,
        userlist_path,
        userlist,
        database_path: state.join("db"),
        sysid_path: state.join("sysid"),
        bos_config_path: state.join("BosConfig"),
        log_path: file.server.logs.map_or_else(|| state.join("log"), |path| folder.join(path)),
        cell,
    };
    match (settings.roles_refusal(), named_roles) {
        (Some(refusal), Some(named)) => Err(origin.bad(&named, "server.roles", refusal)),
        _ => Ok(settings),
    }
}

/// Returns the partitions, and the cluster that has them, if it is one.
fn places(
    origin: &Origin<'_>,
    folder: &Path,
    (local, buckets, cluster): (LocalSection, Vec<BucketSection>, Option<ClusterSection>),
    (roles, announce): (&[Role], &[Ipv4Addr]),
    exposure: Exposure,
) -> Result<(Option<ClusterSettings>, Vec<PartitionSettings>)> {
    match cluster {
        None => Ok((None, partitions(origin, folder, local, buckets, roles, exposure)?)),
        Some(section) => {
            let others = (&local, &*buckets);
            let (cluster, all) = section.resolve(origin, folder, exposure, (roles, announce), others)?;
            Ok((Some(cluster), all))
        }
    }
}

fn key_files(folder: &Path, cell: &CellSection, exposure: Exposure) -> KeyFiles {
    let below = |path: &Option<PathBuf>| path.as_ref().map(|path| folder.join(path));
    KeyFiles {
        extended: below(&cell.keyfile),
        des: below(&cell.des_keyfile),
        keytab: below(&cell.keytab),
        may_lack: false,
        exposure,
    }
}

/// Returns the history set in either section: metrics and the web page show the same one.
fn probe_history<'a>(
    metrics: Option<&'a MetricsSection>,
    web: Option<&'a WebSection>,
) -> Option<&'a PathBuf> {
    let of_metrics = metrics.and_then(|metrics| metrics.probe_history.as_ref());
    of_metrics.or_else(|| web?.probe_history.as_ref())
}

fn plain(addresses: &[Address]) -> Vec<Ipv4Addr> {
    addresses.iter().map(|address| address.0).collect()
}

/// Returns the addresses to register: the listed ones, else the bound ones, else the machine's.
fn announced(
    named: Vec<Ipv4Addr>,
    bind: &[Ipv4Addr],
    automatic: AnnounceRules,
) -> Result<(Vec<Ipv4Addr>, Option<AnnounceRules>)> {
    match (named.is_empty(), bind.is_empty()) {
        (false, _) => Ok((named, None)),
        (true, false) => Ok((bind.to_vec(), None)),
        (true, true) => Ok((automatic.choose()?.addresses, Some(automatic))),
    }
}

/// Returns the roles; their combination is checked once all settings are known.
fn roles(origin: &Origin<'_>, named: Option<&Spanned<Vec<Role>>>) -> Result<Vec<Role>> {
    match named {
        None => Ok(Role::ALL.to_vec()),
        Some(named) if named.get_ref().is_empty() => {
            let refusal = "is empty; valid are \"fs\", \"pt\", \"vl\", \"vol\", \"bos\"";
            Err(origin.bad(named, "server.roles", refusal))
        }
        Some(named) => Ok(named.get_ref().clone()),
    }
}

/// Returns principals excluded from the cell although in its realm, as lines of a krb.excl.
fn foreign(origin: &Origin<'_>, names: &[Spanned<String>]) -> Result<String> {
    for name in names {
        let has_realm = parse_principal(name.get_ref()).is_some_and(|principal| !principal.realm.is_empty());
        if !has_realm {
            return Err(origin.bad(name, "cell.foreign", "not a principal with a realm like `ann@REALM`"));
        }
    }
    let names: Vec<&str> = names.iter().map(|name| name.get_ref().as_str()).collect();
    Ok(names.join("\n"))
}

fn administrators(origin: &Origin<'_>, path: &Path, names: &[Spanned<String>]) -> Result<UserList> {
    let mut list = UserList::parse(&super::openafs::read_optional(path)?.unwrap_or_default());
    for name in names {
        let principal = parse_principal(name.get_ref()).ok_or_else(|| {
            origin.bad(name, "cell.administrators", "not a principal like `ann`, `ann.admin` or `ann@REALM`")
        })?;
        list.add(principal);
    }
    Ok(list)
}

/// Returns the database servers: those in the configuration, or this one. A node that serves the databases of its cluster
/// is the first of them, so that its own commands need no other node.
fn database_servers(
    configured: &[Ipv4Addr],
    announce: &[Ipv4Addr],
    cluster: Option<&ClusterSettings>,
) -> Vec<CellServer> {
    let addresses: Vec<Ipv4Addr> = if configured.is_empty() {
        announce.to_vec()
    } else if cluster.is_some_and(|cluster| cluster.databases.is_some()) {
        let own = announce.first().copied();
        let others = configured.iter().copied().filter(|address| Some(*address) != own);
        own.into_iter().chain(others).collect()
    } else {
        configured.to_vec()
    };
    let server = |address| CellServer { address, host: String::new(), is_clone: false };
    addresses.into_iter().map(server).collect()
}

/// Sets the source of each partition's master key.
fn encrypted(
    origin: &Origin<'_>,
    folder: &Path,
    mut partitions: Vec<PartitionSettings>,
    sections: BTreeMap<Spanned<String>, EncryptionSection>,
    exposure: Exposure,
) -> Result<Vec<PartitionSettings>> {
    for (name, section) in sections {
        let bad = |what: String| origin.bad(&name, "encryption", what);
        let id: PartitionId =
            name.get_ref().parse().map_err(|error| origin.bad(&name, "encryption", error))?;
        let partition = partitions.iter_mut().find(|partition| partition.id == id);
        let partition =
            partition.ok_or_else(|| bad(format!("there is no partition `{}`", name.get_ref())))?;
        let key_file = section.key_file.map(|path| folder.join(path));
        let source = KeySource::from_either(key_file, section.key_command, exposure);
        partition.key = Some(source.map_err(|error| bad(format!("`{}` {error}", name.get_ref())))?);
    }
    Ok(partitions)
}

fn tuning(
    origin: &Origin<'_>,
    store: &StoreSection,
    volume_server: &VolumeServerSection,
    rx: &RxSection,
    fairness: &FairnessSection,
) -> Result<Tuning> {
    let default = Tuning::default();
    let fairness = fairness.resolve(origin)?;
    let durability = match &store.durability {
        None => default.durability,
        Some(text) => DurabilityPolicy::parse(text.get_ref())
            .map_err(|what| origin.bad(text, "store.durability", what))?,
    };
    let caches = caches(origin, store, default.caches)?;
    let loaded_volumes = origin.bounded(
        store.loaded_volumes.as_ref(),
        "store.loaded_volumes",
        default.loaded_volumes,
        100,
        1 << 30,
    )?;
    let buffer_mb = origin.bounded(rx.socket_buffer_mb.as_ref(), "rx.socket_buffer_mb", 16, 1, 1024)?;
    Ok(Tuning {
        lanes: origin.bounded(rx.lanes.as_ref(), "rx.lanes", default.lanes, 1, 64)?,
        workers: origin.bounded(rx.workers.as_ref(), "rx.workers", default.workers, 4, 1024)?,
        fairness,
        socket_buffer_bytes: buffer_mb << 20,
        packet_bytes_max: origin.bounded(
            rx.packet_bytes_max.as_ref(),
            "rx.packet_bytes_max",
            default.packet_bytes_max,
            PACKET_BYTES_MIN,
            PACKET_BYTES_MAX,
        )?,
        caches,
        loaded_volumes,
        durability,
        compression: compression(origin, store)?,
        upkeep: upkeep(origin, store)?,
        idle_transaction_seconds: origin.bounded(
            volume_server.idle_transaction_seconds.as_ref(),
            "volume_server.idle_transaction_seconds",
            default.idle_transaction_seconds,
            IDLE_TRANSACTION_SECONDS_MIN,
            DAY_SECONDS,
        )?,
    })
}

fn compression(origin: &Origin<'_>, store: &StoreSection) -> Result<Codec> {
    let Some(text) = &store.compression else { return Ok(Codec::default()) };
    text.get_ref().parse().map_err(|error| origin.bad(text, "store.compression", error))
}

fn upkeep(origin: &Origin<'_>, store: &StoreSection) -> Result<Upkeep> {
    let mut upkeep = Upkeep::default();
    let rate = |value: &Option<Spanned<u64>>, key: &str, default: u64| {
        origin.bounded(value.as_ref(), key, default >> 20, 0, 1 << 20).map(|mb| mb << 20)
    };
    let (moved, read) = (upkeep.compaction_bytes_per_s, upkeep.scrub_bytes_per_s);
    upkeep.compaction_bytes_per_s = rate(&store.compaction_mb_per_s, "store.compaction_mb_per_s", moved)?;
    upkeep.scrub_bytes_per_s = rate(&store.scrub_mb_per_s, "store.scrub_mb_per_s", read)?;
    let percent = &mut upkeep.compaction.dead_percent;
    let key = "store.compaction_dead_percent";
    *percent = origin.bounded(store.compaction_dead_percent.as_ref(), key, *percent, 10, 95)?;
    let days = upkeep.scrub.period_seconds / DAY_SECONDS;
    let days = origin.bounded(store.scrub_days.as_ref(), "store.scrub_days", days, 1, 365)?;
    upkeep.scrub.period_seconds = days * DAY_SECONDS;
    Ok(upkeep)
}

/// Returns the configured cache sizes, or defaults that fit the machine.
fn caches(origin: &Origin<'_>, store: &StoreSection, default: CacheSizes) -> Result<CacheSizes> {
    let size = |value: &Option<Spanned<u64>>, key: &str, default: u64| -> Result<u64> {
        let megabytes = origin.bounded(value.as_ref(), key, 0, 1, 1 << 24)?;
        Ok(if value.is_some() { megabytes << 20 } else { default })
    };
    Ok(CacheSizes {
        status: size(&store.status_cache_mb, "store.status_cache_mb", default.status)?,
        directories: size(&store.directory_cache_mb, "store.directory_cache_mb", default.directories)?,
        chunks: size(&store.chunk_cache_mb, "store.chunk_cache_mb", default.chunks)?,
    })
}

#[cfg(test)]
mod tests {
    use super::super::security::ServiceLevels;
    use super::*;
    use afs_format::keyfile::{KeyType, Secret, TypedKey, write_extended};
    use base::{Access, SecurityLevel};
    use rx_security::Enctype;

    /// Loads a file with these lines after the cell's name and key.
    pub(super) fn load_lines(lines: &str) -> Result<Settings> {
        load_lines_in(tempfile::tempdir().unwrap().path(), lines)
    }

    pub(super) fn load_lines_in(folder: &Path, lines: &str) -> Result<Settings> {
        let secret = Secret::new(&[7; 32]);
        let key = TypedKey { key_type: KeyType::RxkadKerberos5, kvno: 1, subtype: 18, secret };
        crate::files::replace(&folder.join("KeyFileExt"), &write_extended(&[key])).unwrap();
        std::fs::create_dir(folder.join("p")).unwrap();
        let path = folder.join("cellar.toml");
        let text = format!("[cell]\nname = \"t.example\"\nkeyfile = \"KeyFileExt\"\n{lines}\n");
        std::fs::write(&path, text).unwrap();
        load(&path)
    }

    /// Returns the error message for such a file.
    pub(super) fn refusal(lines: &str) -> String {
        load_lines(lines).map_or_else(|error| format!("{error:#}"), |settings| settings.cell.to_string())
    }

    #[test]
    fn paths_are_relative_to_the_configuration_file() {
        let here = std::env::current_dir().unwrap();
        let folder = tempfile::tempdir_in(&here).unwrap();
        let relative = folder.path().strip_prefix(&here).unwrap();
        let settings = load_lines_in(relative, "[web]\n[partitions]\na = \"p\"").unwrap();
        for (path, expected) in [
            (&settings.log_path, "state/log"),
            (&settings.database_path, "state/db"),
            (&settings.sysid_path, "state/sysid"),
            (&settings.bos_config_path, "state/BosConfig"),
            (&settings.userlist_path, "state/UserList"),
            (&settings.web.unwrap().key_path, "state/web.key"),
        ] {
            assert_eq!(path, &relative.join(expected));
        }
    }

    #[test]
    fn packets_have_a_longest_length() {
        let load = |lines: &str| load_lines(&format!("{lines}\n[partitions]\na = \"p\""));
        let bytes = |lines: &str| load(lines).unwrap().tuning.packet_bytes_max;
        assert_eq!((bytes(""), bytes("[rx]\npacket_bytes_max = 1272")), (1472, 1272));
        assert!(load("[rx]\npacket_bytes_max = 500").is_err());
    }

    #[test]
    fn transactions_end_after_ten_minutes_if_nothing_is_said() {
        let partition = "[partitions]\na = \"p\"";
        let seconds = |lines: &str| load_lines(&format!("{lines}\n{partition}")).unwrap().tuning;
        assert_eq!(seconds("").idle_transaction_seconds, 600);
        let set = seconds("[volume_server]\nidle_transaction_seconds = 120");
        assert_eq!(set.idle_transaction_seconds, 120);
    }

    #[test]
    fn security_has_defaults_and_services_inherit_levels() {
        let security =
            |lines: &str| load_lines(&format!("{lines}\n[partitions]\na = \"p\"")).unwrap().security;
        assert_eq!(security(""), SecuritySettings::default());
        let set = security(
            "[security]\nclock_skew_seconds = 300\nclock_warning_seconds = 60\ndotted_principals = \
            true\nweak_enctypes = [\"arcfour-hmac\"]\nown_calls = \"auth\"\nforward_destinations = \
            [\"192.0.2.1\", \"192.0.2.2:17005\"]\nrxdebug = \"nobody\"\nown_hosts = \
            [\"192.0.2.80\"]\n[security.levels]\nusers = \"auth\"\ncell = \
            \"crypt\"\n[security.levels.pt]\nanonymous = false\nusers = \"crypt\"",
        );
        let (clear, auth, crypt) =
            (SecurityLevel::Clear, SecurityLevel::Authenticated, SecurityLevel::Encrypted);
        assert_eq!((set.clock_skew_seconds, set.dotted_principals, set.own_calls), (300, true, auth));
        assert_eq!(set.clock_warning_seconds, 60);
        assert_eq!(set.weak_enctypes, [Enctype::Rc4Hmac]);
        let destinations = ["192.0.2.1:7005".parse().unwrap(), "192.0.2.2:17005".parse().unwrap()];
        assert_eq!(set.forward_destinations, destinations);
        let own: std::net::IpAddr = [192, 0, 2, 80].into();
        assert_eq!((set.rxdebug, set.own_hosts), (rx_proto::DebugAudience::Nobody, vec![own]));
        let levels = |anonymous, users, administrators| ServiceLevels {
            anonymous,
            users,
            administrators,
            cell: crypt,
        };
        assert_eq!(set.levels.vol, levels(true, auth, clear));
        assert_eq!(set.levels.pt, levels(false, crypt, clear));
        assert_eq!(set.levels.cellar, levels(true, auth, crypt));
    }

    #[test]
    fn queries_of_databases_and_volumes_can_be_restricted() {
        let load = |lines: &str| load_lines(&format!("{lines}\n[partitions]\na = \"p\"")).unwrap();
        let set = load(
            "[security]\nlocation_queries = \"administrators\"\nvolume_queries = \"authenticated\"\n\
             protection_queries = \"authenticated\"\nprotection_changes = \"administrators\"\n\
             protection_default_access = [\"s-\", \"SOMar\"]",
        );
        let queries = set.security.queries;
        assert_eq!((queries.location, queries.volume), (Access::Administrators, Access::Authenticated));
        let policy = queries.protection;
        assert_eq!((policy.restrict_anonymous, policy.restricted), (true, true));
        assert_eq!((policy.user_access, policy.group_access), (0x40 << 16, 0xb3 << 16));
    }

    #[test]
    fn errors_name_line_and_valid_values() {
        let partition = "[partitions]\na = \"p\"";
        assert_eq!(refusal(partition), "t.example");
        let joining = "database_servers = [\"192.0.2.1\"]\n[server]\nroles = [\"fs\", \"vol\"]\n";
        assert_eq!(refusal(&format!("{joining}{partition}")), "t.example");
        for (lines, words) in [
            ("colour = 1", ["line 4", "colour", "expected one of `name`"]),
            ("foreign = [\"ann\"]", ["line 4", "cell.foreign", "ann@REALM"]),
            ("administrators = [\"a b\"]", ["line 4", "cell.administrators", "ann.admin"]),
            ("[server]\nbind = [\"1.2.3.4:5\"]", ["line 5", "bind", "192.0.2.1"]),
            ("[server]\nroles = []", ["line 5", "server.roles", "vol"]),
            (
                "[server]\nroles = [\"fs\"]\n[partitions]\na = \"p\"",
                ["line 5", "server.roles", "database_servers"],
            ),
            ("[server]\nroles = [\"vol\"]\n[partitions]\na = \"p\"", ["line 5", "server.roles", "fs"]),
            ("[server]\nroles = [\"xx\"]", ["line 5", "xx", "`bos`"]),
            ("[observe]\nslow_call_ms = 9999999", ["line 5", "observe.slow_call_ms", "0 to 3600000"]),
            (
                "[observe]\nlog_events = [\"call\", \"disc\"]",
                ["line 5", "observe.log_events", "`disc` is not an event"],
            ),
            (
                "[observe]\nlog_events_per_second = 0",
                ["line 5", "observe.log_events_per_second", "1 to 1000000"],
            ),
            ("[metrics]\nport = 70000", ["line 5", "70000", "u16"]),
            ("[metrics]\naddress = \"::1\"", ["line 4", "missing", "port"]),
            ("[metrics]\nport = 1\naddress = \"here\"", ["line 6", "address", "IP"]),
            ("[web]\naddress = \"here\"", ["line 5", "address", "IP"]),
            ("[web]\nhost = \"x\"", ["line 5", "host", "`key_file`"]),
            ("[audit.a]", ["line 4", "audit.a", "`file`, `pipe`, `socket` or `journal`"]),
            ("[audit.a]\nfile = \"f\"\npipe = \"p\"", ["line 4", "audit.a", "one of them"]),
            ("[audit.a]\nfile = \"f\"\nevents = [\"x\"]", ["line 6", "audit.a.events", "rights, names"]),
            ("[audit.a]\nfile = \"f\"\nformat = \"xml\"", ["line 6", "audit.a.format", "openafs"]),
            ("[audit.a]\nfile = \"f\"\npolicy = \"wait\"", ["line 6", "audit.a.policy", "block"]),
            ("[audit.a]\njournal = true\nqueue = 1", ["line 6", "audit.a.queue", "16 to 1048576"]),
            ("[rx]\nlanes = 0", ["line 5", "rx.lanes", "1 to 64"]),
            ("[fairness]\nuser_percent = 0", ["line 5", "fairness.user_percent", "1 to 100"]),
            ("[fairness.weights]\nbatch = 10\nann = 0", ["line 6", "fairness.weights.ann", "1 to 10000"]),
            ("[store]\nstatus_cache_mb = 0", ["line 5", "store.status_cache_mb", "1 to 16777216"]),
            ("[store]\ndurability = \"never\"", ["line 5", "store.durability", "interval:MS"]),
            ("[store]\ncompression = \"zstd:22\"", ["line 5", "store.compression", "zstd:19"]),
            ("[store]\ncompaction_dead_percent = 5", ["line 5", "store.compaction_dead_percent", "10 to 95"]),
            ("[store]\nscrub_mb_per_s = -1", ["line 5", "scrub_mb_per_s", "u64"]),
            ("[store]\nscrub_days = 0", ["line 5", "store.scrub_days", "1 to 365"]),
            (
                "[volume_server]\nidle_transaction_seconds = 119",
                ["line 5", "volume_server.idle_transaction_seconds", "120 to 86400"],
            ),
            ("[security]\ncolour = 1", ["line 5", "colour", "`clock_skew_seconds`"]),
            ("[security]\nclock_skew_seconds = 3601", ["line 5", "security.clock_skew_seconds", "0 to 3600"]),
            (
                "[security]\nweak_enctypes = [\"aes\"]",
                ["line 5", "security.weak_enctypes", "\"arcfour-hmac\""],
            ),
            (
                "[security]\nvolume_queries = \"admin\"",
                ["line 5", "security.volume_queries", "\"anyone\", \"authenticated\", \"administrators\""],
            ),
            (
                "[security]\nprotection_queries = \"administrators\"",
                ["line 5", "security.protection_queries", "\"anyone\", \"authenticated\""],
            ),
            (
                "[security]\nprotection_default_access = [\"S\", \"x\"]",
                ["line 5", "security.protection_default_access", "`S-M--`"],
            ),
            ("[security]\nown_calls = \"none\"", ["line 5", "security.own_calls", "\"auth\""]),
            ("[security]\nrxdebug = \"me\"", ["line 5", "security.rxdebug", "own-hosts"]),
            ("[security]\nown_hosts = [\"fs1\"]", ["line 5", "security.own_hosts", "192.0.2.1"]),
            (
                "[security]\nforward_destinations = [\"fs1\"]",
                ["line 5", "security.forward_destinations", "192.0.2.1:7005"],
            ),
            (
                "[security.levels]\nusers = \"high\"",
                ["line 5", "security.levels.users", "\"clear\", \"auth\", \"crypt\""],
            ),
            (
                "[security.levels.vol]\ncell = \"high\"",
                ["line 5", "security.levels.vol.cell", "\"clear\", \"auth\", \"crypt\""],
            ),
            ("[security.levels.ubik]", ["line 4", "ubik", "`vol`"]),
            ("[partitions]\n9 = \"p\"", ["line 5", "partitions", "/vicepa to /vicepiv"]),
            (
                "[partitions]\na = \"p\"\n[encryption.b]\nkey_file = \"k\"",
                ["line 6", "encryption", "no partition `b`"],
            ),
            ("[partitions]\na = \"p\"\n[encryption.a]", ["line 6", "`a`", "key_command"]),
            ("[partitions]\nb = \"absent\"", ["line 5", "partitions.b", "there is no directory"]),
        ] {
            let text = refusal(lines);
            assert!(words.iter().all(|word| text.contains(word)), "{lines}: {text}");
        }
    }
}
