//! Sums over many calls on many threads.

use crate::{Ended, Observed, Recorder, ServiceMeter, Sheet, SlowCall, Snapshot};
use base::{AbortCode, CallFacts, Caller, Identity, Principal, SecurityLevel, UnixTime};
use events::catalogue::{
    CacheCounts, Class, DiskFigures, HostFigures, LaneFigures, PeerFigures, ProcessFigures, UsageFigures,
    WorkerFigures,
};
use events::{Declared, Figures};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;

const PROCEDURES: &[(u32, &str)] = &[(130, "FetchData"), (133, "StoreData")];

fn caller(host: u8, name: &str) -> Caller {
    let principal = Principal { name: name.into(), instance: String::new(), realm: String::new() };
    Caller {
        identity: if name.is_empty() { Identity::Anonymous } else { Identity::Known(principal) },
        level: SecurityLevel::Clear,
        peer: SocketAddr::from(([10, 0, 0, host], 7001)),
        local: IpAddr::V4(Ipv4Addr::LOCALHOST),
        connection: base::Connection::new(),
    }
}

fn ended(opcode: u32) -> Ended {
    Ended {
        opcode,
        result: Ok(()),
        fast_path: false,
        received: 10,
        sent: 100,
        wait_ns: 3,
        run_ns: 5,
        parts_ns: Default::default(),
    }
}

fn meter(recorder: &Arc<Recorder>) -> ServiceMeter {
    recorder.service("AFS", PROCEDURES, afs_idl::fs::class)
}

fn count(meter: &ServiceMeter, who: &Caller, volume: u32, call: &Ended) {
    meter.ended(who, &CallFacts { volume, ..CallFacts::default() }, call, || UnixTime(9));
}

fn usage_totals(snapshot: &Snapshot) -> [UsageFigures; 3] {
    [snapshot.volumes.total(), snapshot.clients.total(), snapshot.pairs.total().usage()]
}

#[test]
fn calls_of_many_threads_add_up_in_every_table() {
    let recorder = Arc::new(Recorder::default());
    let meter = meter(&recorder);
    std::thread::scope(|scope| {
        for thread in 0..8 {
            let meter = &meter;
            scope.spawn(move || {
                for call in 0..1000_u32 {
                    let who = caller(thread, ["", "alice", "bob"][call as usize % 3]);
                    count(meter, &who, call % 7, &ended([130, 133, 999][call as usize % 3]));
                }
            });
        }
    });
    let snapshot = recorder.snapshot();
    let by_name: Vec<(&str, u64)> =
        snapshot.calls.iter().map(|(procedure, figures)| (procedure.name, figures.calls)).collect();
    assert_eq!(by_name, [("FetchData", 8 * 334), ("StoreData", 8 * 333), ("unknown", 8 * 333)]);
    for total in usage_totals(&snapshot) {
        assert_eq!((total.calls, total.received, total.sent), (8000, 80_000, 800_000));
        assert_eq!((total.wait, total.run, total.longest.value()), (24_000, 40_000, 8));
        assert_eq!(total.classes[Class::Fetch as usize], 8 * 334);
    }
    assert_eq!(snapshot.clients.rows().count(), 24);
    let of_volume_3: u64 = snapshot.clients_of(3).rows.iter().map(|row| row.figures.calls).sum();
    let volume_3 = snapshot.volumes.rows().find(|(volume, _)| **volume == 3).unwrap().1.calls;
    assert_eq!(of_volume_3, volume_3);
    let calls_of_3 = snapshot.calls_of(3);
    assert_eq!(calls_of_3.rows.iter().map(|row| row.figures.calls).sum::<u64>(), volume_3);
    let of = |procedure: &str, host: &str, user: &str| {
        let wanted = [host, user, "AFS", procedure];
        calls_of_3.rows.iter().find(|row| row.labels == wanted).map_or(0, |row| row.figures.calls)
    };
    // Calls 3, 10, 17, ... of 1000, made by three users in turn, each of whom calls only one procedure.
    assert_eq!(of("FetchData", "10.0.0.5", "anonymous"), 48);
    assert_eq!((of("StoreData", "10.0.0.5", "alice"), of("FetchData", "10.0.0.5", "alice")), (48, 0));
}

/// With more clients than rows, all their calls still count for the volume.
#[test]
fn a_volume_has_the_calls_of_clients_that_lost_their_rows() {
    let recorder = Arc::new(Recorder::default());
    let meter = meter(&recorder);
    for number in 0..5000_u32 {
        let host = SocketAddr::from((Ipv4Addr::from(0x0a00_0000 + number), 7001));
        let who = Caller { peer: host, connection: base::Connection::new(), ..caller(0, "alice") };
        count(&meter, &who, 7 + number % 2, &ended(130));
        count(&meter, &who, 7, &ended(133));
    }
    let snapshot = recorder.snapshot();
    for total in usage_totals(&snapshot) {
        assert_eq!((total.calls, total.sent, total.longest.value()), (10_000, 1_000_000, 8));
        assert_eq!(total.classes[Class::Store as usize], 5000);
    }
    let calls = |wanted: u32| snapshot.volumes.rows().find(|(volume, _)| **volume == wanted).unwrap().1.calls;
    assert_eq!([calls(7), calls(8)], [7500, 2500]);
    assert!(snapshot.pairs.rows().count() <= 4096 && snapshot.clients.rows().count() <= 4096);
}

/// A server with known peers.
struct WithPeers(Arc<Recorder>);

impl Observed for WithPeers {
    fn snapshot(&self) -> Snapshot {
        self.0.snapshot()
    }
    fn slow(&self) -> (u64, Vec<(u64, SlowCall)>) {
        (0, Vec::new())
    }
    fn lanes(&self) -> Sheet<LaneFigures> {
        Sheet::new(&["port", "lane"])
    }
    fn workers(&self) -> Sheet<WorkerFigures> {
        Sheet::new(&["port"])
    }
    fn disks(&self) -> Sheet<DiskFigures> {
        Sheet::new(&["partition", "access"])
    }
    fn caches(&self) -> Sheet<CacheCounts> {
        Sheet::new(&["cache"])
    }
    fn process(&self) -> Sheet<ProcessFigures> {
        Sheet::new(&[])
    }
    fn peers(&self) -> Sheet<PeerFigures> {
        let mut sheet = Sheet::new(&["port", "peer"]);
        let of = |connections, opened| PeerFigures { connections, opened, ..PeerFigures::default() };
        sheet.push(["fileserver", "10.0.0.1:7001"], of(2, 5));
        sheet.push(["vlserver", "10.0.0.1:31000"], of(1, 1));
        sheet.push(["fileserver", "10.0.0.9:7001"], of(4, 4));
        sheet.push([""; 0], of(7, 70));
        sheet
    }
}

#[test]
fn hosts_are_the_sum_of_their_users_and_ports() {
    let recorder = Arc::new(Recorder::default());
    let meter = meter(&recorder);
    for (host, user, opcode) in [(1, "alice", 130), (1, "bob", 133), (1, "bob", 999), (2, "bob", 130)] {
        count(&meter, &caller(host, user), 5, &ended(opcode));
    }
    let hosts = WithPeers(recorder).hosts();
    let row = |host: &str| &hosts.rows.iter().find(|row| row.labels == [host]).unwrap().figures;
    let first = row("10.0.0.1");
    assert_eq!((first.connections, first.opened, first.calls, first.data_calls), (3, 6, 3, 2));
    assert_eq!((first.data, first.data_time, first.data_longest.value()), (220, 16, 8));
    assert_eq!((row("10.0.0.2").calls, row("10.0.0.2").connections), (1, 0));
    assert_eq!((row("10.0.0.9").calls, row("10.0.0.9").opened), (0, 4));
}

#[test]
fn nothing_is_counted_while_counting_is_off() {
    let recorder = Arc::new(Recorder::default());
    let meter = meter(&recorder);
    recorder.remember_slow(1);
    recorder.count(false);
    count(&meter, &caller(1, "x"), 5, &ended(130));
    assert!(recorder.snapshot().calls.is_empty() && recorder.slow_calls().is_empty());
    recorder.count(true);
    count(&meter, &caller(1, "x"), 5, &ended(130));
    assert_eq!(recorder.snapshot().volumes.total().calls, 1);
}

#[test]
fn invented_hosts_and_volumes_grow_nothing_and_lose_nothing() {
    let recorder = Arc::new(Recorder::default());
    let meter = meter(&recorder);
    for call in 0..20_000_u32 {
        let mut who = caller(1, "");
        who.peer.set_ip(IpAddr::V4(Ipv4Addr::from(call)));
        count(&meter, &who, call, &ended(130));
    }
    let snapshot = recorder.snapshot();
    assert!(usage_totals(&snapshot).iter().all(|total| total.calls == 20_000));
    // Settled rows, and rows of clients of volumes.
    assert!(snapshot.clients.rows().count() <= 2 * 512);
    let sheet = snapshot.client_sheet();
    assert!(sheet.rows.len() <= 1001);
    assert_eq!(sheet.rows.iter().map(|row| row.figures.calls).sum::<u64>(), 20_000);
    assert!(sheet.rows.last().unwrap().labels.is_empty());
}

#[test]
fn a_service_on_two_ports_is_one() {
    let recorder = Arc::new(Recorder::default());
    let failed = Ended { result: Err(AbortCode::VBUSY), fast_path: true, ..ended(130) };
    for meter in [meter(&recorder), meter(&recorder)] {
        count(&meter, &caller(1, "x"), 5, &failed);
    }
    let snapshot = recorder.snapshot();
    let [(procedure, figures)] = &snapshot.calls[..] else { panic!("{:?}", snapshot.calls) };
    assert_eq!((procedure.class, figures.calls, figures.fast_path), (Class::Fetch, 2, 2));
    assert_eq!((figures.wait.count(), figures.run.count()), (0, 2));
    assert_eq!(figures.outcomes.iter().sum::<u64>(), 2);
    assert_eq!(figures.values().len(), events::catalogue::CallFigures::DECLARATIONS.len());
    assert_eq!(snapshot.volumes.rows().map(|(_, row)| row.failed).sum::<u64>(), 2);
    assert_eq!(snapshot.volumes.others().weight(), 0);
}

#[test]
fn only_calls_that_take_as_long_are_remembered() {
    let recorder = Arc::new(Recorder::default());
    let meter = meter(&recorder);
    let took = |run_ns| Ended { run_ns, ..ended(133) };
    count(&meter, &caller(1, "x"), 5, &took(1_000_000));
    assert!(recorder.slow_calls().is_empty(), "nobody asked for it");
    recorder.remember_slow(1_000);
    count(&meter, &caller(1, "x"), 5, &took(996));
    count(&meter, &caller(1, "x"), 5, &took(997));
    let slow = recorder.slow_calls();
    let [(1, call)] = &slow[..] else { panic!("{slow:?}") };
    assert_eq!(
        (call.procedure.name, call.volume, call.total_ns, call.ended),
        ("StoreData", 5, 1000, UnixTime(9))
    );
}

/// One long call does not hide the calls that end after it.
#[test]
fn the_longest_call_is_that_of_the_time_between_two_looks() {
    let recorder = Arc::new(Recorder::default());
    let meter = meter(&recorder);
    let took = |run_ns| Ended { wait_ns: 0, run_ns, ..ended(130) };
    let who = caller(1, "x");
    count(&meter, &who, 5, &took(9_000));
    let observed = WithPeers(recorder.clone());
    let look = || {
        let snapshot = observed.snapshot();
        let of = |sheet: Sheet<UsageFigures>, labels: &[&str]| {
            sheet.rows.into_iter().find(|row| row.labels == labels).unwrap().figures
        };
        let (host, user) = ("10.0.0.1", "x");
        let usage = [
            of(snapshot.volume_sheet(), &["5"]),
            of(snapshot.client_sheet(), &[host, user]),
            of(snapshot.clients_of(5), &[host, user]),
            of(snapshot.calls_of(5), &[host, user, "AFS", "FetchData"]),
        ];
        let hosts = observed.hosts();
        (usage, hosts.rows.into_iter().find(|row| row.labels == [host]).unwrap().figures)
    };
    let longest = |before: &([UsageFigures; 4], HostFigures)| {
        let now = look();
        let since =
            |(now, before): (&UsageFigures, &UsageFigures)| now.since(before).unwrap().longest.value();
        let of_usage: Vec<u64> = now.0.iter().zip(&before.0).map(since).collect();
        let of_host = now.1.since(&before.1).unwrap().data_longest.value();
        assert!(of_usage.iter().all(|of| *of == of_host), "{of_usage:?} {of_host}");
        of_host
    };
    let first = look();
    assert_eq!(first.0[0].longest.value(), 9_000);
    assert_eq!(longest(&first), 9_000, "it may have ended after that look, as far as is known");
    recorder.next_period();
    let second = look();
    assert_eq!(longest(&second), 0, "nothing came");
    count(&meter, &who, 5, &took(400));
    assert_eq!(longest(&second), 400);
    recorder.next_period();
    count(&meter, &who, 5, &took(300));
    assert_eq!((longest(&second), longest(&look())), (400, 300));
    (0..9).for_each(|_| recorder.next_period());
    assert_eq!(longest(&look()), 0);
    assert_eq!(look().0[0].longest.value(), 9_000, "since the start");
}
