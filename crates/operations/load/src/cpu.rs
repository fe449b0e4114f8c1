//! CPU time from /proc.

use std::collections::HashMap;
use std::path::Path;

/// The required fields of /proc/PID/stat.
#[derive(Debug, PartialEq, Eq)]
pub struct Process<'a> {
    /// Name of the program as stored by the kernel, at most 15 bytes.
    pub name: &'a str,
    /// User and system time in clock ticks.
    pub ticks: u64,
}

/// Parses proc(5): `PID (NAME) STATE ...`, where utime and stime are the 14th and 15th field. The name may
/// contain blanks and parentheses.
pub fn parse_process(text: &str) -> Option<Process<'_>> {
    let (name_from, name_to) = (text.find('(')? + 1, text.rfind(')')?);
    let name = text.get(name_from..name_to)?;
    let mut fields = text[name_to + 1..].split_ascii_whitespace().skip(11);
    let (user, system): (u64, u64) = (fields.next()?.parse().ok()?, fields.next()?.parse().ok()?);
    Some(Process { name, ticks: user.saturating_add(system) })
}

/// The first line of /proc/stat, in clock ticks of all processors.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Machine {
    /// Time during which a processor was busy.
    pub busy: u64,
    /// Time that the hypervisor gave to other guests.
    pub stolen: u64,
}

/// Parses proc(5): `cpu  user nice system idle iowait irq softirq steal guest guest_nice`; user time includes
/// that of guests.
pub fn parse_machine(text: &str) -> Option<Machine> {
    let line = text.lines().next()?.strip_prefix("cpu ")?;
    let fields: Vec<u64> = line.split_ascii_whitespace().map_while(|field| field.parse().ok()).collect();
    let [user, nice, system, _idle, _iowait, irq, softirq, stolen, ..] = fields[..] else { return None };
    Some(Machine { busy: user + nice + system + irq + softirq, stolen })
}

/// Converts clock ticks to seconds.
pub fn seconds(ticks: u64) -> f64 {
    ticks as f64 / rustix::param::clock_ticks_per_second().max(1) as f64
}

/// CPU usage of one process at a point in time, in clock ticks.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// Time of all threads, including ended ones.
    pub ticks: u64,
    /// Time of each current thread.
    threads: HashMap<u64, u64>,
}

impl Usage {
    /// Returns the usage of this process.
    pub fn of_self() -> Usage {
        Usage::read(Path::new("/proc/self")).unwrap_or_default()
    }

    /// Returns the usage of another process, or `None` if it does not exist or is not accessible.
    pub fn of(pid: u32) -> Option<Usage> {
        Usage::read(&Path::new("/proc").join(pid.to_string()))
    }

    fn read(directory: &Path) -> Option<Usage> {
        let ticks = ticks_of(directory)?;
        let threads = std::fs::read_dir(directory.join("task")).ok()?.flatten().filter_map(|entry| {
            let thread = entry.file_name().to_str()?.parse().ok()?;
            Some((thread, ticks_of(&entry.path())?))
        });
        Some(Usage { ticks, threads: threads.collect() })
    }

    /// Returns the usage of the busiest thread since `earlier`.
    pub fn busiest_thread_since(&self, earlier: &Usage) -> u64 {
        let used = |(thread, ticks): (&u64, &u64)| {
            ticks.saturating_sub(earlier.threads.get(thread).copied().unwrap_or(0))
        };
        self.threads.iter().map(used).max().unwrap_or(0)
    }
}

fn ticks_of(directory: &Path) -> Option<u64> {
    let text = std::fs::read_to_string(directory.join("stat")).ok()?;
    parse_process(&text).map(|process| process.ticks)
}

/// Returns the machine's current usage, or zeros if /proc is not readable.
pub fn machine_now() -> Machine {
    let text = std::fs::read_to_string("/proc/stat").unwrap_or_default();
    parse_machine(&text).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn process_lines() {
        let line = "17 (a) b (c) S 1 2 3 0 -1 4194560 5 0 0 0 700 33 9 9 20 0 4 0 99 0 0\n";
        assert_eq!(parse_process(line), Some(Process { name: "a) b (c", ticks: 733 }));
        for bad in ["", "17", "17 (x)", "17 (x) S 1 2 3", "17 )x( S 1 2 3 4 5 6 7 8 9 10 11 12 13"] {
            assert_eq!(parse_process(bad), None, "{bad:?}");
        }
    }

    #[test]
    fn machine_lines() {
        let text = "cpu  10 2 30 400 5 6 7 8 9 1\ncpu0 1 1 1 1 1 1 1 1 0 0\n";
        assert_eq!(parse_machine(text), Some(Machine { busy: 55, stolen: 8 }));
        for bad in ["", "cpu 1 2 3", "intr 1 2 3 4 5 6 7 8 9"] {
            assert_eq!(parse_machine(bad), None, "{bad:?}");
        }
    }

    #[test]
    fn this_process_is_seen() {
        let usage = Usage::of_self();
        assert!(!usage.threads.is_empty());
        assert_eq!(Usage::of(std::process::id()).map(|usage| usage.threads.is_empty()), Some(false));
        assert!(machine_now().busy > 0);
    }

    #[test]
    fn the_busiest_thread_may_be_new() {
        let usage = |threads: &[(u64, u64)]| Usage { ticks: 0, threads: threads.iter().copied().collect() };
        let earlier = usage(&[(1, 100), (2, 5)]);
        assert_eq!(usage(&[(1, 101), (2, 9)]).busiest_thread_since(&earlier), 4);
        assert_eq!(usage(&[(1, 101), (3, 7)]).busiest_thread_since(&earlier), 7);
        assert_eq!(usage(&[]).busiest_thread_since(&earlier), 0);
    }
}
