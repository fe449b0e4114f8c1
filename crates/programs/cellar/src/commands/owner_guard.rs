//! Keeps the owner of folders that belong to the server's user while a command of root writes to them.

use cellar_config::{Place, Settings, files};
use disk::beneath::{Folder, may_give};
use std::io;
use std::path::{Path, PathBuf};
use store::partition::FOLDER;

/// Gives what root creates in folders of the server to the owner of the folder above each, when it is dropped.
#[derive(Debug)]
#[must_use]
pub(crate) struct OwnerGuard(Vec<PathBuf>);

impl OwnerGuard {
    /// Returns a guard of a folder, which may be created later. Declare it before what writes to the folder, so that it is
    /// dropped afterwards.
    pub(crate) fn new(folder: &Path) -> OwnerGuard {
        OwnerGuard(vec![folder.to_owned()])
    }

    /// Returns a guard of the local partitions, and of the local copies of those in buckets.
    pub(crate) fn of_partitions(settings: &Settings) -> OwnerGuard {
        let places = settings.partitions.iter().map(|partition| &partition.place);
        let folder = |place: &Place| match place.bucket() {
            Some(bucket) => bucket.cache.clone(),
            None => place.folder().map(|path| path.join(FOLDER)),
        };
        OwnerGuard(places.filter_map(folder).collect())
    }
}

/// Gives a folder, and everything beneath, to the owner of the folder above.
fn give(folder: &Path) -> io::Result<()> {
    files::give_to_owner(folder)?;
    Folder::open(folder)?.give_all_to_owner()
}

impl Drop for OwnerGuard {
    fn drop(&mut self) {
        if !may_give() {
            return;
        }
        for folder in &self.0 {
            match give(folder) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => eprintln!(
                    "cellar: files of root are left in {}, which the server's user may be unable to open: {error}",
                    folder.display()
                ),
                _ => {}
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::fs::{MetadataExt, chown};

    #[test]
    fn a_folder_that_root_wrote_to_belongs_to_its_owner_again() {
        const OWNER: u32 = 4711;
        let place = tempfile::tempdir().unwrap();
        // Only root can change the owner.
        if chown(place.path(), Some(OWNER), None).is_err() {
            return;
        }
        let folder = place.path().join("store");
        for name in ["first", "second"] {
            let _guard = OwnerGuard::new(&folder);
            fs::create_dir_all(folder.join(name)).unwrap();
            fs::write(folder.join(name).join("log"), "").unwrap();
        }
        fs::write(place.path().join("other"), "").unwrap();
        let owner = |name: &str| fs::metadata(place.path().join(name)).unwrap().uid();
        let names = ["store", "store/first/log", "store/second", "store/second/log", "other"];
        assert_eq!(names.map(owner), [OWNER, OWNER, OWNER, OWNER, 0]);
        drop(OwnerGuard::new(&place.path().join("none")));
    }
}
