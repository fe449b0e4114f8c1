//! Calls that end after their worker has moved on.
mod common;

use afs_idl::CallStream;
use base::AbortCode;
use bytes::Bytes;
use common::{ask, client, entry, read_all, server_config};
use parking_lot::Mutex;
use rx::{Conclusion, Server, ServerCall, ServerConfig, Service};
use std::sync::Arc;
use std::sync::mpsc::{Sender, channel};
use std::time::Duration;

/// First byte of requests that fail in the service.
const FAIL: u8 = b'f';

/// Sends the conclusion of each call to a channel.
struct Leaver(Mutex<Sender<Conclusion>>);

impl Service for Leaver {
    fn serve(&self, call: &mut ServerCall) -> Result<(), AbortCode> {
        let request = read_all(call)?;
        let (fails, sender) = (request[0] == FAIL, self.0.lock().clone());
        call.write(request)?;
        assert!(call.reply_is_small());
        call.conclude_later(move |conclusion| sender.send(conclusion).unwrap());
        if fails { Err(AbortCode(7)) } else { Ok(()) }
    }
}

fn one_worker() -> ServerConfig {
    ServerConfig { workers_min: 1, workers_max: 1, ..server_config(1) }
}

#[test]
fn one_worker_serves_many_calls_that_end_later() {
    let (sender, left) = channel();
    let server = Server::start(&one_worker(), vec![entry(Arc::new(Leaver(Mutex::new(sender))))]).unwrap();
    let client = client();
    let address = server.addresses()[0];
    std::thread::scope(|scope| {
        let asking: Vec<_> = (0..8)
            .map(|number| {
                let client = &client;
                scope.spawn(move || ask(&*client.connect(address, common::SERVICE, None), b'x', &[number]))
            })
            .collect();
        // All calls are served before the first ends.
        let mut conclusions: Vec<Conclusion> =
            (0..8).map(|_| left.recv_timeout(Duration::from_secs(60)).unwrap()).collect();
        assert!(asking.iter().all(|asking| !asking.is_finished()));
        drop(conclusions.pop());
        conclusions.pop().unwrap().end(Err(AbortCode(9)));
        for conclusion in conclusions {
            conclusion.end(Ok(()));
        }
        let mut answers = [0; 3];
        for (number, asking) in asking.into_iter().enumerate() {
            match asking.join().unwrap() {
                Ok(reply) => {
                    assert_eq!(reply, Bytes::from(vec![b'x', number as u8]));
                    answers[0] += 1;
                }
                Err(AbortCode(9)) => answers[1] += 1,
                Err(AbortCode::UAEIO) => answers[2] += 1,
                Err(other) => panic!("aborted with {other}"),
            }
        }
        assert_eq!(answers, [6, 1, 1], "answered, ended with an error, dropped");
    });
}

/// Waits until the server accepts no more work.
fn await_refusal(server: &Server) {
    let connection = server.connect(server.addresses()[0], common::SERVICE, None);
    while connection.begin().map(drop) != Err(AbortCode::RX_RESTARTING) {
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// A client would otherwise repeat a change that was made.
#[test]
fn a_stopping_server_ends_the_calls_that_were_left() {
    let (sender, left) = channel();
    let server = Server::start(&one_worker(), vec![entry(Arc::new(Leaver(Mutex::new(sender))))]).unwrap();
    let client = client();
    let [answered, failed, lost] = [(); 3].map(|()| {
        let connection = client.connect(server.addresses()[0], common::SERVICE, None);
        std::thread::spawn(move || ask(&*connection, b'x', b"change"))
    });
    let conclusions: Vec<_> = (0..3).map(|_| left.recv_timeout(Duration::from_secs(60)).unwrap()).collect();
    while server.statistics().busy_workers > 0 {
        std::thread::sleep(Duration::from_millis(1));
    }
    std::thread::scope(|scope| {
        let stopping = scope.spawn(|| server.stop());
        await_refusal(&server);
        assert!(!stopping.is_finished());
        let [first, second, third] = conclusions.try_into().ok().unwrap();
        first.end(Ok(()));
        second.end(Err(AbortCode(9)));
        stopping.join().unwrap();
        // Nothing was waiting for this one any more.
        third.end(Ok(()));
    });
    let mut ends = [answered, failed, lost].map(|asking| asking.join().unwrap().map(|reply| reply.len()));
    ends.sort_unstable_by_key(Result::is_err);
    assert_eq!(ends, [Ok(7), Err(AbortCode::RX_RESTARTING), Err(AbortCode::RX_RESTARTING)]);
}

/// A server that is stopped when it is idle would otherwise end calls whose changes were made.
#[test]
fn a_server_is_not_idle_before_its_calls_have_ended() {
    let (sender, left) = channel();
    let server = Server::start(&one_worker(), vec![entry(Arc::new(Leaver(Mutex::new(sender))))]).unwrap();
    let client = client();
    let connection = client.connect(server.addresses()[0], common::SERVICE, None);
    let asking = std::thread::spawn(move || ask(&*connection, b'x', b"change"));
    let conclusion = left.recv_timeout(Duration::from_secs(60)).unwrap();
    let was_left = || server.statistics().busy_workers == 0;
    while !was_left() {
        std::thread::sleep(Duration::from_millis(1));
    }
    server.hold_new_calls();
    assert!(!server.is_idle());
    conclusion.end(Ok(()));
    assert!(asking.join().unwrap().is_ok());
    assert!(server.is_idle());
}

#[test]
fn a_service_that_fails_ends_its_call_itself() {
    let (sender, left) = channel();
    let server = Server::start(&one_worker(), vec![entry(Arc::new(Leaver(Mutex::new(sender))))]).unwrap();
    let client = client();
    let connection = client.connect(server.addresses()[0], common::SERVICE, None);
    assert_eq!(ask(&*connection, FAIL, b"").unwrap_err(), AbortCode(7));
    assert!(left.try_recv().is_err());
}
