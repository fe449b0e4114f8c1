//! Commits that change rows of shared chunks, and the addresses of chunks that extents name.

use crate::VolumeError;
use crate::core::shared::Partition;
use crate::dedup::pins::{Pin, Pins};
use crate::dedup::{Changes, Done, Obsolete, Offers, Outcome, Step};
use store::{Batch, ChunkAddress};
use volume_records::codec::Extent;
use volume_records::rows::{FoundRow, RowKey, find_rows};

impl Partition {
    /// Commits a batch together with its changes of rows; afterwards `batch` is empty.
    pub(crate) fn commit(
        &self,
        batch: &mut Batch,
        changes: &Changes,
        offers: &[&Offers],
    ) -> Result<Outcome, VolumeError> {
        let meta = &*self.handle.meta;
        if changes.is_empty() {
            let number = meta.commit(std::mem::take(batch))?;
            return Ok(Outcome::Done(Done { number, obsolete: vec![], used: vec![] }));
        }
        let mut sums = self.sharing.lock(meta)?;
        let mut step = Step::new(sums.unwrap_or_default());
        step.take(meta, changes, offers)?;
        if !step.missing.is_empty() {
            return Ok(Outcome::Missing(step.missing));
        }
        let number = step.commit(meta, batch, &mut sums)?;
        Ok(Outcome::Done(Done { number, obsolete: step.obsolete, used: step.used }))
    }

    /// Makes rows name copies of their chunks; each move has the old and the new address. The result lists
    /// the copies that were used; the other rows no longer name the old address. `None` if no copy was used.
    pub(crate) fn move_shared(
        &self,
        moves: &[(RowKey, ChunkAddress, ChunkAddress)],
    ) -> Result<Option<Done>, VolumeError> {
        let meta = &*self.handle.meta;
        let mut sums = self.sharing.lock(meta)?;
        let mut step = Step::new(sums.unwrap_or_default());
        for &(key, from, to) in moves {
            step.relocate(meta, key, from, to)?;
        }
        if step.used.is_empty() {
            return Ok(None);
        }
        let number = step.commit(meta, &mut Batch::new(), &mut sums)?;
        Ok(Some(Done { number, obsolete: step.obsolete, used: step.used }))
    }

    /// Resolves shared extents to chunk addresses, which stay valid as long as the returned pin exists. Call
    /// this while the extents that were read are certain to exist.
    pub(crate) fn resolve(&self, extents: &mut [(u64, Extent)]) -> Result<Option<Pin>, VolumeError> {
        if !extents.iter().any(|(_, extent)| matches!(extent, Extent::Shared { .. })) {
            return Ok(None);
        }
        // Taken before the rows are read.
        let pin = self.sharing.pins.pin();
        let shared = |extent: &Extent| match *extent {
            Extent::Shared { row, .. } => Some(row),
            _ => None,
        };
        let rows = extents.iter().filter_map(|(_, extent)| shared(extent));
        let rows = find_rows(&*self.handle.meta, rows)?;
        let extents = extents.iter_mut().map(|(_, extent)| extent).filter(|extent| shared(extent).is_some());
        for (extent, row) in extents.zip(rows) {
            if let (Extent::Shared { length, .. }, FoundRow::Row(found)) = (&*extent, row) {
                *extent = Extent::Chunk { address: found.address, length: *length };
            }
        }
        Ok(Some(pin))
    }

    /// Releases a group's own chunks and shared chunks once they have no readers.
    pub(crate) fn release(&self, pins: Option<&Pins>, obsolete: Obsolete) {
        match pins {
            Some(pins) => pins.release(obsolete.own),
            None => obsolete.own.into_iter().for_each(|address| self.handle.chunks.release(address)),
        }
        self.sharing.pins.release(obsolete.shared);
    }
}
