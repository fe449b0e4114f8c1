//! Default cache sizes.

use std::path::Path;

/// Assumed memory if the machine's is unknown.
const UNKNOWN_BYTES: u64 = 4 << 30;

/// Maximum size of each cache in bytes, for all partitions together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CacheSizes {
    /// Cache of vnode status.
    pub status: u64,
    /// Cache of directories.
    pub directories: u64,
    /// Cache of file data.
    pub chunks: u64,
}

/// Returns shares of the available memory: a quarter for file data, a thirty-second each for status (some
/// 150,000 vnodes per GiB of memory) and directories.
pub fn cache_sizes() -> CacheSizes {
    shares(available_bytes())
}

fn shares(memory: u64) -> CacheSizes {
    const LEAST: u64 = 16 << 20;
    let share = |part: u64| (memory / part).max(LEAST);
    CacheSizes { status: share(32), directories: share(32), chunks: share(4) }
}

/// Returns the machine's memory, or the limit of this process's control group if that is lower.
fn available_bytes() -> u64 {
    let read = |path: &Path| std::fs::read_to_string(path).unwrap_or_default();
    let machine = parse_meminfo(&read(Path::new("/proc/meminfo")));
    let group = parse_group(&read(Path::new("/proc/self/cgroup")));
    let limits = group.into_iter().flat_map(|group| {
        // The limits of parent groups apply too.
        let path = Path::new("/sys/fs/cgroup").join(group);
        path.ancestors()
            .take_while(|path| path.starts_with("/sys/fs/cgroup"))
            .map(Path::to_owned)
            .collect::<Vec<_>>()
    });
    let limits = limits.filter_map(|folder| read(&folder.join("memory.max")).trim().parse().ok());
    limits.chain(machine).min().unwrap_or(UNKNOWN_BYTES)
}

/// Returns MemTotal of /proc/meminfo, in bytes.
fn parse_meminfo(text: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix("MemTotal:"))?;
    line.trim().strip_suffix(" kB")?.parse::<u64>().ok()?.checked_mul(1024)
}

/// Returns the version 2 control group in /proc/self/cgroup, without the leading slash.
fn parse_group(text: &str) -> Option<String> {
    let path = text.lines().find_map(|line| line.strip_prefix("0::/"))?;
    (!path.split('/').any(|part| part == "..")).then(|| path.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_follow_the_memory_and_have_a_least() {
        let sizes = shares(32 << 30);
        assert_eq!(sizes, CacheSizes { status: 1 << 30, directories: 1 << 30, chunks: 8 << 30 });
        assert_eq!(shares(0), CacheSizes { status: 16 << 20, directories: 16 << 20, chunks: 16 << 20 });
        assert!(available_bytes() >= 1 << 20);
    }

    #[test]
    fn the_system_s_files_are_understood() {
        assert_eq!(parse_meminfo("MemTotal:       24624808 kB\nMemFree: 1 kB\n"), Some(24_624_808 << 10));
        assert_eq!(parse_meminfo("MemTotal: lots\n"), None);
        assert_eq!(
            parse_group("1:name=systemd:/x\n0::/system.slice/a.service\n"),
            Some("system.slice/a.service".into())
        );
        assert_eq!(parse_group("0::/../x\n"), None);
        assert_eq!(parse_group(""), None);
    }
}
