//! Conversions between messages and the database's types.

use afs_idl::pr::{CheckEntry, DebugEntry, field_mask};
use base::{AbortCode, UserId};
use ptdb::{Dump, Entry, Fields, Kind, Policy, ProtectionError};

/// Type bit of NewEntry and SetMax for a group (PRGRP).
const GROUP: i32 = 2;
/// Type bit of a foreign user (PRFOREIGN); here the `@` in the name marks those.
const FOREIGN: i32 = 16;
/// An invalid id (PRBADID).
const BAD_ID: i32 = i32::MIN;

/// Returns the type of entry that the flags of NewEntry request.
pub(crate) fn new_kind(flags: i32) -> Result<Kind, AbortCode> {
    match flags {
        flags if flags & FOREIGN != 0 => Err(AbortCode::PRPERM),
        flags if flags & GROUP != 0 => Ok(Kind::Group),
        0 => Ok(Kind::User),
        _ => Err(AbortCode::PRBADARG),
    }
}

/// Returns the type of entry that the flags of SetMax refer to.
pub(crate) fn max_kind(flags: i32) -> Kind {
    if flags & GROUP != 0 { Kind::Group } else { Kind::User }
}

/// Returns the type of entry that an id belongs to.
pub(crate) fn kind_of(id: UserId) -> Kind {
    if id.is_group() { Kind::Group } else { Kind::User }
}

/// Returns the optional user of GetCPS2.
pub(crate) fn optional_user(id: i32) -> Option<UserId> {
    (id != BAD_ID).then_some(UserId(id))
}

pub(crate) fn wire_ids(ids: Vec<UserId>) -> Vec<i32> {
    ids.into_iter().map(|id| id.0).collect()
}

/// Encodes a listing position for the wire, where 0 means none.
pub(crate) fn wire_position(position: Option<u32>) -> i32 {
    position.and_then(|position| i32::try_from(position).ok()?.checked_add(1)).unwrap_or(0)
}

/// Decodes a listing position from the wire.
pub(crate) fn position(wire: i32) -> Option<u32> {
    u32::try_from(wire.checked_sub(1)?).ok()
}

/// Converts the public part of an entry.
pub(crate) fn check_entry(policy: &Policy, entry: &Entry) -> CheckEntry {
    CheckEntry {
        flags: policy.shown_access(entry) as i32,
        id: entry.id.0,
        owner: entry.owner.0,
        creator: entry.creator.0,
        group_quota: entry.group_quota,
        user_quota: entry.user_quota,
        count: entry.count as i32,
        reserved: [0; 5],
        name: entry.name.as_slice().into(),
    }
}

/// Converts a raw record: the fields of OpenAFS's `prentryg`, with positions for chain links where available.
pub(crate) fn debug_entry(dump: &Dump) -> DebugEntry {
    let entry = &dump.entry;
    let mut elements = [0; 10];
    for (slot, id) in elements.iter_mut().zip(&dump.elements) {
        *slot = id.0;
    }
    let supergroup = |at: usize| dump.supergroups.get(at).map_or(0, |id| id.0);
    DebugEntry {
        flags: entry.flags.0 as i32,
        id: entry.id.0,
        cell_id: entry.cell.0,
        next: 0,
        reserved: [entry.created, entry.added, entry.removed, entry.changed, base::UnixTime(0)]
            .map(|time| time.0 as i32),
        entries: elements,
        next_id: 0,
        next_name: 0,
        owner: entry.owner.0,
        creator: entry.creator.0,
        group_quota: entry.group_quota,
        user_quota: entry.user_quota,
        count: entry.count as i32,
        instance: entry.supergroup_count as i32,
        owned: wire_position(dump.first_owned),
        next_owned: wire_position(dump.next_owned),
        parent: 0,
        sibling: supergroup(0),
        child: supergroup(1),
        name: entry.name.as_slice().into(),
    }
}

/// Converts the arguments of SetFieldsEntry.
pub(crate) fn fields(mask: i32, flags: i32, group_quota: i32, user_quota: i32) -> Fields {
    let access = mask & 0xffff;
    Fields {
        access: (access != 0).then_some((access as u32, flags as u32)),
        group_quota: (mask & field_mask::GROUP_QUOTA != 0).then_some(group_quota),
        user_quota: (mask & field_mask::USER_QUOTA != 0).then_some(user_quota),
    }
}

/// Returns an error's abort code. Errors of this server itself are logged.
pub(crate) fn abort_code(error: &ProtectionError) -> AbortCode {
    let code = error.abort_code();
    if matches!(error, ProtectionError::Store(_) | ProtectionError::Damaged(_)) {
        tracing::error!(%error, "protection database");
    }
    code
}
