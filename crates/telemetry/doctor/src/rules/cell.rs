//! The location database, compared with the volumes of the servers. Each line of evidence contains the
//! command that repairs it.

use crate::cell::{Held, IN_PROGRESS_SECONDS, Index, Wanted};
use crate::finding::Finding;
use crate::snapshot::Snapshot;

/// Maximum number of lines of evidence in a finding.
const LINES_MAX: usize = 20;

/// Returns a finding with at most [`LINES_MAX`] lines of evidence, if there is any evidence.
fn finding(problem: &'static str, weight: u8, texts: [&str; 3], mut evidence: Vec<String>) -> Vec<Finding> {
    if evidence.is_empty() {
        return vec![];
    }
    let more = evidence.len().saturating_sub(LINES_MAX);
    evidence.truncate(LINES_MAX);
    if more > 0 {
        evidence.push(format!("and {more} more"));
    }
    let [what, cause, remedy] = texts.map(str::to_owned);
    vec![Finding { problem, weight, what, evidence, cause, remedy }]
}

fn index(snapshot: &Snapshot) -> Option<Index<'_>> {
    snapshot.cell.as_ref().map(Index::new)
}

/// Returns server and partition as options of `vos`.
fn place(held: &Held<'_>) -> String {
    format!("-server {} -partition {}", held.server.address(), held.header.partition)
}

/// Returns a volume's description for display.
fn named(held: &Held<'_>) -> String {
    let name = held.header.name.as_deref().unwrap_or("a volume in use");
    format!("{name} ({}) on {} /vicep{}", held.header.id, held.server.address(), held.header.partition)
}

/// Reports volumes whose names differ from those of their entries.
pub(crate) fn renamed(snapshot: &Snapshot) -> Vec<Finding> {
    let Some(index) = index(snapshot) else { return vec![] };
    let says = |held: Held<'_>| {
        let (entry, kind) = index.entry_of(held.header.id)?;
        let (expected, name) = (entry.name_of(kind), held.header.name.as_ref()?);
        let is_other = *name != expected && !index.is_used(&[held.header.id, held.header.parent]);
        is_other.then(|| {
            format!(
                "{} should be {expected}: `vos rename {1} {1}.tmp` and `vos rename {1}.tmp {1}`",
                named(&held),
                entry.name
            )
        })
    };
    let evidence = index.volumes().filter_map(says).collect();
    finding(
        "names-differ",
        47,
        [
            "Volumes have other names than their entries in the location database.",
            "A `vos rename` was ended between the entry and the volumes, or a server did not answer it. Clients find \
             volumes by the entry; the next `vos syncvldb` would take the old name back.",
            "Rename the volume to a spare name and back, which names all of its volumes. To undo the rename instead, run \
             `vos syncvldb` with the server and partition of the read-write volume.",
        ],
        evidence,
    )
}

/// Reports volumes without an entry, or that are not where their entry says.
pub(crate) fn orphans(snapshot: &Snapshot) -> Vec<Finding> {
    let Some(index) = index(snapshot) else { return vec![] };
    let says = |held: Held<'_>| {
        let header = held.header;
        if index.is_used(&[header.id, header.parent]) {
            return None;
        }
        match index.entry_of(header.id) {
            Some((entry, kind)) if held.is_at_site(entry, kind) => None,
            Some(_) => Some(format!(
                "{} is not at a site of its entry: `vos zap {} -id {}` if it is the older copy",
                named(&held),
                place(&held),
                header.id
            )),
            None if index.entry_of(header.parent).is_some() => None,
            None => Some(format!(
                "{} has no entry: `vos syncvldb {} -volume {}`",
                named(&held),
                place(&held),
                header.id
            )),
        }
    };
    let evidence = index.volumes().filter_map(says).collect();
    finding(
        "orphan-volumes",
        38,
        [
            "Servers have volumes that the location database does not know there.",
            "A move, a removal or a restore was ended half-way, or the server did not answer when the entry was removed. \
             Clients cannot find the volumes; they take room.",
            "Compare dates with `vos examine`. `vos syncvldb` makes an entry for a volume; `vos zap` deletes the volume on that \
             partition alone.",
        ],
        evidence,
    )
}

/// Reports clones of volumes with an entry, left behind by an operation.
pub(crate) fn clones(snapshot: &Snapshot) -> Vec<Finding> {
    let Some(index) = index(snapshot) else { return vec![] };
    let says = |held: Held<'_>| {
        let header = held.header;
        let (entry, _) = index.entry_of(header.parent)?;
        let is_left = index.entry_of(header.id).is_none() && !index.is_used(&[header.id, header.parent]);
        let text = || {
            format!(
                "{} is a clone of {}: `vos zap {} -id {}`",
                named(&held),
                entry.name,
                place(&held),
                header.id
            )
        };
        is_left.then(text)
    };
    let evidence = index.volumes().filter_map(says).collect();
    finding(
        "abandoned-clones",
        34,
        [
            "Clones that an operation made were left behind.",
            "A release, move, copy or dump with `-clone` was ended before it deleted its temporary clone. The clone keeps the \
             space of files that change or are removed.",
            "Delete them with `vos zap` once the operation is certainly over.",
        ],
        evidence,
    )
}

/// Reports sites of entries without their volume.
pub(crate) fn missing(snapshot: &Snapshot) -> Vec<Finding> {
    let Some(index) = index(snapshot) else { return vec![] };
    let is_missing = |wanted: &Wanted<'_>| {
        index.is_held(wanted) == Some(false)
            && !index.is_used(&[wanted.entry.ids[0], wanted.entry.ids[wanted.kind]])
    };
    let says = |wanted: Wanted<'_>| {
        let Wanted { entry, kind, site } = wanted;
        let id = entry.ids[kind];
        let command = match (kind, index.find(id)) {
            (1, _) => format!("`vos release {}`", entry.name),
            (2, _) => format!("`vos backup {}`", entry.name),
            (_, Some(held)) => format!("it is on another: `vos syncvldb {} -volume {id}`", place(&held)),
            (_, None) => format!("restore it (`vos restore`), or `vos delentry -id {}`", entry.name),
        };
        format!(
            "{} ({id}) is not on {} /vicep{}: {command}",
            entry.name_of(kind),
            site.server,
            site.partition
        )
    };
    let evidence = index.wanted().filter(is_missing).map(says).collect();
    finding(
        "missing-volumes",
        64,
        [
            "The location database has volumes that their servers do not have.",
            "A volume was deleted on its server alone, a partition was replaced, or an operation was ended half-way. Clients \
             get errors for these volumes.",
            "Do what stands behind each. `vos syncserv` with server and partition corrects all entries of a partition at once.",
        ],
        evidence,
    )
}

/// Reports servers that have sites according to the database and do not answer.
pub(crate) fn silent(snapshot: &Snapshot) -> Vec<Finding> {
    let Some(index) = index(snapshot) else { return vec![] };
    let servers = snapshot.cell.iter().flat_map(|cell| &cell.servers);
    let says = |server: &crate::cell::FileServer| {
        let failure = server.failure.as_ref()?;
        let sites = index.wanted().filter(|wanted| server.addresses.contains(&wanted.site.server)).count();
        let address = server.address();
        (sites > 0).then(|| {
            format!("{address}: {failure}; entries have {sites} volumes there: `bos status {address} -long`")
        })
    };
    let evidence = servers.filter_map(says).collect();
    finding(
        "silent-servers",
        68,
        [
            "File servers that the location database names do not answer.",
            "The server is down or cannot be reached, or it is gone and its entries were left.",
            "Start it. If it is gone for good, remove its sites (`vos remsite`, `vos delentry -server`), then its addresses \
             (`vos changeaddr ADDRESS -remove`).",
        ],
        evidence,
    )
}

/// Reports entries that are locked although no operation works on their volumes.
pub(crate) fn locks(snapshot: &Snapshot) -> Vec<Finding> {
    let Some(index) = index(snapshot) else { return vec![] };
    let entries = snapshot.cell.iter().flat_map(|cell| &cell.entries);
    let is_left = |entry: &&crate::cell::Entry| entry.is_locked && !index.is_used(&entry.ids);
    let evidence =
        entries.filter(is_left).map(|entry| format!("{0}: `vos unlock {0}`", entry.name)).collect();
    finding(
        "stale-locks",
        45,
        [
            "Entries of the location database are locked, and no operation works on their volumes.",
            "An operation was ended before it unlocked the entry, or somebody locked it with `vos lock`. Others wait until \
             the lock is so old that it may be taken.",
            "`vos unlock` frees the entry; `vos listvldb -locked` lists all.",
        ],
        evidence,
    )
}

/// Reports abandoned transactions.
pub(crate) fn transactions(snapshot: &Snapshot) -> Vec<Finding> {
    let servers = snapshot.cell.iter().flat_map(|cell| &cell.servers);
    let evidence = servers
        .flat_map(|server| server.transactions.iter().map(move |transaction| (server.address(), transaction)))
        .filter(|(_, transaction)| transaction.idle_seconds >= IN_PROGRESS_SECONDS)
        .map(|(address, transaction)| {
            format!(
                "{address} /vicep{}: transaction {} on volume {}, not used for {} minutes: `vos endtrans {address} {1}`",
                transaction.partition,
                transaction.id,
                transaction.volume,
                transaction.idle_seconds / 60
            )
        })
        .collect();
    finding(
        "abandoned-transactions",
        40,
        [
            "Volume servers have transactions that nobody uses any more.",
            "The program that began them was ended. Until a transaction is over, its volume is busy.",
            "End them with `vos endtrans`; a volume server ends them by itself in the end.",
        ],
        evidence,
    )
}
