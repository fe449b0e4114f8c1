//! Identifiers of volumes, vnodes, users, hosts and partitions.

use std::fmt;
use std::str::FromStr;

/// A volume's number, unique in its cell; 0 never names a volume.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct VolumeId(pub u32);

/// A vnode's number within its volume: odd for directories, even for files and symbolic links.
/// 1 is the root directory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct VnodeId(pub u32);

impl VnodeId {
    /// The root directory of every volume.
    pub const ROOT: VnodeId = VnodeId(1);

    /// Whether the number belongs to the directory ("large vnode") class.
    pub fn is_directory(self) -> bool {
        self.0 & 1 == 1
    }
}

/// A file identifier: volume, vnode, and the uniquifier that distinguishes successive uses of a vnode number
/// (AFSFid in the file service's interface).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Fid {
    /// Volume.
    pub volume: VolumeId,
    /// Vnode within the volume.
    pub vnode: VnodeId,
    /// Uniquifier; 1 for a root directory.
    pub unique: u32,
}

impl Fid {
    /// Returns the root directory of `volume`.
    pub fn root(volume: VolumeId) -> Fid {
        Fid { volume, vnode: VnodeId::ROOT, unique: 1 }
    }
}

impl fmt::Display for Fid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}.{}", self.volume.0, self.vnode.0, self.unique)
    }
}

impl fmt::Display for VolumeId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// Number of a user (positive) or a group (negative) in the protection database ("ViceId").
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct UserId(pub i32);

impl UserId {
    /// The group `system:administrators`.
    pub const ADMINISTRATORS: UserId = UserId(-204);
    /// The group `system:backup`.
    pub const BACKUP: UserId = UserId(-205);
    /// The group `system:anyuser`, which contains every caller.
    pub const ANYUSER: UserId = UserId(-101);
    /// The group `system:authuser`, which contains every caller with a valid token of this cell.
    pub const AUTHUSER: UserId = UserId(-102);
    /// The group `system:ptsviewers`.
    pub const PTSVIEWERS: UserId = UserId(-203);
    /// The user `anonymous`.
    pub const ANONYMOUS: UserId = UserId(32766);

    /// Whether the number names a group.
    pub fn is_group(self) -> bool {
        self.0 < 0
    }
}

/// Type of a volume, with the wire numbers (RWVOL, ROVOL, BACKVOL).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum VolumeType {
    /// The only writable copy.
    ReadWrite = 0,
    /// A released replica.
    ReadOnly = 1,
    /// A backup clone.
    Backup = 2,
}

impl VolumeType {
    /// Returns the type with this wire number.
    pub fn from_wire(value: u32) -> Option<VolumeType> {
        match value {
            0 => Some(VolumeType::ReadWrite),
            1 => Some(VolumeType::ReadOnly),
            2 => Some(VolumeType::Backup),
            _ => None,
        }
    }
}

/// A server partition, `/vicepa` = 0 to `/vicepiv` = 255.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PartitionId(u8);

impl PartitionId {
    /// Returns the partition with this number; `None` above 255.
    pub fn from_index(index: u32) -> Option<PartitionId> {
        u8::try_from(index).ok().map(PartitionId)
    }

    /// Returns the number: 0 for `/vicepa`.
    pub fn index(self) -> u32 {
        u32::from(self.0)
    }

    /// Returns the letters after `vicep`: `a` to `z`, then `aa` to `iv`.
    pub fn letters(self) -> String {
        let letter = |n: u8| char::from(b'a' + n);
        if self.0 < 26 {
            letter(self.0).to_string()
        } else {
            let rest = self.0 - 26;
            [letter(rest / 26), letter(rest % 26)].iter().collect()
        }
    }
}

impl fmt::Display for PartitionId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "/vicep{}", self.letters())
    }
}

impl FromStr for PartitionId {
    type Err = String;

    /// Parses `a`, `vicepa` or `/vicepa`.
    fn from_str(text: &str) -> Result<PartitionId, String> {
        let letters = text.strip_prefix('/').unwrap_or(text);
        let letters = letters.strip_prefix("vicep").unwrap_or(letters);
        let digit = |c: u8| c.is_ascii_lowercase().then(|| u32::from(c - b'a'));
        let index = match *letters.as_bytes() {
            [c] => digit(c),
            [high, low] => digit(high).zip(digit(low)).map(|(h, l)| 26 + h * 26 + l),
            _ => None,
        };
        index
            .and_then(PartitionId::from_index)
            .ok_or_else(|| format!("`{text}` is not a partition; valid are /vicepa to /vicepiv"))
    }
}

/// The UUID that identifies a server or a client host regardless of its addresses (afsUUID).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct HostUuid(pub [u8; 16]);

impl fmt::Display for HostUuid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let b = &self.0;
        for (i, byte) in b.iter().enumerate() {
            if matches!(i, 4 | 6 | 8 | 10) {
                f.write_str("-")?;
            }
            write!(f, "{byte:02x}")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn partitions_have_the_names_that_openafs_gives_them() {
        for (index, name) in [(0, "/vicepa"), (25, "/vicepz"), (26, "/vicepaa"), (255, "/vicepiv")] {
            let partition = PartitionId::from_index(index).unwrap();
            assert_eq!(partition.to_string(), name);
            assert_eq!(name.parse(), Ok(partition));
        }
        assert!("/vicepiw".parse::<PartitionId>().is_err());
        assert!("vicepA".parse::<PartitionId>().is_err());
        assert!("".parse::<PartitionId>().is_err());
    }
}
