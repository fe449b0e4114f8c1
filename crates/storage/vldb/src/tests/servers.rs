//! Servers and their addresses.

use super::{Fixture, address, by_id, code, site, volume};
use crate::{NewLocation, SERVERS_MAX, Server, ServerNumber};
use base::{AbortCode, HostUuid};
use std::net::Ipv4Addr;

fn uuid(n: u8) -> HostUuid {
    HostUuid([n; 16])
}

fn register(f: &Fixture, n: u8, addresses: &[u8]) -> Result<(), AbortCode> {
    let addresses: Vec<_> = addresses.iter().copied().map(address).collect();
    f.db.register(uuid(n), &addresses).map_err(code)
}

/// Returns every server as (number, first byte of its UUID, uniquifier, last bytes of its addresses).
fn table(f: &Fixture) -> Vec<(u8, u8, i32, Vec<u8>)> {
    let last = |addresses: &[Ipv4Addr]| addresses.iter().map(|address| address.octets()[3]).collect();
    f.db.servers()
        .iter()
        .map(|(number, server)| match server {
            Server::Address(address) => (number.0, 0, 0, vec![address.octets()[3]]),
            Server::Registered { uuid, uniquifier, addresses } => {
                (number.0, uuid.0[0], *uniquifier, last(addresses))
            }
        })
        .collect()
}

#[test]
fn a_server_takes_the_place_of_the_address_that_entries_name() {
    let f = Fixture::new();
    f.create(&volume("a", 100)).unwrap();
    assert_eq!(table(&f), [(0, 0, 0, vec![1])]);
    register(&f, 7, &[2, 1, 2]).unwrap();
    assert_eq!(table(&f), [(0, 7, 1, vec![2, 1])]);
    let server = f.db.find(&by_id(100), None).unwrap().sites[0].server;
    assert_eq!(f.db.servers().get(server).unwrap().first_address(), address(2));
    // New entries may refer to it by any of its addresses.
    f.create(&NewLocation { sites: vec![site(2, 0, 4), site(1, 1, 4)], ..volume("b", 200) }).unwrap();
    assert_eq!(f.db.find(&by_id(200), None).unwrap().sites.iter().filter(|s| s.server == server).count(), 2);
}

#[test]
fn registering_again_changes_only_differences() {
    let f = Fixture::new();
    register(&f, 7, &[1, 2]).unwrap();
    register(&f, 7, &[1, 2]).unwrap();
    assert_eq!(table(&f), [(0, 7, 1, vec![1, 2])]);
    register(&f, 7, &[2, 1]).unwrap();
    assert_eq!(table(&f), [(0, 7, 2, vec![2, 1])]);
    register(&f, 7, &[3]).unwrap();
    assert_eq!(table(&f), [(0, 7, 3, vec![3])]);
    assert_eq!(table(&f.crashed()), table(&f));
}

#[test]
fn conflicts_are_refused() {
    let f = Fixture::new();
    register(&f, 1, &[1, 2]).unwrap();
    register(&f, 2, &[3, 4]).unwrap();
    // A known server may not take all addresses of another.
    assert_eq!(register(&f, 1, &[1, 3, 4]), Err(AbortCode::VL_MULTIPADDR));
    // It may take some of another server's addresses.
    register(&f, 1, &[1, 3]).unwrap();
    assert_eq!(table(&f), [(0, 1, 2, vec![1, 3]), (1, 2, 2, vec![4])]);
    // An unknown server whose addresses overlap with two servers could be either.
    assert_eq!(register(&f, 3, &[1, 4]), Err(AbortCode::VL_MULTIPADDR));
    // An unknown server that overlaps with one server replaces it: the machine has a new UUID.
    register(&f, 3, &[4, 5]).unwrap();
    assert_eq!(table(&f), [(0, 1, 2, vec![1, 3]), (1, 3, 3, vec![4, 5])]);
    // A known server may not take the only address of an unregistered server either.
    f.create(&NewLocation { sites: vec![site(9, 0, 4)], ..volume("a", 100) }).unwrap();
    assert_eq!(register(&f, 1, &[1, 9]), Err(AbortCode::VL_MULTIPADDR));
}

#[test]
fn registrations_displace_entries_that_lose_addresses() {
    let f = Fixture::new();
    register(&f, 1, &[1, 2]).unwrap();
    register(&f, 2, &[3, 4]).unwrap();
    f.create(&NewLocation { sites: vec![site(9, 0, 4)], ..volume("a", 100) }).unwrap();
    let displaced = |n: u8, addresses: &[u8]| {
        let addresses: Vec<_> = addresses.iter().copied().map(address).collect();
        let last = |addresses: &[Ipv4Addr]| addresses.iter().map(|it| it.octets()[3]).collect::<Vec<u8>>();
        let all = f.db.servers().displaced(uuid(n), &addresses);
        all.iter()
            .map(|it| (it.uuid.map(|uuid| uuid.0[0]), last(&it.lost), last(&it.others)))
            .collect::<Vec<_>>()
    };
    assert_eq!(displaced(1, &[1, 2, 5]), []);
    assert_eq!(displaced(1, &[2]), [(Some(1), vec![1], vec![1])]);
    assert_eq!(displaced(3, &[2, 5]), [(Some(1), vec![2], vec![1])]);
    assert_eq!(displaced(1, &[1, 2, 4, 9]), [(Some(2), vec![4], vec![3]), (None, vec![9], vec![])]);
}

#[test]
fn impossible_registrations() {
    let f = Fixture::new();
    let any = |addresses: &[[u8; 4]]| {
        let addresses: Vec<_> = addresses.iter().map(|&octets| Ipv4Addr::from(octets)).collect();
        f.db.register(uuid(1), &addresses).map_err(code)
    };
    assert_eq!(any(&[]), Err(AbortCode::VL_INDEXERANGE));
    assert_eq!(any(&[[0, 0, 0, 0]]), Err(AbortCode::VL_INDEXERANGE));
    assert_eq!(any(&[[255, 0, 0, 1]]), Err(AbortCode::VL_INDEXERANGE));
    assert_eq!(register(&f, 0, &[1]), Err(AbortCode::VL_INDEXERANGE));
    let twenty: Vec<u8> = (1..=20).collect();
    register(&f, 1, &twenty).unwrap();
    assert_eq!(table(&f)[0].3, (1..=15).collect::<Vec<u8>>());
}

#[test]
fn addresses_change_and_go() {
    let f = Fixture::new();
    f.create(&volume("a", 100)).unwrap();
    register(&f, 7, &[2]).unwrap();
    let change = |old, new: Option<u8>| f.db.change_address(address(old), new.map(address)).map_err(code);
    assert_eq!(change(9, Some(10)), Err(AbortCode::VL_NOENT));
    assert_eq!(change(1, Some(2)), Err(AbortCode::VL_MULTIPADDR));
    assert_eq!(change(2, Some(3)), Err(AbortCode::VL_NOENT));
    assert_eq!(
        f.db.change_address(address(1), Some([255, 1, 1, 1].into())).map_err(code),
        Err(AbortCode::VL_BADSERVER)
    );
    assert_eq!(change(1, Some(5)), Ok(()));
    assert_eq!(table(&f), [(0, 0, 0, vec![5]), (1, 7, 1, vec![2])]);
    assert_eq!(change(5, None), Err(AbortCode::VL_IDEXIST));
    f.db.delete(base::VolumeId(100), None).unwrap();
    assert_eq!(change(5, None), Ok(()));
    assert_eq!(change(2, None), Ok(()));
    assert_eq!(table(&f), []);
    assert_eq!(table(&f.crashed()), []);
    // The lowest free number is reused.
    f.create(&volume("a", 100)).unwrap();
    assert_eq!(table(&f), [(0, 0, 0, vec![1])]);
}

#[test]
fn the_table_of_servers_has_an_end() {
    let f = Fixture::new();
    for n in 0..SERVERS_MAX {
        let octets = [10, 0, (n / 200) as u8, (n % 200) as u8 + 1];
        f.db.register(
            HostUuid([(n / 200) as u8 + 1, n as u8, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1]),
            &[octets.into()],
        )
        .unwrap();
    }
    assert_eq!(register(&f, 200, &[1]), Err(AbortCode::VL_REPSFULL));
    assert_eq!(f.create(&volume("a", 100)), Err(AbortCode::VL_BADSERVER));
    assert!(f.db.servers().get(ServerNumber(254)).is_some());
}
