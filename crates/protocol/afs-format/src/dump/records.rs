//! The records of a dump.

use crate::acl::Acl;
use base::UnixTime;

/// The header of a dump.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DumpHeader {
    /// Id of the dumped volume.
    pub volume: u32,
    /// Name of the volume.
    pub name: Vec<u8>,
    /// Time spans, as from and to, whose changes are in the dump; a full dump starts at 0.
    pub dates: Vec<(UnixTime, UnixTime)>,
}

/// The header of the dumped volume (VolumeDiskData of OpenAFS). Fields missing in the dump are 0.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DumpVolume {
    /// Volume id.
    pub id: u32,
    /// Layout version of the header on OpenAFS's disks: 1.
    pub version: u32,
    /// Volume name.
    pub name: Vec<u8>,
    /// Whether the volume is in service.
    pub in_service: u8,
    /// Whether the administrator permits the volume to be online.
    pub blessed: u8,
    /// Next uniquifier to allocate.
    pub next_unique: u32,
    /// Volume type: 0 read-write, 1 read-only, 2 backup.
    pub kind: u8,
    /// Id of the read-write volume of its family.
    pub parent: u32,
    /// Id of the latest read-only clone.
    pub clone: u32,
    /// Quota in blocks of 1 KiB; 0 for no limit.
    pub quota_max_kib: u32,
    /// Reserved blocks of 1 KiB.
    pub quota_min_kib: u32,
    /// Blocks of 1 KiB in use.
    pub used_kib: u32,
    /// Number of vnodes in use.
    pub file_count: u32,
    /// Account number.
    pub account: u32,
    /// Owner of the root directory.
    pub owner: u32,
    /// Creation time; for a clone, the time of cloning.
    pub created: UnixTime,
    /// Time of the last access.
    pub accessed: UnixTime,
    /// Time of the last change.
    pub updated: UnixTime,
    /// Expiry time; 0 for never.
    pub expires: UnixTime,
    /// Time of the last backup clone.
    pub backed_up: UnixTime,
    /// Reason for being offline.
    pub offline_message: Vec<u8>,
    /// Message of the day; OpenAFS always writes an empty one.
    pub message_of_the_day: Vec<u8>,
    /// Accesses on each of the previous seven days, yesterday first.
    pub week_use: [u32; 7],
    /// Start of the day that `day_use` counts.
    pub day_use_date: UnixTime,
    /// Accesses on that day.
    pub day_use: u32,
}

/// Status of a vnode.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct VnodeAttributes {
    /// Kind: 1 file, 2 directory, 3 symbolic link.
    pub kind: u8,
    /// Number of names.
    pub links: u16,
    /// Counts changes of the data.
    pub data_version: u32,
    /// Time of the last change of the data, according to the client.
    pub client_modified: UnixTime,
    /// User who made the last change.
    pub author: u32,
    /// Owner.
    pub owner: u32,
    /// Unix group; omitted from the dump if 0.
    pub group: u32,
    /// Unix mode bits.
    pub mode: u16,
    /// Vnode number of the parent directory; 0 for the root directory.
    pub parent: u32,
    /// Time of the last change of any kind, by the server's clock.
    pub server_modified: UnixTime,
    /// Access list of a directory.
    pub acl: Option<Acl>,
    /// Bytes of data that follow; `None` if the vnode never had any.
    pub length: Option<u64>,
}

/// A vnode in a dump.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DumpedVnode {
    /// Vnode number; odd for directories.
    pub vnode: u32,
    /// Uniquifier.
    pub unique: u32,
    /// Status; `None` in an incremental dump if the vnode is unchanged.
    pub attributes: Option<VnodeAttributes>,
}
