//! Options for the volumes of a server.

use std::thread;
use store::Codec;
use volume_records::totals::UNFOLDED_MAX;

/// Default maximum number of threads that encode or decode chunks.
const THREADS_MAX: usize = 16;

/// Large enough that waits for the disk are rare.
const RECEIVED_STEP_BYTES: u64 = 64 << 20;

/// Point at which a change is acknowledged.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Durability {
    /// When it is durable. Group commit makes this cheap.
    #[default]
    Always,
    /// As `Always`, except that a store of file data is acknowledged once it is committed. It becomes durable
    /// with the partition's next change that waits, or with [`crate::Volumes::sync`] or
    /// [`crate::Volume::sync`].
    Close,
    /// Immediately; changes become durable when [`crate::Volumes::sync`] is called. After a crash the
    /// partition is consistent but may be slightly out of date.
    Interval,
}

impl Durability {
    /// Returns whether a store of file data waits until it is durable.
    pub(crate) fn waits_for_data(self) -> bool {
        self == Durability::Always
    }

    /// Returns whether other changes wait until they are durable.
    pub(crate) fn waits_for_metadata(self) -> bool {
        self != Durability::Interval
    }
}

/// Options of [`crate::Volumes::open`].
#[derive(Clone, Copy, Debug)]
pub struct VolumeOptions {
    /// Point at which a change is acknowledged.
    pub durability: Durability,
    /// Blocks of 1 KiB by which a store may exceed its volume's quota (`-spare`, 1024).
    pub spare_kib: u64,
    /// Compression of file data, unless the volume sets its own ([`VolumeHeader::compression`]).
    ///
    /// [`VolumeHeader::compression`]: crate::VolumeHeader::compression
    pub codec: Codec,
    /// Number of threads that encode and write chunks while the next ones arrive; with 0 the caller does all
    /// the work.
    pub append_threads: usize,
    /// Number of threads that read and decode the next chunks of a file while earlier ones are sent; with 0
    /// the reader does all the work.
    pub read_threads: usize,
    /// Chunk size of new files, as a power of 2; 12 to 20.
    pub chunk_shift: u8,
    /// Maximum size of a chunk that is stored inline in the metadata, in bytes.
    pub inline_bytes_max: usize,
    /// Maximum bytes of vnode status to cache, some 200 for each vnode.
    pub cached_status_bytes: u64,
    /// Maximum number of unused volumes kept in memory, one or two KiB each.
    pub loaded_volumes_max: usize,
    /// Maximum bytes of directories to cache.
    pub cached_directory_bytes: u64,
    /// Number of changed directories of a volume after which the totals of their ancestors are written; at
    /// most 16.
    pub unfolded_directories: usize,
    /// Bytes of received files after which a transfer's progress is made durable, if it was not before.
    pub received_step_bytes: u64,
}

impl Default for VolumeOptions {
    fn default() -> VolumeOptions {
        let threads = thread::available_parallelism().map_or(1, usize::from).min(THREADS_MAX);
        VolumeOptions {
            durability: Durability::Always,
            spare_kib: 1024,
            codec: Codec::Lz4,
            append_threads: threads,
            read_threads: threads,
            chunk_shift: 18,
            inline_bytes_max: 4096,
            loaded_volumes_max: 20_000,
            cached_status_bytes: 64 << 20,
            cached_directory_bytes: 256 << 20,
            unfolded_directories: UNFOLDED_MAX,
            received_step_bytes: RECEIVED_STEP_BYTES,
        }
    }
}
