//! A local file by which a process proves that the one before it has ended.
//!
//! A lease in the bucket only shows that its process has not renewed it. On the same machine more can be known: each
//! process keeps a lock on a file that contains its number. Who gets the lock knows that the process of the number has
//! ended, whatever has ended it. The file counts only on the machine that wrote it and until its next start, and only
//! if it is that very file: a copy, or the file seen by another machine through a network, proves nothing.

use rustix::fs::{FlockOperation, flock};
use std::fs::{File, OpenOptions};
use std::io::{self, Read, Seek, Write};
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// Longest contents in bytes.
const BYTES_MAX: u64 = 256;

/// Identifies the running kernel.
const BOOT_ID: &str = "/proc/sys/kernel/random/boot_id";

/// The locked file. The lock ends with the process, or when this is dropped.
#[derive(Debug)]
pub(crate) struct ProcessFile {
    _file: File,
    /// The number of the process that had the file before, if that has certainly ended.
    pub(crate) ended: Option<u128>,
}

impl ProcessFile {
    /// Locks the file at `path`, and writes the number of this process into it. Returns `None` if another process has
    /// the lock.
    ///
    /// # Errors
    /// If the file cannot be opened, locked, read or written.
    pub(crate) fn lock(path: &Path, nonce: u128) -> io::Result<Option<ProcessFile>> {
        let mut file = OpenOptions::new().read(true).write(true).create(true).truncate(false).open(path)?;
        match flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => {}
            Err(rustix::io::Errno::WOULDBLOCK) => return Ok(None),
            Err(error) => return Err(error.into()),
        }
        let place = place(&file)?;
        let mut before = String::new();
        // Contents that are no text are as good as none.
        _ = (&file).take(BYTES_MAX).read_to_string(&mut before);
        let ended = process_of(&before, &place);
        file.set_len(0)?;
        file.rewind()?;
        file.write_all(format!("{nonce:032x} {place}\n").as_bytes())?;
        Ok(Some(ProcessFile { _file: file, ended }))
    }
}

/// Returns what identifies the file and the running kernel.
fn place(file: &File) -> io::Result<String> {
    let boot = std::fs::read_to_string(BOOT_ID)?;
    let metadata = file.metadata()?;
    Ok(format!("{} {}:{}", boot.trim(), metadata.dev(), metadata.ino()))
}

/// Returns the number that the contents of a file have, if they were written at that place.
fn process_of(contents: &str, at: &str) -> Option<u128> {
    let (nonce, place) = contents.strip_suffix('\n')?.split_once(' ')?;
    (place == at).then(|| u128::from_str_radix(nonce, 16).ok()).flatten()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_next_process_knows_the_one_before() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("process");
        let first = ProcessFile::lock(&path, 1).unwrap().unwrap();
        assert_eq!(first.ended, None);
        assert!(ProcessFile::lock(&path, 2).unwrap().is_none(), "the first one runs");
        drop(first);
        assert_eq!(ProcessFile::lock(&path, u128::MAX).unwrap().unwrap().ended, Some(1));
        assert_eq!(ProcessFile::lock(&path, 4).unwrap().unwrap().ended, Some(u128::MAX));
    }

    #[test]
    fn a_copy_proves_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let [path, copy] = ["process", "copy"].map(|name| folder.path().join(name));
        drop(ProcessFile::lock(&path, 1).unwrap());
        std::fs::copy(&path, &copy).unwrap();
        assert_eq!(ProcessFile::lock(&copy, 2).unwrap().unwrap().ended, None);
    }

    #[test]
    fn other_contents_prove_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("process");
        drop(ProcessFile::lock(&path, 1).unwrap());
        let whole = std::fs::read_to_string(&path).unwrap();
        let other_boot = whole.replace(' ', " 0");
        let torn = &whole[..whole.len() - 1];
        for contents in ["", "\n", "1", torn, &other_boot, &"1".repeat(10_000)] {
            std::fs::write(&path, contents).unwrap();
            assert_eq!(ProcessFile::lock(&path, 2).unwrap().unwrap().ended, None, "{contents}");
        }
        std::fs::write(&path, [0xff; 40]).unwrap();
        assert_eq!(ProcessFile::lock(&path, 2).unwrap().unwrap().ended, None);
    }
}
