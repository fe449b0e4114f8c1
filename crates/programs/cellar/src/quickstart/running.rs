//! The running quickstart cell of a folder: a lock that `cellar quickstart` holds, by which other commands
//! find the cell.

use anyhow::{Context as _, Result, bail};
use cellar_config::files;
use rustix::fs::{FlockOperation, flock};
use std::fs::{File, OpenOptions};
use std::io::{ErrorKind, Read, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;

/// Configuration file in the cell's folder.
pub(super) const CONFIG: &str = "cellar.toml";
/// Default folder of the cell.
pub(super) const FOLDER: &str = "cell";
/// File that is locked while the cell runs; it contains the PID.
const LOCK: &str = "running";
/// Maximum length of the PID that is read.
const PID_BYTES_MAX: u64 = 20;
/// Number of attempts to lock: commands that check the lock hold it for a moment.
const ATTEMPTS: u32 = 20;
const PAUSE: Duration = Duration::from_millis(10);
/// Write permission of the group and of others.
const OTHERS_WRITE: u32 = 0o022;

/// The lock of a running cell; dropping it releases the lock.
pub(super) struct Running {
    _file: File,
}

impl Running {
    /// Locks the cell in a folder.
    ///
    /// # Errors
    /// If another process runs it; the error contains its PID.
    pub(super) fn lock(folder: &Path) -> Result<Running> {
        let path = folder.join(LOCK);
        let cannot = || format!("cannot lock {}", path.display());
        let mut file = open(OpenOptions::new().read(true).write(true).create(true).mode(0o600), &path)
            .with_context(cannot)?;
        for _ in 0..ATTEMPTS {
            match flock(&file, FlockOperation::NonBlockingLockExclusive) {
                Ok(()) => {
                    file.set_len(0)
                        .and_then(|()| write!(file, "{}", std::process::id()))
                        .with_context(cannot)?;
                    return Ok(Running { _file: file });
                }
                Err(rustix::io::Errno::WOULDBLOCK) => thread::sleep(PAUSE),
                Err(error) => return Err(error).with_context(cannot),
            }
        }
        let mut pid = String::new();
        let _ = file.take(PID_BYTES_MAX).read_to_string(&mut pid);
        bail!(
            "the cell in {} already runs, in process {}; use it, end it, or name another folder with --dir",
            folder.display(),
            base::text::escape(pid.as_bytes())
        )
    }
}

/// Returns the configuration of the cell that `cellar quickstart` runs from the current folder, or in it.
pub(crate) fn find() -> Option<PathBuf> {
    [Path::new(FOLDER), Path::new(".")].into_iter().find_map(find_in)
}

/// Returns whether commands in the current folder find a cell that runs in `folder`.
pub(super) fn is_found_from_here(folder: &Path) -> bool {
    let plain = folder.strip_prefix(".").unwrap_or(folder);
    [FOLDER, ""].iter().any(|place| plain == Path::new(place))
}

/// Returns the configuration of a folder if its cell runs. Folder and configuration must belong to the user,
/// and only the user may be able to write them: a configuration can name commands to run.
fn find_in(folder: &Path) -> Option<PathBuf> {
    let config = folder.join(CONFIG);
    let user = rustix::process::geteuid().as_raw();
    let is_own = |path: &Path| {
        path.metadata().is_ok_and(|found| found.uid() == user && found.mode() & OTHERS_WRITE == 0)
    };
    (is_own(folder) && is_own(&config) && is_locked(&folder.join(LOCK))).then_some(config)
}

fn is_locked(path: &Path) -> bool {
    let Ok(file) = open(OpenOptions::new().read(true), path) else { return false };
    flock(&file, FlockOperation::NonBlockingLockShared) == Err(rustix::io::Errno::WOULDBLOCK)
}

/// Opens a file, without following a link or waiting for a pipe.
fn open(options: &mut OpenOptions, path: &Path) -> std::io::Result<File> {
    use rustix::fs::OFlags;
    let flags = (OFlags::NOFOLLOW | OFlags::NONBLOCK).bits();
    options.custom_flags(i32::try_from(flags).map_err(|_| ErrorKind::InvalidInput)?).open(path)
}

/// Creates the folder of a cell.
pub(super) fn make_folder(folder: &Path) -> Result<()> {
    files::make_folder(folder).with_context(|| format!("cannot make {}", folder.display()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::{self, Permissions};
    use std::os::unix::fs::PermissionsExt;

    fn chmod(path: &Path, mode: u32) {
        fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
    }

    #[test]
    fn a_cell_is_found_only_while_it_runs() {
        let place = tempfile::tempdir().unwrap();
        let (folder, config) = (place.path(), place.path().join(CONFIG));
        fs::write(&config, "").unwrap();
        chmod(&config, 0o600);
        assert_eq!(find_in(folder), None);
        let running = Running::lock(folder).unwrap();
        assert_eq!(find_in(folder), Some(config));
        drop(running);
        assert_eq!(find_in(folder), None);
    }

    #[test]
    fn places_where_a_cell_is_found() {
        for (folder, is_found) in [
            ("cell", true),
            ("./cell/", true),
            (".", true),
            ("other", false),
            ("/cell", false),
            ("a/cell", false),
        ] {
            assert_eq!(is_found_from_here(Path::new(folder)), is_found, "{folder}");
        }
    }

    #[test]
    fn a_second_process_learns_the_first() {
        let place = tempfile::tempdir().unwrap();
        let _running = Running::lock(place.path()).unwrap();
        let error = Running::lock(place.path()).err().unwrap().to_string();
        assert!(error.contains(&format!("in process {};", std::process::id())), "{error}");
    }

    #[test]
    fn files_writable_by_others_are_not_used() {
        let place = tempfile::tempdir().unwrap();
        let (folder, config) = (place.path(), place.path().join(CONFIG));
        fs::write(&config, "").unwrap();
        let _running = Running::lock(folder).unwrap();
        for (folder_mode, config_mode, is_used) in
            [(0o700, 0o600, true), (0o755, 0o644, true), (0o770, 0o600, false), (0o700, 0o666, false)]
        {
            chmod(folder, folder_mode);
            chmod(&config, config_mode);
            assert_eq!(find_in(folder).is_some(), is_used, "{folder_mode:o} {config_mode:o}");
        }
    }
}
