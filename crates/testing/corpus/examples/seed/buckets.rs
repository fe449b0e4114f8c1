//! Objects of a bucket that this program wrote, and records of a cluster.

use crate::{Seed, seed, testdata};
use cluster_proto::{
    ClusterRecord, Epoch, Holder, Incarnation, NodeName, NodeRecord, NodeState, OwnerRecord, ReachRecord,
    ServiceAddresses,
};
use corpus::frames::push;
use std::net::Ipv4Addr;
use std::time::Duration;

const GOLDEN: &str = "../storage/bucket-partition/tests/golden/bucket-0.2.0/cells/a/chunks";
const CHECKSUM_BYTES: usize = 4;

/// Without the last line, which the target adds.
fn record(file: &str, encoded: &[u8]) -> [Seed; 2] {
    let end = encoded.windows(8).rposition(|line| line == b"crc32c: ").expect("the last line");
    let with = |first: u8, bytes: &[u8]| [&[first][..], bytes].concat();
    [
        seed("cluster_records", file, with(1, &encoded[..end])),
        seed("cluster_records", format!("{file}_whole"), with(0, encoded)),
    ]
}

fn records() -> Vec<Seed> {
    let node: NodeName = "a.example".parse().expect("a name");
    let incarnation = Incarnation { nonce: 0xabcd, count: 2 };
    let lease = NodeRecord {
        node: node.clone(),
        incarnation,
        sequence: 17,
        state: NodeState::Live,
        ttl: Duration::from_secs(6),
        replaced: Some(Incarnation { nonce: 1, count: 1 }),
        addresses: vec!["192.0.2.1:7010".parse().expect("an address")],
        takes_addresses: true,
    };
    let reach =
        ReachRecord::new(node.clone(), incarnation, ["b", "c"].map(|one| one.parse().expect("a name")), 5);
    let owned = OwnerRecord { epoch: Epoch(12), holder: Holder::Owned { node, incarnation } };
    let partitions = ["aa", "b"].map(|letters| letters.parse().expect("letters"));
    let cluster = ClusterRecord::new("example.org".parse().expect("a cell"), partitions.into());
    let addresses = ServiceAddresses::new([9, 11].map(|last| Ipv4Addr::new(192, 0, 2, last)).into());
    [
        record("lease", &lease.encode()),
        record("reach", &reach.encode()),
        record("owner", &owned.encode()),
        record("cluster", &cluster.expect("a cluster").encode()),
        record("addresses", &addresses.expect("addresses").encode()),
    ]
    .concat()
}

fn objects() -> Vec<Seed> {
    let object = testdata(&format!("{GOLDEN}/0000001-000000002.seg"));
    let loan = testdata(&format!("{GOLDEN}/loan-0000001000000004"));
    let loan = &loan[..loan.len() - CHECKSUM_BYTES];
    let record = &object[32..];
    let place = [&(1u64 << 36 | 2).to_be_bytes()[..], &32u64.to_be_bytes(), &61u32.to_be_bytes()].concat();
    let mut copies = Vec::new();
    push(&mut copies, &[&place[..], record].concat());
    let pieces = [
        [&[0][..], &object].concat(),
        [&b"\x010000001-000000009.seg\n"[..], &object].concat(),
        // The object has the number of its piece, and 2 is the one that its contents name.
        [&[0][..], &object].concat(),
        [&[2][..], loan].concat(),
        [&[3][..], &copies].concat(),
    ];
    let mut all = Vec::new();
    for piece in &pieces {
        push(&mut all, piece);
    }
    let mut loans = Vec::new();
    push(&mut loans, &pieces[3]);
    let mut cache = Vec::new();
    push(&mut cache, &pieces[4]);
    [("all", all), ("loan", loans), ("copies", cache)]
        .map(|(file, data)| seed("bucket_objects", file, data))
        .into()
}

pub(crate) fn seeds() -> Vec<Seed> {
    [records(), objects()].concat()
}
