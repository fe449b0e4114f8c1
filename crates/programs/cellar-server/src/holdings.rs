//! Limits the memory that large replies take, by caller.
//!
//! Replies stay in memory until the client has acknowledged them, even after the call has been served, and a
//! client may be slow. Each caller may hold a limited amount; a call beyond it is rejected with VBUSY, and
//! the client can repeat it. Small replies, which are by far the most common, are not counted, nor is file
//! data, which refers to the cache.

use base::{AbortCode, Caller, Identity, Principal};
use bytes::Bytes;
use parking_lot::Mutex;
use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::Arc;

/// Maximum number of bytes for one address of anonymous callers.
const ADDRESS_BYTES_MAX: usize = 16 << 20;

/// Maximum number of bytes for all anonymous callers together.
const ANONYMOUS_BYTES_MAX: usize = 64 << 20;

/// Maximum number of bytes for one identity, from all its addresses.
const IDENTITY_BYTES_MAX: usize = 64 << 20;

/// Owner of an account.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Owner {
    Identity(Principal),
    Address(IpAddr),
}

/// Accounts of all callers that hold memory.
#[derive(Default)]
pub(super) struct Holdings {
    /// Locked only for a look-up and an addition.
    accounts: Mutex<Accounts>,
}

#[derive(Default)]
struct Accounts {
    by_owner: HashMap<Owner, usize>,
    anonymous: usize,
}

/// Memory held by one call; released when dropped.
pub(super) struct Held {
    holdings: Arc<Holdings>,
    owner: Owner,
    bytes: usize,
}

impl Held {
    /// Creates a holding of no bytes.
    pub(super) fn nothing(holdings: &Arc<Holdings>, caller: &Caller) -> Held {
        let owner = match &caller.identity {
            Identity::Known(principal) => Owner::Identity(principal.clone()),
            Identity::Anonymous => Owner::Address(caller.peer.ip().to_canonical()),
        };
        Held { holdings: Arc::clone(holdings), owner, bytes: 0 }
    }

    /// Adds bytes to the holding.
    ///
    /// # Errors
    /// VBUSY if the caller, or all anonymous callers together, would exceed a limit; the holding is then
    /// unchanged.
    pub(super) fn add(&mut self, bytes: usize) -> Result<(), AbortCode> {
        let mut accounts = self.holdings.accounts.lock();
        accounts.check(&self.owner, bytes)?;
        accounts.add(&self.owner, bytes);
        self.bytes += bytes;
        Ok(())
    }

    /// Adds bytes to the holding without checking limits.
    pub(super) fn add_anyway(&mut self, bytes: usize) {
        self.holdings.accounts.lock().add(&self.owner, bytes);
        self.bytes += bytes;
    }

    /// Converts the data to bytes that are held until the last reference is dropped.
    pub(super) fn bytes_of(self, data: Vec<u8>) -> Bytes {
        Bytes::from_owner(HeldData { data, _held: self })
    }
}

struct HeldData {
    data: Vec<u8>,
    _held: Held,
}

impl AsRef<[u8]> for HeldData {
    fn as_ref(&self) -> &[u8] {
        &self.data
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        self.holdings.accounts.lock().remove(&self.owner, self.bytes);
    }
}

impl Accounts {
    /// Checks whether additional bytes are within the limits.
    fn check(&self, owner: &Owner, bytes: usize) -> Result<(), AbortCode> {
        let (most, anonymous) = match owner {
            Owner::Address(_) => (ADDRESS_BYTES_MAX, self.anonymous.saturating_add(bytes)),
            Owner::Identity(_) => (IDENTITY_BYTES_MAX, 0),
        };
        let own = self.by_owner.get(owner).copied().unwrap_or(0).saturating_add(bytes);
        if own > most || anonymous > ANONYMOUS_BYTES_MAX { Err(AbortCode::VBUSY) } else { Ok(()) }
    }

    fn add(&mut self, owner: &Owner, bytes: usize) {
        if matches!(owner, Owner::Address(_)) {
            self.anonymous = self.anonymous.saturating_add(bytes);
        }
        let own = self.by_owner.entry(owner.clone()).or_default();
        *own = own.saturating_add(bytes);
    }

    fn remove(&mut self, owner: &Owner, bytes: usize) {
        if matches!(owner, Owner::Address(_)) {
            self.anonymous = self.anonymous.saturating_sub(bytes);
        }
        if let Some(held) = self.by_owner.get_mut(owner) {
            *held = held.saturating_sub(bytes);
            if *held == 0 {
                self.by_owner.remove(owner);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use base::SecurityLevel;
    use std::net::Ipv4Addr;

    fn caller(host: u8, port: u16, name: Option<&str>) -> Caller {
        let principal =
            |name: &str| Principal { name: name.into(), instance: String::new(), realm: String::new() };
        let identity = name.map_or(Identity::Anonymous, |name| Identity::Known(principal(name)));
        let (peer, local) = (([10, 0, 0, host], port).into(), Ipv4Addr::LOCALHOST.into());
        Caller { identity, level: SecurityLevel::Clear, peer, local, connection: base::Connection::new() }
    }

    #[test]
    fn one_caller_holds_a_bounded_amount() {
        let holdings = Arc::new(Holdings::default());
        for name in [None, Some("ann")] {
            let most = name.map_or(ADDRESS_BYTES_MAX, |_| IDENTITY_BYTES_MAX);
            let mut first = Held::nothing(&holdings, &caller(1, 7001, name));
            first.add(most - 1).unwrap();
            let mut second = Held::nothing(&holdings, &caller(1, 40_000, name));
            assert_eq!(second.add(2), Err(AbortCode::VBUSY));
            second.add(1).unwrap();
            drop(first);
            second.add(most - 1).unwrap();
        }
        assert!(holdings.accounts.lock().by_owner.is_empty());
    }

    #[test]
    fn data_is_held_until_the_last_reference_is_gone() {
        let holdings = Arc::new(Holdings::default());
        let mut held = Held::nothing(&holdings, &caller(1, 7001, None));
        held.add_anyway(ADDRESS_BYTES_MAX);
        let data = held.bytes_of(vec![7; 100]);
        let packet = data.slice(90..);
        drop(data);
        let mut next = Held::nothing(&holdings, &caller(1, 7001, None));
        assert_eq!((next.add(1), &packet[..]), (Err(AbortCode::VBUSY), &[7; 10][..]));
        drop(packet);
        assert_eq!(next.add(1), Ok(()));
    }

    #[test]
    fn anonymous_callers_share_a_bound() {
        let holdings = Arc::new(Holdings::default());
        let hold = |host| Held::nothing(&holdings, &caller(host, 7001, None));
        let mut all: Vec<Held> = (1..=4).map(hold).collect();
        for held in &mut all {
            held.add(ADDRESS_BYTES_MAX).unwrap();
        }
        assert_eq!(hold(5).add(1), Err(AbortCode::VBUSY));
        Held::nothing(&holdings, &caller(5, 7001, Some("ann"))).add(1).unwrap();
        drop(all);
        assert_eq!(holdings.accounts.lock().anonymous, 0);
        hold(5).add(1).unwrap();
    }
}
