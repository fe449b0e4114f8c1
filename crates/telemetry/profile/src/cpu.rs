//! A profile of the code that runs on the processors.

use crate::folded::{self, Line};
use crate::report::{Progress, Report};
use crate::sum::{ROWS_MAX, Sum};
use crate::symbols::Symbols;
use crate::sys::{Sampling, ThreadTimer};
use crate::unwinding::Unwinding;
use events::Table;
use std::collections::HashMap;
use std::fs;
use std::io;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

/// How often samples are collected; there is space for many more in between.
const COLLECT_EVERY: Duration = Duration::from_millis(20);

/// Interval of scans for new threads.
const THREADS_EVERY: Duration = Duration::from_millis(200);

/// Maximum number of sampled threads.
const THREADS_MAX: usize = 8192;

/// A thread's kind, and addresses from the innermost function outwards.
type Key = (String, Vec<u64>);

/// A sampled thread.
struct Thread {
    name: String,
    /// Whether it existed at the previous scan, so that its name is its own and not that of the thread that
    /// started it.
    is_settled: bool,
    _timer: ThreadTimer,
}

/// Samples until `is_over` returns true; returns folded stacks in microseconds.
pub(crate) fn run(hz: u32, progress: &Progress, is_over: impl Fn() -> bool) -> io::Result<Report> {
    let period = Duration::from_secs(1) / hz.max(1);
    let mut unwinding = Unwinding::new();
    let sampling = Sampling::start()?;
    let (stacks, lost) = collect(&sampling, &mut unwinding, period, progress, is_over)?;
    drop(sampling);
    progress.lost.store(lost, Relaxed);
    Ok(Report::of_stacks(fold(&stacks, &unwinding)))
}

fn collect(
    sampling: &Sampling,
    unwinding: &mut Unwinding,
    period: Duration,
    progress: &Progress,
    is_over: impl Fn() -> bool,
) -> io::Result<(Table<Key, Sum>, u64)> {
    let mut stacks = Table::new(ROWS_MAX);
    let mut threads = HashMap::new();
    let mut looked: Option<Instant> = None;
    while !is_over() {
        if looked.is_none_or(|at| at.elapsed() >= THREADS_EVERY) {
            look_for_threads(&mut threads, period)?;
            looked = Some(Instant::now());
        }
        std::thread::sleep(COLLECT_EVERY);
        take(sampling, unwinding, &threads, period, progress, &mut stacks);
    }
    // No more signals arrive from here on; the samples they left are collected.
    let names = threads;
    take(sampling, unwinding, &names, period, progress, &mut stacks);
    Ok((stacks, sampling.lost()))
}

fn take(
    sampling: &Sampling,
    unwinding: &mut Unwinding,
    threads: &HashMap<i32, Thread>,
    period: Duration,
    progress: &Progress,
    stacks: &mut Table<Key, Sum>,
) {
    sampling.collect(|sample| {
        let name = threads.get(&sample.thread).map(|thread| thread.name.clone()).unwrap_or_default();
        stacks
            .row(&(name, unwinding.frames(sample)))
            .record(period.as_nanos() as u64 * u64::from(sample.periods), 0);
        progress.samples.fetch_add(1, Relaxed);
    });
}

/// Sets timers for threads that have none. The timers of ended threads are kept until their thread id is
/// reused, or until the end.
fn look_for_threads(threads: &mut HashMap<i32, Thread>, period: Duration) -> io::Result<()> {
    let mut present = Vec::new();
    for entry in fs::read_dir("/proc/self/task")? {
        let number = entry?.file_name().to_string_lossy().parse().ok();
        present.extend(number.filter(|number: &i32| *number > 0));
    }
    threads.retain(|number, _| present.contains(number));
    for number in present.into_iter().take(THREADS_MAX) {
        if let Some(thread) = threads.get_mut(&number) {
            if !std::mem::replace(&mut thread.is_settled, true) {
                thread.name = name_of(number);
            }
            continue;
        }
        match ThreadTimer::start(number, period, (number as u32).wrapping_mul(2_654_435_761) >> 22) {
            Ok(timer) => {
                threads.insert(number, Thread { name: name_of(number), is_settled: false, _timer: timer });
            }
            // The thread has ended in the meantime.
            Err(error) if error.raw_os_error() == Some(libc::EINVAL) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

fn name_of(thread: i32) -> String {
    kind_of(fs::read_to_string(format!("/proc/self/task/{thread}/comm")).unwrap_or_default().trim())
}

/// Returns the name of a thread without its number: `fs-work17` becomes `fs-work`.
fn kind_of(name: &str) -> String {
    let kind = name.trim_end_matches(|c: char| c.is_ascii_digit()).trim_end_matches(['-', ':', '_']);
    crate::symbols::printable(if kind.is_empty() { name } else { kind })
}

fn fold(stacks: &Table<Key, Sum>, unwinding: &Unwinding) -> String {
    let mut symbols = Symbols::new(unwinding.loaded());
    let mut lines = Vec::new();
    let (rows, others) = stacks.top(ROWS_MAX);
    for ((thread, addresses), sum) in rows {
        let mut frames = vec![thread];
        frames.extend(symbols.stack(&addresses, false));
        lines.push(Line { frames, us: sum.ns / 1000 });
    }
    folded::text(lines, others.ns / 1000)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn threads_of_a_kind_are_one() {
        let kinds = ["fs-work17", "fs-lane0", "rocksdb:low3", "cellar", "12", "a;b"].map(kind_of);
        assert_eq!(kinds, ["fs-work", "fs-lane", "rocksdb:low", "cellar", "12", "a,b"]);
    }
}
