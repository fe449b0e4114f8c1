//! A network that is as bad as it is told to be.

use std::collections::{BTreeMap, HashMap};
use std::net::SocketAddr;
use std::time::Duration;

use base::Monotonic;
use bytes::Bytes;
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};

/// Bytes that IP and UDP put before a datagram.
pub const IP_UDP_BYTES: usize = 28;

/// How bad.
#[derive(Clone, Debug)]
pub struct Conditions {
    /// Share of datagrams lost.
    pub loss: f64,
    /// Share of datagrams that arrive twice.
    pub duplication: f64,
    /// Share of datagrams that arrive damaged, past the UDP checksum.
    pub damage: f64,
    /// Share of datagrams held up, and so overtaken.
    pub reordering: f64,
    /// Time that every datagram takes.
    pub delay: Duration,
    /// Time on top, evenly distributed from 0.
    pub jitter: Duration,
    /// Longest IP packet that passes; longer ones vanish.
    pub mtu: usize,
    /// From when until when nothing passes.
    pub blackout: Option<(Monotonic, Monotonic)>,
    /// Bytes per second in each direction; `None` is without bound.
    pub rate: Option<u64>,
    /// How long a datagram may wait for its turn at that rate before it is dropped.
    pub queue: Duration,
}

impl Conditions {
    /// Nothing is lost and nothing overtakes.
    pub fn perfect(delay: Duration) -> Conditions {
        Conditions {
            loss: 0.0,
            duplication: 0.0,
            damage: 0.0,
            reordering: 0.0,
            delay,
            jitter: Duration::ZERO,
            mtu: 65_535,
            blackout: None,
            rate: None,
            queue: Duration::from_millis(100),
        }
    }
}

/// A datagram on its way.
#[derive(Clone, Debug)]
pub struct Datagram {
    /// Who sent it.
    pub from: SocketAddr,
    /// Who is to get it.
    pub to: SocketAddr,
    /// What it is.
    pub bytes: Bytes,
}

/// Datagrams on their way, by time of arrival.
#[derive(Debug)]
pub struct Network {
    conditions: Conditions,
    random: SmallRng,
    under_way: BTreeMap<(Monotonic, u64), Datagram>,
    sent: u64,
    busy_until: HashMap<(SocketAddr, SocketAddr), Monotonic>,
}

impl Network {
    /// An empty network.
    pub fn new(conditions: Conditions, seed: u64) -> Network {
        Network {
            conditions,
            random: SmallRng::seed_from_u64(seed),
            under_way: BTreeMap::new(),
            sent: 0,
            busy_until: HashMap::new(),
        }
    }

    /// Takes a datagram, and perhaps delivers it some day.
    pub fn send(&mut self, now: Monotonic, datagram: Datagram) {
        let Conditions { loss, duplication, damage, mtu, blackout, .. } = self.conditions;
        let dark = blackout.is_some_and(|(from, until)| from <= now && now < until);
        if dark || datagram.bytes.len() + IP_UDP_BYTES > mtu || self.random.random_bool(loss) {
            return;
        }
        let Some(start) = self.queue_up(now, &datagram) else { return };
        if self.random.random_bool(duplication) {
            self.put(start, datagram.clone());
        }
        let damaged = self.random.random_bool(damage);
        let bytes = if damaged { self.damaged(&datagram.bytes) } else { datagram.bytes };
        self.put(start, Datagram { bytes, ..datagram });
    }

    /// When the link has sent the datagram; `None` if its queue is full.
    fn queue_up(&mut self, now: Monotonic, datagram: &Datagram) -> Option<Monotonic> {
        let Some(rate) = self.conditions.rate else { return Some(now) };
        let busy = self.busy_until.entry((datagram.from, datagram.to)).or_insert(now);
        let start = (*busy).max(now);
        if start.since(now) > self.conditions.queue {
            return None;
        }
        let bytes = (datagram.bytes.len() + IP_UDP_BYTES) as u64;
        *busy = start + Duration::from_nanos(bytes * 1_000_000_000 / rate);
        Some(*busy)
    }

    fn put(&mut self, now: Monotonic, datagram: Datagram) {
        let jitter = self.conditions.jitter.as_nanos() as u64;
        let mut delay = self.conditions.delay + Duration::from_nanos(self.random.random_range(0..=jitter));
        if self.random.random_bool(self.conditions.reordering) {
            delay += (self.conditions.delay + Duration::from_millis(1)) * self.random.random_range(1..4);
        }
        self.sent += 1;
        self.under_way.insert((now + delay, self.sent), datagram);
    }

    /// Some bits turned, or the end cut off, or something else altogether.
    fn damaged(&mut self, bytes: &Bytes) -> Bytes {
        let mut copy = bytes.to_vec();
        match self.random.random_range(0..4) {
            0 => copy.truncate(self.random.random_range(0..=copy.len())),
            1 => self.random.fill(&mut copy[..]),
            _ => {
                for _ in 0..self.random.random_range(1..6) {
                    if let Some(place) = copy.len().checked_sub(1) {
                        let place = self.random.random_range(0..=place.min(60));
                        copy[place] ^= 1 << self.random.random_range(0..8);
                    }
                }
            }
        }
        Bytes::from(copy)
    }

    /// When the next datagram arrives.
    pub fn next_arrival(&self) -> Option<Monotonic> {
        self.under_way.first_key_value().map(|((at, _), _)| *at)
    }

    /// A datagram that has arrived.
    pub fn arrived(&mut self, now: Monotonic) -> Option<Datagram> {
        if self.next_arrival()? > now {
            return None;
        }
        self.under_way.pop_first().map(|(_, datagram)| datagram)
    }
}
