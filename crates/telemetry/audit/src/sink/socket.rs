//! Unix sockets, which take the place of OpenAFS's message queues.

use super::{Batch, Sink};
use std::io::{self, Write as _};
use std::os::unix::net::{UnixDatagram, UnixStream};
use std::path::Path;

/// Connects to a socket of either kind.
pub(crate) fn open(path: &Path) -> io::Result<Box<dyn Sink>> {
    let datagrams = UnixDatagram::unbound()?;
    datagrams.set_nonblocking(true)?;
    match datagrams.connect(path) {
        Ok(()) => Ok(Box::new(Datagrams(datagrams))),
        // EPROTOTYPE: it is a stream socket.
        Err(error) if error.raw_os_error() == Some(rustix::io::Errno::PROTOTYPE.raw_os_error()) => {
            let stream = UnixStream::connect(path)?;
            stream.set_nonblocking(true)?;
            Ok(Box::new(Stream(stream)))
        }
        Err(error) => Err(error),
    }
}

/// A socket on which each line is one datagram.
struct Datagrams(UnixDatagram);

impl Sink for Datagrams {
    fn write(&mut self, batch: &mut Batch) -> io::Result<()> {
        while let Some((line, _)) = batch.line() {
            let bytes = line.len();
            send(&self.0, line)?;
            batch.advance(bytes);
        }
        Ok(())
    }
}

/// Sends a datagram. A full receiver is `WouldBlock`.
pub(super) fn send(socket: &UnixDatagram, message: &[u8]) -> io::Result<()> {
    let no_room = |error: &io::Error| error.raw_os_error() == Some(rustix::io::Errno::NOBUFS.raw_os_error());
    match socket.send(message) {
        Ok(_) => Ok(()),
        Err(error) if no_room(&error) => Err(io::ErrorKind::WouldBlock.into()),
        Err(error) => Err(error),
    }
}

/// A socket on which lines follow each other.
struct Stream(UnixStream);

impl Sink for Stream {
    fn write(&mut self, batch: &mut Batch) -> io::Result<()> {
        while !batch.is_done() {
            match self.0.write(batch.rest()) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(count) => batch.advance(count),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Err(error),
                Err(error) => {
                    batch.start_line_again();
                    return Err(error);
                }
            }
        }
        Ok(())
    }
}
