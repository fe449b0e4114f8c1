//! The permission bits that new files of this process do not get.

/// Keeps what this process makes for its own user: folders 0700, files 0600. Call it first, before there are threads.
pub fn make_private() {
    rustix::process::umask(rustix::fs::Mode::from_raw_mode(0o077));
}

/// The umask of this process. Reading it changes nothing, unlike umask(2).
pub fn current() -> u32 {
    // Linux before 4.7 does not say: then what most systems have.
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
