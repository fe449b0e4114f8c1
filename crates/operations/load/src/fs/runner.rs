//! The threads that drive the clients.

use super::client::{Client, Done, End, Habits};
use super::latency::Measured;
use super::mix::{Mix, Operation};
use super::plan::Plan;
use super::{Options, Schedule};
use crate::progress::Tally;
use crate::rxperf::Packets;
use crate::station::FILE_SERVICE;
use anyhow::{Context, Result, anyhow};
use base::{HostUuid, Monotonic};
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use rx::{EndpointConfig, Path, ServiceConfig, SocketOptions, Swarm, SwarmConfig};
use rx_proto::Event;
use rx_security::{Null, ServerSecurity};
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

/// Maximum time after the measurement for operations in progress to end.
const FAREWELL_MAX: Duration = Duration::from_secs(30);

/// Size of the socket buffers of one client.
const BUFFER_BYTES: usize = 4 << 20;

/// Runs all clients of a mix and returns the measurements.
pub(super) fn run(
    mix: &Mix,
    options: &Options,
    plan: &Plan,
    schedule: Schedule,
    tally: &Tally,
) -> Result<Measured> {
    let shares = shares(mix, options.threads);
    let weights: Vec<Vec<(Operation, u32)>> = mix.groups.iter().map(|group| group.work.weights()).collect();
    let weights = &weights;
    std::thread::scope(|scope| {
        let spawn = |(number, share): (usize, Share)| {
            scope.spawn(move || {
                share.set_priority();
                Runner::new(mix, options, plan, schedule, tally, weights, (number as u64, share))?.run()
            })
        };
        let handles: Vec<_> = shares.into_iter().enumerate().map(spawn).collect();
        let mut all = Measured::new(mix.groups.len(), schedule);
        for handle in handles {
            all.merge(&handle.join().map_err(|_| anyhow!("a thread panicked"))??);
        }
        Ok(all)
    })
}

/// The clients that a thread drives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Share {
    /// This thread's part of the clients of all groups that are not isolated.
    InTurn { thread: usize, threads: usize },
    /// The clients of this isolated group.
    Apart { group: usize },
}

/// Nice value of the threads of isolated groups, if the system permits it: their clients represent separate
/// machines, which do not compete for a processor of this one.
const NICE_APART: i32 = -15;

/// Returns the share of each thread.
pub(super) fn shares(mix: &Mix, threads: usize) -> Vec<Share> {
    let in_turn: usize = mix.groups.iter().filter(|group| !group.apart).map(|group| group.clients).sum();
    let threads = threads.max(1).min(in_turn);
    let in_turn = (0..threads).map(|thread| Share::InTurn { thread, threads });
    let apart = mix.groups.iter().enumerate().filter(|(_, group)| group.apart);
    in_turn.chain(apart.map(|(group, _)| Share::Apart { group })).collect()
}

impl Share {
    /// Whether a client, given by its number and its group, belongs to this share.
    pub(super) fn has(self, mix: &Mix, number: usize, group: usize) -> bool {
        match self {
            Share::InTurn { thread, threads } => !mix.groups[group].apart && number % threads == thread,
            Share::Apart { group: own } => group == own,
        }
    }

    fn set_priority(self) {
        if matches!(self, Share::Apart { .. }) {
            // Affects only this thread. Without permission its priority stays unchanged.
            let _ = rustix::process::nice(NICE_APART);
        }
    }
}

/// A thread that drives clients.
struct Runner<'a> {
    mix: &'a Mix,
    weights: &'a [Vec<(Operation, u32)>],
    options: &'a Options,
    schedule: Schedule,
    tally: &'a Tally,
    swarm: Swarm,
    /// Clients by port.
    members: Vec<Member>,
    /// Times at which streams start or continue.
    alarms: BinaryHeap<Reverse<(Monotonic, usize, usize)>>,
    random: SmallRng,
    measured: Measured,
    gone: usize,
}

struct Member {
    group: usize,
    client: Client,
    /// Whether one of its calls has succeeded.
    is_known: bool,
    /// Number of streams that have stopped.
    stopped: usize,
    leave: Leave,
}

/// Progress of a client's shutdown.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Leave {
    Not,
    SayingSo,
    Gone,
}

impl<'a> Runner<'a> {
    fn new(
        mix: &'a Mix,
        options: &'a Options,
        plan: &Plan,
        schedule: Schedule,
        tally: &'a Tally,
        weights: &'a [Vec<(Operation, u32)>],
        (thread, share): (u64, Share),
    ) -> Result<Runner<'a>> {
        let mut random = SmallRng::seed_from_u64(options.seed.wrapping_add(thread));
        let everybody = plan.groups.iter().enumerate();
        let everybody = everybody.flat_map(|(group, places)| places.iter().map(move |place| (group, place)));
        let mine = everybody.enumerate().filter(|(number, (group, _))| share.has(mix, *number, *group));
        let (mut members, mut addresses) = (Vec::new(), Vec::new());
        let mut alarms = BinaryHeap::new();
        let ramp = schedule.from.since(schedule.start);
        for (number, (group, place)) in mine {
            let streams = mix.groups[group].streams;
            // UUIDs identify hosts to the server, so they must differ from those of earlier runs.
            let uuid = HostUuid(rand::random());
            let delay = ramp.mul_f64(0.8 * number as f64 / mix.clients() as f64);
            alarms
                .extend((0..streams).map(|stream| Reverse((schedule.start + delay, members.len(), stream))));
            let client = Client::new(place.clone(), uuid, streams);
            members.push(Member { group, client, is_known: false, stopped: 0, leave: Leave::Not });
            addresses.push(options.source(number, group, mix.groups.len()));
        }
        let _: u64 = random.random();
        let swarm = Swarm::new(&swarm_config(addresses, options.receive_merging))
            .context("cannot open the clients' ports")?;
        let measured = Measured::new(mix.groups.len(), schedule);
        Ok(Runner {
            mix,
            weights,
            options,
            schedule,
            tally,
            swarm,
            members,
            alarms,
            random,
            measured,
            gone: 0,
        })
    }

    fn run(mut self) -> Result<Measured> {
        self.connect()?;
        let end = self.schedule.to + FAREWELL_MAX;
        while self.gone < self.members.len() && Swarm::now() < end {
            while let Some((port, event)) = self.swarm.next_event() {
                self.on_event(port, event);
            }
            let now = Swarm::now();
            while let Some(Reverse((at, port, stream))) = self.alarms.peek().copied()
                && at <= now
            {
                self.alarms.pop();
                self.advance(port, stream);
            }
            if let Some((port, event)) = self.swarm.next_event() {
                self.on_event(port, event);
                continue;
            }
            let next = self.alarms.peek().map_or(end, |Reverse((at, ..))| (*at).min(end));
            self.swarm.wait(next).context("cannot wait for datagrams")?;
        }
        self.close();
        self.measured.packets = Packets::of(&[self.swarm.endpoint_statistics()]);
        self.measured.client_drops = self.swarm.statistics().kernel_drops;
        Ok(self.measured)
    }

    fn connect(&mut self) -> Result<()> {
        let path = Path::to(self.options.server);
        for (port, member) in self.members.iter_mut().enumerate() {
            let security = self.options.security.as_ref();
            let connected = member.client.connect(Swarm::now(), self.swarm.endpoint(port), path, security);
            connected.map_err(|code| anyhow!("cannot make a connection: {code:?}"))?;
        }
        Ok(())
    }

    /// Acknowledges the last replies.
    fn close(&mut self) {
        for port in 0..self.members.len() {
            self.swarm.endpoint(port).close_all(Swarm::now());
        }
        while self.swarm.next_event().is_some() {}
    }

    fn on_event(&mut self, port: usize, event: Event) {
        let now = Swarm::now();
        let (client, endpoint) = (&mut self.members[port].client, self.swarm.endpoint(port));
        let done = match event {
            Event::CallArrived { call, caller, .. } => {
                client.on_arrival(now, endpoint, call, caller);
                None
            }
            Event::Readable(call) | Event::Writable(call) | Event::Failed(call, _) => {
                client.on_call(now, endpoint, call)
            }
            Event::Ended(_)
            | Event::ChannelFree(_)
            | Event::ConnectionFailed(..)
            | Event::PathIsShort { .. } => None,
        };
        if let Some(done) = done
            && self.finish(port, &done)
        {
            self.advance(port, done.stream);
        }
    }

    /// Continues a stream until it has to wait.
    fn advance(&mut self, port: usize, stream: usize) {
        loop {
            let member = &mut self.members[port];
            let now = Swarm::now();
            if member.client.is_idle(stream) {
                if now >= self.schedule.to {
                    return self.stop(port);
                }
                let group = &self.mix.groups[member.group];
                let habits = Habits { group, weights: &self.weights[member.group] };
                member.client.choose(stream, &habits, &mut self.random);
            }
            match member.client.begin(now, self.swarm.endpoint(port), stream) {
                Some(done) if self.finish(port, &done) => {}
                _ => return,
            }
        }
    }

    /// Records a call's end. Returns whether the stream continues immediately.
    fn finish(&mut self, port: usize, done: &Done) -> bool {
        let now = Swarm::now();
        let member = &mut self.members[port];
        if member.leave == Leave::SayingSo {
            member.leave = Leave::Gone;
            self.gone += 1;
            return false;
        }
        if !member.is_known && matches!(done.end, End::Right { .. }) {
            member.is_known = true;
            self.measured.record_first(member.group, now.since(done.begun));
        } else {
            self.measured.record(member.group, done, now);
        }
        match done.end {
            End::Right { payload } => self.tally.call(payload),
            End::Failed(_) | End::Wrong(_) => self.tally.failure(),
            End::Busy => {}
        }
        let is_idle = member.client.is_idle(done.stream);
        let pause = Duration::from_millis(self.mix.groups[member.group].pause_ms);
        let pause = (is_idle && !pause.is_zero()).then(|| now + pause);
        let Some(at) = done.resume.max(pause) else { return true };
        self.alarms.push(Reverse((at, port, done.stream)));
        false
    }

    /// Records that a stream has stopped. After its last stream, a client gives up its promises, so that the
    /// server does not wait for it later.
    fn stop(&mut self, port: usize) {
        let member = &mut self.members[port];
        member.stopped += 1;
        if member.stopped < self.mix.groups[member.group].streams {
            return;
        }
        member.leave = Leave::SayingSo;
        if let Some(done) = member.client.say_goodbye(Swarm::now(), self.swarm.endpoint(port)) {
            self.finish(port, &done);
        }
    }
}

/// Receive window that fits into the socket buffer of one of many clients.
const WINDOW_PACKETS: u16 = 128;

fn swarm_config(addresses: Vec<IpAddr>, receive_merging: bool) -> SwarmConfig {
    let security: Vec<Arc<dyn ServerSecurity>> = vec![Arc::new(Null)];
    SwarmConfig {
        addresses,
        socket: SocketOptions { buffer_bytes: BUFFER_BYTES, receive_merging, ..SocketOptions::default() },
        endpoint: EndpointConfig {
            version: "cellar bench".into(),
            receive_window_packets: WINDOW_PACKETS,
            ..EndpointConfig::default()
        },
        services: vec![ServiceConfig { id: FILE_SERVICE, name: "callbacks".into(), security }],
    }
}
