//! Calls about the server's caches.

use crate::AdminServer;
use afs_idl::cellar::{
    CacheFigures, GetCacheStatisticsReply, GetCacheStatisticsRequest, PurgeVolumeCacheReply,
    PurgeVolumeCacheRequest,
};
use base::{AbortCode, Caller, VolumeId};
use events::catalogue::CACHES;
use volume::{CacheReport, CacheStatistics};

impl AdminServer {
    /// GetCacheStatistics (opcode 320).
    pub(crate) fn get_cache_statistics(
        &self,
        caller: &Caller,
        _: GetCacheStatisticsRequest,
    ) -> Result<GetCacheStatisticsReply, AbortCode> {
        self.check_verified(caller)?;
        let CacheReport { status, directories, totals, chunks } = self.parts.volumes.caches();
        let caches = CACHES.into_iter().zip([status, directories, totals, chunks]);
        Ok(GetCacheStatisticsReply { caches: caches.map(|(name, of)| figures(name, of)).collect() })
    }

    /// PurgeVolumeCache (opcode 321).
    pub(crate) fn purge_volume_cache(
        &self,
        caller: &Caller,
        request: PurgeVolumeCacheRequest,
    ) -> Result<PurgeVolumeCacheReply, AbortCode> {
        self.administer(caller, "PurgeVolumeCache")?;
        let purged = self.parts.volumes.purge_cache(VolumeId(request.volume))?;
        Ok(PurgeVolumeCacheReply {
            status: purged.status,
            directories: purged.directories,
            chunks: purged.chunks,
        })
    }
}

fn figures(name: &str, of: CacheStatistics) -> CacheFigures {
    CacheFigures {
        name: name.into(),
        entries: of.entries,
        bytes: of.bytes,
        peak_bytes: of.peak_bytes,
        limit_bytes: of.limit_bytes,
        hits: of.hits,
        misses: of.misses,
        evictions: of.evictions,
        purged: of.purged,
        recycle_age_ms: of.recycle_age_ms,
    }
}
