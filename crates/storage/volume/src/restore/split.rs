//! Turns a directory into a separate volume: its contents are copied to another volume, a mount point
//! replaces it in one change, and then the directory is removed under another name.

use crate::change::entries::New;
use crate::change::transaction::{Growth, Transaction};
use crate::core::volumes::Volumes;
use crate::restore::restoration::Restoration;
use crate::{Actor, Created, SetStatus, VnodeStatus, Volume, VolumeError, VolumeHeader};
use afs_format::acl::Acl;
use afs_format::directory::{DirectoryBlob, EntryTarget, PlacedEntry};
use base::{Fid, PartitionId, UserId, VnodeId};
use std::collections::HashSet;
use std::ops::ControlFlow;
use std::sync::Arc;
use store::{Batch, KeyRange};
use volume_records::{Splitting, codec, families, keys, quota};

/// Names removed in one change.
const NAMES_AT_ONCE: usize = 200;

/// Next uniquifier of a volume in which no vnode was ever created.
const FRESH_UNIQUE: u32 = 2;

/// Mode of a mount point, which has no execute bit.
const MOUNT_POINT_MODE: u16 = 0o644;

/// A directory to be removed.
struct Obsolete {
    parent: Fid,
    name: Vec<u8>,
    fid: Fid,
    /// Whether its contents have been listed.
    is_open: bool,
}

/// Returns the number and uniquifier of a vnode in a volume whose root is the directory `top`.
fn below(top: Fid, vnode: VnodeId, unique: u32) -> EntryTarget {
    let root = Fid::root(top.volume);
    if vnode == top.vnode {
        EntryTarget { vnode: root.vnode, unique: root.unique }
    } else {
        EntryTarget { vnode, unique }
    }
}

/// Progress of a split.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Split {
    /// The directory is unchanged.
    InPlace,
    /// The mount point has replaced the directory, which is still to be removed.
    Replaced,
    /// The directory is removed, or its state is unknown.
    Gone,
}

impl Volume {
    /// Describes the split of a directory with this name in `parent`, of another volume, whose contents this
    /// volume gets.
    pub fn split_of(&self, directory: Fid, parent: Fid, name: Vec<u8>, owner: UserId) -> Splitting {
        let (volume, fresh_changes) = (directory.volume, self.counters().changes);
        let (new, is_replaced) = (self.id(), false);
        Splitting { volume, new, directory, parent, name, owner, fresh_changes, is_replaced }
    }

    /// Returns the progress of the split of one of this volume's directories.
    pub fn split_state(&self, splitting: &Splitting) -> Result<Split, VolumeError> {
        let Splitting { directory, parent, .. } = *splitting;
        let is_it = |name: &[u8]| match self.lookup(parent, name) {
            Ok(found) => Ok((found.vnode, found.unique) == (directory.vnode, directory.unique)),
            Err(VolumeError::NoEntry | VolumeError::NoVnode(..) | VolumeError::NotDirectory) => Ok(false),
            Err(error) => Err(error),
        };
        if is_it(&splitting.aside())? {
            return Ok(Split::Replaced);
        }
        // A replaced directory may be partly removed, so it cannot be used again, whatever its name.
        let is_in_place = !splitting.is_replaced && is_it(&splitting.name)?;
        Ok(if is_in_place { Split::InPlace } else { Split::Gone })
    }
}

impl Volumes {
    /// Records durably that a directory is to be split off.
    pub fn note_splitting(&self, splitting: &Splitting) -> Result<(), VolumeError> {
        let home = Arc::clone(&self.get_any_state(splitting.volume)?.home);
        let mut batch = Batch::new();
        batch.put(families::VOLUMES, keys::splitting(splitting.volume), codec::put_splitting(splitting));
        let number = home.handle.meta.commit(batch)?;
        home.handle.meta.sync(number)?;
        Ok(())
    }

    /// Records durably that the mount point has replaced the directory, before anything of it is removed.
    pub fn note_replaced(&self, splitting: &Splitting) -> Result<(), VolumeError> {
        if splitting.is_replaced {
            return Ok(());
        }
        self.note_splitting(&Splitting { is_replaced: true, ..splitting.clone() })
    }

    /// Returns the splits recorded on a partition.
    pub fn splittings(&self, partition: PartitionId) -> Result<Vec<Splitting>, VolumeError> {
        let (from, to) = keys::registry_range(keys::Registry::Splitting);
        let mut found = Vec::new();
        let home = self.partition(partition)?;
        let meta = &home.handle.meta;
        meta.scan(families::VOLUMES, KeyRange::ascending(&from, &to), &mut |key, value| {
            let volume = keys::splitting_of(key);
            found.extend(volume.and_then(|volume| codec::get_splitting(volume, value)));
            ControlFlow::Continue(())
        })?;
        Ok(found)
    }

    /// Deletes the record of a split that was completed or undone.
    pub fn forget_splitting(&self, splitting: &Splitting, partition: PartitionId) -> Result<(), VolumeError> {
        let mut batch = Batch::new();
        batch.delete(families::VOLUMES, keys::splitting(splitting.volume));
        self.partition(partition)?.handle.meta.commit(batch)?;
        Ok(())
    }

    /// Empties the new volume if it has the copied contents, unchanged.
    pub fn undo_copy(&self, splitting: &Splitting) -> Result<(), VolumeError> {
        let new = match self.get_any_state(splitting.new) {
            Err(VolumeError::NoVolume(_)) => return Ok(()),
            new => new?,
        };
        if new.counters().changes != splitting.fresh_changes + 1 {
            return Ok(());
        }
        let (root, acl) = new.status_and_acl(new.root())?;
        let mut empty = self.restore(new.id())?;
        let own = EntryTarget { vnode: root.vnode, unique: root.unique };
        let status = VnodeStatus { links: 2, ..root };
        empty.directory(status, Acl::clone(&acl), &DirectoryBlob::new(own, own))?;
        // No mount point has referred to it.
        empty.is_unseen = true;
        let header = VolumeHeader { next_unique: FRESH_UNIQUE, ..new.header() };
        let now = header.updated;
        empty.finish(self, header, now)?;
        Ok(())
    }
}

impl Restoration {
    /// Carries over a directory of a volume as the root, with everything below it. Vnode numbers are kept,
    /// except for that of the directory. The volume should not change meanwhile. All data is copied.
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
        let blob = source.reader(directory, 0, u64::MAX)?.directory()?;
        let damaged = |error| VolumeError::Directory { directory: directory.vnode, error };
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

/// Returns the entries of a directory except `.` and `..`.
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
    /// Replaces the directory `name` by a mount point with this text, and renames the directory to `aside`,
    /// in one change. The owner of the mount point is the actor.
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
        // The directory will be removed, so the quota is not enforced.
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
        self.finish(transaction, created)?.wait()
    }

    /// Removes a directory with everything below it, some names in each change, up to about `most` names. Can
    /// be repeated after an interruption. Returns whether everything has been removed.
    pub fn remove_tree(
        &self,
        actor: &Actor,
        parent: Fid,
        name: &[u8],
        most: usize,
    ) -> Result<bool, VolumeError> {
        let mut removed = 0;
        let found = self.lookup(parent, name)?;
        let fid = Fid { volume: self.id(), vnode: found.vnode, unique: found.unique };
        let mut left = vec![Obsolete { parent, name: name.to_vec(), fid, is_open: false }];
        while let Some(last) = left.last_mut() {
            if removed >= most {
                return Ok(false);
            }
            if last.is_open {
                self.remove_directory(actor, last.parent, &last.name)?;
                removed += 1;
                left.pop();
                continue;
            }
            last.is_open = true;
            let fid = last.fid;
            let (directories, files): (Vec<_>, Vec<_>) =
                names(self, fid)?.into_iter().partition(|(_, fid)| is_directory(*fid));
            for some in files.chunks(NAMES_AT_ONCE) {
                if removed >= most {
                    return Ok(false);
                }
                self.remove_files(actor, fid, some)?;
                removed += some.len();
            }
            let below = |(name, below)| Obsolete { parent: fid, name, fid: below, is_open: false };
            left.extend(directories.into_iter().map(below));
        }
        Ok(true)
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
        self.finish(transaction, ())?.wait()
    }
}
