//! The volume service on one partition.

use super::{Authority, ROOT, history};
use crate::records::{new_volume, options, partition};
use base::{Caller, LocalAuthority, UnixTime, VolumeId};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use store::{MemoryChunks, MemoryMeta};
use volserver::{Administrators, FileService, IDLE_SECONDS_MAX, VolumeServer, VolumeServerParts};
use volume::Volumes;

/// Seconds that pass whenever the server asks for the time.
const TICK_SECONDS: u32 = 5;

impl Administrators for Authority {
    fn is_administrator(&self, caller: &Caller) -> bool {
        self.is_superuser(caller)
    }
}

/// A file service that forgets what it is told.
struct Deaf;

impl FileService for Deaf {
    fn volume_changed(&self, _: VolumeId) {}
}

fn server(clock: Arc<AtomicU32>) -> VolumeServer {
    let partition = partition(Arc::new(MemoryMeta::new()), Arc::new(MemoryChunks::new()));
    let volumes = Volumes::open(vec![partition.clone()], options()).expect("an empty store");
    let new = new_volume(ROOT.volume, "home".parse().expect("a name"));
    volumes.create(partition.id, &new).expect("an empty partition");
    VolumeServer::new(VolumeServerParts {
        volumes: Arc::new(volumes),
        administrators: Arc::new(Authority),
        file_service: Arc::new(Deaf),
        clock: Arc::new(move || UnixTime(clock.fetch_add(TICK_SECONDS, Relaxed))),
    })
}

/// The volume service. Transactions are numbered from 1, since the clock begins at 0. At the end all
/// that are left have timed out.
pub fn serve_vol(data: &[u8]) {
    let clock = Arc::new(AtomicU32::new(0));
    let server = server(Arc::clone(&clock));
    history(data, |caller, stream| afs_idl::vol::dispatch(&server, caller, stream));
    clock.fetch_add(IDLE_SECONDS_MAX + TICK_SECONDS, Relaxed);
    server.expire_transactions();
    assert_eq!(server.expire_transactions(), 0, "all have timed out");
    server.delete_unfinished();
    assert_eq!(server.delete_unfinished(), 0, "all are deleted");
}
