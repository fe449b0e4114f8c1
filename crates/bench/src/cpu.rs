//! CPU time from /proc.

use crate::order::CpuSeconds;
use anyhow::{Context, Result};

/// Programs that are servers: OpenAFS's, and Cellar. Names as /proc has them, 15 bytes at most.
const SERVERS: &[&str] = &[
    "dafileserver",
    "davolserver",
    "salvageserver",
    "fileserver",
    "volserver",
    "vlserver",
    "ptserver",
    "bosserver",
    "cellar",
];

/// CPU time used since boot or since a process began, in clock ticks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Reading {
    server: u64,
    generator: u64,
    machine: Machine,
}

/// The first line of /proc/stat.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Machine {
    busy: u64,
    stolen: u64,
}

impl Reading {
    /// The state of things now, as seen in this process namespace.
    pub(crate) fn now() -> Result<Reading> {
        let read = |path: &str| std::fs::read_to_string(path).with_context(|| path.to_owned());
        let generator = process(&read("/proc/self/stat")?).context("/proc/self/stat")?.ticks;
        let machine = machine(&read("/proc/stat")?).context("/proc/stat")?;
        Ok(Reading { server: server_ticks()?, generator, machine })
    }

    /// CPU time between `earlier` and this.
    pub(crate) fn since(&self, earlier: &Reading) -> CpuSeconds {
        let ticks_per_second = rustix::param::clock_ticks_per_second().max(1);
        let seconds = |ticks: u64| ticks as f64 / ticks_per_second as f64;
        let server = self.server.saturating_sub(earlier.server);
        let generator = self.generator.saturating_sub(earlier.generator);
        let busy = self.machine.busy.saturating_sub(earlier.machine.busy);
        CpuSeconds {
            server: seconds(server),
            generator: seconds(generator),
            other: seconds(busy.saturating_sub(server + generator)),
            stolen: seconds(self.machine.stolen.saturating_sub(earlier.machine.stolen)),
        }
    }
}

/// User and system time of all servers in this process namespace. The namespace of a cell has no
/// other cell's.
fn server_ticks() -> Result<u64> {
    let mut total = 0;
    for entry in std::fs::read_dir("/proc").context("/proc")? {
        // A process may end between the listing and the reading: then it is no server.
        let Ok(text) = std::fs::read_to_string(entry?.path().join("stat")) else { continue };
        total += process(&text).filter(|it| SERVERS.contains(&it.name)).map_or(0, |it| it.ticks);
    }
    Ok(total)
}

/// What /proc/PID/stat says, as far as it matters here.
#[derive(Debug, PartialEq, Eq)]
struct Process<'a> {
    name: &'a str,
    ticks: u64,
}

/// proc(5): `PID (NAME) STATE ...`, where utime and stime are the 14th and 15th field. The name may
/// have blanks and parentheses.
fn process(text: &str) -> Option<Process<'_>> {
    let (name_from, name_to) = (text.find('(')? + 1, text.rfind(')')?);
    let name = text.get(name_from..name_to)?;
    let mut fields = text[name_to + 1..].split_ascii_whitespace().skip(11);
    let (user, system): (u64, u64) = (fields.next()?.parse().ok()?, fields.next()?.parse().ok()?);
    Some(Process { name, ticks: user + system })
}

/// proc(5): `cpu  user nice system idle iowait irq softirq steal guest guest_nice`; user time
/// includes guests'.
fn machine(text: &str) -> Option<Machine> {
    let line = text.lines().next()?.strip_prefix("cpu ")?;
    let fields: Vec<u64> = line.split_ascii_whitespace().map_while(|field| field.parse().ok()).collect();
    let [user, nice, system, _idle, _iowait, irq, softirq, stolen, ..] = fields[..] else { return None };
    Some(Machine { busy: user + nice + system + irq + softirq, stolen })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn process_lines() {
        let line = "17 (a) b (c) S 1 2 3 0 -1 4194560 5 0 0 0 700 33 9 9 20 0 4 0 99 0 0\n";
        assert_eq!(process(line), Some(Process { name: "a) b (c", ticks: 733 }));
        for bad in ["", "17", "17 (x)", "17 (x) S 1 2 3", "17 )x( S 1 2 3 4 5 6 7 8 9 10 11 12 13"] {
            assert_eq!(process(bad), None, "{bad:?}");
        }
    }

    #[test]
    fn machine_lines() {
        let text = "cpu  10 2 30 400 5 6 7 8 9 1\ncpu0 1 1 1 1 1 1 1 1 0 0\n";
        assert_eq!(machine(text), Some(Machine { busy: 55, stolen: 8 }));
        for bad in ["", "cpu 1 2 3", "intr 1 2 3 4 5 6 7 8 9"] {
            assert_eq!(machine(bad), None, "{bad:?}");
        }
    }

    #[test]
    fn time_between_readings() {
        let ticks = rustix::param::clock_ticks_per_second();
        let earlier = Reading { server: 5, generator: 5, machine: Machine { busy: 100, stolen: 0 } };
        let later = Reading {
            server: 5 + ticks,
            generator: 5 + 2 * ticks,
            machine: Machine { busy: 100 + 7 * ticks, stolen: 3 * ticks },
        };
        let expected = CpuSeconds { server: 1.0, generator: 2.0, other: 4.0, stolen: 3.0 };
        assert_eq!(later.since(&earlier), expected);
        assert_eq!(earlier.since(&later), CpuSeconds::default(), "readings that go back count as nothing");
    }

    #[test]
    fn this_process_is_seen() {
        assert!(Reading::now().unwrap().machine.busy > 0);
    }
}
