//! `cellar volume move`, `copy`, `release`, `backup`, `split`: operations that are jobs.

use super::{following, preflight};
use crate::commands::Context;
use anyhow::{Context as _, Result, bail};
use base::{PartitionId, VnodeId, VolumeId, VolumeName};
use cell_client::location::Located;
use cell_client::path::CellPath;
use cell_client::{CellClient, Interface};
use clap::Args;
use jobs::{Job, Operation, Place};
use std::net::Ipv4Addr;

/// Move a read-write volume to another server.
#[derive(Args)]
pub struct Move {
    /// Name or number of the read-write volume.
    volume: String,
    /// Target server.
    #[arg(long)]
    to: Ipv4Addr,
    /// Target partition, like `a`; the server's first by default.
    #[arg(long)]
    partition: Option<PartitionId>,
    #[command(flatten)]
    how: How,
}

/// Copy a read-write volume to a new volume.
#[derive(Args)]
pub struct CopyVolume {
    /// Name or number of the read-write volume.
    volume: String,
    /// Name of the new volume.
    name: VolumeName,
    /// Target server; the volume's own by default.
    #[arg(long)]
    to: Option<Ipv4Addr>,
    /// Target partition, like `a`; by default the volume's own, or on another server its first.
    #[arg(long)]
    partition: Option<PartitionId>,
    #[command(flatten)]
    how: How,
}

/// Update the read-only copies of a volume.
#[derive(Args)]
pub struct Release {
    /// Name or number of the volume.
    volume: String,
    /// Send everything to every site, even if it is up to date.
    #[arg(long)]
    all: bool,
    #[command(flatten)]
    how: How,
}

/// Create or update the backup volume.
#[derive(Args)]
pub struct Backup {
    /// Name or number of the read-write volume.
    volume: String,
    #[command(flatten)]
    how: How,
}

/// Turn a directory into a volume.
#[derive(Args)]
pub struct SplitVolume {
    /// VOLUME/PATH of the directory. Everything below it moves to the new volume.
    directory: String,
    /// Name of the new volume, which is created on the same partition.
    #[arg(long)]
    to: VolumeName,
    #[command(flatten)]
    how: How,
}

/// How to run the job.
#[derive(Args)]
pub(super) struct How {
    /// Show what would be done without doing it.
    #[arg(long)]
    dry_run: bool,
    /// Hand the job to this machine's Cellar server and return immediately.
    #[arg(long, conflicts_with = "dry_run")]
    detach: bool,
}

/// Moves a volume.
pub(super) fn move_volume(context: &Context, request: &Move) -> Result<()> {
    let cell = context.client()?;
    let partition = match request.partition {
        Some(partition) => partition,
        None => first_partition(&cell, request.to)?,
    };
    let to = Place { server: request.to, partition: partition.index() as i32 };
    do_job(context, &cell, &request.volume, &Operation::Move(jobs::Move { to }), &request.how)
}

/// Copies a volume.
pub(super) fn copy_volume(context: &Context, request: &CopyVolume) -> Result<()> {
    let cell = context.client()?;
    let from = place_of(&cell.locate_newest(&request.volume)?)?;
    let server = request.to.unwrap_or(from.server);
    let partition = match request.partition {
        Some(partition) => partition.index() as i32,
        None if server == from.server => from.partition,
        None => first_partition(&cell, server)?.index() as i32,
    };
    let operation =
        Operation::Copy(jobs::Copy { name: request.name.to_string(), to: Place { server, partition } });
    do_job(context, &cell, &request.volume, &operation, &request.how)
}

/// Releases a volume.
pub(super) fn release(context: &Context, request: &Release) -> Result<()> {
    let cell = context.client()?;
    do_job(
        context,
        &cell,
        &request.volume,
        &Operation::Release(jobs::Release { all: request.all }),
        &request.how,
    )
}

/// Releases a volume without printing the result.
pub(in crate::commands) fn release_quietly(context: &Context, cell: &CellClient, volume: &str) -> Result<()> {
    let located = cell.locate_newest(volume)?;
    let (from, id) = (place_of(&located)?, located.read_write().0);
    let kept = following::journal_for(context, false)?;
    let operation = Operation::Release(jobs::Release { all: false });
    let (mut job, _claim) =
        kept.journal.begin(|number| Job::new(number, operation.clone(), id, &located.name, from))?;
    let end = following::carry_on(context, cell, &kept.journal, &mut job)?;
    following::outcome(&job, end).map(drop)
}

/// Backs a volume up.
pub(super) fn back_up(context: &Context, request: &Backup) -> Result<()> {
    do_job(context, &context.client()?, &request.volume, &Operation::Backup, &request.how)
}

/// Turns a directory into a volume.
pub(super) fn split(context: &Context, request: &SplitVolume) -> Result<()> {
    let (cell, place) = (context.client()?, &request.directory);
    let path = CellPath::parse(place.strip_prefix("cell:").unwrap_or(place))?;
    let node = cell.find(&path)?.with_context(|| format!("{place} does not exist"))?;
    if !node.is_directory() {
        bail!("{place} is not a directory");
    }
    if node.fid.vnode == VnodeId::ROOT {
        bail!("{place} is the root of a volume; give a directory below it");
    }
    // The directory may belong to a volume mounted along the path.
    let volume = node.fid.volume.0.to_string();
    if !is_read_write(&cell, node.fid.volume)? {
        bail!("{place} is in a volume that is not read-write");
    }
    let (directory, name) = (node.fid.vnode.0, request.to.to_string());
    let operation = Operation::Split(jobs::Split { directory, path: path.to_string(), name });
    do_job(context, &cell, &volume, &operation, &request.how)
}

/// Returns whether a number is that of a read-write volume.
pub(super) fn is_read_write(cell: &CellClient, volume: VolumeId) -> Result<bool> {
    Ok(cell.locate_newest(&volume.0.to_string())?.read_write() == volume)
}

fn first_partition(cell: &CellClient, server: Ipv4Addr) -> Result<PartitionId> {
    super::first_partition(&*cell.connection(server, Interface::Volumes))
        .with_context(|| format!("on {server}"))
}

fn place_of(located: &Located) -> Result<Place> {
    let site = located.read_write_site()?;
    Ok(Place { server: site.server, partition: site.partition.index() as i32 })
}

fn do_job(
    context: &Context,
    cell: &CellClient,
    volume: &str,
    operation: &Operation,
    how: &How,
) -> Result<()> {
    let located = cell.locate_newest(volume)?;
    let from = place_of(&located)?;
    let (id, name) = (located.read_write().0, located.name.as_str());
    let make = |number| Job::new(number, operation.clone(), id, name, from);
    if !how.dry_run {
        let kept = following::journal_for(context, how.detach)?;
        let (job, claim) = kept.journal.begin(make)?;
        if how.detach {
            drop(claim);
            return following::report_detached(context, &job);
        }
        return following::follow(context, cell, &kept.journal, job);
    }
    preflight::preflight(context, cell, &make(0))
}

#[cfg(test)]
mod tests {
    use super::*;
    use cell_client::fakes::{behind, server};

    #[test]
    fn mount_points_are_read_at_the_sync_site() {
        let (fakes, asked) = behind::cell();
        assert!(!is_read_write(&fakes.cell(3), VolumeId(7)).unwrap());
        assert_eq!(*asked.lock(), [server(3)]);
    }
}
