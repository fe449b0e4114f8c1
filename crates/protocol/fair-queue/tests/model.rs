//! Compares the queue with a model that examines all waiting calls.

use fair_queue::{Class, Kind, Limits, Next, Queue, Refusal, Ticket, Work};
use proptest::prelude::*;
use std::collections::BTreeMap;

#[derive(Clone, Debug)]
enum Step {
    Push { user: u64, volume: u32, class: Class, cost: u32, weight: u32 },
    Next,
    Finish { which: usize, cost: u32 },
    Stall { which: usize },
    Resume { which: usize },
}

fn step() -> impl Strategy<Value = Step> {
    let class = prop_oneof![4 => Just(Class::Small), 4 => Just(Class::Bulk), 1 => Just(Class::Stranger)];
    let push = (0..6u64, 0..4u32, class, 1..40u32, prop_oneof![Just(100u32), 1..1000u32])
        .prop_map(|(user, volume, class, cost, weight)| Step::Push { user, volume, class, cost, weight });
    prop_oneof![
        6 => push,
        6 => Just(Step::Next),
        4 => (any::<usize>(), 0..60u32).prop_map(|(which, cost)| Step::Finish { which, cost }),
        1 => any::<usize>().prop_map(|which| Step::Stall { which }),
        1 => any::<usize>().prop_map(|which| Step::Resume { which }),
    ]
}

/// Every other user is verified.
fn kind_of(user: u64) -> Kind {
    if user.is_multiple_of(2) { Kind::Verified } else { Kind::Reachable }
}

fn limits() -> impl Strategy<Value = Limits> {
    (1..30usize, 1..20usize, 1..9usize, 0..4usize, 0..40usize, 1..6usize, 1..6usize, 0..3usize, 0..3usize)
        .prop_map(
            |(
                waiting_max,
                waiting_of_user_max,
                workers,
                for_small,
                served_max,
                user_share,
                volume_share,
                kept,
                kept_too,
            )| {
                Limits {
                    waiting_max,
                    waiting_of_user_max,
                    workers,
                    workers_for_small: for_small.min(workers - 1),
                    workers_kept: [kept, kept_too],
                    served_max: served_max.max(workers),
                    strangers_max: 4,
                    user_share,
                    volume_share,
                }
            },
        )
}

struct Model {
    limits: Limits,
    waiting: Vec<(usize, Work)>,
    served: Vec<(Work, Ticket, bool)>,
    strangers: Vec<(Work, Ticket)>,
}

impl Model {
    fn user_served(&self, user: u64) -> usize {
        self.served.iter().filter(|(work, ..)| work.user == user).count()
    }

    fn is_below_share(&self, work: &Work) -> bool {
        let alike = |it: &Work| it.volume == work.volume && it.kind == work.kind;
        let of_volume = self.served.iter().filter(|(it, ..)| alike(it)).count();
        self.user_served(work.user) < self.limits.user_share
            && (work.volume == 0 || of_volume < self.limits.volume_share)
    }

    /// Counts the calls being served: of one kind or all, bulk ones only or all, with or without stalled
    /// ones.
    fn count(&self, kind: Option<Kind>, bulk_only: bool, stalled: bool) -> usize {
        let counts = |(work, _, stalls): &&(Work, Ticket, bool)| {
            kind.is_none_or(|kind| kind == work.kind)
                && (!bulk_only || work.class == Class::Bulk)
                && (stalled || !*stalls)
        };
        self.served.iter().filter(counts).count()
    }

    fn kept(&self, kind: Kind) -> usize {
        let limits = &self.limits;
        limits.workers_kept[kind.index()].min(limits.workers - limits.workers_for_small - 1)
    }

    /// Whether there is a worker for calls of the kind and class.
    fn is_open(&self, kind: Kind, class: Class) -> bool {
        let limits = &self.limits;
        let other = if kind == Kind::Verified { Kind::Reachable } else { Kind::Verified };
        let (kept, others) = (self.kept(kind), self.kept(other));
        let working = self.count(Some(kind), false, false);
        let any = self.count(None, false, true) < limits.served_max
            && self.count(Some(kind), false, true) + others < limits.served_max
            && (working < kept
                || self.count(None, false, false) < limits.workers && working + others < limits.workers);
        if class == Class::Small {
            return any;
        }
        let for_small = limits.workers_for_small;
        let bulk_max = limits.workers - for_small;
        let bulk_working = self.count(Some(kind), true, false);
        let is_kept = working < kept && bulk_working < kept * bulk_max / limits.workers;
        any && self.count(None, true, true) + for_small < limits.served_max
            && self.count(Some(kind), true, true) + for_small + others < limits.served_max
            && (is_kept || self.count(None, true, false) < bulk_max && bulk_working + others < bulk_max)
    }

    fn could_serve(&self, work: &Work) -> bool {
        if work.class == Class::Stranger {
            let alike = self.strangers.iter().filter(|(it, _)| it.kind == work.kind).count();
            return self.strangers.len() < 4 && alike < 3;
        }
        let user_max = self.limits.workers.max(self.limits.served_max / 4);
        self.is_open(work.kind, work.class)
            && (self.is_below_share(work) || self.user_served(work.user) < user_max)
    }

    /// Returns the expected result of a push.
    fn push(&mut self, name: usize, work: Work) -> Result<Option<usize>, Refusal> {
        let of_user = self.waiting.iter().filter(|(_, it)| it.user == work.user).count();
        if of_user >= self.limits.waiting_of_user_max {
            return Err(Refusal::UserFull);
        }
        let is_stranger = |work: &Work| work.class == Class::Stranger;
        let alike = |it: &Work| is_stranger(it) == is_stranger(&work) && it.kind == work.kind;
        let room: Vec<(usize, u64)> =
            self.waiting.iter().filter(|(_, it)| alike(it)).map(|(name, it)| (*name, it.user)).collect();
        let mut displaced = None;
        if room.len() >= self.limits.waiting_max {
            let count = |user: u64| room.iter().filter(|(_, it)| *it == user).count();
            let (most, user) = room.iter().map(|(_, user)| (count(*user), *user)).max().unwrap();
            if count(work.user) + 1 >= most {
                return Err(Refusal::Full);
            }
            displaced = room.iter().rev().find(|(_, it)| *it == user).map(|(name, _)| *name);
            self.waiting.retain(|(name, _)| Some(*name) != displaced);
        }
        self.waiting.push((name, work));
        Ok(displaced)
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 600, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn every_step_is_one_that_the_model_allows(limits in limits(), steps in prop::collection::vec(step(), 1..400)) {
        let mut queue: Queue<usize> = Queue::new(limits);
        let mut model = Model { limits, waiting: Vec::new(), served: Vec::new(), strangers: Vec::new() };
        for (name, step) in steps.into_iter().enumerate() {
            match step {
                Step::Push { user, volume, class, cost, weight } => {
                    let work = Work { user, kind: kind_of(user), weight, volume, class, cost };
                    let expected = model.push(name, work);
                    prop_assert_eq!(queue.push(work, name), expected);
                }
                Step::Next => serve(&mut queue, &mut model)?,
                Step::Finish { which, cost } if which % 4 == 0 && !model.strangers.is_empty() => {
                    queue.finish(model.strangers.remove(which % model.strangers.len()).1, cost);
                }
                Step::Finish { which, cost } if !model.served.is_empty() => {
                    let (_, ticket, _) = model.served.swap_remove(which % model.served.len());
                    queue.finish(ticket, cost);
                }
                Step::Stall { which } if !model.served.is_empty() => {
                    let which = which % model.served.len();
                    let all = model.served.iter().filter(|(.., stalls)| *stalls).count();
                    let kind = model.served[which].0.kind;
                    let of_kind = model.count(Some(kind), false, true) - model.count(Some(kind), false, false);
                    let other = if kind == Kind::Verified { Kind::Reachable } else { Kind::Verified };
                    let others = model.kept(other);
                    let (_, ticket, stalls) = &mut model.served[which];
                    let stalled_max = limits.served_max - limits.workers;
                    let most = stalled_max - stalled_max * others / limits.workers;
                    let expected = *stalls || all < stalled_max && of_kind < most;
                    *stalls = queue.stall(ticket);
                    prop_assert_eq!(*stalls, expected);
                }
                Step::Resume { which } if !model.served.is_empty() => {
                    let which = which % model.served.len();
                    let (_, ticket, stalls) = &mut model.served[which];
                    queue.resume(ticket);
                    *stalls = false;
                }
                Step::Finish { .. } | Step::Stall { .. } | Step::Resume { .. } => {}
            }
            prop_assert_eq!(queue.waiting(), model.waiting.len());
            prop_assert_eq!(queue.served(), model.served.len());
            prop_assert_eq!(queue.stalled(), model.served.iter().filter(|(.., stalls)| *stalls).count());
        }
        // Every waiting call is served eventually.
        while !model.waiting.is_empty() || !model.served.is_empty() {
            for (_, ticket) in model.strangers.drain(..) {
                queue.finish(ticket, 1);
            }
            if let Some((_, ticket, _)) = model.served.pop() {
                queue.finish(ticket, 1);
            }
            serve(&mut queue, &mut model)?;
        }
    }

    #[test]
    fn draining_returns_all_waiting_calls(pushes in prop::collection::vec((0..5u64, 0..4u32, any::<bool>()), 0..60), served in 0..10usize) {
        let limits = Limits { waiting_max: 100, waiting_of_user_max: 100, workers: 5, workers_for_small: 1, workers_kept: [0; 2], served_max: 9, strangers_max: 1, user_share: 2, volume_share: 2 };
        let mut queue = Queue::new(limits);
        for (name, (user, volume, bulk)) in pushes.iter().enumerate() {
            let class = if *bulk { Class::Bulk } else { Class::Small };
            queue.push(Work { user: *user, kind: kind_of(*user), weight: 100, volume: *volume, class, cost: 3 }, name).unwrap();
        }
        let mut seen = Vec::new();
        let mut tickets = Vec::new();
        for _ in 0..served {
            if let Next::Serve(name, ticket) = queue.take_next() {
                seen.push(name);
                tickets.push(ticket);
            }
        }
        seen.extend(queue.drain());
        seen.sort_unstable();
        prop_assert_eq!(seen, (0..pushes.len()).collect::<Vec<_>>());
        prop_assert_eq!(queue.waiting(), 0);
        for ticket in tickets {
            queue.finish(ticket, 3);
        }
        prop_assert_eq!(queue.served(), 0);
    }
}

/// Takes the next call and checks that the model allows it.
fn serve(queue: &mut Queue<usize>, model: &mut Model) -> Result<(), TestCaseError> {
    let answer = std::iter::repeat_with(|| queue.take_next()).find(|next| !matches!(next, Next::Again));
    let Some(Next::Serve(name, ticket)) = answer else {
        let could = model.waiting.iter().find(|(_, work)| model.could_serve(work));
        prop_assert!(could.is_none(), "idle workers, and {could:?} waits");
        return Ok(());
    };
    let place = model.waiting.iter().position(|(it, _)| *it == name);
    let place = place.ok_or_else(|| TestCaseError::fail("served what does not wait"))?;
    let (_, work) = model.waiting[place];
    if work.kind == Kind::Reachable {
        let is_ahead = |it: &Work| {
            it.kind == Kind::Verified
                && (it.class == Class::Stranger || work.class != Class::Stranger)
                && model.could_serve(it)
        };
        let ahead = model.waiting.iter().find(|(_, it)| is_ahead(it));
        prop_assert!(ahead.is_none(), "{work:?} is served before {ahead:?}");
    }
    if work.class == Class::Stranger {
        prop_assert!(model.could_serve(&work), "too many strangers");
        model.waiting.remove(place);
        model.strangers.push((work, ticket));
        return Ok(());
    }
    prop_assert!(model.is_open(work.kind, work.class), "no worker was free for {work:?}");
    if !model.is_below_share(&work) {
        let is_better = |it: &Work| {
            it.class != Class::Stranger
                && it.kind == work.kind
                && model.is_open(it.kind, it.class)
                && model.is_below_share(it)
        };
        let better = model.waiting.iter().find(|(_, it)| is_better(it));
        prop_assert!(better.is_none(), "{work:?} is over its share, and {better:?} waits");
    }
    let first = model
        .waiting
        .iter()
        .find(|(_, it)| (it.user, it.volume, it.class) == (work.user, work.volume, work.class));
    prop_assert_eq!(first.map(|(name, _)| *name), Some(name), "out of order");
    model.waiting.remove(place);
    model.served.push((work, ticket, false));
    Ok(())
}

#[test]
fn calls_of_one_user_for_several_volumes_take_turns() {
    let limits = Limits {
        waiting_max: 100,
        waiting_of_user_max: 100,
        workers: 1,
        workers_for_small: 0,
        workers_kept: [0; 2],
        served_max: 1,
        strangers_max: 1,
        user_share: 1,
        volume_share: 1,
    };
    let mut queue = Queue::new(limits);
    let calls = [(1, 'a'), (1, 'b'), (1, 'c'), (2, 'd'), (3, 'e'), (2, 'f')];
    for (volume, name) in calls {
        queue
            .push(
                Work { user: 9, kind: Kind::Verified, weight: 100, volume, class: Class::Bulk, cost: 1 },
                name,
            )
            .unwrap();
    }
    let mut order = BTreeMap::new();
    for turn in 0..calls.len() {
        let Next::Serve(name, ticket) = queue.take_next() else { panic!("turn {turn}") };
        order.insert(turn, name);
        queue.finish(ticket, 1);
    }
    assert_eq!(order.values().collect::<String>(), "adebfc");
}
