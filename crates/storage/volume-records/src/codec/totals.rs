//! Records of directory totals.

use super::{Fields, Record};
use crate::totals::{Totals, Unfolded};
use base::VnodeId;

fn put(record: Record, totals: &Totals) -> Record {
    record.u64(totals.bytes).u64(totals.kib).u64(totals.files).u64(totals.directories)
}

fn get(f: &mut Fields<'_>) -> Option<Totals> {
    Some(Totals { bytes: f.u64()?, kib: f.u64()?, files: f.u64()?, directories: f.u64()? })
}

/// Encodes the totals of a directory.
pub fn put_totals(totals: &Totals) -> Vec<u8> {
    put(Record::new(), totals).0
}

/// Decodes the totals of a directory.
pub fn get_totals(value: &[u8]) -> Option<Totals> {
    get(&mut Fields::open(value)?)
}

/// Size in the counters of a directory whose change is not yet applied to its ancestors.
pub(super) const PART_BYTES: usize = 36;

/// Writes the unfolded totals at the end of the counters.
pub(super) fn put_unfolded(record: Record, unfolded: &Unfolded) -> Record {
    let record = record.u8(unfolded.len() as u8);
    unfolded.iter().fold(record, |record, (VnodeId(directory), more)| put(record.u32(directory), &more))
}

pub(super) fn get_unfolded(f: &mut Fields<'_>) -> Option<Unfolded> {
    let count = f.u8()?;
    let parts: Option<Vec<_>> = (0..count).map(|_| Some((VnodeId(f.u32()?), get(f)?))).collect();
    Unfolded::new(parts?)
}
