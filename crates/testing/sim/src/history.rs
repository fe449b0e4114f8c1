//! One history: a world generated from a seed, run, and checked.

use std::time::Duration;

use base::{Monotonic, SecurityLevel};
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use rx_proto::EndpointConfig;
use rx_proto::limits::UNPROVEN_WINDOW;

use crate::client::{Outcome, Plan};
use crate::hijackers::Hijackers;
use crate::network::Conditions;
use crate::pattern::{Manner, Request};
use crate::security::Class;
use crate::server::Served;
use crate::world::World;

/// Time by which all calls must have ended, successfully or not.
const CALLS_END: Duration = Duration::from_secs(20 * 60);

/// Time after which all state must have been dropped.
const SILENCE: Duration = Duration::from_secs(60 * 60);

/// Maximum number of timer expiries while an endpoint drops its state: once per call, connection and peer,
/// and for the last retransmissions.
const SILENCE_WAKES_MAX: u64 = 300;

/// Maximum number of further expiries for each forged datagram, which may create a connection, a call and a peer.
const WAKES_PER_FORGERY: u64 = 4;

/// The state of the network, which determines the guarantees to check.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mood {
    /// No loss: nothing is retransmitted, and every call succeeds.
    Clean,
    /// Some loss, duplication and reordering: every call succeeds.
    Rough,
    /// Heavy loss, blackouts, short packets only: calls may fail, but only with an error.
    Broken,
    /// Damaged datagrams arrive: endpoints only have to survive.
    Hostile,
}

/// A history that has not run yet.
#[derive(Debug)]
pub struct History {
    seed: u64,
    mood: Mood,
    /// Maximum number of retransmissions without loss.
    resent_max: u64,
    world: World,
    requests: Vec<Planned>,
}

/// A planned call.
#[derive(Clone, Copy, Debug)]
struct Planned {
    from: usize,
    /// Index of the server; beyond the last host for a closed address.
    to: usize,
    class: Class,
    plan: Plan,
}

/// Retransmission timeout before the first round-trip sample.
const RESEND_AFTER: Duration = Duration::from_millis(300);

/// The results of a history.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// Calls that succeeded.
    pub replied: usize,
    /// Calls that were refused as requested.
    pub refused: usize,
    /// Calls that failed.
    pub failed: usize,
    /// Calls abandoned by their clients.
    pub given_up: usize,
    /// Data packets retransmitted.
    pub resent: u64,
    /// Datagrams that attackers forged.
    pub forged: u64,
}

impl std::ops::AddAssign for Report {
    fn add_assign(&mut self, other: Report) {
        self.replied += other.replied;
        self.refused += other.refused;
        self.failed += other.failed;
        self.given_up += other.given_up;
        self.resent += other.resent;
        self.forged += other.forged;
    }
}

impl History {
    /// Generates a world and its calls.
    pub fn new(seed: u64) -> History {
        History::looking_ahead(seed, true)
    }

    /// Like [`History::new`], with prefetching on or off, which must not change the results.
    pub fn looking_ahead(seed: u64, looks_ahead: bool) -> History {
        let mut random = SmallRng::seed_from_u64(seed);
        let mood = match random.random_range(0..10) {
            0..2 => Mood::Clean,
            2..6 => Mood::Rough,
            6..8 => Mood::Broken,
            _ => Mood::Hostile,
        };
        let hosts = if random.random_bool(0.7) { 2 } else { random.random_range(3..6) };
        let crowd_connections = if looks_ahead { 0 } else { usize::MAX };
        let config = EndpointConfig { crowd_connections, ..config(&mut random, mood) };
        let conditions = conditions(&mut random, mood);
        // The first packets of a connection are acknowledged after two round trips, which may exceed the
        // retransmission timeout.
        let resent_max = if conditions.delay * 4 > RESEND_AFTER { 3 * u64::from(UNPROVEN_WINDOW) } else { 0 };
        let world = World::new(hosts, &config, conditions, random.random());
        let mut history = History { seed, mood, resent_max, world, requests: Vec::new() };
        for line in 0..random.random_range(1..=3) {
            history.plan_line(&mut random, line);
        }
        history
    }

    /// Like [`History::new`], with attackers who forge packets, and hosts that change their addresses. That must not
    /// change the guarantees.
    pub fn attacked(seed: u64) -> History {
        let mut history = History::new(seed);
        let mut random = SmallRng::seed_from_u64(!seed);
        history.world.hijackers = Some(Hijackers::new(random.random()));
        // In a clean world no packets may be lost on a path that is no longer used.
        if history.mood != Mood::Clean && random.random_bool(0.5) {
            let hosts = history.world.hosts.len();
            let moves = (0..random.random_range(1..4)).map(|_| {
                let at = history.world.now + Duration::from_millis(random.random_range(0..20_000));
                (at, random.random_range(0..hosts))
            });
            history.world.moves = moves.collect();
        }
        history
    }

    fn plan_line(&mut self, random: &mut SmallRng, line: u64) {
        let from = random.random_range(0..self.world.hosts.len());
        let hosts = self.world.hosts.len();
        // In a clean world no calls go to closed addresses.
        let vain = self.mood != Mood::Clean && random.random_bool(0.1);
        let to = if vain { hosts } else { (from + random.random_range(1..hosts)) % hosts };
        let class = class(random, self.mood);
        let secret = class != Class::Null;
        let count = random.random_range(1..=6);
        let plans: Vec<Plan> = (0..count)
            .map(|place| plan(random, self.mood, secret, self.seed << 16 | line << 8 | place))
            .collect();
        self.requests.extend(plans.iter().map(|plan| Planned { from, to, class, plan: *plan }));
        let start = self.world.now + Duration::from_millis(random.random_range(0..2000));
        let address = World::address(to);
        let now = self.world.now;
        let host = &mut self.world.hosts[from];
        host.application.client.add(now, &mut host.endpoint, address, class, plans.into(), start);
    }

    /// Runs the history and checks its invariants throughout.
    ///
    /// # Panics
    /// If a check fails.
    pub fn run(mut self) -> Report {
        self.world.start();
        let end = self.world.now + CALLS_END;
        self.world.run(end, |world| {
            check_limits(world);
            world.is_idle()
        });
        self.check_all_ended();
        self.close();
        let end = self.world.now + SILENCE;
        let wakes = self.timer_wakes();
        self.world.run(end, |_| false);
        self.check_silence(self.timer_wakes() - wakes);
        self.judge()
    }

    fn check_all_ended(&self) {
        let under_way: Vec<_> =
            self.world.hosts.iter().map(|host| host.application.client.under_way()).collect();
        assert!(self.world.is_idle(), "{}: calls never end: {under_way:?}", self.name());
    }

    fn close(&mut self) {
        let now = self.world.now;
        for host in &mut self.world.hosts {
            host.application.client.close(now, &mut host.endpoint);
        }
        self.world.start();
    }

    fn timer_wakes(&self) -> u64 {
        self.world.hosts.iter().map(|host| host.timer_wakes).sum()
    }

    /// Checks that no state and no timers remain, and that reaching this state took a reasonable number of
    /// timer expiries.
    fn check_silence(&self, wakes: u64) {
        let forged = self.world.hijackers.as_ref().map_or(0, Hijackers::forged);
        let wakes_max = SILENCE_WAKES_MAX + WAKES_PER_FORGERY * forged;
        assert!(wakes < wakes_max, "{}: {wakes} wake-ups in silence", self.name());
        for host in &self.world.hosts {
            let statistics = host.endpoint.statistics();
            let kept = [
                statistics.calls_now,
                statistics.connections_now,
                statistics.peers_now,
                statistics.packets_now,
                host.application.server.len() as u64,
            ];
            assert_eq!(kept, [0; 5], "{}: calls, connections, peers, packets, served remain", self.name());
            assert_eq!(host.endpoint.poll_timeout(), None, "{}: a timer remains", self.name());
        }
    }

    fn judge(&self) -> Report {
        let mut report = Report::default();
        for planned in &self.requests {
            let outcome = self.outcome(planned);
            match outcome {
                Outcome::Replied => report.replied += 1,
                Outcome::Failed(crate::server::REFUSAL) => report.refused += 1,
                Outcome::Failed(_) => report.failed += 1,
                Outcome::GivenUp => report.given_up += 1,
                Outcome::Wrong => {}
            }
            if self.mood != Mood::Hostile {
                self.check_outcome(planned, outcome);
            }
        }
        report.forged = self.world.hijackers.as_ref().map_or(0, Hijackers::forged);
        report.resent = self.world.hosts.iter().map(|host| host.endpoint.statistics().data_resent).sum();
        if self.mood == Mood::Clean {
            let resent = report.resent;
            assert!(resent <= self.resent_max, "{}: {resent} packets sent again without loss", self.name());
        }
        report
    }

    fn outcome(&self, planned: &Planned) -> Outcome {
        let outcomes = &self.world.hosts[planned.from].application.client.outcomes;
        let seed = planned.plan.request.seed;
        *outcomes.get(&seed).unwrap_or_else(|| panic!("{}: call {seed:x} has no end", self.name()))
    }

    fn check_outcome(&self, planned: &Planned, outcome: Outcome) {
        let Planned { to, plan, class, .. } = *planned;
        let Some(host) = self.world.hosts.get(to) else {
            let name = self.name();
            assert!(
                matches!(outcome, Outcome::Failed(_) | Outcome::GivenUp),
                "{name}: {outcome:?} by nobody"
            );
            return;
        };
        let server = &host.application.server;
        let served = server.served.get(&plan.request.seed).copied().unwrap_or_default();
        let context = || format!("{}: {planned:?} {outcome:?} {served:?}", self.name());
        assert_ne!(outcome, Outcome::Wrong, "{}", context());
        assert_eq!(server.wrong, 0, "{}", context());
        assert!(served.begun <= 1, "served twice, {}", context());
        let anonymous = if class == Class::Null { served.begun } else { 0 };
        assert_eq!((served.anonymous, served.hijacked), (anonymous, 0), "{}", context());
        if outcome == Outcome::Replied {
            check_served(plan.request.manner, served, &context);
        }
        if matches!(self.mood, Mood::Clean | Mood::Rough) {
            assert_eq!(Some(outcome).filter(|it| !expected(plan, class, *it)), None, "{}", context());
        }
    }

    fn name(&self) -> String {
        format!("CELLAR_SIM_SEED={} ({:?})", self.seed, self.mood)
    }
}

/// Checks that the server actually served a call that got a reply.
fn check_served(manner: Manner, served: Served, context: &dyn Fn() -> String) {
    match manner {
        Manner::Plain | Manner::Slow | Manner::Lend => assert_eq!(served.complete, 1, "{}", context()),
        Manner::ReplyEarly => assert_eq!(served.begun, 1, "{}", context()),
        Manner::Refuse | Manner::RefuseEarly => panic!("replied to what was refused: {}", context()),
    }
}

/// Whether a call may end like this, given that the network is no excuse.
fn expected(plan: Plan, class: Class, outcome: Outcome) -> bool {
    let refuses = matches!(plan.request.manner, Manner::Refuse | Manner::RefuseEarly);
    match outcome {
        Outcome::Replied => class != Class::Impostor && !refuses,
        Outcome::Failed(crate::server::REFUSAL) => class != Class::Impostor && refuses,
        Outcome::Failed(_) => class == Class::Impostor,
        Outcome::GivenUp => plan.give_up_at.is_some(),
        Outcome::Wrong => false,
    }
}

/// Checks that no endpoint exceeds its limits.
fn check_limits(world: &World) {
    for host in &world.hosts {
        let (statistics, config) = (host.endpoint.statistics(), host.endpoint.config());
        let [unproven, ..] = statistics.connections_by_standing;
        assert!(unproven <= config.unproven_connections_max as u64);
        assert!(statistics.connections_now <= unproven + config.connections_max as u64);
        assert_eq!(statistics.calls_by_standing.iter().sum::<u64>(), statistics.calls_now);
        assert_eq!(statistics.packets_by_standing.iter().sum::<u64>(), statistics.packets_now);
        let shares = [config.unproven_packets_max, config.anonymous_packets_max, config.packets_max];
        let calls = statistics.calls_by_standing;
        for ((packets, share), calls) in statistics.packets_by_standing.into_iter().zip(shares).zip(calls) {
            // Beyond the limit every call may still accept the one packet that allows it to proceed, and
            // keeps the packets received before its peer was verified.
            assert!(packets <= share as u64 + u64::from(UNPROVEN_WINDOW) * calls);
        }
    }
}

fn config(random: &mut SmallRng, mood: Mood) -> EndpointConfig {
    let usual = EndpointConfig::default();
    let clean = mood == Mood::Clean;
    EndpointConfig {
        // Senders start with 16 packets, so a smaller window loses some.
        receive_window_packets: [16, 64, 255, 4][random.random_range(0..if clean { 3 } else { 4 })],
        send_queue_bytes: [2_000, 40_000, 512 * 1024][random.random_range(0..3)],
        packets_max: [8, 400_000][usize::from(clean || random.random_bool(0.8))],
        anonymous_packets_max: [8, 25_000][usize::from(clean || random.random_bool(0.8))],
        packet_bytes_max: [1472, 4000][usize::from(random.random_bool(0.2))],
        transmit_packets: [1, 8, 44][random.random_range(0..3)],
        ..usual
    }
}

fn conditions(random: &mut SmallRng, mood: Mood) -> Conditions {
    let delay = Duration::from_micros([50, 2_000, 20_000, 115_000][random.random_range(0..4)]);
    let clean = Conditions::perfect(delay);
    let jitter = delay.mul_f64(random.random_range(0.0..1.0));
    let some = |random: &mut SmallRng, most: f64| random.random_range(0.0..most);
    let rough = Conditions {
        loss: some(random, 0.08),
        duplication: some(random, 0.05),
        reordering: some(random, 0.05),
        jitter,
        ..clean.clone()
    };
    let from = Monotonic(random.random_range(0..5_000_000_000));
    let blackout = (from, from + Duration::from_secs(random.random_range(1..90)));
    // Any number of forged notices is harmless, except those of an on-path router, which may be believed.
    let lies = if random.random_bool(0.5) { some(random, 0.5) } else { 0.0 };
    let (clean, rough) = (Conditions { lies, ..clean }, Conditions { lies, notices: 0.7, ..rough });
    match mood {
        // Even on-path notices are not believed as long as the peer answers.
        Mood::Clean => Conditions { liars_see: random.random_bool(0.5), ..clean },
        // Slow links, which drop packets that queue for too long.
        Mood::Rough if random.random_bool(0.2) => {
            Conditions { rate: Some(random.random_range(20_000..2_000_000)), ..rough }
        }
        Mood::Rough => rough,
        Mood::Broken => Conditions {
            loss: some(random, 0.5),
            mtu: [800, 1300, 1500][random.random_range(0..3)],
            blackout: random.random_bool(0.5).then_some(blackout),
            liars_see: random.random_bool(0.5),
            ..rough
        },
        Mood::Hostile => Conditions { damage: some(random, 0.2), liars_see: true, ..rough },
    }
}

fn class(random: &mut SmallRng, mood: Mood) -> Class {
    match random.random_range(0..10) {
        0..4 => Class::Null,
        4..6 => Class::Rxkad(SecurityLevel::Clear),
        6..8 => Class::Rxkad(SecurityLevel::Authenticated),
        8 if mood != Mood::Clean => Class::Impostor,
        _ => Class::Rxkad(SecurityLevel::Encrypted),
    }
}

fn plan(random: &mut SmallRng, mood: Mood, secret: bool, seed: u64) -> Plan {
    let most = if secret { 20_000 } else { 60_000 };
    let length = |random: &mut SmallRng| match random.random_range(0..4) {
        0 => 0,
        1 => random.random_range(0..3000),
        _ => random.random_range(0..most),
    };
    let manner = match random.random_range(0..10) {
        0 => Manner::Refuse,
        1 => Manner::RefuseEarly,
        2 => Manner::ReplyEarly,
        3 => Manner::Slow,
        4 | 5 => Manner::Lend,
        _ => Manner::Plain,
    };
    let (request_length, reply_length) = (length(random), length(random));
    // In a clean world clients do not abandon calls, because packets in flight would then be lost.
    let fickle = mood != Mood::Clean && random.random_bool(0.05);
    Plan {
        request: Request {
            seed,
            length: request_length,
            reply_length,
            manner: if mood == Mood::Clean && manner == Manner::RefuseEarly { Manner::Plain } else { manner },
            think_ms: if random.random_bool(0.1) { random.random_range(0..20_000) } else { 0 },
        },
        give_up_at: fickle.then(|| random.random_range(0..=request_length)),
    }
}
