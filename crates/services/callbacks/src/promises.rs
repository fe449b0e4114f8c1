//! The table of promises: by file for breaking, by host for clearing, by time for expiring.
//!
//! All three views are exact, so that memory is bounded by the number of promises alone. The cost of making a
//! promise does not depend on the number of hosts that hold one on the file. A listing of a large tree makes
//! hundreds of thousands of promises within a second while all other calls wait for the table; therefore a
//! promise is in only one tree, that of its file, and is linked to its neighbours in the other two views.

mod array;
mod holders;

use crate::host::HostId;
use base::{Fid, VolumeId};
use chains::{Chain, Places};
use holders::Holders;
use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};

/// Promises expire in steps of this many seconds, so that a renewal rarely moves a promise.
const EXPIRY_STEP_S: u64 = 128;

fn step_of(until_s: u64) -> u32 {
    u32::try_from(until_s.div_ceil(EXPIRY_STEP_S)).unwrap_or(u32::MAX)
}

/// One host's promise on one file.
#[derive(Clone, Copy, Debug)]
struct Promise {
    fid: Fid,
    host: HostId,
    /// Sequence number of the event that made it; outdated while its holders are in an [`array::Array`].
    sequence: u64,
    /// Step in which it expires.
    step: u32,
}

/// Chain of the promises to the same host in one volume.
const BY_HOST: usize = 0;
/// Chain of the promises that expire in the same step.
const BY_TIME: usize = 1;
/// Chain of the promises on the same file, while these are few.
const BY_FILE: usize = 2;

type Table = Places<Promise, 3>;

/// The outcome of renewing a promise.
enum Renewal {
    /// The host holds no promise.
    Unknown,
    /// The promise already lasts long enough.
    Done,
    /// The promise in this slot must be moved to a later step.
    Later(u32),
}

/// Holders by [`file_key`].
type Files = BTreeMap<u64, Holders>;

/// Returns vnode and uniquifier in a form that is fast to compare.
fn file_key(fid: Fid) -> u64 {
    u64::from(fid.vnode.0) << 32 | u64::from(fid.unique)
}

/// All promises; see the module documentation. A fid with vnode 0 represents the whole volume.
#[derive(Debug, Default)]
pub(crate) struct Promises {
    places: Table,
    volumes: BTreeMap<VolumeId, Files>,
    hosts: BTreeMap<(HostId, VolumeId), Chain>,
    /// The keys of `hosts` in reverse order.
    volume_hosts: BTreeSet<(VolumeId, HostId)>,
    steps: BTreeMap<u32, Chain>,
    files: usize,
}

impl Promises {
    /// Returns the number of promises.
    pub(crate) fn len(&self) -> usize {
        self.places.len()
    }

    /// Returns the number of files with promises.
    pub(crate) fn files(&self) -> usize {
        self.files
    }

    /// Makes a promise to an existing host, or renews it; a renewal never shortens it. `lasts` is called with
    /// the number of promises on the file and returns the second in which this one ends.
    pub(crate) fn put(&mut self, fid: Fid, host: HostId, sequence: u64, lasts: impl FnOnce(usize) -> u64) {
        let mut file = self.volumes.entry(fid.volume).or_default().entry(file_key(fid));
        let step = match &mut file {
            Entry::Vacant(_) => step_of(lasts(0)),
            Entry::Occupied(holders) => {
                let holders = holders.get_mut();
                let step = step_of(lasts(holders.len()));
                match holders.renew(&mut self.places, host, sequence, step) {
                    Renewal::Unknown => step,
                    Renewal::Done => return,
                    Renewal::Later(place) => return self.prolong(place, step),
                }
            }
        };
        let place = self.places.add(Promise { fid, host, sequence, step });
        match file {
            Entry::Vacant(file) => {
                file.insert(Holders::one(&mut self.places, place));
                self.files += 1;
            }
            Entry::Occupied(mut holders) => holders.get_mut().add(&mut self.places, host, place),
        }
        self.link(place);
    }

    fn prolong(&mut self, place: u32, step: u32) {
        let old = std::mem::replace(&mut self.places[place].step, step);
        self.unlink_time(place, old);
        self.places.push(BY_TIME, self.steps.entry(step).or_default(), place);
    }

    fn link(&mut self, place: u32) {
        let Promise { fid, host, step, .. } = self.places[place];
        let chain = self.hosts.entry((host, fid.volume)).or_default();
        if chain.is_empty() {
            self.volume_hosts.insert((fid.volume, host));
        }
        self.places.push(BY_HOST, chain, place);
        self.places.push(BY_TIME, self.steps.entry(step).or_default(), place);
    }

    fn unlink_time(&mut self, place: u32, step: u32) {
        if let Entry::Occupied(mut chain) = self.steps.entry(step) {
            self.places.unlink(BY_TIME, chain.get_mut(), place);
            if chain.get().is_empty() {
                chain.remove();
            }
        }
    }

    fn unlink_host(&mut self, place: u32, host: HostId, volume: VolumeId) {
        if let Entry::Occupied(mut chain) = self.hosts.entry((host, volume)) {
            self.places.unlink(BY_HOST, chain.get_mut(), place);
            if chain.get().is_empty() {
                chain.remove();
                self.volume_hosts.remove(&(volume, host));
            }
        }
    }

    /// Returns the hosts that hold a promise on exactly this fid.
    pub(crate) fn holders(&self, fid: Fid) -> impl Iterator<Item = HostId> + '_ {
        self.promises_on(fid).map(|(host, _)| host)
    }

    /// Whether `host` holds a promise on exactly this fid.
    pub(crate) fn holds(&self, fid: Fid, host: HostId) -> bool {
        self.holders_of(fid).is_some_and(|holders| holders.find(&self.places, host).is_some())
    }

    /// Prefetches the promise to a host, or the promise that a first one would be chained to. The result is
    /// meaningless.
    pub(crate) fn look(&self, fid: Fid, host: HostId) -> u64 {
        if let Some(sequence) = self.holders_of(fid).and_then(|holders| holders.look(&self.places, host)) {
            return sequence;
        }
        let last = self.hosts.get(&(host, fid.volume)).and_then(Chain::last);
        last.and_then(|place| self.places.get(place)).map_or(0, |promise| promise.sequence)
    }

    fn promises_on(&self, fid: Fid) -> impl Iterator<Item = (HostId, u32)> + '_ {
        self.holders_of(fid).into_iter().flat_map(|holders| holders.all(&self.places))
    }

    fn holders_of(&self, fid: Fid) -> Option<&Holders> {
        self.volumes.get(&fid.volume)?.get(&file_key(fid))
    }

    fn made(&self, place: u32) -> u64 {
        let promise = &self.places[place];
        self.holders_of(promise.fid).map_or(promise.sequence, |holders| holders.sequence(&self.places, place))
    }

    /// Returns every host with a promise in `volume`.
    pub(crate) fn volume_holders(&self, volume: VolumeId) -> BTreeSet<HostId> {
        let pairs = self.volume_hosts.range((volume, HostId(0))..=(volume, HostId(u64::MAX)));
        pairs.map(|(_, host)| *host).collect()
    }

    /// Ends a promise if it was made at or before `sequence`. Returns whether it did.
    pub(crate) fn remove(&mut self, fid: Fid, host: HostId, sequence: u64) -> bool {
        let found = self.holders_of(fid).and_then(|holders| holders.find(&self.places, host));
        let Some(place) = found.filter(|place| self.made(*place) <= sequence) else {
            return false;
        };
        self.end(place);
        true
    }

    fn end(&mut self, place: u32) {
        let Promise { fid, host, step, .. } = self.places[place];
        self.unlink_host(place, host, fid.volume);
        self.unlink_time(place, step);
        self.unlink_file(place, host, fid);
        self.places.give_back(place);
        if self.places.is_empty() {
            // Frees the memory after a peak.
            self.places = Places::default();
        }
    }

    fn unlink_file(&mut self, place: u32, host: HostId, fid: Fid) {
        let Some(files) = self.volumes.get_mut(&fid.volume) else { return };
        if let Entry::Occupied(mut holders) = files.entry(file_key(fid))
            && holders.get_mut().remove(&mut self.places, host, place)
        {
            holders.remove();
            self.files -= 1;
        }
        if files.is_empty() {
            self.volumes.remove(&fid.volume);
        }
    }

    /// Ends every promise on `fid`, and returns the holders.
    pub(crate) fn remove_file(&mut self, fid: Fid) -> Vec<HostId> {
        let holders: Vec<_> = self.promises_on(fid).collect();
        for &(_, place) in &holders {
            self.end(place);
        }
        holders.into_iter().map(|(host, _)| host).collect()
    }

    /// Ends the promises of `host` in `volume` that were made at or before `sequence`. Returns their number.
    pub(crate) fn remove_volume(&mut self, volume: VolumeId, host: HostId, sequence: u64) -> usize {
        let chain = self.hosts.get(&(host, volume)).copied().unwrap_or_default();
        let made_before = |place: &u32| self.made(*place) <= sequence;
        let places: Vec<u32> = self.places.chained(BY_HOST, &chain).filter(made_before).collect();
        for &place in &places {
            self.end(place);
        }
        places.len()
    }

    /// Ends the promises of `host` that were made at or before `sequence`. Returns their number.
    pub(crate) fn remove_host(&mut self, host: HostId, sequence: u64) -> usize {
        let volumes: Vec<VolumeId> = self.chains_of(host).map(|(volume, _)| volume).collect();
        volumes.into_iter().map(|volume| self.remove_volume(volume, host, sequence)).sum()
    }

    /// Returns the number of promises that `host` holds.
    pub(crate) fn count_of(&self, host: HostId) -> usize {
        self.chains_of(host).map(|(_, chain)| chain.len()).sum()
    }

    /// Whether `host` holds a promise.
    pub(crate) fn has_any(&self, host: HostId) -> bool {
        self.chains_of(host).next().is_some()
    }

    fn chains_of(&self, host: HostId) -> impl Iterator<Item = (VolumeId, Chain)> + '_ {
        let chains = self.hosts.range((host, VolumeId(0))..=(host, VolumeId(u32::MAX)));
        chains.map(|(&(_, volume), chain)| (volume, *chain))
    }

    /// Ends the promises that have expired by `now_s`, and returns their number.
    pub(crate) fn expire(&mut self, now_s: u64) -> usize {
        let mut count = 0;
        while let Some((&step, &chain)) = self.steps.first_key_value() {
            if u64::from(step) * EXPIRY_STEP_S > now_s {
                break;
            }
            let places: Vec<u32> = self.places.chained(BY_TIME, &chain).collect();
            count += places.len();
            for place in places {
                self.end(place);
            }
        }
        count
    }
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
        assert!(promises.hosts.is_empty() && promises.volume_hosts.is_empty() && promises.places.is_empty());
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

    /// A reference implementation: a plain list of promises.
    #[derive(Default)]
    struct Plain(Vec<(Fid, HostId, u64, u32)>);

    impl Plain {
        fn put(&mut self, fid: Fid, host: HostId, sequence: u64, until_s: u64) {
            let step = step_of(until_s);
            match self.0.iter_mut().find(|known| (known.0, known.1) == (fid, host)) {
                Some(known) => (known.2, known.3) = (sequence, step.max(known.3)),
                None => self.0.push((fid, host, sequence, step)),
            }
        }

        fn remove(&mut self, ends: impl Fn(&(Fid, HostId, u64, u32)) -> bool) -> usize {
            let before = self.0.len();
            self.0.retain(|promise| !ends(promise));
            before - self.0.len()
        }

        fn hosts(&self, fid: Fid) -> BTreeSet<HostId> {
            self.0.iter().filter(|known| known.0 == fid).map(|known| known.1).collect()
        }
    }

    fn agree(promises: &Promises, plain: &Plain, hosts: &[HostId]) {
        let files: BTreeSet<Fid> = plain.0.iter().map(|known| known.0).collect();
        assert_eq!((promises.len(), promises.files()), (plain.0.len(), files.len()));
        for fid in files {
            let holders = plain.hosts(fid);
            assert_eq!(promises.holders(fid).collect::<BTreeSet<_>>(), holders);
            let reported = hosts.iter().copied().filter(|host| promises.holds(fid, *host));
            assert_eq!(reported.collect::<BTreeSet<_>>(), holders);
        }
        for &host in hosts {
            let of_host = plain.0.iter().filter(|known| known.1 == host).count();
            assert_eq!(promises.count_of(host), of_host);
        }
        for volume in (0..4).map(VolumeId) {
            let holders = plain.0.iter().filter(|known| known.0.volume == volume).map(|known| known.1);
            assert_eq!(promises.volume_holders(volume), holders.collect());
        }
    }

    #[test]
    fn random_histories_agree_with_a_plain_list() {
        for seed in 0..400 {
            // Also cases with few files of many holders each: nearly all of the hosts, or few of them.
            let (count, spread, files) = [(6, 1, 6), (40, 1, 1), (40, 1_000, 1)][seed as usize % 3];
            let mut hosts: Vec<HostId> = (0..count).map(|number| HostId(number * spread)).collect();
            let mut rng = SmallRng::seed_from_u64(seed);
            let (mut promises, mut plain, mut now_s) = (Promises::default(), Plain::default(), 0);
            for sequence in 1..=400u64 {
                let fid = fid(rng.random_range(0..files.min(3)), rng.random_range(0..files));
                let now = hosts.len() - count as usize..hosts.len();
                let host = hosts[rng.random_range(now)];
                // Rare, so that many holders can accumulate.
                let rare = if count > 6 && rng.random_ratio(4, 5) { 10 } else { 0 };
                let until = rng.random_range(1..=sequence);
                let (ended, expected) = match rng.random_range(rare..41) {
                    0 => {
                        // Replaces all hosts by others with the same indexes.
                        let gone = hosts.split_off(hosts.len() - count as usize);
                        let ended = gone.iter().map(|host| promises.remove_host(*host, u64::MAX)).sum();
                        hosts.extend_from_slice(&gone);
                        hosts.extend(gone.iter().map(|host| HostId(host.0 + (1 << 32))));
                        (ended, plain.remove(|_| true))
                    }
                    1 => (promises.remove_file(fid).len(), plain.remove(|p| p.0 == fid)),
                    2..4 => (
                        promises.remove_volume(fid.volume, host, until),
                        plain.remove(|p| p.0.volume == fid.volume && p.1 == host && p.2 <= until),
                    ),
                    4..6 => {
                        (promises.remove_host(host, until), plain.remove(|p| p.1 == host && p.2 <= until))
                    }
                    6..8 => {
                        now_s += rng.random_range(0..1000);
                        (promises.expire(now_s), plain.remove(|p| u64::from(p.3) * EXPIRY_STEP_S <= now_s))
                    }
                    8..16 => {
                        // Possibly a host that has been removed.
                        let host = hosts[rng.random_range(0..hosts.len())];
                        (
                            promises.remove(fid, host, until).into(),
                            plain.remove(|p| (p.0, p.1) == (fid, host) && p.2 <= until),
                        )
                    }
                    _ => {
                        let until_s = now_s + rng.random_range(1..2000);
                        let users = plain.hosts(fid).len();
                        promises.put(fid, host, sequence, |reported| {
                            assert_eq!(reported, users);
                            until_s
                        });
                        plain.put(fid, host, sequence, until_s);
                        (0, 0)
                    }
                };
                assert_eq!(ended, expected, "seed {seed}, step {sequence}");
                agree(&promises, &plain, &hosts);
            }
        }
    }

    #[test]
    fn holders_that_come_and_go_are_found_in_each_form() {
        let mut changes = BTreeSet::new();
        // More than 16 of 30 hosts are a large share, but not of 100.
        for seed in 0..30 {
            let far = HostId(5_000);
            let (count, pause) = if seed % 2 == 0 { (30, 1) } else { (100, 5) };
            let mut rng = SmallRng::seed_from_u64(seed);
            let (mut promises, mut plain, fid) = (Promises::default(), Plain::default(), fid(1, 2));
            let hosts: Vec<HostId> = (0..count).map(HostId).chain([far]).collect();
            for sequence in 1..=1_200 {
                let host = if rng.random_ratio(1, 200) { far } else { HostId(rng.random_range(0..count)) };
                let form = |promises: &Promises| promises.holders_of(fid).map_or(0, Holders::form);
                let before = form(&promises);
                // Alternates between mostly adding and mostly removing.
                if rng.random_bool(if sequence % 400 < 200 { 0.9 } else { 0.02 }) {
                    promises.put(fid, host, sequence, |_| 1_000);
                    plain.put(fid, host, sequence, 1_000);
                } else {
                    let until = rng.random_range(sequence / 2..=sequence);
                    let ended = plain.remove(|known| known.1 == host && known.2 <= until);
                    assert_eq!(usize::from(promises.remove(fid, host, until)), ended, "seed {seed}");
                }
                changes.insert((before, form(&promises)));
                if sequence % pause == 0 {
                    agree(&promises, &plain, &hosts);
                }
            }
        }
        let steps = [(0, 1), (1, 2), (2, 3), (2, 4), (3, 4), (4, 3), (4, 2), (3, 2), (2, 1), (1, 0)];
        assert!(steps.iter().all(|step| changes.contains(step)), "{changes:?}");
    }

    #[test]
    fn of_very_many_holders_each_is_renewed_alone() {
        let (mut promises, fid) = (Promises::default(), fid(1, 2));
        (1..=100).for_each(|number| promises.put(fid, HostId(number), number, |_| 1_000));
        assert_eq!(promises.holders_of(fid).map(Holders::form), Some(4));
        promises.put(fid, HostId(7), 101, |_| 500);
        promises.put(fid, HostId(8), 102, |_| 2_000);
        assert!(!promises.remove(fid, HostId(7), 100), "made later than the break");
        assert_eq!(promises.remove_volume(VolumeId(1), HostId(8), 101), 0);
        assert!(!promises.holds(fid, HostId(7 + (1 << 32))), "another, which comes in its stead");
        assert_eq!(promises.expire(600), 0);
        assert_eq!(promises.expire(1_024), 99);
        assert_eq!(promises.holders(fid).collect::<Vec<_>>(), [HostId(8)]);
        assert!(!promises.remove(fid, HostId(8), 101), "whatever the form is now");
        assert!(promises.remove(fid, HostId(8), 102));
        assert!(promises.steps.is_empty() && promises.files() == 0);
    }

    #[test]
    fn a_good_part_of_all_hosts_is_soon_noticed() {
        let (mut promises, fid) = (Promises::default(), fid(1, 2));
        // Hosts come in no particular order, as clients do. The hash table would grow at 448.
        let form = |promises: &Promises| promises.holders_of(fid).map(Holders::form);
        let mut hosts = (0..1_000).map(|number| HostId(number * 383 % 1_000));
        hosts.by_ref().take(300).for_each(|host| promises.put(fid, host, host.0, |_| 1_000));
        assert_eq!(form(&promises), Some(3));
        hosts.by_ref().take(120).for_each(|host| promises.put(fid, host, host.0, |_| 1_000));
        assert_eq!(form(&promises), Some(4));
    }

    /// Memory of a file with one holder, without the 8 bytes of key in a tree.
    #[test]
    fn the_size_of_a_promise_is_fixed() {
        assert_eq!((size_of::<chains::Slot<Promise, 3>>(), size_of::<Holders>()), (56, 24));
    }
}
