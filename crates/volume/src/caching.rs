//! What the caches of a server are and did, and emptying them of one volume.

use crate::{CacheReport, Purged, VolumeError, Volumes};
use base::VolumeId;
use store::CacheStatistics;

impl Volumes {
    /// Absolute figures of all caches.
    pub fn caches(&self) -> CacheReport {
        let chunks = self.partitions.iter().map(|home| home.handle.chunks.cache_statistics());
        CacheReport {
            status: self.shared.caches.status_statistics(),
            directories: self.shared.caches.directory_statistics(),
            totals: self.shared.caches.totals_statistics(),
            chunks: chunks.fold(CacheStatistics::default(), CacheStatistics::plus),
        }
    }

    /// Throws a volume out of the caches; file data together with that of its clones, with whom it
    /// shares it. Costs no more than the entries that go, whatever else is in memory.
    ///
    /// # Errors
    /// `NoVolume`; `Damaged`, `Store` if it cannot be read.
    pub fn purge_cache(&self, id: VolumeId) -> Result<Purged, VolumeError> {
        let volume = self.get_any_state(id)?;
        let chunks = volume.home.handle.chunks.forget_owner(volume.group.id) as u64;
        Ok(Purged { chunks, ..self.shared.caches.purge(volume.view().instance) })
    }
}
