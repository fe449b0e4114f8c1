//! The volume service on one partition.

use super::{Authority, ROOT, history};
use crate::records::{new_volume, options, partition};
use afs_idl::MemoryStream;
use afs_idl::vol::{self, Server as _};
use base::{AbortCode, CallContext, Caller, LocalAuthority, UnixTime, VolumeId};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use store::{MemoryChunks, MemoryMeta};
use volserver::{Administrators, FileService, IDLE_SECONDS_MAX, VolumeServer, VolumeServerParts};
use volume::Volumes;
use volume_check::{CheckOptions, check};

/// Seconds by which the clock advances whenever the server reads it.
const TICK_SECONDS: u32 = 5;

impl Administrators for Authority {
    fn is_administrator(&self, caller: &Caller) -> bool {
        self.is_superuser(caller)
    }
}

/// A file service that ignores all notifications.
struct Deaf;

impl FileService for Deaf {
    fn volume_changed(&self, _: VolumeId) {}

    fn volume_moved(&self, _: VolumeId) {}
}

fn volumes(meta: Arc<MemoryMeta>) -> Arc<Volumes> {
    let partition = partition(meta, Arc::new(MemoryChunks::new()));
    let volumes = Volumes::open(vec![partition.clone()], options()).expect("an empty store");
    let new = new_volume(ROOT.volume, "home".parse().expect("a name"));
    volumes.create(partition.id, &new).expect("an empty partition");
    Arc::new(volumes)
}

fn server(clock: Arc<AtomicU32>, volumes: Arc<Volumes>) -> VolumeServer {
    VolumeServer::new(VolumeServerParts {
        volumes,
        administrators: Arc::new(Authority),
        file_service: Arc::new(Deaf),
        clock: Arc::new(move || UnixTime(clock.fetch_add(TICK_SECONDS, Relaxed))),
    })
}

/// Exercises the volume service. Transactions are numbered from 1, since the clock starts at 0. At the end
/// all remaining transactions have timed out.
pub fn serve_vol(data: &[u8]) {
    let clock = Arc::new(AtomicU32::new(0));
    let server = server(Arc::clone(&clock), volumes(Arc::default()));
    history(data, |caller, stream| afs_idl::vol::dispatch(&server, caller, stream));
    clock.fetch_add(IDLE_SECONDS_MAX + TICK_SECONDS, Relaxed);
    server.expire_transactions();
    assert_eq!(server.expire_transactions(), 0, "a transaction has not timed out");
    server.delete_unfinished();
    assert_eq!(server.delete_unfinished(), 0, "an unfinished volume was not deleted");
}

fn administrator() -> Caller {
    super::caller(super::Who::Admin as u8)
}

/// Restores a dump to a volume.
fn restore(server: &VolumeServer, transaction: i32, dump: &[u8]) -> Result<(), AbortCode> {
    let cookie = vol::RestoreCookie { name: "home".into(), ..Default::default() };
    let request = vol::RestoreRequest { transaction, flags: 0, cookie };
    let mut stream = MemoryStream::new(dump, 1444);
    server.restore(&CallContext::new(&administrator()), request, &mut stream).map(drop)
}

fn dump(server: &VolumeServer, transaction: i32) -> Vec<u8> {
    let mut stream = MemoryStream::default();
    let request = vol::DumpRequest { transaction, from_date: 0 };
    server.dump(&CallContext::new(&administrator()), request, &mut stream).expect("a sound volume");
    stream.outgoing
}

/// Exercises a dump restored to a volume. If it is rejected, the volume is unchanged; otherwise the volume is
/// consistent, and its own dump restores to the same. In either case nothing is left behind.
pub fn restored_dump(data: &[u8]) {
    let meta = Arc::new(MemoryMeta::new());
    let volumes = volumes(Arc::clone(&meta));
    let server = server(Arc::default(), Arc::clone(&volumes));
    let (volume_id, flags) = (ROOT.volume.0, vol::attach_mode::OFFLINE);
    let request = vol::TransCreateRequest { volume_id, partition: 0, flags };
    let transaction =
        server.trans_create(&CallContext::new(&administrator()), request).expect("the volume").transaction;
    let before = dump(&server, transaction);
    match restore(&server, transaction, data) {
        Ok(()) => {
            let after = dump(&server, transaction);
            assert_eq!(restore(&server, transaction, &after), Ok(()));
            assert_eq!(dump(&server, transaction), after, "restored again");
        }
        Err(_) => assert_eq!(dump(&server, transaction), before, "refused"),
    }
    server
        .end_trans(&CallContext::new(&administrator()), vol::EndTransRequest { transaction })
        .expect("the transaction");
    while volumes.purge_step().expect("a store in memory") {}
    let report = check(&*meta, None, CheckOptions::default(), &mut |_| {});
    assert!(report.is_clean(), "{:#?}", report.damages);
}
