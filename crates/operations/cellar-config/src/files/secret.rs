//! Key files, which only the server's user and root may access.

use anyhow::{Context, Result, bail};
use std::fmt;
use std::fs::{File, Metadata};
use std::io::Read;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use zeroize::Zeroizing;

/// Permission bits of group and others.
const OTHERS: u32 = 0o077;

/// What to do with key files that other users can access.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Exposure {
    /// Refuse them.
    #[default]
    Refused,
    /// Read them with a warning: `security.loose_key_files`.
    Allowed,
}

/// A file or directory that other users can access, and the command that fixes it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mending {
    path: PathBuf,
    found: String,
    command: &'static str,
}

impl fmt::Display for Mending {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (path, found, command) = (self.path.display(), &self.found, self.command);
        write!(f, "other users can access {path} ({found}): run `{command} {path}`")
    }
}

/// Checks whether other users can access `path`; `None` if not, or if it does not exist.
pub fn exposed(path: &Path) -> Option<Mending> {
    mending(path, &path.metadata().ok()?)
}

fn mending(path: &Path, metadata: &Metadata) -> Option<Mending> {
    let (owner, own) = (metadata.uid(), rustix::process::geteuid().as_raw());
    let mode = metadata.permissions().mode() & 0o7777;
    let is_trusted = owner == 0 || owner == own || (own == 0 && is_kept_by_root(path, metadata));
    let (found, command) = if !is_trusted {
        (format!("it belongs to the user {owner}"), if own == 0 { "chown root" } else { "sudo chown $USER" })
    } else if mode & OTHERS != 0 {
        (format!("mode {mode:o}"), if metadata.is_dir() { "chmod 700" } else { "chmod 600" })
    } else {
        return None;
    };
    Some(Mending { path: path.to_owned(), found, command })
}

/// Whether a file is in a folder whose names only root can change. So root has put it there for the user who owns it, such as
/// the server's user: commands that root runs may read what that server reads.
fn is_kept_by_root(path: &Path, file: &Metadata) -> bool {
    let identity = |of: &Metadata| (of.dev(), of.ino());
    let Some((path, folder)) = path.canonicalize().ok().and_then(|path| {
        let folder = path.parent()?.metadata().ok()?;
        Some((path, folder))
    }) else {
        return false;
    };
    let is_same = path.symlink_metadata().is_ok_and(|named| identity(&named) == identity(file));
    is_same && file.is_file() && folder.uid() == 0 && folder.permissions().mode() & 0o022 == 0
}

/// Reads a key file. Returns a problem with its mode if that is allowed.
///
/// # Errors
/// If it cannot be read, or other users can access it.
pub fn read_secret(path: &Path, exposure: Exposure) -> Result<(Zeroizing<Vec<u8>>, Option<Mending>)> {
    let doing = "cannot read the file";
    let mut file = File::open(path).context(doing)?;
    // Checks the open file, because the name may refer to another file by now.
    let mending = mending(path, &file.metadata().context(doing)?);
    if let (Some(mending), Exposure::Refused) = (&mending, exposure) {
        bail!("{mending}, or set `loose_key_files = true` to allow it");
    }
    let mut bytes = Zeroizing::new(Vec::new());
    file.read_to_end(&mut bytes).context(doing)?;
    Ok((bytes, mending))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::Permissions;
    use std::os::unix::fs::chown;

    #[test]
    fn a_key_file_that_others_may_reach_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("key");
        std::fs::write(&path, "secret").unwrap();
        let read = |mode, exposure| {
            std::fs::set_permissions(&path, Permissions::from_mode(mode)).unwrap();
            read_secret(&path, exposure)
        };
        for mode in [0o600, 0o400, 0o700] {
            assert_eq!(read(mode, Exposure::Refused).unwrap().1, None, "{mode:o}");
        }
        for mode in [0o640, 0o604, 0o620, 0o602, 0o644] {
            let refused = read(mode, Exposure::Refused).unwrap_err().to_string();
            let wanted = format!("(mode {mode:o}): run `chmod 600 {}`", path.display());
            assert!(refused.contains(&wanted) && refused.contains("loose_key_files"), "{refused}");
            let (bytes, mending) = read(mode, Exposure::Allowed).unwrap();
            assert!(&**bytes == b"secret" && mending.unwrap().to_string().contains(&wanted));
        }
        assert!(exposed(&folder.path().join("missing")).is_none());
    }

    #[test]
    fn a_key_file_of_another_user_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("key");
        std::fs::write(&path, "secret").unwrap();
        std::fs::set_permissions(&path, Permissions::from_mode(0o600)).unwrap();
        // Only root can change the owner.
        if chown(&path, Some(4711), None).is_err() {
            return;
        }
        let in_folder = |mode| {
            std::fs::set_permissions(folder.path(), Permissions::from_mode(mode)).unwrap();
            read_secret(&path, Exposure::Refused)
        };
        for mode in [0o770, 0o702, 0o1777] {
            let refused = in_folder(mode).unwrap_err().to_string();
            assert!(refused.contains("it belongs to the user 4711): run `chown root"), "{mode:o}: {refused}");
        }
        // Root has put it there for that user, as the package does with the server's keys.
        for mode in [0o700, 0o750, 0o755] {
            assert_eq!(in_folder(mode).unwrap().1, None, "{mode:o}");
        }
        std::fs::set_permissions(&path, Permissions::from_mode(0o640)).unwrap();
        assert!(in_folder(0o750).unwrap_err().to_string().contains("mode 640"));
        std::fs::set_permissions(&path, Permissions::from_mode(0o600)).unwrap();
        chown(folder.path(), Some(4711), None).unwrap();
        assert!(in_folder(0o700).is_err(), "the user can replace it");
    }

    /// A link in a folder of root leads to a file that another user may replace.
    #[test]
    fn the_folder_of_the_file_itself_counts() {
        let [kept, open] = [(); 2].map(|()| tempfile::tempdir().unwrap());
        let (file, link) = (open.path().join("key"), kept.path().join("key"));
        std::fs::write(&file, "secret").unwrap();
        std::fs::set_permissions(&file, Permissions::from_mode(0o600)).unwrap();
        std::os::unix::fs::symlink(&file, &link).unwrap();
        if chown(&file, Some(4711), None).is_ok() {
            std::fs::set_permissions(open.path(), Permissions::from_mode(0o777)).unwrap();
            assert!(read_secret(&link, Exposure::Refused).is_err());
        }
    }
}
