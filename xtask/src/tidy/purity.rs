//! Checks that pure crates do no I/O and have no ambient inputs.

use super::SourceFile;

/// Crates without sockets, files, threads, clocks or ambient randomness.
const PURE: [&str; 15] = [
    "base",
    "xdr",
    "events",
    "chains",
    "afs-idl",
    "rx-security",
    "rx-proto",
    "cluster-proto",
    "afs-format",
    "sniff",
    "callbacks",
    "fair-queue",
    "doctor",
    "jobs",
    "promote",
];

/// Names that these crates must not use.
const BANNED: [&str; 14] = [
    "std::fs",
    "fs::File",
    "std::thread",
    "thread::spawn",
    "Instant::now",
    "SystemTime::now",
    "thread_rng",
    "rand::rng()",
    "from_os_rng",
    "UdpSocket",
    "TcpStream",
    "TcpListener",
    "std::process",
    "std::env",
];

/// Returns a complaint for each banned name that the file uses.
pub(crate) fn check(file: &SourceFile) -> Vec<String> {
    if !PURE.contains(&file.crate_name()) {
        return Vec::new();
    }
    let mut complaints = Vec::new();
    for (index, line) in file.lines.iter().enumerate() {
        if let Some(banned) = BANNED.iter().find(|banned| names(line, banned)) {
            let place = format!("{}:{}", file.path, index + 1);
            complaints.push(format!("{place} names `{banned}`, but {} is a pure crate", file.crate_name()));
        }
    }
    complaints
}

/// Whether the line uses the banned name as whole words. `env!` and the like are unaffected.
fn names(line: &str, banned: &str) -> bool {
    let is_word = |c: char| c.is_alphanumeric() || c == '_';
    line.match_indices(banned).any(|(at, _)| {
        let before = line[..at].chars().next_back();
        let after = line[at + banned.len()..].chars().next();
        !before.is_some_and(is_word) && !after.is_some_and(is_word)
    })
}
