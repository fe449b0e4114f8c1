//! The file service on one volume.

use super::client::Network;
use super::{Authority, history, protection};
use crate::records::{NOW, new_volume, options, partition};
use afs_format::acl::{Acl, AclEntry};
use base::{Fid, Monotonic, Rights, UserId, VnodeId, VolumeId};
use callbacks::CallbackConfig;
use fileserver::{Clock, Environment, FileServer, FileServerConfig, LocalMembership, TransportFigures};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;
use store::{MemoryChunks, MemoryMeta};
use volume::{Actor, Volumes};

/// The volume's root, to which everyone has all rights.
pub const ROOT: Fid = Fid { volume: VolumeId(536_870_915), vnode: VnodeId(1), unique: 1 };

/// A clock that advances by a millisecond whenever it is read.
#[derive(Default)]
struct Ticks(AtomicU64);

impl Clock for Ticks {
    fn monotonic(&self) -> Monotonic {
        Monotonic(self.0.fetch_add(1_000_000, Relaxed))
    }

    fn wall(&self) -> Duration {
        Duration::from_secs(NOW.0.into()) + Duration::from_nanos(self.0.load(Relaxed))
    }
}

fn volumes() -> Volumes {
    let partition = partition(Arc::new(MemoryMeta::new()), Arc::new(MemoryChunks::new()));
    let volumes = Volumes::open(vec![partition.clone()], options()).expect("an empty store");
    let new = new_volume(ROOT.volume, "home".parse().expect("a name"));
    let volume = volumes.create(partition.id, &new).expect("an empty partition");
    let everybody = AclEntry { id: UserId::ANYUSER, rights: Rights::from_bits(0x7f) };
    let acl = Acl::new(&[everybody], &[]).expect("a short list");
    let actor = Actor { user: UserId(1), privileged: true, in_transaction: false, call: None, now: NOW };
    volume.set_acl(&actor, ROOT, acl).expect("a new root");
    volumes
}

fn config() -> FileServerConfig {
    FileServerConfig { locks_max: 100, callbacks: CallbackConfig::default(), ..Default::default() }
}

/// Exercises the file service.
pub fn serve_fs(data: &[u8]) {
    let environment = Environment {
        volumes: Arc::new(volumes()),
        membership: Arc::new(LocalMembership::new(protection(Arc::default()), Arc::new(Authority))),
        network: Arc::new(Network),
        clock: Arc::new(Ticks::default()),
        locator: None,
        transport: Arc::new(TransportFigures::default),
        process_kib: Arc::new(|| 1000),
    };
    let server = FileServer::new(config(), environment);
    history(data, |caller, stream| {
        let served = server.serve(|call| afs_idl::fs::dispatch(call, caller, stream));
        served.wait().expect("a store in memory")
    });
    server.maintain();
}
