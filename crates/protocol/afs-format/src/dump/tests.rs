use super::*;
use crate::acl::{Acl, AclEntry};
use crate::directory::DirectoryBlob;
use base::{Rights, UnixTime, UserId};
use bytes::Bytes;
use proptest::prelude::*;
use std::convert::Infallible;

/// `vos dump` of a backup volume by OpenAFS 1.8.9: two directories, small files, a symbolic link.
const FULL: &[u8] = include_bytes!("../../testdata/dump/full");
/// Changes of the volume after it, without unchanged directories.
const INCREMENTAL: &[u8] = include_bytes!("../../testdata/dump/incremental");

/// A parsed dump.
#[derive(Clone, Debug, PartialEq)]
struct Whole {
    header: DumpHeader,
    items: Vec<(Item, Vec<u8>)>,
}

fn source(bytes: &[u8], piece: usize) -> impl FnMut(usize) -> Result<Bytes, Infallible> {
    let mut left = Bytes::copy_from_slice(bytes);
    move |most| Ok(left.split_to(most.min(piece).min(left.len())))
}

fn parse(bytes: &[u8], piece: usize) -> Result<Whole, DumpError<Infallible>> {
    let (mut reader, header) = Reader::open(source(bytes, piece))?;
    let mut items = Vec::new();
    loop {
        let item = reader.next_item()?;
        let mut data = Vec::new();
        loop {
            match reader.data(1000)? {
                piece if piece.is_empty() => break,
                piece => data.extend_from_slice(&piece),
            }
        }
        let is_end = item == Item::End;
        items.push((item, data));
        if is_end {
            return Ok(Whole { header, items });
        }
    }
}

fn write(whole: &Whole) -> Vec<u8> {
    let mut out = Vec::new();
    put_dump_header(&mut out, &whole.header);
    for (item, data) in &whole.items {
        match item {
            Item::Volume(volume) => put_volume(&mut out, volume),
            Item::Vnode(vnode) => put_vnode(&mut out, vnode),
            Item::End => put_end(&mut out),
        }
        out.extend_from_slice(data);
    }
    out
}

#[test]
fn dumps_of_openafs_are_read_and_written_again_byte_for_byte() {
    for golden in [FULL, INCREMENTAL] {
        let whole = parse(golden, 777).unwrap();
        assert_eq!(write(&whole), golden);
        assert_eq!(parse(golden, 1), Ok(whole));
    }
}

#[test]
fn an_openafs_dump_is_parsed() {
    let whole = parse(FULL, 4096).unwrap();
    assert_eq!(whole.header.name, b"root.cell.backup");
    assert_eq!(whole.header.dates[0].0, UnixTime(0));
    let Item::Volume(volume) = &whole.items[0].0 else { panic!("a volume header comes first") };
    assert_eq!((volume.kind, volume.version, volume.blessed), (2, 1, 1));
    let Item::Vnode(root) = &whole.items[1].0 else { panic!("then the root directory") };
    let status = root.attributes.as_ref().unwrap();
    assert_eq!((root.vnode, root.unique, status.kind, status.links), (1, 1, 2, 3));
    let anyone = AclEntry { id: UserId(-101), rights: Rights::from_bits(0x7f) };
    assert!(status.acl.as_ref().unwrap().positive().contains(&anyone));
    let blob = DirectoryBlob::parse(&whole.items[1].1.clone().into()).unwrap();
    for name in [&b"hello"[..], b"link", b"dir", b"sparse"] {
        assert!(blob.lookup(name).is_some(), "{}", name.escape_ascii());
    }
    let incremental = parse(INCREMENTAL, 4096).unwrap();
    let unchanged = incremental
        .items
        .iter()
        .filter(|(item, _)| matches!(item, Item::Vnode(vnode) if vnode.attributes.is_none()));
    assert!(unchanged.count() > 10);
    assert!(incremental.items.iter().any(|(_, data)| data == b"new\n"));
}

#[test]
fn a_dump_cut_anywhere_is_refused_at_the_cut() {
    for length in 0..FULL.len() {
        let error = parse(&FULL[..length], 4096).unwrap_err();
        assert!(
            matches!(error, DumpError::Truncated { offset, .. } if offset == length as u64),
            "{length}: {error}"
        );
    }
    let longer = [FULL, b"x"].concat();
    let error = parse(&longer, 4096).unwrap_err();
    assert_eq!(
        error,
        DumpError::Damaged { offset: FULL.len() as u64, expected: "nothing behind the end mark" }
    );
}

/// Returns a dump header followed by these bytes.
fn after_header(rest: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    put_dump_header(&mut out, &DumpHeader::default());
    out.extend_from_slice(rest);
    out
}

fn expected(bytes: &[u8]) -> String {
    parse(bytes, 4096).unwrap_err().to_string()
}

#[test]
fn errors_name_position_and_expectation() {
    assert_eq!(expected(b"hello"), "byte 0 of the dump: expected the beginning of a volume dump");
    let begin = after_header(b"").len();
    let cases: &[(&[u8], usize, &str)] = &[
        (&[9], 0, "a volume header, a vnode or the end mark"),
        (&[4, 1, 2, 3, 4], 1, "the end mark"),
        (&[3, 0, 0, 0, 0], 1, "a vnode number that is not 0"),
        (&[3, 0, 0, 0, 1, 0, 0, 0, 1, 0xf0], 9, "a tag below 128"),
        (&[3, 0, 0, 0, 1, 0, 0, 0, 1, 0x7e, 0x7d], 10, "a tag that is known, since it is marked as critical"),
        (&[3, 0, 0, 0, 1, 0, 0, 0, 1, b'h', 255, 0, 0, 0, 0, 0, 0, 0], 10, "a file length below 2^63 bytes"),
        (&[2, b'n', b'a', 0, 0x20, 0x80], 5, "the length of an unknown value"),
    ];
    for (rest, at, what) in cases {
        let wanted = format!("byte {} of the dump: expected {what}", begin + at);
        assert_eq!(expected(&after_header(rest)), wanted);
    }
    let mut acl = vec![3, 0, 0, 0, 1, 0, 0, 0, 1, b'A'];
    acl.resize(10 + ACL_BYTES, 0xff);
    assert!(expected(&after_header(&acl)).ends_with("a sound access list"));
}

#[test]
fn a_damaged_directory_is_refused_with_its_vnode_and_reason() {
    let mut dump = FULL.to_vec();
    let at = dump.windows(4).position(|bytes| bytes == [0, 1, 4, 0xd2]).unwrap();
    dump[at + 3] = 0;
    let (mut reader, _) = Reader::open(source(&dump, 999)).unwrap();
    let error = loop {
        if let Item::Vnode(vnode) = reader.next_item().unwrap() {
            break reader.directory(&vnode).unwrap_err();
        }
    };
    let wanted = format!("byte {}: directory vnode 1: not a directory: a page header (page 0)", at + 2048);
    assert_eq!(error.to_string().replace(" of the dump", ""), wanted);
}

#[test]
fn long_texts_are_cut_where_openafs_cuts_them() {
    let text = |tag: u8, length: usize| [&[tag][..], &vec![0xe4; length], &[0]].concat();
    let volume =
        [&[2][..], &text(b'n', 32), &text(b'O', 128), &text(b'M', 5000), &[b'Z', 0, 0, 0, 5]].concat();
    let mut bytes = after_header(&volume);
    put_end(&mut bytes);
    let whole = parse(&bytes, 100).unwrap();
    let Item::Volume(volume) = &whole.items[0].0 else { panic!("{whole:?}") };
    assert_eq!((&volume.name[..], volume.day_use), (&[0xe4; 31][..], 5));
    assert_eq!(
        (&volume.offline_message[..], &volume.message_of_the_day[..]),
        (&[0xe4; 127][..], &[0xe4; 127][..])
    );
}

#[test]
fn unknown_values_are_passed_over() {
    let volume: &[u8] = &[2, 0x20, 3, 1, 2, 3, 0x25, 0x82, 0, 1, 7, b'l', 0, 0, 0, 0, 0x7c, b'Z', 0, 0, 0, 5];
    let mut bytes = after_header(volume);
    put_end(&mut bytes);
    let whole = parse(&bytes, 4096).unwrap();
    assert!(matches!(&whole.items[0].0, Item::Volume(volume) if volume.day_use == 5));
}

#[test]
fn unread_data_is_skipped_and_large_files_have_64_bit_lengths() {
    let (mut reader, _) = Reader::open(source(FULL, 500)).unwrap();
    let mut items = 0;
    while reader.next_item().unwrap() != Item::End {
        items += 1;
    }
    assert_eq!(items + 1, parse(FULL, 4096).unwrap().items.len());
    let attributes = VnodeAttributes { kind: 1, length: Some(5 << 32 | 7), ..Default::default() };
    let mut bytes = after_header(&[]);
    let vnode = DumpedVnode { vnode: 2, unique: 2, attributes: Some(attributes) };
    put_vnode(&mut bytes, &vnode);
    let (mut reader, _) = Reader::open(source(&bytes, 500)).unwrap();
    assert_eq!(reader.next_item(), Ok(Item::Vnode(vnode)));
    assert!(bytes.ends_with(&[b'h', 0, 0, 0, 5, 0, 0, 0, 7]));
}

fn text(most: usize) -> impl Strategy<Value = Vec<u8>> {
    proptest::collection::vec(1u8.., 0..most)
}

fn acl() -> impl Strategy<Value = Acl> {
    let entry = |id| AclEntry { id: UserId(id), rights: Rights::from_bits(0x7f) };
    (
        proptest::collection::btree_set(any::<i32>(), 0..11),
        proptest::collection::btree_set(any::<i32>(), 0..10),
    )
        .prop_map(move |(positive, negative)| {
            let entries =
                |ids: std::collections::BTreeSet<i32>| ids.into_iter().map(entry).collect::<Vec<_>>();
            Acl::new(&entries(positive), &entries(negative)).unwrap()
        })
}

fn vnode() -> impl Strategy<Value = (Item, Vec<u8>)> {
    let numbers = (any::<u8>(), any::<u16>(), any::<u16>(), any::<[u32; 8]>());
    let data = proptest::option::of(proptest::collection::vec(any::<u8>(), 0..300));
    (1u32.., any::<u32>(), proptest::option::of((numbers, proptest::option::of(acl()), data))).prop_map(
        |(vnode, unique, status)| {
            let mut bytes = Vec::new();
            let attributes = status.map(|((kind, links, mode, n), acl, data)| {
                bytes = data.clone().unwrap_or_default();
                VnodeAttributes {
                    kind,
                    links,
                    data_version: n[0],
                    client_modified: UnixTime(n[1]),
                    author: n[2],
                    owner: n[3],
                    group: n[4],
                    mode,
                    parent: n[5],
                    server_modified: UnixTime(n[6]),
                    acl,
                    length: data.map(|data| data.len() as u64),
                }
            });
            (Item::Vnode(DumpedVnode { vnode, unique, attributes }), bytes)
        },
    )
}

prop_compose! {
    fn volume()(
        numbers in any::<[u32; 17]>(), bytes in any::<[u8; 3]>(), name in text(32),
        offline_message in text(128), message_of_the_day in text(128), week_use in any::<[u32; 7]>()
    ) -> DumpVolume {
        let n = numbers;
        DumpVolume {
            id: n[0], version: n[1], name, in_service: bytes[0], blessed: bytes[1], next_unique: n[2],
            kind: bytes[2], parent: n[3], clone: n[4], quota_max_kib: n[5], quota_min_kib: n[6],
            used_kib: n[7], file_count: n[8], account: n[9], owner: n[10], created: UnixTime(n[11]),
            accessed: UnixTime(n[12]), updated: UnixTime(n[13]), expires: UnixTime(n[14]),
            backed_up: UnixTime(n[15]), offline_message, message_of_the_day, week_use,
            day_use_date: UnixTime(n[16]), day_use: n[0] ^ n[1],
        }
    }
}

fn whole() -> impl Strategy<Value = Whole> {
    let dates = proptest::collection::vec((any::<u32>(), any::<u32>()), 0..=DATES_MAX);
    let vnodes = proptest::collection::vec(vnode(), 0..8);
    (any::<u32>(), text(32), dates, volume(), vnodes).prop_map(|(id, name, dates, volume, vnodes)| {
        let dates = dates.into_iter().map(|(from, to)| (UnixTime(from), UnixTime(to))).collect();
        let mut items = vec![(Item::Volume(Box::new(volume)), Vec::new())];
        items.extend(vnodes);
        items.push((Item::End, Vec::new()));
        Whole { header: DumpHeader { volume: id, name, dates }, items }
    })
}

proptest! {
    #[test]
    fn written_values_are_read_back(whole in whole(), piece in 1usize..300) {
        prop_assert_eq!(parse(&write(&whole), piece), Ok(whole));
    }

    #[test]
    fn arbitrary_bytes_do_no_harm(bytes in proptest::collection::vec(any::<u8>(), 0..400)) {
        let _ = parse(&bytes, 100);
        let _ = parse(&after_header(&bytes), 100);
    }

    #[test]
    fn damaged_dumps_do_no_harm(whole in whole(), at in any::<prop::sample::Index>(), byte in any::<u8>()) {
        let mut bytes = write(&whole);
        let at = at.index(bytes.len());
        bytes[at] ^= byte;
        let _ = parse(&bytes, 100);
    }
}
