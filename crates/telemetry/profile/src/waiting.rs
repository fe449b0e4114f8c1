//! A profile of waiting: what calls waited for, in which code, and for which client.

use crate::folded::{self, Line};
use crate::modules;
use crate::report::{Progress, Report};
use crate::sum::{ROWS_MAX, Sum};
use crate::symbols::{Symbols, printable};
use crate::tables::{self, IoRow, LatencyRow, LockRow, Table as _};
use events::parts::{PARTS, Part};
use events::{Histogram, Sharded, Table};
use std::collections::HashMap;
use std::hash::Hash;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;
use waits::{Called, Client, Current, Wait, Watcher};

/// Minimum duration of a wait whose stack is taken; for shorter ones that would cost more than the wait.
const STACK_FROM_NS: u64 = 10_000;

/// Name that replaces the stack of shorter waits.
const SHORT: &str = "(waits shorter than 10 us)";

/// Maximum number of frames in a stack.
const FRAMES_MAX: usize = 128;

/// Interval of checks whether the profile is over.
const LOOK_EVERY: Duration = Duration::from_millis(50);

/// Addresses from the innermost function outwards; empty for a short wait.
type Stack = Vec<u64>;

#[derive(Clone, PartialEq, Eq, Hash)]
struct StackKey {
    call: [&'static str; 2],
    volume: u32,
    part: usize,
    stack: Stack,
}

#[derive(Clone, PartialEq, Eq, Hash)]
struct IoKey {
    call: [&'static str; 2],
    access: &'static str,
    volume: u32,
    client: Option<Client>,
    stack: Stack,
}

#[derive(Clone, PartialEq, Eq, Hash)]
struct LockKey {
    lock: &'static str,
    holder: Option<(&'static str, u32)>,
    call: [&'static str; 2],
}

/// Kind of calls: the procedure, and a bit for each of the parts that they waited for.
type PathKey = ([&'static str; 2], u8);

/// Waits recorded by one thread.
struct Shard {
    stacks: Table<StackKey, Sum>,
    io: Table<IoKey, Sum>,
    locks: Table<LockKey, Sum>,
    paths: HashMap<PathKey, Histogram>,
}

impl Default for Shard {
    fn default() -> Shard {
        Shard {
            stacks: Table::new(ROWS_MAX),
            io: Table::new(ROWS_MAX),
            locks: Table::new(ROWS_MAX),
            paths: HashMap::new(),
        }
    }
}

impl Shard {
    fn merge(&mut self, other: &Shard) {
        self.stacks.merge(&other.stacks);
        self.io.merge(&other.io);
        self.locks.merge(&other.locks);
        for (key, histogram) in &other.paths {
            self.paths.entry(*key).or_default().merge(histogram);
        }
    }
}

/// Records waits.
#[derive(Default)]
struct Notes {
    shards: Sharded<Shard>,
    count: AtomicU64,
}

impl Watcher for Notes {
    fn waited(&self, wait: &Wait, call: &Current) {
        self.count.fetch_add(1, Relaxed);
        // A wait for a worker has no stack: the call was in the queue.
        let is_short = wait.ns < STACK_FROM_NS || wait.part == Some(Part::Queue);
        let stack = if is_short { Stack::new() } else { stack() };
        let names = [call.service, call.procedure];
        let mut shard = self.shards.mine();
        if let Some(contended) = wait.lock {
            let holder = contended.holder.map(|site| (site.file(), site.line()));
            let key = LockKey { lock: contended.lock, holder, call: names };
            shard.locks.row(&key).record(wait.ns, 0);
        }
        if let Some(access) = wait.access {
            let (volume, client) = (call.volume, call.client.clone());
            let key = IoKey { call: names, access: access.kind, volume, client, stack: stack.clone() };
            shard.io.row(&key).record(wait.ns, access.bytes);
        }
        if let Some(part) = wait.part {
            let key = StackKey { call: names, volume: call.volume, part: part as usize, stack };
            shard.stacks.row(&key).record(wait.ns, 0);
        }
    }

    fn called(&self, call: &Called) {
        let bit = |mask, (index, ns): (usize, &u64)| mask | (u8::from(*ns > 0) << index);
        let path = call.parts_ns.iter().enumerate().fold(0, bit);
        let mut shard = self.shards.mine();
        let histogram = shard.paths.entry(([call.service, call.procedure], path)).or_default();
        histogram.record(call.total_ns);
    }
}

/// Returns the calling thread's stack.
fn stack() -> Stack {
    let mut stack = Stack::new();
    backtrace::trace(|frame| {
        // A return address points after the call; the outermost one is null.
        if !frame.ip().is_null() {
            stack.push(frame.ip() as u64 - 1);
        }
        stack.len() < FRAMES_MAX
    });
    stack
}

/// Watches until `is_over` returns true.
pub(crate) fn run(progress: &Progress, is_over: impl Fn() -> bool) -> Option<Report> {
    let notes = Arc::new(Notes::default());
    let watching = waits::watch(notes.clone())?;
    while !is_over() {
        std::thread::sleep(LOOK_EVERY);
        progress.samples.store(notes.count.load(Relaxed), Relaxed);
    }
    drop(watching);
    progress.samples.store(notes.count.load(Relaxed), Relaxed);
    let mut all = Shard::default();
    notes.shards.each(|shard| all.merge(shard));
    Some(report(&all))
}

fn report(all: &Shard) -> Report {
    let loaded: Vec<_> = modules::loaded().into_iter().map(|(loaded, _)| loaded).collect();
    let mut symbols = Symbols::new(&loaded);
    Report([
        stacks(all, &mut symbols).into(),
        IoRow::write(&io(all, &mut symbols)).into(),
        LockRow::write(&locks(all)).into(),
        LatencyRow::write(&latencies(all)).into(),
    ])
}

fn stacks(all: &Shard, symbols: &mut Symbols<'_>) -> String {
    let (rows, others) = all.stacks.top(ROWS_MAX);
    let line = |(key, sum): (StackKey, Sum)| {
        let mut frames = call_frames(key.call);
        frames.push(if key.volume == 0 { "no volume".to_owned() } else { format!("volume {}", key.volume) });
        frames.push(format!("[{}]", PARTS[key.part]));
        if key.part != Part::Queue as usize {
            frames.extend(functions(&key.stack, symbols));
        }
        Line { frames, us: sum.ns / 1000 }
    };
    folded::text(rows.into_iter().map(line).collect(), others.ns / 1000)
}

fn io(all: &Shard, symbols: &mut Symbols<'_>) -> Vec<IoRow> {
    let (rows, others) = all.io.top(tables::ROWS_MAX);
    let row = |(key, sum): (IoKey, Sum)| {
        let frames = [call_frames(key.call), functions(&key.stack, symbols)].concat();
        let client = key.client.map(|client| format!("{} at {}", client.user, client.host));
        IoRow {
            access: key.access.to_owned(),
            volume: key.volume.into(),
            client: client.unwrap_or_default(),
            stack: frames.join(";"),
            ..io_figures(&sum)
        }
    };
    let mut reported = same_as_one(rows.into_iter().map(row).collect());
    if others.count > 0 {
        reported.push(IoRow { access: "(others)".to_owned(), ..io_figures(&others) });
    }
    reported
}

/// Merges rows whose addresses differ but whose functions are the same.
fn same_as_one(rows: Vec<IoRow>) -> Vec<IoRow> {
    let mut places = HashMap::new();
    let mut reported: Vec<IoRow> = Vec::new();
    for row in rows {
        let key = (row.access.clone(), row.volume, row.client.clone(), row.stack.clone());
        let place = *places.entry(key).or_insert(reported.len());
        match reported.get_mut(place) {
            Some(same) => {
                same.accesses += row.accesses;
                same.bytes += row.bytes;
                same.total_ns += row.total_ns;
                same.longest_ns = same.longest_ns.max(row.longest_ns);
            }
            None => reported.push(row),
        }
    }
    reported.sort_by_key(|row| std::cmp::Reverse(row.total_ns));
    reported
}

fn io_figures(sum: &Sum) -> IoRow {
    IoRow {
        accesses: sum.count,
        bytes: sum.bytes,
        total_ns: sum.ns,
        longest_ns: sum.longest_ns,
        ..IoRow::default()
    }
}

fn locks(all: &Shard) -> Vec<LockRow> {
    let (rows, others) = all.locks.top(tables::ROWS_MAX);
    let row = |(key, sum): (LockKey, Sum)| LockRow {
        lock: key.lock.to_owned(),
        holder: key.holder.map(|(file, line)| format!("{file}:{line}")).unwrap_or_default(),
        waiter: if key.call[0].is_empty() { String::new() } else { key.call.join(" ") },
        waits: sum.count,
        total_ns: sum.ns,
        longest_ns: sum.longest_ns,
    };
    let mut reported: Vec<LockRow> = rows.into_iter().map(row).collect();
    if others.count > 0 {
        reported.push(LockRow {
            lock: "(others)".to_owned(),
            waits: others.count,
            total_ns: others.ns,
            longest_ns: others.longest_ns,
            ..LockRow::default()
        });
    }
    reported
}

fn latencies(all: &Shard) -> Vec<LatencyRow> {
    let row = |(&(call, path), histogram): (&PathKey, &Histogram)| LatencyRow {
        procedure: call.join(" "),
        path: path_name(path),
        calls: histogram.count(),
        total_ns: histogram.sum(),
        p50_ns: histogram.quantile(500),
        p90_ns: histogram.quantile(900),
        p99_ns: histogram.quantile(990),
        longest_ns: histogram.max(),
    };
    let mut reported: Vec<LatencyRow> = all.paths.iter().map(row).collect();
    reported.sort_by(|a, b| {
        b.total_ns.cmp(&a.total_ns).then_with(|| (&a.procedure, &a.path).cmp(&(&b.procedure, &b.path)))
    });
    reported.truncate(tables::ROWS_MAX);
    reported
}

fn path_name(path: u8) -> String {
    let parts: Vec<&str> = PARTS
        .into_iter()
        .enumerate()
        .filter(|(bit, _)| path & (1 << bit) != 0)
        .map(|(_, part)| part)
        .collect();
    if parts.is_empty() { "-".to_owned() } else { parts.join("+") }
}

/// Returns service and procedure; threads that serve no call are grouped together.
fn call_frames([service, procedure]: [&'static str; 2]) -> Vec<String> {
    if service.is_empty() {
        return vec!["(no call)".to_owned()];
    }
    let procedure = if procedure.is_empty() { "(procedure not known yet)" } else { procedure };
    vec![printable(service), printable(procedure)]
}

/// Returns the functions of a stack, the outermost first, without those that took it.
fn functions(stack: &Stack, symbols: &mut Symbols<'_>) -> Vec<String> {
    if stack.is_empty() {
        return vec![SHORT.to_owned()];
    }
    symbols.stack(stack, true)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_names_the_wait() {
        assert_eq!(path_name(0), "-");
        let bits = (1 << Part::Lock as u8) | (1 << Part::Client as u8);
        assert_eq!(path_name(bits), "lock+client");
    }
}
