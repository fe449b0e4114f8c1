//! The application of a host: a server and a client on one endpoint.

use base::Monotonic;
use rand::SeedableRng;
use rand::rngs::SmallRng;
use rx_proto::{CallId, Endpoint, Event};

use crate::client::Client;
use crate::server::Server;

/// A server and a client on one endpoint.
#[derive(Debug)]
pub struct Application {
    /// The server.
    pub server: Server,
    /// The client.
    pub client: Client,
    random: SmallRng,
    naps: Vec<(Monotonic, CallId)>,
}

impl Application {
    /// Creates an idle application.
    pub fn new(seed: u64) -> Application {
        Application {
            server: Server::default(),
            client: Client::default(),
            random: SmallRng::seed_from_u64(seed),
            naps: Vec::new(),
        }
    }

    /// Returns the time at which the application wants to continue.
    pub fn next_wake(&self) -> Option<Monotonic> {
        let nap = self.naps.iter().map(|(at, _)| *at).min();
        [nap, self.client.next_start()].into_iter().flatten().min()
    }

    /// Continues all calls that are due.
    pub fn wake(&mut self, now: Monotonic, endpoint: &mut Endpoint) {
        let (due, later): (Vec<_>, Vec<_>) = self.naps.drain(..).partition(|(at, _)| *at <= now);
        self.naps = later;
        for (_, call) in due {
            self.run(now, endpoint, call, true);
        }
        self.open(now, endpoint);
    }

    /// Handles an event of the endpoint.
    pub fn handle(&mut self, now: Monotonic, endpoint: &mut Endpoint, event: &Event) {
        match *event {
            Event::CallArrived { call, ref caller, .. } => {
                self.server.arrived(call, caller.clone());
                self.run(now, endpoint, call, false);
            }
            Event::Readable(call) | Event::Writable(call) => self.run(now, endpoint, call, false),
            Event::Failed(call, _) => self.run(now, endpoint, call, true),
            Event::Ended(call) => {
                self.server.ended(call);
                self.run(now, endpoint, call, false);
            }
            Event::ChannelFree(_) | Event::ConnectionFailed(..) | Event::PathIsShort { .. } => {}
        }
        self.open(now, endpoint);
    }

    fn open(&mut self, now: Monotonic, endpoint: &mut Endpoint) {
        loop {
            let opened = self.client.open(now, endpoint);
            if opened.is_empty() {
                return;
            }
            for call in opened {
                self.run(now, endpoint, call, false);
            }
        }
    }

    fn run(&mut self, now: Monotonic, endpoint: &mut Endpoint, call: CallId, woken: bool) {
        let random = &mut self.random;
        let nap = if self.server.has(call) {
            self.server.run(now, endpoint, call, random, woken)
        } else {
            self.client.run(now, endpoint, call, random, woken)
        };
        if let Some(at) = nap {
            self.naps.push((at, call));
        }
    }
}
