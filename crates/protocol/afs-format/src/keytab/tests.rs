use proptest::prelude::*;

use super::*;

/// Written by Heimdal 7.8's `ktutil`, with a hole where an entry was removed.
const HEIMDAL: &[u8] = include_bytes!("../../testdata/heimdal.keytab");

fn made(length: u8) -> Secret {
    Secret::new(&(0..length).map(|index| index.wrapping_mul(7).wrapping_add(length)).collect::<Vec<_>>())
}

fn entry() -> KeytabEntry {
    KeytabEntry {
        components: vec!["afs".to_owned(), "test.example".to_owned()],
        realm: "TEST.EXAMPLE".to_owned(),
        name_type: 1,
        written: UnixTime(1_700_000_000),
        kvno: 300,
        enctype: 18,
        secret: made(32),
    }
}

#[test]
fn a_keytab_of_heimdal_is_parsed() {
    let entries = parse(HEIMDAL).unwrap();
    let kinds: Vec<_> = entries.iter().map(|entry| (entry.kvno, entry.enctype)).collect();
    assert_eq!(kinds, [(3, 18), (3, 16), (259, 17)]);
    assert!(entries.iter().all(|entry| entry.principal() == "afs/test.example@TEST.EXAMPLE"));
    assert_eq!(entries[0].secret, made(32));
    assert_eq!(parse(&write(&entries).unwrap()), Ok(entries));
}

#[test]
fn bytes_as_drawn() {
    let file = write(&[KeytabEntry { secret: Secret::new(&[0xaa]), ..entry() }]).unwrap();
    let expected = [
        &[5, 2, 0, 0, 0, 53, 0, 2, 0, 12][..],
        b"TEST.EXAMPLE\0\x03afs\0\x0ctest.example",
        &[0, 0, 0, 1, 0x65, 0x53, 0xf1, 0, 44, 0, 18, 0, 1, 0xaa, 0, 0, 1, 44],
    ];
    assert_eq!(*file, expected.concat());
}

#[test]
fn version_1_in_either_byte_order() {
    for big_endian in [false, true] {
        let number = |value: u16| if big_endian { value.to_be_bytes() } else { value.to_le_bytes() };
        let mut record = number(2).to_vec();
        for text in ["REALM", "afs"] {
            record.extend_from_slice(&number(text.len() as u16));
            record.extend_from_slice(text.as_bytes());
        }
        record.extend_from_slice(&[0, 0, 0, 0, 7]);
        record.extend_from_slice(&number(1));
        record.extend_from_slice(&number(8));
        record.extend_from_slice(&[9; 8]);
        let length = record.len() as u32;
        let length = if big_endian { length.to_be_bytes() } else { length.to_le_bytes() };
        let file = [&[5, 1][..], &length, &record].concat();
        let entries = parse(&file).unwrap();
        assert_eq!(entries.len(), 1);
        assert_eq!(entries[0].principal(), "afs@REALM");
        assert_eq!((entries[0].kvno, entries[0].enctype), (7, 1));
        assert_eq!(entries[0].secret, Secret::new(&[9; 8]));
    }
}

#[test]
fn holes_ends_and_missing_long_versions() {
    let one = write(&[entry()]).unwrap();
    let hole = [&one[..], &[0xff, 0xff, 0xff, 0xfd, 1, 2, 3], &one[2..]].concat();
    assert_eq!(parse(&hole), Ok(vec![entry(), entry()]));
    let ended = [&one[..], &[0, 0, 0, 0, 9, 9]].concat();
    assert_eq!(parse(&ended), Ok(vec![entry()]));
    let mut short = one[..one.len() - 4].to_vec();
    short[5] -= 4;
    assert_eq!(parse(&short), Ok(vec![KeytabEntry { kvno: 300 % 256, ..entry() }]));
    assert_eq!(parse(&[5, 2]), Ok(Vec::new()));
}

#[test]
fn damage_is_refused_with_its_place() {
    let error = |offset, what| Err(KeyFileError { offset, what });
    assert_eq!(parse(&[]), error(0, "not a keytab of version 1 or 2"));
    assert_eq!(parse(&[5, 3]), error(0, "not a keytab of version 1 or 2"));
    assert_eq!(parse(&[5, 2, 0, 0]), error(2, "record's length is cut off"));
    assert_eq!(parse(&[5, 2, 0, 0, 0, 9, 1]), error(6, "record is cut off"));
    assert_eq!(parse(&[5, 2, 0x80, 0, 0, 0]), error(6, "hole is cut off"));
    let one = write(&[entry()]).unwrap();
    for length in 3..one.len() {
        assert!(parse(&one[..length]).is_err(), "{length}");
    }
    let mut text = one.to_vec();
    text[10] = 0xff;
    assert_eq!(parse(&text), error(8, "name is not text"));
}

#[test]
fn oversized_entries_are_not_written() {
    assert!(write(&[KeytabEntry { enctype: 1 << 16, ..entry() }]).is_none());
    assert!(write(&[KeytabEntry { realm: "x".repeat(1 << 16), ..entry() }]).is_none());
}

proptest! {
    #[test]
    fn arbitrary_bytes_do_no_harm(
        version in 1..3u8,
        bytes in prop::collection::vec(any::<u8>(), 0..200),
    ) {
        let _ = parse(&bytes);
        let _ = parse(&[&[5, version], &bytes[..]].concat());
    }

    #[test]
    fn mutated_files_do_no_harm(at in 0..HEIMDAL.len(), byte: u8, length in 0..=HEIMDAL.len()) {
        let mut file = HEIMDAL[..length].to_vec();
        if let Some(place) = file.get_mut(at) {
            *place = byte;
        }
        let _ = parse(&file);
    }
}
