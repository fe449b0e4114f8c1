//! IPv4 addresses of the machine's network interfaces, for addresses that move between machines.
//!
//! An [`Interface`] adds an address with a lifetime, after which the kernel removes it by itself, announces it to the
//! network, and removes it. Messages to the kernel are those of rtnetlink(7).

mod announcement;
mod message;
mod netlink;

use announcement::{ARP_KINDS, frame};
use message::{AddressFacts, LinkFacts};
use netlink::Netlink;
use rx::Frames;
use std::io;
use std::net::Ipv4Addr;
use thiserror::Error;

/// An address that no machine has, by whose removal it is tested what the kernel allows.
const ABSENT: Ipv4Addr = Ipv4Addr::new(0, 0, 0, 1);

/// Why addresses of an interface cannot be managed.
#[derive(Debug, Error)]
pub enum InterfaceError {
    /// No interface has the address.
    #[error("no network interface has the address {0}")]
    NoInterface(Ipv4Addr),
    /// The interface has no Ethernet address, and so no ARP.
    #[error("the interface {0} has no Ethernet address, so that addresses cannot be announced there")]
    NoEthernet(String),
    /// The process may not change addresses.
    #[error(
        "the server may not add addresses to the interface {interface} (it needs CAP_NET_ADMIN): {error}"
    )]
    Forbidden {
        /// The interface.
        interface: String,
        /// The kernel's answer.
        error: io::Error,
    },
    /// The process may not send announcements.
    #[error(
        "the server may not announce addresses on the interface {interface} (it needs CAP_NET_RAW): {error}"
    )]
    Silent {
        /// The interface.
        interface: String,
        /// The kernel's answer.
        error: io::Error,
    },
    /// The kernel does not answer as expected.
    #[error("cannot read the network interfaces (a sandbox has to allow AF_NETLINK): {0}")]
    Netlink(#[from] io::Error),
}

/// A network interface whose addresses are managed.
#[derive(Debug)]
pub struct Interface {
    name: String,
    own: AddressFacts,
    ethernet: [u8; 6],
    frames: Frames,
}

impl Interface {
    /// Returns the interface that has an address, if this process may manage its addresses.
    ///
    /// # Errors
    /// What is missing.
    pub fn with_address(address: Ipv4Addr) -> Result<Interface, InterfaceError> {
        let mut netlink = Netlink::open()?;
        let found = netlink.addresses()?.into_iter().find(|facts| facts.address == address);
        let own = found.ok_or(InterfaceError::NoInterface(address))?;
        let index = own.index;
        let LinkFacts { name, ethernet, .. } = netlink
            .links()?
            .into_iter()
            .find(|facts| facts.index == index)
            .ok_or(InterfaceError::NoInterface(address))?;
        let Some(ethernet) = ethernet else { return Err(InterfaceError::NoEthernet(name)) };
        if let Err(error) = netlink.remove(index, ABSENT) {
            return Err(InterfaceError::Forbidden { interface: name, error });
        }
        match Frames::open(&name) {
            Ok(frames) => Ok(Interface { name, own, ethernet, frames }),
            Err(error) => Err(InterfaceError::Silent { interface: name, error }),
        }
    }

    /// Returns the interface's name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Whether an address is in the network of the address by which the interface was found.
    pub fn is_near(&self, address: Ipv4Addr) -> bool {
        self.own.is_near(address)
    }

    /// Returns the interface's addresses.
    ///
    /// # Errors
    /// If the kernel does not answer.
    pub fn addresses(&self) -> io::Result<Vec<Ipv4Addr>> {
        let all = Netlink::open()?.addresses()?;
        let is_own = |facts: &AddressFacts| facts.index == self.own.index;
        Ok(all.into_iter().filter(is_own).map(|facts| facts.address).collect())
    }

    /// Adds an address (with the prefix length 32) for at least that many seconds, or extends its lifetime. The kernel removes it
    /// about a second later by itself.
    ///
    /// # Errors
    /// If the kernel refuses it, or the interface is gone.
    pub fn set(&self, address: Ipv4Addr, seconds: u32) -> io::Result<()> {
        Netlink::open()?.set(self.own.index, address, seconds)
    }

    /// Removes an address; returns whether it was there.
    ///
    /// # Errors
    /// If the kernel refuses it.
    pub fn remove(&self, address: Ipv4Addr) -> io::Result<bool> {
        Netlink::open()?.remove(self.own.index, address)
    }

    /// Announces that an address is at this interface (gratuitous ARP, RFC 5227), so that other hosts of the network correct their
    /// tables. Sends a request and a reply, since some devices follow only one of them.
    ///
    /// # Errors
    /// If the interface is down or gone.
    pub fn announce(&self, address: Ipv4Addr) -> io::Result<()> {
        ARP_KINDS.into_iter().try_for_each(|kind| self.frames.send(&frame(kind, self.ethernet, address)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn interfaces_without_ethernet_and_absent_addresses_are_refused() {
        let loopback = Interface::with_address(Ipv4Addr::LOCALHOST).unwrap_err();
        assert!(matches!(&loopback, InterfaceError::NoEthernet(name) if name == "lo"), "{loopback}");
        let absent = Interface::with_address(ABSENT).unwrap_err();
        assert!(matches!(absent, InterfaceError::NoInterface(ABSENT)), "{absent}");
    }
}
