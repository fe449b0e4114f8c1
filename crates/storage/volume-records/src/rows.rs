//! The record of a shared chunk, and the sums over all rows; `docs/reference/formats/volume.md` has both
//! layouts.

use crate::codec::{get_row, get_sums};
use crate::{RecordError, families, keys};
use bytes::Bytes;
use std::ops::ControlFlow;
use store::{ChunkAddress, Digest, Family, KeyRange, MetaStore};

/// The first half of a digest, under which a row is stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RowKey(pub [u8; 16]);

impl RowKey {
    /// Returns the key of the row for contents with this digest.
    pub fn of(digest: &Digest) -> RowKey {
        let mut key = [0; 16];
        key.copy_from_slice(&digest[..16]);
        RowKey(key)
    }
}

/// A shared chunk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Row {
    /// Digest of the contents.
    pub digest: Digest,
    /// Address of the chunk.
    pub address: ChunkAddress,
    /// Length of its contents in bytes.
    pub length: u32,
    /// Number of extent versions that name the row.
    pub count: u64,
}

/// Result of a row lookup.
pub enum FoundRow {
    /// There is no such row.
    None,
    /// The row.
    Row(Row),
    /// The record is damaged.
    Unreadable,
}

impl FoundRow {
    fn of(value: Option<Bytes>) -> FoundRow {
        value.map_or(FoundRow::None, |value| get_row(&value).map_or(FoundRow::Unreadable, FoundRow::Row))
    }
}

/// Looks up a row.
pub fn find_row(meta: &dyn MetaStore, key: RowKey) -> Result<FoundRow, RecordError> {
    Ok(FoundRow::of(meta.get(families::EXTENTS, &keys::row(key))?))
}

/// Looks up several rows; returns one result for each key.
pub fn find_rows(
    meta: &dyn MetaStore,
    rows: impl IntoIterator<Item = RowKey>,
) -> Result<Vec<FoundRow>, RecordError> {
    let rows: Vec<_> = rows.into_iter().map(keys::row).collect();
    let rows: Vec<&[u8]> = rows.iter().map(|key| &key[..]).collect();
    Ok(meta.get_many(families::EXTENTS, &rows)?.into_iter().map(FoundRow::of).collect())
}

/// Sums over all rows of a partition, modulo 2^64, so that removing a row exactly reverses adding it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sums {
    /// Number of rows.
    pub rows: u64,
    /// Number of rows that more than one extent version names.
    pub shared: u64,
    /// Sum of all rows' counts.
    pub names: u64,
    /// Stored size of the chunks, in bytes.
    pub stored_bytes: u64,
    /// Size in bytes if each extent version had its own chunk.
    pub named_bytes: u64,
}

impl Sums {
    /// Adds a row.
    pub fn add(&mut self, row: &Row) {
        let Sums { rows, shared, names, stored_bytes, named_bytes } = Sums::of(row);
        self.rows = self.rows.wrapping_add(rows);
        self.shared = self.shared.wrapping_add(shared);
        self.names = self.names.wrapping_add(names);
        self.stored_bytes = self.stored_bytes.wrapping_add(stored_bytes);
        self.named_bytes = self.named_bytes.wrapping_add(named_bytes);
    }

    /// Removes a row.
    pub fn take_away(&mut self, row: &Row) {
        let Sums { rows, shared, names, stored_bytes, named_bytes } = Sums::of(row);
        self.rows = self.rows.wrapping_sub(rows);
        self.shared = self.shared.wrapping_sub(shared);
        self.names = self.names.wrapping_sub(names);
        self.stored_bytes = self.stored_bytes.wrapping_sub(stored_bytes);
        self.named_bytes = self.named_bytes.wrapping_sub(named_bytes);
    }

    fn of(row: &Row) -> Sums {
        let stored_bytes = u64::from(row.address.stored_bytes);
        Sums {
            rows: 1,
            shared: u64::from(row.count > 1),
            names: row.count,
            stored_bytes,
            named_bytes: stored_bytes.wrapping_mul(row.count),
        }
    }
}

/// Loads the stored sums, or recounts them if they cannot be read.
pub fn load_sums(meta: &dyn MetaStore) -> Result<Sums, RecordError> {
    let Some(value) = meta.get(Family::SYSTEM, keys::SHARED_SUMS)? else { return Ok(Sums::default()) };
    if let Some(sums) = get_sums(&value) {
        return Ok(sums);
    }
    tracing::error!("the totals of shared chunks cannot be read; counting again");
    let mut sums = Sums::default();
    let (from, to) = keys::rows();
    meta.scan(families::EXTENTS, KeyRange::ascending(&from, &to), &mut |_, value| {
        if let Some(row) = get_row(value) {
            sums.add(&row);
        }
        ControlFlow::Continue(())
    })?;
    Ok(sums)
}
