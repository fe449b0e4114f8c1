//! Stored records: which survive, and which are rejected.

use super::{Fixture, NOW, address, by_id, by_name, volume};
use crate::codec::{
    decode_location, decode_server, decode_totals, encode_location, encode_server, encode_totals,
};
use crate::{FAMILY, Location, Locations, Server, ServerNumber, Site, Totals};
use base::{AbortCode, HostUuid, UnixTime, VolumeId};
use proptest::prelude::*;
use std::sync::Arc;
use store::{Batch, HookedMeta, MemoryMeta, MetaStep, MetaStore};

fn sample() -> Location {
    Location {
        name: "root.cell".parse().unwrap(),
        ids: [VolumeId(0x2000_0000), VolumeId(0x2000_0001), VolumeId(0)],
        clone: VolumeId(5),
        flags: 0x3020,
        locked: UnixTime(7),
        sites: vec![
            Site { server: ServerNumber(1), partition: 2, flags: 4 },
            Site { server: ServerNumber(254), partition: 255, flags: 0x80 },
        ],
    }
}

#[test]
fn records_look_as_drawn() {
    let mut entry =
        vec![1, 0x20, 0, 0, 0, 0x20, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 5, 0, 0, 0x30, 0x20, 0, 0, 0, 7, 2];
    entry.extend([1, 2, 4, 254, 255, 0x80]);
    entry.extend(b"root.cell");
    assert_eq!(encode_location(&sample()), entry);
    let server = Server::Registered { uuid: HostUuid([9; 16]), uniquifier: 3, addresses: vec![address(1)] };
    let mut expected = vec![1, 1];
    expected.extend([9; 16]);
    expected.extend([0, 0, 0, 3, 192, 0, 2, 1]);
    assert_eq!(encode_server(&server), expected);
    assert_eq!(encode_server(&Server::Address(address(1))), [1, 0, 192, 0, 2, 1]);
    assert_eq!(encode_totals(&Totals::NEW)[..9], [1, 0x20, 0, 0, 0, 0, 0, 0, 1]);
}

proptest! {
    #[test]
    fn entries_come_back(ids: [u32; 3], clone: u32, flags: u32, locked: u32, name in "[a-z.]{1,31}",
                         sites in prop::collection::vec((any::<u8>(), any::<u8>(), any::<u8>()), 0..14)) {
        let site = |(server, partition, flags)| Site { server: ServerNumber(server), partition, flags };
        let location = Location {
            name: name.parse().unwrap(), ids: ids.map(VolumeId), clone: VolumeId(clone), flags,
            locked: UnixTime(locked), sites: sites.into_iter().map(site).collect(),
        };
        prop_assert_eq!(decode_location(&encode_location(&location)).unwrap(), location);
    }

    #[test]
    fn no_bytes_make_a_decoder_panic(bytes in prop::collection::vec(any::<u8>(), 0..120)) {
        let _ = (decode_location(&bytes), decode_server(&bytes), decode_totals(&bytes));
        let versioned = [&[1], &bytes[..]].concat();
        let _ = (decode_location(&versioned), decode_server(&versioned), decode_totals(&versioned));
    }

    #[test]
    fn damaged_entries_are_refused_or_valid(at in 0usize..41, byte: u8, cut in 0usize..60) {
        let mut bytes = encode_location(&sample());
        bytes[at] = byte;
        bytes.truncate(cut);
        if let Ok(location) = decode_location(&bytes) {
            prop_assert!(location.sites.len() <= 13);
        }
    }
}

#[test]
fn newer_versions_are_refused() {
    let mut newer = encode_location(&sample());
    newer[0] = 2;
    assert_eq!(decode_location(&newer).unwrap_err().abort_code(), AbortCode::VL_DBBAD);
    let meta = Arc::new(MemoryMeta::new());
    let mut batch = Batch::new();
    let mut totals = encode_totals(&Totals::NEW);
    totals[0] = 2;
    batch.put(FAMILY, 1u64.to_be_bytes(), totals);
    meta.commit(batch).unwrap();
    assert!(Locations::open(meta).is_err());
}

#[test]
fn answered_changes_survive_a_crash() {
    let f = Fixture::new();
    let id = f.db.new_ids(3).unwrap();
    f.create(&volume("a", id.0)).unwrap();
    f.db.lock(id, None, 0x20, NOW).unwrap();
    f.db.register(HostUuid([7; 16]), &[address(1), address(2)]).unwrap();
    let again = f.crashed();
    assert_eq!(again.db.find(&by_id(id.0), None).unwrap(), f.db.find(&by_id(id.0), None).unwrap());
    assert_eq!(again.db.servers(), f.db.servers());
    assert_eq!(again.db.totals(), f.db.totals());
    assert_eq!(again.db.new_ids(1).unwrap(), VolumeId(id.0 + 3));
}

#[test]
fn settling_makes_durable_what_queries_have_seen() {
    let meta = Arc::new(MemoryMeta::new());
    let (go_on, waiting) = std::sync::mpsc::channel::<()>();
    let waiting = std::sync::Mutex::new(Some(waiting));
    // The change waits for the medium for as long as the test wants it to.
    let hook = move |step| {
        let first = (step == MetaStep::Sync).then(|| waiting.lock().unwrap().take()).flatten();
        if let Some(waiting) = first {
            _ = waiting.recv();
        }
    };
    let db = Locations::open(Arc::new(HookedMeta::new(meta.clone(), hook))).unwrap();
    let after_crash = || Locations::open(Arc::new(meta.crash(0))).unwrap().find(&by_name("a"), None).is_ok();
    std::thread::scope(|scope| {
        scope.spawn(|| db.create(&volume("a", 100)).unwrap());
        while db.find(&by_name("a"), None).is_err() {
            std::thread::yield_now();
        }
        assert!(!after_crash(), "it is visible before it is durable");
        db.settle().unwrap();
        assert!(after_crash());
        go_on.send(()).unwrap();
    });
}
