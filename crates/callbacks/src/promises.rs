//! The table of promises: by file for breaking, by host for clearing, by time for expiring.
//!
//! All three views are exact, so that memory is bounded by the number of promises alone.

use crate::host::HostId;
use base::{Fid, VnodeId, VolumeId};
use std::collections::{BTreeMap, BTreeSet};

/// Promises expire in steps of this many seconds, so that renewing one rarely moves it.
const EXPIRY_STEP_S: u64 = 128;

/// One host's promise on one file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Promise {
    pub(crate) host: HostId,
    /// When it was made, in the order of everything that happened.
    pub(crate) sequence: u64,
    step: u64,
}

type Files = BTreeMap<(VnodeId, u32), Vec<Promise>>;

/// See the module's description. A fid with vnode 0 stands for the whole volume.
#[derive(Debug, Default)]
pub(crate) struct Promises {
    volumes: BTreeMap<VolumeId, Files>,
    by_host: BTreeSet<(HostId, Fid)>,
    by_time: BTreeSet<(u64, HostId, Fid)>,
    files: usize,
}

const FIRST_FID: Fid = Fid { volume: VolumeId(0), vnode: VnodeId(0), unique: 0 };
const LAST_FID: Fid = Fid { volume: VolumeId(u32::MAX), vnode: VnodeId(u32::MAX), unique: u32::MAX };

impl Promises {
    /// How many there are.
    pub(crate) fn len(&self) -> usize {
        self.by_host.len()
    }

    /// How many files have one.
    pub(crate) fn files(&self) -> usize {
        self.files
    }

    /// Makes a promise, or renews it; a renewed one never ends earlier than before.
    pub(crate) fn put(&mut self, fid: Fid, host: HostId, sequence: u64, until_s: u64) {
        let step = until_s.div_ceil(EXPIRY_STEP_S);
        let holders = self.volumes.entry(fid.volume).or_default().entry((fid.vnode, fid.unique)).or_default();
        if holders.is_empty() {
            self.files += 1;
        }
        if let Some(old) = holders.iter_mut().find(|p| p.host == host) {
            old.sequence = sequence;
            if step > old.step {
                self.by_time.remove(&(old.step, host, fid));
                old.step = step;
                self.by_time.insert((step, host, fid));
            }
        } else {
            holders.push(Promise { host, sequence, step });
            self.by_host.insert((host, fid));
            self.by_time.insert((step, host, fid));
        }
    }

    /// Who holds a promise on exactly this fid.
    pub(crate) fn holders(&self, fid: Fid) -> &[Promise] {
        let files = self.volumes.get(&fid.volume);
        files.and_then(|files| files.get(&(fid.vnode, fid.unique))).map_or(&[], Vec::as_slice)
    }

    /// Every host with any promise in `volume`.
    pub(crate) fn volume_holders(&self, volume: VolumeId) -> BTreeSet<HostId> {
        let files = self.volumes.get(&volume).into_iter().flat_map(BTreeMap::values);
        files.flatten().map(|promise| promise.host).collect()
    }

    /// Ends a promise if it was made at or before `sequence`. True if it did.
    pub(crate) fn remove(&mut self, fid: Fid, host: HostId, sequence: u64) -> bool {
        let Some(files) = self.volumes.get_mut(&fid.volume) else { return false };
        let Some(holders) = files.get_mut(&(fid.vnode, fid.unique)) else { return false };
        let Some(at) = holders.iter().position(|p| p.host == host && p.sequence <= sequence) else {
            return false;
        };
        let promise = holders.swap_remove(at);
        if holders.is_empty() {
            files.remove(&(fid.vnode, fid.unique));
            self.files -= 1;
        }
        if files.is_empty() {
            self.volumes.remove(&fid.volume);
        }
        self.by_host.remove(&(host, fid));
        self.by_time.remove(&(promise.step, host, fid));
        true
    }

    /// Ends every promise on `fid`, and says whose.
    pub(crate) fn remove_file(&mut self, fid: Fid) -> Vec<HostId> {
        let hosts: Vec<HostId> = self.holders(fid).iter().map(|p| p.host).collect();
        for &host in &hosts {
            self.remove(fid, host, u64::MAX);
        }
        hosts
    }

    /// Ends the promises of `host` in `volume` that were made at or before `sequence`.
    pub(crate) fn remove_volume(&mut self, volume: VolumeId, host: HostId, sequence: u64) -> usize {
        let first = Fid { volume, ..FIRST_FID };
        let last = Fid { volume, ..LAST_FID };
        let fids: Vec<Fid> = self.by_host.range((host, first)..=(host, last)).map(|(_, fid)| *fid).collect();
        fids.into_iter().filter(|fid| self.remove(*fid, host, sequence)).count()
    }

    /// Ends the promises of `host` that were made at or before `sequence`.
    pub(crate) fn remove_host(&mut self, host: HostId, sequence: u64) -> usize {
        let fids: Vec<Fid> = self.of_host(host).collect();
        fids.into_iter().filter(|fid| self.remove(*fid, host, sequence)).count()
    }

    /// What `host` holds promises on.
    pub(crate) fn of_host(&self, host: HostId) -> impl Iterator<Item = Fid> + '_ {
        self.by_host.range((host, FIRST_FID)..=(host, LAST_FID)).map(|(_, fid)| *fid)
    }

    /// Ends what is over by `now_s`, and says how many that were.
    pub(crate) fn expire(&mut self, now_s: u64) -> usize {
        let mut count = 0;
        while let Some(&(step, host, fid)) = self.by_time.first() {
            if step * EXPIRY_STEP_S > now_s {
                break;
            }
            self.remove(fid, host, u64::MAX);
            count += 1;
        }
        count
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fid(volume: u32, vnode: u32) -> Fid {
        Fid { volume: VolumeId(volume), vnode: VnodeId(vnode), unique: 1 }
    }

    #[test]
    fn every_view_agrees_after_each_kind_of_removal() {
        let mut promises = Promises::default();
        for host in 1..4 {
            for vnode in 1..5 {
                promises.put(fid(host as u32 % 2, vnode), HostId(host), host, 1_000);
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
        assert!(promises.volumes.is_empty() && promises.by_time.is_empty() && promises.files() == 0);
    }

    #[test]
    fn a_renewed_promise_lasts_to_the_later_end() {
        let mut promises = Promises::default();
        promises.put(fid(1, 2), HostId(1), 1, 1_000);
        promises.put(fid(1, 2), HostId(1), 2, 500);
        assert_eq!(promises.expire(600), 0);
        promises.put(fid(1, 2), HostId(1), 3, 2_000);
        assert_eq!(promises.expire(1_100), 0);
        assert_eq!(promises.expire(2_048), 1);
    }
}
