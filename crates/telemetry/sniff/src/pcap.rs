//! Capture files: reads pcap and pcapng, writes pcap.
//!
//! Sources: draft-ietf-opsawg-pcap and draft-ietf-opsawg-pcapng. A file is read sequentially with one buffer,
//! whose size is limited by [`PACKET_BYTES_MAX`], whatever the file claims.

mod blocks;
mod classic;
mod write;

use crate::frame::Link;
use std::io::{self, Read};

pub use write::Writer;

/// Maximum size of a packet in bytes (tcpdump's largest snapshot length).
pub const PACKET_BYTES_MAX: usize = 262_144;

/// Reason why a capture cannot be read any further.
#[derive(Debug, thiserror::Error)]
pub enum PcapError {
    /// The file could not be read.
    #[error("cannot read the capture: {0}")]
    Io(#[from] io::Error),
    /// The file has another format.
    #[error("neither a pcap nor a pcapng file: it begins with {0:02x?}")]
    Magic([u8; 4]),
    /// A length is out of range.
    #[error("the capture is damaged: a {what} of {got} bytes, at most {limit} are possible")]
    Length {
        /// Kind of item.
        what: &'static str,
        /// Length in the file.
        got: u32,
        /// Maximum length.
        limit: usize,
    },
    /// The file violates the format.
    #[error("the capture is damaged: {0}")]
    Damaged(&'static str),
}

/// One captured packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Packet<'a> {
    /// Capture time in nanoseconds since 1970.
    pub time_ns: u64,
    /// Link type of the frame.
    pub link: Link,
    /// Captured bytes.
    pub data: &'a [u8],
}

/// Reads a capture file: call [`Reader::new`], then [`Reader::packet`] until it returns `None`.
#[derive(Debug)]
pub struct Reader<R> {
    source: Source<R>,
    format: Format,
}

#[derive(Debug)]
enum Format {
    Classic(classic::Classic),
    Blocks(blocks::Blocks),
}

impl<R: Read> Reader<R> {
    /// Reads the start of the file and detects its format.
    pub fn new(input: R) -> Result<Reader<R>, PcapError> {
        let mut source = Source { input, buffer: Vec::new(), is_little: false };
        let magic = source.array::<4>()?;
        let format = match classic::Classic::detect(magic) {
            Some((is_little, nanoseconds)) => {
                source.is_little = is_little;
                Format::Classic(classic::Classic::open(&mut source, nanoseconds)?)
            }
            None if magic == blocks::SECTION => Format::Blocks(blocks::Blocks::open(&mut source)?),
            None => return Err(PcapError::Magic(magic)),
        };
        Ok(Reader { source, format })
    }

    /// Returns the next packet; `None` at the end. A file truncated within a packet, for example because its
    /// writer was killed, ends before that packet.
    pub fn packet(&mut self) -> Result<Option<Packet<'_>>, PcapError> {
        let found = match &mut self.format {
            Format::Classic(classic) => classic.next(&mut self.source),
            Format::Blocks(blocks) => blocks.next(&mut self.source),
        };
        match found {
            Ok(Some(Found { time_ns, link, start, end })) => {
                let data = self.source.buffer.get(start..end).unwrap_or_default();
                Ok(Some(Packet { time_ns, link, data }))
            }
            Ok(None) => Ok(None),
            Err(PcapError::Io(error)) if error.kind() == io::ErrorKind::UnexpectedEof => Ok(None),
            Err(error) => Err(error),
        }
    }
}

/// A packet whose bytes are in the source's buffer.
#[derive(Clone, Copy, Debug)]
struct Found {
    time_ns: u64,
    link: Link,
    start: usize,
    end: usize,
}

/// A file, its byte order, and the data last read from it.
#[derive(Debug)]
struct Source<R> {
    input: R,
    buffer: Vec<u8>,
    is_little: bool,
}

impl<R: Read> Source<R> {
    fn array<const N: usize>(&mut self) -> Result<[u8; N], PcapError> {
        let mut bytes = [0; N];
        self.input.read_exact(&mut bytes)?;
        Ok(bytes)
    }

    fn word(&mut self) -> Result<u32, PcapError> {
        Ok(word(self.is_little, self.array()?))
    }

    /// Reads `bytes` bytes into the buffer.
    fn fill(&mut self, bytes: usize) -> Result<(), PcapError> {
        self.buffer.resize(bytes, 0);
        Ok(self.input.read_exact(&mut self.buffer)?)
    }

    /// Returns a number from the buffer.
    fn buffered_word(&self, at: usize) -> Option<u32> {
        Some(word(self.is_little, *self.buffer.get(at..)?.first_chunk()?))
    }

    /// Returns a two-byte number from the buffer.
    fn buffered_half(&self, at: usize) -> Option<u16> {
        let bytes = *self.buffer.get(at..)?.first_chunk()?;
        Some(if self.is_little { u16::from_le_bytes(bytes) } else { u16::from_be_bytes(bytes) })
    }
}

fn word(is_little: bool, bytes: [u8; 4]) -> u32 {
    if is_little { u32::from_le_bytes(bytes) } else { u32::from_be_bytes(bytes) }
}

#[cfg(test)]
mod tests;
