//! Everything that happens in a history, in the order of real time.

mod calls;
mod clients;
mod shells;
mod ways;

use super::bucket::Bucket;
use super::client::{Call, Client, Reply};
use super::clock::{Clock, MS, SECOND};
use super::database::{Contents, Database, Record};
use super::node::Node;
use super::{Mood, Sabotage};
use base::Monotonic;
use cluster_proto::{Answer, CallKind, Epoch, NodeName, Operation, PartitionName, RequestId, Reset};
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use std::collections::{BTreeMap, BTreeSet};
use ways::Way;

const CLIENTS: usize = 3;
const FILES: usize = 2;
/// When the faults end.
const HEALED_AT: u64 = 90 * SECOND;
/// How long it may take until every partition is served after that: a lease that has to end, renewals that have to be
/// repeated, one database that does not open before.
const RECOVERY: u64 = 30 * SECOND;
/// When clients begin no further calls.
const QUIET_AT: u64 = HEALED_AT + 40 * SECOND;
const END_AT: u64 = QUIET_AT + 30 * SECOND;
/// How long a client waits for a reply.
const CALL_LIMIT: u64 = 25 * SECOND;
/// How long a node tries to reach a client.
const REACH_LIMIT: u64 = 3 * SECOND;

/// What a history covered.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Report {
    pub events: u64,
    pub renewals: u64,
    pub lapses: u64,
    pub resumes: u64,
    pub losses: u64,
    pub evictions: u64,
    pub takeovers: u64,
    pub moves: u64,
    pub stalls: u64,
    pub crashes: u64,
    pub outages: u64,
    pub partings: u64,
    pub changes: u64,
    pub repeats: u64,
    pub reads: u64,
    pub cached_reads: u64,
    pub excused: u64,
    pub forwards: u64,
    pub resets: u64,
    pub breaks: u64,
    pub fenced: u64,
    pub late_writes: u64,
    pub forgotten: u64,
    /// Longest time without a serving owner after the faults have ended, in milliseconds; the maximum in a sum.
    pub recovery_ms: u64,
}

impl std::ops::AddAssign for Report {
    fn add_assign(&mut self, other: Report) {
        self.events += other.events;
        self.renewals += other.renewals;
        self.lapses += other.lapses;
        self.resumes += other.resumes;
        self.losses += other.losses;
        self.evictions += other.evictions;
        self.takeovers += other.takeovers;
        self.moves += other.moves;
        self.stalls += other.stalls;
        self.crashes += other.crashes;
        self.outages += other.outages;
        self.partings += other.partings;
        self.changes += other.changes;
        self.repeats += other.repeats;
        self.reads += other.reads;
        self.cached_reads += other.cached_reads;
        self.excused += other.excused;
        self.forwards += other.forwards;
        self.resets += other.resets;
        self.breaks += other.breaks;
        self.fenced += other.fenced;
        self.late_writes += other.late_writes;
        self.forgotten += other.forgotten;
        self.recovery_ms = self.recovery_ms.max(other.recovery_ms);
    }
}

/// What happens.
#[derive(Clone, Debug)]
pub(crate) enum Event {
    Timer {
        at: u64,
    },
    Answered(RequestId, Answer),
    Opened {
        partition: usize,
        epoch: Epoch,
        writer: u64,
        contents: Option<Box<Contents>>,
    },
    Committed {
        partition: usize,
        writer: u64,
        record: Record,
        is_done: bool,
    },
    ResetDone {
        partition: usize,
        epoch: Epoch,
        client: usize,
        outcome: Reset,
    },
    Broken {
        partition: usize,
        writer: u64,
        client: usize,
        outcome: Reset,
    },
    Call {
        call: Call,
        front: Option<(usize, u64)>,
    },
    /// The owner to which a call was forwarded is none.
    NotOwner {
        call: Call,
        since: Monotonic,
    },
    Want(usize),
}

/// What happens outside of the nodes' processes.
enum Happening {
    /// At a node, if that process still runs.
    AtNode {
        node: usize,
        process: u64,
        event: Event,
    },
    Apply {
        object: String,
        operation: Operation,
        answer_to: Option<(usize, u64, RequestId, u64)>,
    },
    Open {
        node: usize,
        process: u64,
        partition: usize,
        epoch: Epoch,
        writer: u64,
        back: u64,
    },
    /// Something arrives at a database, or is repeated.
    Append(usize, Option<Write>),
    Message {
        node: usize,
        process: u64,
        client: usize,
        message: Message,
        left: u64,
    },
    Reply {
        client: usize,
        attempt: u64,
        reply: Reply,
    },
    Step(usize),
    Deadline {
        client: usize,
        attempt: u64,
    },
    Fault,
    Wake {
        node: usize,
        process: u64,
    },
    Start(usize),
    BucketBack,
    Rejoin(usize),
    Mended(Vec<Way>),
    Heal,
}

/// A write on its way to a database.
struct Write {
    node: usize,
    process: u64,
    writer: u64,
    record: Record,
    back: u64,
}

/// A message to a client.
#[derive(Clone, Copy, Debug)]
enum Message {
    Reset { partition: usize, epoch: Epoch },
    Break { partition: usize, writer: u64, file: usize },
}

/// Returns a time as seconds, for people.
fn seconds(nanoseconds: u64) -> f64 {
    std::time::Duration::from_nanos(nanoseconds).as_secs_f64()
}

pub(crate) struct World {
    rng: SmallRng,
    mood: Mood,
    sabotage: Sabotage,
    now: u64,
    queue: BTreeMap<(u64, u64), Happening>,
    planned: u64,
    nodes: Vec<Node>,
    names: Vec<NodeName>,
    partitions: Vec<PartitionName>,
    bucket: Bucket,
    databases: Vec<Database>,
    /// What has arrived at each database and is not written.
    arrived: Vec<Vec<Write>>,
    clients: Vec<Client>,
    /// The ways that are cut.
    lost: BTreeSet<Way>,
    /// Newest version that is acknowledged or was shown, by partition and file.
    shown: Vec<Vec<u64>>,
    acknowledged: Vec<Vec<u64>>,
    operations: u64,
    writers: u64,
    owners: Vec<Option<usize>>,
    unserved_since: Vec<Option<u64>>,
    is_healed: bool,
    interval: u64,
    report: Report,
    violation: Option<String>,
    hash: u64,
    traces: bool,
}

impl World {
    pub(crate) fn new(seed: u64, mood: Mood, sabotage: Sabotage) -> World {
        let mut rng = SmallRng::seed_from_u64(seed);
        let nodes = rng.random_range(3..=5);
        let partitions = rng.random_range(1..=2);
        let interval = rng.random_range(SECOND..12 * SECOND);
        let mut world = World {
            mood,
            sabotage,
            now: SECOND,
            queue: BTreeMap::new(),
            planned: 0,
            nodes: (0..nodes).map(|_| Node::new(Clock::new(0, 0, 1000))).collect(),
            names: (0..nodes).map(|node| format!("n{node}").parse().unwrap()).collect(),
            partitions: (0..partitions).map(|partition| format!("p{partition}").parse().unwrap()).collect(),
            bucket: Bucket::default(),
            databases: (0..partitions).map(|_| Database::new(FILES)).collect(),
            arrived: (0..partitions).map(|_| Vec::new()).collect(),
            clients: (0..CLIENTS).map(|_| Client::default()).collect(),
            lost: BTreeSet::new(),
            shown: vec![vec![0; FILES]; partitions],
            acknowledged: vec![vec![0; FILES]; partitions],
            operations: 0,
            writers: 0,
            owners: vec![None; partitions],
            unserved_since: vec![None; partitions],
            is_healed: false,
            interval,
            report: Report::default(),
            violation: None,
            hash: 0xcbf2_9ce4_8422_2325,
            traces: std::env::var_os("CELLAR_SIM_TRACE").is_some(),
            rng,
        };
        world.bucket.is_bad = mood.has_bad_bucket;
        for node in 0..nodes {
            let at = world.rng.random_range(0..3 * SECOND);
            world.plan(at, Happening::Start(node));
        }
        for client in 0..CLIENTS {
            world.plan(8 * SECOND, Happening::Step(client));
        }
        world.plan(10 * SECOND, Happening::Fault);
        world.plan(HEALED_AT - SECOND, Happening::Heal);
        world
    }

    fn plan(&mut self, after: u64, happening: Happening) {
        self.planned += 1;
        self.queue.insert((self.now + after, self.planned), happening);
    }

    fn trace(&mut self, text: impl FnOnce(&World) -> String) {
        self.hash = (self.hash ^ self.now).wrapping_mul(0x0100_0000_01b3);
        if self.traces {
            println!("{:>9.3} {}", seconds(self.now), text(self));
        }
    }

    fn violate(&mut self, text: impl FnOnce() -> String) {
        if self.violation.is_none() {
            let at = seconds(self.now);
            self.violation = Some(format!("{} at {at:.3} s, with {:?}", text(), self.mood));
        }
    }

    /// Plays until the end or the first violation.
    pub(crate) fn run(&mut self) -> Result<(Report, u64), String> {
        while let Some(((at, _), happening)) = self.queue.pop_first() {
            if at > END_AT {
                break;
            }
            self.now = at;
            self.report.events += 1;
            self.hash = (self.hash ^ at).wrapping_mul(0x0100_0000_01b3);
            self.happen(happening);
            self.check_owners();
            if let Some(violation) = self.violation.take() {
                return Err(violation);
            }
        }
        self.check_end();
        self.violation.take().map_or(Ok((self.report, self.hash)), Err)
    }

    fn happen(&mut self, happening: Happening) {
        match happening {
            Happening::AtNode { node, process, event } => self.deliver(node, process, event),
            Happening::Apply { object, operation, answer_to } => {
                let answer = self.bucket.apply(&object, &operation);
                if let Some((node, process, id, back)) = answer_to {
                    self.plan(back, Happening::AtNode { node, process, event: Event::Answered(id, answer) });
                } else {
                    self.report.late_writes += u64::from(matches!(answer, Answer::Written(_)));
                }
            }
            Happening::Open { node, process, partition, epoch, writer, back } => {
                let contents = Some(Box::new(self.databases[partition].open(writer)));
                let event = Event::Opened { partition, epoch, writer, contents };
                self.plan(back, Happening::AtNode { node, process, event });
            }
            Happening::Append(partition, write) => {
                self.arrived[partition].extend(write);
                self.append(partition);
            }
            Happening::Message { node, process, client, message, left } => {
                self.message(node, process, client, message, left);
            }
            Happening::Reply { client, attempt, reply } => self.reply_arrives(client, attempt, reply),
            Happening::Step(client) => self.step(client),
            Happening::Deadline { client, attempt } => self.retry(client, attempt),
            Happening::Fault => self.fault(),
            Happening::Wake { node, process } => self.wake(node, process),
            Happening::Start(node) => self.start(node),
            Happening::BucketBack => self.bucket.is_away = false,
            Happening::Rejoin(client) => self.clients[client].is_cut = false,
            Happening::Mended(ways) => self.mend(&ways),
            Happening::Heal => self.heal(),
        }
    }

    // Faults.

    fn fault(&mut self) {
        if self.is_healed {
            return;
        }
        let pause = self.rng.random_range(self.interval / 2..self.interval * 2);
        self.plan(pause, Happening::Fault);
        let node = self.rng.random_range(0..self.nodes.len());
        // Owners are hit more often.
        let owner = self.owners.iter().flatten().next().copied();
        let node = if self.rng.random_bool(0.5) { owner.unwrap_or(node) } else { node };
        match self.rng.random_range(0..7) {
            0 if self.mood.has_stalls && self.rng.random_bool(0.5) => {
                self.nodes[node].stalls_at_renewal = true;
            }
            0 if self.mood.has_stalls => self.stall(node),
            1 if self.mood.has_crashes => self.crash(node),
            2 if self.mood.has_outages => self.outage(),
            3 if self.mood.has_moves => self.move_partition(),
            4 if self.mood.has_cuts => self.cut(),
            6 if self.mood.has_cuts => self.part(node),
            5 => {
                let (now, rate) = (self.now, self.rate());
                if !self.nodes[node].is_stalled {
                    self.nodes[node].clock.set_rate(now, rate);
                    self.nodes[node].timer = None;
                    self.pump_running(node);
                }
            }
            _ => {}
        }
    }

    fn rate(&mut self) -> u64 {
        match self.rng.random_range(0..4) {
            0 => 900,
            1 => 1100,
            _ => self.rng.random_range(900..=1100),
        }
    }

    fn pump_running(&mut self, node: usize) {
        if self.nodes[node].member.is_some() && !self.nodes[node].is_stalled {
            self.pump(node);
        }
    }

    fn stall(&mut self, node: usize) {
        if self.nodes[node].member.is_none() || self.nodes[node].is_stalled || self.is_healed {
            return;
        }
        self.nodes[node].stalls_at_renewal = false;
        self.report.stalls += 1;
        self.nodes[node].is_stalled = true;
        // Often long enough for a takeover, and short enough for calls that wait.
        let span = match self.rng.random_range(0..3) {
            0 => self.rng.random_range(SECOND..60 * SECOND),
            _ => self.rng.random_range(5 * SECOND..20 * SECOND),
        };
        self.trace(|_| format!("n{node} stalls for {:.1} s", seconds(span)));
        let process = self.nodes[node].process;
        self.plan(span, Happening::Wake { node, process });
    }

    fn wake(&mut self, node: usize, process: u64) {
        if self.nodes[node].process != process || !self.nodes[node].is_stalled {
            return;
        }
        self.trace(|_| format!("n{node} wakes"));
        self.nodes[node].is_stalled = false;
        self.nodes[node].timer = None;
        // What arrived is taken in any order, but for the process it is the same instant.
        for event in std::mem::take(&mut self.nodes[node].deferred) {
            if self.nodes[node].process == process && self.nodes[node].member.is_some() {
                self.take(node, event);
                self.check_owners();
            }
        }
        self.pump_running(node);
    }

    fn crash(&mut self, node: usize) {
        if self.nodes[node].member.is_none() {
            return;
        }
        self.report.crashes += 1;
        self.trace(|_| format!("n{node} crashes"));
        self.nodes[node].crash();
        let pause = self.rng.random_range(SECOND / 10..20 * SECOND);
        self.plan(pause, Happening::Start(node));
    }

    fn outage(&mut self) {
        self.report.outages += 1;
        self.bucket.is_away = true;
        let span = self.rng.random_range(SECOND..20 * SECOND);
        self.trace(|_| format!("the bucket is away for {:.1} s", seconds(span)));
        self.plan(span, Happening::BucketBack);
    }

    /// Hands a partition over, or lets a node leave.
    fn move_partition(&mut self) {
        let partition = self.rng.random_range(0..self.partitions.len());
        let Some(owner) = self.owners[partition].filter(|owner| !self.nodes[*owner].is_stalled) else {
            return;
        };
        if self.nodes[owner].member.is_none() {
            return;
        }
        self.report.moves += 1;
        let now = self.local(owner);
        if self.rng.random_bool(0.2) {
            self.trace(|_| format!("n{owner} leaves"));
            self.member(owner).leave(now);
            let pause = self.rng.random_range(SECOND..20 * SECOND);
            self.plan(pause, Happening::Start(owner));
        } else {
            let to = self.rng.random_range(0..self.nodes.len());
            let to = self.rng.random_bool(0.8).then(|| self.names[to].clone());
            self.trace(|_| format!("n{owner} hands p{partition} over to {to:?}"));
            let name = self.partitions[partition].clone();
            self.member(owner).release(now, &name, to);
            let pause = self.rng.random_range(SECOND..20 * SECOND);
            self.at_node(pause, owner, Event::Want(partition));
        }
        self.pump(owner);
    }

    fn cut(&mut self) {
        let client = self.rng.random_range(0..CLIENTS);
        if self.rng.random_bool(0.7) {
            self.clients[client].is_cut = true;
            self.trace(|_| format!("c{client} is cut off"));
            let span = self.rng.random_range(SECOND..20 * SECOND);
            self.plan(span, Happening::Rejoin(client));
        } else {
            let node = self.rng.random_range(0..self.nodes.len());
            self.trace(|_| format!("n{node} is cut off from other nodes and clients"));
            let is_cut = self.nodes[node].is_cut;
            self.nodes[node].is_cut = !is_cut;
        }
    }

    /// Ends all faults.
    fn heal(&mut self) {
        self.trace(|_| "all faults end".into());
        self.is_healed = true;
        self.bucket.is_away = false;
        self.bucket.is_bad = false;
        self.lost.clear();
        for client in &mut self.clients {
            client.is_cut = false;
        }
        for node in 0..self.nodes.len() {
            self.nodes[node].is_cut = false;
            let process = self.nodes[node].process;
            self.wake(node, process);
            self.start(node);
            for partition in 0..self.partitions.len() {
                self.at_node(0, node, Event::Want(partition));
            }
            // One that is leaving starts again after it has left.
            self.plan(8 * SECOND, Happening::Start(node));
        }
    }

    // Checks.

    fn check_owners(&mut self) {
        for partition in 0..self.partitions.len() {
            let (mut first, mut second) = (None, None);
            for node in 0..self.nodes.len() {
                if self.nodes[node].handles.contains_key(&partition)
                    && self.may_answer(node, partition, CallKind::Read)
                {
                    second = first.map(|first| (first, node)).or(second);
                    first = Some(node);
                }
            }
            if let Some((one, other)) = second.filter(|_| self.sabotage != Sabotage::AnswersBlindly) {
                self.violate(|| format!("n{one} and n{other} may both answer for p{partition}"));
            }
            self.owners[partition] = first;
            self.check_service(partition, first.is_some());
        }
    }

    fn check_service(&mut self, partition: usize, is_served: bool) {
        if !self.is_healed || is_served {
            self.unserved_since[partition] = None;
            return;
        }
        let since = *self.unserved_since[partition].get_or_insert(self.now);
        let span = self.now - since;
        self.report.recovery_ms = self.report.recovery_ms.max(span / MS);
        if span > RECOVERY {
            self.violate(|| {
                format!("p{partition} is not served for {} s after the last fault", RECOVERY / SECOND)
            });
        }
    }

    fn check_end(&mut self) {
        for client in 0..CLIENTS {
            if let Some(pending) = self.clients[client].pending {
                self.violate(|| format!("{:?} is not answered", pending.call));
            }
        }
        for partition in 0..self.partitions.len() {
            for file in 0..FILES {
                let (there, newest) =
                    (self.databases[partition].contents.files[file].0, self.acknowledged[partition][file]);
                if there < newest {
                    self.violate(|| {
                        format!("p{partition} f{file} has version {there}; {newest} was acknowledged")
                    });
                }
            }
        }
    }
}
