//! StoreStatus and StoreACL.

use crate::change::transaction::Transaction;
use crate::{Acknowledge, Actor, FileKind, Pending, SetStatus, VnodeStatus, Volume, VolumeError};
use afs_format::acl::Acl;
use base::{Fid, VnodeId};
use std::sync::Arc;

/// The mode bits that a privileged actor may set.
const MODE_BITS: u16 = 0o7777;
/// The mode bits that any actor may set.
const PERMISSION_BITS: u16 = 0o777;
const SET_ID_BITS: u16 = 0o6000;

/// Applies `set` with the rules of OpenAFS's `Update_TargetVnodeStatus`. An unprivileged actor sets
/// only permission bits, whatever the vnode's kind and the call, and changing the owner clears the
/// set-id bits.
pub(crate) fn apply(status: &mut VnodeStatus, actor: &Actor, set: &SetStatus) {
    if let Some(time) = set.client_modified {
        status.client_modified = time;
    }
    if let Some(owner) = set.owner {
        clear_set_id(status, actor);
        status.owner = owner;
    }
    if let Some(mode) = set.mode {
        status.mode = mode & if actor.privileged { MODE_BITS } else { PERMISSION_BITS };
    }
    if let Some(group) = set.group {
        status.group = group;
    }
}

/// Clears the set-id bits when an unprivileged actor changes the data or the owner.
pub(crate) fn clear_set_id(status: &mut VnodeStatus, actor: &Actor) {
    if !actor.privileged {
        status.mode &= !SET_ID_BITS;
    }
}

impl Volume {
    /// StoreStatus.
    ///
    /// # Errors
    /// `NoVnode`, `ReadOnly`, `Invalid` (mode of a symbolic link), `Store`.
    pub fn set_status(
        &self,
        by: &impl Acknowledge,
        fid: Fid,
        set: &SetStatus,
    ) -> Result<VnodeStatus, VolumeError> {
        by.acknowledge(self.change_status(by.actor(), fid, set)?)
    }

    fn change_status(
        &self,
        actor: &Actor,
        fid: Fid,
        set: &SetStatus,
    ) -> Result<Pending<VnodeStatus>, VolumeError> {
        if let Some(earlier) = self.earlier(actor)? {
            return Ok(earlier);
        }
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
        self.finish(transaction, status)
    }

    /// StoreACL: sets a directory's access list.
    ///
    /// # Errors
    /// `NoVnode`, `NotDirectory`, `ReadOnly`, `Store`.
    pub fn set_acl(
        &self,
        by: &impl Acknowledge,
        directory: Fid,
        acl: Acl,
    ) -> Result<VnodeStatus, VolumeError> {
        by.acknowledge(self.change_acl(by.actor(), directory, acl)?)
    }

    fn change_acl(
        &self,
        actor: &Actor,
        directory: Fid,
        acl: Acl,
    ) -> Result<Pending<VnodeStatus>, VolumeError> {
        if let Some(earlier) = self.earlier(actor)? {
            return Ok(earlier);
        }
        let mut transaction = Transaction::begin(self, actor)?;
        let mut vnode = transaction.directory(directory)?;
        vnode.acl = Some(Arc::new(acl));
        let status = transaction.put(vnode)?;
        self.finish(transaction, status)
    }
}
