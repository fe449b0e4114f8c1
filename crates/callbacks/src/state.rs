//! The state machine: calls arrive, promises are made, changes break them.

mod admission;
mod breaks;
mod eviction;
mod places;

use crate::config::{self, CallbackConfig, SERVER_BIAS_S};
use crate::connections::Connections;
use crate::counters::Counters;
use crate::host::{Host, HostId, HostInfo};
use crate::hosts::Hosts;
use crate::identifying::Identifying;
use crate::message::{CallbackKind, Promised};
use crate::promises::Promises;
use crate::ranking::{Class, Rank, Ranking};
use crate::twins::Twins;
use base::{Fid, Monotonic, VnodeId, VolumeId};
use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;

pub use crate::twins::SharedUuid;

/// All hosts and promises of one server.
///
/// For each call: [`arrive`](Self::arrive) until it says [`Arrival::Ready`](crate::Arrival::Ready); then
/// [`promise`](Self::promise) *before* the status that the promise covers is read; after a change and
/// before its reply, [`break_files`](Self::break_files) and send what it returns, reporting each
/// delivery with [`delivered`](Self::delivered). Now and then call [`maintain`](Self::maintain).
///
/// No step searches all hosts, but for [`maintain`](Self::maintain) and the questions at the end.
#[derive(Debug)]
pub struct Callbacks {
    config: CallbackConfig,
    hosts: Hosts,
    by_address: BTreeMap<SocketAddr, HostId>,
    twins: Twins,
    connections: Connections,
    identifying: Identifying,
    ranking: Ranking,
    promises: Promises,
    /// Hosts of the next calls, and the files they are about; kept for its memory.
    foreseen: Vec<(HostId, Option<Fid>)>,
    delayed: usize,
    /// Hosts that are up, hold nothing in our memory, and have not been told so yet.
    owing_reset: BTreeSet<HostId>,
    sequence: u64,
    counters: Counters,
}

fn seconds(now: Monotonic) -> u64 {
    now.0 / 1_000_000_000
}

/// The fid that stands for all of `volume` in promises and messages.
fn whole(volume: VolumeId) -> Fid {
    Fid { volume, vnode: VnodeId(0), unique: 0 }
}

/// Promises.
impl Callbacks {
    /// Knows no hosts and promises nothing.
    pub fn new(config: CallbackConfig) -> Callbacks {
        Callbacks {
            config,
            hosts: Hosts::default(),
            by_address: BTreeMap::new(),
            twins: Twins::default(),
            connections: Connections::default(),
            identifying: Identifying::default(),
            ranking: Ranking::default(),
            promises: Promises::default(),
            foreseen: Vec::new(),
            delayed: 0,
            owing_reset: BTreeSet::new(),
            sequence: 0,
            counters: Counters::default(),
        }
    }

    /// Promises `host` to tell it before `fid` changes. Call it before reading what the host is to
    /// cache: a change in between then breaks the promise, instead of escaping it.
    pub fn promise(&mut self, now: Monotonic, host: HostId, fid: Fid, kind: CallbackKind) -> Promised {
        let Some(class) = self.hosts.get(host).map(|host| host.rank.class) else {
            return Promised::default();
        };
        let fid = if kind == CallbackKind::Volume { whole(fid.volume) } else { fid };
        self.sequence += 1;
        self.counters.promises_made += 1;
        let mut lasts_s = 0;
        self.promises.put(fid, host, self.sequence, |users| {
            lasts_s = match kind {
                CallbackKind::File => config::promise_s(users),
                CallbackKind::Bulk => config::promise_s(users + config::BULK_USERS),
                CallbackKind::Volume => config::VOLUME_PROMISE_S,
            };
            seconds(now) + lasts_s + SERVER_BIAS_S
        });
        if class == Class::Empty {
            self.rank(host);
        }
        Promised { seconds: lasts_s as u32, deliveries: self.make_room(now, host) }
    }

    /// Whether so many promises more can be made without taking any from others.
    pub fn has_room(&self, promises: usize) -> bool {
        self.used() + promises <= self.config.promises_max
    }

    fn used(&self) -> usize {
        self.promises.len() + self.delayed
    }

    /// A host does not want these promises any more (RXAFS_GiveUpCallBacks). Promises to other addresses stand,
    /// also if these have the same UUID: that the caller is the same client is not proved.
    pub fn give_up(&mut self, host: HostId, fids: &[Fid]) {
        for &fid in fids {
            if self.promises.remove(fid, host, u64::MAX) {
                self.counters.promises_deleted += 1;
            } else if self.twins_of(host).any(|twin| self.promises.holds(fid, twin)) {
                self.counters.give_ups_ignored += 1;
            }
        }
        self.rank(host);
    }

    /// A host gives up all promises made to it at its address (RXAFS_GiveUpAllCallBacks).
    pub fn give_up_all(&mut self, host: HostId) {
        self.counters.hosts_cleared += 1;
        let ended = self.promises.remove_host(host, u64::MAX);
        if ended == 0 && self.twins_of(host).any(|twin| self.promises.has_any(twin)) {
            self.counters.give_ups_ignored += 1;
        }
        self.rank(host);
    }

    /// A file is gone: its promises end unbroken, since no client can reach it any more.
    pub fn forget_file(&mut self, fid: Fid) {
        self.counters.files_deleted += 1;
        self.promises.remove_file(fid);
    }

    /// Other hosts with the same UUID.
    fn twins_of(&self, id: HostId) -> impl Iterator<Item = HostId> + '_ {
        let uuid = self.hosts.get(id).and_then(|host| host.uuid);
        self.twins.of(uuid).filter(move |twin| *twin != id)
    }

    /// Brings a host's place in the order of eviction up to date.
    fn rank(&mut self, id: HostId) {
        let Some(host) = self.hosts.get(id) else { return };
        let holds = !host.delayed.is_empty() || self.promises.has_any(id) || self.owing_reset.contains(&id);
        let class = match (holds, host.up) {
            (false, _) => Class::Empty,
            (true, false) => Class::Down,
            (true, true) => Class::Holding,
        };
        let rank = Rank::new(class, host.last_active);
        if rank != host.rank {
            self.ranking.remove(host.address.ip(), host.rank, id);
            self.ranking.insert(host.address.ip(), rank, id);
            self.host_mut(id).rank = rank;
        }
    }

    fn host_mut(&mut self, id: HostId) -> &mut Host {
        self.hosts.get_mut(id).expect("the host exists")
    }
}

/// Questions.
impl Callbacks {
    /// Reads a little of what is known of callers, their hosts and their promises on a file, so that what is
    /// not in a processor's caches is fetched at the same time for all. The result means nothing.
    pub fn look_ahead(&mut self, calls: impl Iterator<Item = (SocketAddr, u64, Option<Fid>)>) -> u64 {
        let mut found = std::mem::take(&mut self.foreseen);
        found
            .extend(calls.filter_map(|(peer, number, fid)| Some((self.connections.get(peer, number)?, fid))));
        let hosts = found.iter().filter_map(|(id, _)| self.hosts.get(*id));
        let mut seen = hosts.fold(0, |seen, host| seen ^ host.look());
        for (id, fid) in &found {
            seen ^= fid.map_or(0, |fid| self.promises.look(fid, *id));
        }
        found.clear();
        self.foreseen = found;
        seen
    }

    /// Counts and present sizes.
    pub fn counters(&self) -> Counters {
        Counters {
            files: self.promises.files() as u64,
            promises: self.used() as u64,
            promises_max: self.config.promises_max as u64,
            hosts: self.hosts.len() as u64,
            hosts_down: self.hosts.iter().filter(|(_, host)| !host.up).count() as u64,
            uuids_shared: self.twins.shared().len() as u64,
            ..self.counters
        }
    }

    /// UUIDs that two clients were seen to use at the same time in the last hours.
    pub fn shared_uuids(&self) -> Vec<SharedUuid> {
        self.twins.shared()
    }

    /// Hosts that have used files since `since`.
    pub fn active_hosts(&self, since: Monotonic) -> usize {
        self.hosts.iter().filter(|(_, host)| host.last_active >= since).count()
    }

    /// The capabilities that a host named (CLIENT_CAPABILITY_*); 0 for an unknown host.
    pub fn capabilities(&self, host: HostId) -> u32 {
        self.hosts.get(host).map_or(0, |host| host.capabilities)
    }

    /// Whether `host` holds a promise on `fid` (a whole volume's with vnode 0).
    pub fn holds(&self, host: HostId, fid: Fid) -> bool {
        self.promises.holds(fid, host)
    }

    /// Every host, for tables.
    pub fn hosts(&self) -> impl Iterator<Item = HostInfo> + '_ {
        self.hosts.iter().map(|(id, host)| HostInfo {
            id,
            uuid: host.uuid,
            address: host.address,
            up: host.up,
            promises: self.promises.count_of(id),
            delayed: host.delayed.len(),
            last_call: host.last_call,
        })
    }
}

#[cfg(test)]
mod tests;
