//! Making a directory a volume of its own: its contents are carried over into another volume, a mount point
//! takes its place in one change, and then it is removed under another name.

use crate::names::New;
use crate::restoring::Restoration;
use crate::transaction::{Growth, Transaction};
use crate::{Actor, Created, SetStatus, VnodeStatus, Volume, VolumeError, epochs, quota};
use afs_format::acl::Acl;
use afs_format::directory::{DirectoryBlob, EntryTarget, PlacedEntry};
use base::{Fid, VnodeId};
use std::collections::HashSet;
use std::sync::Arc;
use store::Family;

/// Names that are removed in one change.
const NAMES_AT_ONCE: usize = 200;

/// Mode of a mount point: no bit to execute.
const MOUNT_POINT_MODE: u16 = 0o644;

/// A directory to be removed.
struct Doomed {
    parent: Fid,
    name: Vec<u8>,
    fid: Fid,
    /// What lies below it was looked for.
    is_open: bool,
}

/// A vnode as it is called where the directory `top` is the root.
fn below(top: Fid, vnode: VnodeId, unique: u32) -> EntryTarget {
    let root = Fid::root(top.volume);
    if vnode == top.vnode {
        EntryTarget { vnode: root.vnode, unique: root.unique }
    } else {
        EntryTarget { vnode, unique }
    }
}

impl Restoration {
    /// Carries over a directory of a volume as the root, with everything below it. Numbers stay as they are,
    /// save that of the directory. The volume should not change meanwhile. All data is copied.
    ///
    /// # Errors
    /// `NoVnode`, `NotDirectory`, and those of [`Restoration::file`].
    pub fn take_over_tree(&mut self, source: &Arc<Volume>, top: Fid) -> Result<(), VolumeError> {
        let mut directories = vec![top];
        while let Some(directory) = directories.pop() {
            self.take_over_directory(source, top, directory)?;
            let mut seen = HashSet::new();
            for (_, fid) in names(source, directory)? {
                // A file may have several names.
                if !seen.insert(fid.vnode) {
                    continue;
                }
                if is_directory(fid) {
                    directories.push(fid);
                } else {
                    self.take_over_file(source, fid, &|status: &mut VnodeStatus| {
                        status.parent = below(top, status.parent, 1).vnode;
                    })?;
                }
            }
        }
        Ok(())
    }

    fn take_over_directory(
        &mut self,
        source: &Arc<Volume>,
        top: Fid,
        directory: Fid,
    ) -> Result<(), VolumeError> {
        let (mut status, acl) = source.status_and_acl(directory)?;
        let pages = source.reader(directory, 0, u64::MAX)?.next(usize::MAX)?.concat().into();
        let damaged = |_| epochs::damage(Family::Entries, &[], "a directory that is split off");
        let blob = DirectoryBlob::parse(&pages).map_err(damaged)?;
        let own = below(top, status.vnode, status.unique);
        let is_top = directory.vnode == top.vnode;
        let parent = if is_top { own } else { below(top, status.parent, status.parent_unique) };
        let rename = |placed: PlacedEntry| {
            let target = match &placed.name[..] {
                b"." => own,
                b".." => parent,
                _ => placed.target,
            };
            PlacedEntry { target, ..placed }
        };
        let placed = blob.placed_entries().into_iter().map(rename).collect();
        let blob = DirectoryBlob::rebuild(blob.pages().len(), placed).map_err(damaged)?;
        (status.vnode, status.unique) = (own.vnode, own.unique);
        status.parent = if is_top { VnodeId(0) } else { parent.vnode };
        self.directory(status, Acl::clone(&acl), &blob)
    }
}

fn is_directory(fid: Fid) -> bool {
    fid.vnode.0 % 2 == 1
}

/// What lies in a directory, `.` and `..` left out.
fn names(volume: &Volume, directory: Fid) -> Result<Vec<(Vec<u8>, Fid)>, VolumeError> {
    let mut names = Vec::new();
    volume.entries(directory, &mut |name, found| {
        if !matches!(name, b"." | b"..") {
            let fid = Fid { volume: volume.id(), vnode: found.vnode, unique: found.unique };
            names.push((name.to_vec(), fid));
        }
    })?;
    Ok(names)
}

impl Volume {
    /// Puts a mount point, with this text, in the place of the directory `name`, which is called `aside` from
    /// then on: both in one change. The mount point's owner is the actor.
    ///
    /// # Errors
    /// `NoVnode`, `NotDirectory`, `ReadOnly`, `NoEntry`, `Exists` (`aside`), `DirectoryFull`, `PartitionFull`, `Store`.
    pub fn mount_over(
        &self,
        actor: &Actor,
        parent: Fid,
        name: &[u8],
        aside: &[u8],
        text: &[u8],
    ) -> Result<Created, VolumeError> {
        let mut transaction = Transaction::begin(self, actor)?;
        let above = transaction.directory(parent)?;
        let directory = transaction.lookup(&above, name)?.ok_or(VolumeError::NoEntry)?;
        if !transaction.target(directory)?.status.is_directory() {
            return Err(VolumeError::NotDirectory);
        }
        // The directory goes, so the quota is no hindrance.
        let blocks = quota::blocks(text.len() as u64);
        transaction.check_growth(Growth { blocks, data_kib: blocks, spare_kib: u64::MAX })?;
        let new = New::Link(text);
        let target = transaction.new_number(new.kind())?;
        let set = SetStatus { mode: Some(MOUNT_POINT_MODE), ..SetStatus::default() };
        let vnode = self.new_vnode(actor, &above, target, &new, &set);
        let status = transaction.put_new(vnode.clone());
        transaction.put_link(&vnode, text)?;
        transaction.change_directory(&above)?;
        transaction.remove_entry(parent.vnode, name)?;
        transaction.insert(parent.vnode, name, target)?;
        transaction.insert(parent.vnode, aside, directory)?;
        let created = Created { status, directory: transaction.status(parent.vnode)? };
        self.finish(transaction)?;
        Ok(created)
    }

    /// Removes a directory with everything below it, some names in each change. What is cut off can be
    /// done again.
    ///
    /// # Errors
    /// `NoVnode`, `NotDirectory`, `ReadOnly`, `NoEntry`, `Store`.
    pub fn remove_tree(&self, actor: &Actor, parent: Fid, name: &[u8]) -> Result<(), VolumeError> {
        let found = self.lookup(parent, name)?;
        let fid = Fid { volume: self.id(), vnode: found.vnode, unique: found.unique };
        let mut left = vec![Doomed { parent, name: name.to_vec(), fid, is_open: false }];
        while let Some(last) = left.last_mut() {
            if last.is_open {
                self.remove_directory(actor, last.parent, &last.name)?;
                left.pop();
                continue;
            }
            last.is_open = true;
            let fid = last.fid;
            let (directories, files): (Vec<_>, Vec<_>) =
                names(self, fid)?.into_iter().partition(|(_, fid)| is_directory(*fid));
            for some in files.chunks(NAMES_AT_ONCE) {
                self.remove_files(actor, fid, some)?;
            }
            let below = |(name, below)| Doomed { parent: fid, name, fid: below, is_open: false };
            left.extend(directories.into_iter().map(below));
        }
        Ok(())
    }

    fn remove_files(
        &self,
        actor: &Actor,
        directory: Fid,
        files: &[(Vec<u8>, Fid)],
    ) -> Result<(), VolumeError> {
        let mut transaction = Transaction::begin(self, actor)?;
        let parent = transaction.directory(directory)?;
        transaction.change_directory(&parent)?;
        for (name, fid) in files {
            let vnode = transaction.vnode(*fid)?;
            transaction.drop_name(vnode)?;
            transaction.remove_entry(directory.vnode, name)?;
        }
        self.finish(transaction)
    }
}
