//! The state that a stopped server leaves behind, and the cost of an idle server.
mod common;

use std::time::{Duration, Instant};

use afs_idl::ClientCall;
use bytes::Bytes;
use common::{DOWNLOAD, ECHO, SERVICE, ask, begin, pattern_digest, server_config, sockets, start};
use rx::{Client, ClientConfig, EndpointConfig, Server};
use sha2::{Digest, Sha256};

/// More than the client's receive window and less than a send queue, so that the service returns long before
/// the reply is delivered.
const REPLY_BYTES: u64 = 400_000;

/// Returns a client with the window size of other implementations.
fn client() -> Client {
    let endpoint = EndpointConfig { receive_window_packets: 255, ..EndpointConfig::default() };
    Client::start(&ClientConfig { socket: sockets(), endpoint, ..ClientConfig::default() }).unwrap()
}

/// Makes a call whose service has returned and whose reply waits for a reader.
fn half_delivered(server: &Server, client: &Client) -> Box<dyn ClientCall> {
    let connection = client.connect(server.addresses()[0], SERVICE, None);
    let mut call = begin(&*connection, DOWNLOAD).unwrap();
    call.write(Bytes::copy_from_slice(&REPLY_BYTES.to_be_bytes())).unwrap();
    call.end_request().unwrap();
    while server.statistics().calls.succeeded == 0 || server.statistics().busy_workers > 0 {
        std::thread::sleep(Duration::from_millis(1));
    }
    call
}

#[test]
fn a_stopping_server_delivers_finished_replies() {
    let (server, _) = start(&server_config(2));
    let client = client();
    let mut call = half_delivered(&server, &client);
    std::thread::scope(|scope| {
        let stopping = scope.spawn(|| server.stop());
        std::thread::sleep(Duration::from_millis(100));
        assert!(!stopping.is_finished(), "the reply was abandoned");
        let mut digest = Sha256::new();
        while let Some(piece) = Some(call.read_chunk(usize::MAX).unwrap()).filter(|piece| !piece.is_empty()) {
            digest.update(&piece);
        }
        assert_eq!(digest.finalize().to_vec(), pattern_digest(REPLY_BYTES));
    });
}

#[test]
fn a_stopping_server_does_not_wait_for_a_stalled_client() {
    let (server, _) = start(&server_config(2));
    let client = client();
    let call = half_delivered(&server, &client);
    let begin = Instant::now();
    server.stop();
    assert!(begin.elapsed() >= Duration::from_secs(2), "the reply was abandoned");
    // Stopping again, explicitly and by dropping, has nothing to wait for.
    let again = Instant::now();
    (0..10).for_each(|_| server.stop());
    drop(server);
    assert!(again.elapsed() < Duration::from_secs(10), "waited again");
    drop(call);
}

#[test]
fn lanes_sleep_when_nothing_happens() {
    let (server, address) = start(&server_config(4));
    let clients = [client(), client(), client(), client()];
    for client in &clients {
        let connection = client.connect(address, SERVICE, None);
        (0..10).for_each(|_| drop(ask(&*connection, ECHO, b"hello").unwrap()));
    }
    // Until the last acknowledgements have arrived and the lanes' short sleeps have ended.
    std::thread::sleep(Duration::from_millis(700));
    let wakeups = || server.statistics().total().wakeups;
    let before = wakeups();
    std::thread::sleep(Duration::from_millis(500));
    let idle = wakeups() - before;
    // Four lanes that wake every 10 ms would make 200; a busy loop makes millions.
    assert!(idle < 300, "{idle} wake-ups of four idle lanes in half a second");
    server.stop();
    let stopped = wakeups();
    std::thread::sleep(Duration::from_millis(50));
    assert_eq!(wakeups(), stopped, "lanes run on");
}
