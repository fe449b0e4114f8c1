//! A server that passes its sockets on to its successor.

mod common;

use afs_idl::{CallStream, ClientConnection};
use base::AbortCode;
use common::{ECHO, HOLD, SERVICE, Trick, ask, begin, client, entry, read_all, server_config, start};
use rx::{Connector, Inherited, Server, ServerCall, ServerConfig, Service};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, UdpSocket};
use std::sync::{Arc, OnceLock};
use std::thread;
use std::time::Duration;

/// Starts a server with the sockets of another, which has stopped.
fn succeed(before: Server, lanes: usize) -> Server {
    let inherited = Arc::new(Inherited::new(before.sockets().unwrap()));
    let port = before.addresses()[0].port();
    drop(before);
    let config = ServerConfig { port, inherited, ..server_config(lanes) };
    Server::start(&config, vec![entry(Trick::new().0)]).unwrap()
}

/// Returns an Rx version request, which every server answers.
fn version_question() -> [u8; 28] {
    let mut question = [0; 28];
    (question[20], question[21]) = (13, 1);
    question
}

#[test]
fn packets_during_a_handover_reach_the_second() {
    let (mut server, address) = start(&server_config(3));
    for lanes in [1, 4, 2] {
        let kept = server.sockets().unwrap();
        drop(server);
        let askers = [(); 40].map(|()| {
            let asker = UdpSocket::bind("127.0.0.1:0").unwrap();
            asker.connect(address).unwrap();
            asker.send(&version_question()).unwrap();
            asker.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
            asker
        });
        let inherited = Arc::new(Inherited::new(kept));
        let config = ServerConfig { port: address.port(), inherited, ..server_config(lanes) };
        server = Server::start(&config, vec![entry(Trick::new().0)]).unwrap();
        for asker in askers {
            // An ICMP error (port unreachable) would fail this receive.
            assert!(asker.recv(&mut [0; 200]).unwrap() > 28, "{lanes} lanes");
        }
    }
}

#[test]
fn calls_go_on_with_the_next_server() {
    let (mut server, address) = start(&server_config(2));
    let client = client();
    let connection = client.connect(address, SERVICE, None);
    for lanes in [2, 3, 1, 4] {
        assert_eq!(ask(&*connection, ECHO, b"before").unwrap(), &b"before"[..]);
        server.hold_new_calls();
        let connection = Arc::clone(&connection);
        let held = thread::spawn(move || ask(&*connection, ECHO, b"held"));
        while server.statistics().endpoints.iter().all(|lane| lane.calls_held == 0) {
            thread::sleep(Duration::from_millis(1));
        }
        server = succeed(server, lanes);
        assert_eq!(held.join().unwrap().unwrap(), &b"held"[..]);
    }
}

/// Serves a call by calling another server, through a connector that it is given.
struct Relay {
    connector: OnceLock<Connector>,
    to: SocketAddr,
}

impl Service for Relay {
    fn serve(&self, call: &mut ServerCall) -> Result<(), AbortCode> {
        let connector = self.connector.get().ok_or(AbortCode::RX_RESTARTING)?;
        call.write(ask(&*connector.connect(self.to, SERVICE, None), ECHO, b"relayed")?)
    }
}

#[test]
fn the_first_call_finds_the_connector_of_its_port() {
    let (behind, to) = start(&server_config(1));
    let (server, address) = start(&server_config(2));
    let kept = server.sockets().unwrap();
    drop(server);
    let client = client();
    let connection = client.connect(address, SERVICE, None);
    let mut early = begin(&*connection, ECHO).unwrap();
    early.end_request().unwrap();
    let relay = Arc::new(Relay { connector: OnceLock::new(), to });
    let config =
        ServerConfig { port: address.port(), inherited: Arc::new(Inherited::new(kept)), ..server_config(2) };
    let bound = Server::bind(&config, vec![entry(relay.clone())]).unwrap();
    relay.connector.set(bound.connector()).ok().unwrap();
    let server = bound.serve().unwrap();
    assert_eq!(read_all(&mut *early).unwrap(), &b"relayed"[..]);
    drop((server, behind));
}

#[test]
fn a_server_that_never_serves_gives_its_port_up() {
    let bound = Server::bind(&server_config(2), vec![entry(Trick::new().0)]).unwrap();
    let connector = bound.connector();
    drop(bound);
    let connection = connector.connect(SocketAddr::from(([127, 0, 0, 1], 9)), SERVICE, None);
    assert_eq!(begin(&*connection, ECHO).map(drop), Err(AbortCode::RX_RESTARTING));
}

/// A port is bound to all addresses; one of them is given up, and comes back.
#[test]
fn calls_are_held_at_one_address_of_a_port() {
    let (trick, held) = Trick::new();
    let config = ServerConfig { addresses: vec![Ipv4Addr::UNSPECIFIED.into()], ..server_config(2) };
    let server = Server::start(&config, vec![entry(trick)]).unwrap();
    let port = server.addresses()[0].port();
    let [moving, staying] = [2, 3].map(|last| IpAddr::from([127, 0, 0, last]));
    let client = client();
    let connect = |to: IpAddr| client.connect((to, port).into(), SERVICE, None);
    let mut call = begin(&*connect(moving), HOLD).unwrap();
    call.write(bytes::Bytes::from(vec![0; 5000])).unwrap();
    held.recv().unwrap();
    server.hold_new_calls_at(moving);
    let connection = connect(moving);
    let waiting = thread::spawn(move || ask(&*connection, ECHO, b"waits"));
    while server.statistics().endpoints.iter().all(|lane| lane.calls_held == 0) {
        thread::sleep(Duration::from_millis(1));
    }
    assert_eq!(ask(&*connect(staying), ECHO, b"goes on").unwrap(), &b"goes on"[..]);
    assert!(!waiting.is_finished());
    assert_eq!(server.calls_at(moving), 1);
    call.end_request().unwrap();
    assert_eq!(held.recv().unwrap(), Some(AbortCode(0)), "the call was served to its end");
    call.finish().unwrap();
    while server.calls_at(moving) > 0 {
        thread::sleep(Duration::from_millis(1));
    }
    server.succeed(moving);
    assert_eq!(waiting.join().unwrap().unwrap(), &b"waits"[..]);
}

#[test]
fn a_server_that_holds_new_calls_ends_those_under_way() {
    let (trick, held) = Trick::new();
    let server = Server::start(&server_config(2), vec![entry(trick)]).unwrap();
    let client = client();
    let connection: Arc<dyn ClientConnection> = client.connect(server.addresses()[0], SERVICE, None);
    let mut call = begin(&*connection, HOLD).unwrap();
    call.write(bytes::Bytes::from(vec![0; 5000])).unwrap();
    held.recv().unwrap();
    server.hold_new_calls();
    assert!(!server.is_idle());
    call.end_request().unwrap();
    assert_eq!(held.recv().unwrap(), Some(AbortCode(0)), "the call was served to its end");
}
