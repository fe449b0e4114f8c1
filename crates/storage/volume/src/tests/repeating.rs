//! Calls that are repeated to the next owner of a partition, which finds the results of those that were executed.

use super::support::*;
use crate::{
    Actor, CallActor, Commits, InCall, Permit, RepeatableCall, SetStatus, Volume, VolumeError, Volumes,
};
use base::{CallId, Fid, Monotonic, UserId};
use rand::rngs::StdRng;
use rand::seq::IteratorRandom;
use rand::{Rng, SeedableRng};
use std::collections::BTreeMap;
use std::net::Ipv4Addr;
use std::sync::Arc;
use std::time::Duration;
use store::{MemoryChunks, MemoryMeta};

struct Always;

impl Permit for Always {
    fn may_answer(&self) -> bool {
        true
    }

    fn may_change(&self) -> bool {
        true
    }

    fn has_ended(&self) -> bool {
        false
    }
}

/// An owner of a partition.
struct Owner {
    meta: Arc<MemoryMeta>,
    chunks: Arc<MemoryChunks>,
    volumes: Volumes,
}

impl Owner {
    fn open(meta: MemoryMeta, chunks: Arc<MemoryChunks>) -> Owner {
        let meta = Arc::new(meta);
        let space = Arc::new(|| crate::Space { total_kib: 1 << 40, free_kib: 1 << 40 });
        let handle =
            crate::PartitionHandle { id: partition(), meta: meta.clone(), chunks: chunks.clone(), space };
        let volumes = Volumes::open(vec![handle], options()).unwrap();
        volumes.limit(partition(), Arc::new(Always)).unwrap();
        Owner { meta, chunks, volumes }
    }

    /// Creates a partition with a volume.
    fn first() -> Owner {
        let owner = Owner::open(MemoryMeta::new(), Arc::default());
        owner.volumes.create(partition(), &new_volume(RW, "v")).unwrap();
        owner.volumes.sync().unwrap();
        owner
    }

    /// Returns the next owner, which finds this many of the commits that are not durable.
    fn next(&self, kept: usize) -> Owner {
        Owner::open(self.meta.taken_over(kept), self.chunks.clone())
    }

    fn volume(&self) -> Arc<Volume> {
        self.volumes.get(RW).unwrap()
    }
}

fn by(number: u64) -> Actor {
    let client = Ipv4Addr::new(10, 0, 0, 1).into();
    let id = CallId { process: 7, number };
    Actor { call: Some(RepeatableCall { id, client }), ..actor(1) }
}

fn names(volume: &Volume, names: &[&str]) -> Vec<bool> {
    names.iter().map(|name| volume.lookup(volume.root(), name.as_bytes()).is_ok()).collect()
}

/// Makes each kind of change, and returns the results as text.
fn change_all(volume: &Volume, file: Fid) -> Vec<String> {
    let root = volume.root();
    let shown = |result: &dyn std::fmt::Debug| format!("{result:?}");
    let mode = SetStatus { mode: Some(0o600), ..nothing() };
    vec![
        shown(&volume.create_file(&by(1), root, b"created", &nothing())),
        shown(&volume.make_directory(&by(2), root, b"made", &nothing())),
        shown(&volume.create_symlink(&by(3), root, b"symlink", b"there", &nothing())),
        shown(&volume.link(&by(4), root, b"linked", file)),
        shown(&volume.remove_file(&by(5), root, b"removed")),
        shown(&volume.remove_directory(&by(6), root, b"directory")),
        shown(&volume.rename(&by(7), root, b"old", root, b"replaced")),
        shown(&store_as(&by(8), volume, file, 3, &[5; 1000], u64::MAX)),
        shown(&volume.set_status(&by(9), file, &mode)),
        shown(&volume.set_acl(&by(10), root, afs_format::acl::Acl::administrators())),
    ]
}

#[test]
fn every_repeated_change_returns_its_own_result() {
    let first = Owner::first();
    let volume = first.volume();
    let root = volume.root();
    for name in ["file", "removed", "old", "replaced"] {
        volume.create_file(&actor(1), root, name.as_bytes(), &nothing()).unwrap();
    }
    volume.make_directory(&actor(1), root, b"directory", &nothing()).unwrap();
    let found = volume.lookup(root, b"file").unwrap();
    let file = Fid { volume: RW, vnode: found.vnode, unique: found.unique };
    let made = change_all(&volume, file);
    assert!(made.iter().all(|result| result.starts_with("Ok")), "{made:#?}");
    let next = first.next(0);
    let (volume, before) = (next.volume(), next.meta.commits());
    let repeated = change_all(&volume, file);
    assert!(repeated.iter().all(|result| result.starts_with("Ok")), "{repeated:#?}");
    assert_eq!(next.meta.commits(), before, "nothing is changed again");
    assert_eq!(next.volumes.results_count(partition()).unwrap(), 10);
    // The statuses are those after all changes. The last one of each vnode had them.
    assert_eq!(repeated[8], made[8]);
    assert_eq!(repeated[9], made[9]);
    let there = ["created", "made", "symlink", "linked", "removed", "directory", "old", "replaced"];
    assert_eq!(names(&volume, &there), [true, true, true, true, false, false, false, true]);
    assert_eq!(read_all(&volume, file), [&[0; 3][..], &[5; 1000]].concat());
    // The same changes as other calls have the results of other calls.
    let again = volume.create_file(&by(11), root, b"created", &nothing());
    assert!(matches!(again, Err(VolumeError::Exists)), "{again:?}");
    assert!(matches!(volume.remove_file(&by(12), root, b"removed"), Err(VolumeError::NoEntry)));
}

/// An exclusive creation is a lock in many programs: two that were meant must not both succeed.
#[test]
fn only_a_repetition_finds_a_result() {
    let first = Owner::first();
    first.volume().create_file(&by(1), first.volume().root(), b"lock", &nothing()).unwrap();
    let next = first.next(0);
    let volume = next.volume();
    let create = |by: &Actor| volume.create_file(by, volume.root(), b"lock", &nothing());
    assert!(create(&by(1)).is_ok());
    let of_process = |process| {
        let call = by(1).call.map(|call| RepeatableCall { id: CallId { process, ..call.id }, ..call });
        Actor { call, ..by(1) }
    };
    for other in [actor(1), by(2), of_process(8)] {
        assert!(matches!(create(&other), Err(VolumeError::Exists)), "{other:?}");
    }
}

#[test]
fn a_result_is_not_that_of_another_user_or_change() {
    let first = Owner::first();
    first.volume().create_file(&by(1), first.volume().root(), b"f", &nothing()).unwrap();
    let volume = first.volume();
    let root = volume.root();
    let other_user = Actor { user: UserId(8), ..by(1) };
    assert!(matches!(volume.create_file(&other_user, root, b"f", &nothing()), Err(VolumeError::Uncertain)));
    assert!(matches!(volume.remove_file(&by(1), root, b"f"), Err(VolumeError::Uncertain)));
    assert_eq!(names(&volume, &["f"]), [true]);
}

#[test]
fn a_result_that_was_deleted_is_uncertain() {
    let first = Owner::first();
    let root = first.volume().root();
    first.volume().create_file(&by(5), root, b"f", &nothing()).unwrap();
    for seconds in [0, 60] {
        first.volumes.forget_results(Monotonic(0) + Duration::from_secs(seconds));
    }
    let next = first.next(1);
    for owner in [&first, &next] {
        assert_eq!(owner.volumes.results_count(partition()).unwrap(), 0);
        let repeated = owner.volume().remove_file(&by(5), root, b"f");
        assert_eq!(code(repeated), base::AbortCode::VRESTARTING);
    }
    assert!(next.volume().remove_file(&by(6), root, b"f").is_ok());
}

#[test]
fn a_failed_change_has_no_result() {
    let first = Owner::first();
    let (volume, root) = (first.volume(), first.volume().root());
    assert!(volume.remove_file(&by(1), root, b"f").is_err());
    assert_eq!(first.volumes.results_count(partition()).unwrap(), 0);
    volume.create_file(&actor(1), root, b"f", &nothing()).unwrap();
    assert!(volume.remove_file(&by(1), root, b"f").is_ok(), "the repetition is the first execution");
}

#[test]
fn a_partition_without_permit_keeps_no_results() {
    let (server, volume) = Server::with_volume(options());
    volume.create_file(&by(1), volume.root(), b"f", &nothing()).unwrap();
    let again = volume.create_file(&by(1), volume.root(), b"f", &nothing());
    assert!(matches!(again, Err(VolumeError::Exists)));
    assert_eq!(server.volumes.results_count(partition()).unwrap(), 0);
}

/// The call is served again while its change is not durable.
#[test]
fn a_repetition_waits_until_its_change_is_durable() {
    let owner = Owner::first();
    let create = || {
        Commits::collect(|commits| {
            let volume = InCall::new(owner.volume(), commits);
            let by = CallActor { actor: by(1), commits };
            volume.access(|volume| volume.create_file(&by, volume.root(), b"f", &nothing())).map(drop)
        })
    };
    let first = create();
    let Err(second) = create().into_ready() else { panic!("it is not durable") };
    assert_eq!(owner.meta.unsynced_commits(), 1);
    second.wait().unwrap().unwrap();
    assert_eq!(owner.meta.unsynced_commits(), 0);
    first.wait().unwrap().unwrap();
}

#[derive(Clone, Debug)]
enum Change {
    Create(u8),
    Remove(u8),
    Rename(u8, u8),
}

/// Makes a change without waiting for it. Returns the uniquifier of the file.
fn apply(owner: &Owner, number: u64, change: &Change) -> Result<u32, VolumeError> {
    let (volume, root) = (owner.volume(), owner.volume().root());
    let pending = Commits::collect(|commits| {
        let by = CallActor { actor: by(number), commits };
        match *change {
            Change::Create(name) => {
                volume.create_file(&by, root, &[name], &nothing()).map(|created| created.status.unique)
            }
            Change::Remove(name) => {
                volume.remove_file(&by, root, &[name]).map(|removed| removed.target.unique)
            }
            Change::Rename(old, new) => {
                volume.rename(&by, root, &[old], root, &[new]).map(|renamed| renamed.moved.unique)
            }
        }
    });
    pending.into_parts().0
}

/// A history in which owners die with some of the last commits, and all calls since then are repeated.
fn play(seed: u64) {
    let mut rng = StdRng::seed_from_u64(seed);
    let mut owner = Owner::first();
    let version = |owner: &Owner| owner.volume().status(owner.volume().root()).unwrap().data_version;
    let (begun, mut calls) = (version(&owner), Vec::new());
    // The files by name, and the calls whose changes may not be durable.
    let (mut files, mut first_in_doubt) = (BTreeMap::<u8, u32>::new(), 0);
    for _ in 0..60 {
        let name = rng.random_range(b'a'..b'g');
        let change = match files.keys().copied().choose(&mut rng) {
            Some(old) if rng.random() && old != name => Change::Rename(old, name),
            Some(old) if rng.random() => Change::Remove(old),
            _ if files.contains_key(&name) => Change::Remove(name),
            _ => Change::Create(name),
        };
        calls.push(change.clone());
        let unique = apply(&owner, calls.len() as u64, &change).unwrap();
        match change {
            Change::Create(name) => _ = files.insert(name, unique),
            Change::Remove(name) => assert_eq!(files.remove(&name), Some(unique), "seed {seed}"),
            Change::Rename(old, new) => {
                assert_eq!(files.remove(&old), Some(unique), "seed {seed}");
                files.insert(new, unique);
            }
        }
        match rng.random_range(0..10) {
            0 => {
                owner.volumes.sync().unwrap();
                first_in_doubt = calls.len();
            }
            1 => {
                owner = owner.next(rng.random_range(0..=owner.meta.unsynced_commits()));
                // Also some that were acknowledged: their replies were lost.
                first_in_doubt = first_in_doubt.saturating_sub(rng.random_range(0..3));
                for (at, change) in calls.iter().enumerate().skip(first_in_doubt) {
                    let repeated = apply(&owner, 1 + at as u64, change);
                    assert!(repeated.is_ok(), "seed {seed}: {change:?} of {calls:?}: {repeated:?}");
                }
            }
            _ => {}
        }
        let volume = owner.volume();
        let there = |name: &u8| volume.lookup(volume.root(), &[*name]).unwrap().unique;
        for (name, unique) in &files {
            assert_eq!(there(name), *unique, "seed {seed}");
        }
    }
    assert_eq!(version(&owner), begun + calls.len() as u64, "seed {seed}: each change is made once");
}

#[test]
fn repeated_changes_are_made_once() {
    seeds::play(200, play);
}
