//! Absent peers: the kernel reports them by ICMP, and only calls to them fail.
mod common;

use std::net::{SocketAddr, UdpSocket};
use std::time::{Duration, Instant};

use base::AbortCode;
use bytes::Bytes;
use common::{
    ABORT, ECHO, SERVICE, ask, begin, client, download, pattern_digest, read_all, server_config, sockets,
    start,
};
use rx::{Client, ClientConfig, EndpointConfig};

/// The dead time of the default configuration.
fn dead_time() -> Duration {
    EndpointConfig::default().dead_time
}

/// Returns an address without a listener. It has none as long as the socket is kept, which is connected to
/// itself.
fn closed_port() -> (UdpSocket, SocketAddr) {
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    let address = socket.local_addr().unwrap();
    socket.connect(address).unwrap();
    (socket, address)
}

#[test]
fn a_call_to_a_closed_port_fails_long_before_the_dead_time() {
    for lanes in [1, 4] {
        let client = Client::start(&ClientConfig { lanes, socket: sockets(), ..ClientConfig::default() });
        let client = client.unwrap();
        // With several lanes the kernel delivers the notice to any of them.
        let closed: Vec<_> = (0..8).map(|_| closed_port()).collect();
        let began = Instant::now();
        std::thread::scope(|scope| {
            for (_, address) in &closed {
                let connection = client.connect(*address, SERVICE, None);
                scope.spawn(move || {
                    assert_eq!(ask(&*connection, ECHO, b"hello"), Err(AbortCode::RX_CALL_DEAD));
                });
            }
        });
        assert!(began.elapsed() < dead_time() / 2, "{lanes} lanes: {:?}", began.elapsed());
        assert!(client.statistics().iter().map(|lane| lane.errors_reported).sum::<u64>() >= 8);
    }
}

#[test]
fn calls_to_others_from_the_same_socket_go_on() {
    const BYTES: u64 = 20 << 20;
    let (_server, address) = start(&server_config(2));
    let client = client();
    let connection = client.connect(address, SERVICE, None);
    let digest = pattern_digest(BYTES);
    std::thread::scope(|scope| {
        let dead: Vec<_> = (0..16)
            .map(|_| {
                let (socket, closed) = closed_port();
                let connection = client.connect(closed, SERVICE, None);
                scope.spawn(move || {
                    let _socket = socket;
                    ask(&*connection, ECHO, &vec![7; 60_000])
                })
            })
            .collect();
        for _ in 0..3 {
            assert_eq!(download(&*connection, BYTES).unwrap(), digest);
            assert_eq!(ask(&*connection, ECHO, b"hello").unwrap(), &b"hello"[..]);
        }
        for call in dead {
            assert_eq!(call.join().unwrap(), Err(AbortCode::RX_CALL_DEAD));
        }
    });
    let lane = client.statistics()[0];
    assert_eq!((lane.send_errors, lane.faults), (0, 0));
    assert!(lane.errors_reported >= 16);
}

#[test]
fn a_failed_call_says_whether_its_server_has_answered() {
    let (_server, address) = start(&server_config(1));
    let (_socket, closed) = closed_port();
    let client = client();
    let heard = |address, trick, code: AbortCode| {
        let before = rx::now();
        let mut call = begin(&*client.connect(address, SERVICE, None), trick).unwrap();
        // A closed port may be reported before the end of the request.
        _ = call.write(Bytes::copy_from_slice(&code.0.to_be_bytes())).and_then(|()| call.end_request());
        let ended = read_all(&mut *call);
        let heard = call.heard_at();
        assert!(heard.is_none_or(|at| at > before && at <= rx::now()));
        (ended.err(), heard.is_some())
    };
    assert_eq!(heard(address, ECHO, AbortCode(0)), (None, true));
    let dead = AbortCode::RX_CALL_DEAD;
    assert_eq!(heard(address, ABORT, dead), (Some(dead), true), "the server says so");
    assert_eq!(heard(closed, ECHO, dead), (Some(dead), false));
    let stub = |address| {
        let connection = client.connect(address, SERVICE, None);
        afs_idl::client::heard(&*connection, u32::from(ECHO) << 24, &0_u32).is_some()
    };
    assert!(stub(address) && !stub(closed));
}

#[test]
fn a_server_whose_clients_have_gone_serves_the_others() {
    let (server, address) = start(&server_config(2));
    for _ in 0..6 {
        let gone = client();
        let connection = gone.connect(address, SERVICE, None);
        assert_eq!(ask(&*connection, ECHO, b"hello").unwrap(), &b"hello"[..]);
        let port = gone.addresses()[0].port();
        drop((connection, gone));
        let back = server.connect(([127, 0, 0, 1], port).into(), SERVICE, None);
        let began = Instant::now();
        assert_eq!(ask(&*back, ECHO, b"are you there"), Err(AbortCode::RX_CALL_DEAD));
        assert!(began.elapsed() < dead_time() / 2);
    }
    let other = client();
    let connection = other.connect(address, SERVICE, None);
    assert_eq!(ask(&*connection, ECHO, b"still here").unwrap(), &b"still here"[..]);
}
