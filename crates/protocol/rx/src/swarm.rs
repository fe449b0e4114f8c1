//! Many ports driven by one thread, for programs that simulate thousands of clients.

use std::collections::{BTreeSet, VecDeque};
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::OwnedFd;

use base::Monotonic;
use rustix::event::{Timespec, epoll};
use rx_proto::{Endpoint, EndpointConfig, Event, ServiceConfig, Statistics, Transmit};

use crate::gather::Gather;
use crate::socket::{Datagrams, LaneSocket, Receiver, SocketOptions};
use crate::statistics::{LaneCounters, LaneStatistics};
use crate::{clock, sys};

/// Configuration of a swarm.
#[derive(Clone, Debug)]
pub struct SwarmConfig {
    /// The address of each port. Each port gets a free port number and its own endpoint.
    pub addresses: Vec<IpAddr>,
    /// Socket buffers and offloads.
    pub socket: SocketOptions,
    /// Protocol configuration.
    pub endpoint: EndpointConfig,
    /// The services of every endpoint.
    pub services: Vec<ServiceConfig>,
}

/// Ports and their endpoints, driven by the thread that owns the swarm:
///
/// 1. use any [`Swarm::endpoint`];
/// 2. call [`Swarm::next_event`] until it returns `None`, at which point everything has been sent;
/// 3. call [`Swarm::wait`] and continue with 2.
///
/// Only `wait` blocks. [`Endpoint`] documents the events.
pub struct Swarm {
    ports: Vec<Port>,
    epoll: OwnedFd,
    ready: Vec<epoll::Event>,
    receiver: Receiver,
    datagrams: Vec<Datagrams>,
    batch: Vec<Transmit>,
    /// The allocation of the last batch, for reuse.
    unused: Gather<'static>,
    counters: LaneCounters,
    /// Ports that may have events or datagrams to send.
    touched: VecDeque<usize>,
    deadlines: BTreeSet<(Monotonic, usize)>,
}

struct Port {
    socket: LaneSocket,
    endpoint: Endpoint,
    is_touched: bool,
    /// The deadline under which the port is listed in [`Swarm::deadlines`].
    deadline: Option<Monotonic>,
}

/// Maximum number of ready ports that one wait returns.
const READY_MAX: usize = 256;

impl Swarm {
    /// Binds the ports.
    ///
    /// # Errors
    /// System errors, most likely the limit on open files.
    pub fn new(config: &SwarmConfig) -> io::Result<Swarm> {
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        let mut ports = Vec::with_capacity(config.addresses.len());
        for (number, address) in config.addresses.iter().enumerate() {
            let socket = LaneSocket::bind_alone(SocketAddr::new(*address, 0), &config.socket)?;
            let data = epoll::EventData::new_u64(number as u64);
            epoll::add(&epoll, &socket, data, epoll::EventFlags::IN)?;
            let mut endpoint = Endpoint::new(config.endpoint.clone(), sys::random_seed()?, clock::now());
            config.services.iter().for_each(|service| endpoint.add_service(service.clone()));
            ports.push(Port { socket, endpoint, is_touched: false, deadline: None });
        }
        Ok(Swarm {
            ports,
            epoll,
            ready: Vec::with_capacity(READY_MAX),
            receiver: Receiver::new(),
            datagrams: Vec::new(),
            batch: Vec::new(),
            unused: Gather::default(),
            counters: LaneCounters::default(),
            touched: VecDeque::new(),
            deadlines: BTreeSet::new(),
        })
    }

    /// Returns the time to pass to endpoints. All swarms of the process use the same clock.
    pub fn now() -> Monotonic {
        clock::now()
    }

    /// Returns the endpoint of port `port`, counted from 0. All its methods may be used.
    pub fn endpoint(&mut self, port: usize) -> &mut Endpoint {
        self.touch(port);
        &mut self.ports[port].endpoint
    }

    /// Returns the next event of any port. Sends the pending datagrams of the ports that it visits first.
    pub fn next_event(&mut self) -> Option<(usize, Event)> {
        while let Some(&port) = self.touched.front() {
            if let Some(event) = self.ports[port].endpoint.poll_event() {
                return Some((port, event));
            }
            if !self.send(port) {
                self.touched.pop_front();
                self.ports[port].is_touched = false;
                self.note_deadline(port);
            }
        }
        None
    }

    /// Waits until a datagram arrives for any port, a timer expires, or `until`. To be called when there are
    /// no events.
    ///
    /// # Errors
    /// System errors; none is expected.
    pub fn wait(&mut self, until: Monotonic) -> io::Result<()> {
        let first = self.deadlines.first().map_or(until, |(at, _)| until.min(*at));
        let span = first.since(clock::now());
        let timeout = Timespec {
            tv_sec: i64::try_from(span.as_secs()).unwrap_or(i64::MAX),
            tv_nsec: i64::from(span.subsec_nanos() as i32),
        };
        self.ready.clear();
        match epoll::wait(&self.epoll, rustix::buffer::spare_capacity(&mut self.ready), Some(&timeout)) {
            Err(error) if error != rustix::io::Errno::INTR => return Err(error.into()),
            _ => {}
        }
        for index in 0..self.ready.len() {
            self.receive(self.ready[index].data.u64() as usize);
        }
        self.run_timers();
        Ok(())
    }

    /// Returns the summed counters of all endpoints.
    pub fn endpoint_statistics(&self) -> Statistics {
        let mut sum = Statistics::default();
        self.ports.iter().for_each(|port| sum += port.endpoint.statistics());
        sum
    }

    /// Returns the summed counters of all sockets.
    pub fn statistics(&self) -> LaneStatistics {
        let kernel_drops = self.ports.iter().map(|port| u64::from(port.socket.kernel_drops())).sum();
        LaneStatistics { kernel_drops, ..self.counters.snapshot() }
    }

    fn touch(&mut self, port: usize) {
        if !std::mem::replace(&mut self.ports[port].is_touched, true) {
            self.touched.push_back(port);
        }
    }

    /// Sends an endpoint's pending datagrams. Returns false if there were none.
    fn send(&mut self, port: usize) -> bool {
        let Port { socket, endpoint, .. } = &mut self.ports[port];
        let now = clock::now();
        while let Some(notice) = socket.notice() {
            notice.report(now, endpoint);
        }
        while let Some(transmit) = endpoint.poll_transmit(now) {
            self.batch.push(transmit);
        }
        if self.batch.is_empty() {
            return false;
        }
        let mut gather: Gather<'_> = std::mem::take(&mut self.unused);
        self.batch.iter().for_each(|transmit| gather.push(transmit));
        socket.send(&gather, &self.counters);
        self.unused = Gather::reuse(gather);
        self.batch.drain(..).for_each(|sent| endpoint.recycle(sent));
        true
    }

    fn note_deadline(&mut self, port: usize) {
        let Port { endpoint, deadline, .. } = &mut self.ports[port];
        let next = endpoint.poll_timeout();
        if *deadline == next {
            return;
        }
        if let Some(old) = deadline.take() {
            self.deadlines.remove(&(old, port));
        }
        if let Some(at) = next {
            self.deadlines.insert((at, port));
        }
        *deadline = next;
    }

    fn receive(&mut self, port: usize) {
        let datagrams = &mut self.datagrams;
        let Port { socket, endpoint, .. } = &mut self.ports[port];
        if !socket.receive(&mut self.receiver, &self.counters, &mut |received| datagrams.push(received)) {
            socket.fetch_errors(&self.counters);
        }
        let (now, wall) = (clock::now(), clock::wall());
        for Datagrams { path, data, segment_bytes } in datagrams.drain(..) {
            endpoint.handle_run(now, wall, path, data, segment_bytes);
        }
        self.touch(port);
    }

    fn run_timers(&mut self) {
        let now = clock::now();
        while let Some(&(at, port)) = self.deadlines.first()
            && at <= now
        {
            self.deadlines.pop_first();
            self.ports[port].deadline = None;
            self.ports[port].endpoint.handle_timeout(now);
            self.touch(port);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Server, ServerCall, ServerConfig, Service, ServiceEntry};
    use afs_idl::CallStream;
    use base::AbortCode;
    use bytes::Bytes;
    use rx_proto::{CallId, ConnectOptions, Path, Read};
    use rx_security::{Null, ServerSecurity};
    use std::collections::HashMap;
    use std::sync::Arc;
    use std::time::Duration;

    struct Echo;

    impl Service for Echo {
        fn serve(&self, call: &mut ServerCall) -> Result<(), AbortCode> {
            let mut all = Vec::new();
            loop {
                match call.read_chunk(usize::MAX)? {
                    piece if piece.is_empty() => break,
                    piece => all.extend_from_slice(&piece),
                }
            }
            call.write(all.into())
        }
    }

    fn swarm(ports: usize) -> Swarm {
        Swarm::new(&SwarmConfig {
            addresses: vec![[127, 0, 0, 1].into(); ports],
            socket: SocketOptions { buffer_bytes: 1 << 20, ..SocketOptions::default() },
            endpoint: EndpointConfig::default(),
            services: Vec::new(),
        })
        .unwrap()
    }

    #[test]
    fn many_clients_of_one_thread() {
        let security: Vec<Arc<dyn ServerSecurity>> = vec![Arc::new(Null)];
        let entry = ServiceEntry {
            config: ServiceConfig { id: 5, name: "echo".into(), security },
            service: Arc::new(Echo),
        };
        let server = Server::start(&ServerConfig::default(), vec![entry]).unwrap();
        let to = Path::to(SocketAddr::from(([127, 0, 0, 1], server.addresses()[0].port())));
        let mut swarm = swarm(20);
        let text = |port: usize| vec![port as u8; port * 1000 + 1];
        let mut open: HashMap<(usize, CallId), Vec<u8>> = HashMap::new();
        for port in 0..20 {
            let (now, endpoint) = (Swarm::now(), swarm.endpoint(port));
            let connection = endpoint.connect(now, to, 5, None, ConnectOptions::default()).unwrap();
            let call = endpoint.open_call(now, connection).unwrap();
            let mut data = Bytes::from(text(port));
            endpoint.write(now, call, &mut data);
            assert!(data.is_empty(), "the send queue has room");
            endpoint.end(now, call);
            assert_eq!(endpoint.read(now, call), Read::Blocked);
            open.insert((port, call), Vec::new());
        }
        let limit = Swarm::now() + Duration::from_secs(60);
        while !open.is_empty() && Swarm::now() < limit {
            while let Some((port, event)) = swarm.next_event() {
                let Event::Readable(call) = event else { continue };
                loop {
                    match swarm.endpoint(port).read(Swarm::now(), call) {
                        Read::Data(data) => open.get_mut(&(port, call)).unwrap().extend_from_slice(&data),
                        Read::Blocked => break,
                        Read::End => {
                            assert_eq!(open.remove(&(port, call)), Some(text(port)));
                            swarm.endpoint(port).release(Swarm::now(), call);
                            break;
                        }
                        Read::Failed(code) => panic!("{code:?}"),
                    }
                }
            }
            if !open.is_empty() {
                swarm.wait(limit).unwrap();
            }
        }
        assert!(open.is_empty(), "all were answered");
        assert_eq!(swarm.endpoint_statistics().calls_opened, 20);
        assert!(swarm.statistics().datagrams_received >= 20);
    }

    #[test]
    fn nothing_comes_and_the_wait_ends() {
        let mut swarm = swarm(1);
        swarm.wait(Swarm::now() + Duration::from_millis(5)).unwrap();
        assert!(swarm.next_event().is_none());
    }
}
