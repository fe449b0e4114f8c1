//! Rules for creating, finding, changing and locking entries.

use super::{Fixture, NOW, address, by_id, by_name, code, site, volume};
use crate::{NewLocation, SiteUpdate, Update, VolumeQuery, entry_flags, release, site_flags, volume_type};
use base::{AbortCode, VolumeId, VolumeType};

#[test]
fn a_volume_is_found_by_all_its_ids_and_names() {
    let f = Fixture::new();
    f.create(&volume("root.cell", 100)).unwrap();
    for query in [
        by_id(100),
        by_id(101),
        by_id(102),
        by_name("root.cell"),
        by_name("root.cell.readonly"),
        by_name("root.cell.backup"),
        by_name("101"),
    ] {
        assert_eq!(f.db.find(&query, None).unwrap().name.as_str(), "root.cell", "{query:?}");
    }
    for (id, kind, found) in [
        (100, VolumeType::ReadWrite, true),
        (100, VolumeType::ReadOnly, false),
        (101, VolumeType::ReadOnly, true),
        (102, VolumeType::Backup, true),
        (103, VolumeType::Backup, false),
    ] {
        assert_eq!(f.db.find(&by_id(id), Some(kind)).is_ok(), found, "{id} {kind:?}");
    }
    assert_eq!(f.db.find(&by_name("root.cel"), None).map_err(code), Err(AbortCode::VL_NOENT));
}

#[test]
fn names_asked_for_are_parsed_as_openafs_does() {
    let bad = Err(AbortCode::VL_BADNAME);
    let id = |id| Ok(VolumeQuery::Id(VolumeId(id)));
    let name = |name: &str| Ok(VolumeQuery::Name(name.parse().unwrap()));
    let table: &[(&[u8], Result<VolumeQuery, AbortCode>)] = &[
        (b"536870912", id(536_870_912)),
        (b"0", id(0)),
        (b"4294967296", Err(AbortCode::VL_NOENT)),
        (b"", Err(AbortCode::VL_NOENT)),
        (b"x.backup", name("x")),
        (b".backup", name(".backup")),
        (b"x.readonly", name("x")),
        (b"x.readonly.backup", name("x.readonly")),
        (b"x y", bad.clone()),
        (b"x\xff", bad.clone()),
        (b"123456789012345678901234567890ab", bad),
    ];
    for (text, expected) in table {
        assert_eq!(VolumeQuery::parse(text).map_err(code), *expected, "{}", text.escape_ascii());
    }
    assert_eq!(volume_type(-1).unwrap(), None);
    assert_eq!(volume_type(3).map_err(code), Err(AbortCode::VL_BADVOLTYPE));
    assert_eq!(volume_type(-2).map_err(code), Err(AbortCode::VL_BADVOLTYPE));
}

#[test]
fn impossible_entries_are_refused() {
    let f = Fixture::new();
    f.create(&volume("a", 100)).unwrap();
    let base = volume("b", 200);
    let with_site = |site| NewLocation { sites: vec![site], ..base.clone() };
    let with_ids = |ids: [u32; 3]| NewLocation { ids: ids.map(VolumeId), ..base.clone() };
    let both = entry_flags::RW_EXISTS | entry_flags::RO_EXISTS;
    let with_both = |ids: [u32; 3]| NewLocation { flags: both, ..with_ids(ids) };
    let table = [
        (volume("a", 200), AbortCode::VL_NAMEEXIST),
        (volume("b", 98), AbortCode::VL_IDEXIST),
        (with_ids([200, 101, 0]), AbortCode::VL_IDEXIST),
        (with_ids([200, 0, 200]), AbortCode::VL_IDEXIST),
        (with_ids([200, 201, 201]), AbortCode::VL_IDEXIST),
        (with_both([200, 200, 0]), AbortCode::VL_IDEXIST),
        (with_ids([0, 201, 202]), AbortCode::VL_BADENTRY),
        (volume("b.readonly", 200), AbortCode::VL_BADNAME),
        (volume("b/c", 200), AbortCode::VL_BADNAME),
        (volume("12345", 200), AbortCode::VL_BADNAME),
        (volume(&"x".repeat(32), 200), AbortCode::VL_BADNAME),
        (NewLocation { sites: vec![], ..base.clone() }, AbortCode::VL_BADSERVER),
        (NewLocation { sites: vec![site(1, 0, 4); 14], ..base.clone() }, AbortCode::VL_BADSERVER),
        (with_site(site(1, 256, 4)), AbortCode::VL_BADPARTITION),
        (with_site(site(1, -1, 4)), AbortCode::VL_BADPARTITION),
        (with_site(site(1, 0, 0x81)), AbortCode::VL_BADSERVERFLAG),
    ];
    for (new, expected) in table {
        assert_eq!(f.create(&new), Err(expected), "{new:?}");
    }
    let totals = f.db.totals();
    assert_eq!((totals.created, totals.volumes), (1, [1, 1, 1]));
    assert!(f.create(&with_ids([200, 0, 0])).is_ok());
    assert!(f.create(&NewLocation { sites: vec![site(2, 255, 0x80); 13], ..volume("c", 300) }).is_ok());
}

/// `vos restore -readonly` and `vos copy -readonly` create such an entry.
#[test]
fn a_read_only_volume_may_use_one_id_for_both_types() {
    let f = Fixture::new();
    let read_only = NewLocation {
        ids: [100, 100, 0].map(VolumeId),
        flags: entry_flags::RO_EXISTS,
        sites: vec![site(1, 0, 2)],
        ..volume("a", 100)
    };
    f.create(&read_only).unwrap();
    for kind in [None, Some(VolumeType::ReadWrite), Some(VolumeType::ReadOnly)] {
        assert_eq!(f.db.find(&by_id(100), kind).unwrap().name.as_str(), "a");
    }
    assert!(f.db.find(&by_id(100), Some(VolumeType::Backup)).is_err());
    assert_eq!(f.create(&volume("b", 100)), Err(AbortCode::VL_IDEXIST));
    let replace = |new: &NewLocation| f.db.replace(VolumeId(100), None, new, 0).map_err(code);
    let sites = vec![site(1, 0, 2), site(2, 0, 2)];
    replace(&NewLocation { sites, ..read_only.clone() }).unwrap();
    // The read-only volume may become the read-write volume, but the id cannot belong to both.
    let both = entry_flags::RW_EXISTS | entry_flags::RO_EXISTS;
    assert_eq!(replace(&NewLocation { flags: both, ..read_only.clone() }), Err(AbortCode::VL_BADENTRY));
    let flags = Update { flags: Some(both), ..Update::default() };
    let set = |update| f.db.update(&by_id(100), None, update, 0).map_err(code);
    assert_eq!(set(&flags), Err(AbortCode::VL_IDEXIST));
    set(&Update { flags: Some(entry_flags::RW_EXISTS), ..Update::default() }).unwrap();
    replace(&NewLocation { ids: [100, 101, 0].map(VolumeId), flags: both, ..read_only.clone() }).unwrap();
    f.db.delete(VolumeId(101), None).unwrap();
    assert!(f.db.find(&by_id(100), None).is_err());
    f.create(&read_only).unwrap();
}

#[test]
fn deleting_frees_ids_and_names() {
    let f = Fixture::new();
    f.create(&volume("a", 100)).unwrap();
    assert_eq!(
        f.db.delete(VolumeId(101), Some(VolumeType::ReadWrite)).map_err(code),
        Err(AbortCode::VL_NOENT)
    );
    f.db.delete(VolumeId(101), None).unwrap();
    assert_eq!(f.db.delete(VolumeId(100), None).map_err(code), Err(AbortCode::VL_NOENT));
    assert_eq!(f.db.totals().volumes, [0; 3]);
    f.create(&volume("a", 100)).unwrap();
}

#[test]
fn replacing_changes_all_but_the_read_write_id_and_the_lock() {
    let f = Fixture::new();
    f.create(&volume("a", 100)).unwrap();
    f.create(&volume("b", 200)).unwrap();
    f.db.lock(VolumeId(100), None, entry_flags::MOVE as i32, NOW).unwrap();
    let replace = |new: &NewLocation, how| f.db.replace(VolumeId(100), None, new, how).map_err(code);
    let ids = |ids: [u32; 3]| NewLocation { ids: ids.map(VolumeId), ..volume("a", 100) };
    assert_eq!(replace(&ids([500, 101, 102]), 0), Err(AbortCode::VL_BADENTRY));
    assert_eq!(replace(&ids([100, 201, 102]), 0), Err(AbortCode::VL_IDEXIST));
    assert_eq!(replace(&ids([100, 101, 100]), 0), Err(AbortCode::VL_BADENTRY));
    assert_eq!(
        replace(&NewLocation { name: "b".into(), ..ids([100, 101, 102]) }, 0),
        Err(AbortCode::VL_NAMEEXIST)
    );
    assert_eq!(replace(&ids([100, 101, 102]), 8), Err(AbortCode::VL_BADRELLOCKTYPE));
    let new =
        NewLocation { name: "c".into(), sites: vec![site(2, 1, 4), site(3, 2, 2)], ..ids([100, 102, 0]) };
    replace(&new, 0).unwrap();
    let found = f.db.find(&by_name("c"), None).unwrap();
    assert_eq!((found.locked, found.flags, found.sites.len()), (NOW, entry_flags::RW_EXISTS, 2));
    assert!(f.db.find(&by_name("a"), None).is_err());
    assert!(f.db.find(&by_id(101), None).is_err());
    assert_eq!(f.db.find(&by_id(102), Some(VolumeType::ReadOnly)).unwrap(), found);
    assert_eq!(f.db.totals().volumes, [2, 2, 1]);
    replace(&new, release::TIMESTAMP).unwrap();
    assert_eq!(f.db.find(&by_name("c"), None).unwrap().locked.0, 0);
}

#[test]
fn locks_exclude_each_other_until_released() {
    let f = Fixture::new();
    f.create(&volume("a", 100)).unwrap();
    let lock = |operation| f.db.lock(VolumeId(100), None, operation, NOW).map_err(code);
    let unlock = |how| f.db.unlock(VolumeId(100), None, how).map_err(code);
    for bad in [0, 0x30, 0x1000, -1] {
        assert_eq!(lock(bad), Err(AbortCode::VL_BADVOLOPER), "{bad:#x}");
    }
    for operation in [0x10, 0x20, 0x40, 0x80, 0x100] {
        assert_eq!(lock(operation), Ok(()));
        assert_eq!(lock(operation), Err(AbortCode::VL_ENTRYLOCKED));
        let found = f.db.find(&by_id(100), None).unwrap();
        assert_eq!((found.flags, found.locked), (entry_flags::RW_EXISTS | operation as u32, NOW));
        assert_eq!(unlock(release::TIMESTAMP | release::OPERATION | release::OWNER), Ok(()));
        let found = f.db.find(&by_id(100), None).unwrap();
        assert_eq!((found.flags, found.locked.0), (entry_flags::RW_EXISTS, 0));
    }
    assert_eq!(unlock(8), Err(AbortCode::VL_BADRELLOCKTYPE));
    assert_eq!(unlock(0), Ok(()));
    // After a release that was unlocked without clearing the operation, only another release may follow.
    lock(0x20).unwrap();
    unlock(release::TIMESTAMP).unwrap();
    assert_eq!(lock(0x10), Err(AbortCode::VL_RERELEASE));
    assert_eq!(f.db.lock(VolumeId(7), None, 0x10, NOW).map_err(code), Err(AbortCode::VL_NOENT));
}

#[test]
fn fields_are_updated_singly() {
    let f = Fixture::new();
    f.create(&volume("a", 100)).unwrap();
    f.create(&volume("b", 200)).unwrap();
    let update = |update: &Update| f.db.update(&by_name("a.readonly"), None, update, 0).map_err(code);
    let id = |at: usize, id: u32| {
        let mut ids = [None; 3];
        ids[at] = Some(VolumeId(id));
        Update { ids, ..Update::default() }
    };
    assert_eq!(update(&id(1, 200)), Err(AbortCode::VL_IDEXIST));
    assert_eq!(update(&id(0, 0)), Err(AbortCode::VL_BADENTRY));
    assert_eq!(update(&Update { name: Some("b".into()), ..Update::default() }), Err(AbortCode::VL_NAMEEXIST));
    assert_eq!(update(&Update { sites: Some(vec![]), ..Update::default() }), Err(AbortCode::VL_BADSERVER));
    let all = Update { flags: Some(0x7000), clone: Some(VolumeId(9)), ..id(0, 150) };
    assert_eq!(update(&all), Ok(()));
    let found = f.db.find(&by_id(150), Some(VolumeType::ReadWrite)).unwrap();
    assert_eq!((found.flags, found.clone), (0x7000, VolumeId(9)));
    assert!(f.db.find(&by_id(100), None).is_err());
}

#[test]
fn sites_are_updated_step_by_step() {
    let f = Fixture::new();
    f.create(&volume("a", 100)).unwrap();
    let none = SiteUpdate {
        target: (address(1), 0),
        delete: false,
        add: None,
        server: None,
        partition: None,
        flags: None,
    };
    let update = |steps: &[SiteUpdate]| {
        let update = Update { sites: Some(steps.to_vec()), ..Update::default() };
        f.db.update(&by_id(100), None, &update, 0).map_err(code)
    };
    let sites = || -> Vec<_> {
        let servers = f.db.servers();
        let found = f.db.find(&by_id(100), None).unwrap();
        found
            .sites
            .iter()
            .map(|s| (servers.get(s.server).unwrap().first_address().octets()[3], s.partition, s.flags))
            .collect()
    };
    let elsewhere = SiteUpdate { target: (address(9), 0), ..none };
    assert_eq!(update(&[SiteUpdate { delete: true, ..elsewhere }]), Err(AbortCode::VL_NOREPSERVER));
    assert_eq!(update(&[SiteUpdate { flags: Some(4), ..elsewhere }]), Err(AbortCode::VL_NOREPSERVER));
    assert_eq!(update(&[SiteUpdate { flags: Some(0x81), ..none }]), Err(AbortCode::VL_BADSERVERFLAG));
    assert_eq!(update(&[SiteUpdate { partition: Some(256), ..none }]), Err(AbortCode::VL_BADPARTITION));
    assert_eq!(update(&[SiteUpdate { add: Some(site(1, 0, 2)), ..none }]), Err(AbortCode::VL_DUPREPSERVER));
    let add = |server| SiteUpdate { add: Some(site(server, 3, site_flags::READ_ONLY)), ..none };
    update(&[add(2), SiteUpdate { server: Some(address(5)), partition: Some(7), flags: Some(6), ..none }])
        .unwrap();
    assert_eq!(sites(), [(5, 7, 6), (2, 3, 2)]);
    update(&[SiteUpdate { target: (address(5), 7), delete: true, ..none }]).unwrap();
    assert_eq!(sites(), [(2, 3, 2)]);
    let twelve: Vec<_> = (20..32).map(add).collect();
    update(&twelve).unwrap();
    assert_eq!(update(&[add(50)]), Err(AbortCode::VL_REPSFULL));
    // The failed operations left no server behind.
    assert_eq!(f.db.servers().by_address(address(50)), None);
}

#[test]
fn new_ids_avoid_those_in_use() {
    let f = Fixture::new();
    let first = 0x2000_0000;
    assert_eq!(f.db.new_ids(3).unwrap(), VolumeId(first));
    assert_eq!(f.db.new_ids(1).unwrap(), VolumeId(first + 3));
    assert_eq!(f.db.new_ids(0).unwrap(), VolumeId(first + 4));
    f.create(&volume("a", first + 6)).unwrap();
    // 4 and 5 are free, 6 to 8 are not.
    assert_eq!(f.db.new_ids(2).unwrap(), VolumeId(first + 4));
    f.create(&volume("b", first + 10)).unwrap();
    assert_eq!(f.db.new_ids(3).unwrap(), VolumeId(first + 13));
    assert_eq!(f.db.totals().max_volume, VolumeId(first + 16));
    assert_eq!(f.db.new_ids(0x8000_0000).map_err(code), Err(AbortCode::VL_BADVOLIDBUMP));
    f.db.new_ids(0x7fff_ffff).unwrap();
    assert_eq!(f.db.new_ids(0x7fff_ffff).map_err(code), Err(AbortCode::VL_BADVOLIDBUMP));
    assert!(f.db.new_ids(10).is_ok());
}
