//! Calls that the receiving thread answers itself, and those that it leaves to the workers.
mod common;

use afs_idl::CallStream;
use base::{AbortCode, Caller};
use bytes::Bytes;
use common::{ask, client, entry, read_all, server_config};
use rx::{Server, ServerCall, Service};
use std::sync::Arc;

/// First bytes of requests: answered on the fast path, not answered there, and panicking there.
const QUICK: u8 = b'q';
const SLOW: u8 = b's';
const TRAP: u8 = b't';

/// Echoes the request with a mark of the path that served it.
struct Marker;

impl Service for Marker {
    fn serve(&self, call: &mut ServerCall) -> Result<(), AbortCode> {
        let request = read_all(call)?;
        call.write(Bytes::from_static(b"slow"))?;
        call.write(request)
    }

    fn try_answer(&self, _: &Caller, request: &[u8]) -> Option<Bytes> {
        assert_ne!(request[0], TRAP, "a test wanted this");
        (request[0] == QUICK).then(|| [b"quick", request].concat().into())
    }
}

fn expected(first: u8, message: &[u8], mark: &[u8]) -> Vec<u8> {
    [mark, &[first], message].concat()
}

#[test]
fn both_ways_give_whole_replies() {
    for lanes in [1, 4] {
        let server = Server::start(&server_config(lanes), vec![entry(Arc::new(Marker))]).unwrap();
        let client = client();
        let connection = client.connect(server.addresses()[0], common::SERVICE, None);
        std::thread::scope(|scope| {
            for thread in 0..8 {
                let connection = &connection;
                scope.spawn(move || {
                    for size in [0, 1, 100, 1400] {
                        let message = vec![thread; size];
                        let quick = ask(&**connection, QUICK, &message).unwrap();
                        // The call may already have been passed to a worker.
                        let possible = [&b"quick"[..], b"slow"].map(|mark| expected(QUICK, &message, mark));
                        assert!(possible.iter().any(|reply| *reply == quick[..]), "{quick:?}");
                        let slow = ask(&**connection, SLOW, &message).unwrap();
                        assert_eq!(slow, expected(SLOW, &message, b"slow"));
                    }
                });
            }
        });
        let calls = server.statistics().calls;
        assert_eq!((calls.arrived, calls.succeeded, calls.panicked), (64, 64, 0));
        assert!(calls.answered_at_once > 0, "some found the thread that receives");
    }
}

#[test]
fn requests_of_several_packets_and_traps_are_served() {
    let server = Server::start(&server_config(1), vec![entry(Arc::new(Marker))]).unwrap();
    let client = client();
    let connection = client.connect(server.addresses()[0], common::SERVICE, None);
    let long = vec![7; 50_000];
    assert_eq!(ask(&*connection, QUICK, &long).unwrap(), expected(QUICK, &long, b"slow"));
    assert_eq!(ask(&*connection, TRAP, &[1]).unwrap(), expected(TRAP, &[1], b"slow"));
    let statistics = server.statistics();
    assert_eq!(statistics.calls.answered_at_once, 0);
    assert_eq!((statistics.calls.succeeded, statistics.total().faults), (2, 0));
}
