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

    /// Returns the interface's addresses that [`set`](Self::set) has added, by this process or an earlier one.
    ///
    /// # Errors
    /// If the kernel does not answer.
    pub fn added(&self) -> io::Result<Vec<Ipv4Addr>> {
        let all = Netlink::open()?.addresses()?;
        let is_added = |facts: &AddressFacts| facts.index == self.own.index && facts.is_lent();
        Ok(all.into_iter().filter(is_added).map(|facts| facts.address).collect())
    }

    /// Adds an address (with the prefix length 32) for at least that many seconds, at most a minute, or extends its lifetime. The
    /// kernel removes it about a second later by itself.
    ///
    /// # Errors
    /// If the machine is configured to have the address itself, the kernel refuses it, or the interface is gone.
    pub fn set(&self, address: Ipv4Addr, seconds: u32) -> io::Result<()> {
        let mut netlink = Netlink::open()?;
        // A lifetime would end a configured address, too.
        if netlink.addresses()?.iter().any(|facts| facts.address == address && !facts.is_lent()) {
            return Err(io::Error::new(
                io::ErrorKind::AddrInUse,
                "it is an address that this machine is configured to have",
            ));
        }
        netlink.set(self.own.index, address, seconds)
    }

    /// Removes an address that [`set`](Self::set) has added; returns whether it was there. One that the machine is configured to
    /// have stays.
    ///
    /// # Errors
    /// If the kernel refuses it.
    pub fn remove(&self, address: Ipv4Addr) -> io::Result<bool> {
        if !self.added()?.contains(&address) {
            return Ok(false);
        }
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
    use std::process::Command;

    /// Set in the process of a test that runs in a network namespace of its own.
    const INSIDE: &str = "CELLAR_TEST_NAMESPACE";

    /// Adds interfaces and addresses as an administrator does, then those of a cluster.
    fn check_configured_addresses() {
        for words in [
            "link add v0 type veth peer name v1",
            "link set v0 up",
            "link set v1 up",
            "address add 192.0.2.1/24 dev v0",
            "address add 192.0.2.2/32 dev v0",
            "address add 192.0.2.3/32 dev v1",
            "address add 192.0.2.4/32 dev v0 valid_lft 3600 preferred_lft 3600",
        ] {
            assert!(Command::new("ip").args(words.split(' ')).status().unwrap().success(), "{words}");
        }
        let [own, host, other, dhcp, service] = [1, 2, 3, 4, 5].map(|last| Ipv4Addr::new(192, 0, 2, last));
        let interface = Interface::with_address(own).unwrap();
        for configured in [own, host, other, dhcp] {
            let error = interface.set(configured, 3).unwrap_err();
            assert!(error.to_string().contains("is configured to have"), "{error}");
            assert!(!interface.remove(configured).unwrap(), "{configured} is not removed");
        }
        assert!(!interface.remove(service).unwrap());
        interface.set(service, 30).unwrap();
        interface.set(service, 40).unwrap();
        assert_eq!(interface.added().unwrap(), [service]);
        assert!(interface.remove(service).unwrap());
        let all = Netlink::open().unwrap().addresses().unwrap();
        let mut left: Vec<Ipv4Addr> = all.into_iter().map(|facts| facts.address).collect();
        left.sort_unstable();
        assert_eq!(left, [own, host, other, dhcp]);
    }

    /// In a namespace of its own, so that nothing of the machine is changed. Does nothing where that is not allowed.
    #[test]
    fn configured_addresses_of_the_machine_stay() {
        if std::env::var_os(INSIDE).is_some() {
            return check_configured_addresses();
        }
        let unshare = |program: &str| {
            let mut command = Command::new("unshare");
            command.args(["--map-root-user", "--net", "--", program]);
            command
        };
        let is_allowed =
            unshare("ip").args(["link", "add", "v8", "type", "veth", "peer", "name", "v9"]).output();
        if !is_allowed.is_ok_and(|output| output.status.success()) {
            return;
        }
        let own = std::env::current_exe().unwrap();
        let mut command = unshare(own.to_str().unwrap());
        let name = "tests::configured_addresses_of_the_machine_stay";
        let output = command.args(["--exact", name]).env(INSIDE, "1").output().unwrap();
        let said = String::from_utf8_lossy(&output.stdout);
        assert!(output.status.success() && said.contains("1 passed"), "{said}");
    }

    #[test]
    fn interfaces_without_ethernet_and_absent_addresses_are_refused() {
        let loopback = Interface::with_address(Ipv4Addr::LOCALHOST).unwrap_err();
        assert!(matches!(&loopback, InterfaceError::NoEthernet(name) if name == "lo"), "{loopback}");
        let absent = Interface::with_address(ABSENT).unwrap_err();
        assert!(matches!(absent, InterfaceError::NoInterface(ABSENT)), "{absent}");
    }
}
