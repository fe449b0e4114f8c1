//! Seeded histories, with crashes, of contents laid over those of a volume or over received data.

use super::support::{RW, Server, actor, new_volume, nothing, options, partition, read_all};
use crate::upkeep::purger::{Progress, step_versions};
use crate::{
    Actor, Clock, FileKind, NewVolume, Restoration, StoreRequest, VnodeStatus, Volume, VolumeError,
    VolumeOptions,
};
use afs_format::acl::Acl;
use base::{AbortCode, Fid, UnixTime, VnodeId, VolumeId, VolumeType};
use bytes::Bytes;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use std::collections::BTreeMap;
use std::sync::Arc;
use volume_check::{CheckOptions, check};
use volume_records::families;

const SITE: VolumeId = VolumeId(9000);
const SEEDS: u64 = 400;

/// Everything visible of a volume's vnodes.
type Tree = BTreeMap<u32, (VnodeStatus, Option<Acl>, Vec<u8>)>;

fn vnodes(volume: &Arc<Volume>) -> Vec<VnodeStatus> {
    let mut found = Vec::new();
    let visited = volume.vnodes(VnodeId(0), &mut |status| {
        found.push(*status);
        true
    });
    visited.unwrap();
    found.sort_by_key(|status| (!status.is_directory(), status.vnode));
    found
}

fn tree(volume: &Arc<Volume>) -> Tree {
    let one = |status: VnodeStatus| {
        let fid = status.fid(volume.id());
        let acl = status.is_directory().then(|| Acl::clone(&volume.status_and_acl(fid).unwrap().1));
        (status.vnode.0, (status, acl, read_all(volume, fid)))
    };
    vnodes(volume).into_iter().map(one).collect()
}

struct World {
    server: Server,
    random: StdRng,
    now: u32,
    leaks_chunks: bool,
}

impl World {
    fn new(seed: u64) -> World {
        let options = VolumeOptions { received_step_bytes: 700, ..options() };
        let (server, volume) = Server::with_volume(options);
        let deduplicates = seed.is_multiple_of(3);
        let kind = if seed.is_multiple_of(2) { VolumeType::ReadOnly } else { VolumeType::ReadWrite };
        let site = NewVolume {
            kind,
            with_root: false,
            in_service: kind == VolumeType::ReadOnly,
            ..new_volume(SITE, "site")
        };
        let site = server.volumes.create(partition(), &site).unwrap();
        for volume in [volume, site] {
            volume.update_header(|header| header.deduplicates = deduplicates).unwrap();
        }
        World { server, random: StdRng::seed_from_u64(seed), now: 2000, leaks_chunks: false }
    }

    fn source(&self) -> Arc<Volume> {
        self.server.volumes.get_any_state(RW).unwrap()
    }

    fn site(&self) -> Arc<Volume> {
        self.server.volumes.get_any_state(SITE).unwrap()
    }

    fn actor(&mut self) -> Actor {
        self.now += 10;
        actor(self.now)
    }

    /// Returns a random directory.
    fn directory(&mut self) -> Fid {
        let all: Vec<VnodeStatus> =
            vnodes(&self.source()).into_iter().filter(VnodeStatus::is_directory).collect();
        all[self.random.random_range(0..all.len())].fid(RW)
    }

    /// Makes a random change, ignoring errors.
    fn change(&mut self) {
        let (volume, actor) = (self.source(), self.actor());
        let (directory, other) = (self.directory(), self.directory());
        let name = format!("n{}", self.random.random_range(0..6)).into_bytes();
        let new = format!("n{}", self.random.random_range(0..6)).into_bytes();
        let found = volume.lookup(directory, &name).ok();
        let fid = found.map(|found| Fid { volume: RW, vnode: found.vnode, unique: found.unique });
        let set = nothing();
        match self.random.random_range(0..12) {
            0 | 1 => _ = volume.create_file(&actor, directory, &name, &set),
            2 => _ = volume.make_directory(&actor, directory, &name, &set),
            3 => _ = volume.remove_file(&actor, directory, &name),
            4 => _ = volume.remove_directory(&actor, directory, &name),
            5 => _ = volume.rename(&actor, directory, &name, other, &new),
            6 => _ = volume.create_symlink(&actor, directory, &name, b"somewhere", &set),
            7 => _ = volume.set_acl(&actor, directory, Acl::administrators()),
            8 => _ = fid.map(|fid| volume.link(&actor, directory, &new, fid)),
            _ => _ = fid.map(|fid| self.store(&volume, &actor, fid)),
        }
    }

    fn store(&mut self, volume: &Volume, actor: &Actor, fid: Fid) -> Result<VnodeStatus, VolumeError> {
        let offset = self.random.random_range(0..1500);
        let mut data = vec![self.random.random_range(0..4); self.random.random_range(0..1000)];
        if self.random.random() {
            self.random.fill(&mut data[..]);
        }
        let file_length = if self.random.random() { self.random.random_range(0..3000) } else { u64::MAX };
        if volume.status(fid)?.kind != FileKind::File {
            return Err(VolumeError::NotDirectory);
        }
        let request = StoreRequest { offset, length: data.len() as u64, file_length, set: nothing() };
        let mut rest = Bytes::from(data);
        volume.store(actor, fid, &request, &mut |most: usize| Ok(rest.split_to(rest.len().min(most))))
    }

    /// Starts building new contents of the site; with `is_sent`, received data can be kept.
    fn begin(&mut self, is_sent: bool) -> Restoration {
        let now = UnixTime(self.now);
        let clock: Clock = Arc::new(move || now);
        let volumes = &self.server.volumes;
        if is_sent { volumes.receive(SITE, SITE, &clock) } else { volumes.restore(SITE) }.unwrap()
    }

    /// Builds new contents of the site, from at most `most` vnodes of the volume.
    fn build(&mut self, is_full: bool, most: usize) -> Restoration {
        let is_sent = self.random.random();
        let restoration = self.begin(is_sent);
        self.put(restoration, is_full, most, false)
    }

    /// Interrupts a transfer of the volume's current or other contents, possibly in the middle of a file, and
    /// keeps the received data.
    fn cut_off(&mut self, is_full: bool, most: usize) {
        let (begun, is_other) = (self.begin(true), self.random.random());
        let mut restoration = self.put(begun, is_full, most, is_other);
        let source = self.source();
        let next = vnodes(&source).into_iter().nth(most).filter(|next| next.kind == FileKind::File);
        if let Some(status) = next {
            let data = read_all(&source, status.fid(RW));
            let mut came = Bytes::from(data[..self.random.random_range(0..=data.len())].to_vec());
            let came = restoration.file(status, &mut |most: usize| {
                let piece = came.split_to(came.len().min(most));
                if piece.is_empty() { Err(AbortCode::RX_CALL_DEAD) } else { Ok(piece) }
            });
            assert!(came.is_err() || status.length == 0 || data.len() as u64 == status.length);
        }
        restoration.keep_for_later().unwrap();
    }

    fn has_received(&self) -> bool {
        self.server.volumes.received(SITE, partition()).unwrap().is_some()
    }

    fn put(
        &mut self,
        mut restoration: Restoration,
        is_full: bool,
        most: usize,
        is_other: bool,
    ) -> Restoration {
        let source = self.source();
        let site = Arc::clone(restoration.target());
        for status in vnodes(&source).into_iter().take(most) {
            let is_same = site.status(status.fid(SITE)).is_ok_and(|old| old == status);
            let (vnode, unique) = (status.vnode, status.unique);
            if is_other && status.kind == FileKind::File && self.random.random() {
                let mut other = Bytes::from(vec![9; self.random.random_range(0..1500)]);
                let status = VnodeStatus { length: other.len() as u64, ..status };
                restoration
                    .file(status, &mut |most: usize| Ok(other.split_to(other.len().min(most))))
                    .unwrap();
            } else if is_same && !is_full {
                restoration.keep(vnode, unique).unwrap();
            } else {
                restoration.take_over(&source, vnode, unique).unwrap();
            }
        }
        restoration
    }

    fn release(&mut self, is_full: bool) {
        let restoration = self.build(is_full, usize::MAX);
        let header = self.site().header();
        let restored = restoration.finish(&self.server.volumes, header, UnixTime(99)).unwrap();
        assert_eq!(tree(&restored), tree(&self.source()));
        let (ours, theirs) = (restored.header(), self.source().header());
        assert_eq!((ours.used_kib, ours.file_count), (theirs.used_kib, theirs.file_count));
    }

    fn crash(&mut self) {
        let kept = self.random.random_range(0..=self.server.meta.inner.unsynced_commits());
        self.server.crash(kept);
        self.leaks_chunks = true;
    }

    fn round(&mut self) {
        for _ in 0..self.random.random_range(0..25) {
            self.change();
        }
        let was = tree(&self.site());
        let (is_full, most) = (self.random.random(), self.random.random_range(0..20));
        match self.random.random_range(0..11) {
            8..11 => self.cut_off(is_full, most),
            0 => drop(self.build(is_full, most)),
            1 => {
                let restoration = self.build(is_full, most);
                self.crash();
                // It belongs to the server before the crash.
                std::mem::forget(restoration);
            }
            2 => {
                let restoration = self.build(is_full, most);
                let outcome = restoration.finish(&self.server.volumes, self.site().header(), UnixTime(99));
                if outcome.is_ok() {
                    return assert_eq!(tree(&self.site()), tree(&self.source()));
                }
            }
            3 => {
                let reader = self.site();
                self.release(is_full);
                drop(reader);
                self.crash();
                return assert_eq!(tree(&self.site()), tree(&self.source()));
            }
            _ => return self.release(is_full),
        }
        assert_eq!(tree(&self.site()), was, "it is not in use yet");
    }

    fn check(&self) {
        self.server.purge();
        let report = check(&*self.server.meta, None, CheckOptions::default(), &mut |_| {});
        assert!(report.is_clean(), "{:#?}", report.damages);
        // Kept data delays the purging of its group.
        assert!(self.server.registry_jobs() == 0 || self.has_received());
        if !self.leaks_chunks {
            self.server.check_chunks();
        }
    }
}

fn history(seed: u64) {
    let mut world = World::new(seed);
    for _ in 0..12 {
        world.round();
        match world.random.random_range(0..9) {
            7..9 => (0..world.random.random_range(1..6))
                .for_each(|_| _ = world.server.volumes.purge_step().unwrap()),
            6 => world.server.volumes.forget_received(SITE, partition()).unwrap(),
            0 => world.server.compact(1),
            1 => world.server.reopen(),
            2 => {}
            _ => world.check(),
        }
    }
    world.server.volumes.forget_received(SITE, partition()).unwrap();
    world.check();
    let site = world.site();
    if site.kind() == VolumeType::ReadWrite && site.header().file_count > 0 {
        // New vnodes must not reuse a uniquifier.
        site.update_header(|header| header.in_service = true).unwrap();
        for number in 0..20 {
            let name = format!("late{number}");
            let actor = world.actor();
            site.create_file(&actor, site.root(), name.as_bytes(), &nothing()).unwrap();
        }
        world.check();
    }
}

#[test]
fn a_site_is_as_before_or_as_its_volume() {
    seeds::play(SEEDS, history);
}

#[test]
fn equal_data_is_not_written() {
    let mut world = World::new(2);
    let (volume, actor) = (world.source(), world.actor());
    let mut files = Vec::new();
    for number in 0..20 {
        let name = format!("file{number}");
        let made = volume.create_file(&actor, volume.root(), name.as_bytes(), &nothing()).unwrap();
        files.push(made.status.fid(RW));
        let data = Bytes::from(vec![number + 1; 2000]);
        let request = StoreRequest { offset: 0, length: 2000, file_length: 2000, set: nothing() };
        let mut rest = data;
        volume
            .store(&actor, files[usize::from(number)], &request, &mut |most: usize| {
                Ok(rest.split_to(rest.len().min(most)))
            })
            .unwrap();
    }
    world.release(true);
    world.check();
    let puts = |world: &World| {
        [families::VNODES, families::ENTRIES, families::EXTENTS].map(|family| world.server.meta.puts(family))
    };
    let before = puts(&world);
    world.release(true);
    world.check();
    assert_eq!(puts(&world), before, "all is equal");
    let actor = world.actor();
    let mut rest = Bytes::from_static(b"five!");
    let request = StoreRequest { offset: 600, length: 5, file_length: u64::MAX, set: nothing() };
    volume
        .store(&actor, files[7], &request, &mut |most: usize| Ok(rest.split_to(rest.len().min(most))))
        .unwrap();
    let before = puts(&world);
    world.release(false);
    let after = puts(&world);
    let written: Vec<u64> = after.iter().zip(before).map(|(after, before)| after - before).collect();
    assert_eq!(written, [1, 0, 1], "one vnode and one of its chunks");
    assert_eq!(world.site().header().created, UnixTime(1000));
    // No part of the previous release has been purged yet.
    assert_eq!(world.server.registry_jobs(), 1);
    for steps in 0..4 {
        (0..steps).for_each(|_| _ = world.server.volumes.purge_step().unwrap());
        let before = puts(&world);
        world.release(false);
        assert_eq!(puts(&world), before, "all is equal again");
        assert_eq!(world.server.registry_jobs(), 1, "the purger does it all in one go");
    }
    world.check();
}

#[test]
fn a_running_purger_spares_volumes_under_construction() {
    let mut world = World::new(2);
    (0..40).for_each(|_| world.change());
    world.release(true);
    world.check();
    (0..40).for_each(|_| world.change());
    world.release(false);
    assert_eq!(world.server.registry_jobs(), 1, "versions of the release before");
    (0..40).for_each(|_| world.change());
    let (site, restoration) = (world.site(), world.begin(false));
    let mut restoration = world.put(restoration, true, usize::MAX, false);
    restoration.flush().unwrap();
    let mut progress = Progress::begin(Some(Arc::clone(&site.group)));
    for _ in 0..10 {
        assert!(!step_versions(&site.home, site.group.id, b"a job", &mut progress).unwrap());
    }
    let header = site.header();
    let restored = restoration.finish(&world.server.volumes, header, UnixTime(99)).unwrap();
    assert_eq!(tree(&restored), tree(&world.source()));
    world.check();
}
