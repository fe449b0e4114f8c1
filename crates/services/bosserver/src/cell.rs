//! The cell, its administrators and its keys.

use crate::overseer::{Overseer, OverseerError};
use afs_format::userlist::parse_principal;
use afs_idl::bozo::{Key, KeyInfo, ListKeysReply};
use base::{AbortCode, Principal};
use des::cipher::{BlockEncrypt, KeyInit};
use xdr::XdrString;

/// EPERM, which ends the list of administrators (BOZO_ListSUsers, `afsconf_GetNthUser`).
const END_OF_USERS: AbortCode = AbortCode(1);

/// ENOENT: the administrator to remove does not exist; `bos` expects the plain number.
const NO_USER: AbortCode = AbortCode(2);

/// EEXIST: the administrator to add already exists.
const USER_EXISTS: AbortCode = AbortCode(17);

/// Returns a database server by number, in brackets if it has no vote (BOZO_GetCellHost).
pub(crate) fn host(overseer: &dyn Overseer, index: u32) -> Result<XdrString, AbortCode> {
    let host = overseer.cell().hosts.into_iter().nth(index as usize).ok_or(AbortCode::BZDOM)?;
    Ok(if host.is_clone { format!("[{}]", host.name) } else { host.name }.into())
}

/// Returns an administrator by number (BOZO_ListSUsers).
pub(crate) fn administrator(overseer: &dyn Overseer, index: i32) -> Result<XdrString, AbortCode> {
    let index = usize::try_from(index).map_err(|_| END_OF_USERS)?;
    let all = overseer.administrators().map_err(OverseerError::abort_code)?;
    all.get(index).map(|who| who.to_string().into()).ok_or(END_OF_USERS)
}

/// Adds an administrator (BOZO_AddSUser).
pub(crate) fn add_administrator(overseer: &dyn Overseer, name: &XdrString) -> Result<(), AbortCode> {
    let who = principal(name).ok_or(AbortCode::BZSYNTAX)?;
    overseer.add_administrator(&who).map_err(|error| match error {
        OverseerError::Exists => USER_EXISTS,
        other => other.abort_code(),
    })
}

/// Removes an administrator (BOZO_DeleteSUser).
pub(crate) fn remove_administrator(overseer: &dyn Overseer, name: &XdrString) -> Result<(), AbortCode> {
    let who = principal(name).ok_or(NO_USER)?;
    overseer.remove_administrator(&who).map_err(|error| match error {
        OverseerError::NotFound => NO_USER,
        other => other.abort_code(),
    })
}

fn principal(name: &XdrString) -> Option<Principal> {
    parse_principal(name.as_str()?)
}

/// Returns a key's version and checksum by its position in the list (BOZO_ListKeys).
pub(crate) fn key(overseer: &dyn Overseer, index: i32) -> Result<ListKeysReply, AbortCode> {
    let index = usize::try_from(index).map_err(|_| AbortCode::BZDOM)?;
    let list = overseer.keys().map_err(OverseerError::abort_code)?;
    let key = list.keys.get(index).ok_or(AbortCode::BZDOM)?;
    let info = KeyInfo { modified_seconds: list.changed.0, checksum: key.checksum, ..KeyInfo::default() };
    Ok(ListKeysReply { version: key.version as i32, key: Key::default(), info })
}

/// Returns the checksum by which `bos listkeys` identifies a DES key: the first word of a block of zeros
/// encrypted with it.
pub fn key_checksum(key: &[u8; 8]) -> u32 {
    let mut block = [0; 8];
    des::Des::new(key.into()).encrypt_block((&mut block).into());
    u32::from_be_bytes([block[0], block[1], block[2], block[3]])
}
