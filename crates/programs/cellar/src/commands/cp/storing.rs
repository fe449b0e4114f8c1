//! Copies into a cell.

use super::{Copier, Job};
use anyhow::{Context as _, Result, bail};
use cell_client::describe::failed;
use cell_client::files::{Attributes, Node};
use cell_client::path::CellPath;
use disk::beneath::Folder;
use rustix::fs::FileType;
use std::ffi::OsStr;
use std::fs::{File, Metadata};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;

fn attributes_of(metadata: &Metadata) -> Attributes {
    attributes(metadata.mode(), metadata.mtime())
}

fn attributes(mode: u32, modified: i64) -> Attributes {
    Attributes { mode, modified: u32::try_from(modified).unwrap_or(0) }
}

/// An open local file; later changes of its name have no effect.
struct Input {
    path: PathBuf,
    file: File,
    metadata: Metadata,
}

impl Input {
    fn new(path: PathBuf, file: std::io::Result<File>) -> Result<Input> {
        let shown = || format!("cannot read {}", path.display());
        let file = file.with_context(shown)?;
        let metadata = file.metadata().with_context(shown)?;
        Ok(Input { path, file, metadata })
    }
}

impl Copier<'_> {
    /// Follows `from` itself if it is a link, because the user named it.
    pub(super) fn store(&self, from: &Path, contents_only: bool, to: &CellPath) -> Result<()> {
        let metadata = std::fs::metadata(from).with_context(|| format!("cannot read {}", from.display()))?;
        let existing = self.cell.find(to)?;
        let base = from.file_name().and_then(|name| name.to_str());
        if metadata.is_dir() {
            let folder = Folder::open(&from.join(""));
            let folder = folder.with_context(|| format!("cannot open {}", from.display()))?;
            let target = match (existing, contents_only, base) {
                (Some(node), false, Some(base)) if node.is_directory() => {
                    self.directory_in(&node, base, &metadata)?
                }
                (Some(node), _, _) => node,
                (None, ..) => self.new_directory(to, &metadata)?,
            };
            return self.store_directory(&folder, &target);
        }
        let input = Input::new(from.to_owned(), File::open(from))?;
        match (existing, base) {
            (Some(node), Some(base)) if node.is_directory() => self.store_file(input, &node, base.as_bytes()),
            _ => {
                let Some((parent, name)) = to.split_last() else { bail!("{to} is a volume's root") };
                let Some(parent) = self.cell.find(&parent)? else { bail!("{parent} does not exist") };
                self.store_file(input, &parent, name.as_bytes())
            }
        }
    }

    fn new_directory(&self, path: &CellPath, metadata: &Metadata) -> Result<Node> {
        let Some((parent, name)) = path.split_last() else { bail!("{path} does not exist") };
        let Some(parent) = self.cell.find(&parent)? else { bail!("{parent} does not exist") };
        self.directory_in(&parent, name, metadata)
    }

    /// Returns the directory `name` in `parent`, creating it if necessary.
    fn directory_in(&self, parent: &Node, name: &str, metadata: &Metadata) -> Result<Node> {
        if let Some(node) = self.cell.child(parent, name.as_bytes())? {
            return if node.is_directory() {
                Ok(node)
            } else {
                bail!("{name} exists and is not a directory")
            };
        }
        self.make_directory(parent, name, attributes_of(metadata))
    }

    fn make_directory(&self, parent: &Node, name: &str, attributes: Attributes) -> Result<Node> {
        self.totals.directories.fetch_add(1, Ordering::Relaxed);
        let made = self.cell.make_directory(parent, name.as_bytes(), attributes);
        made.map_err(failed(format!("make the directory {name}")))
    }

    fn store_directory(&self, from: &Folder, target: &Node) -> Result<()> {
        let names = from.names().with_context(|| format!("cannot list {}", from.path().display()))?;
        let present = self.cell.list(target)?;
        for name in names {
            let Some(text) = name.to_str() else {
                self.totals.skip(from.path().join(&name).display(), "its name is not UTF-8");
                continue;
            };
            let known = present.iter().find(|known| known.name == text.as_bytes());
            let known = known.map(|known| self.cell.open_entry(target, known)).transpose()?;
            self.store_entry(from, text, target, known)?;
        }
        Ok(())
    }

    fn store_entry(&self, from: &Folder, name: &str, parent: &Node, known: Option<Node>) -> Result<()> {
        let path = from.path().join(name);
        let shown = || format!("cannot read {}", path.display());
        let local = OsStr::new(name);
        let status = from.status(local).with_context(shown)?;
        let attributes = attributes(status.st_mode, status.st_mtime);
        match FileType::from_raw_mode(status.st_mode) {
            FileType::Symlink => {
                let target = from.read_link(local).with_context(shown)?;
                self.store_link(&target, parent, name, attributes, known.is_some())
            }
            FileType::Directory => {
                let folder = from.enter(local).with_context(shown)?;
                let target = match known {
                    Some(node) if node.is_directory() => node,
                    Some(_) => bail!("{name} exists in the cell and is not a directory"),
                    None => self.make_directory(parent, name, attributes)?,
                };
                self.store_directory(&folder, &target)
            }
            FileType::RegularFile => {
                let input = Input::new(path.clone(), from.read(local))?;
                self.queue_store(input, parent, name.as_bytes(), known)
            }
            _ => {
                self.totals.skip(path.display(), "it is neither file, directory nor link");
                Ok(())
            }
        }
    }

    fn store_link(
        &self,
        target: &OsStr,
        parent: &Node,
        name: &str,
        attributes: Attributes,
        exists: bool,
    ) -> Result<()> {
        let doing = || failed(format!("make the link {name}"));
        let target = target.to_str().context("the link's target is not UTF-8")?.as_bytes();
        if exists {
            self.cell.remove(parent, name.as_bytes()).map_err(doing())?;
        }
        let attributes = Attributes { mode: 0o777, ..attributes };
        self.totals.links.fetch_add(1, Ordering::Relaxed);
        self.cell.symlink(parent, name.as_bytes(), target, attributes).map_err(doing())
    }

    fn store_file(&self, input: Input, parent: &Node, name: &[u8]) -> Result<()> {
        let known = self.cell.child(parent, name)?;
        self.queue_store(input, parent, name, known)
    }

    fn queue_store(&self, input: Input, parent: &Node, name: &[u8], known: Option<Node>) -> Result<()> {
        let Input { path, file: input, metadata } = input;
        let attributes = attributes_of(&metadata);
        let file = match known {
            Some(node) if node.is_directory() => bail!("{} is a directory in the cell", path.display()),
            Some(node) => node,
            None => self
                .cell
                .create(parent, name, attributes)
                .map_err(failed(format!("create {}", base::text::escape(name))))?,
        };
        self.queue(Job::Store { path, input, file, attributes, length: metadata.len() })
    }
}
