//! Bounds on each user's share in seeded histories. A failure prints the seed.

use fair_queue::{COST_MAX, Class, Kind, Limits, Next, Queue, SMALL_SHARE, Ticket, Work};
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use std::collections::BTreeMap;

const SEEDS: u64 = 200;

fn limits(workers: usize) -> Limits {
    Limits {
        waiting_max: 100_000,
        waiting_of_user_max: 100_000,
        workers,
        workers_for_small: 0,
        workers_kept: [0; 2],
        served_max: workers,
        strangers_max: 1,
        user_share: workers,
        volume_share: workers,
    }
}

fn work(user: u64, class: Class, cost: u32, weight: u32) -> Work {
    Work { user, kind: Kind::Reachable, weight, volume: 0, class, cost }
}

fn next<T>(queue: &mut Queue<T>) -> Option<(T, Ticket)> {
    loop {
        match queue.take_next() {
            Next::Serve(call, ticket) => return Some((call, ticket)),
            Next::Again => {}
            Next::Nothing => return None,
        }
    }
}

/// The bound of start-time fair queueing: of two users that always have waiting calls, neither gets more
/// weighted work than the other by more than one call of each.
#[test]
fn a_backlogged_flow_gets_its_share() {
    for seed in 0..SEEDS {
        let mut random = SmallRng::seed_from_u64(seed);
        let weights: Vec<u32> =
            (0..random.random_range(2..9)).map(|_| random.random_range(10..1000)).collect();
        let largest: Vec<u32> = weights.iter().map(|_| random.random_range(1..300)).collect();
        let mut queue = Queue::new(limits(1));
        let mut got = vec![0.0; weights.len()];
        let push = |queue: &mut Queue<_>, user: usize, random: &mut SmallRng| {
            let cost = random.random_range(1..=largest[user]);
            queue.push(work(user as u64, Class::Bulk, cost, weights[user]), (user, cost)).unwrap();
        };
        for user in 0..weights.len() {
            (0..random.random_range(2..20)).for_each(|_| push(&mut queue, user, &mut random));
        }
        for _ in 0..2000 {
            let ((user, cost), ticket) = next(&mut queue).unwrap();
            push(&mut queue, user, &mut random);
            got[user] += f64::from(cost) / f64::from(weights[user]);
            queue.finish(ticket, cost);
            for one in 0..got.len() {
                for other in 0..one {
                    let bound = [one, other].map(|it| f64::from(largest[it]) / f64::from(weights[it]));
                    let apart = (got[one] - got[other]).abs();
                    assert!(apart <= bound[0] + bound[1] + 1e-6, "seed {seed}: {apart} > {bound:?}");
                }
            }
        }
    }
}

/// A user that announces little and moves much is charged for the actual amount from the next call on.
#[test]
fn the_actual_cost_is_charged() {
    let mut queue = Queue::new(limits(1));
    let mut got = [0_u32; 2];
    for user in 0..2 {
        (0..3).for_each(|_| _ = queue.push(work(user, Class::Bulk, 1, 100), user).unwrap());
    }
    for _ in 0..10_000 {
        let (user, ticket) = next(&mut queue).unwrap();
        let cost = if user == 0 { 10 } else { 1 };
        got[user as usize] += cost;
        queue.finish(ticket, cost);
        queue.push(work(user, Class::Bulk, 1, 100), user).unwrap();
    }
    assert!(got[0].abs_diff(got[1]) <= 20, "{got:?}");
}

/// A user that announces much and moves little gets the excess refunded, and a user that was idle has saved
/// up nothing.
#[test]
fn announced_cost_is_refunded_and_idling_earns_nothing() {
    let mut queue = Queue::new(limits(1));
    let announced = [100, 1];
    (0..3).for_each(|_| _ = queue.push(work(0, Class::Bulk, announced[0], 100), 0).unwrap());
    let serve = |queue: &mut Queue<u64>, times: usize| {
        let mut got = [0_u32; 2];
        for _ in 0..times {
            let (user, ticket) = next(queue).unwrap();
            queue.finish(ticket, 1);
            got[user as usize] += 1;
            queue.push(work(user, Class::Bulk, announced[user as usize], 100), user).unwrap();
        }
        got
    };
    assert_eq!(serve(&mut queue, 1000), [1000, 0]);
    (0..3).for_each(|_| _ = queue.push(work(1, Class::Bulk, announced[1], 100), 1).unwrap());
    let got = serve(&mut queue, 1000);
    assert!(got[0].abs_diff(got[1]) <= 4, "{got:?}");
}

/// A new user is served before any user of its class is served twice, however many calls these have waiting.
#[test]
fn a_newcomer_waits_for_one_call_of_each() {
    for seed in 0..SEEDS {
        let mut random = SmallRng::seed_from_u64(seed);
        let users = random.random_range(1..60);
        let mut queue = Queue::new(limits(1));
        for user in 0..users {
            for _ in 0..random.random_range(20..60) {
                let cost = random.random_range(1..=COST_MAX);
                queue.push(work(user, Class::Bulk, cost, 100), user).unwrap();
            }
        }
        for _ in 0..random.random_range(0..300) {
            let Some((_, ticket)) = next(&mut queue) else { break };
            queue.finish(ticket, random.random_range(1..COST_MAX));
        }
        let newcomer = 1000;
        queue.push(work(newcomer, Class::Bulk, COST_MAX, 1), newcomer).unwrap();
        let mut before = BTreeMap::new();
        while let Some((user, ticket)) = next(&mut queue) {
            queue.finish(ticket, 1);
            if user == newcomer {
                break;
            }
            *before.entry(user).or_insert(0) += 1;
        }
        assert!(before.values().all(|count| *count == 1), "seed {seed}: {before:?}");
    }
}

/// An occasional small call is served next, whatever bulk calls wait; a flood of small calls leaves bulk
/// calls their share.
#[test]
fn small_calls_go_first_and_leave_something() {
    let mut queue = Queue::new(limits(1));
    for call in 0..2000 {
        queue.push(work(call % 50, Class::Bulk, 30, 100), Class::Bulk).unwrap();
    }
    for _ in 0..100 {
        let (class, ticket) = next(&mut queue).unwrap();
        assert_eq!(class, Class::Bulk);
        queue.push(work(99, Class::Small, 1, 100), Class::Small).unwrap();
        queue.finish(ticket, 30);
        let (class, ticket) = next(&mut queue).unwrap();
        assert_eq!(class, Class::Small);
        queue.finish(ticket, 1);
    }
    let mut got = [0, 0];
    for _ in 0..20_000 {
        while queue.waiting() < 2500 {
            queue.push(work(99, Class::Small, 1, 100), Class::Small).unwrap();
        }
        let (class, ticket) = next(&mut queue).unwrap();
        let cost = if class == Class::Small { 1 } else { 30 };
        got[class as usize] += cost;
        queue.finish(ticket, cost);
    }
    let (expected, is) = (f64::from(SMALL_SHARE), f64::from(got[0]) / f64::from(got[1]));
    assert!((is - expected).abs() < 0.2, "{got:?}");
}

/// Simulates one user with hundreds of clients and others with one each, on workers that take as long as the
/// calls cost: a batch system must not starve the others.
#[test]
fn a_batch_user_leaves_the_workers_to_others() {
    const WORKERS: usize = 16;
    for seed in 0..20 {
        let mut random = SmallRng::seed_from_u64(seed);
        let limits = Limits { workers_for_small: 2, user_share: 4, ..limits(WORKERS) };
        let mut queue: Queue<(u64, u64)> = Queue::new(limits);
        // The user, ticket and cost of each call being served, by end time.
        let mut ends: BTreeMap<(u64, u64), (u64, Ticket, u32)> = BTreeMap::new();
        let (mut now, mut serial, mut waits, mut served) = (0, 0, Vec::new(), [0; 2]);
        for _ in 0..250 {
            queue.push(work(0, Class::Bulk, 20, 100), (0, 0)).unwrap();
        }
        for user in 1..20 {
            queue.push(work(user, Class::Bulk, 20, 100), (user, 0)).unwrap();
        }
        while now < 20_000 {
            while let Some(((user, since), ticket)) = next(&mut queue) {
                serial += 1;
                let cost = random.random_range(10..30);
                ends.insert((now + u64::from(cost), serial), (user, ticket, cost));
                served[usize::from(user > 0)] += 1;
                if user == 999 {
                    waits.push(now - since);
                }
            }
            assert_eq!(ends.len().min(WORKERS - 2), WORKERS - 2, "seed {seed}: a worker is idle at {now}");
            let ((at, _), (user, ticket, cost)) = ends.pop_first().unwrap();
            now = at;
            queue.finish(ticket, cost);
            // Each client immediately calls again; an interactive user makes a small call now and then.
            let class = if user == 999 { None } else { Some(Class::Bulk) };
            if let Some(class) = class {
                queue.push(work(user, class, 20, 100), (user, now)).unwrap();
            }
            if random.random_range(0..10) == 0 {
                queue.push(work(999, Class::Small, 1, 100), (999, now)).unwrap();
            }
        }
        assert!(waits.len() > 500, "seed {seed}: {}", waits.len());
        waits.sort_unstable();
        assert!(waits[waits.len() * 99 / 100] <= 30, "seed {seed}: {:?}", &waits[waits.len() * 99 / 100..]);
        // The batch user holds four of the fourteen workers, and the others hold the rest.
        assert!(served[0] * 2 < served[1], "seed {seed}: {served:?}");
    }
}
