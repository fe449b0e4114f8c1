//! Import of another database.

use super::{Fixture, NOW, address, volume};
use crate::{Imported, Location, LocationError, Server, ServerNumber, Site, VolumeQuery, entry_flags};
use base::{HostUuid, UnixTime, VolumeId, VolumeType};

fn location(name: &str, id: u32, server: u8) -> Location {
    Location {
        name: name.parse().unwrap(),
        ids: [VolumeId(id), VolumeId(0), VolumeId(id + 2)],
        clone: VolumeId(0),
        flags: entry_flags::RW_EXISTS,
        locked: NOW,
        sites: vec![Site { server: ServerNumber(server), partition: 3, flags: 4 }],
    }
}

fn imported() -> Imported {
    let addresses = vec![address(8), address(9)];
    let registered = Server::Registered { uuid: HostUuid([7; 16]), uniquifier: 5, addresses };
    Imported {
        max_volume: VolumeId(0x2000_0100),
        servers: vec![(ServerNumber(3), Server::Address(address(7))), (ServerNumber(9), registered)],
        locations: vec![location("b", 536_870_920, 3), location("a", 536_870_930, 9)],
    }
}

#[test]
fn volumes_servers_and_numbers_are_taken_over() {
    let fixture = Fixture::new();
    fixture.db.register(HostUuid([1; 16]), &[address(1)]).unwrap();
    let mut wanted = imported();
    // A volume created by `vos restore -readonly`.
    wanted.locations[0].flags = entry_flags::RO_EXISTS;
    wanted.locations[0].ids[1] = wanted.locations[0].ids[0];
    fixture.db.import(&wanted).unwrap();
    let after = fixture.crashed();
    let read_only = after.db.find(&VolumeQuery::Id(VolumeId(536_870_920)), Some(VolumeType::ReadOnly));
    assert_eq!(read_only.unwrap().ids, wanted.locations[0].ids);
    let query = VolumeQuery::Id(VolumeId(536_870_932));
    let found = after.db.find(&query, None).unwrap();
    assert_eq!((found.name.to_string(), found.locked), ("a".to_owned(), UnixTime(NOW.0)));
    let servers = after.db.servers();
    assert_eq!(servers.get(ServerNumber(9)).unwrap().addresses(), [address(8), address(9)]);
    assert!(servers.by_address(address(1)).is_none(), "registers again by itself");
    assert_eq!(after.db.totals().volumes, [2, 1, 2]);
    assert!(after.db.new_ids(1).unwrap().0 >= 0x2000_0100);
}

#[test]
fn contradictory_imports_change_nothing() {
    let double = |change: fn(&mut Imported)| {
        let mut wanted = imported();
        change(&mut wanted);
        let fixture = Fixture::new();
        let refused = fixture.db.import(&wanted).unwrap_err();
        assert_eq!(fixture.crashed().db.totals().created, 0);
        refused
    };
    let name = double(|wanted| wanted.locations.push(location("a", 1, 3)));
    assert!(matches!(name, LocationError::NameExists(_)), "{name}");
    let id = double(|wanted| wanted.locations.push(location("c", 536_870_918, 3)));
    assert!(matches!(id, LocationError::IdExists(VolumeId(536_870_920))), "{id}");
    let server = double(|wanted| wanted.locations.push(location("c", 1, 4)));
    assert!(matches!(server, LocationError::BadServer), "{server}");
    let shared = double(|wanted| wanted.locations[0].ids[2] = wanted.locations[0].ids[0]);
    assert!(matches!(shared, LocationError::IdExists(VolumeId(536_870_920))), "{shared}");
    let fixture = Fixture::new();
    fixture.create(&volume("x", 5)).unwrap();
    assert!(matches!(fixture.db.import(&imported()), Err(LocationError::NotNew)));
}
