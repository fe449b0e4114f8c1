//! The record header before every chunk.

use super::codec::Encoding;
use crate::ChunkOwner;
use crate::chunk::CHUNK_BYTES_MAX;
use crc_fast::{CrcAlgorithm, Digest};

/// Length of the current record header in bytes.
pub(super) const RECORD_BYTES: usize = 64;

/// Length of a record header of version 1, the shortest one.
pub(super) const RECORD_BYTES_MIN: usize = 32;

/// Bytes that encryption may add to a chunk: nonce and tag.
pub(super) const SEAL_BYTES_MAX: usize = 64;

/// Maximum size of a record in bytes.
pub(super) const RECORD_AND_STORED_BYTES_MAX: usize = RECORD_BYTES + CHUNK_BYTES_MAX + SEAL_BYTES_MAX;

const MAGIC: &[u8; 4] = b"CHNK";
const FLAG_SHARED: u8 = 1;

/// The layout of a record header.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum Layout {
    /// No owner, key or flags; no longer written. Version 1 had a zero at the position of the number.
    V1 = 0,
    /// The current layout.
    #[default]
    V2 = 2,
}

impl Layout {
    fn from_byte(byte: u8) -> Option<Layout> {
        [Layout::V1, Layout::V2].into_iter().find(|layout| *layout as u8 == byte)
    }

    /// Returns the length of the header in bytes.
    pub(super) fn bytes(self) -> usize {
        match self {
            Layout::V1 => RECORD_BYTES_MIN,
            Layout::V2 => RECORD_BYTES,
        }
    }
}

/// Contents of a record header.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Record {
    pub(super) layout: Layout,
    pub(super) encoding: Encoding,
    pub(super) raw_bytes: u32,
    pub(super) stored_bytes: u32,
    pub(super) stored_crc: u32,
    /// Key under which metadata was to reference the chunk; unknown in version 1.
    pub(super) owner: ChunkOwner,
    /// Id of the key that encrypts the stored bytes; 0 if they are not encrypted.
    pub(super) key: u32,
    /// Whether more than one metadata record may reference it.
    pub(super) is_shared: bool,
}

/// Returns the CRC-32C.
pub(crate) fn crc32c(bytes: &[u8]) -> u32 {
    crc32c_of(&[bytes])
}

/// Returns the CRC-32C of a concatenation.
pub(super) fn crc32c_of<T: AsRef<[u8]>>(pieces: &[T]) -> u32 {
    let mut digest = Digest::new(CrcAlgorithm::Crc32Iscsi);
    for piece in pieces {
        digest.update(piece.as_ref());
    }
    digest.finalize() as u32
}

/// Returns the CRC of a header without its last 4 bytes.
fn header_crc(header: &[u8], offset: u64) -> u32 {
    crc32c_of(&[&header[..header.len() - 4], &offset.to_be_bytes()[..]])
}

fn word(header: &[u8], at: usize) -> u32 {
    u32::from_be_bytes([header[at], header[at + 1], header[at + 2], header[at + 3]])
}

impl Record {
    /// Builds the header for a position, in the current layout.
    pub(super) fn build(&self, segment: u64, offset: u64) -> [u8; RECORD_BYTES] {
        let mut header = [0; RECORD_BYTES];
        header[..4].copy_from_slice(MAGIC);
        header[4] = self.encoding as u8;
        header[5] = Layout::V2 as u8;
        header[6] = if self.is_shared { FLAG_SHARED } else { 0 };
        header[8..12].copy_from_slice(&self.raw_bytes.to_be_bytes());
        header[12..16].copy_from_slice(&self.stored_bytes.to_be_bytes());
        header[16..24].copy_from_slice(&segment.to_be_bytes());
        header[24..48].copy_from_slice(&self.owner.0);
        header[48..52].copy_from_slice(&self.key.to_be_bytes());
        header[56..60].copy_from_slice(&self.stored_crc.to_be_bytes());
        let crc = header_crc(&header, offset);
        header[60..].copy_from_slice(&crc.to_be_bytes());
        header
    }

    /// Parses the header at the start of `bytes`; the error describes what is wrong with it.
    pub(super) fn parse(bytes: &[u8], segment: u64, offset: u64) -> Result<Record, String> {
        let magic = bytes.get(..4).unwrap_or(bytes);
        if magic != MAGIC {
            return Err(format!("expected a chunk, got {}", magic.escape_ascii()));
        }
        let layout = bytes.get(5).copied().unwrap_or_default();
        let layout = Layout::from_byte(layout).ok_or_else(|| format!("unknown header version {layout}"))?;
        let header = bytes.get(..layout.bytes()).ok_or("the header is cut off")?;
        let (expected, got) = (header_crc(header, offset), word(header, header.len() - 4));
        if expected != got {
            return Err(format!("header checksum: expected {expected:08x}, got {got:08x}"));
        }
        let found = u64::from(word(header, 16)) << 32 | u64::from(word(header, 20));
        if found != segment {
            return Err(format!("expected a chunk of segment {segment}, got one of {found}"));
        }
        Record::fields(layout, header)?.check_lengths()
    }

    fn fields(layout: Layout, header: &[u8]) -> Result<Record, String> {
        let encoding =
            Encoding::from_byte(header[4]).ok_or_else(|| format!("unknown codec {}", header[4]))?;
        let stored_crc = word(header, header.len() - 8);
        let (raw_bytes, stored_bytes) = (word(header, 8), word(header, 12));
        let record = Record { layout, encoding, raw_bytes, stored_bytes, stored_crc, ..Record::default() };
        if layout == Layout::V1 {
            return Ok(record);
        }
        let flags = header[6];
        if flags & !FLAG_SHARED != 0 {
            return Err(format!("unknown flags {flags:02x}"));
        }
        let mut owner = ChunkOwner::default();
        owner.0.copy_from_slice(&header[24..48]);
        Ok(Record { owner, key: word(header, 48), is_shared: flags & FLAG_SHARED != 0, ..record })
    }

    fn check_lengths(self) -> Result<Record, String> {
        let (raw, stored) = (self.raw_bytes, self.stored_bytes);
        let stored_max = CHUNK_BYTES_MAX + if self.key == 0 { 0 } else { SEAL_BYTES_MAX };
        if raw as usize > CHUNK_BYTES_MAX || stored as usize > stored_max {
            return Err(format!("lengths {raw} and {stored} exceed {CHUNK_BYTES_MAX} and {stored_max}"));
        }
        if self.encoding == Encoding::Raw && self.key == 0 && raw != stored {
            return Err(format!("lengths {raw} and {stored} of a raw chunk differ"));
        }
        Ok(self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn record() -> impl Strategy<Value = Record> {
        let encoding = prop::sample::select(vec![Encoding::Raw, Encoding::Lz4, Encoding::Zstd]);
        let lengths = (0..=CHUNK_BYTES_MAX as u32, 0..=CHUNK_BYTES_MAX as u32);
        (encoding, lengths, any::<(u32, [u8; 24], u32, bool)>()).prop_map(
            |(encoding, (raw_bytes, stored), (stored_crc, owner, key, is_shared))| {
                let stored_bytes = if encoding == Encoding::Raw { raw_bytes } else { stored };
                let (layout, owner) = (Layout::V2, ChunkOwner(owner));
                Record { layout, encoding, raw_bytes, stored_bytes, stored_crc, owner, key, is_shared }
            },
        )
    }

    /// Builds a header of version 1.
    fn build_v1(record: &Record, segment: u64, offset: u64) -> [u8; RECORD_BYTES_MIN] {
        let mut header = [0; RECORD_BYTES_MIN];
        header[..4].copy_from_slice(MAGIC);
        header[4] = record.encoding as u8;
        header[8..12].copy_from_slice(&record.raw_bytes.to_be_bytes());
        header[12..16].copy_from_slice(&record.stored_bytes.to_be_bytes());
        header[16..24].copy_from_slice(&segment.to_be_bytes());
        header[24..28].copy_from_slice(&record.stored_crc.to_be_bytes());
        let crc = header_crc(&header, offset);
        header[28..].copy_from_slice(&crc.to_be_bytes());
        header
    }

    #[test]
    fn the_checksum_is_castagnolis() {
        assert_eq!(crc32c(b"123456789"), 0xe306_9283);
        assert_eq!(crc32c_of(&[&b"1234"[..], b"", b"56789"]), 0xe306_9283);
    }

    #[test]
    fn excessive_lengths_are_refused_despite_a_good_checksum() {
        let too_long = CHUNK_BYTES_MAX as u32 + 1;
        for (encoding, raw_bytes, stored_bytes) in
            [(Encoding::Lz4, too_long, 5), (Encoding::Lz4, 5, too_long), (Encoding::Raw, 4, 5)]
        {
            let record = Record { encoding, raw_bytes, stored_bytes, ..Record::default() };
            assert!(Record::parse(&record.build(1, 32), 1, 32).is_err());
        }
    }

    #[test]
    fn only_encrypted_records_exceed_a_chunk() {
        let longest = CHUNK_BYTES_MAX as u32;
        for (key, stored_bytes, is_good) in [
            (0, longest + 1, false),
            (1, longest + SEAL_BYTES_MAX as u32, true),
            (1, longest + SEAL_BYTES_MAX as u32 + 1, false),
        ] {
            let record = Record { raw_bytes: longest, stored_bytes, key, ..Record::default() };
            assert_eq!(Record::parse(&record.build(1, 32), 1, 32).is_ok(), is_good, "{key} {stored_bytes}");
        }
    }

    #[test]
    fn versions_and_flags_to_come_are_refused() {
        for (at, byte, words) in [(5, 3, "header version 3"), (6, 2, "flags 02"), (4, 9, "codec 9")] {
            let mut header = Record::default().build(1, 32);
            header[at] = byte;
            let crc = header_crc(&header, 32);
            header[60..].copy_from_slice(&crc.to_be_bytes());
            assert!(Record::parse(&header, 1, 32).unwrap_err().contains(words));
        }
    }

    proptest! {
        #[test]
        fn version_1_is_read(record in record(), segment: u64, offset: u64, cut in 0..RECORD_BYTES_MIN) {
            let (layout, owner, key, is_shared) = (Layout::V1, ChunkOwner::default(), 0, false);
            let record = Record { layout, owner, key, is_shared, ..record };
            let header = build_v1(&record, segment, offset);
            prop_assert_eq!(Record::parse(&header, segment, offset), Ok(record));
            prop_assert!(Record::parse(&header[..cut], segment, offset).is_err());
        }

        #[test]
        fn records_are_parsed_only_at_their_place(
            record in record(), segment: u64, offset: u64, other: u64,
        ) {
            let header = record.build(segment, offset);
            prop_assert_eq!(Record::parse(&header, segment, offset), Ok(record));
            prop_assert_eq!(Record::parse(&header, segment, other).is_ok(), other == offset);
            prop_assert_eq!(Record::parse(&header, other, offset).is_ok(), other == segment);
        }

        #[test]
        fn every_flipped_bit_is_noticed(record in record(), bit in 0..RECORD_BYTES * 8) {
            let mut header = record.build(3, 32);
            header[bit / 8] ^= 1 << (bit % 8);
            prop_assert!(Record::parse(&header, 3, 32).is_err());
        }

        #[test]
        fn arbitrary_bytes_are_survived(header: [u8; RECORD_BYTES], segment: u64, offset: u64) {
            prop_assert!(Record::parse(&header, segment, offset).is_err());
        }

        /// A matching checksum may cover arbitrary fields; lengths are bounded all the same.
        #[test]
        fn arbitrary_fields_are_survived(mut header: [u8; RECORD_BYTES], segment: u64, offset: u64) {
            header[..4].copy_from_slice(MAGIC);
            header[16..24].copy_from_slice(&segment.to_be_bytes());
            if header[5] % 2 == 0 {
                header[5] = Layout::V2 as u8;
                header[6] &= FLAG_SHARED;
            }
            let crc = header_crc(&header, offset);
            header[60..].copy_from_slice(&crc.to_be_bytes());
            if let Ok(record) = Record::parse(&header, segment, offset) {
                prop_assert!(record.raw_bytes as usize <= CHUNK_BYTES_MAX);
                prop_assert!(record.stored_bytes as usize <= CHUNK_BYTES_MAX + SEAL_BYTES_MAX);
            }
        }
    }
}
