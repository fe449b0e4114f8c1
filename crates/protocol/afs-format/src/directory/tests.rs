use super::*;
use proptest::prelude::*;
use std::collections::BTreeMap;

fn target(vnode: u32) -> EntryTarget {
    EntryTarget { vnode: VnodeId(vnode), unique: vnode + 1000 }
}

fn empty() -> DirectoryBlob {
    DirectoryBlob::new(target(1), target(1))
}

fn bytes(blob: &DirectoryBlob) -> Bytes {
    Bytes::from(blob.pages().concat())
}

/// Returns the blob of an empty directory, built from the layout alone.
fn empty_by_hand() -> Vec<u8> {
    let mut page = vec![0; PAGE_BYTES];
    page[..5].copy_from_slice(&[0, 1, 0x04, 0xd2, 51]);
    page[5..13].copy_from_slice(&[0xff, 0x7f, 0, 0, 0, 0, 0, 0]);
    page[32] = 49;
    page[33..160].fill(64);
    page[160 + 2 * 46 + 1] = 13; // "." hashes to 46
    page[160 + 2 * 68 + 1] = 14; // ".." hashes to (46 * 173 + 46) & 127
    page[416..430].copy_from_slice(&[1, 0, 0, 0, 0, 0, 0, 7, 0, 0, 0, 8, b'.', 0]);
    page[448..463].copy_from_slice(&[1, 0, 0, 0, 0, 0, 0, 5, 0, 0, 0, 6, b'.', b'.', 0]);
    page
}

#[test]
fn an_empty_directory_is_one_page_as_drawn() {
    let itself = EntryTarget { vnode: VnodeId(7), unique: 8 };
    let parent = EntryTarget { vnode: VnodeId(5), unique: 6 };
    let blob = DirectoryBlob::new(itself, parent);
    assert_eq!(blob.pages().concat(), empty_by_hand());
    let parsed = DirectoryBlob::parse(&Bytes::from(empty_by_hand())).unwrap();
    assert_eq!(parsed.lookup(b".."), Some(parent));
    assert!(parsed.is_empty());
}

#[test]
fn names_hash_as_clients_expect() {
    // Computed with the C expression; the last two have hashes above 2^31.
    for (name, chain) in [("a", 97), ("ab", (97 * 173 + 98) & 127), ("", 0)] {
        assert_eq!(chain_of(name.as_bytes()), chain, "{name}");
    }
    let negative = (0..1000).map(|n| format!("file{n}")).find(|name| {
        let hash = name.bytes().fold(0u32, |h, b| h.wrapping_mul(173).wrapping_add(b.into()));
        hash >= 1 << 31 && hash & 127 == 1
    });
    assert_eq!(chain_of(negative.unwrap().as_bytes()), 127);
}

#[test]
fn names_take_the_slots_that_clients_expect() {
    for (length, slots) in [(1, 1), (15, 1), (16, 2), (47, 2), (48, 3), (255, 9), (256, 9)] {
        assert_eq!(slots_of(&vec![b'x'; length]), slots, "{length}");
    }
}

/// The longest name that OpenAFS creates (AFSNAMEMAX), and one byte more.
#[test]
fn names_of_256_bytes_are_read_and_longer_ones_named() {
    let mut blob = empty();
    blob.insert(&[b'x'; 256], target(2)).unwrap();
    let mut raw = bytes(&blob).to_vec();
    let again = DirectoryBlob::parse(&raw.clone().into()).unwrap();
    assert_eq!(again.lookup(&[b'x'; 256]), Some(target(2)));
    let at = raw.windows(256).position(|name| name == [b'x'; 256]).unwrap();
    raw[at + 256] = b'y';
    let error = DirectoryBlob::parse(&raw.into()).unwrap_err();
    let wanted = format!(
        "not a directory: the entry `{}...` (257 bytes) (page 0) has a name longer than 256 bytes",
        "x".repeat(64)
    );
    assert_eq!(error.to_string(), wanted);
}

#[test]
fn a_removed_name_leaves_its_room_to_the_next() {
    let mut blob = empty();
    let slot = blob.insert(b"one", target(2)).unwrap();
    blob.insert(b"two", target(4)).unwrap();
    assert_eq!(blob.insert(b"one", target(6)), Err(DirectoryError::Exists));
    assert_eq!(blob.remove(b"one"), Some(target(2)));
    assert_eq!(blob.remove(b"one"), None);
    assert_eq!(blob.insert(b"new", target(8)), Ok(slot));
    for name in [&b""[..], b"a/b", b"a\0", &[b'x'; 257]] {
        assert_eq!(blob.insert(name, target(2)), Err(DirectoryError::InvalidName));
    }
}

#[test]
fn a_page_that_is_being_sent_does_not_change() {
    let mut blob = empty();
    let (sent, before) = (blob.slice(0, u64::MAX), bytes(&blob));
    blob.insert(b"one", target(2)).unwrap();
    assert_eq!(sent.concat(), before);
    assert_ne!(bytes(&blob), before);
    assert_eq!(blob.slice(2040, 100)[0].len(), 8);
    assert!(blob.slice(2048, 1).is_empty());
}

#[test]
fn a_directory_fills_up_at_1023_pages() {
    let mut blob = empty();
    // 9 slots each: 5 fit in page 0 after the header, 7 in every other page.
    let name = |n: u32| format!("{n:0255}").into_bytes();
    let room = 5 + 7 * (PAGES_MAX as u32 - 1);
    for n in 0..room {
        blob.insert(&name(n), target(n)).unwrap();
    }
    assert_eq!(blob.insert(&name(room), target(1)), Err(DirectoryError::Full));
    assert_eq!(blob.length_bytes(), 1023 * 2048);
    assert_eq!(get_u16(&blob.pages()[0], 0), 1023);
    assert!(blob.insert(b"short", target(1)).is_ok());
    let again = DirectoryBlob::parse(&bytes(&blob)).unwrap();
    assert_eq!(again.len(), blob.len());
    assert_eq!(blob.remove(&name(7000)), Some(target(7000)));
    assert!(blob.insert(&name(room), target(1)).is_ok());
}

/// The result of the same edits in OpenAFS 1.8.9 (its `dir.c`, changed only to zero all bytes of freed
/// slots), as page count and FNV-1a of the blob.
#[test]
fn the_same_edits_make_the_same_bytes_as_in_openafs() {
    let name = |n: u32| format!("{n:0width$}", width = n as usize % 60 + 1).into_bytes();
    let mut blob = empty();
    for n in 0..10_000 {
        blob.insert(&name(n), target(n)).unwrap();
        if n % 3 == 2 {
            blob.remove(&name(n - n / 2 % n));
        }
    }
    let hash = bytes(&blob).iter().fold(0xcbf2_9ce4_8422_2325u64, |hash, &byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    });
    assert_eq!((blob.pages().len(), hash), (210, 0xae56_abad_3c94_fea0));
}

/// Replays edits on a blob and on a map.
fn replay(edits: &[(u8, u16, usize)]) -> (DirectoryBlob, BTreeMap<Vec<u8>, EntryTarget>) {
    let mut blob = empty();
    let mut model = BTreeMap::from([(b".".to_vec(), target(1)), (b"..".to_vec(), target(1))]);
    for &(action, number, length) in edits {
        let name = format!("{number:0length$}").into_bytes();
        let target = target(u32::from(number));
        if action < 3 {
            let added = blob.insert(&name, target);
            assert_eq!(added.is_ok(), !model.contains_key(&name));
            model.entry(name).or_insert(target);
        } else {
            assert_eq!(blob.remove(&name), model.remove(&name));
        }
    }
    (blob, model)
}

proptest! {
    #[test]
    fn edits_parse_and_rebuild_to_the_same(
        edits in proptest::collection::vec((0u8..5, 0u16..200, 1usize..60), 0..400)
    ) {
        let (blob, model) = replay(&edits);
        let entries: BTreeMap<Vec<u8>, EntryTarget> =
            blob.entries().map(|(name, target)| (name.to_vec(), target)).collect();
        prop_assert_eq!(&entries, &model);
        let parsed = DirectoryBlob::parse(&bytes(&blob)).unwrap();
        prop_assert_eq!(parsed.len(), model.len());
        prop_assert!(model.iter().all(|(name, target)| parsed.lookup(name) == Some(*target)));
        let rebuilt = DirectoryBlob::rebuild(blob.pages().len(), blob.placed_entries()).unwrap();
        prop_assert_eq!(bytes(&rebuilt), bytes(&blob));
    }

    #[test]
    fn any_bytes_are_read_without_panic(bytes in proptest::collection::vec(any::<u8>(), 0..3)) {
        let long: Vec<u8> = bytes.iter().copied().cycle().take(bytes.len() * PAGE_BYTES).collect();
        let _ = DirectoryBlob::parse(&Bytes::from(bytes));
        let _ = DirectoryBlob::parse(&Bytes::from(long));
    }

    #[test]
    fn damaged_blobs_are_read_without_panic(
        edits in proptest::collection::vec((0u8..4, 0u16..90, 1usize..40), 0..90),
        damage in proptest::collection::vec((any::<u16>(), any::<u8>()), 1..8)
    ) {
        let (blob, _) = replay(&edits);
        let mut raw = bytes(&blob).to_vec();
        for (at, byte) in damage {
            let at = usize::from(at) % raw.len();
            raw[at] = byte;
        }
        if let Ok(mut blob) = DirectoryBlob::parse(&Bytes::from(raw)) {
            let names: Vec<Vec<u8>> = blob.entries().map(|(name, _)| name.to_vec()).collect();
            for name in &names {
                blob.remove(name);
            }
            prop_assert_eq!(blob.len(), 0);
        }
    }
}
