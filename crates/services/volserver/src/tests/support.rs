//! A volume server with two in-memory partitions, a settable clock, and a record of notifications.

use super::counting::{Counting, CountingMeta, Loans};
use crate::{Administrators, FileService, OtherOwners, VolumeServer, VolumeServerParts};
use afs_idl::vol;
use base::{
    AbortCode, CallContext, Caller, Fid, Identity, PartitionId, Principal, SecurityLevel, UnixTime, UserId,
    VolumeId,
};
use bytes::Bytes;
use parking_lot::Mutex;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, LazyLock};
use store::{MemoryChunks, MemoryMeta};
use volume::{Actor, Found, PartitionHandle, SetStatus, Space, StoreRequest, Volume, VolumeOptions, Volumes};
use volume_check::{CheckOptions, check};

pub(super) const START: u32 = 1_000_000;

/// Flags that `vos` sets on a volume to be deleted.
pub(super) const DOOMED: i32 = vol::volume_flags::DELETE_ON_SALVAGE | vol::volume_flags::OUT_OF_SERVICE;

/// Index of `/vicepc`, whose size exceeds 32-bit fields.
pub(super) const LARGE: i32 = 2;

pub(super) struct Cell {
    pub(super) server: VolumeServer,
    pub(super) volumes: Arc<Volumes>,
    pub(super) heard: Arc<Heard>,
    /// Metadata of the large partition.
    meta: Arc<MemoryMeta>,
    now: Arc<AtomicU32>,
    /// Free space on the small partition.
    free_kib: Arc<AtomicU64>,
}

/// Records the notifications to file service.
#[derive(Default)]
pub(super) struct Heard {
    changed: Mutex<Vec<u32>>,
    moved: Mutex<Vec<u32>>,
}

impl FileService for Heard {
    fn volume_changed(&self, volume: VolumeId) {
        self.changed.lock().push(volume.0);
    }

    fn volume_moved(&self, volume: VolumeId) {
        self.moved.lock().push(volume.0);
    }
}

impl Heard {
    pub(super) fn take(&self) -> Vec<u32> {
        std::mem::take(&mut self.changed.lock())
    }

    pub(super) fn take_moved(&self) -> Vec<u32> {
        std::mem::take(&mut self.moved.lock())
    }
}

struct Known;

impl Administrators for Known {
    fn is_administrator(&self, caller: &Caller) -> bool {
        caller.identity != Identity::Anonymous
    }
}

/// Metadata and chunks of both partitions, which survive a power cut.
#[derive(Default)]
pub(super) struct Disks {
    pub(super) metas: [Arc<MemoryMeta>; 2],
    pub(super) chunks: [Arc<MemoryChunks>; 2],
    /// Chunks of another server's partition in the bucket of the large one.
    pub(super) beside: Option<Arc<MemoryChunks>>,
    /// What was lent to that and borrowed from it.
    pub(super) loans: Arc<Loans>,
    /// Number of chunks read on either partition.
    pub(super) reads: Arc<AtomicUsize>,
    /// Number of chunks stored on either partition.
    pub(super) appends: Arc<AtomicUsize>,
    /// Number of records of metadata read on either partition.
    pub(super) records: Arc<AtomicUsize>,
}

impl Disks {
    /// Returns the disks after a power cut, with only some of the unsynced commits.
    pub(super) fn after_crash(&self, random: &mut StdRng) -> Disks {
        let mut survived = |which: usize| {
            let meta = &self.metas[which];
            Arc::new(meta.crash(random.random_range(0..=meta.unsynced_commits())))
        };
        let metas = [survived(0), survived(1)];
        Disks { metas, chunks: self.chunks.clone(), ..Disks::default() }
    }

    fn handle(
        &self,
        which: usize,
        index: u32,
        space: impl Fn() -> Space + Send + Sync + 'static,
    ) -> PartitionHandle {
        PartitionHandle {
            id: PartitionId::from_index(index).unwrap(),
            meta: Arc::new(CountingMeta { meta: self.metas[which].clone(), records: self.records.clone() }),
            chunks: Arc::new(Counting {
                chunks: self.chunks[which].clone(),
                reads: self.reads.clone(),
                appends: self.appends.clone(),
                beside: self.beside.clone().filter(|_| which == 1),
                loans: self.loans.clone(),
            }),
            space: Arc::new(space),
        }
    }
}

/// Returns options under which received data is checkpointed after every chunk.
fn options() -> VolumeOptions {
    VolumeOptions { received_step_bytes: 256 << 10, ..VolumeOptions::default() }
}

/// Runs a number of histories.
pub(super) fn histories(count: u64, play: impl Fn(u64, &mut StdRng)) {
    seeds::play(count, |seed| play(seed, &mut StdRng::seed_from_u64(seed)));
}

fn caller(identity: Identity) -> Caller {
    Caller {
        identity,
        level: SecurityLevel::Encrypted,
        peer: SocketAddr::from((Ipv4Addr::LOCALHOST, 40000)),
        local: IpAddr::from(Ipv4Addr::LOCALHOST),
        connection: base::Connection::new(),
    }
}

/// A new call of an anonymous caller.
pub(super) fn anybody() -> CallContext<'static> {
    static CALLER: LazyLock<Caller> = LazyLock::new(|| caller(Identity::Anonymous));
    CallContext::new(&CALLER)
}

/// A new call of the administrator.
pub(super) fn admin() -> CallContext<'static> {
    static CALLER: LazyLock<Caller> = LazyLock::new(|| {
        let principal = Principal { name: "admin".into(), instance: String::new(), realm: String::new() };
        caller(Identity::Known(principal))
    });
    CallContext::new(&CALLER)
}

impl Cell {
    pub(super) fn new() -> Cell {
        Cell::on(&Disks::default())
    }

    /// Starts a server with these disks.
    pub(super) fn on(disks: &Disks) -> Cell {
        let meta = disks.metas[1].clone();
        let free_kib = Arc::new(AtomicU64::new(400));
        let free = Arc::clone(&free_kib);
        let small = move || Space { total_kib: 1000, free_kib: free.load(Ordering::Relaxed) };
        let large = || Space { total_kib: 1 << 33, free_kib: 1 << 32 };
        let partitions = vec![disks.handle(0, 0, small), disks.handle(1, LARGE as u32, large)];
        let volumes = Arc::new(Volumes::open(partitions, options()).unwrap());
        let (heard, now) = (Arc::new(Heard::default()), Arc::new(AtomicU32::new(START)));
        let asked = Arc::clone(&now);
        let parts = VolumeServerParts {
            volumes: Arc::clone(&volumes),
            administrators: Arc::new(Known),
            file_service: heard.clone(),
            clock: Arc::new(move || UnixTime(asked.load(Ordering::Relaxed))),
        };
        Cell { server: VolumeServer::new(parts), volumes, heard, meta, now, free_kib }
    }

    /// Lets the server share its partitions.
    pub(super) fn sharing(self, others: Arc<dyn OtherOwners>) -> Cell {
        Cell { server: self.server.with_other_owners(others), ..self }
    }

    /// Restarts the server after a power cut, with the remaining contents of the disks.
    pub(super) fn after_crash(&self, disks: &mut Disks, random: &mut StdRng) -> Cell {
        *disks = disks.after_crash(random);
        let cell = Cell::on(disks);
        cell.pass(self.now().0 - START);
        cell.server.delete_unfinished();
        cell
    }

    /// Checks both partitions after purging.
    pub(super) fn check_all(&self, disks: &Disks) {
        while self.volumes.purge_step().unwrap() {}
        for meta in &disks.metas {
            let report = check(&**meta, None, CheckOptions::default(), &mut |_| {});
            assert!(report.is_clean(), "{:#?}", report.damages);
        }
    }

    /// Checks the large partition after purging.
    pub(super) fn check(&self) {
        while self.volumes.purge_step().unwrap() {}
        let report = check(&*self.meta, None, CheckOptions::default(), &mut |_| {});
        assert!(report.is_clean(), "{:#?}", report.damages);
    }

    pub(super) fn now(&self) -> UnixTime {
        UnixTime(self.now.load(Ordering::Relaxed))
    }

    pub(super) fn pass(&self, seconds: u32) {
        self.now.fetch_add(seconds, Ordering::Relaxed);
    }

    /// Sets the clock, forward or back.
    pub(super) fn set_now(&self, now: UnixTime) {
        self.now.store(now.0, Ordering::Relaxed);
    }

    pub(super) fn set_free_kib(&self, free_kib: u64) {
        self.free_kib.store(free_kib, Ordering::Relaxed);
    }

    /// Creates a volume as `vos create` does.
    pub(super) fn vos_create(&self, partition: i32, name: &str, id: u32) {
        let transaction = self.create(partition, name, id, 0).unwrap();
        let info = vol::VolintInfo { max_quota: 7000, ..unchanged() };
        self.server.set_info(&admin(), vol::SetInfoRequest { transaction, info }).unwrap();
        self.set_flags(transaction, 0).unwrap();
        self.end(transaction).unwrap();
    }

    pub(super) fn create(&self, partition: i32, name: &str, id: u32, parent: u32) -> Result<i32, AbortCode> {
        let request = vol::CreateVolumeRequest {
            partition,
            name: name.into(),
            volume_type: 0,
            parent_id: parent,
            volume_id: id,
        };
        self.server.create_volume(&admin(), request).map(|reply| {
            assert_eq!(reply.volume_id, id);
            reply.transaction
        })
    }

    pub(super) fn open(&self, volume_id: u32, partition: i32, flags: i32) -> Result<i32, AbortCode> {
        let request = vol::TransCreateRequest { volume_id, partition, flags };
        self.server.trans_create(&admin(), request).map(|reply| reply.transaction)
    }

    pub(super) fn end(&self, transaction: i32) -> Result<i32, AbortCode> {
        let reply = self.server.end_trans(&admin(), vol::EndTransRequest { transaction });
        reply.map(|reply| reply.code)
    }

    pub(super) fn set_flags(&self, transaction: i32, flags: i32) -> Result<(), AbortCode> {
        let request = vol::SetFlagsRequest { transaction, flags };
        self.server.set_flags(&admin(), request).map(|_| ())
    }

    pub(super) fn delete(&self, transaction: i32) -> Result<(), AbortCode> {
        self.server.delete_volume(&admin(), vol::DeleteVolumeRequest { transaction }).map(|_| ())
    }

    /// Deletes a volume as DoVolDelete of `vos` does, which accepts that it is already deleted.
    pub(super) fn vos_delete(&self, id: u32, partition: i32) {
        match self.open(id, partition, vol::attach_mode::OFFLINE) {
            Ok(transaction) => {
                self.set_flags(transaction, DOOMED).unwrap();
                self.delete(transaction).unwrap();
                self.end(transaction).unwrap();
            }
            Err(code) => assert_eq!(code, AbortCode::VNOVOL),
        }
    }

    pub(super) fn list(&self, partition: i32) -> Vec<vol::VolintInfo> {
        let request = vol::ListVolumesRequest { partition, flags: 1 };
        self.list_volumes(&anybody(), request).unwrap()
    }

    pub(super) fn list_volumes(
        &self,
        caller: &Caller,
        request: vol::ListVolumesRequest,
    ) -> Result<Vec<vol::VolintInfo>, AbortCode> {
        let listed = afs_idl::memory::collect(|reply| self.server.list_volumes(caller, request, reply));
        listed.map(|reply: vol::ListVolumesReply| reply.entries)
    }

    pub(super) fn list_one(&self, partition: i32, volume_id: u32) -> Result<vol::VolintInfo, AbortCode> {
        let request = vol::ListOneVolumeRequest { partition, volume_id };
        let reply = self.server.list_one_volume(&anybody(), request)?;
        let [entry] = <[_; 1]>::try_from(reply.entries).unwrap();
        Ok(entry)
    }

    /// Returns the error that a client of the volume gets, if any.
    pub(super) fn file_service(&self, id: u32) -> Option<AbortCode> {
        self.volumes.get(VolumeId(id)).err().map(|error| error.abort_code())
    }
}

/// Returns a privileged actor.
pub(super) fn actor(now: UnixTime) -> Actor {
    Actor { user: UserId(7), privileged: true, in_transaction: false, call: None, now }
}

/// Returns the FID of a directory entry.
pub(super) fn fid(volume: &Volume, found: Found) -> Fid {
    Fid { volume: volume.id(), vnode: found.vnode, unique: found.unique }
}

/// Writes to a file in a directory, creating it if it is missing, and sets its length.
pub(super) fn write_at(
    volume: &Volume,
    now: UnixTime,
    (directory, name): (Fid, &str),
    offset: u64,
    data: &[u8],
    file_length: u64,
) -> Fid {
    let set = SetStatus::default();
    let file = volume.lookup(directory, name.as_bytes()).map_or_else(
        |_| {
            let made = volume.create_file(&actor(now), directory, name.as_bytes(), &set);
            made.unwrap().status.fid(volume.id())
        },
        |found| fid(volume, found),
    );
    let request = StoreRequest { offset, length: data.len() as u64, file_length, set };
    let mut left = Bytes::copy_from_slice(data);
    let mut source = |most: usize| Ok(left.split_to(most.min(left.len())));
    volume.store(&actor(now), file, &request, &mut source).unwrap();
    file
}

/// Writes a file in the root directory with these contents.
pub(super) fn write(volume: &Volume, now: UnixTime, name: &str, data: &[u8]) -> Fid {
    write_at(volume, now, (volume.root(), name), 0, data, data.len() as u64)
}

/// Returns the contents of a file in the root directory.
pub(super) fn read(volume: &Arc<Volume>, name: &str) -> Vec<u8> {
    let found = volume.lookup(volume.root(), name.as_bytes()).unwrap();
    volume.reader(fid(volume, found), 0, u64::MAX).unwrap().next(usize::MAX).unwrap().concat()
}

/// Returns a SetInfo argument that leaves every field unchanged, as `vos` fills it.
pub(super) fn unchanged() -> vol::VolintInfo {
    vol::VolintInfo {
        max_quota: -1,
        day_use: -1,
        creation_date: u32::MAX,
        update_date: u32::MAX,
        access_date: u32::MAX,
        backup_date: u32::MAX,
        copy_date: u32::MAX,
        size: -1,
        file_count: -1,
        flags: -1,
        spare0: -1,
        spare1: -1,
        spare2: -1,
        spare3: -1,
        ..vol::VolintInfo::default()
    }
}
