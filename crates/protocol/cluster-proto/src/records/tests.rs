use super::*;
use crate::names::{Epoch, Incarnation, NodeName};
use proptest::prelude::*;
use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

/// The objects as the format's description has them.
const NODE: &str = "cellar node lease 1\nnode: a.example\nincarnation: 0000000000000000000000000000abcd.2\n\
    sequence: 17\nstate: live\nttl_ms: 6000\nreplaced: 00000000000000000000000000000001.1\naddresses: 2\n\
    address: 192.0.2.1:7010\naddress: [2001:db8::1]:7010\ntakes_addresses: yes\ncrc32c: ";
const OWNED: &str = "cellar partition owner 1\nepoch: 12\nstate: owned\nnode: a.example\n\
    incarnation: 0000000000000000000000000000abcd.2\ncrc32c: ";
const CHANGING: &str =
    "cellar cluster 1\ncell: example.org\npartitions: 3\npartition: b\nadding: d\nremoving: aa\ncrc32c: ";
const CLUSTER: &str =
    "cellar cluster 1\ncell: example.org\npartitions: 2\npartition: b\npartition: aa\ncrc32c: ";
const ADDRESSES: &str =
    "cellar service addresses 1\naddresses: 2\naddress: 192.0.2.9\naddress: 192.0.2.11\ncrc32c: ";
const REACH: &str = "cellar node reach 1\nnode: a.example\nincarnation: 0000000000000000000000000000abcd.2\n\
    reached: 2\nnode: b\nnode: c\nclients: 5\ncrc32c: ";
const FREE: &str = "cellar partition owner 1\nepoch: 12\nstate: free\nsuccessor: -\ncrc32c: ";

fn name() -> NodeName {
    "a.example".parse().unwrap()
}

fn lease() -> NodeRecord {
    NodeRecord {
        node: name(),
        incarnation: Incarnation { nonce: 0xabcd, count: 2 },
        sequence: 17,
        state: NodeState::Live,
        ttl: Duration::from_secs(6),
        replaced: Some(Incarnation { nonce: 1, count: 1 }),
        addresses: vec!["192.0.2.1:7010".parse().unwrap(), "[2001:db8::1]:7010".parse().unwrap()],
        takes_addresses: true,
    }
}

fn owned() -> OwnerRecord {
    let incarnation = Incarnation { nonce: 0xabcd, count: 2 };
    OwnerRecord { epoch: Epoch(12), holder: Holder::Owned { node: name(), incarnation } }
}

fn free() -> OwnerRecord {
    OwnerRecord { epoch: Epoch(12), holder: Holder::Free { successor: None } }
}

fn cluster() -> ClusterRecord {
    let partitions = ["aa", "b"].map(|letters| letters.parse().unwrap());
    ClusterRecord::new("example.org".parse().unwrap(), partitions.into()).unwrap()
}

fn service_addresses() -> ServiceAddresses {
    ServiceAddresses::new([11, 9].map(|last| Ipv4Addr::new(192, 0, 2, last)).into()).unwrap()
}

fn reach() -> ReachRecord {
    let reached = ["c", "b"].map(|node| node.parse().unwrap());
    ReachRecord::new(name(), Incarnation { nonce: 0xabcd, count: 2 }, reached, 5)
}

/// Returns the contents that begin with the text, with the checksum of CRC-32C computed bit by bit.
fn with_crc(text: &str) -> Vec<u8> {
    let body = text.strip_suffix("crc32c: ").unwrap_or(text);
    let mut crc = u32::MAX;
    for byte in body.bytes() {
        crc ^= u32::from(byte);
        for _ in 0..8 {
            crc = crc >> 1 ^ if crc & 1 == 1 { 0x82f6_3b78 } else { 0 };
        }
    }
    format!("{body}crc32c: {:08x}\n", !crc).into_bytes()
}

#[test]
fn objects_are_as_the_document_describes_them() {
    assert_eq!(lease().encode(), with_crc(NODE));
    assert_eq!(NodeRecord::decode(&name(), &with_crc(NODE)), Ok(lease()));
    for (record, text) in [(owned(), OWNED), (free(), FREE)] {
        assert_eq!(record.encode(), with_crc(text));
        assert_eq!(OwnerRecord::decode(&with_crc(text)), Ok(record));
    }
    assert_eq!(cluster().encode(), with_crc(CLUSTER));
    assert_eq!(ClusterRecord::decode(&with_crc(CLUSTER)), Ok(cluster()));
    assert_eq!(service_addresses().encode(), with_crc(ADDRESSES));
    assert_eq!(ServiceAddresses::decode(&with_crc(ADDRESSES)), Ok(service_addresses()));
    assert_eq!(reach().encode(), with_crc(REACH));
    assert_eq!(ReachRecord::decode(&name(), &with_crc(REACH)), Ok(reach()));
    let document = include_str!("../../../../../docs/reference/formats/cluster.md");
    for text in [NODE, OWNED, FREE, CLUSTER, ADDRESSES, REACH, CHANGING] {
        let shown = String::from_utf8(with_crc(text)).unwrap();
        assert!(document.contains(&shown), "the document lacks\n{shown}");
    }
}

#[test]
fn a_newer_version_is_refused_by_name() {
    for kind in ["cellar node lease", "cellar partition owner", "cellar cluster", "cellar node reach"] {
        let newer = format!("{kind} 2\nanything\n").into_bytes();
        let error = match kind {
            "cellar node lease" => NodeRecord::decode(&name(), &newer).unwrap_err(),
            "cellar cluster" => ClusterRecord::decode(&newer).unwrap_err(),
            "cellar node reach" => ReachRecord::decode(&name(), &newer).unwrap_err(),
            _ => OwnerRecord::decode(&newer).unwrap_err(),
        };
        assert_eq!(error, RecordError::Newer { got: 2 });
        assert!(error.to_string().contains("version 2") && error.to_string().contains("newer program"));
    }
}

#[test]
fn other_objects_are_refused_with_the_reason() {
    let foreign = RecordError::Foreign { expected: "cellar partition owner" };
    for bytes in
        [&b""[..], b"\n", b"cellar node lease 1\n", b"cellar partition owner", b"\xff\n", b"a b\nc\n"]
    {
        assert_eq!(OwnerRecord::decode(bytes), Err(foreign.clone()));
    }
    for version in ["0", "-1", "x", "99999999999"] {
        let text = format!("cellar partition owner {version}\nepoch: 1\n");
        assert_eq!(OwnerRecord::decode(text.as_bytes()), Err(foreign.clone()), "{version}");
    }
    let long = vec![b'a'; RECORD_BYTES_MAX + 1];
    assert_eq!(OwnerRecord::decode(&long), Err(RecordError::TooLong { got: RECORD_BYTES_MAX + 1 }));
    let field = |text: &str| OwnerRecord::decode(&with_crc(text)).unwrap_err();
    let head = "cellar partition owner 1\n";
    assert_eq!(field(head), RecordError::Field("epoch"));
    assert_eq!(field(&format!("{head}epoch: x\n")), RecordError::Field("epoch"));
    assert_eq!(field(&format!("{head}epoch: 1\nstate: lent\n")), RecordError::Field("state"));
    assert_eq!(field(&format!("{head}epoch: 01\nstate: free\nsuccessor: -\n")), RecordError::Field("epoch"));
    assert_eq!(
        field(&format!("{head}epoch: 1\nstate: free\nsuccessor: A\n")),
        RecordError::Field("successor")
    );
    assert_eq!(
        OwnerRecord::decode(format!("{head}epoch: 1\n").as_bytes()),
        Err(RecordError::Field("crc32c"))
    );
}

#[test]
fn a_lease_with_impossible_fields_is_refused() {
    let replaced =
        |from: &str, to: &str| NodeRecord::decode(&name(), &with_crc(&NODE.replace(from, to))).unwrap_err();
    assert_eq!(replaced("a.example", "b.example"), RecordError::Field("node"));
    assert_eq!(replaced("ttl_ms: 6000", "ttl_ms: 1"), RecordError::Field("ttl_ms"));
    assert_eq!(replaced("ttl_ms: 6000", "ttl_ms: 600001"), RecordError::Field("ttl_ms"));
    assert_eq!(replaced("addresses: 2\n", "addresses: 17\n"), RecordError::Field("addresses"));
    assert_eq!(replaced("addresses: 2", "addresses: 3"), RecordError::Field("address"));
    assert_eq!(replaced("addresses: 2", "addresses: 1"), RecordError::Field("takes_addresses"));
    assert_eq!(replaced("takes_addresses: yes", "takes_addresses: 1"), RecordError::Field("takes_addresses"));
    assert_eq!(replaced("state: live", "state: alive"), RecordError::Field("state"));
}

#[test]
fn a_cluster_with_impossible_fields_is_refused() {
    let replaced =
        |from: &str, to: &str| ClusterRecord::decode(&with_crc(&CLUSTER.replace(from, to))).unwrap_err();
    assert_eq!(replaced("example.org", "a b"), RecordError::Field("cell"));
    assert_eq!(replaced("example.org", "Example.org"), RecordError::Field("partition"));
    assert_eq!(replaced("partitions: 2", "partitions: 257"), RecordError::Field("partitions"));
    assert_eq!(replaced("partitions: 2", "partitions: 0"), RecordError::Field("partitions"));
    assert_eq!(replaced("partitions: 2", "partitions: 3"), RecordError::Field("partition"));
    assert_eq!(replaced("partitions: 2", "partitions: 1"), RecordError::Field("partition"));
    assert_eq!(replaced("partition: aa", "partition: b"), RecordError::Field("partition"));
    assert_eq!(replaced("partition: aa", "partition: a"), RecordError::Field("partition"), "not in order");
    assert_eq!(replaced("partition: aa", "partition: zz"), RecordError::Field("partition"));
    assert_eq!(ClusterRecord::new("example.org".parse().unwrap(), Vec::new()), None);
}

#[test]
fn impossible_service_addresses_are_refused() {
    let replaced =
        |from: &str, to: &str| ServiceAddresses::decode(&with_crc(&ADDRESSES.replace(from, to))).unwrap_err();
    assert_eq!(replaced("addresses: 2", "addresses: 16"), RecordError::Field("addresses"));
    assert_eq!(replaced("addresses: 2", "addresses: 3"), RecordError::Field("address"));
    assert_eq!(replaced("addresses: 2", "addresses: 1"), RecordError::Field("address"));
    assert_eq!(replaced("address: 192.0.2.9", "address: 192.0.2.11"), RecordError::Field("address"));
    assert_eq!(replaced("address: 192.0.2.9", "address: 192.0.2.12"), RecordError::Field("address"));
    for special in ["0.0.0.0", "127.0.0.1", "224.0.0.1", "255.255.255.255", "2001:db8::1", "a"] {
        let text = format!("address: {special}");
        assert_eq!(replaced("address: 192.0.2.9", &text), RecordError::Field("address"), "{special}");
    }
    let many = (1..=16).map(|last| Ipv4Addr::new(192, 0, 2, last)).collect();
    assert_eq!(ServiceAddresses::new(many), Err(ServiceAddressError::Many(16)));
    let twice = [11, 9, 11].map(|last| Ipv4Addr::new(192, 0, 2, last));
    assert_eq!(ServiceAddresses::new(twice.into()), Err(ServiceAddressError::Repeated(twice[0])));
    assert_eq!(
        ServiceAddresses::new(vec![Ipv4Addr::LOCALHOST]),
        Err(ServiceAddressError::Special(Ipv4Addr::LOCALHOST))
    );
    assert_eq!(
        ServiceAddresses::decode(&ServiceAddresses::default().encode()),
        Ok(ServiceAddresses::default())
    );
}

#[test]
fn impossible_reaches_are_refused() {
    let replaced =
        |from: &str, to: &str| ReachRecord::decode(&name(), &with_crc(&REACH.replace(from, to))).unwrap_err();
    assert_eq!(replaced("a.example", "b.example"), RecordError::Field("node"));
    assert_eq!(replaced("reached: 2", "reached: 33"), RecordError::Field("reached"));
    assert_eq!(replaced("reached: 2", "reached: 3"), RecordError::Field("node"));
    assert_eq!(replaced("reached: 2", "reached: 1"), RecordError::Field("clients"));
    assert_eq!(replaced("node: c", "node: b"), RecordError::Field("node"), "twice");
    assert_eq!(replaced("node: c", "node: a"), RecordError::Field("node"), "not in order");
    assert_eq!(replaced("node: c", "node: ../c"), RecordError::Field("node"));
    assert_eq!(replaced("clients: 5", "clients: -1"), RecordError::Field("clients"));
    let node = |at: usize| format!("{at:02}{}", "n".repeat(crate::names::NODE_NAME_MAX - 2)).parse().unwrap();
    let incarnation = Incarnation { nonce: u128::MAX, count: u32::MAX };
    let longest = ReachRecord::new(node(99), incarnation, (0..99).map(node), u64::MAX);
    assert!(longest.reached().len() == REACHED_MAX && longest.encode().len() <= RECORD_BYTES_MAX);
    assert_eq!(ReachRecord::decode(&longest.node, &longest.encode()), Ok(longest));
}

#[test]
fn a_cluster_may_have_the_databases() {
    let record = cluster().with_databases(true);
    let bytes = record.encode();
    let text = CLUSTER.replace("partition: aa\n", "partition: aa\ndatabases: bucket\n");
    assert_eq!(bytes, with_crc(&text));
    assert_eq!(ClusterRecord::decode(&bytes), Ok(record));
    for bad in ["databases: -\n", "databases: bucket\ndatabases: bucket\n"] {
        let text = CLUSTER.replace("partition: aa\n", &format!("partition: aa\n{bad}"));
        assert!(ClusterRecord::decode(&with_crc(&text)).is_err(), "{bad}");
    }
}

#[test]
fn partitions_of_a_cluster_are_added_and_removed() {
    let [b, aa, d] = ["b", "aa", "d"].map(|letters| letters.parse().unwrap());
    let adding = cluster().with(&[d], PartitionState::Adding);
    let text = CLUSTER
        .replace("partitions: 2", "partitions: 3")
        .replace("partition: aa", "adding: d\npartition: aa");
    assert_eq!(adding.encode(), with_crc(&text));
    assert_eq!(ClusterRecord::decode(&adding.encode()), Ok(adding.clone()));
    assert_eq!(
        (adding.state(d), adding.state(b)),
        (Some(PartitionState::Adding), Some(PartitionState::Served))
    );
    assert_eq!(adding.partitions(), [b, d, aa]);
    assert_eq!(adding.clone().without(&[d]), Some(cluster()));

    let changing = adding.with(&[aa], PartitionState::Removing);
    assert_eq!(changing.encode(), with_crc(CHANGING));
    assert_eq!(ClusterRecord::decode(&with_crc(CHANGING)), Ok(changing));

    let removing = cluster().with(&[b], PartitionState::Removing);
    assert_eq!(removing.encode(), with_crc(&CLUSTER.replace("partition: b", "removing: b")));
    assert_eq!(ClusterRecord::decode(&removing.encode()), Ok(removing.clone()));
    assert_eq!(removing.clone().without(&[aa]), None, "no other one is served");
    assert_eq!(removing.without(&[b]).unwrap().partitions(), [aa]);
    assert_eq!(cluster().without(&[b, aa]), None);
    let rate = |percent| LIST_FRESH * (100 + percent) / (100 - percent);
    assert!(LIST_OUTDATED > rate(crate::CLOCK_RATE_PERCENT), "whatever the clocks' rates");
    for bad in ["leaving: d\n", "adding: 9\n", "adding:d\n", "adding: b\n"] {
        let text = text.replace("adding: d\n", bad);
        assert!(ClusterRecord::decode(&with_crc(&text)).is_err(), "{bad}");
    }
}

#[test]
fn a_cluster_with_all_partitions_fits() {
    let all = (0..256).filter_map(base::PartitionId::from_index).collect();
    let record = ClusterRecord::new("c".repeat(63).parse().unwrap(), all).unwrap();
    let record = record.with_databases(true);
    let bytes = record.encode();
    assert!(bytes.len() <= RECORD_BYTES_MAX, "{}", bytes.len());
    assert_eq!(ClusterRecord::decode(&bytes), Ok(record));
}

#[test]
fn every_changed_byte_is_noticed() {
    let lists = [cluster().encode(), service_addresses().encode(), reach().encode()];
    for good in [lease().encode(), owned().encode(), free().encode()].into_iter().chain(lists) {
        for at in 0..good.len() {
            for flip in [1, 0x20, 0x80] {
                let mut bad = good.clone();
                bad[at] ^= flip;
                assert!(NodeRecord::decode(&name(), &bad).is_err() && OwnerRecord::decode(&bad).is_err());
                assert!(ClusterRecord::decode(&bad).is_err() && ServiceAddresses::decode(&bad).is_err());
                assert!(ReachRecord::decode(&name(), &bad).is_err());
            }
            assert!(NodeRecord::decode(&name(), &good[..at]).is_err());
            assert!(OwnerRecord::decode(&good[..at]).is_err());
            assert!(ClusterRecord::decode(&good[..at]).is_err());
            assert!(ServiceAddresses::decode(&good[..at]).is_err());
            assert!(ReachRecord::decode(&name(), &good[..at]).is_err());
        }
    }
}

#[test]
fn the_longest_lease_fits() {
    let longest = NodeRecord {
        node: "n".repeat(crate::names::NODE_NAME_MAX).parse().unwrap(),
        incarnation: Incarnation { nonce: u128::MAX, count: u32::MAX },
        sequence: u64::MAX,
        addresses: vec!["[ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff]:65535".parse().unwrap(); ADDRESSES_MAX],
        ..lease()
    };
    let bytes = longest.encode();
    assert!(bytes.len() <= RECORD_BYTES_MAX);
    assert_eq!(NodeRecord::decode(&longest.node, &bytes), Ok(longest));
}

fn any_lease() -> impl Strategy<Value = NodeRecord> {
    let states = prop_oneof![Just(NodeState::Live), Just(NodeState::Left), Just(NodeState::Dead)];
    let incarnation =
        || (any::<u128>(), any::<u32>()).prop_map(|(nonce, count)| Incarnation { nonce, count });
    let addresses = proptest::collection::vec(any::<([u8; 4], u16)>(), 0..ADDRESSES_MAX);
    let replaced = proptest::option::of(incarnation());
    (incarnation(), any::<u64>(), states, 50_u64..600_000, replaced, addresses, any::<bool>()).prop_map(
        |(incarnation, sequence, state, ttl_ms, replaced, addresses, takes_addresses)| NodeRecord {
            node: name(),
            incarnation,
            sequence,
            state,
            ttl: Duration::from_millis(ttl_ms),
            replaced,
            addresses: addresses.into_iter().map(SocketAddr::from).collect(),
            takes_addresses,
        },
    )
}

proptest! {
    #[test]
    fn leases_are_read_as_they_were_written(record in any_lease()) {
        prop_assert_eq!(NodeRecord::decode(&name(), &record.encode()), Ok(record));
    }

    #[test]
    fn arbitrary_bytes_are_no_objects(bytes in proptest::collection::vec(any::<u8>(), 0..5000)) {
        prop_assert!(NodeRecord::decode(&name(), &bytes).is_err());
        prop_assert!(OwnerRecord::decode(&bytes).is_err());
        prop_assert!(ClusterRecord::decode(&bytes).is_err());
        prop_assert!(ServiceAddresses::decode(&bytes).is_err());
        prop_assert!(ReachRecord::decode(&name(), &bytes).is_err());
    }

    /// Text that gets past the checksum: lines of all objects, shuffled, cut and repeated.
    #[test]
    fn arbitrary_lines_have_one_form(lines in proptest::collection::vec(0_usize..43, 0..14), cut in 0_usize..40) {
        let all: Vec<&str> =
            [NODE, OWNED, FREE, CLUSTER, CHANGING, ADDRESSES, REACH].iter().flat_map(|object| object.lines()).collect();
        let mut text = String::new();
        for line in lines.iter().filter_map(|line| all.get(*line)) {
            text += line;
            text.push('\n');
        }
        text.truncate(text.len().saturating_sub(cut.saturating_sub(20)));
        let heads = ["cellar node lease", "cellar partition owner", "cellar cluster", "cellar service addresses", "cellar node reach"];
        for head in heads.map(|kind| format!("{kind} 1\n")).iter().map(String::as_str).chain([""]) {
            let bytes = with_crc(&format!("{head}{text}"));
            if let Ok(record) = NodeRecord::decode(&name(), &bytes) {
                prop_assert_eq!(record.encode(), bytes.clone());
            }
            if let Ok(record) = ReachRecord::decode(&name(), &bytes) {
                prop_assert_eq!(record.encode(), bytes.clone());
            }
            if let Ok(record) = ServiceAddresses::decode(&bytes) {
                prop_assert_eq!(record.encode(), bytes.clone());
            }
            if let Ok(record) = ClusterRecord::decode(&bytes) {
                prop_assert_eq!(record.encode(), bytes.clone());
            }
            if let Ok(record) = OwnerRecord::decode(&bytes) {
                prop_assert_eq!(record.encode(), bytes);
            }
        }
    }
}
