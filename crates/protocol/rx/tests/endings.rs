//! How calls and servers end, and which peers a server can call.
mod common;

use std::net::{IpAddr, UdpSocket};
use std::time::Duration;

use base::AbortCode;
use bytes::Bytes;
use common::{
    ABORT, CALL_BACK, ECHO, HOLD, PANIC, SERVICE, Trick, ask, begin, client, entry, server_config, start,
};
use rx::{Fairness, Server, ServerConfig};

#[test]
fn the_servers_abort_codes_arrive() {
    let (server, address) = start(&server_config(1));
    let client = client();
    let connection = client.connect(address, SERVICE, None);
    for code in
        [AbortCode::VNOVNODE, AbortCode::UAEACCES, AbortCode(-7), AbortCode(i32::MIN), AbortCode(i32::MAX)]
    {
        assert_eq!(ask(&*connection, ABORT, &code.0.to_be_bytes()), Err(code));
    }
    assert_eq!(ask(&*connection, ECHO, b"still here").unwrap(), &b"still here"[..]);
    assert_eq!(server.statistics().calls.failed, 5);
}

#[test]
fn an_unknown_service_is_refused() {
    let (_server, address) = start(&server_config(1));
    let client = client();
    let connection = client.connect(address, SERVICE + 1, None);
    assert!(ask(&*connection, ECHO, b"hello").is_err());
}

#[test]
fn a_client_that_goes_away_ends_the_call_at_the_server() {
    let (trick, held) = Trick::new();
    let server = Server::start(&server_config(1), vec![entry(trick)]).unwrap();
    let client = client();
    let connection = client.connect(server.addresses()[0], SERVICE, None);
    let mut call = begin(&*connection, HOLD).unwrap();
    call.write(Bytes::from(vec![0; 10_000])).unwrap();
    assert_eq!(held.recv().unwrap(), None);
    drop(call);
    assert_eq!(held.recv().unwrap(), Some(AbortCode::RX_USER_ABORT));
    assert_eq!(ask(&*connection, ECHO, b"again").unwrap(), &b"again"[..]);
}

#[test]
fn a_panic_ends_its_call_only() {
    let (server, address) = start(&server_config(1));
    let client = client();
    let connection = client.connect(address, SERVICE, None);
    for _ in 0..8 {
        assert_eq!(ask(&*connection, PANIC, b""), Err(AbortCode::UAEIO));
    }
    assert_eq!(ask(&*connection, ECHO, b"still here").unwrap(), &b"still here"[..]);
    assert_eq!(server.statistics().calls.panicked, 8);
}

#[test]
fn stopping_ends_running_calls_and_frees_the_port() {
    let (trick, held) = Trick::new();
    let server = Server::start(&server_config(4), vec![entry(trick)]).unwrap();
    let address = server.addresses()[0];
    let clients = [client(), client(), client()];
    let connections = clients.each_ref().map(|client| client.connect(address, SERVICE, None));
    let mut calls = connections.each_ref().map(|connection| {
        let mut call = begin(&**connection, HOLD).unwrap();
        call.write(Bytes::from(vec![0; 10_000])).unwrap();
        call
    });
    (0..calls.len()).for_each(|_| assert_eq!(held.recv().unwrap(), None));
    server.stop();
    for call in &mut calls {
        assert_eq!(call.read_chunk(1), Err(AbortCode::RX_RESTARTING));
    }
    (0..calls.len()).for_each(|_| assert_eq!(held.recv().unwrap(), Some(AbortCode::RX_RESTARTING)));
    assert_eq!(server.connect(address, SERVICE, None).begin().err(), Some(AbortCode::RX_RESTARTING));
    drop(server);
    let (_again, _) = start(&ServerConfig { port: address.port(), ..server_config(4) });
}

#[test]
fn a_stopped_client_fails_its_calls() {
    let (trick, held) = Trick::new();
    let server = Server::start(&server_config(1), vec![entry(trick)]).unwrap();
    let client = client();
    let connection = client.connect(server.addresses()[0], SERVICE, None);
    let mut call = begin(&*connection, HOLD).unwrap();
    call.write(Bytes::from(vec![0; 10_000])).unwrap();
    held.recv().unwrap();
    std::thread::scope(|scope| {
        let waiting = scope.spawn(move || call.read_chunk(1));
        drop(client);
        assert_eq!(waiting.join().unwrap(), Err(AbortCode::RX_CALL_DEAD));
    });
    assert_eq!(connection.begin().err(), Some(AbortCode::RX_CALL_DEAD));
}

#[test]
fn excess_calls_are_answered_busy() {
    let (trick, held) = Trick::new();
    let fairness = Fairness { stalled_max: 0, waiting_max: 2, ..Fairness::default() };
    let config = ServerConfig { workers_min: 1, workers_max: 1, fairness, ..server_config(1) };
    let server = Server::start(&config, vec![entry(trick)]).unwrap();
    let client = client();
    let connection = client.connect(server.addresses()[0], SERVICE, None);
    let mut first = begin(&*connection, HOLD).unwrap();
    first.write(Bytes::from(vec![0; 10_000])).unwrap();
    held.recv().unwrap();
    // One host may fill half of the queue: one call waits, the others are refused.
    std::thread::scope(|scope| {
        let calls: Vec<_> = (0..6).map(|_| scope.spawn(|| ask(&*connection, ECHO, b"hello"))).collect();
        while server.statistics().calls.refused_busy < 5 {
            std::thread::sleep(Duration::from_millis(1));
        }
        drop(first);
        let answers: Vec<_> = calls.into_iter().map(|call| call.join().unwrap()).collect();
        assert_eq!(answers.iter().filter(|answer| **answer == Err(AbortCode::VBUSY)).count(), 5);
        assert_eq!(answers.iter().filter(|answer| answer.is_ok()).count(), 1);
    });
}

#[test]
fn callbacks_come_back_through_the_servers_own_port() {
    let (server, address) = start(&server_config(4));
    // Callers that are servers too, so that they can be called back. Each has its own port, and so may belong
    // to any of the server's lanes.
    let callers: Vec<Server> = (0..8).map(|lanes| start(&server_config(1 + lanes % 4)).0).collect();
    std::thread::scope(|scope| {
        for caller in &callers {
            scope.spawn(move || {
                let connection = caller.connect(address, SERVICE, None);
                for _ in 0..10 {
                    assert_eq!(
                        ask(&*connection, CALL_BACK, b"are you there").unwrap(),
                        &b"are you there"[..]
                    );
                }
                assert_eq!(caller.statistics().calls.succeeded, 10);
            });
        }
    });
    let statistics = server.statistics();
    assert_eq!(statistics.calls.succeeded, 80);
    assert_eq!(statistics.total().handed_over, 0);
}

#[test]
fn answers_leave_from_the_address_that_was_asked() {
    for addresses in
        [vec![IpAddr::from([0, 0, 0, 0])], vec![IpAddr::from([127, 0, 0, 1]), IpAddr::from([127, 0, 0, 2])]]
    {
        let config = ServerConfig { addresses, ..server_config(2) };
        let (server, address) = start(&config);
        for asked in ["127.0.0.1", "127.0.0.2"] {
            let asked: IpAddr = asked.parse().unwrap();
            // A connected socket accepts datagrams from its peer's address only.
            let plain = UdpSocket::bind("127.0.0.1:0").unwrap();
            plain.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
            plain.connect((asked, address.port())).unwrap();
            plain.send(&version_request()).unwrap();
            let mut answer = [0; 200];
            assert!(plain.recv(&mut answer).unwrap() > 28);
            let client = client();
            let connection = client.connect((asked, address.port()).into(), SERVICE, None);
            assert_eq!(ask(&*connection, ECHO, b"hello").unwrap(), &b"hello"[..]);
        }
        drop(server);
    }
}

#[test]
fn calls_leave_from_the_address_on_the_way_to_the_peer() {
    // The system's route to all of 127.0.0.0/8 has the source 127.0.0.1.
    for last in [1, 2, 3] {
        let config = ServerConfig {
            addresses: vec![IpAddr::from([127, 0, 0, 2]), IpAddr::from([127, 0, 0, 1])],
            ..server_config(2)
        };
        let (server, address) = start(&config);
        let plain = UdpSocket::bind((IpAddr::from([127, 0, 0, last]), 0)).unwrap();
        plain.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
        let connection = server.connect(plain.local_addr().unwrap(), SERVICE, None);
        let mut call = begin(&*connection, ECHO).unwrap();
        call.end_request().unwrap();
        let mut packet = [0; 2000];
        let (_, from) = plain.recv_from(&mut packet).unwrap();
        assert_eq!(from, (IpAddr::from([127, 0, 0, 1]), address.port()).into());
    }
}

/// An Rx VERSION packet as rxdebug sends it (rx-debug.txt): type 13, flag CLIENT-INITIATED.
fn version_request() -> [u8; 29] {
    let mut packet = [0; 29];
    packet[20] = 13;
    packet[21] = 1;
    packet
}

#[test]
fn a_port_taken_is_an_error() {
    let (_server, address) = start(&server_config(4));
    let config = ServerConfig { port: address.port(), ..server_config(4) };
    let error = Server::start(&config, Vec::new()).err().expect("the port was shared");
    assert_eq!(error.kind(), std::io::ErrorKind::AddrInUse);
    assert!(Server::start(&ServerConfig { addresses: Vec::new(), ..config }, Vec::new()).is_err());
}
