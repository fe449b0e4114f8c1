//! Clients that keep their workers waiting, and those that nobody knows.

mod common;

use base::Caller;
use bytes::Bytes;
use common::{DOWNLOAD, ECHO, HOLD, Trick, ask, begin, client, entry, server_config};
use rx::{Class, Demand, Fairness, Server, ServerCall, ServerConfig, Service};
use std::sync::Arc;
use std::time::Duration;

/// Who holds a call is a stranger.
struct Wary(Arc<Trick>);

impl Service for Wary {
    fn serve(&self, call: &mut ServerCall) -> Result<(), base::AbortCode> {
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
    // One sends a request without an end, another does not read the reply that it asked for.
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
    // The thread that the strangers needed beside the worker's ends.
    while server.statistics().worker_threads > 1 {
        std::thread::sleep(Duration::from_millis(1));
    }
    assert_eq!(ask(&*known, ECHO, b"hello").unwrap(), &b"hello"[..]);
}
