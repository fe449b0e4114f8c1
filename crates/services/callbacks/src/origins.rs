//! What limits count by: addresses of machines, not of their ports.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv6Addr};

/// Returns the address that limits count by: an IPv4 address, or the /64 network of an IPv6 address.
pub(crate) fn origin(ip: IpAddr) -> IpAddr {
    match ip {
        IpAddr::V4(_) => ip,
        IpAddr::V6(ip) => Ipv6Addr::from(u128::from(ip) >> 64 << 64).into(),
    }
}

/// Counts something by [`origin`]. Memory is bounded by the sum of the counts.
#[derive(Debug, Default)]
pub(crate) struct Origins(BTreeMap<IpAddr, usize>);

impl Origins {
    pub(crate) fn count(&self, ip: IpAddr) -> usize {
        self.0.get(&origin(ip)).copied().unwrap_or_default()
    }

    pub(crate) fn add(&mut self, ip: IpAddr) {
        *self.0.entry(origin(ip)).or_default() += 1;
    }

    /// Takes back one [`Self::add`].
    pub(crate) fn remove(&mut self, ip: IpAddr) {
        let origin = origin(ip);
        if let Some(count) = self.0.get_mut(&origin) {
            *count -= 1;
            if *count == 0 {
                self.0.remove(&origin);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_ipv6_network_is_one_origin() {
        let ip = |text: &str| text.parse::<IpAddr>().unwrap();
        assert_eq!(origin(ip("2001:db8::1")), origin(ip("2001:db8::ffff:2")));
        assert_ne!(origin(ip("2001:db8:0:1::1")), origin(ip("2001:db8::1")));
        assert_ne!(origin(ip("10.0.0.1")), origin(ip("10.0.0.2")));
        let mut origins = Origins::default();
        origins.add(ip("2001:db8::1"));
        origins.add(ip("2001:db8::2"));
        origins.remove(ip("2001:db8::3"));
        assert_eq!((origins.count(ip("2001:db8::4")), origins.count(ip("10.0.0.1"))), (1, 0));
        origins.remove(ip("2001:db8::1"));
        assert!(origins.0.is_empty());
    }
}
