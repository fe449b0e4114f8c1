//! Settings from the files that an OpenAFS server on this machine would read.

use super::announcing::{AnnounceRules, machine_addresses};
use super::keys::{self, KeyFiles};
use super::security::SecuritySettings;
use super::{PartitionSettings, Place, Role, Settings, Tuning};
use afs_format::cellservdb::{CellServer, parse_cellservdb, parse_krb_conf, parse_thiscell};
use afs_format::netinfo::{NetInfo, NetRestrict, Parsed, parse_netinfo, parse_netrestrict};
use afs_format::userlist::UserList;
use anyhow::{Context, Result, bail};
use base::{CellName, PartitionId};
use rx_security::LocalRealms;
use std::collections::BTreeSet;
use std::io::ErrorKind;
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};

/// Configuration directory of servers in OpenAFS's Debian packages.
pub const SERVER_DIRECTORY: &str = "/etc/openafs/server";
const BOS_CONFIG: &str = "/etc/openafs/BosConfig";
const LOCAL_DIRECTORY: &str = "/var/lib/openafs/local";
const DATABASE_DIRECTORY: &str = "/var/lib/openafs/db";
const LOG_DIRECTORY: &str = "/var/log/openafs";

/// Returns the file's text; `None` if the file does not exist. Invalid UTF-8 is replaced: it can occur only
/// in comments (names of people and places in the widely used CellServDB are in Latin-1).
pub fn read_optional(path: &Path) -> Result<Option<String>> {
    match std::fs::read(path) {
        Ok(bytes) => Ok(Some(String::from_utf8_lossy(&bytes).into_owned())),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error).with_context(|| format!("cannot read {}", path.display())),
    }
}

fn parse_file<T, E: std::error::Error + Send + Sync + 'static>(
    path: &Path,
    parse: impl FnOnce(&str) -> Result<T, E>,
) -> Result<Option<T>> {
    let Some(text) = read_optional(path)? else { return Ok(None) };
    parse(&text).map(Some).with_context(|| format!("in {}", path.display()))
}

/// Returns the settings of an OpenAFS server on this machine.
pub fn load() -> Result<Settings> {
    let server = Path::new(SERVER_DIRECTORY);
    let local = Path::new(LOCAL_DIRECTORY);
    let Some(cell) = parse_file(&server.join("ThisCell"), parse_thiscell)? else {
        bail!(
            "no configuration: there is neither --config FILE nor {SERVER_DIRECTORY}/ThisCell; \
             `cellar quickstart --dir DIR` creates a cell to try"
        );
    };
    let cells = parse_file(&server.join("CellServDB"), parse_cellservdb)?.unwrap_or_default();
    let database_servers =
        cells.into_iter().find(|entry| entry.name == cell).map(|entry| entry.servers).unwrap_or_default();
    let mut warnings = Vec::new();
    let (info, restrict) = net_files(local, &mut warnings)?;
    let databases = database_servers.iter().map(|server| server.address).collect();
    let rules = AnnounceRules { info, restrict, containers: false, databases };
    let partitions = partitions(Path::new("/"), &mut warnings)?;
    let userlist_path = server.join("UserList");
    let exclusions = read_optional(&server.join("krb.excl"))?.unwrap_or_default();
    let realms = parse_krb_conf(&read_optional(&server.join("krb.conf"))?.unwrap_or_default(), &cell);
    let security = SecuritySettings::load(&server.join("cellar-security.toml"))?;
    let key_files = key_files(server, &security);
    let keys = keys::load(&key_files, &security)?;
    warnings.extend(keys.warnings);
    Ok(Settings {
        source: SERVER_DIRECTORY.into(),
        realms: local_realms(&cell, &realms, &exclusions),
        roles: default_roles(
            &database_servers,
            &machine_addresses().context("cannot list the machine's addresses")?,
        ),
        bind: Vec::new(),
        announce: rules.choose()?.addresses,
        announce_rules: Some(rules),
        database_servers,
        partitions,
        cluster: None,
        keys: keys.set,
        key_files,
        warnings,
        userlist: UserList::parse(&read_optional(&userlist_path)?.unwrap_or_default()),
        userlist_path,
        database_path: Path::new(DATABASE_DIRECTORY).join("cellar"),
        sysid_path: local.join("sysid"),
        bos_config_path: BOS_CONFIG.into(),
        log_path: LOG_DIRECTORY.into(),
        nice: crate::NICE,
        metrics: None,
        probe_history: None,
        web: None,
        audit: Vec::new(),
        slow_call_ms: super::SLOW_CALL_MS,
        count_calls: true,
        event_lines: super::EventLines::default(),
        security,
        tuning: Tuning::default(),
        cell,
    })
}

/// Returns the roles of a whole cell if CellServDB names only this machine. Otherwise returns those of a
/// server with volumes that joins a cell with its databases elsewhere.
fn default_roles(database_servers: &[CellServer], machine: &[Ipv4Addr]) -> Vec<Role> {
    let is_own = |server: &CellServer| server.address.is_loopback() || machine.contains(&server.address);
    if database_servers.iter().all(is_own) { Role::ALL.to_vec() } else { Role::JOINING.to_vec() }
}

/// Returns the principals that belong to the cell: those of its realms, except those in krb.excl.
pub fn local_realms(cell: &CellName, realms: &[String], exclusions: &str) -> LocalRealms {
    LocalRealms::of_cell(cell.as_str()).with_krb_conf(&realms.join(" ")).with_krb_excl(exclusions)
}

/// Reads NetInfo and NetRestrict in a directory. Lines that cannot be parsed become warnings.
fn net_files(folder: &Path, warnings: &mut Vec<String>) -> Result<(NetInfo, NetRestrict)> {
    let info = net_file(&folder.join("NetInfo"), parse_netinfo, warnings)?;
    let restrict = net_file(&folder.join("NetRestrict"), parse_netrestrict, warnings)?;
    Ok((info, restrict))
}

fn net_file<T: Default>(
    path: &Path,
    parse: impl FnOnce(&str) -> Parsed<T>,
    warnings: &mut Vec<String>,
) -> Result<T> {
    let Some(text) = read_optional(path)? else { return Ok(T::default()) };
    let Parsed { value, skipped } = parse(&text);
    warnings.extend(skipped.iter().map(|error| format!("{}, {error}; the line is ignored", path.display())));
    Ok(value)
}

/// Returns every `/vicepX` below `root` that an OpenAFS file server would attach: a mount point, or one with
/// an AlwaysAttach file, unless it has a NeverAttach file. Adds warnings about the others.
fn partitions(root: &Path, warnings: &mut Vec<String>) -> Result<Vec<PartitionSettings>> {
    let mounts = mount_points(&std::fs::read_to_string("/proc/self/mountinfo")?);
    let mut out = Vec::new();
    for entry in std::fs::read_dir(root).with_context(|| format!("cannot list {}", root.display()))? {
        let name = entry?.file_name();
        if !name.as_encoded_bytes().starts_with(b"vicep") {
            continue;
        }
        let path = root.join(&name);
        match attachable(&path, &mounts) {
            Ok(id) => out.push(PartitionSettings { id, place: Place::Folder(path), key: None }),
            Err(why) => {
                let shown = base::text::escape(path.as_os_str().as_encoded_bytes());
                warnings.push(format!("{shown} is not served: {why}"));
            }
        }
    }
    if out.is_empty() {
        bail!(
            "there is no partition: mount a file system on /vicepa, or make the directory and `touch \
            /vicepa/AlwaysAttach`\n{}",
            warnings.join("\n")
        );
    }
    out.sort_by_key(|partition| partition.id);
    Ok(out)
}

/// Returns the ID of the partition in a directory, or why it is not served.
fn attachable(path: &Path, mounts: &BTreeSet<PathBuf>) -> Result<PartitionId, &'static str> {
    let name = path.file_name().and_then(|name| name.to_str());
    let id = name.and_then(|name| name.parse().ok());
    let id = id.ok_or("partition names are /vicepa to /vicepz and /vicepaa to /vicepiv")?;
    if !path.is_dir() {
        return Err("it is not a directory");
    }
    if path.join("NeverAttach").exists() {
        return Err("it contains a file NeverAttach");
    }
    if !mounts.contains(path) && !path.join("AlwaysAttach").exists() {
        return Err("no file system is mounted there, and it contains no file AlwaysAttach");
    }
    Ok(id)
}

/// Returns the fifth column of /proc/self/mountinfo.
fn mount_points(mountinfo: &str) -> BTreeSet<PathBuf> {
    mountinfo.lines().filter_map(|line| line.split(' ').nth(4)).map(PathBuf::from).collect()
}

fn key_files(server: &Path, security: &SecuritySettings) -> KeyFiles {
    KeyFiles {
        extended: Some(server.join("KeyFileExt")),
        des: Some(server.join("KeyFile")),
        keytab: Some(server.join("rxkad.keytab")),
        may_lack: true,
        exposure: security.key_files,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::files::Exposure;

    #[test]
    fn partition_folders_that_are_not_served_become_warnings() {
        let root = tempfile::tempdir().unwrap();
        for name in ["vicepa", "vicepb", "vicepc", "vicepzz", "vicep0", "other"] {
            std::fs::create_dir(root.path().join(name)).unwrap();
        }
        std::fs::write(root.path().join("vicepd"), "").unwrap();
        for file in ["vicepa/AlwaysAttach", "vicepc/AlwaysAttach", "vicepc/NeverAttach"] {
            std::fs::write(root.path().join(file), "").unwrap();
        }
        let mut warnings = Vec::new();
        let served = partitions(root.path(), &mut warnings).unwrap();
        assert_eq!(served.iter().map(|served| served.id.to_string()).collect::<Vec<_>>(), ["/vicepa"]);
        warnings.sort();
        for (warning, (name, why)) in warnings.iter().zip([
            ("vicep0", "partition names are"),
            ("vicepb", "no file system is mounted there"),
            ("vicepc", "it contains a file NeverAttach"),
            ("vicepd", "it is not a directory"),
            ("vicepzz", "partition names are"),
        ]) {
            let is_named = warning.contains(&format!("/{name} is not served: "));
            assert!(is_named && warning.contains(why), "{warning}");
        }
        assert_eq!(warnings.len(), 5);
        std::fs::remove_file(root.path().join("vicepa/AlwaysAttach")).unwrap();
        let refused = format!("{:#}", partitions(root.path(), &mut Vec::new()).err().unwrap());
        assert!(refused.contains("vicepb is not served"), "{refused}");
    }

    #[test]
    fn loose_key_files_are_accepted_if_that_is_set() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("cellar-security.toml");
        for (text, exposure) in
            [("", Exposure::Refused), ("[security]\nloose_key_files = true\n", Exposure::Allowed)]
        {
            std::fs::write(&path, text).unwrap();
            let security = SecuritySettings::load(&path).unwrap();
            assert_eq!(key_files(folder.path(), &security).exposure, exposure, "{text}");
        }
    }

    #[test]
    fn broken_lines_of_net_files_become_warnings() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("NetInfo"), "10.99.0.72 eth0\n10.99.0.300\n").unwrap();
        std::fs::write(folder.path().join("NetRestrict"), "172.16.0.0/12\n\neth1\n").unwrap();
        let mut warnings = Vec::new();
        let (info, restrict) = net_files(folder.path(), &mut warnings).unwrap();
        assert!(info.entries.len() == 1 && restrict.covers(Ipv4Addr::new(172, 17, 0, 1)));
        for (warning, place) in
            warnings.iter().zip(["NetInfo, line 2: `10.99.0.300`", "NetRestrict, line 3: `eth1`"])
        {
            assert!(warning.contains(place), "{warning}");
        }
        assert_eq!(warnings.len(), 2);
    }

    #[test]
    fn a_server_whose_databases_are_elsewhere_joins() {
        let server = |address: &str| CellServer {
            address: address.parse().unwrap(),
            host: String::new(),
            is_clone: false,
        };
        let machine = [Ipv4Addr::LOCALHOST, Ipv4Addr::new(192, 0, 2, 7)];
        for (servers, roles) in [
            (vec![], &Role::ALL[..]),
            (vec!["192.0.2.7"], &Role::ALL),
            (vec!["127.0.1.1"], &Role::ALL),
            (vec!["192.0.2.1"], &Role::JOINING),
            (vec!["192.0.2.7", "192.0.2.1"], &Role::JOINING),
        ] {
            let servers: Vec<CellServer> = servers.into_iter().map(server).collect();
            assert_eq!(default_roles(&servers, &machine), roles, "{servers:?}");
        }
    }

    #[test]
    fn mount_points_are_the_fifth_column() {
        let found = mount_points("36 35 98:0 /mnt1 /vicepa rw,noatime master:1 - ext3 /dev/root rw\n");
        assert!(found.contains(Path::new("/vicepa")));
    }
}
