//! The measured workloads.

use anyhow::{Result, bail};
use serde::{Deserialize, Serialize};

/// Kind of load.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// FetchData64 of files in the server's memory, in calls of at most this many bytes.
    Fetch {
        /// Bytes requested by one call.
        call_bytes: u64,
    },
    /// StoreData64 of new files, one call each.
    Store {
        /// Whether the time includes a sync of the partition's file system after the last call.
        and_sync: bool,
    },
    /// FetchStatus of one file.
    Status,
    /// CreateFile, StoreData64 of [`SMALL_FILE_BYTES`], RemoveFile.
    Files,
    /// FetchData64 of a directory with [`LIST_FILES`] files, and InlineBulkStatus of all of them.
    List,
    /// A mix of `cellar bench fs`.
    Mix {
        /// Name of the mix.
        name: &'static str,
        /// Unit that is counted.
        unit: Unit,
    },
}

/// Size of the files that [`Kind::Files`] creates.
pub(crate) const SMALL_FILE_BYTES: u64 = 4096;

/// Number of empty files in the directory of [`Kind::List`].
pub(crate) const LIST_FILES: u32 = 10_000;

/// One workload: a row of the tables.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Workload {
    /// Name on the command line.
    pub(crate) name: &'static str,
    /// Description for display.
    pub(crate) text: &'static str,
    /// Kind of load.
    pub(crate) kind: Kind,
    /// Number of AFS clients, each with its own port and UUID.
    pub(crate) clients: usize,
    /// Threads per client, each with one call at a time.
    pub(crate) threads: usize,
    /// Whether packets are encrypted (rxkad, level crypt); otherwise the null security class is used.
    pub(crate) is_encrypted: bool,
    /// Divisor of the bytes moved by bulk workloads, for slow ones.
    pub(crate) bytes_divisor: u64,
}

impl Workload {
    /// Returns the unit that is counted.
    pub(crate) fn unit(&self) -> Unit {
        match self.kind {
            Kind::Fetch { .. } | Kind::Store { .. } => Unit::Bytes,
            Kind::Status => Unit::Calls,
            Kind::Files | Kind::List => Unit::Files,
            Kind::Mix { unit, .. } => unit,
        }
    }
}

/// Unit of a workload.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Unit {
    /// Bytes of payload.
    Bytes,
    /// Calls.
    Calls,
    /// Files created, filled and removed, or files listed.
    Files,
}

impl Unit {
    /// Returns the name of the unit of rates.
    pub(crate) fn rate_name(self) -> &'static str {
        match self {
            Unit::Bytes => "MB/s",
            Unit::Calls => "calls/s",
            Unit::Files => "files/s",
        }
    }

    /// Returns the number of counted units in one of [`Unit::rate_name`].
    pub(crate) fn scale(self) -> f64 {
        if self == Unit::Bytes { 1e6 } else { 1.0 }
    }
}

const WHOLE_FILE: Kind = Kind::Fetch { call_bytes: u64::MAX };
const BY_MEBIBYTE: Kind = Kind::Fetch { call_bytes: 1 << 20 };
const STORE: Kind = Kind::Store { and_sync: false };
const STORE_AND_SYNC: Kind = Kind::Store { and_sync: true };

/// Creates a workload without security.
const fn plain(
    name: &'static str,
    kind: Kind,
    clients: usize,
    threads: usize,
    text: &'static str,
) -> Workload {
    Workload { name, text, kind, clients, threads, is_encrypted: false, bytes_divisor: 1 }
}

/// Creates a mix with this many clients in its first group.
const fn mix(
    name: &'static str,
    mix: &'static str,
    clients: usize,
    unit: Unit,
    text: &'static str,
) -> Workload {
    plain(name, Kind::Mix { name: mix, unit }, clients, 1, text)
}

/// All workloads in the order in which they run.
pub(crate) const ALL: &[Workload] = &[
    plain("fetch-1", WHOLE_FILE, 1, 1, "fetch a cached file, whole in one call, 1 client"),
    plain(
        "fetch-4",
        WHOLE_FILE,
        4,
        1,
        "fetch cached files, each whole in one call, 4 clients with one file each",
    ),
    plain("fetch-1m-1", BY_MEBIBYTE, 1, 1, "fetch a cached file in calls of 1 MiB, 1 client"),
    Workload {
        is_encrypted: true,
        bytes_divisor: 4,
        ..plain(
            "fetch-crypt-1",
            WHOLE_FILE,
            1,
            1,
            "like fetch-1, but encrypted (rxkad) and a quarter of the bytes",
        )
    },
    plain("store-1", STORE, 1, 1, "store a new file in one call, 1 client"),
    plain("store-4", STORE, 4, 1, "store new files, each in one call, 4 clients"),
    plain(
        "store-sync-1",
        STORE_AND_SYNC,
        1,
        1,
        "like store-1, then syncfs(2) of the partition, which is timed as well",
    ),
    plain("status-1", Kind::Status, 1, 1, "FetchStatus, 1 client, 1 thread"),
    plain("status-32", Kind::Status, 4, 8, "FetchStatus, 4 clients with 8 threads each"),
    plain("files-1", Kind::Files, 1, 1, "create, store 4 KiB, remove; 1 client, 1 thread"),
    plain(
        "files-16",
        Kind::Files,
        4,
        4,
        "create, store 4 KiB, remove; 4 clients with 4 threads each, one directory per thread",
    ),
    mix("mix-status-10", "status", 10, Unit::Calls, "FetchStatus, 10 clients in closed loop"),
    mix(
        "mix-status-10x8",
        "status-8",
        10,
        Unit::Calls,
        "FetchStatus, 10 clients with 8 concurrent calls each",
    ),
    mix("mix-status-1000", "status", 1000, Unit::Calls, "FetchStatus, 1,000 clients in closed loop"),
    mix("mix-status-10000", "status", 10_000, Unit::Calls, "FetchStatus, 10,000 clients in closed loop"),
    mix("mix-read-100", "bulk-read", 100, Unit::Bytes, "100 clients read large cached files"),
    mix(
        "mix-create-16",
        "create-remove",
        16,
        Unit::Calls,
        "create and remove, 16 clients with one directory each",
    ),
    mix("mix-write-16", "bulk-write", 16, Unit::Bytes, "16 clients store large files durably"),
    mix(
        "mix-250-readers",
        "cern-250-readers",
        250,
        Unit::Bytes,
        "250 clients read the same 20 MB; latency of one more, interactive client",
    ),
    mix(
        "mix-6x30-writers",
        "cern-6x30-writers",
        180,
        Unit::Bytes,
        "180 clients write to 6 volumes; latency of an interactive client",
    ),
    mix(
        "mix-9-volumes",
        "cern-9-volumes",
        250,
        Unit::Bytes,
        "250 clients read and write 9 volumes; latency of an interactive client",
    ),
    mix(
        "mix-700-clients",
        "cern-12-volumes",
        700,
        Unit::Calls,
        "700 clients read and write 12 volumes; latency of an interactive client",
    ),
];

/// The workloads of `bench peers`, in the order in which they run: work that clients of any network file
/// system do.
pub(crate) const OF_PEERS: &[Workload] = &[
    plain("read-1", WHOLE_FILE, 1, 1, "read a cached file, 1 client"),
    plain("read-16", WHOLE_FILE, 16, 1, "read cached files, 16 clients with one file each"),
    plain("write-1", STORE, 1, 1, "write a new file, 1 client"),
    plain("write-16", STORE, 16, 1, "write new files, 16 clients with one file each"),
    plain("small-1", Kind::Files, 1, 1, "create, write 4 KiB, remove; 1 client"),
    plain("small-16", Kind::Files, 16, 1, "create, write 4 KiB, remove; 16 clients with one directory each"),
    plain("list-1", Kind::List, 1, 1, "list a directory of 10,000 files with their status, 1 client"),
    plain("list-16", Kind::List, 16, 1, "list a directory of 10,000 files with their status, 16 clients"),
    plain("stat-1", Kind::Status, 1, 1, "status of one file, 1 client"),
    plain("stat-16", Kind::Status, 16, 1, "status of files, 16 clients with one file each"),
];

/// Returns the workloads of `all` with one of these names, or whose names contain one of these parts; all of
/// them if there are none.
pub(crate) fn select(all: &'static [Workload], parts: &[String]) -> Result<Vec<&'static Workload>> {
    if let Some(part) = parts.iter().find(|part| !all.iter().any(|workload| is_meant(workload, part))) {
        let names: Vec<&str> = all.iter().map(|workload| workload.name).collect();
        bail!("no workload has {part:?} in its name; the workloads are {}", names.join(", "));
    }
    let wanted = |workload: &&Workload| parts.is_empty() || parts.iter().any(|part| is_meant(workload, part));
    Ok(all.iter().filter(wanted).collect())
}

fn is_meant(workload: &Workload, part: &str) -> bool {
    if by_name(part).is_some() { workload.name == part } else { workload.name.contains(part) }
}

/// Returns the workload with exactly this name.
pub(crate) fn by_name(name: &str) -> Option<&'static Workload> {
    ALL.iter().chain(OF_PEERS).find(|workload| workload.name == name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_unique_and_found() {
        let all = || ALL.iter().chain(OF_PEERS);
        for workload in all() {
            assert_eq!(all().filter(|other| other.name == workload.name).count(), 1);
            assert_eq!(by_name(workload.name).unwrap().text, workload.text);
        }
        assert!(by_name("fetch").is_none());
    }

    #[test]
    fn selection_is_by_part_and_refuses_unmatched_names() {
        let names = |parts: &[&str]| -> Vec<&str> {
            let parts: Vec<String> = parts.iter().map(|&part| part.into()).collect();
            select(ALL, &parts).unwrap().iter().map(|workload| workload.name).collect()
        };
        assert_eq!(names(&[]).len(), ALL.len());
        assert_eq!(names(&["files", "status-1"]), ["status-1", "files-1", "files-16"]);
        assert_eq!(names(&["files-1"]), ["files-1"], "a whole name is not a part");
        let error = select(ALL, &["status".into(), "fecth".into()]).unwrap_err();
        assert!(error.to_string().contains("fecth"), "{error}");
        assert!(select(OF_PEERS, &["fetch".into()]).is_err(), "each list has its own names");
    }
}
