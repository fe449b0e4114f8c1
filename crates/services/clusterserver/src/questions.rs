//! Limits how often other nodes are asked for volumes that do not exist, which any client can name, and the bucket for leases that do
//! not exist.
//!
//! Questions that find a volume are few, since the answer is remembered. So only the others count, against the address
//! of the client and against all clients together. A client that has named only volumes that exist is never limited.

use base::Monotonic;
use std::collections::HashMap;
use std::net::{IpAddr, Ipv6Addr};
use std::time::Duration;

/// Questions in vain per second, and in a row, for one address of clients (a /64 network of IPv6).
const PER_CLIENT: u32 = 20;

/// The same for all clients that have asked in vain of late.
const FOR_ALL: u32 = 500;

/// Maximum number of addresses with a limit of their own. While there are more, new ones share that for all.
const CLIENTS_MAX: usize = 4096;

/// The time for which unused questions are saved up.
const SAVED: Duration = Duration::from_secs(1);

/// The questions in vain of late.
#[derive(Debug, Default)]
pub(crate) struct Questions {
    all: Allowance,
    clients: HashMap<IpAddr, Allowance>,
}

impl Questions {
    /// Whether other nodes may be asked on behalf of a client.
    pub(crate) fn may_ask(&mut self, now: Monotonic, client: IpAddr) -> bool {
        match self.clients.get(&network(client)) {
            Some(own) => own.is_left(now, PER_CLIENT) && self.all.is_left(now, FOR_ALL),
            None => self.has_room(now) || self.all.is_left(now, FOR_ALL),
        }
    }

    /// Records a question for a volume that no node has.
    pub(crate) fn was_in_vain(&mut self, now: Monotonic, client: IpAddr) {
        self.all.use_one(now, FOR_ALL);
        let network = network(client);
        if self.clients.contains_key(&network) || self.has_room(now) {
            self.clients.entry(network).or_default().use_one(now, PER_CLIENT);
        }
    }

    /// Whether another address can have a limit of its own. Forgets those that have used nothing for a while.
    fn has_room(&mut self, now: Monotonic) -> bool {
        if self.clients.len() >= CLIENTS_MAX {
            self.clients.retain(|_, own| own.full_at > now);
        }
        self.clients.len() < CLIENTS_MAX
    }
}

/// What is left of a rate: the time at which everything is there again.
#[derive(Debug, Default)]
struct Allowance {
    full_at: Monotonic,
}

impl Allowance {
    /// Whether a question is left, if `per_second` are allowed.
    fn is_left(&self, now: Monotonic, per_second: u32) -> bool {
        self.full_at.since(now) + SAVED / per_second <= SAVED
    }

    /// Uses one. Questions that begin at the same time may use more than are left.
    fn use_one(&mut self, now: Monotonic, per_second: u32) {
        self.full_at = (self.full_at.max(now) + SAVED / per_second).min(now + SAVED);
    }
}

/// Returns the address that limits count by.
fn network(ip: IpAddr) -> IpAddr {
    match ip {
        IpAddr::V4(_) => ip,
        IpAddr::V6(ip) => Ipv6Addr::from(u128::from(ip) >> 64 << 64).into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(ms: u64) -> Monotonic {
        Monotonic(ms * 1_000_000)
    }

    fn client(number: u32) -> IpAddr {
        std::net::Ipv4Addr::from(0x0a00_0000 + number).into()
    }

    /// Asks in vain as often as it may; returns how often it could.
    fn ask(questions: &mut Questions, now: Monotonic, client: IpAddr, most: u32) -> u32 {
        (0..most)
            .filter(|_| {
                let may = questions.may_ask(now, client);
                if may {
                    questions.was_in_vain(now, client);
                }
                may
            })
            .count() as u32
    }

    #[test]
    fn one_client_asks_in_vain_at_its_rate() {
        let mut questions = Questions::default();
        assert_eq!(ask(&mut questions, at(0), client(1), 1000), PER_CLIENT);
        assert_eq!(ask(&mut questions, at(0), client(2), 1000), PER_CLIENT, "another one");
        assert!((1..50).all(|ms| ask(&mut questions, at(ms), client(2), 1) == 0), "nothing is left");
        assert_eq!(ask(&mut questions, at(50), client(2), 1000), 1);
        assert_eq!(ask(&mut questions, at(500), client(1), 1000), PER_CLIENT / 2);
        assert_eq!(ask(&mut questions, at(60_000), client(1), 1000), PER_CLIENT, "no more is saved up");
        let ipv6 = |text: &str| text.parse().unwrap();
        assert_eq!(ask(&mut questions, at(90_000), ipv6("2001:db8::1"), 1000), PER_CLIENT);
        assert_eq!(ask(&mut questions, at(90_000), ipv6("2001:db8::2"), 1000), 0, "of the same network");
    }

    #[test]
    fn all_who_ask_in_vain_share_a_rate() {
        let mut questions = Questions::default();
        let crowd = 100;
        let firsts: u32 = (0..crowd).map(|number| ask(&mut questions, at(0), client(number), 1000)).sum();
        assert!((FOR_ALL..=FOR_ALL + crowd).contains(&firsts), "{firsts}");
        assert!(questions.may_ask(at(0), client(crowd)), "this one has asked nothing");
        let seconds: u32 = (0..crowd).map(|number| ask(&mut questions, at(1000), client(number), 1000)).sum();
        assert!((FOR_ALL - crowd..=FOR_ALL).contains(&seconds), "{seconds}");
    }

    #[test]
    fn addresses_are_bounded_and_forgotten() {
        let mut questions = Questions::default();
        let many = CLIENTS_MAX as u32 + 1000;
        let asked: u32 = (0..many).map(|number| ask(&mut questions, at(0), client(number), 1)).sum();
        assert_eq!((asked, questions.clients.len()), (CLIENTS_MAX as u32, CLIENTS_MAX));
        let later = at(60_000);
        assert_eq!(ask(&mut questions, later, client(many), 1000), PER_CLIENT);
        assert_eq!(questions.clients.len(), 1);
    }
}
