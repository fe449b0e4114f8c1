//! SplitVolume, and what is left of it when it is cut off.

use super::support::{Cell, Disks, LARGE, START, admin, anybody};
use crate::splitting;
use afs_idl::MemoryStream;
use afs_idl::vol::{self, Server as _};
use base::{AbortCode, Fid, UserId, VnodeId, VolumeId};
use bytes::Bytes;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use std::collections::BTreeMap;
use std::sync::Arc;
use volume::check::{CheckOptions, check};
use volume::{Actor, FileKind, SetStatus, StoreRequest, Volume};

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
        Actor { user: UserId(7), privileged: true, in_transaction: false, now: self.cell.now() }
    }

    fn directory(&self, parent: Fid, name: &str) -> Fid {
        let volume = self.volume(ID);
        let made = volume.make_directory(&self.actor(), parent, name.as_bytes(), &SetStatus::default());
        made.unwrap().status.fid(volume.id())
    }

    fn file(&self, parent: Fid, name: &str, data: &[u8]) {
        let volume = self.volume(ID);
        let made = volume.create_file(&self.actor(), parent, name.as_bytes(), &SetStatus::default());
        let fid = made.unwrap().status.fid(volume.id());
        let length = data.len() as u64;
        let request = StoreRequest { offset: 0, length, file_length: length, set: SetStatus::default() };
        let mut left = Bytes::copy_from_slice(data);
        let mut source = |most: usize| Ok(left.split_to(most.min(left.len())));
        volume.store(&self.actor(), fid, &request, &mut source).unwrap();
    }

    fn find(&self, parent: Fid, name: &str) -> Fid {
        let volume = self.volume(parent.volume.0);
        let found = volume.lookup(parent, name.as_bytes()).unwrap();
        Fid { volume: volume.id(), vnode: found.vnode, unique: found.unique }
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
        let mut survived = |which: usize| {
            let meta = &self.disks.metas[which];
            Arc::new(meta.crash(random.random_range(0..=meta.unsynced_commits())))
        };
        let metas = [survived(0), survived(1)];
        self.disks = Disks { metas, chunks: self.disks.chunks.clone(), ..Disks::default() };
        let now = self.cell.now();
        self.cell = Cell::on(&self.disks);
        self.cell.pass(now.0 - START);
        self.cell.server.delete_unfinished();
    }

    fn check(&self) {
        while self.cell.volumes.purge_step().unwrap() {}
        for meta in &self.disks.metas {
            let report = check(&**meta, None, CheckOptions::default(), &mut |_| {});
            assert!(report.is_clean(), "{:#?}", report.damages);
        }
    }
}

/// Everything below a directory by its path: kind, mode, owner, links, and contents.
type Tree = BTreeMap<String, (FileKind, u16, UserId, u32, Vec<u8>)>;

fn tree(volume: &Arc<Volume>, directory: Fid, path: &str, found: &mut Tree) {
    let mut entries = Vec::new();
    volume.entries(directory, &mut |name, found| entries.push((name.to_vec(), found))).unwrap();
    for (name, target) in entries.into_iter().filter(|(name, _)| !matches!(&name[..], b"." | b"..")) {
        let path = format!("{path}/{}", String::from_utf8(name).unwrap());
        let fid = Fid { volume: volume.id(), vnode: target.vnode, unique: target.unique };
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

/// What is outside the directory, which is gone or a mount point.
fn outside(whole: &Tree) -> Tree {
    whole
        .iter()
        .filter(|(path, _)| !path.starts_with("/projects/tree") && !path.starts_with("/projects/.split"))
        .map(|(path, what)| (path.clone(), what.clone()))
        .collect()
}

#[test]
fn a_directory_becomes_a_volume_and_a_mount_point_takes_its_place() {
    let world = World::new();
    let (wanted, mut rest) =
        (all_below(&world.volume(ID), world.tree()), all_below(&world.volume(ID), world.volume(ID).root()));
    let (done, text) = world.split(NEW, world.tree().vnode);
    assert_eq!(done, Ok(()));
    assert!(text.contains("\"tree\"") && text.ends_with("Finished!\n\0\0\0\0"), "{text:?}");
    let (old, new) = (world.volume(ID), world.volume(NEW));
    assert_eq!(all_below(&new, new.root()), wanted);
    let now = all_below(&old, old.root());
    // A directory less lies in it.
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
fn what_cannot_be_split_is_refused_and_stays() {
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
    // The new volume is not fresh any more.
    let projects = world.find(volume.root(), "projects").vnode;
    assert_eq!(world.split(NEW, projects).0, Err(AbortCode(22)));
    world.check();
}

#[test]
fn a_split_that_is_cut_off_loses_nothing() {
    for seed in 0..24 {
        let outcome = std::panic::catch_unwind(|| cut_off(seed));
        if let Err(panic) = outcome {
            println!("seed {seed}");
            std::panic::resume_unwind(panic);
        }
    }
}

fn cut_off(seed: u64) {
    let mut random = StdRng::seed_from_u64(seed);
    let mut world = World::new();
    let volume = world.volume(ID);
    let (wanted, whole) = (all_below(&volume, world.tree()), all_below(&volume, volume.root()));
    let plan = splitting::plan(&volume, &world.volume(NEW), world.tree().vnode).unwrap().unwrap();
    let server = &world.cell.server;
    let steps = random.random_range(0..4);
    let mut aside = Vec::new();
    for step in 0..steps {
        match step {
            0 => drop(splitting::copy(server, &plan).unwrap()),
            1 => aside = splitting::replace(server, &plan).unwrap(),
            // A part of what is removed.
            _ => {
                let aside = world.find(plan.parent, std::str::from_utf8(&aside).unwrap());
                for number in 0..random.random_range(1..FILES) {
                    volume.remove_file(&world.actor(), aside, format!("file{number}").as_bytes()).unwrap();
                }
            }
        }
    }
    drop((plan, volume));
    world.crash(&mut random);
    let (old, new) = (world.volume(ID), world.volume(NEW));
    let now = all_below(&old, old.root());
    assert_eq!(outside(&now), outside(&whole));
    if now["/projects/tree"].0 == FileKind::Directory {
        assert!(steps < 2);
        assert_eq!(now, whole, "as it was");
    } else {
        assert_eq!(all_below(&new, new.root()), wanted, "as it is to be");
        // Anybody may remove the rest, or nobody.
        let projects = world.find(old.root(), "projects");
        old.remove_tree(&world.actor(), projects, &aside).unwrap();
        assert_eq!(all_below(&old, old.root()).len(), outside(&whole).len() + 1);
    }
    world.check();
}
