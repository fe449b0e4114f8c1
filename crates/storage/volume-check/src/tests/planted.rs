//! Tests the check: each kind of damage is planted in a sound partition, one at a time, and must be found at
//! its location and as what it is; nothing else may be found.

mod sharing;

use super::support::{actor, new_volume, nothing, open, run, store};
use crate::{Check, CheckOptions, CheckReport, Checkpoint, check};
use afs_format::directory::EntryTarget;
use base::{CallId, Fid, SnapshotName, UnixTime, VnodeId, VolumeId, VolumeType};
use bytes::Bytes;
use disk::{Disk, FaultyDisk, File, Garbling, Torn};
use std::io::IoSlice;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use store::{
    Batch, ChunkAddress, Family, KeyRange, MemoryMeta, MetaStore, Reserve, SegmentAudit, SegmentConfig,
    SegmentStore,
};
use volume::{CloneVolume, Kept, Policy, SnapshotOf, Volume, VolumeOptions, Volumes};
use volume_records::codec::{self, Counters, Entry, Extent, Job, StoredHeader, Vnode};
use volume_records::totals::{Totals, Unfolded};
use volume_records::{ListedHost, families, keys};

const FOLDER: &str = "/segments";
const WRITER: VolumeId = VolumeId(1000);
const CLONE: VolumeId = VolumeId(1001);
const OTHER: VolumeId = VolumeId(2000);
/// Group and epoch of the writer.
const GROUP: u64 = 1;
const EPOCH: u64 = 2;

/// A partition that was closed cleanly: a volume with a tree, a clone of it that differs, and another volume.
struct World {
    disk: FaultyDisk,
    meta: Arc<MemoryMeta>,
    /// Two files and two directories of the writer; `/first`, `/second`, `/outer`, `/outer/inner`.
    first: Fid,
    second: Fid,
    outer: Fid,
    inner: Fid,
}

fn write(volume: &Volume, fid: Fid, byte: u8) {
    store(volume, fid, 0, &[byte; 10_000], 0).unwrap();
}

fn serve(disk: &FaultyDisk, meta: &Arc<MemoryMeta>) -> (Arc<SegmentStore>, Volumes) {
    let config = SegmentConfig {
        segment_bytes: 1 << 20,
        cache_bytes: 0,
        open_files_max: 4,
        reserve: Reserve { bytes: 0, permille: 0 },
        unsynced_bytes_max: 1 << 20,
        aligned_bytes_min: 64 << 10,
    };
    let chunks = SegmentStore::open(Arc::new(disk.clone()), Path::new(FOLDER), Arc::clone(meta) as _, config);
    let chunks = Arc::new(chunks.unwrap());
    let options = VolumeOptions { chunk_shift: 12, inline_bytes_max: 100, ..VolumeOptions::default() };
    (Arc::clone(&chunks), open(Arc::clone(meta) as _, chunks, options))
}

impl World {
    fn new() -> World {
        let disk = FaultyDisk::new(1, Garbling { torn: Torn::Byte, noise: false, short: false });
        disk.create_dir(Path::new(FOLDER)).unwrap();
        let meta = Arc::new(MemoryMeta::new());
        let (_chunks, volumes) = serve(&disk, &meta);
        let partition = volumes.partitions()[0];
        let volume = volumes.create(partition, &new_volume(WRITER)).unwrap();
        volumes.create(partition, &new_volume(OTHER)).unwrap();
        let root = volume.root();
        let file = |name: &[u8]| {
            let fid = volume.create_file(&actor(1), root, name, &nothing()).unwrap().status.fid(WRITER);
            write(&volume, fid, 0);
            write(&volume, fid, 1);
            fid
        };
        let (first, second) = (file(b"first"), file(b"second"));
        let directory = |above: Fid, name: &[u8]| {
            volume.make_directory(&actor(1), above, name, &nothing()).unwrap().status.fid(WRITER)
        };
        let outer = directory(root, b"outer");
        let inner = directory(outer, b"inner");
        let (name, now) = ("clone".parse().unwrap(), UnixTime(2));
        volumes
            .clone_volume(WRITER, &CloneVolume { id: CLONE, name, kind: VolumeType::ReadOnly, now })
            .unwrap();
        write(&volume, first, 2);
        volume.create_file(&actor(1), inner, b"later", &nothing()).unwrap();
        World { disk, meta, first, second, outer, inner }
    }

    fn check(&self) -> CheckReport {
        let segments =
            SegmentAudit::open(Arc::new(self.disk.clone()), Path::new(FOLDER), &*self.meta).unwrap();
        check(&*self.meta, Some(&segments), CheckOptions { data: true }, &mut |_| {})
    }

    fn put(&self, family: Family, key: Vec<u8>, value: impl Into<Vec<u8>>) {
        let mut batch = Batch::new();
        batch.put(family, key, value);
        self.meta.commit(batch).unwrap();
    }

    fn delete(&self, family: Family, key: Vec<u8>) {
        let mut batch = Batch::new();
        batch.delete(family, key);
        self.meta.commit(batch).unwrap();
    }

    fn get(&self, family: Family, key: &[u8]) -> Vec<u8> {
        self.meta.get(family, key).unwrap().unwrap().to_vec()
    }

    /// Returns the key of the newest version of a record.
    fn newest(&self, family: Family, prefix: &[u8]) -> Vec<u8> {
        let (from, to) = keys::versions(prefix, u64::MAX);
        let mut found = None;
        let mut first = |key: &[u8], _: &[u8]| {
            found = Some(key.to_vec());
            ControlFlow::Break(())
        };
        self.meta.scan(family, KeyRange::ascending(&from, &to), &mut first).unwrap();
        found.unwrap()
    }

    fn change_vnode(&self, fid: Fid, change: impl FnOnce(&mut Vnode)) {
        let key = self.newest(families::VNODES, &keys::vnode(GROUP, fid.vnode));
        let mut vnode = codec::get_vnode(fid.vnode, &self.get(families::VNODES, &key)).unwrap();
        change(&mut vnode);
        self.put(families::VNODES, key, codec::put_vnode(&vnode));
    }

    fn change_entry(&self, directory: Fid, name: &[u8], change: impl FnOnce(&mut Entry)) {
        let key = self.newest(families::ENTRIES, &keys::entry(GROUP, directory.vnode, name));
        let mut entry = codec::get_entry(&self.get(families::ENTRIES, &key)).unwrap();
        change(&mut entry);
        self.put(families::ENTRIES, key, codec::put_entry(&entry));
    }

    fn change_counters(&self, change: impl FnOnce(&mut Counters)) {
        let mut counters = codec::get_counters(&self.get(families::VOLUMES, &keys::counters(OTHER))).unwrap();
        change(&mut counters);
        self.put(families::VOLUMES, keys::counters(OTHER), codec::put_counters(&counters));
    }

    /// Returns the key of the newest totals of a directory.
    fn totals(&self, directory: Fid) -> Vec<u8> {
        self.newest(families::TOTALS, &keys::vnode(GROUP, directory.vnode))
    }

    fn change_totals(&self, directory: Fid, change: impl FnOnce(&mut Totals)) {
        let key = self.totals(directory);
        let mut totals = codec::get_totals(&self.get(families::TOTALS, &key)).unwrap();
        change(&mut totals);
        self.put(families::TOTALS, key, codec::put_totals(&totals));
    }

    fn change_header(&self, id: VolumeId, change: impl FnOnce(&mut StoredHeader)) {
        let counters = codec::get_counters(&self.get(families::VOLUMES, &keys::counters(id))).unwrap();
        let mut stored =
            codec::get_header(&self.get(families::VOLUMES, &keys::header(id)), &counters).unwrap();
        change(&mut stored);
        self.put(families::VOLUMES, keys::header(id), codec::put_header(&stored));
    }

    /// Returns the key and address of a chunk of the second file, which both volumes contain.
    fn extent(&self, index: u64) -> (Vec<u8>, ChunkAddress, u32) {
        let file = keys::FileKey { group: GROUP, vnode: self.second.vnode, unique: self.second.unique };
        let key = self.newest(families::EXTENTS, &file.extent(index));
        match codec::get_extent(&self.get(families::EXTENTS, &key)).unwrap() {
            Extent::Chunk { address, length } => (key, address, length),
            Extent::Inline(_) | Extent::Sealed(_) | Extent::Shared { .. } => {
                unreachable!("it is larger than what is stored inline")
            }
        }
    }

    fn put_extent(&self, index: u64, extent: &Extent) {
        self.put(families::EXTENTS, self.extent(index).0, codec::put_extent(extent));
    }

    fn segment(&self) -> PathBuf {
        Path::new(FOLDER).join(format!("{:016x}.seg", self.extent(0).1.segment))
    }

    fn segment_file(&self) -> Arc<dyn File> {
        self.disk.open(&self.segment()).unwrap()
    }

    /// Changes `dead` in the account of the segment.
    fn change_dead(&self, change: impl FnOnce(u64) -> u64) {
        let key = self.extent(0).1.segment.to_be_bytes().to_vec();
        let mut row = self.get(Family::SEGMENTS, &key);
        let dead = u64::from_be_bytes(row[10..].try_into().unwrap());
        row[10..].copy_from_slice(&change(dead).to_be_bytes());
        self.put(Family::SEGMENTS, key, row);
    }

    fn root_entry(name: &[u8]) -> Vec<u8> {
        keys::versioned(&keys::entry(GROUP, VnodeId::ROOT, name), 1)
    }
}

/// Plants one kind of damage.
type Plant = fn(&World);

/// Name of the damage, how to plant it, and part of the line that must report it.
type Case = (&'static str, Plant, &'static str);

fn job(world: &World, job: &Job) {
    let value = codec::put_job(job);
    world.put(families::VOLUMES, keys::job(&value), value);
}

const REGISTRY: &[Case] = &[
    ("garbage among the volumes", |w| w.put(families::VOLUMES, vec![0, 1, 2], [1]), "cannot be read"),
    ("a torn header", |w| w.put(families::VOLUMES, keys::header(OTHER), [1, 2, 3]), "cannot be read"),
    ("a header of another id", |w| w.change_header(OTHER, |h| h.header.id = VolumeId(7)), "cannot be read"),
    ("lost counters", |w| w.delete(families::VOLUMES, keys::counters(OTHER)), "there are no counters"),
    ("a lost header", |w| w.delete(families::VOLUMES, keys::header(OTHER)), "there is no header"),
    ("a lost volume", lose_volume, "no volume is in group 2"),
    ("a torn job", |w| w.put(families::VOLUMES, keys::job(&[1, 9]), [1, 9]), "cannot be read"),
    (
        "a job for a living group",
        |w| job(w, &Job::Group { group: 2 }),
        "volume 2000, group 2: a purge job is to delete all of it",
    ),
    ("two writers", |w| w.change_header(OTHER, |h| h.group = GROUP), "writes too"),
    (
        "an epoch of the future",
        |w| w.change_header(CLONE, |h| h.read_view.epoch = 9),
        "epoch 9 is not below 2",
    ),
    (
        "a group id to be given out again",
        |w| w.put(Family::SYSTEM, keys::next_id(), 2u64.to_be_bytes()),
        "2 is the next to be assigned, but 2 is in use",
    ),
    (
        "a snapshot that is not in the list",
        |w| w.change_header(CLONE, |h| h.header.snapshot = Some(SnapshotOf { volume: WRITER, name: name() })),
        "has no monday",
    ),
    ("a list with what is no snapshot", list_clone, "its snapshot monday: volume"),
    (
        "a list with a name that is none",
        |w| w.put(families::VOLUMES, [keys::snapshot(WRITER, &name()), vec![b'/']].concat(), [1; 18]),
        "cannot be read",
    ),
    (
        "a policy of no volume",
        |w| w.put(families::VOLUMES, keys::policy(CLONE), codec::put_policy(Policy::default())),
        "there is no such read-write volume",
    ),
    (
        "a host with a record that is none",
        |w| w.put(Family::SYSTEM, keys::listed_host(([10, 0, 0, 1], 7001).into()), [1; 16]),
        "cannot be read",
    ),
    ("a host without address", |w| w.put(Family::SYSTEM, b"hosts/short".to_vec(), [1; 17]), "cannot be read"),
    ("a lock of no file", |w| w.put(Family::SYSTEM, b"locks/short".to_vec(), [1; 5]), "cannot be read"),
    (
        "a lock that is none",
        |w| w.put(Family::SYSTEM, keys::lock(FILE), codec::put_lock(0)),
        "cannot be read",
    ),
    (
        "a result that is none",
        |w| w.put(Family::SYSTEM, keys::recorded_call(CALL), [1; 20]),
        "cannot be read",
    ),
    ("a result of no call", |w| w.put(Family::SYSTEM, b"results/short".to_vec(), [1; 9]), "cannot be read"),
    (
        "a number of deleted results that is none",
        |w| w.put(Family::SYSTEM, keys::deleted_results(7), [1; 8]),
        "cannot be read",
    ),
    ("a lost id counter", |w| w.delete(Family::SYSTEM, keys::next_id()), "it is missing"),
];

const FILE: Fid = Fid { volume: VolumeId(9), vnode: VnodeId(2), unique: 1 };
const CALL: CallId = CallId { process: 7, number: 1 };

fn name() -> SnapshotName {
    "monday".parse().unwrap()
}

fn list_clone(world: &World) {
    let (made, expires) = (UnixTime(1), UnixTime(0));
    let listed = codec::SnapshotRecord { id: CLONE, made, expires, kept: Kept::default(), changes: 0 };
    world.put(families::VOLUMES, keys::snapshot(WRITER, &name()), codec::put_snapshot(&listed));
}

fn lose_volume(world: &World) {
    world.delete(families::VOLUMES, keys::header(OTHER));
    world.delete(families::VOLUMES, keys::counters(OTHER));
}

const RECORDS: &[Case] = &[
    ("a short key", |w| w.put(families::VNODES, vec![0, 0, 1], [1]), "the key cannot be read"),
    (
        "a torn value",
        |w| w.put(families::ENTRIES, World::root_entry(b"outer"), [1]),
        "the value cannot be read",
    ),
    (
        "a version of the future",
        |w| w.put(families::VNODES, keys::versioned(&keys::vnode(GROUP, w.inner.vnode), 7), []),
        "it was created in epoch 7, the newest is 2",
    ),
    ("a version that nobody reads", leave_version, "no volume reads the version of epoch 3"),
];

/// Advances the writer by two epochs, so that nothing reads a version born in between.
fn leave_version(world: &World) {
    world.change_header(WRITER, |header| header.read_view.epoch = 4);
    let prefix = keys::vnode(GROUP, world.outer.vnode);
    let value = world.get(families::VNODES, &world.newest(families::VNODES, &prefix));
    for epoch in [3, 4] {
        world.put(families::VNODES, keys::versioned(&prefix, epoch), value.clone());
    }
}

const TREE: &[Case] = &[
    (
        "a wrong link count of a file",
        |w| w.change_vnode(w.first, |v| v.status.links = 2),
        "counted 1, stored 2",
    ),
    (
        "a wrong link count of a directory",
        |w| w.change_vnode(w.outer, |v| v.status.links = 9),
        "counted 3, stored 9",
    ),
    (
        "an orphan",
        |w| w.delete(families::ENTRIES, World::root_entry(b"second")),
        "vnode 4.3: no name refers to it",
    ),
    (
        "a name that leads nowhere",
        |w| w.delete(families::VNODES, w.newest(families::VNODES, &keys::vnode(GROUP, w.second.vnode))),
        "name second: leads to vnode 4.3, which does not exist",
    ),
    (
        "a name of another uniquifier",
        |w| w.change_entry(root(), b"second", |entry| entry.target.unique = 77),
        "leads to vnode 4.77, which does not exist",
    ),
    (
        "another parent",
        |w| w.change_vnode(w.first, |v| v.status.parent = w.inner.vnode),
        "refers to a vnode whose directory is",
    ),
    ("a wrong `.`", |w| w.change_entry(w.outer, b".", |entry| entry.target.unique = 5), "name .: leads to"),
    ("a wrong `..`", |w| w.change_entry(w.inner, b"..", |entry| entry.target = up()), "name ..: leads to"),
    (
        "no `..`",
        |w| {
            w.delete(
                families::ENTRIES,
                w.newest(families::ENTRIES, &keys::entry(GROUP, w.outer.vnode, b"..")),
            );
        },
        "`.` or `..` is missing",
    ),
    (
        "entries that overlap",
        |w| w.change_entry(root(), b"first", |entry| entry.slot = 13),
        "entries overlap",
    ),
    (
        "a directory that is too short",
        |w| w.change_vnode(w.outer, |v| v.status.length = 0),
        "its pages cannot be built",
    ),
    ("a ring of directories", make_ring, "cannot be reached from the root"),
    ("directories without entries", drop_entries, "not even `.`"),
    (
        "entries without a directory",
        |w| w.put(families::ENTRIES, stray(), up_entry()),
        "but no such directory",
    ),
    ("a file with a directory's number", odd_file, "directories have odd numbers"),
    ("no root", lose_root, "there is no root directory"),
    ("a wrong sum of blocks", |w| w.change_counters(|c| c.used_kib += 1), "blocks used: counted 2, stored 3"),
    ("a wrong number of files", |w| w.change_counters(|c| c.file_count = 5), "counted 0, stored 5"),
    (
        "a wrong number of directories",
        |w| w.change_counters(|c| c.directory_count = 5),
        "counted 0, stored 5",
    ),
    ("vnode numbers to be given out again", reuse_numbers, "are the next to be assigned"),
];

fn root() -> Fid {
    Fid::root(WRITER)
}

fn up() -> EntryTarget {
    EntryTarget { vnode: VnodeId::ROOT, unique: 1 }
}

fn stray() -> Vec<u8> {
    keys::versioned(&keys::entry(GROUP, VnodeId(99), b"x"), EPOCH)
}

fn up_entry() -> Vec<u8> {
    codec::put_entry(&Entry { target: up(), slot: 20, sequence: 1 })
}

/// Makes `outer` a child of `inner`, which is a child of `outer`.
fn make_ring(world: &World) {
    let key = world.newest(families::ENTRIES, &keys::entry(GROUP, VnodeId::ROOT, b"outer"));
    world.delete(families::ENTRIES, key);
    let target = EntryTarget { vnode: world.outer.vnode, unique: world.outer.unique };
    let key = keys::versioned(&keys::entry(GROUP, world.inner.vnode, b"outer"), EPOCH);
    world.put(families::ENTRIES, key, codec::put_entry(&Entry { target, slot: 30, sequence: 99 }));
    let inner = EntryTarget { vnode: world.inner.vnode, unique: world.inner.unique };
    world.change_entry(world.outer, b"..", |entry| entry.target = inner);
    world.change_vnode(world.outer, |vnode| {
        vnode.status.parent = inner.vnode;
        vnode.status.parent_unique = inner.unique;
    });
}

fn drop_entries(world: &World) {
    let (from, to) = keys::entry_range(GROUP, world.inner.vnode);
    let mut batch = Batch::new();
    let mut forget = |key: &[u8], _: &[u8]| {
        batch.delete(families::ENTRIES, key);
        ControlFlow::Continue(())
    };
    world.meta.scan(families::ENTRIES, KeyRange::ascending(&from, &to), &mut forget).unwrap();
    world.meta.commit(batch).unwrap();
}

fn odd_file(world: &World) {
    world.change_vnode(world.inner, |vnode| {
        vnode.status.kind = volume::FileKind::File;
        vnode.acl = None;
    });
}

fn lose_root(world: &World) {
    let key = world.newest(families::VNODES, &keys::vnode(GROUP, VnodeId::ROOT));
    world.delete(families::VNODES, key);
}

fn reuse_numbers(world: &World) {
    let key = keys::counters(WRITER);
    let mut counters = codec::get_counters(&world.get(families::VOLUMES, &key)).unwrap();
    counters.next_file = 4;
    world.put(families::VOLUMES, key, codec::put_counters(&counters));
}

const TOTALS: &[Case] = &[
    (
        "a torn record of totals",
        |w| w.put(families::TOTALS, w.totals(w.outer), [1]),
        "the value cannot be read",
    ),
    ("a wrong sum of bytes", |w| w.change_totals(w.outer, |t| t.bytes += 1), "directory 3: totals: counted"),
    ("a wrong sum of blocks", |w| w.change_totals(root(), |t| t.kib -= 1), "directory 1: totals: counted"),
    ("a wrong sum of files", |w| w.change_totals(w.inner, |t| t.files += 1), "directory 5: totals: counted"),
    (
        "a wrong sum of directories",
        |w| w.change_totals(root(), |t| t.directories += 1),
        "directory 1: totals: counted",
    ),
    (
        "lost totals",
        |w| w.delete(families::TOTALS, w.totals(w.inner)),
        "directory 5: there are no totals of this directory",
    ),
    (
        "totals of a version that a clone reads",
        |w| w.put(families::TOTALS, keys::versioned(&keys::vnode(GROUP, w.outer.vnode), 1), zeros()),
        "volume 1001, directory 3: totals: counted",
    ),
    (
        "totals of no directory",
        |w| w.put(families::TOTALS, keys::versioned(&keys::vnode(GROUP, VnodeId(99)), EPOCH), zeros()),
        "directory 99: there are totals, but no such directory",
    ),
    (
        "something came to no directory",
        |w| unfold(w, VnodeId(99)),
        "directory 99: the counters include totals",
    ),
    ("something came to a wrong directory", |w| unfold(w, w.outer.vnode), "directory 3: totals: counted"),
];

fn zeros() -> Vec<u8> {
    codec::put_totals(&Totals::default())
}

fn unfold(world: &World, directory: VnodeId) {
    let key = keys::counters(WRITER);
    let mut counters = codec::get_counters(&world.get(families::VOLUMES, &key)).unwrap();
    counters.unfolded = Unfolded::new([(directory, Totals { bytes: 7, ..Totals::default() })]);
    world.put(families::VOLUMES, key, codec::put_counters(&counters));
}

const DATA: &[Case] = &[
    (
        "data behind a file's end",
        |w| w.change_vnode(w.second, |v| v.status.length = 100),
        "are past the file's length",
    ),
    ("data of no file", orphan_data, "there is no such file"),
    ("data of a directory", directory_data, "a directory has no data of its own"),
    ("two records of one chunk", share_chunk, "two records refer to the same place"),
    ("a chunk of no segment", |w| move_chunk(w, |a| a.segment = 99), "no such segment"),
    ("a chunk behind the end", |w| move_chunk(w, |a| a.offset += 1 << 30), "before the chunk does"),
    ("a chunk at a wrong place", |w| move_chunk(w, |a| a.stored_bytes -= 1), "damaged data"),
    ("more than a chunk holds", |w| lengthen(w), "exceed a chunk of the file"),
    ("a flipped bit in a chunk", |w| flip(w, 40), "chunk 0, epoch 1: damaged data"),
    ("a flipped bit in a chunk's header", |w| flip(w, 1), "chunk 0, epoch 1: damaged data"),
    (
        "a flipped bit in a segment's header",
        |w| w.disk.flip_bit(&w.segment(), 9, 1).unwrap(),
        "the header is not that of",
    ),
    ("a lost segment", |w| w.disk.remove(&w.segment()).unwrap(), "no such segment"),
    ("a cut segment", |w| w.segment_file().set_len(100).unwrap(), "before the chunk does"),
    ("zeros in a segment", zero, "chunk 0, epoch 1: damaged data"),
];

const ACCOUNTS: &[Case] = &[
    ("living bytes counted as dead", |w| w.change_dead(|dead| dead + 1), "are counted as dead, but only"),
    ("dead bytes forgotten", |w| w.change_dead(|dead| dead - 1), "are unreferenced, but only"),
    (
        "a torn account",
        |w| w.put(Family::SEGMENTS, w.extent(0).1.segment.to_be_bytes().to_vec(), [1]),
        "cannot be read",
    ),
];

fn orphan_data(world: &World) {
    let file = keys::FileKey { group: GROUP, vnode: VnodeId(500), unique: 500 };
    let inline = Extent::Inline(Bytes::from_static(b"lost"));
    world.put(families::EXTENTS, keys::versioned(&file.extent(0), EPOCH), codec::put_extent(&inline));
}

fn directory_data(world: &World) {
    let file = keys::FileKey { group: GROUP, vnode: world.outer.vnode, unique: world.outer.unique };
    let inline = Extent::Inline(Bytes::from_static(b"odd"));
    world.put(families::EXTENTS, keys::versioned(&file.extent(0), EPOCH), codec::put_extent(&inline));
}

fn share_chunk(world: &World) {
    let (_, address, length) = world.extent(0);
    world.put_extent(1, &Extent::Chunk { address, length });
}

fn move_chunk(world: &World, change: fn(&mut ChunkAddress)) {
    let (_, mut address, length) = world.extent(1);
    change(&mut address);
    world.put_extent(1, &Extent::Chunk { address, length });
}

fn lengthen(world: &World) {
    let (_, address, _) = world.extent(0);
    world.put_extent(0, &Extent::Chunk { address, length: 4097 });
}

fn flip(world: &World, at: u64) {
    world.disk.flip_bit(&world.segment(), world.extent(0).1.offset + at, 3).unwrap();
}

fn zero(world: &World) {
    let offset = world.extent(0).1.offset;
    world.segment_file().write_all_at(&mut [IoSlice::new(&[0; 64])], offset).unwrap();
}

#[test]
fn every_kind_of_planted_damage_is_found() {
    for (name, plant, expected) in [REGISTRY, RECORDS, TREE, TOTALS, DATA, ACCOUNTS].concat() {
        let world = World::new();
        plant(&world);
        let report = world.check();
        let lines: Vec<String> = report.damages.iter().map(ToString::to_string).collect();
        assert!(lines.iter().any(|line| line.contains(expected)), "{name}: {lines:#?}");
        assert_eq!(report.damage_count, lines.len() as u64);
    }
}

/// Checks a partition while it is served.
fn check_online(volumes: &Volumes) -> CheckReport {
    let check = Check::new(CheckOptions { data: true }, 100, Checkpoint::default());
    run(volumes, &check).expect("no thread stops it")
}

#[test]
fn every_kind_of_planted_damage_is_found_while_serving() {
    for (name, plant, expected) in [REGISTRY, RECORDS, TREE, DATA, ACCOUNTS].concat() {
        if name == "dead bytes forgotten" {
            // On a running server, accounts may lag on the safe side.
            continue;
        }
        let world = World::new();
        let (_chunks, volumes) = serve(&world.disk, &world.meta);
        assert!(check_online(&volumes).is_clean(), "{name}");
        plant(&world);
        let (offline, report) = (world.check(), check_online(&volumes));
        let lines: Vec<String> = report.damages.iter().map(ToString::to_string).collect();
        assert!(lines.iter().any(|line| line.contains(expected)), "{name}: {lines:#?}");
        assert_eq!(report.damage_count, lines.len() as u64);
        let sorted = |mut report: CheckReport| {
            report.damages.sort();
            report.damages
        };
        assert_eq!(sorted(report), sorted(offline), "{name}");
    }
}

#[test]
fn a_sound_partition_is_clean_and_counted() {
    let world = World::new();
    let host = ListedHost { address: ([10, 0, 0, 1], 7001).into(), uuid: None };
    world.put(Family::SYSTEM, keys::listed_host(host.address), codec::put_listed_host(&host));
    world.put(Family::SYSTEM, keys::lock(FILE), codec::put_lock(-1));
    world.put(Family::SYSTEM, keys::deleted_results(CALL.process), codec::put_deleted_results(1));
    let report = world.check();
    assert!(report.is_clean(), "{report:#?}");
    assert_eq!((report.volumes, report.groups, report.jobs), (3, 2, 0));
    // Six vnodes, five in a volume cloned before the last was created, and a root.
    assert_eq!(report.vnodes, 6 + 5 + 1);
    // Two files of three chunks, and three overwritten chunks that are still visible.
    assert_eq!((report.chunks, report.chunks_read), (9, 9));
    assert!(report.chunk_bytes > 0);
}

#[test]
fn without_data_only_places_are_looked_at() {
    let world = World::new();
    flip(&world, 40);
    let segments = SegmentAudit::open(Arc::new(world.disk.clone()), Path::new(FOLDER), &*world.meta).unwrap();
    let report = check(&*world.meta, Some(&segments), CheckOptions::default(), &mut |_| {});
    assert!(report.is_clean(), "{report:#?}");
}
