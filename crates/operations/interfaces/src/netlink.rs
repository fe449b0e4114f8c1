//! A socket to the kernel's tables of interfaces and addresses.

use crate::message::{self, AddressFacts, LinkFacts, Reply};
use rustix::io::Errno;
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, recv, send, socket_with};
use std::io;
use std::net::Ipv4Addr;
use std::os::fd::OwnedFd;

/// Largest datagram of the kernel.
const BUFFER_BYTES: usize = 65_536;

/// Greatest number of datagrams of one answer: a machine has fewer addresses than fit into them.
const DATAGRAMS_MAX: usize = 10_000;

/// The kernel answers each request at once, before `send` returns.
pub(crate) struct Netlink(OwnedFd);

impl Netlink {
    /// Opens a socket.
    pub(crate) fn open() -> io::Result<Netlink> {
        // Protocol 0 is NETLINK_ROUTE.
        Ok(Netlink(socket_with(AddressFamily::NETLINK, SocketType::RAW, SocketFlags::CLOEXEC, None)?))
    }

    /// Returns all IPv4 addresses of this network namespace.
    pub(crate) fn addresses(&mut self) -> io::Result<Vec<AddressFacts>> {
        let replies = self.ask(&message::list_addresses())?;
        Ok(replies
            .into_iter()
            .filter_map(|reply| if let Reply::Address(facts) = reply { Some(facts) } else { None })
            .collect())
    }

    /// Returns all interfaces of this network namespace.
    pub(crate) fn links(&mut self) -> io::Result<Vec<LinkFacts>> {
        let replies = self.ask(&message::list_links())?;
        Ok(replies
            .into_iter()
            .filter_map(|reply| if let Reply::Link(facts) = reply { Some(facts) } else { None })
            .collect())
    }

    /// Adds an address for some seconds, or extends its lifetime.
    pub(crate) fn set(&mut self, index: u32, address: Ipv4Addr, seconds: u32) -> io::Result<()> {
        self.ask(&message::set_address(index, address, seconds)).map(drop)
    }

    /// Removes an address; returns whether it was there.
    pub(crate) fn remove(&mut self, index: u32, address: Ipv4Addr) -> io::Result<bool> {
        match self.ask(&message::delete_address(index, address)) {
            Ok(_) => Ok(true),
            Err(error) if Errno::from_io_error(&error) == Some(Errno::ADDRNOTAVAIL) => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Sends a request, and returns what is answered before its end.
    fn ask(&mut self, request: &[u8]) -> io::Result<Vec<Reply>> {
        send(&self.0, request, SendFlags::empty())?;
        let (mut buffer, mut all) = (vec![0; BUFFER_BYTES], Vec::new());
        for _ in 0..DATAGRAMS_MAX {
            let (length, _) = recv(&self.0, &mut buffer[..], RecvFlags::empty())?;
            for reply in message::replies(&buffer[..length]) {
                match reply {
                    Reply::Ended(0) => return Ok(all),
                    Reply::Ended(number) => return Err(io::Error::from_raw_os_error(number)),
                    reply => all.push(reply),
                }
            }
        }
        Err(io::Error::other("the kernel's answer does not end"))
    }
}
