//! `cellar doctor` with real cells that have a problem; other tests cover only its rules.

use crate::support::cell::Cell;
use crate::support::place::{Place, address};
use crate::support::{Over, look, serve};
use afs_idl::{fs as rxafs, vl};
use base::{AbortCode, CallContext, HostUuid};
use bytes::Bytes;
use cell_client::Interface;
use cellar_server::FaultInjection;
use load::files::Files;
use load::station::Station;
use rx::{ServerCall, Service};
use std::net::UdpSocket;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// More than the queue of a socket of [`BUFFER`] holds; the rest is soon received, so that other calls get
/// through.
const BURST: usize = 4000;
const BUFFER: &str = "[rx]\nlanes = 1\nsocket_buffer_mb = 1\n";

#[test]
fn datagrams_that_the_kernel_drops_are_a_finding() {
    let faults = FaultInjection { receive_pause: Duration::from_millis(10), ..FaultInjection::default() };
    let cell = Cell::start_at(Place::new(BUFFER), &faults);
    let is_over = AtomicBool::new(false);
    let findings = thread::scope(|scope| {
        let _over = Over(&is_over);
        scope.spawn(|| {
            let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
            while !is_over.load(Relaxed) {
                (0..BURST).for_each(|_| drop(socket.send_to(&[0; 1400], cell.files_port())));
                thread::sleep(Duration::from_millis(700));
            }
        });
        cell.findings("5")
    });
    let finding = findings.iter().find(|finding| finding["problem"] == "datagrams-dropped");
    let finding = finding.unwrap_or_else(|| panic!("{findings:#?}"));
    let evidence = finding["evidence"].to_string();
    assert!(evidence.contains("fileserver lane 0: ") && evidence.contains(" datagrams dropped"), "{finding}");
    assert!(evidence.contains("receive buffers of "), "{finding}");
}

#[test]
fn a_client_that_is_gone_is_a_finding() {
    let cell = Cell::start("[observe]\nslow_call_ms = 1\n");
    let root = cell.volume("load");
    let station = Station::start().unwrap();
    let files = Files::new(cell.connect(&station));
    let fid = files.create(root, "f").unwrap();
    let gone = Station::start().unwrap();
    look(&*cell.connect(&gone), fid);
    drop(gone);
    files.store(fid, &Bytes::from_static(b"news")).unwrap();
    let finding = cell.finding("callbacks-unanswered");
    let evidence = finding["evidence"].to_string();
    assert!(evidence.contains("since the start 1 and "), "{finding}");
    assert!(evidence.contains("1 of ") && evidence.contains("hosts are down"), "{finding}");
}

/// A file server whose clock is ahead by this many seconds.
struct Ahead(u64);

impl Service for Ahead {
    fn serve(&self, call: &mut ServerCall) -> Result<(), AbortCode> {
        let caller = call.caller().clone();
        rxafs::dispatch(self, &CallContext::new(&caller), call)
    }
}

impl rxafs::Server for Ahead {
    fn get_time(
        &self,
        _: &CallContext<'_>,
        _: rxafs::GetTimeRequest,
    ) -> Result<rxafs::GetTimeReply, AbortCode> {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
        let seconds = (now.as_secs() + self.0) as u32;
        Ok(rxafs::GetTimeReply { seconds, microseconds: now.subsec_micros() })
    }
}

#[test]
fn a_server_of_the_cell_whose_clock_is_wrong_is_a_finding() {
    let cell = Cell::start("");
    let other = address();
    let _other = serve(other, 7000, Ahead(3600));
    let client = cell.client();
    let locations = client.connection(cell.address, Interface::Locations);
    let uuid = HostUuid(rand::random());
    let request = vl::RegisterAddrsRequest { uuid, spare1: 0, addresses: vec![other.into()] };
    vl::register_addrs(&*locations, &request).unwrap();
    let finding = cell.finding("clock-skew");
    // Seconds pass while the doctor asks. The wrong clock is ahead of this machine's by an hour, less the
    // transit time.
    let evidence = finding["evidence"].as_array().unwrap();
    let [clock] = &evidence[..] else { panic!("{finding}") };
    let clock = clock.as_str().unwrap();
    let ahead = clock.strip_prefix(&format!("{other}: ")).and_then(|rest| rest.split_once(" ms ahead of"));
    let ahead: u64 = ahead.unwrap_or_else(|| panic!("{finding}")).0.parse().unwrap();
    assert!(ahead.abs_diff(3_600_000) < 100_000, "{finding}");
}
