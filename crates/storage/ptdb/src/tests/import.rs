//! Import of another database.

use super::{Fixture, NOW};
use crate::{Actor, Entry, EntryFlags, Imported, Kind, OneSided, Outcome, ProtectionError};
use base::{UnixTime, UserId};

fn entry(id: i32, name: &str) -> Entry {
    let group = if id < 0 { EntryFlags::GROUP } else { 0 };
    Entry {
        id: UserId(id),
        name: name.into(),
        flags: EntryFlags(group | EntryFlags::QUOTA_SET),
        cell: UserId(0),
        owner: UserId::ADMINISTRATORS,
        creator: UserId::ADMINISTRATORS,
        group_quota: 17,
        user_quota: 3,
        count: 99,
        supergroup_count: 99,
        position: 99,
        created: UnixTime(1),
        added: UnixTime(2),
        removed: UnixTime(3),
        changed: UnixTime(4),
    }
}

fn ids(ids: &[i32]) -> Vec<UserId> {
    ids.iter().copied().map(UserId).collect()
}

/// Returns two users, a group of both in another group, and memberships that only one side has.
fn imported() -> Imported {
    Imported {
        max_user: UserId(2000),
        max_group: UserId(-300),
        entries: vec![
            (entry(-204, "system:administrators"), ids(&[]), ids(&[])),
            (entry(1001, "ann"), ids(&[-210, -211]), ids(&[])),
            (entry(1002, "bob"), ids(&[-210]), ids(&[])),
            (entry(-210, "inner"), ids(&[1001, 1002, 1003]), ids(&[-211])),
            (entry(-211, "outer"), ids(&[-210]), ids(&[])),
        ],
    }
}

#[test]
fn entries_lists_and_numbers_are_taken_over() {
    let fixture = Fixture::new();
    let Outcome { one_sided, built_in } = fixture.db.import(&imported(), NOW).unwrap();
    let left_out = |holder, element| OneSided { holder: UserId(holder), element: UserId(element) };
    assert!(built_in.contains(&UserId::ANYUSER), "{built_in:?}");
    assert_eq!(one_sided, [left_out(1001, -211), left_out(-210, 1003)]);
    let after = fixture.crashed();
    let ann = after.db.entry(UserId(1001)).unwrap().unwrap();
    assert_eq!((ann.count, ann.group_quota, ann.created, ann.added), (1, 17, UnixTime(1), UnixTime(2)));
    let inner = after.db.entry(UserId(-210)).unwrap().unwrap();
    assert_eq!((inner.count, inner.supergroup_count), (2, 1));
    assert!(after.db.is_member(UserId(1002), UserId(-211)).unwrap(), "through the inner group");
    assert!(!after.db.is_member(UserId(1003), UserId(-210)).unwrap());
    assert!(after.db.entry(UserId::ANYUSER).unwrap().is_some(), "what the other one did not have");
    let totals = after.db.totals().unwrap();
    assert_eq!((totals.max_user, totals.max_group), (UserId(2000), UserId(-300)));
    assert_eq!(after.create(&Actor::cell(), "next", Kind::User), Ok(UserId(2001)));
}

#[test]
fn a_database_in_use_takes_nothing_over() {
    let fixture = Fixture::new();
    fixture.user("carl");
    let before = fixture.db.totals().unwrap();
    let refused = fixture.db.import(&imported(), NOW);
    assert!(matches!(refused, Err(ProtectionError::NotNew)), "{refused:?}");
    assert_eq!(fixture.db.totals().unwrap(), before);
    let fixture = Fixture::new();
    fixture.db.import(&imported(), NOW).unwrap();
    assert!(fixture.db.import(&imported(), NOW).is_err(), "twice");
}

#[test]
fn a_name_twice_changes_nothing() {
    let fixture = Fixture::new();
    let mut wanted = imported();
    wanted.entries.push((entry(1009, "ann"), Vec::new(), Vec::new()));
    let refused = fixture.db.import(&wanted, NOW);
    assert!(matches!(refused, Err(ProtectionError::NameExists(_))), "{refused:?}");
    assert!(fixture.db.entry(UserId(1001)).unwrap().is_none());
    assert!(fixture.db.entry(UserId::ANONYMOUS).unwrap().is_some());
}
