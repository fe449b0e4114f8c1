//! Snapshots made by administrators and on schedule.

use super::{SnapshotEntry, SnapshotHost};
use crate::AdminServer;
use crate::tests::{FakeHost, known, server_at};
use afs_idl::cellar::{self, SnapshotPolicy};
use base::{AbortCode, CallContext, PartitionId, UnixTime, VolumeId, VolumeType};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use volume::{Actor, NewVolume, SetStatus};

const HOME: VolumeId = VolumeId(536_870_912);

/// Monday, 2 November 2026, at midnight.
const MONDAY: u32 = 1_793_577_600;

struct World {
    server: AdminServer,
    host: Arc<FakeHost>,
    clock: Arc<AtomicU32>,
}

fn world(name: &str) -> World {
    let (clock, host) = (Arc::new(AtomicU32::new(MONDAY)), Arc::new(FakeHost::default()));
    let server = server_at(clock.clone(), host.clone());
    let new = NewVolume {
        id: HOME,
        name: name.parse().unwrap(),
        kind: VolumeType::ReadWrite,
        parent: VolumeId(0),
        quota_max_kib: 0,
        with_root: true,
        in_service: true,
        destroy_me: 0,
        now: UnixTime(MONDAY),
    };
    server.parts.volumes.create(PartitionId::from_index(2).unwrap(), &new).unwrap();
    World { server, host, clock }
}

impl World {
    fn create(&self, name: &str, expires: u32) -> Result<cellar::SnapshotInfo, AbortCode> {
        let request = cellar::CreateSnapshotRequest { volume: HOME.0, name: name.into(), expires };
        self.server.create_snapshot(&known("admin"), request).map(|reply| reply.snapshot)
    }

    fn names(&self) -> Vec<String> {
        let request = cellar::ListSnapshotsRequest { volume: HOME.0, skip: 0 };
        let reply = self.server.list_snapshots(&known("alice"), request).unwrap();
        reply.snapshots.iter().map(|one| one.name.to_string()).collect()
    }

    fn change(&self, name: &str) {
        let volume = self.server.parts.volumes.get(HOME).unwrap();
        let actor = Actor {
            user: base::UserId(1),
            privileged: true,
            in_transaction: false,
            call: None,
            now: UnixTime(self.clock.load(Relaxed)),
        };
        volume.create_file(&actor, volume.root(), name.as_bytes(), &SetStatus::default()).unwrap();
    }

    fn has(&self, name: &str) -> bool {
        let volume = self.server.parts.volumes.get(HOME).unwrap();
        volume.lookup(volume.root(), name.as_bytes()).is_ok()
    }

    fn roll_back(&self, name: &str) -> Result<(), AbortCode> {
        let request = cellar::RollBackVolumeRequest { volume: HOME.0, name: name.into() };
        self.server.roll_back_volume(&CallContext::new(&known("admin")), request).map(drop)
    }

    fn remove(&self, name: &str) -> Result<(), AbortCode> {
        let request = cellar::RemoveSnapshotRequest { volume: HOME.0, name: name.into() };
        self.server.remove_snapshot(&CallContext::new(&known("admin")), request).map(drop)
    }

    fn at(&self, seconds: u32) {
        self.clock.store(MONDAY + seconds, Relaxed);
        self.server.keep_snapshots();
    }
}

#[test]
fn a_snapshot_has_an_entry_that_clients_can_mount() {
    let world = world("home.alice");
    let made = world.create("monday", 0).unwrap();
    assert_eq!(made.volume_name.to_string(), "home.alice.snap.monday.readonly");
    let entries = world.host.entries();
    let [SnapshotEntry { name, parent, id, partition }] = &entries[..] else { panic!("{entries:?}") };
    assert_eq!((name.as_str(), id.0, parent.0), ("home.alice.snap.monday", made.volume, made.volume - 1));
    assert_eq!(*partition, PartitionId::from_index(2).unwrap());
    // The name is too long with `.readonly`, or in use: the number replaces it.
    let long = world.create("before-the-upgrade", 0).unwrap();
    assert_eq!(long.volume_name.to_string(), format!("snap.{}.readonly", long.volume));
    world.host.take_name("home.alice.snap.other");
    let other = world.create("other", 0).unwrap();
    assert_eq!(other.volume_name.to_string(), format!("snap.{}.readonly", other.volume));
    assert_eq!(world.names(), ["monday", "before-the-upgrade", "other"]);
    world.remove("monday").unwrap();
    assert!(world.host.entries().iter().all(|entry| entry.id.0 != made.volume));
    assert_eq!(world.names(), ["before-the-upgrade", "other"]);
}

#[test]
fn impossible_requests_leave_nothing_behind() {
    let world = world("home");
    world.create("one", 0).unwrap();
    assert_eq!(world.create("one", 0), Err(AbortCode::UAEEXIST));
    assert_eq!(world.create("no/name", 0), Err(AbortCode::UAEINVAL));
    assert_eq!(world.remove("two"), Err(AbortCode::UAENOENT));
    assert_eq!(world.roll_back("two"), Err(AbortCode::UAENOENT));
    world.host.fail_with(Some(AbortCode::RX_CALL_DEAD));
    assert_eq!(world.create("two", 0), Err(AbortCode::RX_CALL_DEAD));
    assert_eq!(world.remove("one"), Err(AbortCode::RX_CALL_DEAD));
    world.host.fail_with(None);
    assert_eq!(world.names(), ["one"]);
    world.host.set_busy(true);
    assert_eq!(world.roll_back("one"), Err(AbortCode::VOLSERVOLBUSY));
    let request = cellar::CreateSnapshotRequest { volume: HOME.0, name: "x".into(), expires: 0 };
    assert_eq!(world.server.create_snapshot(&known("alice"), request), Err(AbortCode::UAEACCES));
}

#[test]
fn a_rollback_breaks_callbacks() {
    let world = world("home");
    world.change("old");
    world.create("one", 0).unwrap();
    world.change("new");
    assert!(world.host.changed().is_empty());
    world.roll_back("one").unwrap();
    assert_eq!(world.host.changed(), [HOME]);
    assert!(world.has("old") && !world.has("new"));
    let request = cellar::GetSnapshotSpaceRequest { volume: HOME.0, name: "one".into() };
    let space = world.server.get_snapshot_space(&known("admin"), request).unwrap();
    assert_eq!((space.records, space.chunks), (0, 0), "the volume shows the same");
}

#[test]
fn snapshots_come_and_go_with_the_time() {
    let world = world("home");
    let policy = SnapshotPolicy { hourly: 2, daily: 1, weekly: 0, monthly: 0 };
    let request = cellar::SetSnapshotPolicyRequest { volume: HOME.0, policy };
    world.server.set_snapshot_policy(&known("admin"), request).unwrap();
    let set = world
        .server
        .get_snapshot_policy(&known("alice"), cellar::GetSnapshotPolicyRequest { volume: HOME.0 });
    assert_eq!(set, Ok(cellar::GetSnapshotPolicyReply { policy }));
    world.create("by-hand", MONDAY + 4 * 3600 + 900).unwrap();
    for hour in 0..4 {
        world.change(&format!("f{hour}"));
        world.at(hour * 3600 + 5);
        world.at(hour * 3600 + 600);
    }
    let expected = ["by-hand", "auto-20261102-000005", "auto-20261102-020005", "auto-20261102-030005"];
    assert_eq!(world.names(), expected);
    world.at(4 * 3600 + 901);
    assert_eq!(world.names(), expected[1..], "it has expired, and nothing has changed since three");
    assert_eq!(world.host.entries().len(), 3);
    // The server was down for a day.
    world.change("late");
    world.at(30 * 3600);
    assert_eq!(world.names(), ["auto-20261102-030005", "auto-20261103-060000"]);
    // Failed work is retried a minute later.
    world.change("later");
    world.host.fail_with(Some(AbortCode::RX_CALL_DEAD));
    world.at(31 * 3600);
    world.host.fail_with(None);
    world.at(31 * 3600 + 30);
    assert_eq!(world.names().len(), 2);
    world.at(31 * 3600 + 61);
    assert_eq!(world.names(), ["auto-20261103-060000", "auto-20261103-070101"]);
    let none = SnapshotPolicy::default();
    let request = cellar::SetSnapshotPolicyRequest { volume: HOME.0, policy: none };
    world.server.set_snapshot_policy(&known("admin"), request).unwrap();
    world.change("last");
    world.at(99 * 3600);
    assert_eq!(world.names().len(), 2, "without a policy nothing comes or goes");
}

/// The fake host fails as configured.
#[test]
fn the_host_refuses_on_request() {
    let host = FakeHost::default();
    host.fail_with(Some(AbortCode::RX_CALL_DEAD));
    assert_eq!(host.new_ids(), Err(AbortCode::RX_CALL_DEAD));
}
