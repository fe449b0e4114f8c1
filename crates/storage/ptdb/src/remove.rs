//! Deletion of entries.

use crate::entry::{Entry, EntryFlags};
use crate::error::ProtectionError;
use crate::tables::{List, Tables, opposite};
use base::{UnixTime, UserId};

/// Removes the entry from all lists, makes the groups that it owns orphans, and refunds its quota.
pub(crate) fn remove(
    tables: &mut Tables<'_>,
    entry: &Entry,
    depth: u32,
    now: UnixTime,
) -> Result<(), ProtectionError> {
    if entry.is_foreign() {
        if entry.is_group() && entry.count > 0 {
            return Err(ProtectionError::BadArgument("the foreign cell's group still has users"));
        }
        refund_cell(tables, entry)?;
    }
    leave_lists(tables, entry.id, now)?;
    orphan_owned(tables, entry.id)?;
    let entry = tables.need(entry.id)?;
    tables.remove(&entry)?;
    if entry.is_group() { refund_creator(tables, entry.creator, depth) } else { Ok(()) }
}

fn leave_lists(tables: &mut Tables<'_>, id: UserId, now: UnixTime) -> Result<(), ProtectionError> {
    for list in [List::Elements, List::Supergroups] {
        for element in tables.elements(list, id, usize::MAX)? {
            tables.take(opposite(list, id, element), element, id, now)?;
            tables.take(list, id, element, now)?;
        }
    }
    Ok(())
}

fn orphan_owned(tables: &mut Tables<'_>, owner: UserId) -> Result<(), ProtectionError> {
    for group in tables.owned(owner, None, usize::MAX)? {
        if group != owner {
            let old = tables.need(group)?;
            tables.update(&old, &Entry { owner: UserId(0), ..old.clone() });
        }
    }
    Ok(())
}

/// Increments the quota of the cell's group after the deletion of a foreign user.
fn refund_cell(tables: &mut Tables<'_>, entry: &Entry) -> Result<(), ProtectionError> {
    match tables.entry(entry.cell)? {
        Some(group) if group.flags.has(EntryFlags::QUOTA_SET) => {
            tables
                .update(&group, &Entry { group_quota: group.group_quota.saturating_add(1), ..group.clone() });
        }
        _ => {}
    }
    Ok(())
}

/// Increments the creator's quota after the deletion of a group. Administrators are never charged, so their
/// quota does not rise above the default.
fn refund_creator(tables: &mut Tables<'_>, creator: UserId, depth: u32) -> Result<(), ProtectionError> {
    let Some(old) = tables.entry(creator)? else {
        return Ok(());
    };
    if !old.flags.has(EntryFlags::QUOTA_SET) {
        return Ok(());
    }
    let admin = tables.is_member(creator, UserId::ADMINISTRATORS, depth)?;
    if !(admin && old.group_quota >= Entry::DEFAULT_QUOTA) {
        tables.update(&old, &Entry { group_quota: old.group_quota.saturating_add(1), ..old.clone() });
    }
    Ok(())
}
