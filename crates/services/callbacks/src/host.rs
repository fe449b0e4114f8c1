//! One client host: its identity, its address, and its undelivered messages.

use crate::config::{ADDRESS_HELD, CallbackConfig};
use crate::ranking::{Class, Rank};
use base::{Fid, HostUuid, Monotonic};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::net::{IpAddr, SocketAddr};

/// Identifies a host while the server runs; never reused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct HostId(pub u64);

/// A client's answer to TellMeAboutYourself, or to WhoAreYou if it is old.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Identification {
    /// UUID of the client; `None` if it has none or does not implement the call.
    pub uuid: Option<HostUuid>,
    /// The addresses of its interfaces with the port that it calls from; unverified.
    pub addresses: Vec<SocketAddr>,
    /// First word of its capabilities (CLIENT_CAPABILITY_*).
    pub capabilities: u32,
}

/// Information about a host for tables and tools.
#[derive(Clone, Debug)]
pub struct HostInfo {
    /// Number of the host.
    pub id: HostId,
    /// UUID of the host, if it has one.
    pub uuid: Option<HostUuid>,
    /// Address that the host calls from and that callbacks are sent to.
    pub address: SocketAddr,
    /// Whether the host answered the last message.
    pub up: bool,
    /// Number of promises that the host holds.
    pub promises: usize,
    /// Number of breaks that the host has not received.
    pub delayed: usize,
    /// Whether it must be reset and no change waits for that, because too many hosts of its IP address must be.
    pub is_postponed: bool,
    /// Time of the host's last call.
    pub last_call: Monotonic,
}

/// Whether a client can be reached at an interface that is not the address of its host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reached {
    /// It has neither called from there nor been sent a message.
    Untried,
    /// It has received the last message, or has called since.
    Yes,
    /// It has not received the last message. No other is sent there.
    No,
}

/// An interface that a client reported.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Interface {
    pub(crate) address: SocketAddr,
    pub(crate) reached: Reached,
}

/// A client at one address.
///
/// Any client can claim any UUID, so a UUID gives no access to promises made to another address: promises,
/// undelivered breaks and resets belong to the address that has answered calls to it. Hosts with the same
/// UUID are *twins*: one client with several addresses, cloned machines, or an impostor. A message that an
/// unresponsive host misses also goes to its twins, which can at most make them drop cached data.
///
/// Secured callbacks (rxgk) will add a callback key here: a host that has one is found by the key of the
/// connection instead of by address and UUID in `Callbacks::place`, and its messages are sent under it.
#[derive(Debug)]
pub(crate) struct Host {
    pub(crate) uuid: Option<HostUuid>,
    pub(crate) address: SocketAddr,
    /// Interfaces that the client reported at this address. Only tried when it is unresponsive, after a
    /// probe.
    pub(crate) reported: Vec<Interface>,
    pub(crate) capabilities: u32,
    /// Whether it is known only from the list of an earlier owner: its client has reported nothing yet.
    pub(crate) is_listed: bool,
    pub(crate) up: bool,
    /// Set if the host must be reset, to the sequence number of the reason.
    pub(crate) needs_reset: Option<u64>,
    /// Breaks that the host missed, with the sequence number of the change.
    pub(crate) delayed: BTreeMap<Fid, u64>,
    /// Whether a message to the host is in flight that must arrive before one of its calls is executed.
    pub(crate) busy: bool,
    /// Whether its UUID was in use at other addresses when it appeared, and these have not been checked yet.
    pub(crate) newcomer: bool,
    /// While it is a newcomer, how many hosts with its UUID were asked whether it is one of their interfaces, or probed.
    pub(crate) checks: usize,
    /// Time when it was last asked that for another host.
    pub(crate) asked: Option<Monotonic>,
    /// Whether it was down while another host with its UUID was up: its client may have moved there, and have been made
    /// promises that it has missed the breaks of.
    pub(crate) away: bool,
    /// Time of the last probe because its UUID was claimed elsewhere.
    pub(crate) probed: Option<Monotonic>,
    pub(crate) last_call: Monotonic,
    /// Like `last_call`, without calls that indicate no use of files (GetTime and the like).
    pub(crate) last_active: Monotonic,
    /// Its connections, oldest first.
    pub(crate) connections: VecDeque<u64>,
    /// Position in the order of eviction.
    pub(crate) rank: Rank,
}

impl Host {
    pub(crate) fn new(now: Monotonic, address: SocketAddr, uuid: Option<HostUuid>, sequence: u64) -> Host {
        Host {
            uuid,
            address,
            reported: Vec::new(),
            capabilities: 0,
            is_listed: false,
            up: true,
            needs_reset: Some(sequence),
            delayed: BTreeMap::new(),
            busy: false,
            newcomer: false,
            checks: 0,
            asked: None,
            away: false,
            probed: None,
            last_call: now,
            last_active: now,
            connections: VecDeque::new(),
            rank: Rank::new(Class::Empty, now),
        }
    }

    /// Prefetches the parts that a call needs. The result is meaningless.
    pub(crate) fn look(&self) -> u64 {
        let owed = self.needs_reset.unwrap_or_default() ^ self.delayed.len() as u64;
        let address = u64::from(self.address.port());
        owed ^ address ^ self.last_call.0 ^ self.last_active.0 ^ u64::from(self.capabilities)
    }

    /// Whether its calls can be executed immediately: there is nothing to send or check first.
    pub(crate) fn is_owed_nothing(&self) -> bool {
        !self.busy && !self.newcomer && !self.away && self.needs_reset.is_none() && self.delayed.is_empty()
    }

    /// Whether another client may have its address by now. One that is known only from the list of an earlier server may have left
    /// long ago.
    pub(crate) fn may_have_left(&self, now: Monotonic) -> bool {
        self.connections.is_empty() || now.since(self.last_call) >= ADDRESS_HELD
    }

    /// Records a call. Returns whether the host's position in the order of eviction has changed.
    pub(crate) fn on_call(&mut self, now: Monotonic, active: bool) -> bool {
        self.last_call = now;
        if active {
            self.last_active = now;
        }
        active && Rank::new(self.rank.class, now) != self.rank
    }

    /// Stores the data that a client reported about itself. Returns whether it reported other interfaces before.
    pub(crate) fn learn(&mut self, config: &CallbackConfig, said: &Identification) -> bool {
        (self.capabilities, self.is_listed) = (said.capabilities, false);
        let others = said.addresses.iter().filter(|other| **other != self.address && is_remote(other.ip()));
        let new: Vec<_> = others.take(config.addresses_max).map(|other| self.interface(*other)).collect();
        let old = std::mem::replace(&mut self.reported, new);
        let addresses = |list: &[Interface]| list.iter().map(|one| one.address).collect::<BTreeSet<_>>();
        addresses(&old) != addresses(&self.reported)
    }

    /// Returns what is known of an interface. One that was silent may be tried again.
    fn interface(&self, address: SocketAddr) -> Interface {
        let known = self.reported.iter().find(|known| known.address == address);
        let reached = known.is_some_and(|known| known.reached == Reached::Yes);
        Interface { address, reached: if reached { Reached::Yes } else { Reached::Untried } }
    }

    /// Records whether the client was reached at an interface, if it has reported that.
    pub(crate) fn note_reached(&mut self, address: SocketAddr, reached: bool) {
        if let Some(interface) = self.reported.iter_mut().find(|known| known.address == address) {
            interface.reached = if reached { Reached::Yes } else { Reached::No };
        }
    }

    /// Whether the client reported `ip` as one of its interfaces.
    pub(crate) fn names(&self, ip: IpAddr) -> bool {
        self.reported.iter().any(|reported| reported.address.ip() == ip)
    }
}

/// Whether an address can belong to another machine: it is not loopback, link-local, multicast, broadcast or
/// unspecified.
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
        assert_eq!(host.reported.iter().map(|known| known.address).collect::<Vec<_>>(), good);
    }
}
