//! Statistics of a server's caches, and evicting one volume from them.

use crate::{CacheReport, Purged, VolumeError, Volumes};
use base::VolumeId;
use store::CacheStatistics;

impl Volumes {
    /// Returns the current statistics of all caches.
    pub fn caches(&self) -> CacheReport {
        let homes = self.homes();
        let chunks = homes.iter().map(|home| home.handle.chunks.cache_statistics());
        CacheReport {
            status: self.shared.caches.status_statistics(),
            directories: self.shared.caches.directory_statistics(),
            totals: self.shared.caches.totals_statistics(),
            chunks: chunks.fold(CacheStatistics::default(), CacheStatistics::plus),
        }
    }

    /// Evicts a volume from the caches, including file data that it shares with its clones. The cost is
    /// proportional to the entries evicted, not to the size of the caches.
    pub fn purge_cache(&self, id: VolumeId) -> Result<Purged, VolumeError> {
        let volume = self.get_any_state(id)?;
        let chunks = volume.home.handle.chunks.forget_owner(volume.group.id) as u64;
        Ok(Purged { chunks, ..self.shared.caches.purge(volume.view().instance) })
    }
}
