//! How the volumes of a server behave.

use crate::totals::UNFOLDED_MAX;
use std::thread;
use store::Codec;

/// Most threads that encode or decode chunks unless more are asked for.
const THREADS_MAX: usize = 16;

/// So many that the medium is not waited for often.
const RECEIVED_STEP_BYTES: u64 = 64 << 20;

/// When a change is acknowledged.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Durability {
    /// When it is on the medium (group commit makes this cheap).
    #[default]
    Always,
    /// Likewise, except that a store of file data is acknowledged once it is committed. It is on the
    /// medium with the next change of the partition that waits, or after [`crate::Volumes::sync`] or
    /// [`crate::Volume::sync`].
    Close,
    /// At once; the medium follows when [`crate::Volumes::sync`] is called. After a crash the
    /// partition is consistent but may be a little older.
    Interval,
}

impl Durability {
    /// Whether a store of file data waits for the medium.
    pub(crate) fn waits_for_data(self) -> bool {
        self == Durability::Always
    }

    /// Whether every other change does.
    pub(crate) fn waits_for_metadata(self) -> bool {
        self != Durability::Interval
    }
}

/// Options of [`crate::Volumes::open`].
#[derive(Clone, Copy, Debug)]
pub struct VolumeOptions {
    /// When a change is acknowledged.
    pub durability: Durability,
    /// Blocks of 1 KiB by which a store may exceed its volume's quota (`-spare`, 1024).
    pub spare_kib: u64,
    /// How file data is compressed, unless the volume says otherwise ([`VolumeHeader::compression`]).
    ///
    /// [`VolumeHeader::compression`]: crate::VolumeHeader::compression
    pub codec: Codec,
    /// Threads that encode and write chunks while the next ones come in; 0 leaves all to the caller.
    pub append_threads: usize,
    /// Threads that read and decode the next chunks of a file while those before them go out; 0 leaves all to
    /// the reader.
    pub read_threads: usize,
    /// New files are cut into chunks of 2 to this power bytes; 12 to 20.
    pub chunk_shift: u8,
    /// Contents of a chunk up to this many bytes lie in the metadata.
    pub inline_bytes_max: usize,
    /// Bytes of vnodes' status, some 200 for each, that are kept in memory.
    pub cached_status_bytes: u64,
    /// Volumes that stay in memory while nobody uses them, at a kibibyte or two each.
    pub loaded_volumes_max: usize,
    /// Bytes of directories that are kept in memory.
    pub cached_directory_bytes: u64,
    /// Changed directories of a volume after which the totals of all above them are written; at most 16.
    pub unfolded_directories: usize,
    /// Bytes of files after which what came of a transfer is put on the medium and noted, if that is not done sooner.
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
