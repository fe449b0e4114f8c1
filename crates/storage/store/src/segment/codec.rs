//! Encoding of chunks.

use super::compression;
use super::frame::Frame;
use super::record::{RECORD_BYTES, Record, crc32c};
use crate::chunk::CHUNK_BYTES_MAX;
use crate::{Codec, KeyRing, StoreError};
use bytes::Bytes;

/// Encoding of a stored chunk; the number is the one on disk.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum Encoding {
    #[default]
    Raw = 0,
    Lz4 = 1,
    Zstd = 2,
}

/// An encoded chunk, ready to be written after its record header.
pub(super) struct Encoded {
    pub(super) record: Record,
    pub(super) stored: Stored,
}

/// The bytes that follow the record header.
pub(super) enum Stored {
    Apart(Bytes),
    Framed(Frame),
}

impl Encoded {
    /// Returns the size of the record, header included.
    pub(super) fn record_bytes(&self) -> u32 {
        RECORD_BYTES as u32 + self.record.stored_bytes
    }
}

impl Stored {
    pub(super) fn bytes(&self) -> &[u8] {
        match self {
            Stored::Apart(bytes) => bytes,
            Stored::Framed(frame) => frame.stored(),
        }
    }

    /// Moves the bytes into a frame, which has room for a header before them.
    pub(super) fn into_frame(self) -> Frame {
        match self {
            Stored::Apart(bytes) => Frame::joining(&[&bytes], bytes.len()),
            Stored::Framed(frame) => frame,
        }
    }
}

impl Encoding {
    pub(super) fn from_byte(byte: u8) -> Option<Encoding> {
        [Encoding::Raw, Encoding::Lz4, Encoding::Zstd].into_iter().find(|encoding| *encoding as u8 == byte)
    }
}

/// Encodes a chunk given in pieces. A single piece that does not shrink is not copied.
///
/// # Errors
/// `TooLong`.
pub(super) fn encode(pieces: &[Bytes], codec: Codec) -> Result<Encoded, StoreError> {
    let raw_bytes = pieces.iter().fold(0usize, |sum, piece| sum.saturating_add(piece.len()));
    if raw_bytes > CHUNK_BYTES_MAX {
        return Err(StoreError::TooLong { bytes: raw_bytes });
    }
    let as_it_is = match pieces {
        [one] => Stored::Apart(one.clone()),
        // Joined where they can be written from, in case they do not shrink.
        several => Stored::Framed(Frame::joining(several, raw_bytes)),
    };
    Ok(shrunk_or_not(as_it_is, codec))
}

/// Encodes a chunk that is already in a frame, so that one that does not shrink is not copied.
///
/// # Errors
/// `TooLong`.
pub(super) fn encode_framed(frame: Frame, codec: Codec) -> Result<Encoded, StoreError> {
    match frame.stored().len() {
        bytes if bytes > CHUNK_BYTES_MAX => Err(StoreError::TooLong { bytes }),
        _ => Ok(shrunk_or_not(Stored::Framed(frame), codec)),
    }
}

fn shrunk_or_not(as_it_is: Stored, codec: Codec) -> Encoded {
    let raw_bytes = as_it_is.bytes().len();
    let shrunk = compressed(as_it_is.bytes(), codec);
    shrunk.unwrap_or_else(|| Encoded::new(Encoding::Raw, raw_bytes, as_it_is))
}

impl Encoded {
    fn new(encoding: Encoding, raw_bytes: usize, stored: Stored) -> Encoded {
        let bytes = stored.bytes();
        let (stored_bytes, stored_crc) = (bytes.len() as u32, crc32c(bytes));
        let raw_bytes = raw_bytes as u32;
        Encoded {
            record: Record { encoding, raw_bytes, stored_bytes, stored_crc, ..Record::default() },
            stored,
        }
    }
}

/// Compresses the chunk; `None` if it does not shrink by an eighth.
fn compressed(raw: &[u8], codec: Codec) -> Option<Encoded> {
    let most = raw.len().saturating_sub((raw.len() / 8).max(1));
    let (encoding, stored) = match codec {
        Codec::Raw => return None,
        Codec::Lz4 => (Encoding::Lz4, Stored::Framed(compression::lz4(raw, most)?)),
        Codec::Zstd(level) => {
            let stored = compression::zstd(raw, level).filter(|stored| stored.len() <= most)?;
            (Encoding::Zstd, Stored::Apart(stored.into()))
        }
    };
    Some(Encoded::new(encoding, raw.len(), stored))
}

/// Returns the authenticated context of an encrypted chunk. It excludes the address, since compaction moves
/// the chunk without the key.
fn context(record: &Record) -> [u8; 9] {
    let mut context = *b"CHNK\0\0\0\0\0";
    context[4] = record.encoding as u8;
    context[5..].copy_from_slice(&record.raw_bytes.to_be_bytes());
    context
}

/// Encrypts an encoded chunk with the newest key.
pub(super) fn seal(encoded: &Encoded, keys: &KeyRing) -> Result<Encoded, StoreError> {
    let (key, sealed) = keys.seal(&context(&encoded.record), &[encoded.stored.bytes()])?;
    let (stored_bytes, stored_crc) = (sealed.len() as u32, crc32c(&sealed));
    let record = Record { stored_bytes, stored_crc, key, ..encoded.record };
    Ok(Encoded { record, stored: Stored::Apart(sealed.into()) })
}

/// Checks everything that can be checked without keys.
pub(super) fn check(record: &Record, stored: &[u8]) -> Result<(), String> {
    let crc = crc32c(stored);
    if crc == record.stored_crc {
        Ok(())
    } else {
        Err(format!("data checksum: expected {:08x}, got {crc:08x}", record.stored_crc))
    }
}

/// Whether the chunk is stored neither compressed nor encrypted.
pub(super) fn is_plain(record: &Record) -> bool {
    record.key == 0 && record.encoding == Encoding::Raw
}

/// Returns a chunk stored in plain form without copying it; the error describes what is wrong with it.
pub(super) fn take_plain(record: &Record, stored: Bytes) -> Result<Bytes, String> {
    check(record, &stored)?;
    right_length(record, stored)
}

/// Decodes the chunk in `stored`, whose length must match `record`; the error describes what is wrong with
/// it.
pub(super) fn decode(record: &Record, stored: &[u8], keys: Option<&KeyRing>) -> Result<Bytes, String> {
    check(record, stored)?;
    match (record.key, keys) {
        (0, _) if is_plain(record) => right_length(record, Bytes::copy_from_slice(stored)),
        (0, _) => unpack(record, stored),
        (key, Some(keys)) => {
            let unsealed = keys.unseal(key, &context(record), stored)?;
            if record.encoding == Encoding::Raw {
                right_length(record, unsealed)
            } else {
                unpack(record, &unsealed)
            }
        }
        (key, None) => Err(format!("encrypted with key {key}, but no key is given")),
    }
}

/// Decompresses a chunk.
fn unpack(record: &Record, packed: &[u8]) -> Result<Bytes, String> {
    let most = record.raw_bytes as usize;
    let raw = match record.encoding {
        Encoding::Zstd => compression::unzstd(packed, most)?,
        _ => compression::unlz4(packed, most)?,
    };
    right_length(record, raw.into())
}

fn right_length(record: &Record, raw: Bytes) -> Result<Bytes, String> {
    if raw.len() == record.raw_bytes as usize {
        Ok(raw)
    } else {
        Err(format!("expected {} bytes, got {}", record.raw_bytes, raw.len()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn codec() -> impl Strategy<Value = Codec> {
        prop_oneof![Just(Codec::Raw), Just(Codec::Lz4), (-5..=3i8).prop_map(Codec::Zstd)]
    }

    fn pieces() -> impl Strategy<Value = Vec<Bytes>> {
        let noise = prop::collection::vec(any::<u8>(), 0..3000);
        let plain = (any::<u8>(), 0..5000usize).prop_map(|(byte, count)| vec![byte; count]);
        prop::collection::vec(prop_oneof![noise, plain].prop_map(Bytes::from), 0..5)
    }

    #[test]
    fn incompressible_data_stays_raw_and_uncopied() {
        let mix = |n: u32| (n ^ n >> 15).wrapping_mul(0x85eb_ca6b);
        let noise: Bytes = (0..4000u32).map(|n| (mix(mix(n)) >> 13) as u8).collect();
        let encoded = encode(std::slice::from_ref(&noise), Codec::Lz4).unwrap();
        assert_eq!(encoded.record.encoding, Encoding::Raw);
        assert_eq!(encoded.stored.bytes().as_ptr(), noise.as_ptr());
        let zeros = Bytes::from(vec![0; 4000]);
        assert_eq!(encode(&[zeros], Codec::Lz4).unwrap().record.encoding, Encoding::Lz4);
    }

    #[test]
    fn a_chunk_has_a_largest_size() {
        let half = Bytes::from(vec![1; CHUNK_BYTES_MAX / 2]);
        assert!(encode(&[half.clone(), half.clone()], Codec::Raw).is_ok());
        let error = encode(&[half.clone(), half, Bytes::from_static(b"x")], Codec::Raw).err().unwrap();
        assert_eq!(error.to_string(), "a chunk has at most 1048576 bytes, this one has 1048577");
    }

    proptest! {
        #[test]
        fn encoded_chunks_are_decoded(pieces in pieces(), codec in codec()) {
            let encoded = encode(&pieces, codec).unwrap();
            let stored = encoded.stored.bytes().to_vec();
            prop_assert_eq!(stored.len(), encoded.record.stored_bytes as usize);
            prop_assert!(encoded.record.stored_bytes <= encoded.record.raw_bytes);
            prop_assert_eq!(decode(&encoded.record, &stored, None).unwrap(), pieces.concat());
        }

        /// The libraries' decoders see such bytes only if a checksum happens to match.
        #[test]
        fn arbitrary_bytes_are_survived(stored: Vec<u8>, raw_bytes in 0..100_000u32, zstd: bool) {
            let encoding = if zstd { Encoding::Zstd } else { Encoding::Lz4 };
            let stored_crc = crc32c(&stored);
            let stored_bytes = stored.len() as u32;
            let record = Record { encoding, raw_bytes, stored_bytes, stored_crc, ..Record::default() };
            _ = decode(&record, &stored, None);
        }

        #[test]
        fn damaged_bytes_are_noticed(pieces in pieces(), codec in codec(), place: prop::sample::Index, bit in 0..8u8) {
            let encoded = encode(&pieces, codec).unwrap();
            let mut stored = encoded.stored.bytes().to_vec();
            prop_assume!(!stored.is_empty());
            let place = place.index(stored.len());
            stored[place] ^= 1 << bit;
            prop_assert!(decode(&encoded.record, &stored, None).is_err());
            // With a checksum that matches the damage, it still does not panic and returns the right length.
            let record = Record { stored_crc: crc32c(&stored), ..encoded.record };
            if let Ok(raw) = decode(&record, &stored, None) {
                prop_assert_eq!(raw.len(), record.raw_bytes as usize);
            }
        }

        #[test]
        fn encrypted_data_needs_its_key_and_damage_is_detected(
            pieces in pieces(), codec in codec(), place: prop::sample::Index, bit in 0..8u8,
        ) {
            let keys = KeyRing::random();
            let encoded = seal(&encode(&pieces, codec).unwrap(), &keys).unwrap();
            let mut stored = encoded.stored.bytes().to_vec();
            prop_assert_eq!(decode(&encoded.record, &stored, Some(&keys)).unwrap(), pieces.concat());
            prop_assert!(decode(&encoded.record, &stored, Some(&KeyRing::random())).is_err());
            prop_assert!(decode(&encoded.record, &stored, None).unwrap_err().contains("no key is given"));
            // Also rejected with a checksum that matches the damage.
            let place = place.index(stored.len());
            stored[place] ^= 1 << bit;
            prop_assert!(decode(&encoded.record, &stored, Some(&keys)).is_err());
            let record = Record { stored_crc: crc32c(&stored), ..encoded.record };
            prop_assert!(decode(&record, &stored, Some(&keys)).is_err());
            let record = Record { raw_bytes: encoded.record.raw_bytes ^ 1, ..encoded.record };
            stored[place] ^= 1 << bit;
            prop_assert!(decode(&record, &stored, Some(&keys)).is_err());
        }
    }
}
