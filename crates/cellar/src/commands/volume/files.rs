//! `cellar volume dump` and `restore`: volumes in files.

use super::{Transaction, first_partition, following};
use crate::client::describe::failed;
use crate::client::location::{Located, Site};
use crate::client::{CellClient, Interface};
use crate::commands::Context;
use crate::dump::contents::Contents;
use afs_idl::vol;
use anyhow::{Context as _, Result, anyhow, bail};
use base::{AbortCode, PartitionId, VolumeId, VolumeName};
use clap::Args;
use indicatif::{HumanBytes, HumanCount, ProgressBar, ProgressStyle};
use jobs::{Job, Operation, Place, Stage};
use serde::Serialize;
use std::fs::File;
use std::io::Write;
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::time::Instant;

/// Bytes that are read or written at a time.
const PIECE_BYTES: usize = 256 << 10;

/// A dump to a file.
#[derive(Args)]
pub struct DumpVolume {
    /// The volume: its name, also with `.readonly` or `.backup`, or its number.
    volume: String,
    /// The file; it is replaced when the dump is whole.
    file: PathBuf,
    /// Only what changed since this time, in seconds since 1970.
    #[arg(long, default_value_t = 0, value_name = "SECONDS")]
    since: u32,
    /// Say what would be done, and do nothing.
    #[arg(long)]
    dry_run: bool,
}

/// A volume from a file.
#[derive(Args)]
pub struct RestoreVolume {
    /// The dump.
    file: PathBuf,
    /// The name of the new volume.
    name: VolumeName,
    /// The file server; the first database server if left out.
    #[arg(long)]
    on: Option<Ipv4Addr>,
    /// The partition, like `a`; the server's first if left out.
    #[arg(long)]
    partition: Option<PartitionId>,
    /// Check the dump, say what would be done, and do nothing.
    #[arg(long)]
    dry_run: bool,
}

/// What was transferred.
#[derive(Serialize)]
struct Transferred {
    volume: u32,
    name: String,
    server: Ipv4Addr,
    file: String,
    bytes: u64,
    seconds: f64,
    is_done: bool,
}

impl Transferred {
    fn rate(&self) -> String {
        let milliseconds = (self.seconds * 1000.0) as u64;
        let rate = self.bytes.saturating_mul(1000) / milliseconds.max(1);
        format!("{} in {:.1} s, {}/s", HumanBytes(self.bytes), self.seconds, HumanBytes(rate))
    }
}

fn bar(total: u64) -> ProgressBar {
    let bar = ProgressBar::new(total);
    let template = "{bar:30} {bytes} of {total_bytes}, {bytes_per_sec}, {eta} left";
    if let Ok(style) = ProgressStyle::with_template(template) {
        bar.set_style(style);
    }
    bar
}

/// The volume that a person named, and where to read it.
fn named<'a>(located: &'a Located, volume: &str) -> Result<(&'a Site, VolumeId)> {
    let number = volume.parse().map(VolumeId).ok();
    let kind = match () {
        () if volume.ends_with(".readonly") || number == Some(located.ids[1]) => 1,
        () if volume.ends_with(".backup") || number == Some(located.ids[2]) => 2,
        () => 0,
    };
    let read_only = || located.sites.iter().find(|site| !site.is_read_write);
    let site = if kind == 1 { read_only() } else { located.read_write_site().ok() };
    let site = site.with_context(|| format!("no site has the volume {volume}"))?;
    match located.ids[kind] {
        VolumeId(0) => bail!("there is no volume {volume}"),
        id => Ok((site, id)),
    }
}

/// Writes a volume into a file.
pub(super) fn dump(context: &Context, request: &DumpVolume) -> Result<()> {
    let cell = context.client()?;
    let located = cell.locate(&request.volume)?;
    let (site, id) = named(&located, &request.volume)?;
    let (name, file) = (request.volume.clone(), request.file.display().to_string());
    let mut done =
        Transferred { volume: id.0, name, server: site.server, file, bytes: 0, seconds: 0.0, is_done: false };
    if request.dry_run {
        let text =
            format!("would dump the volume {id} on {} {} to {}", site.server, site.partition, done.file);
        return context.format.done(&done, text);
    }
    let start = Instant::now();
    let mut part = request.file.clone().into_os_string();
    part.push(".part");
    let part = PathBuf::from(part);
    let written = write_dump(&cell, site, id, request.since, &part);
    if written.is_err() {
        let _ = std::fs::remove_file(&part);
    }
    done.bytes = written?;
    std::fs::rename(&part, &request.file).with_context(|| format!("cannot write {}", done.file))?;
    done.seconds = start.elapsed().as_secs_f64();
    done.is_done = true;
    let text = format!("{} is in {}: {}", done.name, done.file, done.rate());
    context.format.done(&done, text)
}

fn write_dump(cell: &CellClient, site: &Site, id: VolumeId, from_date: u32, path: &Path) -> Result<u64> {
    let shown = || format!("cannot write {}", path.display());
    let mut file = File::create(path).with_context(shown)?;
    let server = cell.connection(site.server, Interface::Volumes);
    let request = vol::TransCreateRequest {
        volume_id: id.0,
        partition: site.partition.index() as i32,
        flags: vol::attach_mode::BUSY,
    };
    let opened = vol::trans_create(&*server, &request).map_err(failed(format!("open the volume {id}")))?;
    let open = Transaction { server: &*server, id: opened.transaction };
    let size = vol::GetSizeRequest { transaction: open.id, from_date };
    let total = vol::get_size(&*server, &size).map_or(0, |reply| reply.size.dump_size);
    let (bar, mut bytes, mut trouble) = (bar(total), 0, None);
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

/// Makes a volume of what is in a file.
pub(super) fn restore(context: &Context, request: &RestoreVolume) -> Result<()> {
    let cell = context.client()?;
    let (name, path) = (request.name.as_str(), &request.file);
    let shown = || format!("cannot read {}", path.display());
    let length = File::open(path).and_then(|file| file.metadata()).with_context(shown)?.len();
    // Whoever goes on with it later does so from another folder.
    let whole = path.canonicalize().with_context(shown)?;
    let whole = whole.to_str().with_context(|| format!("{} is no UTF-8", path.display()))?;
    cell.check_name_is_free(name)?;
    let on = request.on.unwrap_or(cell.default_server());
    let server = cell.connection(on, Interface::Volumes);
    let partition = match request.partition {
        Some(partition) => partition,
        None => first_partition(&*server).with_context(|| format!("on {on}"))?,
    };
    let (name, file) = (name.to_owned(), path.display().to_string());
    let mut done =
        Transferred { volume: 0, name, server: on, file, bytes: length, seconds: 0.0, is_done: false };
    if request.dry_run {
        let vnodes = HumanCount(Contents::read_all(path)?.nodes.len() as u64);
        let Transferred { file, name, .. } = &done;
        let text =
            format!("would restore {file}, {vnodes} files and directories, as {name} on {on} {partition}");
        return context.format.done(&done, text);
    }
    let to = Place { server: on, partition: partition.index() as i32 };
    let operation = Operation::Restore { file: whole.into(), name: done.name.clone(), to };
    let kept = following::journal(context)?;
    let (mut job, claim) = kept.journal.begin(|id| Job::new(id, operation, 0, &done.name, to))?;
    let start = Instant::now();
    let end = following::carry_on(&cell, &kept.journal, &mut job)?;
    drop(claim);
    if job.stage != Stage::Done {
        let flaw = job.abort_code() == Some(AbortCode::VOLSERREAD_DUMPERROR);
        let flaw = flaw.then(|| Contents::read_all(path).err()).flatten();
        return following::report(context, &job, end).map_err(|error| match flaw {
            Some(flaw) => anyhow!("{error:#}; {flaw:#}"),
            None => error,
        });
    }
    done.volume = job.volume;
    done.seconds = start.elapsed().as_secs_f64();
    done.is_done = true;
    let text = format!("{} is volume {} on {on} {partition}: {}", done.name, done.volume, done.rate());
    context.format.done(&done, text)
}
