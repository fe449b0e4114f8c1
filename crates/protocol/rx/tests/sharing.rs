//! Clients that keep their workers waiting, and unidentified clients.

mod common;

use base::{AbortCode, Caller, Identity, Principal, UnixTime};
use bytes::Bytes;
use common::{DOWNLOAD, ECHO, HOLD, Trick, ask, begin, client, entry, server_config};
use rx::{Class, Demand, Fairness, Server, ServerCall, ServerConfig, Service};
use rx_security::{
    ClientHandshake, ClientSecurity, ConnectionFacts, Null, SecurityError, ServerHandshake, ServerSecurity,
    Verified,
};
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::mpsc::channel;
use std::time::Duration;

/// Treats the callers of HOLD as unidentified clients.
struct Wary(Arc<Trick>);

impl Service for Wary {
    fn serve(&self, call: &mut ServerCall) -> Result<(), AbortCode> {
        self.0.serve(call)
    }

    fn demand(&self, _caller: &Caller, request: &[u8]) -> Demand {
        let class = if request.first() == Some(&HOLD) { Class::Stranger } else { Class::Small };
        Demand { class, ..Demand::SMALL }
    }
}

fn one_worker(fairness: Fairness) -> ServerConfig {
    ServerConfig { workers_min: 1, workers_max: 1, fairness, ..server_config(1) }
}

#[test]
fn a_client_that_neither_sends_nor_takes_holds_no_worker() {
    let (trick, held) = Trick::new();
    let fairness = Fairness { stalled_max: 11, ..Fairness::default() };
    let server = Server::start(&one_worker(fairness), vec![entry(trick)]).unwrap();
    let address = server.addresses()[0];
    let (slow, quick) = (client(), client());
    // One client sends a request without an end, another does not read the reply that it requested.
    let slow = slow.connect(address, common::SERVICE, None);
    let mut sends = begin(&*slow, HOLD).unwrap();
    sends.write(Bytes::from(vec![0; 5000])).unwrap();
    held.recv().unwrap();
    let mut takes = begin(&*slow, DOWNLOAD).unwrap();
    takes.write(Bytes::copy_from_slice(&(64u64 << 20).to_be_bytes())).unwrap();
    takes.end_request().unwrap();
    let quick = quick.connect(address, common::SERVICE, None);
    for _ in 0..10 {
        assert_eq!(ask(&*quick, ECHO, b"hello").unwrap(), &b"hello"[..]);
    }
    assert_eq!(server.statistics().calls.succeeded, 10, "the others are still under way");
    drop(sends);
    assert!(held.recv().unwrap().is_some());
    assert_eq!(ask(&*quick, ECHO, b"hello").unwrap(), &b"hello"[..]);
}

#[test]
fn a_silent_stranger_keeps_nobody_waiting_but_strangers() {
    let (trick, held) = Trick::new();
    let fairness = Fairness { stalled_max: 0, strangers_max: 1, ..Fairness::default() };
    let server = Server::start(&one_worker(fairness), vec![entry(Arc::new(Wary(trick)))]).unwrap();
    let address = server.addresses()[0];
    let (silent, other, known) = (client(), client(), client());
    let hold = |client: &rx::Client| {
        let mut call = begin(&*client.connect(address, common::SERVICE, None), HOLD).unwrap();
        call.write(Bytes::from(vec![0; 5000])).unwrap();
        call
    };
    let first = hold(&silent);
    held.recv().unwrap();
    let second = hold(&other);
    while server.statistics().waiting_calls < 1 {
        std::thread::sleep(Duration::from_millis(1));
    }
    let known = known.connect(address, common::SERVICE, None);
    for _ in 0..10 {
        assert_eq!(ask(&*known, ECHO, b"hello").unwrap(), &b"hello"[..]);
    }
    assert_eq!(server.statistics().waiting_calls, 1);
    drop(first);
    assert!(held.recv().unwrap().is_some());
    assert_eq!(held.recv().unwrap(), None, "the second stranger's turn has come");
    drop(second);
    // The additional thread that the unidentified clients needed ends.
    while server.statistics().worker_threads > 1 {
        std::thread::sleep(Duration::from_millis(1));
    }
    assert_eq!(ask(&*known, ECHO, b"hello").unwrap(), &b"hello"[..]);
}

/// The null security class, except that the server identifies all callers as `ann`.
struct Named;

const NAMED_INDEX: u8 = 9;

impl ClientSecurity for Named {
    fn index(&self) -> u8 {
        NAMED_INDEX
    }

    fn start(&self, connection: ConnectionFacts) -> Result<Box<dyn ClientHandshake>, SecurityError> {
        Null.start(connection)
    }
}

impl ServerSecurity for Named {
    fn index(&self) -> u8 {
        NAMED_INDEX
    }

    fn needs_challenge(&self) -> bool {
        false
    }

    fn accept(&self, _: ConnectionFacts, _: [u8; 16]) -> Box<dyn ServerHandshake> {
        Box::new(Named)
    }
}

impl ServerHandshake for Named {
    fn challenge(&mut self) -> Vec<u8> {
        Vec::new()
    }

    fn verify(&mut self, response: &[u8], now: UnixTime) -> Result<Verified, SecurityError> {
        let ann = Principal { name: "ann".into(), instance: String::new(), realm: String::new() };
        Ok(Verified { identity: Identity::Known(ann), ..Null.verify(response, now)? })
    }
}

/// Treats every caller as an unidentified client.
struct Unknown(Arc<Trick>);

impl Service for Unknown {
    fn serve(&self, call: &mut ServerCall) -> Result<(), AbortCode> {
        self.0.serve(call)
    }

    fn demand(&self, _caller: &Caller, _request: &[u8]) -> Demand {
        Demand { class: Class::Stranger, ..Demand::SMALL }
    }
}

fn client_at(last: u8) -> rx::Client {
    let addresses = vec![IpAddr::from([127, 0, 0, last])];
    rx::Client::start(&rx::ClientConfig { addresses, socket: common::sockets(), ..Default::default() })
        .unwrap()
}

/// Anonymous unidentified clients take all workers available to them and fill their part of the queue from
/// several addresses.
#[test]
fn anonymous_strangers_do_not_keep_a_verified_stranger_out() {
    let (trick, held) = Trick::new();
    let fairness = Fairness { strangers_max: 4, waiting_max: 8, ..Fairness::default() };
    let mut service = entry(Arc::new(Unknown(trick)));
    service.config.security.push(Arc::new(Named));
    let server = Server::start(&ServerConfig { fairness, ..server_config(2) }, vec![service]).unwrap();
    let address = server.addresses()[0];
    let clients: Vec<rx::Client> = (2..6).map(client_at).collect();
    let hold = |client: &rx::Client| {
        let mut call = begin(&*client.connect(address, common::SERVICE, None), HOLD).unwrap();
        // The call may have been refused already.
        let _ = call.write(Bytes::from(vec![0; 5000]));
        call
    };
    let _served: Vec<_> = (0..3).map(|_| hold(&clients[0])).collect();
    (0..3).for_each(|_| assert_eq!(held.recv().unwrap(), None));
    let waiting: Vec<_> = clients.iter().flat_map(|client| (0..5).map(move |_| client)).map(hold).collect();
    std::thread::scope(|scope| {
        let (end, ends) = channel();
        for mut call in waiting {
            let end = end.clone();
            scope.spawn(move || end.send(call.read_chunk(1)).unwrap());
        }
        (0..12).for_each(|_| assert_eq!(ends.recv().unwrap(), Err(AbortCode::VBUSY)));
        assert_eq!(server.statistics().waiting_calls, 8);
        let client = client_at(9);
        let known = client.connect(address, common::SERVICE, Some(Arc::new(Named)));
        for _ in 0..10 {
            assert_eq!(ask(&*known, ECHO, b"hello").unwrap(), &b"hello"[..]);
        }
        server.stop();
        (0..8).for_each(|_| assert_eq!(ends.recv().unwrap(), Err(AbortCode::RX_RESTARTING)));
    });
    assert_eq!(server.statistics().calls.refused_busy, 12);
}
