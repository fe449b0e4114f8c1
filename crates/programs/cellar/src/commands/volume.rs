//! `cellar volume`.

mod creating;
mod files;
mod following;
mod mounting;
mod operations;
mod policy;
mod preflight;
mod quota;
mod removing;
mod repairing;
mod restoring;
mod sites;

use super::{Context, snapshot};
use crate::output::Row;
use afs_idl::{ClientConnection, vol};
use anyhow::{Result, bail};
use base::{AbortCode, PartitionId};
use cell_client::describe::failed;
use cell_client::location::Located;
use cell_client::{CellClient, Interface};
use clap::{Args, Subcommand};
use creating::first_partition;
use indicatif::HumanBytes;
use serde::Serialize;
use std::net::Ipv4Addr;

pub(super) use creating::QUOTA_KIB;
pub use creating::{Create, create_volume};
pub use mounting::make_mount_point;
pub(super) use mounting::preflight as foretell_mount_point;
pub(super) use operations::release_quietly;
pub(super) use policy::{Settings, change_settings, parse_compression};
pub(super) use quota::{in_words as quota_in_words, parse as parse_quota};
pub(super) use restoring::parse_site;
pub(super) use sites::{add_site, find_entry};

/// Manage volumes.
#[derive(Subcommand)]
pub enum Volume {
    /// Create a read-write volume.
    Create(Create),
    /// List the volumes of a server.
    List(Server),
    /// Show a volume.
    Examine(Name),
    /// Change a volume's quota, or how its new data is stored.
    Set(policy::Set),
    /// Drop a volume from the server's in-memory caches.
    Forget(policy::Forget),
    /// Remove a volume: its data and its entry in the location database.
    Remove(removing::Remove),
    /// Move a read-write volume to another server while it is in use.
    Move(operations::Move),
    /// Copy a read-write volume to a new volume.
    Copy(operations::CopyVolume),
    /// Update the read-only copies to the read-write volume's present contents.
    Release(operations::Release),
    /// Create or update the backup volume.
    Backup(operations::Backup),
    /// Turn a directory into a volume, and mount it in the directory's place.
    Split(operations::SplitVolume),
    /// Dump a volume to a file.
    Dump(files::DumpVolume),
    /// Create a volume from a dump file, or restore a dump over a volume.
    Restore(restoring::RestoreVolume),
    /// Make the location database agree with the volumes of the servers again.
    Repair(repairing::Repair),
    /// List, show, resume and cancel jobs: moves, copies, releases, backups, restores and splits.
    Jobs {
        /// What to do; jobs are listed by default.
        #[command(subcommand)]
        command: Option<following::Jobs>,
    },
    /// Manage named snapshots of a volume.
    Snapshot {
        /// What to do.
        #[command(subcommand)]
        command: snapshot::Snapshot,
    },
    /// Create a mount point: DIRECTORY/NAME leads to VOLUME.
    Mount(mounting::Mount),
    /// Remove a mount point.
    Unmount(mounting::Unmount),
}

/// List the volumes of a server.
#[derive(Args)]
pub struct Server {
    /// File server to query; defaults to the one in this machine's configuration, or else the first database
    /// server.
    #[arg(long)]
    on: Option<Ipv4Addr>,
}

/// Show a volume.
#[derive(Args)]
pub struct Name {
    /// Name or number of the volume.
    volume: String,
}

/// A volume as displayed.
#[derive(Serialize)]
struct VolumeView {
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
    /// Requested only when one volume is examined; OpenAFS's servers do not have it.
    compression: Option<String>,
    /// Whether chunks of equal contents are stored once; requested like `compression`.
    deduplication: Option<bool>,
}

/// A single volume, with the properties that are requested individually.
#[derive(Serialize)]
#[serde(transparent)]
struct Examined(VolumeView);

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

impl Row for VolumeView {
    const COLUMNS: &'static [&'static str] =
        &["NAME", "ID", "KIND", "SERVER", "PARTITION", "STATE", "USED", "QUOTA", "FILES", "UPDATED"];

    fn cells(&self) -> Vec<String> {
        let size = |kib: i32| HumanBytes(u64::try_from(kib).unwrap_or(0) << 10).to_string();
        let quota = if self.quota_kib == 0 { "none".into() } else { size(self.quota_kib) };
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
            time(self.updated),
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
        Volume::Jobs { command } => {
            following::run(context, command.as_ref().unwrap_or(&following::Jobs::ALL))
        }
        command => run_here(context, command),
    }
}

/// Runs the commands that need only a few requests.
fn run_here(context: &Context, command: &Volume) -> Result<()> {
    let cell = context.client()?;
    match command {
        Volume::Create(create) => creating::run(context, &cell, create),
        Volume::List(Server { on }) => {
            context.format.rows(&list(&cell, on.unwrap_or_else(|| context.default_server(&cell)))?)
        }
        Volume::Examine(Name { volume }) => context.format.rows(&[Examined(examine(&cell, volume)?)]),
        Volume::Set(set) => policy::set(context, &cell, set),
        Volume::Forget(forget) => policy::forget(context, &cell, forget),
        Volume::Remove(request) => removing::remove(context, &cell, request),
        Volume::Repair(request) => repairing::repair(context, &cell, request),
        Volume::Mount(mount) => mounting::mount(context, &cell, mount),
        Volume::Unmount(unmount) => mounting::unmount(context, &cell, unmount),
        _ => Ok(()),
    }
}

/// A transaction on a volume server; dropping it ends it, so that nothing stays locked.
struct Transaction<'a> {
    server: &'a dyn ClientConnection,
    id: i32,
}

impl<'a> Transaction<'a> {
    /// Begins a transaction with this `attach_mode`, which limits concurrent use of the volume.
    fn begin(
        flags: i32,
        server: &'a dyn ClientConnection,
        partition: PartitionId,
        volume: u32,
    ) -> Result<Transaction<'a>, AbortCode> {
        let partition = partition.index() as i32;
        let request = vol::TransCreateRequest { volume_id: volume, partition, flags };
        let id = vol::trans_create(server, &request)?.transaction;
        Ok(Transaction { server, id })
    }

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

/// Formats seconds since 1970.
fn time(seconds: u32) -> String {
    jiff::Timestamp::from_second(seconds.into())
        .map(|at| at.strftime("%F %T").to_string())
        .unwrap_or_default()
}

fn shown(info: &vol::VolintInfo, server: Ipv4Addr, partition: PartitionId) -> VolumeView {
    VolumeView {
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

fn list(cell: &CellClient, on: Ipv4Addr) -> Result<Vec<VolumeView>> {
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

/// Locates a volume for reading. Prints a warning if the location may be out of date.
pub(super) fn locate_to_read(cell: &CellClient, volume: &str) -> Result<Located> {
    let (located, may_be_behind) = cell.locate_to_read(volume)?;
    if may_be_behind {
        eprintln!(
            "cellar: no location server accepts changes now; the location of {volume} comes from a server \
            that may be out of date"
        );
    }
    Ok(located)
}

fn examine(cell: &CellClient, volume: &str) -> Result<VolumeView> {
    let located = locate_to_read(cell, volume)?;
    let (site, id) = located.readable_site(volume)?;
    let server = cell.connection(site.server, Interface::Volumes);
    let request = vol::ListOneVolumeRequest { partition: site.partition.index() as i32, volume_id: id.0 };
    let reply = vol::list_one_volume(&*server, &request).map_err(failed(format!("examine {volume}")))?;
    match reply.entries.first() {
        Some(info) => {
            let compression = policy::effective(cell, site.server, id.0);
            let deduplication = policy::deduplicates(cell, site.server, id.0);
            Ok(VolumeView { compression, deduplication, ..shown(info, site.server, site.partition) })
        }
        None => bail!("{} reports nothing about the volume {volume}", site.server),
    }
}
