//! The table of promises: by file for breaking, by host for clearing, by time for expiring.
//!
//! All three views are exact, so that memory is bounded by the number of promises alone. Making a promise costs the same
//! whether few or very many hosts hold one on the file. A listing of a large tree makes
//! hundreds of thousands of promises within a second, with everybody else waiting for the table: a promise has one
//! place in a tree, that of its file; in the other two views it is linked to its neighbours.

mod holders;

use crate::host::HostId;
use base::{Fid, VolumeId};
use holders::Holders;
use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};
use std::iter::successors;

/// Promises expire in steps of this many seconds, so that renewing one rarely moves it.
const EXPIRY_STEP_S: u64 = 128;

fn step_of(until_s: u64) -> u64 {
    until_s.div_ceil(EXPIRY_STEP_S)
}

/// No slot.
const NONE: u32 = u32::MAX;

/// One host's promise on one file.
#[derive(Clone, Copy, Debug)]
struct Promise {
    fid: Fid,
    host: HostId,
    /// When it was made, in the order of everything that happened.
    sequence: u64,
    /// When it ends.
    step: u64,
    links: [Links; 2],
}

/// Neighbours in a chain.
#[derive(Clone, Copy, Debug)]
struct Links {
    before: u32,
    behind: u32,
}

const UNLINKED: Links = Links { before: NONE, behind: NONE };

/// Which of a promise's links.
#[derive(Clone, Copy)]
enum By {
    /// Those of one host in one volume.
    Host = 0,
    /// Those that end in one step.
    Time = 1,
}

/// Promises that are linked to each other, first to last.
#[derive(Clone, Copy, Debug)]
struct Chain {
    first: u32,
    last: u32,
    count: u32,
}

const EMPTY: Chain = Chain { first: NONE, last: NONE, count: 0 };

/// By [`file_key`].
type Files = BTreeMap<u64, Holders>;

/// Vnode and uniquifier, as what is compared fastest.
fn file_key(fid: Fid) -> u64 {
    u64::from(fid.vnode.0) << 32 | u64::from(fid.unique)
}

/// See the module's description. A fid with vnode 0 stands for the whole volume.
#[derive(Debug, Default)]
pub(crate) struct Promises {
    slots: Vec<Promise>,
    free: Vec<u32>,
    volumes: BTreeMap<VolumeId, Files>,
    hosts: BTreeMap<(HostId, VolumeId), Chain>,
    /// The same pairs the other way around.
    volume_hosts: BTreeSet<(VolumeId, HostId)>,
    steps: BTreeMap<u64, Chain>,
    files: usize,
}

impl Promises {
    /// How many there are.
    pub(crate) fn len(&self) -> usize {
        self.slots.len() - self.free.len()
    }

    /// How many files have one.
    pub(crate) fn files(&self) -> usize {
        self.files
    }

    /// Makes a promise, or renews it; a renewed one never ends earlier than before. `lasts` is told how many promises
    /// there were on the file, and answers the second in which this one ends.
    pub(crate) fn put(&mut self, fid: Fid, host: HostId, sequence: u64, lasts: impl FnOnce(usize) -> u64) {
        let slot = self.free.last().copied().unwrap_or(self.slots.len() as u32);
        let step = match self.volumes.entry(fid.volume).or_default().entry(file_key(fid)) {
            Entry::Vacant(file) => {
                file.insert(Holders::One((host, slot)));
                self.files += 1;
                step_of(lasts(0))
            }
            Entry::Occupied(mut holders) => {
                let step = step_of(lasts(holders.get().len()));
                match holders.get().find(host) {
                    Some(known) => return self.renew(known, sequence, step),
                    None => holders.get_mut().add(host, slot),
                }
                step
            }
        };
        let promise = Promise { fid, host, sequence, step, links: [UNLINKED; 2] };
        match self.free.pop() {
            Some(slot) => self.slots[slot as usize] = promise,
            None => self.slots.push(promise),
        }
        self.link(slot);
    }

    fn renew(&mut self, slot: u32, sequence: u64, step: u64) {
        let promise = &mut self.slots[slot as usize];
        promise.sequence = sequence;
        let old = promise.step;
        if step > old {
            promise.step = step;
            self.unlink_time(slot, old);
            push(&mut self.slots, self.steps.entry(step).or_insert(EMPTY), By::Time, slot);
        }
    }

    fn link(&mut self, slot: u32) {
        let Promise { fid, host, step, .. } = self.slots[slot as usize];
        let chain = self.hosts.entry((host, fid.volume)).or_insert(EMPTY);
        if chain.count == 0 {
            self.volume_hosts.insert((fid.volume, host));
        }
        push(&mut self.slots, chain, By::Host, slot);
        push(&mut self.slots, self.steps.entry(step).or_insert(EMPTY), By::Time, slot);
    }

    fn unlink_time(&mut self, slot: u32, step: u64) {
        if let Entry::Occupied(mut chain) = self.steps.entry(step) {
            unlink(&mut self.slots, chain.get_mut(), By::Time, slot);
            if chain.get().count == 0 {
                chain.remove();
            }
        }
    }

    fn unlink_host(&mut self, slot: u32, host: HostId, volume: VolumeId) {
        if let Entry::Occupied(mut chain) = self.hosts.entry((host, volume)) {
            unlink(&mut self.slots, chain.get_mut(), By::Host, slot);
            if chain.get().count == 0 {
                chain.remove();
                self.volume_hosts.remove(&(volume, host));
            }
        }
    }

    /// Who holds a promise on exactly this fid.
    pub(crate) fn holders(&self, fid: Fid) -> impl Iterator<Item = HostId> + '_ {
        self.holders_of(fid).into_iter().flat_map(Holders::all).map(|(host, _)| host)
    }

    /// Whether `host` is one of them.
    pub(crate) fn holds(&self, fid: Fid, host: HostId) -> bool {
        self.holders_of(fid).is_some_and(|holders| holders.find(host).is_some())
    }

    fn holders_of(&self, fid: Fid) -> Option<&Holders> {
        self.volumes.get(&fid.volume)?.get(&file_key(fid))
    }

    /// Every host with any promise in `volume`.
    pub(crate) fn volume_holders(&self, volume: VolumeId) -> BTreeSet<HostId> {
        let pairs = self.volume_hosts.range((volume, HostId(0))..=(volume, HostId(u64::MAX)));
        pairs.map(|(_, host)| *host).collect()
    }

    /// Ends a promise if it was made at or before `sequence`. True if it did.
    pub(crate) fn remove(&mut self, fid: Fid, host: HostId, sequence: u64) -> bool {
        let found = self.holders_of(fid).and_then(|holders| holders.find(host));
        let Some(slot) = found.filter(|slot| self.slots[*slot as usize].sequence <= sequence) else {
            return false;
        };
        self.end(slot);
        true
    }

    fn end(&mut self, slot: u32) {
        let Promise { fid, host, step, .. } = self.slots[slot as usize];
        self.unlink_host(slot, host, fid.volume);
        self.unlink_time(slot, step);
        self.free.push(slot);
        if self.free.len() == self.slots.len() {
            // Memory of a crowd that has left.
            (self.slots, self.free) = (Vec::new(), Vec::new());
        }
        let Some(files) = self.volumes.get_mut(&fid.volume) else { return };
        if let Entry::Occupied(mut holders) = files.entry(file_key(fid))
            && holders.get_mut().remove(host)
        {
            holders.remove();
            self.files -= 1;
        }
        if files.is_empty() {
            self.volumes.remove(&fid.volume);
        }
    }

    /// Ends every promise on `fid`, and says whose.
    pub(crate) fn remove_file(&mut self, fid: Fid) -> Vec<HostId> {
        let holders: Vec<_> = self.holders_of(fid).into_iter().flat_map(Holders::all).collect();
        for &(_, slot) in &holders {
            self.end(slot);
        }
        holders.into_iter().map(|(host, _)| host).collect()
    }

    /// Ends the promises of `host` in `volume` that were made at or before `sequence`.
    pub(crate) fn remove_volume(&mut self, volume: VolumeId, host: HostId, sequence: u64) -> usize {
        let chain = self.hosts.get(&(host, volume)).copied().unwrap_or(EMPTY);
        let made_before = |slot: &u32| self.slots[*slot as usize].sequence <= sequence;
        let slots: Vec<u32> = self.chained(chain, By::Host).filter(made_before).collect();
        for &slot in &slots {
            self.end(slot);
        }
        slots.len()
    }

    /// Ends the promises of `host` that were made at or before `sequence`.
    pub(crate) fn remove_host(&mut self, host: HostId, sequence: u64) -> usize {
        let volumes: Vec<VolumeId> = self.chains_of(host).map(|(volume, _)| volume).collect();
        volumes.into_iter().map(|volume| self.remove_volume(volume, host, sequence)).sum()
    }

    /// How many `host` holds.
    pub(crate) fn count_of(&self, host: HostId) -> usize {
        self.chains_of(host).map(|(_, chain)| chain.count as usize).sum()
    }

    /// Whether it holds any.
    pub(crate) fn has_any(&self, host: HostId) -> bool {
        self.chains_of(host).next().is_some()
    }

    fn chains_of(&self, host: HostId) -> impl Iterator<Item = (VolumeId, Chain)> + '_ {
        let chains = self.hosts.range((host, VolumeId(0))..=(host, VolumeId(u32::MAX)));
        chains.map(|(&(_, volume), chain)| (volume, *chain))
    }

    fn chained(&self, chain: Chain, by: By) -> impl Iterator<Item = u32> + '_ {
        let present = |slot: u32| (slot != NONE).then_some(slot);
        successors(present(chain.first), move |slot| {
            present(self.slots[*slot as usize].links[by as usize].behind)
        })
    }

    /// Ends what is over by `now_s`, and says how many that were.
    pub(crate) fn expire(&mut self, now_s: u64) -> usize {
        let mut count = 0;
        while let Some((&step, &chain)) = self.steps.first_key_value() {
            if step * EXPIRY_STEP_S > now_s {
                break;
            }
            let slots: Vec<u32> = self.chained(chain, By::Time).collect();
            count += slots.len();
            for slot in slots {
                self.end(slot);
            }
        }
        count
    }
}

/// Puts a promise at a chain's end.
fn push(slots: &mut [Promise], chain: &mut Chain, by: By, slot: u32) {
    slots[slot as usize].links[by as usize] = Links { before: chain.last, behind: NONE };
    match slots.get_mut(chain.last as usize) {
        Some(last) => last.links[by as usize].behind = slot,
        None => chain.first = slot,
    }
    chain.last = slot;
    chain.count += 1;
}

fn unlink(slots: &mut [Promise], chain: &mut Chain, by: By, slot: u32) {
    let Links { before, behind } = slots[slot as usize].links[by as usize];
    match slots.get_mut(before as usize) {
        Some(promise) => promise.links[by as usize].behind = behind,
        None => chain.first = behind,
    }
    match slots.get_mut(behind as usize) {
        Some(promise) => promise.links[by as usize].before = before,
        None => chain.last = before,
    }
    chain.count -= 1;
}

#[cfg(test)]
mod tests {
    use super::*;
    use base::VnodeId;
    use rand::rngs::SmallRng;
    use rand::{Rng, SeedableRng};

    fn fid(volume: u32, vnode: u32) -> Fid {
        Fid { volume: VolumeId(volume), vnode: VnodeId(vnode), unique: 1 }
    }

    #[test]
    fn every_view_agrees_after_each_kind_of_removal() {
        let mut promises = Promises::default();
        for host in 1..4 {
            for vnode in 1..5 {
                promises.put(fid(host as u32 % 2, vnode), HostId(host), host, |_| 1_000);
            }
        }
        assert_eq!((promises.len(), promises.files()), (12, 8));
        assert_eq!(promises.remove_file(fid(1, 1)), [HostId(1), HostId(3)]);
        assert!(!promises.remove(fid(1, 2), HostId(3), 2), "made later than the break");
        assert!(promises.remove(fid(1, 2), HostId(3), 3));
        assert_eq!(promises.remove_host(HostId(1), u64::MAX), 3);
        assert_eq!(promises.volume_holders(VolumeId(1)), BTreeSet::from([HostId(3)]));
        assert_eq!(promises.remove_volume(VolumeId(1), HostId(3), u64::MAX), 2);
        assert_eq!((promises.len(), promises.files()), (4, 4));
        assert_eq!(promises.expire(999), 0);
        assert_eq!(promises.expire(1_024), 4);
        assert!(promises.volumes.is_empty() && promises.steps.is_empty() && promises.files() == 0);
        assert!(promises.hosts.is_empty() && promises.volume_hosts.is_empty() && promises.slots.is_empty());
    }

    #[test]
    fn a_renewed_promise_lasts_to_the_later_end() {
        let mut promises = Promises::default();
        promises.put(fid(1, 2), HostId(1), 1, |_| 1_000);
        promises.put(fid(1, 2), HostId(1), 2, |_| 500);
        assert_eq!(promises.expire(600), 0);
        promises.put(fid(1, 2), HostId(1), 3, |_| 2_000);
        assert_eq!(promises.expire(1_100), 0);
        assert_eq!(promises.expire(2_048), 1);
    }

    /// What a plain list of promises would say.
    #[derive(Default)]
    struct Plain(Vec<(Fid, HostId, u64, u64)>);

    impl Plain {
        fn put(&mut self, fid: Fid, host: HostId, sequence: u64, until_s: u64) {
            let step = step_of(until_s);
            match self.0.iter_mut().find(|known| (known.0, known.1) == (fid, host)) {
                Some(known) => (known.2, known.3) = (sequence, step.max(known.3)),
                None => self.0.push((fid, host, sequence, step)),
            }
        }

        fn remove(&mut self, ends: impl Fn(&(Fid, HostId, u64, u64)) -> bool) -> usize {
            let before = self.0.len();
            self.0.retain(|promise| !ends(promise));
            before - self.0.len()
        }

        fn hosts(&self, fid: Fid) -> BTreeSet<HostId> {
            self.0.iter().filter(|known| known.0 == fid).map(|known| known.1).collect()
        }
    }

    fn agree(promises: &Promises, plain: &Plain, hosts: u64) {
        let files: BTreeSet<Fid> = plain.0.iter().map(|known| known.0).collect();
        assert_eq!((promises.len(), promises.files()), (plain.0.len(), files.len()));
        for fid in files {
            let holders = plain.hosts(fid);
            assert_eq!(promises.holders(fid).collect::<BTreeSet<_>>(), holders);
            let told = (0..hosts).map(HostId).filter(|host| promises.holds(fid, *host));
            assert_eq!(told.collect::<BTreeSet<_>>(), holders);
        }
        for number in 0..hosts {
            let of_host = plain.0.iter().filter(|known| known.1 == HostId(number)).count();
            assert_eq!(promises.count_of(HostId(number)), of_host);
            let volume = VolumeId(number as u32);
            let holders = plain.0.iter().filter(|known| known.0.volume == volume).map(|known| known.1);
            assert_eq!(promises.volume_holders(volume), holders.collect());
        }
    }

    #[test]
    fn random_histories_agree_with_a_plain_list() {
        for seed in 0..300 {
            // Few files with many holders each, too.
            let (hosts, files) = if seed % 2 == 0 { (6, 6) } else { (40, 1) };
            let mut rng = SmallRng::seed_from_u64(seed);
            let (mut promises, mut plain, mut now_s) = (Promises::default(), Plain::default(), 0);
            for sequence in 1..=400u64 {
                let fid = fid(rng.random_range(0..3), rng.random_range(0..files));
                let host = HostId(rng.random_range(0..hosts));
                let until = rng.random_range(1..=sequence);
                let (ended, expected) = match rng.random_range(0..20) {
                    0 => (promises.remove_file(fid).len(), plain.remove(|p| p.0 == fid)),
                    1 => (
                        promises.remove_volume(fid.volume, host, until),
                        plain.remove(|p| p.0.volume == fid.volume && p.1 == host && p.2 <= until),
                    ),
                    2 => (promises.remove_host(host, until), plain.remove(|p| p.1 == host && p.2 <= until)),
                    3 => {
                        now_s += rng.random_range(0..1000);
                        (promises.expire(now_s), plain.remove(|p| p.3 * EXPIRY_STEP_S <= now_s))
                    }
                    4..8 => (
                        promises.remove(fid, host, until).into(),
                        plain.remove(|p| (p.0, p.1) == (fid, host) && p.2 <= until),
                    ),
                    _ => {
                        let until_s = now_s + rng.random_range(1..2000);
                        let users = plain.hosts(fid).len();
                        promises.put(fid, host, sequence, |told| {
                            assert_eq!(told, users);
                            until_s
                        });
                        plain.put(fid, host, sequence, until_s);
                        (0, 0)
                    }
                };
                assert_eq!(ended, expected, "seed {seed}, step {sequence}");
                agree(&promises, &plain, hosts);
            }
        }
    }
}
