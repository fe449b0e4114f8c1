//! A volume's header: what administration sees of it.

use base::{SnapshotName, UnixTime, VolumeId, VolumeName, VolumeType};
use store::Codec;

/// A volume's header. [`crate::Volume::update_header`] changes it durably.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VolumeHeader {
    /// The volume.
    pub id: VolumeId,
    /// Its name, unique among the volumes of its kind in the cell.
    pub name: VolumeName,
    /// Read-write, read-only or backup.
    pub kind: VolumeType,
    /// The read-write volume it was made from; itself if it is one.
    pub parent: VolumeId,
    /// The latest read-only clone; 0 if there never was one.
    pub clone: VolumeId,
    /// The latest backup clone; 0 if there never was one.
    pub backup: VolumeId,
    /// The volume in the dump that this one was restored from; 0 if it was not.
    pub restored_from: VolumeId,
    /// Owner of the root directory.
    pub owner: i32,
    /// Account number; no meaning to the server.
    pub account: u32,
    /// Whether it may be used; cleared by the operator or an unfinished volume transaction.
    pub in_service: bool,
    /// Whether the administrator lets it go online.
    pub blessed: bool,
    /// Left over from a transaction that did not end (0xD3: to be destroyed; destroyMe of OpenAFS).
    pub destroy_me: u8,
    /// Most blocks of 1 KiB; 0 is unlimited.
    pub quota_max_kib: u64,
    /// Fewest blocks of 1 KiB that are kept for it; no meaning to the server.
    pub quota_min_kib: u64,
    /// Creation date of a read-write volume, cloning date of the others.
    pub created: UnixTime,
    /// Last access, to the day's precision.
    pub accessed: UnixTime,
    /// Last change of anything in it.
    pub updated: UnixTime,
    /// When it expires; 0 never.
    pub expires: UnixTime,
    /// When a backup clone was last made.
    pub backed_up: UnixTime,
    /// When this copy of it was made.
    pub copied: UnixTime,
    /// Vnodes besides the root directory.
    pub file_count: u64,
    /// Of these, directories.
    pub directory_count: u64,
    /// Sum of the blocks of all vnodes.
    pub used_kib: u64,
    /// Next uniquifier to give out.
    pub next_unique: u32,
    /// Changes since creation (volUpdateCounter).
    pub update_counter: u32,
    /// Accesses today.
    pub day_use: u32,
    /// When today began.
    pub day_use_date: UnixTime,
    /// Accesses of the seven days before, yesterday first.
    pub week_use: [u32; 7],
    /// Why it is offline, in no particular character set; at most 127 bytes are kept.
    pub offline_message: Vec<u8>,
    /// Message of the day; at most 127 bytes are kept.
    pub message_of_the_day: Vec<u8>,
    /// How file data that is written from now on is compressed; `None` is the server's default.
    pub compression: Option<Codec>,
    /// File data that is written from now on shares the chunks of equal contents on the partition.
    pub deduplicates: bool,
    /// What it is a snapshot of, if it is one.
    pub snapshot: Option<SnapshotOf>,
    /// The number that it is known by if that of a volume on another partition keeps it from having it, and
    /// it is no read-write volume; of those the parent tells.
    pub stands_for: Option<VolumeId>,
    /// Where the contents come from, until the volume is in service for the first time; clients cannot have seen it
    /// before. [`crate::Volume::update_header`] clears it together with putting the volume into service.
    pub unseen: Option<Unseen>,
    /// The latest date of a clone. Later changes are not dated before it, even after the clock was set back, so that
    /// releases and incremental dumps find them by date.
    pub dated: UnixTime,
    /// How often the contents had changed when they were restored; `None` if they never were. As long as the count is the
    /// same, the volume only follows another one.
    pub restored_at: Option<u64>,
}

/// Origin of the contents of a volume that has not been in service yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unseen {
    /// The site that the volume is moved from, or it is still empty.
    Arriving,
    /// A dump: its dates were set, which a move never does.
    Restored,
}

/// Which snapshot a volume is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SnapshotOf {
    /// The read-write volume, which may be gone.
    pub volume: VolumeId,
    /// The snapshot's name, unique among those of the volume.
    pub name: SnapshotName,
}

/// What is needed to make a clone.
#[derive(Clone, Debug)]
pub struct CloneVolume {
    /// Its id, not 0.
    pub id: VolumeId,
    /// Its name.
    pub name: VolumeName,
    /// Read-only or backup.
    pub kind: VolumeType,
    /// Becomes creation and copy date.
    pub now: UnixTime,
}

/// What is needed to make a volume.
#[derive(Clone, Debug)]
pub struct NewVolume {
    /// Its id, not 0.
    pub id: VolumeId,
    /// Its name.
    pub name: VolumeName,
    /// Its kind.
    pub kind: VolumeType,
    /// The read-write volume it belongs to; 0 or `id` if it is one.
    pub parent: VolumeId,
    /// Most blocks of 1 KiB; 0 is unlimited. OpenAFS starts with 5000.
    pub quota_max_kib: u64,
    /// Whether it gets a root directory (mode 0777, owner 0, everything to system:administrators).
    /// Without one it waits for a restore.
    pub with_root: bool,
    /// Whether it may be used at once.
    pub in_service: bool,
    /// What [`VolumeHeader::destroy_me`] is from the first moment on: 0, or the mark of a volume that
    /// is not finished.
    pub destroy_me: u8,
    /// Becomes creation, update and copy date.
    pub now: UnixTime,
}
