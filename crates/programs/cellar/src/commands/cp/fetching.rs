//! Copies out of a cell.

use super::steps::Steps;
use super::{CHANGES_MAX, Copier, doing};
use anyhow::{Context as _, Result, bail, ensure};
use cell_client::describe::failed;
use cell_client::files::{Entry, Node};
use cell_client::path::CellPath;
use disk::beneath::{self, Folder};
use std::ffi::{OsStr, OsString};
use std::io::ErrorKind;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Number of entries whose status is fetched at a time.
const LOOK_ENTRIES: usize = 50;

/// A step of a copy out of a cell.
pub(super) enum Step {
    /// Fetch the status of entries of a directory.
    Look { folder: Arc<Target>, directory: Arc<Node>, entries: Vec<Entry> },
    /// Copy one object.
    Take { folder: Arc<Target>, name: OsString, node: Box<Node> },
}

/// A local folder.
pub(super) struct Target {
    folder: Arc<Folder>,
    /// The modification time to set after the last entry; `None` for a folder that existed before.
    modified: Option<SystemTime>,
    parent: Option<Arc<Target>>,
}

fn target(folder: Folder) -> Arc<Target> {
    Arc::new(Target { folder: Arc::new(folder), modified: None, parent: None })
}

fn modified(node: &Node) -> SystemTime {
    UNIX_EPOCH + Duration::from_secs(node.status.client_mod_time.into())
}

impl Target {
    fn path(&self, name: &OsStr) -> PathBuf {
        self.folder.path().join(name)
    }
}

impl Copier<'_> {
    /// Opens the target, and returns the first step.
    pub(super) fn begin_fetch(&self, from: &CellPath, to: &Path) -> Result<Vec<Step>> {
        let Some(node) = self.cell.find(from)? else { bail!("{from} does not exist") };
        ensure!(node.is_directory() || !from.is_directory, "{from} is not a directory");
        let (folder, name) = match open_target(to)? {
            Some(folder) if from.is_directory => return self.list(&target(folder), node),
            Some(folder) => {
                let base = from.components.last().map_or(from.volume.as_str(), String::as_str);
                (folder, OsStr::new(base))
            }
            None => {
                let is_folder = node.is_directory() || !ends_with_slash(to);
                ensure!(is_folder, "there is no directory {}", to.display());
                let name = to.file_name().with_context(|| format!("{} has no name", to.display()))?;
                let parent = to.parent().filter(|parent| !parent.as_os_str().is_empty());
                // The user named this path, so its links are followed.
                let parent = parent.unwrap_or(Path::new(".")).join("");
                let folder = Folder::open(&parent);
                (folder.with_context(|| format!("cannot open the folder {}", parent.display()))?, name)
            }
        };
        Ok(vec![Step::Take { folder: target(folder), name: name.to_owned(), node: Box::new(node) }])
    }

    /// Performs a step.
    pub(super) fn fetch(&self, step: Step, steps: &Steps<Step>) {
        let folder = match step {
            Step::Look { folder, directory, entries } => {
                if let Err(error) = self.look(&folder, &directory, entries, steps) {
                    self.totals.fail(folder.folder.path().display(), &error);
                }
                folder
            }
            Step::Take { folder, name, node } => {
                if let Err(error) = self.take(&folder, &name, *node, steps) {
                    self.totals.fail(folder.path(&name).display(), &error);
                }
                folder
            }
        };
        self.release(folder);
    }

    /// Fetches the status of entries, and adds a step for each.
    fn look(
        &self,
        folder: &Arc<Target>,
        directory: &Node,
        entries: Vec<Entry>,
        steps: &Steps<Step>,
    ) -> Result<()> {
        let nodes = self.persist(directory.address(), || self.cell.try_open_entries(directory, &entries));
        let nodes = doing("read the statuses of the entries of the directory", nodes)?;
        let mut next = Vec::with_capacity(entries.len());
        for (entry, node) in entries.into_iter().zip(nodes) {
            let name = OsStr::from_bytes(&entry.name);
            if let Err(error) = beneath::check_name(name) {
                self.totals.skip(folder.folder.path().display(), &error.to_string());
                continue;
            }
            match node {
                Ok(node) => {
                    let (folder, name) = (Arc::clone(folder), name.to_owned());
                    next.push(Step::Take { folder, name, node: Box::new(node) });
                }
                Err(code) => {
                    let error = failed("read its status")(code);
                    self.totals.fail(folder.path(name).display(), &error);
                }
            }
        }
        steps.add(next);
        Ok(())
    }

    fn take(&self, target: &Arc<Target>, name: &OsStr, node: Node, steps: &Steps<Step>) -> Result<()> {
        let folder = &target.folder;
        if node.is_directory() {
            let (below, is_new) = folder.enter_or_make(name).context("cannot make the folder")?;
            self.totals.directories.fetch_add(u64::from(is_new), Relaxed);
            let (modified, parent) = (is_new.then(|| modified(&node)), Some(Arc::clone(target)));
            let below = Arc::new(Target { folder: Arc::new(below), modified, parent });
            steps.add(self.list(&below, node)?);
            self.release(below);
            return Ok(());
        }
        if node.is_mount_point() {
            self.totals.skip(target.path(name).display(), "it is a mount point");
            return Ok(());
        }
        if node.is_symlink() {
            let link = self.persist(node.address(), || self.cell.try_read_link(&node));
            let link = doing("read the link", link)?;
            folder.make_link(name, OsStr::from_bytes(&link)).context("cannot make the link")?;
            self.totals.links.fetch_add(1, Relaxed);
            return Ok(());
        }
        self.take_file(folder, name, node)
    }

    /// Copies a file's data; once more if it changes meanwhile.
    fn take_file(&self, folder: &Arc<Folder>, name: &OsStr, mut node: Node) -> Result<()> {
        for _ in 0..CHANGES_MAX {
            let (mut received, mut fresh) = (0, None);
            let fetched = self.persist(node.address(), || {
                self.totals.bytes.fetch_sub(std::mem::take(&mut received), Relaxed);
                let file = match folder.begin(name, node.status.unix_mode_bits) {
                    Ok(begun) => fresh.insert(begun).file(),
                    Err(error) => return Ok(Err(error.into())),
                };
                let mut count = |bytes| {
                    received += bytes;
                    self.totals.bytes.fetch_add(bytes, Relaxed);
                };
                match self.cell.try_fetch(&node, file, &mut count) {
                    Ok(Err(code)) => Err(code),
                    Ok(Ok(status)) => Ok(Ok(status)),
                    Err(error) => Ok(Err(error)),
                }
            });
            node.status = doing("fetch it", fetched)??;
            if received == node.length()
                && let Some(fresh) = fresh
            {
                let modified = Some(modified(&node));
                fresh.set_attributes(&beneath::Attributes { modified, ..beneath::Attributes::default() })?;
                fresh.keep()?;
                self.totals.files.fetch_add(1, Relaxed);
                return Ok(());
            }
            self.totals.bytes.fetch_sub(received, Relaxed);
        }
        bail!("it changes while it is copied")
    }

    /// Returns the steps that look at the entries of a directory.
    fn list(&self, folder: &Arc<Target>, directory: Node) -> Result<Vec<Step>> {
        let entries = self.persist(directory.address(), || self.cell.try_list(&directory));
        let mut entries = doing("list the directory", entries)??;
        entries.sort_unstable_by(|a, b| a.name.cmp(&b.name));
        let (directory, mut steps) = (Arc::new(directory), Vec::new());
        for entries in entries.chunks(LOOK_ENTRIES) {
            let (folder, directory) = (Arc::clone(folder), Arc::clone(&directory));
            steps.push(Step::Look { folder, directory, entries: entries.to_vec() });
        }
        Ok(steps)
    }

    /// Ends one use of a folder. After the last one, the folder gets its modification time.
    fn release(&self, folder: Arc<Target>) {
        let mut next = Some(folder);
        while let Some(Target { folder, modified, parent }) = next.and_then(Arc::into_inner) {
            if modified.is_some()
                && let Err(error) =
                    folder.set_attributes(&beneath::Attributes { modified, ..beneath::Attributes::default() })
            {
                let error = anyhow::Error::from(error).context("cannot set its modification time");
                self.totals.fail(folder.path().display(), &error);
            }
            next = parent;
        }
    }
}

/// Opens the directory that the target names; `None` if it is a file or does not exist.
fn open_target(to: &Path) -> Result<Option<Folder>> {
    let shown = to.display();
    match Folder::open(to) {
        Ok(folder) => return Ok(Some(folder)),
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        Err(error) if error.kind() == ErrorKind::PermissionDenied => {
            return Err(error).with_context(|| format!("cannot open {shown}"));
        }
        Err(_) => {}
    }
    let kind = to.symlink_metadata().with_context(|| format!("cannot open {shown}"))?.file_type();
    ensure!(
        !kind.is_symlink(),
        "{shown} is a symbolic link, which is not followed: remove it, or write `{shown}/` for the \
        directory that it points to"
    );
    ensure!(kind.is_file(), "{shown} is neither a file nor a directory");
    Ok(None)
}

fn ends_with_slash(path: &Path) -> bool {
    path.as_os_str().as_bytes().ends_with(b"/")
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    #[test]
    fn a_target_that_is_a_link_is_refused_without_a_slash() {
        let root = tempfile::tempdir().unwrap();
        let path = |name: &str| root.path().join(name);
        std::fs::create_dir(path("folder")).unwrap();
        std::fs::write(path("file"), "").unwrap();
        symlink("folder", path("link")).unwrap();
        symlink("file", path("to-file")).unwrap();
        symlink("nothing", path("dangling")).unwrap();
        for name in ["link", "to-file", "dangling"] {
            let refused = open_target(&path(name)).unwrap_err().to_string();
            assert!(refused.contains("is a symbolic link, which is not followed"), "{refused}");
        }
        for name in ["folder", "folder/", "link/", "link/."] {
            assert!(open_target(&path(name)).unwrap().is_some(), "{name}");
        }
        for name in ["file", "missing", "missing/"] {
            assert!(open_target(&path(name)).unwrap().is_none(), "{name}");
        }
        assert!(open_target(Path::new("/dev/null")).unwrap_err().to_string().contains("neither"));
    }
}
