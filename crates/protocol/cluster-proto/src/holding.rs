//! A service address at the interface of its owner.
//!
//! The address must be gone before another node can have it, also if this process stops or dies while its machine goes on. So it
//! is added with a lifetime, after which the kernel removes it, and the lifetime is extended with each renewal of the lease.

use base::Monotonic;
use std::time::Duration;

/// How long after the end of an address's lifetime the kernel may have it still: it checks once a second, and rounds
/// (`check_lifetime` in Linux's net/ipv4/devinet.c).
const KERNEL_DELAY: Duration = Duration::from_millis(1250);

/// When an address is announced, counted from its addition. Announcements are lost, and switches and hosts may ignore one
/// that comes soon after another.
const ANNOUNCEMENTS: [Duration; 6] = [
    Duration::ZERO,
    Duration::from_millis(100),
    Duration::from_millis(500),
    Duration::from_secs(1),
    Duration::from_secs(2),
    Duration::from_secs(5),
];

/// What to do with an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Deed {
    /// Add it to the interface with this lifetime in seconds, or extend its lifetime if it is there.
    Set {
        /// At least 1.
        seconds: u32,
    },
    /// Announce to the network where it is.
    Announce,
    /// Remove it from the interface, if it is there.
    Remove,
}

/// An address that this node owns. The shell reports the end of the lease with [`held`](Holding::held), and each time when
/// it has changed; it does what [`poll`](Holding::poll) returns at once, and polls again until that is `None`, and at
/// [`next_time`](Holding::next_time).
#[derive(Debug, Default)]
pub struct Holding {
    /// The end of the lease as reported last.
    until: Option<Monotonic>,
    /// Whether the lease was renewed since the lifetime was set.
    is_due: bool,
    /// When the lifetime ends at the latest that was set last; `None` if the address is not there.
    expires: Option<Monotonic>,
    /// When it was added, and how many announcements there were since.
    announced: (Monotonic, usize),
}

impl Holding {
    /// The ownership is valid until then; `None` if it is not valid any more.
    pub fn held(&mut self, until: Option<Monotonic>) {
        self.is_due |= until.is_some() && until != self.until;
        self.until = until;
    }

    /// Whether the address should be at the interface.
    pub fn is_there(&self) -> bool {
        self.expires.is_some()
    }

    /// Returns the next thing to do.
    pub fn poll(&mut self, now: Monotonic) -> Option<Deed> {
        let has_expired = self.expires.is_some_and(|expires| now >= expires);
        let seconds = self.seconds(now);
        if self.is_due && seconds > 0 {
            self.is_due = false;
            // While it was absent, others may have learnt another place for it.
            if has_expired || self.expires.is_none() {
                self.announced = (now, 0);
            }
            self.expires = Some(now + Duration::from_secs(seconds.into()));
            return Some(Deed::Set { seconds });
        }
        if has_expired || self.expires.is_some() && self.until.is_none() {
            self.expires = None;
            return Some(Deed::Remove);
        }
        if self.announcement().is_some_and(|due| due <= now) {
            self.announced.1 += 1;
            return Some(Deed::Announce);
        }
        None
    }

    /// Returns when [`poll`](Holding::poll) has something to do without a report.
    pub fn next_time(&self) -> Option<Monotonic> {
        [self.expires, self.announcement()].into_iter().flatten().min()
    }

    /// Returns the longest lifetime after which the kernel has removed the address before the lease ends.
    fn seconds(&self, now: Monotonic) -> u32 {
        let left = self.until.map_or(Duration::ZERO, |until| until.since(now)).saturating_sub(KERNEL_DELAY);
        u32::try_from(left.as_secs()).unwrap_or(u32::MAX)
    }

    fn announcement(&self) -> Option<Monotonic> {
        self.expires?;
        let (added, done) = self.announced;
        ANNOUNCEMENTS.get(done).map(|after| added + *after)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand::rngs::SmallRng;
    use rand::{Rng, SeedableRng};

    const MS: u64 = 1_000_000;

    fn at(ms: u64) -> Monotonic {
        Monotonic(ms * MS)
    }

    /// Returns all that is to be done at a time.
    fn deeds(holding: &mut Holding, ms: u64) -> Vec<Deed> {
        std::iter::from_fn(|| holding.poll(at(ms))).collect()
    }

    #[test]
    fn an_address_is_added_announced_and_renewed() {
        let mut holding = Holding::default();
        assert_eq!((deeds(&mut holding, 0), holding.next_time()), (vec![], None));
        holding.held(Some(at(4900)));
        assert_eq!(deeds(&mut holding, 0), [Deed::Set { seconds: 3 }, Deed::Announce]);
        assert!(holding.is_there());
        assert_eq!(holding.next_time(), Some(at(100)));
        assert_eq!(deeds(&mut holding, 99), []);
        assert_eq!(deeds(&mut holding, 100), [Deed::Announce]);
        holding.held(Some(at(5900)));
        holding.held(Some(at(5900)));
        assert_eq!(deeds(&mut holding, 1100), [Deed::Set { seconds: 3 }, Deed::Announce, Deed::Announce]);
        holding.held(Some(at(6900)));
        assert_eq!(deeds(&mut holding, 2000), [Deed::Set { seconds: 3 }, Deed::Announce]);
        holding.held(Some(at(9900)));
        assert_eq!(deeds(&mut holding, 4999), [Deed::Set { seconds: 3 }]);
        assert_eq!(holding.next_time(), Some(at(5000)));
        assert_eq!(deeds(&mut holding, 5000), [Deed::Announce]);
        assert_eq!(holding.next_time(), Some(at(7999)));
    }

    #[test]
    fn an_address_is_removed_before_the_lease_ends() {
        let mut holding = Holding::default();
        holding.held(Some(at(4900)));
        deeds(&mut holding, 0);
        assert_eq!(deeds(&mut holding, 2999), [Deed::Announce; 4]);
        assert_eq!(holding.next_time(), Some(at(3000)));
        assert_eq!(deeds(&mut holding, 3000), [Deed::Remove]);
        assert!(!holding.is_there());
        assert_eq!((deeds(&mut holding, 9000), holding.next_time()), (vec![], None));
        holding.held(Some(at(14_000)));
        assert_eq!(deeds(&mut holding, 10_000), [Deed::Set { seconds: 2 }, Deed::Announce]);
        holding.held(None);
        assert_eq!(deeds(&mut holding, 10_001), [Deed::Remove]);
    }

    #[test]
    fn a_lease_that_ends_soon_adds_nothing() {
        let mut holding = Holding::default();
        holding.held(Some(at(2249)));
        assert_eq!(deeds(&mut holding, 0), []);
        holding.held(Some(at(2250)));
        assert_eq!(deeds(&mut holding, 0), [Deed::Set { seconds: 1 }, Deed::Announce]);
    }

    #[test]
    fn an_address_that_has_expired_is_announced_again() {
        let mut holding = Holding::default();
        holding.held(Some(at(4900)));
        deeds(&mut holding, 0);
        deeds(&mut holding, 2900);
        holding.held(Some(at(8000)));
        assert_eq!(deeds(&mut holding, 3000), [Deed::Set { seconds: 3 }, Deed::Announce]);
    }

    /// A kernel that removes an address up to [`KERNEL_DELAY`] after its lifetime.
    #[derive(Default)]
    struct Kernel(Option<u64>);

    /// Plays a node that stalls, loses its lease and gets it again; whenever the kernel has the address, the lease that was
    /// last reported is valid.
    fn play(seed: u64) -> u32 {
        let mut rng = SmallRng::seed_from_u64(seed);
        let (mut holding, mut kernel, mut until, mut sets) = (Holding::default(), Kernel::default(), 0, 0);
        let mut now = 0_u64;
        for _ in 0..300 {
            // Renewals come each second, late, or not at all; the process runs often, or stalls.
            now +=
                if rng.random_ratio(1, 20) { rng.random_range(0..30_000) } else { rng.random_range(0..400) };
            kernel.0 = kernel.0.filter(|end| *end > now);
            match rng.random_range(0..10) {
                0..4 => {
                    until = until.max(now + 4900 - rng.random_range(0..2000));
                    holding.held(Some(at(until)));
                }
                4 if now >= until => holding.held(None),
                _ => {}
            }
            while let Some(deed) = holding.poll(at(now)) {
                match deed {
                    Deed::Set { seconds } => {
                        let delay = rng.random_range(0..=u64::try_from(KERNEL_DELAY.as_millis()).unwrap());
                        kernel.0 = Some(now + u64::from(seconds) * 1000 + delay);
                        sets += 1;
                    }
                    Deed::Remove => kernel.0 = None,
                    Deed::Announce => assert!(kernel.0.is_some(), "seed {seed}: announced though absent"),
                }
            }
            assert!(kernel.0.is_none_or(|end| end <= until), "seed {seed}: it outlives the lease");
        }
        sets
    }

    #[test]
    fn an_address_never_outlives_the_lease() {
        let mut sets = 0;
        seeds::play(2000, |seed| sets += play(seed));
        assert!(sets > 20_000, "only {sets} additions were played");
    }
}
