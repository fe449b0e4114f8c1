//! Rows of shared chunks.

use super::{EXTENT_ROW, EXTENT_SHARED, Fields, Record};
use crate::rows::{Row, RowKey, Sums};
use store::ChunkAddress;

/// Size of a row's key and value.
pub const ROW_BYTES: usize = 8 + 16 + 8 + 2 + 4 + 20 + 32 + 8;

/// Encodes the row of a shared chunk.
pub fn put_row(row: &Row) -> Vec<u8> {
    let Row { digest, address, length, count } = row;
    Record::new().u8(EXTENT_ROW).u32(*length).bytes(&address.to_bytes()).bytes(digest).u64(*count).0
}

/// Decodes the row of a shared chunk.
pub fn get_row(value: &[u8]) -> Option<Row> {
    let mut f = Fields::open(value)?;
    if f.u8()? != EXTENT_ROW {
        return None;
    }
    let length = f.u32()?;
    let address = ChunkAddress::from_bytes(f.take(20)?)?;
    let row = Row { length, address, digest: f.array()?, count: f.u64()? };
    f.0.is_empty().then_some(row)
}

/// Returns the row that a version of an extent names, if any.
pub fn shared_row(value: &[u8]) -> Option<RowKey> {
    let mut f = Fields::open(value)?;
    if f.u8()? != EXTENT_SHARED {
        return None;
    }
    f.u32()?;
    Some(RowKey(f.0.try_into().ok()?))
}

/// Encodes the sums over all rows.
pub fn put_sums(sums: &Sums) -> Vec<u8> {
    let Sums { rows, shared, names, stored_bytes, named_bytes } = *sums;
    Record::new().u64(rows).u64(shared).u64(names).u64(stored_bytes).u64(named_bytes).0
}

/// Decodes the sums over all rows.
pub fn get_sums(value: &[u8]) -> Option<Sums> {
    let mut f = Fields::open(value)?;
    let (rows, shared, names) = (f.u64()?, f.u64()?, f.u64()?);
    let sums = Sums { rows, shared, names, stored_bytes: f.u64()?, named_bytes: f.u64()? };
    f.0.is_empty().then_some(sums)
}
