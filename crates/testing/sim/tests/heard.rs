//! Whether something has come from the server of a call, however the call has ended.

use base::{AbortCode, Monotonic, UnixTime};
use bytes::Bytes;
use rx_proto::{
    CallId, ConnectOptions, Endpoint, EndpointConfig, Flags, Header, PacketType, Path, Read, header,
};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::time::Duration;

const SERVER: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::new(10, 0, 0, 2)), 7000);
const HERE: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 0, 0, 1));

/// A client that has made one call, whose packets go nowhere.
struct Asked {
    endpoint: Endpoint,
    now: Monotonic,
    call: CallId,
    /// The header of the request.
    sent: Header,
}

impl Asked {
    fn new() -> Asked {
        let now = Monotonic(1_000_000_000);
        let mut endpoint = Endpoint::new(EndpointConfig::default(), 1, now);
        let path = Path { remote: SERVER, local: Some(HERE) };
        let connection = endpoint.connect(now, path, 5, None, ConnectOptions::default()).unwrap();
        let call = endpoint.open_call(now, connection).unwrap();
        endpoint.write(now, call, &mut Bytes::from_static(b"question"));
        endpoint.end(now, call);
        let transmit = endpoint.poll_transmit(now).unwrap();
        let datagram = transmit.datagrams().next().unwrap();
        let sent = header::parse(&datagram).unwrap().0;
        Asked { endpoint, now, call, sent }
    }

    fn pass(&mut self, span: Duration) {
        let end = self.now + span;
        while self.endpoint.poll_transmit(self.now).is_some() {}
        while let Some(next) = self.endpoint.poll_timeout().filter(|next| *next <= end) {
            self.now = self.now.max(next);
            self.endpoint.handle_timeout(self.now);
            while self.endpoint.poll_transmit(self.now).is_some() {}
        }
        self.now = end;
    }

    /// Receives a packet of the server, which belongs to the call with this number, or to the connection if that is 0.
    fn receive(&mut self, kind: PacketType, call_number: u32, body: &[u8]) {
        let flags = Flags::default();
        let header = Header { kind, call_number, flags, sequence: 0, serial: 1, ..self.sent };
        let packet = [&header.encode(), body].concat();
        let path = Path { remote: SERVER, local: Some(HERE) };
        self.endpoint.handle_datagram(self.now, UnixTime(1), path, packet.into());
    }

    /// Returns how the call has failed, and whether the server was heard at this time.
    fn failed(&mut self, heard_at: Monotonic) -> (AbortCode, bool) {
        let heard = self.endpoint.heard_at(self.call);
        assert!(heard.is_none_or(|at| at == heard_at), "{heard:?}");
        let Read::Failed(code) = self.endpoint.read(self.now, self.call) else { panic!("it has not failed") };
        (code, heard.is_some())
    }
}

/// Longer than the dead time.
const LONG: Duration = Duration::from_secs(120);

#[test]
fn a_silent_server_is_not_heard() {
    let mut asked = Asked::new();
    asked.pass(LONG);
    assert_eq!(asked.failed(Monotonic(0)), (AbortCode::RX_CALL_DEAD, false));
}

#[test]
fn a_local_failure_is_not_heard() {
    let mut asked = Asked::new();
    asked.endpoint.handle_source_gone(asked.now, HERE);
    assert_eq!(asked.failed(Monotonic(0)), (AbortCode::RX_RESTARTING, false));
    let mut asked = Asked::new();
    asked.endpoint.abort(asked.now, asked.call, AbortCode::VBUSY);
    assert_eq!(asked.endpoint.heard_at(asked.call), None);
}

#[test]
fn an_abort_is_heard_whatever_its_code() {
    for code in [AbortCode::RX_CALL_DEAD, AbortCode::RX_RESTARTING, AbortCode::VBUSY] {
        for is_of_call in [true, false] {
            let mut asked = Asked::new();
            asked.pass(Duration::from_millis(10));
            let number = if is_of_call { asked.sent.call_number } else { 0 };
            asked.receive(PacketType::Abort, number, &code.0.to_be_bytes());
            let at = asked.now;
            assert_eq!(asked.failed(at), (code, true), "of the call: {is_of_call}");
        }
    }
}

#[test]
fn a_server_that_fell_silent_was_heard_before() {
    let mut asked = Asked::new();
    asked.pass(Duration::from_millis(10));
    asked.receive(PacketType::Busy, asked.sent.call_number, &[]);
    let at = asked.now;
    asked.pass(LONG);
    assert_eq!(asked.failed(at), (AbortCode::RX_CALL_DEAD, true));
}

#[test]
fn a_packet_of_another_call_is_not_heard() {
    let mut asked = Asked::new();
    asked.pass(Duration::from_millis(10));
    asked.receive(PacketType::Busy, asked.sent.call_number + 1, &[]);
    asked.pass(LONG);
    assert_eq!(asked.failed(Monotonic(0)), (AbortCode::RX_CALL_DEAD, false));
}
