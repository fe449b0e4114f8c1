//! The record of a shared chunk, and the sums over all of them. `docs/reference/formats/volume.md` draws both.

use crate::{VolumeError, keys};
use std::ops::ControlFlow;
use store::{ChunkAddress, Digest, Family, KeyRange, MetaStore};

pub(crate) use crate::record::{get_row, get_sums, put_row, put_sums};

/// The first half of a digest: what a row is found by.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct RowKey(pub(crate) [u8; 16]);

impl RowKey {
    pub(crate) fn of(digest: &Digest) -> RowKey {
        let mut key = [0; 16];
        key.copy_from_slice(&digest[..16]);
        RowKey(key)
    }
}

/// A shared chunk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Row {
    pub(crate) digest: Digest,
    pub(crate) address: ChunkAddress,
    /// Bytes of its contents.
    pub(crate) length: u32,
    /// Versions of extents that name the row.
    pub(crate) count: u64,
}

/// What lies under a row's key.
pub(crate) enum FoundRow {
    None,
    Row(Row),
    Unreadable,
}

/// Looks a row up.
pub(crate) fn find_row(meta: &dyn MetaStore, key: RowKey) -> Result<FoundRow, VolumeError> {
    let value = meta.get(Family::Extents, &keys::row(key))?;
    Ok(value.map_or(FoundRow::None, |value| get_row(&value).map_or(FoundRow::Unreadable, FoundRow::Row)))
}

/// Sums over all rows of a partition. Modulo 2^64, so that what is taken away is exactly what was added.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Sums {
    pub(crate) rows: u64,
    /// Of these, those that more than one version of an extent names.
    pub(crate) shared: u64,
    /// Counts of all rows.
    pub(crate) names: u64,
    /// Bytes of the chunks, as stored.
    pub(crate) stored_bytes: u64,
    /// What they would take if each name had a chunk of its own.
    pub(crate) named_bytes: u64,
}

impl Sums {
    pub(crate) fn add(&mut self, row: &Row) {
        let Sums { rows, shared, names, stored_bytes, named_bytes } = Sums::of(row);
        self.rows = self.rows.wrapping_add(rows);
        self.shared = self.shared.wrapping_add(shared);
        self.names = self.names.wrapping_add(names);
        self.stored_bytes = self.stored_bytes.wrapping_add(stored_bytes);
        self.named_bytes = self.named_bytes.wrapping_add(named_bytes);
    }

    pub(crate) fn take_away(&mut self, row: &Row) {
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

/// The sums as they are stored; counted anew if they cannot be read.
pub(super) fn load_sums(meta: &dyn MetaStore) -> Result<Sums, VolumeError> {
    let Some(value) = meta.get(Family::System, keys::SHARED_SUMS)? else { return Ok(Sums::default()) };
    if let Some(sums) = get_sums(&value) {
        return Ok(sums);
    }
    tracing::error!("the sums of shared chunks cannot be read; they are counted anew");
    let mut sums = Sums::default();
    let (from, to) = keys::rows();
    meta.scan(Family::Extents, KeyRange::ascending(&from, &to), &mut |_, value| {
        if let Some(row) = get_row(value) {
            sums.add(&row);
        }
        ControlFlow::Continue(())
    })?;
    Ok(sums)
}
