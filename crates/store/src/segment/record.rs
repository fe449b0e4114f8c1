//! The header in front of every chunk.

use super::codec::Encoding;
use crate::chunk::CHUNK_BYTES_MAX;
use crc_fast::{CrcAlgorithm, Digest};

/// Length of a record header.
pub(super) const RECORD_BYTES: usize = 32;

const MAGIC: &[u8; 4] = b"CHNK";

/// What a record header says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Record {
    pub(super) encoding: Encoding,
    pub(super) raw_bytes: u32,
    pub(super) stored_bytes: u32,
    pub(super) stored_crc: u32,
}

/// CRC-32C.
pub(super) fn crc32c(bytes: &[u8]) -> u32 {
    crc32c_of(&[bytes])
}

/// CRC-32C of a concatenation.
pub(super) fn crc32c_of<T: AsRef<[u8]>>(pieces: &[T]) -> u32 {
    let mut digest = Digest::new(CrcAlgorithm::Crc32Iscsi);
    for piece in pieces {
        digest.update(piece.as_ref());
    }
    digest.finalize() as u32
}

fn header_crc(bytes: &[u8], offset: u64) -> u32 {
    crc32c_of(&[&bytes[..28], &offset.to_be_bytes()[..]])
}

impl Record {
    /// The header for a place.
    pub(super) fn build(&self, segment: u64, offset: u64) -> [u8; RECORD_BYTES] {
        let mut header = [0; RECORD_BYTES];
        header[..4].copy_from_slice(MAGIC);
        header[4] = self.encoding as u8;
        header[8..12].copy_from_slice(&self.raw_bytes.to_be_bytes());
        header[12..16].copy_from_slice(&self.stored_bytes.to_be_bytes());
        header[16..24].copy_from_slice(&segment.to_be_bytes());
        header[24..28].copy_from_slice(&self.stored_crc.to_be_bytes());
        let crc = header_crc(&header, offset);
        header[28..].copy_from_slice(&crc.to_be_bytes());
        header
    }

    /// The header at a place; else what is wrong with it.
    pub(super) fn parse(header: &[u8; RECORD_BYTES], segment: u64, offset: u64) -> Result<Record, String> {
        let word =
            |at: usize| u32::from_be_bytes([header[at], header[at + 1], header[at + 2], header[at + 3]]);
        if &header[..4] != MAGIC {
            return Err(format!("expected a chunk, got {}", header[..4].escape_ascii()));
        }
        let (expected, got) = (header_crc(header, offset), word(28));
        if expected != got {
            return Err(format!("header checksum: expected {expected:08x}, got {got:08x}"));
        }
        let found = u64::from(word(16)) << 32 | u64::from(word(20));
        if found != segment {
            return Err(format!("expected a chunk of segment {segment}, got one of {found}"));
        }
        let encoding =
            Encoding::from_byte(header[4]).ok_or_else(|| format!("unknown codec {}", header[4]))?;
        let record = Record { encoding, raw_bytes: word(8), stored_bytes: word(12), stored_crc: word(24) };
        record.check_lengths()
    }

    fn check_lengths(self) -> Result<Record, String> {
        let (raw, stored) = (self.raw_bytes, self.stored_bytes);
        if raw as usize > CHUNK_BYTES_MAX || stored as usize > CHUNK_BYTES_MAX {
            return Err(format!("lengths {raw} and {stored} exceed {CHUNK_BYTES_MAX}"));
        }
        if self.encoding == Encoding::Raw && raw != stored {
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
        (encoding, 0..=CHUNK_BYTES_MAX as u32, 0..=CHUNK_BYTES_MAX as u32, any::<u32>()).prop_map(
            |(encoding, raw_bytes, stored, stored_crc)| {
                let stored_bytes = if encoding == Encoding::Raw { raw_bytes } else { stored };
                Record { encoding, raw_bytes, stored_bytes, stored_crc }
            },
        )
    }

    #[test]
    fn the_checksum_is_castagnolis() {
        assert_eq!(crc32c(b"123456789"), 0xe306_9283);
        assert_eq!(crc32c_of(&[&b"1234"[..], b"", b"56789"]), 0xe306_9283);
    }

    #[test]
    fn lengths_beyond_the_limit_are_refused_although_the_checksum_is_good() {
        let too_long = CHUNK_BYTES_MAX as u32 + 1;
        for (encoding, raw_bytes, stored_bytes) in
            [(Encoding::Lz4, too_long, 5), (Encoding::Lz4, 5, too_long), (Encoding::Raw, 4, 5)]
        {
            let record = Record { encoding, raw_bytes, stored_bytes, stored_crc: 0 };
            assert!(Record::parse(&record.build(1, 32), 1, 32).is_err());
        }
    }

    proptest! {
        #[test]
        fn what_was_built_is_parsed_at_its_place_only(
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

        /// Behind a good checksum anything may stand; lengths are bounded all the same.
        #[test]
        fn arbitrary_fields_are_survived(mut header: [u8; RECORD_BYTES], segment: u64, offset: u64) {
            header[..4].copy_from_slice(MAGIC);
            header[16..24].copy_from_slice(&segment.to_be_bytes());
            let crc = header_crc(&header, offset);
            header[28..].copy_from_slice(&crc.to_be_bytes());
            if let Ok(record) = Record::parse(&header, segment, offset) {
                prop_assert!(record.raw_bytes.max(record.stored_bytes) as usize <= CHUNK_BYTES_MAX);
            }
        }
    }
}
