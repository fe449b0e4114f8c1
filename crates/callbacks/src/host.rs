//! One client host: its identity, its address, and what it is owed.

use crate::config::CallbackConfig;
use crate::ranking::{Class, Rank};
use base::{Fid, HostUuid, Monotonic};
use std::collections::{BTreeMap, VecDeque};
use std::net::{IpAddr, SocketAddr};

/// Names a host while the server runs; never reused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct HostId(pub u64);

/// What a client said of itself (TellMeAboutYourself, or WhoAreYou if it is old).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Identification {
    /// Its UUID; `None` if it has none or does not know the call.
    pub uuid: Option<HostUuid>,
    /// The addresses of its interfaces with the port that it calls from, unverified.
    pub addresses: Vec<SocketAddr>,
    /// The first word of its capabilities (CLIENT_CAPABILITY_*).
    pub capabilities: u32,
}

/// Facts about a host for tables and tools.
#[derive(Clone, Debug)]
pub struct HostInfo {
    /// Its number.
    pub id: HostId,
    /// Its UUID, if it has one.
    pub uuid: Option<HostUuid>,
    /// Where it calls from and callbacks are sent.
    pub address: SocketAddr,
    /// Whether it answered last time.
    pub up: bool,
    /// Promises that it holds.
    pub promises: usize,
    /// Breaks that it has not received.
    pub delayed: usize,
    /// When it last called.
    pub last_call: Monotonic,
}

/// A client at one address.
///
/// A UUID is a claim that any client can make, so it gives no access to what another address was
/// promised: promises, undelivered breaks and resets belong to the address that has answered calls to it.
/// Hosts with the same UUID are *twins*: one client with several addresses, cloned machines, or an impostor.
/// A message that a silent host misses also goes to its twins, which can only make them drop cached data.
///
/// Secured callbacks (rxgk) will add a callback key here: a host that has one is found by the key of the
/// connection instead of by address and UUID in `Callbacks::place`, and its messages are sent under it.
#[derive(Debug)]
pub(crate) struct Host {
    pub(crate) uuid: Option<HostUuid>,
    pub(crate) address: SocketAddr,
    /// Interfaces that the client named at this address; only tried when it is silent, and probed then.
    pub(crate) reported: Vec<SocketAddr>,
    pub(crate) capabilities: u32,
    pub(crate) up: bool,
    /// It must be told to forget everything; the sequence number of the reason.
    pub(crate) needs_reset: Option<u64>,
    /// Breaks it missed, with the sequence number of the change.
    pub(crate) delayed: BTreeMap<Fid, u64>,
    /// A call is talking to it before one of its calls is answered.
    pub(crate) busy: bool,
    /// Its UUID was in use at other addresses when it appeared; these are still to be checked.
    pub(crate) newcomer: bool,
    /// When it was last probed because its UUID was named elsewhere.
    pub(crate) probed: Option<Monotonic>,
    pub(crate) last_call: Monotonic,
    /// Like `last_call`, without the calls that mean no activity (GetTime and the like).
    pub(crate) last_active: Monotonic,
    /// Its connections, oldest first.
    pub(crate) connections: VecDeque<u64>,
    /// Its place in the order of eviction.
    pub(crate) rank: Rank,
}

impl Host {
    pub(crate) fn new(now: Monotonic, address: SocketAddr, uuid: Option<HostUuid>, sequence: u64) -> Host {
        Host {
            uuid,
            address,
            reported: Vec::new(),
            capabilities: 0,
            up: true,
            needs_reset: Some(sequence),
            delayed: BTreeMap::new(),
            busy: false,
            newcomer: false,
            probed: None,
            last_call: now,
            last_active: now,
            connections: VecDeque::new(),
            rank: Rank::new(Class::Empty, now),
        }
    }

    /// Reads a little of each part that a call needs; the result means nothing.
    pub(crate) fn look(&self) -> u64 {
        let owed = self.needs_reset.unwrap_or_default() ^ self.delayed.len() as u64;
        let address = u64::from(self.address.port());
        owed ^ address ^ self.last_call.0 ^ self.last_active.0 ^ u64::from(self.capabilities)
    }

    /// No call is talking to it, and nothing has to be said or checked before a call of it is answered.
    pub(crate) fn is_owed_nothing(&self) -> bool {
        !self.busy && !self.newcomer && self.needs_reset.is_none() && self.delayed.is_empty()
    }

    /// Notes a call. Returns whether its place in the order of eviction has changed.
    pub(crate) fn on_call(&mut self, now: Monotonic, active: bool) -> bool {
        self.last_call = now;
        if active {
            self.last_active = now;
        }
        active && Rank::new(self.rank.class, now) != self.rank
    }

    /// Takes over what a client said of itself.
    pub(crate) fn learn(&mut self, config: &CallbackConfig, said: &Identification) {
        self.capabilities = said.capabilities;
        let others = said.addresses.iter().filter(|other| **other != self.address && is_remote(other.ip()));
        self.reported = others.take(config.addresses_max).copied().collect();
    }

    /// Whether the client named `ip` as one of its interfaces.
    pub(crate) fn names(&self, ip: IpAddr) -> bool {
        self.reported.iter().any(|reported| reported.ip() == ip)
    }
}

/// Whether an address can belong to another machine: not loopback, link-local, multicast, broadcast or none at all.
fn is_remote(ip: IpAddr) -> bool {
    match ip {
        IpAddr::V4(ip) => {
            let special = ip.is_loopback() || ip.is_link_local() || ip.is_multicast() || ip.is_broadcast();
            !special && ip.octets()[0] != 0
        }
        IpAddr::V6(ip) => {
            let special = ip.is_loopback() || ip.is_unicast_link_local() || ip.is_multicast();
            !special && !ip.is_unspecified()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn special_addresses_are_not_learnt() {
        let address = |ip: [u8; 4]| SocketAddr::from((ip, 7001));
        let mut host = Host::new(Monotonic(0), address([10, 0, 0, 1]), None, 0);
        let good = [address([10, 1, 0, 1]), address([192, 168, 0, 1])];
        let special = [[127, 0, 0, 1], [169, 254, 1, 1], [224, 0, 0, 1], [255; 4], [0; 4], [10, 0, 0, 1]];
        let addresses = special.map(address).into_iter().chain(good).collect();
        host.learn(&CallbackConfig::default(), &Identification { addresses, ..Identification::default() });
        assert_eq!(host.reported, good);
    }
}
