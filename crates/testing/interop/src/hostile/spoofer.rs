//! UDP datagrams from any address.

use anyhow::{Context, Result};
use socket2::{Domain, Protocol, SockAddr, Socket, Type};
use std::io;
use std::net::SocketAddrV4;

/// IPPROTO_RAW: data to send starts with its IP header.
const WITH_HEADER: i32 = 255;
const IP_BYTES: usize = 20;
const UDP_BYTES: usize = 8;
const UDP: u8 = 17;

/// Sends UDP datagrams with arbitrary source addresses. Needs CAP_NET_RAW.
pub struct Spoofer {
    socket: Socket,
    buffer: Vec<u8>,
}

impl Spoofer {
    /// Opens a raw socket.
    ///
    /// # Errors
    /// If the process lacks the privilege.
    pub fn open() -> Result<Spoofer> {
        let socket = Socket::new(Domain::IPV4, Type::RAW, Some(Protocol::from(WITH_HEADER)));
        Ok(Spoofer { socket: socket.context("a raw socket")?, buffer: Vec::new() })
    }

    /// Sends a datagram from `from` to `to`.
    ///
    /// # Errors
    /// Errors of the operating system.
    pub fn send(&mut self, from: SocketAddrV4, to: SocketAddrV4, datagram: &[u8]) -> io::Result<()> {
        let udp_bytes = UDP_BYTES + datagram.len();
        self.buffer.clear();
        // Version and header length, type of service; the kernel fills in identification and checksum.
        self.buffer.extend([0x45, 0]);
        self.buffer.extend(((IP_BYTES + udp_bytes) as u16).to_be_bytes());
        self.buffer.extend([0, 0, 0, 0, 64, UDP, 0, 0]);
        self.buffer.extend(from.ip().octets());
        self.buffer.extend(to.ip().octets());
        // A checksum of 0 means none.
        for field in [from.port(), to.port(), udp_bytes as u16, 0] {
            self.buffer.extend(field.to_be_bytes());
        }
        self.buffer.extend_from_slice(datagram);
        self.socket.send_to(&self.buffer, &SockAddr::from(to)).map(drop)
    }
}
