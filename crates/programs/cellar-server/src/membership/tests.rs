//! Tests with a real protection service behind a network that fails on demand.

use super::*;
use afs_idl::CallStream;
use base::{CallContext, Identity, Principal, SecurityLevel, UnixTime};
use bytes::Bytes;
use cell_client::fakes::{Fakes, server};
use fileserver::LocalMembership;
use ptdb::{Actor, Kind, NewEntry, Policy, Protection};
use ptserver::PtService;
use store::MemoryMeta;

const NOW: UnixTime = UnixTime(1_700_000_000);
const ALICE: UserId = UserId(100);
const FRIENDS: UserId = UserId(-300);
const LAB: UserId = UserId(-301);
const HOST: [u8; 4] = [192, 0, 2, 9];

/// A UserList with `operator`; the realm HERE is local.
struct Trust;

impl LocalAuthority for Trust {
    fn is_superuser(&self, caller: &Caller) -> bool {
        matches!(&caller.identity, Identity::Known(who) if who.realm.is_empty() && (who.name == "operator" || who.name == "afs"))
    }

    fn is_local_realm(&self, principal: &Principal) -> bool {
        principal.realm == "HERE"
    }
}

fn caller(name: &str, realm: &str, host: [u8; 4]) -> Caller {
    let identity = match name {
        "" => Identity::Anonymous,
        _ => Identity::Known(Principal { name: name.into(), instance: String::new(), realm: realm.into() }),
    };
    let peer = (Ipv4Addr::from(host), 7001).into();
    Caller {
        identity,
        level: SecurityLevel::Clear,
        peer,
        local: IpAddr::V4(server(9)),
        connection: base::Connection::new(),
    }
}

fn database() -> Arc<Protection> {
    let database = Protection::open(Arc::new(MemoryMeta::new()), Policy::default(), NOW).unwrap();
    let new = |name: &str, kind, id| NewEntry {
        name: name.as_bytes().to_vec(),
        kind,
        owner: UserId(0),
        id: Some(UserId(id)),
    };
    for entry in [
        new("admin", Kind::User, 1),
        new("alice", Kind::User, ALICE.0),
        new("friends", Kind::Group, FRIENDS.0),
        new("lab", Kind::Group, LAB.0),
        new("192.0.2.0", Kind::User, 200),
    ] {
        database.create(&Actor::cell(), &entry, NOW).unwrap();
    }
    for (member, group) in [(1, UserId::ADMINISTRATORS), (ALICE.0, FRIENDS), (200, LAB)] {
        database.add_to_group(&Actor::cell(), UserId(member), group, NOW).unwrap();
    }
    Arc::new(database)
}

/// Two protection servers with this database.
fn servers(database: &Arc<Protection>) -> Arc<Fakes> {
    let service = PtService::new(database.clone(), Arc::new(Trust), Arc::new(|| NOW));
    let as_server = caller("afs", "", [127, 0, 0, 1]);
    Fakes::new(move |_, _, stream| pr::dispatch(&service, &CallContext::new(&as_server), stream))
}

fn remote(fakes: &Arc<Fakes>) -> RemoteMembership {
    RemoteMembership::new(fakes.cell(2), Arc::new(Trust))
}

fn fail_both(fakes: &Fakes, code: Option<AbortCode>) {
    fakes.fail(server(1), code);
    fakes.fail(server(2), code);
}

/// Removes the members of system:administrators. The cell itself is that group, and the database returns the
/// group's members too when asked for its set.
fn without_members(mut subject: Subject) -> Subject {
    subject.groups.retain(|id| id.is_group() || *id == subject.user);
    subject
}

fn sorted(mut subject: Subject) -> Subject {
    subject.groups.sort();
    subject.host_groups.sort();
    subject
}

#[test]
fn callers_are_the_same_as_with_the_database_at_hand() {
    let database = database();
    let fakes = servers(&database);
    let (local, remote) = (LocalMembership::new(database, Arc::new(Trust)), remote(&fakes));
    for (name, realm, host, part) in [
        ("", "", HOST, vec![UserId::ANYUSER]),
        ("alice", "", HOST, vec![ALICE, FRIENDS, UserId::AUTHUSER]),
        ("Alice", "HERE", [203, 0, 113, 1], vec![ALICE]),
        ("alice", "ELSEWHERE", HOST, vec![UserId::ANYUSER]),
        ("admin", "", HOST, vec![UserId::ADMINISTRATORS]),
        ("nobody.we.know", "", HOST, vec![UserId::ANYUSER]),
        ("afs", "", HOST, vec![UserId::ADMINISTRATORS]),
        ("operator", "", HOST, vec![UserId::ADMINISTRATORS]),
    ] {
        let caller = caller(name, realm, host);
        let here = without_members(local.subject(&caller).unwrap());
        let there = remote.subject(&caller).unwrap();
        assert!(part.iter().all(|id| there.is(*id)), "{name}@{realm}: {there:?}");
        assert_eq!(sorted(here), sorted(there), "{name}@{realm}");
    }
    let at_host = remote.subject(&caller("", "", HOST)).unwrap().host_groups;
    assert!(at_host.contains(&LAB), "{at_host:?}");
}

#[test]
fn names_and_ids_are_translated_in_one_call() {
    let database = database();
    let fakes = servers(&database);
    let remote = remote(&fakes);
    let names = remote.names(&[ALICE, UserId(4711), UserId::ADMINISTRATORS, UserId(-77)]).unwrap();
    let expected: [&[u8]; 4] = [b"alice", b"4711", b"system:administrators", b"-77"];
    assert_eq!(names, expected);
    assert_eq!(fakes.calls(), 1);
    let long = [b'a'; 64];
    let ids = remote.ids(&[b"ALICE", &long, b"nul\0", b"who", b"anonymous", b"friends"]).unwrap();
    let expected = [Some(ALICE), None, None, None, Some(UserId::ANONYMOUS), Some(FRIENDS)];
    assert_eq!(ids, expected);
    assert_eq!(fakes.calls(), 1);
    assert_eq!((remote.names(&[]).unwrap().len(), remote.ids(&[]).unwrap().len()), (0, 0));
    assert_eq!(remote.ids(&[&long]).unwrap(), [None]);
    assert_eq!(fakes.calls(), 0, "what cannot be is not asked");
}

#[test]
fn another_server_is_asked_when_one_fails() {
    let database = database();
    let fakes = servers(&database);
    let remote = remote(&fakes);
    for code in [AbortCode::RX_CALL_DEAD, AbortCode::UNOQUORUM, AbortCode::RX_CALL_TIMEOUT] {
        fakes.fail(server(1), Some(code));
        assert!(remote.subject(&caller("alice", "", HOST)).unwrap().is(FRIENDS), "{code}");
    }
}

#[test]
fn nobody_gets_more_than_is_known_while_no_server_answers() {
    let database = database();
    let fakes = servers(&database);
    for code in [AbortCode::RX_CALL_DEAD, AbortCode::UNOQUORUM, AbortCode::RXKADUNKNOWNKEY, AbortCode::PRPERM]
    {
        let remote = remote(&fakes);
        fail_both(&fakes, Some(code));
        for name in ["alice", "admin", "operator", "nobody.we.know"] {
            assert_eq!(remote.subject(&caller(name, "", HOST)), Err(AbortCode::VBUSY), "{name} {code}");
        }
        let anonymous = remote.subject(&caller("", "", HOST)).unwrap();
        assert_eq!(anonymous.groups, [UserId::ANONYMOUS, UserId::ANYUSER]);
        assert!(anonymous.is_partial && anonymous.host_groups.is_empty() && !anonymous.administrator);
        assert_eq!(remote.ids(&[b"alice"]), Err(AbortCode::VBUSY));
        assert_eq!(remote.names(&[ALICE]), Err(AbortCode::VBUSY));
        fail_both(&fakes, None);
        // A failure is cached only briefly, and not at all once hosts are forgotten.
        remote.forget_hosts();
        if code == AbortCode::UNOQUORUM {
            assert!(remote.subject(&caller("alice", "", HOST)).unwrap().host_groups.contains(&LAB));
        }
    }
}

#[test]
fn silent_servers_cost_one_call_in_a_while() {
    let database = database();
    let fakes = servers(&database);
    let remote = remote(&fakes);
    fail_both(&fakes, Some(AbortCode::RX_CALL_DEAD));
    for _ in 0..100 {
        assert_eq!(remote.subject(&caller("alice", "", HOST)), Err(AbortCode::VBUSY));
    }
    assert_eq!(fakes.calls(), 2, "each server was tried once");
}

#[test]
fn groups_of_hosts_are_asked_once_and_forgotten_on_demand() {
    let database = database();
    let fakes = servers(&database);
    let remote = remote(&fakes);
    let groups = || remote.subject(&caller("", "", HOST)).unwrap().host_groups;
    assert!(groups().contains(&LAB));
    fakes.calls();
    database.remove_from_group(&Actor::cell(), UserId(200), LAB, NOW).unwrap();
    assert!(groups().contains(&LAB) && fakes.calls() == 0);
    remote.forget_hosts();
    assert!(!groups().contains(&LAB));
}

#[test]
fn an_answer_of_another_length_is_none() {
    let fakes = Fakes::new(|_, _, stream| {
        stream.write(Bytes::from(xdr::to_vec(&pr::NameToIDReply { ids: vec![100, 100] })))
    });
    let remote = RemoteMembership::new(fakes.cell(1), Arc::new(Trust));
    assert_eq!(remote.ids(&[b"alice"]), Err(AbortCode::VBUSY));
    assert_eq!(remote.subject(&caller("alice", "", HOST)), Err(AbortCode::VBUSY));
}
