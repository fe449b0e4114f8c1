//! A volume's entry: its names, ids and sites.

use crate::error::LocationError;
use base::{UnixTime, VolumeId, VolumeName, VolumeType};

/// Flags of an entry (VLF_*, VLOP_* of vldbint.xg).
pub mod entry_flags {
    /// The read-write volume exists.
    pub const RW_EXISTS: u32 = 0x1000;
    /// At least one read-only volume exists.
    pub const RO_EXISTS: u32 = 0x2000;
    /// The backup volume exists.
    pub const BACKUP_EXISTS: u32 = 0x4000;
    /// Locked for a move.
    pub const MOVE: u32 = 0x10;
    /// Locked for a release.
    pub const RELEASE: u32 = 0x20;
    /// Locked while a backup volume is made.
    pub const BACKUP: u32 = 0x40;
    /// Locked while a volume is deleted or a site added.
    pub const DELETE: u32 = 0x80;
    /// Locked for a dump or restore.
    pub const DUMP: u32 = 0x100;
    /// All operations that an entry can be locked for.
    pub const OPERATIONS: u32 = MOVE | RELEASE | BACKUP | DELETE | DUMP;
}

/// Flags of a site (VLSF_*).
pub mod site_flags {
    /// The site has the newest release, and other sites do not.
    pub const NEW_RELEASE: u8 = 0x01;
    /// The site has, or will have, a read-only volume.
    pub const READ_ONLY: u8 = 0x02;
    /// The site has the read-write volume, and the backup volume if one exists.
    pub const READ_WRITE: u8 = 0x04;
    /// Result of a match: the backup volume matched.
    pub const BACKUP: u8 = 0x08;
    /// The site is identified by the server's UUID; used only on the wire.
    pub const UUID: u8 = 0x10;
    /// The site has no released volume yet.
    pub const DONT_USE: u8 = 0x20;
    /// Largest value of a site's flags (MAXSERVERFLAG).
    pub const MAX: u8 = 0x80;
}

/// Parts of a lock to clear (LOCKREL_*).
pub mod release {
    /// The time of the lock, which means that the entry is locked.
    pub const TIMESTAMP: i32 = 1;
    /// The operation that the entry is locked for.
    pub const OPERATION: i32 = 2;
    /// The owner of the lock; not stored.
    pub const OWNER: i32 = 4;
}

/// A server's index in the table of servers. Entries refer to servers by it, so that a change of addresses
/// changes no entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ServerNumber(pub u8);

/// The number of an entry in listing order, starting at 1; never reused.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct EntryNumber(pub u32);

/// A server and partition where a volume is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Site {
    /// Number of the server.
    pub server: ServerNumber,
    /// Number of the partition (0 = /vicepa).
    pub partition: u8,
    /// Combination of [`site_flags`].
    pub flags: u8,
}

/// The entry of one volume.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Location {
    /// The read-write volume's name, without suffix.
    pub name: VolumeName,
    /// Ids of the read-write, read-only and backup volumes; 0 for none.
    pub ids: [VolumeId; 3],
    /// Id of the release clone; 0 for none.
    pub clone: VolumeId,
    /// Combination of [`entry_flags`].
    pub flags: u32,
    /// Time at which the entry was locked; 0 if it is not locked.
    pub locked: UnixTime,
    /// Sites, at most [`base::limits::VOLUME_SITES_MAX`].
    pub sites: Vec<Site>,
}

impl Location {
    /// Returns the id of the volume of this type; 0 if there is none.
    pub fn id(&self, kind: VolumeType) -> VolumeId {
        self.ids[kind as usize]
    }

    /// Returns the ids of the entry's volumes, each once.
    pub(crate) fn volumes(&self) -> impl Iterator<Item = VolumeId> {
        let ids = self.ids;
        (0..ids.len())
            .filter(move |&at| ids[at].0 != 0 && !ids[..at].contains(&ids[at]))
            .map(move |at| ids[at])
    }

    /// Returns an id that two volumes would share. The read-write and the read-only id may be equal unless
    /// both volumes exist: `vos restore -readonly` and `vos copy -readonly` create such an entry for a volume
    /// without a read-write site.
    pub(crate) fn shared_id(&self) -> Option<VolumeId> {
        let [read_write, read_only, backup] = self.ids;
        let both = entry_flags::RW_EXISTS | entry_flags::RO_EXISTS;
        let is_one = self.flags & both != both;
        if backup.0 != 0 && (backup == read_write || backup == read_only) {
            return Some(backup);
        }
        Some(read_only).filter(|id| id.0 != 0 && *id == read_write && !is_one)
    }

    /// Clears the parts of the lock given by `how`, see [`release`].
    pub(crate) fn unlock(&mut self, how: i32) {
        if how & release::TIMESTAMP != 0 {
            self.locked = UnixTime(0);
        }
        if how & release::OPERATION != 0 {
            self.flags &= !entry_flags::OPERATIONS;
        }
    }
}

/// Checks a request to clear parts of a lock; 0 clears nothing.
pub(crate) fn check_release(how: i32) -> Result<(), LocationError> {
    let known = release::TIMESTAMP | release::OPERATION | release::OWNER;
    if how == 0 || how & known != 0 { Ok(()) } else { Err(LocationError::BadRelease(how)) }
}

/// Returns the volume type with this wire number; `None` for any type (-1).
pub fn volume_type(wire: i32) -> Result<Option<VolumeType>, LocationError> {
    if wire == -1 {
        return Ok(None);
    }
    let kind = u32::try_from(wire).ok().and_then(VolumeType::from_wire);
    kind.map(Some).ok_or(LocationError::BadVolumeType(wire))
}

/// A volume as identified by a caller.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum VolumeQuery {
    /// Volume id.
    Id(VolumeId),
    /// Name of the read-write volume.
    Name(VolumeName),
}

const SUFFIXES: [&str; 2] = [".backup", ".readonly"];

/// Returns the name without `.readonly` or `.backup`, unless nothing would remain.
pub fn without_suffix(name: &str) -> &str {
    let stem = SUFFIXES.iter().find_map(|suffix| name.strip_suffix(suffix));
    stem.filter(|stem| !stem.is_empty()).unwrap_or(name)
}

impl VolumeQuery {
    /// Parses an id (only digits) or a name; a suffix `.readonly` or `.backup` is ignored.
    pub fn parse(name: &[u8]) -> Result<VolumeQuery, LocationError> {
        let bad = || LocationError::BadName(base::text::escape(name));
        let text = std::str::from_utf8(name).map_err(|_| bad())?;
        if text.bytes().all(|byte| byte.is_ascii_digit()) {
            return text.parse().map(|id| VolumeQuery::Id(VolumeId(id))).map_err(|_| LocationError::NoEntry);
        }
        without_suffix(text).parse().map(VolumeQuery::Name).map_err(|_| bad())
    }
}

/// Parses the name of a new or renamed volume. Rejects names with a suffix, which a query could never find.
pub fn new_name(name: &[u8]) -> Result<VolumeName, LocationError> {
    let bad = || LocationError::BadName(base::text::escape(name));
    let text = std::str::from_utf8(name).map_err(|_| bad())?;
    if SUFFIXES.iter().any(|suffix| text.ends_with(suffix)) {
        return Err(bad());
    }
    text.parse().map_err(|_| bad())
}
