//! The cell, its administrators and its keys.

use crate::overseer::OverseerError;
use crate::server::BosServer;
use afs_format::userlist::parse_principal;
use afs_idl::bozo::{self, Key, KeyInfo};
use base::{AbortCode, Caller, Principal};
use des::cipher::{BlockEncrypt, KeyInit};
use xdr::XdrString;

/// EPERM, which ends the list of administrators (BOZO_ListSUsers, `afsconf_GetNthUser`).
const END_OF_USERS: AbortCode = AbortCode(1);

/// ENOENT: the administrator to remove does not exist; `bos` expects the plain number.
const NO_USER: AbortCode = AbortCode(2);

/// EEXIST: the administrator to add already exists.
const USER_EXISTS: AbortCode = AbortCode(17);

impl BosServer {
    /// GetCellName: returns the name of the cell.
    pub(crate) fn get_cell_name(
        &self,
        _: &Caller,
        _: bozo::GetCellNameRequest,
    ) -> Result<bozo::GetCellNameReply, AbortCode> {
        Ok(bozo::GetCellNameReply { name: self.overseer.cell().name.as_str().into() })
    }

    /// GetCellHost: returns a database server by number, in brackets if it has no vote.
    pub(crate) fn get_cell_host(
        &self,
        _: &Caller,
        request: bozo::GetCellHostRequest,
    ) -> Result<bozo::GetCellHostReply, AbortCode> {
        let mut hosts = self.overseer.cell().hosts.into_iter();
        let host = hosts.nth(request.index as usize).ok_or(AbortCode::BZDOM)?;
        let name = if host.is_clone { format!("[{}]", host.name) } else { host.name };
        Ok(bozo::GetCellHostReply { name: name.into() })
    }

    /// ListSUsers: returns an administrator by number.
    pub(crate) fn list_s_users(
        &self,
        _: &Caller,
        request: bozo::ListSUsersRequest,
    ) -> Result<bozo::ListSUsersReply, AbortCode> {
        let index = usize::try_from(request.index).map_err(|_| END_OF_USERS)?;
        let all = self.overseer.administrators().map_err(OverseerError::abort_code)?;
        let name = all.get(index).map(|user| user.to_string().into()).ok_or(END_OF_USERS)?;
        Ok(bozo::ListSUsersReply { name })
    }

    /// AddSUser: adds an administrator.
    pub(crate) fn add_s_user(
        &self,
        caller: &Caller,
        request: bozo::AddSUserRequest,
    ) -> Result<bozo::AddSUserReply, AbortCode> {
        let overseer = self.administer(caller, "add_s_user")?;
        let user = principal(&request.name).ok_or(AbortCode::BZSYNTAX)?;
        overseer.add_administrator(&user).map_err(|error| match error {
            OverseerError::Exists => USER_EXISTS,
            other => other.abort_code(),
        })?;
        Ok(bozo::AddSUserReply)
    }

    /// DeleteSUser: removes an administrator.
    pub(crate) fn delete_s_user(
        &self,
        caller: &Caller,
        request: bozo::DeleteSUserRequest,
    ) -> Result<bozo::DeleteSUserReply, AbortCode> {
        let overseer = self.administer(caller, "delete_s_user")?;
        let user = principal(&request.name).ok_or(NO_USER)?;
        overseer.remove_administrator(&user).map_err(|error| match error {
            OverseerError::NotFound => NO_USER,
            other => other.abort_code(),
        })?;
        Ok(bozo::DeleteSUserReply)
    }

    /// ListKeys: returns a key's version and checksum by its position in the list.
    pub(crate) fn list_keys(
        &self,
        caller: &Caller,
        request: bozo::ListKeysRequest,
    ) -> Result<bozo::ListKeysReply, AbortCode> {
        let overseer = self.administer(caller, "list_keys")?;
        let index = usize::try_from(request.index).map_err(|_| AbortCode::BZDOM)?;
        let list = overseer.keys().map_err(OverseerError::abort_code)?;
        let key = list.keys.get(index).ok_or(AbortCode::BZDOM)?;
        let info = KeyInfo { modified_seconds: list.changed.0, checksum: key.checksum, ..KeyInfo::default() };
        Ok(bozo::ListKeysReply { version: key.version as i32, key: Key::default(), info })
    }

    /// SetNoAuthFlag. Checks of authorisation cannot be switched off.
    pub(crate) fn set_no_auth_flag(
        &self,
        caller: &Caller,
        request: bozo::SetNoAuthFlagRequest,
    ) -> Result<bozo::SetNoAuthFlagReply, AbortCode> {
        self.administer(caller, "set_no_auth_flag")?;
        if request.flag == 0 { Ok(bozo::SetNoAuthFlagReply) } else { Err(AbortCode::BZACCESS) }
    }
}

fn principal(name: &XdrString) -> Option<Principal> {
    parse_principal(name.as_str()?)
}

/// Returns the checksum by which `bos listkeys` identifies a DES key: the first word of a block of zeros
/// encrypted with it.
pub fn key_checksum(key: &[u8; 8]) -> u32 {
    let mut block = [0; 8];
    des::Des::new(key.into()).encrypt_block((&mut block).into());
    u32::from_be_bytes([block[0], block[1], block[2], block[3]])
}
