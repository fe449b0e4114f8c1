//! Finds the records that name chunks, either extents or rows of shared chunks: by a chunk's owner, or in a
//! walk through all of them.

use crate::VolumeError;
use std::ops::ControlFlow;
use store::{ChunkAddress, ChunkOwner, KeyRange, MetaStore};
use volume_records::rows::{FoundRow, find_row};
use volume_records::{codec, families, keys};

/// The full key of an extent, and the chunk that the extent names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Name {
    pub(crate) key: Vec<u8>,
    pub(crate) address: ChunkAddress,
}

impl Name {
    pub(crate) fn group(&self) -> u64 {
        self.key.first_chunk().map_or(0, |group| u64::from_be_bytes(*group))
    }

    /// Returns the owner, which is stored next to the chunk.
    pub(crate) fn owner(&self) -> ChunkOwner {
        let prefix = keys::split(&self.key).and_then(|(prefix, _)| prefix.try_into().ok());
        ChunkOwner(prefix.unwrap_or_default())
    }

    /// Returns whether the record still names the chunk, directly or through a row.
    pub(crate) fn is_valid(&self, meta: &dyn MetaStore) -> Result<bool, VolumeError> {
        let value = meta.get(families::EXTENTS, &self.key)?;
        if let Some(row) = value.as_ref().and_then(|value| codec::shared_row(value)) {
            let row = find_row(meta, row)?;
            return Ok(matches!(row, FoundRow::Row(row) if row.address == self.address));
        }
        Ok(value.and_then(|value| codec::extent_address(&value)?) == Some(self.address))
    }
}

/// Returns the version of the owner's extent that names a chunk; `None` if the chunk is dead.
pub(crate) fn by_owner(
    meta: &dyn MetaStore,
    owner: ChunkOwner,
    address: ChunkAddress,
) -> Result<Option<Name>, VolumeError> {
    let (from, to) = keys::versions(&owner.0, u64::MAX);
    let mut name = None;
    meta.scan(families::EXTENTS, KeyRange::ascending(&from, &to), &mut |key, value| {
        if codec::extent_address(value).flatten() != Some(address) {
            return ControlFlow::Continue(());
        }
        name = Some(Name { key: key.to_vec(), address });
        ControlFlow::Break(())
    })?;
    Ok(name)
}

/// A page of names.
pub(crate) struct Names {
    /// Names that match.
    pub(crate) found: Vec<Name>,
    /// Key to continue from; `None` at the end.
    pub(crate) next: Option<Vec<u8>>,
}

/// Reads the next `most` extents of a partition and collects the wanted names. Unreadable records are
/// skipped.
pub(crate) fn walk(
    meta: &dyn MetaStore,
    from: &[u8],
    most: usize,
    is_wanted: impl Fn(ChunkAddress) -> bool,
) -> Result<Names, VolumeError> {
    let mut names = Names { found: Vec::new(), next: None };
    let mut left = most;
    // Snapshot scans do not fill the caches.
    meta.snapshot().scan(
        families::EXTENTS,
        KeyRange::ascending(from, &keys::BEHIND_ALL),
        &mut |key, value| {
            if left == 0 {
                names.next = Some(key.to_vec());
                return ControlFlow::Break(());
            }
            left -= 1;
            let address = codec::extent_address(value).flatten().filter(|address| is_wanted(*address));
            names.found.extend(address.map(|address| Name { key: key.to_vec(), address }));
            ControlFlow::Continue(())
        },
    )?;
    Ok(names)
}
