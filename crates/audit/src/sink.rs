//! Where lines go.

mod file;
mod journal;
mod socket;

use std::io;
use std::path::PathBuf;

/// A place for lines.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Target {
    /// A file, made if need be, added to; a named pipe if there is one of that name.
    File(PathBuf),
    /// A named pipe, which somebody else makes and reads.
    Pipe(PathBuf),
    /// A Unix socket, of datagrams (each a line, with its newline) or a stream, which somebody else made.
    Socket(PathBuf),
    /// The socket of the system's journal (systemd-journald's native protocol).
    Journal(PathBuf),
}

impl Target {
    /// The journal's socket on every system that has one.
    pub const JOURNAL: &str = "/run/systemd/journal/socket";

    /// What to call it in messages.
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

/// An open target. It never waits.
pub(crate) trait Sink: Send {
    /// Writes what it takes now of a batch, and takes that off it. `WouldBlock` if it takes nothing more now;
    /// after any other error it is to be opened anew.
    fn write(&mut self, batch: &mut Batch) -> io::Result<()>;

    /// Whether what has the target's name now is something else: a file that was renamed or removed.
    fn is_stale(&self) -> bool {
        false
    }
}

/// Lines that are to be written.
#[derive(Debug, Default)]
pub(crate) struct Batch {
    bytes: Vec<u8>,
    /// Where each line ends, and what it is.
    lines: Vec<Line>,
    /// Lines that are done.
    done: usize,
    /// Bytes that are written, of lines that are done or not.
    at: usize,
    /// Records among the lines that are done, and among all.
    records_done: u64,
    records: u64,
}

/// What a line of a batch is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Something that the trail says of itself.
    Notice,
    /// A line of a record that another of the same follows.
    Part { is_denied: bool },
    /// A record's last.
    Record { is_denied: bool },
}

/// A line of a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Line {
    /// In a batch, which is far shorter than this could say.
    end: u32,
    kind: Kind,
}

impl Line {
    /// It completes a record.
    fn is_record(self) -> bool {
        matches!(self.kind, Kind::Record { .. })
    }

    /// Something was denied.
    pub(crate) fn is_denied(self) -> bool {
        matches!(self.kind, Kind::Part { is_denied: true } | Kind::Record { is_denied: true })
    }
}

/// What of a batch was written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Done {
    pub(crate) records: u64,
    pub(crate) bytes: u64,
}

impl Batch {
    /// Where to add a line without its newline; [`Batch::end_line`] afterwards.
    pub(crate) fn bytes(&mut self) -> &mut Vec<u8> {
        &mut self.bytes
    }

    /// A line is complete but for its newline.
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

    /// All bytes that are left.
    pub(crate) fn rest(&self) -> &[u8] {
        &self.bytes[self.at..]
    }

    /// The next line.
    pub(crate) fn line(&self) -> Option<(&[u8], Line)> {
        let line = self.lines.get(self.done)?;
        Some((&self.bytes[self.at..line.end as usize], *line))
    }

    /// So many bytes were written.
    pub(crate) fn advance(&mut self, bytes: usize) {
        self.at = (self.at + bytes).min(self.bytes.len());
        while let Some(line) = self.lines.get(self.done).filter(|line| line.end as usize <= self.at) {
            self.records_done += u64::from(line.is_record());
            self.done += 1;
        }
    }

    /// The line that was begun is written again from its beginning: who read it is gone.
    pub(crate) fn start_line_again(&mut self) {
        self.at = self.done.checked_sub(1).map_or(0, |last| self.lines[last].end as usize);
    }

    /// What is done until now.
    pub(crate) fn progress(&self) -> Done {
        Done { records: self.records_done, bytes: self.at as u64 }
    }

    /// Records that are not done.
    pub(crate) fn records_left(&self) -> u64 {
        self.records - self.records_done
    }

    /// Nothing is left of it.
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
    fn a_batch_knows_what_is_done() {
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
