//! NetInfo and NetRestrict: the addresses that a server registers.
//!
//! NetInfo(5) lists the addresses to register. `f ADDRESS` registers an address that the machine does not
//! have (behind a translator). NetRestrict(5) lists the addresses to omit. Both accept a network as
//! `ADDRESS/LENGTH`; NetRestrict also accepts 255 for any value of a byte, as older versions of OpenAFS do.
//! Only the first word of a line counts, and a line that cannot be parsed is skipped, as in OpenAFS
//! (`src/auth/netrestrict.c`).

use crate::cellservdb::LineError;
use std::net::Ipv4Addr;

/// The addresses that agree with `value` in the bits of `mask`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Network {
    value: u32,
    mask: u32,
}

impl Network {
    /// Returns whether `address` belongs to the network.
    pub fn contains(&self, address: Ipv4Addr) -> bool {
        (u32::from(address) ^ self.value) & self.mask == 0
    }

    fn single(address: Ipv4Addr) -> Network {
        Network { value: address.into(), mask: u32::MAX }
    }

    fn with_length(address: Ipv4Addr, length: u32) -> Network {
        Network { value: address.into(), mask: u32::MAX << (32 - length) }
    }

    /// Returns the addresses that a NetRestrict line without a length covers; a byte of 255 matches any
    /// value.
    fn with_wildcards(address: Ipv4Addr) -> Network {
        let mask = address.octets().map(|byte| if byte == 255 { 0 } else { 255 });
        Network { value: address.into(), mask: u32::from_be_bytes(mask) }
    }
}

/// Contents of NetInfo.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NetInfo {
    /// Lines in file order.
    pub entries: Vec<NetInfoEntry>,
}

/// One line of NetInfo.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NetInfoEntry {
    /// Registers the machine's first address in this network.
    Own(Network),
    /// Registers this address, which the machine need not have.
    Forced(Ipv4Addr),
}

/// Contents of NetRestrict: the networks whose addresses are not registered.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NetRestrict {
    networks: Vec<Network>,
}

/// A parsed file and the lines that were passed over.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Parsed<T> {
    /// Contents of the valid lines.
    pub value: T,
    /// The lines that were passed over, in file order.
    pub skipped: Vec<LineError>,
}

impl<T> Parsed<T> {
    /// Parses each line that is not empty with `parse`.
    fn lines<E>(
        text: &str,
        parse: impl Fn(&str) -> Result<E, String>,
        collect: impl FnOnce(Vec<E>) -> T,
    ) -> Parsed<T> {
        let (mut entries, mut skipped) = (Vec::new(), Vec::new());
        for (line, raw) in (1..).zip(text.lines()) {
            let content = raw.split('#').next().unwrap_or_default().trim();
            if content.is_empty() {
                continue;
            }
            match parse(content) {
                Ok(entry) => entries.push(entry),
                Err(what) => skipped.push(LineError::new(line, what)),
            }
        }
        Parsed { value: collect(entries), skipped }
    }
}

/// Parses NetInfo.
pub fn parse_netinfo(text: &str) -> Parsed<NetInfo> {
    Parsed::lines(text, parse_netinfo_line, |entries| NetInfo { entries })
}

/// Parses NetRestrict.
pub fn parse_netrestrict(text: &str) -> Parsed<NetRestrict> {
    Parsed::lines(text, parse_netrestrict_line, |networks| NetRestrict { networks })
}

fn parse_netinfo_line(content: &str) -> Result<NetInfoEntry, String> {
    let Some(forced) = content.strip_prefix(['f', 'F']) else {
        let (address, length) = parse_address(content)?;
        let network = length.map_or(Network::single(address), |length| Network::with_length(address, length));
        return Ok(NetInfoEntry::Own(network));
    };
    match parse_address(forced)? {
        (address, None | Some(32)) => Ok(NetInfoEntry::Forced(address)),
        (_, Some(_)) => Err(format!("`{content}` is a network; expected a single address after `f`")),
    }
}

fn parse_netrestrict_line(content: &str) -> Result<Network, String> {
    if content.starts_with(['f', 'F']) {
        return Err("`f` is valid in NetInfo only".into());
    }
    let (address, length) = parse_address(content)?;
    Ok(length.map_or(Network::with_wildcards(address), |length| Network::with_length(address, length)))
}

/// Parses the address and the length in the first word. If there is a length, trailing bytes may be missing.
fn parse_address(content: &str) -> Result<(Ipv4Addr, Option<u32>), String> {
    let word = content.split_whitespace().next().unwrap_or_default();
    let refusal =
        || format!("`{word}` is neither an IPv4 address like 192.0.2.1 nor a network like 192.0.2.0/24");
    let (digits, length) = match word.split_once('/') {
        Some((digits, length)) => {
            (digits, Some(parse_number(length).filter(|length| (1..=32).contains(length))))
        }
        None => (word, None),
    };
    let mut octets = [0; 4];
    let mut count = 0;
    for part in digits.strip_suffix('.').unwrap_or(digits).split('.') {
        let octet = parse_number(part).and_then(|number| u8::try_from(number).ok());
        *octets.get_mut(count).ok_or_else(refusal)? = octet.ok_or_else(refusal)?;
        count += 1;
    }
    match length {
        None if count == 4 => Ok((octets.into(), None)),
        Some(Some(length)) => Ok((octets.into(), Some(length))),
        _ => Err(refusal()),
    }
}

/// Parses a decimal number without a sign.
fn parse_number(text: &str) -> Option<u32> {
    let is_number = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    text.parse().ok().filter(|_| is_number)
}

impl NetRestrict {
    /// Returns whether `address` is left out.
    pub fn covers(&self, address: Ipv4Addr) -> bool {
        self.networks.iter().any(|network| network.contains(address))
    }
}

/// Returns the addresses to register for a machine with the addresses `have`: those in NetInfo, in its order,
/// or all except loopback if no line matches; without those that NetRestrict covers.
pub fn announced(have: &[Ipv4Addr], info: &NetInfo, restrict: &NetRestrict) -> Vec<Ipv4Addr> {
    let mut named = Vec::new();
    for entry in &info.entries {
        let address = match entry {
            NetInfoEntry::Own(network) => have.iter().copied().find(|&address| network.contains(address)),
            NetInfoEntry::Forced(address) => Some(*address),
        };
        named.extend(address.filter(|address| !named.contains(address)));
    }
    if named.is_empty() {
        named.extend(have.iter().filter(|address| !address.is_loopback()));
    }
    named.retain(|&address| !restrict.covers(address));
    named
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ips(text: &str) -> Vec<Ipv4Addr> {
        text.split_whitespace().map(|word| word.parse().unwrap()).collect()
    }

    fn skipped<T>(parsed: &Parsed<T>) -> Vec<usize> {
        parsed.skipped.iter().map(|error| error.line).collect()
    }

    #[test]
    fn announced_addresses_follow_both_files() {
        let have = ips("127.0.0.1 10.0.0.1 10.0.1.1");
        for (info, restrict, expected) in [
            ("", "", "10.0.0.1 10.0.1.1"),
            ("", "10.0.1.255\n", "10.0.0.1"),
            ("# ours\n10.0.1.1\nf 192.0.2.7\n", "", "10.0.1.1 192.0.2.7"),
            ("127.0.0.1\n", "", "127.0.0.1"),
            // A network selects the first address in it.
            ("10.0.0.0/8\n", "", "10.0.0.1"),
            ("10.0.1.0/24\n10.0.0.0/24\n10/8\n", "", "10.0.1.1 10.0.0.1"),
            ("", "10.0.0.0/23\n", ""),
            ("", "10.0.0.0/24 # inner\n", "10.0.1.1"),
            ("f 10.9.9.9\n10.0.0.1", "10.9/16\n", "10.0.0.1"),
            // No line matches, so all addresses are registered.
            ("192.0.2.1\n", "", "10.0.0.1 10.0.1.1"),
        ] {
            let (info, restrict) = (parse_netinfo(info), parse_netrestrict(restrict));
            assert_eq!((skipped(&info), skipped(&restrict)), (vec![], vec![]));
            let found = announced(&have, &info.value, &restrict.value);
            assert_eq!(found, ips(expected), "{info:?} {restrict:?}");
        }
    }

    #[test]
    fn only_the_first_word_of_a_line_counts() {
        let have = ips("10.99.0.72 172.20.0.1");
        let info = parse_netinfo("10.99.0.72 eth0\n\t172.20.0.1.\t# bridge\nF10.1.1.1 outside\n");
        let found = announced(&have, &info.value, &NetRestrict::default());
        assert_eq!(found, ips("10.99.0.72 172.20.0.1 10.1.1.1"));
        let restrict = parse_netrestrict("  172.16.0.0/12 containers\n");
        assert_eq!(announced(&have, &NetInfo::default(), &restrict.value), ips("10.99.0.72"));
        assert_eq!((skipped(&info), skipped(&restrict)), (vec![], vec![]));
    }

    #[test]
    fn broken_lines_are_passed_over_and_named() {
        let bad = [
            "10.0.0.1.2",
            "10.0.0",
            "10.0.0.256",
            "10.0.0.0/33",
            "10.0.0.0/0",
            "10.0.0.0/",
            "eth0",
            "10.0.0.+1",
        ];
        for line in bad {
            let parsed = parse_netinfo(&format!("\n{line}\n10.0.0.9\n"));
            assert_eq!((skipped(&parsed), parsed.value.entries.len()), (vec![2], 1), "{line}");
            let parsed = parse_netrestrict(&format!("\n{line}\n10.0.0.9\n"));
            assert_eq!(skipped(&parsed), [2], "{line}");
            assert!(parsed.value.covers(ips("10.0.0.9")[0]) && !parsed.value.covers(ips("10.0.0.1")[0]));
        }
        assert_eq!(skipped(&parse_netinfo("f 10.0.0.0/8\nf\nf 10.0.0.1/32\n")), [1, 2]);
        assert_eq!(skipped(&parse_netrestrict("f 10.0.0.1\n")), [1]);
    }
}
