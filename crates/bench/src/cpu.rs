//! CPU time from /proc.

use crate::order::CpuSeconds;
use anyhow::{Context, Result};
use load::cpu::{Machine, parse_machine, parse_process, seconds};

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

impl Reading {
    /// The state of things now, as seen in this process namespace.
    pub(crate) fn now() -> Result<Reading> {
        let read = |path: &str| std::fs::read_to_string(path).with_context(|| path.to_owned());
        let generator = parse_process(&read("/proc/self/stat")?).context("/proc/self/stat")?.ticks;
        let machine = parse_machine(&read("/proc/stat")?).context("/proc/stat")?;
        Ok(Reading { server: server_ticks()?, generator, machine })
    }

    /// CPU time between `earlier` and this.
    pub(crate) fn since(&self, earlier: &Reading) -> CpuSeconds {
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
        total += parse_process(&text).filter(|it| SERVERS.contains(&it.name)).map_or(0, |it| it.ticks);
    }
    Ok(total)
}

#[cfg(test)]
mod tests {
    use super::*;

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
