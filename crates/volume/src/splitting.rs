//! Making a directory a volume of its own: its contents are carried over into another volume, a mount point
//! takes its place in one change, and then it is removed under another name.

use crate::names::New;
use crate::restoring::Restoration;
use crate::transaction::{Growth, Transaction};
use crate::volumes::Volumes;
use crate::{Actor, Created, SetStatus, VnodeStatus, Volume, VolumeError, VolumeHeader, keys, quota, record};
use afs_format::acl::Acl;
use afs_format::directory::{DirectoryBlob, EntryTarget, PlacedEntry};
use base::{Fid, PartitionId, UserId, VnodeId, VolumeId};
use std::collections::HashSet;
use std::ops::ControlFlow;
use std::sync::Arc;
use store::{Batch, Family, KeyRange};

/// Names that are removed in one change.
const NAMES_AT_ONCE: usize = 200;

/// The next uniquifier of a volume in which nothing was ever made.
const FRESH_UNIQUE: u32 = 2;

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

/// A directory that is being made a volume of its own, as it is noted on the medium until that is done or undone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Splitting {
    /// Where the directory lies.
    pub volume: VolumeId,
    /// What gets its contents, and holds nothing else.
    pub new: VolumeId,
    /// The directory.
    pub directory: Fid,
    /// The one that it lies in.
    pub parent: Fid,
    /// What it is called there.
    pub name: Vec<u8>,
    /// Whose it is.
    pub owner: UserId,
    /// Changes that the new volume had seen before.
    pub(crate) fresh_changes: u64,
    /// The mount point has taken its place for certain: from now on it is only removed.
    pub(crate) is_replaced: bool,
}

/// How far a directory that becomes a volume is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Split {
    /// It lies where it lay.
    InPlace,
    /// The mount point has its place, and it is to be removed.
    Replaced,
    /// It is gone, or nobody knows any more.
    Gone,
}

impl Splitting {
    /// What is to happen to a directory that `parent` calls by this name.
    pub fn new(new: &Volume, directory: Fid, parent: Fid, name: Vec<u8>, owner: UserId) -> Splitting {
        let (volume, fresh_changes) = (directory.volume, new.counters().changes);
        let (new, is_replaced) = (new.id(), false);
        Splitting { volume, new, directory, parent, name, owner, fresh_changes, is_replaced }
    }

    /// What the directory is called when the mount point has its place. It is no name of a vnode that is gone, as
    /// numbers are given out again.
    pub fn aside(&self) -> Vec<u8> {
        format!(".split.{}.{}", self.directory.vnode.0, self.directory.unique).into_bytes()
    }

    /// How far it is.
    ///
    /// # Errors
    /// `Store`.
    pub fn state(&self, volume: &Volume) -> Result<Split, VolumeError> {
        let is_it = |name: &[u8]| match volume.lookup(self.parent, name) {
            Ok(found) => Ok((found.vnode, found.unique) == (self.directory.vnode, self.directory.unique)),
            Err(VolumeError::NoEntry | VolumeError::NoVnode(..) | VolumeError::NotDirectory) => Ok(false),
            Err(error) => Err(error),
        };
        if is_it(&self.aside())? {
            return Ok(Split::Replaced);
        }
        // Of what was replaced a part may have been removed: it is nothing to go back to, whatever it is called.
        let is_in_place = !self.is_replaced && is_it(&self.name)?;
        Ok(if is_in_place { Split::InPlace } else { Split::Gone })
    }
}

impl Volumes {
    /// Notes durably that a directory is to become a volume.
    ///
    /// # Errors
    /// `NoVolume`, `Store`.
    pub fn note_splitting(&self, splitting: &Splitting) -> Result<(), VolumeError> {
        let home = Arc::clone(&self.get_any_state(splitting.volume)?.home);
        let mut batch = Batch::new();
        batch.put(Family::Volumes, keys::splitting(splitting.volume), record::put_splitting(splitting));
        let number = home.handle.meta.commit(batch)?;
        home.handle.meta.sync(number)?;
        Ok(())
    }

    /// Notes durably that the mount point has taken the directory's place, before anything of it is removed.
    ///
    /// # Errors
    /// Those of [`Volumes::note_splitting`].
    pub fn note_replaced(&self, splitting: &Splitting) -> Result<(), VolumeError> {
        if splitting.is_replaced {
            return Ok(());
        }
        self.note_splitting(&Splitting { is_replaced: true, ..splitting.clone() })
    }

    /// All that are noted on a partition.
    ///
    /// # Errors
    /// `NoPartition`, `Store`.
    pub fn splittings(&self, partition: PartitionId) -> Result<Vec<Splitting>, VolumeError> {
        let (from, to) = keys::registry_range(keys::Registry::Splitting);
        let mut found = Vec::new();
        let meta = &self.partition(partition)?.handle.meta;
        meta.scan(Family::Volumes, KeyRange::ascending(&from, &to), &mut |key, value| {
            let volume = keys::splitting_of(key);
            found.extend(volume.and_then(|volume| record::get_splitting(volume, value)));
            ControlFlow::Continue(())
        })?;
        Ok(found)
    }

    /// Deletes a note, when it is done or undone.
    ///
    /// # Errors
    /// `NoPartition`, `Store`.
    pub fn forget_splitting(&self, splitting: &Splitting, partition: PartitionId) -> Result<(), VolumeError> {
        let mut batch = Batch::new();
        batch.delete(Family::Volumes, keys::splitting(splitting.volume));
        self.partition(partition)?.handle.meta.commit(batch)?;
        Ok(())
    }

    /// Makes the new volume empty again if it holds what was copied and nobody has changed that.
    ///
    /// # Errors
    /// `Store`.
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
        // No mount point has led to it.
        empty.is_unseen = true;
        let header = VolumeHeader { next_unique: FRESH_UNIQUE, ..new.header() };
        let now = header.updated;
        empty.finish(self, header, now)?;
        Ok(())
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

    /// Removes a directory with everything below it, some names in each change, but not many more than `most`
    /// names. What is cut off can be done again. Whether nothing is left.
    ///
    /// # Errors
    /// `NoVnode`, `NotDirectory`, `ReadOnly`, `NoEntry`, `Store`.
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
        let mut left = vec![Doomed { parent, name: name.to_vec(), fid, is_open: false }];
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
            let below = |(name, below)| Doomed { parent: fid, name, fid: below, is_open: false };
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
        self.finish(transaction)
    }
}
