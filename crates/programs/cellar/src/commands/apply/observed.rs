//! The present state of a cell, as far as a file declares it.

use super::declared::{Declared, Mount};
use crate::commands::{protection, snapshot, volume};
use afs_format::acl::{AclLine, AclText};
use afs_idl::{cellar, pr, vl, vol};
use anyhow::{Context as _, Result};
use base::{AbortCode, PartitionId, Rights};
use cell_client::describe::failed;
use cell_client::files::Node;
use cell_client::location::{Located, Site};
use cell_client::path::CellPath;
use cell_client::{CellClient, Interface};
use std::collections::{BTreeMap, BTreeSet};
use std::net::Ipv4Addr;

/// Maximum number of names to look up in one call (PR_MAXLIST is 5000).
const NAMES_MAX: usize = 1000;

/// Everything that the plan depends on.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Observed {
    /// Existing users and groups, by name: those that the file declares or mentions.
    pub(super) entries: BTreeMap<String, Entry>,
    /// Existing volumes among those declared, by name.
    pub(super) volumes: BTreeMap<String, Volume>,
    /// State of each declared mount point, by its place.
    pub(super) mounts: BTreeMap<String, Place>,
    /// Addresses of each file server.
    pub(super) servers: Vec<Vec<Ipv4Addr>>,
    /// Server for new volumes without a declared one.
    pub(super) default_server: Option<Ipv4Addr>,
}

/// A user or group. Only those that are declared have more than a number.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Entry {
    pub(super) id: i32,
    pub(super) owner: String,
    /// Access bits as on the wire.
    pub(super) access: u32,
    pub(super) members: BTreeSet<String>,
}

/// An access list by names.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct AccessList {
    pub(super) granted: BTreeMap<String, Rights>,
    pub(super) denied: BTreeMap<String, Rights>,
}

/// A read-write volume.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Volume {
    pub(super) server: Ipv4Addr,
    pub(super) partition: PartitionId,
    pub(super) quota_kib: i32,
    /// Owner of the root directory.
    pub(super) owner: i32,
    pub(super) acl: AccessList,
    /// Settings of Cellar's servers; `None` if the server has none.
    pub(super) policy: Option<Policy>,
    /// Read-only sites.
    pub(super) sites: Vec<Site>,
    /// The released copy's root; `None` if the volume was never released to all its sites.
    pub(super) published: Option<Published>,
}

/// How a Cellar server stores a volume and keeps snapshots of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Policy {
    /// A codec; empty for the server's default.
    pub(super) compression: String,
    pub(super) deduplication: bool,
    /// Numbers of hourly, daily, weekly and monthly snapshots.
    pub(super) snapshots: [u32; 4],
}

/// What read-only copies show of the declared properties.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Published {
    pub(super) owner: i32,
    pub(super) acl: AccessList,
}

/// State of the place of a mount point.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Place {
    /// The volume of the path does not exist.
    NoVolume,
    /// The directory does not exist.
    NoDirectory,
    /// The directory has no such entry.
    Free,
    /// A mount point with these contents, without the final dot; whether the released copy of the path's
    /// volume, if there is one, has the same.
    Mount { contents: String, is_published: bool },
    /// Something else.
    Occupied,
}

/// Reads the state of a cell.
///
/// # Errors
/// If a server refuses or does not answer.
pub(super) fn observe(cell: &CellClient, declared: &Declared, default_server: Ipv4Addr) -> Result<Observed> {
    let entries = entries(cell, declared)?;
    let mut volumes = BTreeMap::new();
    for wanted in &declared.volumes {
        if let Some(found) = observe_volume(cell, &wanted.name)? {
            volumes.insert(wanted.name.clone(), found);
        }
    }
    let mut mounts = BTreeMap::new();
    for mount in &declared.mounts {
        let published = volumes.get(&mount.place.volume).is_some_and(|volume| volume.published.is_some());
        mounts.insert(mount.place_text(), place(cell, mount, published)?);
    }
    let servers = cell.file_server_table().map_err(failed("list the file servers"))?;
    Ok(Observed { entries, volumes, mounts, servers, default_server: Some(default_server) })
}

fn entries(cell: &CellClient, declared: &Declared) -> Result<BTreeMap<String, Entry>> {
    let names = declared.names();
    let mut entries = BTreeMap::new();
    for names in names.chunks(NAMES_MAX) {
        let ids = protection::find_ids(cell, names)?;
        for (name, id) in names.iter().zip(ids) {
            entries.extend(id.map(|id| (name.clone(), Entry { id, ..Entry::default() })));
        }
    }
    let declared_names = declared.users.iter().map(|user| &user.name);
    for name in declared_names.chain(declared.groups.iter().map(|group| &group.name)) {
        if let Some(entry) = entries.get_mut(name) {
            *entry = observe_entry(cell, name, entry.id)?;
        }
    }
    Ok(entries)
}

fn observe_entry(cell: &CellClient, name: &str, id: i32) -> Result<Entry> {
    let doing = || failed(format!("examine {name}"));
    let request = pr::ListEntryRequest { id };
    let reply = cell.database(Interface::Protection, |pr| pr::list_entry(pr, &request)).map_err(doing())?;
    let members = match id {
        ..0 => protection::elements_of(cell, id).map_err(doing())?,
        _ => Vec::new(),
    };
    let mut names = protection::names_of(cell, [&[reply.entry.owner][..], members.as_slice()].concat())?;
    anyhow::ensure!(names.len() == members.len() + 1, "the server left out names of the members of {name}");
    let members = names.split_off(1).into_iter().collect();
    let access = u32::try_from(reply.entry.flags).unwrap_or_default() & 0xff;
    Ok(Entry { id, owner: names.remove(0), access, members })
}

fn observe_volume(cell: &CellClient, name: &str) -> Result<Option<Volume>> {
    let Some(entry) = volume::find_entry(cell, name)? else { return Ok(None) };
    let located = Located::from_wire(&entry);
    let (site, id) = (located.read_write_site()?, located.read_write().0);
    let root = cell.root_of(name)?;
    Ok(Some(Volume {
        server: site.server,
        partition: site.partition,
        quota_kib: quota(cell, site, id).map_err(failed(format!("examine {name}")))?,
        owner: owner(&root),
        acl: access_list(cell, &root, name)?,
        policy: policy(cell, site.server, id)?,
        sites: located.sites.iter().filter(|site| !site.is_read_write).cloned().collect(),
        published: published(cell, &entry, name)?,
    }))
}

fn quota(cell: &CellClient, site: &Site, id: u32) -> Result<i32, AbortCode> {
    let server = cell.connection(site.server, Interface::Volumes);
    let request = vol::ListOneVolumeRequest { partition: site.partition.index() as i32, volume_id: id };
    let reply = vol::list_one_volume(&*server, &request)?;
    reply.entries.first().map(|info| info.max_quota).ok_or(AbortCode::VL_NOENT)
}

fn owner(root: &Node) -> i32 {
    root.status.owner.cast_signed()
}

fn access_list(cell: &CellClient, root: &Node, name: &str) -> Result<AccessList> {
    let text = cell.acl(root).map_err(failed(format!("read the ACL of {name}")))?;
    let text = AclText::parse(&text).with_context(|| format!("in the ACL of {name}"))?;
    let plain = |lines: Vec<AclLine>| {
        let line = |line: AclLine| (String::from_utf8_lossy(&line.name).into_owned(), line.rights);
        lines.into_iter().map(line).collect()
    };
    Ok(AccessList { granted: plain(text.positive), denied: plain(text.negative) })
}

/// Returns the policy of a volume; `None` from a server without Cellar's own service.
fn policy(cell: &CellClient, server: Ipv4Addr, volume: u32) -> Result<Option<Policy>> {
    let connection = cell.connection(server, Interface::Cellar);
    let doing = || failed(format!("read the policies of the volume {volume} on {server}"));
    let request = cellar::GetVolumePolicyRequest { volume };
    let compression = match cellar::get_volume_policy(&*connection, &request) {
        Err(AbortCode::RXGEN_OPCODE | AbortCode::RX_INVALID_OPERATION) => return Ok(None),
        reply => reply.map_err(doing())?.compression.to_string(),
    };
    let request = cellar::GetVolumeDeduplicationRequest { volume };
    let deduplication = cellar::get_volume_deduplication(&*connection, &request).map_err(doing())?;
    let request = cellar::GetSnapshotPolicyRequest { volume };
    let kept = cellar::get_snapshot_policy(&*connection, &request).map_err(doing())?.policy;
    let snapshots = snapshot::counts(&kept);
    Ok(Some(Policy { compression, deduplication: deduplication.enabled != 0, snapshots }))
}

/// Returns what the read-only copies show; `None` if there are none, or if a release did not reach all sites.
fn published(cell: &CellClient, entry: &vl::NVldbEntry, name: &str) -> Result<Option<Published>> {
    use vl::{entry_flags, site_flags};
    let count = usize::try_from(entry.server_count).unwrap_or(0).min(vl::SITES);
    let unfinished = site_flags::NEW_REPLICA | site_flags::DO_NOT_USE;
    let is_unfinished = entry.server_flags[..count].iter().any(|flags| flags & unfinished != 0);
    if entry.flags & entry_flags::READ_ONLY_EXISTS == 0 || is_unfinished {
        return Ok(None);
    }
    let root = cell.root_of(&read_only(name))?;
    Ok(Some(Published { owner: owner(&root), acl: access_list(cell, &root, name)? }))
}

fn read_only(volume: &str) -> String {
    format!("{volume}.readonly")
}

/// Returns the state of a mount point's place; `has_copy` says whether the path's volume has a released copy.
fn place(cell: &CellClient, mount: &Mount, has_copy: bool) -> Result<Place> {
    if cell.find_newest(&mount.place.volume)?.is_none() {
        return Ok(Place::NoVolume);
    }
    let found = look(cell, &mount.place)?;
    let Place::Mount { contents, .. } = found else { return Ok(found) };
    let copy = CellPath { volume: read_only(&mount.place.volume), ..mount.place.clone() };
    let is_published =
        !has_copy || matches!(look(cell, &copy)?, Place::Mount { contents: shown, .. } if shown == contents);
    Ok(Place::Mount { contents, is_published })
}

fn look(cell: &CellClient, path: &CellPath) -> Result<Place> {
    let (parent, name) = path.split_last().context("the path has no name")?;
    // Each directory on the way is looked up, because `find` fails if one of them is missing.
    let mut reached = CellPath { volume: parent.volume.clone(), components: Vec::new(), is_directory: true };
    for component in &parent.components {
        reached = reached.join(component);
        if !cell.find(&reached)?.is_some_and(|node| node.is_directory()) {
            return Ok(Place::NoDirectory);
        }
    }
    let Some(directory) = cell.find(&parent)? else { return Ok(Place::NoDirectory) };
    match cell.child(&directory, name.as_bytes())? {
        None => Ok(Place::Free),
        Some(node) if node.is_mount_point() => {
            let contents = base::text::escape(&cell.read_link(&node)?);
            let contents = contents.strip_suffix('.').unwrap_or(&contents).to_owned();
            Ok(Place::Mount { contents, is_published: true })
        }
        Some(_) => Ok(Place::Occupied),
    }
}
