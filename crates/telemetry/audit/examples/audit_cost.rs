//! Measures what recording a call costs the thread that serves it: `cargo run --release -p audit --example
//! audit_cost none|denied|all CALLS`; instructions of that thread with `valgrind --tool=callgrind
//! --separate-threads=yes`. With `none` no audit is configured, with `denied` a sink has the default filter
//! (which excludes a successful FetchStatus), with `all` every call is written to /dev/null.
//! docs/guide/audit.md has the figures.

use audit::{Call, Filter, Form, Messages, Policy, ServiceTrail, SinkSettings, Target, Trail};
use base::{CallFacts, Caller, Identity, LocalAuthority, Monotonic, Principal, SecurityLevel};
use std::hint::black_box;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::{Arc, LazyLock};
use std::time::Instant;

/// Default number of calls.
const CALLS: u32 = 1_000_000;

static START: LazyLock<Instant> = LazyLock::new(Instant::now);

fn clock() -> Monotonic {
    Monotonic(START.elapsed().as_nanos() as u64)
}

struct Authority;

impl LocalAuthority for Authority {
    fn is_superuser(&self, _: &Caller) -> bool {
        false
    }

    fn is_local_realm(&self, _: &Principal) -> bool {
        true
    }
}

fn caller(number: u64) -> Caller {
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

/// Starts an audit with the thread of its sink.
fn service(filter: Filter, form: Form) -> (Arc<Trail>, ServiceTrail) {
    let settings = SinkSettings {
        name: "cost".into(),
        target: Target::File("/dev/null".into()),
        form,
        filter,
        policy: Policy::Block,
        queue_records: 16_384,
    };
    let authority: Arc<dyn LocalAuthority> = Arc::new(Authority);
    let trail = Arc::new(Trail::start(&[settings], &[], &authority, clock).expect("a thread can be started"));
    let service = trail.service("AFS", afs_idl::fs::PROCEDURES);
    (trail, service)
}

/// Records a call in the same way as the dispatcher.
fn record(service: Option<&ServiceTrail>, caller: &Caller, request: &[u8], reply: &[u8], ended: Monotonic) {
    let Some(service) = service else { return };
    if let Some(outline) = service.begin_good(black_box(afs_idl::fs::FETCH_STATUS)) {
        if !service.has_room() {
            // The dispatcher passes the call to a worker, which waits.
            std::thread::yield_now();
        }
        let facts = CallFacts { user: 42, ..CallFacts::default() };
        let call = Call { caller, result: Ok(()), facts: &facts, took_ns: 10_000, ended };
        service.record(outline, Messages { request, reply }, &call);
    }
}

fn main() {
    let mut arguments = std::env::args().skip(1);
    let mode = arguments.next().unwrap_or_else(|| "all".into());
    let calls = arguments.next().and_then(|text| text.parse().ok()).unwrap_or(CALLS);
    let form = arguments.next().and_then(|text| text.parse().ok()).unwrap_or(Form::Json);
    let made = match &*mode {
        "none" => None,
        "denied" => Some(service(Filter::default(), form)),
        _ => Some(service(Filter::ALL, form)),
    };
    let callers: Vec<Caller> = (0..100).map(caller).collect();
    let mut request = afs_idl::fs::FETCH_STATUS.to_be_bytes().to_vec();
    request.extend(xdr::to_vec(&afs_idl::fs::Fid { volume: 536_870_912, vnode: 1, unique: 1 }));
    let begun = Instant::now();
    for number in 0..calls {
        let caller = &callers[(number % 100) as usize];
        record(
            black_box(made.as_ref().map(|made| &made.1)),
            black_box(caller),
            black_box(&request),
            &[0; 148],
            // The clock is read in any case: the file server measures how long each call takes.
            black_box(clock()),
        );
    }
    let ns = begun.elapsed().as_nanos() / u128::from(calls.max(1));
    if let Some((trail, _)) = &made {
        trail.stop();
        println!("{:?}", trail.figures());
    }
    println!("{calls} calls, {ns} ns each");
}
