//! Tests that a failed partition does not affect the others.

use super::support::*;
use crate::{
    CallActor, Commits, Durability, InCall, ListedHost, NewVolume, PartitionHandle, Pending, Permit,
    Promisee, Space, Volume, VolumeError, VolumeOptions, Volumes, listed_hosts,
};
use base::{HostUuid, Monotonic, PartitionId, UnixTime, VolumeId, VolumeType};
use bytes::Bytes;
use parking_lot::Mutex;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::mpsc::channel;
use store::{
    Batch, CommitNumber, Family, HookedMeta, KeyRange, MemoryChunks, MemoryMeta, MetaStore, Snapshot,
    StoreError, Visit,
};

/// A metadata store in which nothing can be read.
struct Unreadable;

fn unreadable<T>() -> Result<T, StoreError> {
    Err(StoreError::Meta("made unreadable".into()))
}

impl Snapshot for Unreadable {
    fn scan(&self, _: Family, _: KeyRange<'_>, _: Visit<'_>) -> Result<(), StoreError> {
        unreadable()
    }
}

impl MetaStore for Unreadable {
    fn get(&self, _: Family, _: &[u8]) -> Result<Option<Bytes>, StoreError> {
        unreadable()
    }

    fn scan(&self, _: Family, _: KeyRange<'_>, _: Visit<'_>) -> Result<(), StoreError> {
        unreadable()
    }

    fn snapshot(&self) -> Box<dyn Snapshot + '_> {
        Box::new(Unreadable)
    }

    fn commit(&self, _: Batch) -> Result<CommitNumber, StoreError> {
        unreadable()
    }

    fn sync(&self, _: CommitNumber) -> Result<(), StoreError> {
        unreadable()
    }
}

fn place(index: u32) -> PartitionId {
    PartitionId::from_index(index).unwrap()
}

fn handle(index: u32, meta: Arc<dyn MetaStore>, chunks: &Arc<MemoryChunks>) -> PartitionHandle {
    let space = Arc::new(|| Space { total_kib: 1 << 40, free_kib: 1 << 40 });
    PartitionHandle { id: place(index), meta, chunks: chunks.clone(), space }
}

fn make(volumes: &Volumes, index: u32, id: u32) -> Arc<crate::Volume> {
    let new = NewVolume {
        id: VolumeId(id),
        name: format!("volume.{id}").parse().unwrap(),
        kind: VolumeType::ReadWrite,
        parent: VolumeId(id),
        quota_max_kib: 0,
        with_root: true,
        in_service: true,
        destroy_me: 0,
        now: UnixTime(1000),
    };
    volumes.create(place(index), &new).unwrap()
}

#[test]
fn an_unreadable_partition_takes_only_its_own_volumes_offline() {
    let (meta, chunks) = (Arc::new(Meta::default()), Arc::new(MemoryChunks::new()));
    let whole = handle(1, meta, &chunks);
    make(&Volumes::open(vec![whole.clone()], options()).unwrap(), 1, 7);
    let broken = handle(0, Arc::new(Unreadable), &chunks);
    let volumes = Volumes::open(vec![broken.clone(), whole], options()).unwrap();
    assert_eq!(volumes.partitions(), [place(1)]);
    assert_eq!(volumes.list(place(1)).len(), 1);
    let volume = volumes.get(VolumeId(7)).unwrap();
    volume.create_file(&actor(1), volume.root(), b"file", &nothing()).unwrap();
    assert!(matches!(volumes.space(place(0)), Err(VolumeError::NoPartition(_))));
    volumes.sync().unwrap();
    assert!(Volumes::open(vec![broken], options()).is_err(), "nothing is left to serve");
}

#[test]
fn a_read_only_partition_does_not_block_purging_of_others() {
    let metas = [Arc::new(Meta::default()), Arc::new(Meta::default())];
    let chunks = [Arc::new(MemoryChunks::new()), Arc::new(MemoryChunks::new())];
    let partition = |index: usize| handle(index as u32, metas[index].clone(), &chunks[index]);
    let volumes = Volumes::open(vec![partition(0), partition(1)], options()).unwrap();
    for index in [0, 1] {
        let volume = make(&volumes, index, 10 + index);
        let file = volume.create_file(&actor(1), volume.root(), b"file", &nothing()).unwrap();
        store_at(&volume, file.status.fid(volume.id()), 0, &[1; 5000], u64::MAX).unwrap();
        volumes.delete(volume.id()).unwrap();
    }
    *metas[0].failures.lock() = u32::MAX;
    while volumes.purge_step().is_ok() {}
    assert_eq!(chunks[1].live_chunks(), 0);
    assert!(chunks[0].live_chunks() > 0);
    *metas[0].failures.lock() = 0;
    while volumes.purge_step().unwrap() {}
    assert_eq!(chunks[0].live_chunks(), 0);
}

#[test]
fn a_partition_that_comes_later_is_served() {
    let metas = [Arc::new(Meta::default()), Arc::new(Meta::default())];
    let chunks = [Arc::new(MemoryChunks::new()), Arc::new(MemoryChunks::new())];
    let partition = |index: usize| handle(index as u32, metas[index].clone(), &chunks[index]);
    {
        let both = Volumes::open(vec![partition(0), partition(1)], options()).unwrap();
        make(&both, 0, 7);
        make(&both, 1, 8);
        make(&both, 1, 9);
        both.sync().unwrap();
    }
    let volumes = Volumes::open(vec![partition(0)], options()).unwrap();
    assert_eq!(volumes.partitions(), [place(0)]);
    assert!(matches!(volumes.get(VolumeId(8)), Err(VolumeError::NoVolume(_))));
    assert!(matches!(volumes.space(place(1)), Err(VolumeError::NoPartition(_))));
    volumes.add(partition(1), None).unwrap();
    assert_eq!(volumes.partitions(), [place(0), place(1)]);
    let volume = volumes.get(VolumeId(8)).unwrap();
    let file = volume.create_file(&actor(1), volume.root(), b"file", &nothing()).unwrap();
    store_at(&volume, file.status.fid(volume.id()), 0, &[1; 5000], u64::MAX).unwrap();
    make(&volumes, 1, 10);
    assert_eq!(volumes.list(place(1)).len(), 3);
    volumes.delete(VolumeId(9)).unwrap();
    while volumes.purge_step().unwrap() {}
    volumes.sync().unwrap();
    assert!(matches!(volumes.add(partition(1), None), Err(VolumeError::Invalid(_))), "it is open");
}

/// A volume in use must not be replaced by another one of the same number.
#[test]
fn a_volume_of_a_later_partition_does_not_hide_one_in_use() {
    let metas = [Arc::new(Meta::default()), Arc::new(Meta::default())];
    let chunks = [Arc::new(MemoryChunks::new()), Arc::new(MemoryChunks::new())];
    let partition = |index: usize| handle(index as u32, metas[index].clone(), &chunks[index]);
    for index in [0, 1] {
        let alone = Volumes::open(vec![partition(index)], options()).unwrap();
        make(&alone, index as u32, 7);
        make(&alone, index as u32, 10 + index as u32);
    }
    let volumes = Volumes::open(vec![partition(0)], options()).unwrap();
    let used = volumes.get(VolumeId(7)).unwrap();
    volumes.add(partition(1), None).unwrap();
    assert!(Arc::ptr_eq(&used, &volumes.get(VolumeId(7)).unwrap()));
    assert_eq!(volumes.get(VolumeId(7)).unwrap().partition(), place(0));
    assert_eq!(volumes.get(VolumeId(11)).unwrap().partition(), place(1));
}

#[test]
fn volumes_of_a_partition_that_leaves_are_absent() {
    let metas = [Arc::new(Meta::default()), Arc::new(Meta::default())];
    let chunks = [Arc::new(MemoryChunks::new()), Arc::new(MemoryChunks::new())];
    let partition = |index: usize| handle(index as u32, metas[index].clone(), &chunks[index]);
    make(&Volumes::open(vec![partition(1)], options()).unwrap(), 1, 8);
    let volumes = Volumes::open(vec![partition(0)], options()).unwrap();
    let has_ended = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !has_ended.load(Relaxed) {
                let found = volumes.get(VolumeId(8)).map(drop);
                assert!(matches!(found, Ok(()) | Err(VolumeError::NoVolume(_))), "{found:?}");
            }
        });
        for _ in 0..500 {
            volumes.add(partition(1), None).unwrap();
            volumes.remove(place(1)).unwrap();
        }
        has_ended.store(true, Relaxed);
    });
}

/// Another server had it in between.
#[test]
fn a_partition_that_was_lost_is_opened_again() {
    let metas = [Arc::new(Meta::default()), Arc::new(Meta::default())];
    let chunks = [Arc::new(MemoryChunks::new()), Arc::new(MemoryChunks::new())];
    let partition = |index: usize| handle(index as u32, metas[index].clone(), &chunks[index]);
    let volumes = Volumes::open(vec![partition(0)], options()).unwrap();
    let lease = Arc::new(Lease::default());
    lease.is_valid.store(true, Relaxed);
    volumes.add(partition(1), Some(lease.clone())).unwrap();
    make(&volumes, 0, 7);
    for id in [8, 9, 10] {
        make(&volumes, 1, id);
    }
    volumes.sync().unwrap();
    let old = volumes.get(VolumeId(8)).unwrap();
    lease.is_valid.store(false, Relaxed);
    lease.has_ended.store(true, Relaxed);
    assert_eq!(volumes.remove(place(1)).unwrap(), [VolumeId(8), VolumeId(9), VolumeId(10)]);
    assert!(matches!(volumes.remove(place(1)), Err(VolumeError::NoPartition(_))));
    assert!(matches!(volumes.get(VolumeId(8)), Err(VolumeError::NoVolume(_))));
    assert_eq!((volumes.partitions(), volumes.loaded_count()), (vec![place(0)], 1));
    let late = Commits::collect(|call| InCall::new(old.clone(), call).id());
    assert!(matches!(late.wait(), Err(VolumeError::Store(StoreError::Fenced { .. }))));
    {
        let other = Volumes::open(vec![partition(1)], options()).unwrap();
        let volume = other.get(VolumeId(8)).unwrap();
        volume.create_file(&actor(1), volume.root(), b"there", &nothing()).unwrap();
        other.delete(VolumeId(9)).unwrap();
        make(&other, 1, 11);
        other.sync().unwrap();
    }
    volumes.add(partition(1), None).unwrap();
    let new = volumes.get(VolumeId(8)).unwrap();
    assert!(!Arc::ptr_eq(&old, &new));
    assert!(new.lookup(new.root(), b"there").is_ok());
    assert!(matches!(volumes.get(VolumeId(9)), Err(VolumeError::NoVolume(_))));
    assert_eq!(volumes.get(VolumeId(11)).unwrap().partition(), place(1));
    drop(old);
    while volumes.unload_idle() > 0 {}
    assert!(volumes.get(VolumeId(10)).is_ok() && volumes.get(VolumeId(7)).is_ok());
}

/// A bucket that does not answer must not hold up the volumes of other partitions.
#[test]
fn a_partition_that_hangs_holds_up_only_its_own_volumes() {
    let metas = [Arc::new(Meta::default()), Arc::new(Meta::default())];
    let chunks = [Arc::new(MemoryChunks::new()), Arc::new(MemoryChunks::new())];
    let partition = |index: usize| handle(index as u32, metas[index].clone(), &chunks[index]);
    {
        let both = Volumes::open(vec![partition(0), partition(1)], options()).unwrap();
        make(&both, 0, 7);
        make(&both, 1, 8);
    }
    let (hang, away) = (Arc::new(Mutex::new(())), Arc::new(AtomicBool::new(false)));
    let (reached, is_reached) = channel();
    let (hanging_on, is_away) = (hang.clone(), away.clone());
    let hook = move |_| {
        if is_away.load(Relaxed) {
            reached.send(()).unwrap();
            drop(hanging_on.lock());
        }
    };
    let hanging = handle(1, Arc::new(HookedMeta::new(metas[1].clone(), hook)), &chunks[1]);
    let volumes = Volumes::open(vec![partition(0), hanging], options()).unwrap();
    away.store(true, Relaxed);
    let held = hang.lock();
    std::thread::scope(|scope| {
        let waiting = scope.spawn(|| volumes.get(VolumeId(8)).map(drop));
        is_reached.recv().unwrap();
        let volume = volumes.get(VolumeId(7)).unwrap();
        volume.create_file(&actor(1), volume.root(), b"file", &nothing()).unwrap();
        drop(volume);
        while volumes.unload_idle() == 0 {}
        volumes.get(VolumeId(7)).unwrap();
        assert!(!waiting.is_finished());
        drop(held);
        waiting.join().unwrap().unwrap();
    });
}

/// A lease that the test renews and ends.
#[derive(Default)]
struct Lease {
    is_valid: AtomicBool,
    /// Whether clients of the last owner are being reset.
    is_resetting: AtomicBool,
    has_ended: AtomicBool,
}

impl Permit for Lease {
    fn may_answer(&self) -> bool {
        self.is_valid.load(Relaxed)
    }

    fn may_change(&self) -> bool {
        self.may_answer() && !self.is_resetting.load(Relaxed)
    }

    fn has_ended(&self) -> bool {
        self.has_ended.load(Relaxed)
    }
}

/// Serves a call that creates a file.
fn change(volumes: &Volumes, id: u32, name: &[u8]) -> Pending<VolumeId> {
    Commits::collect(|commits| {
        let volume = InCall::new(volumes.get(VolumeId(id)).unwrap(), commits);
        let actor = CallActor { actor: actor(1), commits };
        let create = |volume: &Arc<Volume>| volume.create_file(&actor, volume.root(), name, &nothing());
        volume.access(create).unwrap();
        volume.id()
    })
}

#[test]
fn a_change_is_acknowledged_after_the_resets() {
    for durability in [Durability::Always, Durability::Interval] {
        let (meta, chunks) = (Arc::new(Meta::default()), Arc::new(MemoryChunks::new()));
        let options = VolumeOptions { durability, ..options() };
        let volumes = Volumes::open(vec![handle(1, meta, &chunks)], options).unwrap();
        make(&volumes, 1, 8);
        let lease = Arc::new(Lease::default());
        lease.is_valid.store(true, Relaxed);
        lease.is_resetting.store(true, Relaxed);
        assert!(volumes.may_read(place(1)) && !volumes.may_read(place(2)));
        volumes.limit(place(1), lease.clone()).unwrap();
        lease.is_valid.store(false, Relaxed);
        assert!(!volumes.may_read(place(1)));
        lease.is_valid.store(true, Relaxed);
        assert!(volumes.may_read(place(1)));
        let (sent, ended) = channel();
        std::thread::scope(|scope| {
            let changed = change(&volumes, 8, b"file");
            scope.spawn(move || changed.when_durable(move |result| sent.send(result)));
            let waiting = scope.spawn(|| change(&volumes, 8, b"other").wait());
            let timeout = ended.recv_timeout(std::time::Duration::from_millis(50));
            assert!(timeout.is_err() && !waiting.is_finished(), "{durability:?}");
            let read = Commits::collect(|call| InCall::new(volumes.get(VolumeId(8)).unwrap(), call).id());
            assert!(read.into_ready().is_ok(), "{durability:?}: reads are answered");
            lease.is_resetting.store(false, Relaxed);
            assert_eq!(ended.recv().unwrap().unwrap(), VolumeId(8));
            assert_eq!(waiting.join().unwrap().unwrap(), VolumeId(8));
        });
    }
}

/// Serves a call that makes a promise to a host.
fn promise(volumes: &Volumes, id: u32, host: &Promisee) -> Pending<bool> {
    Commits::collect(|commits| {
        let volume = InCall::new(volumes.get(VolumeId(id)).unwrap(), commits);
        volume.pin_host(host, || Some(HostUuid([7; 16]))).is_some()
    })
}

#[test]
fn a_first_promise_waits_until_its_host_is_durably_listed() {
    let metas = [Arc::new(MemoryMeta::new()), Arc::new(MemoryMeta::new())];
    let chunks = Arc::new(MemoryChunks::new());
    let partition = |index: usize| handle(index as u32, metas[index].clone(), &chunks);
    let volumes = Volumes::open(vec![partition(0), partition(1)], options()).unwrap();
    make(&volumes, 0, 7);
    make(&volumes, 1, 8);
    volumes.sync().unwrap();
    let lease = Arc::new(Lease::default());
    lease.is_valid.store(true, Relaxed);
    // Reads, also the first ones of a host, do not wait for resets.
    lease.is_resetting.store(true, Relaxed);
    volumes.limit(place(1), lease).unwrap();
    let [local, limited] = [7, 8].map(|id| volumes.get(VolumeId(id)).unwrap());
    let host = Promisee { number: 1, address: ([10, 0, 0, 1], 7001).into(), now: Monotonic(0) };
    let listed = |index: usize| listed_hosts(&metas[index].crash(0)).unwrap();
    let commits = || [metas[0].commits(), metas[1].commits()];

    let before = commits();
    assert!(local.try_pin_host(|| host).is_some());
    assert!(matches!(promise(&volumes, 7, &host).into_ready(), Ok(true)));
    assert!(limited.try_pin_host(|| host).is_none());
    let first = promise(&volumes, 8, &host);
    let Err(first) = first.into_ready() else { panic!("the first promise waits for nothing") };
    let Err(second) = promise(&volumes, 8, &host).into_ready() else { panic!("it is not listed yet") };
    assert!(listed(1).is_empty() && limited.try_pin_host(|| host).is_none());
    assert!(first.wait().unwrap());
    let uuid = Some(HostUuid([7; 16]));
    assert_eq!(listed(1), [ListedHost { address: host.address, uuid }]);
    assert!(second.wait().unwrap());
    assert!(limited.try_pin_host(|| host).is_some());
    assert!(matches!(promise(&volumes, 8, &host).into_ready(), Ok(true)));
    assert_eq!(commits(), [before[0], before[1] + 1], "one commit, and none on a local partition");
    assert_eq!([0, 1].map(|index| volumes.listed_hosts_count(place(index)).unwrap()), [0, 1]);

    let later = Monotonic(0) + std::time::Duration::from_secs(600);
    volumes.forget_hosts(later, &|hosts| vec![true; hosts.len()]);
    assert_eq!(volumes.listed_hosts_count(place(1)).unwrap(), 0);
    assert!(limited.try_pin_host(|| host).is_none());
}

#[test]
fn a_reply_about_a_limited_partition_needs_its_permit() {
    let metas = [Arc::new(Meta::default()), Arc::new(Meta::default())];
    let chunks = [Arc::new(MemoryChunks::new()), Arc::new(MemoryChunks::new())];
    let partition = |index: usize| handle(index as u32, metas[index].clone(), &chunks[index]);
    let volumes = Volumes::open(vec![partition(0), partition(1)], options()).unwrap();
    make(&volumes, 0, 7);
    make(&volumes, 1, 8);
    let lease = Arc::new(Lease::default());
    volumes.limit(place(1), lease.clone()).unwrap();
    assert!(matches!(volumes.limit(place(1), lease.clone()), Err(VolumeError::Invalid(_))));
    // Everything is in memory: no store is asked.
    let read = |id| Commits::collect(|call| InCall::new(volumes.get(VolumeId(id)).unwrap(), call).id());
    assert!(read(7).into_ready().is_ok(), "another partition needs none");
    assert!(read(8).into_ready().is_err());
    std::thread::scope(|scope| {
        let waiting = scope.spawn(|| read(8).wait());
        std::thread::sleep(std::time::Duration::from_millis(50));
        assert!(!waiting.is_finished());
        lease.is_valid.store(true, Relaxed);
        assert_eq!(waiting.join().unwrap().unwrap(), VolumeId(8));
    });
    assert!(read(8).into_ready().is_ok());
}

#[test]
fn nothing_is_answered_about_a_lost_partition() {
    let (meta, chunks) = (Arc::new(Meta::default()), Arc::new(MemoryChunks::new()));
    let others = handle(0, Arc::new(Meta::default()), &chunks);
    let volumes = Volumes::open(vec![others, handle(1, meta, &chunks)], options()).unwrap();
    make(&volumes, 0, 7);
    make(&volumes, 1, 8);
    let lease = Arc::new(Lease::default());
    lease.is_valid.store(true, Relaxed);
    volumes.limit(place(1), lease.clone()).unwrap();
    let read = |id| Commits::collect(|call| InCall::new(volumes.get(VolumeId(id)).unwrap(), call).id());
    let (sent, ended) = channel();
    let report = move |result: Result<VolumeId, VolumeError>| _ = sent.send(result);
    let change = change(&volumes, 8, b"file");
    lease.is_valid.store(false, Relaxed);
    lease.has_ended.store(true, Relaxed);
    change.when_durable(report.clone());
    assert!(matches!(ended.recv().unwrap(), Err(VolumeError::Store(StoreError::Fenced { .. }))));
    read(8).when_durable(report);
    assert!(matches!(ended.recv().unwrap(), Err(VolumeError::Store(StoreError::Fenced { .. }))));
    assert!(matches!(read(8).wait(), Err(VolumeError::Store(StoreError::Fenced { .. }))));
    assert!(read(7).wait().is_ok());
}
