//! The header file and information file of a volume.

use super::{Image, Inode, NameiError};
use base::UnixTime;

const HEADER_MAGIC: u32 = 0x88a1_bb3c;
const INFO_MAGIC: u32 = 0x78a1_b2c5;

/// Size of a header file in bytes (VolumeDiskHeader).
pub const HEADER_BYTES: usize = 76;
/// Size of a volume's information file in bytes (VolumeDiskData).
pub const INFO_BYTES: usize = 552;
/// Value of [`VolumeInfo::destroy_me`] in a volume that was never completed.
pub const DESTROY_ME: u8 = 0xd3;
/// Value of [`VolumeInfo::needs_salvage`] in a volume in which an error was found.
pub const NEEDS_SALVAGE: u8 = 1;

const NAME: &str = "a volume name of at most 31 bytes";
const MESSAGE: &str = "a message of at most 127 bytes";

/// A header file: a volume's id, and the inodes of its special files.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct VolumePlaces {
    /// Volume id.
    pub id: u32,
    /// Id of the read-write volume of its group, whose folder contains all files of the group.
    pub parent: u32,
    /// Inode of the volume's information file.
    pub info: Inode,
    /// Inode of the index of files and links.
    pub small_index: Inode,
    /// Inode of the index of directories.
    pub large_index: Inode,
    /// Inode of the link table, which counts how many volumes of the group use each file.
    pub link_table: Inode,
}

impl VolumePlaces {
    /// Parses a header file.
    ///
    /// # Errors
    /// The bytes are not a header file.
    pub fn parse(bytes: &[u8]) -> Result<VolumePlaces, NameiError> {
        let image = Image(bytes);
        image.stamp(HEADER_MAGIC, "the mark of a volume's header file (88a1bb3c)")?;
        let places = VolumePlaces {
            id: image.word(8)?,
            parent: image.word(12)?,
            info: Inode(image.long(16, 36)?),
            small_index: Inode(image.long(20, 40)?),
            large_index: Inode(image.long(24, 44)?),
            link_table: Inode(image.long(56, 60)?),
        };
        let refused = |offset, expected| Err(NameiError { offset, expected });
        if places.id == 0 {
            return refused(8, "a volume number that is not 0");
        }
        if places.parent == 0 {
            return refused(12, "the number of the read-write volume");
        }
        let files = [(16, places.info), (20, places.small_index), (24, places.large_index)];
        match files.into_iter().find(|(_, inode)| !inode.is_special()) {
            Some((offset, _)) => refused(offset, "the number of a special file"),
            None => Ok(places),
        }
    }
}

/// The information file of a volume.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct VolumeInfo {
    /// Volume id.
    pub id: u32,
    /// Volume name.
    pub name: Vec<u8>,
    /// Not 0 while a server has the volume attached, and after one that did not detach it cleanly.
    pub in_use: u8,
    /// Whether the volume is in service.
    pub in_service: u8,
    /// Whether the administrator permits the volume to be online.
    pub blessed: u8,
    /// [`NEEDS_SALVAGE`] if an error was found in the volume.
    pub needs_salvage: u8,
    /// Next uniquifier to allocate.
    pub next_unique: u32,
    /// Volume type: 0 read-write, 1 read-only, 2 backup.
    pub kind: u32,
    /// Id of the read-write volume of its group.
    pub parent: u32,
    /// Id of the latest read-only clone.
    pub clone: u32,
    /// Id of the latest backup clone.
    pub backup: u32,
    /// Id of the dumped volume that this one was restored from.
    pub restored_from: u32,
    /// [`DESTROY_ME`] while the operation that creates the volume is in progress.
    pub destroy_me: u8,
    /// Quota in blocks of 1 KiB; 0 for no limit.
    pub quota_max_kib: u32,
    /// Reserved blocks of 1 KiB.
    pub quota_min_kib: u32,
    /// Account number.
    pub account: u32,
    /// Owner of the root directory.
    pub owner: u32,
    /// Number of vnodes in use, as counted by the server.
    pub file_count: u32,
    /// Blocks of 1 KiB in use, as counted by the server.
    pub used_kib: u32,
    /// Accesses on the day that started at `day_use_date`.
    pub day_use: u32,
    /// Accesses on each of the previous seven days, yesterday first.
    pub week_use: [u32; 7],
    /// Start of the day that `day_use` counts.
    pub day_use_date: UnixTime,
    /// Counts changes.
    pub update_counter: u32,
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
    /// Time at which this copy was created.
    pub copied: UnixTime,
    /// Reason for being offline.
    pub offline_message: Vec<u8>,
}

impl VolumeInfo {
    /// Parses a volume's information file.
    ///
    /// # Errors
    /// The bytes are not valid information.
    pub fn parse(bytes: &[u8]) -> Result<VolumeInfo, NameiError> {
        let image = Image(bytes);
        image.stamp(INFO_MAGIC, "the mark of a volume's information (78a1b2c5)")?;
        if bytes.len() < INFO_BYTES {
            return Err(NameiError { offset: bytes.len(), expected: "552 bytes" });
        }
        let mut info = VolumeInfo {
            id: image.word(8)?,
            name: image.text::<32>(12, NAME)?,
            in_use: image.byte(44)?,
            in_service: image.byte(45)?,
            blessed: image.byte(46)?,
            needs_salvage: image.byte(47)?,
            next_unique: image.word(48)?,
            kind: image.word(52)?,
            parent: image.word(56)?,
            clone: image.word(60)?,
            backup: image.word(64)?,
            restored_from: image.word(68)?,
            destroy_me: image.byte(73)?,
            quota_max_kib: image.word(100)?,
            quota_min_kib: image.word(104)?,
            account: image.word(112)?,
            owner: image.word(116)?,
            ..VolumeInfo::default()
        };
        info.read_use(image)?;
        Ok(info)
    }

    fn read_use(&mut self, image: Image<'_>) -> Result<(), NameiError> {
        let time = |offset| image.word(offset).map(UnixTime);
        self.file_count = image.word(152)?;
        self.used_kib = image.word(156)?;
        self.day_use = image.word(160)?;
        for (day, count) in self.week_use.iter_mut().enumerate() {
            *count = image.word(164 + 4 * day)?;
        }
        self.day_use_date = time(192)?;
        self.update_counter = image.word(196)?;
        self.created = time(240)?;
        self.accessed = time(244)?;
        self.updated = time(248)?;
        self.expires = time(252)?;
        self.backed_up = time(256)?;
        self.copied = time(260)?;
        self.offline_message = image.text::<128>(296, MESSAGE)?;
        Ok(())
    }
}
