//! The umask of this process.

/// Makes new files of this process private to its user: directories 0700, files 0600. Must be called before
/// threads are started.
pub fn make_private() {
    rustix::process::umask(rustix::fs::Mode::from_raw_mode(0o077));
}

/// Returns the umask without changing it, unlike umask(2).
pub fn current() -> u32 {
    // Linux before 4.7 does not report it; assume the usual default.
    std::fs::read_to_string("/proc/self/status").ok().and_then(|text| parse(&text)).unwrap_or(0o022)
}

fn parse(status: &str) -> Option<u32> {
    let line = status.lines().find_map(|line| line.strip_prefix("Umask:"))?;
    u32::from_str_radix(line.trim(), 8).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_umask_is_read_from_the_status() {
        assert_eq!(parse("Name:\tcellar\nUmask:\t0027\nState:\tR"), Some(0o027));
        assert_eq!(parse("Name:\tcellar\n"), None);
    }
}
