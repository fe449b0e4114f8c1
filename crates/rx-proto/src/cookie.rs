//! Numbers that a peer has to echo, made so that they can be checked without having been kept.
//!
//! The first serial number and the challenge's nonce of a server connection are a keyed hash of the peer's address, of
//! what names the connection, and of a time slot. As long as the connection is kept nothing depends on that. When a flood
//! has pushed it out, the echo of the ping or the response to the challenge is checked by making the numbers again.
//!
//! A response could be replayed if its connection was verified and then forgotten within the life of its nonce. So the
//! secret is changed whenever that happens: see [`Cookies::forget`].

use std::net::SocketAddr;
use std::time::Duration;

use base::Monotonic;
use rx_security::ConnectionFacts;

/// How long a time slot is. Numbers of the slot before are valid, too.
const SLOT: Duration = Duration::from_secs(32);

/// How long after they were made the numbers of a connection may still be accepted.
pub(crate) const COOKIE_LIFETIME: Duration = Duration::from_secs(2 * SLOT.as_secs());

/// Pings of one connection that are recognised by their serial numbers without the connection.
const PINGS_MAX: u32 = 4;

/// The numbers of one connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Cookie {
    /// The nonce of its challenge.
    pub(crate) nonce: [u8; 16],
    /// The serial number of its first packet.
    pub(crate) serial: u32,
}

impl Cookie {
    /// Whether a serial number is that of one of its first packets.
    pub(crate) fn has_serial(&self, serial: u32) -> bool {
        serial.wrapping_sub(self.serial) < PINGS_MAX
    }
}

/// See the module's description.
pub(crate) struct Cookies {
    secret: [u8; 32],
}

impl Cookies {
    pub(crate) fn new(secret: [u8; 32]) -> Cookies {
        Cookies { secret }
    }

    /// Makes all numbers invalid that were made before.
    pub(crate) fn forget(&mut self, secret: [u8; 32]) {
        self.secret = secret;
    }

    /// The numbers for a new connection.
    pub(crate) fn make(&self, now: Monotonic, remote: SocketAddr, facts: &ConnectionFacts) -> Cookie {
        self.of_slot(slot(now), remote, facts)
    }

    /// All that a peer may still echo now.
    pub(crate) fn valid(&self, now: Monotonic, remote: SocketAddr, facts: &ConnectionFacts) -> [Cookie; 2] {
        let slot = slot(now);
        [slot, slot.wrapping_sub(1)].map(|slot| self.of_slot(slot, remote, facts))
    }

    fn of_slot(&self, slot: u64, remote: SocketAddr, facts: &ConnectionFacts) -> Cookie {
        let mut hasher = blake3::Hasher::new_keyed(&self.secret);
        let address = match remote {
            SocketAddr::V4(remote) => remote.ip().to_ipv6_mapped(),
            SocketAddr::V6(remote) => *remote.ip(),
        };
        hasher.update(&address.octets());
        hasher.update(&remote.port().to_be_bytes());
        hasher.update(&facts.epoch.to_be_bytes());
        hasher.update(&facts.connection_id.to_be_bytes());
        hasher.update(&facts.service_id.to_be_bytes());
        hasher.update(&[facts.security_index]);
        hasher.update(&slot.to_be_bytes());
        let hash = hasher.finalize();
        let (nonce, rest) = hash.as_bytes().split_first_chunk::<16>().expect("32 bytes are more than 16");
        let serial = rest.first_chunk().map_or(0, |bytes| u32::from_be_bytes(*bytes));
        // Far from the end of all serial numbers, and not 0, which means "none".
        Cookie { nonce: *nonce, serial: (serial & 0x7fff_ffff) | 1 }
    }
}

fn slot(now: Monotonic) -> u64 {
    now.0 / SLOT.as_nanos() as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    fn facts(connection_id: u32) -> ConnectionFacts {
        ConnectionFacts { epoch: 7, connection_id, service_id: 1, security_index: 2 }
    }

    fn at(seconds: u64) -> Monotonic {
        Monotonic(seconds * 1_000_000_000)
    }

    #[test]
    fn numbers_depend_on_all_that_names_a_connection() {
        let cookies = Cookies::new([1; 32]);
        let address: SocketAddr = "192.0.2.1:7001".parse().unwrap();
        let cookie = cookies.make(at(0), address, &facts(4));
        assert_eq!(cookie, cookies.make(at(31), address, &facts(4)));
        assert_ne!(cookie, cookies.make(at(0), address, &facts(8)));
        assert_ne!(cookie, cookies.make(at(0), "192.0.2.1:7002".parse().unwrap(), &facts(4)));
        assert_ne!(cookie, cookies.make(at(0), "192.0.2.2:7001".parse().unwrap(), &facts(4)));
        assert_ne!(cookie, Cookies::new([2; 32]).make(at(0), address, &facts(4)));
    }

    #[test]
    fn numbers_are_valid_for_two_slots() {
        let mut cookies = Cookies::new([1; 32]);
        let address: SocketAddr = "[2001:db8::1]:7001".parse().unwrap();
        let cookie = cookies.make(at(31), address, &facts(4));
        let is_valid =
            |cookies: &Cookies, seconds| cookies.valid(at(seconds), address, &facts(4)).contains(&cookie);
        assert!(is_valid(&cookies, 31) && is_valid(&cookies, 63));
        assert!(!is_valid(&cookies, 64));
        cookies.forget([3; 32]);
        assert!(!is_valid(&cookies, 31));
        assert!(cookie.has_serial(cookie.serial) && !cookie.has_serial(cookie.serial.wrapping_sub(1)));
        assert!(!cookie.has_serial(cookie.serial.wrapping_add(PINGS_MAX)));
    }
}
