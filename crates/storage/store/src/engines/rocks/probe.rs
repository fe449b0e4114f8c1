//! Checks that a folder is writable before RocksDB opens it.

use crate::StoreError;
use crate::home::failed;
use disk::{Disk, RealDisk};
use std::io::{self, IoSlice};
use std::path::Path;

/// Name of the file that is written and removed; RocksDB ignores it.
const NAME: &str = "probe";

/// Larger than the header of RocksDB's info log.
const BYTES: usize = 256 << 10;

/// Fails if data cannot be written to the folder. RocksDB keeps an info log there, and an error while writing
/// the log's header during the open aborts the process.
pub(super) fn check_writable(folder: &Path) -> Result<(), StoreError> {
    let path = folder.join(NAME);
    let write = || -> io::Result<()> {
        if !RealDisk.exists(folder)? {
            return Ok(());
        }
        if RealDisk.exists(&path)? {
            RealDisk.remove(&path)?;
        }
        let file = RealDisk.create(&path)?;
        let written = file.write_all_at(&mut [IoSlice::new(&vec![0; BYTES])], 0);
        let written = written.and_then(|()| file.sync_all());
        RealDisk.remove(&path).and(written)
    };
    write().map_err(|error| failed("write", &path, error))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_probe_cleans_up_after_a_crash() {
        let folder = tempfile::tempdir().unwrap();
        check_writable(&folder.path().join("missing")).unwrap();
        std::fs::write(folder.path().join(NAME), "some").unwrap();
        check_writable(folder.path()).unwrap();
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
    }

    #[test]
    fn a_folder_that_takes_nothing_is_refused_by_name() {
        // No process can create files there.
        let error = check_writable(Path::new("/proc/self")).unwrap_err().to_string();
        assert!(error.starts_with("cannot write /proc/self/probe: "), "{error}");
    }
}
