use super::*;
use crate::steering;
use rx_proto::{Outgoing, Transmit};
use std::net::{Ipv4Addr, UdpSocket};
use std::time::Instant;

/// How long the kernel of a busy machine may take for what it does immediately on others.
const PATIENCE: Duration = Duration::from_secs(20);

/// Polls until `wanted` datagrams have arrived, or none arrives for two seconds.
fn collect(socket: &LaneSocket, counters: &LaneCounters, wanted: usize) -> Vec<(Path, Bytes)> {
    let mut receiver = Receiver::new();
    let mut all = Vec::new();
    while all.len() < wanted {
        let mut interest = [Interest::readable(socket.descriptor())];
        sys::wait(&mut interest, Some(Duration::from_secs(2))).unwrap();
        if !socket.receive(&mut receiver, counters, &mut |some| all.extend(some.split())) {
            break;
        }
    }
    all
}

fn bind_one(ip: [u8; 4], options: &SocketOptions) -> LaneSocket {
    members(bind_lanes(SocketAddr::from((ip, 0)), 1, options, Vec::new()).unwrap()).pop().unwrap()
}

/// Returns the socket that each lane sends from.
fn members(shares: Vec<Vec<LaneSocket>>) -> Vec<LaneSocket> {
    shares.into_iter().map(|share| share.into_iter().next().unwrap()).collect()
}

fn small() -> SocketOptions {
    SocketOptions { buffer_bytes: 4 << 20, ..SocketOptions::default() }
}

/// A datagram: its header and its body in two pieces.
type Datagram = ([u8; 28], [Bytes; 2]);

/// Builds distinct datagrams.
fn datagrams(count: usize, bytes: usize) -> Vec<Datagram> {
    (0..count)
        .map(|n| {
            let body = Bytes::from((0..bytes).map(|at| (at * 7 + n) as u8).collect::<Vec<u8>>());
            ([n as u8; 28], [body.slice(..10), body.slice(10..)])
        })
        .collect()
}

fn transmit(to: SocketAddr, datagrams: &[Datagram]) -> Transmit {
    let outgoing = |(header, [one, two]): &Datagram| Outgoing {
        header: *header,
        body_bytes: (one.len() + two.len()) as u32,
    };
    Transmit {
        path: Path::to(to),
        packets: datagrams.iter().map(outgoing).collect(),
        bodies: datagrams.iter().flat_map(|(_, bodies)| bodies.clone()).collect(),
    }
}

/// Sends `packets` from one socket to another and checks that they arrive unchanged.
fn exchange(
    sender: &SocketOptions,
    receiver: &SocketOptions,
    packets: &[Datagram],
) -> (LaneCounters, LaneCounters) {
    let from = bind_one([127, 0, 0, 1], sender);
    let to = bind_one([127, 0, 0, 1], receiver);
    let (sent, got) = (LaneCounters::default(), LaneCounters::default());
    let transmit = transmit(to.local(), packets);
    let mut gather = Gather::default();
    gather.push(&transmit);
    from.send(&gather, &sent);
    let arrived = collect(&to, &got, packets.len());
    let expected: Vec<Vec<u8>> = transmit.datagrams().collect();
    let bodies: Vec<Vec<u8>> = arrived.iter().map(|(_, data)| data.to_vec()).collect();
    assert_eq!(bodies, expected);
    assert!(arrived.iter().all(|(path, _)| path.remote == from.local()));
    assert_eq!(sent.datagrams_sent.get(), packets.len() as u64);
    assert_eq!(got.datagrams_received.get(), packets.len() as u64);
    assert_eq!(sent.bytes_sent.get(), got.bytes_received.get());
    (sent, got)
}

#[test]
fn runs_are_cut_and_merged_by_the_kernel() {
    let mut packets = datagrams(100, 1416);
    packets.extend(datagrams(1, 20));
    let (sent, got) = exchange(&small(), &small(), &packets);
    assert!(sent.segmented_sends.get() >= 3);
    assert_eq!(sent.segmentation_fallbacks.get(), 0);
    assert!(got.merged_receives.get() >= 3);
    assert!(got.receive_batches.get() < 10);
}

#[test]
fn without_offload_the_same_datagrams_arrive() {
    let off = SocketOptions { segment_offload: false, receive_merging: false, ..small() };
    let (sent, got) = exchange(&off, &off, &datagrams(100, 1416));
    assert_eq!((sent.segmented_sends.get(), got.merged_receives.get()), (0, 0));
    exchange(&small(), &off, &datagrams(100, 1416));
    exchange(&off, &small(), &datagrams(100, 1416));
}

#[test]
fn a_refusal_to_cut_is_worked_around_and_remembered() {
    let refusing = SocketOptions { no_checksum: true, ..small() };
    let (sent, _) = exchange(&refusing, &small(), &datagrams(80, 1416));
    let first = sent.segmentation_fallbacks.get();
    assert!(first >= 1, "the kernel cut runs without checksums");
    assert_eq!(sent.segmented_sends.get(), 0);

    let from = bind_one([127, 0, 0, 1], &refusing);
    let to = bind_one([127, 0, 0, 1], &small());
    let packets = transmit(to.local(), &datagrams(20, 1416));
    let (sent, got) = (LaneCounters::default(), LaneCounters::default());
    for _ in 0..3 {
        let mut gather = Gather::default();
        gather.push(&packets);
        from.send(&gather, &sent);
    }
    assert_eq!(collect(&to, &got, 60).len(), 60);
    assert_eq!(sent.segmentation_fallbacks.get(), 1, "only the first run was tried whole");
}

#[test]
fn undeliverable_packets_are_counted_and_skipped() {
    let from = bind_one([127, 0, 0, 1], &small());
    let to = bind_one([127, 0, 0, 1], &small());
    let packets = datagrams(2, 100);
    let counters = LaneCounters::default();
    let mut gather = Gather::default();
    // A loopback source cannot reach a broadcast address without permission.
    let unreachable = transmit(SocketAddr::from(([255, 255, 255, 255], 7)), &packets[..1]);
    let reachable = transmit(to.local(), &packets[1..]);
    gather.push(&unreachable);
    gather.push(&reachable);
    from.send(&gather, &counters);
    assert_eq!(collect(&to, &LaneCounters::default(), 1).len(), 1);
    assert_eq!(counters.send_errors.get(), 1);
}

#[test]
fn a_wildcard_socket_answers_from_the_address_it_was_asked_at() {
    let server = bind_one([0, 0, 0, 0], &small());
    let client = UdpSocket::bind("127.0.0.1:0").unwrap();
    client.set_read_timeout(Some(Duration::from_secs(2))).unwrap();
    let asked = SocketAddr::from(([127, 0, 0, 2], server.local().port()));
    client.send_to(b"hello", asked).unwrap();
    let counters = LaneCounters::default();
    let arrived = collect(&server, &counters, 1);
    let path = arrived[0].0;
    assert_eq!(path.local, Some(IpAddr::V4(Ipv4Addr::new(127, 0, 0, 2))));
    let answer = Transmit { path, ..transmit(path.remote, &datagrams(1, 100)) };
    let mut gather = Gather::default();
    gather.push(&answer);
    server.send(&gather, &counters);
    let mut buffer = [0; 200];
    assert_eq!(client.recv_from(&mut buffer).unwrap(), (128, asked));
}

#[test]
fn the_kernel_and_we_agree_about_the_lane() {
    const LANES: usize = 4;
    for address in ["127.0.0.1:0", "[::1]:0"] {
        let address: SocketAddr = address.parse().unwrap();
        let lanes = members(bind_lanes(address, LANES, &small(), Vec::new()).unwrap());
        let mut used = HashSet::new();
        for _ in 0..32 {
            let client = UdpSocket::bind(address).unwrap();
            client.send_to(b"where", lanes[0].local()).unwrap();
            let lane = steering::lane_of(client.local_addr().unwrap(), LANES);
            let arrived = collect(&lanes[lane], &LaneCounters::default(), 1);
            assert_eq!(arrived[0].0.remote, client.local_addr().unwrap());
            used.insert(lane);
        }
        assert!(used.len() >= 2, "32 ports in one lane");
    }
}

#[test]
fn a_port_is_not_shared_with_strangers() {
    let options = small();
    for (mine, theirs) in [(1, 1), (4, 4), (1, 4), (4, 1)] {
        let bound = bind_lanes(SocketAddr::from(([127, 0, 0, 1], 0)), mine, &options, Vec::new()).unwrap();
        let error = bind_lanes(bound[0][0].local(), theirs, &options, Vec::new()).err();
        let error = error.expect("the port was shared");
        assert_eq!(error.kind(), io::ErrorKind::AddrInUse);
    }
}

#[test]
fn kernel_drops_are_seen() {
    let options = SocketOptions { buffer_bytes: 4096, ..small() };
    let to = bind_one([127, 0, 0, 1], &options);
    let from = UdpSocket::bind("127.0.0.1:0").unwrap();
    for _ in 0..200 {
        from.send_to(&[0; 1000], to.local()).unwrap();
    }
    let end = Instant::now() + PATIENCE;
    while to.kernel_drops() == 0 && Instant::now() < end {
        std::thread::yield_now();
    }
    assert!(to.kernel_drops() > 0);
    assert!(to.buffer_bytes().0 < 1 << 20);
}

/// Returns an unused port on loopback. It stays unused while the socket is kept, which accepts datagrams only
/// from itself.
fn closed_port() -> (UdpSocket, SocketAddr) {
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    let address = socket.local_addr().unwrap();
    socket.connect(address).unwrap();
    (socket, address)
}

/// The kernel reports an error about one datagram instead of sending the next.
#[test]
fn errors_about_one_peer_cost_no_other_peers_datagrams() {
    for options in [small(), SocketOptions { segment_offload: false, ..small() }] {
        let from = bind_one([127, 0, 0, 1], &options);
        let to = bind_one([127, 0, 0, 1], &small());
        let (_closed, nowhere) = closed_port();
        let (good, bad) = (datagrams(300, 1000), datagrams(3, 100));
        let (sent, got) = (LaneCounters::default(), LaneCounters::default());
        let bad = transmit(nowhere, &bad);
        for some in good.chunks(10) {
            let good: Vec<Transmit> =
                some.iter().map(|one| transmit(to.local(), std::slice::from_ref(one))).collect();
            let mut gather = Gather::default();
            for one in &good {
                // The first datagram of the next gather receives the error that the last one caused.
                gather.push(one);
                gather.push(&bad);
            }
            from.send(&gather, &sent);
        }
        let arrived = collect(&to, &got, good.len());
        let expected: Vec<Vec<u8>> = transmit(to.local(), &good).datagrams().collect();
        let bodies: Vec<Vec<u8>> = arrived.iter().map(|(_, data)| data.to_vec()).collect();
        assert_eq!(bodies, expected);
        assert_eq!((sent.send_errors.get(), sent.segmentation_fallbacks.get()), (0, 0));
        from.fetch_errors(&sent);
        assert!(sent.errors_reported.get() >= 300);
        assert!(std::iter::from_fn(|| from.notice()).all(|notice| notice.remote == nowhere));
    }
}

#[test]
fn an_error_does_not_hide_received_packets() {
    let socket = bind_one([127, 0, 0, 1], &small());
    let (_closed, nowhere) = closed_port();
    let packets = transmit(nowhere, &datagrams(1, 100));
    let counters = LaneCounters::default();
    let mut gather = Gather::default();
    gather.push(&packets);
    let peer = UdpSocket::bind("127.0.0.1:0").unwrap();
    for _ in 0..5 {
        socket.send(&gather, &counters);
        peer.send_to(b"hello", socket.local()).unwrap();
        assert_eq!(collect(&socket, &counters, 1).len(), 1);
        assert_eq!(socket.notice().map(|notice| notice.remote), Some(nowhere));
        let mut interest = [Interest::readable(socket.descriptor())];
        sys::wait(&mut interest, Some(Duration::ZERO)).unwrap();
        assert!(!interest[0].has_errors(), "errors would wake the lane again and again");
    }
}

#[test]
fn errors_of_ipv6_peers_are_seen() {
    let socket = bind_lanes("[::1]:0".parse().unwrap(), 1, &small(), Vec::new()).unwrap();
    let socket = members(socket).pop().unwrap();
    let closed = UdpSocket::bind("[::1]:0").unwrap();
    let nowhere = closed.local_addr().unwrap();
    closed.connect(nowhere).unwrap();
    let packets = transmit(nowhere, &datagrams(1, 100));
    let counters = LaneCounters::default();
    let mut gather = Gather::default();
    gather.push(&packets);
    socket.send(&gather, &counters);
    let mut interest = [Interest::readable(socket.descriptor())];
    sys::wait(&mut interest, Some(Duration::from_secs(2))).unwrap();
    assert!(interest[0].has_errors());
    assert_eq!(socket.fetch_errors(&counters), 1);
    assert_eq!(socket.notice().map(|notice| notice.remote), Some(nowhere));
}

#[test]
fn a_lost_source_address_is_noticed() {
    let (socket, counters) = (bind_one([0; 4], &small()), LaneCounters::default());
    let peer = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let to = peer.local_addr().unwrap();
    let lost = IpAddr::from([192, 0, 2, 55]);
    for (local, packets, expected) in [
        (Some(lost), 1, Some(Notice::source_gone(to, lost))),
        (Some(lost), 20, Some(Notice::source_gone(to, lost))),
        (Some(to.ip()), 1, None),
        (None, 1, None),
    ] {
        let transmit =
            Transmit { path: Path { remote: to, local }, ..transmit(to, &datagrams(packets, 100)) };
        let mut gather = Gather::default();
        gather.push(&transmit);
        socket.send(&gather, &counters);
        assert_eq!(socket.notice(), expected, "{local:?}");
        while socket.notice().is_some() {}
    }
}

/// Returns sockets as a previous process leaves them.
fn left_by(lanes: usize) -> (SocketAddr, Vec<Socket>) {
    let shares = bind_lanes(SocketAddr::from(([127, 0, 0, 1], 0)), lanes, &small(), Vec::new()).unwrap();
    let address = shares[0][0].local();
    (address, members(shares).into_iter().map(|member| member.socket).collect())
}

#[test]
fn every_inherited_socket_is_read_whatever_the_number_of_lanes() {
    for (before, lanes) in [(1, 1), (1, 3), (3, 1), (2, 5), (5, 2), (4, 4)] {
        let (address, inherited) = left_by(before);
        let clients = [(); 32].map(|()| UdpSocket::bind("127.0.0.1:0").unwrap());
        let send = || clients.iter().for_each(|client| assert_eq!(client.send_to(b"x", address).unwrap(), 1));
        send(); // before any reader
        let shares = bind_lanes(address, lanes, &small(), inherited).unwrap();
        assert!(shares.iter().all(|share| share[0].local() == address && !share[0].is_spare()));
        assert_eq!(shares.iter().flatten().count(), lanes.max(before));
        send();
        let counters = LaneCounters::default();
        let mut receiver = Receiver::new();
        let (mut arrived, end) = (0, Instant::now() + PATIENCE);
        while arrived < 64 && Instant::now() < end {
            for socket in shares.iter().flatten() {
                while socket.receive(&mut receiver, &counters, &mut |some| arrived += some.count()) {}
            }
            std::thread::yield_now();
        }
        assert_eq!(arrived, 64, "{before} sockets, {lanes} lanes");
    }
}

#[test]
fn the_kernel_steers_to_the_lanes_of_inherited_sockets() {
    for (before, lanes) in [(1, 4), (4, 4), (6, 4)] {
        let (address, inherited) = left_by(before);
        let shares = bind_lanes(address, lanes, &small(), inherited).unwrap();
        for _ in 0..32 {
            let client = UdpSocket::bind("127.0.0.1:0").unwrap();
            client.send_to(b"where", address).unwrap();
            let lane = steering::lane_of(client.local_addr().unwrap(), lanes);
            let arrived = collect(&shares[lane][0], &LaneCounters::default(), 1);
            assert_eq!(arrived[0].0.remote, client.local_addr().unwrap(), "{before} sockets");
        }
    }
}

#[test]
fn lanes_without_a_socket_share_the_first_ones() {
    let (_, inherited) = left_by(1);
    let shares = group::share_out(group::adopt(inherited, &small()).unwrap(), 3, &small()).unwrap();
    assert_eq!(shares.iter().map(Vec::len).collect::<Vec<_>>(), [1, 1, 1]);
    assert_eq!(shares.iter().flatten().filter_map(LaneSocket::to_keep).count(), 1, "a duplicate is not kept");
}
