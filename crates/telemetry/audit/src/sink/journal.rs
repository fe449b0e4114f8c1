//! systemd's journal: one datagram per line, consisting of fields `NAME=value` (its native protocol,
//! <https://systemd.io/JOURNAL_NATIVE_PROTOCOL/>). Lines contain no newline, so no field needs the form with
//! a length.

use super::{Batch, Sink, socket};
use std::io;
use std::os::unix::net::UnixDatagram;
use std::path::Path;

/// Facility `audit` of syslog (RFC 5424).
const FACILITY: u8 = 13;
/// Priority of denied calls: notice.
const DENIED: u8 = 5;
/// Priority of all other lines: informational.
const USUAL: u8 = 6;

/// The journal's socket.
pub(crate) struct Journal(UnixDatagram);

impl Journal {
    pub(crate) fn open(path: &Path) -> io::Result<Journal> {
        let socket = UnixDatagram::unbound()?;
        socket.set_nonblocking(true)?;
        socket.connect(path)?;
        Ok(Journal(socket))
    }
}

impl Sink for Journal {
    fn write(&mut self, batch: &mut Batch) -> io::Result<()> {
        while let Some((line, of)) = batch.line() {
            let bytes = line.len();
            let priority = if of.is_denied() { DENIED } else { USUAL };
            let mut message = format!(
                "PRIORITY={priority}\nSYSLOG_FACILITY={FACILITY}\nSYSLOG_IDENTIFIER=cellar-audit\nMESSAGE="
            )
            .into_bytes();
            message.extend_from_slice(line);
            socket::send(&self.0, &message)?;
            batch.advance(bytes);
        }
        Ok(())
    }
}
