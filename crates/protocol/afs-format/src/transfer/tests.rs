use super::*;
use proptest::prelude::*;
use std::convert::Infallible;

fn reader(
    bytes: &[u8],
    most: usize,
) -> Outcome<Reader<impl FnMut(usize) -> Result<Bytes, Infallible>>, Infallible> {
    let mut left = Bytes::copy_from_slice(bytes);
    Reader::open(move |wanted| Ok(left.split_to(wanted.min(most).min(left.len()))))
}

/// Reads all frames, joining the bytes of each.
fn read(bytes: &[u8], most: usize) -> Outcome<Vec<Frame>, Infallible> {
    let (mut reader, mut frames) = (reader(bytes, most)?, Vec::new());
    loop {
        match reader.next_frame()? {
            Frame::Bytes(pieces) => frames.push(Frame::Bytes(vec![pieces.concat().into()])),
            Frame::End => return Ok(frames),
            reference @ (Frame::Known(_) | Frame::Stored(_)) => frames.push(reference),
        }
    }
}

fn sample() -> (Vec<u8>, Vec<Frame>) {
    let chunk = Bytes::from(vec![7; 3000]);
    let known = Known { vnode: 2, unique: 9, index: 1 << 40, length: 17, digest: [5; 32] };
    let stored = Stored { length: 11, object: 1 << 40, offset: 32, record_bytes: 75, origin: 3 };
    let mut out = Vec::new();
    let mut writer = Writer::begin(&mut out);
    writer.raw(b"a header", &mut out);
    writer.data(3000, &digest(&[chunk.slice(..10), chunk.slice(10..)]), &mut out);
    out.extend_from_slice(&chunk);
    writer.known(&known, &mut out);
    writer.stored(&stored, &mut out);
    writer.zeros(5, &mut out);
    writer.raw(b"!", &mut out);
    writer.end(&mut out);
    let bytes = |bytes: &'static [u8]| Frame::Bytes(vec![Bytes::from_static(bytes)]);
    (
        out,
        vec![
            bytes(b"a header"),
            Frame::Bytes(vec![chunk]),
            Frame::Known(known),
            Frame::Stored(stored),
            bytes(&[0; 5]),
            bytes(b"!"),
        ],
    )
}

#[test]
fn values_survive_any_fragmentation() {
    let (bytes, frames) = sample();
    for most in [1, 3, 1000, usize::MAX] {
        assert_eq!(read(&bytes, most), Ok(frames.clone()));
    }
}

#[test]
fn long_raw_bytes_are_cut() {
    let mut out = Vec::new();
    let mut writer = Writer::begin(&mut out);
    writer.raw(&vec![1; CHUNK_BYTES + 5], &mut out);
    writer.end(&mut out);
    let lengths: Vec<usize> = read(&out, usize::MAX)
        .unwrap()
        .iter()
        .map(|frame| if let Frame::Bytes(pieces) = frame { pieces[0].len() } else { 0 })
        .collect();
    assert_eq!(lengths, [CHUNK_BYTES, 5]);
}

#[test]
fn every_changed_cut_or_appended_byte_is_detected() {
    let (bytes, _) = sample();
    for at in 0..bytes.len() {
        let mut changed = bytes.clone();
        changed[at] ^= 1 << (at % 8);
        assert!(read(&changed, usize::MAX).is_err(), "byte {at}");
        assert!(read(&bytes[..at], usize::MAX).is_err(), "cut at {at}");
    }
    assert!(read(&[&bytes[..], b"x"].concat(), usize::MAX).is_err());
}

#[test]
fn a_length_that_nobody_may_claim_is_refused() {
    for length in [0u32, CHUNK_BYTES as u32 + 1, u32::MAX] {
        for tag in [TAG_RAW, TAG_DATA, TAG_ZEROS] {
            let bytes = [&MAGIC[..], &[tag], &length.to_be_bytes()].concat();
            let offset = MAGIC.len() as u64 + 1;
            let expected = "a length from 1 byte to 256 KiB";
            assert_eq!(read(&bytes, 100), Err(TransferError::Damaged { offset, expected }));
        }
    }
}

proptest! {
    #[test]
    fn arbitrary_bytes_are_survived(bytes in proptest::collection::vec(any::<u8>(), 0..300), tag in 0usize..6) {
        let frame = [TAG_RAW, TAG_DATA, TAG_ZEROS, TAG_KNOWN, TAG_END, 0][tag];
        let _ = read(&[&MAGIC[..], &[frame], &bytes].concat(), 64);
        let _ = read(&bytes, 64);
    }
}
