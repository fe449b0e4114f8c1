//! `cellar volume`.

mod files;
mod following;
mod operations;
mod policy;
mod removing;
mod restoring;

use super::{Context, snapshot};
use crate::client::describe::failed;
use crate::client::files::{Attributes, Node};
use crate::client::location::Located;
use crate::client::path::CellPath;
use crate::client::{CellClient, Interface};
use crate::network::now;
use crate::output::Row;
use afs_idl::{ClientConnection, vl, vol};
use anyhow::{Context as _, Result, bail};
use base::{AbortCode, PartitionId, Rights, VolumeName};
use clap::{Args, Subcommand};
use indicatif::HumanBytes;
use serde::Serialize;
use std::net::Ipv4Addr;

/// Volumes.
#[derive(Subcommand)]
pub enum Volume {
    /// Make a read-write volume.
    Create(Create),
    /// List the volumes of a server.
    List(Server),
    /// Show one volume.
    Examine(Name),
    /// Change how a volume's data is stored from now on.
    Set(policy::Set),
    /// Throw what the server holds of a volume in memory out of its caches.
    Forget(Name),
    /// Remove a volume: its data and its entry in the location database.
    Remove(removing::Remove),
    /// Move a read-write volume to another server while it is in use.
    Move(operations::Move),
    /// Copy a read-write volume to a new one.
    Copy(operations::CopyVolume),
    /// Bring the read-only copies to what the read-write volume is now.
    Release(operations::Release),
    /// Make the backup volume, or bring it up to date.
    Backup(operations::Backup),
    /// Make a directory a volume of its own, and put a mount point in its place.
    Split(operations::SplitVolume),
    /// Write a volume into a file.
    Dump(files::DumpVolume),
    /// Make a volume of a dump in a file, or restore one over a volume.
    Restore(restoring::RestoreVolume),
    /// What moves, copies, releases and backups you began, and how they went.
    Jobs {
        /// What to do.
        #[command(subcommand)]
        command: following::Jobs,
    },
    /// Named snapshots of a volume.
    Snapshot {
        /// What to do.
        #[command(subcommand)]
        command: snapshot::Snapshot,
    },
    /// Make a mount point: DIRECTORY/NAME leads to VOLUME.
    Mount(Mount),
    /// Remove a mount point.
    Unmount(Unmount),
}

/// A new volume.
#[derive(Args)]
pub struct Create {
    /// Its name.
    name: VolumeName,
    /// The file server; the first database server if left out.
    #[arg(long)]
    on: Option<Ipv4Addr>,
    /// The partition, like `a`; the server's first if left out.
    #[arg(long)]
    partition: Option<PartitionId>,
    /// Most KiB it may hold; 0 is unlimited.
    #[arg(long, default_value_t = 5000, value_parser = clap::value_parser!(i32).range(0..))]
    quota: i32,
    /// Rights on its root directory besides the administrators', like `system:anyuser=rl`.
    #[arg(long, value_name = "WHO=RIGHTS")]
    acl: Vec<String>,
}

impl Create {
    /// A volume on the default server and partition.
    pub fn with_acl(name: VolumeName, quota: i32, acl: &[&str]) -> Create {
        Create {
            name,
            on: None,
            partition: None,
            quota,
            acl: acl.iter().map(|&grant| grant.to_owned()).collect(),
        }
    }
}

/// A server.
#[derive(Args)]
pub struct Server {
    /// The file server; the first database server if left out.
    #[arg(long)]
    on: Option<Ipv4Addr>,
}

/// A volume.
#[derive(Args)]
pub struct Name {
    /// Its name or number.
    volume: String,
}

/// A mount point.
#[derive(Args)]
pub struct Mount {
    /// Where: VOLUME/PATH of the mount point.
    place: String,
    /// The volume it leads to.
    volume: VolumeName,
    /// Lead to the read-write volume even where there are read-only ones.
    #[arg(long)]
    read_write: bool,
}

/// A mount point to remove.
#[derive(Args)]
pub struct Unmount {
    /// VOLUME/PATH of the mount point.
    place: String,
}

/// What is shown of a volume.
#[derive(Serialize)]
struct Shown {
    name: String,
    id: u32,
    kind: &'static str,
    server: Ipv4Addr,
    partition: String,
    online: bool,
    used_kib: i32,
    quota_kib: i32,
    files: i32,
    updated: u32,
    /// Asked for only when one volume is examined; OpenAFS's servers have none.
    compression: Option<String>,
    /// Likewise: chunks of equal contents are stored once from now on.
    deduplication: Option<bool>,
}

/// One volume with what its server tells of it alone.
#[derive(Serialize)]
#[serde(transparent)]
struct Examined(Shown);

impl Row for Examined {
    const COLUMNS: &'static [&'static str] = &[
        "NAME",
        "ID",
        "KIND",
        "SERVER",
        "PARTITION",
        "STATE",
        "USED",
        "QUOTA",
        "FILES",
        "UPDATED",
        "COMPRESSION",
        "DEDUPLICATION",
    ];

    fn cells(&self) -> Vec<String> {
        let mut cells = self.0.cells();
        cells.push(self.0.compression.clone().unwrap_or_else(|| "-".into()));
        cells.push(self.0.deduplication.map_or("-", policy::on_or_off).into());
        cells
    }
}

impl Row for Shown {
    const COLUMNS: &'static [&'static str] =
        &["NAME", "ID", "KIND", "SERVER", "PARTITION", "STATE", "USED", "QUOTA", "FILES", "UPDATED"];

    fn cells(&self) -> Vec<String> {
        let size = |kib: i32| HumanBytes(u64::try_from(kib).unwrap_or(0) << 10).to_string();
        let quota = if self.quota_kib == 0 { "none".into() } else { size(self.quota_kib) };
        let updated =
            jiff::Timestamp::from_second(self.updated.into()).map(|at| at.strftime("%F %T").to_string());
        vec![
            self.name.clone(),
            self.id.to_string(),
            self.kind.into(),
            self.server.to_string(),
            self.partition.clone(),
            if self.online { "online" } else { "offline" }.into(),
            size(self.used_kib),
            quota,
            self.files.to_string(),
            updated.unwrap_or_default(),
        ]
    }
}

/// Runs the command.
pub fn run(context: &Context, command: &Volume) -> Result<()> {
    match command {
        Volume::Snapshot { command } => snapshot::run(context, command),
        Volume::Move(request) => operations::move_volume(context, request),
        Volume::Copy(request) => operations::copy_volume(context, request),
        Volume::Release(request) => operations::release(context, request),
        Volume::Backup(request) => operations::back_up(context, request),
        Volume::Split(request) => operations::split(context, request),
        Volume::Dump(request) => files::dump(context, request),
        Volume::Restore(request) => restoring::restore(context, request),
        Volume::Jobs { command } => following::run(context, command),
        command => run_here(context, command),
    }
}

/// The commands that ask a few servers once.
fn run_here(context: &Context, command: &Volume) -> Result<()> {
    let cell = context.client()?;
    match command {
        Volume::Create(create) => {
            let made = create_volume(&cell, create)?;
            let sentence =
                format!("{} is volume {} on {} {}", made.name, made.id, made.server, made.partition);
            context.format.done(&made, sentence)
        }
        Volume::List(Server { on }) => {
            context.format.rows(&list(&cell, on.unwrap_or(cell.default_server()))?)
        }
        Volume::Examine(Name { volume }) => context.format.rows(&[Examined(examine(&cell, volume)?)]),
        Volume::Set(set) => {
            let (changed, sentence) = policy::set(&cell, set)?;
            context.format.done(&changed, sentence)
        }
        Volume::Forget(Name { volume }) => {
            let (forgotten, sentence) = policy::forget(&cell, volume)?;
            context.format.done(&forgotten, sentence)
        }
        Volume::Remove(request) => removing::remove(context, &cell, request),
        Volume::Mount(mount) => {
            make_mount_point(&cell, &mount.place, mount.volume.as_str(), mount.read_write)?;
            context.format.done(&true, format!("{} leads to {}", mount.place, mount.volume))
        }
        Volume::Unmount(Unmount { place }) => {
            unmount(&cell, place)?;
            context.format.done(&true, format!("{place} is removed"))
        }
        _ => Ok(()),
    }
}

/// A transaction on a volume server; ended when dropped, so that nothing stays locked.
struct Transaction<'a> {
    server: &'a dyn ClientConnection,
    id: i32,
}

impl Transaction<'_> {
    fn end(self) -> Result<(), AbortCode> {
        let id = self.id;
        let reply = vol::end_trans(self.server, &vol::EndTransRequest { transaction: id });
        std::mem::forget(self);
        match reply? {
            vol::EndTransReply { code: 0 } => Ok(()),
            vol::EndTransReply { code } => Err(AbortCode(code)),
        }
    }
}

impl Drop for Transaction<'_> {
    fn drop(&mut self) {
        let _ = vol::end_trans(self.server, &vol::EndTransRequest { transaction: self.id });
    }
}

/// A volume that was made.
#[derive(Serialize)]
pub struct Made {
    name: String,
    id: u32,
    server: Ipv4Addr,
    partition: String,
}

/// Makes a volume the way `vos create` does: number, volume, entry; undone if the entry cannot be made.
pub fn create_volume(cell: &CellClient, create: &Create) -> Result<Made> {
    let name = create.name.as_str();
    cell.check_name_is_free(name)?;
    let on = create.on.unwrap_or(cell.default_server());
    let server = cell.connection(on, Interface::Volumes);
    let partition = match create.partition {
        Some(partition) => partition,
        None => first_partition(&*server).with_context(|| format!("on {on}"))?,
    };
    let request = vl::GetNewVolumeIdRequest { bump_count: 3 };
    let id = cell
        .database(Interface::Locations, |vl| vl::get_new_volume_id(vl, &request))
        .map_err(failed("get a volume number"))?
        .new_volume_id;
    make(&*server, create, partition, id)
        .map_err(failed(format!("make the volume {name} on {on} {partition}")))?;
    if let Err(error) = register(cell, on, partition, name, id) {
        nuke(&*server, partition, id)
            .map_err(failed(format!("remove the unregistered volume {id} again")))?;
        return Err(error);
    }
    grant(cell, name, &create.acl)?;
    Ok(Made { name: name.into(), id, server: on, partition: partition.to_string() })
}

fn first_partition(server: &dyn ClientConnection) -> Result<PartitionId> {
    let reply =
        vol::x_list_partitions(server, &vol::XListPartitionsRequest).map_err(failed("list partitions"))?;
    let first =
        reply.partitions.iter().find_map(|&number| PartitionId::from_index(u32::try_from(number).ok()?));
    first.context("the server has no partition")
}

fn make(
    server: &dyn ClientConnection,
    create: &Create,
    partition: PartitionId,
    id: u32,
) -> Result<(), AbortCode> {
    let request = vol::CreateVolumeRequest {
        partition: partition.index() as i32,
        name: create.name.as_str().into(),
        volume_type: vol::volume_type::READ_WRITE,
        parent_id: 0,
        volume_id: id,
    };
    let transaction = Transaction { server, id: vol::create_volume(server, &request)?.transaction };
    let info = vol::VolintInfo {
        max_quota: create.quota,
        creation_date: u32::MAX,
        access_date: u32::MAX,
        update_date: u32::MAX,
        day_use: -1,
        spare0: -1,
        spare1: -1,
        spare2: -1,
        spare3: -1,
        flags: -1,
        ..vol::VolintInfo::default()
    };
    vol::set_info(server, &vol::SetInfoRequest { transaction: transaction.id, info })?;
    vol::set_flags(server, &vol::SetFlagsRequest { transaction: transaction.id, flags: 0 })?;
    transaction.end()
}

fn register(cell: &CellClient, on: Ipv4Addr, partition: PartitionId, name: &str, id: u32) -> Result<()> {
    let mut entry = vl::NVldbEntry {
        name: name.into(),
        server_count: 1,
        volume_id: [id, id + 1, id + 2],
        flags: vl::entry_flags::READ_WRITE_EXISTS,
        ..vl::NVldbEntry::default()
    };
    entry.server_number[0] = on.into();
    entry.server_partition[0] = partition.index() as i32;
    entry.server_flags[0] = vl::site_flags::READ_WRITE;
    let request = vl::CreateEntryNRequest { new_entry: entry };
    cell.database(Interface::Locations, |vl| vl::create_entry_n(vl, &request))
        .map(drop)
        .map_err(failed(format!("register the volume {name}")))
}

fn nuke(server: &dyn ClientConnection, partition: PartitionId, id: u32) -> Result<(), AbortCode> {
    let request = vol::NukeVolumeRequest { partition: partition.index() as i32, volume_id: id };
    vol::nuke_volume(server, &request).map(drop)
}

/// Adds `WHO=RIGHTS` grants to the ACL of a volume's root directory.
fn grant(cell: &CellClient, volume: &str, grants: &[String]) -> Result<()> {
    if grants.is_empty() {
        return Ok(());
    }
    let mut lines = vec!["system:administrators\t127".to_owned()];
    for grant in grants {
        let (who, letters) = grant
            .split_once('=')
            .with_context(|| format!("`{grant}` is not WHO=RIGHTS, like system:anyuser=rl"))?;
        let rights: Rights = letters.parse().map_err(anyhow::Error::msg)?;
        lines.push(format!("{who}\t{}", rights.bits()));
    }
    let text = format!("{}\n0\n{}\n", lines.len(), lines.join("\n"));
    let root = cell.root_of(volume)?;
    cell.set_acl(&root, text.as_bytes()).map_err(failed(format!("set the ACL of {volume}")))
}

fn shown(info: &vol::VolintInfo, server: Ipv4Addr, partition: PartitionId) -> Shown {
    Shown {
        name: info.name.to_string(),
        id: info.volume_id,
        kind: match info.volume_type {
            vol::volume_type::READ_ONLY => "read-only",
            vol::volume_type::BACKUP => "backup",
            _ => "read-write",
        },
        server,
        partition: partition.to_string(),
        online: info.in_use != 0,
        used_kib: info.size,
        quota_kib: info.max_quota,
        files: info.file_count,
        updated: info.update_date,
        compression: None,
        deduplication: None,
    }
}

fn list(cell: &CellClient, on: Ipv4Addr) -> Result<Vec<Shown>> {
    let server = cell.connection(on, Interface::Volumes);
    let reply = vol::x_list_partitions(&*server, &vol::XListPartitionsRequest)
        .map_err(failed(format!("list the partitions of {on}")))?;
    let mut rows = Vec::new();
    for number in reply.partitions {
        let Some(partition) = u32::try_from(number).ok().and_then(PartitionId::from_index) else { continue };
        let request = vol::ListVolumesRequest { partition: number, flags: 1 };
        let reply =
            vol::list_volumes(&*server, &request).map_err(failed(format!("list {on} {partition}")))?;
        rows.extend(reply.entries.iter().map(|info| shown(info, on, partition)));
    }
    Ok(rows)
}

/// Where a volume is that is read or looked at. Who is told what may not be so any more is told that, too.
pub(super) fn locate_to_read(cell: &CellClient, volume: &str) -> Result<Located> {
    let (located, may_be_behind) = cell.locate_to_read(volume)?;
    if may_be_behind {
        eprintln!(
            "cellar: no location server takes changes now; that {volume} is where another one says may not be so any more"
        );
    }
    Ok(located)
}

fn examine(cell: &CellClient, volume: &str) -> Result<Shown> {
    let located = locate_to_read(cell, volume)?;
    let (site, id) = located.readable_site()?;
    let server = cell.connection(site.server, Interface::Volumes);
    let request = vol::ListOneVolumeRequest { partition: site.partition.index() as i32, volume_id: id.0 };
    let reply = vol::list_one_volume(&*server, &request).map_err(failed(format!("examine {volume}")))?;
    match reply.entries.first() {
        Some(info) => {
            let compression = policy::effective(cell, site.server, id.0);
            let deduplication = policy::deduplicates(cell, site.server, id.0);
            Ok(Shown { compression, deduplication, ..shown(info, site.server, site.partition) })
        }
        None => bail!("{} says nothing about the volume {volume}", site.server),
    }
}

/// The directory and last component of `VOLUME/PATH`.
fn parent_of(cell: &CellClient, place: &str) -> Result<(Node, String)> {
    let path = CellPath::parse(place.strip_prefix("cell:").unwrap_or(place))?;
    let (parent, name) =
        path.split_last().with_context(|| format!("`{place}` is a volume's root; name a place in it"))?;
    let node = cell.find(&parent)?.with_context(|| format!("{parent} does not exist"))?;
    Ok((node, name.to_owned()))
}

/// Makes a mount point: a symbolic link of mode 0644 whose contents name the volume.
pub fn make_mount_point(cell: &CellClient, place: &str, volume: &str, read_write: bool) -> Result<()> {
    let (directory, name) = parent_of(cell, place)?;
    let contents = format!("{}{volume}.", if read_write { '%' } else { '#' });
    let attributes = Attributes { mode: 0o644, modified: now().0 };
    cell.symlink(&directory, name.as_bytes(), contents.as_bytes(), attributes)
        .map_err(failed(format!("make the mount point {place}")))
}

fn unmount(cell: &CellClient, place: &str) -> Result<()> {
    let (directory, name) = parent_of(cell, place)?;
    match cell.child(&directory, name.as_bytes())? {
        Some(node) if node.is_mount_point() => {}
        Some(_) => bail!("{place} is no mount point"),
        None => bail!("{place} does not exist"),
    }
    cell.remove(&directory, name.as_bytes()).map_err(failed(format!("remove the mount point {place}")))
}
