use super::*;
use crate::dump::{DumpedVnode, Item, Reader};
use bytes::Bytes;
use proptest::prelude::*;
use std::collections::BTreeMap;
use std::convert::Infallible;

// Created by OpenAFS 1.8.9: the volume dump in `testdata/dump/full`, restored, released and backed up.
const HEADER: &[u8] = include_bytes!("../../testdata/vicepa/V0536870912.vol");
const INFO: &[u8] = include_bytes!("../../testdata/vicepa/AFSIDat/+/++++U/special/zzzz5+++++0");
const LARGE: &[u8] = include_bytes!("../../testdata/vicepa/AFSIDat/+/++++U/special/zzzzD+++++0");
const SMALL: &[u8] = include_bytes!("../../testdata/vicepa/AFSIDat/+/++++U/special/zzzz9+++++0");
const LINKS: &[u8] = include_bytes!("../../testdata/vicepa/AFSIDat/+/++++U/special/zzzzP+++++0");
const DUMP: &[u8] = include_bytes!("../../testdata/dump/full");

const VOLUME: u32 = 536_870_912;

fn vnodes(class: IndexClass, index: &[u8]) -> BTreeMap<u32, NameiVnode> {
    class.check_stamp(index).unwrap();
    let records = index.chunks(class.record_bytes()).skip(1).enumerate();
    let vnodes = records.map(|(place, record)| {
        let vnode = class.vnode(place as u32).unwrap();
        (vnode, NameiVnode::parse(class, record).unwrap())
    });
    vnodes.filter_map(|(number, vnode)| Some((number, vnode?))).collect()
}

fn dumped() -> BTreeMap<u32, DumpedVnode> {
    let mut left = Bytes::from_static(DUMP);
    let source = |most: usize| Ok::<_, Infallible>(left.split_to(most.min(left.len())));
    let (mut reader, _) = Reader::open(source).unwrap();
    let mut out = BTreeMap::new();
    loop {
        match reader.next_item().unwrap() {
            Item::Vnode(vnode) => drop(out.insert(vnode.vnode, vnode)),
            Item::Volume(_) => {}
            Item::End => return out,
        }
        while !reader.data(1 << 16).unwrap().is_empty() {}
    }
}

#[test]
fn a_header_file_locates_the_special_files() {
    let places = VolumePlaces::parse(HEADER).unwrap();
    assert_eq!((places.id, places.parent), (VOLUME, VOLUME));
    let paths = [places.info, places.large_index, places.small_index, places.link_table];
    let folder = "AFSIDat/+/++++U/special";
    let names = ["zzzz5+++++0", "zzzzD+++++0", "zzzz9+++++0", "zzzzP+++++0"];
    for (inode, name) in paths.into_iter().zip(names) {
        assert!(inode.is_special());
        assert_eq!(inode.path(VOLUME), format!("{folder}/{name}"));
    }
}

#[test]
fn the_information_is_read() {
    let info = VolumeInfo::parse(INFO).unwrap();
    assert_eq!((info.id, info.kind, info.parent), (VOLUME, 0, VOLUME));
    assert_eq!((info.clone, info.backup), (VOLUME + 1, VOLUME + 2));
    assert_eq!(info.name, b"home");
    assert_eq!((info.in_use, info.in_service, info.blessed), (0, 1, 1));
    assert_eq!((info.needs_salvage, info.destroy_me), (0, 0));
    assert_eq!((info.file_count, info.used_kib, info.next_unique), (25, 44, 0x45));
    assert_eq!(info.created, info.copied);
    assert!(info.created > info.updated && info.backed_up >= info.created);
    // The volume server leaves this message; the file server clears it when it attaches the volume again.
    assert_eq!(info.offline_message, b"A volume utility is running.");
}

#[test]
fn indexes_match_a_dump_of_the_volume() {
    let mut found = vnodes(IndexClass::Large, LARGE);
    found.extend(vnodes(IndexClass::Small, SMALL));
    let wanted = dumped();
    assert!(found.keys().eq(wanted.keys()) && !found.is_empty());
    for (number, vnode) in found {
        let dumped = &wanted[&number];
        let status = dumped.attributes.as_ref().unwrap();
        assert_eq!(vnode.unique, dumped.unique);
        assert_eq!((vnode.kind, vnode.mode, vnode.links), (status.kind, status.mode, status.links));
        assert_eq!((vnode.length, vnode.data_version), (status.length.unwrap(), status.data_version));
        assert_eq!((vnode.owner, vnode.group, vnode.author), (status.owner, status.group, status.author));
        assert_eq!(vnode.parent, status.parent);
        assert_eq!(vnode.client_modified, status.client_modified);
        assert_eq!(vnode.server_modified, status.server_modified);
        assert_eq!(vnode.acl, status.acl);
        assert_eq!(vnode.inode.vnode(), number);
    }
}

#[test]
fn the_table_of_links_counts_the_volumes_of_the_group() {
    check_links(LINKS).unwrap();
    for (number, vnode) in vnodes(IndexClass::Small, SMALL) {
        let at = vnode.inode.links_offset() as usize;
        assert_eq!(vnode.inode.links([LINKS[at], LINKS[at + 1]]), 3, "vnode {number}");
    }
    // Bits 3 to 5 hold the count of the second version of vnode 2.
    assert_eq!(Inode(2 | 1 << 26).links([0b10_1000, 0]), 5);
}

#[test]
fn data_lies_where_openafs_puts_it() {
    assert_eq!(Inode(2 << 32 | 2).path(VOLUME), "AFSIDat/+/++++U/+/+/0++++6");
    assert_eq!(Inode(0x44 << 32 | 8).path(VOLUME), "AFSIDat/+/++++U/+/+/6++++E2");
    // Bits 14 to 21 of vnode 0x28641 are 0xa, bits 9 to 17 are 0x143.
    let path = Inode(7 << 32 | 3 << 26 | 0x2_8641).path(VOLUME + 5);
    assert!(path.starts_with("AFSIDat/3/3+++U/8/13/"), "{path}");
}

#[test]
fn names_of_header_files_are_those_of_volumes() {
    assert_eq!(header_name(VOLUME), "V0536870912.vol");
    for (name, volume) in [
        ("V0536870912.vol", Some(VOLUME)),
        ("V4294967295.vol", Some(u32::MAX)),
        ("V4294967296.vol", None),
        ("V536870912.vol", None),
        ("V0536870912.vol~", None),
        ("V+536870912.vol", None),
        ("AFSIDat", None),
    ] {
        assert_eq!(header_volume(name), volume, "{name}");
    }
}

#[test]
fn files_of_another_kind_or_byte_order_are_refused() {
    let error = VolumePlaces::parse(INFO).unwrap_err();
    assert_eq!(error.offset, 0);
    let mut other: Vec<u8> = HEADER.to_vec();
    other[..4].reverse();
    let error = VolumePlaces::parse(&other).unwrap_err();
    assert!(error.expected.contains("little-endian"), "{error}");
    assert!(IndexClass::Large.check_stamp(SMALL).is_err());
    for length in 0..INFO.len() {
        assert!(VolumeInfo::parse(&INFO[..length]).is_err(), "{length} bytes");
    }
    for length in 0..64 {
        assert!(VolumePlaces::parse(&HEADER[..length]).is_err(), "{length} bytes");
    }
}

#[test]
fn a_record_of_the_wrong_kind_is_refused() {
    let record = &SMALL[64..128];
    assert!(NameiVnode::parse(IndexClass::Small, record).unwrap().is_some());
    let spoiled = |at: usize, bits: u8| {
        let mut record = record.to_vec();
        record[at] ^= bits;
        NameiVnode::parse(IndexClass::Small, &record).unwrap_err().offset
    };
    // The kind of a directory, the magic, a negative length.
    assert_eq!((spoiled(0, 3), spoiled(36, 1), spoiled(63, 0x80)), (0, 36, 60));
    let mut directory = LARGE[256..512].to_vec();
    directory[64 + 8] = 21;
    let refused = NameiVnode::parse(IndexClass::Large, &directory).unwrap_err();
    assert_eq!(refused.offset, 64);
}

proptest! {
    #[test]
    fn any_bytes_are_read_or_refused(bytes in proptest::collection::vec(any::<u8>(), 0..600)) {
        let _ = VolumePlaces::parse(&bytes);
        let _ = VolumeInfo::parse(&bytes);
        let _ = check_links(&bytes);
        for class in [IndexClass::Large, IndexClass::Small] {
            let _ = class.check_stamp(&bytes);
            if let Ok(Some(vnode)) = NameiVnode::parse(class, &bytes) {
                prop_assert!(vnode.inode.path(u32::MAX).is_ascii());
            }
        }
    }

    /// Also tests bytes after valid magics.
    #[test]
    fn spoiled_files_are_read_or_refused(at in 8_usize..552, byte in any::<u8>()) {
        let mut info = INFO.to_vec();
        info[at] = byte;
        let _ = VolumeInfo::parse(&info);
        let mut header = HEADER.to_vec();
        let length = header.len();
        header[8 + at % (length - 8)] = byte;
        let _ = VolumePlaces::parse(&header);
        let mut record = LARGE[256..512].to_vec();
        record[at % 256] = byte;
        let _ = NameiVnode::parse(IndexClass::Large, &record);
    }

    #[test]
    fn paths_identify_files(one in any::<u64>(), two in any::<u64>(), group in any::<u32>()) {
        let (one, two) = (Inode(one), Inode(two));
        prop_assert_eq!(one == two, one.path(group) == two.path(group));
    }
}
