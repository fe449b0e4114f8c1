//! StoreStatus and StoreACL.

use crate::transaction::Transaction;
use crate::{Actor, FileKind, SetStatus, VnodeStatus, Volume, VolumeError};
use afs_format::acl::Acl;
use base::{Fid, VnodeId};
use std::sync::Arc;

const MODE_BITS: u16 = 0o7777;
const SET_USER_ID: u16 = 0o4000;

/// Applies `set` as OpenAFS does: a new owner costs the set-user-id bit unless the actor is
/// privileged or sets the mode too.
pub(crate) fn apply(status: &mut VnodeStatus, actor: &Actor, set: &SetStatus) {
    if let Some(time) = set.client_modified {
        status.client_modified = time;
    }
    if let Some(owner) = set.owner {
        drop_set_user_id(status, actor);
        status.owner = owner;
    }
    if let Some(mode) = set.mode {
        status.mode = mode & MODE_BITS;
    }
    if let Some(group) = set.group {
        status.group = group;
    }
}

/// Whoever is not privileged cannot keep a set-user-id bit over a change of data or owner.
pub(crate) fn drop_set_user_id(status: &mut VnodeStatus, actor: &Actor) {
    if !actor.privileged {
        status.mode &= !SET_USER_ID;
    }
}

impl Volume {
    /// StoreStatus.
    ///
    /// # Errors
    /// `NoVnode`, `ReadOnly`, `Invalid` (mode of a symbolic link), `Store`.
    pub fn set_status(&self, actor: &Actor, fid: Fid, set: &SetStatus) -> Result<VnodeStatus, VolumeError> {
        let mut transaction = Transaction::begin(self, actor)?;
        let mut vnode = transaction.vnode(fid)?;
        if vnode.status.kind == FileKind::SymbolicLink && set.mode.is_some() {
            // Would make a mount point of a link or a link of a mount point.
            return Err(VolumeError::Invalid("the mode of a symbolic link cannot be set"));
        }
        apply(&mut vnode.status, actor, set);
        if let Some(owner) = set.owner
            && fid.vnode == VnodeId::ROOT
        {
            transaction.set_owner(owner);
        }
        let status = transaction.put(vnode)?;
        self.finish(transaction)?;
        Ok(status)
    }

    /// StoreACL: sets a directory's access list.
    ///
    /// # Errors
    /// `NoVnode`, `NotDirectory`, `ReadOnly`, `Store`.
    pub fn set_acl(&self, actor: &Actor, directory: Fid, acl: Acl) -> Result<VnodeStatus, VolumeError> {
        let mut transaction = Transaction::begin(self, actor)?;
        let mut vnode = transaction.directory(directory)?;
        vnode.acl = Some(Arc::new(acl));
        let status = transaction.put(vnode)?;
        self.finish(transaction)?;
        Ok(status)
    }
}
