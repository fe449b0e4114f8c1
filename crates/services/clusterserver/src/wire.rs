//! Conversions between messages of `idl/cluster.idl` and this project's types.

use afs_idl::cluster::{self, refusal};
use base::{AbortCode, Caller, Connection, Identity, Principal, SecurityLevel};
use cluster_proto::{Incarnation, NodeName, PartitionName};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use xdr::XdrString;

const MALFORMED: AbortCode = AbortCode::RXGEN_SS_UNMARSHAL;

/// Returns a node's membership as it is sent.
pub fn node((name, incarnation): &(NodeName, Incarnation)) -> cluster::Node {
    cluster::Node {
        name: name.as_str().into(),
        nonce_high: (incarnation.nonce >> 64) as u64,
        nonce_low: incarnation.nonce as u64,
        membership: incarnation.count,
    }
}

pub(crate) fn parse_node(node: &cluster::Node) -> Result<(NodeName, Incarnation), AbortCode> {
    let name = text(&node.name)?.parse().map_err(|_| MALFORMED)?;
    let nonce = u128::from(node.nonce_high) << 64 | u128::from(node.nonce_low);
    Ok((name, Incarnation { nonce, count: node.membership }))
}

pub(crate) fn partition(name: &XdrString) -> Result<PartitionName, AbortCode> {
    text(name)?.parse().map_err(|_| MALFORMED)
}

fn text(text: &XdrString) -> Result<&str, AbortCode> {
    text.as_str().ok_or(MALFORMED)
}

/// Returns a part of a principal's name. As in tickets, it has no letters that would make names ambiguous.
fn part_of_name(part: &XdrString) -> Result<String, AbortCode> {
    let part = text(part)?;
    let is_ambiguous = part.chars().any(|letter| letter.is_control() || letter == '@');
    if is_ambiguous { Err(MALFORMED) } else { Ok(part.to_owned()) }
}

pub(crate) fn ip(ip: IpAddr) -> [u8; 16] {
    match ip {
        IpAddr::V4(ip) => ip.to_ipv6_mapped().octets(),
        IpAddr::V6(ip) => ip.octets(),
    }
}

/// Returns the address of a client. None has an address of several machines, to which its messages would be sent.
pub(crate) fn parse_address(ip: [u8; 16], port: u32) -> Result<SocketAddr, AbortCode> {
    let port = u16::try_from(port).ok().filter(|port| *port != 0).ok_or(MALFORMED)?;
    let ip = Ipv6Addr::from(ip).to_canonical();
    let is_broadcast = ip == IpAddr::V4(Ipv4Addr::BROADCAST);
    if ip.is_unspecified() || ip.is_multicast() || is_broadcast {
        return Err(MALFORMED);
    }
    Ok(SocketAddr::new(ip, port))
}

pub(crate) fn caller(caller: &Caller) -> cluster::Caller {
    let none = Principal { name: String::new(), instance: String::new(), realm: String::new() };
    let (is_known, principal) = match &caller.identity {
        Identity::Anonymous => (0, &none),
        Identity::Known(principal) => (1, principal),
    };
    cluster::Caller {
        is_known,
        name: principal.name.as_str().into(),
        instance: principal.instance.as_str().into(),
        realm: principal.realm.as_str().into(),
        level: caller.level as u32,
        address: ip(caller.peer.ip()),
        port: caller.peer.port().into(),
        local: ip(caller.local),
        connection: caller.connection.number(),
    }
}

/// Returns the caller of a forwarded call, with a connection of its own.
pub(crate) fn parse_caller(caller: &cluster::Caller) -> Result<Caller, AbortCode> {
    let principal = Principal {
        name: part_of_name(&caller.name)?,
        instance: part_of_name(&caller.instance)?,
        realm: part_of_name(&caller.realm)?,
    };
    let is_empty = [&principal.name, &principal.instance, &principal.realm].into_iter().all(String::is_empty);
    let identity = match caller.is_known {
        0 if is_empty => Identity::Anonymous,
        1 if !principal.name.is_empty() => Identity::Known(principal),
        _ => return Err(MALFORMED),
    };
    let level = match caller.level {
        0 => SecurityLevel::Clear,
        1 => SecurityLevel::Authenticated,
        2 => SecurityLevel::Encrypted,
        _ => return Err(MALFORMED),
    };
    let peer = parse_address(caller.address, caller.port)?;
    let local = Ipv6Addr::from(caller.local).to_canonical();
    Ok(Caller { identity, level, peer, local, connection: Connection::new() })
}

/// Whether a code is one of Rx, which a node that has died or restarts causes. These are the codes that the protocol between
/// nodes shields, so they are listed here: nodes of several versions must agree on them.
pub(crate) fn is_of_rx(code: AbortCode) -> bool {
    matches!(code.0, -9..=-1 | -100)
}

/// Returns the code by which an owner reports the result of a call.
pub(crate) fn shielded(code: AbortCode) -> AbortCode {
    if is_of_rx(code) { AbortCode(refusal::OF_RX + code.0) } else { code }
}

/// Returns the result of a call that an owner has reported.
pub(crate) fn unshielded(code: AbortCode) -> AbortCode {
    let result = AbortCode(code.0.wrapping_sub(refusal::OF_RX));
    if is_of_rx(result) { result } else { code }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn example(identity: Identity) -> Caller {
        Caller {
            identity,
            level: SecurityLevel::Authenticated,
            peer: "192.0.2.7:7001".parse().unwrap(),
            local: "2001:db8::1".parse().unwrap(),
            connection: Connection::new(),
        }
    }

    #[test]
    fn callers_arrive_as_they_were_sent() {
        let ann = Principal { name: "ann".into(), instance: "admin".into(), realm: "T.EXAMPLE".into() };
        for identity in [Identity::Anonymous, Identity::Known(ann)] {
            let sent = example(identity);
            let got = parse_caller(&caller(&sent)).unwrap();
            assert_eq!(
                (got.identity, got.level, got.peer, got.local),
                (sent.identity, sent.level, sent.peer, sent.local)
            );
        }
    }

    #[test]
    fn callers_without_meaning_are_refused() {
        let good = caller(&example(Identity::Anonymous));
        assert!(parse_caller(&good).is_ok());
        for bad in [
            cluster::Caller { name: "ann".into(), ..good.clone() },
            cluster::Caller { realm: "T".into(), ..good.clone() },
            cluster::Caller { is_known: 1, ..good.clone() },
            cluster::Caller { is_known: 2, name: "ann".into(), ..good.clone() },
            cluster::Caller { is_known: 1, name: XdrString(vec![0xff]), ..good.clone() },
            cluster::Caller { is_known: 1, name: "ann@T".into(), ..good.clone() },
            cluster::Caller { is_known: 1, name: "ann".into(), realm: "T\nT".into(), ..good.clone() },
            cluster::Caller { level: 3, ..good.clone() },
            cluster::Caller { port: 0, ..good.clone() },
            cluster::Caller { port: 65_536, ..good.clone() },
        ] {
            assert_eq!(parse_caller(&bad).map(drop), Err(MALFORMED), "{bad:?}");
        }
    }

    #[test]
    fn clients_have_addresses_of_one_machine() {
        let parse = |text: &str| parse_address(ip(text.parse().unwrap()), 7001);
        for good in ["192.0.2.255", "127.0.0.1", "2001:db8::1", "fe80::1"] {
            assert_eq!(parse(good).unwrap().ip(), good.parse::<IpAddr>().unwrap());
        }
        for bad in ["0.0.0.0", "::", "224.0.0.1", "239.255.255.255", "ff02::1", "255.255.255.255"] {
            assert_eq!(parse(bad), Err(MALFORMED), "{bad}");
        }
    }

    #[test]
    fn results_arrive_as_they_were_reported() {
        for code in [-1, -9, -100, -10, -450, 5, 103, i32::MAX, i32::MIN].map(AbortCode) {
            assert_eq!(unshielded(shielded(code)), code);
            assert!(!is_of_rx(shielded(code)), "{code}");
        }
        assert_eq!(shielded(AbortCode::VNOVOL), AbortCode::VNOVOL);
    }

    #[test]
    fn nodes_arrive_as_they_were_sent() {
        let sent = ("a.example".parse().unwrap(), Incarnation { nonce: u128::MAX - 7, count: 9 });
        assert_eq!(parse_node(&node(&sent)), Ok(sent.clone()));
        let bad = cluster::Node { name: "A/B".into(), ..node(&sent) };
        assert_eq!(parse_node(&bad), Err(MALFORMED));
    }
}
