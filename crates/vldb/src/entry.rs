//! What is known of one volume: its names, numbers and sites.

use crate::error::LocationError;
use base::{UnixTime, VolumeId, VolumeName, VolumeType};

/// Flags of an entry (VLF_*, VLOP_* of vldbint.xg).
pub mod entry_flags {
    /// There is a read-write volume.
    pub const RW_EXISTS: u32 = 0x1000;
    /// There is at least one read-only volume.
    pub const RO_EXISTS: u32 = 0x2000;
    /// There is a backup volume.
    pub const BACKUP_EXISTS: u32 = 0x4000;
    /// Locked for moving.
    pub const MOVE: u32 = 0x10;
    /// Locked for releasing.
    pub const RELEASE: u32 = 0x20;
    /// Locked for making a backup volume.
    pub const BACKUP: u32 = 0x40;
    /// Locked for deleting, or for adding a site.
    pub const DELETE: u32 = 0x80;
    /// Locked for dumping or restoring.
    pub const DUMP: u32 = 0x100;
    /// Everything an entry is locked for.
    pub const OPERATIONS: u32 = MOVE | RELEASE | BACKUP | DELETE | DUMP;
}

/// Flags of a site (VLSF_*).
pub mod site_flags {
    /// The site has the newest release while others do not.
    pub const NEW_RELEASE: u8 = 0x01;
    /// The site has, or will have, a read-only volume.
    pub const READ_ONLY: u8 = 0x02;
    /// The site has the read-write volume, and the backup volume if there is one.
    pub const READ_WRITE: u8 = 0x04;
    /// Reported in a match: the backup volume.
    pub const BACKUP: u8 = 0x08;
    /// The site is told by a server's UUID; on the wire only.
    pub const UUID: u8 = 0x10;
    /// The site does not have a released volume yet.
    pub const DONT_USE: u8 = 0x20;
    /// Largest value of a site's flags (MAXSERVERFLAG).
    pub const MAX: u8 = 0x80;
}

/// Which bits of a lock to clear (LOCKREL_*).
pub mod release {
    /// The lock itself.
    pub const TIMESTAMP: i32 = 1;
    /// What the entry is locked for.
    pub const OPERATION: i32 = 2;
    /// Who locked it.
    pub const OWNER: i32 = 4;
}

/// A server's place in the table of servers; entries name servers by it, so that a change of
/// addresses changes no entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ServerNumber(pub u8);

/// The number of an entry in listing order; from 1, never used again.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct EntryNumber(pub u32);

/// A place where a volume is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Site {
    /// On which server.
    pub server: ServerNumber,
    /// On which partition (0 = /vicepa).
    pub partition: u8,
    /// [`site_flags`].
    pub flags: u8,
}

/// What is known of one volume.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Location {
    /// The read-write volume's name, without suffix.
    pub name: VolumeName,
    /// Ids of the read-write, read-only and backup volumes; 0 where there is none.
    pub ids: [VolumeId; 3],
    /// The release clone, while there is one.
    pub clone: VolumeId,
    /// [`entry_flags`].
    pub flags: u32,
    /// When it was locked; 0 if it is not.
    pub locked: UnixTime,
    /// Where it is, at most [`base::limits::VOLUME_SITES_MAX`].
    pub sites: Vec<Site>,
}

impl Location {
    /// The id of the volume of this type; 0 if there is none.
    pub fn id(&self, kind: VolumeType) -> VolumeId {
        self.ids[kind as usize]
    }

    /// The ids of its volumes, each once.
    pub(crate) fn volumes(&self) -> impl Iterator<Item = VolumeId> {
        let ids = self.ids;
        (0..ids.len())
            .filter(move |&at| ids[at].0 != 0 && !ids[..at].contains(&ids[at]))
            .map(move |at| ids[at])
    }

    /// An id that would stand for two volumes. That of the read-write volume may be the read-only one's, too, if not both of
    /// them are there: `vos restore -readonly` and `vos copy -readonly` enter so a volume that is read-only only.
    pub(crate) fn shared_id(&self) -> Option<VolumeId> {
        let [read_write, read_only, backup] = self.ids;
        let both = entry_flags::RW_EXISTS | entry_flags::RO_EXISTS;
        let is_one = self.flags & both != both;
        if backup.0 != 0 && (backup == read_write || backup == read_only) {
            return Some(backup);
        }
        Some(read_only).filter(|id| id.0 != 0 && *id == read_write && !is_one)
    }

    /// Undoes what `how` ([`release`]) names.
    pub(crate) fn unlock(&mut self, how: i32) {
        if how & release::TIMESTAMP != 0 {
            self.locked = UnixTime(0);
        }
        if how & release::OPERATION != 0 {
            self.flags &= !entry_flags::OPERATIONS;
        }
    }
}

/// Checks a wish to release a lock; 0 wishes for nothing.
pub(crate) fn check_release(how: i32) -> Result<(), LocationError> {
    let known = release::TIMESTAMP | release::OPERATION | release::OWNER;
    if how == 0 || how & known != 0 { Ok(()) } else { Err(LocationError::BadRelease(how)) }
}

/// The type of a wire number; `None` stands for any type (-1).
pub fn volume_type(wire: i32) -> Result<Option<VolumeType>, LocationError> {
    if wire == -1 {
        return Ok(None);
    }
    let kind = u32::try_from(wire).ok().and_then(VolumeType::from_wire);
    kind.map(Some).ok_or(LocationError::BadVolumeType(wire))
}

/// A volume as a caller names it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum VolumeQuery {
    /// By number.
    Id(VolumeId),
    /// By the read-write volume's name.
    Name(VolumeName),
}

const SUFFIXES: [&str; 2] = [".backup", ".readonly"];

/// The name without `.readonly` or `.backup`, if something is left then.
pub fn without_suffix(name: &str) -> &str {
    let stem = SUFFIXES.iter().find_map(|suffix| name.strip_suffix(suffix));
    stem.filter(|stem| !stem.is_empty()).unwrap_or(name)
}

impl VolumeQuery {
    /// Digits are a number; other names may end in `.readonly` or `.backup`, which is ignored.
    pub fn parse(name: &[u8]) -> Result<VolumeQuery, LocationError> {
        let bad = || LocationError::BadName(String::from_utf8_lossy(name).into_owned());
        let text = std::str::from_utf8(name).map_err(|_| bad())?;
        if text.bytes().all(|byte| byte.is_ascii_digit()) {
            return text.parse().map(|id| VolumeQuery::Id(VolumeId(id))).map_err(|_| LocationError::NoEntry);
        }
        without_suffix(text).parse().map(VolumeQuery::Name).map_err(|_| bad())
    }
}

/// A name for a new or renamed volume. One with a suffix could never be looked up.
pub fn new_name(name: &[u8]) -> Result<VolumeName, LocationError> {
    let bad = || LocationError::BadName(String::from_utf8_lossy(name).into_owned());
    let text = std::str::from_utf8(name).map_err(|_| bad())?;
    if SUFFIXES.iter().any(|suffix| text.ends_with(suffix)) {
        return Err(bad());
    }
    text.parse().map_err(|_| bad())
}
