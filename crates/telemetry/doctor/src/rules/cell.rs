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
            "The names of volumes differ from those of their entries in the location database.",
            "A `vos rename` was interrupted between the entry and the volumes, or a server did not answer \
            it. Clients find volumes by the entry; the next `vos syncvldb` would restore the old name.",
            "`cellar volume repair` completes the rename (`--dry-run` shows the steps), as does renaming the \
            volume to a temporary name and back. To undo the rename instead, run `vos syncvldb` with the \
            server and partition of the read-write volume.",
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
            "Servers have volumes that the location database does not list there.",
            "A move, removal or restore was interrupted, or the server did not answer when the entry was \
            removed. Clients cannot find the volumes, which take up space.",
            "`cellar volume repair` makes entries for volumes without one (`--dry-run` shows the steps), as \
            does `vos syncvldb`. Compare dates with `vos examine`; `vos zap` deletes the volume on that \
            partition only.",
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
            "An operation left temporary clones behind.",
            "A release, move, copy or dump with `-clone` was interrupted before it deleted its temporary \
            clone. The clone holds the space of files that are changed or removed.",
            "Make sure that the operation is over, then delete them with `cellar volume repair \
            --remove-clones` (`--dry-run` shows the steps) or `vos zap`.",
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
            (_, Some(held)) => {
                format!("it is on another server: `vos syncvldb {} -volume {id}`", place(&held))
            }
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
            "The location database lists volumes that their servers do not have.",
            "A volume was deleted on its server only, a partition was replaced, or an operation was \
            interrupted. Clients get errors for these volumes.",
            "Run the command shown with each volume. `cellar volume repair` removes sites and entries without \
            a volume (`--dry-run` shows the steps); `vos syncserv` with a server and partition corrects all \
            entries of a partition.",
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
            "File servers listed in the location database do not answer.",
            "The server is down or unreachable, or it was removed and its entries were left behind.",
            "Start it. If it was removed permanently, remove its sites (`vos remsite`, `vos delentry \
            -server`), then its addresses (`vos changeaddr ADDRESS -remove`).",
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
            "Entries of the location database are locked although no operation is working on their volumes.",
            "An operation was interrupted before it unlocked the entry, or an administrator locked it with \
            `vos lock`. Other operations wait until the lock is old enough to be broken.",
            "`cellar volume repair` unlocks the entries (`--dry-run` shows the steps), as does `vos unlock`; \
            `vos listvldb -locked` lists all.",
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
                "{address} /vicep{}: transaction {} on volume {}, idle for {} minutes: `vos endtrans \
                {address} {1}`",
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
            "Volume servers have abandoned transactions.",
            "The program that started them was interrupted. While a transaction exists, its volume is busy.",
            "End them with `vos endtrans`; the volume server eventually ends them itself.",
        ],
        evidence,
    )
}
