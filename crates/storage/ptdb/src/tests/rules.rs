//! Effects of operations on entries, rule by rule.

use super::{Fixture, NOW, code};
use crate::{Actor, Change, EntryFlags, Fields, Kind, NewEntry, Policy};
use base::{AbortCode, UnixTime, UserId};
use std::net::Ipv4Addr;

#[test]
fn a_new_database_has_the_entries_of_openafs() {
    let f = Fixture::new();
    let (entries, next) = f.db.list(&Actor::cell(), 0, 100, &|_| true).unwrap();
    assert_eq!(next, None);
    let seen: Vec<_> = entries
        .iter()
        .map(|e| {
            let name = String::from_utf8(e.name.clone()).unwrap();
            (name, e.id.0, e.owner.0, e.creator.0, f.db.policy().shown_access(e), e.group_quota)
        })
        .collect();
    let row = |name: &str, id, access, quota| (name.to_owned(), id, -204, -204, access, quota);
    assert_eq!(
        seen,
        [
            row("system:administrators", -204, 0x90, 20),
            row("system:backup", -205, 0x90, 0),
            row("system:anyuser", -101, 0x90, 0),
            row("system:authuser", -102, 0x90, 0),
            row("system:ptsviewers", -203, 0x90, 0),
            row("anonymous", 32766, 0x80, 20),
        ]
    );
    let totals = f.db.totals().unwrap();
    assert_eq!((totals.max_user, totals.max_group), (UserId(0), UserId(-205)));
}

#[test]
fn ids_are_given_out_in_order_and_names_become_lower_case() {
    let f = Fixture::new();
    let admin = Actor::cell();
    assert_eq!(f.create(&admin, "Alice", Kind::User), Ok(UserId(1)));
    assert_eq!(f.create(&admin, "bob", Kind::User), Ok(UserId(2)));
    assert_eq!(f.create(&admin, "staff", Kind::Group), Ok(UserId(-206)));
    assert_eq!(f.db.id_of_name(b"alice").unwrap(), Some(UserId(1)));
    assert_eq!(f.db.id_of_name(b"Alice").unwrap(), None);
    let chosen =
        NewEntry { name: "carol".into(), kind: Kind::User, owner: UserId(0), id: Some(UserId(1000)) };
    f.db.create(&admin, &chosen, NOW).unwrap();
    assert_eq!(f.create(&admin, "dave", Kind::User), Ok(UserId(1001)));
    let carol = f.entry(UserId(1000));
    assert_eq!((carol.owner, carol.creator, carol.created), (UserId(-204), UserId(-204), NOW));
}

#[test]
fn names_that_are_refused() {
    let f = Fixture::new();
    let alice = f.user("alice");
    let long = "x".repeat(64);
    let (admin, user) = (Actor::cell(), Actor::user(alice));
    let table: &[(&Actor, &str, Kind, AbortCode)] = &[
        (&admin, "a:b", Kind::User, AbortCode::PRBADNAM),
        (&admin, "a\nb", Kind::User, AbortCode::PRBADNAM),
        (&admin, "", Kind::User, AbortCode::PRBADNAM),
        (&admin, &long, Kind::User, AbortCode::PRBADNAM),
        (&admin, "alice", Kind::User, AbortCode::PREXIST),
        (&admin, "a:b:c", Kind::Group, AbortCode::PRBADNAM),
        (&admin, "x@other", Kind::Group, AbortCode::PRBADNAM),
        (&admin, "joe@nowhere", Kind::User, AbortCode::PRBADNAM),
        (&user, "plain", Kind::Group, AbortCode::PRBADNAM),
        (&user, "bob:friends", Kind::Group, AbortCode::PRBADNAM),
        (&user, "system:mine", Kind::Group, AbortCode::PRBADNAM),
    ];
    for (actor, name, kind, expected) in table {
        assert_eq!(f.create(actor, name, *kind), Err(*expected), "{name:?} {kind:?}");
    }
    assert!(f.create(&user, "alice:friends", Kind::Group).is_ok());
    assert!(f.create(&admin, "plain", Kind::Group).is_ok());
    assert!(f.create(&admin, &"y".repeat(63), Kind::User).is_ok());
}

#[test]
fn a_group_may_be_owned_by_another_only_if_that_one_has_members() {
    let f = Fixture::new();
    let alice = f.user("alice");
    let actor = Actor::user(alice);
    let friends = f.create(&actor, "alice:friends", Kind::Group).unwrap();
    assert_eq!(f.create_owned(&actor, "alice:inner", Kind::Group, friends.0), Err(AbortCode::PRGROUPEMPTY));
    f.add(alice, friends);
    assert!(f.create_owned(&actor, "alice:inner", Kind::Group, friends.0).is_ok());
    assert_eq!(f.create_owned(&actor, "ghost:x", Kind::Group, 4711), Err(AbortCode::PRNOENT));
    assert_eq!(f.create_owned(&actor, "system:x", Kind::Group, -204), Err(AbortCode::PRPERM));
}

#[test]
fn groups_cost_their_creator_quota_until_they_are_deleted() {
    let f = Fixture::new();
    let alice = f.user("alice");
    let actor = Actor::user(alice);
    let quota = |n| Fields { group_quota: Some(n), ..Fields::default() };
    f.db.set_fields(&Actor::cell(), alice, quota(1)).unwrap();
    let group = f.create(&actor, "alice:a", Kind::Group).unwrap();
    assert_eq!(f.create(&actor, "alice:b", Kind::Group), Err(AbortCode::PRNOMORE));
    f.db.delete(&actor, group, NOW).unwrap();
    assert_eq!(f.entry(alice).group_quota, 1);
    assert!(f.create(&actor, "alice:b", Kind::Group).is_ok());
    // Administrators are neither charged nor refunded.
    let admin = f.user("admin");
    f.add(admin, UserId::ADMINISTRATORS);
    let group = f.create(&Actor::user(admin), "free", Kind::Group).unwrap();
    assert_eq!(f.entry(admin).group_quota, 20);
    f.db.delete(&Actor::user(admin), group, NOW).unwrap();
    assert_eq!(f.entry(admin).group_quota, 20);
    assert_eq!(f.db.set_fields(&Actor::cell(), alice, quota(-1)).map_err(code), Err(AbortCode::PRBADARG));
}

#[test]
fn the_protection_set_goes_through_groups_of_groups() {
    let f = Fixture::new();
    let alice = f.user("alice");
    let groups: Vec<_> = (0..8).map(|n| f.group(&format!("g{n}"), UserId::ADMINISTRATORS)).collect();
    f.add(alice, groups[0]);
    for pair in groups.windows(2) {
        f.add(pair[0], pair[1]);
    }
    let set = f.db.protection_set(alice).unwrap();
    // The direct group and five levels above it.
    let mut expected: Vec<_> = groups[..6].to_vec();
    expected.extend([UserId::ANYUSER, UserId::AUTHUSER, alice]);
    expected.sort();
    assert_eq!(set, expected);
    // Membership follows a chain of at most five groups.
    assert!(f.db.is_member(alice, groups[4]).unwrap());
    assert!(!f.db.is_member(alice, groups[5]).unwrap());
    assert_eq!(f.db.elements(&Actor::cell(), groups[1]).unwrap(), [groups[0]]);
    assert_eq!(f.db.supergroups(&Actor::cell(), groups[0]).unwrap(), [groups[1]]);
    assert_eq!(f.entry(groups[0]).supergroup_count, 1);
}

#[test]
fn circles_of_groups_end() {
    let f = Fixture::new();
    let (a, b) = (f.group("a", UserId::ADMINISTRATORS), f.group("b", UserId::ADMINISTRATORS));
    let alice = f.user("alice");
    f.add(a, b);
    f.add(b, a);
    f.add(alice, a);
    assert!(f.db.is_member(alice, b).unwrap());
    assert!(!f.db.is_member(UserId(4711), b).unwrap());
    assert!(f.db.protection_set(alice).unwrap().contains(&b));
    f.db.delete(&Actor::cell(), a, NOW).unwrap();
    assert_eq!(f.db.elements(&Actor::cell(), b).unwrap(), []);
    assert_eq!((f.entry(b).count, f.entry(b).supergroup_count), (0, 0));
}

#[test]
fn special_sets() {
    let f = Fixture::new();
    let set = |id| f.db.protection_set(id).unwrap();
    assert_eq!(set(UserId::ANONYMOUS), [UserId::ANYUSER, UserId::ANONYMOUS]);
    assert_eq!(set(UserId::ANYUSER), [UserId::ANYUSER]);
    assert_eq!(f.db.protection_set(UserId(77)).map_err(code), Err(AbortCode::PRNOENT));
    assert!(f.db.is_member(UserId(5), UserId::AUTHUSER).unwrap());
    assert!(!f.db.is_member(UserId::ANONYMOUS, UserId::AUTHUSER).unwrap());
    assert!(f.db.is_member(UserId::ANONYMOUS, UserId::ANYUSER).unwrap());
    assert!(f.db.is_administrator(UserId::ADMINISTRATORS).unwrap());
    let everybody = f.group("everybody", UserId::ADMINISTRATORS);
    f.add(UserId::AUTHUSER, everybody);
    assert!(f.db.is_member(UserId(5), everybody).unwrap());
    assert!(!f.db.is_member(UserId::ANONYMOUS, everybody).unwrap());
}

#[test]
fn hosts_have_groups_by_address_and_network() {
    let f = Fixture::new();
    let group = |name: &str, host: &str| {
        let (group, host) = (f.group(name, UserId::ADMINISTRATORS), f.user(host));
        f.add(host, group);
        group
    };
    let one = group("one", "10.1.2.3");
    let net = group("net", "10.1.2.0");
    let big = group("big", "10.0.0.0");
    let set = |host: [u8; 4]| f.db.host_protection_set(Ipv4Addr::from(host)).unwrap();
    assert_eq!(set([10, 1, 2, 3]), [big, net, one]);
    assert_eq!(set([10, 1, 2, 4]), [big, net]);
    assert_eq!(set([10, 9, 9, 9]), [big]);
    assert_eq!(set([11, 1, 2, 3]), []);
    assert_eq!(set([0, 0, 0, 0]), []);
    let alice = f.user("alice");
    let both = f.db.protection_set_at(&Actor::cell(), Some(alice), [10, 9, 9, 9].into()).unwrap();
    assert_eq!(both, [big, UserId::AUTHUSER, UserId::ANYUSER, alice]);
    assert_eq!(f.db.protection_set_at(&Actor::cell(), None, [10, 9, 9, 9].into()).unwrap(), [big]);
}

#[test]
fn deleting_leaves_groups_and_makes_orphans() {
    let f = Fixture::new();
    let (alice, bob) = (f.user("alice"), f.user("bob"));
    let actor = Actor::user(alice);
    let mine = f.create(&actor, "alice:mine", Kind::Group).unwrap();
    f.add(alice, mine);
    f.add(bob, mine);
    let later = UnixTime(NOW.0 + 5);
    f.db.delete(&Actor::cell(), alice, later).unwrap();
    assert_eq!(f.db.elements(&Actor::cell(), mine).unwrap(), [bob]);
    let group = f.entry(mine);
    assert_eq!((group.owner, group.creator, group.count, group.removed), (UserId(0), alice, 1, later));
    assert_eq!(f.db.owned(&Actor::cell(), UserId(0), None, 10).unwrap(), [mine]);
    assert_eq!(f.db.names(&Actor::cell(), &[alice, bob]).unwrap(), [b"1".to_vec(), b"bob".to_vec()]);
    // An administrator gives an orphan a new owner.
    let adopt = Change { owner: bob, ..Change::default() };
    f.db.change(&Actor::cell(), mine, &adopt, NOW).unwrap();
    assert_eq!(f.entry(mine).name, b"bob:mine");
    assert_eq!(f.db.owned(&Actor::cell(), UserId(0), None, 10).unwrap(), []);
    for fixed in [UserId::ANYUSER, UserId::AUTHUSER, UserId::ADMINISTRATORS, UserId::ANONYMOUS] {
        assert_eq!(f.db.delete(&Actor::cell(), fixed, NOW).map_err(code), Err(AbortCode::PRPERM));
    }
}

#[test]
fn names_follow_owners_and_are_checked() {
    let f = Fixture::new();
    let (alice, bob) = (f.user("alice"), f.user("bob"));
    let actor = Actor::user(alice);
    let group = f.create(&actor, "alice:g", Kind::Group).unwrap();
    let rename = |name: &str| Change { name: name.into(), ..Change::default() };
    let set = |actor: &Actor, id, change: &Change| f.db.change(actor, id, change, NOW).map_err(code);
    assert_eq!(set(&actor, group, &rename("bob:g")), Err(AbortCode::PRBADNAM));
    assert_eq!(set(&actor, group, &rename("plain")), Err(AbortCode::PRBADNAM));
    assert_eq!(set(&actor, group, &rename("Alice:h")), Ok(()));
    assert_eq!(f.entry(group).name, b"alice:h");
    f.create(&actor, "alice:taken", Kind::Group).unwrap();
    assert_eq!(set(&actor, group, &rename("alice:taken")), Err(AbortCode::PREXIST));
    let chown = Change { owner: bob, ..Change::default() };
    assert_eq!(set(&actor, group, &chown), Ok(()));
    assert_eq!((f.entry(group).name, f.entry(group).owner), (b"bob:h".to_vec(), bob));
    assert_eq!(set(&actor, group, &rename("bob:i")), Err(AbortCode::PRPERM));
    assert_eq!(set(&Actor::cell(), alice, &chown), Err(AbortCode::PRPERM));
    assert_eq!(set(&Actor::cell(), alice, &rename("a:b")), Err(AbortCode::PRBADNAM));
    assert_eq!(set(&Actor::cell(), alice, &rename("alice@x")), Err(AbortCode::PRPERM));
    assert_eq!(set(&Actor::cell(), alice, &rename("alicia")), Ok(()));
    assert_eq!(f.db.id_of_name(b"alice").unwrap(), None);
    assert_eq!(f.db.id_of_name(b"alicia").unwrap(), Some(alice));
    assert_eq!(f.entry(alice).changed, NOW);
}

#[test]
fn an_id_changes_everywhere() {
    let f = Fixture::new();
    let (alice, bob) = (f.user("alice"), f.user("bob"));
    let group = f.create(&Actor::user(alice), "alice:g", Kind::Group).unwrap();
    let outer = f.group("outer", UserId::ADMINISTRATORS);
    f.add(alice, group);
    f.add(bob, group);
    f.add(group, outer);
    let to = |id: i32| Change { new_id: UserId(id), ..Change::default() };
    let set = |actor: &Actor, id, change: &Change| f.db.change(actor, id, change, NOW).map_err(code);
    assert_eq!(set(&Actor::user(alice), alice, &to(50)), Err(AbortCode::PRPERM));
    assert_eq!(set(&Actor::cell(), alice, &to(bob.0)), Err(AbortCode::PRIDEXIST));
    assert_eq!(set(&Actor::cell(), alice, &to(-50)), Err(AbortCode::PRPERM));
    assert_eq!(set(&Actor::cell(), alice, &to(50)), Ok(()));
    assert_eq!(set(&Actor::cell(), group, &to(-500)), Ok(()));
    let (alice, group) = (UserId(50), UserId(-500));
    assert_eq!(f.db.id_of_name(b"alice").unwrap(), Some(alice));
    assert_eq!(f.entry(UserId(-500)).owner, alice);
    assert_eq!(f.db.elements(&Actor::cell(), group).unwrap(), [bob, alice]);
    assert_eq!(f.db.elements(&Actor::cell(), alice).unwrap(), [group]);
    assert_eq!(f.db.elements(&Actor::cell(), outer).unwrap(), [group]);
    assert_eq!(f.db.supergroups(&Actor::cell(), group).unwrap(), [outer]);
    assert_eq!(f.db.owned(&Actor::cell(), alice, None, 10).unwrap(), [group]);
    assert_eq!(f.db.totals().unwrap().max_user, UserId(50));
}

#[test]
fn users_of_other_cells_are_registered_by_quota() {
    let f = Fixture::new();
    let name = "joe@other.org";
    let joe = Actor {
        foreign_name: Some(name.into()),
        standing: crate::Standing::Unregistered,
        ..Actor::anonymous()
    };
    assert_eq!(f.create(&joe, name, Kind::User), Err(AbortCode::PRBADNAM));
    let cell = f.group("system:authuser@other.org", UserId::ADMINISTRATORS);
    let id = f.create(&joe, name, Kind::User).unwrap();
    assert_eq!(id.0, 1 << 16 | (cell.0 & 0xffff));
    let entry = f.entry(id);
    assert_eq!((entry.owner, entry.creator, entry.cell), (UserId::ADMINISTRATORS, UserId::ANONYMOUS, cell));
    assert_eq!((f.entry(cell).group_quota, f.entry(cell).user_quota), (29, 1));
    let mut set = vec![cell, UserId::ANYUSER, id];
    set.sort();
    assert_eq!(f.db.protection_set(id).unwrap(), set);
    assert_eq!(f.create(&joe, "ann@other.org", Kind::User), Err(AbortCode::PRPERM));
    assert_eq!(f.create_owned(&joe, name, Kind::User, 5), Err(AbortCode::PRPERM));
    assert_eq!(f.db.delete(&Actor::cell(), cell, NOW).map_err(code), Err(AbortCode::PRBADARG));
    f.db.delete(&Actor::cell(), id, NOW).unwrap();
    assert_eq!(f.entry(cell).group_quota, 30);
    f.db.delete(&Actor::cell(), cell, NOW).unwrap();
    let closed = Fixture::with_policy(Policy { restricted: true, ..Policy::default() });
    closed.group("system:authuser@other.org", UserId::ADMINISTRATORS);
    assert_eq!(closed.create(&joe, name, Kind::User), Err(AbortCode::PRPERM));
}

#[test]
fn access_bits_are_set_under_their_mask() {
    let f = Fixture::new();
    let alice = f.user("alice");
    let set = |mask, bits| Fields { access: Some((mask, bits)), ..Fields::default() };
    f.db.set_fields(&Actor::user(alice), alice, set(0xff, 0xa0)).unwrap();
    assert_eq!(f.entry(alice).flags.access_bits(), 0xa0);
    f.db.set_fields(&Actor::user(alice), alice, set(0x80, 0)).unwrap();
    assert_eq!(f.entry(alice).flags.access_bits(), 0x20);
    assert!(f.entry(alice).flags.has(EntryFlags::ACCESS_SET | EntryFlags::QUOTA_SET));
}

#[test]
fn the_largest_ids_can_be_set() {
    let f = Fixture::new();
    let admin = Actor::cell();
    f.db.set_max(&admin, UserId(500), Kind::User).unwrap();
    f.db.set_max(&admin, UserId(-900), Kind::Group).unwrap();
    assert_eq!(f.user("alice"), UserId(501));
    assert_eq!(f.group("g", UserId::ADMINISTRATORS), UserId(-901));
    assert_eq!(f.db.set_max(&admin, UserId(-1), Kind::User).map_err(code), Err(AbortCode::PRBADARG));
    assert_eq!(f.db.set_max(&admin, UserId(1), Kind::Group).map_err(code), Err(AbortCode::PRBADARG));
    f.db.set_max(&admin, UserId(i32::MAX), Kind::User).unwrap();
    f.db.set_max(&admin, UserId(i32::MIN + 1), Kind::Group).unwrap();
    assert_eq!(f.create(&admin, "bob", Kind::User), Err(AbortCode::PRNOIDS));
    assert_eq!(f.create(&admin, "h", Kind::Group), Err(AbortCode::PRNOIDS));
}

#[test]
fn a_raw_record_shows_lists_and_chains() {
    let f = Fixture::new();
    let alice = f.user("alice");
    let (a, b) = (f.group("alice:a", alice), f.group("alice:b", alice));
    f.add(alice, a);
    f.add(a, b);
    let dump = |id| f.db.dump(&Actor::cell(), f.db.position(&Actor::cell(), id).unwrap()).unwrap();
    let position = |id| Some(f.entry(id).position);
    assert_eq!(dump(alice).elements, [a]);
    assert_eq!(dump(alice).first_owned, position(b));
    assert_eq!((dump(b).next_owned, dump(a).next_owned), (position(a), None));
    assert_eq!(dump(a).supergroups, [b]);
    assert_eq!(f.db.dump(&Actor::cell(), 4711).map_err(code), Err(AbortCode::PRNOENT));
    assert_eq!(f.db.dump(&Actor::user(alice), 0).map_err(code), Err(AbortCode::PRPERM));
}
