//! Tests with location servers that are replicas, reject calls, or do not answer.

use super::*;
use afs_format::keyfile::{KeyType, Secret, TypedKey, write_extended};
use afs_idl::{CallStream, MemoryStream, StreamSource};
use bytes::Bytes;
use cell_client::fakes::{Fakes, server};
use cell_client::vote;
use parking_lot::Mutex;
use tempfile::TempDir;
use xdr::Decode;

const SYNC_SITE: u8 = 4;

/// Contents of the location database.
#[derive(Default)]
struct Entries(Mutex<Vec<(HostUuid, Vec<u32>)>>);

/// Five location servers, the fourth of which is the sync site; all name it as such.
fn servers(entries: &Arc<Entries>) -> Arc<Fakes> {
    let entries = entries.clone();
    Fakes::new(move |address, service, stream| match service {
        vote::SERVICE => name_sync_site(stream),
        _ if address != server(SYNC_SITE) => Err(AbortCode::UNOTSYNC),
        _ => register(&entries, stream),
    })
}

fn name_sync_site(stream: &mut MemoryStream) -> Result<(), AbortCode> {
    let mut words = [0_u32; 28];
    // The time, the server that got the vote, whether that one claimed to be sync site, and when.
    (words[0], words[2], words[3], words[4]) = (1000, server(SYNC_SITE).into(), 1, 990);
    stream.write(Bytes::from(words.iter().flat_map(|word| word.to_be_bytes()).collect::<Vec<u8>>()))
}

fn register(entries: &Entries, stream: &mut MemoryStream) -> Result<(), AbortCode> {
    let mut source = StreamSource::new(stream);
    let opcode = source.decode_request::<u32>()?;
    if opcode == vl::GET_ADDRS_U {
        let wanted = vl::GetAddrsURequest::decode(&mut source).unwrap().attributes.uuid;
        let addresses =
            entries.0.lock().iter().rev().find(|(uuid, _)| *uuid == wanted).map(|(_, all)| all.clone());
        let addresses = addresses.ok_or(AbortCode::VL_NOENT)?;
        let entry_count = addresses.len() as i32;
        let reply = vl::GetAddrsUReply { uuid: wanted, uniquifier: 1, entry_count, addresses };
        return stream.write(xdr::to_vec(&reply).into());
    }
    assert_eq!(opcode, vl::REGISTER_ADDRS);
    let request = vl::RegisterAddrsRequest::decode(&mut source).unwrap();
    entries.0.lock().push((request.uuid, request.addresses));
    Ok(())
}

pub(crate) fn settings(folder: &TempDir) -> Arc<Settings> {
    let key =
        TypedKey { key_type: KeyType::RxkadKerberos5, kvno: 1, subtype: 18, secret: Secret::new(&[7; 32]) };
    cellar_config::files::replace(&folder.path().join("KeyFileExt"), &write_extended(&[key])).unwrap();
    std::fs::create_dir_all(folder.path().join("p")).unwrap();
    let path = folder.path().join("cellar.toml");
    let text = "[cell]\nname = \"t.example\"\nkeyfile = \"KeyFileExt\"\n[server]\nannounce = [\"192.0.2.8\"]\nstate = \".\"\n\
                [partitions]\na = \"p\"\n";
    std::fs::write(&path, text).unwrap();
    Arc::new(cellar_config::file::load(&path).unwrap())
}

#[test]
fn the_sync_site_is_found_in_three_calls_and_sysid_written() {
    let (folder, entries) = (tempfile::tempdir().unwrap(), Arc::default());
    let (settings, fakes) = (settings(&folder), servers(&entries));
    let uuid = server_uuid(&settings).unwrap();
    let mut registrar = Registrar::new(&settings, &fakes.cell(5), uuid, Box::new(|_, _| {}));
    registrar.addresses = vec![server(77)];
    registrar.attempt();
    assert_eq!(fakes.calls(), 3, "a copy, its vote, the site");
    assert_eq!(*entries.0.lock(), [(uuid, vec![server(77).into()])]);
    let sysid = SysId::parse(&std::fs::read(&settings.sysid_path).unwrap()).unwrap();
    assert_eq!((sysid.uuid, sysid.addresses), (uuid, vec![server(77)]));
    assert!(registrar.pause() + LOOK > REPEAT);
    registrar.look();
    assert_eq!(fakes.calls(), 0, "it is not due");
    registrar.next = Instant::now();
    registrar.look();
    assert_eq!((fakes.calls(), entries.0.lock().len()), (2, 2), "a copy, the known site");
}

#[test]
fn it_is_tried_again_ever_less_often_until_it_works() {
    let (folder, entries) = (tempfile::tempdir().unwrap(), Arc::default());
    let (settings, fakes) = (settings(&folder), servers(&entries));
    let mut registrar =
        Registrar::new(&settings, &fakes.cell(5), server_uuid(&settings).unwrap(), Box::new(|_, _| {}));
    fakes.fail(server(SYNC_SITE), Some(AbortCode::VL_MULTIPADDR));
    for expected in [5, 10, 20, 30, 30, 30].map(Duration::from_secs) {
        let begun = Instant::now();
        registrar.attempt();
        assert!(registrar.next - begun >= expected && registrar.pause() <= expected);
    }
    fakes.fail(server(SYNC_SITE), None);
    registrar.attempt();
    assert_eq!((registrar.failures, entries.0.lock().len()), (0, 1));
}

#[test]
fn servers_on_standby_are_registered_after_the_own_addresses() {
    let (folder, entries) = (tempfile::tempdir().unwrap(), Arc::default());
    let (settings, fakes) = (settings(&folder), servers(&entries));
    let uuid = server_uuid(&settings).unwrap();
    let mut registrar = Registrar::new(&settings, &fakes.cell(5), uuid, Box::new(|_, _| {}));
    registrar.addresses = vec![server(77)];
    let standbys = Arc::new(Mutex::new(vec![server(78), server(77)]));
    let present = Arc::clone(&standbys);
    registrar.standbys = Some(Box::new(move || known(present.lock().clone())));
    let mut look = || {
        registrar.note_standbys();
        registrar.look_at(None);
    };
    look();
    look();
    *standbys.lock() = Vec::new();
    look();
    *standbys.lock() = (80..120).map(server).collect();
    look();
    let registered: Vec<_> = entries.0.lock().iter().map(|(_, addresses)| addresses.clone()).collect();
    let numbers = |list: &[u8]| list.iter().map(|number| u32::from(server(*number))).collect::<Vec<_>>();
    assert_eq!(registered[..2], [numbers(&[77, 78]), numbers(&[77])]);
    assert_eq!((registered.len(), registered[2].len()), (3, SERVER_ADDRESSES_MAX));
    assert_eq!(registered[2][..2], numbers(&[77, 80]));
}

/// A server that slept past its lease registers nothing, and what it has registered meanwhile is put right.
#[test]
fn only_the_owner_of_the_partitions_is_registered() {
    let (folder, entries) = (tempfile::tempdir().unwrap(), Arc::<Entries>::default());
    let (settings, fakes) = (settings(&folder), servers(&entries));
    let uuid = server_uuid(&settings).unwrap();
    let mut registrar = Registrar::new(&settings, &fakes.cell(5), uuid, Box::new(|_, _| {}));
    registrar.addresses = vec![server(77)];
    registrar.standbys = Some(Box::new(Others::default));
    let is_owner = Arc::new(AtomicBool::new(false));
    let now = Arc::clone(&is_owner);
    registrar.is_owner = Some(Box::new(move || now.load(std::sync::atomic::Ordering::Relaxed)));
    registrar.look_at(None);
    assert!(entries.0.lock().is_empty() && registrar.pause() <= UNKNOWN);

    is_owner.store(true, std::sync::atomic::Ordering::Relaxed);
    registrar.next = Instant::now();
    registrar.look_at(None);
    let own = (uuid, vec![u32::from(server(77))]);
    assert_eq!(entries.0.lock().last(), Some(&own));
    let confirm = |registrar: &mut Registrar| {
        registrar.confirmed = Instant::now().checked_sub(CONFIRM).unwrap();
        registrar.look_at(None);
    };
    confirm(&mut registrar);
    assert_eq!(entries.0.lock().len(), 1, "nothing has changed");
    let late = (uuid, vec![u32::from(server(78)), u32::from(server(77))]);
    entries.0.lock().push(late.clone());
    registrar.look_at(None);
    assert_eq!(entries.0.lock().len(), 2, "it is not compared all the time");
    is_owner.store(false, std::sync::atomic::Ordering::Relaxed);
    confirm(&mut registrar);
    assert_eq!(entries.0.lock().len(), 2, "another process may be the owner");
    is_owner.store(true, std::sync::atomic::Ordering::Relaxed);
    registrar.next = Instant::now() + REPEAT;
    confirm(&mut registrar);
    assert_eq!(*entries.0.lock(), [own.clone(), late, own]);
}

fn known(known: Vec<Ipv4Addr>) -> Others {
    Others { known, unseen: Vec::new() }
}

/// `vos` knows a server by its first address: it is the same, whichever node has registered last. A node that is starting, or has
/// not started yet, stays registered.
#[test]
fn nodes_register_the_same_list_whichever_registers_last() {
    let (folder, entries) = (tempfile::tempdir().unwrap(), Arc::<Entries>::default());
    let (settings, fakes) = (settings(&folder), servers(&entries));
    let uuid = server_uuid(&settings).unwrap();
    let numbers = |list: &[u8]| list.iter().map(|number| u32::from(server(*number))).collect::<Vec<_>>();
    let register = |own: u8, others: Others| {
        let mut registrar = Registrar::new(&settings, &fakes.cell(5), uuid, Box::new(|_, _| {}));
        registrar.addresses = vec![server(own)];
        registrar.meeting = Some(Meeting { until: Instant::now() + MEETING, missed: Vec::new() });
        registrar.standbys = Some(Box::new(move || others.clone()));
        registrar.note_standbys();
        registrar.look_at(None);
        entries.0.lock().last().map(|(_, addresses)| addresses.clone()).unwrap()
    };
    let list = |numbers: &[u8]| numbers.iter().copied().map(server).collect::<Vec<_>>();
    assert_eq!(register(79, known(list(&[81]))), numbers(&[79, 81]));
    assert_eq!(register(81, known(list(&[79, 78]))), numbers(&[78, 79, 81]));
    let starting = |unseen: &[u8]| Others { known: list(&[81]), unseen: list(unseen) };
    assert_eq!(register(78, starting(&[79, 99])), numbers(&[78, 79, 81]), "99 was not registered");
    assert_eq!(register(78, starting(&[])), numbers(&[78, 79, 81]), "it waits to learn whether 79 runs");
    // While the location servers do not answer, nothing is registered.
    let before = entries.0.lock().len();
    fakes.fail(server(SYNC_SITE), Some(AbortCode::RX_CALL_DEAD));
    register(78, starting(&[79]));
    assert_eq!(entries.0.lock().len(), before);
    let many: Vec<u8> = (100..140).rev().collect();
    fakes.fail(server(SYNC_SITE), None);
    let registered = register(99, Others { known: list(&many), unseen: list(&[78, 79, 81]) });
    let first: Vec<u8> = [78, 79, 81, 99].into_iter().chain(100..140).take(SERVER_ADDRESSES_MAX).collect();
    assert_eq!(registered, numbers(&first), "all nodes leave the same ones out");
}

/// A node that starts while others are registered waits until it knows them, but not for ever: one may have left.
#[test]
fn a_node_waits_for_the_others_that_are_registered() {
    let (folder, entries) = (tempfile::tempdir().unwrap(), Arc::<Entries>::default());
    let (settings, fakes) = (settings(&folder), servers(&entries));
    let uuid = server_uuid(&settings).unwrap();
    let numbers = |list: &[u8]| list.iter().map(|number| u32::from(server(*number))).collect::<Vec<_>>();
    entries.0.lock().push((uuid, numbers(&[77, 78, 79])));
    let mut registrar = Registrar::new(&settings, &fakes.cell(5), uuid, Box::new(|_, _| {}));
    registrar.addresses = vec![server(77)];
    registrar.meeting = Some(Meeting { until: Instant::now() + MEETING, missed: Vec::new() });
    let others = Arc::new(Mutex::new(vec![server(78)]));
    let present = Arc::clone(&others);
    registrar.standbys = Some(Box::new(move || known(present.lock().clone())));
    let mut look = |until: Duration| {
        registrar.meeting.as_mut().unwrap().until = Instant::now() + until;
        registrar.next = Instant::now();
        registrar.note_standbys();
        registrar.look_at(None);
        let missed = registrar.meeting.as_ref().unwrap().missed.clone();
        (entries.0.lock().len(), missed)
    };
    assert_eq!(look(MEETING), (1, vec![server(79)]), "nothing is registered");
    *others.lock() = vec![server(78), server(79)];
    assert_eq!(look(MEETING), (2, vec![]));
    *others.lock() = vec![server(78)];
    assert_eq!(look(MEETING), (2, vec![server(79)]));
    assert_eq!(look(Duration::ZERO).0, 3, "the location server decides");
    let registered: Vec<_> = entries.0.lock().iter().map(|(_, addresses)| addresses.clone()).collect();
    assert_eq!(registered[1..], [numbers(&[77, 78, 79]), numbers(&[77, 78])]);
}

#[test]
fn service_addresses_are_registered_alone() {
    let (folder, entries) = (tempfile::tempdir().unwrap(), Arc::default());
    let (settings, fakes) = (settings(&folder), servers(&entries));
    let uuid = server_uuid(&settings).unwrap();
    let mut registrar = Registrar::new(&settings, &fakes.cell(5), uuid, Box::new(|_, _| {}));
    registrar.addresses = vec![server(77)];
    registrar.standbys = Some(Box::new(|| known(vec![server(78), server(90)])));
    let service = Arc::new(Mutex::new(None));
    let present = Arc::clone(&service);
    registrar.service_now = Some(Box::new(move || present.lock().clone()));
    let mut look = || {
        registrar.note_service();
        registrar.note_standbys();
        registrar.look_at(None);
    };
    look();
    assert!(entries.0.lock().is_empty(), "it is not known whether there are any");
    *service.lock() = Some(vec![server(90), server(91)]);
    look();
    look();
    *service.lock() = Some(Vec::new());
    look();
    let registered: Vec<_> = entries.0.lock().iter().map(|(_, addresses)| addresses.clone()).collect();
    let numbers = |list: &[u8]| list.iter().map(|number| u32::from(server(*number))).collect::<Vec<_>>();
    assert_eq!(registered, [numbers(&[90, 91]), numbers(&[77, 78, 90])]);
}

#[test]
fn refusals_name_a_remedy() {
    let uuid = HostUuid([3; 16]);
    for (code, is_node, words) in [
        (AbortCode::VL_MULTIPADDR, false, ["another server", "vos changeaddr", "sysid"]),
        (AbortCode::VL_MULTIPADDR, true, ["another server", "this list lacks", "vos listaddrs"]),
        (AbortCode::VL_PERM, true, ["key", "clients will not find", "database"]),
        (AbortCode::RX_CALL_DEAD, false, ["does not answer", "clients will not find", "RX_CALL_DEAD"]),
    ] {
        let text = refusal(code, uuid, is_node);
        assert!(words.iter().all(|word| text.contains(word)), "{text}");
        assert_eq!(text.contains("sysid"), code == AbortCode::VL_MULTIPADDR && !is_node, "{text}");
    }
}

#[test]
fn changed_addresses_end_old_connections_and_are_registered() {
    let (folder, entries) = (tempfile::tempdir().unwrap(), Arc::default());
    let (settings, fakes) = (settings(&folder), servers(&entries));
    let changes = Arc::new(Mutex::new(Vec::new()));
    let noted = changes.clone();
    let on_change =
        move |lost: &[Ipv4Addr], own: &[Ipv4Addr]| noted.lock().push((lost.to_vec(), own.to_vec()));
    let uuid = server_uuid(&settings).unwrap();
    let mut registrar = Registrar::new(&settings, &fakes.cell(5), uuid, Box::new(on_change));
    registrar.addresses = vec![server(77), server(78)];
    registrar.attempt();
    registrar.look_at(None);
    registrar.look_at(Some(vec![server(78), server(79)]));
    assert_eq!(*changes.lock(), [(vec![server(77)], vec![server(78), server(79)])]);
    let registered: Vec<_> = entries.0.lock().iter().map(|(_, addresses)| addresses.clone()).collect();
    let numbers = |list: [u8; 2]| list.map(|number| u32::from(server(number))).to_vec();
    assert_eq!(registered, [numbers([77, 78]), numbers([78, 79])]);
}
