//! Known waits and their reports. Only one test at a time watches, since a process has one watcher.

use super::*;
use crate::{Called, Current, Wait, Watcher, watch};
use events::catalogue::DiskAccess;
use events::lines::{Choice, Line};
use events::parts::Part;
use events::{FieldValue, LINES};
use parking_lot::Mutex as Plain;
use std::sync::Arc;
use std::sync::mpsc;
use std::time::Duration;

/// Longer than any thread takes to start waiting.
const PATIENCE: Duration = Duration::from_secs(60);

static ONE_AT_A_TIME: Plain<()> = Plain::new(());

/// Records reports about the tests' own locks and disks.
#[derive(Default)]
struct Notes(Plain<Vec<(Wait, Current)>>);

impl Watcher for Notes {
    fn waited(&self, wait: &Wait, call: &Current) {
        self.0.lock().push((*wait, call.clone()));
    }

    fn called(&self, _: &Called) {}
}

fn figures_of(name: LockName) -> LockFigures {
    let mut sum = LockFigures::default();
    FIGURES.each(|shard| sum.add(&shard[name as usize]));
    sum
}

fn figures() -> LockFigures {
    figures_of(LockName::Test)
}

/// Makes `wait` wait exactly once for what `take` takes, which is held until the gauge shows a waiting
/// thread.
fn wait_once<G>(take: impl Fn() -> G + Sync, wait: impl Fn()) {
    wait_once_for(LockName::Test, take, wait);
}

fn wait_once_for<G>(name: LockName, take: impl Fn() -> G + Sync, wait: impl Fn()) {
    let (before, waiting) = (figures_of(name).waits, &WAITING[name as usize]);
    let (taken, is_taken) = mpsc::channel();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let guard = take();
            taken.send(()).unwrap();
            let deadline = Instant::now() + PATIENCE;
            while waiting.load(SeqCst) == 0 && Instant::now() < deadline {
                std::thread::sleep(Duration::from_millis(1));
            }
            drop(guard);
        });
        is_taken.recv().unwrap();
        wait();
    });
    assert_eq!((figures_of(name).waits, waiting.load(SeqCst)), (before + 1, 0));
}

#[test]
fn lock_waits_name_the_holder() {
    let _one = ONE_AT_A_TIME.lock();
    let (lock, notes, before) = (Lock::new(LockName::Test, 1), Arc::new(Notes::default()), figures());
    drop(lock.lock());
    assert_eq!(figures(), before, "nobody had to wait");
    let watching = watch(notes.clone()).expect("nobody else watches");
    assert!(watch(notes.clone()).is_none(), "there is one already");
    crate::begin("TEST", &[(1, "Wait")]);
    crate::opcode(1);
    let guard = lock.lock();
    assert!(lock.try_lock().is_none());
    drop(guard);
    wait_once(|| lock.lock(), || drop(lock.lock()));
    drop(watching);
    wait_once(|| lock.lock(), || drop(lock.lock()));
    let news = figures().since(&before).unwrap();
    assert!(news.waits == 2 && news.wait.count() == 2, "{news:?}");
    let reported = std::mem::take(&mut *notes.0.lock());
    let [(wait, call)] = &reported[..] else { panic!("{reported:?}") };
    assert_eq!((wait.part, call.service, call.procedure), (Some(Part::Lock), "TEST", "Wait"));
    assert!(wait.ns > 0 && wait.ns <= news.wait.max(), "{wait:?}");
    let contended = wait.lock.unwrap();
    let holder = contended.holder.unwrap();
    assert_eq!(contended.lock, "test");
    assert!(holder.file().ends_with("lock/tests.rs"), "{holder}");
}

#[test]
fn readers_wait_for_a_writer_only() {
    let _one = ONE_AT_A_TIME.lock();
    let (lock, before) = (SharedLock::new(LockName::Test, ()), figures());
    let reader = lock.read();
    drop((lock.try_read().unwrap(), lock.read()));
    drop(reader);
    let writer = lock.write();
    assert!(lock.try_read().is_none());
    drop(writer);
    wait_once(|| lock.write(), || drop(lock.read()));
    assert_eq!(figures().since(&before).unwrap().waits, 1);
}

#[test]
fn nested_waits_count_once() {
    let _one = ONE_AT_A_TIME.lock();
    let notes = Arc::new(Notes::default());
    crate::begin("TEST", &[]);
    let watching = watch(notes.clone()).expect("nobody else watches");
    let span = crate::enter(Part::Disk);
    crate::disk(&DiskAccess { access: "sync", failed: 0, buffered: 0, moved: 0, time: 70 });
    span.leave(100);
    crate::waited(Part::Client, 5);
    drop(watching);
    crate::waited(Part::Client, 6);
    let reported: Vec<_> = notes.0.lock().iter().map(|(wait, _)| (wait.part, wait.ns, wait.access)).collect();
    let access = crate::Access { kind: "sync", bytes: 0 };
    let expected = [(None, 70, Some(access)), (Some(Part::Disk), 100, None), (Some(Part::Client), 5, None)];
    assert_eq!(reported, expected);
    assert_eq!(events::parts::spent_ns(), [0, 0, 100, 0, 11, 0]);
}

#[test]
fn lock_waits_leave_a_line_that_matches_the_counters() {
    let _one = ONE_AT_A_TIME.lock();
    let (lock, before, written) = (Lock::new(LockName::Test, 1), figures(), LINES.open());
    LINES.choose(&Choice::parse(["lock", "disk=1s"]).unwrap(), 1000);
    crate::begin("TEST", &[(1, "Wait")]);
    crate::opcode(1);
    crate::set_volume(7);
    wait_once(|| lock.lock(), || drop(lock.lock()));
    crate::disk(&DiskAccess { access: "sync", failed: 0, buffered: 0, moved: 0, time: 70 });
    LINES.choose(&Choice::default(), 0);
    wait_once(|| lock.lock(), || drop(lock.lock()));
    let lines: Vec<Line> = written.try_iter().collect();
    let reported = |line: &Line, name: &str| {
        line.reported.iter().find(|(of, _)| *of == name).map(|(_, reported)| reported.clone())
    };
    let [line] = &lines[..] else { panic!("{lines:?}") };
    assert_eq!(figures().waits - before.waits, 2);
    assert_eq!((line.event, reported(line, "lock")), ("lock", Some(FieldValue::from("test"))));
    assert_eq!(reported(line, "procedure"), Some(FieldValue::from("Wait")));
    assert_eq!(reported(line, "volume"), Some(FieldValue::Number(7)));
    assert!(
        matches!(reported(line, "holder"), Some(FieldValue::Text(site)) if site.contains("tests.rs:")),
        "{line:?}"
    );
    assert!(matches!(reported(line, "wait_ns"), Some(FieldValue::Number(ns)) if ns > 0), "{line:?}");
}

/// Each name has a different number of waits, so that a wait counted under another name is noticed.
#[test]
fn locks_are_reported_by_name() {
    const NAMES: [LockName; 5] =
        [LockName::Volume, LockName::Publish, LockName::Hosts, LockName::Lane, LockName::Segment];
    let _one = ONE_AT_A_TIME.lock();
    let (written, before) = (LINES.open(), lock_figures());
    LINES.choose(&Choice::parse(["lock"]).unwrap(), 1000);
    crate::begin("TEST", &[]);
    for (name, times) in NAMES.into_iter().zip(1..) {
        let (lock, shared) = (Lock::new(name, ()), SharedLock::new(name, ()));
        (0..times).for_each(|_| wait_once_for(name, || lock.lock(), || drop(lock.lock())));
        wait_once_for(name, || shared.write(), || drop(shared.read()));
        wait_once_for(name, || shared.read(), || drop(shared.write()));
    }
    LINES.choose(&Choice::default(), 0);
    let after = lock_figures();
    assert_eq!(after.len(), NAMES.len(), "a name is missing here: {after:?}");
    let news =
        after.iter().zip(&before).map(|((name, now), (_, before))| (*name, now.since(before).unwrap()));
    let lines: Vec<Line> = written.try_iter().collect();
    for ((name, news), times) in news.zip(3..) {
        let of_name = |line: &&Line| line.reported[0] == ("lock", FieldValue::from(name));
        let waited: Vec<u64> = lines.iter().filter(of_name).map(line_ns).collect();
        assert_eq!((news.waits, news.wait.count(), waited.len()), (times, times, times as usize), "{name}");
        assert_eq!(
            (news.wait.sum(), news.wait.max()),
            (waited.iter().sum(), waited.into_iter().max().unwrap())
        );
    }
    let documented = include_str!("../../../../../docs/guide/observe.md");
    for name in after.iter().map(|(name, _)| format!("\n| {name} | ")) {
        assert!(documented.contains(&name), "docs/guide/observe.md does not list{name}");
    }
}

fn line_ns(line: &Line) -> u64 {
    match line.reported.iter().find(|(name, _)| *name == "wait_ns") {
        Some((_, FieldValue::Number(ns))) => *ns,
        _ => panic!("{line:?}"),
    }
}
