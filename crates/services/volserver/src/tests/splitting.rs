//! Tests of SplitVolume, and of its state after interruptions.

use super::support::{Cell, Disks, LARGE, actor, admin, anybody, fid, histories, write_at};
use crate::splitting;
use afs_idl::vol;
use afs_idl::{CallStream, MemoryStream};
use base::{AbortCode, Fid, UserId, VnodeId, VolumeId};
use bytes::Bytes;
use rand::Rng;
use rand::rngs::StdRng;
use std::collections::BTreeMap;
use std::sync::Arc;
use volume::{Actor, FileKind, SetStatus, Volume};

const ID: u32 = 900;
const NEW: u32 = 901;
/// More than are removed in one change.
const FILES: usize = 450;

/// A server with a volume that has a tree, and an empty volume.
struct World {
    disks: Disks,
    cell: Cell,
}

impl World {
    fn new() -> World {
        let disks = Disks::default();
        let cell = Cell::on(&disks);
        cell.vos_create(LARGE, "home", ID);
        cell.vos_create(LARGE, "split", NEW);
        let world = World { disks, cell };
        let root = world.volume(ID).root();
        world.file(root, "outside", b"stays");
        let projects = world.directory(root, "projects");
        world.file(projects, "beside", b"stays too");
        let tree = world.directory(projects, "tree");
        for number in 0..FILES {
            world.file(tree, &format!("file{number}"), number.to_string().repeat(1000).as_bytes());
        }
        let deep = world.directory(world.directory(tree, "a"), "deep");
        world.file(deep, "bottom", &vec![7; 300_000]);
        world.directory(tree, "empty");
        let volume = world.volume(ID);
        volume.link(&world.actor(), deep, b"again", world.find(deep, "bottom")).unwrap();
        volume.create_symlink(&world.actor(), tree, b"link", b"a/deep", &SetStatus::default()).unwrap();
        world.cell.heard.take();
        world
    }

    fn volume(&self, id: u32) -> Arc<Volume> {
        self.cell.volumes.get_any_state(VolumeId(id)).unwrap()
    }

    fn actor(&self) -> Actor {
        actor(self.cell.now())
    }

    fn directory(&self, parent: Fid, name: &str) -> Fid {
        let volume = self.volume(ID);
        let made = volume.make_directory(&self.actor(), parent, name.as_bytes(), &SetStatus::default());
        made.unwrap().status.fid(volume.id())
    }

    fn file(&self, parent: Fid, name: &str, data: &[u8]) {
        let length = data.len() as u64;
        write_at(&self.volume(ID), self.cell.now(), (parent, name), 0, data, length);
    }

    fn find(&self, parent: Fid, name: &str) -> Fid {
        let volume = self.volume(parent.volume.0);
        fid(&volume, volume.lookup(parent, name.as_bytes()).unwrap())
    }

    fn tree(&self) -> Fid {
        self.find(self.find(self.volume(ID).root(), "projects"), "tree")
    }

    fn split(&self, new: u32, vnode: VnodeId) -> (Result<(), AbortCode>, String) {
        let request =
            vol::SplitVolumeRequest { volume_id: ID, new_volume_id: new, vnode: vnode.0, verbose: 1 };
        let mut stream = MemoryStream::default();
        let done = self.cell.server.split_volume(&admin(), request, &mut stream).map(drop);
        (done, String::from_utf8(stream.outgoing.clone()).unwrap())
    }

    fn crash(&mut self, random: &mut StdRng) {
        self.cell = self.cell.after_crash(&mut self.disks, random);
    }

    fn check(&self) {
        self.cell.check_all(&self.disks);
    }
}

/// Everything below a directory by path: kind, mode, owner, links and contents.
type Tree = BTreeMap<String, (FileKind, u16, UserId, u32, Vec<u8>)>;

fn tree(volume: &Arc<Volume>, directory: Fid, path: &str, found: &mut Tree) {
    let mut entries = Vec::new();
    volume.entries(directory, &mut |name, found| entries.push((name.to_vec(), found))).unwrap();
    for (name, target) in entries.into_iter().filter(|(name, _)| !matches!(&name[..], b"." | b"..")) {
        let path = format!("{path}/{}", String::from_utf8(name).unwrap());
        let fid = fid(volume, target);
        let (status, _) = volume.status_and_acl(fid).unwrap();
        let data = if status.is_directory() {
            tree(volume, fid, &path, found);
            Vec::new()
        } else {
            volume.read(fid, 0, 1 << 24).unwrap().1.concat()
        };
        found.insert(path, (status.kind, status.mode, status.owner, status.links, data));
    }
}

fn all_below(volume: &Arc<Volume>, directory: Fid) -> Tree {
    let mut found = Tree::new();
    tree(volume, directory, "", &mut found);
    found
}

/// Returns everything outside the directory, which is either removed or a mount point.
fn outside(whole: &Tree) -> Tree {
    whole
        .iter()
        .filter(|(path, _)| !path.starts_with("/projects/tree") && !path.starts_with("/projects/.split"))
        .map(|(path, what)| (path.clone(), what.clone()))
        .collect()
}

#[test]
fn a_directory_becomes_a_volume_and_a_mount_point() {
    let world = World::new();
    let (wanted, mut rest) =
        (all_below(&world.volume(ID), world.tree()), all_below(&world.volume(ID), world.volume(ID).root()));
    let (done, text) = world.split(NEW, world.tree().vnode);
    assert_eq!(done, Ok(()));
    assert!(text.contains("\"tree\"") && text.ends_with("Finished!\n\0\0\0\0"), "{text:?}");
    let (old, new) = (world.volume(ID), world.volume(NEW));
    assert_eq!(all_below(&new, new.root()), wanted);
    let now = all_below(&old, old.root());
    // It has one subdirectory less.
    rest.get_mut("/projects").unwrap().3 -= 1;
    assert_eq!(outside(&now), outside(&rest));
    assert_eq!(now.len(), outside(&rest).len() + 1, "nothing but the mount point is left");
    let (kind, mode, owner, links, text) = &now["/projects/tree"];
    assert_eq!((*kind, *mode, *owner, *links), (FileKind::SymbolicLink, 0o644, UserId(7), 1));
    assert_eq!(text, b"#split.");
    assert_eq!(new.header().quota_max_kib, old.header().quota_max_kib);
    assert!(new.header().in_service && new.header().name.as_str() == "split");
    assert_eq!(old.status_and_acl(world.find(old.root(), "projects")).unwrap().0.links, 2);
    let heard = world.cell.heard.take();
    assert!(heard.contains(&ID) && heard.contains(&NEW), "{heard:?}");
    assert!([ID, NEW].iter().all(|&id| world.cell.file_service(id).is_none()), "both are in service");
    for volume in [old, new] {
        let made = volume.create_file(&world.actor(), volume.root(), b"new", &SetStatus::default());
        assert!(made.is_ok());
    }
    world.check();
}

#[test]
fn impossible_splits_change_nothing() {
    let world = World::new();
    let volume = world.volume(ID);
    let before = all_below(&volume, volume.root());
    let file = world.find(volume.root(), "outside").vnode;
    for vnode in [VnodeId(1), VnodeId(0), file, VnodeId(99_999)] {
        assert_eq!(world.split(NEW, vnode).0, Err(AbortCode(2)), "{vnode:?}");
    }
    world.cell.vos_create(0, "elsewhere", 902);
    let tree = world.tree().vnode;
    let (refused, text) = world.split(902, tree);
    assert!(refused == Err(AbortCode(22)) && text.ends_with("same partition, aborted.\n\0"), "{text:?}");
    assert_eq!(world.split(ID, tree).0, Err(AbortCode(22)));
    assert_eq!(world.split(999, tree).0, Err(AbortCode::VNOVOL));
    let open = world.cell.open(NEW, LARGE, vol::attach_mode::BUSY).unwrap();
    assert_eq!(world.split(NEW, tree).0, Err(AbortCode::VOLSERVOLBUSY));
    world.cell.end(open).unwrap();
    let request = vol::SplitVolumeRequest { volume_id: ID, new_volume_id: NEW, vnode: tree.0, verbose: 0 };
    let mut stream = MemoryStream::default();
    assert_eq!(world.cell.server.split_volume(&anybody(), request, &mut stream), Err(AbortCode(1)));
    assert_eq!(all_below(&world.volume(ID), volume.root()), before);
    assert_eq!(world.split(NEW, tree).0, Ok(()));
    // The new volume is no longer fresh.
    let projects = world.find(volume.root(), "projects").vnode;
    assert_eq!(world.split(NEW, projects).0, Err(AbortCode(22)));
    world.check();
}

#[test]
fn a_split_that_is_cut_off_loses_nothing() {
    histories(24, cut_off);
}

/// Checks that no split is pending after some rounds of the server's periodic tasks.
fn settle(world: &World) {
    let is_noted = || {
        world
            .cell
            .volumes
            .partitions()
            .iter()
            .any(|&partition| !world.cell.volumes.splittings(partition).unwrap().is_empty())
    };
    for _ in 0..3 {
        world.cell.server.expire_transactions();
    }
    assert!(!is_noted());
}

fn cut_off(_: u64, random: &mut StdRng) {
    let mut world = World::new();
    let volume = world.volume(ID);
    let (wanted, whole) = (all_below(&volume, world.tree()), all_below(&volume, volume.root()));
    let plan = splitting::plan(&volume, &world.volume(NEW), world.tree().vnode).unwrap().unwrap();
    let server = &world.cell.server;
    let steps = random.random_range(1..6);
    let noted = splitting::note(server, &plan).unwrap();
    for step in 1..steps {
        match step {
            1 => drop(splitting::copy(server, &plan).unwrap()),
            2 => splitting::replace(server, &plan, &noted).unwrap(),
            // Removes some of the files, or all of them.
            3 => _ = splitting::clear(server, &volume, &noted, random.random_range(1..FILES)).unwrap(),
            _ => _ = splitting::clear(server, &volume, &noted, usize::MAX),
        }
    }
    drop((plan, volume));
    let has_crashed = random.random();
    if has_crashed {
        world.crash(random);
    } else {
        settle(&world);
    }
    let (old, new) = (world.volume(ID), world.volume(NEW));
    let now = all_below(&old, old.root());
    let beside = |tree: &Tree| {
        let mut beside = outside(tree);
        // The link count decreases when the directory is removed.
        beside.get_mut("/projects").unwrap().3 = 0;
        beside
    };
    assert_eq!(beside(&now), beside(&whole));
    let is_split = now["/projects/tree"].0 == FileKind::SymbolicLink;
    assert!(if is_split { steps > 2 } else { has_crashed || steps <= 2 });
    if is_split {
        assert_eq!(all_below(&new, new.root()), wanted, "as it is to be");
    } else {
        assert_eq!(now, whole, "as it was");
        assert!(all_below(&new, new.root()).is_empty(), "and nothing is left of the copy");
    }
    if random.random() {
        world.crash(random);
    }
    settle(&world);
    let (old, new) = (world.volume(ID), world.volume(NEW));
    if is_split {
        let left = all_below(&old, old.root());
        assert_eq!(left.len(), outside(&whole).len() + 1, "nothing but the mount point is left");
        assert_eq!(all_below(&new, new.root()), wanted);
    } else {
        // The new volume is equivalent to one that was just created.
        assert_eq!(world.split(NEW, world.tree().vnode).0, Ok(()));
        assert_eq!(all_below(&world.volume(NEW), new.root()), wanted);
    }
    world.check();
}

#[test]
fn users_writes_into_the_new_volume_stay() {
    let world = World::new();
    let volume = world.volume(ID);
    let plan = splitting::plan(&volume, &world.volume(NEW), world.tree().vnode).unwrap().unwrap();
    let noted = splitting::note(&world.cell.server, &plan).unwrap();
    let copy = splitting::copy(&world.cell.server, &plan).unwrap();
    copy.create_file(&world.actor(), copy.root(), b"written", &SetStatus::default()).unwrap();
    settle(&world);
    assert!(world.volume(NEW).lookup(copy.root(), b"written").is_ok());
    // The directory was renamed when its mount point was created, and was moved back by hand.
    world.cell.volumes.note_replaced(&noted).unwrap();
    let before = all_below(&volume, volume.root());
    settle(&world);
    assert_eq!(all_below(&volume, volume.root()), before);
    world.check();
}

/// A client that aborts after some pieces of text.
struct HangsUp(usize);

impl CallStream for HangsUp {
    fn read(&mut self, _: &mut [u8]) -> Result<usize, AbortCode> {
        Ok(0)
    }

    fn read_chunk(&mut self, _: usize) -> Result<Bytes, AbortCode> {
        Ok(Bytes::new())
    }

    fn write(&mut self, _: Bytes) -> Result<(), AbortCode> {
        self.0 = self.0.checked_sub(1).ok_or(AbortCode::RX_CALL_DEAD)?;
        Ok(())
    }
}

#[test]
fn a_lost_caller_leaves_nothing_half_done() {
    for pieces in 0..5 {
        let world = World::new();
        let (old, vnode) = (world.volume(ID), world.tree().vnode);
        let (wanted, whole) = (all_below(&old, world.tree()), all_below(&old, old.root()));
        let request =
            vol::SplitVolumeRequest { volume_id: ID, new_volume_id: NEW, vnode: vnode.0, verbose: 1 };
        let done = world.cell.server.split_volume(&admin(), request, &mut HangsUp(pieces));
        assert_eq!(done, Err(AbortCode::RX_CALL_DEAD));
        assert!([ID, NEW].iter().all(|&id| world.cell.file_service(id).is_none()), "both are in service");
        let new = world.volume(NEW);
        if pieces < 2 {
            assert_eq!(all_below(&old, old.root()), whole, "{pieces}");
            assert!(all_below(&new, new.root()).is_empty());
            assert_eq!(world.split(NEW, vnode).0, Ok(()));
        }
        assert_eq!(all_below(&world.volume(NEW), new.root()), wanted, "{pieces}");
        assert_eq!(all_below(&old, old.root()).len(), outside(&whole).len() + 1);
        world.check();
    }
}
