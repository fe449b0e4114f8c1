//! One host's Rx endpoint, and the calls that it makes and serves.

use crate::hub::{Hub, Outgoing};
use crate::stream::Incoming;
use base::{AbortCode, Caller, Monotonic, UnixTime};
use bytes::Bytes;
use rx_proto::{
    CallId, ConnectOptions, ConnectionId, Endpoint, EndpointConfig, Event, Path, Read, ServiceConfig, Write,
};
use rx_security::Null;
use sim::network::Datagram;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

/// A call that has begun to arrive.
pub(crate) struct Begun {
    pub(crate) call: CallId,
    pub(crate) service: u16,
    pub(crate) caller: Caller,
    pub(crate) incoming: Arc<Incoming>,
}

/// A call that this host makes.
struct Made {
    number: u64,
    call: CallId,
    request: Bytes,
    is_ended: bool,
    reply: Vec<u8>,
}

/// A call that this host serves.
struct Served {
    service: u16,
    caller: Caller,
    incoming: Arc<Incoming>,
    is_begun: bool,
}

/// Service, destination and patience of a connection.
type LineKey = (SocketAddr, u16, Option<Duration>);

/// An endpoint with its calls.
pub(crate) struct Host {
    address: SocketAddr,
    endpoint: Endpoint,
    /// Whether a call is reported when its request is whole, instead of when it has begun.
    awaits_whole: bool,
    lines: BTreeMap<LineKey, ConnectionId>,
    waiting: VecDeque<Outgoing>,
    made: Vec<Made>,
    served: BTreeMap<CallId, Served>,
    /// Served calls that may have changed.
    touched: BTreeSet<CallId>,
}

impl Host {
    pub(crate) fn new(
        address: SocketAddr,
        services: &[u16],
        awaits_whole: bool,
        seed: u64,
        now: Monotonic,
    ) -> Host {
        let mut endpoint = Endpoint::new(EndpointConfig::default(), seed, now);
        for &id in services {
            let security = vec![Arc::new(Null) as _];
            endpoint.add_service(ServiceConfig { id, name: format!("service {id}"), security });
        }
        Host {
            address,
            endpoint,
            awaits_whole,
            lines: BTreeMap::new(),
            waiting: VecDeque::new(),
            made: Vec::new(),
            served: BTreeMap::new(),
            touched: BTreeSet::new(),
        }
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    /// Makes a call as soon as a channel is free.
    pub(crate) fn make(&mut self, outgoing: Outgoing) {
        self.waiting.push_back(outgoing);
    }

    /// Answers a served call.
    pub(crate) fn answer(&mut self, now: Monotonic, call: CallId, result: Result<Bytes, AbortCode>) {
        self.served.remove(&call);
        match result {
            Ok(reply) => self.endpoint.reply(now, call, reply),
            Err(code) => {
                self.endpoint.abort(now, call, code);
                self.endpoint.release(now, call);
            }
        }
    }

    pub(crate) fn deliver(&mut self, now: Monotonic, wall: UnixTime, datagram: Datagram) {
        let path = Path { remote: datagram.from, local: Some(self.address.ip()) };
        self.endpoint.handle_datagram(now, wall, path, datagram.bytes);
    }

    pub(crate) fn next_time(&self) -> Option<Monotonic> {
        self.endpoint.poll_timeout()
    }

    pub(crate) fn run_timers(&mut self, now: Monotonic) {
        if self.endpoint.poll_timeout().is_some_and(|at| at <= now) {
            self.endpoint.handle_timeout(now);
        }
    }

    /// Moves all calls forward. Adds datagrams to send, and returns calls that have begun.
    pub(crate) fn pump(&mut self, now: Monotonic, hub: &Hub, sent: &mut Vec<Datagram>) -> Vec<Begun> {
        let mut begun = Vec::new();
        loop {
            let mut is_idle = true;
            while let Some(event) = self.endpoint.poll_event() {
                self.handle(now, event);
                is_idle = false;
            }
            self.open_waiting(now, hub);
            self.pump_made(now, hub);
            self.pump_served(now, &mut begun);
            while let Some(transmit) = self.endpoint.poll_transmit(now) {
                for datagram in transmit.datagrams() {
                    let (from, to) = (self.address, transmit.path.remote);
                    sent.push(Datagram { from, to, bytes: datagram.into() });
                }
                self.endpoint.recycle(transmit);
                is_idle = false;
            }
            if is_idle {
                return begun;
            }
        }
    }

    fn handle(&mut self, now: Monotonic, event: Event) {
        match event {
            Event::CallArrived { call, service_id, caller, .. } => {
                let incoming = Arc::new(Incoming::default());
                let served = Served { service: service_id, caller, incoming, is_begun: false };
                self.served.insert(call, served);
                self.touched.insert(call);
            }
            Event::Readable(call) => _ = self.touched.insert(call),
            Event::Failed(call, code) => {
                let Some(served) = self.served.get(&call) else { return };
                served.incoming.fail(code);
                if !served.is_begun {
                    self.endpoint.release(now, call);
                    self.served.remove(&call);
                }
            }
            Event::Writable(_)
            | Event::Ended(_)
            | Event::ChannelFree(_)
            | Event::ConnectionFailed(..)
            | Event::PathIsShort { .. } => {}
        }
    }

    fn open_waiting(&mut self, now: Monotonic, hub: &Hub) {
        for _ in 0..self.waiting.len() {
            let Some(outgoing) = self.waiting.pop_front() else { return };
            let key = (outgoing.to, outgoing.service, outgoing.patience);
            let line = match self.line(now, key) {
                Ok(line) => line,
                Err(code) => {
                    hub.end(outgoing.number, Err(code));
                    continue;
                }
            };
            match self.endpoint.open_call(now, line) {
                None => self.waiting.push_back(outgoing),
                Some(call) => self.made.push(Made {
                    number: outgoing.number,
                    call,
                    request: outgoing.request,
                    is_ended: false,
                    reply: Vec::new(),
                }),
            }
        }
    }

    /// Returns the connection of a call; a new one if there is none, or if it has failed.
    fn line(&mut self, now: Monotonic, key: LineKey) -> Result<ConnectionId, AbortCode> {
        if let Some(&line) = self.lines.get(&key) {
            if self.endpoint.connection_error(line).is_none() {
                return Ok(line);
            }
            self.endpoint.close(now, line);
        }
        let (to, service, dead_time) = key;
        let options = ConnectOptions { dead_time, ..ConnectOptions::default() };
        let line = self.endpoint.connect(now, Path::to(to), service, None, options)?;
        self.lines.insert(key, line);
        Ok(line)
    }

    fn pump_made(&mut self, now: Monotonic, hub: &Hub) {
        let endpoint = &mut self.endpoint;
        self.made.retain_mut(|made| match made.pump(now, endpoint) {
            None => true,
            Some(result) => {
                endpoint.release(now, made.call);
                hub.end(made.number, result);
                false
            }
        });
    }

    fn pump_served(&mut self, now: Monotonic, begun: &mut Vec<Begun>) {
        for call in std::mem::take(&mut self.touched) {
            let Some(served) = self.served.get_mut(&call) else { continue };
            let (mut has_data, mut is_whole) = (false, false);
            loop {
                match self.endpoint.read(now, call) {
                    Read::Data(piece) => {
                        served.incoming.put(piece);
                        has_data = true;
                    }
                    Read::Blocked => break,
                    Read::End => {
                        served.incoming.end();
                        is_whole = true;
                        break;
                    }
                    Read::Failed(code) => {
                        served.incoming.fail(code);
                        break;
                    }
                }
            }
            if !served.is_begun && (is_whole || has_data && !self.awaits_whole) {
                served.is_begun = true;
                begun.push(Begun {
                    call,
                    service: served.service,
                    caller: served.caller.clone(),
                    incoming: Arc::clone(&served.incoming),
                });
            }
        }
    }
}

impl Made {
    /// Writes and reads as far as possible. Returns the result once there is one.
    fn pump(&mut self, now: Monotonic, endpoint: &mut Endpoint) -> Option<Result<Bytes, AbortCode>> {
        while !self.request.is_empty() {
            match endpoint.write(now, self.call, &mut self.request) {
                Write::Accepted(_) => {}
                Write::Blocked => break,
                Write::Failed(code) => return Some(Err(code)),
            }
        }
        if self.request.is_empty() && !self.is_ended {
            self.is_ended = true;
            endpoint.end(now, self.call);
        }
        loop {
            match endpoint.read(now, self.call) {
                Read::Data(piece) => self.reply.extend_from_slice(&piece),
                Read::Blocked => return None,
                Read::End => return Some(Ok(std::mem::take(&mut self.reply).into())),
                Read::Failed(code) => return Some(Err(code)),
            }
        }
    }
}
