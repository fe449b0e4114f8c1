use super::*;
use crate::slab::Slab;
use base::Principal;
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use std::collections::HashSet;
use std::sync::Arc;

/// Number of steps, enough to exhaust the slots' generations in every lane many times.
const STEPS: usize = 20_000;

fn connection(user: Option<u32>) -> Connection {
    let identity = user.map_or(Identity::Anonymous, |user| {
        let name = format!("user{user}");
        Identity::Known(Principal { name, instance: String::new(), realm: String::new() })
    });
    let facts = ConnectionFacts {
        epoch: 1 << 31,
        connection_id: 4,
        service_id: 1,
        security_index: rx_security::null::NULL_INDEX,
    };
    let proof = Proof {
        identity,
        level: SecurityLevel::Clear,
        expires: None,
        lease: None,
        challenged: user.is_some(),
    };
    let parts = NewConnection {
        side: Side::Server,
        facts,
        path: Path { remote: SocketAddr::from(([10, 0, 0, 1], 7001)), local: None },
        peer: Slab::new().insert_with(|_| ()),
        security: Security { protection: None, stage: Stage::Verified(proof) },
        limits: TimeLimits { dead: std::time::Duration::from_secs(30), idle: None, total: None },
        serial: 1,
        standing: Standing::Verified,
    };
    Connection::new(parts, Monotonic(0))
}

/// Checks that the data a service attaches to a connection stays with that connection's caller when the slots
/// of two lanes are reused, even after their generations are exhausted.
#[test]
fn cached_state_belongs_to_one_caller() {
    let mut random = SmallRng::seed_from_u64(1);
    let mut lanes = [Slab::worn(u32::MAX - 3), Slab::worn((1 << 24) - 3)];
    let mut live: Vec<(usize, Key)> = Vec::new();
    let (mut numbers, mut keys) = (HashSet::new(), HashSet::new());
    for step in 0..STEPS as u32 {
        if live.len() < 3 || random.random_bool(0.5) {
            let (lane, user) = (random.random_range(0..2), random.random_bool(0.5).then_some(step));
            let key = lanes[lane].insert_with(|_| connection(user));
            let caller = lanes[lane].get(key).unwrap().caller();
            assert!(numbers.insert(caller.connection.number()), "a number came back");
            assert!(keys.insert((lane, key.number())), "a key came back");
            assert!(caller.connection.attached::<Identity>().is_none());
            caller.connection.attach(Arc::new(caller.identity));
            live.push((lane, key));
        } else {
            let (lane, key) = live.swap_remove(random.random_range(0..live.len()));
            lanes[lane].remove(key).unwrap();
            assert!(lanes[lane].get(key).is_none());
        }
        for (lane, key) in &live {
            let caller = lanes[*lane].get(*key).unwrap().caller();
            let remembered = caller.connection.attached::<Identity>();
            assert_eq!(remembered.as_deref(), Some(&caller.identity));
        }
    }
}
