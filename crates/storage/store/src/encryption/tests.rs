use super::ring::{CRC_BYTES, context, parse, unwrap, wrap};
use super::sealing::Cipher;
use super::*;
use crate::StoreError;
use crate::segment::crc32c;
use disk::{Disk, RealDisk};
use proptest::prelude::*;
use std::path::Path;
use uuid::Uuid;

const PARTITION: Uuid = Uuid::from_u128(0x0123_4567_89ab_cdef_0011_2233_4455_6677);

/// A ring with data keys 1 and 2, wrapped with [`master`], and a sealed value of each.
const GOLDEN: &str = include_str!("../../tests/golden/keys-v1.hex");

fn master(byte: u8) -> MasterKey {
    MasterKey::parse(&[byte; MASTER_KEY_BYTES]).unwrap()
}

fn open(folder: &Path, key: Option<&MasterKey>) -> Result<Option<KeyRing>, StoreError> {
    KeyRing::open(&RealDisk, folder, PARTITION, key)
}

fn refusal(folder: &Path, key: Option<&MasterKey>) -> String {
    match open(folder, key) {
        Err(error @ StoreError::Key { .. }) => error.to_string(),
        other => panic!("expected a refusal, got {:?}", other.map(|ring| ring.is_some())),
    }
}

fn hex(bytes: &[u8]) -> String {
    let digits = bytes.iter().flat_map(|byte| [byte >> 4, byte & 15]);
    digits.filter_map(|digit| char::from_digit(digit.into(), 16)).collect()
}

fn unhex(text: &str) -> Vec<u8> {
    let digits: Vec<u8> =
        text.trim().bytes().map(|digit| (digit as char).to_digit(16).unwrap() as u8).collect();
    digits.chunks(2).map(|pair| pair[0] << 4 | pair[1]).collect()
}

#[test]
fn a_master_key_is_bytes_or_digits() {
    let digits = "0a".repeat(32);
    for good in [&[10; 32][..], digits.as_bytes(), format!(" {}\n", digits.to_uppercase()).as_bytes()] {
        assert_eq!(MasterKey::parse(good).unwrap().bytes(), &[10; 32]);
    }
    let not_hex = "0g".repeat(32);
    for bad in [&[][..], b"secret", &[1; 31], &[1; 33], &digits.as_bytes()[1..], not_hex.as_bytes()] {
        let text = MasterKey::parse(bad).unwrap_err().to_string();
        assert!(text.contains("openssl rand") && !text.contains("secret"), "{text}");
    }
    assert_eq!(format!("{:?}", master(7)), "MasterKey");
}

/// From draft-irtf-cfrg-xchacha-03, A.3.1.
#[test]
fn the_cipher_is_the_one_that_the_format_names() {
    let key: Vec<u8> = (0x80..0xa0).collect();
    let nonce: Vec<u8> = (0x40..0x58).collect();
    let data = unhex(concat!(
        "bd6d179d3e83d43b9576579493c0e939572a1700252bfaccbed2902c21396cbb731c7f1b0b4aa6440bf3a82f4eda7e39",
        "ae64c6708c54c216cb96b72e1213b4522f8c9ba40db5d945b11b69b982c1bb9e3f3fac2bc369488f76b2383565d3fff9",
        "21f9664c97637da9768812f615c68b13b52e",
        "c0875924c1c7987947deafd8780acf49"
    ));
    let cipher = Cipher::new(key.as_slice().try_into().unwrap());
    let text = cipher.open(&unhex("50515253c0c1c2c3c4c5c6c7"), &[nonce, data].concat()).unwrap();
    assert!(text.starts_with(b"Ladies and Gentlemen of the class of '99"));
}

#[test]
fn a_ring_is_made_once_and_opened_with_its_key_only() {
    let folder = tempfile::tempdir().unwrap();
    assert!(open(folder.path(), None).unwrap().is_none());
    let ring = open(folder.path(), Some(&master(1))).unwrap().unwrap();
    let (key, sealed) = ring.seal(b"context", &[&b"some "[..], b"data"]).unwrap();
    assert_eq!((key, sealed.len()), (1, 9 + SEAL_BYTES));
    let again = open(folder.path(), Some(&master(1))).unwrap().unwrap();
    assert_eq!(again.unseal(key, b"context", &sealed).unwrap(), &b"some data"[..]);
    assert!(again.unseal(2, b"context", &sealed).unwrap_err().contains("key 2, which is missing"));
    assert!(again.unseal(key, b"other", &sealed).unwrap_err().contains("does not decrypt"));
    assert!(refusal(folder.path(), None).contains("names no master key"));
    assert!(refusal(folder.path(), Some(&master(2))).contains("not the one"));
    let other = KeyRing::open(&RealDisk, folder.path(), Uuid::from_u128(1), Some(&master(1)));
    assert!(other.err().unwrap().to_string().contains("another partition"));
}

#[test]
fn a_new_master_key_or_data_key_leaves_old_data_readable() {
    let folder = tempfile::tempdir().unwrap();
    let ring = open(folder.path(), Some(&master(1))).unwrap().unwrap();
    let (first, old) = ring.seal(b"", &[b"old"]).unwrap();
    let change = |old: u8, new: u8, adds: bool| {
        rewrap(&RealDisk, folder.path(), PARTITION, (&master(old), &master(new)), adds)
    };
    assert!(change(9, 2, true).unwrap_err().to_string().contains("not the one"));
    assert_eq!(change(1, 2, false).unwrap(), 1);
    assert_eq!(change(2, 2, true).unwrap(), 2);
    assert!(refusal(folder.path(), Some(&master(1))).contains("not the one"));
    let ring = open(folder.path(), Some(&master(2))).unwrap().unwrap();
    let (second, new) = ring.seal(b"", &[b"new"]).unwrap();
    assert_eq!((first, second, ring.len()), (1, 2, 2));
    assert_eq!(ring.unseal(first, b"", &old).unwrap(), "old");
    assert_eq!(ring.unseal(second, b"", &new).unwrap(), "new");
    assert!(!RealDisk.exists(&folder.path().join("KEYS.new")).unwrap());
    let empty = tempfile::tempdir().unwrap();
    let refused = rewrap(&RealDisk, empty.path(), PARTITION, (&master(1), &master(2)), true);
    assert!(refused.unwrap_err().to_string().contains("not encrypted"));
}

/// Rewrites the golden file. Only for a new version of the format, into a new file.
#[test]
#[ignore = "writes into the source tree"]
fn write_the_golden_ring() {
    let folder = tempfile::tempdir().unwrap();
    let first = open(folder.path(), Some(&master(0x5a))).unwrap().unwrap();
    rewrap(&RealDisk, folder.path(), PARTITION, (&master(0x5a), &master(0x5a)), true).unwrap();
    let second = open(folder.path(), Some(&master(0x5a))).unwrap().unwrap();
    let file = std::fs::read(folder.path().join("KEYS")).unwrap();
    let sealed = [first, second].map(|ring| hex(&ring.seal(b"golden", &[b"data"]).unwrap().1));
    let text = [hex(&file), sealed[0].clone(), sealed[1].clone(), String::new()].join("\n");
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden/keys-v1.hex");
    std::fs::write(path, text).unwrap();
}

#[test]
fn the_ring_of_version_1_is_read() {
    let folder = tempfile::tempdir().unwrap();
    let lines: Vec<Vec<u8>> = GOLDEN.lines().map(unhex).collect();
    std::fs::write(folder.path().join("KEYS"), &lines[0]).unwrap();
    let ring = open(folder.path(), Some(&master(0x5a))).unwrap().unwrap();
    assert_eq!((ring.len(), ring.newest()), (2, 2));
    for (key, sealed) in [(1, &lines[1]), (2, &lines[2])] {
        assert_eq!(ring.unseal(key, b"golden", sealed).unwrap(), "data");
    }
}

#[test]
fn keys_cannot_change_places() {
    let bytes = unhex(GOLDEN.lines().next().unwrap());
    let keys = unwrap(&bytes, Path::new("x"), PARTITION, &master(0x5a)).unwrap();
    let wrapped = wrap(&keys, PARTITION, &master(3)).unwrap();
    // The two wrapped keys exchanged, with a correct checksum.
    let mut swapped = wrapped.clone();
    let entry = (wrapped.len() - 32 - CRC_BYTES) / 2;
    let (one, two) = (32 + 8, 32 + entry + 8);
    swapped[one..one + entry - 8].copy_from_slice(&wrapped[two..two + entry - 8]);
    swapped[two..two + entry - 8].copy_from_slice(&wrapped[one..one + entry - 8]);
    let end = swapped.len() - CRC_BYTES;
    let crc = crc32c(&swapped[..end]);
    swapped[end..].copy_from_slice(&crc.to_be_bytes());
    assert!(parse(&swapped, PARTITION).is_ok());
    assert!(unwrap(&swapped, Path::new("x"), PARTITION, &master(3)).is_err());
    assert_ne!(context(PARTITION, 1), context(PARTITION, 2));
}

proptest! {
    #[test]
    fn every_flipped_bit_of_a_ring_is_noticed(at in any::<prop::sample::Index>(), bit in 0..8u8) {
        let mut bytes = unhex(GOLDEN.lines().next().unwrap());
        let at = at.index(bytes.len());
        bytes[at] ^= 1 << bit;
        prop_assert!(unwrap(&bytes, Path::new("x"), PARTITION, &master(0x5a)).is_err());
    }

    #[test]
    fn arbitrary_bytes_are_survived(mut bytes: Vec<u8>, has_head: bool) {
        if has_head {
            let golden = unhex(GOLDEN.lines().next().unwrap());
            let head = bytes.len().min(32);
            bytes[..head].copy_from_slice(&golden[..head]);
            let crc = crc32c(&bytes);
            bytes.extend_from_slice(&crc.to_be_bytes());
        }
        _ = parse(&bytes, PARTITION);
    }

    #[test]
    fn every_flipped_bit_is_detected(
        data: Vec<u8>, context: Vec<u8>, at in any::<prop::sample::Index>(), bit in 0..8u8,
    ) {
        let ring = KeyRing::random();
        let (key, mut sealed) = ring.seal(&context, &[&data]).unwrap();
        prop_assert_eq!(ring.unseal(key, &context, &sealed).unwrap(), data);
        let place = at.index(sealed.len());
        sealed[place] ^= 1 << bit;
        prop_assert!(ring.unseal(key, &context, &sealed).is_err());
        prop_assert!(ring.unseal(key, &context, &sealed[..place]).is_err());
    }
}
