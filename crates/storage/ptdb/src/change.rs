//! Changes to an entry's id, owner or name.

use crate::entry::Entry;
use crate::error::{ProtectionError, shown};
use crate::naming;
use crate::tables::{List, Tables};
use base::{UnixTime, UserId};

/// Changes to an entry (PR_ChangeEntry). Empty and 0 leave a field unchanged.
#[derive(Clone, Debug, Default)]
pub struct Change {
    /// New name.
    pub name: Vec<u8>,
    /// New owner; only for groups.
    pub owner: UserId,
    /// New id of the same sign; only for administrators.
    pub new_id: UserId,
}

/// The user that makes the change, and the time.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Changer {
    pub(crate) id: UserId,
    pub(crate) admin: bool,
    pub(crate) now: UnixTime,
}

/// Changes the id, owner and name, in this order. A new owner without a new name also changes the name's
/// prefix.
pub(crate) fn change(
    tables: &mut Tables<'_>,
    id: UserId,
    change: &Change,
    changer: Changer,
) -> Result<(), ProtectionError> {
    let new_id = if change.new_id.0 == 0 { id } else { change.new_id };
    if new_id != id {
        change_id(tables, id, new_id, changer)?;
    }
    let old = tables.need(new_id)?;
    let mut new = Entry { changed: changer.now, ..old.clone() };
    let owner_changes = change.owner.0 != 0 && change.owner != old.owner;
    if owner_changes {
        change_owner(tables, &mut new, change.owner)?;
    }
    if owner_changes && change.name.is_empty() {
        new.name = naming::group_name(tables, &old.name, new.owner, changer.admin)?;
    } else if !change.name.is_empty() && change.name != old.name {
        change_name(tables, &mut new, &change.name, changer)?;
    }
    if new.name != old.name && tables.id_of(&new.name)?.is_some() {
        return Err(ProtectionError::NameExists(shown(&new.name)));
    }
    tables.update(&old, &new);
    Ok(())
}

fn change_owner(tables: &Tables<'_>, entry: &mut Entry, owner: UserId) -> Result<(), ProtectionError> {
    if !entry.is_group() || entry.is_foreign() {
        return Err(ProtectionError::NotPermitted);
    }
    tables.need(owner)?;
    entry.owner = owner;
    Ok(())
}

fn change_name(
    tables: &Tables<'_>,
    entry: &mut Entry,
    name: &[u8],
    changer: Changer,
) -> Result<(), ProtectionError> {
    if entry.is_group() {
        if entry.is_foreign() {
            return Err(ProtectionError::NotPermitted);
        }
        if matches!(entry.owner, UserId(0) | UserId::ANONYMOUS) {
            entry.owner = changer.id;
        }
        naming::check_owned_name(tables, name, entry.owner, changer.admin)?;
    } else {
        if naming::suffix(name, b'@') != naming::suffix(&entry.name, b'@') {
            return Err(ProtectionError::NotPermitted);
        }
        naming::check_user_name(name)?;
    }
    entry.name = name.to_vec();
    Ok(())
}

/// Replaces the entry's id in every record that refers to it, except as creator of other entries, which is a
/// historical fact.
fn change_id(
    tables: &mut Tables<'_>,
    id: UserId,
    new_id: UserId,
    changer: Changer,
) -> Result<(), ProtectionError> {
    if !changer.admin || new_id.is_group() != id.is_group() || new_id.0 == i32::MIN {
        return Err(ProtectionError::NotPermitted);
    }
    if tables.entry(new_id)?.is_some() {
        return Err(ProtectionError::IdExists(new_id));
    }
    let old = tables.need(id)?;
    let owner = if old.owner == id { new_id } else { old.owner };
    tables.update(&old, &Entry { id: new_id, owner, changed: changer.now, ..old.clone() });
    for list in [List::Elements, List::Supergroups] {
        tables.rename_in_lists(list, id, new_id)?;
    }
    for group in tables.owned(id, None, usize::MAX)? {
        let old = tables.need(group)?;
        tables.update(&old, &Entry { owner: new_id, ..old.clone() });
    }
    let mut totals = tables.totals()?;
    totals.max_user = totals.max_user.max(new_id);
    tables.set_totals(&totals);
    Ok(())
}
