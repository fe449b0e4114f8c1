//! A client and a server endpoint connected without a network.

use base::{Monotonic, UnixTime};
use bytes::Bytes;
use rx_proto::{
    CallId, ConnectOptions, ConnectionId, Endpoint, EndpointConfig, Event, Outgoing, Path, Read,
    ServiceConfig, Transmit, Write,
};
use rx_security::Null;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

const SERVICE: u16 = 7;
const WALL: UnixTime = UnixTime(1_700_000_000);

/// Transmission time of a batch of datagrams.
const DELAY: Duration = Duration::from_micros(20);

/// One of the two endpoints.
struct End {
    endpoint: Endpoint,
    address: SocketAddr,
    /// The current call.
    call: Option<CallId>,
    /// Data that remains to be written.
    left: Bytes,
    has_ended: bool,
    received: usize,
    is_complete: bool,
    /// Data read; the allocation is kept for reuse.
    data: Vec<Bytes>,
}

impl End {
    fn new(port: u16) -> End {
        let endpoint = Endpoint::new(EndpointConfig::default(), u64::from(port), Monotonic(1));
        let address = SocketAddr::from(([192, 0, 2, 1], port));
        End {
            endpoint,
            address,
            call: None,
            left: Bytes::new(),
            has_ended: false,
            received: 0,
            is_complete: false,
            data: Vec::new(),
        }
    }

    fn begin(&mut self, call: Option<CallId>, to_write: Bytes) {
        (self.call, self.left) = (call, to_write);
        (self.has_ended, self.received, self.is_complete) = (false, 0, false);
    }

    /// Makes all possible progress with the call; `may_write` returns whether this end may write now.
    fn work(&mut self, now: Monotonic, may_write: impl FnOnce(&End) -> bool) {
        while let Some(event) = self.endpoint.poll_event() {
            if let Event::CallArrived { call, .. } = event {
                self.call = Some(call);
            }
        }
        let Some(call) = self.call else { return };
        self.read(now, call);
        if !self.has_ended && may_write(self) {
            self.write(now, call);
        }
    }

    fn read(&mut self, now: Monotonic, call: CallId) {
        let mut data: Vec<Bytes> = std::mem::take(&mut self.data);
        match self.endpoint.read_some(now, call, usize::MAX, |body| data.push(body)) {
            Some(Read::End) => self.is_complete = true,
            Some(Read::Blocked) => {}
            other => panic!("the call failed: {other:?}"),
        }
        self.received += data.drain(..).map(|data| data.len()).sum::<usize>();
        self.data = data;
    }

    fn write(&mut self, now: Monotonic, call: CallId) {
        while !self.left.is_empty() {
            match self.endpoint.write(now, call, &mut self.left) {
                Write::Accepted(_) => {}
                Write::Blocked => return,
                Write::Failed(code) => panic!("the call failed: {code:?}"),
            }
        }
        self.endpoint.end(now, call);
        self.has_ended = true;
    }

    /// Sends everything that is queued to the other end. Returns false if there was nothing to send.
    fn send(&mut self, now: Monotonic, to: &mut End) -> bool {
        let mut has_sent = false;
        while let Some(transmit) = self.endpoint.poll_transmit(now) {
            let segment_bytes = transmit.packets[0].len_bytes();
            let all = Bytes::from(as_one(&transmit));
            to.endpoint.handle_run(now, WALL, Path::to(self.address), all, segment_bytes);
            self.endpoint.recycle(transmit);
            has_sent = true;
        }
        has_sent
    }

    fn run_timers(&mut self, now: Monotonic) {
        if self.endpoint.poll_timeout().is_some_and(|at| at <= now) {
            self.endpoint.handle_timeout(now);
        }
    }
}

/// Returns the concatenated datagrams of a transmit, as a kernel that segments and merges them passes them
/// on.
fn as_one(transmit: &Transmit) -> Vec<u8> {
    let bytes = transmit.packets.iter().map(Outgoing::len_bytes).sum();
    let (mut all, mut bodies) = (Vec::with_capacity(bytes), transmit.bodies());
    for packet in &transmit.packets {
        all.extend_from_slice(&packet.header);
        bodies.next(packet.body_bytes as usize, |piece| all.extend_from_slice(piece));
    }
    all
}

/// The two connected endpoints.
pub(crate) struct Pair {
    client: End,
    server: End,
    connection: ConnectionId,
    now: Monotonic,
}

impl Pair {
    pub(crate) fn new() -> Pair {
        let (mut client, mut server) = (End::new(7001), End::new(7000));
        server.endpoint.add_service(ServiceConfig {
            id: SERVICE,
            name: "counted".into(),
            security: vec![Arc::new(Null)],
        });
        let path = Path::to(server.address);
        let options = ConnectOptions::default();
        let connection = client.endpoint.connect(Monotonic(1), path, SERVICE, None, options);
        Pair { client, server, connection: connection.expect("a connection"), now: Monotonic(1) }
    }

    /// Performs one complete call.
    pub(crate) fn call(&mut self, request_bytes: usize, reply_bytes: usize) {
        let call = self.client.endpoint.open_call(self.now, self.connection).expect("a channel");
        self.client.begin(Some(call), vec![1; request_bytes].into());
        self.server.begin(None, vec![2; reply_bytes].into());
        while !self.client.is_complete {
            self.step();
        }
        assert_eq!((self.client.received, self.server.received), (reply_bytes, request_bytes));
        self.client.endpoint.release(self.now, call);
        if let Some(call) = self.server.call {
            self.server.endpoint.release(self.now, call);
        }
    }

    fn step(&mut self) {
        self.now = self.now + DELAY;
        self.client.work(self.now, |_| true);
        let sent = self.client.send(self.now, &mut self.server);
        self.server.work(self.now, |server| server.is_complete);
        let answered = self.server.send(self.now, &mut self.client);
        // No time passes between two calls; otherwise the number of timers that run would depend on their
        // phase.
        if !sent && !answered && !self.client.is_complete {
            let next =
                [&self.client, &self.server].into_iter().filter_map(|end| end.endpoint.poll_timeout()).min();
            self.now = self.now.max(next.unwrap_or(self.now));
        }
        self.client.run_timers(self.now);
        self.server.run_timers(self.now);
    }
}
