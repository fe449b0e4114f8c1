//! Decoded vnodes and directories in memory. Everything here can be read again from the store.
//!
//! Keys begin with a volume's instance, a number that is new whenever a volume is loaded or becomes another
//! clone, so entries of an old instance are never used again. They are evicted in small steps in the
//! background, so that deleting a volume takes no longer because much of it is cached.

use crate::VolumeOptions;
use afs_format::directory::DirectoryBlob;
use base::{Fid, VnodeId};
use events::catalogue::CacheName;
use parking_lot::{Mutex, RwLock};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use store::{Cache, CacheStatistics};
use volume_records::codec::Vnode;
use volume_records::totals::Totals;

/// Entries of a removed instance that one step evicts.
const BURY_ENTRIES: usize = 1000;

/// Removed instances that one step handles; most have few entries.
const BURIED_AT_ONCE: usize = 256;

/// Estimated memory for an access list; few need more.
const ACL_BYTES: u64 = 128;

/// Vnodes whose numbers differ only in this many low bits are cached near each other: they are mostly in one
/// directory and are used together.
const NEIGHBOUR_BITS: u32 = 9;

/// Divisor that yields the memory for directory totals from the memory for vnodes, which it does not reduce.
const TOTALS_SHARE: u64 = 8;

/// Statistics of a server's caches, summed over its partitions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CacheReport {
    /// Status and access lists of vnodes.
    pub status: CacheStatistics,
    /// Directories.
    pub directories: CacheStatistics,
    /// Totals of directories.
    pub totals: CacheStatistics,
    /// File data.
    pub chunks: CacheStatistics,
}

/// Number of entries evicted from each cache.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Purged {
    /// Vnodes.
    pub status: u64,
    /// Directories.
    pub directories: u64,
    /// Totals of directories.
    pub totals: u64,
    /// Chunks.
    pub chunks: u64,
}

type Key = (u64, VnodeId);

/// The caches of one server.
pub(crate) struct Caches {
    vnodes: Cache<Key, Vnode>,
    directories: Cache<Key, Arc<RwLock<DirectoryBlob>>>,
    /// Totals and the epoch in which their record was written, 0 if unknown.
    totals: Cache<Key, (Totals, u64)>,
    next_instance: AtomicU64,
    /// Instances that will not be used again and may still have entries.
    buried: Mutex<Vec<u64>>,
}

impl Caches {
    pub(crate) fn new(options: &VolumeOptions) -> Caches {
        Caches {
            vnodes: Cache::with_neighbours(
                CacheName::Status,
                options.cached_status_bytes,
                |(instance, vnode)| (*instance, VnodeId(vnode.0 >> NEIGHBOUR_BITS)),
            ),
            directories: Cache::new(CacheName::Directories, options.cached_directory_bytes),
            totals: Cache::new(CacheName::Totals, options.cached_status_bytes / TOTALS_SHARE),
            next_instance: AtomicU64::new(1),
            buried: Mutex::default(),
        }
    }

    pub(crate) fn new_instance(&self) -> u64 {
        self.next_instance.fetch_add(1, Ordering::Relaxed)
    }

    pub(crate) fn vnode(&self, instance: u64, vnode: VnodeId) -> Option<Vnode> {
        self.vnodes.get(&(instance, vnode))
    }

    /// Returns a cached vnode. On a miss the caller uses [`Caches::vnode`] next.
    pub(crate) fn try_vnode(&self, instance: u64, vnode: VnodeId) -> Option<Vnode> {
        self.vnodes.try_get(&(instance, vnode))
    }

    /// Returns several vnodes if all of them are cached.
    pub(crate) fn try_vnodes(&self, instance: u64, fids: &[Fid]) -> Option<Vec<Vnode>> {
        let keys: Vec<Key> = fids.iter().map(|fid| (instance, fid.vnode)).collect();
        self.vnodes.try_get_all(&keys)
    }

    pub(crate) fn put_vnode(&self, instance: u64, vnode: Vnode) {
        let bytes = if vnode.acl.is_some() { ACL_BYTES } else { 0 };
        self.vnodes.insert(instance, (instance, vnode.status.vnode), vnode, bytes);
    }

    pub(crate) fn directory(&self, instance: u64, vnode: VnodeId) -> Option<Arc<RwLock<DirectoryBlob>>> {
        self.directories.get(&(instance, vnode))
    }

    pub(crate) fn put_directory(&self, instance: u64, vnode: VnodeId, blob: Arc<RwLock<DirectoryBlob>>) {
        // The pages, and about as much again for the name index.
        let bytes = 2 * blob.read().length_bytes();
        self.directories.insert(instance, (instance, vnode), blob, bytes);
    }

    pub(crate) fn totals(&self, instance: u64, directory: VnodeId) -> Option<Totals> {
        self.totals.get(&(instance, directory)).map(|(totals, _)| totals)
    }

    /// Returns whether the cached record is known to be from this epoch.
    pub(crate) fn has_totals_of(&self, instance: u64, directory: VnodeId, epoch: u64) -> bool {
        self.totals.get(&(instance, directory)).is_some_and(|(_, written)| written == epoch)
    }

    /// Caches totals whose record was written in `epoch`, 0 if unknown. `None` removes them.
    pub(crate) fn put_totals(&self, instance: u64, directory: VnodeId, totals: Option<Totals>, epoch: u64) {
        let key = (instance, directory);
        match totals {
            Some(totals) => self.totals.insert(instance, key, (totals, epoch), 0),
            None => self.totals.remove(&key),
        }
    }

    pub(crate) fn forget(&self, instance: u64, vnode: VnodeId) {
        self.vnodes.remove(&(instance, vnode));
        self.forget_directory(instance, vnode);
    }

    pub(crate) fn forget_directory(&self, instance: u64, vnode: VnodeId) {
        self.directories.remove(&(instance, vnode));
    }

    /// Evicts all entries of an instance immediately.
    pub(crate) fn purge(&self, instance: u64) -> Purged {
        let purge = |removed: usize| removed as u64;
        Purged {
            status: purge(self.vnodes.purge(instance, usize::MAX)),
            directories: purge(self.directories.purge(instance, usize::MAX)),
            totals: purge(self.totals.purge(instance, usize::MAX)),
            chunks: 0,
        }
    }

    /// Marks an instance as unused: [`Caches::clear_buried`] evicts its entries.
    pub(crate) fn bury(&self, instance: u64) {
        self.buried.lock().push(instance);
    }

    /// Evicts some entries of removed instances; returns whether there may be more.
    pub(crate) fn clear_buried(&self) -> bool {
        for _ in 0..BURIED_AT_ONCE {
            let Some(instance) = self.buried.lock().pop() else { return false };
            let removed = [
                self.vnodes.purge(instance, BURY_ENTRIES),
                self.directories.purge(instance, BURY_ENTRIES),
                self.totals.purge(instance, BURY_ENTRIES),
            ];
            if removed.contains(&BURY_ENTRIES) {
                self.bury(instance);
                return true;
            }
        }
        true
    }

    pub(crate) fn status_statistics(&self) -> CacheStatistics {
        self.vnodes.statistics()
    }

    pub(crate) fn directory_statistics(&self) -> CacheStatistics {
        self.directories.statistics()
    }

    pub(crate) fn totals_statistics(&self) -> CacheStatistics {
        self.totals.statistics()
    }
}
