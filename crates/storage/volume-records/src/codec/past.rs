//! The record of the highest numbers that clients may have seen of a deleted read-write volume.

use super::{Fields, Record};
use crate::Past;

/// Encodes the highest numbers of a deleted volume.
pub fn put_past(past: &Past) -> Vec<u8> {
    let record = Record::new().u32(past.next_unique).u64(past.version_max).u32(past.updated.0);
    record.u64(past.changes).u32(past.dated.0).u8(past.went_on.into()).0
}

/// Decodes the highest numbers of a deleted volume.
pub fn get_past(value: &[u8]) -> Option<Past> {
    let mut f = Fields::open(value)?;
    Some(Past {
        next_unique: f.u32()?,
        version_max: f.u64()?,
        updated: f.time()?,
        changes: f.u64()?,
        dated: f.time()?,
        went_on: f.u8()? != 0,
    })
}
