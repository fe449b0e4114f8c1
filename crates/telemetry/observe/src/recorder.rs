//! Records every call when it has ended.

use crate::pair::PairFigures;
use crate::sheet::{Sheet, call_sheet};
use crate::slow::{SlowCall, SlowCalls};
use base::{AbortCode, CallFacts, Caller, Identity, UnixTime};
use events::catalogue::{CallEnded, CallFigures, Class, UsageFigures};
use events::parts::PARTS;
use events::table::Place;
use events::{Event, FieldValue, Figures, LINES, Sharded, Table};
use parking_lot::RwLock;
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::Duration;
use waits::Called;

/// Maximum number of rows for volumes, for clients, and for clients of volumes, per serving thread.
const ROWS_MAX: usize = 512;

/// Interval at which [`Recorder::next_period`] is to be called.
pub const PERIOD: Duration = Duration::from_secs(16);

/// Maximum number of rows in the sum over all threads.
const SUM_ROWS_MAX: usize = 4096;

/// A client: a user at a host.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ClientKey {
    /// Address of the host.
    pub host: IpAddr,
    /// Identity of the user.
    pub user: Identity,
}

/// A client of a volume.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct PairKey {
    /// Volume id.
    pub volume: u32,
    /// The client.
    pub client: ClientKey,
}

/// A procedure whose calls are counted together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Procedure {
    /// Name of the service.
    pub service: &'static str,
    /// Name of the procedure.
    pub name: &'static str,
    /// Class of its calls.
    pub class: Class,
}

/// Name for calls of procedures that the service does not have.
const UNKNOWN: &str = "unknown";

/// A call that has ended.
#[derive(Clone, Copy, Debug)]
pub struct Ended {
    /// Opcode, from the start of the request.
    pub opcode: u32,
    /// Success or abort code.
    pub result: Result<(), AbortCode>,
    /// Whether the receiving thread answered it.
    pub fast_path: bool,
    /// Bytes of the request that the service read.
    pub received: u64,
    /// Bytes of the reply that it wrote.
    pub sent: u64,
    /// Time spent waiting for a worker.
    pub wait_ns: u64,
    /// Time spent serving it.
    pub run_ns: u64,
    /// Nanoseconds spent in each of [`PARTS`].
    pub parts_ns: [u64; PARTS.len()],
}

/// Counts calls. Any thread may add calls; each thread's counts are kept separately and combined on request.
#[derive(Debug, Default)]
pub struct Recorder {
    shards: Sharded<Shard>,
    /// Guards the list of procedures, which grows only while services are created.
    procedures: RwLock<Vec<Procedure>>,
    slow: SlowCalls,
    /// Minimum duration of a slow call in nanoseconds; 0 if slow calls are not kept.
    slow_from_ns: AtomicU64,
    /// Number of completed periods. Read by every call, together with `slow_from_ns`; changes once per
    /// [`PERIOD`].
    periods: AtomicU64,
    /// Whether counting is off, to measure its cost.
    is_off: AtomicBool,
}

#[derive(Debug, Default)]
struct Shard {
    /// Figures by procedure number.
    calls: Vec<CallFigures>,
    usage: Option<Usage>,
}

/// Figures of volumes and clients. A call is added only to the row of its procedure, client and volume. The
/// figures of a volume or client are the sum of such rows, computed on request, and of rows that were settled
/// when they were displaced.
#[derive(Clone, Debug)]
struct Usage {
    volumes: Table<u32, UsageFigures>,
    clients: Table<ClientKey, UsageFigures>,
    pairs: Table<PairKey, PairFigures>,
    /// Positions of recently used rows, by connection and volume: calls come in runs, and finding a row costs
    /// more than adding to it. Only a hint: the row's key is checked.
    lately: [Option<Place>; LATELY],
}

/// Must be a power of two.
const LATELY: usize = 64;

impl Usage {
    fn new(rows_max: usize) -> Usage {
        let (volumes, clients, pairs) = (Table::new(rows_max), Table::new(rows_max), Table::new(rows_max));
        Usage { volumes, clients, pairs, lately: [None; LATELY] }
    }

    /// Merges a thread's figures into the sum of all threads. All rows are settled here, so rows displaced
    /// from the sum need not be.
    fn merge(&mut self, other: &Usage) {
        self.volumes.merge(&other.volumes);
        self.clients.merge(&other.clients);
        other.pairs.rows().for_each(|(key, row)| settle(&mut self.volumes, &mut self.clients, key, row));
        self.pairs.merge(&other.pairs);
    }

    /// Starts a period.
    fn begin(&mut self, period: u64) {
        let begin = |row: &mut UsageFigures| {
            row.longest.begin(period);
            row.data_longest.begin(period);
        };
        self.volumes.each_mut(begin);
        self.clients.each_mut(begin);
        self.pairs.each_mut(|row| row.each_mut(begin));
    }

    fn record(&mut self, volume: u32, caller: &Caller, call: &Counted<'_>) {
        let slot = slot(caller.connection.number(), volume);
        if self.lately[slot].is_some_and(|place| self.add_at(place, volume, caller, call)) {
            return;
        }
        let (host, user) = (caller.peer.ip(), &caller.identity);
        let key = || PairKey { volume, client: ClientKey { host, user: user.clone() } };
        let let_go =
            |key: &PairKey, row: &PairFigures| settle(&mut self.volumes, &mut self.clients, key, row);
        let place = self.pairs.place_of(&(volume, (host, user)), key, let_go);
        self.lately[slot] = Some(place);
        if !self.add_at(place, volume, caller, call) {
            // Two keys have the same hash: the call counts towards the common row in all tables.
            self.lately[slot] = None;
            for others in [self.volumes.others_mut(), self.clients.others_mut()] {
                add(others, call);
            }
            add(self.pairs.others_mut().of_procedure(call.number), call);
        }
    }

    /// Adds to the row at this position; returns false and adds nothing if it is not the call's row.
    fn add_at(&mut self, place: Place, volume: u32, caller: &Caller, call: &Counted<'_>) -> bool {
        let Some((key, row)) = self.pairs.at(place) else { return false };
        let PairKey { volume: own, client } = key;
        if *own != volume || client.host != caller.peer.ip() || client.user != caller.identity {
            return false;
        }
        add(row.of_procedure(call.number), call);
        true
    }
}

/// Returns the index in [`Usage::lately`] for a connection and a volume. The numbers of both increase in
/// steps, which must not collide: the upper bits of a product depend on all bits (Fibonacci hashing).
fn slot(connection: u64, volume: u32) -> usize {
    let mixed = connection.wrapping_add(u64::from(volume) << 32).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    (mixed >> (u64::BITS - LATELY.trailing_zeros())) as usize
}

/// Adds a displaced row of a client and volume to the totals of the client and of the volume.
fn settle(
    volumes: &mut Table<u32, UsageFigures>,
    clients: &mut Table<ClientKey, UsageFigures>,
    key: &PairKey,
    row: &PairFigures,
) {
    let usage = row.usage();
    volumes.row(&key.volume).add(&usage);
    clients.row(&key.client).add(&usage);
}

/// A call with derived data.
struct Counted<'a> {
    call: &'a Ended,
    class: Class,
    /// Number of its procedure.
    number: usize,
    /// Period in which it ended.
    period: u64,
}

fn add(row: &mut UsageFigures, counted: &Counted<'_>) {
    let Counted { call, class, period, .. } = *counted;
    row.calls += 1;
    row.classes[class as usize] += 1;
    row.failed += u64::from(call.result.is_err());
    row.received += call.received;
    row.sent += call.sent;
    row.wait += call.wait_ns;
    row.run += call.run_ns;
    let total_ns = call.wait_ns.saturating_add(call.run_ns);
    row.longest.record(total_ns, period);
    if matches!(class, Class::Fetch | Class::Store) {
        row.data += call.received.saturating_add(call.sent);
        row.data_time += total_ns;
        row.data_longest.record(total_ns, period);
    }
}

impl Shard {
    fn record(&mut self, number: usize, call: &CallEnded) {
        if self.calls.len() <= number {
            self.calls.resize_with(number + 1, CallFigures::default);
        }
        self.calls[number].count(call);
    }
}

impl Recorder {
    /// Returns the interface for a service, whose procedures are given sorted by opcode. A service on several
    /// ports is counted as one.
    pub fn service(
        self: &Arc<Self>,
        name: &'static str,
        procedures: &'static [(u32, &'static str)],
        class: fn(u32) -> Class,
    ) -> ServiceMeter {
        let mut all = self.procedures.write();
        let known = all.iter().position(|procedure| procedure.service == name);
        let first = known.unwrap_or(all.len());
        if known.is_none() {
            let of = |&(opcode, text): &(u32, &'static str)| Procedure {
                service: name,
                name: text,
                class: class(opcode),
            };
            all.extend(procedures.iter().map(of));
            all.push(Procedure { service: name, name: UNKNOWN, class: Class::Other });
        }
        ServiceMeter { recorder: Arc::clone(self), name, procedures, class, first }
    }

    /// Keeps calls that take at least `from_ns` nanoseconds from now on; 0 keeps none.
    pub fn remember_slow(&self, from_ns: u64) {
        self.slow_from_ns.store(from_ns, Relaxed);
    }

    /// Turns counting on or off. It is on unless its cost is being measured.
    pub fn count(&self, is_on: bool) {
        self.is_off.store(!is_on, Relaxed);
    }

    /// Starts the next period, which separates the longest calls so far from those that end from now on.
    pub fn next_period(&self) {
        self.periods.fetch_add(1, Relaxed);
    }

    fn period(&self) -> u64 {
        self.periods.load(Relaxed) + 1
    }

    /// Returns the minimum duration of slow calls in nanoseconds; 0 if they are not kept.
    pub fn slow_from_ns(&self) -> u64 {
        self.slow_from_ns.load(Relaxed)
    }

    /// Returns the most recent slow calls, the oldest first, each with its number, which starts at 1.
    pub fn slow_calls(&self) -> Vec<(u64, SlowCall)> {
        self.slow.all()
    }

    /// Returns the calls counted so far, without usage by volume and client, which takes much longer to sum
    /// up.
    pub fn calls(&self) -> Sheet<CallFigures> {
        let procedures = self.procedures.read().clone();
        let mut calls = vec![CallFigures::default(); procedures.len()];
        self.shards.each(|shard| add_calls(&mut calls, shard));
        call_sheet(&called(procedures, calls))
    }

    /// Returns everything counted so far.
    pub fn snapshot(&self) -> Snapshot {
        let procedures = self.procedures.read().clone();
        let names = procedures.clone();
        let mut calls = vec![CallFigures::default(); procedures.len()];
        let mut usage = Usage::new(SUM_ROWS_MAX);
        self.shards.each(|shard| {
            add_calls(&mut calls, shard);
            shard.usage.iter().for_each(|part| usage.merge(part));
        });
        usage.begin(self.period());
        let calls = called(procedures, calls);
        Snapshot {
            procedures: names,
            calls,
            volumes: usage.volumes,
            clients: usage.clients,
            pairs: usage.pairs,
        }
    }
}

fn add_calls(calls: &mut [CallFigures], shard: &Shard) {
    for (sum, part) in calls.iter_mut().zip(&shard.calls) {
        sum.add(part);
    }
}

/// Returns the procedures that were called.
fn called(procedures: Vec<Procedure>, calls: Vec<CallFigures>) -> Vec<(Procedure, CallFigures)> {
    procedures.into_iter().zip(calls).filter(|(_, figures)| figures.calls > 0).collect()
}

/// A service's interface to the [`Recorder`].
#[derive(Clone, Debug)]
pub struct ServiceMeter {
    recorder: Arc<Recorder>,
    name: &'static str,
    procedures: &'static [(u32, &'static str)],
    class: fn(u32) -> Class,
    first: usize,
}

impl ServiceMeter {
    /// Returns the service's name.
    pub fn name(&self) -> &'static str {
        self.name
    }

    /// Whether calls are counted; see [`Recorder::count`].
    pub fn is_counting(&self) -> bool {
        !self.recorder.is_off.load(Relaxed)
    }

    /// Starts a call on this thread.
    pub fn begin(&self) {
        if self.is_counting() {
            waits::begin(self.name, self.procedures);
        }
    }

    /// Counts a call that has ended, with the facts recorded about it. `now` is called only if it was slow.
    pub fn ended(&self, caller: &Caller, facts: &CallFacts, call: &Ended, now: fn() -> UnixTime) {
        if !self.is_counting() {
            return;
        }
        let volume = facts.volume;
        let found = self.procedures.binary_search_by_key(&call.opcode, |(opcode, _)| *opcode);
        let number = self.first + found.unwrap_or(self.procedures.len());
        let class = (self.class)(call.opcode);
        let procedure = found.map_or(UNKNOWN, |index| self.procedures[index].1);
        self.notify(procedure, facts, call);
        if LINES.wants(Event::Call) {
            self.leave_line(procedure, caller, facts, call);
        }
        let period = self.recorder.period();
        let mut shard = self.recorder.shards.mine();
        shard.record(number, &self.event(procedure, facts, call));
        let counted = Counted { call, class, number, period };
        shard.usage.get_or_insert_with(|| Usage::new(ROWS_MAX)).record(volume, caller, &counted);
        drop(shard);
        let total_ns = call.wait_ns.saturating_add(call.run_ns);
        let from_ns = self.recorder.slow_from_ns();
        if from_ns > 0 && total_ns >= from_ns {
            self.remember(caller, facts, call, number, now());
        }
    }

    /// Notifies tracers and the profiler.
    fn notify(&self, procedure: &'static str, facts: &CallFacts, call: &Ended) {
        let code = call.result.map_or_else(|code| code.0, |()| 0);
        let total_ns = call.wait_ns.saturating_add(call.run_ns);
        let bytes = call.received.saturating_add(call.sent);
        waits::probes::call_end(procedure, facts.volume, code, total_ns, bytes);
        waits::called(&Called { service: self.name, procedure, total_ns, parts_ns: call.parts_ns });
    }

    /// Built a second time for a log line, so that plain counting keeps none in memory.
    #[inline]
    fn event(&self, procedure: &'static str, facts: &CallFacts, call: &Ended) -> CallEnded {
        CallEnded {
            service: self.name,
            procedure,
            volume: facts.volume.into(),
            outcome: crate::outcome(call.result),
            code: call.result.map_or_else(|code| code.0, |()| 0),
            fast_path: call.fast_path.into(),
            received: call.received,
            sent: call.sent,
            wait: call.wait_ns,
            run: call.run_ns,
        }
    }

    #[cold]
    fn leave_line(&self, procedure: &'static str, caller: &Caller, facts: &CallFacts, call: &Ended) {
        let who = || {
            let [host, user] = ClientKey { host: caller.peer.ip(), user: caller.identity.clone() }.labels();
            vec![("host", FieldValue::from(host)), ("user", FieldValue::from(user))]
        };
        LINES.log(&self.event(procedure, facts, call), who);
    }

    fn remember(&self, caller: &Caller, facts: &CallFacts, call: &Ended, number: usize, ended: UnixTime) {
        let Some(procedure) = self.recorder.procedures.read().get(number).copied() else { return };
        self.recorder.slow.push(SlowCall {
            ended,
            procedure,
            client: ClientKey { host: caller.peer.ip(), user: caller.identity.clone() },
            volume: facts.volume,
            result: call.result,
            received: call.received,
            sent: call.sent,
            total_ns: call.wait_ns.saturating_add(call.run_ns),
            parts_ns: call.parts_ns,
        });
    }
}

/// All calls up to one moment. All tables cover the same calls.
#[derive(Clone, Debug)]
pub struct Snapshot {
    /// All procedures, indexed by the numbers in [`PairFigures`].
    pub procedures: Vec<Procedure>,
    /// Procedures that were called.
    pub calls: Vec<(Procedure, CallFigures)>,
    /// By volume; 0 stands for calls that used none.
    pub volumes: Table<u32, UsageFigures>,
    /// By user and host.
    pub clients: Table<ClientKey, UsageFigures>,
    /// By user, host and volume.
    pub pairs: Table<PairKey, PairFigures>,
}
