//! Passes sockets in messages between processes of the same user: a message with a name for each socket, and
//! a final message.

use rustix::io::Errno;
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage,
    SendFlags, SocketAddrUnix, recvmsg, sendmsg, sendmsg_addr,
};
use rx::KeptSocket;
use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

/// The message after the last socket; not a valid name.
const END: &[u8] = b"\n";

/// Maximum message size; longer messages are truncated.
const MESSAGE_BYTES_MAX: usize = 256;

/// Maximum number of sockets taken over at a time: five ports with 64 lanes on each of a dozen addresses.
const SOCKETS_MAX: usize = 4096;

/// A message, optionally with a descriptor.
pub(super) struct Message {
    pub(super) text: Vec<u8>,
    pub(super) descriptor: Option<OwnedFd>,
}

/// Sends a message to the process at the other end of a Unix SEQPACKET socket.
pub(super) fn say(
    channel: BorrowedFd<'_>,
    text: &[u8],
    descriptor: Option<BorrowedFd<'_>>,
) -> io::Result<()> {
    say_to(channel, None, text, descriptor)
}

/// Sends a message to this address, if one is given.
pub(super) fn say_to(
    channel: BorrowedFd<'_>,
    address: Option<&SocketAddrUnix>,
    text: &[u8],
    descriptor: Option<BorrowedFd<'_>>,
) -> io::Result<()> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    let descriptors: Vec<BorrowedFd<'_>> = descriptor.into_iter().collect();
    if !descriptors.is_empty() && !control.push(SendAncillaryMessage::ScmRights(&descriptors)) {
        return Err(io::ErrorKind::OutOfMemory.into());
    }
    let text = [IoSlice::new(text)];
    match address {
        Some(address) => sendmsg_addr(channel, address, &text, &mut control, SendFlags::NOSIGNAL)?,
        None => sendmsg(channel, &text, &mut control, SendFlags::NOSIGNAL)?,
    };
    Ok(())
}

/// Receives the next message; `None` if the other end is closed.
pub(super) fn hear(channel: BorrowedFd<'_>) -> io::Result<Option<Message>> {
    let mut text = [0; MESSAGE_BYTES_MAX];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let received = loop {
        match recvmsg(channel, &mut [IoSliceMut::new(&mut text)], &mut control, RecvFlags::CMSG_CLOEXEC) {
            Err(Errno::INTR) => {}
            Err(Errno::CONNRESET) => return Ok(None),
            received => break received?,
        }
    };
    let descriptors = control.drain().filter_map(|message| match message {
        RecvAncillaryMessage::ScmRights(descriptors) => Some(descriptors),
        _ => None,
    });
    let descriptor = descriptors.flatten().last();
    let is_end = received.bytes == 0 && descriptor.is_none();
    Ok((!is_end).then(|| Message { text: text[..received.bytes].to_vec(), descriptor }))
}

/// Sends a set of sockets.
pub(super) fn send(channel: BorrowedFd<'_>, sockets: &[KeptSocket]) -> io::Result<()> {
    for socket in sockets {
        say(channel, socket.name.as_bytes(), Some(socket.descriptor.as_fd()))?;
    }
    say(channel, END, None)
}

/// Receives a set of sockets.
///
/// Fails with `UnexpectedEof` if the other end closes before the set is complete.
pub(super) fn receive(channel: BorrowedFd<'_>) -> io::Result<Vec<KeptSocket>> {
    let mut sockets = Vec::new();
    while sockets.len() < SOCKETS_MAX {
        let Message { text, descriptor } = hear(channel)?.ok_or(io::ErrorKind::UnexpectedEof)?;
        match descriptor {
            Some(descriptor) => {
                sockets.push(KeptSocket { name: String::from_utf8_lossy(&text).into_owned(), descriptor });
            }
            None if text == END => return Ok(sockets),
            None => {
                let text = String::from_utf8_lossy(&text).into_owned();
                return Err(io::Error::new(
                    io::ErrorKind::InvalidData,
                    format!("expected a socket, got the message {text:?}"),
                ));
            }
        }
    }
    Err(io::Error::new(io::ErrorKind::InvalidData, format!("more than {SOCKETS_MAX} sockets")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};
    use std::net::UdpSocket;

    fn channel() -> (OwnedFd, OwnedFd) {
        socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None).unwrap()
    }

    #[test]
    fn sockets_arrive_with_their_names() {
        let (here, there) = channel();
        let bound = [(); 3].map(|()| UdpSocket::bind("127.0.0.1:0").unwrap());
        let name = |socket: &UdpSocket| socket.local_addr().unwrap().to_string();
        let kept = bound
            .iter()
            .map(|socket| KeptSocket { name: name(socket), descriptor: socket.try_clone().unwrap().into() });
        send(here.as_fd(), &kept.collect::<Vec<_>>()).unwrap();
        let received = receive(there.as_fd()).unwrap();
        assert_eq!(received.len(), 3);
        for socket in received {
            assert_eq!(name(&UdpSocket::from(socket.descriptor)), socket.name);
        }
    }

    #[test]
    fn an_unfinished_set_is_an_error() {
        let (here, there) = channel();
        say(here.as_fd(), b"one", Some(here.as_fd())).unwrap();
        say(here.as_fd(), b"what", None).unwrap();
        let error = receive(there.as_fd()).unwrap_err();
        assert!(error.to_string().contains("\"what\""), "{error}");
        drop(here);
        assert_eq!(receive(there.as_fd()).unwrap_err().kind(), io::ErrorKind::UnexpectedEof);
    }
}
