//! The durable list of the hosts that may hold callback promises on a partition.
//!
//! Promises are not durable. A server that takes a partition over has to reset every host that may hold one before it
//! acknowledges a change, so it has to know these hosts.
//!
//! A host is put into the list by a commit, for which the reply with its first promise waits. It is *pinned* while a
//! promise to it is being made, and leaves the list some time after it holds none. Both commits are made under the
//! list's lock, so a removal and a later return become durable in this order.

use crate::VolumeError;
use base::{HostUuid, Monotonic};
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::Duration;
use store::{Batch, CommitNumber, Family, KeyRange, MetaStore, StoreError};
use volume_records::{ListedHost, codec, keys};

/// Maximum number of hosts in the list of a partition. Anyone can obtain promises; further hosts get none.
pub(crate) const HOSTS_MAX: usize = 16_384;

/// Maximum number of hosts with one IPv4 address, or in one /64 network of IPv6.
pub(crate) const HOSTS_PER_ORIGIN_MAX: usize = 4_096;

/// For how long a host stays in the list after its last promise, at least. It saves a host that comes and goes most
/// of the commits.
const REST: Duration = Duration::from_secs(5 * 60);

/// Maximum number of hosts that one commit removes.
const REMOVED_AT_ONCE: usize = 256;

/// Returns the hosts that may hold promises on the partition with this metadata. Records that cannot be read are
/// logged and left out.
///
/// # Errors
/// `Store` if the metadata cannot be read.
pub fn listed_hosts(meta: &dyn MetaStore) -> Result<Vec<ListedHost>, VolumeError> {
    let (from, to) = keys::listed_hosts();
    let mut hosts = Vec::new();
    meta.scan(Family::SYSTEM, KeyRange::ascending(&from, &to), &mut |key, value| {
        if let Some(host) = codec::get_listed_host(key, value) {
            hosts.push(host);
        } else {
            tracing::error!(key = %key.escape_ascii(), "the record of a client host cannot be read");
        }
        ControlFlow::Continue(())
    })?;
    Ok(hosts)
}

/// Returns the address that the limit counts by.
pub(crate) fn origin(ip: IpAddr) -> IpAddr {
    match ip {
        IpAddr::V4(_) => ip,
        IpAddr::V6(ip) => Ipv6Addr::from(u128::from(ip) >> 64 << 64).into(),
    }
}

/// A host, as a call knows it.
#[derive(Clone, Copy, Debug)]
pub struct Promisee {
    /// The number of the host in this process, which is never reused and not 0.
    pub number: u64,
    /// Its address.
    pub address: SocketAddr,
    /// The time of the call.
    pub now: Monotonic,
}

#[derive(Debug)]
struct Entry {
    /// The host's number in this process; 0 until it has called.
    number: u64,
    host: ListedHost,
    /// The commit that put it into the list; 0 if it was there when the partition was opened.
    commit: CommitNumber,
    /// Time of the last promise; `None` if none was made since the partition was opened.
    used: Option<Monotonic>,
    /// Number of times that it was pinned.
    uses: u64,
    /// Number of pins at present.
    pins: usize,
}

impl Entry {
    fn pin(&mut self, promisee: &Promisee) {
        self.used = Some(promisee.now);
        self.uses += 1;
        self.pins += 1;
    }
}

#[derive(Debug, Default)]
struct Entries {
    all: BTreeMap<SocketAddr, Entry>,
    /// Number of hosts by [`origin`].
    origins: BTreeMap<IpAddr, usize>,
}

impl Entries {
    fn has_room(&self, address: SocketAddr) -> bool {
        let there = self.origins.get(&origin(address.ip())).copied().unwrap_or_default();
        self.all.len() < HOSTS_MAX && there < HOSTS_PER_ORIGIN_MAX
    }

    fn insert(&mut self, entry: Entry) {
        let address = entry.host.address;
        if self.all.insert(address, entry).is_none() {
            *self.origins.entry(origin(address.ip())).or_default() += 1;
        }
    }

    fn remove(&mut self, address: SocketAddr) {
        let origin = origin(address.ip());
        if self.all.remove(&address).is_some()
            && let Some(count) = self.origins.get_mut(&origin)
        {
            *count -= 1;
            if *count == 0 {
                self.origins.remove(&origin);
            }
        }
    }
}

/// The list of one partition.
pub(crate) struct HostList {
    meta: Arc<dyn MetaStore>,
    /// The hosts. Held while a change of the list is committed, which does not wait, so that the commits have the order of
    /// the changes.
    entries: Mutex<Entries>,
}

impl HostList {
    /// Reads the list.
    pub(crate) fn load(meta: Arc<dyn MetaStore>) -> Result<HostList, VolumeError> {
        let mut entries = Entries::default();
        for host in listed_hosts(&*meta)? {
            let commit = CommitNumber(0);
            entries.insert(Entry { number: 0, host, commit, used: None, uses: 0, pins: 0 });
        }
        Ok(HostList { meta, entries: Mutex::new(entries) })
    }

    /// Pins a host if it is durably in the list; `durable` is the newest durable commit. Also returns `None` while the list
    /// is being changed.
    pub(crate) fn try_pin(&self, promisee: &Promisee, durable: CommitNumber) -> Option<Pinned<'_>> {
        let mut entries = self.entries.try_lock()?;
        let entry = entries.all.get_mut(&promisee.address)?;
        if entry.number != promisee.number || entry.commit > durable {
            return None;
        }
        entry.pin(promisee);
        Some(Pinned { list: self, address: promisee.address })
    }

    /// Puts a host into the list and pins it. Returns it with the commit for which the reply has to wait; `None` if the
    /// list is full. `uuid` is called if the host is new.
    ///
    /// # Errors
    /// Those of [`MetaStore::commit`].
    pub(crate) fn pin(
        &self,
        promisee: &Promisee,
        uuid: impl FnOnce() -> Option<HostUuid>,
    ) -> Result<Option<(Pinned<'_>, CommitNumber)>, StoreError> {
        let commit = match self.pin_known(promisee) {
            Some(commit) => Some(commit),
            // Called without the list's lock: it may wait for another one.
            None => self.add(promisee, uuid())?,
        };
        Ok(commit.map(|commit| (Pinned { list: self, address: promisee.address }, commit)))
    }

    fn pin_known(&self, promisee: &Promisee) -> Option<CommitNumber> {
        let mut entries = self.entries.lock();
        let entry = entries.all.get_mut(&promisee.address)?;
        (entry.number == promisee.number).then(|| {
            entry.pin(promisee);
            entry.commit
        })
    }

    /// Pins a host that this process does not know yet. It may be in the list already, or another one at its address.
    fn add(&self, promisee: &Promisee, uuid: Option<HostUuid>) -> Result<Option<CommitNumber>, StoreError> {
        let (address, number) = (promisee.address, promisee.number);
        let host = ListedHost { address, uuid };
        let mut entries = self.entries.lock();
        let known = entries.all.get(&address);
        if known.is_none() && !entries.has_room(address) {
            return Ok(None);
        }
        let commit = if let Some(known) = known.filter(|known| known.host == host) {
            known.commit
        } else {
            let mut batch = Batch::new();
            batch.put(Family::SYSTEM, keys::listed_host(address), codec::put_listed_host(&host));
            self.meta.commit(batch)?
        };
        if let Some(entry) = entries.all.get_mut(&address) {
            (entry.number, entry.host, entry.commit) = (number, host, commit);
            entry.pin(promisee);
        } else {
            let mut entry = Entry { number, host, commit, used: None, uses: 0, pins: 0 };
            entry.pin(promisee);
            entries.insert(entry);
        }
        Ok(Some(commit))
    }

    /// Removes hosts without promises. `may_leave` gets hosts with the times since their last promises, and returns
    /// which of them certainly hold none. It is not called for hosts that are pinned or were used recently. A host that is
    /// used meanwhile stays. The removals become durable with a later commit.
    ///
    /// # Errors
    /// Those of [`MetaStore::commit`]. The hosts stay in the list.
    pub(crate) fn forget(&self, now: Monotonic, may_leave: MayLeave<'_>) -> Result<(), StoreError> {
        for idle in self.idle(now).chunks(REMOVED_AT_ONCE) {
            let asked: Vec<_> = idle.iter().map(|(address, _, idle)| (*address, *idle)).collect();
            let leaving = idle.iter().zip(may_leave(&asked)).filter(|(_, may)| *may);
            self.remove(leaving.map(|((address, uses, _), _)| (*address, *uses)))?;
        }
        Ok(())
    }

    /// Returns the hosts that were not used recently, with the number of their uses.
    fn idle(&self, now: Monotonic) -> Vec<(SocketAddr, u64, Duration)> {
        let mut entries = self.entries.lock();
        let idle = entries.all.iter_mut().filter_map(|(address, entry)| {
            let idle = now.since(*entry.used.get_or_insert(now));
            (entry.pins == 0 && idle >= REST).then_some((*address, entry.uses, idle))
        });
        idle.collect()
    }

    /// Removes hosts unless they were used since they had this number of uses.
    fn remove(&self, leaving: impl Iterator<Item = (SocketAddr, u64)>) -> Result<(), StoreError> {
        let mut entries = self.entries.lock();
        let is_unused = |(address, uses): &(SocketAddr, u64)| {
            entries.all.get(address).is_some_and(|entry| entry.uses == *uses && entry.pins == 0)
        };
        let leaving: Vec<SocketAddr> = leaving.filter(is_unused).map(|(address, _)| address).collect();
        if leaving.is_empty() {
            return Ok(());
        }
        let mut batch = Batch::new();
        for address in &leaving {
            batch.delete(Family::SYSTEM, keys::listed_host(*address));
        }
        self.meta.commit(batch)?;
        for address in leaving {
            entries.remove(address);
        }
        Ok(())
    }

    /// Returns the number of hosts.
    pub(crate) fn len(&self) -> usize {
        self.entries.lock().all.len()
    }
}

/// Returns which of these hosts, with the times since their last promises, may leave the list.
pub type MayLeave<'a> = &'a dyn Fn(&[(SocketAddr, Duration)]) -> Vec<bool>;

/// Keeps a host in the list until it is dropped.
pub(crate) struct Pinned<'a> {
    list: &'a HostList,
    address: SocketAddr,
}

impl Drop for Pinned<'_> {
    fn drop(&mut self) {
        if let Some(entry) = self.list.entries.lock().all.get_mut(&self.address) {
            entry.pins -= 1;
        }
    }
}

/// Keeps a host in the list of a volume's partition while a promise to it is being made. A partition that no other server
/// can take over has no list, and needs none.
#[must_use = "the host may leave the list when this is dropped"]
pub struct HostPin<'a> {
    /// Only dropped.
    _pinned: Option<Pinned<'a>>,
}

impl<'a> HostPin<'a> {
    /// Returns the pin of a partition without list.
    pub(crate) fn unneeded() -> HostPin<'a> {
        HostPin { _pinned: None }
    }

    pub(crate) fn of(pinned: Pinned<'a>) -> HostPin<'a> {
        HostPin { _pinned: Some(pinned) }
    }
}

#[cfg(test)]
mod tests;
