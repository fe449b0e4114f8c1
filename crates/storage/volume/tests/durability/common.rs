//! A writer whose every step is one change that follows from its number alone, so that the expected state
//! after any number of steps is known without a log. Each writer has its own volume.

use base::{Fid, PartitionId, UnixTime, UserId, VolumeId, VolumeType};
use bytes::Bytes;
use rand::rngs::SmallRng;
use rand::{Rng, RngCore, SeedableRng};
use std::collections::BTreeMap;
use std::sync::Arc;
use store::{ChunkAddress, KeyRange, MetaStore};
use volume::{
    Actor, CloneVolume, NewVolume, SetStatus, StoreRequest, Volume, VolumeError, VolumeOptions, Volumes,
    families,
};

/// Names and contents of a writer's files.
pub(crate) type Files = BTreeMap<String, Vec<u8>>;

const FILES: u32 = 6;
pub(crate) const NOTHING: SetStatus =
    SetStatus { mode: None, owner: None, group: None, client_modified: None };

/// Returns options with small chunks, so that there are many.
pub(crate) fn options() -> VolumeOptions {
    VolumeOptions { spare_kib: 0, chunk_shift: 12, inline_bytes_max: 100, ..VolumeOptions::default() }
}

pub(crate) fn partition_id() -> PartitionId {
    PartitionId::from_index(0).unwrap()
}

pub(crate) fn volume_id(writer: u32) -> VolumeId {
    VolumeId(1000 * (writer + 1))
}

pub(crate) fn actor() -> Actor {
    Actor { user: UserId(1), privileged: true, in_transaction: false, call: None, now: UnixTime(1) }
}

/// Returns the writer's volume, creating it if it is missing.
pub(crate) fn volume(volumes: &Volumes, writer: u32) -> Result<Arc<Volume>, VolumeError> {
    let new = NewVolume {
        id: volume_id(writer),
        name: format!("writer.{writer}").parse().unwrap(),
        kind: VolumeType::ReadWrite,
        parent: volume_id(writer),
        quota_max_kib: 0,
        with_root: true,
        in_service: true,
        destroy_me: 0,
        now: UnixTime(1),
    };
    let volume = match volumes.get(new.id) {
        Ok(volume) => volume,
        Err(_) => volumes.create(partition_id(), &new)?,
    };
    // Some writers deduplicate, within their own files and with each other.
    if writer % 3 != 1 && !volume.deduplicates() {
        volume.update_header(|header| header.deduplicates = true)?;
    }
    Ok(volume)
}

/// An action of a writer.
enum Step {
    Create(String),
    /// Cut the file to a length, then write at an offset.
    Store(String, u64, usize, Vec<u8>),
    Remove(String),
    Rename(String, String),
}

/// Returns the step with this number, given the files before it.
fn step(writer: u32, number: u64, files: &Files) -> Step {
    let mut rng = SmallRng::seed_from_u64(number << 8 | u64::from(writer));
    let mut name = || format!("file-{}", rng.random_range(0..FILES));
    let (name, other) = (name(), name());
    let Some(old) = files.get(&name) else { return Step::Create(name) };
    match rng.random_range(0..10) {
        0 => Step::Remove(name),
        1 if name != other => Step::Rename(name, other),
        kind => {
            let mut data = vec![0; rng.random_range(0..20_000)];
            if kind % 2 == 0 {
                data.fill(kind);
            } else {
                rng.fill_bytes(&mut data);
            }
            let offset = rng.random_range(0..=old.len() + 5000);
            let cut = if rng.random() { 0 } else { u64::MAX };
            Step::Store(name, cut, offset, data)
        }
    }
}

fn imagine(step: Step, files: &mut Files) {
    match step {
        Step::Create(name) => _ = files.insert(name, vec![]),
        Step::Remove(name) => _ = files.remove(&name),
        Step::Rename(from, to) => {
            let moved = files.remove(&from).unwrap();
            files.insert(to, moved);
        }
        Step::Store(name, cut, offset, data) => {
            let file = files.get_mut(&name).unwrap();
            file.truncate(usize::try_from(cut).unwrap_or(usize::MAX));
            file.resize(file.len().max(offset + data.len()), 0);
            file[offset..offset + data.len()].copy_from_slice(&data);
        }
    }
}

fn find(volume: &Volume, name: &str) -> Result<Fid, VolumeError> {
    let found = volume.lookup(volume.root(), name.as_bytes())?;
    Ok(Fid { volume: volume.id(), vnode: found.vnode, unique: found.unique })
}

/// Calls StoreData for a file of this volume: cuts it, and writes data at an offset.
pub(crate) type Store<'s> =
    &'s mut dyn FnMut(&Arc<Volume>, Fid, u64, usize, &[u8]) -> Result<(), VolumeError>;

fn really_do(step: &Step, volume: &Arc<Volume>, store: Store<'_>) -> Result<(), VolumeError> {
    let (actor, root) = (actor(), volume.root());
    match step {
        Step::Create(name) => volume.create_file(&actor, root, name.as_bytes(), &NOTHING).map(|_| ()),
        Step::Remove(name) => volume.remove_file(&actor, root, name.as_bytes()).map(|_| ()),
        Step::Rename(from, to) => {
            volume.rename(&actor, root, from.as_bytes(), root, to.as_bytes()).map(|_| ())
        }
        Step::Store(name, cut, offset, data) => store(volume, find(volume, name)?, *cut, *offset, data),
    }
}

/// Calls StoreData.
pub(crate) fn store(
    volume: &Volume,
    fid: Fid,
    cut: u64,
    offset: usize,
    data: &[u8],
) -> Result<(), VolumeError> {
    let (offset, length) = (offset as u64, data.len() as u64);
    let request = StoreRequest { offset, length, file_length: cut, set: NOTHING };
    let mut rest = Bytes::copy_from_slice(data);
    volume
        .store(&actor(), fid, &request, &mut |most: usize| Ok(rest.split_to(rest.len().min(most))))
        .map(|_| ())
}

/// Creates a file with these contents.
pub(crate) fn create(volume: &Volume, name: &str, data: &[u8]) -> Result<Fid, VolumeError> {
    let made = volume.create_file(&actor(), volume.root(), name.as_bytes(), &NOTHING)?;
    let fid = made.status.fid(volume.id());
    store(volume, fid, u64::MAX, 0, data).map(|()| fid)
}

/// Reads a whole file.
pub(crate) fn read(volume: &Arc<Volume>, fid: Fid) -> Vec<u8> {
    let mut reader = volume.reader(fid, 0, u64::MAX).unwrap();
    let mut out = Vec::new();
    while reader.remaining() > 0 {
        out.extend(reader.next(10_000).unwrap().concat());
    }
    out
}

/// Reads all files in the root directory of a volume completely.
pub(crate) fn contents(volume: &Arc<Volume>) -> Files {
    let mut fids = BTreeMap::new();
    let mut visit = |name: &[u8], found: volume::Found| {
        let fid = Fid { volume: volume.id(), vnode: found.vnode, unique: found.unique };
        fids.insert(String::from_utf8(name.to_vec()).unwrap(), fid);
    };
    volume.entries(volume.root(), &mut visit).unwrap();
    let files = fids.into_iter().filter(|(name, _)| !name.starts_with('.'));
    files.map(|(name, fid)| (name, read(volume, fid))).collect()
}

/// A writer and the state expected of it.
#[derive(Clone)]
pub(crate) struct Writer {
    pub(crate) number: u32,
    /// Number of acknowledged steps.
    pub(crate) done: u64,
    /// Files after these steps.
    pub(crate) files: Files,
}

impl Writer {
    pub(crate) fn new(writer: u32) -> Writer {
        Writer { number: writer, done: 0, files: Files::new() }
    }

    /// Returns the writer after `done` steps.
    pub(crate) fn after(writer: u32, done: u64) -> Writer {
        let mut new = Writer::new(writer);
        (0..done).for_each(|_| new.imagine_next());
        new
    }

    fn imagine_next(&mut self) {
        imagine(step(self.number, self.done, &self.files), &mut self.files);
        self.done += 1;
    }

    /// Returns whether the next step stores file data.
    pub(crate) fn stores_next(&self) -> bool {
        matches!(step(self.number, self.done, &self.files), Step::Store(..))
    }

    /// Performs the next step.
    pub(crate) fn next(&mut self, volume: &Arc<Volume>) -> Result<(), VolumeError> {
        self.next_with(volume, &mut |volume, fid, cut, offset, data| store(volume, fid, cut, offset, data))
    }

    /// Performs the next step, and stores file data in this way.
    pub(crate) fn next_with(&mut self, volume: &Arc<Volume>, store: Store<'_>) -> Result<(), VolumeError> {
        really_do(&step(self.number, self.done, &self.files), volume, store)?;
        self.imagine_next();
        Ok(())
    }

    /// Compares with the files found after a crash: everything acknowledged, and possibly the step in
    /// progress.
    pub(crate) fn check_after_crash(&mut self, volume: &Arc<Volume>) {
        let found = contents(volume);
        if found != self.files {
            self.imagine_next();
        }
        self.check(&found);
    }

    /// Compares with the files found.
    pub(crate) fn check(&self, found: &Files) {
        let lengths = |files: &Files| -> Vec<_> {
            files.iter().map(|(name, data)| (name.clone(), data.len())).collect()
        };
        let (writer, done) = (self.number, self.done);
        assert_eq!(lengths(found), lengths(&self.files), "writer {writer} after {done} steps");
        assert!(*found == self.files, "writer {writer} after {done} steps: other bytes");
    }
}

/// Creates a read-only clone of a writer's volume; its id is the volume's plus this number.
pub(crate) fn clone(volumes: &Volumes, writer: u32, number: u32) -> Result<Arc<Volume>, VolumeError> {
    let id = VolumeId(volume_id(writer).0 + 1 + number);
    let name = format!("clone.{id}").parse().unwrap();
    let new = CloneVolume { id, name, kind: VolumeType::ReadOnly, now: UnixTime(1) };
    volumes.clone_volume(volume_id(writer), &new)
}

/// Returns every chunk that metadata names.
pub(crate) fn named(meta: &dyn MetaStore) -> Vec<ChunkAddress> {
    let mut found = Vec::new();
    meta.scan(families::EXTENTS, KeyRange::ascending(&[], &[0xff; 9]), &mut |key, value| {
        found.extend((volume::CHUNK_NAMES.chunk_of)(key, value).unwrap());
        std::ops::ControlFlow::Continue(())
    })
    .unwrap();
    found
}
