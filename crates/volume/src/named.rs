//! The records that name chunks, extents and rows of shared chunks: found by a chunk's owner, or one after the
//! other.

use crate::VolumeError;
use crate::keys;
use crate::record;
use crate::sharing::{FoundRow, find_row};
use std::ops::ControlFlow;
use store::{ChunkAddress, ChunkOwner, Family, KeyRange, MetaStore};

/// An extent (all of its key) and the chunk that it names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Name {
    pub(crate) key: Vec<u8>,
    pub(crate) address: ChunkAddress,
}

impl Name {
    pub(crate) fn group(&self) -> u64 {
        self.key.first_chunk().map_or(0, |group| u64::from_be_bytes(*group))
    }

    /// Beside the chunk it says who names it.
    pub(crate) fn owner(&self) -> ChunkOwner {
        let prefix = keys::split(&self.key).and_then(|(prefix, _)| prefix.try_into().ok());
        ChunkOwner(prefix.unwrap_or_default())
    }

    /// Whether the record still names the chunk, itself or through a row.
    pub(crate) fn is_valid(&self, meta: &dyn MetaStore) -> Result<bool, VolumeError> {
        let value = meta.get(Family::Extents, &self.key)?;
        if let Some(row) = value.as_ref().and_then(|value| record::shared_row(value)) {
            let row = find_row(meta, row)?;
            return Ok(matches!(row, FoundRow::Row(row) if row.address == self.address));
        }
        Ok(value.and_then(|value| record::extent_address(&value)?) == Some(self.address))
    }
}

/// The version of the owner's extent that names a chunk; `None` if the chunk is dead.
pub(crate) fn by_owner(
    meta: &dyn MetaStore,
    owner: ChunkOwner,
    address: ChunkAddress,
) -> Result<Option<Name>, VolumeError> {
    let (from, to) = keys::versions(&owner.0, u64::MAX);
    let mut name = None;
    meta.scan(Family::Extents, KeyRange::ascending(&from, &to), &mut |key, value| {
        if record::extent_address(value).flatten() != Some(address) {
            return ControlFlow::Continue(());
        }
        name = Some(Name { key: key.to_vec(), address });
        ControlFlow::Break(())
    })?;
    Ok(name)
}

/// A part of all names.
pub(crate) struct Names {
    /// Those that were wanted.
    pub(crate) found: Vec<Name>,
    /// Where to go on; `None` at the end.
    pub(crate) next: Option<Vec<u8>>,
}

/// Goes through the next `most` extents of a partition and takes the names that are wanted. What
/// cannot be read is left out.
pub(crate) fn walk(
    meta: &dyn MetaStore,
    from: &[u8],
    most: usize,
    is_wanted: impl Fn(ChunkAddress) -> bool,
) -> Result<Names, VolumeError> {
    let mut names = Names { found: Vec::new(), next: None };
    let mut left = most;
    // A snapshot's scans leave the caches to others.
    meta.snapshot().scan(
        Family::Extents,
        KeyRange::ascending(from, &keys::BEHIND_ALL),
        &mut |key, value| {
            if left == 0 {
                names.next = Some(key.to_vec());
                return ControlFlow::Break(());
            }
            left -= 1;
            let address = record::extent_address(value).flatten().filter(|address| is_wanted(*address));
            names.found.extend(address.map(|address| Name { key: key.to_vec(), address }));
            ControlFlow::Continue(())
        },
    )?;
    Ok(names)
}
