//! Selection and order of the machine's addresses that the file server registers.

use afs_format::netinfo::{NetInfo, NetRestrict, announced};
use anyhow::{Context, Result};
use base::limits::SERVER_ADDRESSES_MAX;
use std::collections::BTreeSet;
use std::fmt;
use std::net::{IpAddr, Ipv4Addr, UdpSocket};

/// Name prefixes of interfaces between a machine and its own containers and virtual machines.
const CONTAINER_INTERFACES: [&str; 12] = [
    "docker", "virbr", "veth", "podman", "cni", "lxcbr", "lxdbr", "incusbr", "flannel", "cali", "vnet",
    "kube-",
];

/// Number of digits after `br-` in the names of Docker's networks.
const DOCKER_NETWORK_DIGITS: usize = 12;

/// Rules for selecting addresses.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AnnounceRules {
    /// Contents of NetInfo.
    pub info: NetInfo,
    /// Contents of NetRestrict.
    pub restrict: NetRestrict,
    /// Whether private addresses of container bridges are registered as well.
    pub containers: bool,
    /// The cell's database servers; the address on the route to one of them comes first.
    pub databases: Vec<Ipv4Addr>,
}

/// Selected and rejected addresses.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Chosen {
    /// Addresses to register, at most [`SERVER_ADDRESSES_MAX`].
    pub addresses: Vec<Ipv4Addr>,
    /// Rejected addresses, each with the reason.
    pub left_out: Vec<(Ipv4Addr, Reason)>,
}

/// Why an address is not registered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reason {
    /// The named interface leads to containers of this machine.
    Containers(String),
    /// There are too many addresses.
    Beyond,
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Reason::Containers(interface) => write!(
                f,
                "{interface} is a bridge to containers on this machine; to register it, list the address in \
                NetInfo or set server.announce_containers"
            ),
            Reason::Beyond => {
                write!(
                    f,
                    "a server has at most {SERVER_ADDRESSES_MAX} addresses; list those to register in NetInfo"
                )
            }
        }
    }
}

impl AnnounceRules {
    /// Selects from the machine's current addresses. If only loopback is left, loopback is registered:
    /// Cellar's own client can use it, OpenAFS's cannot.
    pub fn choose(&self) -> Result<Chosen> {
        let have = machine_addresses().context("cannot list the machine's addresses")?;
        let routes = std::fs::read_to_string("/proc/net/route").unwrap_or_default();
        let mut chosen = self.choose_from(&have, &routes, &sources(&self.databases));
        if chosen.addresses.is_empty() {
            chosen.addresses.push(Ipv4Addr::LOCALHOST);
        }
        Ok(chosen)
    }

    /// Selects from given addresses, the text of /proc/net/route, and the addresses on the routes to database
    /// servers.
    fn choose_from(&self, have: &[Ipv4Addr], routes: &str, first: &[Ipv4Addr]) -> Chosen {
        let mut left_out = Vec::new();
        let mut addresses = announced(have, &self.info, &self.restrict);
        let all = addresses.clone();
        let is_automatic = !self.containers && self.info.entries.is_empty();
        addresses.retain(|address| {
            let interface = interface_of(routes, *address).filter(|name| is_container_interface(name));
            let Some(interface) = interface.filter(|_| is_automatic && address.is_private()) else {
                return true;
            };
            if first.contains(address) {
                return true;
            }
            left_out.push((*address, Reason::Containers(interface.to_owned())));
            false
        });
        if addresses.is_empty() {
            (addresses, left_out) = (all, Vec::new());
        }
        addresses.sort_by_key(|address| first.iter().position(|it| it == address).unwrap_or(usize::MAX));
        let beyond = addresses.split_off(addresses.len().min(SERVER_ADDRESSES_MAX));
        left_out.extend(beyond.into_iter().map(|address| (address, Reason::Beyond)));
        Chosen { addresses, left_out }
    }
}

/// Returns whether an interface, judging by its name, leads only to containers or virtual machines of this
/// machine.
fn is_container_interface(name: &str) -> bool {
    let is_docker_network = name.strip_prefix("br-").is_some_and(|rest| {
        rest.len() == DOCKER_NETWORK_DIGITS && rest.bytes().all(|byte| byte.is_ascii_hexdigit())
    });
    is_docker_network || CONTAINER_INTERFACES.iter().any(|start| name.starts_with(start))
}

/// Returns the interface whose network contains an address, from the text of /proc/net/route (destination and
/// mask are hexadecimal in the machine's byte order).
fn interface_of(routes: &str, address: Ipv4Addr) -> Option<&str> {
    let number =
        |word: &str| u32::from_str_radix(word, 16).ok().map(|word| u32::from_be_bytes(word.to_ne_bytes()));
    let network = |line: &'_ str| -> Option<(u32, u32)> {
        let words: Vec<&str> = line.split_whitespace().collect();
        let (destination, gateway, mask) =
            (number(words.get(1)?)?, number(words.get(2)?)?, number(words.get(7)?)?);
        (gateway == 0 && mask != 0).then_some((destination, mask))
    };
    routes
        .lines()
        .filter_map(|line| Some((line.split_whitespace().next()?, network(line)?)))
        .filter(|(_, (destination, mask))| u32::from(address) & mask == *destination)
        .max_by_key(|(_, (_, mask))| *mask)
        .map(|(name, _)| name)
}

/// Returns the source addresses of packets to the database servers.
fn sources(databases: &[Ipv4Addr]) -> Vec<Ipv4Addr> {
    let source = |server: &Ipv4Addr| {
        let socket = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0)).ok()?;
        // Connecting a UDP socket sends nothing.
        socket.connect((*server, 7003)).ok()?;
        match socket.local_addr().ok()?.ip() {
            IpAddr::V4(address) => Some(address),
            IpAddr::V6(_) => None,
        }
    };
    databases.iter().filter_map(source).collect()
}

/// Returns the IPv4 addresses of this network namespace, from the kernel's table of local routes.
pub fn machine_addresses() -> std::io::Result<Vec<Ipv4Addr>> {
    let trie = std::fs::read_to_string("/proc/net/fib_trie")?;
    Ok(local_addresses(&trie))
}

/// Returns the host addresses (`/32 host LOCAL`) in the text of /proc/net/fib_trie.
fn local_addresses(trie: &str) -> Vec<Ipv4Addr> {
    let mut found = BTreeSet::new();
    let mut last = None;
    for line in trie.lines().map(str::trim) {
        if let Some(address) = line.strip_prefix("|-- ") {
            last = address.parse::<Ipv4Addr>().ok();
        } else if line == "/32 host LOCAL" {
            found.extend(last);
        }
    }
    found.into_iter().collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use afs_format::netinfo::{parse_netinfo, parse_netrestrict};

    const ROUTES: &str = "Iface\tDestination\tGateway \
        \tFlags\tRefCnt\tUse\tMetric\tMask\t\tMTU\tWindow\tIRTT\neth0\t00000000\t0100630A\t0003\t0\t0\t0\t00000000\t0\t0\t0\neth0\t0000630A\t00000000\t0001\t0\t0\t0\t00FFFFFF\t0\t0\t0\ndocker0\t000011AC\t00000000\t0001\t0\t0\t0\t0000FFFF\t0\t0\t0\n";

    fn ips(text: &str) -> Vec<Ipv4Addr> {
        text.split_whitespace().map(|word| word.parse().unwrap()).collect()
    }

    #[test]
    fn local_addresses_are_found_in_the_routing_table() {
        let trie = "Main:\n  +-- 0.0.0.0/0 3 0 5\n     |-- 10.99.0.0\n        /24 link UNICAST\n     |-- \
            10.99.0.1\n        /32 host LOCAL\n     |-- 127.0.0.1\n        /32 host LOCAL\n     |-- \
            10.99.0.255\n        /32 link BROADCAST\n";
        assert_eq!(local_addresses(trie), [Ipv4Addr::new(10, 99, 0, 1), Ipv4Addr::LOCALHOST]);
    }

    #[test]
    fn interfaces_are_found_by_their_networks() {
        let of = |text: &str| interface_of(ROUTES, text.parse().unwrap());
        assert_eq!(
            [of("10.99.0.7"), of("172.17.0.1"), of("192.0.2.1")],
            [Some("eth0"), Some("docker0"), None]
        );
        for (name, expected) in
            [("docker0", true), ("br-0123456789ab", true), ("virbr0", true), ("veth12", true)]
                .into_iter()
                .chain([
                    ("br0", false),
                    ("br-ex", false),
                    ("br-lan", false),
                    ("eth0", false),
                    ("vmbr0", false),
                ])
        {
            assert_eq!(is_container_interface(name), expected, "{name}");
        }
    }

    #[test]
    fn bridges_to_containers_are_left_out_unless_wanted() {
        let have = ips("10.99.0.7 127.0.0.1 172.17.0.1");
        let choose = |rules: &AnnounceRules, first: &str| rules.choose_from(&have, ROUTES, &ips(first));
        let rules = AnnounceRules::default();
        let chosen = choose(&rules, "");
        assert_eq!(chosen.addresses, ips("10.99.0.7"));
        assert_eq!(chosen.left_out, [(ips("172.17.0.1")[0], Reason::Containers("docker0".into()))]);
        assert_eq!(
            choose(&rules, "172.17.0.1").addresses,
            ips("172.17.0.1 10.99.0.7"),
            "the databases are there"
        );
        let all = AnnounceRules { containers: true, ..rules.clone() };
        assert_eq!(choose(&all, "").addresses, ips("10.99.0.7 172.17.0.1"));
        let named = AnnounceRules { info: parse_netinfo("172.17.0.1\n").value, ..rules.clone() };
        assert_eq!(choose(&named, "").addresses, ips("172.17.0.1"));
        let nothing_else = AnnounceRules { restrict: parse_netrestrict("10.0.0.0/8\n").value, ..rules };
        assert_eq!(choose(&nothing_else, "").addresses, ips("172.17.0.1"));
    }

    #[test]
    fn the_way_to_the_databases_comes_first_and_the_rest_is_named() {
        let mut have: Vec<Ipv4Addr> = (1..=20).map(|last| Ipv4Addr::new(10, 0, last, 1)).collect();
        have.push(ips("192.0.2.7")[0]);
        let chosen = AnnounceRules::default().choose_from(&have, ROUTES, &ips("192.0.2.7"));
        assert_eq!((chosen.addresses[0], chosen.addresses[1]), (have[20], have[0]));
        assert_eq!((chosen.addresses.len(), chosen.left_out.len()), (SERVER_ADDRESSES_MAX, 6));
        assert_eq!(chosen.left_out[0], (have[14], Reason::Beyond));
    }
}
