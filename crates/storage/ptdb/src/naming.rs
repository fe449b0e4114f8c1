//! Rules for the names of entries.

use crate::entry::Entry;
use crate::error::{ProtectionError, shown};
use crate::tables::Tables;
use base::UserId;
use base::limits::PROTECTION_NAME_BYTES_MAX;

/// Start of the name of the group of all users of another cell: `system:authuser@cell`.
pub(crate) const FOREIGN_GROUP: &[u8] = b"system:authuser";

pub(crate) fn bad(name: &[u8]) -> ProtectionError {
    ProtectionError::BadName(shown(name))
}

fn is_storable(name: &[u8]) -> bool {
    (1..=PROTECTION_NAME_BYTES_MAX).contains(&name.len())
        && !name.iter().any(|byte| matches!(byte, b'\n' | 0))
}

/// Checks a user's name, which has no colon, since a colon marks a group.
pub(crate) fn check_user_name(name: &[u8]) -> Result<(), ProtectionError> {
    if is_storable(name) && !name.contains(&b':') { Ok(()) } else { Err(bad(name)) }
}

/// Checks a group's name, which has at most one colon.
fn check_group_name(name: &[u8]) -> Result<(), ProtectionError> {
    let after_colon = suffix(name, b':').map_or(&name[..0], |suffix| &suffix[1..]);
    if is_storable(name) && !after_colon.contains(&b':') { Ok(()) } else { Err(bad(name)) }
}

/// Returns the part of the name that starts at the first `separator`.
pub(crate) fn suffix(name: &[u8], separator: u8) -> Option<&[u8]> {
    name.iter().position(|&byte| byte == separator).map(|at| &name[at..])
}

/// Returns the part of the name before the first `separator`.
pub(crate) fn stem(name: &[u8], separator: u8) -> &[u8] {
    &name[..name.len() - suffix(name, separator).map_or(0, <[u8]>::len)]
}

/// Returns the prefix before the colon in names of groups that `owner` owns; `None` if `owner` does not
/// exist, which only administrators may request.
fn owner_prefix(tables: &Tables<'_>, owner: UserId, admin: bool) -> Result<Option<Vec<u8>>, ProtectionError> {
    if owner == UserId::ADMINISTRATORS {
        return Ok(Some(b"system".to_vec()));
    }
    let Some(entry) = tables.entry(owner)? else {
        return if admin { Ok(None) } else { Err(ProtectionError::NoEntry(owner)) };
    };
    if entry.is_group() && entry.count == 0 && !admin {
        return Err(ProtectionError::GroupEmpty(owner));
    }
    Ok(Some(if entry.is_group() { stem(&entry.name, b':').to_vec() } else { entry.name }))
}

/// Returns the name of a group requested as `name` and owned by `owner`: `owner:rest`. Only administrators
/// may omit the colon or use the prefix `system`.
pub(crate) fn group_name(
    tables: &Tables<'_>,
    name: &[u8],
    owner: UserId,
    admin: bool,
) -> Result<Vec<u8>, ProtectionError> {
    let corrected = match (owner_prefix(tables, owner, admin)?, suffix(name, b':')) {
        (Some(prefix), _) if prefix == b"system" && !admin => return Err(ProtectionError::NotPermitted),
        (Some(prefix), Some(suffix)) => [&prefix, suffix].concat(),
        (Some(_), None) if !admin => return Err(bad(name)),
        (Some(_) | None, _) => name.to_vec(),
    };
    check_group_name(&corrected)?;
    Ok(corrected)
}

/// Fails unless `name` is exactly the name that a group of `owner` must have.
pub(crate) fn check_owned_name(
    tables: &Tables<'_>,
    name: &[u8],
    owner: UserId,
    admin: bool,
) -> Result<(), ProtectionError> {
    if group_name(tables, name, owner, admin)? == name { Ok(()) } else { Err(bad(name)) }
}

/// Returns the group of all users of the cell that the foreign user `name` belongs to.
pub(crate) fn cell_group(tables: &Tables<'_>, name: &[u8]) -> Result<Entry, ProtectionError> {
    let cell = suffix(name, b'@').unwrap_or_default();
    let id = tables.id_of(&[FOREIGN_GROUP, cell].concat())?.ok_or_else(|| bad(name))?;
    tables.need(id)
}
