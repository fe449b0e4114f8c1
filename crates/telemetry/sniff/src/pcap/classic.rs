//! The pcap format: a header of 24 bytes, then for each packet a record header of 16 bytes and its data.

use super::{Found, PACKET_BYTES_MAX, PcapError, Source};
use crate::frame::Link;
use std::io::Read;

/// Magic number of files with times in microseconds.
const MICROSECONDS: u32 = 0xa1b2_c3d4;

/// Magic number of files with times in nanoseconds.
pub(super) const NANOSECONDS: u32 = 0xa1b2_3c4d;

/// Contents of the file header.
#[derive(Debug)]
pub(super) struct Classic {
    link: Link,
    /// Nanoseconds per unit of the second word of times.
    unit_ns: u64,
}

impl Classic {
    /// Returns the byte order and whether times are in nanoseconds; `None` for another format.
    pub(super) fn detect(magic: [u8; 4]) -> Option<(bool, bool)> {
        let kinds = [(MICROSECONDS, false), (NANOSECONDS, true)];
        kinds.into_iter().find_map(|(number, nanoseconds)| {
            let is_little = match magic {
                bytes if bytes == number.to_le_bytes() => true,
                bytes if bytes == number.to_be_bytes() => false,
                _ => return None,
            };
            Some((is_little, nanoseconds))
        })
    }

    /// Reads the rest of the header, after the magic number.
    pub(super) fn open<R: Read>(source: &mut Source<R>, nanoseconds: bool) -> Result<Classic, PcapError> {
        source.array::<16>()?; // version, time zone, accuracy, snapshot length
        // The upper half may describe checksums at the end of frames.
        let link = Link::from_number(source.word()? & 0xffff);
        Ok(Classic { link, unit_ns: if nanoseconds { 1 } else { 1000 } })
    }

    pub(super) fn next<R: Read>(&mut self, source: &mut Source<R>) -> Result<Option<Found>, PcapError> {
        let (seconds, fraction) = (source.word()?, source.word()?);
        let (kept, _on_the_wire) = (source.word()?, source.word()?);
        let end = usize::try_from(kept).unwrap_or(usize::MAX);
        if end > PACKET_BYTES_MAX {
            return Err(PcapError::Length { what: "packet", got: kept, limit: PACKET_BYTES_MAX });
        }
        source.fill(end)?;
        let time_ns = u64::from(seconds) * 1_000_000_000 + u64::from(fraction) * self.unit_ns;
        Ok(Some(Found { time_ns, link: self.link, start: 0, end }))
    }
}
