//! Decoded vnodes and directories in memory. Everything here can be read again from the store.
//!
//! Keys begin with a volume's instance, a number that is new whenever a volume is loaded or becomes
//! another clone: what an old instance left behind is never seen again and ages out.

use crate::VolumeOptions;
use crate::record::Vnode;
use afs_format::directory::DirectoryBlob;
use base::VnodeId;
use parking_lot::RwLock;
use quick_cache::Weighter;
use quick_cache::sync::Cache;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// How often a cache could answer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CacheCounters {
    /// Answers from the cache.
    pub hits: u64,
    /// Answers from the store.
    pub misses: u64,
    /// What is in the cache now.
    pub entries: u64,
}

type Key = (u64, VnodeId);

/// A directory that writers edit in place, and its weight in bytes when it was cached.
#[derive(Clone)]
pub(crate) struct CachedDirectory {
    pub(crate) blob: Arc<RwLock<DirectoryBlob>>,
    weight: u64,
}

impl CachedDirectory {
    pub(crate) fn new(blob: Arc<RwLock<DirectoryBlob>>) -> CachedDirectory {
        // Pages and about as much again for the index of names.
        let weight = 2 * blob.read().length_bytes();
        CachedDirectory { blob, weight }
    }
}

#[derive(Clone)]
struct ByBytes;

impl Weighter<Key, CachedDirectory> for ByBytes {
    fn weight(&self, _key: &Key, directory: &CachedDirectory) -> u64 {
        directory.weight
    }
}

#[derive(Default)]
struct Hits {
    hits: AtomicU64,
    misses: AtomicU64,
}

impl Hits {
    fn count<T>(&self, found: Option<T>) -> Option<T> {
        let counter = if found.is_some() { &self.hits } else { &self.misses };
        counter.fetch_add(1, Ordering::Relaxed);
        found
    }

    fn counters(&self, entries: usize) -> CacheCounters {
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        CacheCounters { hits: read(&self.hits), misses: read(&self.misses), entries: entries as u64 }
    }
}

/// The caches of one server.
pub(crate) struct Caches {
    vnodes: Cache<Key, Vnode>,
    vnode_hits: Hits,
    directories: Cache<Key, CachedDirectory, ByBytes>,
    directory_hits: Hits,
    next_instance: AtomicU64,
}

impl Caches {
    pub(crate) fn new(options: &VolumeOptions) -> Caches {
        let directories = (options.cached_directory_bytes / 8192).max(16) as usize;
        Caches {
            vnodes: Cache::new(options.cached_vnodes),
            vnode_hits: Hits::default(),
            directories: Cache::with_weighter(directories, options.cached_directory_bytes, ByBytes),
            directory_hits: Hits::default(),
            next_instance: AtomicU64::new(1),
        }
    }

    pub(crate) fn new_instance(&self) -> u64 {
        self.next_instance.fetch_add(1, Ordering::Relaxed)
    }

    pub(crate) fn vnode(&self, instance: u64, vnode: VnodeId) -> Option<Vnode> {
        self.vnode_hits.count(self.vnodes.get(&(instance, vnode)))
    }

    pub(crate) fn put_vnode(&self, instance: u64, vnode: Vnode) {
        self.vnodes.insert((instance, vnode.status.vnode), vnode);
    }

    pub(crate) fn directory(&self, instance: u64, vnode: VnodeId) -> Option<Arc<RwLock<DirectoryBlob>>> {
        let found = self.directory_hits.count(self.directories.get(&(instance, vnode)));
        found.map(|directory| directory.blob)
    }

    pub(crate) fn put_directory(&self, instance: u64, vnode: VnodeId, blob: Arc<RwLock<DirectoryBlob>>) {
        self.directories.insert((instance, vnode), CachedDirectory::new(blob));
    }

    pub(crate) fn forget(&self, instance: u64, vnode: VnodeId) {
        self.vnodes.remove(&(instance, vnode));
        self.forget_directory(instance, vnode);
    }

    pub(crate) fn forget_directory(&self, instance: u64, vnode: VnodeId) {
        self.directories.remove(&(instance, vnode));
    }

    pub(crate) fn vnode_counters(&self) -> CacheCounters {
        self.vnode_hits.counters(self.vnodes.len())
    }

    pub(crate) fn directory_counters(&self) -> CacheCounters {
        self.directory_hits.counters(self.directories.len())
    }
}
