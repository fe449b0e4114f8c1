//! Profiles of known loads. A process takes one profile at a time, so the tests run one at a time, too.

use crate::profiler::start_with;
use crate::{
    Document, IoRow, Kind, LatencyRow, LockRow, Refusal, Request, Stage, Table, document, functions, start,
    state, stop,
};
use disk::{Disk, DiskStep, File, HookedDisk, MeteredDisk, RealDisk};
use events::parts::Part;
use object::Object as _;
use parking_lot::{Mutex, MutexGuard};
use std::hint::black_box;
use std::io::IoSlice;
use std::net::Ipv4Addr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};
use waits::{Called, Client, Lock, LockName};

static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());

pub(crate) fn alone() -> MutexGuard<'static, ()> {
    ONE_AT_A_TIME.lock()
}

const WAITS: Request = Request { kind: Kind::Waits, seconds: 600, hz: 0 };
const CPU: Request = Request { kind: Kind::Cpu, seconds: 600, hz: 250 };

/// Waits until a stopped profile has ended.
fn ended(id: u64) {
    stop(id).unwrap();
    while state(id).unwrap().stage == Stage::Runs {
        thread::sleep(Duration::from_millis(5));
    }
}

/// Whether names of functions are available. A stripped test program has none: then the test fails, unless
/// `CELLAR_TEST_SKIP` contains the word `symbols`.
fn has_names() -> bool {
    let program = std::fs::read("/proc/self/exe").unwrap();
    let is_there = object::File::parse(&program[..]).unwrap().section_by_name(".symtab").is_some();
    let skipped = std::env::var("CELLAR_TEST_SKIP").unwrap_or_default();
    let is_skipped = skipped.split([',', ' ']).any(|word| word == "symbols");
    assert!(is_there || is_skipped, "the test program was stripped (CELLAR_TEST_SKIP=symbols skips names)");
    is_there
}

fn text(id: u64, which: Document) -> String {
    document(id, which).unwrap().to_string()
}

#[inline(never)]
fn burn_three_parts(mut value: u64) -> u64 {
    for _ in 0..3_000 {
        value = black_box(value.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1));
    }
    value
}

#[inline(never)]
fn burn_one_part(mut value: u64) -> u64 {
    for _ in 0..1_000 {
        value = black_box(value.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1));
    }
    value
}

#[inline(never)]
fn burn_both(is_over: &AtomicBool) {
    let mut value = 1;
    while !is_over.load(Relaxed) {
        value = black_box(burn_three_parts(value)) ^ black_box(burn_one_part(value));
    }
    black_box(value);
}

#[test]
fn functions_that_burn_the_processor_have_their_shares() {
    let _one = alone();
    let is_over = Arc::new(AtomicBool::new(false));
    let burning = is_over.clone();
    let thread = thread::Builder::new().name("burner-7".into()).spawn(move || burn_both(&burning)).unwrap();
    let id = start(CPU).unwrap();
    while state(id).unwrap().samples < 200 {
        thread::sleep(Duration::from_millis(20));
    }
    ended(id);
    is_over.store(true, Relaxed);
    thread.join().unwrap();
    let folded = text(id, Document::Stacks);
    let total_us = |name: &str| {
        let found = functions(&folded).into_iter().find(|function| function.name.ends_with(name));
        found.map_or(0, |function| function.total_us)
    };
    if !has_names() {
        return;
    }
    let (three, one, both) = (total_us("burn_three_parts"), total_us("burn_one_part"), total_us("burn_both"));
    // For 200 samples or more, the tolerance is five standard deviations of the expected share.
    let share = three * 100 / (three + one).max(1);
    assert!((60..=90).contains(&share), "{share} %, not 75\n{folded}");
    assert!(three + one <= both && (three + one) * 100 >= both * 80, "{three} {one} {both}\n{folded}");
    // The stack is complete, starting with the thread's kind.
    let line = folded.lines().find(|line| line.contains("burn_three_parts")).unwrap();
    assert!(line.starts_with("burner;") && !line.contains("[cut off]"), "{line}");
    assert!(line.find("burn_both").unwrap() < line.find("burn_three_parts").unwrap(), "{line}");
    assert_eq!(text(id, Document::Io), "");
}

/// Returns the running time of this thread as measured by the system.
fn ran() -> Duration {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap();
    Duration::from_nanos(text.split(' ').next().unwrap().parse().unwrap())
}

/// The system checks its timers only a few hundred times a second, so at this rate most periods end between
/// two checks.
#[test]
fn a_thread_that_runs_has_its_whole_time_at_any_rate() {
    let _one = alone();
    let burner = thread::Builder::new().name("allday".into()).spawn(|| {
        // It exists when the profiler first looks for threads, so it has its timer before there is any sample,
        // and until the profile has ended, so that all samples have its name.
        let id = start(Request { hz: 1000, ..CPU }).unwrap();
        let burn = || {
            black_box(burn_three_parts(black_box(1)));
            state(id).unwrap().samples
        };
        while burn() == 0 {}
        let before = ran();
        while ran() < before + Duration::from_secs(2) {
            burn();
        }
        let timed = ran().saturating_sub(before);
        ended(id);
        (id, [timed, ran()].map(|time| time.as_micros() as u64))
    });
    let (id, [timed_us, ran_us]) = burner.unwrap().join().unwrap();
    let folded = text(id, Document::Stacks);
    let of_burner = folded.lines().filter(|line| line.starts_with("allday;"));
    let reported_us: u64 =
        of_burner.map(|line| line.rsplit_once(' ').unwrap().1.parse::<u64>().unwrap()).sum();
    // Samples without a slot are lost.
    let lost_us = state(id).unwrap().lost * 1000;
    assert!(reported_us <= ran_us + 1000, "{reported_us} us of {ran_us}\n{folded}");
    assert!(
        (reported_us + lost_us) * 10 >= timed_us * 7,
        "{reported_us} us of {timed_us}, {lost_us} lost\n{folded}"
    );
}

#[test]
fn sleeping_threads_are_off_the_processor() {
    let _one = alone();
    let (begun, id) = (Instant::now(), start(CPU).unwrap());
    thread::sleep(Duration::from_millis(300));
    ended(id);
    let state = state(id).unwrap();
    assert!(state.elapsed >= Duration::from_millis(300) && state.elapsed <= begun.elapsed());
    let slept = functions(&text(id, Document::Stacks))
        .into_iter()
        .find(|function| function.name.contains("sleeping_threads_are_off_the_processor"));
    assert!(slept.is_none_or(|function| function.total_us < 150_000), "it slept");
}

/// Waits once, for 200 ms or more, for a lock in a call. Returns the actual duration.
fn wait_for_a_lock(lock: &Lock<u32>) -> Duration {
    let (taken, is_taken) = mpsc::channel();
    let (waiting, is_waiting) = mpsc::channel();
    thread::scope(|scope| {
        scope.spawn(move || {
            let guard = lock.lock();
            taken.send(()).unwrap();
            is_waiting.recv().unwrap();
            thread::sleep(Duration::from_millis(200));
            drop(guard);
        });
        is_taken.recv().unwrap();
        waits::begin("TEST", &[(7, "WaitForLock")]);
        waits::opcode(7);
        waits::set_volume(536_870_912);
        waiting.send(()).unwrap();
        let begun = Instant::now();
        drop(lock.lock());
        begun.elapsed()
    })
}

#[test]
fn held_locks_name_holder_waiter_and_time() {
    let _one = alone();
    let lock = Lock::new(LockName::Test, 0);
    loop {
        let id = start(WAITS).unwrap();
        // The profiler's thread starts to watch soon after.
        while !waits::is_watched() {
            thread::sleep(Duration::from_millis(1));
        }
        let waited = wait_for_a_lock(&lock);
        ended(id);
        let rows = LockRow::read(&text(id, Document::Locks)).unwrap();
        let Some(row) = rows.iter().find(|row| row.lock == "test") else {
            continue; // The holder released the lock before the wait began: a very busy machine.
        };
        if row.total_ns < 100_000_000 {
            continue; // The wait began late, for the same reason.
        }
        assert_eq!((row.waits, row.longest_ns, row.waiter.as_str()), (1, row.total_ns, "TEST WaitForLock"));
        assert!(u128::from(row.total_ns) <= waited.as_nanos(), "{row:?} {waited:?}");
        assert!(row.holder.contains("profile/src/tests.rs:"), "{row:?}");
        let folded = text(id, Document::Stacks);
        let line = folded.lines().find(|line| line.starts_with("TEST;WaitForLock;volume 536870912;[lock];"));
        let line = line.unwrap_or_else(|| panic!("{folded}"));
        let (stack, us) = line.rsplit_once(' ').unwrap();
        assert_eq!(us.parse::<u64>().unwrap(), row.total_ns / 1000);
        assert!(!has_names() || stack.contains("wait_for_a_lock"), "{line}");
        let innermost = stack.rsplit(';').next().unwrap();
        let takes = |taker: &&str| innermost.contains(taker);
        assert!(!["trace", "stack", "waited", "tell", "contended", "lock<"].iter().any(takes), "{line}");
        return;
    }
}

/// A disk whose files take 50 ms to read.
fn slow_disk() -> HookedDisk {
    HookedDisk::new(Arc::new(RealDisk), |step| {
        if step == DiskStep::Read {
            thread::sleep(Duration::from_millis(50));
        }
    })
}

#[inline(never)]
fn read_slowly(file: &dyn File) -> usize {
    let mut buffer = [0; 3];
    black_box(file.read_at(&mut buffer, 1).unwrap())
}

#[test]
fn slow_disk_waits_name_stack_volume_and_client() {
    let _one = alone();
    let folder = tempfile::tempdir().unwrap();
    let disk = MeteredDisk::new(Arc::new(slow_disk()), Arc::default());
    let file = disk.create(&folder.path().join("f")).unwrap();
    file.write_at(&[IoSlice::new(b"hello")], 0).unwrap();
    let id = start(WAITS).unwrap();
    while !waits::is_watched() {
        thread::sleep(Duration::from_millis(1));
    }
    waits::begin("TEST", &[(1, "Fetch")]);
    waits::opcode(1);
    waits::set_client(Client { host: Ipv4Addr::new(10, 0, 0, 1).into(), user: "ann".into() });
    waits::set_volume(7);
    for _ in 0..3 {
        assert_eq!(read_slowly(&*file), 3);
    }
    let parts_ns = events::parts::spent_ns();
    waits::called(&Called { service: "TEST", procedure: "Fetch", total_ns: 160_000_000, parts_ns });
    ended(id);
    let rows = IoRow::read(&text(id, Document::Io)).unwrap();
    let row = rows.iter().find(|row| row.volume == 7).unwrap_or_else(|| panic!("{rows:?}"));
    assert_eq!((row.access.as_str(), row.client.as_str()), ("read", "ann at 10.0.0.1"));
    assert_eq!((row.accesses, row.bytes), (3, 9));
    assert!(row.total_ns >= 150_000_000 && row.longest_ns <= row.total_ns - 100_000_000, "{row:?}");
    assert!(
        row.stack.starts_with("TEST;Fetch;") && (!has_names() || row.stack.contains("read_slowly")),
        "{row:?}"
    );
    let latencies = LatencyRow::read(&text(id, Document::Latencies)).unwrap();
    let row = latencies.iter().find(|row| row.procedure == "TEST Fetch").unwrap();
    assert_eq!((row.path.as_str(), row.calls, row.total_ns), ("disk", 1, 160_000_000));
    let folded = text(id, Document::Stacks);
    assert!(folded.contains("TEST;Fetch;volume 7;[disk];"), "{folded}");
    let waited: u64 = functions(&folded).into_iter().filter(|f| f.name == "[disk]").map(|f| f.total_us).sum();
    assert!(waited >= 150_000, "{folded}");
}

#[test]
fn short_waits_are_counted_without_their_stacks() {
    let _one = alone();
    let id = start(WAITS).unwrap();
    while !waits::is_watched() {
        thread::sleep(Duration::from_millis(1));
    }
    waits::begin("TEST", &[(1, "Quick")]);
    waits::opcode(1);
    (0..1000).for_each(|_| waits::waited(Part::Client, 3_000));
    ended(id);
    let folded = text(id, Document::Stacks);
    assert!(folded.contains("TEST;Quick;no volume;[client];(waits shorter than 10 us) 3000\n"), "{folded}");
    assert!(state(id).unwrap().samples >= 1000);
}

#[test]
fn there_is_one_profile_at_a_time_within_bounds() {
    let _one = alone();
    for (request, what) in [
        (Request { seconds: 0, ..CPU }, "seconds"),
        (Request { seconds: 601, ..WAITS }, "seconds"),
        (Request { hz: 0, ..CPU }, "samples a second"),
        (Request { hz: 1001, ..CPU }, "samples a second"),
    ] {
        let refusal = start(request).unwrap_err();
        assert!(matches!(refusal, Refusal::Bounds { .. }) && refusal.to_string().contains(what), "{refusal}");
    }
    let id = start(WAITS).unwrap();
    let refusal = start(CPU).unwrap_err();
    assert!(matches!(refusal, Refusal::Busy { left_s: 500.. }), "{refusal}");
    assert!(refusal.to_string().contains("one at a time"), "{refusal}");
    assert_eq!(document(id, Document::Stacks), Err(Refusal::NotYet));
    assert_eq!(stop(id ^ 2), Err(Refusal::Unknown(id ^ 2)));
    ended(id);
    document(id, Document::Stacks).unwrap();
    let next = start(CPU).unwrap();
    assert_eq!(document(id, Document::Stacks), Err(Refusal::Unknown(id)), "another came after it");
    ended(next);
}

#[test]
fn a_profile_whose_owner_has_vanished_ends_and_makes_room() {
    let _one = alone();
    let id = start_with(CPU, Duration::from_millis(300)).unwrap();
    // The owner does not query the state.
    let next = loop {
        match start(WAITS) {
            Ok(next) => break next,
            Err(Refusal::Busy { .. }) => thread::sleep(Duration::from_millis(20)),
            Err(other) => panic!("{other}"),
        }
    };
    assert_eq!(state(id), Err(Refusal::Unknown(id)));
    ended(next);
}
