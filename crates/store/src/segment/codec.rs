//! How chunks are encoded.

use super::compression;
use super::record::{Record, crc32c, crc32c_of};
use crate::Codec;
use crate::chunk::CHUNK_BYTES_MAX;
use bytes::Bytes;

/// How a stored chunk is encoded; the number is the one on disk.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum Encoding {
    #[default]
    Raw = 0,
    Lz4 = 1,
    Zstd = 2,
}

/// An encoded chunk, ready to be written behind its record header.
pub(super) struct Encoded {
    pub(super) record: Record,
    pub(super) stored: Vec<Bytes>,
}

impl Encoding {
    pub(super) fn from_byte(byte: u8) -> Option<Encoding> {
        [Encoding::Raw, Encoding::Lz4, Encoding::Zstd].into_iter().find(|encoding| *encoding as u8 == byte)
    }
}

/// Encodes a chunk given in pieces; `None` if it is longer than a chunk may be. Raw pieces are
/// taken as they are, without copying.
pub(super) fn encode(pieces: &[Bytes], codec: Codec) -> Option<Encoded> {
    let raw_bytes = pieces.iter().try_fold(0usize, |sum, piece| sum.checked_add(piece.len()))?;
    if raw_bytes > CHUNK_BYTES_MAX {
        return None;
    }
    let raw_bytes = raw_bytes as u32;
    Some(compressed(pieces, codec, raw_bytes).unwrap_or_else(|| Encoded {
        record: Record {
            encoding: Encoding::Raw,
            raw_bytes,
            stored_bytes: raw_bytes,
            stored_crc: crc32c_of(pieces),
            ..Record::default()
        },
        stored: pieces.to_vec(),
    }))
}

/// The chunk compressed, unless it does not shrink by an eighth.
fn compressed(pieces: &[Bytes], codec: Codec, raw_bytes: u32) -> Option<Encoded> {
    let (encoding, stored) = match codec {
        Codec::Raw => return None,
        Codec::Lz4 => (Encoding::Lz4, compression::lz4(&joined(pieces))),
        Codec::Zstd(level) => (Encoding::Zstd, compression::zstd(&joined(pieces), level)?),
    };
    let stored_bytes = stored.len() as u32;
    if stored_bytes > raw_bytes - raw_bytes / 8 || stored_bytes >= raw_bytes {
        return None;
    }
    let stored_crc = crc32c(&stored);
    let record = Record { encoding, raw_bytes, stored_bytes, stored_crc, ..Record::default() };
    Some(Encoded { record, stored: vec![stored.into()] })
}

fn joined(pieces: &[Bytes]) -> Bytes {
    match pieces {
        [one] => one.clone(),
        many => many.concat().into(),
    }
}

/// The chunk in `stored`, which must be as long as `record` says; else what is wrong with it.
pub(super) fn decode(record: &Record, stored: Bytes) -> Result<Bytes, String> {
    let crc = crc32c(&stored);
    if crc != record.stored_crc {
        return Err(format!("data checksum: expected {:08x}, got {crc:08x}", record.stored_crc));
    }
    if record.encoding == Encoding::Raw {
        return Ok(stored);
    }
    let mut raw = vec![0; record.raw_bytes as usize];
    let length = match record.encoding {
        Encoding::Zstd => compression::unzstd(&stored, &mut raw)?,
        _ => compression::unlz4(&stored, &mut raw)?,
    };
    if length == raw.len() {
        Ok(raw.into())
    } else {
        Err(format!("expected {} bytes, got {length}", raw.len()))
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
    fn what_does_not_shrink_is_raw_and_not_copied() {
        let mix = |n: u32| (n ^ n >> 15).wrapping_mul(0x85eb_ca6b);
        let noise: Bytes = (0..4000u32).map(|n| (mix(mix(n)) >> 13) as u8).collect();
        let encoded = encode(std::slice::from_ref(&noise), Codec::Lz4).unwrap();
        assert_eq!(encoded.record.encoding, Encoding::Raw);
        assert_eq!(encoded.stored[0].as_ptr(), noise.as_ptr());
        let zeros = Bytes::from(vec![0; 4000]);
        assert_eq!(encode(&[zeros], Codec::Lz4).unwrap().record.encoding, Encoding::Lz4);
    }

    #[test]
    fn a_chunk_has_a_largest_size() {
        let half = Bytes::from(vec![1; CHUNK_BYTES_MAX / 2]);
        assert!(encode(&[half.clone(), half.clone()], Codec::Raw).is_some());
        assert!(encode(&[half.clone(), half, Bytes::from_static(b"x")], Codec::Raw).is_none());
    }

    proptest! {
        #[test]
        fn what_was_encoded_is_decoded(pieces in pieces(), codec in codec()) {
            let encoded = encode(&pieces, codec).unwrap();
            let stored = Bytes::from(encoded.stored.concat());
            prop_assert_eq!(stored.len(), encoded.record.stored_bytes as usize);
            prop_assert!(encoded.record.stored_bytes <= encoded.record.raw_bytes);
            prop_assert_eq!(decode(&encoded.record, stored).unwrap(), pieces.concat());
        }

        /// The decoders of the libraries get these bytes only if a checksum happens to be right.
        #[test]
        fn arbitrary_bytes_are_survived(stored: Vec<u8>, raw_bytes in 0..100_000u32, zstd: bool) {
            let encoding = if zstd { Encoding::Zstd } else { Encoding::Lz4 };
            let stored_crc = crc32c(&stored);
            let stored_bytes = stored.len() as u32;
            let record = Record { encoding, raw_bytes, stored_bytes, stored_crc, ..Record::default() };
            _ = decode(&record, stored.into());
        }

        #[test]
        fn damaged_bytes_are_noticed(pieces in pieces(), codec in codec(), place: prop::sample::Index, bit in 0..8u8) {
            let encoded = encode(&pieces, codec).unwrap();
            let mut stored = encoded.stored.concat();
            prop_assume!(!stored.is_empty());
            let place = place.index(stored.len());
            stored[place] ^= 1 << bit;
            prop_assert!(decode(&encoded.record, stored.clone().into()).is_err());
            // Behind a checksum that was made for the damage, still no panic and the right length.
            let record = Record { stored_crc: crc32c(&stored), ..encoded.record };
            if let Ok(raw) = decode(&record, stored.into()) {
                prop_assert_eq!(raw.len(), record.raw_bytes as usize);
            }
        }
    }
}
