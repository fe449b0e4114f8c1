//! Support for compaction: which segments are worth compacting, their records, and copies of chunks.
//!
//! This module does not know which metadata references a chunk. The crate above finds the references, makes
//! copies, changes the references, and releases the old chunks; an entirely released segment is deleted like
//! any other.

use super::SegmentStore;
use super::codec::{Encoded, Stored};
use super::header::HEADER_BYTES;
use super::reading;
use super::record::{RECORD_BYTES, RECORD_BYTES_MIN, Record};
use super::room::Purpose;
use crate::{ChunkAddress, ChunkOwner, SegmentRecords, SegmentUse, StoreError};
use disk::File;
use std::io::ErrorKind;

impl SegmentStore {
    pub(super) fn find_sparse(&self, dead_percent: u8) -> Vec<SegmentUse> {
        deadest_first(self.accounts.lock().sparse(dead_percent))
    }

    pub(super) fn copy_chunk(
        &self,
        address: ChunkAddress,
        owner: ChunkOwner,
    ) -> Result<ChunkAddress, StoreError> {
        self.health.check()?;
        let (mut record, stored) = reading::read_stored(&self.files, address)?;
        if !record.owner.is_known() {
            record.owner = owner;
        }
        let encoded = Encoded { record, stored: Stored::Apart(stored) };
        let copy = self.put(encoded, Purpose::Compaction)?;
        self.counters.moved(copy.stored_bytes);
        self.cache.copy(address, copy);
        Ok(copy)
    }

    pub(super) fn list_records(
        &self,
        segment: u64,
        from: u64,
        most: usize,
    ) -> Result<SegmentRecords, StoreError> {
        let file = self.files.get(segment)?;
        let fail = |error| crate::home::failed("read", &self.files.path(segment), error);
        let length = file.length().map_err(fail)?;
        let mut records = SegmentRecords::default();
        let mut at = from.max(HEADER_BYTES);
        while at < length && records.found.len() < most {
            let Some(record) = header_at(&*file, segment, at, length).map_err(fail)? else {
                records.is_cut = true;
                return Ok(records);
            };
            let stored_bytes = record.layout.bytes() as u32 + record.stored_bytes;
            let owner = if record.is_shared { ChunkOwner::default() } else { record.owner };
            if owner != ChunkOwner::NOBODY {
                records.found.push((ChunkAddress { segment, offset: at, stored_bytes }, owner));
            }
            at += u64::from(stored_bytes);
        }
        records.next = (at < length).then_some(at);
        Ok(records)
    }
}

/// Orders segments by their dead share, in hundredths of a percent.
pub(super) fn deadest_first(mut found: Vec<SegmentUse>) -> Vec<SegmentUse> {
    found.sort_by_key(|used| std::cmp::Reverse(used.dead.saturating_mul(10_000) / used.bytes.max(1)));
    found
}

/// Reads the header of the record at `at`; `None` if there is no complete one.
fn header_at(file: &dyn File, segment: u64, at: u64, length: u64) -> std::io::Result<Option<Record>> {
    let mut head = [0; RECORD_BYTES];
    let left = (length - at).min(RECORD_BYTES as u64) as usize;
    if left < RECORD_BYTES_MIN {
        return Ok(None);
    }
    match file.read_exact_at(&mut head[..left], at) {
        Ok(()) => {}
        Err(error) if error.kind() == ErrorKind::UnexpectedEof => return Ok(None),
        Err(error) => return Err(error),
    }
    let record = Record::parse(&head[..left], segment, at).ok();
    let end = |record: &Record| at + record.layout.bytes() as u64 + u64::from(record.stored_bytes);
    Ok(record.filter(|record| end(record) <= length))
}

#[cfg(test)]
mod tests;
