//! Describes the machine of a measurement.

use interop::cell::tools;
use serde::Serialize;
use std::fmt;
use std::process::Command;

/// The machine and its software, as text.
#[derive(Clone, Debug, Default, Serialize)]
pub(crate) struct Machine {
    /// Number of processors available to this process.
    pub(crate) cores: usize,
    /// Model of the processors.
    pub(crate) processor: String,
    /// Memory in MiB.
    pub(crate) memory_mib: u64,
    /// Release of the kernel.
    pub(crate) kernel: String,
    /// Name of the distribution.
    pub(crate) system: String,
    /// Version of OpenAFS's file server package.
    pub(crate) openafs: String,
    /// File system and device of the partitions.
    pub(crate) disk: String,
    /// One-minute load average at the start of the run.
    pub(crate) load: String,
}

impl Machine {
    /// Describes this machine.
    pub(crate) fn here() -> Machine {
        Machine {
            cores: std::thread::available_parallelism().map_or(1, usize::from),
            processor: field(&file("/proc/cpuinfo"), "model name", ':'),
            memory_mib: memory_mib(&file("/proc/meminfo")),
            kernel: file("/proc/sys/kernel/osrelease").trim().to_owned(),
            system: field(&file("/etc/os-release"), "PRETTY_NAME", '='),
            openafs: package_version("openafs-fileserver").unwrap_or_default(),
            disk: output("df", &["--output=fstype,source", "/tmp"])
                .lines()
                .last()
                .unwrap_or_default()
                .to_owned(),
            load: file("/proc/loadavg").split(' ').next().unwrap_or_default().to_owned(),
        }
    }
}

impl fmt::Display for Machine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Machine { cores, processor, memory_mib, kernel, system, openafs, disk, load } = self;
        write!(f, "{cores} cores ({processor}), {memory_mib} MiB, Linux {kernel}, {system}, ")?;
        write!(f, "OpenAFS {openafs}, {disk}; load average before: {load}")
    }
}

/// Returns the version of a Debian package, if it is installed.
pub(crate) fn package_version(name: &str) -> Option<String> {
    let state = output("dpkg-query", &["-W", "-f", "${db:Status-Status} ${Version}", name]);
    state.strip_prefix("installed ").map(str::to_owned)
}

fn file(path: &str) -> String {
    std::fs::read_to_string(path).unwrap_or_default()
}

fn output(program: &str, arguments: &[&str]) -> String {
    let output = Command::new(program).args(arguments).current_dir(tools()).output();
    output.map(|output| String::from_utf8_lossy(&output.stdout).trim().to_owned()).unwrap_or_default()
}

/// Returns the value of the first line `NAME <separator> VALUE`, without quotes.
fn field(text: &str, name: &str, separator: char) -> String {
    let values = text.lines().filter_map(|line| line.split_once(separator));
    let value = values.into_iter().find(|(key, _)| key.trim() == name).map(|(_, value)| value);
    value.unwrap_or("unknown").trim().trim_matches('"').to_owned()
}

fn memory_mib(text: &str) -> u64 {
    let value = field(text, "MemTotal", ':');
    value.split(' ').next().and_then(|kib| kib.parse::<u64>().ok()).unwrap_or(0) / 1024
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields() {
        let text = "NAME=x\nPRETTY_NAME=\"Debian GNU/Linux 12\"\n";
        assert_eq!(field(text, "PRETTY_NAME", '='), "Debian GNU/Linux 12");
        assert_eq!(field("model name\t: A B: c\n", "model name", ':'), "A B: c");
        assert_eq!(field("", "model name", ':'), "unknown");
        assert_eq!(memory_mib("MemFree: 1 kB\nMemTotal:       2048 kB\n"), 2);
        assert_eq!(memory_mib("MemTotal: much"), 0);
    }

    #[test]
    fn a_package_that_is_not_installed_has_no_version() {
        assert_eq!(package_version("no-such-package"), None);
    }
}
