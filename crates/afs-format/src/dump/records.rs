//! What stands in a dump.

use crate::acl::Acl;
use base::UnixTime;

/// What a dump says about itself.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DumpHeader {
    /// The volume that was dumped.
    pub volume: u32,
    /// Its name.
    pub name: Vec<u8>,
    /// Spans of time whose changes are in the dump, as from and to; a full dump begins at 0.
    pub dates: Vec<(UnixTime, UnixTime)>,
}

/// The header of the dumped volume (VolumeDiskData of OpenAFS). What was not in the dump is 0.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DumpVolume {
    /// The volume.
    pub id: u32,
    /// Version of the header's layout on OpenAFS's disks: 1.
    pub version: u32,
    /// Its name.
    pub name: Vec<u8>,
    /// Whether it is in service.
    pub in_service: u8,
    /// Whether the administrator lets it go online.
    pub blessed: u8,
    /// The next uniquifier to give out.
    pub next_unique: u32,
    /// 0 read-write, 1 read-only, 2 backup.
    pub kind: u8,
    /// The read-write volume of its family.
    pub parent: u32,
    /// The latest read-only clone.
    pub clone: u32,
    /// Most blocks of 1 KiB; 0 is no limit.
    pub quota_max_kib: u32,
    /// Fewest blocks that are kept for it.
    pub quota_min_kib: u32,
    /// Blocks of 1 KiB in use.
    pub used_kib: u32,
    /// Vnodes in use.
    pub file_count: u32,
    /// Account number.
    pub account: u32,
    /// Owner of the root directory.
    pub owner: u32,
    /// When it was made or, of a clone, cloned.
    pub created: UnixTime,
    /// Last access.
    pub accessed: UnixTime,
    /// Last change.
    pub updated: UnixTime,
    /// When it expires; 0 never.
    pub expires: UnixTime,
    /// When a backup clone was made.
    pub backed_up: UnixTime,
    /// Why it is offline.
    pub offline_message: Vec<u8>,
    /// Message of the day; OpenAFS always writes an empty one.
    pub message_of_the_day: Vec<u8>,
    /// Accesses of the seven days before, yesterday first.
    pub week_use: [u32; 7],
    /// When the day began that `day_use` counts.
    pub day_use_date: UnixTime,
    /// Accesses of that day.
    pub day_use: u32,
}

/// Status of a vnode.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct VnodeAttributes {
    /// 1 file, 2 directory, 3 symbolic link.
    pub kind: u8,
    /// Names that lead to it.
    pub links: u16,
    /// Counts the changes of its data.
    pub data_version: u32,
    /// When its data changed, as clients say.
    pub client_modified: UnixTime,
    /// Who changed it last.
    pub author: u32,
    /// Owner.
    pub owner: u32,
    /// Unix group; not in the dump if 0.
    pub group: u32,
    /// Unix mode bits.
    pub mode: u16,
    /// Number of the directory that it lies in; 0 for the root directory.
    pub parent: u32,
    /// When anything changed, by the server's clock.
    pub server_modified: UnixTime,
    /// A directory's access list.
    pub acl: Option<Acl>,
    /// Bytes of data that follow; none if the vnode never had any.
    pub length: Option<u64>,
}

/// One vnode.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DumpedVnode {
    /// Its number: odd ones are directories.
    pub vnode: u32,
    /// Its uniquifier.
    pub unique: u32,
    /// Its status; none in an incremental dump if the vnode is as it was.
    pub attributes: Option<VnodeAttributes>,
}
