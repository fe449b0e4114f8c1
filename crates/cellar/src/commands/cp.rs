//! `cellar cp`: copies files and trees into and out of a cell.

use super::Context;
use crate::client::CellClient;
use crate::client::describe::failed;
use crate::client::files::{Attributes, Node};
use crate::client::path::{CellPath, Place};
use anyhow::{Context as _, Result, bail};
use clap::Args;
use crossbeam::channel::{Receiver, Sender};
use indicatif::{HumanBytes, ProgressBar, ProgressStyle};
use parking_lot::Mutex;
use serde::Serialize;
use std::fs::File;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant, UNIX_EPOCH};

/// Copy files and trees into and out of a cell. `cell:VOLUME/PATH` names a file in the cell. A source
/// directory that ends in `/` stands for its contents.
#[derive(Args)]
pub struct Copy {
    /// What to copy.
    source: String,
    /// Where to.
    target: String,
    /// Files in flight at once.
    #[arg(long, default_value_t = 8, value_parser = clap::value_parser!(u8).range(1..=64))]
    jobs: u8,
}

/// What was copied.
#[derive(Serialize)]
struct Summary {
    files: u64,
    directories: u64,
    links: u64,
    bytes: u64,
    seconds: f64,
    skipped: Vec<String>,
}

/// A file to be transferred once its directory exists.
enum Job {
    Store { path: PathBuf, file: Node, attributes: Attributes, length: u64 },
    Fetch { file: Node, path: PathBuf },
}

struct Copier<'a> {
    cell: &'a CellClient,
    jobs: Sender<Job>,
    totals: &'a Totals,
}

#[derive(Default)]
struct Totals {
    files: AtomicU64,
    directories: AtomicU64,
    links: AtomicU64,
    bytes: AtomicU64,
    skipped: Mutex<Vec<String>>,
    errors: Mutex<Vec<anyhow::Error>>,
}

impl Totals {
    fn skip(&self, what: impl std::fmt::Display, why: &str) {
        eprintln!("cellar: {what} is left out: {why}");
        self.skipped.lock().push(what.to_string());
    }
}

/// Runs the command.
pub fn run(context: &Context, copy: &Copy) -> Result<()> {
    let (source, target) = (Place::parse(&copy.source)?, Place::parse(&copy.target)?);
    let cell = context.client()?;
    let totals = Totals::default();
    let bar = context.format.bar(progress_bar());
    let start = Instant::now();
    let (sender, receiver) = crossbeam::channel::bounded(usize::from(copy.jobs) * 4);
    let walked = std::thread::scope(|scope| {
        for _ in 0..copy.jobs {
            let receiver = receiver.clone();
            scope.spawn(|| work(&cell, receiver, &totals, &bar));
        }
        let copier = Copier { cell: &cell, jobs: sender, totals: &totals };
        match (&source, &target) {
            (Place::Local(from), Place::Cell(to)) => copier.store(from, copy.source.ends_with('/'), to),
            (Place::Cell(from), Place::Local(to)) => copier.fetch(from, to),
            _ => bail!("one of SOURCE and TARGET must be in the cell (cell:VOLUME/PATH), the other local"),
        }
    });
    bar.finish_and_clear();
    walked?;
    report(context, totals, start.elapsed())
}

fn report(context: &Context, totals: Totals, elapsed: Duration) -> Result<()> {
    let mut errors = totals.errors.into_inner();
    if !errors.is_empty() {
        let more = errors.len() - 1;
        let first = errors.swap_remove(0);
        return Err(if more > 0 {
            first.context(format!("{more} more files failed too; the first"))
        } else {
            first
        });
    }
    let summary = Summary {
        files: totals.files.into_inner(),
        directories: totals.directories.into_inner(),
        links: totals.links.into_inner(),
        bytes: totals.bytes.into_inner(),
        seconds: elapsed.as_secs_f64(),
        skipped: totals.skipped.into_inner(),
    };
    let milliseconds = u64::try_from(elapsed.as_millis()).unwrap_or(u64::MAX).max(1);
    let rate = HumanBytes(summary.bytes.saturating_mul(1000) / milliseconds);
    let sentence = format!(
        "{} files, {} directories, {} links, {} in {:.1} s ({rate}/s)",
        summary.files,
        summary.directories,
        summary.links,
        HumanBytes(summary.bytes),
        summary.seconds
    );
    context.format.done(&summary, sentence)
}

fn progress_bar() -> ProgressBar {
    let style = ProgressStyle::with_template("{spinner} {pos} files  {elapsed}  {wide_msg}");
    let bar = ProgressBar::new_spinner();
    if let Ok(style) = style {
        bar.set_style(style);
    }
    bar
}

fn work(cell: &CellClient, jobs: Receiver<Job>, totals: &Totals, bar: &ProgressBar) {
    for job in jobs {
        let name = match &job {
            Job::Store { path, .. } | Job::Fetch { path, .. } => path.display().to_string(),
        };
        match transfer(cell, job, totals) {
            Ok(()) => {
                totals.files.fetch_add(1, Ordering::Relaxed);
                bar.inc(1);
                bar.set_message(format!("{}  {name}", HumanBytes(totals.bytes.load(Ordering::Relaxed))));
            }
            Err(error) => totals.errors.lock().push(error.context(name)),
        }
    }
}

fn transfer(cell: &CellClient, job: Job, totals: &Totals) -> Result<()> {
    let mut progress = |bytes| {
        totals.bytes.fetch_add(bytes, Ordering::Relaxed);
    };
    match job {
        Job::Store { path, file, attributes, length } => {
            let mut input = File::open(&path)?;
            cell.store(&file, attributes, &mut input, length, &mut progress)
        }
        Job::Fetch { file, path } => {
            let out = File::create(&path)?;
            cell.fetch(&file, &mut &out, &mut progress)?;
            let modified = UNIX_EPOCH + Duration::from_secs(file.status.client_mod_time.into());
            out.set_permissions(std::fs::Permissions::from_mode(file.status.unix_mode_bits & 0o7777))?;
            out.set_modified(modified)?;
            Ok(())
        }
    }
}

fn attributes_of(metadata: &std::fs::Metadata) -> Attributes {
    Attributes { mode: metadata.mode(), modified: u32::try_from(metadata.mtime()).unwrap_or(0) }
}

impl Copier<'_> {
    fn store(&self, from: &Path, contents_only: bool, to: &CellPath) -> Result<()> {
        let metadata = std::fs::metadata(from).with_context(|| format!("cannot read {}", from.display()))?;
        let existing = self.cell.find(to)?;
        let base = from.file_name().and_then(|name| name.to_str());
        if metadata.is_dir() {
            let target = match (existing, contents_only, base) {
                (Some(node), false, Some(base)) if node.is_directory() => {
                    self.directory_in(&node, base, &metadata)?
                }
                (Some(node), _, _) => node,
                (None, ..) => self.new_directory(to, &metadata)?,
            };
            return self.store_directory(from, &target);
        }
        match (existing, base) {
            (Some(node), Some(base)) if node.is_directory() => {
                self.store_file(from, &node, base.as_bytes(), &metadata)
            }
            _ => {
                let Some((parent, name)) = to.split_last() else { bail!("{to} is a volume's root") };
                let Some(parent) = self.cell.find(&parent)? else { bail!("{parent} does not exist") };
                self.store_file(from, &parent, name.as_bytes(), &metadata)
            }
        }
    }

    fn new_directory(&self, path: &CellPath, metadata: &std::fs::Metadata) -> Result<Node> {
        let Some((parent, name)) = path.split_last() else { bail!("{path} does not exist") };
        let Some(parent) = self.cell.find(&parent)? else { bail!("{parent} does not exist") };
        self.directory_in(&parent, name, metadata)
    }

    /// The directory `name` in `parent`, made if need be.
    fn directory_in(&self, parent: &Node, name: &str, metadata: &std::fs::Metadata) -> Result<Node> {
        if let Some(node) = self.cell.child(parent, name.as_bytes())? {
            return if node.is_directory() { Ok(node) } else { bail!("{name} exists and is no directory") };
        }
        self.totals.directories.fetch_add(1, Ordering::Relaxed);
        self.cell
            .make_directory(parent, name.as_bytes(), attributes_of(metadata))
            .map_err(failed(format!("make the directory {name}")))
    }

    fn store_directory(&self, from: &Path, target: &Node) -> Result<()> {
        let list = std::fs::read_dir(from).with_context(|| format!("cannot list {}", from.display()))?;
        let present = self.cell.list(target)?;
        for entry in list {
            let entry = entry.with_context(|| format!("cannot list {}", from.display()))?;
            let path = entry.path();
            let Ok(name) = entry.file_name().into_string() else {
                self.totals.skip(path.display(), "its name is not UTF-8");
                continue;
            };
            let known = present.iter().find(|known| known.name == name.as_bytes());
            let known = known.map(|known| self.cell.open_entry(target, known)).transpose()?;
            self.store_entry(&path, target, &name, known)?;
        }
        Ok(())
    }

    fn store_entry(&self, path: &Path, parent: &Node, name: &str, known: Option<Node>) -> Result<()> {
        let metadata = path.symlink_metadata().with_context(|| format!("cannot read {}", path.display()))?;
        let kind = metadata.file_type();
        if kind.is_symlink() {
            self.store_link(path, parent, name, &metadata, known.is_some())
        } else if kind.is_dir() {
            let target = match known {
                Some(node) if node.is_directory() => node,
                Some(_) => bail!("{name} exists in the cell and is no directory"),
                None => {
                    self.totals.directories.fetch_add(1, Ordering::Relaxed);
                    let made = self.cell.make_directory(parent, name.as_bytes(), attributes_of(&metadata));
                    made.map_err(failed(format!("make the directory {name}")))?
                }
            };
            self.store_directory(path, &target)
        } else if kind.is_file() {
            self.queue_store(path, parent, name.as_bytes(), &metadata, known)
        } else {
            self.totals.skip(path.display(), "it is neither file, directory nor link");
            Ok(())
        }
    }

    fn store_link(
        &self,
        path: &Path,
        parent: &Node,
        name: &str,
        metadata: &std::fs::Metadata,
        exists: bool,
    ) -> Result<()> {
        let doing = || failed(format!("make the link {name}"));
        let link = std::fs::read_link(path)?;
        let target = link.to_str().context("the link's target is not UTF-8")?.as_bytes();
        if exists {
            self.cell.remove(parent, name.as_bytes()).map_err(doing())?;
        }
        let attributes = Attributes { mode: 0o777, ..attributes_of(metadata) };
        self.totals.links.fetch_add(1, Ordering::Relaxed);
        self.cell.symlink(parent, name.as_bytes(), target, attributes).map_err(doing())
    }

    fn store_file(
        &self,
        path: &Path,
        parent: &Node,
        name: &[u8],
        metadata: &std::fs::Metadata,
    ) -> Result<()> {
        let known = self.cell.child(parent, name)?;
        self.queue_store(path, parent, name, metadata, known)
    }

    fn queue_store(
        &self,
        path: &Path,
        parent: &Node,
        name: &[u8],
        metadata: &std::fs::Metadata,
        known: Option<Node>,
    ) -> Result<()> {
        let attributes = attributes_of(metadata);
        let file = match known {
            Some(node) if node.is_directory() => bail!("{} is a directory in the cell", path.display()),
            Some(node) => node,
            None => self
                .cell
                .create(parent, name, attributes)
                .map_err(failed(format!("create {}", String::from_utf8_lossy(name))))?,
        };
        self.queue(Job::Store { path: path.into(), file, attributes, length: metadata.len() })
    }

    fn queue(&self, job: Job) -> Result<()> {
        self.jobs.send(job).map_err(|_| anyhow::anyhow!("the workers have ended"))
    }

    fn fetch(&self, from: &CellPath, to: &Path) -> Result<()> {
        let Some(node) = self.cell.find(from)? else { bail!("{from} does not exist") };
        let base = from.components.last().map_or(from.volume.as_str(), String::as_str);
        let into = to.is_dir() && !(node.is_directory() && from.is_directory);
        let to = if into { to.join(base) } else { to.to_owned() };
        self.fetch_node(&node, &to)
    }

    fn fetch_node(&self, node: &Node, to: &Path) -> Result<()> {
        if node.is_directory() {
            return self.fetch_directory(node, to);
        }
        if node.is_mount_point() {
            self.totals.skip(to.display(), "it is a mount point");
            return Ok(());
        }
        if node.is_symlink() {
            let target = self.cell.read_link(node)?;
            if to.symlink_metadata().is_ok() {
                std::fs::remove_file(to)?;
            }
            self.totals.links.fetch_add(1, Ordering::Relaxed);
            return std::os::unix::fs::symlink(target, to)
                .with_context(|| format!("cannot make {}", to.display()));
        }
        self.queue(Job::Fetch { file: node.clone(), path: to.to_owned() })
    }

    fn fetch_directory(&self, node: &Node, to: &Path) -> Result<()> {
        if !to.is_dir() {
            std::fs::create_dir(to).with_context(|| format!("cannot make {}", to.display()))?;
            self.totals.directories.fetch_add(1, Ordering::Relaxed);
        }
        for entry in self.cell.list(node)? {
            let Some(name) = std::str::from_utf8(&entry.name).ok().filter(|name| is_plain(name)) else {
                self.totals.skip(entry.name.escape_ascii(), "its name cannot be a file's name here");
                continue;
            };
            self.fetch_node(&self.cell.open_entry(node, &entry)?, &to.join(name))?;
        }
        Ok(())
    }
}

/// Whether a name from a server stays within the directory it is used in.
fn is_plain(name: &str) -> bool {
    !name.is_empty() && name != "." && name != ".." && !name.contains(['/', '\0'])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_servers_names_cannot_lead_elsewhere() {
        assert!(is_plain("a b") && is_plain(".hidden"));
        assert!(!is_plain("..") && !is_plain("../x") && !is_plain("") && !is_plain("/etc"));
    }
}
