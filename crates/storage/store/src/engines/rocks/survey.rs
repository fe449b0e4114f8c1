//! Reads the write-ahead log before RocksDB does: where it is damaged, and what it claims to have been durable.
//!
//! Layout: docs/reference/formats/partition.md.

use super::claims::{self, Key};
use crate::StoreError;
use crate::home::failed;
use crate::segment::crc32c;
use disk::{Disk, File};
use std::io::{self, ErrorKind};
use std::ops::{Range, RangeInclusive};
use std::path::{Path, PathBuf};

/// Suffix of log file names; the rest is a decimal number.
pub(super) const SUFFIX: &str = ".log";
/// RocksDB's unit of its logs. A record does not cross it; longer ones are split.
pub(super) const BLOCK_BYTES: usize = 32 << 10;
/// Bytes of a record's header: checksum, length and type. Shorter rests of blocks are unused.
pub(super) const HEADER_BYTES: usize = 7;
/// Bytes of a batch before its changes: the sequence number of the first one, 8 bytes, and their number, 4 bytes.
pub(super) const BATCH_HEADER_BYTES: usize = 12;
/// Types of records that RocksDB writes with a header of this length.
const TYPES: RangeInclusive<u8> = WHOLE..=LAST;
const WHOLE: u8 = 1;
const FIRST: u8 = 2;
const LAST: u8 = 4;

/// What a log contains. RocksDB numbers the changes of all batches: these are their sequence numbers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Survey {
    pub(super) number: u64,
    pub(super) path: PathBuf,
    /// Sequence numbers of the changes in the whole records before the first damage; `None` if there is no such record.
    pub(super) changes: Option<Range<u64>>,
    /// Where these records end, in bytes.
    pub(super) end: u64,
    /// Whether something other than zeros follows them.
    pub(super) is_damaged: bool,
    /// Where a header of zeros is followed by other bytes: RocksDB would continue behind it.
    pub(super) gap: Option<u64>,
    /// The newest change that was durable, as far as the log says so anywhere; 0 if it does not.
    pub(super) claimed: u64,
    /// The first change of the first whole record with a claim after the damage.
    pub(super) resumed: Option<u64>,
}

impl Survey {
    /// Returns where the next record would begin, in bytes.
    pub(super) fn next_record(&self) -> u64 {
        let left = BLOCK_BYTES as u64 - self.end % BLOCK_BYTES as u64;
        if left < HEADER_BYTES as u64 { self.end + left } else { self.end }
    }

    /// Whether it contains nothing but zeros.
    pub(super) fn is_blank(&self) -> bool {
        self.changes.is_none() && !self.is_damaged
    }
}

/// Reads all logs in a database's folder, which may be missing, in the order of their numbers. Without a key, claims are
/// not seen.
pub(super) fn read_all(disk: &dyn Disk, folder: &Path, key: Option<&Key>) -> Result<Vec<Survey>, StoreError> {
    let names = match disk.list(folder) {
        Ok(names) => names,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(failed("list", folder, error)),
    };
    let mut logs = Vec::new();
    for name in &names {
        let Some(number) = name.strip_suffix(SUFFIX).and_then(|name| name.parse().ok()) else { continue };
        let path = folder.join(name);
        let read = disk.open(&path).and_then(|file| read(&*file, key));
        logs.push(Survey { number, ..read.map_err(|error| failed("read", &path, error))? });
        logs.last_mut().into_iter().for_each(|log| log.path.clone_from(&path));
    }
    logs.sort_unstable_by_key(|log: &Survey| log.number);
    Ok(logs)
}

fn read(file: &dyn File, key: Option<&Key>) -> io::Result<Survey> {
    let mut reader =
        Reader { key, survey: Survey::default(), at: At::Records, batch: None, seam: Vec::new() };
    let (mut buffer, mut offset) = (vec![0; BLOCK_BYTES], 0);
    loop {
        let count = fill(file, &mut buffer, offset)?;
        reader.read(&buffer[..count], offset);
        if count < BLOCK_BYTES {
            reader.survey.is_damaged |= reader.batch.is_some();
            return Ok(reader.survey);
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

/// What the next byte belongs to.
#[derive(Clone, Copy)]
enum At {
    /// Records that are all intact.
    Records,
    /// Zeros since this offset, which RocksDB skips.
    Zeros(u64),
    /// What follows damage, at which RocksDB itself stops, or a gap.
    Rest,
}

/// The beginning of an incomplete batch.
#[derive(Default)]
struct Start {
    header: [u8; BATCH_HEADER_BYTES],
    bytes: usize,
}

struct Reader<'a> {
    key: Option<&'a Key>,
    survey: Survey,
    at: At,
    batch: Option<Start>,
    /// The end of the block before, as much of it as a claim may have there.
    seam: Vec<u8>,
}

impl Reader<'_> {
    /// Takes the next block.
    fn read(&mut self, block: &[u8], offset: u64) {
        let records = if let At::Records = self.at { self.records(block, offset) } else { 0 };
        if let At::Zeros(from) = self.at
            && block[records..].iter().any(|byte| *byte != 0)
        {
            self.survey.gap = Some(from);
            self.at = At::Rest;
        }
        self.survey.is_damaged |= matches!(self.at, At::Rest);
        match self.key {
            // Most of a log may be zeros.
            Some(key) if block.iter().any(|byte| *byte != 0) => self.claims(key, block, records),
            _ => self.seam.clear(),
        }
    }

    /// Takes the intact records of a block; returns where they end in it.
    fn records(&mut self, block: &[u8], offset: u64) -> usize {
        let mut at = 0;
        while block.len() - at >= HEADER_BYTES {
            if let [0, 0, 0] = block[at + 4..at + HEADER_BYTES] {
                self.at = At::Zeros(offset + at as u64);
                return at;
            }
            let record = intact(&block[at..]);
            let Some((kind, part)) = record.filter(|(kind, part)| self.add(*kind, part)) else {
                self.at = At::Rest;
                return at;
            };
            at += HEADER_BYTES + part.len();
            if let WHOLE | LAST = kind {
                self.survey.end = offset + at as u64;
            }
        }
        block.len()
    }

    /// Takes an intact part of a batch. Returns `false` if RocksDB takes it for damage.
    fn add(&mut self, kind: u8, part: &[u8]) -> bool {
        let mut batch = match (kind, self.batch.take()) {
            // RocksDB may have left an empty first part at the end of a block.
            (WHOLE | FIRST, None | Some(Start { bytes: 0, .. })) => Start::default(),
            (WHOLE | FIRST, Some(_)) | (_, None) => return false,
            (_, Some(batch)) => batch,
        };
        let rest = batch.header.get_mut(batch.bytes..).unwrap_or_default();
        let count = rest.len().min(part.len());
        rest[..count].copy_from_slice(&part[..count]);
        batch.bytes = batch.bytes.saturating_add(part.len());
        if !matches!(kind, WHOLE | LAST) {
            self.batch = Some(batch);
            return true;
        }
        let is_batch = batch.bytes >= BATCH_HEADER_BYTES;
        if is_batch {
            self.end_batch(&batch.header);
        }
        is_batch
    }

    fn end_batch(&mut self, header: &[u8; BATCH_HEADER_BYTES]) {
        let [_, _, _, _, _, _, _, _, count @ ..] = *header;
        let first = first_change(header);
        let next = first.saturating_add(u32::from_le_bytes(count).into());
        self.survey.changes.get_or_insert(first..next).end = next;
    }

    /// Finds the claims of a block whose intact records end at `records`.
    fn claims(&mut self, key: &Key, block: &[u8], records: usize) {
        // One that the header of a later part divides.
        self.seam.extend(block.iter().skip(HEADER_BYTES).take(claims::BYTES - 1));
        let across = key.find(&self.seam).map(|(_, durable)| durable).max();
        self.survey.claimed = self.survey.claimed.max(across.unwrap_or(0));
        for (at, durable) in key.find(block) {
            self.survey.claimed = self.survey.claimed.max(durable);
            if self.survey.resumed.is_none() && !matches!(self.at, At::Records) {
                self.survey.resumed =
                    batch_of(block, at).filter(|(start, _)| *start >= records).map(|of| of.1);
            }
        }
        self.seam.clear();
        self.seam.extend(&block[block.len().saturating_sub(claims::BYTES - 1)..]);
    }
}

/// Returns where the record begins whose batch begins with the claim at `claim`, and the first change; `None` if it is
/// not intact.
fn batch_of(block: &[u8], claim: usize) -> Option<(usize, u64)> {
    let start = claim.checked_sub(HEADER_BYTES + BATCH_HEADER_BYTES + claims::TAG.len())?;
    let (kind, part) = intact(&block[start..])?;
    let header = part.first_chunk::<BATCH_HEADER_BYTES>()?;
    let is_claim = part[BATCH_HEADER_BYTES..].starts_with(&claims::TAG);
    (matches!(kind, WHOLE | FIRST) && is_claim).then(|| (start, first_change(header)))
}

fn first_change(header: &[u8; BATCH_HEADER_BYTES]) -> u64 {
    let [first @ .., _, _, _, _] = *header;
    u64::from_le_bytes(first)
}

/// Returns type and contents of the record with which `bytes` begins, if it is there and its checksum is right.
pub(super) fn intact(bytes: &[u8]) -> Option<(u8, &[u8])> {
    let (header, rest) = bytes.split_first_chunk::<HEADER_BYTES>()?;
    let [sum @ .., low, high, kind] = *header;
    let contents = rest.get(..usize::from(u16::from_le_bytes([low, high])))?;
    // The length is not covered.
    let covered = &bytes[HEADER_BYTES - 1..][..=contents.len()];
    let is_intact = TYPES.contains(&kind) && sum == masked(crc32c(covered)).to_le_bytes();
    is_intact.then_some((kind, contents))
}

/// RocksDB's representation of a checksum stored next to the data it covers.
pub(super) fn masked(crc: u32) -> u32 {
    crc.rotate_right(15).wrapping_add(0xa282_ead8)
}

#[cfg(test)]
pub(super) mod tests;
