//! `cellar volume mount` and `unmount`.

use super::operations::is_read_write;
use crate::commands::Context;
use anyhow::{Context as _, Result, bail};
use base::{AbortCode, Rights, VolumeName};
use cell_client::CellClient;
use cell_client::describe::failed;
use cell_client::files::{Attributes, Node};
use cell_client::network::now;
use cell_client::path::CellPath;
use clap::Args;
use serde::Serialize;

/// Create a mount point.
#[derive(Args)]
pub struct Mount {
    /// VOLUME/PATH of the mount point.
    place: String,
    /// Name of the volume it leads to.
    volume: VolumeName,
    /// Always lead to the read-write volume, even if there are read-only ones.
    #[arg(long)]
    read_write: bool,
    /// Show what would be created without creating it.
    #[arg(long)]
    dry_run: bool,
}

/// Remove a mount point.
#[derive(Args)]
pub struct Unmount {
    /// VOLUME/PATH of the mount point.
    place: String,
    /// Show what would be removed without removing it.
    #[arg(long)]
    dry_run: bool,
}

/// A mount point that would be created or removed.
#[derive(Serialize)]
struct Preview<'a> {
    place: &'a str,
    volume: &'a str,
    is_done: bool,
}

/// Runs `mount`.
pub(super) fn mount(context: &Context, cell: &CellClient, mount: &Mount) -> Result<()> {
    let Mount { place, volume, read_write, dry_run } = mount;
    if *dry_run {
        return preflight(context, cell, place, volume.as_str());
    }
    make_mount_point(cell, place, volume.as_str(), *read_write)?;
    context.format.done(&true, format!("{place} now points to {volume}"))
}

/// Prints what creating a mount point would do, or fails like the creation.
pub(crate) fn preflight(context: &Context, cell: &CellClient, place: &str, volume: &str) -> Result<()> {
    let (directory, name) = parent_of(cell, place)?;
    let refused = || failed(making(place));
    if cell.child(&directory, name.as_bytes())?.is_some() {
        return Err(refused()(AbortCode::UAEEXIST));
    }
    check_right(cell, &directory, Rights::INSERT)?.map_err(refused())?;
    let sentence = format!("would create the mount point {place} to {volume}");
    context.format.done(&Preview { place, volume, is_done: false }, sentence)
}

/// Runs `unmount`.
pub(super) fn unmount(context: &Context, cell: &CellClient, unmount: &Unmount) -> Result<()> {
    let place = &unmount.place;
    let (directory, name) = parent_of(cell, place)?;
    let node = match cell.child(&directory, name.as_bytes())? {
        Some(node) if node.is_mount_point() => node,
        Some(_) => bail!("{place} is not a mount point"),
        None => bail!("{place} does not exist"),
    };
    let refused = || failed(format!("remove the mount point {place}"));
    if unmount.dry_run {
        check_right(cell, &directory, Rights::DELETE)?.map_err(refused())?;
        let contents = base::text::escape(&cell.read_link(&node)?);
        let volume = mounted_volume(&contents);
        let sentence = format!("would remove the mount point {place} to {volume}");
        return context.format.done(&Preview { place, volume, is_done: false }, sentence);
    }
    cell.remove(&directory, name.as_bytes()).map_err(refused())?;
    context.format.done(&true, format!("{place} is removed"))
}

/// Returns the volume named by a mount point's contents.
fn mounted_volume(contents: &str) -> &str {
    contents.trim_start_matches(['#', '%']).trim_end_matches('.')
}

fn making(place: &str) -> String {
    format!("make the mount point {place}")
}

/// Checks whether the caller may create (INSERT) or remove (DELETE) entries of a directory, according to its
/// server.
fn check_right(cell: &CellClient, directory: &Node, right: Rights) -> Result<Result<(), AbortCode>> {
    if !is_read_write(cell, directory.fid.volume)? {
        return Ok(Err(AbortCode::UAEROFS));
    }
    let rights = Rights::from_bits(directory.status.caller_access);
    Ok(if rights.contains(right) { Ok(()) } else { Err(AbortCode::UAEACCES) })
}

/// Returns the directory and the last component of `VOLUME/PATH`.
fn parent_of(cell: &CellClient, place: &str) -> Result<(Node, String)> {
    let path = CellPath::parse(place.strip_prefix("cell:").unwrap_or(place))?;
    let (parent, name) =
        path.split_last().with_context(|| format!("`{place}` is a volume's root; give a path inside it"))?;
    let node = cell.find(&parent)?.with_context(|| format!("{parent} does not exist"))?;
    Ok((node, name.to_owned()))
}

/// Creates a mount point: a symbolic link of mode 0644 whose contents name the volume.
pub fn make_mount_point(cell: &CellClient, place: &str, volume: &str, read_write: bool) -> Result<()> {
    let (directory, name) = parent_of(cell, place)?;
    let contents = format!("{}{volume}.", if read_write { '%' } else { '#' });
    let attributes = Attributes { mode: 0o644, modified: now().0 };
    cell.symlink(&directory, name.as_bytes(), contents.as_bytes(), attributes).map_err(failed(making(place)))
}
