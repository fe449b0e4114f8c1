//! Numbers that a peer has to echo, generated so that they can be verified without being stored.
//!
//! The first serial and the challenge's nonce of a server connection are a keyed hash of the peer's address,
//! of the numbers that identify the connection, and of a time slot. This does not matter as long as the
//! connection exists. If a flood has evicted it, the echo of the ping or the response to the challenge is
//! verified by computing the numbers again.
//!
//! A response could be replayed if its connection was verified and then removed within the lifetime of its
//! nonce. The secret is therefore changed whenever that happens: see [`Cookies::forget`].

use std::net::SocketAddr;
use std::time::Duration;

use base::Monotonic;
use rx_security::ConnectionFacts;

/// Length of a time slot. Numbers of the previous slot are valid too.
const SLOT: Duration = Duration::from_secs(32);

/// Maximum time for which the numbers of a connection are accepted after they were generated.
pub(crate) const COOKIE_LIFETIME: Duration = Duration::from_secs(2 * SLOT.as_secs());

/// Number of pings of a connection whose serials are recognised without the connection.
const PINGS_MAX: u32 = 4;

/// The numbers of one connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Cookie {
    /// Nonce of the challenge.
    pub(crate) nonce: [u8; 16],
    /// Serial of the first packet.
    pub(crate) serial: u32,
}

impl Cookie {
    /// Whether `serial` is the serial of one of the connection's first packets.
    pub(crate) fn has_serial(&self, serial: u32) -> bool {
        serial.wrapping_sub(self.serial) < PINGS_MAX
    }
}

/// The generator of cookies.
pub(crate) struct Cookies {
    secret: [u8; 32],
}

impl Cookies {
    pub(crate) fn new(secret: [u8; 32]) -> Cookies {
        Cookies { secret }
    }

    /// Replaces the secret, which invalidates all earlier numbers.
    pub(crate) fn forget(&mut self, secret: [u8; 32]) {
        self.secret = secret;
    }

    /// Returns the numbers for a new connection.
    pub(crate) fn make(&self, now: Monotonic, remote: SocketAddr, facts: &ConnectionFacts) -> Cookie {
        self.of_slot(slot(now), remote, facts)
    }

    /// Returns all numbers that a peer may still echo.
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
        // Far from the largest serial, and never 0, which means "none".
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
