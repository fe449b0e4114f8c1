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

/// Bytes of a datagram that a notice quotes: an ICMP message has 576 at most (RFC 1812, 4.3.2.3).
const QUOTE_BYTES_MAX: usize = 576 - 28 - IP_UDP_BYTES;

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
    /// Share of datagrams to closed ports whose senders are told so.
    pub notices: f64,
    /// Share of datagrams whose senders are told a lie: that a port is closed.
    pub lies: f64,
    /// Whether lies are told by who sees the datagrams, and so quote them as they are.
    pub liars_see: bool,
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
            notices: 1.0,
            lies: 0.0,
            liars_see: false,
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

/// Word that a datagram was not delivered.
#[derive(Clone, Debug)]
pub struct Notice {
    /// Who sent it, and is told.
    pub to: SocketAddr,
    /// Where it was sent to.
    pub about: SocketAddr,
    /// How it began.
    pub quote: Bytes,
}

/// What comes over the network.
#[derive(Clone, Debug)]
pub enum Parcel {
    /// A datagram for a host.
    Datagram(Datagram),
    /// A notice, true or not, for the sender of one.
    Notice(Notice),
}

/// Datagrams and notices on their way, by time of arrival.
#[derive(Debug)]
pub struct Network {
    conditions: Conditions,
    random: SmallRng,
    under_way: BTreeMap<(Monotonic, u64), Parcel>,
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
        if self.random.random_bool(self.conditions.lies) {
            self.lie(now, &datagram);
        }
        let Some(start) = self.queue_up(now, &datagram) else { return };
        if self.random.random_bool(duplication) {
            self.put(start, Parcel::Datagram(datagram.clone()));
        }
        let damaged = self.random.random_bool(damage);
        let bytes = if damaged { self.damaged(&datagram.bytes) } else { datagram.bytes };
        self.put(start, Parcel::Datagram(Datagram { bytes, ..datagram }));
    }

    /// A datagram came to a port where nobody listens.
    pub fn refuse(&mut self, now: Monotonic, datagram: &Datagram) {
        if self.random.random_bool(self.conditions.notices) && !self.random.random_bool(self.conditions.loss)
        {
            self.put(now, notice(datagram, datagram.bytes.clone()));
        }
    }

    /// Tells a sender that its datagram, which is on its way, was not delivered. Who has not seen it
    /// has to guess how it began.
    fn lie(&mut self, now: Monotonic, datagram: &Datagram) {
        let mut quote = datagram.bytes.to_vec();
        if !self.conditions.liars_see {
            match self.random.random_range(0..4) {
                0 => quote.truncate(self.random.random_range(0..28)),
                1 => self.random.fill(&mut quote[..]),
                // The epoch is the same on all connections, but not their ids.
                2 => self.random.fill(&mut quote[4..8]),
                _ => quote[16..20].fill(0),
            }
        }
        self.put(now, notice(datagram, Bytes::from(quote)));
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

    fn put(&mut self, now: Monotonic, parcel: Parcel) {
        let jitter = self.conditions.jitter.as_nanos() as u64;
        let mut delay = self.conditions.delay + Duration::from_nanos(self.random.random_range(0..=jitter));
        if self.random.random_bool(self.conditions.reordering) {
            delay += (self.conditions.delay + Duration::from_millis(1)) * self.random.random_range(1..4);
        }
        self.sent += 1;
        self.under_way.insert((now + delay, self.sent), parcel);
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

    /// Something that has arrived.
    pub fn arrived(&mut self, now: Monotonic) -> Option<Parcel> {
        if self.next_arrival()? > now {
            return None;
        }
        self.under_way.pop_first().map(|(_, parcel)| parcel)
    }
}

/// What a sender is told about its datagram: no more than ICMP quotes.
fn notice(datagram: &Datagram, mut quote: Bytes) -> Parcel {
    quote.truncate(QUOTE_BYTES_MAX);
    Parcel::Notice(Notice { to: datagram.from, about: datagram.to, quote })
}
