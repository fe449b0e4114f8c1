//! Measures how fast an endpoint makes the packets of a reply at each level of rxkad, without the time of the
//! client and its decryption: `cargo run --release -p sim --example seal_speed`.

use std::net::{Ipv4Addr, SocketAddr};
use std::time::{Duration, Instant};

use base::{Monotonic, SecurityLevel, UnixTime};
use bytes::Bytes;
use rx_proto::{CallId, ConnectOptions, Endpoint, EndpointConfig, Event, Path, Read, ServiceConfig, Write};
use sim::security::{Class, client_class, server_classes};

const SERVICE: u16 = 1;
const REPLY_MEGABYTES: u32 = 32;
const REPLY_BYTES: usize = (REPLY_MEGABYTES as usize) << 20;

fn address(end: u8) -> SocketAddr {
    SocketAddr::from((Ipv4Addr::new(10, 0, 0, end), 7000))
}

/// Both ends, and the time that the server has spent making packets.
struct Transfer {
    now: Monotonic,
    client: Endpoint,
    server: Endpoint,
    spent: Duration,
}

impl Transfer {
    fn new() -> Transfer {
        let now = Monotonic(1);
        let mut server = Endpoint::new(EndpointConfig::default(), 1, now);
        server.add_service(ServiceConfig {
            id: SERVICE,
            name: String::from("speed"),
            security: server_classes(),
        });
        Transfer {
            now,
            client: Endpoint::new(EndpointConfig::default(), 2, now),
            server,
            spent: Duration::ZERO,
        }
    }

    /// Delivers all packets and advances the clock a little.
    fn exchange(&mut self) {
        let wall = UnixTime(1_700_000_000);
        self.now = self.now + Duration::from_micros(50);
        let now = self.now;
        let to = |end: u8, from: u8| Path { remote: address(from), local: Some(address(end).ip()) };
        while let Some(transmit) = self.client.poll_transmit(now) {
            for datagram in transmit.datagrams() {
                self.server.handle_datagram(now, wall, to(1, 2), datagram.into());
            }
        }
        let begin = Instant::now();
        let made: Vec<_> = std::iter::from_fn(|| self.server.poll_transmit(now)).collect();
        self.spent += begin.elapsed();
        for datagram in made.iter().flat_map(rx_proto::Transmit::datagrams) {
            self.client.handle_datagram(now, wall, to(2, 1), datagram.into());
        }
        self.client.handle_timeout(now);
        self.server.handle_timeout(now);
    }

    fn run(&mut self, class: Class) -> f64 {
        let security = client_class(class);
        let options = ConnectOptions::default();
        let path = Path::to(address(1));
        let connection = self.client.connect(self.now, path, SERVICE, security, options).expect("room");
        let call = self.client.open_call(self.now, connection).expect("a channel");
        self.client.end(self.now, call);
        let served = self.arrival();
        let (mut left, mut read) = (Bytes::from(vec![7; REPLY_BYTES]), 0);
        while read < REPLY_BYTES {
            while !left.is_empty()
                && matches!(self.server.write(self.now, served, &mut left), Write::Accepted(_))
            {}
            if left.is_empty() {
                self.server.end(self.now, served);
            }
            self.exchange();
            while let Read::Data(data) = self.client.read(self.now, call) {
                read += data.len();
            }
        }
        f64::from(REPLY_MEGABYTES) * 1.048_576 / self.spent.as_secs_f64()
    }

    fn arrival(&mut self) -> CallId {
        loop {
            self.exchange();
            if let Some(Event::CallArrived { call, .. }) = self.server.poll_event() {
                return call;
            }
        }
    }
}

fn main() {
    for level in [SecurityLevel::Clear, SecurityLevel::Authenticated, SecurityLevel::Encrypted] {
        let speed = Transfer::new().run(Class::Rxkad(level));
        println!("{level:?}: {speed:.0} MB/s");
    }
}
