//! Discovery of the maximum length of packets to a peer.
//!
//! If routers drop long packets without an ICMP message, or if that message or fragments are dropped, the
//! sender is not notified. The contents of a DATA packet are fixed once it has been sent, because receivers
//! use the first packet with a given sequence number: it cannot be split into shorter ones. Packets are
//! therefore short until the path has answered a padded ping, which can be dropped without loss of data (RFC
//! 8899; OpenAFS pads pings as well, `rxi_SendAck` with `RX_ACK_MTU`).

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use base::Monotonic;

use crate::EndpointConfig;
use crate::hash::{SeededMap, SeededState};
use crate::limits::{PACKET_BYTES_MAX, PACKET_BYTES_MIN};
use crate::slab::Key;

/// Difference between the lengths of IPv6 and IPv4 headers.
const IPV6_EXTRA_BYTES: usize = 20;

/// Time until another length is tried after one has failed.
const PROBE_INTERVAL: Duration = Duration::from_secs(60);

/// Time until all lengths are tried again, because paths change (RFC 8899, PMTU_RAISE_TIMER).
const RAISE_INTERVAL: Duration = Duration::from_secs(600);

/// Minimum time allowed for the answer to a padded ping.
const PATIENCE_MIN: Duration = Duration::from_millis(500);

/// Number of padded pings, unanswered by a peer that answered others, after which a length is given up.
const PROBES_MAX: u32 = 3;

/// Minimum difference from the current length for which a ping is worthwhile.
const GAIN_MIN: usize = 16;

/// Lengths to fall back to when longer packets do not arrive.
const STEPS: [usize; 3] = [1252, 1000, PACKET_BYTES_MIN];

/// Maximum number of hosts with short paths that are remembered.
const HOSTS_MAX: usize = 4096;

/// The packet length for a peer. All lengths include the Rx header.
#[derive(Debug)]
pub(crate) struct PacketLength {
    /// Length known or assumed to arrive.
    proven: usize,
    /// Length to fall back to.
    safe: usize,
    /// Length tried first.
    usual: usize,
    /// Maximum length that is tried.
    ceiling: usize,
    /// `usual` and `ceiling` as configured.
    configured: (usize, usize),
    advertised: usize,
    probe_at: Monotonic,
    /// Time at which the configured lengths are tried again.
    raise_at: Option<Monotonic>,
    awaited: Option<Awaited>,
    /// Number of unanswered padded pings of the length being tried.
    silent: u32,
    /// Whether the path was found to be short and this has not been reported to the endpoint yet.
    news: bool,
}

/// A padded ping in flight.
#[derive(Clone, Copy, Debug)]
struct Awaited {
    connection: Key,
    serial: u32,
    bytes: usize,
    at: Monotonic,
}

impl PacketLength {
    /// Creates the state for a peer. `short` is the known limit of the host's path, if any.
    pub(crate) fn new(address: SocketAddr, config: &EndpointConfig, short: Option<Short>) -> PacketLength {
        let extra = if address.is_ipv6() { IPV6_EXTRA_BYTES } else { 0 };
        let bound = |bytes: usize| bytes.saturating_sub(extra).clamp(PACKET_BYTES_MIN, PACKET_BYTES_MAX);
        let usual = bound(config.packet_bytes);
        let ceiling = bound(config.packet_bytes_max).max(usual);
        let assumed = if address.ip().is_loopback() { usual } else { bound(config.packet_bytes_assumed) };
        let safe = assumed.min(usual).min(short.map_or(usual, |short| short.bytes));
        PacketLength {
            proven: safe,
            safe,
            usual: short.map_or(usual, |_| safe),
            ceiling: short.map_or(ceiling, |_| safe),
            configured: (usual, ceiling),
            advertised: PACKET_BYTES_MAX,
            probe_at: Monotonic(0),
            raise_at: short.map(|short| short.since + RAISE_INTERVAL),
            awaited: None,
            silent: 0,
            news: false,
        }
    }

    /// Prefetches the state: see [`crate::Endpoint::prefetch`].
    pub(crate) fn look(&self) -> u64 {
        self.proven as u64
    }

    /// Returns the current maximum packet length.
    pub(crate) fn packet_bytes(&self) -> usize {
        self.proven.min(self.advertised)
    }

    /// Applies the maximum length that the peer advertises.
    pub(crate) fn advertised(&mut self, bytes: usize) {
        self.advertised = bytes.clamp(PACKET_BYTES_MIN, PACKET_BYTES_MAX);
    }

    /// Applies a maximum length that the network has reported.
    pub(crate) fn too_big(&mut self, bytes: usize) {
        let bytes = bytes.max(PACKET_BYTES_MIN);
        for length in [&mut self.safe, &mut self.usual, &mut self.ceiling, &mut self.proven] {
            *length = (*length).min(bytes);
        }
    }

    /// Returns the length of a padded ping to send now, if one is worthwhile. `heard_at` is the time of the
    /// peer's last packet, `patience` the time allowed for an answer.
    pub(crate) fn probe(&mut self, now: Monotonic, heard_at: Monotonic, patience: Duration) -> Option<usize> {
        if self.raise_at.is_some_and(|at| at <= now) {
            self.raise_at = None;
            (self.usual, self.ceiling) = self.configured;
        }
        let wanted = if self.proven < self.usual { self.usual } else { self.ceiling };
        let goal = wanted.min(self.advertised);
        if now < self.probe_at || goal < self.proven + GAIN_MIN {
            return None;
        }
        self.silent += u32::from(self.is_unanswered(heard_at));
        self.awaited = None;
        if self.silent == PROBES_MAX {
            self.set_ceiling(now, usize::midpoint(self.proven, goal));
            self.news |= goal <= self.configured.0;
            return None;
        }
        self.probe_at = now + patience.max(PATIENCE_MIN);
        Some(goal)
    }

    /// Whether a padded ping is unanswered although the peer has sent packets since.
    pub(crate) fn is_unanswered(&self, heard_at: Monotonic) -> bool {
        self.awaited.is_some_and(|awaited| heard_at > awaited.at)
    }

    /// Records that a padded ping was sent.
    pub(crate) fn on_probe_sent(&mut self, now: Monotonic, connection: Key, serial: u32, bytes: usize) {
        self.awaited = Some(Awaited { connection, serial, bytes, at: now });
    }

    /// Processes the answer to a ping. Returns whether it answers the padded ping in flight.
    pub(crate) fn on_answer(&mut self, connection: Key, serial: u32) -> bool {
        let is_its = |it: &mut Awaited| (it.connection, it.serial) == (connection, serial);
        let Some(awaited) = self.awaited.take_if(is_its) else { return false };
        self.proven = self.proven.max(awaited.bytes);
        (self.silent, self.probe_at) = (0, Monotonic(0));
        true
    }

    /// Falls back to the safe length because packets are not acknowledged.
    pub(crate) fn on_black_hole(&mut self, now: Monotonic) {
        if self.proven > self.safe {
            self.proven = self.safe;
            self.probe_at = now + PROBE_INTERVAL;
        }
    }

    /// Falls back to a shorter length because packets of `bytes` bytes do not arrive although shorter ones
    /// do.
    pub(crate) fn on_dropped(&mut self, now: Monotonic, bytes: usize) {
        let step = STEPS.into_iter().find(|step| *step < bytes).unwrap_or(PACKET_BYTES_MIN);
        self.safe = self.safe.min(step);
        self.proven = self.proven.min(self.safe);
        self.set_ceiling(now, usize::midpoint(self.proven, bytes));
        self.news = true;
    }

    fn set_ceiling(&mut self, now: Monotonic, bytes: usize) {
        self.ceiling = self.ceiling.min(bytes.max(self.proven));
        self.usual = self.usual.min(self.ceiling);
        (self.silent, self.awaited) = (0, None);
        self.probe_at = now + PROBE_INTERVAL;
        self.raise_at = Some(now + RAISE_INTERVAL);
    }

    /// Returns the safe length, if the path was found to be short since the previous call.
    pub(crate) fn take_news(&mut self) -> Option<usize> {
        std::mem::take(&mut self.news).then_some(self.safe)
    }

    /// Returns the length to fall back to.
    pub(crate) fn safe(&self) -> usize {
        self.safe
    }

    /// Returns the maximum length that is tried.
    pub(crate) fn ceiling(&self) -> usize {
        self.ceiling
    }
}

/// The limit of a short path to a host.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Short {
    /// Length that arrives.
    bytes: usize,
    since: Monotonic,
}

/// Hosts with short paths, remembered so that the host's other ports need not discover them again.
#[derive(Debug)]
pub(crate) struct ShortPaths {
    hosts: SeededMap<IpAddr, Found>,
}

#[derive(Clone, Copy, Debug, Default)]
struct Found {
    /// Number of peers that never answered padded pings.
    silent: u32,
    short: Option<Short>,
}

impl ShortPaths {
    pub(crate) fn new(state: SeededState) -> ShortPaths {
        ShortPaths { hosts: SeededMap::with_hasher(state) }
    }

    /// Returns the limit of the path to a host, if it is known to be short.
    pub(crate) fn get(&self, host: IpAddr) -> Option<Short> {
        if self.hosts.is_empty() { None } else { self.hosts.get(&host)?.short }
    }

    /// Records that the path to a host carries at most `bytes` bytes. Returns whether that is new.
    pub(crate) fn insert(&mut self, now: Monotonic, host: IpAddr, bytes: usize) -> bool {
        let found = self.entry(host);
        let is_new = found.short.is_none_or(|known| bytes < known.bytes);
        found.short = Some(Short { bytes, since: now });
        is_new
    }

    /// Records the removal of a peer at this host that sent packets after a padded ping but never answered
    /// it; packets of `bytes` bytes reach it. Returns whether this makes the path count as short for the
    /// first time.
    pub(crate) fn on_silence(&mut self, now: Monotonic, host: IpAddr, bytes: usize) -> bool {
        let found = self.entry(host);
        found.silent += 1;
        found.silent == PROBES_MAX && self.insert(now, host, bytes)
    }

    /// Removes the host, because a padded ping to it has been answered.
    pub(crate) fn remove(&mut self, host: IpAddr) {
        if !self.hosts.is_empty() {
            self.hosts.remove(&host);
        }
    }

    fn entry(&mut self, host: IpAddr) -> &mut Found {
        if self.hosts.len() >= HOSTS_MAX && !self.hosts.contains_key(&host) {
            self.hosts.clear();
        }
        self.hosts.entry(host).or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::slab::Slab;

    const RTT: Duration = Duration::from_millis(300);

    fn at(seconds: u64) -> Monotonic {
        Monotonic(seconds * 1_000_000_000)
    }

    fn length(address: &str, config: &EndpointConfig) -> PacketLength {
        PacketLength::new(address.parse().unwrap(), config, None)
    }

    fn key() -> Key {
        Slab::new().insert_with(|_| ())
    }

    fn probe(mtu: &mut PacketLength, second: u64, is_heard: bool) -> Option<usize> {
        let goal = mtu.probe(at(second), at(if is_heard { second } else { 0 }), RTT);
        goal.inspect(|bytes| mtu.on_probe_sent(at(second), key(), second as u32, *bytes))
    }

    #[test]
    fn packets_are_short_until_a_padded_ping_is_answered() {
        let config = EndpointConfig { packet_bytes_max: 9000, ..EndpointConfig::default() };
        let mut mtu = length("192.0.2.1:1", &config);
        assert_eq!((mtu.packet_bytes(), probe(&mut mtu, 1, true)), (1252, Some(1472)));
        assert_eq!(probe(&mut mtu, 1, true), None);
        assert!(!mtu.on_answer(key(), 2) && mtu.on_answer(key(), 1) && !mtu.on_answer(key(), 1));
        assert_eq!((mtu.packet_bytes(), probe(&mut mtu, 1, true)), (1472, Some(9000)));
        mtu.on_answer(key(), 1);
        assert_eq!((mtu.packet_bytes(), probe(&mut mtu, 2, true)), (9000, None));
        mtu.advertised(1200);
        assert_eq!(mtu.packet_bytes(), 1200);
        mtu.advertised(3);
        assert_eq!(mtu.packet_bytes(), PACKET_BYTES_MIN);
        mtu.advertised(9000);
        mtu.on_black_hole(at(5));
        assert_eq!(mtu.packet_bytes(), 1252);
        assert_eq!(length("[2001:db8::1]:1", &config).packet_bytes(), 1232);
        assert_eq!(length("127.0.0.1:1", &config).packet_bytes(), 1472);
        let less = EndpointConfig { packet_bytes: 1100, ..EndpointConfig::default() };
        assert_eq!(length("192.0.2.1:1", &less).packet_bytes(), 1100);
    }

    #[test]
    fn a_short_path_is_measured_by_halves_and_tried_again() {
        let mut mtu = length("192.0.2.1:1", &EndpointConfig::default());
        for second in 1..=3 {
            assert_eq!(probe(&mut mtu, second, true), Some(1472));
        }
        assert_eq!((probe(&mut mtu, 4, true), mtu.take_news()), (None, Some(1252)));
        assert_eq!((probe(&mut mtu, 63, true), mtu.take_news()), (None, None));
        assert_eq!(probe(&mut mtu, 64, true), Some(1362));
        assert!(mtu.on_answer(key(), 64));
        assert_eq!((mtu.packet_bytes(), probe(&mut mtu, 65, true)), (1362, None));
        assert_eq!(probe(&mut mtu, 604, true), Some(1472));
    }

    #[test]
    fn a_silent_peer_says_nothing_about_its_path() {
        let mut mtu = length("192.0.2.1:1", &EndpointConfig::default());
        for second in 1..=20 {
            assert_eq!(probe(&mut mtu, second, false), Some(1472));
        }
        assert_eq!(mtu.take_news(), None);
    }

    #[test]
    fn lost_lengths_lead_down_in_steps() {
        let mut mtu = length("192.0.2.1:1", &EndpointConfig::default());
        probe(&mut mtu, 1, true);
        mtu.on_answer(key(), 1);
        let mut lengths = Vec::new();
        for second in 2..6 {
            mtu.on_dropped(at(second), mtu.packet_bytes());
            assert_eq!(mtu.take_news(), Some(mtu.packet_bytes()));
            lengths.push(mtu.packet_bytes());
        }
        assert_eq!(lengths, [1252, 1000, PACKET_BYTES_MIN, PACKET_BYTES_MIN]);
    }

    #[test]
    fn short_paths_are_known_by_host() {
        let (host, other) = (IpAddr::from([192, 0, 2, 1]), IpAddr::from([192, 0, 2, 2]));
        let mut paths = ShortPaths::new(SeededState::new(1, 2));
        assert_eq!(
            [1, 2, 3, 4].map(|second| paths.on_silence(at(second), host, 1252)),
            [false, false, true, false]
        );
        assert!(
            paths.get(other).is_none() && !paths.insert(at(5), host, 1252) && paths.insert(at(6), host, 1000)
        );
        let config = EndpointConfig::default();
        let mut mtu = PacketLength::new(SocketAddr::new(host, 9), &config, paths.get(host));
        assert_eq!((mtu.packet_bytes(), probe(&mut mtu, 7, true)), (1000, None));
        assert_eq!(probe(&mut mtu, 606, true), Some(1472));
        paths.remove(host);
        assert!(paths.get(host).is_none());
        for number in 0..2 * HOSTS_MAX as u32 {
            paths.insert(at(1), IpAddr::V4(number.into()), 1000);
            assert!(paths.hosts.len() <= HOSTS_MAX);
        }
    }
}
