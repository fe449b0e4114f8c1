//! A volume's header, which holds what administration can see and set.

use base::{SnapshotName, UnixTime, VolumeId, VolumeName, VolumeType};
use store::Codec;

/// A volume's header.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VolumeHeader {
    /// Volume id.
    pub id: VolumeId,
    /// Name, unique among the volumes of its kind in the cell.
    pub name: VolumeName,
    /// Type of the volume.
    pub kind: VolumeType,
    /// Read-write volume it was made from; its own id if it is read-write.
    pub parent: VolumeId,
    /// Latest read-only clone; 0 if there never was one.
    pub clone: VolumeId,
    /// Latest backup clone; 0 if there never was one.
    pub backup: VolumeId,
    /// Dumped volume that this one was restored from; 0 if it was not restored.
    pub restored_from: VolumeId,
    /// Owner of the root directory.
    pub owner: i32,
    /// Account number, not interpreted by the server.
    pub account: u32,
    /// Whether it may be used; cleared by the operator or an incomplete volume transaction.
    pub in_service: bool,
    /// Whether the administrator permits it to be online.
    pub blessed: bool,
    /// Mark of a volume left behind by an incomplete transaction (0xD3: to be destroyed; destroyMe of
    /// OpenAFS).
    pub destroy_me: u8,
    /// Quota in blocks of 1 KiB; 0 for no limit.
    pub quota_max_kib: u64,
    /// Reserved blocks of 1 KiB, not interpreted by the server.
    pub quota_min_kib: u64,
    /// Creation date of a read-write volume, cloning date of other volumes.
    pub created: UnixTime,
    /// Date of the last access, precise to the day.
    pub accessed: UnixTime,
    /// Time of the last change of anything in it.
    pub updated: UnixTime,
    /// Expiry time; 0 for never.
    pub expires: UnixTime,
    /// Time of the last backup clone.
    pub backed_up: UnixTime,
    /// Time at which this copy was created.
    pub copied: UnixTime,
    /// Number of vnodes, excluding the root directory.
    pub file_count: u64,
    /// Number of these that are directories.
    pub directory_count: u64,
    /// Sum of the blocks of all vnodes.
    pub used_kib: u64,
    /// Next uniquifier to allocate.
    pub next_unique: u32,
    /// Number of changes since creation (volUpdateCounter).
    pub update_counter: u32,
    /// Accesses on the current day.
    pub day_use: u32,
    /// Start of the current day.
    pub day_use_date: UnixTime,
    /// Accesses on each of the previous seven days, yesterday first.
    pub week_use: [u32; 7],
    /// Reason for being offline, in no particular character set; at most 127 bytes are kept.
    pub offline_message: Vec<u8>,
    /// Message of the day; at most 127 bytes are kept.
    pub message_of_the_day: Vec<u8>,
    /// Compression of newly written file data; `None` for the server's default.
    pub compression: Option<Codec>,
    /// Whether newly written file data shares chunks of equal contents on the partition.
    pub deduplicates: bool,
    /// The snapshot that it is, if it is one.
    pub snapshot: Option<SnapshotOf>,
    /// Number that a parked volume is known by to administration; unused for read-write volumes, for which
    /// the parent has it.
    pub stands_for: Option<VolumeId>,
    /// Origin of the contents, until the volume is in service for the first time; clients cannot have seen it
    /// before that. Putting the volume into service clears it.
    pub unseen: Option<Unseen>,
    /// Date of the latest clone. Later changes never get an earlier date, even after the clock was set back,
    /// so that releases and incremental dumps find them by date.
    pub dated: UnixTime,
    /// Number of changes of the contents at the last restore; `None` if the volume was never restored. While
    /// the number stays the same, the volume is only a mirror of another one.
    pub restored_at: Option<u64>,
}

/// First id for parked volumes.
pub const PARKED_FIRST: u32 = 0xffff_0000;

/// Returns whether this is the id of a parked volume: one whose header has the number that administration
/// knows it by.
pub fn is_parked(id: VolumeId) -> bool {
    id.0 >= PARKED_FIRST
}

impl VolumeHeader {
    /// Returns the number that administration knows the volume by: its id or, if it is parked, that of the
    /// volume whose place it may take.
    pub fn number(&self) -> VolumeId {
        if is_parked(self.id) { self.stands_for.unwrap_or(self.parent) } else { self.id }
    }
}

/// Origin of the contents of a volume that has not been in service yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unseen {
    /// The site that the volume is being moved from; or the volume is still empty.
    Arriving,
    /// A dump: its dates were set, which a move never does.
    Restored,
}

/// Identifies a snapshot.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SnapshotOf {
    /// Read-write volume, which may have been deleted.
    pub volume: VolumeId,
    /// Name of the snapshot, unique within the volume.
    pub name: SnapshotName,
}
