//! Attackers at addresses of their own who see packets of others, or guess at them, and send forged ones to both ends.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use base::AbortCode;
use bytes::Bytes;
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use rx_proto::header::parse;
use rx_proto::{Flags, Header, PacketType};

use crate::network::Datagram;

/// Number of attackers' addresses.
const ADDRESSES: u8 = 4;

/// Number of observed datagrams that are kept for later replays.
const KEPT_MAX: usize = 32;

/// Maximum number of forged datagrams for one observed datagram.
const BURST_MAX: usize = 4;

/// Maximum number of forged datagrams in a history, to bound its duration.
const FORGED_MAX: u64 = 2000;

/// A forged datagram.
#[derive(Debug)]
pub struct Forgery {
    /// The datagram, from an attacker's address.
    pub datagram: Datagram,
    /// Whether it arrives before the datagram that it was derived from.
    pub overtakes: bool,
}

/// See the module's description.
#[derive(Debug)]
pub struct Hijackers {
    /// Probability that an observed datagram is followed by forged ones.
    share: f64,
    /// Whether the attackers' paths may be faster than those of their victims.
    races: bool,
    kept: Vec<Datagram>,
    forged: u64,
    random: SmallRng,
}

impl Hijackers {
    /// Creates attackers whose choices depend on the seed alone.
    pub fn new(seed: u64) -> Hijackers {
        let mut random = SmallRng::seed_from_u64(seed);
        let (share, races) = (random.random_range(0.05..1.0), random.random_bool(0.5));
        Hijackers { share, races, kept: Vec::new(), forged: 0, random }
    }

    /// Returns the number of forged datagrams.
    pub fn forged(&self) -> u64 {
        self.forged
    }

    /// Returns the forged datagrams that follow from a datagram between honest hosts.
    pub fn observe(&mut self, seen: &Datagram) -> Vec<Forgery> {
        if is_attacker(seen.to) || self.forged >= FORGED_MAX || !self.random.random_bool(self.share) {
            return Vec::new();
        }
        let count = self.random.random_range(1..=BURST_MAX);
        let forgeries: Vec<_> = (0..count).filter_map(|_| self.forge(seen)).collect();
        self.forged += forgeries.len() as u64;
        self.keep(seen);
        forgeries
    }

    fn keep(&mut self, seen: &Datagram) {
        if self.kept.len() < KEPT_MAX {
            self.kept.push(seen.clone());
        } else {
            let place = self.random.random_range(0..KEPT_MAX);
            self.kept[place] = seen.clone();
        }
    }

    fn forge(&mut self, seen: &Datagram) -> Option<Forgery> {
        let replays = !self.kept.is_empty() && self.random.random_bool(0.1);
        let seen = if replays {
            self.kept[self.random.random_range(0..self.kept.len())].clone()
        } else {
            seen.clone()
        };
        let bytes = seen.bytes.clone();
        let (header, body) = parse(&bytes).ok()?;
        let to = if self.random.random_bool(0.5) { seen.to } else { seen.from };
        let bytes = if self.random.random_bool(0.3) {
            seen.bytes
        } else {
            let (header, body) = (self.header(header), self.body(body, header.serial));
            Bytes::from([&header.encode()[..], &body].concat())
        };
        let from = address(self.random.random_range(0..ADDRESSES));
        let overtakes = self.races && self.random.random_bool(0.5);
        Some(Forgery { datagram: Datagram { from, to, bytes }, overtakes })
    }

    /// Changes what an attacker would change, to guesses some of the time.
    fn header(&mut self, seen: Header) -> Header {
        let random = &mut self.random;
        let kinds = [
            PacketType::Data,
            PacketType::Ack,
            PacketType::Busy,
            PacketType::Abort,
            PacketType::AckAll,
            PacketType::Challenge,
            PacketType::Response,
            PacketType::Debug,
            PacketType::Params,
            PacketType::Version,
        ];
        let kind = kinds[random.random_range(0..kinds.len())];
        let calls = [0, seen.call_number, seen.call_number, seen.call_number + 1, random.random()];
        let flags = match random.random_range(0..4) {
            0 => Flags(random.random()),
            1 => seen.flags.with(Flags::LAST_PACKET),
            _ => seen.flags,
        };
        Header {
            epoch: if random.random_bool(0.05) { random.random() } else { seen.epoch },
            cid: if random.random_bool(0.1) { seen.cid ^ random.random_range(0..4096) } else { seen.cid },
            call_number: calls[random.random_range(0..calls.len())],
            sequence: seen.sequence.wrapping_add(random.random_range(0..3)),
            serial: seen.serial.wrapping_add(random.random_range(0..3)),
            kind,
            flags,
            security_index: if random.random_bool(0.1) {
                2 - seen.security_index.min(2)
            } else {
                seen.security_index
            },
            ..seen
        }
    }

    fn body(&mut self, seen: &[u8], serial: u32) -> Vec<u8> {
        match self.random.random_range(0..5) {
            0 => Vec::new(),
            1 => AbortCode::RX_CALL_DEAD.0.to_be_bytes().to_vec(),
            2 => acknowledgement(self.random.random_range(1..100), serial),
            3 => (0..self.random.random_range(1..200)).map(|_| self.random.random()).collect(),
            _ => seen.to_vec(),
        }
    }
}

/// The body of an ACK of everything before packet `first`, in answer to the packet `serial`.
fn acknowledgement(first: u32, serial: u32) -> Vec<u8> {
    let mut body = vec![0; 18];
    body[4..8].copy_from_slice(&first.to_be_bytes());
    body[12..16].copy_from_slice(&serial.to_be_bytes());
    body[16] = 2;
    body
}

fn address(number: u8) -> SocketAddr {
    SocketAddr::from((Ipv4Addr::new(192, 0, 2, number + 1), 7001))
}

/// Whether an address belongs to an attacker.
pub fn is_attacker(address: SocketAddr) -> bool {
    matches!(address.ip(), IpAddr::V4(ip) if ip.octets()[..3] == [192, 0, 2])
}
