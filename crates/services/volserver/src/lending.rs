//! The lender's side of transfers between partitions of one bucket: where the data of files is, and for how long it is kept.

use crate::codes::{self, ENOENT};
use crate::dumping::failed;
use crate::server::VolumeServer;
use crate::sharing::OtherOwners;
use crate::taking::CHUNK_SHIFT;
use afs_idl::ClientConnection;
use afs_idl::cellar::{self, BorrowObjectsRequest, LENT_OBJECTS_MAX, UsedObjectsRequest};
use base::{AbortCode, CallContext, PartitionId, VnodeId};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use tracing::{debug, info, warn};
use volume::{
    Borrower, ChunkPlace, LOAN_OBJECTS_MAX, LentObjects, Loan, StoredChunk, StoredChunks, VnodeStatus,
    Volume, VolumeError,
};

/// Number of loans of objects that are in use here about which one round asks.
const OTHER_LOANS_MAX: usize = 64;

/// A volume whose data the target takes over. The objects are kept meanwhile.
pub(crate) struct Lent {
    volume: Arc<Volume>,
    loan: Loan,
    borrower: Borrower,
    /// The objects that were named.
    objects: BTreeSet<u64>,
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
        let request = BorrowObjectsRequest { transaction, partition, uuid: loan.partition, loan: loan.id };
        let reply = cellar::borrow_objects(way, &request).ok().filter(|reply| reply.accepted != 0);
        info!(volume = %volume.id(), to = %way.peer(), accepted = reply.is_some(), "the objects of a volume are offered");
        let reply = reply?;
        let borrower = Borrower { partition: reply.borrower_uuid, index: reply.borrower };
        let (volume, objects, found) = (Arc::clone(volume), BTreeSet::new(), StoredChunks::default());
        Some(Lent { volume, loan, borrower, objects, file: None, found })
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
            StoredChunk::Own(chunk, _) if self.is_full_for(chunk.address.segment) => Place::Elsewhere,
            StoredChunk::Own(chunk, bytes) => Place::Chunk(chunk, bytes),
            StoredChunk::Elsewhere => Place::Elsewhere,
        })
    }

    /// Whether no more objects fit into the loan, and this one is not in it.
    fn is_full_for(&self, object: u64) -> bool {
        self.objects.len() >= LOAN_OBJECTS_MAX && !self.objects.contains(&object)
    }

    /// Records that the target gets a reference to this chunk.
    pub(crate) fn named(&mut self, chunk: ChunkPlace) {
        self.objects.insert(chunk.address.segment);
    }

    /// Makes durable that the objects which were named are kept. The target may use them then.
    pub(crate) fn keep(&self) -> Result<(), AbortCode> {
        if self.objects.is_empty() {
            return Ok(());
        }
        let objects: Vec<u64> = self.objects.iter().copied().collect();
        self.volume.keep_lent(&self.loan, self.borrower, &objects).map_err(|error| failed(&error))?;
        let (volume, loan, count) = (self.volume.id(), self.loan.id, objects.len());
        info!(%volume, loan, count, "objects are lent to another partition");
        Ok(())
    }
}

impl VolumeServer {
    /// Ends the loans of objects that the borrowers do not use any more, and has those that are of no use here brought home. With
    /// `after`, the borrowers are also asked about loans of objects that are in use here: some of each partition, those after this
    /// number, which is advanced. Waits for other servers.
    pub fn end_loans(&self, mut after: Option<&mut BTreeMap<PartitionId, u64>>) {
        // Borrowers that cannot be asked now.
        let mut silent = BTreeSet::new();
        for partition in self.volumes().partitions() {
            let after = after.as_mut().map(|after| after.entry(partition).or_default());
            for (lent, brings_home) in self.loans_to_end(partition, after) {
                let borrower = lent.borrower;
                if silent.contains(&borrower.partition) {
                    continue;
                }
                let unused = self.unused(&lent, brings_home).inspect_err(|error| {
                    let (borrower, count) = (borrower.index, lent.objects.len());
                    debug!(%partition, borrower, count, error, "it is not known whether lent objects are in use");
                    silent.insert(lent.borrower.partition);
                });
                if let Ok(unused) = unused
                    && let Err(error) = self.end_loan(partition, &lent, &unused)
                {
                    debug!(%partition, %error, "a loan cannot be ended now");
                }
            }
        }
    }

    /// Returns the loans about which to ask, and whether their objects are of no use here. The partition may be given up while
    /// borrowers are asked.
    fn loans_to_end(&self, partition: PartitionId, after: Option<&mut u64>) -> Vec<(LentObjects, bool)> {
        let Ok(chunks) = self.volumes().chunk_store(partition) else { return Vec::new() };
        let mut unneeded = chunks.lent(true);
        for lent in &mut unneeded {
            // What is in use is copied, and then not asked for any more.
            lent.objects.truncate(LENT_OBJECTS_MAX);
        }
        let mut others = Vec::new();
        if let Some(after) = after {
            others = chunks.lent(false);
            others.retain(|lent| lent.loan > *after);
            others.truncate(OTHER_LOANS_MAX);
            let is_last = others.len() < OTHER_LOANS_MAX;
            *after = others.last().filter(|_| !is_last).map_or(0, |last| last.loan);
        }
        let unneeded = unneeded.into_iter().map(|lent| (lent, true));
        unneeded.chain(others.into_iter().map(|lent| (lent, false))).collect()
    }

    /// Returns the objects that the borrower does not use.
    fn unused(&self, lent: &LentObjects, brings_home: bool) -> Result<Vec<u64>, String> {
        let mut unused = Vec::new();
        for objects in lent.objects.chunks(LENT_OBJECTS_MAX) {
            let used: BTreeSet<u64> = self.used_by(lent, objects, brings_home)?.into_iter().collect();
            unused.extend(objects.iter().copied().filter(|id| !used.contains(id)));
        }
        Ok(unused)
    }

    fn end_loan(
        &self,
        partition: PartitionId,
        lent: &LentObjects,
        unused: &[u64],
    ) -> Result<(), VolumeError> {
        if unused.is_empty() && !lent.objects.is_empty() {
            return Ok(());
        }
        let chunks = self.volumes().chunk_store(partition)?;
        if chunks.identity() == Some(lent.lender) {
            chunks.end_loan(lent.loan, unused)?;
            let (loan, borrower, count) = (lent.loan, lent.borrower.index, unused.len());
            info!(%partition, loan, borrower, count, "lent objects were returned");
        }
        Ok(())
    }

    /// Returns which of a loan's objects the borrower uses, according to the owner of its partition.
    fn used_by(&self, lent: &LentObjects, objects: &[u64], brings_home: bool) -> Result<Vec<u64>, String> {
        let LentObjects { lender, loan, borrower, .. } = *lent;
        let partition = PartitionId::from_index(borrower.index).ok_or("there is no such partition")?;
        if let Ok(chunks) = self.volumes().chunk_store(partition) {
            if chunks.identity() != Some(borrower.partition) {
                return Err("another partition is in the place of the borrower".into());
            }
            let used = chunks.used_of_loan((lender, loan), objects, brings_home);
            return used.map_err(|error| error.to_string());
        }
        let address = self.other_owners().and_then(OtherOwners::address);
        let way = address.and_then(|address| self.other_servers()?.connect_cellar(address));
        let way = way.ok_or("there is no way to other servers")?;
        let (partition, uuid) = (borrower.index, borrower.partition);
        let (objects, brings_home) = (objects.to_vec(), brings_home.into());
        let request = UsedObjectsRequest { partition, uuid, lender, loan, objects, brings_home };
        let reply = cellar::used_objects(&*way, &request);
        reply.map(|reply| reply.used).map_err(|code| code.to_string())
    }

    /// UsedObjects (417). It is repeated while objects are in use.
    pub(crate) fn used_objects(
        &self,
        caller: &CallContext<'_>,
        request: cellar::UsedObjectsRequest,
    ) -> Result<cellar::UsedObjectsReply, AbortCode> {
        self.administer_quietly(caller, "UsedObjects")?;
        let partition = PartitionId::from_index(request.partition).ok_or(ENOENT)?;
        let chunks = self.volumes().chunk_store(partition).map_err(|error| codes::of(&error))?;
        if chunks.identity() != Some(request.uuid) {
            warn!(%partition, "another partition was asked for the objects that it has borrowed");
            return Err(ENOENT);
        }
        let of = (request.lender, request.loan);
        let used = chunks.used_of_loan(of, &request.objects, request.brings_home != 0);
        let used = used.map_err(|error| codes::of(&error.into()))?;
        Ok(cellar::UsedObjectsReply { used })
    }
}
