//! Rename.

use crate::change::entries::check_new_name;
use crate::change::transaction::Transaction;
use crate::{Acknowledge, Actor, Pending, Renamed, Volume, VolumeError};
use afs_format::directory::EntryTarget;
use base::{Fid, VnodeId};
use volume_records::codec::Vnode;

/// Exceeds the directory depth of any path; ends a walk through damaged parents.
const DEPTH_MAX: usize = 1 << 20;

/// The vnodes involved in a rename.
struct Plan {
    old: Vnode,
    new: Vnode,
    moved: Vnode,
    replaced: Option<Vnode>,
}

impl Plan {
    fn is_across(&self) -> bool {
        self.old.status.vnode != self.new.status.vnode
    }
}

fn check_names(old_name: &[u8], new_name: &[u8]) -> Result<(), VolumeError> {
    check_new_name(new_name)?;
    let is_bad = |name: &[u8]| matches!(name, b"" | b"." | b"..");
    if is_bad(old_name) || is_bad(new_name) { Err(VolumeError::InvalidName) } else { Ok(()) }
}

impl Volume {
    /// Rename within the volume, over an existing target of the same kind (an empty one if it is a
    /// directory).
    ///
    /// # Errors
    /// `NoVnode`, `NotDirectory`, `IsDirectory`, `ReadOnly`, `NoEntry`, `NotEmpty`, `InvalidName`,
    /// `NameTooLong`, `Loop`, `CrossDevice` (a file with several names to another directory), `Invalid` (the
    /// new name is the same file or its directory), `DirectoryFull`, `Store`.
    pub fn rename(
        &self,
        by: &impl Acknowledge,
        old_directory: Fid,
        old_name: &[u8],
        new_directory: Fid,
        new_name: &[u8],
    ) -> Result<Renamed, VolumeError> {
        by.acknowledge(self.move_name(by.actor(), (old_directory, old_name), (new_directory, new_name))?)
    }

    fn move_name(
        &self,
        actor: &Actor,
        (old_directory, old_name): (Fid, &[u8]),
        (new_directory, new_name): (Fid, &[u8]),
    ) -> Result<Pending<Renamed>, VolumeError> {
        if let Some(earlier) = self.earlier(actor)? {
            return Ok(earlier);
        }
        check_names(old_name, new_name)?;
        let mut transaction = Transaction::begin(self, actor)?;
        let plan = plan(&transaction, old_directory, old_name, new_directory, new_name)?;
        let (old, new) = (old_directory.vnode, new_directory.vnode);
        let replaced = plan.replaced.clone().map(|vnode| transaction.drop_name(vnode)).transpose()?;
        transaction.change_directory(&plan.old)?;
        if plan.is_across() {
            transaction.change_directory(&plan.new)?;
        }
        let moved_changed = move_vnode(&mut transaction, &plan)?;
        // In OpenAFS's order, so that entries get the positions that its clients would give them.
        if replaced.is_some() {
            transaction.remove_entry(new, new_name)?;
        }
        let moved = plan.moved.status;
        transaction.insert(new, new_name, EntryTarget { vnode: moved.vnode, unique: moved.unique })?;
        transaction.remove_entry(old, old_name)?;
        let renamed = Renamed {
            moved: transaction.status(moved.vnode).unwrap_or(moved),
            moved_changed,
            old_directory: transaction.status(old)?,
            new_directory: transaction.status(new)?,
            replaced,
        };
        self.finish(transaction, renamed)
    }
}

fn plan(
    transaction: &Transaction<'_>,
    old_directory: Fid,
    old_name: &[u8],
    new_directory: Fid,
    new_name: &[u8],
) -> Result<Plan, VolumeError> {
    let old = transaction.directory(old_directory)?;
    let new = transaction.directory(new_directory)?;
    let target = transaction.lookup(&old, old_name)?.ok_or(VolumeError::NoEntry)?;
    let moved = transaction.target(target)?;
    let is_across = old_directory.vnode != new_directory.vnode;
    if moved.status.vnode == new_directory.vnode {
        return Err(VolumeError::Loop);
    }
    if is_across && !moved.status.is_directory() && moved.status.links != 1 {
        return Err(VolumeError::CrossDevice);
    }
    let replaced = match transaction.lookup(&new, new_name)? {
        None => None,
        Some(found) if found.vnode == moved.status.vnode || found.vnode == old_directory.vnode => {
            return Err(VolumeError::Invalid("the new name is the file or its directory"));
        }
        Some(found) => Some(transaction.target(found)?),
    };
    if let Some(replaced) = &replaced {
        check_replaced(transaction, &moved, replaced)?;
    }
    if is_across && moved.status.is_directory() {
        check_loop(transaction, moved.status.vnode, &new)?;
    }
    Ok(Plan { old, new, moved, replaced })
}

fn check_replaced(transaction: &Transaction<'_>, moved: &Vnode, replaced: &Vnode) -> Result<(), VolumeError> {
    match (moved.status.is_directory(), replaced.status.is_directory()) {
        (false, true) => Err(VolumeError::IsDirectory),
        (true, false) => Err(VolumeError::NotDirectory),
        (true, true) if !transaction.blob(replaced)?.read().is_empty() => Err(VolumeError::NotEmpty),
        _ => Ok(()),
    }
}

/// Rejects moving a directory below itself.
fn check_loop(transaction: &Transaction<'_>, moved: VnodeId, new: &Vnode) -> Result<(), VolumeError> {
    let mut above = new.clone();
    for _ in 0..DEPTH_MAX {
        if above.status.parent == moved {
            return Err(VolumeError::Loop);
        }
        if above.status.vnode == VnodeId::ROOT {
            return Ok(());
        }
        let parent = EntryTarget { vnode: above.status.parent, unique: above.status.parent_unique };
        above = transaction.target(parent)?;
    }
    Err(VolumeError::Loop)
}

/// Gives the moved vnode its new parent; a directory also gets a new `..`, and link counts follow. Returns
/// whether the vnode's own status or data changed.
fn move_vnode(transaction: &mut Transaction<'_>, plan: &Plan) -> Result<bool, VolumeError> {
    let (old, new) = (plan.old.status, plan.new.status);
    if plan.replaced.as_ref().is_some_and(|replaced| replaced.status.is_directory()) {
        transaction.add_links(new.vnode, -1)?;
    }
    if !plan.is_across() {
        return Ok(false);
    }
    let mut moved = plan.moved.clone();
    let number = moved.status.vnode;
    moved.status.parent = new.vnode;
    moved.status.parent_unique = new.unique;
    let is_directory = moved.status.is_directory();
    if is_directory {
        moved.status.data_version += 1;
    }
    transaction.put(moved)?;
    if is_directory {
        transaction.remove_entry(number, b"..")?;
        transaction.insert(number, b"..", EntryTarget { vnode: new.vnode, unique: new.unique })?;
        transaction.add_links(old.vnode, -1)?;
        transaction.add_links(new.vnode, 1)?;
    }
    Ok(is_directory)
}
