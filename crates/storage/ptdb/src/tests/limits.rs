//! Many entries, and concurrent callers.

use super::{Fixture, NOW};
use crate::{Actor, Kind};
use base::{AbortCode, UserId};
use std::collections::BTreeSet;

#[test]
fn concurrent_creations_have_one_winner() {
    let f = Fixture::new();
    let outcomes: Vec<_> = std::thread::scope(|scope| {
        let threads: Vec<_> =
            (0..8).map(|_| scope.spawn(|| f.create(&Actor::cell(), "wanted", Kind::User))).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    assert_eq!(outcomes.iter().filter(|outcome| outcome.is_ok()).count(), 1);
    assert!(outcomes.iter().all(|o| o.is_ok() || *o == Err(AbortCode::PREXIST)), "{outcomes:?}");
}

#[test]
fn concurrently_created_ids_are_distinct() {
    let f = Fixture::new();
    let ids: BTreeSet<_> = std::thread::scope(|scope| {
        let create = |thread: u32| {
            let f = &f;
            move || (0..20).map(|n| f.user(&format!("u{thread}-{n}"))).collect::<Vec<_>>()
        };
        let threads: Vec<_> = (0..4).map(|thread| scope.spawn(create(thread))).collect();
        threads.into_iter().flat_map(|thread| thread.join().unwrap()).collect()
    });
    assert_eq!(ids, (1..=80).map(UserId).collect());
}

#[test]
fn a_listing_in_steps_neither_repeats_nor_misses() {
    let f = Fixture::new();
    let users: Vec<_> = (0..30).map(|n| f.user(&format!("u{n}"))).collect();
    let mut seen = Vec::new();
    let mut from = Some(0);
    while let Some(position) = from {
        let (entries, next) = f.db.list(&Actor::cell(), position, 7, &|entry| !entry.is_group()).unwrap();
        seen.extend(entries.into_iter().map(|entry| entry.id));
        // Change the database between the steps.
        if let Some(&id) = seen.last().filter(|id| id.0 > 0 && **id != UserId::ANONYMOUS) {
            f.db.delete(&Actor::cell(), id, NOW).unwrap();
            f.user(&format!("late{}", id.0));
        }
        from = next;
    }
    let distinct: BTreeSet<_> = seen.iter().copied().collect();
    assert_eq!(distinct.len(), seen.len());
    assert!(users.iter().all(|user| distinct.contains(user)));
}

#[test]
fn a_group_may_have_many_members() {
    let f = Fixture::new();
    let group = f.group("all", UserId::ADMINISTRATORS);
    let users: Vec<_> = (0..300).map(|n| f.user(&format!("u{n}"))).collect();
    for &user in &users {
        f.add(user, group);
    }
    assert_eq!(f.db.elements(&Actor::cell(), group).unwrap(), users);
    assert_eq!(f.entry(group).count, 300);
    f.db.delete(&Actor::cell(), group, NOW).unwrap();
    assert_eq!(f.entry(users[7]).count, 0);
    assert_eq!(f.db.elements(&Actor::cell(), users[7]).unwrap(), []);
}
