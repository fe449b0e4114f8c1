//! Creation of entries.

use crate::entry::{Entry, EntryFlags};
use crate::error::{ProtectionError, shown};
use crate::naming;
use crate::tables::{List, Tables};
use base::{UnixTime, UserId};

/// Maximum number of ids tried after the last assigned one.
const ID_ATTEMPTS_MAX: u32 = 100_000;
/// Maximum number of a foreign user within its cell: ids are `number << 16 | cell`, and larger numbers would
/// make the id negative, which is a group's.
const FOREIGN_NUMBER_MAX: i32 = 0x7fff;

/// Type of an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A user of this cell or, with `@` in the name, of another cell.
    User,
    /// A group.
    Group,
}

/// A requested entry, after the check of the caller's rights.
#[derive(Clone, Debug)]
pub(crate) struct Wanted<'n> {
    pub(crate) name: &'n [u8],
    pub(crate) kind: Kind,
    /// Owner; the creator if 0 or anonymous.
    pub(crate) owner: UserId,
    pub(crate) creator: UserId,
    /// Whether the creator is an administrator.
    pub(crate) admin: bool,
    /// Id; the next free one if `None`.
    pub(crate) id: Option<UserId>,
}

/// Creates the entry and returns its id.
pub(crate) fn create(
    tables: &mut Tables<'_>,
    wanted: &Wanted<'_>,
    now: UnixTime,
) -> Result<UserId, ProtectionError> {
    let owner = match wanted.owner {
        UserId(0) | UserId::ANONYMOUS => wanted.creator,
        owner => owner,
    };
    check_name(tables, wanted, owner)?;
    if let Some(id) = wanted.id {
        check_wanted_id(tables, id)?;
    }
    let mut entry = blank(wanted, now);
    match wanted.kind {
        Kind::User if entry.is_foreign() => create_foreign(tables, entry, wanted.id, now),
        Kind::User => {
            entry.settle_quota();
            entry.id = pick_id(tables, wanted)?;
            create_local(tables, entry)
        }
        Kind::Group => {
            entry.owner = owner;
            entry.id = pick_id(tables, wanted)?;
            if owner != entry.id {
                tables.need(owner)?;
            }
            charge(tables, wanted.creator, wanted.admin)?;
            create_local(tables, entry)
        }
    }
}

fn check_name(tables: &Tables<'_>, wanted: &Wanted<'_>, owner: UserId) -> Result<(), ProtectionError> {
    match wanted.kind {
        Kind::User => naming::check_user_name(wanted.name)?,
        Kind::Group => naming::check_owned_name(tables, wanted.name, owner, wanted.admin)?,
    }
    if tables.id_of(wanted.name)?.is_some() {
        return Err(ProtectionError::NameExists(shown(wanted.name)));
    }
    let foreign_group = wanted.kind == Kind::Group && wanted.name.contains(&b'@');
    if foreign_group && naming::stem(wanted.name, b'@') != naming::FOREIGN_GROUP {
        return Err(naming::bad(wanted.name));
    }
    Ok(())
}

fn check_wanted_id(tables: &Tables<'_>, id: UserId) -> Result<(), ProtectionError> {
    if id.0 == 0 || id.0 == i32::MIN {
        return Err(ProtectionError::Inconsistent(id));
    }
    match tables.entry(id)? {
        Some(_) => Err(ProtectionError::IdExists(id)),
        None => Ok(()),
    }
}

fn blank(wanted: &Wanted<'_>, now: UnixTime) -> Entry {
    let flags = if wanted.kind == Kind::Group { EntryFlags::GROUP } else { 0 };
    Entry {
        id: UserId(0),
        name: wanted.name.to_vec(),
        flags: EntryFlags(flags),
        cell: UserId(0),
        owner: UserId::ADMINISTRATORS,
        creator: wanted.creator,
        group_quota: 0,
        user_quota: 0,
        count: 0,
        supergroup_count: 0,
        position: 0,
        created: now,
        added: UnixTime(0),
        removed: UnixTime(0),
        changed: UnixTime(0),
    }
}

/// Returns the requested id, or the next free one for this type of entry.
fn pick_id(tables: &Tables<'_>, wanted: &Wanted<'_>) -> Result<UserId, ProtectionError> {
    if let Some(id) = wanted.id {
        return Ok(id);
    }
    let totals = tables.totals()?;
    let (mut id, step) = match wanted.kind {
        Kind::User => (totals.max_user, 1),
        Kind::Group => (totals.max_group, -1),
    };
    for _ in 0..ID_ATTEMPTS_MAX {
        id = UserId(id.0.checked_add(step).filter(|&id| id != i32::MIN).ok_or(ProtectionError::NoIds)?);
        if id.0 != 0 && tables.entry(id)?.is_none() {
            return Ok(id);
        }
    }
    Err(ProtectionError::NoIds)
}

fn create_local(tables: &mut Tables<'_>, entry: Entry) -> Result<UserId, ProtectionError> {
    let id = entry.id;
    let mut totals = tables.totals()?;
    totals.max_user = totals.max_user.max(id);
    totals.max_group = totals.max_group.min(id);
    tables.set_totals(&totals);
    tables.insert(entry)?;
    Ok(id)
}

/// Charges one group to the creator's quota. Administrators are not charged, but get a valid quota.
fn charge(tables: &mut Tables<'_>, creator: UserId, admin: bool) -> Result<(), ProtectionError> {
    let Some(old) = tables.entry(creator)? else {
        return Ok(());
    };
    let mut new = old.clone();
    new.settle_quota();
    if !admin {
        if new.group_quota <= 0 {
            return Err(ProtectionError::QuotaExceeded(creator));
        }
        new.group_quota -= 1;
    }
    tables.update(&old, &new);
    Ok(())
}

/// Creates a user of another cell: its id is derived from that of its cell's group, it becomes a member of
/// that group, and is charged to the group's quota.
fn create_foreign(
    tables: &mut Tables<'_>,
    mut entry: Entry,
    wanted: Option<UserId>,
    now: UnixTime,
) -> Result<UserId, ProtectionError> {
    let old = naming::cell_group(tables, &entry.name)?;
    let mut group = old.clone();
    entry.id = foreign_id(tables, &mut group, wanted)?;
    entry.cell = group.id;
    if !group.flags.has(EntryFlags::QUOTA_SET) {
        group.flags.0 |= EntryFlags::QUOTA_SET;
        group.group_quota = Entry::DEFAULT_FOREIGN_QUOTA;
    }
    if group.group_quota <= 0 {
        return Err(ProtectionError::QuotaExceeded(group.id));
    }
    group.group_quota -= 1;
    tables.update(&old, &group);
    let id = entry.id;
    tables.insert(entry)?;
    tables.add(List::Elements, group.id, id, now)?;
    tables.add(List::Elements, id, group.id, now)?;
    Ok(id)
}

fn foreign_id(
    tables: &Tables<'_>,
    group: &mut Entry,
    wanted: Option<UserId>,
) -> Result<UserId, ProtectionError> {
    let cell = group.id.0 & 0xffff;
    if let Some(id) = wanted {
        if id.0 & 0xffff != cell {
            return Err(ProtectionError::BadArgument("the id is not one of the user's cell"));
        }
        group.user_quota = group.user_quota.max(id.0 >> 16);
        return Ok(id);
    }
    for number in group.user_quota.saturating_add(1)..=FOREIGN_NUMBER_MAX {
        let id = UserId(number << 16 | cell);
        if tables.entry(id)?.is_none() {
            group.user_quota = number;
            return Ok(id);
        }
    }
    Err(ProtectionError::NoIds)
}
