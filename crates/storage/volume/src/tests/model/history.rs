//! Random histories of a volume, checked against the reference model.

use super::reference::{Reference, actor};
use crate::tests::crashing::Place;
use crate::tests::segments::Segments;
use crate::tests::support::*;
use crate::{
    Acknowledge, Actor, Commits, CompactionPolicy, FileKind, Pending, Policy, ScrubPolicy, SetStatus,
    SnapshotDue, StoreRequest, Unseen, VnodeStatus, Volume, VolumeError, VolumeHeader, VolumeState,
};
use afs_format::acl::{Acl, AclEntry};
use afs_format::directory::DirectoryBlob;
use base::{AbortCode, Fid, Rights, UnixTime, UserId, VnodeId, VolumeId};
use bytes::Bytes;
use rand::rngs::SmallRng;
use rand::seq::IndexedRandom;
use rand::{Rng, SeedableRng};
use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::ops::Deref;
use std::rc::Rc;
use std::sync::Arc;
use store::{ChunkStore, Codec, MemoryChunks};
use volume_records::families;

/// First id of snapshots.
const SNAPSHOTS: u32 = 1_000_000;

/// First id of the clones that moves send.
const TRAVELS: u32 = 3_000_000;

/// First id of the other volumes.
const OTHERS: u32 = 2_000_000;

const NAMES: [&[u8]; 12] = [
    b"a",
    b"b",
    b"core",
    b"a name that takes two slots",
    b"a name that takes three slots of thirty-two bytes each, no less",
    b"d1",
    b"d2",
    b"d3",
    b".",
    b"..",
    b"bad/name",
    b"",
];

pub(super) struct History {
    random: SmallRng,
    server: Server,
    volume: Arc<Volume>,
    reference: Reference,
    clones: BTreeMap<VolumeId, Reference>,
    /// Another volume on the partition, with the contents of its files.
    other: Option<(VolumeId, BTreeMap<u8, Vec<u8>>)>,
    /// Whether the volumes share equal chunks.
    deduplicates: bool,
    /// States after commits that a crash may lose.
    unsynced: Vec<State>,
    stale: Vec<Fid>,
    /// Uniquifiers allocated since the last crash.
    uniques: BTreeSet<u32>,
    /// Digest of the contents seen for each FID and data version since the last crash.
    shown: BTreeMap<(VnodeId, u32, u64), u64>,
    /// The commits of a step that is performed as a call.
    call: Option<Rc<Commits>>,
    step: u32,
}

/// Number of commits so far, and the state: the volume, its clones, the other volume.
type State = (u64, Reference, BTreeMap<VolumeId, Reference>, Option<(VolumeId, BTreeMap<u8, Vec<u8>>)>);

/// An actor whose changes are part of a call, if there is one.
struct Author {
    actor: Actor,
    call: Option<Rc<Commits>>,
}

impl Deref for Author {
    type Target = Actor;

    fn deref(&self) -> &Actor {
        &self.actor
    }
}

impl Acknowledge for Author {
    fn actor(&self) -> &Actor {
        &self.actor
    }

    fn acknowledge<T>(&self, change: Pending<T>) -> Result<T, VolumeError> {
        match &self.call {
            Some(commits) => Ok(commits.keep(change)),
            None => change.wait(),
        }
    }
}

impl History {
    /// Begins a history with metadata in a database of the engine of `place`.
    pub(super) fn new(seed: u64, place: Place) -> History {
        let mut random = SmallRng::seed_from_u64(seed);
        let mut options = if random.random_bool(0.5) { interval() } else { options() };
        let codecs = [Codec::Raw, Codec::Lz4, Codec::Zstd(3)];
        options.codec = *codecs.choose(&mut random).unwrap();
        options.append_threads = if random.random_bool(0.1) { 2 } else { 0 };
        options.unfolded_directories = random.random_range(0..6);
        let is_encrypted = random.random_bool(0.3);
        let in_segments = random.random_bool(0.4);
        let chunks = if is_encrypted { MemoryChunks::encrypted() } else { MemoryChunks::new() };
        let deduplicates = random.random_bool(0.6);
        let collide = deduplicates && random.random_bool(0.2);
        let chunks = if collide { chunks.with_colliding_digests() } else { chunks };
        let server = if in_segments {
            // The order in which threads access a disk is not deterministic.
            options.append_threads = 0;
            let segments = match place.faults() {
                Some(faults) => Segments::in_bucket(&mut random, is_encrypted, faults),
                None => Segments::new(&mut random, is_encrypted),
            };
            Server::on_segments(place, segments, options)
        } else {
            Server::at(place, chunks, options)
        };
        let volume = server.create(RW, "user.alice");
        volume.update_header(|header| header.deduplicates = deduplicates).unwrap();
        server.volumes.sync().unwrap();
        let reference = Reference::new(volume.status(volume.root()).unwrap());
        let (clones, unsynced, stale) = (BTreeMap::new(), vec![], vec![]);
        let (uniques, shown) = (BTreeSet::new(), BTreeMap::new());
        let (other, call, step) = (None, None, 0);
        let mut history = History {
            random,
            server,
            volume,
            reference,
            clones,
            other,
            deduplicates,
            unsynced,
            stale,
            uniques,
            shown,
            call,
            step,
        };
        history.remember();
        history
    }

    pub(super) fn run(mut self, steps: usize) {
        for step in 0..steps {
            self.step = step as u32;
            self.answered_step();
            self.check_shown();
            check_totals(&self.volume, &self.reference);
            self.remember();
            if step % 10 == 9 || step + 1 == steps {
                self.compare();
            }
        }
        self.finish();
    }

    /// Checks that a FID with a data version never refers to two different contents, whatever is done to the
    /// volume.
    fn check_shown(&mut self) {
        for node in self.reference.nodes.values() {
            let status = &node.status;
            let mut digest = DefaultHasher::new();
            (status.kind as u8, &node.data, &node.entries).hash(&mut digest);
            let (key, digest) = ((status.vnode, status.unique, status.data_version), digest.finish());
            let first = *self.shown.entry(key).or_insert(digest);
            assert_eq!(first, digest, "step {}: {key:?} names other contents than before", self.step);
        }
    }

    fn remember(&mut self) {
        let meta = &self.server.meta.inner;
        if meta.unsynced_commits() == 0 {
            self.unsynced.clear();
        }
        self.unsynced.push((meta.commits(), self.reference.clone(), self.clones.clone(), self.other.clone()));
    }

    /// Performs a step, sometimes as a file server does, which makes the changes durable before it replies.
    fn answered_step(&mut self) {
        if self.random.random_bool(0.7) {
            return self.one_step();
        }
        self.call = Some(Rc::new(Commits::new()));
        self.one_step();
        let commits = self.call.take().and_then(Rc::into_inner).expect("the step is over");
        let (sender, ended) = std::sync::mpsc::channel();
        commits.into_pending(()).when_durable(move |durable| sender.send(durable).unwrap());
        ended.try_recv().expect("nobody else leads").unwrap();
    }

    fn one_step(&mut self) {
        match self.random.random_range(0..136) {
            0..18 => self.create(FileKind::File),
            18..26 => self.create(FileKind::Directory),
            26..30 => self.create(FileKind::SymbolicLink),
            30..50 => self.store(),
            50..55 => self.set_status(),
            55..58 => self.set_acl(),
            58..63 => self.link(),
            63..73 => self.remove(false),
            73..78 => self.remove(true),
            78..88 => self.rename(),
            88..90 => self.set_quota(),
            90..92 => self.clone_volume(),
            92..94 => self.delete_clone(),
            94..95 => *self.server.meta.failures.lock() = 1,
            95..96 => self.sync(),
            96..97 if self.random.random_bool(0.3) => self.fail(),
            96..97 => self.crash(),
            97..98 => self.purge_step(),
            98..99 => self.unload(),
            99..100 => self.reopen(),
            100..102 => self.snapshot(),
            102..104 => self.roll_back(),
            104..106 => self.follow_policy(),
            106..111 => self.compact(),
            111..113 => self.lose_totals(),
            113..122 => self.store_elsewhere(),
            122..125 => self.remove_elsewhere(),
            125..128 => _ = self.server.maintain(),
            128..129 => self.lose_power(),
            129..132 => self.restore_over(),
            132..133 => self.create_anew(),
            133..134 => self.restore_anew(),
            134..135 => self.move_there_and_back(),
            _ => self.scrub_step(),
        }
    }

    fn actor(&self) -> Author {
        Author { actor: actor(self.step), call: self.call.clone() }
    }

    /// Returns any vnode, sometimes a deleted one.
    fn any_fid(&mut self, want: impl Fn(&VnodeStatus) -> bool) -> Fid {
        if self.random.random_bool(0.03)
            && let Some(fid) = self.stale.choose(&mut self.random)
        {
            return *fid;
        }
        let want_all = self.random.random_bool(0.05);
        let all: Vec<Fid> = self
            .reference
            .nodes
            .values()
            .filter(|node| want_all || want(&node.status))
            .map(|node| node.status.fid(RW))
            .collect();
        all.choose(&mut self.random).copied().unwrap_or(self.volume.root())
    }

    fn directory(&mut self) -> Fid {
        self.any_fid(VnodeStatus::is_directory)
    }

    fn name(&mut self) -> &'static [u8] {
        let usual = &NAMES[..8];
        let names = if self.random.random_bool(0.95) { usual } else { &NAMES[..] };
        names.choose(&mut self.random).copied().unwrap_or(b"a")
    }

    fn set(&mut self) -> SetStatus {
        let random = &mut self.random;
        let mut maybe = |value: u32| random.random_bool(0.3).then_some(value);
        SetStatus {
            mode: maybe(0o7711).map(|mode| mode as u16),
            owner: maybe(77).map(|owner| UserId(owner as i32)),
            group: maybe(88).map(|group| group as i32),
            client_modified: maybe(99).map(UnixTime),
        }
    }

    /// Compares a result with the expected one; the expected effect is applied only if the volume succeeded.
    /// A `Store` error is an injected failure.
    fn agree<T>(
        &mut self,
        got: Result<T, VolumeError>,
        expected: Result<(), AbortCode>,
        next: Reference,
    ) -> Option<T> {
        match (got, expected) {
            (Ok(got), Ok(())) => {
                self.reference = next;
                Some(got)
            }
            (Err(VolumeError::Store(_)), Ok(())) => None,
            (Err(error), Err(expected)) => {
                assert_eq!(error.abort_code(), expected, "step {}", self.step);
                None
            }
            (Ok(_), Err(expected)) => panic!("step {}: done, but expected {expected}", self.step),
            (Err(error), Ok(())) => panic!("step {}: {error}", self.step),
        }
    }

    fn create(&mut self, kind: FileKind) {
        let (directory, name, set) = (self.directory(), self.name(), self.set());
        let path = vec![b'p'; self.random.random_range(0..100)];
        let (actor, volume) = (self.actor(), Arc::clone(&self.volume));
        let (got, data, blocks) = match kind {
            FileKind::File => (volume.create_file(&actor, directory, name, &set), &[][..], 1),
            FileKind::Directory => (volume.make_directory(&actor, directory, name, &set), &[][..], 2),
            FileKind::SymbolicLink => {
                (volume.create_symlink(&actor, directory, name, &path, &set), &path[..], 1)
            }
        };
        let expected = self.reference.may_create(directory, name, blocks);
        let mut next = self.reference.clone();
        if let (Ok(created), Ok(())) = (&got, &expected) {
            let target = (created.status.vnode, created.status.unique);
            next.create(&actor, directory, name, (kind, target), data, &set);
        }
        if let Some(created) = self.agree(got, expected, next) {
            self.directory_length(&created.directory);
            self.check_status(&created.status);
            self.check_status(&created.directory);
            assert!(self.uniques.insert(created.status.unique), "a uniquifier comes twice");
            let fid = created.status.fid(RW);
            self.stale.push(Fid { unique: fid.unique + 1, ..fid });
        }
    }

    /// Copies a directory's length from the volume, because the reference does not model how names fill
    /// pages.
    fn directory_length(&mut self, status: &VnodeStatus) {
        let node = self.reference.nodes.get_mut(&status.vnode).unwrap();
        node.status.length = status.length;
    }

    fn check_status(&self, status: &VnodeStatus) {
        assert_eq!(self.reference.nodes[&status.vnode].status, *status, "step {}", self.step);
    }

    fn store(&mut self) {
        let (fid, set) = (self.any_fid(|status| status.kind == FileKind::File), self.set());
        let length = *[0, 1, 10, 255, 256, 257, 600, 2000].choose(&mut self.random).unwrap();
        let offset = *[0u64, 0, 0, 1, 100, 256, 300, 512, 5000].choose(&mut self.random).unwrap();
        let file_length = *[u64::MAX, u64::MAX, 0, 20, 256, 700, 3000].choose(&mut self.random).unwrap();
        let data = self.data(length);
        let request = StoreRequest { offset, length: length as u64, file_length, set };
        let mut rest = Bytes::copy_from_slice(&data);
        let breaks = self.random.random_bool(0.05) && length > 0;
        let actor = self.actor();
        let got = self.volume.store(&actor, fid, &request, &mut |most: usize| {
            if breaks && rest.len() <= length / 2 + 1 {
                return Err(AbortCode::RX_CALL_DEAD);
            }
            Ok(rest.split_to(rest.len().min(most).min(150)))
        });
        let mut next = self.reference.clone();
        let mut expected = next.store(&actor, fid, (offset, &data, file_length), &set);
        if breaks && expected.is_ok() && matches!(got, Err(VolumeError::Transfer(_))) {
            expected = Err(AbortCode::RX_CALL_DEAD);
        }
        if let Some(status) = self.agree(got, expected, next) {
            self.check_status(&status);
        }
    }

    /// Returns data for a file. If chunks are shared, much of it is equal; chunks have 256 bytes.
    fn data(&mut self, length: usize) -> Vec<u8> {
        if self.deduplicates && self.random.random_bool(0.8) {
            let first = self.random.random_range(0..3);
            return (0..length).map(|at| (first + at / 512 % 2) as u8).collect();
        }
        (0..length).map(|at| (at as u32 + self.step) as u8).collect()
    }

    /// Stores a whole file in the other volume, creating the volume if it is missing.
    fn store_elsewhere(&mut self) {
        // Only the last of the following commits may fail.
        let due = std::mem::take(&mut *self.server.meta.failures.lock());
        if self.other.is_none() {
            let id = VolumeId(OTHERS + self.step);
            let volume = self.server.create(id, &format!("other.{}", self.step));
            self.other = Some((id, BTreeMap::new()));
            self.remember();
            volume.update_header(|header| header.deduplicates = self.deduplicates).unwrap();
            self.remember();
        }
        let Some((id, mut files)) = self.other.clone() else { return };
        let volume = self.server.volumes.get(id).unwrap();
        let number: u8 = self.random.random_range(0..3);
        let name = [b'f', b'0' + number];
        if let Entry::Vacant(vacant) = files.entry(number) {
            volume.create_file(&self.actor(), volume.root(), &name, &nothing()).unwrap();
            vacant.insert(vec![]);
        }
        self.other = Some((id, files.clone()));
        self.remember();
        let length = *[0, 100, 256, 512, 700, 2000].choose(&mut self.random).unwrap();
        let data = self.data(length);
        let fid = elsewhere(&volume, number);
        *self.server.meta.failures.lock() = due;
        if store_at(&volume, fid, 0, &data, 0).is_ok() {
            files.insert(number, data);
        }
        self.other = Some((id, files));
    }

    /// Removes a file of the other volume, or the whole volume.
    fn remove_elsewhere(&mut self) {
        let Some((id, mut files)) = self.other.clone() else { return };
        let number = files.keys().copied().collect::<Vec<_>>().choose(&mut self.random).copied();
        if let Some(number) = number.filter(|_| self.random.random_bool(0.7)) {
            let volume = self.server.volumes.get(id).unwrap();
            if volume.remove_file(&self.actor(), volume.root(), &[b'f', b'0' + number]).is_ok() {
                files.remove(&number);
            }
            self.other = Some((id, files));
        } else if self.server.volumes.delete(id).is_ok() {
            self.other = None;
        }
    }

    fn set_status(&mut self) {
        let (fid, set, actor) = (self.any_fid(|_| true), self.set(), self.actor());
        let got = self.volume.set_status(&actor, fid, &set);
        let mut next = self.reference.clone();
        let expected = next.set_status(&actor, fid, &set);
        if let Some(status) = self.agree(got, expected, next) {
            self.check_status(&status);
        }
    }

    fn set_acl(&mut self) {
        let (fid, actor) = (self.directory(), self.actor());
        let entry = AclEntry { id: UserId(self.step as i32), rights: Rights::ALL };
        let acl = Acl::new(&[entry], &[entry]).unwrap();
        let got = self.volume.set_acl(&actor, fid, acl.clone());
        let mut next = self.reference.clone();
        let expected = next.set_acl(&actor, fid, acl);
        self.agree(got, expected, next);
    }

    fn link(&mut self) {
        let target = self.any_fid(|status| status.kind == FileKind::File);
        let parent = self.reference.nodes.get(&target.vnode).map(|node| node.status.parent);
        let mut directory = self.directory();
        if let Some(node) = parent.and_then(|parent| self.reference.nodes.get(&parent)) {
            directory = if self.random.random_bool(0.8) { node.status.fid(RW) } else { directory };
        }
        let (name, actor) = (self.name(), self.actor());
        let got = self.volume.link(&actor, directory, name, target);
        let mut next = self.reference.clone();
        let expected = next.link(&actor, directory, name, target);
        if let Some(linked) = self.agree(got, expected, next) {
            self.directory_length(&linked.directory);
            self.check_status(&linked.status);
            self.check_status(&linked.directory);
        }
    }

    fn remove(&mut self, is_directory: bool) {
        let (directory, name, actor) = (self.directory(), self.name(), self.actor());
        let got = if is_directory {
            self.volume.remove_directory(&actor, directory, name)
        } else {
            self.volume.remove_file(&actor, directory, name)
        };
        let mut next = self.reference.clone();
        let expected = next.remove(&actor, directory, name, is_directory);
        if let Some(removed) = self.agree(got, expected, next) {
            self.check_status(&removed.directory);
            self.check_left(&removed.target);
        }
    }

    fn check_left(&mut self, status: &VnodeStatus) {
        if status.links > 0 {
            self.check_status(status);
        } else {
            assert!(!self.reference.nodes.contains_key(&status.vnode));
            self.stale.push(status.fid(RW));
        }
    }

    fn rename(&mut self) {
        let (old_directory, old_name) = (self.directory(), self.name());
        let (new_directory, new_name) = (self.directory(), self.name());
        let actor = self.actor();
        let got = self.volume.rename(&actor, old_directory, old_name, new_directory, new_name);
        let mut next = self.reference.clone();
        let expected = next.rename(&actor, (old_directory, old_name), (new_directory, new_name));
        if let Some(renamed) = self.agree(got, expected, next) {
            self.directory_length(&renamed.old_directory);
            self.directory_length(&renamed.new_directory);
            self.check_status(&renamed.old_directory);
            self.check_status(&renamed.new_directory);
            self.check_status(&renamed.moved);
            if let Some(replaced) = renamed.replaced {
                self.check_left(&replaced);
            }
        }
    }

    fn set_quota(&mut self) {
        let quota_kib = if self.random.random_bool(0.5) { 0 } else { self.random.random_range(5..60) };
        let policies = [None, Some(Codec::Raw), Some(Codec::Lz4), Some(Codec::Zstd(9))];
        let compression = *policies.choose(&mut self.random).unwrap();
        let deduplicates = self.deduplicates && self.random.random_bool(0.8);
        let change = |header: &mut VolumeHeader| {
            header.quota_max_kib = quota_kib;
            header.compression = compression;
            header.deduplicates = deduplicates;
        };
        if self.volume.update_header(change).is_ok() {
            self.reference.quota_kib = quota_kib;
        }
    }

    fn clone_volume(&mut self) {
        if self.clones.len() < 4 && *self.server.meta.failures.lock() == 0 {
            let id = 1000 + self.step;
            let clone = self.server.clone_rw(id);
            self.reference.is_cloned(clone.header().created);
            self.clones.insert(VolumeId(id), self.reference.clone());
        }
    }

    fn snapshot(&mut self) {
        if self.clones.len() < 6 {
            let id = SNAPSHOTS + self.step;
            if let Ok(snapshot) = self.server.snapshot_rw(id) {
                self.reference.is_cloned(snapshot.header().created);
                self.clones.insert(VolumeId(id), self.reference.clone());
            }
        }
    }

    /// Rolls back to a random snapshot. Data versions rise above all that were shown.
    fn roll_back(&mut self) {
        let ids: Vec<VolumeId> = self.clones.keys().copied().filter(|id| id.0 >= SNAPSHOTS).collect();
        let Some(&id) = ids.choose(&mut self.random) else { return };
        let now = self.actor().now;
        let Ok(volume) = self.server.volumes.roll_back(RW, id, now) else { return };
        let contents = self.clones[&id].clone();
        self.is_replaced(volume, contents, now);
    }

    /// Updates the reference after the volume got the contents of a clone: unchanged if they continue its
    /// history, otherwise with a common data version.
    fn is_replaced(&mut self, volume: Arc<Volume>, mut contents: Reference, now: UnixTime) {
        contents.quota_kib = self.reference.quota_kib;
        let root = volume.root();
        let VnodeStatus { data_version: version, server_modified: date, .. } = volume.status(root).unwrap();
        if version == contents.nodes[&root.vnode].status.data_version {
            contents.dated = contents.dated.max(self.reference.dated);
        } else {
            assert!(date >= now.max(self.reference.dated), "dates do not go back");
            for node in contents.nodes.values_mut() {
                node.status.data_version = version;
                node.status.server_modified = date;
            }
            contents.dated = date;
        }
        self.volume = volume;
        self.reference = contents;
    }

    /// Restores the contents of a clone over a volume, as from a dump of it.
    fn restored(&self, clone: VolumeId, header: VolumeHeader) -> Result<Arc<Volume>, VolumeError> {
        let clone = self.server.volumes.get(clone)?;
        let mut restoration = self.server.volumes.restore(RW)?;
        restoration.take_over_all(&clone)?;
        let header = VolumeHeader { owner: clone.header().owner, updated: clone.header().updated, ..header };
        restoration.finish(&self.server.volumes, header, self.actor().now)
    }

    fn any_clone(&mut self) -> Option<VolumeId> {
        let ids: Vec<VolumeId> = self.clones.keys().copied().collect();
        ids.choose(&mut self.random).copied()
    }

    fn restore_over(&mut self) {
        let Some(clone) = self.any_clone() else { return };
        if let Ok(volume) = self.restored(clone, self.volume.header()) {
            self.is_replaced(volume, self.clones[&clone].clone(), self.actor().now);
        }
    }

    /// Deletes the volume. Injected failures end, so that the following steps neither fail nor are
    /// interrupted by a crash.
    fn delete(&mut self) -> VolumeHeader {
        *self.server.meta.failures.lock() = 0;
        self.server.volumes.delete(RW).unwrap();
        self.volume.header()
    }

    fn create_anew(&mut self) {
        let header = self.delete();
        self.volume = self.server.create(RW, "user.alice");
        self.volume.update_header(|new| new.deduplicates = header.deduplicates).unwrap();
        self.server.volumes.sync().unwrap();
        self.reference = Reference::new(self.volume.status(self.volume.root()).unwrap());
    }

    /// Like `vos restore -overwrite full`, which deletes the volume first.
    fn restore_anew(&mut self) {
        let Some(clone) = self.any_clone() else { return };
        let header = self.delete();
        self.server.create_empty(RW, "user.alice");
        let volume = self.restored(clone, header).unwrap();
        self.server.volumes.sync().unwrap();
        self.is_replaced(volume, self.clones[&clone].clone(), self.actor().now);
    }

    /// Moves the volume away and back; its versions do not change.
    fn move_there_and_back(&mut self) {
        *self.server.meta.failures.lock() = 0;
        let clone = VolumeId(TRAVELS + self.step);
        let copied = self.server.clone_rw(clone.0);
        self.reference.is_cloned(copied.header().created);
        self.volume.set_state(VolumeState::Moved);
        let header = self.delete();
        self.server.create_empty(RW, "user.alice");
        let arriving = VolumeHeader { unseen: Some(Unseen::Arriving), ..header };
        self.restored(clone, arriving).unwrap();
        self.volume = self.server.volumes.get(RW).unwrap();
        self.volume.update_header(|_| {}).unwrap();
        self.server.volumes.delete(clone).unwrap();
        self.server.volumes.sync().unwrap();
    }

    /// Applies a snapshot policy; each step stands for half an hour.
    fn follow_policy(&mut self) {
        let policy = Policy { hourly: self.random.random_range(0..3), daily: 1, weekly: 0, monthly: 1 };
        if self.server.volumes.set_policy(RW, Some(policy)).is_err() {
            return;
        }
        self.remember();
        let (id, now) = (SNAPSHOTS + self.step, UnixTime(1_793_577_600 + self.step * 1800));
        match self.server.volumes.snapshot_due(RW, now).unwrap() {
            SnapshotDue::Make(kept) => {
                if let Ok(snapshot) = self.server.snapshot_kept(id, kept, now) {
                    self.reference.is_cloned(snapshot.header().created);
                    self.clones.insert(VolumeId(id), self.reference.clone());
                }
            }
            SnapshotDue::Nothing => {}
            SnapshotDue::Keep(same, kept) => {
                let of_same = &self.clones[&same.id];
                assert_eq!(
                    of_same.nodes.values().map(|node| &node.data).collect::<Vec<_>>(),
                    self.reference.nodes.values().map(|node| &node.data).collect::<Vec<_>>()
                );
                _ = self.server.volumes.keep_snapshot(&same, kept, UnixTime(0));
            }
        }
        self.remember();
        for outdated in self.server.volumes.outdated_snapshots(RW).unwrap() {
            if self.server.volumes.delete(outdated.id).is_ok() {
                self.clones.remove(&outdated.id);
            }
            self.remember();
        }
        let left = self.server.volumes.snapshots(RW).unwrap().into_iter();
        assert!(left.filter(|one| !one.kept.is_none()).count() <= 5);
    }

    fn delete_clone(&mut self) {
        let ids: Vec<VolumeId> = self.clones.keys().copied().collect();
        if let Some(id) = ids.choose(&mut self.random)
            && self.server.volumes.delete(*id).is_ok()
        {
            self.clones.remove(id);
        }
    }

    /// A failed step is repeated later.
    fn purge_step(&mut self) {
        let _ = self.server.volumes.purge_step();
    }

    /// A failed step changes nothing.
    fn compact(&mut self) {
        let dead_percent = *[1, 20, 50].choose(&mut self.random).unwrap();
        let policy = CompactionPolicy { dead_percent, ..CompactionPolicy::default() };
        for _ in 0..self.random.random_range(1..6) {
            _ = self.server.volumes.compact_step(partition(), policy, UnixTime(self.step));
        }
        self.server.check_compaction(1);
    }

    fn scrub_step(&mut self) {
        _ = self.server.volumes.scrub_step(partition(), ScrubPolicy { period_seconds: 0 }, UnixTime(1));
        assert_eq!(self.server.volumes.quarantine(partition()).unwrap(), []);
    }

    /// Drops the volume for a moment and unloads it.
    fn unload(&mut self) {
        self.let_go();
        self.server.volumes.unload_idle();
        self.volume = self.server.volumes.get(RW).unwrap();
    }

    fn sync(&mut self) {
        self.server.volumes.sync().unwrap();
    }

    /// Drops the totals, as if an older program had created or changed the volume. They are counted some time
    /// later.
    fn lose_totals(&mut self) {
        if self.random.random_bool(0.3) {
            self.server.volumes.sync().unwrap();
            self.let_go();
            self.server.forget_totals();
            self.volume = self.server.volumes.get(RW).unwrap();
            return;
        }
        // A failed count is retried when the volume is loaded.
        while self.server.volumes.count_step().unwrap_or(true) {}
    }

    fn reopen(&mut self) {
        self.server.volumes.sync().unwrap();
        self.let_go();
        self.server.reopen();
        self.volume = self.server.volumes.get(RW).unwrap();
    }

    /// Drops all references to volumes of the server.
    fn let_go(&mut self) {
        let (_other, elsewhere) = Server::with_volume(options());
        self.volume = elsewhere;
    }

    /// Cuts the power during some operations; later ones fail too, until the restart.
    fn lose_power(&mut self) {
        let Some(disk) = self.server.segments.as_ref().and_then(Segments::disk) else { return };
        disk.cut_power_at(disk.operations() + self.random.random_range(0..40));
        for _ in 0..self.random.random_range(1..8) {
            match self.random.random_range(0..10) {
                0..5 => self.store(),
                5..7 => self.store_elsewhere(),
                7 => self.compact(),
                8 => self.purge_step(),
                _ => _ = self.server.maintain(),
            }
            self.remember();
        }
        self.crash();
    }

    /// The disk refuses writes: what is durable can be read until the restart.
    fn fail(&mut self) {
        // A step within a call commits more.
        if self.call.is_some() || !self.server.meta.inner.fail() {
            return self.crash();
        }
        self.recall(0);
        self.server.volumes.revert_failed().unwrap();
        self.volume = self.server.volumes.get(RW).unwrap();
        self.compare_volumes();
        self.restart(0);
    }

    fn crash(&mut self) {
        let kept = self.random.random_range(0..=self.server.meta.inner.unsynced_commits());
        self.recall(kept);
        self.restart(kept);
    }

    /// Returns to the state that has the first `kept` unsynced commits.
    fn recall(&mut self, kept: usize) {
        let meta = &self.server.meta.inner;
        let left = meta.commits() - (meta.unsynced_commits() - kept) as u64;
        // A step may sync and commit again, so the state is found by the count of all commits, not of those
        // since a sync.
        let state = self.unsynced.iter().rfind(|(before, ..)| *before <= left).unwrap();
        (_, self.reference, self.clones, self.other) = state.clone();
    }

    /// Restarts the server after a crash.
    fn restart(&mut self, kept: usize) {
        self.server.crash(kept);
        self.volume = self.server.volumes.get(RW).unwrap();
        self.unsynced.clear();
        self.uniques.clear();
        self.shown.clear();
        self.compare();
    }

    fn compare(&self) {
        self.compare_volumes();
        self.server.check();
    }

    fn compare_volumes(&self) {
        self.reference.check_links();
        check(&self.volume, &self.reference);
        for (id, reference) in &self.clones {
            check(&self.server.volumes.get(*id).unwrap(), reference);
        }
        if let Some((id, files)) = &self.other {
            let volume = self.server.volumes.get(*id).unwrap();
            for (number, data) in files {
                assert_eq!(read_all(&volume, elsewhere(&volume, *number)), *data, "step {}", self.step);
            }
        }
        let listed: Vec<VolumeId> =
            self.server.volumes.snapshots(RW).unwrap().iter().map(|one| one.id).collect();
        let expected: BTreeSet<VolumeId> =
            self.clones.keys().copied().filter(|id| id.0 >= SNAPSHOTS).collect();
        assert_eq!(listed.into_iter().collect::<BTreeSet<_>>(), expected, "the list of snapshots");
        let mut members = self.server.volumes.members(partition(), self.volume.group.id);
        members.sort_unstable();
        let is_member =
            |id: &VolumeId| self.server.volumes.get_any_state(*id).unwrap().group.id == self.volume.group.id;
        let mut expected: Vec<VolumeId> = self.clones.keys().copied().chain([RW]).filter(is_member).collect();
        expected.sort_unstable();
        assert_eq!(members, expected, "who is in the volume's group");
        for fid in &self.stale {
            assert_eq!(self.volume.status(*fid).is_ok(), self.reference.get(*fid).is_ok());
        }
    }

    /// Checks that without clones, deleted volumes and pending chunks, exactly the current state is stored.
    fn finish(mut self) {
        *self.server.meta.failures.lock() = 0;
        for id in self.clones.keys() {
            self.server.volumes.delete(*id).unwrap();
        }
        self.clones.clear();
        if let Some((id, _)) = self.other.take() {
            self.server.volumes.delete(id).unwrap();
        }
        self.reopen();
        self.server.purge();
        while self.server.volumes.count_step().unwrap() {}
        assert!(self.volume.is_counted());
        self.compare();
        assert_eq!(self.server.records(families::VNODES).len(), self.reference.nodes.len());
        let directories = self.reference.nodes.values().filter(|node| node.status.is_directory()).count();
        assert_eq!(self.server.records(families::TOTALS).len(), directories);
        let entries: usize = self.reference.nodes.values().map(|node| node.entries.len()).sum();
        assert_eq!(self.server.records(families::ENTRIES).len(), entries);
        let named = self.server.records(families::EXTENTS).iter().all(|(_, value)| !value.is_empty());
        assert!(named, "a deletion is left in the extents");
        if self.unsynced_never_lost() {
            self.server.check_chunks();
        }
        self.server.compact(1);
        self.server.scrub(1);
        assert_eq!(self.server.volumes.scrub_statistics(partition()).unwrap().damages, 0);
        self.compare();
        if self.unsynced_never_lost() {
            self.server.check_chunks();
            assert_eq!(self.server.chunks.sparse_segments(1), [], "all that is dead can be given back");
        }
        self.finish_without_volumes();
    }

    /// Checks that with the last volume, the shared chunks are gone too.
    fn finish_without_volumes(mut self) {
        self.server.volumes.delete(RW).unwrap();
        self.reopen_empty();
        self.server.purge();
        assert_eq!(self.server.records(families::EXTENTS), []);
        let left = self.server.volumes.deduplication(partition()).unwrap();
        assert_eq!((left.chunks, left.names, left.stored_bytes, left.saved_bytes), (0, 0, 0, 0));
        if self.unsynced_never_lost() {
            assert_eq!(self.server.chunks.live_chunks(), 0);
        }
        assert!(
            self.server.segments.is_none() || self.server.maintain(),
            "a segment without a live chunk is left"
        );
    }

    fn reopen_empty(&mut self) {
        self.server.volumes.sync().unwrap();
        self.let_go();
        self.server.reopen();
    }

    /// Whether unnamed chunks after a crash are excluded. The store reclaims them in segments, but not in
    /// memory.
    fn unsynced_never_lost(&self) -> bool {
        self.server.segments.is_none() && self.server.options.durability == crate::Durability::Always
    }
}

/// Returns a file of the other volume.
fn elsewhere(volume: &Volume, number: u8) -> Fid {
    let found = volume.lookup(volume.root(), &[b'f', b'0' + number]).unwrap();
    Fid { volume: volume.id(), vnode: found.vnode, unique: found.unique }
}

/// Compares every directory's totals with a recursive sum.
fn check_totals(volume: &Volume, reference: &Reference) {
    for node in reference.nodes.values().filter(|node| node.status.is_directory()) {
        let fid = node.status.fid(volume.id());
        match volume.totals(fid) {
            Ok(totals) => assert_eq!(totals, reference.totals(fid.vnode), "below {:?}", fid.vnode),
            Err(error) => assert!(!volume.is_counted(), "{error}"),
        }
    }
}

/// Compares statuses that are read together, from memory and from the store, with those read one by one.
fn check_together(volume: &Volume, reference: &Reference) {
    let mut fids: Vec<Fid> = reference.nodes.values().map(|node| node.status.fid(volume.id())).collect();
    fids.rotate_left(reference.nodes.len() / 3);
    fids.extend(fids.first().map(|fid| Fid { unique: fid.unique + 1, ..*fid }));
    fids.push(Fid { vnode: VnodeId(1 << 20), ..volume.root() });
    let reported = |volume: &Volume| {
        let reported = fids.chunks(50).flat_map(|some| volume.statuses_and_acls(some));
        reported.map(Result::ok).collect::<Vec<_>>()
    };
    let from_memory = reported(volume);
    // Only sometimes, so that entries that stay cached for long are compared too.
    if volume.header().update_counter.is_multiple_of(3) {
        volume.shared.caches.purge(volume.view().instance);
        assert!(reported(volume) == from_memory, "from the store");
    }
    let one_by_one: Vec<_> = fids.iter().map(|fid| volume.status_and_acl(*fid).ok()).collect();
    assert!(from_memory == one_by_one, "one by one");
    for (some, expected) in fids.chunks(50).zip(one_by_one.chunks(50)) {
        let expected: Option<Vec<_>> = expected.iter().cloned().collect();
        let reported = volume.with_cached_statuses(some, |found| Some(found.to_vec()));
        // They have just been read, but may not all fit in the cache.
        assert!(reported.is_none() || reported == expected, "at hand");
    }
}

fn check(volume: &Arc<Volume>, reference: &Reference) {
    check_totals(volume, reference);
    check_together(volume, reference);
    let header = volume.header();
    assert_eq!(header.used_kib, reference.used_kib(), "used blocks");
    assert_eq!(header.file_count, reference.nodes.len() as u64 - 1, "vnodes");
    let directories = reference.nodes.values().filter(|node| node.status.is_directory()).count();
    assert_eq!(header.directory_count, directories as u64 - 1);
    assert_eq!(header.owner, reference.owner);
    let mut seen = Vec::new();
    volume
        .vnodes(VnodeId(0), &mut |status| {
            seen.push(status.vnode);
            true
        })
        .unwrap();
    assert_eq!(seen, reference.nodes.keys().copied().collect::<Vec<_>>());
    for node in reference.nodes.values() {
        let fid = node.status.fid(volume.id());
        let (status, acl) = volume.status_and_acl(fid).unwrap();
        assert_eq!(status, node.status);
        let governor =
            reference.nodes.get(&node.status.parent).filter(|_| node.acl.is_none()).unwrap_or(node);
        assert_eq!(Some(&*acl), governor.acl.as_ref());
        let data = read_all(volume, fid);
        if node.status.is_directory() {
            let blob = DirectoryBlob::parse(&data.into()).unwrap();
            let entries: BTreeMap<Vec<u8>, (VnodeId, u32)> =
                blob.entries().map(|(name, target)| (name.to_vec(), (target.vnode, target.unique))).collect();
            assert_eq!(entries, node.entries);
        } else {
            assert_eq!(data, node.data);
        }
    }
}
