//! Data arrives intact with every combination of lanes and kernel features.
mod common;

use common::{ECHO, ask, client, download, pattern_digest, server_config, start, upload, upload_to_rooms};
use rx::{Client, ClientConfig, ServerConfig, SocketOptions};

const LARGE_BYTES: u64 = 64 << 20;

fn exchange_large(config: &ServerConfig, client: &Client, bytes: u64) {
    let (server, address) = start(config);
    let connection = client.connect(address, common::SERVICE, None);
    let expected = pattern_digest(bytes);
    assert_eq!(upload(&*connection, bytes).unwrap(), expected, "{:?}", server.statistics().total());
    assert_eq!(upload_to_rooms(&*connection, bytes).unwrap(), expected, "{:?}", server.statistics().total());
    assert_eq!(download(&*connection, bytes).unwrap(), expected, "{:?}", server.statistics().total());
}

#[test]
fn small_calls_of_all_sizes() {
    for lanes in [1, 4] {
        let (server, address) = start(&server_config(lanes));
        let client = client();
        let connection = client.connect(address, common::SERVICE, None);
        let sizes = (0..40).chain([1400, 1411, 1412, 1413, 1444, 2823, 2824, 2825, 65_535, 100_000]);
        let mut calls = 0;
        for bytes in sizes {
            let message: Vec<u8> = (0..bytes).map(|at: usize| (at * 31) as u8).collect();
            assert_eq!(ask(&*connection, ECHO, &message).unwrap(), message);
            calls += 1;
        }
        let statistics = server.statistics();
        assert_eq!((statistics.calls.arrived, statistics.calls.succeeded), (calls, calls));
        assert_eq!(statistics.total().faults, 0);
    }
}

#[test]
fn large_both_ways_one_lane() {
    exchange_large(&server_config(1), &client(), LARGE_BYTES);
}

#[test]
fn large_both_ways_four_lanes() {
    exchange_large(&server_config(4), &client(), LARGE_BYTES);
}

#[test]
fn large_without_offloads() {
    let socket = SocketOptions { segment_offload: false, receive_merging: false, ..common::sockets() };
    let client = Client::start(&ClientConfig { socket: socket.clone(), ..ClientConfig::default() }).unwrap();
    exchange_large(&ServerConfig { socket, ..server_config(1) }, &client, LARGE_BYTES / 8);
}

#[test]
fn large_when_the_kernel_refuses_to_cut() {
    let socket = SocketOptions { no_checksum: true, ..common::sockets() };
    let client = Client::start(&ClientConfig { socket: socket.clone(), ..ClientConfig::default() }).unwrap();
    exchange_large(&ServerConfig { socket, ..server_config(1) }, &client, LARGE_BYTES / 8);
    assert!(client.statistics()[0].segmentation_fallbacks > 0);
}

#[test]
fn large_through_receive_buffers_that_overflow() {
    let socket = SocketOptions { buffer_bytes: 16 << 10, ..common::sockets() };
    let client = Client::start(&ClientConfig { socket: socket.clone(), ..ClientConfig::default() }).unwrap();
    exchange_large(&ServerConfig { socket, ..server_config(1) }, &client, LARGE_BYTES / 64);
    assert!(client.statistics()[0].kernel_drops > 0, "nothing was lost");
}

#[test]
fn lanes_hand_over_what_the_kernel_gave_to_the_wrong_one() {
    let socket = SocketOptions { kernel_steering: false, ..common::sockets() };
    let (server, address) = start(&ServerConfig { socket, ..server_config(4) });
    for _ in 0..8 {
        let client = client();
        let connection = client.connect(address, common::SERVICE, None);
        assert_eq!(ask(&*connection, ECHO, b"hello").unwrap(), &b"hello"[..]);
    }
    let total = server.statistics().total();
    assert!(total.handed_over > 0, "{total:?}");
    assert_eq!(total.handover_drops, 0);
}

#[test]
fn kernel_steering_leaves_nothing_to_hand_over() {
    let (server, address) = start(&server_config(4));
    let clients: Vec<Client> = (0..8).map(|_| client()).collect();
    for client in &clients {
        let connection = client.connect(address, common::SERVICE, None);
        assert_eq!(ask(&*connection, ECHO, b"hello").unwrap(), &b"hello"[..]);
    }
    let statistics = server.statistics();
    assert_eq!(statistics.total().handed_over, 0);
    let used = statistics.lanes.iter().filter(|lane| lane.datagrams_received > 0).count();
    assert!(used >= 2, "8 clients in one lane");
}

#[test]
fn many_concurrent_calls() {
    for lanes in [1, 4] {
        let (server, address) = start(&server_config(lanes));
        let clients = [client(), client()];
        let connections: Vec<_> =
            clients.iter().map(|client| client.connect(address, common::SERVICE, None)).collect();
        std::thread::scope(|scope| {
            for thread in 0..100usize {
                let connection = &*connections[thread % connections.len()];
                scope.spawn(move || {
                    for round in 0..10usize {
                        let message = vec![thread as u8; 100 + 997 * round];
                        assert_eq!(ask(connection, ECHO, &message).unwrap(), message);
                    }
                });
            }
        });
        let statistics = server.statistics();
        assert_eq!(statistics.calls.succeeded, 1000);
        assert!(statistics.worker_threads <= 128);
    }
}
