//! Pure crates do not touch the world.

use super::SourceFile;

/// The crates without sockets, files, threads, clocks and ambient randomness.
const PURE: [&str; 14] = [
    "base",
    "xdr",
    "events",
    "chains",
    "afs-idl",
    "rx-security",
    "rx-proto",
    "afs-format",
    "sniff",
    "callbacks",
    "fair-queue",
    "doctor",
    "jobs",
    "promote",
];

/// What those crates may not name.
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

/// What the file names although it may not.
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

/// Whether the line has the words, not as a part of longer ones. `env!` and the like are other things.
fn names(line: &str, banned: &str) -> bool {
    let is_word = |c: char| c.is_alphanumeric() || c == '_';
    line.match_indices(banned).any(|(at, _)| {
        let before = line[..at].chars().next_back();
        let after = line[at + banned.len()..].chars().next();
        !before.is_some_and(is_word) && !after.is_some_and(is_word)
    })
}
