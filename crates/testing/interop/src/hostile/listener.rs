//! Captures traffic on the link between attacker and server.

use anyhow::{Context, Result};
use rx::Tap;
use std::net::{Ipv4Addr, SocketAddrV4};
use std::time::{Duration, Instant};

const IP_BYTES_MIN: usize = 20;
const UDP_BYTES: usize = 8;

/// A captured UDP datagram, or several that the kernel handles as one.
#[derive(Clone, Copy, Debug)]
pub struct Datagram<'a> {
    /// Source address.
    pub from: SocketAddrV4,
    /// Destination address.
    pub to: SocketAddrV4,
    /// Data after the UDP header.
    pub payload: &'a [u8],
}

/// Captures the UDP datagrams of one interface.
pub struct Listener {
    tap: Tap,
}

impl Listener {
    /// Opens an interface of the attacker's namespace.
    ///
    /// # Errors
    /// If the process lacks the privilege, or the interface does not exist.
    pub fn open(interface: &str) -> Result<Listener> {
        Ok(Listener { tap: Tap::open(Some(interface), &[]).with_context(|| interface.to_owned())? })
    }

    /// Passes all datagrams until `until` to `see`. Returns the number of datagrams lost because too many
    /// arrived.
    ///
    /// # Errors
    /// Errors of the operating system.
    pub fn listen(&mut self, until: Instant, mut see: impl FnMut(Datagram<'_>)) -> Result<u32> {
        while let Some(left) = until.checked_duration_since(Instant::now()) {
            if let Some(passed) = self.tap.next(left.min(Duration::from_millis(100)))?
                && let Some(datagram) = parse(passed.packet)
            {
                see(datagram);
            }
        }
        Ok(self.tap.take_drops()?)
    }
}

fn parse(packet: &[u8]) -> Option<Datagram<'_>> {
    let header = usize::from(packet.first()? & 15) * 4;
    if header < IP_BYTES_MIN || packet.len() < header + UDP_BYTES {
        return None;
    }
    let address = |at: usize| Some(Ipv4Addr::from(*packet.get(at..)?.first_chunk::<4>()?));
    let port = |at: usize| Some(u16::from_be_bytes(*packet.get(header + at..)?.first_chunk()?));
    Some(Datagram {
        from: SocketAddrV4::new(address(12)?, port(0)?),
        to: SocketAddrV4::new(address(16)?, port(2)?),
        payload: &packet[header + UDP_BYTES..],
    })
}
