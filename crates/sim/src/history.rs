//! One history: a world made up from a seed, lived through, and judged.

use std::time::Duration;

use base::{Monotonic, SecurityLevel};
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use rx_proto::EndpointConfig;
use rx_proto::limits::UNPROVEN_WINDOW;

use crate::client::{Outcome, Plan};
use crate::network::Conditions;
use crate::pattern::{Manner, Request};
use crate::security::Class;
use crate::server::Served;
use crate::world::World;

/// All calls have ended by then, well or not.
const CALLS_END: Duration = Duration::from_secs(20 * 60);

/// Everything has been forgotten by then.
const SILENCE: Duration = Duration::from_secs(60 * 60);

/// An endpoint that forgets everything wakes up for that: once per call, connection and peer, and
/// for the last retransmissions.
const SILENCE_WAKES_MAX: u64 = 300;

/// What the network is like, and so what may be expected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mood {
    /// Nothing is lost: nothing is sent twice, every call ends well.
    Clean,
    /// Some loss, duplication and reordering: every call ends well.
    Rough,
    /// Much loss, blackouts, short packets only: calls may fail, but only with an error.
    Broken,
    /// Damaged datagrams get through: nothing is promised but to survive.
    Hostile,
}

/// A history to be.
#[derive(Debug)]
pub struct History {
    seed: u64,
    mood: Mood,
    /// Packets that may be sent again though nothing is lost.
    resent_max: u64,
    world: World,
    requests: Vec<Planned>,
}

/// A call that was planned.
#[derive(Clone, Copy, Debug)]
struct Planned {
    from: usize,
    /// Beyond the last host: where nobody listens.
    to: usize,
    class: Class,
    plan: Plan,
}

/// Senders send again after this time, as long as they have measured nothing.
const RESEND_AFTER: Duration = Duration::from_millis(300);

/// What happened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// Calls that ended well.
    pub replied: usize,
    /// Calls that were refused, as they wanted.
    pub refused: usize,
    /// Calls that failed.
    pub failed: usize,
    /// Calls given up by their clients.
    pub given_up: usize,
    /// Data packets sent again.
    pub resent: u64,
}

impl std::ops::AddAssign for Report {
    fn add_assign(&mut self, other: Report) {
        self.replied += other.replied;
        self.refused += other.refused;
        self.failed += other.failed;
        self.given_up += other.given_up;
        self.resent += other.resent;
    }
}

impl History {
    /// Makes a world and the calls to be made in it.
    pub fn new(seed: u64) -> History {
        History::looking_ahead(seed, true)
    }

    /// With endpoints that look ahead, or do not: that changes nothing.
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
        // The first packets of a connection are acknowledged after two round trips. Senders do not wait for so long.
        let resent_max = if conditions.delay * 4 > RESEND_AFTER { 3 * u64::from(UNPROVEN_WINDOW) } else { 0 };
        let world = World::new(hosts, &config, conditions, random.random());
        let mut history = History { seed, mood, resent_max, world, requests: Vec::new() };
        for line in 0..random.random_range(1..=3) {
            history.plan_line(&mut random, line);
        }
        history
    }

    fn plan_line(&mut self, random: &mut SmallRng, line: u64) {
        let from = random.random_range(0..self.world.hosts.len());
        let hosts = self.world.hosts.len();
        // In a clean world nothing is sent in vain.
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

    /// Lives through it and checks everything on the way.
    ///
    /// # Panics
    /// If anything is not as it should be.
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

    /// Nothing is remembered and nothing is planned, and getting there took a reasonable number of
    /// wake-ups.
    fn check_silence(&self, wakes: u64) {
        assert!(wakes < SILENCE_WAKES_MAX, "{}: {wakes} wake-ups in silence", self.name());
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

/// A reply must not come from nothing.
fn check_served(manner: Manner, served: Served, context: &dyn Fn() -> String) {
    match manner {
        Manner::Plain | Manner::Slow | Manner::Lend => assert_eq!(served.complete, 1, "{}", context()),
        Manner::ReplyEarly => assert_eq!(served.begun, 1, "{}", context()),
        Manner::Refuse | Manner::RefuseEarly => panic!("replied to what was refused: {}", context()),
    }
}

/// Whether a call may end like this where the network is no excuse.
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

/// No endpoint keeps more than it is allowed to.
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
            // Beyond the limit every call may still take the one packet that lets it go on, and keeps what came
            // before its peer's proof.
            assert!(packets <= share as u64 + u64::from(UNPROVEN_WINDOW) * calls);
        }
    }
}

fn config(random: &mut SmallRng, mood: Mood) -> EndpointConfig {
    let usual = EndpointConfig::default();
    let clean = mood == Mood::Clean;
    EndpointConfig {
        // Senders begin with 16, so a smaller window costs packets.
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
    // Forged notices harm nobody, however many; what a router on the way says may be believed.
    let lies = if random.random_bool(0.5) { some(random, 0.5) } else { 0.0 };
    let (clean, rough) = (Conditions { lies, ..clean }, Conditions { lies, notices: 0.7, ..rough });
    match mood {
        // Even they are not believed where who is said to be gone answers.
        Mood::Clean => Conditions { liars_see: random.random_bool(0.5), ..clean },
        // Slow links, which drop what waits too long.
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
    // In a clean world nobody changes his mind: what is under way then would be lost.
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
