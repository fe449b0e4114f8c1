//! Changes that an owner has made before it dies, and whose replies were lost.

use crate::failures::ENDS;
use crate::files;
use crate::world::{Client, Node, World, cell, open, root};
use afs_idl::fs::volume_status_mask;
use afs_idl::{CallStream, ClientConnection, cluster, fs};
use base::{AbortCode, SecurityLevel};
use bytes::Bytes;
use rx::Server;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::thread;
use std::time::Duration;

/// A way to a node on which all replies are lost.
struct Silent {
    port: Server,
    /// Number of calls that were executed.
    executed: Arc<AtomicU64>,
}

impl Silent {
    fn start(ip: Ipv4Addr, node: &Node) -> Silent {
        let executed = Arc::new(AtomicU64::new(0));
        let (service, count) = (node.service.clone(), executed.clone());
        let port = open(ip, cluster::SERVICE_ID, move |call, stream| {
            _ = cluster::dispatch(&*service, call, &mut Swallow(stream));
            count.fetch_add(1, Relaxed);
            Err(AbortCode::VRESTARTING)
        });
        Silent { port, executed }
    }

    fn address(&self) -> SocketAddr {
        self.port.addresses()[0]
    }

    /// Waits until a call was executed.
    fn await_call(&self) {
        while self.executed.load(Relaxed) == 0 {
            thread::sleep(Duration::from_millis(1));
        }
    }
}

impl Drop for Silent {
    fn drop(&mut self) {
        self.port.stop();
    }
}

struct Swallow<'s>(&'s mut dyn CallStream);

impl CallStream for Swallow<'_> {
    fn read(&mut self, buf: &mut [u8]) -> Result<usize, AbortCode> {
        self.0.read(buf)
    }

    fn read_chunk(&mut self, max: usize) -> Result<Bytes, AbortCode> {
        self.0.read_chunk(max)
    }

    fn write(&mut self, _: Bytes) -> Result<(), AbortCode> {
        Ok(())
    }
}

type Connection = dyn ClientConnection;

/// A call that changes something in a directory.
type Make = fn(&Connection, fs::Fid) -> Result<(), AbortCode>;

/// Changes after each other, which all fail if the one before was made twice or not at all. The second argument is the
/// file that the first one makes.
const CHANGES: [Make; 8] = [
    |c, _| files::make(c, root(1), "a").map(drop),
    |c, file| files::store(c, file, &[7; 5000]).map(drop),
    |c, _| {
        let status = fs::StoreStatus::default();
        fs::make_dir(c, &fs::MakeDirRequest { directory: root(1), name: "d".into(), status }).map(drop)
    },
    |c, _| {
        let (status, contents) = (fs::StoreStatus::default(), "a".into());
        let link = fs::SymlinkRequest { directory: root(1), name: "s".into(), contents, status };
        fs::symlink(c, &link).map(drop)
    },
    |c, existing| fs::link(c, &fs::LinkRequest { directory: root(1), name: "b".into(), existing }).map(drop),
    |c, _| {
        let (old_directory, new_directory) = (root(1), root(1));
        let (old_name, new_name) = ("b".into(), "c".into());
        let rename = fs::RenameRequest { old_directory, old_name, new_directory, new_name };
        fs::rename(c, &rename).map(drop)
    },
    |c, _| fs::remove_dir(c, &fs::RemoveDirRequest { directory: root(1), name: "d".into() }).map(drop),
    |c, _| fs::remove_file(c, &fs::RemoveFileRequest { directory: root(1), name: "s".into() }).map(drop),
];

fn version(connection: &Connection, fid: fs::Fid) -> u32 {
    fs::fetch_status(connection, &fs::FetchStatusRequest { fid }).unwrap().status.data_version
}

/// Makes a call whose reply is lost, and whose owner is then succeeded by a process with this number.
fn lose_reply<T: Send>(world: &mut World, number: u8, call: impl FnOnce() -> T + Send) -> T {
    let silent = Silent::start(Ipv4Addr::new(127, 0, 7, 60), &world.nodes[1]);
    world.table.addresses.lock().insert(1, silent.address());
    thread::scope(|scope| {
        let calling = scope.spawn(call);
        silent.await_call();
        world.restart(1, number);
        calling.join().unwrap()
    })
}

/// The next owner finds the results of changes that the last one has made, and whose replies were lost.
#[test]
fn the_next_owner_finds_the_result_of_a_change() {
    let mut world = World::new();
    let ann = Client::start(61);
    let front = ann.to_within(&world.nodes[0], ENDS);
    let find = |name: &str| {
        let request = fs::LookupRequest { directory: root(1), name: name.into() };
        fs::lookup(&*front, &request).map(|reply| reply.fid)
    };
    for (number, change) in (0..).zip(CHANGES) {
        let (before, file) = (version(&*front, root(1)), find("a").unwrap_or(root(1)));
        let changed = lose_reply(&mut world, 70 + number, || change(&*front, file));
        assert_eq!(changed, Ok(()), "change {number}");
        assert_eq!(world.nodes[1].service.counters().found, 0, "this process has executed none before");
        let changes_directory = number != 1;
        assert_eq!(version(&*front, root(1)) - before, u32::from(changes_directory), "change {number}");
    }
    assert_eq!(version(&*front, find("c").unwrap()), 1, "one store");
    assert!(world.nodes[0].front.counters().unknown >= 8);
}

/// A call about locks.
type Step<'s> = &'s (dyn Fn() -> Result<(), AbortCode> + Sync);

/// A lock that is set twice counts twice, or finds itself; one that is released twice releases another client's.
#[test]
fn the_next_owner_finds_the_result_of_a_lock() {
    use fs::lock_type::{READ, WRITE};
    let mut world = World::new();
    let ann = Client::start(64);
    let front = ann.to_within(&world.nodes[0], ENDS);
    let file = files::make(&*front, root(1), "a").unwrap();
    let set = |lock_type| fs::set_lock(&*front, &fs::SetLockRequest { fid: file, lock_type }).map(drop);
    let release = || fs::release_lock(&*front, &fs::ReleaseLockRequest { fid: file }).map(drop);
    let extend = || fs::extend_lock(&*front, &fs::ExtendLockRequest { fid: file }).map(drop);
    let steps: [(Step<'_>, i32); 8] = [
        (&|| set(READ), 1),
        (&|| set(READ), 2),
        (&extend, 2),
        (&release, 1),
        (&release, 0),
        (&release, 0),
        (&|| set(WRITE), -1),
        (&release, 0),
    ];
    for (number, (change, count)) in (0..).zip(steps) {
        let changed = lose_reply(&mut world, 80 + number, change);
        assert_eq!(changed, Ok(()), "step {number}");
        let status = fs::fetch_status(&*front, &fs::FetchStatusRequest { fid: file }).unwrap().status;
        assert_eq!(status.lock_count as i32, count, "step {number}");
    }
}

/// Settings whose outcome is unknown are set again: that changes nothing if the last owner has set them.
#[test]
fn the_next_owner_sets_the_same_settings() {
    let mut world = World::new();
    let admin = Client::start(65);
    let front = admin.to_service(world.nodes[0].files, fs::SERVICE_ID, Some(cell(SecurityLevel::Encrypted)));
    let volume_id = root(1).volume;
    let settings = fs::SetVolumeStatusRequest {
        volume_id,
        status: fs::StoreVolumeStatus {
            mask: volume_status_mask::MAX_QUOTA,
            max_quota: 4711,
            ..Default::default()
        },
        offline_message: "back soon".into(),
        ..Default::default()
    };
    let shown = || fs::get_volume_status(&*front, &fs::GetVolumeStatusRequest { volume_id }).unwrap();
    assert_ne!(shown().status.max_quota, 4711);
    let set = lose_reply(&mut world, 90, || fs::set_volume_status(&*front, &settings).map(drop));
    assert_eq!(set, Ok(()));
    assert!(world.nodes[0].front.counters().unknown >= 1);
    let shown = shown();
    assert_eq!(shown.status.max_quota, 4711);
    assert!(shown.offline_message == "back soon");
}

/// A front that becomes the owner finds the result of the change that it has forwarded.
#[test]
fn a_front_that_becomes_the_owner_finds_the_result() {
    let world = World::new();
    let ann = Client::start(62);
    let front = ann.to_within(&world.nodes[0], ENDS);
    version(&*front, root(1));
    let silent = Silent::start(Ipv4Addr::new(127, 0, 7, 63), &world.nodes[1]);
    world.table.addresses.lock().insert(1, silent.address());
    let made = thread::scope(|scope| {
        let changing = scope.spawn(|| files::make(&*front, root(1), "a"));
        silent.await_call();
        world.take_over(0);
        changing.join().unwrap()
    });
    let request = fs::LookupRequest { directory: root(1), name: "a".into() };
    assert_eq!(fs::lookup(&*front, &request).map(|reply| reply.fid), made);
    assert_eq!(files::make(&*front, root(1), "a"), Err(AbortCode::UAEEXIST), "another call");
}
