//! Frames that are sent to an interface as they are.

use crate::sys::packet;
use socket2::SockRef;
use std::io;
use std::os::fd::OwnedFd;

/// Sends whole frames, with their link headers, to one interface. Requires CAP_NET_RAW.
#[derive(Debug)]
pub struct Frames {
    socket: OwnedFd,
}

impl Frames {
    /// Opens a socket for an interface.
    ///
    /// # Errors
    /// If there is no such interface, or the process may not send to it.
    pub fn open(interface: &str) -> io::Result<Frames> {
        Ok(Frames { socket: packet::open_sender(interface)? })
    }

    /// Sends a frame, which begins with the link header of the interface's kind.
    ///
    /// # Errors
    /// If the interface is down or gone, or its queue is full.
    pub fn send(&self, frame: &[u8]) -> io::Result<()> {
        SockRef::from(&self.socket).send(frame).map(drop)
    }
}
