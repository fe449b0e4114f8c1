//! The messages of rtnetlink(7) that are needed: addresses are listed, added and removed, links are listed. Numbers are in
//! the machine's byte order, and attributes are padded to four bytes (linux/netlink.h, linux/rtnetlink.h, linux/if_addr.h,
//! linux/if_link.h).

use std::net::Ipv4Addr;

const HEADER_BYTES: usize = 16;
const ADDRESS_BYTES: usize = 8;
const LINK_BYTES: usize = 16;
const ATTRIBUTE_BYTES: usize = 4;

/// Kinds of messages.
const ERROR: u16 = 2;
const DONE: u16 = 3;
const NEW_LINK: u16 = 16;
const GET_LINK: u16 = 18;
const NEW_ADDRESS: u16 = 20;
const DELETE_ADDRESS: u16 = 21;
const GET_ADDRESS: u16 = 22;

/// Flags of requests: a request with an acknowledgement, for all objects, and that replaces or creates one.
const REQUEST: u16 = 0x1;
const ACKNOWLEDGE: u16 = 0x4;
const ALL: u16 = 0x300;
const REPLACE: u16 = 0x100;
const CREATE: u16 = 0x400;

/// Attributes of an address: the address of the peer, which is the own one here, the own one, and its lifetimes.
const IFA_ADDRESS: u16 = 1;
const IFA_LOCAL: u16 = 2;
const IFA_CACHEINFO: u16 = 6;

/// Attributes of a link.
const IFLA_ADDRESS: u16 = 1;
const IFLA_IFNAME: u16 = 3;

/// Flags of a link: loopback, and one without ARP.
const IFF_LOOPBACK: u32 = 0x8;
const IFF_NOARP: u32 = 0x80;

const AF_INET: u8 = 2;
const HOST_PREFIX: u8 = 32;

/// Longest lifetime of an address that is added. One with a longer lifetime is not taken for such an address.
pub(crate) const SECONDS_MAX: u32 = 60;

/// The lifetime of an address that stays.
const FOREVER: u32 = u32::MAX;

/// What the kernel answers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Reply {
    /// An address of an interface.
    Address(AddressFacts),
    /// An interface.
    Link(LinkFacts),
    /// The request was done, or refused with this error number.
    Ended(i32),
    /// Another message.
    Other,
}

/// An address of an interface.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct AddressFacts {
    pub(crate) index: u32,
    pub(crate) address: Ipv4Addr,
    /// Length of the network's prefix in bits.
    pub(crate) prefix: u8,
    /// The rest of its lifetime in seconds; `None` if it stays.
    pub(crate) seconds: Option<u32>,
}

impl AddressFacts {
    /// Whether it has the form of those that [`set_address`] adds: a network of its own, and an end that is near. What an
    /// administrator or a DHCP client has configured has a wider network, or a longer lifetime.
    pub(crate) fn is_lent(&self) -> bool {
        self.prefix == HOST_PREFIX && self.seconds.is_some_and(|seconds| seconds <= SECONDS_MAX)
    }

    /// Whether another address is in the same network.
    pub(crate) fn is_near(&self, other: Ipv4Addr) -> bool {
        let host_bits = u32::from(32_u8.saturating_sub(self.prefix));
        let differing = u32::from(self.address) ^ u32::from(other);
        u64::from(differing) >> host_bits == 0
    }
}

/// An interface.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct LinkFacts {
    pub(crate) index: u32,
    pub(crate) name: String,
    /// `None` if it is not Ethernet, or has no ARP.
    pub(crate) ethernet: Option<[u8; 6]>,
}

/// Asks for all IPv4 addresses.
pub(crate) fn list_addresses() -> Vec<u8> {
    message(GET_ADDRESS, ALL, &[AF_INET, 0, 0, 0, 0, 0, 0, 0])
}

/// Asks for all links.
pub(crate) fn list_links() -> Vec<u8> {
    message(GET_LINK, ALL, &[0; LINK_BYTES])
}

/// Adds an address with a lifetime in seconds, at most [`SECONDS_MAX`], or sets the lifetime of one that is there.
pub(crate) fn set_address(index: u32, address: Ipv4Addr, seconds: u32) -> Vec<u8> {
    let seconds = seconds.min(SECONDS_MAX);
    let mut body = address_body(index, address);
    // Preferred and valid lifetime, and two times that are ignored in requests.
    let lifetimes: Vec<u8> =
        [seconds, seconds, 0, 0].iter().flat_map(|number| number.to_ne_bytes()).collect();
    attribute(&mut body, IFA_CACHEINFO, &lifetimes);
    message(NEW_ADDRESS, ACKNOWLEDGE | REPLACE | CREATE, &body)
}

/// Removes an address with the prefix length 32. The kernel compares the length only if IFA_ADDRESS is there
/// (`inet_rtm_deladdr` in net/ipv4/devinet.c).
pub(crate) fn delete_address(index: u32, address: Ipv4Addr) -> Vec<u8> {
    message(DELETE_ADDRESS, ACKNOWLEDGE, &address_body(index, address))
}

fn address_body(index: u32, address: Ipv4Addr) -> Vec<u8> {
    // Family, prefix length, flags, scope (global).
    let mut body = vec![AF_INET, HOST_PREFIX, 0, 0];
    body.extend(index.to_ne_bytes());
    attribute(&mut body, IFA_LOCAL, &address.octets());
    attribute(&mut body, IFA_ADDRESS, &address.octets());
    body
}

fn attribute(body: &mut Vec<u8>, kind: u16, value: &[u8]) {
    let bytes = u16::try_from(ATTRIBUTE_BYTES + value.len()).expect("values are short");
    body.extend(bytes.to_ne_bytes());
    body.extend(kind.to_ne_bytes());
    body.extend(value);
    body.resize(body.len().next_multiple_of(4), 0);
}

fn message(kind: u16, flags: u16, body: &[u8]) -> Vec<u8> {
    let bytes = u32::try_from(HEADER_BYTES + body.len()).expect("messages are short");
    let mut message = bytes.to_ne_bytes().to_vec();
    message.extend(kind.to_ne_bytes());
    message.extend((REQUEST | flags).to_ne_bytes());
    // A socket has one request at a time, so that its number does not matter; the kernel fills in the port.
    message.extend([0; 8]);
    message.extend(body);
    message
}

/// Parses the messages of a datagram from the kernel. Ends at the first that is not whole.
pub(crate) fn replies(mut datagram: &[u8]) -> Vec<Reply> {
    let mut all = Vec::new();
    while let (Some(bytes), Some(kind)) = (number(datagram, 0), short(datagram, 4)) {
        let Some(body) = usize::try_from(bytes).ok().and_then(|end| datagram.get(HEADER_BYTES..end)) else {
            break;
        };
        all.push(reply(kind, body).unwrap_or(Reply::Other));
        let next = (HEADER_BYTES + body.len()).next_multiple_of(4);
        datagram = datagram.get(next..).unwrap_or_default();
    }
    all
}

fn reply(kind: u16, body: &[u8]) -> Option<Reply> {
    match kind {
        // The error number is negative, and 0 for success.
        ERROR => Some(Reply::Ended(number(body, 0)?.cast_signed().saturating_neg())),
        DONE => Some(Reply::Ended(0)),
        NEW_ADDRESS => {
            let found = body.get(ADDRESS_BYTES..)?;
            let of = |wanted| attributes(found).find(move |(kind, _)| *kind == wanted);
            let octets: [u8; 4] = of(IFA_LOCAL)?.1.try_into().ok()?;
            let (index, prefix) = (number(body, 4)?, *body.get(1)?);
            // The preferred lifetime, then the valid one.
            let valid = of(IFA_CACHEINFO).and_then(|(_, lifetimes)| number(lifetimes, 4));
            let seconds = valid.filter(|seconds| *seconds != FOREVER);
            Some(Reply::Address(AddressFacts { index, address: octets.into(), prefix, seconds }))
        }
        NEW_LINK => link(body).map(Reply::Link),
        _ => None,
    }
}

fn link(body: &[u8]) -> Option<LinkFacts> {
    let (index, flags) = (number(body, 4)?, number(body, 8)?);
    let of = |wanted| {
        attributes(body.get(LINK_BYTES..).unwrap_or_default()).find(move |(kind, _)| *kind == wanted)
    };
    let name = std::str::from_utf8(of(IFLA_IFNAME)?.1).ok()?.trim_end_matches('\0').to_owned();
    let ethernet = of(IFLA_ADDRESS).and_then(|(_, value)| value.try_into().ok());
    Some(LinkFacts { index, name, ethernet: ethernet.filter(|_| flags & (IFF_LOOPBACK | IFF_NOARP) == 0) })
}

/// Returns the kinds and values of attributes. Ends at the first that is not whole.
fn attributes(mut bytes: &[u8]) -> impl Iterator<Item = (u16, &[u8])> {
    std::iter::from_fn(move || {
        let (length, kind) = (usize::from(short(bytes, 0)?), short(bytes, 2)?);
        let value = bytes.get(ATTRIBUTE_BYTES..length)?;
        bytes = bytes.get(length.next_multiple_of(4)..).unwrap_or_default();
        Some((kind, value))
    })
}

fn number(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_ne_bytes(*bytes.get(at..)?.first_chunk()?))
}

fn short(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_ne_bytes(*bytes.get(at..)?.first_chunk()?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const ADDRESS: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 11);

    #[test]
    fn requests_have_the_kernels_form() {
        let set = set_address(7, ADDRESS, 3);
        assert_eq!((number(&set, 0), short(&set, 4), short(&set, 6)), (Some(60), Some(20), Some(0x505)));
        assert_eq!(set.len(), 60);
        assert_eq!((&set[16..20], number(&set, 20)), (&[2, 32, 0, 0][..], Some(7)));
        let found: Vec<(u16, &[u8])> = attributes(&set[24..]).collect();
        let lifetimes = [3_u32, 3, 0, 0].map(u32::to_ne_bytes).concat();
        assert_eq!(found, [(2, &ADDRESS.octets()[..]), (1, &ADDRESS.octets()[..]), (6, &lifetimes[..])]);
        let delete = delete_address(7, ADDRESS);
        assert_eq!((delete.len(), short(&delete, 4), short(&delete, 6)), (40, Some(21), Some(0x5)));
        assert_eq!(delete[16..], set[16..40], "it names the prefix length 32");
        assert_eq!((short(&list_addresses(), 6), list_links().len()), (Some(0x301), 32));
    }

    #[test]
    fn answers_are_parsed() {
        let mut link_body = vec![0; LINK_BYTES];
        link_body[4..8].copy_from_slice(&3_u32.to_ne_bytes());
        attribute(&mut link_body, IFLA_IFNAME, b"eth0\0");
        attribute(&mut link_body, IFLA_ADDRESS, &[2, 0, 0, 0, 0, 7]);
        let mut loopback = link_body.clone();
        loopback[8..12].copy_from_slice(&IFF_LOOPBACK.to_ne_bytes());
        let mut datagram = message(NEW_LINK, 0, &link_body);
        datagram.extend(message(NEW_ADDRESS, 0, &address_body(3, ADDRESS)));
        datagram.extend(message(NEW_LINK, 0, &loopback));
        datagram.extend(message(ERROR, 0, &(-99_i32).to_ne_bytes()));
        datagram.extend(message(77, 0, &[]));
        datagram.extend(message(DONE, 0, &[0; 4]));
        let ethernet = Some([2, 0, 0, 0, 0, 7]);
        let link = |ethernet| Reply::Link(LinkFacts { index: 3, name: "eth0".into(), ethernet });
        let address = Reply::Address(AddressFacts { index: 3, address: ADDRESS, prefix: 32, seconds: None });
        assert_eq!(
            replies(&datagram),
            [link(ethernet), address, link(None), Reply::Ended(99), Reply::Other, Reply::Ended(0)]
        );
    }

    #[test]
    fn configured_addresses_differ_from_added_ones() {
        let is_lent = |prefix: u8, valid: Option<u32>| {
            let mut body = address_body(3, ADDRESS);
            body[1] = prefix;
            let lifetimes = valid.map(|valid| [1, valid, 0, 0].map(u32::to_ne_bytes).concat());
            if let Some(lifetimes) = lifetimes {
                attribute(&mut body, IFA_CACHEINFO, &lifetimes);
            }
            let found = replies(&message(NEW_ADDRESS, 0, &body));
            let [Reply::Address(facts)] = &found[..] else { panic!("{found:?}") };
            facts.is_lent()
        };
        assert!(is_lent(32, Some(0)) && is_lent(32, Some(SECONDS_MAX)));
        assert!(!is_lent(24, Some(3)), "it has a network");
        assert!(!is_lent(32, Some(SECONDS_MAX + 1)), "from a DHCP server");
        assert!(!is_lent(32, Some(FOREVER)) && !is_lent(32, None), "it stays");
        let set = set_address(7, ADDRESS, 1000);
        let lifetimes = attributes(&set[24..]).find(|(kind, _)| *kind == IFA_CACHEINFO).unwrap().1;
        assert_eq!(number(lifetimes, 4), Some(SECONDS_MAX), "it is known again");
    }

    #[test]
    fn networks_are_compared() {
        let near = |prefix, other: [u8; 4]| {
            AddressFacts { index: 1, address: ADDRESS, prefix, seconds: None }.is_near(other.into())
        };
        assert!(near(24, [192, 0, 2, 255]) && !near(24, [192, 0, 3, 11]));
        assert!(near(32, [192, 0, 2, 11]) && !near(32, [192, 0, 2, 10]));
        assert!(near(0, [10, 0, 0, 1]) && near(8, [192, 255, 0, 1]));
    }

    proptest! {
        #[test]
        fn arbitrary_bytes_are_survived(bytes in proptest::collection::vec(any::<u8>(), 0..200), kind in 0_u16..24) {
            let whole = message(kind, 0, &bytes);
            prop_assert_eq!(replies(&whole).len(), 1);
            prop_assert!(replies(&bytes).len() <= bytes.len() / HEADER_BYTES);
        }
    }
}
