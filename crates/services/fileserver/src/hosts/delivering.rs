//! Sending of messages to clients.
//!
//! Anyone can have many hosts that hold promises and do not answer, and a change waits for all of them. So each thread sends several
//! messages before it waits for the answers, like OpenAFS's file server (`MultiBreakCallBack_r`), in an order that is fair to other
//! addresses. After some time the others are sent many more at a time and waited for briefly: each gets its message
//! before the change is acknowledged, and one that does not answer is owed it.

use super::{Hosts, OwedResets};
use crate::stranger;
use afs_idl::{ClientCall, cb};
use base::{AbortCode, Monotonic};
use callbacks::{Check, Delivered, Delivery, Message};
use events::catalogue::CallbackSent;
use events::parts::Part;
use events::{Event, LINES};
use parking_lot::Mutex;
use std::collections::VecDeque;
use std::net::SocketAddr;
use std::sync::atomic::Ordering;
use std::time::Duration;

/// Maximum number of messages of one change that are waited for at a time. Clients that answer do so at about the same time.
const AT_A_TIME: usize = 512;

/// The same after [`notifying_time_max`](crate::FileServerConfig::notifying_time_max).
const AT_A_TIME_LATE: usize = 8 * 1_024;

/// Maximum number of messages that are waited for in total. Beyond it each thread sends one at a time.
const UNDER_WAY_MAX: usize = 16 * 1_024;

/// What is sent to a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    Probe,
    Message,
}

/// A delivery with a call to the client under way.
struct Sent {
    delivery: Delivery,
    patience: Duration,
    step: Step,
    then: Option<Step>,
    call: Result<Box<dyn ClientCall>, AbortCode>,
    /// Time when it began, for an event line.
    begun: Option<Monotonic>,
}

/// The state of a delivery after an answer.
enum Answered {
    /// There is another step.
    Next(Sent),
    /// The outcome, and the code of the last call.
    Ended(Delivered, Result<(), AbortCode>),
}

/// The messages of one change, or of one takeover.
struct Course<'a> {
    threads: usize,
    patience: Duration,
    /// Called for each delivery with the address of its host, and whether that has received it.
    done: &'a (dyn Fn(SocketAddr, bool) + Sync),
    /// Deliveries that have not been sent, and the addresses of their hosts. Nothing waits under the lock.
    queue: Mutex<VecDeque<(SocketAddr, Delivery)>>,
    begun: Monotonic,
}

impl Hosts {
    /// Sends one message, also to other addresses of the host if necessary. Returns whether it was received: if not, the host was
    /// removed meanwhile.
    ///
    /// # Errors
    /// The code of the last attempt, if the host has still not received it.
    pub(super) fn send(&self, delivery: Delivery, patience: Duration) -> Result<bool, AbortCode> {
        let mut sent = self.begin(delivery, patience);
        loop {
            sent = match self.follow(sent) {
                Answered::Next(next) => next,
                Answered::Ended(Delivered::Retry(next), _) => self.begin(*next, patience),
                Answered::Ended(Delivered::Done, _) => return Ok(true),
                Answered::Ended(Delivered::Forgotten, _) => return Ok(false),
                Answered::Ended(Delivered::Delayed, answer) => return answer.map(|()| false),
            };
        }
    }

    /// Sends messages to several hosts concurrently. Returns when each was delivered or abandoned.
    pub(crate) fn send_all(&self, deliveries: Vec<Delivery>) {
        if deliveries.is_empty() {
            return;
        }
        let (span, begun, clients) = (waits::enter(Part::Callback), self.clock.monotonic(), deliveries.len());
        self.send_many(deliveries, self.config.break_threads_max, self.config.break_patience, &|_, _| ());
        let time = self.clock.monotonic().since(begun);
        let ns = u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        waits::probes::callback_break(clients, ns);
        span.leave(ns);
    }

    /// Sends the resets, each within `reset_patience`. Calls `done` for each with whether it has reached its host.
    pub(crate) fn send_resets(&self, owed: OwedResets, done: &(dyn Fn(SocketAddr, bool) + Sync)) {
        self.send_many(owed.resets, self.config.reset_threads_max, self.config.reset_patience, done);
        drop(owed.takeover);
        self.reports.report();
    }

    fn send_many(
        &self,
        deliveries: Vec<Delivery>,
        threads_max: usize,
        patience: Duration,
        done: &(dyn Fn(SocketAddr, bool) + Sync),
    ) {
        let threads = deliveries.len().min(threads_max).max(1);
        let deliveries =
            if deliveries.len() > 1 { self.state.lock().in_turn(deliveries) } else { deliveries };
        let queue = Mutex::new(deliveries.into_iter().map(|delivery| (delivery.address, delivery)).collect());
        let course = Course { threads, patience, done, queue, begun: self.clock.monotonic() };
        std::thread::scope(|scope| {
            for _ in 1..threads {
                scope.spawn(|| self.work(&course));
            }
            self.work(&course);
        });
    }

    /// Sends what is in the queue, until it is empty. What goes to other addresses of clients comes last.
    fn work(&self, course: &Course<'_>) {
        loop {
            let is_late = self.clock.monotonic().since(course.begun) >= self.config.notifying_time_max;
            let (patience, at_a_time) = if is_late {
                (course.patience.min(self.config.probe_patience), AT_A_TIME_LATE)
            } else {
                (course.patience, AT_A_TIME)
            };
            let is_full = self.under_way.load(Ordering::Relaxed) >= UNDER_WAY_MAX;
            let max = if is_full { 1 } else { (at_a_time / course.threads).max(1) };
            let batch = course.take(max);
            if batch.is_empty() {
                return;
            }
            let count = batch.len();
            self.under_way.fetch_add(count, Ordering::Relaxed);
            let retries = self.send_batch(batch, patience, course);
            self.under_way.fetch_sub(count, Ordering::Relaxed);
            course.queue.lock().extend(retries);
        }
    }

    /// Sends messages, and waits for the answers. Returns what is to be sent to other addresses. A message through another node
    /// is answered or given up before the next is sent, so that few of the batch may be sent in time: the others go back.
    fn send_batch(
        &self,
        batch: Vec<(SocketAddr, Delivery)>,
        patience: Duration,
        course: &Course<'_>,
    ) -> Vec<(SocketAddr, Delivery)> {
        let (since, mut batch) = (self.clock.monotonic(), batch.into_iter());
        let (mut under_way, mut retries) = (Vec::new(), Vec::new());
        for (home, delivery) in batch.by_ref() {
            under_way.push((home, self.begin(delivery, patience)));
            if self.clock.monotonic().since(since) >= patience {
                break;
            }
        }
        course.put_back(batch);
        while !under_way.is_empty() {
            let mut next = Vec::new();
            for (home, sent) in under_way {
                match self.follow(sent) {
                    Answered::Next(sent) => next.push((home, sent)),
                    Answered::Ended(Delivered::Retry(retry), _) => retries.push((home, *retry)),
                    Answered::Ended(delivered, _) => (course.done)(home, delivered == Delivered::Done),
                }
            }
            under_way = next;
        }
        retries
    }

    fn begin(&self, delivery: Delivery, patience: Duration) -> Sent {
        let now = self.clock.monotonic();
        waits::probes::callback_send(delivery.address);
        let check = self.state.lock().check(now, &delivery);
        let (step, then) = match check {
            Check::Unneeded => (Step::Message, None),
            Check::Before => (Step::Probe, Some(Step::Message)),
            Check::After => (Step::Message, Some(Step::Probe)),
        };
        let call = self.begin_step(step, &delivery, patience);
        let begun = LINES.wants(Event::Callback).then_some(now);
        Sent { delivery, patience, step, then, call, begun }
    }

    /// Sends a message to whichever client is at its address, or a probe of the client to which it is addressed. At the host's own
    /// address the probe is waited for as long as the message would be.
    fn begin_step(
        &self,
        step: Step,
        delivery: &Delivery,
        patience: Duration,
    ) -> Result<Box<dyn ClientCall>, AbortCode> {
        let is_brief = step == Step::Probe && !delivery.is_at_home();
        let patience = if is_brief { patience.min(self.config.probe_patience) } else { patience };
        let connection = &*self.network.connection(delivery.address, patience);
        match (step, &delivery.message, delivery.uuid) {
            (Step::Probe, ..) => {
                let request = cb::ProbeUuidRequest { client_uuid: delivery.uuid.unwrap_or_default() };
                stranger::begin(connection, cb::PROBE_UUID, &request)
            }
            (Step::Message, Message::Break(fids), _) => {
                let fids = fids.iter().map(|&fid| fid.into()).collect();
                let request = cb::CallBackRequest { fids, call_backs: Vec::new() };
                stranger::begin(connection, cb::CALL_BACK, &request)
            }
            (Step::Message, Message::Reset, Some(_)) => {
                let request = cb::InitCallBackState3Request { server_uuid: self.config.uuid };
                stranger::begin(connection, cb::INIT_CALL_BACK_STATE3, &request)
            }
            (Step::Message, Message::Reset, None) => {
                stranger::begin(connection, cb::INIT_CALL_BACK_STATE, &cb::InitCallBackStateRequest)
            }
        }
    }

    /// Waits for an answer, and goes on. A client at its own address that does not implement ProbeUuid counts as there.
    fn follow(&self, mut sent: Sent) -> Answered {
        // No reply to any of the calls has contents.
        let answer = match sent.call.and_then(ClientCall::finish) {
            Err(AbortCode::RXGEN_OPCODE) if sent.step == Step::Probe && sent.delivery.is_at_home() => Ok(()),
            answer => answer,
        };
        if answer.is_ok()
            && let Some(step) = sent.then.take()
        {
            let call = self.begin_step(step, &sent.delivery, sent.patience);
            return Answered::Next(Sent { step, call, ..sent });
        }
        let delivered = self.report(&sent.delivery, answer, sent.begun);
        Answered::Ended(delivered, answer)
    }

    /// Reports the result of a delivery, and returns how to proceed.
    fn report(
        &self,
        delivery: &Delivery,
        answer: Result<(), AbortCode>,
        begun: Option<Monotonic>,
    ) -> Delivered {
        let address = delivery.address;
        if let Err(code) = answer {
            tracing::info!(%address, %code, "a client was not reached; it will be notified later");
        }
        let delivered = self.state.lock().delivered(delivery, answer.is_ok());
        self.reports.report();
        let outcome = outcome(&delivered);
        waits::probes::callback_end(address, outcome.unwrap_or("elsewhere"));
        if let (Some(begun), Some(outcome)) = (begun, outcome) {
            self.leave_line(delivery, outcome, begun);
        }
        delivered
    }

    /// Writes an event line about a message that was delivered or abandoned.
    #[cold]
    fn leave_line(&self, delivery: &Delivery, outcome: &'static str, begun: Monotonic) {
        let time = u64::try_from(self.clock.monotonic().since(begun).as_nanos()).unwrap_or(u64::MAX);
        LINES.log(&CallbackSent { client: delivery.address.to_string(), outcome, time }, Vec::new);
    }
}

impl Course<'_> {
    /// Takes the share of one thread, but at most `max` deliveries.
    fn take(&self, max: usize) -> Vec<(SocketAddr, Delivery)> {
        let mut queue = self.queue.lock();
        let count = queue.len().div_ceil(self.threads).min(max);
        queue.drain(..count).collect()
    }

    /// Puts deliveries back that were taken, and not sent.
    fn put_back(&self, deliveries: impl DoubleEndedIterator<Item = (SocketAddr, Delivery)>) {
        let mut queue = self.queue.lock();
        deliveries.rev().for_each(|delivery| queue.push_front(delivery));
    }
}

/// Returns the name of a message's outcome, or `None` if it goes to another address next.
fn outcome(delivered: &Delivered) -> Option<&'static str> {
    match delivered {
        Delivered::Done => Some("delivered"),
        Delivered::Delayed | Delivered::Forgotten => Some("unanswered"),
        Delivered::Retry(_) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::FileServerConfig;
    use crate::environment::{CallbackNetwork, Clock};
    use afs_idl::{CallStream, ClientConnection};
    use base::{HostUuid, VnodeId, VolumeId};
    use bytes::Bytes;
    use callbacks::{Arrival, Asked, CallbackKind, Identification, Task};
    use std::sync::Arc;
    use std::sync::atomic::AtomicU64;

    /// Number of clients at one address that do not answer.
    const SILENT: u16 = 5_000;

    /// Clients, and a clock on which time passes only while a silent client is waited for.
    #[derive(Default)]
    struct Clients {
        now: AtomicU64,
        /// The clients that do answer.
        honest: Vec<SocketAddr>,
        /// Who was sent something, and when.
        told: Mutex<Vec<(SocketAddr, Duration)>>,
        under_way: AtomicU64,
        under_way_max: AtomicU64,
        /// Whether a call waits for its answer before its request ends, as through another node.
        is_through: bool,
    }

    struct Network(Arc<Clients>);

    struct Connection {
        clients: Arc<Clients>,
        peer: SocketAddr,
        patience: Duration,
    }

    struct Call {
        clients: Arc<Clients>,
        fails_at: Option<Monotonic>,
    }

    impl Clock for Network {
        fn monotonic(&self) -> Monotonic {
            Monotonic(self.0.now.load(Ordering::SeqCst))
        }

        fn wall(&self) -> Duration {
            Duration::ZERO
        }
    }

    impl CallbackNetwork for Network {
        fn connection(&self, peer: SocketAddr, patience: Duration) -> Arc<dyn ClientConnection> {
            Arc::new(Connection { clients: Arc::clone(&self.0), peer, patience })
        }
    }

    impl ClientConnection for Connection {
        fn begin(&self) -> Result<Box<dyn ClientCall>, AbortCode> {
            let (clients, now) = (&self.clients, Monotonic(self.clients.now.load(Ordering::SeqCst)));
            clients.told.lock().push((self.peer, now.since(Monotonic(0))));
            let under_way = clients.under_way.fetch_add(1, Ordering::SeqCst) + 1;
            clients.under_way_max.fetch_max(under_way, Ordering::SeqCst);
            let is_silent = !clients.honest.contains(&self.peer);
            let fails_at = is_silent.then_some(now + self.patience);
            Ok(Box::new(Call { clients: Arc::clone(clients), fails_at }))
        }

        fn peer(&self) -> SocketAddr {
            self.peer
        }
    }

    impl Call {
        fn answer(&self) -> Result<(), AbortCode> {
            let Some(at) = self.fails_at else { return Ok(()) };
            self.clients.now.fetch_max(at.0, Ordering::SeqCst);
            Err(AbortCode::RX_CALL_DEAD)
        }
    }

    impl Drop for Call {
        fn drop(&mut self) {
            self.clients.under_way.fetch_sub(1, Ordering::SeqCst);
        }
    }

    impl CallStream for Call {
        fn read(&mut self, _: &mut [u8]) -> Result<usize, AbortCode> {
            Ok(0)
        }

        fn read_chunk(&mut self, _: usize) -> Result<Bytes, AbortCode> {
            Ok(Bytes::new())
        }

        fn write(&mut self, _: Bytes) -> Result<(), AbortCode> {
            Ok(())
        }
    }

    impl ClientCall for Call {
        fn end_request(&mut self) -> Result<(), AbortCode> {
            if self.clients.is_through { self.answer() } else { Ok(()) }
        }

        fn finish(self: Box<Self>) -> Result<(), AbortCode> {
            self.answer()
        }
    }

    /// Returns hosts that are notified by one thread.
    fn hosts(clients: &Arc<Clients>) -> Hosts {
        let network = Arc::new(Network(Arc::clone(clients)));
        let config = FileServerConfig { break_threads_max: 1, ..FileServerConfig::default() };
        Hosts::new(network.clone(), network, Arc::new(config))
    }

    fn file() -> base::Fid {
        base::Fid { volume: VolumeId(1), vnode: VnodeId(2), unique: 1 }
    }

    fn port(number: u16) -> SocketAddr {
        SocketAddr::from(([10, 6, 6, 6], number))
    }

    /// Makes a promise to a client that calls for the first time.
    fn promise(hosts: &Hosts, peer: SocketAddr, second: u64) {
        let (now, mut state) = (Monotonic(0) + Duration::from_secs(second), hosts.state());
        assert!(matches!(state.arrive(now, peer, 1, true), Arrival::First(Task::Identify { .. })));
        let uuid = Some(HostUuid(u128::from(second).to_be_bytes()));
        let said = Asked::Known(Identification { uuid, ..Identification::default() });
        state.identified(now, peer, 1, said, true).unwrap();
        let Arrival::Ready(host) = state.arrive(now, peer, 1, true) else { panic!("{peer}") };
        state.promise(now, host, file(), CallbackKind::File);
    }

    /// The silent ones have called last.
    #[test]
    fn many_silent_clients_delay_a_change_briefly() {
        let [elsewhere, beside] = [SocketAddr::from(([10, 0, 0, 1], 7001)), port(1)];
        let clients = Arc::new(Clients { honest: vec![elsewhere, beside], ..Clients::default() });
        let hosts = hosts(&clients);
        for (second, peer) in (1..).zip([elsewhere, beside].into_iter().chain((2..SILENT + 2).map(port))) {
            promise(&hosts, peer, second);
        }
        let breaks = hosts.state().break_files(&[file()], None);
        hosts.send_all(breaks);

        let told = clients.told.lock();
        assert_eq!(told.len(), usize::from(SILENT) + 2, "each is sent its message once");
        let at = |peer| told.iter().find(|(told, _)| *told == peer).unwrap().1;
        assert_eq!(at(elsewhere), Duration::ZERO, "others of one address come later");
        // Three times 512 for four seconds, and the rest together for two.
        let took = Duration::from_nanos(clients.now.load(Ordering::SeqCst));
        assert_eq!((at(beside), took), (Duration::from_secs(12), Duration::from_secs(14)));
        assert_eq!(clients.under_way_max.load(Ordering::SeqCst), u64::from(SILENT) + 2 - 3 * 512);
        assert_eq!(hosts.under_way.load(Ordering::SeqCst), 0);
        let state = hosts.state();
        let owed = state.hosts().filter(|host| host.delayed == 1 && !host.up && host.promises == 0);
        assert_eq!(owed.count(), usize::from(SILENT));
        assert!([elsewhere, beside].iter().all(|peer| state.is_ready(*peer, 1)));
    }

    /// Other changes have too much under way.
    #[test]
    fn messages_under_way_are_limited_in_total() {
        let clients = Arc::new(Clients::default());
        let hosts = hosts(&clients);
        (1..4).for_each(|number| promise(&hosts, port(number), u64::from(number)));
        hosts.under_way.store(UNDER_WAY_MAX, Ordering::SeqCst);
        let breaks = hosts.state().break_files(&[file()], None);
        hosts.send_all(breaks);
        assert_eq!((clients.told.lock().len(), clients.under_way_max.load(Ordering::SeqCst)), (3, 1));
    }

    /// One message is waited for after the other there.
    #[test]
    fn clients_behind_other_nodes_are_waited_for_briefly_later() {
        let clients = Arc::new(Clients { is_through: true, ..Clients::default() });
        let hosts = hosts(&clients);
        (1..11).for_each(|number| promise(&hosts, port(number), u64::from(number)));
        let breaks = hosts.state().break_files(&[file()], None);
        hosts.send_all(breaks);
        // Three for four seconds each, and seven for two.
        let took = Duration::from_nanos(clients.now.load(Ordering::SeqCst));
        assert_eq!((clients.told.lock().len(), took), (10, Duration::from_secs(26)));
    }
}
