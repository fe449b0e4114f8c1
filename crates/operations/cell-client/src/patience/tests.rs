//! Repetition against servers that refuse a number of calls.

use super::*;
use crate::CellClient;
use crate::fakes::{Fakes, server};
use crate::files::{Attributes, Node};
use afs_idl::{fs, pr, vl, vol};
use base::{CallContext, Caller, Identity, SecurityLevel};
use std::io::Cursor;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};

const ATTRIBUTES: Attributes = Attributes { mode: 0o644, modified: 1 };
/// Longer than what a call keeps of its request.
const LONG_BYTES: usize = 3 * REPEATABLE_BYTES_MAX + 1;

/// A file server that stores one file.
#[derive(Default)]
struct Files(Mutex<Vec<u8>>);

impl fs::Server for Files {
    fn fetch_status(
        &self,
        _: &CallContext<'_>,
        _: fs::FetchStatusRequest,
    ) -> Result<fs::FetchStatusReply, AbortCode> {
        Ok(fs::FetchStatusReply::default())
    }

    fn store_data64(
        &self,
        _: &CallContext<'_>,
        request: fs::StoreData64Request,
        stream: &mut dyn CallStream,
    ) -> Result<fs::StoreData64Reply, AbortCode> {
        let mut data = Vec::new();
        while data.len() < request.length as usize {
            data.extend_from_slice(&stream.read_chunk(request.length as usize - data.len())?);
        }
        *self.0.lock() = data;
        Ok(fs::StoreData64Reply::default())
    }

    fn fetch_data64(
        &self,
        _: &CallContext<'_>,
        _: fs::FetchData64Request,
        stream: &mut dyn CallStream,
    ) -> Result<fs::FetchData64Reply, AbortCode> {
        let data = self.0.lock().clone();
        stream.write(Bytes::copy_from_slice(&(data.len() as u64).to_be_bytes()))?;
        stream.write(data.into())?;
        Ok(fs::FetchData64Reply::default())
    }

    fn give_up_all_call_backs(
        &self,
        _: &CallContext<'_>,
        _: fs::GiveUpAllCallBacksRequest,
    ) -> Result<fs::GiveUpAllCallBacksReply, AbortCode> {
        Ok(fs::GiveUpAllCallBacksReply)
    }
}

struct Locations;

impl vl::Server for Locations {
    fn get_entry_by_name_n(
        &self,
        _: &CallContext<'_>,
        _: vl::GetEntryByNameNRequest,
    ) -> Result<vl::GetEntryByNameNReply, AbortCode> {
        let mut entry = vl::NVldbEntry { server_count: 1, ..vl::NVldbEntry::default() };
        entry.volume_id[0] = 7;
        entry.server_number[0] = server(1).into();
        entry.server_flags[0] = vl::site_flags::READ_WRITE;
        Ok(vl::GetEntryByNameNReply { entry })
    }
}

/// A server whose next calls are refused.
#[derive(Default)]
struct Refusing {
    files: Files,
    refusals: Mutex<Vec<AbortCode>>,
    calls: AtomicUsize,
}

impl Refusing {
    fn serve(
        &self,
        address: std::net::Ipv4Addr,
        service: u16,
        stream: &mut afs_idl::MemoryStream,
    ) -> Result<(), AbortCode> {
        self.calls.fetch_add(1, SeqCst);
        if let Some(code) = self.refusals.lock().pop() {
            return Err(code);
        }
        let (identity, level) = (Identity::Anonymous, SecurityLevel::Clear);
        let (peer, local) = ((address, 7000).into(), address.into());
        let caller = Caller { identity, level, peer, local, connection: base::Connection::new() };
        match service {
            52 => vl::dispatch(&Locations, &CallContext::new(&caller), stream),
            _ => fs::dispatch(&self.files, &CallContext::new(&caller), stream),
        }
    }

    fn refuse(&self, codes: &[AbortCode]) {
        *self.refusals.lock() = codes.to_vec();
    }
}

/// Reports that a test has received.
type Reports = Arc<Mutex<Vec<Delay>>>;

fn quick() -> Patience {
    Patience {
        busy: Duration::from_secs(20),
        offline: Duration::from_secs(20),
        pause_min: Duration::from_millis(1),
        pause_max: Duration::from_millis(4),
        report_after: Duration::from_millis(2),
        tries_others: false,
    }
}

fn start(patience: Patience) -> (Arc<Refusing>, CellClient, Reports) {
    let (refusing, reports) = (Arc::new(Refusing::default()), Reports::default());
    let (serving, receiving) = (refusing.clone(), reports.clone());
    let fakes = Fakes::new(move |address, service, stream| serving.serve(address, service, stream));
    let client = fakes.client(1).with_patience(patience, move |delay| receiving.lock().push(*delay));
    (refusing, client, reports)
}

fn root(client: &CellClient) -> Node {
    client.root_of("v").unwrap()
}

#[test]
fn calls_that_a_busy_server_refuses_are_repeated() {
    let (refusing, client, reports) = start(quick());
    refusing.refuse(&[AbortCode::VBUSY; 2]);
    let root = root(&client);
    let codes =
        [AbortCode::VBUSY, AbortCode::VRESTARTING, AbortCode::VOFFLINE, AbortCode::VBUSY, AbortCode::VBUSY];
    refusing.refuse(&codes);
    refusing.calls.store(0, SeqCst);
    let files = client.connection(server(1), Interface::Files);
    fs::fetch_status(&*files, &fs::FetchStatusRequest { fid: root.fid.into() }).unwrap();
    assert_eq!(refusing.calls.load(SeqCst), codes.len() + 1);
    let reported = reports.lock().clone();
    assert!(
        reported.iter().all(|delay| delay.server.ip() == server(1) && !delay.left.is_zero()),
        "{reported:?}"
    );
    // A call with an empty reply.
    refusing.refuse(&[AbortCode::VBUSY; 3]);
    fs::give_up_all_call_backs(&*files, &fs::GiveUpAllCallBacksRequest).unwrap();
    assert!(refusing.refusals.lock().is_empty());
}

#[test]
fn a_refused_store_sends_its_data_again() {
    for length in [0, 100, LONG_BYTES] {
        let (refusing, client, _) = start(quick());
        let (file, data) = (root(&client), vec![7; length]);
        refusing.refuse(&[AbortCode::VRESTARTING, AbortCode::VBUSY, AbortCode::VBUSY]);
        let mut counted = 0;
        let mut count = |bytes| counted += bytes;
        client.store(&file, ATTRIBUTES, &mut Cursor::new(&data), length as u64, &mut count).unwrap();
        assert!(*refusing.files.0.lock() == data, "{length} bytes");
        assert_eq!(counted, length as u64);
        refusing.refuse(&[AbortCode::VBUSY, AbortCode::VOFFLINE]);
        let mut fetched = Vec::new();
        client.fetch(&file, &mut fetched, &mut |_| ()).unwrap();
        assert!(fetched == data, "{length} bytes");
    }
}

#[test]
fn unrepeatable_requests_fail_immediately() {
    let (refusing, client, _) = start(quick());
    let fid = root(&client).fid.into();
    refusing.refuse(&[AbortCode::VBUSY]);
    let files = client.connection(server(1), Interface::Files);
    let (length, status) = (LONG_BYTES as u64, fs::StoreStatus::default());
    let request = fs::StoreData64Request { fid, status, position: 0, length, file_length: length };
    let answer = fs::store_data64(&*files, &request, |stream| stream.write(vec![0; LONG_BYTES].into()));
    assert_eq!(answer.err(), Some(AbortCode::VBUSY));
    assert!(refusing.files.0.lock().is_empty());
}

#[test]
fn patience_ends_and_the_wait_is_reported() {
    let limit = Duration::from_secs(3);
    let patience = Patience { busy: limit, offline: limit, ..quick() };
    let (refusing, client, reports) = start(patience);
    let file = root(&client);
    for code in [AbortCode::VBUSY, AbortCode::VOFFLINE, AbortCode::VRESTARTING] {
        reports.lock().clear();
        refusing.refuse(&vec![code; 10_000]);
        let answer = client.try_store(&file, ATTRIBUTES, &mut Cursor::new(b"x"), 1, &mut |_| ()).unwrap();
        assert_eq!(answer, Err(code));
        let reported = reports.lock().clone();
        let text = reported.first().expect("the wait was reported").to_string();
        assert!(
            reported.iter().all(|delay| delay.code == code) && text.starts_with("10.0.0.1 has refused"),
            "{text}"
        );
    }
    refusing.refuse(&vec![AbortCode::VBUSY; 10_000]);
    assert!(client.root_of("v").err().unwrap().to_string().contains("VBUSY"));
}

#[test]
fn other_errors_and_other_services_are_not_repeated() {
    let (refusing, client, _) = start(quick());
    let once = |interface, code| {
        refusing.refuse(&[code]);
        refusing.calls.store(0, SeqCst);
        let connection = client.connection(server(1), interface);
        let answer = match interface {
            Interface::Volumes => {
                vol::x_list_partitions(&*connection, &vol::XListPartitionsRequest).map(drop)
            }
            Interface::Protection => pr::list_max(&*connection, &pr::ListMaxRequest).map(drop),
            _ => fs::fetch_status(&*connection, &fs::FetchStatusRequest::default()).map(drop),
        };
        assert_eq!((answer, refusing.calls.load(SeqCst)), (Err(code), 1), "{interface:?}");
    };
    once(Interface::Files, AbortCode::VNOVOL);
    once(Interface::Files, AbortCode::RX_CALL_DEAD);
    once(Interface::Volumes, AbortCode::VBUSY);
    once(Interface::Protection, AbortCode::VRESTARTING);
}

#[test]
fn a_client_without_patience_repeats_nothing() {
    let (refusing, client, _) = start(Patience::NONE);
    let file = root(&client);
    refusing.refuse(&[AbortCode::VBUSY]);
    let answer = client.try_store(&file, ATTRIBUTES, &mut Cursor::new(b"x"), 1, &mut |_| ()).unwrap();
    assert_eq!(answer, Err(AbortCode::VBUSY));
}
