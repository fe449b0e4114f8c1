//! Small state files of the server: private to its user, and either old or new after a crash.

mod secret;

pub use secret::{Exposure, Mending, exposed, read_secret};

use disk::beneath::{Attributes, Folder, may_give};
use rustix::fs::OFlags;
use std::fs::{DirBuilder, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt};
use std::path::Path;
use std::sync::Arc;

/// Permission bits of new files.
const FILE_MODE: u32 = 0o600;
const FOLDER_MODE: u32 = 0o700;

/// Creates a directory and its missing parents.
pub fn make_folder(path: &Path) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(FOLDER_MODE).create(path)
}

/// Opens a file for writing, truncating an existing one. Does not follow a link.
pub fn create(path: &Path) -> io::Result<File> {
    let flags = OFlags::NOFOLLOW.bits() as i32;
    OpenOptions::new().write(true).create(true).truncate(true).mode(FILE_MODE).custom_flags(flags).open(path)
}

/// Creates a file; fails if the name exists, even as a link.
pub fn create_new(path: &Path) -> io::Result<File> {
    OpenOptions::new().write(true).create_new(true).mode(FILE_MODE).open(path)
}

/// Replaces a file's contents, creating the file and its directory if necessary. An existing file keeps its
/// permission bits; a link is replaced.
pub fn replace(path: &Path, contents: &[u8]) -> io::Result<()> {
    let parent = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    make_folder(parent)?;
    let name = path.file_name().ok_or(io::ErrorKind::InvalidInput)?;
    // Links in the directory's path were made by the administrator and are followed.
    let folder = Arc::new(Folder::open(&parent.join(""))?);
    let mut fresh = folder.begin_named(name, FILE_MODE)?;
    fresh.file().write_all(contents)?;
    let present = path.symlink_metadata().ok().filter(std::fs::Metadata::is_file);
    if let Some(mode) = present.map(|present| present.permissions().mode() & 0o777) {
        fresh.set_attributes(&Attributes { mode: Some(mode), ..Attributes::default() })?;
    }
    fresh.file().sync_all()?;
    fresh.keep()?;
    folder.sync()
}

/// Gives a file that root has created in a folder of the server's user to that user; see [`Folder::give_to_owner`].
pub fn give_to_owner(path: &Path) -> io::Result<()> {
    let (Some(folder), Some(name)) = (path.parent(), path.file_name()) else { return Ok(()) };
    if !may_give() {
        return Ok(());
    }
    Folder::open(&folder.join(""))?.give_to_owner(name)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::{self, Permissions};

    fn mode(path: &Path) -> u32 {
        path.symlink_metadata().unwrap().permissions().mode() & 0o7777
    }

    #[test]
    fn a_file_is_replaced_whole_and_is_private() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("deep/file");
        replace(&path, b"one").unwrap();
        assert_eq!((mode(&path), mode(path.parent().unwrap())), (0o600, 0o700));
        fs::set_permissions(&path, Permissions::from_mode(0o640)).unwrap();
        replace(&path, b"two").unwrap();
        assert_eq!((fs::read(&path).unwrap(), mode(&path)), (b"two".to_vec(), 0o640));
        assert_eq!(fs::read_dir(path.parent().unwrap()).unwrap().count(), 1);
    }

    #[test]
    fn links_in_the_way_are_not_written_through() {
        let folder = tempfile::tempdir().unwrap();
        let (victim, link) = (folder.path().join("victim"), folder.path().join("link"));
        fs::write(&victim, "mine").unwrap();
        std::os::unix::fs::symlink(&victim, &link).unwrap();
        assert!(create(&link).is_err() && create_new(&link).is_err());
        replace(&link, b"state").unwrap();
        assert_eq!(fs::read(&victim).unwrap(), b"mine");
        assert_eq!((fs::read(&link).unwrap(), mode(&link)), (b"state".to_vec(), 0o600));
        create(&link).unwrap();
        assert_eq!(fs::read(&link).unwrap(), b"");
    }
}
