use crate::{
    Decode, Encode, SliceSource, Source, XdrError, XdrString, array, chain, chars, fixed, from_slice, list,
    long_array, octets, opaque, to_vec,
};
use proptest::prelude::*;

/// A source that returns zeros and counts them, up to a limit.
struct Zeros {
    left: usize,
    largest_read: usize,
}

impl Source for Zeros {
    fn read_exact(&mut self, buf: &mut [u8]) -> Result<(), XdrError> {
        self.largest_read = self.largest_read.max(buf.len());
        self.left = self.left.checked_sub(buf.len()).ok_or(XdrError::Ended)?;
        buf.fill(0);
        Ok(())
    }
}

#[test]
fn numbers_are_big_endian() {
    assert_eq!(to_vec(&0x0102_0304_u32), [1, 2, 3, 4]);
    assert_eq!(to_vec(&-2_i32), [255, 255, 255, 254]);
    assert_eq!(to_vec(&1_u64), [0, 0, 0, 0, 0, 0, 0, 1]);
    assert_eq!(to_vec(&true), [0, 0, 0, 1]);
    assert_eq!(from_slice::<i64>(&[255; 8]), Ok(-1));
    assert_eq!(from_slice::<bool>(&[0, 0, 1, 0]), Ok(true));
    assert_eq!(from_slice::<u32>(&[0; 3]), Err(XdrError::Ended));
    assert_eq!(from_slice::<u32>(&[0; 5]), Err(XdrError::Trailing { got: 1 }));
}

#[test]
fn strings_are_padded_to_words() {
    for (text, wire) in [
        ("", vec![0, 0, 0, 0]),
        ("abc", vec![0, 0, 0, 3, 97, 98, 99, 0]),
        ("abcd", vec![0, 0, 0, 4, 97, 98, 99, 100]),
    ] {
        let mut out = Vec::new();
        opaque::encode(text.as_bytes(), &mut out);
        assert_eq!(out, wire);
        assert_eq!(opaque::decode(&mut SliceSource::new(&wire), 4).unwrap(), text.as_bytes());
    }
    assert_eq!(
        opaque::decode(&mut SliceSource::new(&[0, 0, 0, 5, 0, 0, 0, 0, 0, 0, 0, 0]), 4),
        Err(XdrError::TooLong { got: 5, most: 4 })
    );
    assert_eq!(
        opaque::decode(&mut SliceSource::new(&[0, 0, 0, 1, 0]), 4),
        Err(XdrError::Ended),
        "no padding"
    );
}

#[test]
fn character_arrays_take_a_word_a_character() {
    let mut out = Vec::new();
    chars::encode(&"ab".into(), &mut out, 3);
    assert_eq!(out, [0, 0, 0, 97, 0, 0, 0, 98, 0, 0, 0, 0]);
    assert_eq!(chars::decode(&mut SliceSource::new(&out), 3).unwrap(), "ab");
    out.clear();
    chars::encode(&"abc".into(), &mut out, 3);
    assert_eq!(chars::decode(&mut SliceSource::new(&out), 3).unwrap(), "ab", "room for the NUL");
    out[11] = 99;
    assert_eq!(chars::decode(&mut SliceSource::new(&out), 3).unwrap(), "ab", "no NUL at the end");
}

#[test]
fn chains_flag_each_element() {
    let mut out = Vec::new();
    chain::encode(&[7_u32], &mut out, u32::encode);
    assert_eq!(out, [0, 0, 0, 1, 0, 0, 0, 7, 0, 0, 0, 0]);
    assert_eq!(chain::decode(&mut SliceSource::new(&out), 1, u32::decode), Ok(vec![7]));
    let refused = chain::decode(&mut SliceSource::new(&out), 0, u32::decode);
    assert_eq!(refused, Err(XdrError::TooLong { got: 1, most: 0 }));
}

#[test]
fn fixed_arrays_are_cut_and_filled() {
    let mut out = Vec::new();
    long_array::encode(&[1_u32, 2, 3], &mut out, 2, u32::encode);
    long_array::encode(&[4_u32], &mut out, 2, u32::encode);
    assert_eq!(long_array::decode(&mut SliceSource::new(&out), 4, u32::decode), Ok(vec![1, 2, 4, 0]));
    assert_eq!(array::decode(&mut SliceSource::new(&out), u32::decode), Ok([1, 2, 4, 0]));
    out.clear();
    array::encode(&[5_u32], &mut out, u32::encode);
    assert_eq!(out, [0, 0, 0, 5]);
    out.clear();
    fixed::encode(&[1, 2, 3, 4, 5], &mut out);
    assert_eq!(out, [1, 2, 3, 4, 5, 0, 0, 0]);
    assert_eq!(fixed::decode::<5, _>(&mut SliceSource::new(&out)), Ok([1, 2, 3, 4, 5]));
    out.clear();
    octets::encode(&[200], &mut out);
    assert_eq!(out, [0, 0, 0, 200]);
    assert_eq!(octets::decode(&mut SliceSource::new(&[255, 255, 255, 200])), Ok([200]), "a signed character");
}

#[test]
fn a_huge_length_allocates_only_what_arrives() {
    let mut source = ClaimThenZeros { claim: Some(u32::MAX), rest: Zeros { left: 10_000, largest_read: 0 } };
    assert_eq!(opaque::decode(&mut source, usize::MAX), Err(XdrError::Ended));
    assert!(source.rest.largest_read <= 4096, "{} bytes were made room for", source.rest.largest_read);
    let mut source = ClaimThenZeros { claim: Some(u32::MAX), rest: Zeros { left: 10_000, largest_read: 0 } };
    assert_eq!(list::decode(&mut source, usize::MAX, u64::decode), Err(XdrError::Ended));
}

struct ClaimThenZeros {
    claim: Option<u32>,
    rest: Zeros,
}

impl Source for ClaimThenZeros {
    fn read_exact(&mut self, buf: &mut [u8]) -> Result<(), XdrError> {
        match self.claim.take() {
            Some(claim) => {
                buf.copy_from_slice(&claim.to_be_bytes());
                Ok(())
            }
            None => self.rest.read_exact(buf),
        }
    }
}

#[test]
fn strings_display_their_contents() {
    let name = XdrString(vec![b'a', 0xff]);
    assert_eq!(format!("{name:?}"), r#""a\xff""#);
    assert_eq!(name.as_str(), None);
    assert_eq!(name.to_text(), "a\u{fffd}");
}

proptest! {
    #[test]
    fn opaque_bytes_come_back(bytes in prop::collection::vec(any::<u8>(), 0..9000)) {
        let mut out = Vec::new();
        opaque::encode(&bytes, &mut out);
        prop_assert_eq!(out.len() % 4, 0);
        prop_assert_eq!(opaque::decode(&mut SliceSource::new(&out), 9000), Ok(bytes));
    }

    #[test]
    fn lists_come_back(items in prop::collection::vec(any::<u64>(), 0..100)) {
        let mut out = Vec::new();
        list::encode(&items, &mut out, u64::encode);
        prop_assert_eq!(list::decode(&mut SliceSource::new(&out), 100, u64::decode), Ok(items));
    }

    #[test]
    fn any_bytes_are_survived(bytes in prop::collection::vec(any::<u8>(), 0..200), most: usize) {
        let _ = opaque::decode(&mut SliceSource::new(&bytes), most);
        let _ = list::decode(&mut SliceSource::new(&bytes), most, u32::decode);
        let _ = chain::decode(&mut SliceSource::new(&bytes), most, u32::decode);
        let _ = chars::decode(&mut SliceSource::new(&bytes), 33);
    }
}
