//! The source's side of a transfer between partitions of one bucket: where the data of its files is.

use crate::dumping::failed;
use crate::server::VolumeServer;
use crate::taking::CHUNK_SHIFT;
use afs_idl::ClientConnection;
use afs_idl::cellar::{self, OfferObjectsRequest};
use base::{AbortCode, VnodeId};
use std::sync::Arc;
use tracing::info;
use volume::{ChunkPlace, Loan, StoredChunk, StoredChunks, VnodeStatus, Volume};

/// A volume whose data the target takes over. The objects are kept meanwhile.
pub(crate) struct Lent {
    volume: Arc<Volume>,
    _loan: Loan,
    /// The file that was looked up last, with its data version and the first chunk whose place is known.
    file: Option<(VnodeId, u64, u64)>,
    found: StoredChunks,
}

/// Where a chunk is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    /// Nowhere: it contains zeros.
    Hole,
    /// At this place, with this many bytes.
    Chunk(ChunkPlace, u32),
    /// Where the target cannot take it.
    Elsewhere,
}

impl Lent {
    /// Offers a volume to a target with its transaction; `None` if the target takes nothing over.
    pub(crate) fn offer(
        server: &VolumeServer,
        volume: &Arc<Volume>,
        (way, transaction): (&dyn ClientConnection, i32),
    ) -> Option<Lent> {
        // Only servers with common partitions know each other's.
        server.other_owners()?;
        let loan = volume.lend_chunks()?;
        let partition = volume.partition().index() as i32;
        let request = OfferObjectsRequest { transaction, partition, uuid: loan.partition };
        let accepted = cellar::offer_objects(way, &request).is_ok_and(|reply| reply.accepted != 0);
        info!(volume = %volume.id(), to = %way.peer(), accepted, "the objects of a volume are offered");
        let (volume, found) = (Arc::clone(volume), StoredChunks::default());
        accepted.then_some(Lent { volume, _loan: loan, file: None, found })
    }

    /// Returns where a chunk of a file is.
    pub(crate) fn place(&mut self, status: &VnodeStatus, index: u64) -> Result<Place, AbortCode> {
        let is_known = self.file.is_some_and(|(vnode, data_version, first)| {
            (vnode, data_version) == (status.vnode, status.data_version)
                && (first..self.found.known_to).contains(&index)
        });
        if !is_known {
            self.found = self.volume.stored_chunks(status, index).map_err(|error| failed(&error))?;
            self.file = Some((status.vnode, status.data_version, index));
        }
        if self.found.chunk_shift != CHUNK_SHIFT {
            return Ok(Place::Elsewhere);
        }
        let places = &self.found.places;
        let Ok(found) = places.binary_search_by_key(&index, |(index, _)| *index) else {
            return Ok(Place::Hole);
        };
        Ok(match places[found].1 {
            StoredChunk::Own(chunk, bytes) => Place::Chunk(chunk, bytes),
            StoredChunk::Elsewhere => Place::Elsewhere,
        })
    }
}
