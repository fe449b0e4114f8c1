//! `cellar volume dump`: dumps volumes to files.

use super::{Transaction, time};
use crate::commands::Context;
use crate::output::Format;
use afs_idl::vol;
use anyhow::{Context as _, Result};
use base::{AbortCode, VolumeId};
use cell_client::describe::failed;
use cell_client::location::Site;
use cell_client::{CellClient, Interface};
use clap::Args;
use disk::beneath::Folder;
use indicatif::{HumanBytes, ProgressBar, ProgressStyle};
use jobs::{ENODEV, rights};
use rustix::fs::{Access, access};
use serde::Serialize;
use std::fs::File;
use std::io::{ErrorKind, Write};
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;

/// Number of bytes read or written at a time.
const PIECE_BYTES: usize = 256 << 10;

/// Dump a volume to a file.
#[derive(Args)]
pub struct DumpVolume {
    /// Name of the volume, optionally with `.readonly` or `.backup`, or its number.
    volume: String,
    /// File to write; an existing one is replaced once the dump is complete.
    file: PathBuf,
    /// Dump only changes since this time, in seconds since 1970.
    #[arg(long, default_value_t = 0, value_name = "SECONDS")]
    since: u32,
    /// Show what would be done without doing it.
    #[arg(long)]
    dry_run: bool,
}

/// The outcome of a dry run.
#[derive(Serialize)]
struct Preview<'a> {
    volume: u32,
    name: &'a str,
    server: Ipv4Addr,
    partition: String,
    file: String,
    /// Whether the file exists and would be replaced.
    replaces: bool,
    since: u32,
    /// Size of the volume; `None` if its server cannot report it.
    size_kib: Option<u64>,
    changed: Option<u32>,
    is_done: bool,
}

/// Result of a transfer.
#[derive(Serialize)]
pub(super) struct Transferred {
    pub(super) volume: u32,
    pub(super) name: String,
    pub(super) server: Ipv4Addr,
    pub(super) file: String,
    pub(super) bytes: u64,
    pub(super) seconds: f64,
    pub(super) is_done: bool,
}

impl Transferred {
    /// Describes size, time and rate.
    pub(super) fn rate(&self) -> String {
        let milliseconds = (self.seconds * 1000.0) as u64;
        let rate = self.bytes.saturating_mul(1000) / milliseconds.max(1);
        format!("{} in {:.1} s, {}/s", HumanBytes(self.bytes), self.seconds, HumanBytes(rate))
    }
}

fn bar(format: Format, total: u64) -> ProgressBar {
    let bar = format.bar(ProgressBar::new(total));
    let template = "[{bar:30}] {percent}% {bytes} of {total_bytes}, {binary_bytes_per_sec}, {eta} left";
    if let Ok(style) = ProgressStyle::with_template(template) {
        bar.set_style(style);
    }
    bar
}

/// Dumps a volume to a file.
pub(super) fn dump(context: &Context, request: &DumpVolume) -> Result<()> {
    let cell = context.client()?;
    let located = super::locate_to_read(&cell, &request.volume)?;
    let (site, id) = located.readable_site(&request.volume)?;
    check_file(&request.file)?;
    if request.dry_run {
        return preflight(context, &cell, request, site, id);
    }
    let (name, file) = (request.volume.clone(), request.file.display().to_string());
    let mut done =
        Transferred { volume: id.0, name, server: site.server, file, bytes: 0, seconds: 0.0, is_done: false };
    let start = Instant::now();
    let shown = || format!("cannot write {}", request.file.display());
    let write =
        |out: &mut File| write_dump(context.format, &cell, (site, id), request.since, out, &request.file);
    if is_stream(&request.file) {
        let mut out = File::options().write(true).open(&request.file).with_context(shown)?;
        done.bytes = write(&mut out)?;
    } else {
        let name = request.file.file_name().with_context(shown)?;
        let folder = Folder::open(&folder_of(&request.file).join("")).map(Arc::new).with_context(shown)?;
        // A dump contains all files of the volume, whatever their access lists, so it must be private.
        let mut fresh = folder.begin(name, 0o600).with_context(shown)?;
        done.bytes = write(fresh.file())?;
        fresh.keep().with_context(shown)?;
    }
    done.seconds = start.elapsed().as_secs_f64();
    done.is_done = true;
    let text = format!("{} is in {}: {}", done.name, done.file, done.rate());
    context.format.done(&done, text)
}

/// Returns whether this is a pipe or a device, which is written directly and not replaced.
fn is_stream(path: &Path) -> bool {
    path.metadata().is_ok_and(|found| !found.is_file() && !found.is_dir())
}

fn folder_of(file: &Path) -> &Path {
    file.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

/// Fails early if the file cannot be written, before any data is sent.
fn check_file(path: &Path) -> Result<()> {
    let shown = || format!("cannot write {}", path.display());
    if path.is_dir() {
        return Err(std::io::Error::from(ErrorKind::IsADirectory)).with_context(shown);
    }
    if is_stream(path) {
        return access(path, Access::WRITE_OK).map_err(std::io::Error::from).with_context(shown);
    }
    access(folder_of(path), Access::WRITE_OK | Access::EXEC_OK)
        .map_err(std::io::Error::from)
        .with_context(shown)
}

/// Prints what would be dumped, or fails like the dump.
fn preflight(
    context: &Context,
    cell: &CellClient,
    request: &DumpVolume,
    site: &Site,
    id: VolumeId,
) -> Result<()> {
    let server = cell.connection(site.server, Interface::Volumes);
    let refused = || failed(format!("open the volume {id}"));
    rights::check_changes_volumes(&*server).map_err(refused())?;
    let partition = site.partition.index() as i32;
    let reply = vol::list_one_volume(&*server, &vol::ListOneVolumeRequest { partition, volume_id: id.0 });
    let info = match reply.map(|reply| reply.entries.into_iter().next()) {
        Ok(Some(info)) => info,
        Ok(None) | Err(ENODEV) => return Err(refused()(AbortCode::VNOVOL)),
        Err(code) => return Err(refused()(code)),
    };
    if info.status == vol::volume_state::BUSY {
        return Err(refused()(AbortCode::VOLSERVOLBUSY));
    }
    let info = Some(info).filter(|info| info.status == vol::volume_state::OK);
    let foretold = Preview {
        volume: id.0,
        name: &request.volume,
        server: site.server,
        partition: site.partition.to_string(),
        file: request.file.display().to_string(),
        replaces: request.file.exists(),
        since: request.since,
        size_kib: info.as_ref().map(|info| u64::try_from(info.size).unwrap_or(0)),
        changed: info.as_ref().map(|info| info.update_date),
        is_done: false,
    };
    context.format.done(&foretold, foretold.text())
}

impl Preview<'_> {
    fn text(&self) -> String {
        let Preview { volume, server, partition, file, since, .. } = self;
        let what = match (since, self.size_kib) {
            (0, Some(size_kib)) => {
                format!("{} of the volume {volume}", HumanBytes(size_kib.saturating_mul(1024)))
            }
            (0, None) => format!("the volume {volume}, which another operation has, when that is over,"),
            (since, _) => format!("what changed in the volume {volume} since {}", time(*since)),
        };
        let replaced = if self.replaces { ", which is replaced" } else { "" };
        format!("would dump {what} on {server} {partition} to {file}{replaced}")
    }
}

fn write_dump(
    format: Format,
    cell: &CellClient,
    (site, id): (&Site, VolumeId),
    from_date: u32,
    file: &mut File,
    path: &Path,
) -> Result<u64> {
    let shown = || format!("cannot write {}", path.display());
    let server = cell.connection(site.server, Interface::Volumes);
    let open = Transaction::begin(vol::attach_mode::BUSY, &*server, site.partition, id.0)
        .map_err(failed(format!("open the volume {id}")))?;
    let size = vol::GetSizeRequest { transaction: open.id, from_date };
    let total = vol::get_size(&*server, &size).map_or(0, |reply| reply.size.dump_size);
    let (bar, mut bytes, mut trouble) = (bar(format, total), 0, None);
    let request = vol::DumpRequest { transaction: open.id, from_date };
    let dumped = vol::dump(&*server, &request, |stream| {
        loop {
            let piece = stream.read_chunk(PIECE_BYTES)?;
            if piece.is_empty() {
                return Ok(());
            }
            file.write_all(&piece).map_err(|error| {
                trouble = Some(error);
                AbortCode::RX_USER_ABORT
            })?;
            bytes += piece.len() as u64;
            bar.set_position(bytes);
        }
    });
    bar.finish_and_clear();
    if let Some(error) = trouble {
        return Err(error).with_context(shown);
    }
    dumped.map_err(failed(format!("dump the volume {id}")))?;
    open.end().map_err(failed(format!("end the dump of {id}")))?;
    file.sync_all().with_context(shown)?;
    Ok(bytes)
}
