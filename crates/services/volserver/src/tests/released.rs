//! Tests of releases to a partition other than that of the read-write volume, as `vos release` makes them
//! (UV_ReleaseVolume), interrupted after every step.

use super::support::{Cell, DOOMED, Disks, LARGE, admin, histories, read, write};
use afs_idl::MemoryStream;
use afs_idl::vol::{self, attach_mode, volume_type};
use base::{AbortCode, VolumeId};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use std::sync::Arc;
use volume::Volume;

const ID: u32 = 900;
const READ_ONLY: u32 = 902;
const SMALL: i32 = 0;
const STEPS: u32 = 8;
const SEEDS: u64 = 300;

/// A server with a read-write volume on the large partition, and a `vos release` in progress.
struct World {
    disks: Disks,
    cell: Cell,
    /// Contents of the read-write volume's file, and the contents that read-only volumes may have.
    written: u32,
    shown: Vec<u32>,
    source: i32,
    clone: i32,
    site: i32,
    since: u32,
    /// Whether the location database shows that the site has been released to before.
    is_marked: bool,
}

impl World {
    fn new() -> World {
        let disks = Disks::default();
        let cell = Cell::on(&disks);
        cell.vos_create(LARGE, "home", ID);
        let (written, shown, source, clone, site, since, is_marked) = Default::default();
        let mut world = World { disks, cell, written, shown, source, clone, site, since, is_marked };
        world.write();
        world
    }

    fn write(&mut self) {
        self.written += 1;
        self.cell.pass(10);
        let volume = self.cell.volumes.get(VolumeId(ID)).unwrap();
        write(&volume, self.cell.now(), "file", self.written.to_string().repeat(5000).as_bytes());
        self.cell.pass(10);
    }

    fn close(&self, transaction: i32) {
        self.cell.end(transaction).unwrap();
    }

    /// DoVolClone: creates a clone with the read-only id next to the read-write volume.
    fn make_clone(&mut self) {
        assert_eq!(self.cell.open(READ_ONLY, LARGE, attach_mode::OFFLINE), Err(AbortCode::VNOVOL));
        self.source = self.cell.open(ID, LARGE, attach_mode::BUSY).unwrap();
        let request = vol::CloneVolumeRequest {
            transaction: self.source,
            purge_volume_id: 0,
            new_name: "readonly-clone-temp".into(),
            new_type: volume_type::READ_ONLY,
            new_volume_id: READ_ONLY,
        };
        self.cell.server.clone_volume(&admin(), request).unwrap();
        self.close(self.source);
    }

    /// GetTrans.
    fn open_site(&mut self) {
        self.since = 0;
        if !self.is_marked {
            self.cell.vos_delete(READ_ONLY, SMALL);
        }
        match self.cell.open(READ_ONLY, SMALL, attach_mode::OFFLINE) {
            Ok(open) => {
                self.site = open;
                let request = vol::GetStatusRequest { transaction: open };
                let status = self.cell.server.get_status(&admin(), request).unwrap().status;
                self.since = status.update_date;
            }
            Err(code) => {
                assert_eq!(code, AbortCode::VNOVOL);
                let request = vol::CreateVolumeRequest {
                    partition: SMALL,
                    name: "home.readonly".into(),
                    volume_type: volume_type::READ_ONLY,
                    parent_id: ID,
                    volume_id: READ_ONLY,
                };
                self.site = self.cell.server.create_volume(&admin(), request).unwrap().transaction;
                self.cell.set_flags(self.site, DOOMED).unwrap();
            }
        }
    }

    fn send(&self) {
        let mut dump = MemoryStream::default();
        let request = vol::DumpRequest { transaction: self.clone, from_date: self.since };
        self.cell.server.dump(&admin(), request, &mut dump).unwrap();
        let cookie = vol::RestoreCookie {
            name: "home.readonly".into(),
            volume_type: volume_type::READ_ONLY,
            parent_id: ID,
            ..Default::default()
        };
        let request = vol::RestoreRequest { transaction: self.site, flags: 1, cookie };
        let mut dump = MemoryStream::new(&dump.outgoing, 1000);
        self.cell.server.restore(&admin(), request, &mut dump).unwrap();
        let request = vol::SetIdsTypesRequest {
            transaction: self.site,
            name: "home.readonly".into(),
            volume_type: volume_type::READ_ONLY,
            parent_id: ID,
            clone_id: 0,
            backup_id: 0,
        };
        self.cell.server.set_ids_types(&admin(), request).unwrap();
        self.cell.set_flags(self.site, 0).unwrap();
    }

    fn step(&mut self, step: u32) {
        match step {
            1 => {
                self.shown.push(self.written);
                self.make_clone();
            }
            2 => self.clone = self.cell.open(READ_ONLY, LARGE, attach_mode::BUSY).unwrap(),
            3 => self.open_site(),
            4 => self.send(),
            5 => {
                self.close(self.site);
                self.is_marked = true;
            }
            6 => self.close(self.clone),
            _ => self.cell.vos_delete(READ_ONLY, LARGE),
        }
    }

    fn release(&mut self) {
        (0..STEPS).for_each(|step| self.step(step));
        self.shown = vec![self.written];
    }

    fn crash(&mut self, random: &mut StdRng) {
        self.cell = self.cell.after_crash(&mut self.disks, random);
    }

    /// Returns the volume and contents that file service shows under the read-only id.
    fn served(&self) -> Option<(Arc<Volume>, u32)> {
        let volume = self.cell.volumes.get(VolumeId(READ_ONLY)).ok().filter(|one| one.header().in_service)?;
        let read = read(&volume, "file");
        let digits = read.len() / 5000;
        let value: u32 = std::str::from_utf8(&read[..digits]).unwrap().parse().unwrap();
        assert_eq!(read, value.to_string().repeat(5000).as_bytes());
        Some((volume, value))
    }

    /// Checks that nothing is left over and that clients see the last release.
    fn check_end(&self) {
        let (volume, value) = self.served().expect("a read-only volume");
        assert_eq!((volume.partition().index() as i32, value), (SMALL, self.shown[0]));
        let header = volume.header();
        assert_eq!((header.parent, header.name.as_str()), (VolumeId(ID), "home.readonly"));
        let listed = |partition| self.cell.list(partition).iter().map(|entry| entry.volume_id).collect();
        let (small, large): (Vec<u32>, Vec<u32>) = (listed(SMALL), listed(LARGE));
        assert_eq!((small, large), (vec![READ_ONLY], vec![ID]));
        assert!(self.cell.volumes.all_apart().unwrap().is_empty());
        self.cell.check_all(&self.disks);
    }
}

#[test]
fn a_volume_is_released_repeatedly_to_another_partition() {
    let mut world = World::new();
    for _ in 0..3 {
        world.release();
        world.check_end();
        world.write();
        assert_eq!(world.served().unwrap().1, world.shown[0], "what is written later is not released");
    }
}

#[test]
fn a_site_shows_its_volume_while_the_next_release_is_made() {
    let mut world = World::new();
    world.release();
    world.write();
    for step in 0..STEPS {
        world.step(step);
        match world.served() {
            Some((volume, value)) => {
                assert_eq!(volume.partition().index() as i32, SMALL, "step {step}");
                assert!(world.shown.contains(&value));
                assert_eq!(step >= 5, value == world.written, "step {step}");
            }
            None => assert!([3, 4].contains(&step), "nothing is served after step {step}"),
        }
    }
}

#[test]
fn a_released_site_serves_though_others_failed() {
    let mut world = World::new();
    // `vos` does not remove the clone in this case.
    (0..STEPS - 1).for_each(|step| world.step(step));
    let (volume, value) = world.served().expect("the site's volume");
    assert_eq!((volume.partition().index() as i32, value), (SMALL, world.written));
    assert_eq!(world.cell.list(LARGE).len(), 1, "a clone that is not whole is not told of");
    world.write();
    world.release();
    world.check_end();
}

#[test]
fn older_remains_do_not_hide_a_newer_site() {
    let mut world = World::new();
    world.release();
    world.write();
    // The site is moved to the read-write volume's partition (`vos remsite`, `vos addsite`), where a release
    // makes a clone.
    world.make_clone();
    let clone = world.cell.open(READ_ONLY, LARGE, attach_mode::OFFLINE).unwrap();
    world.cell.set_flags(clone, 0).unwrap();
    world.close(clone);
    let (volume, value) = world.served().unwrap();
    assert_eq!((volume.partition().index() as i32, value), (LARGE, world.written));
    assert_eq!(world.cell.list_one(SMALL, READ_ONLY).unwrap().volume_id, READ_ONLY);
    // After a crash, and after either volume is removed, the other one is available.
    world.crash(&mut StdRng::seed_from_u64(1));
    assert_eq!(world.served().unwrap().1, world.written);
    world.cell.vos_delete(READ_ONLY, LARGE);
    assert_eq!(world.served().unwrap().0.partition().index() as i32, SMALL);
    world.cell.check();
}

#[test]
fn only_one_of_several_read_only_volumes_is_converted() {
    let mut world = World::new();
    world.release();
    world.make_clone();
    let clone = world.cell.open(READ_ONLY, LARGE, attach_mode::OFFLINE).unwrap();
    world.cell.set_flags(clone, 0).unwrap();
    world.close(clone);
    world.cell.vos_delete(ID, LARGE);
    let request = vol::ConvertRoToRwVolumeRequest { partition: SMALL, volume_id: READ_ONLY };
    world.cell.server.convert_ro_to_rw_volume(&admin(), request).unwrap();
    let header = world.cell.volumes.get(VolumeId(ID)).unwrap().header();
    assert_eq!((header.clone, header.stands_for), (VolumeId(READ_ONLY), None));
    assert_eq!(world.served().unwrap().0.partition().index() as i32, LARGE);
    world.cell.check();
}

#[test]
fn a_release_that_is_cut_off_is_made_good_by_the_next_one() {
    histories(SEEDS, cut_off);
}

fn cut_off(_: u64, random: &mut StdRng) {
    let mut world = World::new();
    let is_there = random.random();
    if is_there {
        world.release();
        world.write();
    }
    let steps = random.random_range(1..=STEPS);
    (0..steps).for_each(|step| world.step(step));
    match random.random_range(0..3) {
        0 => world.crash(random),
        1 => {
            world.cell.pass(700);
            world.cell.server.expire_transactions();
        }
        _ => [world.clone, world.site, world.source].iter().for_each(|&open| _ = world.cell.end(open)),
    }
    match world.served() {
        Some((volume, value)) => {
            assert_eq!(volume.partition().index() as i32, SMALL);
            assert!(world.shown.contains(&value), "{value} of {:?}", world.shown);
        }
        None => assert!(!is_there, "what was released before is gone"),
    }
    if random.random() {
        world.write();
    }
    world.release();
    world.check_end();
    world.crash(random);
    world.check_end();
}
