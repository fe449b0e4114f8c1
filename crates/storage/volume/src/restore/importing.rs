//! Takes over file data of a volume on another partition, without reading it.

use crate::core::volume::Volume;
use crate::restore::restoration::Restoration;
use crate::{VnodeStatus, VolumeError, Volumes};
use base::{Fid, PartitionId};
use std::collections::HashSet;
use std::sync::Arc;
use store::{Borrower, ChunkPlace, ChunkStore, Import, Loan, StoreError};
use volume_records::codec::Extent;

/// Maximum number of chunks whose places one call returns.
const WINDOW_CHUNKS: u64 = 4096;

/// Where data of a file is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StoredChunk {
    /// In a chunk that is only this file's, with this many bytes of the file.
    Own(ChunkPlace, u32),
    /// Somewhere else: it has to be read.
    Elsewhere,
}

/// Where the data of consecutive chunks of a file is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StoredChunks {
    /// Base-2 logarithm of the size of a chunk in bytes.
    pub chunk_shift: u8,
    /// Index after the last chunk whose place is known.
    pub known_to: u64,
    /// Places by ascending index. Those without one contain zeros.
    pub places: Vec<(u64, StoredChunk)>,
}

impl Volume {
    /// Keeps the chunks of this volume's partition where they are, for another partition to take them over; see
    /// [`store::ChunkStore::lend`].
    pub fn lend_chunks(&self) -> Option<Loan> {
        self.home.handle.chunks.lend()
    }

    /// Records that these objects of this volume's partition are lent; see [`store::ChunkStore::keep_lent`].
    ///
    /// # Errors
    /// `Store`: the other partition may not use them.
    pub fn keep_lent(&self, loan: &Loan, borrower: Borrower, objects: &[u64]) -> Result<(), VolumeError> {
        Ok(self.home.handle.chunks.keep_lent(loan, borrower, objects)?)
    }

    /// Starts to take over chunks for a restoration of this volume from the partition `partition`, whose prefix in the same
    /// bucket this is and whose chunks have this size, under a loan; see [`store::ChunkStore::import`].
    ///
    /// # Errors
    /// `Store`: they have to be received as bytes.
    pub fn import_chunks(
        &self,
        prefix: &str,
        partition: [u8; 16],
        loan: u64,
        chunk_shift: u8,
    ) -> Result<Import, VolumeError> {
        let own = self.shared.options.chunk_shift;
        if own != chunk_shift {
            let what = format!("chunks have 2^{chunk_shift} bytes there, and 2^{own} here");
            return Err(StoreError::Damaged { place: prefix.to_owned(), what }.into());
        }
        Ok(self.home.handle.chunks.import(prefix, partition, loan)?)
    }

    /// Returns where the data of a file is for a partition that borrows it, from the chunk `first` on.
    ///
    /// # Errors
    /// `Busy` if the file has another data version than in `status`; `NoVnode`, `Store`.
    pub fn stored_chunks(
        self: &Arc<Self>,
        status: &VnodeStatus,
        first: u64,
    ) -> Result<StoredChunks, VolumeError> {
        let fid: Fid = status.fid(self.id());
        let known_to = first.saturating_add(WINDOW_CHUNKS);
        let (vnode, found) = {
            let _publish = self.group.publish.read();
            let vnode = self.vnode(fid)?;
            if vnode.status.data_version != status.data_version {
                return Err(VolumeError::Busy(self.id()));
            }
            let found = self.extents(&vnode, first, known_to - 1, WINDOW_CHUNKS as usize)?;
            (vnode, found)
        };
        let chunks = &self.home.handle.chunks;
        let (mut places, mut not_lendable) = (Vec::with_capacity(found.len()), HashSet::new());
        for (index, extent) in found {
            let place = match extent {
                Extent::Chunk { address, length } if !not_lendable.contains(&address.segment) => {
                    match chunks.lendable(address) {
                        Ok(place) => StoredChunk::Own(place, length),
                        Err(error @ StoreError::Unavailable { .. }) => return Err(error.into()),
                        Err(error) => {
                            tracing::warn!(%error, "data that cannot be lent is sent");
                            not_lendable.insert(address.segment);
                            StoredChunk::Elsewhere
                        }
                    }
                }
                _ => StoredChunk::Elsewhere,
            };
            places.push((index, place));
        }
        Ok(StoredChunks { chunk_shift: vnode.chunk_shift, known_to, places })
    }
}

impl Volumes {
    /// Returns the file data of a partition.
    ///
    /// # Errors
    /// `NoPartition`.
    pub fn chunk_store(&self, partition: PartitionId) -> Result<Arc<dyn ChunkStore>, VolumeError> {
        Ok(Arc::clone(&self.partition(partition)?.handle.chunks))
    }
}

impl Restoration {
    /// Takes over chunks of another partition from now on: those that a source of data names.
    pub fn set_import(&mut self, import: Import) {
        self.end_import();
        self.import = Some(import);
    }

    /// Checks that what was taken over will be kept.
    pub(crate) fn check_import(&self) -> Result<(), VolumeError> {
        match &self.import {
            Some(import) => Ok(self.home().handle.chunks.check_import(import)?),
            None => Ok(()),
        }
    }

    pub(crate) fn end_import(&mut self) {
        if let Some(import) = self.import.take() {
            self.home().handle.chunks.end_import(import);
        }
    }

    /// Takes over a chunk as an extent of `length` bytes.
    pub(crate) fn take_chunk(
        &mut self,
        key: &[u8],
        length: u32,
        chunk: ChunkPlace,
    ) -> Result<(), VolumeError> {
        let target = Arc::clone(self.target());
        let none = || VolumeError::Invalid("a chunk of another partition, of which nothing is taken over");
        let import = self.import.as_mut().ok_or_else(none)?;
        let address = target.home.handle.chunks.take_chunk(import, chunk)?;
        self.put_extent(key, &Extent::Chunk { address, length })
    }
}
