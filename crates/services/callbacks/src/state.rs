//! The state machine: calls arrive, promises are made, and changes break them.

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
use crate::owing::Owing;
use crate::promises::Promises;
use crate::ranking::{Class, Rank, Ranking};
use crate::strays::Strays;
use crate::twins::Twins;
use base::{Fid, HostUuid, Monotonic, VnodeId, VolumeId};
use std::collections::BTreeMap;
use std::net::SocketAddr;

pub use crate::twins::SharedUuid;

/// All hosts and promises of one server.
///
/// For each call, repeat [`arrive`](Self::arrive) until it returns [`Arrival::Ready`](crate::Arrival::Ready).
/// Call [`promise`](Self::promise) *before* reading the status that the promise covers. After a change and
/// before its reply, call [`break_files`](Self::break_files), send the deliveries that it returns, and report
/// each with [`delivered`](Self::delivered). Call [`maintain`](Self::maintain) periodically.
///
/// Only [`maintain`](Self::maintain) and the queries at the end iterate over all hosts.
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
    /// Hosts of the next calls and the files these access; kept for its allocation.
    foreseen: Vec<(HostId, Option<Fid>)>,
    delayed: usize,
    owing: Owing,
    strays: Strays,
    sequence: u64,
    counters: Counters,
}

fn seconds(now: Monotonic) -> u64 {
    now.0 / 1_000_000_000
}

/// Returns the fid that represents the whole `volume` in promises and messages.
fn whole(volume: VolumeId) -> Fid {
    Fid { volume, vnode: VnodeId(0), unique: 0 }
}

/// Promises.
impl Callbacks {
    /// Creates a table without hosts and promises.
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
            owing: Owing::default(),
            strays: Strays::default(),
            sequence: 0,
            counters: Counters::default(),
        }
    }

    /// Promises to notify `host` before `fid` changes. Must be called before the data that the host will
    /// cache is read, so that a change in between breaks the promise.
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

    /// Whether this number of promises can be made without evicting others.
    pub fn has_room(&self, promises: usize) -> bool {
        self.used() + promises <= self.config.promises_max
    }

    fn used(&self) -> usize {
        self.promises.len() + self.delayed
    }

    /// Drops promises that a host gives up (RXAFS_GiveUpCallBacks). Promises to other addresses with the same
    /// UUID remain, since it is not proven that they are the same client.
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

    /// Drops all promises made to a host at its address (RXAFS_GiveUpAllCallBacks).
    pub fn give_up_all(&mut self, host: HostId) {
        self.counters.hosts_cleared += 1;
        let ended = self.promises.remove_host(host, u64::MAX);
        if ended == 0 && self.twins_of(host).any(|twin| self.promises.has_any(twin)) {
            self.counters.give_ups_ignored += 1;
        }
        self.rank(host);
    }

    /// Drops the promises on a deleted file without breaking them, since no client can reach it any more.
    pub fn forget_file(&mut self, fid: Fid) {
        self.counters.files_deleted += 1;
        self.promises.remove_file(fid);
    }

    /// Returns the other hosts with the same UUID.
    fn twins_of(&self, id: HostId) -> impl Iterator<Item = HostId> + '_ {
        let uuid = self.hosts.get(id).and_then(|host| host.uuid);
        self.twins.of(uuid).filter(move |twin| *twin != id)
    }

    /// Updates a host's position in the order of eviction.
    fn rank(&mut self, id: HostId) {
        let Some(host) = self.hosts.get(id) else { return };
        let owes_reset = host.up && host.needs_reset.is_some();
        let holds = !host.delayed.is_empty() || self.promises.has_any(id) || owes_reset;
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

/// Queries.
impl Callbacks {
    /// Prefetches the data of callers, their hosts and their promises on a file, so that the cache misses of
    /// all calls overlap. The result is meaningless.
    pub fn prefetch(&mut self, calls: impl Iterator<Item = (SocketAddr, u64, Option<Fid>)>) -> u64 {
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

    /// Returns the counters and current sizes.
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

    /// Returns the UUIDs that two clients have used at the same time during the last day.
    pub fn shared_uuids(&self) -> Vec<SharedUuid> {
        self.twins.shared()
    }

    /// Returns the number of hosts that have used files since `since`.
    pub fn active_hosts(&self, since: Monotonic) -> usize {
        self.hosts.iter().filter(|(_, host)| host.last_active >= since).count()
    }

    /// Returns the capabilities that a host reported (CLIENT_CAPABILITY_*), or 0 for an unknown host.
    pub fn capabilities(&self, host: HostId) -> u32 {
        self.hosts.get(host).map_or(0, |host| host.capabilities)
    }

    /// Whether `host` holds a promise on `fid` (vnode 0: on the whole volume).
    pub fn holds(&self, host: HostId, fid: Fid) -> bool {
        self.promises.holds(fid, host)
    }

    /// Returns the UUID of a host, if it has one.
    pub fn uuid(&self, host: HostId) -> Option<HostUuid> {
        self.hosts.get(host)?.uuid
    }

    /// Whether the host at this address may hold promises, of this server or of one before, or has missed messages; `None` if
    /// there is no host.
    pub fn may_hold(&self, address: SocketAddr) -> Option<bool> {
        let id = *self.by_address.get(&address)?;
        Some(!self.hosts[id].is_owed_nothing() || self.promises.has_any(id))
    }

    /// Returns all hosts, for tables.
    pub fn hosts(&self) -> impl Iterator<Item = HostInfo> + '_ {
        self.hosts.iter().map(|(id, host)| HostInfo {
            id,
            uuid: host.uuid,
            address: host.address,
            up: host.up,
            promises: self.promises.count_of(id),
            delayed: host.delayed.len(),
            is_postponed: self.owing.is_beyond(id),
            last_call: host.last_call,
        })
    }
}

#[cfg(test)]
mod tests;
