//! Tests of two servers that share their partitions. Each has one; the volumes of the other one are known by a question.

use super::support::{Cell, DOOMED, Disks, LARGE, admin, anybody, read, write};
use crate::OtherOwners;
use afs_idl::MemoryStream;
use afs_idl::vol::{self, attach_mode};
use base::{AbortCode, PartitionId, VolumeId};
use parking_lot::Mutex;
use std::net::SocketAddrV4;
use std::ops::RangeInclusive;
use std::sync::Arc;
use std::time::Duration;
use volume::Volumes;

const ID: u32 = 900;
const READ_ONLY: u32 = 901;
const SMALL: i32 = 0;
const ENOENT: AbortCode = AbortCode(2);

/// What a server answers whether partitions get volumes.
struct TakesVolumes(Option<bool>);

impl Default for TakesVolumes {
    fn default() -> TakesVolumes {
        TakesVolumes(Some(true))
    }
}

/// What a server knows of the other one.
#[derive(Default)]
struct Other {
    volumes: Mutex<Option<Arc<Volumes>>>,
    /// Whether the other server does not answer.
    is_silent: Mutex<bool>,
    /// Whether partitions get volumes, if that is known.
    takes: Mutex<TakesVolumes>,
    /// Number of the ownership; none without one.
    epoch: Mutex<Option<i32>>,
    reported: Mutex<Vec<u32>>,
}

impl OtherOwners for Other {
    fn partitions(&self) -> Vec<PartitionId> {
        [0, 1, 2, 30].into_iter().filter_map(PartitionId::from_index).collect()
    }

    fn takes_volumes(&self, _: PartitionId) -> Option<bool> {
        self.takes.lock().0
    }

    fn transaction_numbers(&self, partition: PartitionId) -> Option<RangeInclusive<i32>> {
        let first = (*self.epoch.lock())? * 100 + partition.index() as i32 * 10_000;
        Some(first + 1..=first + 99)
    }

    fn prefix_beside(&self, _: PartitionId, _: PartitionId) -> Option<String> {
        None
    }

    fn address(&self) -> Option<SocketAddrV4> {
        None
    }

    fn has(&self, volume: VolumeId, _: Duration) -> Option<bool> {
        let has = |volumes: &Arc<Volumes>| volumes.partition_of(volume).is_some();
        let is_known = !*self.is_silent.lock();
        is_known.then(|| self.volumes.lock().as_ref().is_some_and(has))
    }

    fn volume_deleted(&self, volume: VolumeId) {
        self.reported.lock().push(volume.0);
    }
}

/// A server that owns its partitions, and what it knows of the other one.
fn side(disks: &Disks) -> (Cell, Arc<Other>) {
    let (cell, other) = (Cell::on(disks), Arc::new(Other::default()));
    *other.epoch.lock() = Some(5);
    (cell.sharing(other.clone()), other)
}

/// Two servers that know each other.
fn pair() -> [(Cell, Arc<Other>); 2] {
    let pair = [side(&Disks::default()), side(&Disks::default())];
    for (one, two) in [(0, 1), (1, 0)] {
        *pair[one].1.volumes.lock() = Some(pair[two].0.volumes.clone());
    }
    pair
}

fn copy(from: &Cell, source: i32, to: &Cell, target: i32) {
    let mut dump = MemoryStream::default();
    from.server.dump(&admin(), vol::DumpRequest { transaction: source, from_date: 0 }, &mut dump).unwrap();
    let cookie = vol::RestoreCookie { name: "home".into(), parent_id: ID, ..Default::default() };
    let request = vol::RestoreRequest { transaction: target, flags: 0, cookie };
    to.server.restore(&admin(), request, &mut MemoryStream::new(&dump.outgoing, 1000)).unwrap();
}

/// `vos move` from one server to the other: until the old volume is deleted, file service has only that one.
#[test]
fn a_volume_that_comes_from_the_other_server_is_parked() {
    let [(from, _), (to, about)] = &pair();
    from.vos_create(SMALL, "home", ID);
    let volume = from.volumes.get(VolumeId(ID)).unwrap();
    write(&volume, from.now(), "f", b"contents");
    let source = from.open(ID, SMALL, attach_mode::BUSY).unwrap();
    let target = to.create(LARGE, "home", ID, ID).unwrap();
    assert_eq!(to.volumes.partition_of(VolumeId(ID)), None, "calls for it go to the other server");
    copy(from, source, to, target);
    to.set_flags(target, 0).unwrap();
    to.end(target).unwrap();
    assert_eq!(to.file_service(ID), Some(AbortCode::VNOVOL));
    assert_eq!(to.list_one(LARGE, ID).unwrap().name, "home", "administration knows it");
    to.server.deleted_elsewhere(VolumeId(ID));
    assert_eq!(to.file_service(ID), Some(AbortCode::VNOVOL), "the other one is still there");
    from.set_flags(source, DOOMED).unwrap();
    from.delete(source).unwrap();
    from.end(source).unwrap();
    assert_eq!(*about.reported.lock(), [] as [u32; 0]);
    to.server.deleted_elsewhere(VolumeId(ID));
    assert_eq!(read(&to.volumes.get(VolumeId(ID)).unwrap(), "f"), b"contents");
    assert_eq!(to.heard.take().last(), Some(&ID));
    to.check();
}

/// A partition that is removed from a cluster gets no volume, whatever creates it; those that it has stay usable.
#[test]
fn a_partition_that_is_being_removed_gets_no_volumes() {
    let [(cell, other), _] = &pair();
    cell.vos_create(SMALL, "before", ID);
    for (takes, code) in [(Some(false), AbortCode::VOLSERILLEGAL_PARTITION), (None, AbortCode::VBUSY)] {
        *other.takes.lock() = TakesVolumes(takes);
        assert_eq!(cell.create(SMALL, "new", ID + 10, 0), Err(code));
        assert_eq!(cell.create(SMALL, "moved", ID + 20, ID + 20), Err(code), "one that waits for a restore");
    }
    assert_eq!(cell.file_service(ID), None);
    *other.takes.lock() = TakesVolumes(Some(true));
    cell.vos_create(SMALL, "new", ID + 10);
}

#[test]
fn deletions_are_reported() {
    let [(cell, other), _] = &pair();
    for id in [ID, ID + 10] {
        cell.vos_create(SMALL, &format!("v{id}"), id);
    }
    cell.vos_delete(ID, SMALL);
    let nuke = vol::NukeVolumeRequest { partition: SMALL, volume_id: ID + 10 };
    cell.server.nuke_volume(&admin(), nuke).unwrap();
    assert_eq!(*other.reported.lock(), [ID, ID + 10]);
}

/// A volume is not lost because another server was silent when it was created for a restore, as a move does.
#[test]
fn a_volume_is_parked_until_its_id_is_known_to_be_free() {
    let [(cell, other), (source, _)] = &pair();
    source.vos_create(LARGE, "home", ID + 1);
    *other.is_silent.lock() = true;
    let target = cell.create(SMALL, "home", ID, ID).unwrap();
    let open = source.open(ID + 1, LARGE, attach_mode::BUSY).unwrap();
    copy(source, open, cell, target);
    cell.set_flags(target, 0).unwrap();
    cell.end(target).unwrap();
    cell.server.expire_transactions();
    assert_eq!(cell.file_service(ID), Some(AbortCode::VNOVOL));
    *other.is_silent.lock() = false;
    cell.server.expire_transactions();
    assert_eq!(cell.file_service(ID), None);
    assert_eq!(cell.create(SMALL, "again", ID, 0), Err(AbortCode::VVOLEXISTS));
}

/// `vos create` while another partition has no owner: the client gets VBUSY, and finds nothing in its way.
#[test]
fn a_creation_leaves_nothing_if_the_id_may_be_in_use() {
    let [(cell, other), _] = &pair();
    *other.is_silent.lock() = true;
    assert_eq!(cell.create(SMALL, "new", ID, 0), Err(AbortCode::VBUSY));
    assert_eq!(cell.list(SMALL).len(), 0);
    assert!(cell.volumes.all_apart().unwrap().is_empty());
    *other.is_silent.lock() = false;
    cell.vos_create(SMALL, "new", ID);
    assert_eq!(cell.file_service(ID), None, "no transaction of the first attempt has it");
}

/// `vos release` clones the read-write volume under the id of the read-only one, which the other server has.
#[test]
fn a_clone_with_the_id_of_the_other_servers_volume_is_parked() {
    let [(cell, _), (site, _)] = &pair();
    cell.vos_create(SMALL, "home", ID);
    site.vos_create(LARGE, "home.readonly", READ_ONLY);
    let source = cell.open(ID, SMALL, attach_mode::BUSY).unwrap();
    let clone = |id| {
        let request = vol::CloneVolumeRequest {
            transaction: source,
            purge_volume_id: 0,
            new_name: "home.readonly".into(),
            new_type: 1,
            new_volume_id: id,
        };
        cell.server.clone_volume(&admin(), request).map(drop)
    };
    clone(READ_ONLY).unwrap();
    assert_eq!(cell.volumes.partition_of(VolumeId(READ_ONLY)), None);
    assert!(cell.list_one(SMALL, READ_ONLY).is_ok());
    assert_eq!(clone(READ_ONLY), Err(AbortCode::VVOLEXISTS));
    clone(READ_ONLY + 1).unwrap();
    assert!(cell.volumes.partition_of(VolumeId(READ_ONLY + 1)).is_some(), "an id without a volume");
    cell.end(source).unwrap();
    cell.vos_delete(READ_ONLY, SMALL);
    assert_eq!(site.file_service(READ_ONLY), None);
}

/// Transactions end with the ownership, and their numbers are not those of the next owner.
#[test]
fn transactions_end_with_the_ownership() {
    let disks = Disks::default();
    let (cell, other) = &side(&disks);
    cell.vos_create(SMALL, "home", ID);
    cell.vos_create(LARGE, "stays", ID + 10);
    let first = cell.open(ID, SMALL, attach_mode::OFFLINE).unwrap();
    let stays = cell.open(ID + 10, LARGE, attach_mode::BUSY).unwrap();
    assert_eq!((first, stays), (502, 20_502), "the second number of each partition in this epoch");
    let kept = cell.server.transactions().enter(first, "test").unwrap();
    cell.server.partition_lost(PartitionId::from_index(0).unwrap());
    assert_eq!(cell.end(first), Err(ENOENT));
    assert_eq!(cell.set_flags(first, 0), Err(ENOENT));
    *other.epoch.lock() = Some(6);
    let second = cell.open(ID, SMALL, attach_mode::OFFLINE).unwrap();
    assert_eq!(second, 601, "the volume is not locked by a call that has not ended");
    drop(kept);
    assert_eq!(cell.file_service(ID), Some(AbortCode::VOFFLINE), "the second transaction has it");
    cell.end(second).unwrap();
    cell.end(stays).unwrap();
    *other.epoch.lock() = None;
    assert_eq!(cell.open(ID, SMALL, attach_mode::OFFLINE), Err(AbortCode::VNOVOL), "another server has it");
}

#[test]
fn numbers_are_used_in_turn() {
    let (cell, _) = &side(&Disks::default());
    cell.vos_create(SMALL, "home", ID);
    cell.vos_create(SMALL, "other", ID + 10);
    let held = cell.open(ID + 10, SMALL, attach_mode::BUSY).unwrap();
    assert_eq!(held, 503);
    for round in 0..200 {
        let number = cell.open(ID, SMALL, attach_mode::BUSY).unwrap();
        assert!((501..=599).contains(&number) && number != held, "{number} in round {round}");
        cell.end(number).unwrap();
    }
}

/// What the last owner's transactions were making is deleted by the next one, unless a transaction is on it again.
#[test]
fn the_next_owner_deletes_what_is_incomplete() {
    let disks = Disks::default();
    let (cell, _) = side(&disks);
    cell.vos_create(SMALL, "home", ID);
    for id in [ID + 10, ID + 20] {
        cell.create(SMALL, &format!("half.{id}"), id, 0).unwrap();
    }
    cell.create(LARGE, "another", ID + 30, 0).unwrap();
    drop(cell);
    let (cell, _) = side(&disks);
    let left_over = cell.server.left_over(PartitionId::from_index(0).unwrap());
    assert_eq!(left_over.len(), 2);
    let again = cell.open(ID + 20, SMALL, attach_mode::OFFLINE).unwrap();
    cell.server.delete_left_over(&left_over);
    let is_there = |id| cell.volumes.partition_of(VolumeId(id)).is_some();
    assert_eq!([ID, ID + 10, ID + 20, ID + 30].map(is_there), [true, false, true, true]);
    cell.end(again).unwrap();
}

#[test]
fn partitions_of_both_servers_are_listed() {
    let (cell, _) = &side(&Disks::default());
    let listed = cell.server.x_list_partitions(&anybody(), vol::XListPartitionsRequest).unwrap();
    assert_eq!(listed.partitions, [0, 1, 2, 30]);
    let listed = cell.server.list_partitions(&anybody(), vol::ListPartitionsRequest).unwrap();
    assert_eq!(listed.partitions.ids[..4], [0, 1, 2, -1]);
}
