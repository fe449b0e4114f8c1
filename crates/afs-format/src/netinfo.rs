//! NetInfo and NetRestrict: which of a server's addresses are announced.
//!
//! NetInfo(5) lists addresses to announce; `f ADDRESS` announces one that the machine does not have
//! (behind a translator). NetRestrict(5) lists addresses to keep quiet about, 255 standing for any
//! value of a byte.

use crate::cellservdb::LineError;
use std::net::Ipv4Addr;

/// What NetInfo asks for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NetInfo {
    /// Addresses to announce if the machine has them.
    pub addresses: Vec<Ipv4Addr>,
    /// Addresses to announce in any case.
    pub forced: Vec<Ipv4Addr>,
}

/// Address patterns that are not announced.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NetRestrict {
    patterns: Vec<Ipv4Addr>,
}

fn addresses(text: &str) -> impl Iterator<Item = (usize, bool, Result<Ipv4Addr, LineError>)> + '_ {
    (1..).zip(text.lines()).filter_map(|(line, raw)| {
        let content = raw.split('#').next().unwrap_or_default().trim();
        if content.is_empty() {
            return None;
        }
        let forced = content.strip_prefix(['f', 'F']).filter(|rest| rest.starts_with([' ', '\t']));
        let address = forced.unwrap_or(content).trim();
        let parsed = address
            .parse()
            .map_err(|_| LineError::new(line, format!("`{address}` is not an IPv4 address like 192.0.2.1")));
        Some((line, forced.is_some(), parsed))
    })
}

/// Reads NetInfo.
pub fn parse_netinfo(text: &str) -> Result<NetInfo, LineError> {
    let mut info = NetInfo::default();
    for (_, forced, address) in addresses(text) {
        let list = if forced { &mut info.forced } else { &mut info.addresses };
        list.push(address?);
    }
    Ok(info)
}

/// Reads NetRestrict.
pub fn parse_netrestrict(text: &str) -> Result<NetRestrict, LineError> {
    let mut patterns = Vec::new();
    for (line, forced, address) in addresses(text) {
        if forced {
            return Err(LineError::new(line, "`f` has a meaning in NetInfo only"));
        }
        patterns.push(address?);
    }
    Ok(NetRestrict { patterns })
}

impl NetRestrict {
    /// Whether `address` is not to be announced.
    pub fn covers(&self, address: Ipv4Addr) -> bool {
        let fits = |pattern: &Ipv4Addr| {
            pattern.octets().iter().zip(address.octets()).all(|(&want, got)| want == 255 || want == got)
        };
        self.patterns.iter().any(fits)
    }
}

/// The addresses to announce out of those the machine has: those that NetInfo names (all but
/// loopback if it names none), less NetRestrict's, plus the forced ones.
pub fn announced(have: &[Ipv4Addr], info: &NetInfo, restrict: &NetRestrict) -> Vec<Ipv4Addr> {
    let everything = info.addresses.is_empty() && info.forced.is_empty();
    let wanted = |address: &Ipv4Addr| {
        if everything { !address.is_loopback() } else { info.addresses.contains(address) }
    };
    let mut out: Vec<Ipv4Addr> =
        have.iter().copied().filter(wanted).filter(|&address| !restrict.covers(address)).collect();
    for &address in &info.forced {
        if !out.contains(&address) {
            out.push(address);
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ip(text: &str) -> Ipv4Addr {
        text.parse().unwrap()
    }

    #[test]
    fn announced_addresses_follow_both_files() {
        let have = [ip("127.0.0.1"), ip("10.0.0.1"), ip("10.0.1.1")];
        let none = NetInfo::default();
        let free = NetRestrict::default();
        assert_eq!(announced(&have, &none, &free), [ip("10.0.0.1"), ip("10.0.1.1")]);
        let restrict = parse_netrestrict("10.0.1.255\n").unwrap();
        assert_eq!(announced(&have, &none, &restrict), [ip("10.0.0.1")]);
        let info = parse_netinfo("# ours\n10.0.1.1\nf 192.0.2.7\n").unwrap();
        assert_eq!(announced(&have, &info, &free), [ip("10.0.1.1"), ip("192.0.2.7")]);
        let loopback = parse_netinfo("127.0.0.1\n").unwrap();
        assert_eq!(announced(&have, &loopback, &free), [ip("127.0.0.1")]);
    }

    #[test]
    fn an_error_names_its_line() {
        assert_eq!(parse_netinfo("\n\n10.0.0.1.2\n").unwrap_err().line, 3);
        assert_eq!(parse_netrestrict("f 10.0.0.1\n").unwrap_err().line, 1);
    }
}
