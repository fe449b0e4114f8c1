//! The compressors, and when they are not worth their time.
//!
//! LZ4 and the lowest levels of Zstandard skip through data that do not shrink many times faster than they
//! compress, so they are simply tried; LZ4, which is to be nearly for nothing, on a part first where a sample is
//! nothing but noise. The higher levels search as long in noise as in text: 256 KiB
//! of noise cost level 9 a millisecond, level 1 30 us. So for them level 1 goes first where a sample's
//! bytes are spread so evenly that the data may be noise, and has the word.

use super::frame::Frame;
use super::pool::Pool;
use zstd::bulk::{Compressor, Decompressor};

/// Levels above this are kept from noise.
const CHEAP_LEVEL_MAX: i8 = 3;

/// Bytes looked at to tell text from noise, in so many places of a chunk.
const SAMPLE_PLACES: usize = 16;
const SAMPLE_PLACE_BYTES: usize = 256;

/// A chunk whose bytes carry fewer bits each, by their frequency alone, shrinks by an eighth whatever
/// their order is.
const BITS_OF_NOISE: f64 = 7.0;

/// A sample of noise carries 7.95; with a tenth of text in it, less than this.
const BITS_OF_NOTHING_BUT_NOISE: f64 = 7.9;

/// Of noise, LZ4 is given this part first: it looks back no further, so repetitions that it could use show here.
const LZ4_TRIAL_BYTES: usize = 64 << 10;

/// Making a context costs a third of compressing a chunk, so they are used again. One of a high level has megabytes.
static COMPRESSORS: Pool<Compressor<'static>> = Pool::of(8, |_| 1);
static DECOMPRESSORS: Pool<Decompressor<'static>> = Pool::of(8, |_| 1);

/// An LZ4 block; `None` if it would be longer than `most`, or seems so.
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

/// What an LZ4 block was made of; an error if that is more than so many bytes.
pub(super) fn unlz4(stored: &[u8], most: usize) -> Result<Vec<u8>, String> {
    let most = i32::try_from(most).map_err(|error| error.to_string())?;
    lz4::block::decompress(stored, Some(most)).map_err(|error| error.to_string())
}

/// A Zstandard frame; `None` if it is not worth while.
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
        // A higher level finds a little more than the first; not the rest of an eighth.
        if tried.len() > raw.len() - raw.len() / 16 {
            return None;
        }
    }
    compressor.set_compression_level(i32::from(level)).ok()?;
    compressor.compress(raw).ok()
}

/// What a Zstandard frame was made of; an error if that is more than so many bytes.
pub(super) fn unzstd(stored: &[u8], most: usize) -> Result<Vec<u8>, String> {
    let fresh = || Decompressor::new().map_err(|error| error.to_string());
    let mut decompressor = DECOMPRESSORS.take().map_or_else(fresh, Ok)?;
    let raw = decompressor.decompress(stored, most).map_err(|error| error.to_string());
    DECOMPRESSORS.give_back(decompressor);
    raw
}

/// How many bits a byte of the sample carries, by how often each value comes.
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
    fn noise_is_told_from_text() {
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
        // A third of text between noise is enough, wherever it is.
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
