//! Copies out of a cell.

use super::{Copier, Job};
use anyhow::{Context as _, Result, bail, ensure};
use cell_client::files::Node;
use cell_client::path::CellPath;
use disk::beneath::{self, Folder};
use std::ffi::OsStr;
use std::io::ErrorKind;
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;

impl Copier<'_> {
    pub(super) fn fetch(&self, from: &CellPath, to: &Path) -> Result<()> {
        let Some(node) = self.cell.find(from)? else { bail!("{from} does not exist") };
        ensure!(node.is_directory() || !from.is_directory, "{from} is not a directory");
        match open_target(to)? {
            Some(folder) if from.is_directory => self.fetch_contents(&node, &Arc::new(folder)),
            Some(folder) => {
                let base = from.components.last().map_or(from.volume.as_str(), String::as_str);
                self.fetch_node(&node, &Arc::new(folder), OsStr::new(base))
            }
            None => {
                let is_folder = node.is_directory() || !ends_with_slash(to);
                ensure!(is_folder, "there is no directory {}", to.display());
                let name = to.file_name().with_context(|| format!("{} has no name", to.display()))?;
                let parent = to.parent().filter(|parent| !parent.as_os_str().is_empty());
                // The user named this path, so its links are followed.
                let parent = parent.unwrap_or(Path::new(".")).join("");
                let folder = Folder::open(&parent);
                let folder =
                    folder.with_context(|| format!("cannot open the directory {}", parent.display()))?;
                self.fetch_node(&node, &Arc::new(folder), name)
            }
        }
    }

    fn fetch_node(&self, node: &Node, folder: &Arc<Folder>, name: &OsStr) -> Result<()> {
        let shown = || folder.path().join(name).display().to_string();
        if node.is_directory() {
            let made = folder.enter_or_make(name).with_context(|| format!("cannot make {}", shown()))?;
            let (below, is_new) = made;
            self.totals.directories.fetch_add(u64::from(is_new), Ordering::Relaxed);
            return self.fetch_contents(node, &Arc::new(below));
        }
        if node.is_mount_point() {
            self.totals.skip(shown(), "it is a mount point");
            return Ok(());
        }
        if node.is_symlink() {
            let target = self.cell.read_link(node)?;
            self.totals.links.fetch_add(1, Ordering::Relaxed);
            let made = folder.make_link(name, OsStr::from_bytes(&target));
            return made.with_context(|| format!("cannot create the link {}", shown()));
        }
        self.queue(Job::Fetch { file: node.clone(), folder: Arc::clone(folder), name: name.to_owned() })
    }

    fn fetch_contents(&self, node: &Node, folder: &Arc<Folder>) -> Result<()> {
        for entry in self.cell.list(node)? {
            let name = OsStr::from_bytes(&entry.name);
            if let Err(error) = beneath::check_name(name) {
                self.totals.skip(folder.path().display(), &error.to_string());
                continue;
            }
            self.fetch_node(&self.cell.open_entry(node, &entry)?, folder, name)?;
        }
        Ok(())
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
