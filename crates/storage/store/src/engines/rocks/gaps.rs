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

use super::logs::SUFFIX;
use crate::StoreError;
use crate::home::failed;
use crate::segment::crc32c;
use disk::{Disk, File};
use std::io::{self, ErrorKind, IoSlice};
use std::path::{Path, PathBuf};

/// RocksDB's unit of its logs. A record does not cross it; longer ones are split.
pub(super) const BLOCK_BYTES: usize = 32 << 10;
/// Bytes of a record's header: checksum, length and type. Shorter rests of blocks are unused.
pub(super) const HEADER_BYTES: usize = 7;
/// A header whose checksum is wrong: 4 bytes of checksum, 2 of length (0), 1 of type (a whole record).
const MARK: [u8; HEADER_BYTES] = *b"gap!\0\0\x01";
/// Types of records that RocksDB writes with a header of this length.
const TYPES: std::ops::RangeInclusive<u8> = 1..=4;

/// A header of zeros followed by other bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Gap {
    pub(super) path: PathBuf,
    /// Where in the log it begins, in bytes.
    pub(super) offset: u64,
}

/// Returns the gaps of all logs in a database's folder, which may be missing.
pub(super) fn find(disk: &dyn Disk, folder: &Path) -> Result<Vec<Gap>, StoreError> {
    let names = match disk.list(folder) {
        Ok(names) => names,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(failed("list", folder, error)),
    };
    let is_log = |name: &String| name.strip_suffix(SUFFIX).is_some_and(|name| name.parse::<u64>().is_ok());
    let mut gaps = Vec::new();
    for name in names.iter().filter(|name| is_log(name)) {
        let path = folder.join(name);
        let found = disk.open(&path).and_then(|file| gap(&*file));
        let offset = found.map_err(|error| failed("read", &path, error))?;
        gaps.extend(offset.map(|offset| Gap { path, offset }));
    }
    Ok(gaps)
}

/// Marks all gaps durably. A crash in between leaves some of them unmarked; the next open marks them.
pub(super) fn close(disk: &dyn Disk, folder: &Path) -> Result<(), StoreError> {
    for Gap { path, offset } in find(disk, folder)? {
        tracing::warn!(path = %path.display(), offset, "the log ends here; a crash lost a part of what follows");
        let mark = |file: &dyn File| {
            file.write_all_at(&mut [IoSlice::new(&MARK)], offset)?;
            file.sync_data()
        };
        let marked = disk.open(&path).and_then(|file| mark(&*file));
        marked.map_err(|error| failed("write", &path, error))?;
    }
    Ok(())
}

/// Where the intact records of a block end.
enum End {
    /// At the end of the block.
    Block,
    /// At a header of zeros, which RocksDB skips.
    Zeros(usize),
    /// At damage, or the end of the file, at which RocksDB itself stops.
    Damage,
}

/// Returns the offset of the first header of zeros, if it is followed by anything else.
fn gap(file: &dyn File) -> io::Result<Option<u64>> {
    let mut block = vec![0; BLOCK_BYTES];
    let (mut offset, mut zeros_from) = (0, None);
    loop {
        let count = fill(file, &mut block, offset)?;
        let block = &block[..count];
        if zeros_from.is_none() {
            match end(block) {
                End::Block => {}
                End::Zeros(at) => {
                    zeros_from = Some(offset + at as u64);
                    if block[at..].iter().any(|byte| *byte != 0) {
                        return Ok(zeros_from);
                    }
                }
                End::Damage => return Ok(None),
            }
        } else if block.iter().any(|byte| *byte != 0) {
            return Ok(zeros_from);
        }
        if count < BLOCK_BYTES {
            return Ok(None);
        }
        offset += count as u64;
    }
}

/// Reads until the buffer is full or the file ends; returns the number of bytes.
fn fill(file: &dyn File, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
    let mut done = 0;
    while done < buffer.len() {
        match file.read_at(&mut buffer[done..], offset + done as u64) {
            Ok(0) => break,
            Ok(count) => done += count,
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(done)
}

fn end(block: &[u8]) -> End {
    let mut at = 0;
    while let Some((header, rest)) = block[at..].split_first_chunk::<HEADER_BYTES>() {
        let [_, _, _, _, low, high, kind] = *header;
        let length = usize::from(u16::from_le_bytes([low, high]));
        if kind == 0 && length == 0 {
            return End::Zeros(at);
        }
        if !TYPES.contains(&kind) || rest.len() < length || !is_intact(&block[at..][..HEADER_BYTES + length])
        {
            return End::Damage;
        }
        at += HEADER_BYTES + length;
    }
    End::Block
}

/// Whether the checksum of a record, given with its header, is right.
fn is_intact(record: &[u8]) -> bool {
    let (stored, covered) = record.split_at(4);
    // The length is not covered.
    stored == masked(crc32c(&covered[2..])).to_le_bytes()
}

/// RocksDB's representation of a checksum stored next to the data it covers.
pub(super) fn masked(crc: u32) -> u32 {
    crc.rotate_right(15).wrapping_add(0xa282_ead8)
}

#[cfg(test)]
pub(super) mod tests;
