//! The number of retransmissions over a lossy path agrees between event lines, the lanes' counters, the table
//! of peers and rxdebug. This is a separate program because event lines are global to a process.
mod common;

use common::{SERVICE, client, download, server_config, start};
use events::lines::{Choice, Line};
use events::{FieldValue, LINES};
use std::collections::BTreeSet;
use std::net::{SocketAddr, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Seed that selects the lost packets.
const SEED: u64 = 0x9e37_79b9_7f4a_7c15;
/// One of this number of packets is lost.
const LOST_OF: u64 = 20;
const BYTES: u64 = 700_000;

/// Requests are shorter than this; the first packets of the reply are longer.
const REQUEST_BYTES_MAX: u64 = 100;

/// rxdebug requests (all counters; one peer), each with the word of the answer that counts retransmissions.
const COUNTERS: (u32, usize) = (4, 46);
const PEER: (u32, usize) = (5, 11);

/// Identifies a DATA packet by its connection, call and sequence number.
type Packet = (u64, u64, u64);

fn word(datagram: &[u8], place: usize) -> u64 {
    u32::from_be_bytes(datagram[place..place + 4].try_into().unwrap()).into()
}

/// A path between one client and a server on which some of the server's DATA packets are lost on their first
/// transmission.
struct Path {
    address: SocketAddr,
    ending: Arc<AtomicBool>,
    threads: Vec<JoinHandle<BTreeSet<Packet>>>,
}

impl Path {
    fn to(server: SocketAddr) -> Path {
        let bind = || {
            let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
            socket.set_read_timeout(Some(Duration::from_millis(50))).unwrap();
            Arc::new(socket)
        };
        let (near, far, ending) = (bind(), bind(), Arc::new(AtomicBool::new(false)));
        let address = near.local_addr().unwrap();
        far.connect(server).unwrap();
        let (from, to, is_ending) = (near.clone(), far.clone(), ending.clone());
        let there = std::thread::spawn(move || {
            let mut buffer = vec![0; 65_536];
            while !is_ending.load(Relaxed) {
                let Ok((length, client)) = from.recv_from(&mut buffer) else { continue };
                // From now on replies can be sent back.
                let _ = from.connect(client);
                let _ = to.send(&buffer[..length]);
            }
            BTreeSet::new()
        });
        let is_ending = ending.clone();
        let back = std::thread::spawn(move || {
            let (mut buffer, mut random) = (vec![0; 65_536], SEED);
            let (mut seen, mut lost) = (BTreeSet::new(), BTreeSet::new());
            while !is_ending.load(Relaxed) {
                let Ok(length) = far.recv(&mut buffer) else { continue };
                let datagram = &buffer[..length];
                let is_data = length > 28 && datagram[20] == 1;
                if is_data && seen.insert((word(datagram, 4), word(datagram, 8), word(datagram, 12))) {
                    random ^= random << 13;
                    random ^= random >> 7;
                    random ^= random << 17;
                    if random.is_multiple_of(LOST_OF) {
                        lost.insert((word(datagram, 4), word(datagram, 8), word(datagram, 12)));
                        continue;
                    }
                }
                let _ = near.send(datagram);
            }
            lost
        });
        Path { address, ending, threads: vec![there, back] }
    }

    /// Stops the path and returns the lost packets.
    fn end(self) -> BTreeSet<Packet> {
        self.ending.store(true, Relaxed);
        self.threads.into_iter().flat_map(|thread| thread.join().unwrap()).collect()
    }
}

/// Returns one word of rxdebug's answer.
fn debugged(asker: &UdpSocket, (kind, place): (u32, usize)) -> u64 {
    let mut packet = [0; 28].to_vec();
    packet[20] = 8;
    packet[21] = 1;
    packet.extend(kind.to_be_bytes());
    packet.extend([0; 4]);
    asker.send(&packet).unwrap();
    let mut answer = [0; 1500];
    let length = asker.recv(&mut answer).unwrap();
    word(&answer[28..length], 4 * place)
}

fn reported(line: &Line, name: &str) -> u64 {
    match line.reported.iter().find(|(of, _)| *of == name) {
        Some((_, FieldValue::Number(number))) => *number,
        _ => panic!("no {name} in {line:?}"),
    }
}

#[test]
fn retransmissions_agree_in_lines_counters_and_rxdebug() {
    let lines = LINES.open();
    LINES.choose(&Choice::parse(["packet"]).unwrap(), 1_000_000);
    let (server, address) = start(&server_config(2));
    let path = Path::to(address);
    let client = client();
    let connection = client.connect(path.address, SERVICE, None);
    let whole = download(&*connection, BYTES).unwrap();
    assert_eq!(whole, download(&*connection, BYTES).unwrap());

    let asker = UdpSocket::bind("127.0.0.1:0").unwrap();
    asker.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
    asker.connect(address).unwrap();
    // Event lines include the client's packets, which no figure of the server counts.
    let is_request =
        |line: &Line| reported(line, "sequence") == 1 && reported(line, "sent_bytes") < REQUEST_BYTES_MAX;
    let mut resent = Vec::new();
    let deadline = Instant::now() + Duration::from_secs(20);
    // The last acknowledgement may still be in flight.
    loop {
        let counted: u64 = server.statistics().endpoints.iter().map(|endpoint| endpoint.data_resent).sum();
        let (peers, forgotten) = server.peers();
        let of_peers = peers.iter().map(|peer| peer.counters.resent).sum::<u64>() + forgotten.resent;
        let of_rxdebug = [COUNTERS, PEER].map(|of| debugged(&asker, of));
        resent.extend(lines.try_iter().filter(|line| !is_request(line)));
        let all = [resent.len() as u64, counted, of_peers, of_rxdebug[0], of_rxdebug[1]];
        if all == [counted; 5] {
            break;
        }
        assert!(Instant::now() < deadline, "lines, lanes, peers, rxdebug's counters and peer: {all:?}");
        std::thread::sleep(Duration::from_millis(20));
    }
    let lost = path.end();
    let again: BTreeSet<Packet> = resent
        .iter()
        .map(|line| ["connection", "call", "sequence"].map(|name| reported(line, name)).into())
        .collect();
    assert!(lost.len() >= 20, "seed {SEED:x}: {}", lost.len());
    assert!(lost.is_subset(&again), "all that was lost was sent again: {:?}", lost.difference(&again));
}
