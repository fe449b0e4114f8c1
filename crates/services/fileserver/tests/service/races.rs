//! Many concurrent clients: a client that holds a promise never relies on a version older than one that was
//! acknowledged before.

use crate::wire::mode;
use crate::world::{Client, World, root, serve};
use afs_idl::fs::{self, Server};
use base::CallContext;
use parking_lot::Mutex;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::sync::{Arc, Barrier};

const FILES: usize = 3;
const CLIENTS: u8 = 4;
const ROUNDS: usize = 20;
const STEPS_OF_A_ROUND: usize = 20;

/// The cache of a client: versions under promise, and the number of breaks received.
#[derive(Default)]
struct Cache {
    versions: HashMap<u32, u32>,
    breaks: u64,
}

struct Machine<'a> {
    world: &'a World,
    client: Client,
    cache: Arc<Mutex<Cache>>,
    files: &'a [fs::Fid],
    acknowledged: &'a [AtomicU64],
    /// Calls answered without a worker.
    at_once: &'a AtomicU64,
}

impl Machine<'_> {
    /// A status that arrives together with a break may be older than the break, so it is not cached.
    fn fetch(&self, file: usize) {
        let heard = self.cache.lock().breaks;
        let reply = self.world.status(&self.client, self.files[file]).unwrap();
        self.learn(heard, &[reply.status.data_version], &self.files[file..]);
    }

    fn fetch_concurrently(&self, file: usize) {
        let heard = self.cache.lock().breaks;
        if let Some(reply) = self.world.try_status(&self.client, self.files[file]) {
            self.learn(heard, &[reply.status.data_version], &self.files[file..]);
            self.at_once.fetch_add(1, SeqCst);
        }
    }

    fn fetch_all_concurrently(&self) {
        let heard = self.cache.lock().breaks;
        if let Some(reply) = self.world.try_statuses(&self.client, self.files) {
            let versions: Vec<u32> = reply.statuses.iter().map(|status| status.data_version).collect();
            self.learn(heard, &versions, self.files);
            self.at_once.fetch_add(1, SeqCst);
        }
    }

    fn learn(&self, heard: u64, versions: &[u32], files: &[fs::Fid]) {
        let mut cache = self.cache.lock();
        if cache.breaks == heard {
            cache.versions.extend(files.iter().map(|file| file.vnode).zip(versions.iter().copied()));
        }
    }

    fn rely(&self, file: usize) {
        let acknowledged = self.acknowledged[file].load(SeqCst);
        if let Some(version) = self.cache.lock().versions.get(&self.files[file].vnode) {
            assert!(u64::from(*version) >= acknowledged, "{version} is older than {acknowledged}");
        }
    }

    fn store(&self, file: usize) {
        self.cache.lock().versions.remove(&self.files[file].vnode);
        let status = self.world.write(&self.client, self.files[file], b"new").unwrap();
        self.acknowledged[file].fetch_max(u64::from(status.data_version), SeqCst);
    }

    fn run(&self, seed: u64, round: &Barrier) {
        let mut random = StdRng::seed_from_u64(seed);
        for step in 0..ROUNDS * STEPS_OF_A_ROUND {
            if step % STEPS_OF_A_ROUND == 0 {
                // Synchronises the threads, so that one that runs alone for a while still meets promises made
                // to the others.
                round.wait();
            }
            std::thread::yield_now();
            let file = random.random_range(0..FILES);
            match random.random_range(0..10) {
                0 => self.fetch(file),
                1..3 => self.fetch_concurrently(file),
                3 => self.fetch_all_concurrently(),
                4..8 => self.rely(file),
                _ => self.store(file),
            }
        }
    }
}

#[test]
fn promises_hold_under_concurrency() {
    let world = World::new();
    let maker = world.client("bob", 200);
    let files: Vec<fs::Fid> =
        (0..FILES).map(|n| world.create(&maker, root(), &format!("file {n}")).unwrap()).collect();
    let acknowledged: Vec<AtomicU64> = (0..FILES).map(|_| AtomicU64::new(0)).collect();
    let at_once = AtomicU64::new(0);
    let machines: Vec<Machine<'_>> = (1..=CLIENTS)
        .map(|number| {
            let client = world.client("alice", number);
            let cache = Arc::new(Mutex::new(Cache::default()));
            let reported = cache.clone();
            client.station.on_break(move |fids| {
                let mut cache = reported.lock();
                cache.breaks += 1;
                for fid in fids {
                    cache.versions.remove(&fid.vnode);
                }
            });
            let (files, acknowledged, at_once) = (&files, &acknowledged, &at_once);
            Machine { world: &world, client, cache, files, acknowledged, at_once }
        })
        .collect();
    let round = Barrier::new(machines.len());
    std::thread::scope(|scope| {
        for (seed, machine) in machines.iter().enumerate() {
            let round = &round;
            scope.spawn(move || machine.run(seed as u64, round));
        }
    });
    let counters = world.server.callback_counters();
    assert!(counters.breaks_delivered > 50, "{counters:?}");
    assert!(at_once.load(SeqCst) > 200, "{at_once:?} calls were answered at once");
    assert_eq!((counters.hosts_down, counters.deliveries_under_way), (0, 0));
}

#[test]
fn a_file_read_while_created_is_promised_in_its_last_version() {
    let world = World::new();
    let (alice, bob) = (world.client("alice", 1), world.client("bob", 2));
    world.status(&alice, root()).unwrap();
    // Alice is notified of the new file before bob gets his reply, and changes it immediately.
    let (server, caller) = (world.server.clone(), alice.caller.clone());
    alice.station.on_break(move |_| {
        let request = fs::LookupRequest { directory: root(), name: "file".into() };
        let Ok(found) = serve(&server, |call| call.lookup(&CallContext::new(&caller), request)) else {
            return;
        };
        let request = fs::StoreStatusRequest { fid: found.fid, status: mode(Some(0o600)) };
        serve(&server, |call| call.store_status(&CallContext::new(&caller), request)).unwrap();
    });
    let made = world.create_with(&bob, root(), "file", mode(Some(0o644))).unwrap();
    assert_eq!(made.file_status.unix_mode_bits, 0o600);
}
