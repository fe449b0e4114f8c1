//! Service manager: systemd keeps descriptors in its store, and passes them to the next process of the unit
//! (sd_notify(3), `FDSTORE=1`; sd_listen_fds(3)). [`KeptSocket::passed`] takes the descriptors that it
//! passes.

use super::passing;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, socket_with};
use rx::KeptSocket;
use std::ffi::OsStr;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;

/// Notification socket of the service manager.
pub(super) struct Manager {
    socket: OwnedFd,
    address: SocketAddrUnix,
}

impl Manager {
    /// Returns the manager named in the environment (`NOTIFY_SOCKET`).
    pub(super) fn of_environment() -> Option<Manager> {
        let name = std::env::var_os("NOTIFY_SOCKET").filter(|name| !name.is_empty())?;
        let found = Manager::at(&name);
        found.inspect_err(|error| tracing::warn!(?name, %error, "NOTIFY_SOCKET names no socket")).ok()
    }

    fn at(name: &OsStr) -> io::Result<Manager> {
        let address = match name.as_bytes() {
            [b'@', name @ ..] => SocketAddrUnix::new_abstract_name(name)?,
            path => SocketAddrUnix::new(path)?,
        };
        let socket = socket_with(AddressFamily::UNIX, SocketType::DGRAM, SocketFlags::CLOEXEC, None)?;
        Ok(Manager { socket, address })
    }

    /// Leaves sockets in its store. Those already there are kept. The manager must not drop a socket because
    /// of a pending error.
    pub(super) fn keep(&self, sockets: &[KeptSocket]) {
        for socket in sockets {
            let text = format!("FDSTORE=1\nFDPOLL=0\nFDNAME={}", socket.name);
            if let Err(error) = self.send(&text, Some(socket.descriptor.as_fd())) {
                tracing::warn!(%error, "the service manager did not accept the sockets");
                return;
            }
        }
    }

    /// Removes the sockets with this name from its store.
    pub(super) fn forget(&self, name: &str) {
        self.say(&format!("FDSTOREREMOVE=1\nFDNAME={name}"));
    }

    /// Sends a state notification.
    pub(super) fn say(&self, text: &str) {
        if let Err(error) = self.send(text, None) {
            tracing::warn!(text, %error, "the service manager cannot be notified");
        }
    }

    fn send(&self, text: &str, descriptor: Option<BorrowedFd<'_>>) -> io::Result<()> {
        passing::say_to(self.socket.as_fd(), Some(&self.address), text.as_bytes(), descriptor)
    }
}

#[cfg(test)]
mod tests {
    use super::super::passing::hear;
    use super::*;
    use std::net::UdpSocket;
    use std::os::unix::net::UnixDatagram;

    #[test]
    fn sockets_are_stored_under_their_names() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("notify");
        let manager = UnixDatagram::bind(&path).unwrap();
        let bound = UdpSocket::bind("127.0.0.1:0").unwrap();
        let kept = KeptSocket { name: "a-1-lane0".into(), descriptor: bound.try_clone().unwrap().into() };
        let reported = Manager::at(path.as_os_str()).unwrap();
        reported.keep(&[kept]);
        reported.say("READY=1");
        let stored = hear(manager.as_fd()).unwrap().unwrap();
        assert_eq!(stored.text, b"FDSTORE=1\nFDPOLL=0\nFDNAME=a-1-lane0");
        let stored = UdpSocket::from(stored.descriptor.unwrap());
        assert_eq!(stored.local_addr().unwrap(), bound.local_addr().unwrap());
        assert_eq!(hear(manager.as_fd()).unwrap().unwrap().text, b"READY=1");
    }
}
