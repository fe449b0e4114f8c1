//! One client host: who it is, where it is reached, and what it is owed.

use crate::config::CallbackConfig;
use base::{Fid, HostUuid, Monotonic};
use std::collections::BTreeMap;
use std::net::SocketAddr;

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
    /// Where callbacks are sent.
    pub primary: SocketAddr,
    /// Every address that it has called from.
    pub addresses: Vec<SocketAddr>,
    /// Whether it answered last time.
    pub up: bool,
    /// Promises that it holds.
    pub promises: usize,
    /// Breaks that it has not received.
    pub delayed: usize,
    /// When it last called.
    pub last_call: Monotonic,
}

#[derive(Debug)]
pub(crate) struct Host {
    pub(crate) uuid: Option<HostUuid>,
    pub(crate) primary: SocketAddr,
    /// Addresses it has called from, oldest first; all of them lead here in the table of addresses.
    pub(crate) addresses: Vec<SocketAddr>,
    /// Addresses it says it has; only tried when the primary one fails, and checked then.
    reported: Vec<SocketAddr>,
    pub(crate) capabilities: u32,
    pub(crate) up: bool,
    /// It must be told to forget everything; the sequence number of the reason.
    pub(crate) needs_reset: Option<u64>,
    /// Breaks it missed, with the sequence number of the change.
    pub(crate) delayed: BTreeMap<Fid, u64>,
    /// A message was taken by whoever is at the main address since the host last called from there.
    pub(crate) unconfirmed: bool,
    /// Somebody is talking to it before one of its calls is answered.
    pub(crate) busy: bool,
    pub(crate) last_call: Monotonic,
    /// Like `last_call`, without the calls that mean no activity (GetTime and the like).
    pub(crate) last_active: Monotonic,
}

impl Host {
    pub(crate) fn new(now: Monotonic, address: SocketAddr, uuid: Option<HostUuid>, sequence: u64) -> Host {
        Host {
            uuid,
            primary: address,
            addresses: vec![address],
            reported: Vec::new(),
            capabilities: 0,
            up: true,
            needs_reset: Some(sequence),
            delayed: BTreeMap::new(),
            unconfirmed: false,
            busy: false,
            last_call: now,
            last_active: now,
        }
    }

    /// Reads a little of each part that a call needs; what comes of it means nothing.
    pub(crate) fn look(&self) -> u64 {
        let owed = self.needs_reset.unwrap_or_default() ^ self.delayed.len() as u64;
        let addresses = self.addresses.len() as u64 ^ u64::from(self.primary.port());
        owed ^ addresses ^ self.last_call.0 ^ self.last_active.0 ^ u64::from(self.capabilities)
    }

    /// The same of what the first part leads to.
    pub(crate) fn look_at_addresses(&self) -> u64 {
        self.addresses.first().map_or(0, |address| u64::from(address.port()))
    }

    /// Nobody talks to it, and there is nothing to say to it before a call of it is answered.
    pub(crate) fn is_owed_nothing(&self) -> bool {
        !self.busy && self.needs_reset.is_none() && self.delayed.is_empty()
    }

    /// It calls from `peer`.
    pub(crate) fn on_call(&mut self, now: Monotonic, peer: SocketAddr, active: bool, sequence: u64) {
        self.last_call = now;
        if active {
            self.last_active = now;
        }
        if self.busy {
            return;
        }
        if !self.up {
            self.set_primary(peer, sequence);
        }
        self.unconfirmed &= self.primary != peer;
    }

    /// Takes over what a client said of itself.
    pub(crate) fn learn(&mut self, config: &CallbackConfig, said: &Identification) {
        self.capabilities = said.capabilities;
        self.reported = said.addresses.iter().take(config.addresses_max).copied().collect();
    }

    /// Makes `address` the main one. If the last messages went to another, who knows who took them:
    /// then the host must be told to forget everything.
    pub(crate) fn set_primary(&mut self, address: SocketAddr, sequence: u64) {
        if self.primary != address && std::mem::take(&mut self.unconfirmed) {
            self.needs_reset = Some(sequence);
        }
        self.primary = address;
    }

    /// Where else to try, in order: other addresses it called from, newest first, then reported ones.
    pub(crate) fn alternates(&self) -> Vec<SocketAddr> {
        // Each costs a writer some patience before it gives a host up.
        const ALTERNATES_MAX: usize = 2;
        if self.uuid.is_none() {
            return Vec::new();
        }
        let mut alternates: Vec<SocketAddr> = Vec::new();
        for &address in self.addresses.iter().rev().chain(&self.reported) {
            if address != self.primary && !alternates.contains(&address) {
                alternates.push(address);
            }
        }
        alternates.truncate(ALTERNATES_MAX);
        alternates
    }
}
