//! Tests of moves between partitions of one server, as `vos move` makes them (UV_MoveVolume2), interrupted
//! after every step.

use super::support::{Cell, DOOMED, Disks, LARGE, admin, histories, read, write};
use afs_idl::MemoryStream;
use afs_idl::vol::{self, attach_mode, volume_flags};
use base::{AbortCode, VolumeId};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use std::collections::BTreeMap;
use std::sync::Arc;
use volume::{Volume, VolumeState};

const ID: u32 = 900;
const CLONE: u32 = 901;
const READ_ONLY: u32 = 902;
const SMALL: i32 = 0;
const STEPS: u32 = 10;
/// Up to this step the location database points to the source.
const SWITCH: u32 = 7;
const SEEDS: u64 = 300;

/// A server, the contents acknowledged to clients, and a `vos move` in progress.
struct World {
    disks: Disks,
    cell: Cell,
    written: BTreeMap<String, Vec<u8>>,
    from: i32,
    to: i32,
    source: i32,
    clone: i32,
    target: i32,
    since: u32,
}

impl World {
    fn new(from: i32, to: i32) -> World {
        let disks = Disks::default();
        let cell = Cell::on(&disks);
        cell.vos_create(from, "home", ID);
        let (written, source, clone, target, since) = Default::default();
        let mut world = World { disks, cell, written, from, to, source, clone, target, since };
        for name in ["a", "b", "c"] {
            world.write(name, name.repeat(3000).as_bytes());
        }
        world
    }

    fn served(&self) -> Arc<Volume> {
        self.cell.volumes.get(VolumeId(ID)).unwrap()
    }

    fn write(&mut self, name: &str, data: &[u8]) {
        let volume = self.served();
        self.cell.pass(10);
        write(&volume, self.cell.now(), name, data);
        self.written.insert(name.into(), data.to_vec());
    }

    fn is_served(&self) -> bool {
        self.cell.file_service(ID).is_none()
    }

    fn check_contents(&self, volume: &Arc<Volume>) {
        for (name, data) in &self.written {
            assert!(read(volume, name) == *data, "the contents of {name}");
        }
    }

    fn dump(&self, transaction: i32, since: u32) {
        let mut dump = MemoryStream::default();
        let request = vol::DumpRequest { transaction, from_date: since };
        self.cell.server.dump(&admin(), request, &mut dump).unwrap();
        let cookie = vol::RestoreCookie { name: "home".into(), parent_id: ID, ..Default::default() };
        let request = vol::RestoreRequest { transaction: self.target, flags: 1, cookie };
        let mut dump = MemoryStream::new(&dump.outgoing, 1000);
        self.cell.server.restore(&admin(), request, &mut dump).unwrap();
    }

    fn make_clone(&mut self) {
        let request = vol::CloneVolumeRequest {
            transaction: self.source,
            purge_volume_id: 0,
            new_name: "move-clone-temp".into(),
            new_type: 1,
            new_volume_id: CLONE,
        };
        self.cell.server.clone_volume(&admin(), request).unwrap();
        self.since = self.cell.now().0;
    }

    fn step(&mut self, step: u32) {
        let cell = &self.cell;
        match step {
            0 => {
                self.source = cell.open(ID, self.from, attach_mode::BUSY).unwrap();
                self.make_clone();
                self.cell.end(self.source).unwrap();
            }
            1 => {
                assert_eq!(cell.open(ID, self.to, attach_mode::OFFLINE), Err(AbortCode::VNOVOL));
                self.target = cell.create(self.to, "home", ID, ID).unwrap();
                cell.set_flags(self.target, DOOMED).unwrap();
            }
            2 => {
                self.clone = cell.open(CLONE, self.from, attach_mode::OFFLINE).unwrap();
                self.dump(self.clone, 0);
                self.cell.end(self.clone).unwrap();
            }
            3 => {
                self.write("b", b"changed while the clone was sent");
                self.write("d", b"new");
                self.source = self.cell.open(ID, self.from, attach_mode::BUSY).unwrap();
                self.dump(self.source, self.since);
            }
            4 => cell.set_flags(self.source, volume_flags::OUT_OF_SERVICE).unwrap(),
            5 => cell.set_flags(self.target, 0).unwrap(),
            6 => _ = cell.end(self.target).unwrap(),
            7 => cell.delete(self.source).unwrap(),
            8 => _ = cell.end(self.source).unwrap(),
            _ => self.cell.vos_delete(CLONE, self.from),
        }
    }

    fn crash(&mut self, random: &mut StdRng) {
        self.cell = self.cell.after_crash(&mut self.disks, random);
    }

    /// Cleans up as `vos` does after a failed move, or an operator later: removes one of the two volumes.
    fn recover(&mut self, has_switched: bool) {
        if has_switched {
            self.cell.vos_delete(ID, self.from);
        } else {
            self.cell.vos_delete(ID, self.to);
            let source = self.cell.open(ID, self.from, attach_mode::BUSY).unwrap();
            self.cell.set_flags(source, 0).unwrap();
            self.cell.end(source).unwrap();
        }
        self.cell.vos_delete(CLONE, self.from);
    }

    fn check_end(&self, place: i32) {
        assert_eq!(self.served().partition().index() as i32, place);
        assert_eq!(self.served().state(), VolumeState::Online);
        self.check_contents(&self.served());
        let listed = |partition| self.cell.list(partition).iter().map(|entry| entry.volume_id).collect();
        let (there, elsewhere): (Vec<u32>, Vec<u32>) = (listed(place), listed(LARGE - place));
        assert_eq!((there, elsewhere), (vec![ID], vec![]));
        assert!(self.cell.volumes.all_apart().unwrap().is_empty());
        self.cell.check_all(&self.disks);
    }
}

/// Checks that between steps, clients see the complete volume or wait.
fn check_between(world: &World, step: u32) {
    match world.cell.file_service(ID) {
        None => world.check_contents(&world.served()),
        Some(code) => {
            assert_eq!(code, AbortCode::VBUSY, "after step {step}");
            assert!((3..SWITCH).contains(&step), "clients wait after step {step}");
        }
    }
}

#[test]
fn a_volume_moves_to_another_partition_of_its_server_and_back() {
    let mut world = World::new(LARGE, SMALL);
    for (from, to) in [(LARGE, SMALL), (SMALL, LARGE)] {
        (world.from, world.to) = (from, to);
        for step in 0..STEPS {
            world.step(step);
            check_between(&world, step);
        }
        world.check_end(to);
        world.write("c", b"written behind the move");
        world.cell.pass(100);
    }
    world.check_end(LARGE);
}

#[test]
fn both_sites_of_a_moving_volume_are_listed() {
    let mut world = World::new(LARGE, SMALL);
    (0..6).for_each(|step| world.step(step));
    world.cell.end(world.target).unwrap();
    for partition in [LARGE, SMALL] {
        let listed = world.cell.list(partition);
        assert!(listed.iter().any(|entry| entry.volume_id == ID), "{listed:?}");
        assert!(listed.iter().all(|entry| [ID, CLONE].contains(&entry.volume_id)), "{listed:?}");
    }
    assert_eq!(world.cell.list_one(SMALL, ID).unwrap().volume_id, ID);
    assert_eq!(world.cell.list_one(SMALL, ID).unwrap().in_use, 1);
    let apart = world.cell.volumes.all_apart().unwrap()[0].id();
    assert_eq!(world.cell.file_service(apart.0), Some(AbortCode::VNOVOL));
    assert_eq!(world.cell.open(apart.0, SMALL, attach_mode::OFFLINE), Err(AbortCode::VNOVOL));
    assert!(world.cell.create(LARGE, "other", apart.0 + 1, 0).is_err());
    assert_eq!(world.cell.create(SMALL, "home", ID, ID), Err(AbortCode::VVOLEXISTS));
}

#[test]
fn a_clone_stays_where_it_was_when_its_volume_moves() {
    let mut world = World::new(LARGE, SMALL);
    let source = world.cell.open(ID, LARGE, attach_mode::BUSY).unwrap();
    let request = vol::CloneVolumeRequest {
        transaction: source,
        purge_volume_id: 0,
        new_name: "home.readonly".into(),
        new_type: 1,
        new_volume_id: READ_ONLY,
    };
    world.cell.server.clone_volume(&admin(), request).unwrap();
    world.cell.end(source).unwrap();
    let clone = world.cell.open(READ_ONLY, LARGE, attach_mode::OFFLINE).unwrap();
    world.cell.set_flags(clone, 0).unwrap();
    world.cell.end(clone).unwrap();
    let before = world.written.clone();
    (0..STEPS).for_each(|step| world.step(step));
    while world.cell.volumes.purge_step().unwrap() {}
    world.check_contents(&world.served());
    world.written = before;
    let clone = world.cell.volumes.get(VolumeId(READ_ONLY)).unwrap();
    assert_eq!(clone.partition().index() as i32, LARGE);
    world.check_contents(&clone);
}

#[test]
fn a_move_that_is_cut_off_leaves_one_whole_volume() {
    histories(SEEDS, cut_off);
}

fn cut_off(seed: u64, random: &mut StdRng) {
    let (from, to) = if random.random() { (LARGE, SMALL) } else { (SMALL, LARGE) };
    let mut world = World::new(from, to);
    let steps = random.random_range(1..=STEPS);
    (0..steps).for_each(|step| world.step(step));
    let has_switched = steps > SWITCH || steps == SWITCH && random.random();
    match random.random_range(0..3) {
        0 => world.crash(random),
        // vos is killed, or cannot reach the server for a long time.
        1 => {
            world.cell.pass(700);
            world.cell.server.expire_transactions();
        }
        // vos ends its transactions before it cleans up.
        _ => [world.clone, world.target, world.source].iter().for_each(|&open| _ = world.cell.end(open)),
    }
    if world.is_served() {
        world.check_contents(&world.served());
        world.write("e", &[seed as u8; 5000]);
        if random.random() {
            world.crash(random);
        }
    }
    world.recover(has_switched);
    world.check_end(if has_switched { to } else { from });
    if random.random() {
        world.crash(random);
        world.check_end(if has_switched { to } else { from });
    }
}

#[test]
fn a_crash_after_deleting_the_older_one_leaves_the_newer() {
    let mut world = World::new(LARGE, SMALL);
    (0..7).for_each(|step| world.step(step));
    // The first action of DeleteVolume.
    world.cell.volumes.delete(VolumeId(ID)).unwrap();
    assert!(!world.is_served());
    world.crash(&mut StdRng::seed_from_u64(1));
    world.cell.vos_delete(CLONE, LARGE);
    world.check_end(SMALL);
}
