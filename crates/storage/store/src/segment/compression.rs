//! The compressors, and the decision whether compression is worth its time.
//!
//! LZ4 and the lowest levels of Zstandard skip incompressible data many times faster than they compress, so
//! they are simply tried. LZ4, which is meant to be nearly free, is tried on a part first if a sample is pure
//! noise. The higher levels search noise as long as they search text: for 256 KiB of noise, level 9 takes a
//! millisecond and level 1 takes 30 us. So if a sample's bytes are distributed so evenly that the data may be
//! noise, level 1 runs first and decides.

use super::frame::Frame;
use super::pool::Pool;
use zstd::bulk::{Compressor, Decompressor};

/// Levels above this are not applied to noise.
const CHEAP_LEVEL_MAX: i8 = 3;

/// Number of places in a chunk, and bytes in each, that are sampled to distinguish text from noise.
const SAMPLE_PLACES: usize = 16;
const SAMPLE_PLACE_BYTES: usize = 256;

/// A chunk with fewer bits of entropy per byte, by frequency alone, shrinks by an eighth in any order.
const BITS_OF_NOISE: f64 = 7.0;

/// A sample of noise has 7.95 bits per byte; with a tenth of text in it, less than this.
const BITS_OF_NOTHING_BUT_NOISE: f64 = 7.9;

/// Size of the part of noise that LZ4 is tried on first. LZ4 looks back no further, so repetitions that it
/// could use show up here.
const LZ4_TRIAL_BYTES: usize = 64 << 10;

/// Creating a context costs a third of compressing a chunk, so contexts are reused. One for a high level
/// takes megabytes.
static COMPRESSORS: Pool<Compressor<'static>> = Pool::of(8, |_| 1);
static DECOMPRESSORS: Pool<Decompressor<'static>> = Pool::of(8, |_| 1);

/// Compresses to an LZ4 block; `None` if it would be longer than `most`, or probably would be.
pub(super) fn lz4(raw: &[u8], most: usize) -> Option<Frame> {
    if raw.len() > 2 * LZ4_TRIAL_BYTES && bits_per_byte(raw) > BITS_OF_NOTHING_BUT_NOISE {
        let part = &raw[raw.len() - LZ4_TRIAL_BYTES..];
        lz4_block(part, part.len() - part.len() / 16)?;
    }
    lz4_block(raw, most)
}

fn lz4_block(raw: &[u8], most: usize) -> Option<Frame> {
    let mut block = Frame::of(most);
    let length = lz4::block::compress_to_buffer(raw, None, false, block.stored_mut()).ok()?;
    block.shorten(length);
    Some(block)
}

/// Decompresses an LZ4 block; an error if the result exceeds `most` bytes.
pub(super) fn unlz4(stored: &[u8], most: usize) -> Result<Vec<u8>, String> {
    let most = i32::try_from(most).map_err(|error| error.to_string())?;
    lz4::block::decompress(stored, Some(most)).map_err(|error| error.to_string())
}

/// Compresses to a Zstandard frame; `None` if it is not worthwhile.
pub(super) fn zstd(raw: &[u8], level: i8) -> Option<Vec<u8>> {
    let mut compressor = COMPRESSORS.take().or_else(|| Compressor::new(0).ok())?;
    let stored = zstd_with(&mut compressor, raw, level);
    COMPRESSORS.give_back(compressor);
    stored
}

fn zstd_with(compressor: &mut Compressor<'_>, raw: &[u8], level: i8) -> Option<Vec<u8>> {
    if level > CHEAP_LEVEL_MAX && bits_per_byte(raw) > BITS_OF_NOISE {
        compressor.set_compression_level(1).ok()?;
        let tried = compressor.compress(raw).ok()?;
        // A higher level saves a little more than the first, but not the rest of an eighth.
        if tried.len() > raw.len() - raw.len() / 16 {
            return None;
        }
    }
    compressor.set_compression_level(i32::from(level)).ok()?;
    compressor.compress(raw).ok()
}

/// Decompresses a Zstandard frame; an error if the result exceeds `most` bytes.
pub(super) fn unzstd(stored: &[u8], most: usize) -> Result<Vec<u8>, String> {
    let fresh = || Decompressor::new().map_err(|error| error.to_string());
    let mut decompressor = DECOMPRESSORS.take().map_or_else(fresh, Ok)?;
    let raw = decompressor.decompress(stored, most).map_err(|error| error.to_string());
    DECOMPRESSORS.give_back(decompressor);
    raw
}

/// Returns the entropy of a sample in bits per byte, from the frequency of each value.
fn bits_per_byte(raw: &[u8]) -> f64 {
    let mut counts = [0u32; 256];
    let step = raw.len() / SAMPLE_PLACES;
    for place in 0..SAMPLE_PLACES {
        let sample = &raw[place * step..];
        for &byte in &sample[..sample.len().min(SAMPLE_PLACE_BYTES)] {
            counts[usize::from(byte)] += 1;
        }
    }
    let all = f64::from(counts.iter().sum::<u32>().max(1));
    let bits = |&count: &u32| -f64::from(count) / all * (f64::from(count) / all).log2();
    counts.iter().filter(|&&count| count > 0).map(bits).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn noise(length: usize) -> Vec<u8> {
        let mut state = 0x9e37_79b9_7f4a_7c15u64;
        let mut next = || {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            (state >> 24) as u8
        };
        (0..length).map(|_| next()).collect()
    }

    #[test]
    fn noise_is_distinguished_from_text() {
        let text = b"what does not shrink costs only a look. ".repeat(7000);
        assert!(bits_per_byte(&text) < 5.0);
        assert!(bits_per_byte(&noise(1 << 18)) > 7.9);
        assert!(bits_per_byte(&[]) < 0.1 && bits_per_byte(&[1; 5]) < 0.1);
    }

    #[test]
    fn high_levels_leave_noise_alone_but_see_that_it_repeats() {
        let mut chunk = noise(1 << 17);
        assert_eq!(zstd(&chunk, 9), None);
        chunk.extend_from_within(..);
        let stored = zstd(&chunk, 9).unwrap();
        assert!(stored.len() < chunk.len() * 6 / 10);
        assert_eq!(unzstd(&stored, chunk.len()), Ok(chunk));
    }

    #[test]
    fn lz4_leaves_noise_alone_but_sees_that_it_repeats() {
        let most = |raw: &[u8]| raw.len() - raw.len() / 8;
        let pure = noise(1 << 18);
        assert!(lz4(&pure, most(&pure)).is_none());
        let repeated = noise(1 << 13).repeat(32);
        let block = lz4(&repeated, most(&repeated)).unwrap();
        assert!(block.stored().len() < repeated.len() / 16);
        assert_eq!(unlz4(block.stored(), repeated.len()).as_deref(), Ok(&repeated[..]));
        // A third of text among noise is enough, wherever it is.
        for place in 0..3 {
            let mut mixed = noise(3 << 16);
            mixed[place << 16..][..1 << 16]
                .copy_from_slice(&b"text that repeats itself. ".repeat(2600)[..1 << 16]);
            let block = lz4(&mixed, most(&mixed)).unwrap();
            assert_eq!(unlz4(block.stored(), mixed.len()).as_deref(), Ok(&mixed[..]));
        }
    }

    #[test]
    fn a_context_used_again_forgets_its_level() {
        let text = b"level after level after level, ".repeat(2000);
        let first = zstd(&text, 1).unwrap();
        assert!(zstd(&text, 19).unwrap().len() <= first.len());
        assert_eq!(zstd(&text, 1).unwrap(), first);
        assert!(unzstd(b"no frame", 9).is_err());
        assert_eq!(unzstd(&first, text.len()).as_deref(), Ok(&text[..]));
        assert!(unzstd(&first, text.len() - 1).is_err());
    }

    #[test]
    fn a_block_is_no_longer_than_it_may_be() {
        let text = b"block after block after block, ".repeat(2000);
        let block = lz4(&text, text.len()).unwrap();
        let stored = block.stored();
        assert_eq!(lz4(&text, stored.len()).unwrap().stored(), stored);
        assert!(lz4(&text, stored.len() / 2).is_none());
        assert_eq!(unlz4(stored, text.len()).as_deref(), Ok(&text[..]));
        assert!(unlz4(stored, text.len() - 1).is_err());
        assert!(unlz4(b"", 9).is_err());
    }
}
