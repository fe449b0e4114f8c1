//! Imports a volume into a store, or only reads all of it.

use super::source::{Listed, Problem, Source};
use super::survey::path_of;
use afs_format::namei::{DESTROY_ME, IndexClass, NameiVnode, VolumeInfo};
use base::{AbortCode, PartitionId, UnixTime, UserId, VnodeId, VolumeId};
use bytes::{Bytes, BytesMut};
use std::fs::File;
use std::io::{self, ErrorKind, Read as _};
use thiserror::Error;
use volume::{
    CloneVolume, FileKind, NewVolume, Restoration, VnodeStatus, VolumeError, VolumeHeader, Volumes,
};

/// Number of bytes of a file read at a time.
const PIECE_BYTES: usize = 256 << 10;

/// Why a volume was not imported; partial results are removed.
#[derive(Debug, Error)]
pub enum LoadError {
    /// The volume is damaged.
    #[error("{}: {}", .0.place, .0.what)]
    Source(Problem),
    /// The store rejected the volume.
    #[error(transparent)]
    Store(#[from] VolumeError),
}

impl From<Problem> for LoadError {
    fn from(problem: Problem) -> LoadError {
        LoadError::Source(problem)
    }
}

/// Target of an import.
#[derive(Clone, Copy)]
pub struct Target<'a> {
    /// Volumes of the store.
    pub volumes: &'a Volumes,
    /// Target partition.
    pub partition: PartitionId,
    /// Present time.
    pub now: UnixTime,
}

/// Imports a volume, completely or not at all. `progress` is called with the number of bytes read.
///
/// # Errors
/// An error in the volume or in the store.
pub fn load(source: &Source<'_>, target: Target<'_>, progress: &dyn Fn(u64)) -> Result<(), LoadError> {
    let id = VolumeId(source.info.id);
    // The volume is marked as unfinished until its contents are complete; the server removes such volumes.
    let new = NewVolume {
        id,
        name: source.name.clone(),
        kind: source.kind,
        parent: VolumeId(source.info.parent),
        quota_max_kib: source.info.quota_max_kib.into(),
        with_root: false,
        in_service: false,
        destroy_me: DESTROY_ME,
        now: target.now,
    };
    target.volumes.create(target.partition, &new)?;
    let filled = fill(source, target, progress);
    if filled.is_err() {
        target.volumes.delete(id)?;
    }
    filled
}

fn fill(source: &Source<'_>, target: Target<'_>, progress: &dyn Fn(u64)) -> Result<(), LoadError> {
    let mut restoration = target.volumes.restore(VolumeId(source.info.id))?;
    each_vnode(source, &mut |number, vnode| put(&mut restoration, source, number, vnode, progress))?;
    restoration.finish(target.volumes, header(source, target.now), target.now)?;
    Ok(())
}

/// Reads all of a volume's data.
///
/// # Errors
/// The first file that cannot be read.
pub fn read(source: &Source<'_>, progress: &dyn Fn(u64)) -> Result<(), Problem> {
    let read = each_vnode(source, &mut |number, vnode| {
        let mut data = Data::new(source, vnode, progress);
        loop {
            match data.next(PIECE_BYTES) {
                Ok(piece) if piece.is_empty() => return Ok(()),
                Ok(_) => {}
                Err(error) => return Err(data.problem(number, &error).into()),
            }
        }
    });
    match read {
        Err(LoadError::Source(problem)) => Err(problem),
        _ => Ok(()),
    }
}

/// Imports a clone with the same contents as a volume that was just imported, sharing them.
///
/// # Errors
/// An error in the store.
pub fn share(source: &Source<'_>, of: VolumeId, target: Target<'_>) -> Result<(), LoadError> {
    let header = header(source, target.now);
    let new = CloneVolume { id: header.id, name: header.name.clone(), kind: header.kind, now: header.copied };
    target.volumes.clone_volume_with(of, &new, |clone| {
        *clone = VolumeHeader {
            file_count: clone.file_count,
            directory_count: clone.directory_count,
            used_kib: clone.used_kib,
            next_unique: clone.next_unique,
            ..header
        };
    })?;
    Ok(())
}

/// Returns whether two volumes of a group have the same vnodes with the same data and date of the last
/// change.
pub fn is_same(one: &Source<'_>, two: &Source<'_>) -> bool {
    let is_same = |class| {
        let (mut first, mut second) = (one.index(class).ok()?, two.index(class).ok()?);
        loop {
            match (first.next_vnode().ok()?, second.next_vnode().ok()?) {
                (None, None) => return Some(()),
                (Some(a), Some(b)) => {
                    let is_equal = a.number == b.number && a.vnode.ok()? == b.vnode.ok()?;
                    if !is_equal {
                        return None;
                    }
                }
                _ => return None,
            }
        }
    };
    let is_group = one.info.parent == two.info.parent && one.info.updated == two.info.updated;
    is_group && is_same(IndexClass::Large).and_then(|()| is_same(IndexClass::Small)).is_some()
}

/// Returns whether an imported volume is unchanged since: each change increments a counter or assigns a
/// uniquifier.
pub fn is_unchanged(source: &Source<'_>, found: &VolumeHeader) -> bool {
    let of = |header: &VolumeHeader| {
        let dates = (header.created, header.updated, header.restored_from);
        (dates, header.next_unique, header.update_counter)
    };
    of(found) == of(&header(source, found.copied))
}

/// Visits directories, then all other vnodes.
fn each_vnode(
    source: &Source<'_>,
    visit: &mut dyn FnMut(u32, &NameiVnode) -> Result<(), LoadError>,
) -> Result<(), LoadError> {
    for class in [IndexClass::Large, IndexClass::Small] {
        let mut index = source.index(class)?;
        while let Some(Listed { number, vnode }) = index.next_vnode()? {
            visit(number, &vnode?)?;
        }
    }
    Ok(())
}

fn put(
    restoration: &mut Restoration,
    source: &Source<'_>,
    number: u32,
    vnode: &NameiVnode,
    progress: &dyn Fn(u64),
) -> Result<(), LoadError> {
    let refused = |what: &str| Problem::new(path_of(source, number), what);
    let status = status(number, vnode).ok_or_else(|| refused("an unknown kind of vnode"))?;
    if status.is_directory() {
        let acl = vnode.acl.clone().ok_or_else(|| refused("no access list"))?;
        let blob = source.directory(vnode.inode, vnode.length).map_err(|what| refused(&what))?;
        return Ok(restoration.directory(status, acl, &blob)?);
    }
    let (mut data, mut failure) = (Data::new(source, vnode, progress), None);
    let stored = restoration.file(status, &mut |most: usize| {
        data.next(most).map_err(|error| {
            failure = Some(error);
            AbortCode::VOLSERREAD_DUMPERROR
        })
    });
    match failure {
        Some(error) => Err(data.problem(number, &error).into()),
        None => Ok(stored?),
    }
}

/// The data of a vnode, read piece by piece.
struct Data<'a> {
    source: &'a Source<'a>,
    vnode: &'a NameiVnode,
    file: Option<File>,
    left: u64,
    progress: &'a dyn Fn(u64),
}

impl<'a> Data<'a> {
    fn new(source: &'a Source<'a>, vnode: &'a NameiVnode, progress: &'a dyn Fn(u64)) -> Data<'a> {
        Data { source, vnode, file: None, left: vnode.length, progress }
    }

    /// Returns at most `most` bytes; none at the end.
    fn next(&mut self, most: usize) -> io::Result<Bytes> {
        let length = self.left.min(most.min(PIECE_BYTES) as u64) as usize;
        if length == 0 {
            return Ok(Bytes::new());
        }
        if self.file.is_none() {
            self.file = Some(self.source.open(self.vnode.inode)?);
        }
        let mut bytes = BytesMut::zeroed(length);
        let file = self.file.as_mut().ok_or(ErrorKind::NotFound)?;
        file.read_exact(&mut bytes)?;
        self.left -= length as u64;
        (self.progress)(length as u64);
        Ok(bytes.freeze())
    }

    fn problem(&self, number: u32, error: &io::Error) -> Problem {
        let at = self.vnode.length - self.left;
        let place = self.source.place(self.vnode.inode);
        let what = format!("{place} cannot be read at byte {at}: {error}");
        Problem::new(path_of(self.source, number), what)
    }
}

fn status(number: u32, vnode: &NameiVnode) -> Option<VnodeStatus> {
    Some(VnodeStatus {
        vnode: VnodeId(number),
        unique: vnode.unique,
        kind: FileKind::from_wire(vnode.kind)?,
        mode: vnode.mode,
        owner: UserId(vnode.owner as i32),
        group: vnode.group as i32,
        links: vnode.links.into(),
        length: vnode.length,
        data_version: vnode.data_version.into(),
        client_modified: vnode.client_modified,
        server_modified: vnode.server_modified,
        author: UserId(vnode.author as i32),
        parent: VnodeId(vnode.parent),
        parent_unique: 0,
    })
}

/// Returns all properties that OpenAFS stores for a volume, except counters, which are recomputed.
fn header(source: &Source<'_>, now: UnixTime) -> VolumeHeader {
    let info = &source.info;
    VolumeHeader {
        id: VolumeId(info.id),
        name: source.name.clone(),
        kind: source.kind,
        parent: VolumeId(info.parent),
        clone: VolumeId(info.clone),
        backup: VolumeId(info.backup),
        restored_from: VolumeId(info.restored_from),
        owner: info.owner as i32,
        account: info.account,
        in_service: info.in_service != 0,
        blessed: info.blessed != 0,
        destroy_me: 0,
        quota_max_kib: info.quota_max_kib.into(),
        quota_min_kib: info.quota_min_kib.into(),
        created: info.created,
        accessed: info.accessed,
        updated: info.updated,
        expires: info.expires,
        backed_up: info.backed_up,
        copied: if info.copied == UnixTime(0) { now } else { info.copied },
        file_count: 0,
        directory_count: 0,
        used_kib: 0,
        next_unique: info.next_unique,
        update_counter: info.update_counter,
        day_use: info.day_use,
        day_use_date: info.day_use_date,
        week_use: info.week_use,
        offline_message: offline_message(info),
        message_of_the_day: Vec::new(),
        compression: None,
        deduplicates: false,
        snapshot: None,
        stands_for: None,
        unseen: None,
        dated: UnixTime(0),
        restored_at: None,
    }
}

/// Returns the offline message. Volume servers leave a message behind that says they are at work; OpenAFS's
/// file server removes it when it attaches a volume that may go online.
fn offline_message(info: &VolumeInfo) -> Vec<u8> {
    if info.in_service != 0 && info.blessed != 0 { Vec::new() } else { info.offline_message.clone() }
}
