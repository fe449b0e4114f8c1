//! rxdebug requests are answered for the whole server, whichever lane they reach.
mod common;

use std::collections::BTreeSet;
use std::net::{SocketAddr, UdpSocket};
use std::time::Duration;

use bytes::Bytes;
use common::{ECHO, HOLD, SERVICE, Trick, ask, begin, client, entry, server_config};
use rx::{Fairness, Server, ServerConfig};

/// Kinds of requests (RX_DEBUGI_*).
const BASICS: u32 = 1;
const BUSY_CONNECTION: u32 = 2;
const CONNECTION: u32 = 3;
const COUNTERS: u32 = 4;
const PEER: u32 = 5;

/// Marks an entry that does not exist.
const NONE_SUCH: u32 = 0xffff_ffff;

/// An rxdebug client with its own port and so, most likely, its own lane.
struct Asker(UdpSocket);

impl Asker {
    fn new(server: SocketAddr) -> Asker {
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        socket.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
        socket.connect(server).unwrap();
        Asker(socket)
    }

    /// Returns the 32-bit words of the answer.
    fn ask(&self, kind: u32, index: u32) -> Vec<u32> {
        let mut packet = [0; 28].to_vec();
        packet[20] = 8;
        packet[21] = 1;
        packet.extend(kind.to_be_bytes());
        packet.extend(index.to_be_bytes());
        self.0.send(&packet).unwrap();
        let mut answer = [0; 1500];
        let length = self.0.recv(&mut answer).unwrap();
        let words = answer[28..length].chunks_exact(4);
        words.map(|word| u32::from_be_bytes(word.try_into().unwrap())).collect()
    }

    /// Returns the identifying word of every entry of a list.
    fn list(&self, kind: u32, name: usize, none: usize) -> Vec<u32> {
        let entries = (0..).map(|index| self.ask(kind, index));
        entries.take_while(|entry| entry[none] != NONE_SUCH).map(|entry| entry[name]).collect()
    }
}

/// A server of four lanes with few workers, and its clients, each with its own port.
struct Busy {
    server: Server,
    askers: Vec<Asker>,
    clients: Vec<rx::Client>,
}

fn busy_server(trick: std::sync::Arc<Trick>, workers: usize) -> Busy {
    let fairness = Fairness { stalled_max: 0, ..Fairness::default() };
    let config = ServerConfig { workers_min: workers, workers_max: workers, fairness, ..server_config(4) };
    let server = Server::start(&config, vec![entry(trick)]).unwrap();
    let address = server.addresses()[0];
    let askers = (0..8).map(|_| Asker::new(address)).collect();
    Busy { server, askers, clients: (0..12).map(|_| client()).collect() }
}

#[test]
fn connections_and_peers_are_those_of_all_lanes() {
    let (trick, held) = Trick::new();
    let Busy { server, askers, clients } = busy_server(trick, 12);
    let address = server.addresses()[0];
    let connections: Vec<_> = clients.iter().map(|client| client.connect(address, SERVICE, None)).collect();
    // Half of them have a call in progress.
    let mut calls = Vec::new();
    for (place, connection) in connections.iter().enumerate() {
        if place % 2 == 0 {
            let mut call = begin(&**connection, HOLD).unwrap();
            call.write(Bytes::from(vec![0; 5000])).unwrap();
            held.recv().unwrap();
            calls.push(call);
        } else {
            ask(&**connection, ECHO, b"hello").unwrap();
        }
    }
    while server.statistics().endpoints.iter().map(|it| it.calls_now).sum::<u64>() > 6 {
        std::thread::sleep(Duration::from_millis(1));
    }
    for asker in &askers {
        for (kind, name, none, count) in
            [(CONNECTION, 1, 1, 12), (BUSY_CONNECTION, 1, 1, 6), (PEER, 1, 0, 12)]
        {
            let list = asker.list(kind, name, none);
            let distinct: BTreeSet<u32> = list.iter().copied().collect();
            assert_eq!((list.len(), distinct.len()), (count, count), "kind {kind}: {list:x?}");
            assert_eq!(asker.ask(kind, 7 + count as u32)[none], NONE_SUCH);
        }
        // Starting in the middle, without the previous entries.
        assert_ne!(asker.ask(CONNECTION, 11)[1], NONE_SUCH);
    }
    drop(calls);
}

#[test]
fn numbers_are_those_of_all_lanes() {
    let (trick, held) = Trick::new();
    let Busy { server, askers, clients } = busy_server(trick, 1);
    let connection = clients[0].connect(server.addresses()[0], SERVICE, None);
    let mut call = begin(&*connection, HOLD).unwrap();
    call.write(Bytes::from(vec![0; 5000])).unwrap();
    held.recv().unwrap();
    let address = server.addresses()[0];
    std::thread::scope(|scope| {
        for client in &clients[1..] {
            scope.spawn(move || ask(&*client.connect(address, SERVICE, None), ECHO, b"hello").unwrap());
        }
        // A worker that finds nothing to do is idle for a moment.
        while server.statistics().waiting_calls < 11 || askers[0].ask(BASICS, 0)[5] != 0 {
            std::thread::sleep(Duration::from_millis(1));
        }
        for asker in &askers {
            let basics = asker.ask(BASICS, 0);
            // Words: free packets, reclaims, calls, version; then waiting, idle, waited, packets.
            assert_eq!((basics[2], basics[3] >> 8 & 0xff), (12, u32::from(b'S')));
            assert_eq!((basics[4], basics[5]), (11, 0));
            assert_eq!(basics[7], 4 * 400_000);
            let counters = asker.ask(COUNTERS, 0);
            let sums = server.statistics().endpoints.iter().map(|it| it.data_received).sum::<u64>();
            assert_eq!(u64::from(counters[11 + 13]), sums);
        }
        drop(call);
    });
    let asker = &askers[3];
    while asker.ask(BASICS, 0)[5] != 1 {
        std::thread::sleep(Duration::from_millis(1));
    }
    assert_eq!(asker.ask(BASICS, 0)[4], 0);
}
