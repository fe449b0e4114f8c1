//! A network with configurable faults.

use std::collections::{BTreeMap, HashMap};
use std::net::SocketAddr;
use std::time::Duration;

use base::Monotonic;
use bytes::Bytes;
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};

/// Length of the IP and UDP headers of a datagram.
pub const IP_UDP_BYTES: usize = 28;

/// Maximum number of bytes of a datagram that a notice quotes: an ICMP message has at most 576 (RFC 1812,
/// 4.3.2.3).
const QUOTE_BYTES_MAX: usize = 576 - 28 - IP_UDP_BYTES;

/// Faults and limits of the network.
#[derive(Clone, Debug)]
pub struct Conditions {
    /// Fraction of datagrams lost.
    pub loss: f64,
    /// Fraction of datagrams that arrive twice.
    pub duplication: f64,
    /// Fraction of datagrams that arrive damaged, undetected by the UDP checksum.
    pub damage: f64,
    /// Fraction of datagrams that are delayed, and so overtaken.
    pub reordering: f64,
    /// Minimum one-way delay of a datagram.
    pub delay: Duration,
    /// Maximum additional delay, uniformly distributed from 0.
    pub jitter: Duration,
    /// Maximum length of an IP packet; longer ones are silently dropped.
    pub mtu: usize,
    /// Start and end of an interval in which every datagram is lost.
    pub blackout: Option<(Monotonic, Monotonic)>,
    /// Bytes per second in each direction; `None` is unlimited.
    pub rate: Option<u64>,
    /// Maximum queueing delay at that rate before a datagram is dropped.
    pub queue: Duration,
    /// Fraction of datagrams to closed ports that cause a notice to the sender.
    pub notices: f64,
    /// Fraction of datagrams that cause a forged notice of a closed port.
    pub lies: f64,
    /// Whether forged notices come from an on-path attacker, who can quote real packets.
    pub liars_see: bool,
}

impl Conditions {
    /// Returns conditions without loss or reordering.
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

/// A datagram in flight.
#[derive(Clone, Debug)]
pub struct Datagram {
    /// Address of the sender.
    pub from: SocketAddr,
    /// Address of the recipient.
    pub to: SocketAddr,
    /// Contents of the datagram.
    pub bytes: Bytes,
}

/// A notice that a datagram was not delivered.
#[derive(Clone, Debug)]
pub struct Notice {
    /// Sender of the datagram, and recipient of the notice.
    pub to: SocketAddr,
    /// Destination of the datagram.
    pub about: SocketAddr,
    /// First bytes of the datagram.
    pub quote: Bytes,
}

/// An item delivered by the network.
#[derive(Clone, Debug)]
pub enum Parcel {
    /// A datagram for a host.
    Datagram(Datagram),
    /// A notice for the sender of a datagram, genuine or forged.
    Notice(Notice),
}

/// Datagrams and notices in flight, by arrival time.
#[derive(Debug)]
pub struct Network {
    conditions: Conditions,
    random: SmallRng,
    under_way: BTreeMap<(Monotonic, u64), Parcel>,
    sent: u64,
    busy_until: HashMap<(SocketAddr, SocketAddr), Monotonic>,
}

impl Network {
    /// Creates an empty network.
    pub fn new(conditions: Conditions, seed: u64) -> Network {
        Network {
            conditions,
            random: SmallRng::seed_from_u64(seed),
            under_way: BTreeMap::new(),
            sent: 0,
            busy_until: HashMap::new(),
        }
    }

    /// Replaces faults and limits. Datagrams in flight arrive as planned.
    pub fn set_conditions(&mut self, conditions: Conditions) {
        self.conditions = conditions;
    }

    /// Sends a datagram, which may be lost.
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

    /// Sends a datagram that is faster than all others, and is not lost.
    pub fn overtake(&mut self, now: Monotonic, datagram: Datagram) {
        self.sent += 1;
        self.under_way.insert((now + self.conditions.delay / 2, self.sent), Parcel::Datagram(datagram));
    }

    /// Reports that a datagram arrived at a closed port, which may cause a notice.
    pub fn refuse(&mut self, now: Monotonic, datagram: &Datagram) {
        if self.random.random_bool(self.conditions.notices) && !self.random.random_bool(self.conditions.loss)
        {
            self.put(now, notice(datagram, datagram.bytes.clone()));
        }
    }

    /// Sends a forged notice about a datagram that is in flight. An off-path attacker has to guess the quote.
    fn lie(&mut self, now: Monotonic, datagram: &Datagram) {
        let mut quote = datagram.bytes.to_vec();
        if !self.conditions.liars_see {
            match self.random.random_range(0..4) {
                0 => quote.truncate(self.random.random_range(0..28)),
                1 => self.random.fill(&mut quote[..]),
                // The epoch is the same on all connections, but the connection id differs.
                2 => self.random.fill(&mut quote[4..8]),
                _ => quote[16..20].fill(0),
            }
        }
        self.put(now, notice(datagram, Bytes::from(quote)));
    }

    /// Returns the time at which the link has sent the datagram, or `None` if its queue is full.
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

    /// Flips some bits, truncates the datagram, or replaces its contents.
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

    /// Returns the arrival time of the next item.
    pub fn next_arrival(&self) -> Option<Monotonic> {
        self.under_way.first_key_value().map(|((at, _), _)| *at)
    }

    /// Takes an item that has arrived.
    pub fn arrived(&mut self, now: Monotonic) -> Option<Parcel> {
        if self.next_arrival()? > now {
            return None;
        }
        self.under_way.pop_first().map(|(_, parcel)| parcel)
    }
}

/// Builds a notice about a datagram, with as much of the quote as ICMP allows.
fn notice(datagram: &Datagram, mut quote: Bytes) -> Parcel {
    quote.truncate(QUOTE_BYTES_MAX);
    Parcel::Notice(Notice { to: datagram.from, about: datagram.to, quote })
}
