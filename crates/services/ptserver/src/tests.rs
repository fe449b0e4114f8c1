//! Tests of the service through its wire format.

use crate::PtService;
use afs_idl::MemoryStream;
use afs_idl::pr::{self, CheckEntry};
use base::{AbortCode, CallContext, Caller, Identity, LocalAuthority, Principal, SecurityLevel, UnixTime};
use proptest::prelude::*;
use ptdb::{Policy, Protection};
use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;
use store::MemoryMeta;
use xdr::{Decode, Encode};

const NOW: UnixTime = UnixTime(1_700_000_000);

struct Trust;

impl LocalAuthority for Trust {
    fn is_superuser(&self, caller: &Caller) -> bool {
        matches!(&caller.identity, Identity::Known(principal) if principal.name == "root")
    }
    fn is_local_realm(&self, principal: &Principal) -> bool {
        principal.realm == "example.org"
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

fn named(name: &str) -> Caller {
    caller(Identity::Known(Principal { name: name.into(), instance: String::new(), realm: String::new() }))
}

fn service() -> PtService {
    let protection = Protection::open(Arc::new(MemoryMeta::new()), Policy::default(), NOW).unwrap();
    PtService::new(Arc::new(protection), Arc::new(Trust), Arc::new(|| NOW))
}

/// Makes one call through the wire format.
fn call<Q: Encode, R: Decode>(
    service: &PtService,
    caller: &Caller,
    opcode: u32,
    request: &Q,
) -> Result<R, AbortCode> {
    let mut bytes = opcode.to_be_bytes().to_vec();
    request.encode(&mut bytes);
    let mut stream = MemoryStream::new(&bytes, 7);
    pr::dispatch(service, &CallContext::new(caller), &mut stream)?;
    Ok(xdr::from_slice(&stream.outgoing).unwrap())
}

fn create(service: &PtService, name: &str, flag: i32, owner: i32) -> i32 {
    let request = pr::NewEntryRequest { name: name.into(), flag, owner };
    call::<_, pr::NewEntryReply>(service, &named("root"), pr::NEW_ENTRY, &request).unwrap().id
}

/// Formats the words of a reply in hexadecimal.
fn words(reply: &impl Encode) -> String {
    let bytes = xdr::to_vec(reply);
    let word = |word: &[u8]| format!("{:x}", u32::from_be_bytes(word.try_into().unwrap()));
    bytes.chunks_exact(4).map(word).collect::<Vec<_>>().join(" ")
}

#[test]
fn an_entry_travels_as_openafs_sends_it() {
    let service = service();
    let request = pr::ListEntryRequest { id: -204 };
    let reply: pr::ListEntryReply =
        call(&service, &caller(Identity::Anonymous), pr::LIST_ENTRY, &request).unwrap();
    // flags, id, owner, creator, ngroups, nusers, count, five spares, then 64 characters of one word each.
    let name: Vec<_> = b"system:administrators".iter().map(|byte| format!("{byte:x}")).collect();
    let zeros = vec!["0"; 64 - name.len()].join(" ");
    let expected = format!("90 ffffff34 ffffff34 ffffff34 14 14 0 0 0 0 0 0 {} {zeros}", name.join(" "));
    assert_eq!(words(&reply), expected);
}

#[test]
fn names_and_ids_are_translated_both_ways() {
    let service = service();
    let alice = create(&service, "alice", 0, 0);
    let names =
        ["alice", "Alice", "alice@example.org", "alice@other", "alice@", "ghost"].map(Into::into).to_vec();
    let nobody = caller(Identity::Anonymous);
    let ids: pr::NameToIDReply =
        call(&service, &nobody, pr::NAME_TO_ID, &pr::NameToIDRequest { names }).unwrap();
    assert_eq!(ids.ids, [alice, 32766, alice, 32766, alice, 32766]);
    let request = pr::IDToNameRequest { ids: vec![alice, -204, 4711, -9] };
    let reply: pr::IDToNameReply = call(&service, &nobody, pr::ID_TO_NAME, &request).unwrap();
    let texts: Vec<_> = reply.names.iter().map(ToString::to_string).collect();
    assert_eq!(texts, ["alice", "system:administrators", "4711", "-9"]);
}

#[test]
fn the_life_of_a_group() {
    let service = service();
    let (alice, bob) = (create(&service, "alice", 0, 0), create(&service, "bob", 0, 0));
    let as_alice = named("alice");
    let new = pr::NewEntryRequest { name: "alice:friends".into(), flag: 2, owner: 0 };
    let group = call::<_, pr::NewEntryReply>(&service, &as_alice, pr::NEW_ENTRY, &new).unwrap().id;
    assert_eq!(group, -206);
    let pair = pr::AddToGroupRequest { user: bob, group };
    assert_eq!(service.add_to_group(&named("bob"), pair), Err(AbortCode::PRPERM));
    call::<_, pr::AddToGroupReply>(&service, &as_alice, pr::ADD_TO_GROUP, &pair).unwrap();
    assert_eq!(service.add_to_group(&as_alice, pair), Err(AbortCode::PRIDEXIST));
    let members = pr::ListElementsRequest { id: group };
    let elements: pr::ListElementsReply = call(&service, &as_alice, pr::LIST_ELEMENTS, &members).unwrap();
    assert_eq!((elements.list, elements.over), (vec![bob], 0));
    let set = service.get_cps(&named("root"), pr::GetCPSRequest { id: bob }).unwrap();
    assert_eq!(set.list, [group, -102, -101, bob]);
    let member = pr::IsAMemberOfRequest { user: bob, group };
    assert_eq!(service.is_a_member_of(&as_alice, member).unwrap().flag, 1);
    let owned = service.list_owned(&as_alice, pr::ListOwnedRequest { id: alice, last: 0 }).unwrap();
    assert_eq!((owned.list, owned.last), (vec![group], 0));
    let change = pr::ChangeEntryRequest { id: group, name: "alice:pals".into(), owner: 0, new_id: 0 };
    service.change_entry(&as_alice, change).unwrap();
    let out = pr::RemoveFromGroupRequest { user: bob, group };
    service.remove_from_group(&as_alice, out).unwrap();
    assert_eq!(service.remove_from_group(&as_alice, out), Err(AbortCode::PRNOENT));
    service.delete(&as_alice, pr::DeleteRequest { id: group }).unwrap();
    let gone = service.list_entry(&as_alice, pr::ListEntryRequest { id: group });
    assert_eq!(gone, Err(AbortCode::PRNOENT));
}

#[test]
fn flags_of_new_entries() {
    let service = service();
    for (flag, expected) in [(16, AbortCode::PRPERM), (18, AbortCode::PRPERM), (1, AbortCode::PRBADARG)] {
        let request = pr::NewEntryRequest { name: "x".into(), flag, owner: 0 };
        assert_eq!(service.new_entry(&named("root"), request), Err(expected), "{flag}");
    }
    let request = |id| pr::INewEntryRequest { name: format!("x{id}").as_str().into(), id, owner: 0 };
    assert_eq!(service.i_new_entry(&named("root"), request(0)), Err(AbortCode::PRPERM));
    service.i_new_entry(&named("root"), request(77)).unwrap();
    service.i_new_entry(&named("root"), request(-777)).unwrap();
    assert_eq!(service.i_new_entry(&named("root"), request(i32::MIN)), Err(AbortCode::PRINCONSISTENT));
    let max = service.list_max(&named("root"), pr::ListMaxRequest).unwrap();
    assert_eq!((max.user, max.group), (77, -777));
}

#[test]
fn fields_are_chosen_by_mask() {
    let service = service();
    let alice = create(&service, "alice", 0, 0);
    let set = |mask, flags, group_quota| pr::SetFieldsEntryRequest {
        id: alice,
        mask,
        flags,
        group_quota,
        ..pr::SetFieldsEntryRequest::default()
    };
    let nobody = caller(Identity::Anonymous);
    assert!(service.set_fields_entry(&nobody, set(0, 0, 0)).is_ok());
    assert_eq!(service.set_fields_entry(&nobody, set(0xff, 0, 0)), Err(AbortCode::PRPERM));
    assert_eq!(service.set_fields_entry(&named("alice"), set(i32::MIN, 0, 7)), Err(AbortCode::PRPERM));
    service.set_fields_entry(&named("root"), set(i32::MIN | 0xff, 0xb0, 7)).unwrap();
    let entry = service.list_entry(&named("alice"), pr::ListEntryRequest { id: alice }).unwrap().entry;
    assert_eq!((entry.flags, entry.group_quota, entry.user_quota), (0xb0, 7, 20));
}

#[test]
fn lists_come_in_portions() {
    let service = service();
    let owner = create(&service, "owner", 0, 0);
    for n in 0..1200 {
        create(&service, &format!("owner:{n}"), 2, owner);
    }
    let mut groups: Vec<CheckEntry> = Vec::new();
    let mut start_index = 0;
    while start_index != -1 {
        let request = pr::ListEntriesRequest { flags: 2, start_index };
        let reply = service.list_entries(&named("root"), request).unwrap();
        assert!(reply.entries.len() <= 500);
        groups.extend(reply.entries);
        start_index = reply.next_start_index;
    }
    assert_eq!(groups.len(), 1205);
    let users =
        service.list_entries(&named("root"), pr::ListEntriesRequest { flags: 1, start_index: 0 }).unwrap();
    let names: Vec<_> = users.entries.iter().map(|entry| entry.name.to_string()).collect();
    assert_eq!((names, users.next_start_index), (vec!["anonymous".to_owned(), "owner".to_owned()], -1));
    let request = pr::ListEntriesRequest { flags: 3, start_index: 0 };
    assert_eq!(service.list_entries(&named("owner"), request), Err(AbortCode::PRPERM));
    let owned = service.list_owned(&named("root"), pr::ListOwnedRequest { id: owner, last: 0 }).unwrap();
    assert_eq!((owned.list.len(), owned.last), (1200, 0));
}

#[test]
fn owned_groups_beyond_one_answer_are_asked_for_again() {
    let service = service();
    for n in 0..5001 {
        create(&service, &format!("system:{n}"), 2, 0);
    }
    let first = service.list_owned(&named("root"), pr::ListOwnedRequest { id: -204, last: 0 }).unwrap();
    assert_eq!(first.list.len(), 5000);
    let rest =
        service.list_owned(&named("root"), pr::ListOwnedRequest { id: -204, last: first.last }).unwrap();
    let mut all: Vec<_> = first.list.iter().chain(&rest.list).copied().collect();
    all.dedup();
    assert_eq!((all.len(), rest.last), (5006, 0));
}

#[test]
fn raw_records_are_found_by_their_place() {
    let service = service();
    let alice = create(&service, "alice", 0, 0);
    let place = service.where_is_it(&named("root"), pr::WhereIsItRequest { id: alice }).unwrap().position;
    let entry = service.dump_entry(&named("root"), pr::DumpEntryRequest { position: place }).unwrap().entry;
    assert_eq!((entry.id, entry.reserved[0], entry.name.to_string()), (alice, NOW.0 as i32, "alice".into()));
    let none = service.dump_entry(&named("root"), pr::DumpEntryRequest { position: 0 });
    assert_eq!(none, Err(AbortCode::PRNOENT));
}

#[test]
fn anonymous_callers_translate_a_bounded_number_of_ids() {
    let service = service();
    let nobody = caller(Identity::Anonymous);
    let translate = |caller: &Caller, count| -> Result<pr::IDToNameReply, AbortCode> {
        call(&service, caller, pr::ID_TO_NAME, &pr::IDToNameRequest { ids: vec![-204; count] })
    };
    assert_eq!(translate(&nobody, 5000).unwrap().names.len(), 5000);
    assert_eq!(translate(&nobody, 5001), Err(AbortCode::PRTOOMANY));
    assert_eq!(translate(&named("root"), 20_000).unwrap().names.len(), 20_000);
    let look_up = |count| -> Result<pr::NameToIDReply, AbortCode> {
        let names = vec!["anonymous".into(); count];
        call(&service, &named("root"), pr::NAME_TO_ID, &pr::NameToIDRequest { names })
    };
    assert_eq!(look_up(5000).unwrap().ids.len(), 5000);
    assert_eq!(look_up(5001), Err(AbortCode::RXGEN_SS_UNMARSHAL));
}

proptest! {
    #[test]
    fn any_call_with_any_bytes_is_answered_or_refused(opcode in 499u32..532, bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        let mut call = opcode.to_be_bytes().to_vec();
        call.extend(bytes);
        let _ = pr::dispatch(&service(), &CallContext::new(&named("root")), &mut MemoryStream::new(&call, 16));
    }
}

/// OPENAFS-SA-2016-001 (CVE-2016-2860): a foreign user has no special rights to create groups.
#[test]
fn sa_2016_001_foreign_users_make_no_groups_of_others() {
    let service = service();
    let alice = create(&service, "alice", 0, 0);
    let foreign = |name: &str| {
        caller(Identity::Known(Principal {
            name: name.into(),
            instance: String::new(),
            realm: "other.org".into(),
        }))
    };
    for (name, owner) in [
        ("system:mine", 0),
        ("alice:friends", 0),
        ("alice:friends", alice),
        ("group", 0),
        ("bob@other.org:x", alice),
    ] {
        let new = pr::NewEntryRequest { name: name.into(), flag: 2, owner };
        for who in ["bob", "admin", "afs"] {
            let made: Result<pr::NewEntryReply, AbortCode> =
                call(&service, &foreign(who), pr::NEW_ENTRY, &new);
            assert!(made.is_err(), "{who} made {name} of {owner}");
        }
    }
}
