//! Stored records: which survive, and which are rejected.

use super::{Fixture, NOW};
use crate::codec::{decode_entry, decode_totals, encode_entry, encode_totals};
use crate::{Actor, Entry, EntryFlags, FAMILY, Kind, NewEntry, Policy, Protection};
use base::{AbortCode, UnixTime, UserId};
use proptest::prelude::*;
use std::sync::Arc;
use store::{Batch, HookedMeta, MemoryMeta, MetaStep, MetaStore};

fn sample() -> Entry {
    Entry {
        id: UserId(-206),
        name: b"alice:friends".to_vec(),
        flags: EntryFlags(EntryFlags::GROUP | EntryFlags::ACCESS_SET | EntryFlags::STATUS_ANY),
        cell: UserId(0),
        owner: UserId(1),
        creator: UserId(2),
        group_quota: -1,
        user_quota: 20,
        count: 3,
        supergroup_count: 4,
        position: 7,
        created: UnixTime(8),
        added: UnixTime(9),
        removed: UnixTime(10),
        changed: UnixTime(11),
    }
}

#[test]
fn an_entry_looks_as_drawn() {
    let drawn = "ffffff32 00800042 00000000 00000001 00000002 ffffffff 00000014 00000003 00000004 00000007 \
                 00000008 00000009 0000000a 0000000b";
    let words = drawn.split(' ').map(|word| u32::from_str_radix(word, 16).unwrap().to_be_bytes());
    let expected = [&[1], words.collect::<Vec<_>>().concat().as_slice(), b"alice:friends"].concat();
    assert_eq!(encode_entry(&sample()), expected);
}

proptest! {
    #[test]
    fn records_come_back(id: i32, flags: u32, quota: i32, time: u32, name in prop::collection::vec(any::<u8>(), 0..64)) {
        let entry = Entry { id: UserId(id), flags: EntryFlags(flags), group_quota: quota,
                            changed: UnixTime(time), name, ..sample() };
        prop_assert_eq!(decode_entry(&encode_entry(&entry)).unwrap(), entry);
    }

    #[test]
    fn no_bytes_make_a_decoder_panic(bytes in prop::collection::vec(any::<u8>(), 0..100)) {
        let _ = decode_entry(&bytes);
        let _ = decode_totals(&bytes);
    }

    #[test]
    fn damaged_records_are_refused_or_read(at in 0usize..58, byte: u8, cut in 0usize..70) {
        let mut bytes = encode_entry(&sample());
        bytes[at] = byte;
        bytes.truncate(cut);
        let _ = decode_entry(&bytes);
        prop_assert!(bytes.len() >= 57 || decode_entry(&bytes).is_err());
    }
}

#[test]
fn newer_versions_are_refused() {
    let mut newer = encode_entry(&sample());
    newer[0] = 2;
    assert_eq!(decode_entry(&newer).unwrap_err().abort_code(), AbortCode::PRDBBAD);
    let meta = Arc::new(MemoryMeta::new());
    let db = Protection::open(meta.clone(), Policy::default(), NOW).unwrap();
    let mut totals = encode_totals(&db.totals().unwrap());
    totals[0] = 9;
    let mut batch = Batch::new();
    batch.put(FAMILY, 1u64.to_be_bytes(), totals);
    meta.commit(batch).unwrap();
    assert!(Protection::open(meta, Policy::default(), NOW).is_err());
}

#[test]
fn answered_changes_survive_a_crash() {
    let f = Fixture::new();
    let alice = f.user("alice");
    let group = f.create(&Actor::user(alice), "alice:g", Kind::Group).unwrap();
    f.add(alice, group);
    let again = f.crashed();
    assert_eq!(again.entry(alice), f.entry(alice));
    assert_eq!(again.entry(group), f.entry(group));
    assert_eq!(again.db.protection_set(alice).unwrap(), f.db.protection_set(alice).unwrap());
    assert_eq!(again.db.totals().unwrap(), f.db.totals().unwrap());
    assert_eq!(again.user("bob"), UserId(2));
}

#[test]
fn failed_changes_have_no_effect() {
    let f = Fixture::new();
    let alice = f.user("alice");
    let (all, _) = f.db.list(&Actor::cell(), 0, 100, &|_| true).unwrap();
    // Fails in its last step, when the new group exceeds the quota.
    let fields = crate::Fields { group_quota: Some(0), ..crate::Fields::default() };
    f.db.set_fields(&Actor::cell(), alice, fields).unwrap();
    assert_eq!(f.create(&Actor::user(alice), "alice:g", Kind::Group), Err(AbortCode::PRNOMORE));
    assert_eq!(f.db.list(&Actor::cell(), 0, 100, &|_| true).unwrap().0.len(), all.len());
    assert_eq!(f.db.id_of_name(b"alice:g").unwrap(), None);
    assert_eq!(f.db.totals().unwrap().max_group, UserId(-205));
}

#[test]
fn settling_makes_durable_what_queries_have_seen() {
    let meta = Arc::new(MemoryMeta::new());
    let (go_on, waiting) = std::sync::mpsc::channel::<()>();
    let waiting = std::sync::Mutex::new(Some(waiting));
    drop(Protection::open(meta.clone(), Policy::default(), NOW).unwrap());
    // The change waits for the medium for as long as the test wants it to.
    let hook = move |step| {
        let first = (step == MetaStep::Sync).then(|| waiting.lock().unwrap().take()).flatten();
        if let Some(waiting) = first {
            _ = waiting.recv();
        }
    };
    let hooked = Arc::new(HookedMeta::new(meta.clone(), hook));
    let db = Protection::open(hooked, Policy::default(), NOW).unwrap();
    let after_crash = || {
        let crashed = Protection::open(Arc::new(meta.crash(0)), Policy::default(), NOW).unwrap();
        crashed.id_of_name(b"ann").unwrap()
    };
    let new = NewEntry { name: b"ann".to_vec(), kind: Kind::User, owner: UserId(0), id: None };
    std::thread::scope(|scope| {
        scope.spawn(|| db.create(&Actor::cell(), &new, NOW).unwrap());
        while db.id_of_name(b"ann").unwrap().is_none() {
            std::thread::yield_now();
        }
        assert_eq!(after_crash(), None, "it is visible before it is durable");
        db.settle().unwrap();
        assert!(after_crash().is_some());
        go_on.send(()).unwrap();
    });
}
