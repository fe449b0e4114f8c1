//! Each wait for a lane's lock is counted once and logged in a line of events. This is a separate program
//! because event lines and lock counters are global to a process.
mod common;

use common::{ECHO, SERVICE, Trick, entry, server_config};
use events::lines::{Choice, Line};
use events::{FieldValue, LINES};
use rx::Server;
use rx_security::{ConnectionFacts, Null, ServerHandshake, ServerSecurity};
use std::net::UdpSocket;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::time::{Duration, Instant};

/// Number of threads that read the lane's peers while it is locked.
const LOOKING: usize = 5;
/// Minimum time for which the lock is held.
const HELD: Duration = Duration::from_millis(50);

/// The null security class, except that `accept`, which runs under the lane's lock, blocks until it is
/// released.
struct Slow {
    come: SyncSender<()>,
    may_go: parking_lot::Mutex<Receiver<()>>,
}

impl ServerSecurity for Slow {
    fn index(&self) -> u8 {
        ServerSecurity::index(&Null)
    }

    fn needs_challenge(&self) -> bool {
        false
    }

    fn accept(&self, connection: ConnectionFacts, nonce: [u8; 16]) -> Box<dyn ServerHandshake> {
        self.come.send(()).unwrap();
        self.may_go.lock().recv().unwrap();
        Null.accept(connection, nonce)
    }
}

/// Returns the complete request of a call, the first on its connection.
fn request() -> Vec<u8> {
    let (epoch, connection, call, sequence, serial) = (0x5eed_u32, 4_u32, 1_u32, 1_u32, 1_u32);
    let words = [epoch, connection, call, sequence, serial];
    let mut packet: Vec<u8> = words.iter().flat_map(|word| word.to_be_bytes()).collect();
    let (data, from_client_and_last) = (1, 1 | 4);
    packet.extend([data, from_client_and_last, 0, 0, 0, 0]);
    packet.extend(SERVICE.to_be_bytes());
    packet.push(ECHO);
    packet
}

fn waits() -> events::catalogue::LockFigures {
    waits::lock_figures().into_iter().find(|(name, _)| *name == "lane").unwrap().1
}

/// Returns the wait for the lane's lock in nanoseconds, or `None` if the line is about another lock.
fn nanoseconds(line: &Line) -> Option<u64> {
    let reported = |name| &line.reported.iter().find(|(of, _)| *of == name).unwrap().1;
    match (reported("lock"), reported("wait_ns")) {
        (FieldValue::Text(lock), FieldValue::Number(ns)) => (*lock == "lane").then_some(*ns),
        other => panic!("{other:?}"),
    }
}

#[test]
fn each_wait_for_a_lane_is_counted_and_has_a_line() {
    let lines = LINES.open();
    LINES.choose(&Choice::parse(["lock"]).unwrap(), 1_000_000);
    let ((come, has_come), (go, may_go)) = (sync_channel(0), sync_channel(0));
    let mut tricks = entry(Trick::new().0);
    tricks.config.security = vec![Arc::new(Slow { come, may_go: parking_lot::Mutex::new(may_go) })];
    let server = Server::start(&server_config(1), vec![tricks]).unwrap();
    let before = waits().waits;

    let client = UdpSocket::bind("127.0.0.1:0").unwrap();
    client.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    client.send_to(&request(), server.addresses()[0]).unwrap();
    has_come.recv().unwrap();
    std::thread::scope(|scope| {
        (0..LOOKING).for_each(|_| drop(scope.spawn(|| server.peers())));
        let deadline = Instant::now() + Duration::from_secs(60);
        while waits().waiting < LOOKING as u64 {
            assert!(Instant::now() < deadline, "{} wait", waits().waiting);
            std::thread::yield_now();
        }
        assert_eq!(waits().waits, before, "none is through");
        std::thread::sleep(HELD);
        go.send(()).unwrap();
    });
    client.recv(&mut [0; 1500]).expect("an answer");
    server.stop();

    // The lane may have waited for the reading threads as well, so there may be more waits, but each has a
    // line.
    let reported: Vec<u64> = lines.try_iter().filter_map(|line| nanoseconds(&line)).collect();
    let now = waits();
    assert_eq!((now.waits, now.wait.count(), now.waiting), (reported.len() as u64, reported.len() as u64, 0));
    assert_eq!(now.wait.sum(), reported.iter().sum::<u64>());
    let long = reported.iter().filter(|ns| u128::from(**ns) >= HELD.as_nanos()).count();
    assert!(long >= LOOKING, "{reported:?}");
}
