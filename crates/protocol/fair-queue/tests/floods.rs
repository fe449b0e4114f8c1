//! Floods of anonymous calls alongside verified ones.

use fair_queue::{Class, Kind, Limits, Next, Queue, Refusal, Ticket, Work};

const FLOOD: u64 = 12_000;

/// First number of the verified users, above those of the flood.
const VERIFIED: u64 = 1 << 40;

fn limits() -> Limits {
    Limits {
        waiting_max: 10_000,
        waiting_of_user_max: 5_000,
        workers: 64,
        workers_for_small: 7,
        workers_kept: [7, 7],
        served_max: 256,
        strangers_max: 128,
        user_share: 16,
        volume_share: 32,
    }
}

fn work(user: u64, class: Class) -> Work {
    let kind = if user >= VERIFIED { Kind::Verified } else { Kind::Reachable };
    Work { user, kind, weight: 100, volume: 5, class, cost: 1 }
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

/// Returns a queue in which anonymous calls of a class, each from its own address, occupy everything that
/// they can.
fn flooded(class: Class) -> (Queue<u64>, Vec<Ticket>) {
    let mut queue = Queue::new(limits());
    let mut served = Vec::new();
    for user in 0..FLOOD {
        let _ = queue.push(work(user, class), user);
        served.extend(next(&mut queue).map(|(_, ticket)| ticket));
        // Stalls as many calls as possible.
        for ticket in &mut served {
            queue.stall(ticket);
        }
    }
    assert_eq!(queue.push(work(FLOOD, class), FLOOD), Err(Refusal::Full));
    assert!(next(&mut queue).is_none());
    (queue, served)
}

#[test]
fn a_flood_neither_refuses_nor_delays_verified_calls() {
    for class in [Class::Small, Class::Bulk, Class::Stranger] {
        let (mut queue, mut served) = flooded(class);
        // All stalled calls resume together.
        for ticket in &mut served {
            queue.resume(ticket);
        }
        let mut tickets = Vec::new();
        let at_once = if class == Class::Bulk { 6 } else { 7 };
        for call in 0..at_once {
            queue.push(work(VERIFIED + call, class), VERIFIED + call).unwrap();
            let (served, ticket) = next(&mut queue).expect("a worker is kept");
            assert_eq!(served, VERIFIED + call, "{class:?}");
            tickets.push(ticket);
        }
    }
}

/// This holds beyond the workers guaranteed to verified callers.
#[test]
fn verified_calls_go_before_anonymous_ones_that_came_first() {
    let (mut queue, served) = flooded(Class::Small);
    (0..100).for_each(|call| _ = queue.push(work(VERIFIED + call, Class::Small), VERIFIED + call).unwrap());
    let mut own: Vec<Ticket> = std::iter::from_fn(|| next(&mut queue)).map(|(_, ticket)| ticket).collect();
    let mut verified = own.len();
    for ticket in served {
        queue.finish(ticket, 1);
        while let Some((call, ticket)) = next(&mut queue) {
            assert!(call >= VERIFIED || verified >= 57, "an anonymous call was served first");
            verified += usize::from(call >= VERIFIED);
            own.push(ticket);
        }
    }
    assert_eq!(verified, 57, "all workers but those kept for anonymous calls");
}

#[test]
fn anonymous_calls_keep_workers_of_their_own() {
    let mut queue = Queue::new(limits());
    (0..200).for_each(|call| _ = queue.push(work(VERIFIED + call, Class::Small), VERIFIED + call).unwrap());
    let served = std::iter::from_fn(|| next(&mut queue)).count();
    assert_eq!(served, 57);
    queue.push(work(1, Class::Small), 1).unwrap();
    assert_eq!(next(&mut queue).map(|(call, _)| call), Some(1));
}

#[test]
fn the_newest_call_of_the_user_with_most_makes_room() {
    let mut queue = Queue::new(Limits { waiting_max: 6, ..limits() });
    for (call, user) in [(0, 1), (1, 1), (2, 2), (3, 1), (4, 2), (5, 1)] {
        assert_eq!(queue.push(work(user, Class::Small), call), Ok(None));
    }
    assert_eq!(queue.push(work(1, Class::Bulk), 6), Err(Refusal::Full), "user 1 has most");
    assert_eq!(queue.push(work(3, Class::Bulk), 7), Ok(Some(5)));
    assert_eq!(queue.push(work(4, Class::Small), 8), Ok(Some(3)));
    assert_eq!(
        queue.push(work(5, Class::Small), 9),
        Ok(Some(4)),
        "users 1 and 2 have two, and 2 is the larger number"
    );
    assert_eq!(queue.push(work(3, Class::Small), 10), Err(Refusal::Full), "nobody has more");
    assert_eq!(queue.push(work(VERIFIED, Class::Small), 11), Ok(None), "another room");
    assert_eq!(queue.push(work(6, Class::Stranger), 12), Ok(None), "and another");
    let mut left = queue.drain();
    left.sort_unstable();
    assert_eq!(left, [0, 1, 2, 7, 8, 9, 11, 12]);
}
