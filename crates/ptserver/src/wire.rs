//! Between messages and the database's types.

use afs_idl::pr::{CheckEntry, DebugEntry, field_mask};
use base::{AbortCode, UserId};
use ptdb::{Dump, Entry, Fields, Kind, Policy, ProtectionError};

/// Type bits of NewEntry and SetMax that ask for a group (PRGRP).
const GROUP: i32 = 2;
/// Type bit of a foreign user (PRFOREIGN); those are told by the `@` in the name instead.
const FOREIGN: i32 = 16;
/// An id that is none (PRBADID).
const BAD_ID: i32 = i32::MIN;

/// The kind that the flags of NewEntry ask for.
pub(crate) fn new_kind(flags: i32) -> Result<Kind, AbortCode> {
    match flags {
        flags if flags & FOREIGN != 0 => Err(AbortCode::PRPERM),
        flags if flags & GROUP != 0 => Ok(Kind::Group),
        0 => Ok(Kind::User),
        _ => Err(AbortCode::PRBADARG),
    }
}

/// The kind that the flags of SetMax mean.
pub(crate) fn max_kind(flags: i32) -> Kind {
    if flags & GROUP != 0 { Kind::Group } else { Kind::User }
}

/// The kind that goes with an id.
pub(crate) fn kind_of(id: UserId) -> Kind {
    if id.is_group() { Kind::Group } else { Kind::User }
}

/// The user of GetCPS2, who may be left out.
pub(crate) fn optional_user(id: i32) -> Option<UserId> {
    (id != BAD_ID).then_some(UserId(id))
}

pub(crate) fn wire_ids(ids: Vec<UserId>) -> Vec<i32> {
    ids.into_iter().map(|id| id.0).collect()
}

/// A listing position that is 0 for "none" on the wire.
pub(crate) fn wire_position(position: Option<u32>) -> i32 {
    position.and_then(|position| i32::try_from(position).ok()?.checked_add(1)).unwrap_or(0)
}

/// The listing position behind a number on the wire.
pub(crate) fn position(wire: i32) -> Option<u32> {
    u32::try_from(wire.checked_sub(1)?).ok()
}

/// What everybody sees of an entry.
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

/// A raw record: the fields of OpenAFS's `prentryg`, chains as positions where we know them.
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

/// What SetFieldsEntry sets.
pub(crate) fn fields(mask: i32, flags: i32, group_quota: i32, user_quota: i32) -> Fields {
    let access = mask & 0xffff;
    Fields {
        access: (access != 0).then_some((access as u32, flags as u32)),
        group_quota: (mask & field_mask::GROUP_QUOTA != 0).then_some(group_quota),
        user_quota: (mask & field_mask::USER_QUOTA != 0).then_some(user_quota),
    }
}

/// The wire code of an error; those that are nobody's fault but ours are noted.
pub(crate) fn abort_code(error: &ProtectionError) -> AbortCode {
    let code = error.abort_code();
    if matches!(error, ProtectionError::Store(_) | ProtectionError::Damaged(_)) {
        tracing::error!(%error, "protection database");
    }
    code
}
