//! Tests of the service through its wire format.

use crate::ubik::{Standing, Version, VoteService, version_in};
use crate::{Settings, VlService};
use afs_idl::vl::{self, ListAddrByAttributes, ListByAttributes, NVldbEntry, VldbUpdateEntry};
use afs_idl::{MemoryStream, vl::VldbEntry};
use base::{
    AbortCode, Access, CallContext, Caller, HostUuid, Identity, LocalAuthority, Principal, SecurityLevel,
    UnixTime,
};
use proptest::prelude::*;
use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;
use store::MemoryMeta;
use vldb::Locations;
use xdr::{Decode, Encode};

const NOW: UnixTime = UnixTime(1_700_000_000);
const FIRST: u32 = 0x2000_0000;

struct Trust;

impl LocalAuthority for Trust {
    fn is_superuser(&self, caller: &Caller) -> bool {
        matches!(&caller.identity, Identity::Known(principal) if principal.name == "root")
    }
    fn is_local_realm(&self, _: &Principal) -> bool {
        true
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

fn root() -> Caller {
    caller(Identity::Known(Principal { name: "root".into(), instance: String::new(), realm: String::new() }))
}

fn nobody() -> Caller {
    caller(Identity::Anonymous)
}

fn service_with(settings: Settings) -> VlService {
    let locations = Locations::open(Arc::new(MemoryMeta::new())).unwrap();
    VlService::new(Arc::new(locations), Arc::new(Trust), settings, Arc::new(|| NOW))
}

fn service() -> VlService {
    service_with(Settings::default())
}

/// Makes one call through the wire format.
fn call<Q: Encode, R: Decode>(
    service: &VlService,
    caller: &Caller,
    opcode: u32,
    request: &Q,
) -> Result<R, AbortCode> {
    let mut bytes = opcode.to_be_bytes().to_vec();
    request.encode(&mut bytes);
    let mut stream = MemoryStream::new(&bytes, 7);
    vl::dispatch(service, &CallContext::new(caller), &mut stream)?;
    Ok(xdr::from_slice(&stream.outgoing).unwrap())
}

/// Returns a volume with a read-write site on 192.0.2.1 /vicepa and a read-only one on 192.0.2.2 /vicepb.
fn entry(name: &str, id: u32) -> NVldbEntry {
    let mut entry = NVldbEntry {
        name: name.into(),
        server_count: 2,
        volume_id: [id, id + 1, 0],
        flags: 0x3000,
        ..NVldbEntry::default()
    };
    entry.server_number[..2].copy_from_slice(&[0xc000_0201, 0xc000_0202]);
    entry.server_partition[1] = 1;
    entry.server_flags[..2].copy_from_slice(&[4, 2]);
    entry
}

fn create(service: &VlService, name: &str, id: u32) {
    service.create_entry_n(&root(), vl::CreateEntryNRequest { new_entry: entry(name, id) }).unwrap();
}

fn register(service: &VlService, uuid: u8, addresses: &[u32]) -> Result<(), AbortCode> {
    let request =
        vl::RegisterAddrsRequest { uuid: HostUuid([uuid; 16]), spare1: 0, addresses: addresses.to_vec() };
    service.register_addrs(&root(), request).map(drop)
}

/// Formats the words of a reply in hexadecimal, with runs of equal words as `word*count`.
fn words(reply: &impl Encode) -> String {
    let bytes = xdr::to_vec(reply);
    let words: Vec<_> =
        bytes.chunks_exact(4).map(|word| u32::from_be_bytes(word.try_into().unwrap())).collect();
    let shown = words.chunk_by(|a, b| a == b).map(|run| match run.len() {
        1 => format!("{:x}", run[0]),
        count => format!("{:x}*{count}", run[0]),
    });
    shown.collect::<Vec<_>>().join(" ")
}

#[test]
fn entries_travel_as_openafs_sends_them() {
    let service = service();
    create(&service, "a.b", FIRST);
    register(&service, 7, &[0xc000_0202, 0x0a00_0001]).unwrap();
    let by_id = |opcode| (opcode, FIRST, -1i32);
    let (_, volume_id, volume_type) = by_id(0);
    let old: vl::GetEntryByIDReply =
        call(&service, &nobody(), 503, &vl::GetEntryByIDRequest { volume_id, volume_type }).unwrap();
    // 65 characters, spare, count, 8 servers, 8 partitions, 8 flags, 3 ids, clone, flags.
    assert_eq!(words(&old), "61 2e 62 0*63 2 c0000201 c0000202 0*7 1 0*6 4 2 0*6 20000000 20000001 0*2 3000");
    let n: vl::GetEntryByIDNReply =
        call(&service, &nobody(), 518, &vl::GetEntryByIDNRequest { volume_id, volume_type }).unwrap();
    assert_eq!(
        words(&n),
        "61 2e 62 0*62 2 c0000201 c0000202 0*12 1 0*11 4 2 0*11 20000000 20000001 0*2 3000 0*9"
    );
    let request = vl::GetEntryByNameURequest { volume_name: "a.b.readonly".into() };
    let u: vl::GetEntryByNameUReply = call(&service, &nobody(), 527, &request).unwrap();
    // Servers are UUIDs of 11 words: an address in the first word, or a registered UUID.
    assert_eq!(
        words(&u),
        "61 2e 62 0*62 2 c0000201 0*10 7070707 707*2 7*8 0*122 1 0*12 1 0*11 4 12 0*11 20000000 20000001 0*2 \
         3000 0*9"
    );
}

#[test]
fn writing_is_for_superusers() {
    let service = service();
    create(&service, "a", FIRST);
    let id = FIRST;
    let refused = |opcode: u32, arguments: &[u8]| {
        let bytes = [&opcode.to_be_bytes(), arguments].concat();
        vl::dispatch(&service, &CallContext::new(&nobody()), &mut MemoryStream::new(&bytes, 64))
            == Err(AbortCode::VL_PERM)
    };
    let update = VldbUpdateEntry::default();
    let place = (id, -1, 0);
    let ids = vl::DeleteEntryRequest { volume_id: place.0, volume_type: place.1 };
    let requests: [(u32, Vec<u8>); 13] = [
        (vl::CREATE_ENTRY, xdr::to_vec(&vl::CreateEntryRequest { new_entry: VldbEntry::default() })),
        (vl::CREATE_ENTRY_N, xdr::to_vec(&vl::CreateEntryNRequest { new_entry: entry("b", 9) })),
        (vl::DELETE_ENTRY, xdr::to_vec(&ids)),
        (vl::GET_NEW_VOLUME_ID, xdr::to_vec(&vl::GetNewVolumeIdRequest { bump_count: 1 })),
        (
            vl::REPLACE_ENTRY,
            xdr::to_vec(&vl::ReplaceEntryRequest { volume_id: id, ..vl::ReplaceEntryRequest::default() }),
        ),
        (
            vl::REPLACE_ENTRY_N,
            xdr::to_vec(&vl::ReplaceEntryNRequest { volume_id: id, ..vl::ReplaceEntryNRequest::default() }),
        ),
        (
            vl::UPDATE_ENTRY,
            xdr::to_vec(&vl::UpdateEntryRequest {
                volume_id: id,
                update: update.clone(),
                ..vl::UpdateEntryRequest::default()
            }),
        ),
        (
            vl::UPDATE_ENTRY_BY_NAME,
            xdr::to_vec(&vl::UpdateEntryByNameRequest { volume_name: "a".into(), update, release_type: 0 }),
        ),
        (vl::SET_LOCK, xdr::to_vec(&vl::SetLockRequest { volume_id: id, volume_type: -1, operation: 0x10 })),
        (
            vl::RELEASE_LOCK,
            xdr::to_vec(&vl::ReleaseLockRequest { volume_id: id, volume_type: -1, release_type: 0 }),
        ),
        (vl::CHANGE_ADDR, xdr::to_vec(&vl::ChangeAddrRequest { old_address: 1, new_address: 2 })),
        (
            vl::REGISTER_ADDRS,
            xdr::to_vec(&vl::RegisterAddrsRequest { addresses: vec![1], ..Default::default() }),
        ),
        (
            vl::LIST_ATTRIBUTES_N2,
            xdr::to_vec(&vl::ListAttributesN2Request { volume_name: "a.*".into(), ..Default::default() }),
        ),
    ];
    for (opcode, arguments) in requests {
        assert!(refused(opcode, &arguments), "{}", vl::procedure_name(opcode).unwrap());
    }
    assert!(service.list_attributes_n2(&nobody(), vl::ListAttributesN2Request::default()).is_ok());
}

#[test]
fn lists_can_be_restricted() {
    let service = service_with(Settings { queries: Access::Administrators });
    create(&service, "a", FIRST);
    let all = ListByAttributes::default();
    let list = |caller: &Caller| -> Result<vl::ListAttributesNReply, AbortCode> {
        call(&service, caller, vl::LIST_ATTRIBUTES_N, &vl::ListAttributesNRequest { attributes: all })
    };
    assert!(list(&root()).is_ok());
    assert_eq!(list(&nobody()), Err(AbortCode::VL_PERM));
    assert_eq!(service.list_entry_n(&nobody(), vl::ListEntryNRequest::default()), Err(AbortCode::VL_PERM));
    assert_eq!(service.get_stats(&nobody(), vl::GetStatsRequest), Err(AbortCode::VL_PERM));
    let plain = service.list_attributes_n2(&nobody(), vl::ListAttributesN2Request::default());
    assert_eq!(plain, Err(AbortCode::VL_PERM));
    let by_name = vl::GetEntryByNameNRequest { volume_name: "a".into() };
    assert!(service.get_entry_by_name_n(&nobody(), by_name).is_ok());
}

#[test]
fn the_life_of_a_volume() {
    let service = service();
    let new = vl::GetNewVolumeIdRequest { bump_count: 3 };
    let id: vl::GetNewVolumeIdReply = call(&service, &root(), vl::GET_NEW_VOLUME_ID, &new).unwrap();
    assert_eq!(id.new_volume_id, FIRST);
    let request = vl::CreateEntryNRequest { new_entry: entry("vol", FIRST) };
    let _: vl::CreateEntryNReply = call(&service, &root(), vl::CREATE_ENTRY_N, &request).unwrap();
    assert_eq!(service.create_entry_n(&root(), request), Err(AbortCode::VL_IDEXIST));
    let lock = vl::SetLockRequest { volume_id: FIRST, volume_type: 0, operation: 0x20 };
    service.set_lock(&root(), lock).unwrap();
    assert_eq!(service.set_lock(&root(), lock), Err(AbortCode::VL_ENTRYLOCKED));
    let replace = vl::ReplaceEntryNRequest {
        volume_id: FIRST,
        volume_type: 0,
        new_entry: NVldbEntry { flags: 0x1000, ..entry("renamed", FIRST) },
        release_type: 7,
    };
    service.replace_entry_n(&root(), replace).unwrap();
    let request = vl::GetEntryByNameNRequest { volume_name: "renamed".into() };
    let found = service.get_entry_by_name_n(&nobody(), request).unwrap().entry;
    assert_eq!(found, NVldbEntry { flags: 0x1000, ..entry("renamed", FIRST) });
    let mut update =
        VldbUpdateEntry { mask: 0x10 | 0x20, backup_id: FIRST + 2, modified_sites: 1, ..Default::default() };
    update.site_mask[0] = 0x0100;
    update.site_target_server[0] = 0xc000_0202;
    update.site_target_partition[0] = 1;
    let request = vl::UpdateEntryByNameRequest { volume_name: "renamed".into(), update, release_type: 0 };
    service.update_entry_by_name(&root(), request).unwrap();
    let request = vl::GetEntryByIDRequest { volume_id: FIRST + 2, volume_type: 2 };
    let found = service.get_entry_by_id(&nobody(), request).unwrap().entry;
    assert_eq!((found.server_count, found.volume_id[2]), (1, FIRST + 2));
    let delete = vl::DeleteEntryRequest { volume_id: FIRST, volume_type: 0 };
    service.delete_entry(&root(), delete).unwrap();
    assert_eq!(service.delete_entry(&root(), delete), Err(AbortCode::VL_NOENT));
    let bad = vl::GetEntryByIDNRequest { volume_id: FIRST, volume_type: 9 };
    assert_eq!(service.get_entry_by_idn(&nobody(), bad), Err(AbortCode::VL_BADVOLTYPE));
}

/// Returns a volume with this many sites, each on a different server.
fn entry_with_sites(name: &str, id: u32, sites: usize) -> NVldbEntry {
    let mut entry = NVldbEntry { server_count: sites as i32, ..entry(name, id) };
    for at in 0..sites {
        entry.server_number[at] = 0xc000_0201 + at as u32;
        entry.server_flags[at] = if at == 0 { 4 } else { 2 };
    }
    entry
}

fn site_count(service: &VlService, id: u32) -> i32 {
    let request = vl::GetEntryByIDNRequest { volume_id: id, volume_type: -1 };
    service.get_entry_by_idn(&nobody(), request).unwrap().entry.server_count
}

fn old_entry(service: &VlService, id: u32) -> VldbEntry {
    let request = vl::GetEntryByIDRequest { volume_id: id, volume_type: -1 };
    service.get_entry_by_id(&nobody(), request).unwrap().entry
}

#[test]
fn replacing_by_the_old_form_keeps_every_site() {
    let service = service();
    let new_entry = entry_with_sites("ten", FIRST, 10);
    service.create_entry_n(&root(), vl::CreateEntryNRequest { new_entry }).unwrap();
    let entry = old_entry(&service, FIRST);
    assert_eq!(entry.server_count, 8);
    let replace =
        vl::ReplaceEntryRequest { volume_id: FIRST, volume_type: 0, new_entry: entry, release_type: 0 };
    assert_eq!(service.replace_entry(&root(), replace), Err(AbortCode::VL_REPSFULL));
    assert_eq!(site_count(&service, FIRST), 10);
    let new_entry = VldbEntry { server_count: 9, ..VldbEntry::default() };
    let create = service.create_entry(&root(), vl::CreateEntryRequest { new_entry });
    assert_eq!(create, Err(AbortCode::VL_BADSERVER));
}

#[test]
fn the_old_form_replaces_entries_that_it_can_hold() {
    let service = service();
    let new_entry = entry_with_sites("eight", FIRST, 8);
    service.create_entry_n(&root(), vl::CreateEntryNRequest { new_entry }).unwrap();
    let new_entry = VldbEntry { server_count: 7, ..old_entry(&service, FIRST) };
    let replace = vl::ReplaceEntryRequest { volume_id: FIRST, volume_type: 0, new_entry, release_type: 0 };
    service.replace_entry(&root(), replace).unwrap();
    assert_eq!(site_count(&service, FIRST), 7);
}

#[test]
fn an_update_adds_no_site_beyond_the_old_form() {
    let service = service();
    for (name, id, sites) in [("eight", FIRST, 8), ("ten", FIRST + 3, 10)] {
        let new_entry = entry_with_sites(name, id, sites);
        service.create_entry_n(&root(), vl::CreateEntryNRequest { new_entry }).unwrap();
    }
    let mut update = VldbUpdateEntry { mask: 0x20, modified_sites: 1, ..Default::default() };
    update.site_mask[0] = 0x0200;
    update.site_new_server[0] = 0xc000_0280;
    let request =
        |volume_id, update| vl::UpdateEntryRequest { volume_id, volume_type: 0, update, release_type: 0 };
    let full = service.update_entry(&root(), request(FIRST, update.clone()));
    assert_eq!(full, Err(AbortCode::VL_REPSFULL));
    assert_eq!(site_count(&service, FIRST), 8);
    update.site_mask[0] = 0x0100;
    update.site_target_server[0] = 0xc000_020a;
    service.update_entry(&root(), request(FIRST + 3, update)).unwrap();
    assert_eq!(site_count(&service, FIRST + 3), 9);
}

#[test]
fn all_ways_to_list_agree() {
    let service = service();
    for n in 0..5 {
        create(&service, &format!("v{n}"), FIRST + n * 3);
    }
    let attributes = ListByAttributes { mask: 1, server: 0xc000_0202, ..ListByAttributes::default() };
    let request = vl::ListAttributesNRequest { attributes };
    let n: vl::ListAttributesNReply = call(&service, &nobody(), vl::LIST_ATTRIBUTES_N, &request).unwrap();
    let request = vl::LinkedListNRequest { attributes };
    let linked: vl::LinkedListNReply = call(&service, &nobody(), vl::LINKED_LIST_N, &request).unwrap();
    assert_eq!((n.entry_count, &n.entries), (5, &linked.entries));
    let request = vl::ListAttributesRequest { attributes };
    let old: vl::ListAttributesReply = call(&service, &nobody(), vl::LIST_ATTRIBUTES, &request).unwrap();
    assert_eq!(old.entries.len(), 5);
    let request = vl::ListAttributesN2Request { attributes, volume_name: ".*".into(), start_index: 0 };
    let n2 = service.list_attributes_n2(&nobody(), request).unwrap();
    assert_eq!((n2.entry_count, n2.next_start_index), (5, -1));
    assert!(n2.entries.iter().all(|entry| entry.match_index == 2 << 16 | 1));
    let mut walked = Vec::new();
    let mut previous_index = 0;
    loop {
        let reply = service.list_entry_n(&nobody(), vl::ListEntryNRequest { previous_index }).unwrap();
        if reply.next_index == 0 {
            assert_eq!(reply.count, 0);
            break;
        }
        previous_index = reply.next_index;
        walked.push(reply.entry);
    }
    assert_eq!(walked, n.entries);
    let beyond = service.list_entry_n(&nobody(), vl::ListEntryNRequest { previous_index: 99 }).unwrap();
    assert_eq!((beyond.count, beyond.next_index), (-1, 0));
    let one = ListByAttributes { mask: 8, volume_id: FIRST + 4, ..ListByAttributes::default() };
    let request = vl::ListAttributesURequest { attributes: one };
    let one: vl::ListAttributesUReply = call(&service, &nobody(), vl::LIST_ATTRIBUTES_U, &request).unwrap();
    assert_eq!(one.entries[0].name.to_string(), "v1");
}

#[test]
fn servers_are_asked_for_in_three_ways() {
    let service = service();
    create(&service, "a", FIRST);
    register(&service, 7, &[0xc000_0202, 0x0a00_0001]).unwrap();
    let all = service.get_addrs(&nobody(), vl::GetAddrsRequest::default()).unwrap();
    // A plain address, and a reference to a registered server.
    assert_eq!(all.addresses, [0xc000_0201, 0xff00_0002]);
    let ask = |mask, ip_address, index, uuid| {
        let attributes =
            ListAddrByAttributes { mask, ip_address, index, uuid: HostUuid([uuid; 16]), spare1: 0 };
        service.get_addrs_u(&nobody(), vl::GetAddrsURequest { attributes })
    };
    let found = ask(1, 0x0a00_0001, 0, 0).unwrap();
    assert_eq!((found.uuid, found.uniquifier, found.entry_count), (HostUuid([7; 16]), 1, 2));
    assert_eq!(found.addresses, [0xc000_0202, 0x0a00_0001]);
    assert_eq!(ask(2, 0, 2, 0).unwrap(), found);
    assert_eq!(ask(4, 0, 0, 7).unwrap(), found);
    for (mask, address, index, uuid, code) in [
        (1, 0xc000_0201, 0, 0, AbortCode::VL_NOENT),
        (2, 0, 1, 0, AbortCode::VL_NOENT),
        (2, 0, 3, 0, AbortCode::VL_NOENT),
        (2, 0, 0, 0, AbortCode::VL_INDEXERANGE),
        (2, 0, 255, 0, AbortCode::VL_INDEXERANGE),
        (4, 0, 0, 8, AbortCode::VL_NOENT),
        (0, 0, 0, 0, AbortCode::VL_BADMASK),
        (3, 0, 2, 0, AbortCode::VL_BADMASK),
    ] {
        assert_eq!(ask(mask, address, index, uuid), Err(code), "{mask} {index}");
    }
    let change = |old_address, new_address| {
        service.change_addr(&root(), vl::ChangeAddrRequest { old_address, new_address })
    };
    assert_eq!(change(u32::MAX, 0xc000_0201), Err(AbortCode::VL_IDEXIST));
    change(0xc000_0201, 0xc000_0209).unwrap();
    let request = vl::GetEntryByIDNRequest { volume_id: FIRST, volume_type: -1 };
    assert_eq!(service.get_entry_by_idn(&nobody(), request).unwrap().entry.server_number[0], 0xc000_0209);
}

#[test]
fn calls_are_counted() {
    let service = service();
    create(&service, "a", FIRST);
    let _ = service.get_entry_by_idn(&nobody(), vl::GetEntryByIDNRequest { volume_id: 5, volume_type: -1 });
    let reply: vl::GetStatsReply = call(&service, &nobody(), vl::GET_STATS, &vl::GetStatsRequest).unwrap();
    let count = |counters: &[i32], opcode: u32| counters[(opcode - 501) as usize];
    assert_eq!(count(&reply.stats.requests, vl::CREATE_ENTRY_N), 1);
    assert_eq!(count(&reply.stats.requests, vl::GET_ENTRY_BY_IDN), 1);
    assert_eq!(count(&reply.stats.aborts, vl::GET_ENTRY_BY_IDN), 1);
    assert_eq!(count(&reply.stats.aborts, vl::CREATE_ENTRY_N), 0);
    assert_eq!(reply.stats.start_time, NOW.0);
    assert_eq!((reply.header.version, reply.header.max_volume_id), (4, FIRST));
    assert_eq!((reply.header.total_entries, reply.header.allocations), ([1, 1, 0], 1));
}

#[test]
fn forms_that_no_server_answers_are_refused() {
    let service = service();
    let request = vl::CreateEntryURequest::default();
    let outcome: Result<vl::CreateEntryUReply, _> = call(&service, &root(), vl::CREATE_ENTRY_U, &request);
    assert_eq!(outcome, Err(AbortCode::RXGEN_OPCODE));
    let _: vl::ProbeServerReply =
        call(&service, &nobody(), vl::PROBE_SERVER, &vl::ProbeServerRequest).unwrap();
}

/// Makes one call of the voting service of the only server.
fn vote(opcode: u32, arguments: &[u32]) -> Result<Vec<u32>, AbortCode> {
    vote_of(&Standing::Alone { writes: 5 }, opcode, arguments)
}

fn vote_of(standing: &Standing, opcode: u32, arguments: &[u32]) -> Result<Vec<u32>, AbortCode> {
    let standing = standing.clone();
    let own = vec![Ipv4Addr::new(192, 0, 2, 1)];
    let service = VoteService::new(own, Box::new(move |_| standing.clone()), Arc::new(|| NOW));
    let words = std::iter::once(opcode).chain(arguments.iter().copied());
    let request: Vec<u8> = words.flat_map(u32::to_be_bytes).collect();
    let mut stream = MemoryStream::new(&request, 3);
    service.dispatch(&CallContext::new(&nobody()), &mut stream)?;
    Ok(stream.outgoing.chunks_exact(4).map(|word| u32::from_be_bytes(word.try_into().unwrap())).collect())
}

#[test]
fn udebug_sees_a_sync_site_without_others() {
    let state = vote(10001, &[]).unwrap();
    // ubik_debug_old has 28 words; checks the positions of amSyncSite, syncSiteUntil, nServers and
    // recoveryState.
    assert_eq!(state.len(), 28);
    assert_eq!((state[0], state[28 - 1]), (NOW.0, NOW.0));
    assert_eq!(state[13..16], [1, 0x7fff_ffff, 1]);
    assert_eq!(state[18..20], [NOW.0, 5]);
    assert_eq!(state[24], 0x1f);
    let new = vote(10004, &[]).unwrap();
    assert_eq!((new.len(), &new[..28], new[28], new[29]), (28 + 256, &state[..], 0xc000_0201, 0));
    assert_eq!(vote(10006, &[]).unwrap().len(), 28 + 256 + 1);
    assert_eq!(vote(10003, &[0]).unwrap(), []);
    for opcode in [10002, 10005, 10007] {
        assert_eq!(vote(opcode, &[0]), Err(AbortCode(2)));
    }
    assert_eq!(vote(10000, &[0; 6]), Err(AbortCode::RXGEN_OPCODE));
    assert_eq!(vote(10003, &[]), Err(AbortCode::RXGEN_SS_UNMARSHAL));
}

#[test]
fn udebug_sees_the_nodes_of_a_cluster() {
    let [second, third, both] = [2, 3, 4].map(|last| Ipv4Addr::new(192, 0, 2, last));
    let version = Version { epoch: UnixTime(NOW.0 - 60), counter: 9 };
    let site =
        Standing::SyncSite { version, seconds: 4, others: vec![vec![second], vec![third, both], vec![]] };
    let state = vote_of(&site, 10001, &[]).unwrap();
    assert_eq!((state[2], state[7]), (0xc000_0201, 0xc000_0201), "it has its own vote");
    assert_eq!(state[13..16], [1, NOW.0 + 4, 4]);
    assert_eq!((&state[18..20], state[24], state[27]), (&[NOW.0 - 60, 9][..], 0x1f, NOW.0 - 60));
    let other = vote_of(&site, 10007, &[1]).unwrap();
    assert_eq!(other.len(), 9 + 255 + 1);
    assert_eq!(other[..11], [third.to_bits(), NOW.0, NOW.0, 1, NOW.0 - 60, 9, 1, 1, 1, both.to_bits(), 0]);
    assert_eq!(vote_of(&site, 10002, &[0]).unwrap().len(), 9);
    assert_eq!(vote_of(&site, 10005, &[0]).unwrap().len(), 9 + 255);
    for index in [2, 3, u32::MAX] {
        assert_eq!(vote_of(&site, 10005, &[index]), Err(AbortCode(2)));
    }

    let bytes: Vec<u8> = state.iter().flat_map(|word| word.to_be_bytes()).collect();
    assert_eq!(version_in(&bytes), Some(version));
    assert_eq!(version_in(&bytes[..79]), None);

    let follower = Standing::Other { sync_site: Some((second, version)) };
    let state = vote_of(&follower, 10001, &[]).unwrap();
    assert_eq!((state[2], state[7], state[13], state[24]), (second.to_bits(), second.to_bits(), 0, 0));
    assert_eq!((&state[9..11], &state[18..20]), (&[NOW.0 - 60, 9][..], &[NOW.0 - 60, 9][..]));
    assert_eq!(vote_of(&follower, 10005, &[0]), Err(AbortCode(2)));
    let state = vote_of(&Standing::Other { sync_site: None }, 10001, &[]).unwrap();
    assert_eq!((state[2], state[7], state[13]), (u32::MAX, 0, 0));
}

proptest! {
    #[test]
    fn any_call_with_any_bytes_is_answered_or_refused(opcode in 500u32..536, bytes in prop::collection::vec(any::<u8>(), 0..900)) {
        let service = service();
        create(&service, "a", FIRST);
        let mut call = opcode.to_be_bytes().to_vec();
        call.extend(bytes);
        let _ = vl::dispatch(&service, &CallContext::new(&root()), &mut MemoryStream::new(&call, 64));
    }
}

/// The addresses at which file servers answer, with their start times. Servers that started at `SAME_SECOND`
/// are different ones.
struct Alive(Vec<(u32, u32)>);

const SAME_SECOND: u32 = 9;

impl crate::Neighbours for Alive {
    fn started(&self, address: std::net::Ipv4Addr, _: Option<HostUuid>) -> Option<u32> {
        self.0.iter().find(|(at, _)| *at == address.to_bits()).map(|(_, started)| *started)
    }

    fn is_same(&self, one: std::net::Ipv4Addr, other: std::net::Ipv4Addr) -> bool {
        one == other || self.started(one, None) != Some(SAME_SECOND)
    }
}

#[test]
fn a_registration_takes_nothing_from_a_server_that_is_alive() {
    // Servers 1 and 2 both have the address BRIDGE; the caller's address differs from all of these.
    const FIRST_SERVER: u32 = 0xc000_0201;
    const SECOND_SERVER: u32 = 0xc000_0202;
    const OTHER: u32 = 0xc000_0203;
    const BRIDGE: u32 = 0xac11_0001;
    let conflict = Err(AbortCode::VL_MULTIPADDR);
    for (uuid, addresses, alive, expected) in [
        // Another server also has the address BRIDGE.
        (2, vec![SECOND_SERVER, BRIDGE], vec![(FIRST_SERVER, 7), (SECOND_SERVER, 8)], conflict),
        (2, vec![SECOND_SERVER, BRIDGE], vec![(FIRST_SERVER, 7)], conflict),
        (2, vec![SECOND_SERVER, BRIDGE], vec![(SECOND_SERVER, 8)], Ok(())),
        (
            2,
            vec![SECOND_SERVER, BRIDGE],
            vec![(FIRST_SERVER, SAME_SECOND), (SECOND_SERVER, SAME_SECOND)],
            conflict,
        ),
        // The same machine with a new sysid file.
        (2, vec![FIRST_SERVER, BRIDGE], vec![(FIRST_SERVER, 7)], Ok(())),
        (2, vec![SECOND_SERVER, BRIDGE], vec![(FIRST_SERVER, 8), (SECOND_SERVER, 8)], Ok(())),
        // A copied sysid file, a changed address, an address that is no longer announced.
        (1, vec![OTHER], vec![(FIRST_SERVER, 7), (OTHER, 8)], conflict),
        (1, vec![OTHER], vec![(FIRST_SERVER, SAME_SECOND), (OTHER, SAME_SECOND)], conflict),
        (1, vec![OTHER], vec![(FIRST_SERVER, 7)], conflict),
        (1, vec![OTHER], vec![(OTHER, 8)], Ok(())),
        (1, vec![OTHER, FIRST_SERVER], vec![(FIRST_SERVER, 7), (BRIDGE, 7)], Ok(())),
        (1, vec![FIRST_SERVER], vec![], Ok(())),
        // The registration takes no address, so no server is probed.
        (3, vec![OTHER], vec![(FIRST_SERVER, 7)], Ok(())),
    ] {
        let service = service().with_neighbours(Arc::new(Alive(alive.clone())));
        register(&service, 1, &[FIRST_SERVER, BRIDGE]).unwrap();
        assert_eq!(register(&service, uuid, &addresses), expected, "{uuid} {addresses:x?} {alive:x?}");
    }
}
