//! The record of a history, and the checks of what servers promise.
//!
//! Every entry has a number. *Before* always means a smaller number.

use base::{Fid, Monotonic, VolumeId};
use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// Number of lines kept for messages.
const LINES_MAX: usize = 60;

/// Version of a vnode's data.
pub(crate) type Version = u64;

/// A change that a server has acknowledged.
#[derive(Clone, Debug)]
struct Acknowledged {
    at: u64,
    version: Version,
    client: usize,
    incarnation: u32,
    /// Clients that the server considered down.
    down: BTreeSet<usize>,
}

/// A file or a directory.
#[derive(Debug, Default)]
struct Vnode {
    server: usize,
    acknowledged: Vec<Acknowledged>,
    /// Versions that were returned to clients, increasing, and when first.
    seen: Vec<(u64, Version)>,
    /// Contents that a client has tried to store.
    tried: BTreeSet<u64>,
    /// Contents of versions.
    contents: BTreeMap<Version, u64>,
    /// Name in the root directory, if a client has created it.
    name: Option<String>,
    /// Whether a client has tried to remove it.
    is_removing: bool,
    /// When its removal was acknowledged.
    removed: Option<u64>,
}

/// What histories covered, to prove that they exercise everything.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// Reads from a client's cache, under a promise.
    pub cached_reads: u64,
    /// Of these, stale reads that are permitted: the client was down, or the server has restarted.
    pub excused: u64,
    /// Fetches of status or data from a server.
    pub fetches: u64,
    /// Acknowledged stores.
    pub stores: u64,
    /// Acknowledged creations and removals.
    pub entries: u64,
    /// Calls that failed.
    pub failures: u64,
    /// Queries of locations.
    pub locations: u64,
    /// Broken promises that reached their clients.
    pub breaks: u64,
    /// Resets of clients.
    pub resets: u64,
    /// Crashes of servers.
    pub crashes: u64,
    /// Commits of metadata that crashes lost.
    pub lost_commits: u64,
    /// Interrupted connections between two hosts.
    pub partitions: u64,
    /// Jumps of a clock.
    pub jumps: u64,
    /// Calls that servers answered without a thread.
    pub at_once: u64,
    /// Turns of threads.
    pub turns: u64,
}

impl std::ops::AddAssign for Report {
    fn add_assign(&mut self, other: Report) {
        let pairs = [
            (&mut self.cached_reads, other.cached_reads),
            (&mut self.excused, other.excused),
            (&mut self.fetches, other.fetches),
            (&mut self.stores, other.stores),
            (&mut self.entries, other.entries),
            (&mut self.failures, other.failures),
            (&mut self.locations, other.locations),
            (&mut self.breaks, other.breaks),
            (&mut self.resets, other.resets),
            (&mut self.crashes, other.crashes),
            (&mut self.lost_commits, other.lost_commits),
            (&mut self.partitions, other.partitions),
            (&mut self.jumps, other.jumps),
            (&mut self.at_once, other.at_once),
            (&mut self.turns, other.turns),
        ];
        for (sum, part) in pairs {
            *sum += part;
        }
    }
}

/// Everything that has happened, as far as the checks need it.
#[derive(Debug)]
pub(crate) struct Record {
    entries: u64,
    now: Monotonic,
    hash: u64,
    lines: VecDeque<String>,
    is_traced: bool,
    vnodes: BTreeMap<Fid, Vnode>,
    /// For a client and a server: when the latest of the successful calls was begun.
    completed: BTreeMap<(usize, usize), u64>,
    /// When a server began an incarnation.
    incarnations: BTreeMap<usize, Vec<u64>>,
    violation: Option<String>,
    pub(crate) report: Report,
}

impl Default for Record {
    fn default() -> Record {
        Record {
            entries: 0,
            now: Monotonic::default(),
            hash: 0xcbf2_9ce4_8422_2325,
            lines: VecDeque::new(),
            is_traced: std::env::var_os("CELLAR_SIM_TRACE").is_some(),
            vnodes: BTreeMap::new(),
            completed: BTreeMap::new(),
            incarnations: BTreeMap::new(),
            violation: None,
            report: Report::default(),
        }
    }
}

/// Returns a hash of contents.
pub(crate) fn hash(bytes: &[u8]) -> u64 {
    hash_on(0xcbf2_9ce4_8422_2325, bytes)
}

fn is_directory(fid: Fid) -> bool {
    !fid.vnode.0.is_multiple_of(2)
}

/// Continues a hash (FNV-1a).
fn hash_on(hash: u64, bytes: &[u8]) -> u64 {
    bytes.iter().fold(hash, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(0x100_0000_01b3))
}

/// Entries.
impl Record {
    pub(crate) fn set_now(&mut self, now: Monotonic) {
        self.now = now;
    }

    /// Adds an entry; returns its number.
    pub(crate) fn log(&mut self, text: &str) -> u64 {
        self.entries += 1;
        let (seconds, micros) = (self.now.0 / 1_000_000_000, self.now.0 / 1000 % 1_000_000);
        let line = format!("{:5} {seconds:6}.{micros:06} {text}", self.entries);
        self.hash = hash_on(self.hash, line.as_bytes());
        if self.is_traced {
            println!("{line}");
        }
        if self.lines.len() == LINES_MAX {
            self.lines.pop_front();
        }
        self.lines.push_back(line);
        self.entries
    }

    /// Returns the hash of all entries.
    pub(crate) fn hash(&self) -> u64 {
        self.hash
    }

    /// Returns the first violation, with the entries before it.
    pub(crate) fn violation(&self) -> Option<&str> {
        self.violation.as_deref()
    }

    fn violated(&mut self, what: &str) {
        if self.violation.is_none() {
            let lines: Vec<&str> = self.lines.iter().map(String::as_str).collect();
            self.violation = Some(format!("{what}, after:\n{}", lines.join("\n")));
        }
    }

    /// Adds a vnode on a server.
    pub(crate) fn add(&mut self, server: usize, fid: Fid, version: Version, content: Option<u64>) {
        let at = self.log(&format!("{fid} is on server {server} with version {version}"));
        let vnode = self.vnodes.entry(fid).or_default();
        vnode.server = server;
        vnode.seen.push((at, version));
        if let Some(content) = content {
            vnode.tried.insert(content);
            vnode.contents.insert(version, content);
        }
    }

    /// Returns the files that have not been removed as far as anyone knows.
    pub(crate) fn files(&self) -> Vec<Fid> {
        let is_file = |fid: &Fid, vnode: &Vnode| !is_directory(*fid) && !vnode.is_removing;
        self.vnodes.iter().filter(|(fid, vnode)| is_file(fid, vnode)).map(|(fid, _)| *fid).collect()
    }

    /// Returns all files and directories with their servers.
    pub(crate) fn vnodes(&self) -> Vec<(Fid, usize)> {
        self.vnodes.iter().map(|(fid, vnode)| (*fid, vnode.server)).collect()
    }

    /// A server begins, for the first time or after a crash.
    pub(crate) fn started(&mut self, server: usize) {
        let at = self.log(&format!("server {server} starts"));
        self.incarnations.entry(server).or_default().push(at);
    }

    /// A client begins a call; returns the number that its outcome names.
    pub(crate) fn begins(&mut self, client: usize, what: &str) -> u64 {
        self.log(&format!("client {client} begins {what}"))
    }

    /// A client begins a store.
    pub(crate) fn tries(&mut self, fid: Fid, content: u64) {
        self.vnodes.entry(fid).or_default().tried.insert(content);
    }

    /// A created file has this name.
    pub(crate) fn named(&mut self, fid: Fid, name: String) {
        self.vnodes.entry(fid).or_default().name = Some(name);
    }

    /// Returns a file in a volume that a client may remove, and its name.
    pub(crate) fn removable(&self, volume: VolumeId) -> Option<(Fid, String)> {
        let mut files = self.vnodes.iter().filter(|(fid, vnode)| fid.volume == volume && !vnode.is_removing);
        files.find_map(|(fid, vnode)| Some((*fid, vnode.name.clone()?)))
    }

    /// A client begins to remove a file.
    pub(crate) fn removes(&mut self, fid: Fid) {
        self.vnodes.entry(fid).or_default().is_removing = true;
    }

    /// The removal of a file was acknowledged.
    pub(crate) fn removed(&mut self, fid: Fid) {
        let at = self.log(&format!("{fid} is removed"));
        self.vnodes.entry(fid).or_default().removed = Some(at);
    }

    /// A client's call to a file server was executed.
    pub(crate) fn completed(&mut self, client: usize, server: usize, begun: u64) {
        let latest = self.completed.entry((client, server)).or_default();
        *latest = (*latest).max(begun);
    }

    /// A client's call failed.
    pub(crate) fn failed(&mut self, client: usize, begun: u64, code: i32) {
        self.report.failures += 1;
        self.log(&format!("client {client} gets error {code} for {begun}"));
    }
}

/// Checks.
impl Record {
    /// A server acknowledges a change: it has sent the reply.
    pub(crate) fn acknowledged(
        &mut self,
        server: usize,
        incarnation: u32,
        fid: Fid,
        version: Version,
        client: usize,
        down: BTreeSet<usize>,
    ) {
        let at =
            self.log(&format!("server {server} acknowledges {fid} version {version} of client {client}"));
        let vnode = self.vnodes.entry(fid).or_default();
        if let Some(other) = vnode.acknowledged.iter().find(|other| other.version == version) {
            let (first, second) = (other.at, at);
            self.violated(&format!("{fid}: version {version} is acknowledged by {first} and {second}"));
            return;
        }
        vnode.acknowledged.push(Acknowledged { at, version, client, incarnation, down });
        note_seen(&mut vnode.seen, at, version);
    }

    /// A client got a version from a server, in a call that it began at `begun`. `content` is what it read.
    pub(crate) fn fetched(
        &mut self,
        client: usize,
        fid: Fid,
        version: Version,
        content: Option<u64>,
        begun: u64,
    ) {
        self.report.fetches += 1;
        let text = content.map_or_else(String::new, |content| format!(" with {content:016x}"));
        let at = self.log(&format!("client {client} got {fid} version {version}{text} for {begun}"));
        let vnode = self.vnodes.entry(fid).or_default();
        let known = vnode.seen.iter().rev().find(|(seen, _)| *seen < begun).copied();
        let removed = vnode.removed.filter(|removed| *removed < begun);
        note_seen(&mut vnode.seen, at, version);
        if let Some((seen, newer)) = known.filter(|(_, newer)| *newer > version) {
            self.violated(&format!("{fid}: {at} got version {version}, but {seen} had version {newer}"));
        }
        if let Some(removed) = removed {
            self.violated(&format!("{fid}: {at} got it, but {removed} had removed it"));
        }
        if let Some(content) = content {
            self.has_content(at, fid, version, content);
        }
    }

    /// A client got an error that says that there is no such file.
    pub(crate) fn missed(&mut self, client: usize, fid: Fid, begun: u64) {
        let at = self.log(&format!("client {client} found no {fid} for {begun}"));
        if !self.vnodes.get(&fid).is_some_and(|vnode| vnode.is_removing) {
            self.violated(&format!("{fid}: {at} does not find it, but nobody has removed it"));
        }
    }

    /// A file could not be read although all servers run and the network is perfect.
    pub(crate) fn unreachable(&mut self, fid: Fid) {
        let at = self.log(&format!("{fid} cannot be read"));
        self.violated(&format!("{fid}: {at} cannot read it at the end"));
    }

    /// A version was seen to have these contents.
    pub(crate) fn has_content(&mut self, at: u64, fid: Fid, version: Version, content: u64) {
        let vnode = self.vnodes.entry(fid).or_default();
        let (tried, known) = (
            is_directory(fid) || vnode.tried.contains(&content),
            *vnode.contents.entry(version).or_insert(content),
        );
        if !tried {
            self.violated(&format!("{fid}: {at} has contents {content:016x} that nobody has stored"));
        } else if known != content {
            let text = format!("{fid}: {at} has version {version} with {content:016x}, not {known:016x}");
            self.violated(&text);
        }
    }

    /// A client reads from its cache, under a promise that it got in the call begun at `begun`.
    pub(crate) fn read_cached(&mut self, client: usize, fid: Fid, version: Version, begun: u64) {
        self.report.cached_reads += 1;
        let at = self.log(&format!("client {client} reads {fid} version {version} of {begun} in its cache"));
        let Some(vnode) = self.vnodes.get(&fid) else { return };
        let server = vnode.server;
        let starts = self.incarnations.get(&server).map_or(&[][..], Vec::as_slice);
        let completed = self.completed.get(&(client, server)).copied().unwrap_or_default();
        let (mut excused, mut violation) = (false, None);
        for newer in vnode.acknowledged.iter().filter(|change| change.version > version) {
            // The server has sent everything that the client missed before it executed a later call of it.
            let has_heard = completed > newer.at;
            let start = starts.get(newer.incarnation as usize).copied().unwrap_or_default();
            let has_restarted = start > begun && completed < start;
            let was_down = start <= begun && newer.down.contains(&client) && !has_heard;
            if newer.client != client && !has_restarted && !was_down {
                violation = Some((newer.version, newer.at));
            }
            excused |= newer.client != client;
        }
        self.report.excused += u64::from(excused && violation.is_none());
        if let Some((newer, acknowledged)) = violation {
            self.violated(&format!(
                "{fid}: {at} reads version {version} under a promise of {begun}, but {acknowledged} has \
                 acknowledged version {newer}"
            ));
        }
    }

    /// A client was sent to a server for a volume.
    pub(crate) fn located(&mut self, client: usize, volume: u32, server: Option<usize>, is_right: bool) {
        self.report.locations += 1;
        let at = self.log(&format!("client {client} is sent to server {server:?} for volume {volume}"));
        if !is_right {
            self.violated(&format!("{at}: volume {volume} is not there"));
        }
    }
}

/// Notes a version if it is newer than all before.
fn note_seen(seen: &mut Vec<(u64, Version)>, at: u64, version: Version) {
    if seen.last().is_none_or(|(_, newest)| *newest < version) {
        seen.push((at, version));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use base::VnodeId;

    const FID: Fid = Fid { volume: VolumeId(1), vnode: VnodeId(2), unique: 3 };
    const NOBODY: BTreeSet<usize> = BTreeSet::new();

    fn record() -> Record {
        let mut record = Record::default();
        record.started(0);
        record.add(0, FID, 1, Some(11));
        record
    }

    #[test]
    fn a_promise_that_was_not_kept_is_found() {
        let mut record = record();
        let begun = record.begins(1, "a fetch");
        record.fetched(1, FID, 1, Some(11), begun);
        record.completed(1, 0, begun);
        record.read_cached(1, FID, 1, begun);
        assert_eq!(record.violation(), None);
        record.acknowledged(0, 0, FID, 2, 2, NOBODY);
        record.read_cached(1, FID, 1, begun);
        assert!(record.violation().unwrap().contains("has acknowledged version 2"));
    }

    #[test]
    fn a_client_that_is_down_or_met_no_new_server_is_excused() {
        let mut record = record();
        let begun = record.begins(1, "a fetch");
        record.acknowledged(0, 0, FID, 2, 2, BTreeSet::from([1]));
        record.read_cached(1, FID, 1, begun);
        record.started(0);
        record.acknowledged(0, 1, FID, 3, 2, NOBODY);
        record.read_cached(1, FID, 1, begun);
        assert_eq!((record.violation(), record.report.excused), (None, 2));
        let later = record.begins(1, "a fetch of something else");
        record.completed(1, 0, later);
        record.read_cached(1, FID, 1, begun);
        assert!(record.violation().is_some(), "its calls were executed, so it has heard of the changes");
    }

    #[test]
    fn a_version_that_a_crash_takes_from_a_reader_is_found() {
        let read = || {
            let mut record = record();
            record.tries(FID, 33);
            record.tries(FID, 34);
            record.fetched(1, FID, 2, Some(33), 0);
            record.started(0);
            let begun = record.begins(1, "a fetch");
            (record, begun)
        };
        let (mut kept, begun) = read();
        kept.fetched(1, FID, 2, Some(33), begun);
        assert_eq!(kept.violation(), None);
        let (mut lost, begun) = read();
        lost.fetched(1, FID, 1, None, begun);
        assert!(lost.violation().unwrap().contains("got version 1"));
        let (mut reused, begun) = read();
        reused.fetched(1, FID, 2, Some(34), begun);
        assert!(reused.violation().unwrap().contains("not 0000000000000021"));
    }

    #[test]
    fn a_version_that_goes_back_or_changes_its_contents_is_found() {
        let mut old = record();
        old.acknowledged(0, 0, FID, 2, 2, NOBODY);
        let begun = old.begins(1, "a fetch");
        old.fetched(1, FID, 1, None, begun);
        assert!(old.violation().unwrap().contains("got version 1"));
        let mut other = record();
        other.tries(FID, 22);
        let begun = other.begins(1, "a fetch");
        other.fetched(1, FID, 1, Some(22), begun);
        assert!(other.violation().unwrap().contains("not 000000000000000b"));
        let mut strange = record();
        strange.fetched(1, FID, 2, Some(33), 0);
        assert!(strange.violation().unwrap().contains("nobody has stored"));
    }
}
