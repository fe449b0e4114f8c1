use proptest::prelude::*;

use super::*;

/// Written by OpenAFS 1.8.9's `asetkey` from keys whose byte `i` of `n` is `7 * i + n`.
const EXTENDED: &[u8] = include_bytes!("../../testdata/KeyFileExt");
/// Written by the same program with keys of version 2 and 4.
const DES: &[u8] = include_bytes!("../../testdata/KeyFile");

fn made(length: u8) -> Secret {
    Secret::new(&(0..length).map(|index| index.wrapping_mul(7).wrapping_add(length)).collect::<Vec<_>>())
}

#[test]
fn a_key_file_of_asetkey_is_parsed() {
    let keys = parse_extended(EXTENDED).unwrap();
    let kinds: Vec<_> = keys.iter().map(|key| (key.key_type, key.kvno, key.subtype)).collect();
    let kind = |subtype| (KeyType::RxkadKerberos5, 3, subtype);
    assert_eq!(kinds, [kind(16), kind(17), kind(18), kind(23)]);
    let secrets: Vec<_> = keys.iter().map(|key| key.secret.clone()).collect();
    assert_eq!(secrets, [made(24), made(16), made(32), made(16)]);
    assert_eq!(*write_extended(&keys), EXTENDED);

    let keys = parse_des(DES).unwrap();
    assert_eq!(keys.iter().map(|key| key.kvno).collect::<Vec<_>>(), [2, 4]);
    assert_eq!(keys[0].secret.expose(), [0x13, 0x34, 0x57, 0x79, 0x9b, 0xbc, 0xdf, 0xf1]);
    assert_eq!(*write_des(&keys).unwrap(), DES);
}

#[test]
fn empty_files_and_full_ones() {
    assert_eq!(parse_extended(&[0; 4]), Ok(Vec::new()));
    assert_eq!(parse_des(&[0; 4]), Ok(Vec::new()));
    let old = [DES, &[0; 72]].concat();
    assert_eq!(parse_des(&old), parse_des(DES));
    let key = DesKey { kvno: 1, secret: Secret::new(&[0; 8]) };
    assert!(write_des(&vec![key.clone(); 8]).is_some());
    assert!(write_des(&vec![key; 9]).is_none());
    assert!(write_des(&[DesKey { kvno: 1, secret: Secret::new(&[0; 7]) }]).is_none());
}

#[test]
fn long_descriptions_are_skipped_and_the_last_equal_key_wins() {
    let mut file = vec![0, 0, 0, 2];
    for (extra, key) in [(3u8, 0xaa), (0, 0xbb)] {
        file.extend_from_slice(&[0, 0, 0, 16 + extra, 0, 0, 0, 9, 0, 0, 0, 1, 0, 0, 0, 2]);
        file.extend_from_slice(&vec![0xff; usize::from(extra)]);
        file.extend_from_slice(&[0, 0, 0, 1, key]);
    }
    let keys = parse_extended(&file).unwrap();
    let secret = Secret::new(&[0xbb]);
    assert_eq!(keys, [TypedKey { key_type: KeyType::Other(9), kvno: 1, subtype: 2, secret }]);
}

#[test]
fn damage_is_refused_with_its_place() {
    for length in 0..EXTENDED.len() {
        assert!(parse_extended(&EXTENDED[..length]).unwrap_err().offset <= length, "{length}");
    }
    for length in 0..DES.len() {
        assert!(parse_des(&DES[..length]).unwrap_err().offset <= length, "{length}");
    }
    let error = |offset, what| KeyFileError { offset, what };
    let long = [EXTENDED, &[0]].concat();
    assert_eq!(parse_extended(&long), Err(error(EXTENDED.len(), "more follows the last key")));
    let long = [DES, &[0]].concat();
    assert_eq!(parse_des(&long), Err(error(DES.len(), "more follows the last key")));
    let mut short = EXTENDED.to_vec();
    short[7] = 15;
    let what = "key's description is shorter than 16 bytes";
    assert_eq!(parse_extended(&short), Err(error(4, what)));
    assert_eq!(error(4, what).to_string(), format!("damaged at byte 4: {what}"));
    let mut huge = EXTENDED.to_vec();
    huge[20..24].fill(0xff);
    assert_eq!(parse_extended(&huge), Err(error(24, "key is cut off")));
    assert_eq!(parse_des(&[0, 0, 0, 9]), Err(error(0, "more than 8 keys")));
}

#[test]
fn secrets_are_not_printed() {
    assert_eq!(format!("{:?}", Secret::new(b"hush")), "Secret(4 bytes)");
    assert_ne!(Secret::new(b"hush"), Secret::new(b"hus"));
    assert_ne!(Secret::new(b"hush"), Secret::new(b"hash"));
}

proptest! {
    #[test]
    fn arbitrary_bytes_do_no_harm(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        let _ = parse_extended(&bytes);
        let _ = parse_des(&bytes);
    }

    #[test]
    fn mutated_files_do_no_harm(at in 0..EXTENDED.len(), byte: u8, length in 0..=EXTENDED.len()) {
        let mut file = EXTENDED[..length].to_vec();
        if let Some(place) = file.get_mut(at) {
            *place = byte;
        }
        if let Ok(keys) = parse_extended(&file) {
            prop_assert_eq!(parse_extended(&write_extended(&keys)), Ok(keys));
        }
    }

    #[test]
    fn keys_go_both_ways(
        fields in prop::collection::btree_map(
            (0..5u32, any::<u32>(), any::<u32>()),
            prop::collection::vec(any::<u8>(), 0..40),
            0..6,
        )
    ) {
        let keys: Vec<_> = fields.into_iter().map(|((number, kvno, subtype), bytes)| TypedKey {
            key_type: KeyType::from_number(number), kvno, subtype, secret: Secret::new(&bytes),
        }).collect();
        prop_assert_eq!(parse_extended(&write_extended(&keys)), Ok(keys));
    }
}
