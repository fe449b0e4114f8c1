//! The threads that run services.

use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock, Weak};
use std::thread::{Builder, JoinHandle};

use base::{AbortCode, Caller};
use bytes::Bytes;
use fair_queue::{Class, Demand, Ticket, Work};
use parking_lot::Mutex;

use crate::call::CallHandle;
use crate::clock;
use crate::connector::Connector;
use crate::fairness::{Fairness, Users};
use crate::lane::{Arrivals, Arrived, Displaced, Load};
use crate::lanes::Lanes;
use crate::priority::Priority;
use crate::queue::{CallQueue, QueueLoad, Refusal};
use crate::server_call::{ServerCall, Service};
use crate::stall;
use crate::statistics::{CallCounters, CallStatistics};

/// Abort code of a call whose service panicked. Users see an input/output error.
pub(crate) const PANIC_CODE: AbortCode = AbortCode::UAEIO;

/// Abort code when too many calls wait. Clients retry after it.
const BUSY_CODE: AbortCode = AbortCode::VBUSY;

/// Limits on the number of threads and of waiting calls.
#[derive(Clone, Debug)]
pub(crate) struct WorkerLimits {
    pub(crate) threads_min: usize,
    pub(crate) threads_max: usize,
    pub(crate) fairness: Fairness,
}

/// The call queue and the threads that empty it. Threads are started on demand; `threads_min` of them stay.
pub(crate) struct WorkerPool {
    name: String,
    services: BTreeMap<u16, Arc<dyn Service>>,
    queue: CallQueue<Arrived>,
    users: Users,
    limits: WorkerLimits,
    /// The lanes that calls come from. Set once, before the first call can arrive.
    lanes: OnceLock<Weak<Lanes>>,
    threads: Mutex<Vec<JoinHandle<()>>>,
    busy: AtomicUsize,
    stopping: AtomicBool,
    priority: Priority,
    counters: CallCounters,
    /// A reference to this pool, for its threads.
    own: Weak<WorkerPool>,
}

impl WorkerPool {
    pub(crate) fn new(
        name: &str,
        services: BTreeMap<u16, Arc<dyn Service>>,
        limits: WorkerLimits,
        priority: Priority,
    ) -> Arc<WorkerPool> {
        Arc::new_cyclic(|own| WorkerPool {
            name: name.to_owned(),
            services,
            queue: CallQueue::new(limits.fairness.limits(limits.threads_max)),
            users: Users::new(&limits.fairness),
            limits,
            lanes: OnceLock::new(),
            threads: Mutex::new(Vec::new()),
            busy: AtomicUsize::new(0),
            stopping: AtomicBool::new(false),
            priority,
            counters: CallCounters::default(),
            own: Weak::clone(own),
        })
    }

    /// Connects the pool to its lanes and starts the first threads.
    pub(crate) fn start(&self, lanes: &Arc<Lanes>) {
        let fresh = self.lanes.set(Arc::downgrade(lanes)).is_ok();
        assert!(fresh, "a worker pool was started twice");
        (0..self.limits.threads_min).for_each(|_| self.add_thread());
    }

    /// Stops accepting calls and aborts those that wait.
    pub(crate) fn close(&self) {
        self.stopping.store(true, Ordering::SeqCst);
        let lanes = self.lanes.get().and_then(Weak::upgrade);
        let left = self.queue.close();
        if let Some(lanes) = lanes {
            for arrived in left {
                CallHandle::new(Arc::clone(&lanes.all()[arrived.lane]), arrived.call)
                    .abort(AbortCode::RX_RESTARTING);
            }
        }
    }

    /// Waits until all services have returned.
    pub(crate) fn join(&self) {
        let threads = std::mem::take(&mut *self.threads.lock());
        let me = std::thread::current().id();
        for thread in threads.into_iter().filter(|thread| thread.thread().id() != me) {
            // The thread itself catches panics of services.
            let _ = thread.join();
        }
    }

    pub(crate) fn statistics(&self) -> CallStatistics {
        self.counters.snapshot()
    }

    pub(crate) fn threads(&self) -> usize {
        self.threads.lock().iter().filter(|thread| !thread.is_finished()).count()
    }

    /// Returns how full the queue is.
    pub(crate) fn queue_load(&self) -> QueueLoad {
        self.queue.load()
    }

    pub(crate) fn busy(&self) -> usize {
        self.busy.load(Ordering::Relaxed)
    }

    /// Called when a worker waits for its client; see [`stall`].
    pub(crate) fn stall(&self, ticket: &mut Ticket) {
        if self.queue.stall(ticket) {
            self.add_thread();
        }
    }

    /// Called when the worker continues.
    pub(crate) fn resume(&self, ticket: &mut Ticket) {
        self.queue.resume(ticket);
    }

    fn add_thread(&self) {
        let mut threads = self.threads.lock();
        let Some(own) = self.own.upgrade() else { return };
        let threads_max = self.limits.fairness.threads_max(self.limits.threads_max);
        // Removes surplus threads that a burst of calls required and that have finished since.
        threads.retain(|thread| !thread.is_finished());
        if threads.len() >= threads_max || self.stopping.load(Ordering::SeqCst) {
            return;
        }
        let name = format!("{}-work{}", self.name, threads.len());
        match Builder::new().name(name).spawn(move || own.run()) {
            Ok(thread) => threads.push(thread),
            Err(error) => tracing::error!(%error, "no thread for a worker"),
        }
    }

    fn run(&self) {
        self.priority.begin();
        let mut done = None;
        while let Some((arrived, ticket)) = self.queue.next(done) {
            self.busy.fetch_add(1, Ordering::Relaxed);
            let own = self.own.upgrade().expect("the thread holds it");
            let is_bulk = ticket.class() == Class::Bulk;
            let (bytes, ticket) = stall::serving(own, ticket, || self.serve(arrived, is_bulk));
            self.busy.fetch_sub(1, Ordering::Relaxed);
            done = ticket.map(|ticket| (ticket, fair_queue::cost_of(bytes)));
        }
    }

    /// Serves a call and returns the number of bytes that it moved.
    fn serve(&self, arrived: Arrived, is_bulk: bool) -> u64 {
        let Some(lanes) = self.lanes.get().and_then(Weak::upgrade) else { return 0 };
        let lane = Arc::clone(&lanes.all()[arrived.lane]);
        let handle = CallHandle::begun(lane, arrived.call, arrived.request, arrived.is_whole);
        let connector = Connector::new(lanes);
        let mut call = ServerCall::new(handle, arrived.caller, arrived.service_id, connector)
            .that_waited(clock::now().since(arrived.at));
        if is_bulk {
            self.priority.be_bulk();
        }
        let result = self.run_service(&mut call);
        if is_bulk {
            // Finishing the call may run a group commit for other callers.
            self.priority.be_ordinary();
        }
        let bytes = call.bytes_moved();
        call.conclude(result);
        bytes
    }

    /// Classifies a call for the fair queue, by its caller and request.
    fn work(&self, call: &Arrived) -> Work {
        let (user, weight) = self.users.of(&call.caller);
        let [request, _] = &call.request;
        let service = self.services.get(&call.service_id);
        service.map_or(Demand::SMALL, |service| service.demand(&call.caller, request)).of(
            user,
            weight,
            Users::kind(&call.caller),
        )
    }

    fn run_service(&self, call: &mut ServerCall) -> Result<(), AbortCode> {
        let service = self.services.get(&call.service_id()).ok_or(AbortCode::RX_INVALID_OPERATION)?;
        let Ok(result) = catch_unwind(AssertUnwindSafe(|| service.serve(call))) else {
            self.counters.panicked.increment();
            let (service, caller) = (call.service_id(), call.caller());
            tracing::error!(service, ?caller, "a service panicked; aborting its call");
            return Err(PANIC_CODE);
        };
        match result {
            Ok(()) => self.counters.succeeded.increment(),
            Err(_) => self.counters.failed.increment(),
        }
        result
    }
}

impl Arrivals for WorkerPool {
    fn take(&self, call: Arrived) -> Result<Option<Displaced>, AbortCode> {
        self.counters.arrived.increment();
        match self.queue.push(self.work(&call), call) {
            Ok(pushed) => {
                if pushed.workers_wanted {
                    self.add_thread();
                }
                Ok(pushed.displaced.map(|arrived| {
                    self.counters.refused_busy.increment();
                    Displaced { lane: arrived.lane, call: arrived.call, code: BUSY_CODE }
                }))
            }
            Err(Refusal::Full) => {
                self.counters.refused_busy.increment();
                Err(BUSY_CODE)
            }
            Err(Refusal::Closed) => Err(AbortCode::RX_RESTARTING),
        }
    }

    fn try_answer(&self, call: &Arrived) -> Option<Bytes> {
        let service = self.services.get(&call.service_id)?;
        let request = call.whole_request()?;
        let answer = catch_unwind(AssertUnwindSafe(|| service.try_answer(&call.caller, request)));
        let Ok(answer) = answer else {
            self.counters.panicked.increment();
            tracing::error!(service = call.service_id, "a service panicked; retrying the call");
            return None;
        };
        if answer.is_some() {
            self.counters.arrived.increment();
            self.counters.succeeded.increment();
            self.counters.answered_at_once.increment();
        }
        answer
    }

    fn prefetch(&self, calls: &[Arrived]) {
        // Nearly all ports have a single service.
        let Some(first) = calls.first() else { return };
        let Some(service) = self.services.get(&first.service_id) else { return };
        let of_it = calls.iter().filter(|call| call.service_id == first.service_id);
        let requests: Vec<(&Caller, &[u8])> =
            of_it.filter_map(|call| Some((&call.caller, call.whole_request()?))).collect();
        if catch_unwind(AssertUnwindSafe(|| service.prefetch(&requests))).is_err() {
            self.counters.panicked.increment();
        }
    }

    fn load(&self) -> Load {
        let load = self.queue.load();
        Load { waiting: load.waiting, waited: load.waited, idle: load.idle_workers }
    }
}
