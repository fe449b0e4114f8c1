//! Measures what counting a call costs: `cargo run --release -p observe --example cost CALLS USERS`;
//! instructions with `valgrind --tool=callgrind`. Each user has a connection, and they take turns.
//! docs/guide/observe.md has the figures.

use base::{CallContext, Caller, Identity, Principal, SecurityLevel, UnixTime, VolumeId};
use events::parts;
use observe::{Ended, Recorder};
use std::hint::black_box;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Instant;

/// Default number of calls.
const CALLS: u32 = 1_000_000;
/// Default number of users.
const USERS: u32 = 100;

fn caller(number: u32) -> Caller {
    let principal =
        Principal { name: format!("user{number}"), instance: String::new(), realm: "EXAMPLE.ORG".into() };
    Caller {
        identity: Identity::Known(principal),
        level: SecurityLevel::Encrypted,
        peer: SocketAddr::from(([10, 0, 0, 1], 7001)),
        local: IpAddr::V4(Ipv4Addr::LOCALHOST),
        connection: base::Connection::new(),
    }
}

fn main() {
    let argument = |place| std::env::args().nth(place).and_then(|text| text.parse().ok());
    let (calls, users) = (argument(1).unwrap_or(CALLS), argument(2).unwrap_or(USERS).max(1));
    let recorder = Arc::new(Recorder::default());
    recorder.remember_slow(500_000_000);
    let meter = recorder.service("AFS", afs_idl::fs::PROCEDURES, afs_idl::fs::class);
    let callers: Vec<Caller> = (0..users).map(caller).collect();
    let begun = Instant::now();
    for number in 0..calls {
        let call_begun = Instant::now();
        parts::begin();
        let caller = &callers[(number % users) as usize];
        let context = CallContext::new(black_box(caller));
        context.note_volume(VolumeId(536_870_912 + number % users % 16));
        let call = Ended {
            opcode: afs_idl::fs::FETCH_STATUS,
            result: Ok(()),
            fast_path: true,
            received: 16,
            sent: 148,
            wait_ns: 0,
            run_ns: call_begun.elapsed().as_nanos() as u64,
            parts_ns: parts::spent_ns(),
        };
        meter.ended(caller, &context.facts(), black_box(&call), || UnixTime(0));
    }
    let ns = begun.elapsed().as_nanos() / u128::from(calls.max(1));
    let counted = recorder.snapshot().volumes.total().calls;
    println!("{counted} calls counted, {ns} ns each, two looks at the clock included");
}
