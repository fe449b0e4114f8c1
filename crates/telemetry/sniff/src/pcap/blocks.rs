//! The pcapng format: blocks with their type and length at the start, and the length again at the end.
//!
//! A section starts with a block that indicates the byte order. Interfaces are described by separate blocks,
//! which packets refer to. Blocks of other types are skipped.

use super::{Found, PACKET_BYTES_MAX, PcapError, Source, word};
use crate::frame::Link;
use std::io::{self, Read};

/// Type of the first block of a section; a palindrome, so it is independent of the byte order.
pub(super) const SECTION: [u8; 4] = [0x0a, 0x0d, 0x0d, 0x0a];

/// Magic number that indicates the byte order of a section.
const BYTE_ORDER: u32 = 0x1a2b_3c4d;

const INTERFACE_BLOCK: u32 = 1;
const OLD_PACKET_BLOCK: u32 = 2;
const SIMPLE_PACKET_BLOCK: u32 = 3;
const PACKET_BLOCK: u32 = 6;

/// Maximum number of interfaces per section.
const INTERFACES_MAX: usize = 1024;

/// Maximum size of a block: a packet with its options.
const BLOCK_BYTES_MAX: usize = PACKET_BYTES_MAX + 65_536;

/// Bytes of a block that are not its content.
const FRAME_BYTES: usize = 12;

/// Numbers of the interface options that are used.
const TIME_RESOLUTION: u16 = 9;
const TIME_OFFSET: u16 = 14;

/// State of the current section.
#[derive(Debug, Default)]
pub(super) struct Blocks {
    interfaces: Vec<Interface>,
    /// Time of the last packet, used for packets without a time.
    time_ns: u64,
}

#[derive(Clone, Copy, Debug)]
struct Interface {
    link: Link,
    /// Time units per second.
    units: u64,
    offset_seconds: i64,
}

impl Blocks {
    /// Reads the rest of the first section's block, after its type.
    pub(super) fn open<R: Read>(source: &mut Source<R>) -> Result<Blocks, PcapError> {
        let mut blocks = Blocks::default();
        blocks.section(source)?;
        Ok(blocks)
    }

    fn section<R: Read>(&mut self, source: &mut Source<R>) -> Result<(), PcapError> {
        let length = source.array()?;
        let order = source.array()?;
        source.is_little = match word(true, order) {
            BYTE_ORDER => true,
            _ if word(false, order) == BYTE_ORDER => false,
            _ => return Err(PcapError::Damaged("a section has no byte order")),
        };
        self.interfaces.clear();
        let length = word(source.is_little, length);
        let content = content_bytes(length)?.checked_sub(4);
        skip(source, content.ok_or(PcapError::Damaged("a section's block is too short"))?)
    }

    pub(super) fn next<R: Read>(&mut self, source: &mut Source<R>) -> Result<Option<Found>, PcapError> {
        loop {
            let kind = source.array()?;
            if kind == SECTION {
                self.section(source)?;
                continue;
            }
            let content = content_bytes(source.word()?)?;
            let found = match word(source.is_little, kind) {
                INTERFACE_BLOCK => {
                    source.fill(content)?;
                    self.interface(source)?;
                    None
                }
                PACKET_BLOCK => {
                    source.fill(content)?;
                    let interface = source.buffered_word(0).unwrap_or(u32::MAX);
                    Some(self.packet(source, interface)?)
                }
                OLD_PACKET_BLOCK => {
                    source.fill(content)?;
                    let interface = source.buffered_half(0).unwrap_or(u16::MAX);
                    Some(self.packet(source, interface.into())?)
                }
                SIMPLE_PACKET_BLOCK => {
                    source.fill(content)?;
                    Some(self.simple_packet(source)?)
                }
                _ => {
                    skip(source, content)?;
                    continue;
                }
            };
            source.word()?; // the length again
            if found.is_some() {
                return Ok(found);
            }
        }
    }

    fn interface<R>(&mut self, source: &Source<R>) -> Result<(), PcapError>
    where
        R: Read,
    {
        if self.interfaces.len() >= INTERFACES_MAX {
            return Err(PcapError::Damaged("a section has more than 1,024 interfaces"));
        }
        let link = source.buffered_half(0).ok_or(PcapError::Damaged("an interface's block is too short"))?;
        let mut interface =
            Interface { link: Link::from_number(link.into()), units: 1_000_000, offset_seconds: 0 };
        let mut at = 8;
        while let (Some(code), Some(length)) = (source.buffered_half(at), source.buffered_half(at + 2)) {
            let value = source.buffer.get(at + 4..at + 4 + usize::from(length)).unwrap_or_default();
            match (code, value) {
                (0, _) => break,
                (TIME_RESOLUTION, [resolution, ..]) => interface.units = units(*resolution),
                (TIME_OFFSET, [..]) => interface.offset_seconds = offset(source.is_little, value),
                _ => {}
            }
            at += 4 + usize::from(length).next_multiple_of(4);
        }
        self.interfaces.push(interface);
        Ok(())
    }

    /// Parses a packet with interface, time and lengths: five words.
    fn packet<R: Read>(&mut self, source: &Source<R>, interface: u32) -> Result<Found, PcapError> {
        let words = (source.buffered_word(4), source.buffered_word(8), source.buffered_word(12));
        let (Some(high), Some(low), Some(kept)) = words else {
            return Err(PcapError::Damaged("a packet's block is too short"));
        };
        let interface = usize::try_from(interface).ok().and_then(|number| self.interfaces.get(number));
        let interface = interface.ok_or(PcapError::Damaged("a packet refers to an undeclared interface"))?;
        self.time_ns = interface.time_ns(u64::from(high) << 32 | u64::from(low));
        found(source, 20, kept, interface.link, self.time_ns)
    }

    /// Parses a packet of the first interface that has only its length on the wire.
    fn simple_packet<R: Read>(&mut self, source: &Source<R>) -> Result<Found, PcapError> {
        let first = self.interfaces.first().ok_or(PcapError::Damaged("a packet without any interface"))?;
        let length = source.buffered_word(0).ok_or(PcapError::Damaged("a packet's block is too short"))?;
        let here = u32::try_from(source.buffer.len() - 4).unwrap_or(u32::MAX);
        found(source, 4, length.min(here), first.link, self.time_ns)
    }
}

fn found<R>(
    source: &Source<R>,
    start: usize,
    kept: u32,
    link: Link,
    time_ns: u64,
) -> Result<Found, PcapError> {
    let limit = source.buffer.len().saturating_sub(start).min(PACKET_BYTES_MAX);
    match usize::try_from(kept) {
        Ok(kept) if kept <= limit => Ok(Found { time_ns, link, start, end: start + kept }),
        _ => Err(PcapError::Length { what: "packet", got: kept, limit }),
    }
}

impl Interface {
    fn time_ns(self, time: u64) -> u64 {
        let ns = u128::from(time) * 1_000_000_000 / u128::from(self.units);
        let ns = i128::try_from(ns).unwrap_or(i128::MAX);
        u64::try_from(ns + i128::from(self.offset_seconds) * 1_000_000_000).unwrap_or(0)
    }
}

/// Returns the time units per second: a power of ten, or of two if the high bit is set.
fn units(resolution: u8) -> u64 {
    let base: u64 = if resolution & 0x80 == 0 { 10 } else { 2 };
    base.checked_pow(u32::from(resolution & 0x7f)).unwrap_or(u64::MAX)
}

fn offset(is_little: bool, value: &[u8]) -> i64 {
    let Some(bytes) = value.first_chunk() else { return 0 };
    if is_little { i64::from_le_bytes(*bytes) } else { i64::from_be_bytes(*bytes) }
}

/// Returns the number of bytes between a block's first length and its second.
fn content_bytes(length: u32) -> Result<usize, PcapError> {
    let bytes = usize::try_from(length).unwrap_or(usize::MAX);
    if bytes > BLOCK_BYTES_MAX {
        return Err(PcapError::Length { what: "block", got: length, limit: BLOCK_BYTES_MAX });
    }
    let content =
        bytes.checked_sub(FRAME_BYTES).ok_or(PcapError::Damaged("a block shorter than its frame"))?;
    Ok(content.next_multiple_of(4))
}

/// Skips a block's content and its second length.
fn skip<R: Read>(source: &mut Source<R>, content: usize) -> Result<(), PcapError> {
    let wanted = content as u64 + 4;
    let got = io::copy(&mut source.input.by_ref().take(wanted), &mut io::sink())?;
    if got == wanted { Ok(()) } else { Err(io::Error::from(io::ErrorKind::UnexpectedEof).into()) }
}
