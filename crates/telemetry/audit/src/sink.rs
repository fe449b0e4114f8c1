//! Destinations of lines.

mod file;
mod journal;
mod socket;

use std::io;
use std::path::PathBuf;

/// A destination of lines.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Target {
    /// A file, created if necessary and appended to; or an existing named pipe of that name.
    File(PathBuf),
    /// A named pipe that another program creates and reads.
    Pipe(PathBuf),
    /// A Unix socket that another program creates: datagrams (one line each, with its newline) or a stream.
    Socket(PathBuf),
    /// The socket of the system's journal (systemd-journald's native protocol).
    Journal(PathBuf),
}

impl Target {
    /// The journal's socket on every system that has one.
    pub const JOURNAL: &str = "/run/systemd/journal/socket";

    /// Returns the name of the target for messages.
    pub fn describe(&self) -> String {
        match self {
            Target::File(path) => format!("the file {}", path.display()),
            Target::Pipe(path) => format!("the pipe {}", path.display()),
            Target::Socket(path) => format!("the socket {}", path.display()),
            Target::Journal(path) => format!("the journal at {}", path.display()),
        }
    }

    pub(crate) fn open(&self) -> io::Result<Box<dyn Sink>> {
        Ok(match self {
            Target::File(path) => Box::new(file::Lines::open(path, true)?),
            Target::Pipe(path) => Box::new(file::Lines::open(path, false)?),
            Target::Socket(path) => socket::open(path)?,
            Target::Journal(path) => Box::new(journal::Journal::open(path)?),
        })
    }
}

/// An open target. It never blocks.
pub(crate) trait Sink: Send {
    /// Writes as much of a batch as it accepts and removes that from the batch. `WouldBlock` if it accepts no
    /// more now; after any other error it must be reopened.
    fn write(&mut self, batch: &mut Batch) -> io::Result<()>;

    /// Whether the target's path now refers to something else, since the file was renamed or removed.
    fn is_stale(&self) -> bool {
        false
    }
}

/// Lines to be written.
#[derive(Debug, Default)]
pub(crate) struct Batch {
    bytes: Vec<u8>,
    /// End and kind of each line.
    lines: Vec<Line>,
    /// Number of completed lines.
    done: usize,
    /// Number of bytes written, including those of a partial line.
    at: usize,
    /// Number of records among the completed lines, and among all lines.
    records_done: u64,
    records: u64,
}

/// Kind of a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// A message of the trail about itself.
    Notice,
    /// A line of a record that is not its last.
    Part { is_denied: bool },
    /// The last line of a record.
    Record { is_denied: bool },
}

/// A line of a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Line {
    /// End offset in the batch, which is far shorter than 4 GiB.
    end: u32,
    kind: Kind,
}

impl Line {
    /// Whether it completes a record.
    fn is_record(self) -> bool {
        matches!(self.kind, Kind::Record { .. })
    }

    /// Whether something was denied.
    pub(crate) fn is_denied(self) -> bool {
        matches!(self.kind, Kind::Part { is_denied: true } | Kind::Record { is_denied: true })
    }
}

/// How much of a batch was written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Done {
    pub(crate) records: u64,
    pub(crate) bytes: u64,
}

impl Batch {
    /// Returns the buffer to append a line to, without its newline; call [`Batch::end_line`] afterwards.
    pub(crate) fn bytes(&mut self) -> &mut Vec<u8> {
        &mut self.bytes
    }

    /// Ends the current line and appends its newline.
    pub(crate) fn end_line(&mut self, kind: Kind) {
        self.bytes.push(b'\n');
        let line = Line { end: self.bytes.len() as u32, kind };
        self.records += u64::from(line.is_record());
        self.lines.push(line);
    }

    pub(crate) fn len(&self) -> usize {
        self.bytes.len()
    }

    pub(crate) fn is_done(&self) -> bool {
        self.done == self.lines.len()
    }

    /// Returns all bytes left.
    pub(crate) fn rest(&self) -> &[u8] {
        &self.bytes[self.at..]
    }

    /// Returns the next line.
    pub(crate) fn line(&self) -> Option<(&[u8], Line)> {
        let line = self.lines.get(self.done)?;
        Some((&self.bytes[self.at..line.end as usize], *line))
    }

    /// Records that `bytes` bytes were written.
    pub(crate) fn advance(&mut self, bytes: usize) {
        self.at = (self.at + bytes).min(self.bytes.len());
        while let Some(line) = self.lines.get(self.done).filter(|line| line.end as usize <= self.at) {
            self.records_done += u64::from(line.is_record());
            self.done += 1;
        }
    }

    /// Restarts the partially written line from its beginning, since its reader is gone.
    pub(crate) fn start_line_again(&mut self) {
        self.at = self.done.checked_sub(1).map_or(0, |last| self.lines[last].end as usize);
    }

    /// Returns the progress so far.
    pub(crate) fn progress(&self) -> Done {
        Done { records: self.records_done, bytes: self.at as u64 }
    }

    /// Returns the number of records not completed.
    pub(crate) fn records_left(&self) -> u64 {
        self.records - self.records_done
    }

    /// Discards everything.
    pub(crate) fn clear(&mut self) {
        let (mut bytes, mut lines) = (std::mem::take(&mut self.bytes), std::mem::take(&mut self.lines));
        bytes.clear();
        lines.clear();
        *self = Batch { bytes, lines, ..Batch::default() };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_batch_tracks_completed_records() {
        let mut batch = Batch::default();
        for (line, kind) in [
            ("before", Kind::Part { is_denied: false }),
            ("call", Kind::Record { is_denied: false }),
            ("more", Kind::Record { is_denied: true }),
        ] {
            batch.bytes().extend_from_slice(line.as_bytes());
            batch.end_line(kind);
        }
        assert_eq!(batch.lines.iter().map(|line| line.is_denied()).collect::<Vec<_>>(), [false, false, true]);
        batch.advance(9);
        assert_eq!(batch.progress(), Done { records: 0, bytes: 9 });
        assert_eq!(batch.line().unwrap().0, b"ll\n");
        batch.start_line_again();
        assert_eq!((batch.line().unwrap().0, batch.records_left()), (&b"call\n"[..], 2));
        batch.advance(5);
        assert_eq!((batch.progress(), batch.rest()), (Done { records: 1, bytes: 12 }, &b"more\n"[..]));
        batch.advance(5);
        assert!(batch.is_done() && batch.records_left() == 0);
        batch.clear();
        assert!(batch.is_done() && batch.len() == 0);
    }
}
