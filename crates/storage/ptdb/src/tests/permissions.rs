//! Access rules as one table.

use super::{Fixture, NOW, code};
use crate::{Actor, Change, EntryFlags, Fields, Kind, NewEntry, Policy};
use base::{AbortCode, Caller, Identity, LocalAuthority, Principal, SecurityLevel, UserId};
use std::net::{IpAddr, Ipv4Addr};

const ACTORS: [&str; 7] = ["anonymous", "stranger", "member", "owner", "viewer", "admin", "cell"];

/// A group `owner:g` with the given access bits, and an actor of each kind.
struct Scene {
    f: Fixture,
    group: UserId,
    victim: UserId,
    actors: Vec<Actor>,
}

fn scene(access: u32, policy: Policy) -> Scene {
    let f = Fixture::with_policy(policy);
    let [stranger, member, owner, viewer, admin, victim] =
        ["stranger", "member", "owner", "viewer", "admin", "victim"].map(|name| f.user(name));
    let group = f.group("owner:g", owner);
    f.group("owner:h", owner);
    f.add(member, group);
    f.add(viewer, UserId::PTSVIEWERS);
    f.add(admin, UserId::ADMINISTRATORS);
    let fields = Fields { access: Some((0xff, access)), ..Fields::default() };
    f.db.set_fields(&Actor::cell(), group, fields).unwrap();
    let mut actors = vec![Actor::anonymous()];
    actors.extend([stranger, member, owner, viewer, admin].map(Actor::user));
    actors.push(Actor::cell());
    Scene { f, group, victim, actors }
}

type Deed = fn(&Scene, &Actor) -> Result<(), AbortCode>;

fn examine(s: &Scene, a: &Actor) -> Result<(), AbortCode> {
    s.f.db.examine(a, s.group).map(drop).map_err(code)
}
fn members(s: &Scene, a: &Actor) -> Result<(), AbortCode> {
    s.f.db.elements(a, s.group).map(drop).map_err(code)
}
fn owned(s: &Scene, a: &Actor) -> Result<(), AbortCode> {
    s.f.db.owned(a, s.group, None, 9).map(drop).map_err(code)
}
fn orphans(s: &Scene, a: &Actor) -> Result<(), AbortCode> {
    s.f.db.owned(a, UserId(0), None, 9).map(drop).map_err(code)
}
fn add(s: &Scene, a: &Actor) -> Result<(), AbortCode> {
    s.f.db.add_to_group(a, s.victim, s.group, NOW).map_err(code)
}
fn remove(s: &Scene, a: &Actor) -> Result<(), AbortCode> {
    s.f.db.remove_from_group(a, UserId(2), s.group, NOW).map_err(code)
}
fn rename(s: &Scene, a: &Actor) -> Result<(), AbortCode> {
    s.f.db.change(a, s.group, &Change { name: b"owner:new".into(), ..Change::default() }, NOW).map_err(code)
}
fn delete(s: &Scene, a: &Actor) -> Result<(), AbortCode> {
    s.f.db.delete(a, s.group, NOW).map_err(code)
}
fn set_bits(s: &Scene, a: &Actor) -> Result<(), AbortCode> {
    let fields = Fields { access: Some((1, 0)), ..Fields::default() };
    s.f.db.set_fields(a, s.group, fields).map_err(code)
}
fn set_quota(s: &Scene, a: &Actor) -> Result<(), AbortCode> {
    let fields = Fields { group_quota: Some(3), ..Fields::default() };
    s.f.db.set_fields(a, s.victim, fields).map_err(code)
}
fn list(s: &Scene, a: &Actor) -> Result<(), AbortCode> {
    s.f.db.list(a, 0, 9, &|_| true).map(drop).map_err(code)
}
fn create_user(s: &Scene, a: &Actor) -> Result<(), AbortCode> {
    s.f.create(a, "fresh", Kind::User).map(drop)
}
fn create_group(s: &Scene, a: &Actor) -> Result<(), AbortCode> {
    let name = [&s.f.entry(if a.superuser { s.victim } else { a.id }).name[..], b":fresh"].concat();
    let owner = if a.superuser { s.victim } else { UserId(0) };
    s.f.db.create(a, &NewEntry { name, kind: Kind::Group, owner, id: None }, NOW).map(drop).map_err(code)
}
fn set_max(s: &Scene, a: &Actor) -> Result<(), AbortCode> {
    s.f.db.set_max(a, UserId(9), Kind::User).map_err(code)
}
fn list_max(s: &Scene, a: &Actor) -> Result<(), AbortCode> {
    s.f.db.totals_as(a).map(drop).map_err(code)
}
fn is_member(s: &Scene, a: &Actor) -> Result<(), AbortCode> {
    s.f.db.is_member_as(a, s.victim, s.group).map(drop).map_err(code)
}
fn protection_set(s: &Scene, a: &Actor) -> Result<(), AbortCode> {
    s.f.db.protection_set_as(a, s.victim).map(drop).map_err(code)
}

/// Returns one letter per actor in the order of [`ACTORS`]: `y` if allowed, `.` if not.
fn answers(access: u32, policy: Policy, deed: Deed) -> String {
    let try_as = |at: usize| {
        let s = scene(access, policy);
        match deed(&s, &s.actors[at]) {
            Ok(()) => 'y',
            Err(AbortCode::PRPERM) => '.',
            Err(other) => panic!("{} got {other}", ACTORS[at]),
        }
    };
    (0..ACTORS.len()).map(try_as).collect()
}

#[test]
fn permissions_match_the_table() {
    // Actors: anonymous, stranger, member, owner, viewer, admin, cell.
    let (none, any, mem) = (0, 0b1011_0100, 0b0100_1011);
    let table: &[(&str, u32, Deed, &str)] = &[
        ("examine", none, examine, "...yyyy"),
        ("examine S", any, examine, "yyyyyyy"),
        ("examine s", mem, examine, "..yyyyy"),
        ("members", none, members, "...yyyy"),
        ("members M", any, members, "yyyyyyy"),
        ("members m", mem, members, "..yyyyy"),
        // Always allowed to members, since the `GROUP` bit satisfies the rule.
        ("owned", none, owned, "..yyyyy"),
        ("owned O", any, owned, "yyyyyyy"),
        ("orphans", any, orphans, ".....yy"),
        ("add", none, add, "...y.yy"),
        ("add A", any, add, "yyyyyyy"),
        ("add a", mem, add, "..yy.yy"),
        ("remove", none, remove, "...y.yy"),
        ("remove, all for anyone", any, remove, "...y.yy"),
        ("remove r", mem, remove, "..yy.yy"),
        ("rename", any | mem, rename, "...y.yy"),
        ("delete", any | mem, delete, "...y.yy"),
        ("set bits", any | mem, set_bits, "...y.yy"),
        ("set quota", any, set_quota, ".....yy"),
        ("list", any, list, ".....yy"),
        ("create user", any, create_user, ".....yy"),
        ("create group", any, create_group, ".yyyyyy"),
        ("set max", any, set_max, ".....yy"),
        ("list max", none, list_max, "yyyyyyy"),
        ("is member", none, is_member, "...yyyy"),
        ("is member M", any, is_member, "yyyyyyy"),
        ("set of a user", none, protection_set, "....yyy"),
    ];
    for (what, access, deed, expected) in table {
        assert_eq!(answers(*access, Policy::default(), *deed), *expected, "{what}");
    }
}

#[test]
fn restricted_servers_let_only_administrators_change_things() {
    let policy = Policy { restricted: true, ..Policy::default() };
    let table: &[(&str, Deed, &str)] = &[
        ("examine", examine, "yyyyyyy"),
        ("add", add, ".....yy"),
        ("remove", remove, ".....yy"),
        ("rename", rename, ".....yy"),
        ("delete", delete, ".....yy"),
        ("set bits", set_bits, ".....yy"),
        ("create group", create_group, ".....yy"),
    ];
    for (what, deed, expected) in table {
        assert_eq!(answers(0xff, policy, *deed), *expected, "{what}");
    }
}

#[test]
fn anonymous_callers_can_be_kept_out() {
    let policy = Policy { restrict_anonymous: true, ..Policy::default() };
    assert_eq!(answers(0xff, policy, examine), ".yyyyyy");
    assert_eq!(answers(0xff, policy, list_max), ".yyyyyy");
    assert_eq!(answers(0xff, policy, members), ".yyyyyy");
}

#[test]
fn access_masks_are_read_as_pts_shows_them() {
    let default = Policy::default();
    assert_eq!(EntryFlags::parse_access("S----"), Some(default.user_access));
    assert_eq!(EntryFlags::parse_access("S-M--"), Some(default.group_access));
    assert_eq!(EntryFlags::parse_access("SsOMmAar"), Some(0xff << EntryFlags::ACCESS_SHIFT));
    for text in ["S----", "sOmar", "SOMA-", "-----"] {
        let bits = EntryFlags::parse_access(text).unwrap();
        assert_eq!(EntryFlags(bits | EntryFlags::GROUP).access_text(), text);
    }
    assert_eq!((EntryFlags::parse_access(""), EntryFlags::parse_access("S-x--")), (Some(0), None));
}

#[test]
fn a_named_caller_without_an_entry_gets_nothing() {
    let s = scene(0xff, Policy::default());
    let nobody = Actor { standing: crate::Standing::Unregistered, ..Actor::anonymous() };
    for deed in [examine, members, add, list_max, create_user] as [Deed; 5] {
        assert_eq!(deed(&s, &nobody), Err(AbortCode::PRPERM));
    }
}

struct Trust;

impl LocalAuthority for Trust {
    fn is_superuser(&self, caller: &Caller) -> bool {
        matches!(&caller.identity, Identity::Known(p) if p.name.starts_with("root"))
    }
    fn is_local_realm(&self, principal: &Principal) -> bool {
        principal.realm == "LOCAL"
    }
}

fn caller(identity: Identity) -> Caller {
    let local = IpAddr::V4(Ipv4Addr::LOCALHOST);
    Caller {
        identity,
        level: SecurityLevel::Encrypted,
        peer: (local, 7001).into(),
        local,
        connection: base::Connection::new(),
    }
}

#[test]
fn callers_are_known_by_name_or_name_at_realm() {
    let f = Fixture::new();
    let alice = f.user("alice.x");
    f.group("system:authuser@far", UserId::ADMINISTRATORS);
    let joe = f.user("joe@far");
    let root = f.user("root");
    let who = |name: &str, instance: &str, realm: &str| {
        let principal = Principal { name: name.into(), instance: instance.into(), realm: realm.into() };
        let actor = f.db.identify(&caller(Identity::Known(principal)), &Trust).unwrap();
        (actor.id, actor.superuser, actor.check_known().is_ok())
    };
    assert_eq!(who("Alice", "x", ""), (alice, false, true));
    assert_eq!(who("alice", "x", "LOCAL"), (alice, false, true));
    assert_eq!(who("alice", "x", "FAR"), (UserId::ANONYMOUS, false, false));
    assert_eq!(who("joe", "", "FAR"), (joe, false, true));
    assert_eq!(who("nobody", "", ""), (UserId::ANONYMOUS, false, false));
    assert_eq!(who("afs", "", ""), (UserId::ADMINISTRATORS, true, true));
    assert_eq!(who("afs", "", "LOCAL"), (UserId::ANONYMOUS, false, false), "a realm's word is not the key");
    assert_eq!(who("afs", "", "FAR"), (UserId::ANONYMOUS, false, false));
    assert_eq!(who("root", "", ""), (root, true, true));
    assert_eq!(who("root2", "", ""), (UserId::ADMINISTRATORS, true, true));
    assert_eq!(f.db.identify(&caller(Identity::Anonymous), &Trust).unwrap(), Actor::anonymous());
}
