//! Copies into a cell.

use super::steps::Steps;
use super::{CHANGES_MAX, Copier, doing};
use anyhow::{Context as _, Result, bail, ensure};
use base::AbortCode;
use cell_client::describe::{failed, widened};
use cell_client::files::{Attributes, Entry, Node};
use cell_client::path::CellPath;
use disk::beneath::Folder;
use rustix::fs::FileType;
use std::collections::HashMap;
use std::ffi::{OsStr, OsString};
use std::fs::{File, Metadata};
use std::io::ErrorKind;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

/// A step of a copy into a cell.
pub(super) enum Step {
    /// Copy an entry of a folder.
    Entry { folder: Arc<Source>, name: OsString, known: Option<Box<Node>> },
    /// Copy a file that the user named.
    File { path: PathBuf, parent: Box<Node>, name: Vec<u8>, known: Option<Box<Node>> },
}

/// A local folder, and the directory that it is copied to.
pub(super) struct Source {
    folder: Folder,
    directory: Node,
    /// Attributes to set after the last entry; `None` for a directory that existed before.
    attributes: Option<Attributes>,
    parent: Option<Arc<Source>>,
}

/// Why an object is not replaced.
const MOUNT_POINT: &str = "it is a mount point in the cell, which is not replaced";

fn attributes_of(metadata: &Metadata) -> Attributes {
    attributes(metadata.mode(), metadata.mtime())
}

fn attributes(mode: u32, modified: i64) -> Attributes {
    Attributes { mode, modified: u32::try_from(modified).unwrap_or(0) }
}

/// Returns whether a file was not written to between two readings of its metadata.
fn is_same(before: &Metadata, after: &Metadata) -> bool {
    let facts = |metadata: &Metadata| (metadata.len(), metadata.mtime(), metadata.mtime_nsec());
    facts(before) == facts(after)
}

impl Source {
    fn path(&self, name: &OsStr) -> PathBuf {
        self.folder.path().join(name)
    }
}

impl Copier<'_> {
    /// Finds or makes the target, and returns the first steps. Follows `from` itself if it is a link, because the
    /// user named it.
    pub(super) fn begin_store(&self, from: &Path, contents_only: bool, to: &CellPath) -> Result<Vec<Step>> {
        let metadata = std::fs::metadata(from).with_context(|| format!("cannot read {}", from.display()))?;
        let existing = self.cell.find(to)?;
        let base = from.file_name();
        if metadata.is_dir() {
            let folder = Folder::open(&from.join(""));
            let folder = folder.with_context(|| format!("cannot open {}", from.display()))?;
            let attributes = attributes_of(&metadata);
            let (directory, is_new) = match (existing, contents_only, base) {
                (Some(node), false, Some(base)) if node.is_directory() => {
                    let known = self.cell.child(&node, base.as_bytes())?;
                    self.enter_or_make(&node, base.as_bytes(), known, attributes)
                        .with_context(|| to.join(&base.to_string_lossy()).to_string())?
                }
                (Some(node), _, _) => {
                    ensure!(node.is_directory(), "{to} exists and is not a directory");
                    (node, false)
                }
                (None, ..) => {
                    let (parent, name) = self.parent(to)?;
                    self.enter_or_make(&parent, name.as_bytes(), None, attributes)
                        .with_context(|| to.to_string())?
                }
            };
            let attributes = is_new.then_some(attributes);
            let source = Arc::new(Source { folder, directory, attributes, parent: None });
            let first = self.list_source(&source)?;
            self.release_source(source);
            return Ok(first);
        }
        let (parent, name) = match (existing, base) {
            (Some(node), Some(base)) if node.is_directory() => (node, base.as_bytes().to_vec()),
            _ => {
                let (parent, name) = self.parent(to)?;
                (parent, name.as_bytes().to_vec())
            }
        };
        let known = self.cell.child(&parent, &name)?.map(Box::new);
        Ok(vec![Step::File { path: from.to_owned(), parent: Box::new(parent), name, known }])
    }

    /// Returns the directory in which the target is to be created.
    fn parent<'a>(&self, path: &'a CellPath) -> Result<(Node, &'a str)> {
        let Some(name) = path.components.last() else { bail!("{path} is a volume's root") };
        let Some((parent, _)) = path.split_last() else { bail!("{path} is a volume's root") };
        let Some(parent) = self.cell.find(&parent)? else { bail!("{parent} does not exist") };
        Ok((parent, name.as_str()))
    }

    /// Performs a step.
    pub(super) fn store(&self, step: Step, steps: &Steps<Step>) {
        match step {
            Step::Entry { folder, name, known } => {
                if let Err(error) = self.store_entry(&folder, &name, known.map(|known| *known), steps) {
                    self.totals.fail(folder.path(&name).display(), &error);
                }
                self.release_source(folder);
            }
            Step::File { path, parent, name, known } => {
                let open = || File::open(&path);
                if let Err(error) = self.store_file(&open, &parent, &name, known.map(|known| *known)) {
                    self.totals.fail(path.display(), &error);
                }
            }
        }
    }

    fn store_entry(
        &self,
        source: &Arc<Source>,
        name: &OsStr,
        known: Option<Node>,
        steps: &Steps<Step>,
    ) -> Result<()> {
        let (folder, parent) = (&source.folder, &source.directory);
        let status = folder.status(name).context("cannot read it")?;
        let attributes = attributes(status.st_mode, status.st_mtime);
        match FileType::from_raw_mode(status.st_mode) {
            FileType::Symlink => {
                let target = folder.read_link(name).context("cannot read the link")?;
                self.store_link(target.as_bytes(), parent, name.as_bytes(), attributes, known.as_ref())
            }
            FileType::Directory => {
                let folder = folder.enter(name).context("cannot open the folder")?;
                let (directory, is_new) = self.enter_or_make(parent, name.as_bytes(), known, attributes)?;
                let (attributes, parent) = (is_new.then_some(attributes), Some(Arc::clone(source)));
                let source = Arc::new(Source { folder, directory, attributes, parent });
                steps.add(self.list_source(&source)?);
                self.release_source(source);
                Ok(())
            }
            FileType::RegularFile => self.store_file(&|| folder.read(name), parent, name.as_bytes(), known),
            _ => {
                self.totals.skip(source.path(name).display(), "it is neither file, directory nor link");
                Ok(())
            }
        }
    }

    /// Returns a step for each entry of a folder.
    fn list_source(&self, source: &Arc<Source>) -> Result<Vec<Step>> {
        let (names, directory) =
            (source.folder.names().context("cannot list the folder")?, &source.directory);
        let mut known = HashMap::new();
        if source.attributes.is_none() {
            let present = self.persist(directory.address(), || self.cell.try_list(directory));
            let present = doing("list the directory in the cell", present)??;
            let is_wanted =
                |entry: &Entry| names.binary_search_by(|name| name.as_bytes().cmp(&entry.name)).is_ok();
            let present: Vec<Entry> = present.into_iter().filter(is_wanted).collect();
            let nodes = self.persist(directory.address(), || self.cell.try_open_entries(directory, &present));
            let nodes = doing("read the directory in the cell", nodes)?;
            for (entry, node) in present.into_iter().zip(nodes) {
                let shown = base::text::escape(&entry.name);
                known.insert(entry.name, node.map_err(failed(format!("read the status of {shown}")))?);
            }
        }
        let mut steps = Vec::with_capacity(names.len());
        for name in names {
            let known = known.remove(name.as_bytes()).map(Box::new);
            steps.push(Step::Entry { folder: Arc::clone(source), name, known });
        }
        Ok(steps)
    }

    /// Ends one use of a folder. After the last one, the directory in the cell gets its attributes.
    fn release_source(&self, source: Arc<Source>) {
        let mut next = Some(source);
        while let Some(Source { folder, directory, attributes, parent }) = next.and_then(Arc::into_inner) {
            if let Some(attributes) = attributes {
                let set = || self.cell.set_attributes(&directory, attributes);
                match self.persist(directory.address(), set) {
                    // A caller who may only insert: the directory keeps its mode and the time of the last entry.
                    Err(code) if matches!(widened(code), AbortCode::UAEACCES | AbortCode::UAEPERM) => {}
                    set => {
                        if let Err(error) = doing("set the mode and time of the directory", set) {
                            self.totals.fail(folder.path().display(), &error);
                        }
                    }
                }
            }
            next = parent;
        }
    }

    /// Returns the directory `name`, and whether it is new.
    fn enter_or_make(
        &self,
        parent: &Node,
        name: &[u8],
        known: Option<Node>,
        attributes: Attributes,
    ) -> Result<(Node, bool)> {
        if let Some(known) = known {
            ensure!(known.is_directory(), "it exists in the cell and is not a directory");
            return Ok((known, false));
        }
        let make = || self.cell.make_directory(parent, name, attributes);
        let made = match self.persist(parent.address(), make) {
            // This copy made it, with a call that was not answered; or another client did, just now.
            Err(code) if exists(code) => self.existing(parent, name)?,
            made => doing("make the directory", made)?,
        };
        ensure!(made.is_directory(), "another client has just made it, and not as a directory");
        self.totals.directories.fetch_add(1, Relaxed);
        Ok((made, true))
    }

    fn existing(&self, parent: &Node, name: &[u8]) -> Result<Node> {
        self.cell.child(parent, name)?.context("it exists in the cell, and then it does not")
    }

    fn remove(&self, parent: &Node, name: &[u8]) -> Result<()> {
        match self.persist(parent.address(), || self.cell.remove(parent, name)) {
            Err(code) if widened(code) != AbortCode::UAENOENT => {
                Err(failed("remove what has this name in the cell")(code))
            }
            _ => Ok(()),
        }
    }

    fn store_link(
        &self,
        target: &[u8],
        parent: &Node,
        name: &[u8],
        attributes: Attributes,
        known: Option<&Node>,
    ) -> Result<()> {
        let attributes = Attributes { mode: 0o777, ..attributes };
        ensure!(!known.is_some_and(Node::is_mount_point), MOUNT_POINT);
        let mut known = known.is_some();
        for _ in 0..CHANGES_MAX {
            if known {
                self.remove(parent, name)?;
            }
            let link = || self.cell.symlink(parent, name, target, attributes);
            match self.persist(parent.address(), link) {
                Err(code) if exists(code) => known = true,
                made => {
                    doing("make the link", made)?;
                    self.totals.links.fetch_add(1, Relaxed);
                    return Ok(());
                }
            }
        }
        bail!("something else makes files of this name in the cell")
    }

    /// Copies a file's data; once more if it changes meanwhile.
    fn store_file(
        &self,
        open: &dyn Fn() -> std::io::Result<File>,
        parent: &Node,
        name: &[u8],
        known: Option<Node>,
    ) -> Result<()> {
        let mut file = known.map(|known| (known, false));
        for _ in 0..CHANGES_MAX {
            let mut input = open().context("cannot read it")?;
            let before = input.metadata().context("cannot read it")?;
            let (node, is_new) = match file.take() {
                Some(file) => file,
                None => self.create(parent, name, attributes_of(&before))?,
            };
            ensure!(!node.is_directory(), "it is a directory in the cell");
            ensure!(!node.is_mount_point(), MOUNT_POINT);
            if node.is_symlink() {
                // It is replaced, as in the other direction.
                self.remove(parent, name)?;
                continue;
            }
            let stored = self.store_data(&node, is_new, &before, &mut input);
            let is_unchanged = input.metadata().is_ok_and(|after| is_same(&before, &after));
            match stored {
                Ok(()) if is_unchanged => {
                    self.totals.files.fetch_add(1, Relaxed);
                    return Ok(());
                }
                Ok(()) => {}
                Err(error) if ended(&error) => {}
                Err(error) => {
                    if is_new && !self.totals.is_lost.load(Relaxed) {
                        // The empty file is no copy.
                        let _ = self.cell.remove(parent, name);
                    }
                    return Err(error);
                }
            }
            file = Some((node, false));
        }
        bail!("it changes while it is copied, and its copy may be a mixture")
    }

    fn store_data(&self, node: &Node, is_new: bool, before: &Metadata, input: &mut File) -> Result<()> {
        let (attributes, length) = (attributes_of(before), before.len());
        if is_new && length == 0 {
            return Ok(());
        }
        let mut sent = 0;
        let stored = self.persist(node.address(), || {
            self.totals.bytes.fetch_sub(std::mem::take(&mut sent), Relaxed);
            let mut count = |bytes| {
                sent += bytes;
                self.totals.bytes.fetch_add(bytes, Relaxed);
            };
            match self.cell.try_store(node, attributes, input, length, &mut count) {
                Ok(answer) => answer.map(Ok),
                Err(error) => Ok(Err(error)),
            }
        });
        let stored = doing("store it", stored).and_then(|stored| stored);
        if stored.is_err() {
            self.totals.bytes.fetch_sub(sent, Relaxed);
        }
        stored
    }

    /// Creates a file; the flag is false if it exists meanwhile.
    fn create(&self, parent: &Node, name: &[u8], attributes: Attributes) -> Result<(Node, bool)> {
        match self.persist(parent.address(), || self.cell.create(parent, name, attributes)) {
            // Another client made it, or this one, whose first call was not answered.
            Err(code) if exists(code) => Ok((self.existing(parent, name)?, false)),
            created => Ok((doing("create it", created)?, true)),
        }
    }
}

fn exists(code: AbortCode) -> bool {
    widened(code) == AbortCode::UAEEXIST
}

/// Returns whether a local file ended before the length that it had.
fn ended(error: &anyhow::Error) -> bool {
    error.downcast_ref::<std::io::Error>().is_some_and(|error| error.kind() == ErrorKind::UnexpectedEof)
}
