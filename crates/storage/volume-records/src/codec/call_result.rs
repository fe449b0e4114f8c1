//! Records of results of changes.

use super::{Fields, Record};
use crate::{CallResult, FileKind, RecordedCall, VnodeStatus};
use base::{UserId, VnodeId};

const CREATED: u8 = 1;
const REMOVED: u8 = 2;
const RENAMED: u8 = 3;
const STORED: u8 = 4;
const LOCKED: u8 = 5;

/// Size of the largest record.
const BYTES_MAX: usize = 256;

impl Record {
    fn status(self, s: &VnodeStatus) -> Record {
        self.u32(s.vnode.0)
            .u32(s.unique)
            .u8(s.kind as u8)
            .u16(s.mode)
            .i32(s.owner.0)
            .i32(s.group)
            .u32(s.links)
            .u64(s.length)
            .u64(s.data_version)
            .u32(s.client_modified.0)
            .u32(s.server_modified.0)
            .i32(s.author.0)
            .u32(s.parent.0)
            .u32(s.parent_unique)
    }
}

impl Fields<'_> {
    fn status(&mut self) -> Option<VnodeStatus> {
        Some(VnodeStatus {
            vnode: VnodeId(self.u32()?),
            unique: self.u32()?,
            kind: FileKind::from_wire(self.u8()?)?,
            mode: self.u16()?,
            owner: UserId(self.i32()?),
            group: self.i32()?,
            links: self.u32()?,
            length: self.u64()?,
            data_version: self.u64()?,
            client_modified: self.time()?,
            server_modified: self.time()?,
            author: UserId(self.i32()?),
            parent: VnodeId(self.u32()?),
            parent_unique: self.u32()?,
        })
    }

    /// Parses a byte that is 0 or 1.
    fn flag(&mut self) -> Option<bool> {
        match self.u8()? {
            0 => Some(false),
            1 => Some(true),
            _ => None,
        }
    }
}

/// Encodes the record of a change; the call is in its key.
pub fn put_recorded_call(recorded: &RecordedCall) -> Vec<u8> {
    let record = Record::with_room(BYTES_MAX).u32(recorded.volume.0).i32(recorded.user.0);
    let record = match &recorded.result {
        CallResult::Created { status, directory } => record.u8(CREATED).status(status).status(directory),
        CallResult::Removed { target, directory } => record.u8(REMOVED).status(target).status(directory),
        CallResult::Renamed { moved, moved_changed, old_directory, new_directory, replaced } => {
            let record = record.u8(RENAMED).u8((*moved_changed).into()).u8(replaced.is_some().into());
            let record = record.status(moved).status(old_directory).status(new_directory);
            replaced.iter().fold(record, Record::status)
        }
        CallResult::Stored(status) => record.u8(STORED).status(status),
        CallResult::Locked => record.u8(LOCKED),
    };
    record.0
}

/// Decodes the record of a change.
pub fn get_recorded_call(value: &[u8]) -> Option<RecordedCall> {
    let mut f = Fields::open(value)?;
    let (volume, user) = (f.volume()?, UserId(f.i32()?));
    let result = match f.u8()? {
        CREATED => CallResult::Created { status: f.status()?, directory: f.status()? },
        REMOVED => CallResult::Removed { target: f.status()?, directory: f.status()? },
        RENAMED => {
            let (moved_changed, has_replaced) = (f.flag()?, f.flag()?);
            CallResult::Renamed {
                moved_changed,
                moved: f.status()?,
                old_directory: f.status()?,
                new_directory: f.status()?,
                replaced: if has_replaced { Some(f.status()?) } else { None },
            }
        }
        STORED => CallResult::Stored(f.status()?),
        LOCKED => CallResult::Locked,
        _ => return None,
    };
    f.0.is_empty().then_some(RecordedCall { volume, user, result })
}

/// Encodes the number up to which the results of a process were deleted.
pub fn put_deleted_results(number: u64) -> Vec<u8> {
    Record::new().u64(number).0
}

/// Decodes the number up to which the results of a process were deleted.
pub fn get_deleted_results(value: &[u8]) -> Option<u64> {
    let mut f = Fields::open(value)?;
    let number = f.u64()?;
    f.0.is_empty().then_some(number)
}
