//! What is known about a volume as a whole.

use super::{Image, Inode, NameiError};
use base::UnixTime;

const HEADER_MAGIC: u32 = 0x88a1_bb3c;
const INFO_MAGIC: u32 = 0x78a1_b2c5;

/// Bytes of a header file (VolumeDiskHeader).
pub const HEADER_BYTES: usize = 76;
/// Bytes of a volume's information (VolumeDiskData).
pub const INFO_BYTES: usize = 552;
/// What [`VolumeInfo::destroy_me`] is in a volume that was never finished.
pub const DESTROY_ME: u8 = 0xd3;
/// What [`VolumeInfo::needs_salvage`] is in a volume that an error was found in.
pub const NEEDS_SALVAGE: u8 = 1;

const NAME: &str = "a volume name of at most 31 bytes";
const MESSAGE: &str = "a message of at most 127 bytes";

/// A header file: which volume, and where its special files are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct VolumePlaces {
    /// The volume.
    pub id: u32,
    /// The read-write volume of its group, whose folder all files of the group are in.
    pub parent: u32,
    /// The volume's information.
    pub info: Inode,
    /// The index of files and links.
    pub small_index: Inode,
    /// The index of directories.
    pub large_index: Inode,
    /// How many volumes of the group use each file.
    pub link_table: Inode,
}

impl VolumePlaces {
    /// Reads a header file.
    ///
    /// # Errors
    /// Where it is not one.
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

/// A volume's information.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct VolumeInfo {
    /// The volume.
    pub id: u32,
    /// Its name.
    pub name: Vec<u8>,
    /// Not 0 while a server has it, and after one that did not put it away.
    pub in_use: u8,
    /// Whether it is in service.
    pub in_service: u8,
    /// Whether the administrator lets it go online.
    pub blessed: u8,
    /// [`NEEDS_SALVAGE`] once an error was found in it.
    pub needs_salvage: u8,
    /// The next uniquifier to give out.
    pub next_unique: u32,
    /// 0 read-write, 1 read-only, 2 backup.
    pub kind: u32,
    /// The read-write volume of its group.
    pub parent: u32,
    /// The latest read-only clone.
    pub clone: u32,
    /// The latest backup clone.
    pub backup: u32,
    /// The volume in the dump that it was restored from.
    pub restored_from: u32,
    /// [`DESTROY_ME`] while an operation that makes it is under way.
    pub destroy_me: u8,
    /// Most blocks of 1 KiB; 0 is no limit.
    pub quota_max_kib: u32,
    /// Fewest blocks that are kept for it.
    pub quota_min_kib: u32,
    /// Account number.
    pub account: u32,
    /// Owner of the root directory.
    pub owner: u32,
    /// Vnodes in use, as the server counted.
    pub file_count: u32,
    /// Blocks of 1 KiB in use, as the server counted.
    pub used_kib: u32,
    /// Accesses of the day that began at `day_use_date`.
    pub day_use: u32,
    /// Accesses of the seven days before, yesterday first.
    pub week_use: [u32; 7],
    /// When that day began.
    pub day_use_date: UnixTime,
    /// Counts changes.
    pub update_counter: u32,
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
    /// When this copy was made.
    pub copied: UnixTime,
    /// Why it is offline.
    pub offline_message: Vec<u8>,
}

impl VolumeInfo {
    /// Reads a volume's information.
    ///
    /// # Errors
    /// Where it is not what it should be.
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
