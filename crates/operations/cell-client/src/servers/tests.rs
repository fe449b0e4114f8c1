//! Tests of a file server with addresses that do not answer.

use super::*;
use crate::CellClient;
use crate::fakes::{Fakes, server};
use crate::files::{Attributes, Node};
use crate::patience::Patience;
use afs_idl::{CallStream, MemoryStream};
use base::{CallContext, Caller, Identity, SecurityLevel};
use std::io::Cursor;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

/// The address of the location server, and those of the file server.
const LOCATIONS: u8 = 1;
const FILES: [u8; 3] = [11, 12, 13];

/// What the servers were asked: the file server's addresses in the order of the calls, and the number of questions about them.
#[derive(Default)]
struct Asked {
    files: Mutex<Vec<Ipv4Addr>>,
    questions: AtomicUsize,
}

impl Asked {
    /// Returns the last numbers of the addresses that were called since the last query.
    fn take(&self) -> Vec<u8> {
        std::mem::take(&mut *self.files.lock()).iter().map(|address| address.octets()[3]).collect()
    }
}

struct Locations(Arc<Asked>);

impl vl::Server for Locations {
    fn get_entry_by_name_n(
        &self,
        _: &CallContext<'_>,
        _: vl::GetEntryByNameNRequest,
    ) -> Result<vl::GetEntryByNameNReply, AbortCode> {
        let mut entry = vl::NVldbEntry { server_count: 1, ..vl::NVldbEntry::default() };
        entry.volume_id[0] = 7;
        entry.server_number[0] = server(FILES[0]).into();
        entry.server_flags[0] = vl::site_flags::READ_WRITE;
        Ok(vl::GetEntryByNameNReply { entry })
    }

    fn get_addrs_u(
        &self,
        _: &CallContext<'_>,
        request: vl::GetAddrsURequest,
    ) -> Result<vl::GetAddrsUReply, AbortCode> {
        self.0.questions.fetch_add(1, Relaxed);
        let addresses = FILES.map(|number| u32::from(server(number))).to_vec();
        let is_known = addresses.contains(&request.attributes.ip_address);
        let reply = vl::GetAddrsUReply { entry_count: 3, addresses, ..Default::default() };
        if is_known { Ok(reply) } else { Err(AbortCode::VL_NOENT) }
    }
}

/// The services of the file server.
struct Files;

impl fs::Server for Files {
    fn fetch_status(
        &self,
        _: &CallContext<'_>,
        _: fs::FetchStatusRequest,
    ) -> Result<fs::FetchStatusReply, AbortCode> {
        Ok(fs::FetchStatusReply::default())
    }

    fn create_file(
        &self,
        _: &CallContext<'_>,
        _: fs::CreateFileRequest,
    ) -> Result<fs::CreateFileReply, AbortCode> {
        Ok(fs::CreateFileReply::default())
    }

    fn store_data64(
        &self,
        _: &CallContext<'_>,
        request: fs::StoreData64Request,
        stream: &mut dyn CallStream,
    ) -> Result<fs::StoreData64Reply, AbortCode> {
        let mut left = request.length as usize;
        while left > 0 {
            left -= stream.read_chunk(left)?.len();
        }
        Ok(fs::StoreData64Reply::default())
    }

    fn get_time(&self, _: &CallContext<'_>, _: fs::GetTimeRequest) -> Result<fs::GetTimeReply, AbortCode> {
        Ok(fs::GetTimeReply::default())
    }

    fn give_up_all_call_backs(
        &self,
        _: &CallContext<'_>,
        _: fs::GiveUpAllCallBacksRequest,
    ) -> Result<fs::GiveUpAllCallBacksReply, AbortCode> {
        Ok(fs::GiveUpAllCallBacksReply)
    }
}

impl vol::Server for Files {
    fn x_list_partitions(
        &self,
        _: &CallContext<'_>,
        _: vol::XListPartitionsRequest,
    ) -> Result<vol::XListPartitionsReply, AbortCode> {
        Ok(vol::XListPartitionsReply::default())
    }

    fn end_trans(
        &self,
        _: &CallContext<'_>,
        _: vol::EndTransRequest,
    ) -> Result<vol::EndTransReply, AbortCode> {
        Ok(vol::EndTransReply::default())
    }
}

fn serve(
    asked: &Arc<Asked>,
    address: Ipv4Addr,
    service: u16,
    stream: &mut MemoryStream,
) -> Result<(), AbortCode> {
    let (identity, level) = (Identity::Anonymous, SecurityLevel::Clear);
    let (peer, local) = ((address, 7000).into(), address.into());
    let caller = Caller { identity, level, peer, local, connection: base::Connection::new() };
    let context = CallContext::new(&caller);
    match service {
        52 => vl::dispatch(&Locations(Arc::clone(asked)), &context, stream),
        vol::SERVICE_ID => vol::dispatch(&Files, &context, stream),
        _ => fs::dispatch(&Files, &context, stream),
    }
}

/// Returns the servers, a client, and what the servers were asked.
fn cell(patience: Patience) -> (Arc<Fakes>, CellClient, Arc<Asked>) {
    let asked = Arc::new(Asked::default());
    let serving = Arc::clone(&asked);
    let fakes =
        Fakes::recording(move |address, service, stream| serve(&serving, address, service, stream), {
            let asked = Arc::clone(&asked);
            move |address| {
                if address != server(LOCATIONS) {
                    asked.files.lock().push(address);
                }
            }
        });
    let client = fakes.client(LOCATIONS).with_patience(patience, |_| ());
    (fakes, client, asked)
}

fn silence(fakes: &Fakes, numbers: &[u8]) {
    for number in FILES {
        fakes.fail(server(number), numbers.contains(&number).then_some(AbortCode::RX_CALL_DEAD));
    }
}

fn status(client: &CellClient) -> Result<(), AbortCode> {
    let files = client.connection(server(FILES[0]), Interface::Files);
    fs::fetch_status(&*files, &fs::FetchStatusRequest::default()).map(drop)
}

fn root(client: &CellClient) -> Node {
    client.root_of("v").unwrap()
}

#[test]
fn calls_go_to_the_address_that_answers() {
    let (fakes, client, asked) = cell(Patience::default());
    assert_eq!((status(&client), asked.take()), (Ok(()), vec![11]));
    assert_eq!(asked.questions.load(Relaxed), 0, "as long as it answers, nothing is asked");
    silence(&fakes, &[11, 12]);
    assert_eq!((status(&client), asked.take()), (Ok(()), vec![11, 12, 13]));
    assert_eq!((status(&client), asked.take()), (Ok(()), vec![13]), "the others are avoided for a while");
    assert_eq!(asked.questions.load(Relaxed), 1);
    silence(&fakes, &[13]);
    assert_eq!((status(&client), asked.take()), (Ok(()), vec![13, 11]), "one of them is back");
    silence(&fakes, &FILES);
    assert_eq!(status(&client), Err(AbortCode::RX_CALL_DEAD));
    let mut tried = asked.take();
    tried.sort_unstable();
    assert_eq!(tried, FILES, "each is tried once");
}

/// The server restarts, or this machine has lost the address that the call was made from.
#[test]
fn calls_that_are_cut_off_go_to_another_address() {
    let (fakes, client, asked) = cell(Patience::default());
    fakes.fail(server(11), Some(AbortCode::RX_RESTARTING));
    let volumes = client.connection(server(FILES[0]), Interface::Volumes);
    vol::x_list_partitions(&*volumes, &vol::XListPartitionsRequest).unwrap();
    assert_eq!(asked.take(), [11, 12]);
    let ended = vol::end_trans(&*volumes, &vol::EndTransRequest { transaction: 1 });
    assert_eq!((ended.map(drop), asked.take()), (Ok(()), vec![12]), "the first address is avoided");
    fakes.fail(server(12), Some(AbortCode::RX_RESTARTING));
    let ended = vol::end_trans(&*volumes, &vol::EndTransRequest { transaction: 1 });
    assert_eq!((ended.err(), asked.take()), (Some(AbortCode::RX_RESTARTING), vec![12]), "it may have ended");
}

/// A node that joins later is found. If no location server answers, the addresses before are used.
#[test]
fn addresses_are_asked_for_again_after_a_while() {
    let (named, other) = (server(11), server(12));
    let (mut known, learned) = (Known::default(), Instant::now());
    assert!(!known.is_recent(named, learned) && known.addresses(named).is_empty());
    known.learn(named, None, learned);
    assert!(!known.is_recent(named, learned), "nothing is known");
    known.learn(named, Some(vec![named, other]), learned);
    assert!(known.is_recent(named, learned + KEPT / 2));
    assert!(!known.is_recent(named, learned + KEPT));
    assert!(!known.is_recent(other, learned), "only the address that was asked for");
    known.learn(named, None, learned + KEPT);
    assert!(known.is_recent(named, learned + KEPT), "no answer");
    assert_eq!(known.addresses(named), [named, other]);
    known.learn(named, Some(vec![other]), learned + 2 * KEPT);
    assert_eq!(known.addresses(named), [other]);
}

#[test]
fn data_is_stored_through_another_address() {
    let (fakes, client, asked) = cell(Patience::default());
    let file = root(&client);
    asked.take();
    silence(&fakes, &[11]);
    let attributes = Attributes { mode: 0o644, modified: 1 };
    for length in [1, 300_000] {
        let mut data = Cursor::new(vec![7; length]);
        client.store(&file, attributes, &mut data, length as u64, &mut |_| ()).unwrap();
    }
    assert_eq!(asked.take(), [11, 12, 12]);
    assert!(client.root_of("v").is_ok(), "and found there");
}

/// It may have been executed before its server fell silent. What comes next goes to another address.
#[test]
fn a_change_is_not_made_twice() {
    let (fakes, client, asked) = cell(Patience::default());
    let directory = root(&client);
    asked.take();
    silence(&fakes, &[11]);
    let attributes = Attributes { mode: 0o644, modified: 1 };
    assert_eq!(client.create(&directory, b"f", attributes).err(), Some(AbortCode::RX_CALL_DEAD));
    assert_eq!(asked.take(), [11]);
    client.create(&directory, b"f", attributes).unwrap();
    assert_eq!(asked.take(), [12]);
    let volumes = client.connection(server(FILES[0]), Interface::Volumes);
    vol::end_trans(&*volumes, &vol::EndTransRequest { transaction: 1 }).unwrap();
    assert_eq!(asked.take(), [12], "the other services are elsewhere, too");
}

#[test]
fn questions_about_a_process_are_not_answered_by_another() {
    let (fakes, client, asked) = cell(Patience::default());
    silence(&fakes, &[11]);
    assert_eq!(status(&client), Ok(()));
    asked.take();
    let files = client.connection(server(FILES[0]), Interface::Files);
    let time = || fs::get_time(&*files, &fs::GetTimeRequest).map(drop);
    assert_eq!((time(), time()), (Err(AbortCode::RX_CALL_DEAD), Err(AbortCode::RX_CALL_DEAD)));
    assert_eq!(asked.take(), [11, 11]);
    let volumes = client.connection(server(FILES[0]), Interface::Volumes);
    vol::x_list_partitions(&*volumes, &vol::XListPartitionsRequest).unwrap();
    assert_eq!(asked.take(), [12]);
}

#[test]
fn observers_use_the_named_address_only() {
    let (fakes, client, asked) = cell(Patience::NONE);
    silence(&fakes, &[11]);
    assert_eq!(status(&client), Err(AbortCode::RX_CALL_DEAD));
    assert_eq!(status(&client), Err(AbortCode::RX_CALL_DEAD));
    assert_eq!((asked.take(), asked.questions.load(Relaxed)), (vec![11, 11], 0));
}

#[test]
fn a_server_that_no_location_server_knows_has_one_address() {
    let (fakes, client, _) = cell(Patience::default());
    fakes.fail(server(99), Some(AbortCode::RX_CALL_DEAD));
    let files = client.connection(server(99), Interface::Files);
    let answer = fs::fetch_status(&*files, &fs::FetchStatusRequest::default());
    assert_eq!(answer.err(), Some(AbortCode::RX_CALL_DEAD));
    fakes.fail(server(LOCATIONS), Some(AbortCode::RX_CALL_DEAD));
    fakes.fail(server(98), Some(AbortCode::RX_CALL_DEAD));
    let files = client.connection(server(98), Interface::Files);
    let answer = fs::fetch_status(&*files, &fs::FetchStatusRequest::default());
    assert_eq!(answer.err(), Some(AbortCode::RX_CALL_DEAD));
}

#[test]
fn every_procedure_about_a_volume_reaches_any_address() {
    let named = |interface, procedures: &[(u32, &'static str)]| -> Vec<&str> {
        let is_named = |opcode| Reach::of(interface, opcode) == Reach::Named;
        procedures.iter().filter(|(opcode, _)| is_named(*opcode)).map(|(_, name)| *name).collect()
    };
    assert!(named(Interface::Volumes, vol::PROCEDURES).is_empty());
    let files = named(Interface::Files, fs::PROCEDURES);
    assert!(files.contains(&"GetTime") && files.contains(&"GiveUpAllCallBacks"), "{files:?}");
    assert!(!files.contains(&"FetchStatus") && !files.contains(&"Rename"), "{files:?}");
    let own = named(Interface::Cellar, cellar::PROCEDURES);
    assert!(own.contains(&"GetServerInfo") && own.contains(&"GiveUpPartition"), "{own:?}");
}
