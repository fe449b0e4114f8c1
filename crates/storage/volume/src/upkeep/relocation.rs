//! Moves chunks while readers, writers, clones and purges continue.
//!
//! 1. A chunk is copied and the copy made durable. No record names it yet, so after a crash at this
//!    point it is garbage.
//! 2. While nothing else can change the group, each extent that still names the old address is rewritten
//!    to name the copy, in one batch. An extent that has changed meanwhile is left alone, and the
//!    copy becomes garbage. The rest of the record stays, including its epoch, so clones see no difference.
//! 3. The batch is made durable; only then is the old chunk released, as by an overwrite: when the
//!    last reader that may know the old address has finished.
//!
//! If several extents share a chunk, only its row is rewritten; their readers see no difference.
//!
//! Records of a group without volumes are left alone: the group is being built or purged.

use crate::VolumeError;
use crate::core::chunk_names::Name;
use crate::core::group::Group;
use crate::core::shared::Partition;
use crate::core::volumes::Volumes;
use crate::dedup::{Done, Obsolete};
use std::sync::Arc;
use store::{Batch, ChunkAddress, CommitNumber, StoreError};
use volume_records::codec::{self, Extent, Job};
use volume_records::{families, keys};

/// Extents rewritten in one batch, while writers of the group wait.
const BATCH_EXTENTS: usize = 64;

/// Result of moving chunks.
#[derive(Debug, Default)]
pub(crate) struct Moved {
    pub(crate) chunks: u64,
    /// Bytes copied, including copies that were discarded.
    pub(crate) copied_bytes: u64,
    /// Whether space ran out before all copies were made.
    pub(crate) is_full: bool,
    /// Chunks that cannot be copied.
    pub(crate) damaged: Vec<(Name, StoreError)>,
}

/// A copy that no record names yet.
struct Copy {
    name: Name,
    to: ChunkAddress,
}

/// Copies that no record names; dropping this releases those that remain.
struct Unnamed<'a> {
    home: &'a Partition,
    copies: Vec<Copy>,
}

impl Drop for Unnamed<'_> {
    fn drop(&mut self) {
        self.copies.iter().for_each(|copy| self.home.handle.chunks.release(copy.to));
    }
}

/// Old chunks that no record names once the commit is durable.
struct Left {
    number: CommitNumber,
    group: Option<Arc<Group>>,
    obsolete: Obsolete,
}

impl Volumes {
    /// Moves chunks, durably.
    ///
    /// # Errors
    /// `Store`. Each chunk is then either moved or unchanged.
    pub(crate) fn move_chunks(&self, home: &Arc<Partition>, names: Vec<Name>) -> Result<Moved, VolumeError> {
        let mut moved = Moved::default();
        let mut unnamed = copy(home, names, &mut moved)?;
        if unnamed.copies.is_empty() {
            return Ok(moved);
        }
        home.handle.chunks.sync()?;
        unnamed.copies.sort_by(|a, b| a.name.key.cmp(&b.name.key));
        let mut left = Vec::new();
        while let Some(group) = unnamed.copies.last().map(|copy| copy.name.group()) {
            let first = unnamed.copies.partition_point(|copy| copy.name.group() < group);
            let first = first.max(unnamed.copies.len().saturating_sub(BATCH_EXTENTS));
            let copies = unnamed.copies.split_off(first);
            let unnamed = Unnamed { home, copies };
            let renamed = if group == 0 { rename_shared(unnamed) } else { self.rename(home, group, unnamed) };
            left.extend(renamed?);
        }
        for left in left {
            home.handle.meta.sync(left.number)?;
            moved.chunks += (left.obsolete.own.len() + left.obsolete.shared.len()) as u64;
            // Without a group no reader can be using the chunks.
            home.release(left.group.as_ref().map(|group| &group.pins), left.obsolete);
        }
        Ok(moved)
    }

    /// Makes the extents of one group name the copies.
    fn rename(
        &self,
        home: &Arc<Partition>,
        group: u64,
        mut unnamed: Unnamed<'_>,
    ) -> Result<Option<Left>, VolumeError> {
        let job = keys::job(&codec::put_job(&Job::Group { group }));
        let done = self.with_group(home, group, |loaded| {
            if loaded.is_none() && home.handle.meta.get(families::VOLUMES, &job)?.is_some() {
                return Ok(None);
            }
            let (mut batch, mut addresses, mut named) = (Batch::new(), Vec::new(), Vec::new());
            for copy in &unnamed.copies {
                if let Some(value) = renamed(home, copy)? {
                    batch.put(families::EXTENTS, copy.name.key.as_slice(), value);
                    addresses.push(copy.name.address);
                    named.push(copy.to);
                }
            }
            if addresses.is_empty() {
                return Ok(None);
            }
            let number = home.handle.meta.commit(batch)?;
            let obsolete = Obsolete { own: addresses, shared: vec![] };
            Ok(Some((Left { number, group: loaded.cloned(), obsolete }, named)))
        })?;
        let Some((left, named)) = done else { return Ok(None) };
        unnamed.copies.retain(|copy| !named.contains(&copy.to));
        Ok(Some(left))
    }
}

/// Makes rows of shared chunks name the copies.
fn rename_shared(mut unnamed: Unnamed<'_>) -> Result<Option<Left>, VolumeError> {
    let name = |copy: &Copy| Some((keys::row_of(&copy.name.key)?, copy.name.address, copy.to));
    let moves: Vec<_> = unnamed.copies.iter().filter_map(name).collect();
    let Some(Done { number, obsolete, used }) = unnamed.home.move_shared(&moves)? else { return Ok(None) };
    unnamed.copies.retain(|copy| !used.contains(&copy.to));
    Ok(Some(Left { number, group: None, obsolete: Obsolete { own: vec![], shared: obsolete } }))
}

/// Copies the chunks that can be copied.
fn copy<'a>(home: &'a Partition, names: Vec<Name>, moved: &mut Moved) -> Result<Unnamed<'a>, VolumeError> {
    let mut unnamed = Unnamed { home, copies: Vec::new() };
    for name in names {
        if !name.is_valid(&*home.handle.meta)? {
            continue;
        }
        match home.handle.chunks.copy(name.address, name.owner()) {
            Ok(to) => {
                moved.copied_bytes += u64::from(to.stored_bytes);
                unnamed.copies.push(Copy { name, to });
            }
            Err(StoreError::Full) => {
                moved.is_full = true;
                break;
            }
            Err(error @ StoreError::Damaged { .. }) => moved.damaged.push((name, error)),
            Err(error) => return Err(error.into()),
        }
    }
    Ok(unnamed)
}

/// Returns the extent with the copy in place of the chunk; `None` if it no longer names that chunk.
fn renamed(home: &Partition, copy: &Copy) -> Result<Option<Vec<u8>>, VolumeError> {
    let value = home.handle.meta.get(families::EXTENTS, &copy.name.key)?;
    // An empty value is a deletion.
    let extent = value.filter(|value| !value.is_empty()).and_then(|value| codec::get_extent(&value));
    Ok(match extent {
        Some(Extent::Chunk { address, length }) if address == copy.name.address => {
            Some(codec::put_extent(&Extent::Chunk { address: copy.to, length }))
        }
        _ => None,
    })
}
