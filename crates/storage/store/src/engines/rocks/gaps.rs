//! Closes gaps that a crash left in the write-ahead log, before RocksDB reads it.
//!
//! RocksDB silently skips a block of a log from the first header of zeros on and continues with the next
//! block. Within one log, a power failure may lose an earlier block and keep a later one, if no sync covered
//! either; a lost block reads as zeros. RocksDB would then replay later commits without earlier ones. So a
//! header of zeros that is followed by anything but zeros is replaced by a [mark](MARK), which RocksDB treats
//! like any other damage: it ends recovery there. Layout: docs/reference/formats/partition.md.
//!
//! A mark is better than truncating the log. It is harmless in a log that RocksDB no longer needs, and RocksDB
//! continues with a later log only if that begins with exactly the next sequence number.

use super::survey::{HEADER_BYTES, Survey};
use crate::StoreError;
use crate::home::failed;
use disk::{Disk, File};
use std::io::IoSlice;
use std::path::Path;

/// A header whose checksum is wrong: 4 bytes of checksum, 2 of length (0), 1 of type (a whole record).
const MARK: [u8; HEADER_BYTES] = *b"gap!\0\0\x01";

/// Marks all gaps durably. A crash in between leaves some of them unmarked; the next open marks them.
pub(super) fn close(disk: &dyn Disk, logs: &[Survey]) -> Result<(), StoreError> {
    for (path, offset) in logs.iter().filter_map(|log| Some((&log.path, log.gap?))) {
        tracing::warn!(path = %path.display(), offset, "the log ends here; a crash lost a part of what follows");
        mark(disk, path, offset)?;
    }
    Ok(())
}

/// Makes RocksDB stop at this offset of a log, durably.
pub(super) fn mark(disk: &dyn Disk, path: &Path, offset: u64) -> Result<(), StoreError> {
    let mark = |file: &dyn File| {
        file.write_all_at(&mut [IoSlice::new(&MARK)], offset)?;
        file.sync_data()
    };
    let marked = disk.open(path).and_then(|file| mark(&*file));
    marked.map_err(|error| failed("write", path, error))
}

#[cfg(test)]
mod tests;
