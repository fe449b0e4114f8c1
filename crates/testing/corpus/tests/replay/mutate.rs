//! Mutations of inputs: bits and bytes, words that may be lengths, and whole pieces.

use corpus::frames::{frames, push};
use rand::Rng;
use rand::rngs::SmallRng;
use std::ops::Range;

/// Maximum number of changes to one input.
const CHANGES_MAX: usize = 5;
/// Maximum size of a mutated input.
const BYTES_MAX: usize = 64 << 10;
/// Words that are often boundary values.
const WORDS: [u32; 12] =
    [0, 1, 2, 3, 4, 0x7f, 0xff, 0xffff, 0x7fff_ffff, 0x8000_0000, 0xffff_fffe, 0xffff_ffff];

/// Returns `data` with some changes; `other` is another input of the same target.
pub(crate) fn mutated(random: &mut SmallRng, data: &[u8], other: &[u8]) -> Vec<u8> {
    let mut out = data.to_vec();
    for _ in 0..random.random_range(1..=CHANGES_MAX) {
        change(random, &mut out, other);
    }
    out.truncate(BYTES_MAX);
    out
}

fn change(random: &mut SmallRng, data: &mut Vec<u8>, other: &[u8]) {
    if data.is_empty() {
        data.push(random.random());
    }
    match random.random_range(0..12) {
        0..3 => *place(random, data) ^= 1 << random.random_range(0..8),
        3 => *place(random, data) = random.random(),
        4 => data.truncate(random.random_range(0..data.len())),
        5 => drop(data.drain(range(random, data))),
        6 => insert(random, data, None),
        7 => insert(random, data, Some(other)),
        8 => splice(random, data, other),
        9 => put_word(random, data),
        10 => copy_word(random, data),
        _ => shuffle_frames(random, data),
    }
}

fn place<'a>(random: &mut SmallRng, data: &'a mut [u8]) -> &'a mut u8 {
    let at = random.random_range(0..data.len());
    &mut data[at]
}

/// Returns a range in `data`, usually a short one.
fn range(random: &mut SmallRng, data: &[u8]) -> Range<usize> {
    let from = random.random_range(0..=data.len());
    let most = if random.random_ratio(1, 4) { data.len() } else { 16 };
    from..data.len().min(from + random.random_range(0..=most))
}

/// Inserts a part of the other input, or duplicates a part of this one.
fn insert(random: &mut SmallRng, data: &mut Vec<u8>, other: Option<&[u8]>) {
    let source = other.unwrap_or(data);
    let part = source[range(random, source)].to_vec();
    let at = random.random_range(0..=data.len());
    data.splice(at..at, part);
}

/// Joins the start of this input to the end of the other.
fn splice(random: &mut SmallRng, data: &mut Vec<u8>, other: &[u8]) {
    let at = random.random_range(0..=data.len().min(other.len()));
    data.truncate(at);
    data.extend_from_slice(&other[at..]);
}

/// Overwrites a word, usually an aligned one.
fn put_word(random: &mut SmallRng, data: &mut [u8]) {
    let word = match random.random_range(0..4) {
        0 => data.len() as u32,
        1 => random.random_range(0..0x2000),
        _ => WORDS[random.random_range(0..WORDS.len())],
    };
    write_word(random, data, word.to_be_bytes());
}

fn write_word(random: &mut SmallRng, data: &mut [u8], word: [u8; 4]) {
    let mut at = random.random_range(0..data.len());
    if random.random_ratio(3, 4) {
        at &= !3;
    }
    for (place, byte) in data[at..].iter_mut().zip(word) {
        *place = byte;
    }
}

/// Overwrites a word with another one from the input, possibly a length.
fn copy_word(random: &mut SmallRng, data: &mut [u8]) {
    let at = random.random_range(0..data.len()) & !3;
    if let Some(word) = data[at..].first_chunk::<4>().copied() {
        write_word(random, data, word);
    }
}

/// Drops, duplicates or swaps pieces, if the input consists of pieces.
fn shuffle_frames(random: &mut SmallRng, data: &mut Vec<u8>) {
    let skip = random.random_range(0..=1);
    let mut parts: Vec<Vec<u8>> = frames(&data[skip..]).map(<[u8]>::to_vec).collect();
    if parts.len() < 2 {
        return;
    }
    let (one, two) = (random.random_range(0..parts.len()), random.random_range(0..parts.len()));
    match random.random_range(0..3) {
        0 => drop(parts.remove(one)),
        1 => parts.insert(two, parts[one].clone()),
        _ => parts.swap(one, two),
    }
    data.truncate(skip);
    for part in &parts {
        push(data, part);
    }
}
