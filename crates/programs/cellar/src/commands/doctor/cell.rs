//! Compares the location database with the volumes on the cell's servers.

use super::Examined;
use afs_idl::{ClientConnection, vl, vol};
use anyhow::Result;
use base::{AbortCode, PartitionId};
use cell_client::describe::{describe, failed};
use cell_client::network::now;
use cell_client::{CellClient, Interface};
use doctor::cell::{Cell, Entry, FileServer, Header, IN_PROGRESS_SECONDS, Site, Transaction};
use std::net::Ipv4Addr;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::{Duration, Instant};

/// Time limit for all servers to list their volumes; they are asked concurrently.
const PATIENCE: Duration = Duration::from_secs(60);

/// Time limit for a server to list its partitions, which takes milliseconds.
const ANSWER_PATIENCE: Duration = Duration::from_secs(10);

/// Maximum number of entries whose locks are checked twice.
const LOCKED_MAX: usize = 200;

/// Flags of an entry that an operation has locked.
const LOCKED: i32 = vl::entry_flags::MOVE
    | vl::entry_flags::RELEASE
    | vl::entry_flags::BACKUP
    | vl::entry_flags::DELETE
    | vl::entry_flags::DUMP;

/// Flags that say which types of volume an entry has.
const EXISTS: [i32; 3] =
    [vl::entry_flags::READ_WRITE_EXISTS, vl::entry_flags::READ_ONLY_EXISTS, vl::entry_flags::BACKUP_EXISTS];

/// Message from a server's thread.
enum Message {
    /// The server answers.
    Here,
    /// The server's volumes, or why they could not be listed.
    All(Result<FileServer, AbortCode>),
}

/// Examines the entries and the volumes.
pub(super) fn look(client: &CellClient, examined: &mut Examined) {
    match observe(client, &mut examined.unseen) {
        Ok(cell) => examined.snapshot.cell = Some(cell),
        Err(error) => examined.unseen.push(format!("volumes of the cell: {error:#}")),
    }
}

/// Lists the entries and the volumes, and checks the locked entries a second time. Adds to `unseen` which volumes
/// could not be listed, and why.
///
/// # Errors
/// If the location database cannot be listed.
pub(in crate::commands) fn observe(client: &CellClient, unseen: &mut Vec<String>) -> Result<Cell> {
    let entries = entries(client).map_err(failed("list the location database"))?;
    let table = client.file_server_table().map_err(failed("list the file servers of the cell"))?;
    let servers = volumes(client, table, unseen);
    let mut locked = 0;
    let still_locked = |entry: &mut Entry| {
        locked += usize::from(entry.is_locked);
        if entry.is_locked {
            entry.is_locked = locked <= LOCKED_MAX && is_locked(client, &entry.name);
        }
    };
    let mut cell = Cell { entries, servers };
    cell.entries.iter_mut().for_each(still_locked);
    Ok(cell)
}

fn entries(client: &CellClient) -> Result<Vec<Entry>, AbortCode> {
    let mut entries = Vec::new();
    let mut start_index = 0;
    loop {
        let request = vl::ListAttributesN2Request { start_index, ..Default::default() };
        let reply = client.database(Interface::Locations, |vl| vl::list_attributes_n2(vl, &request))?;
        entries.extend(reply.entries.iter().map(entry));
        if reply.next_start_index <= start_index {
            return Ok(entries);
        }
        start_index = reply.next_start_index;
    }
}

fn entry(entry: &vl::NVldbEntry) -> Entry {
    let count = usize::try_from(entry.server_count).unwrap_or(0).min(vl::SITES);
    let has = |flag| entry.flags & flag != 0;
    let site = |i: usize| {
        let flags = entry.server_flags[i];
        Some(Site {
            server: entry.server_number[i].into(),
            partition: letters(entry.server_partition[i])?,
            is_read_write: flags & vl::site_flags::READ_WRITE != 0,
            is_empty: flags & vl::site_flags::DO_NOT_USE != 0,
        })
    };
    Entry {
        name: entry.name.to_string(),
        ids: entry.volume_id,
        exists: EXISTS.map(has),
        sites: (0..count).filter_map(site).collect(),
        is_locked: has(LOCKED),
    }
}

fn is_locked(client: &CellClient, name: &str) -> bool {
    let request = vl::GetEntryByNameNRequest { volume_name: name.into() };
    let reply = client.database(Interface::Locations, |vl| vl::get_entry_by_name_n(vl, &request));
    reply.is_ok_and(|reply| reply.entry.flags & LOCKED != 0)
}

fn letters(partition: i32) -> Option<String> {
    let id = u32::try_from(partition).ok().and_then(PartitionId::from_index)?;
    Some(id.letters())
}

/// Returns the volumes of the servers, and which servers do not answer.
fn volumes(client: &CellClient, table: Vec<Vec<Ipv4Addr>>, unseen: &mut Vec<String>) -> Vec<FileServer> {
    let (reported, answers) = mpsc::channel();
    for (place, addresses) in table.iter().enumerate() {
        let Some(first) = addresses.first() else { continue };
        let connection = client.connection(*first, Interface::Volumes);
        let (reported, addresses) = (reported.clone(), addresses.clone());
        thread::spawn(move || {
            let here = || drop(reported.send((place, Message::Here)));
            let all = server(&*connection, addresses, here);
            // The receiver may have given up.
            drop(reported.send((place, Message::All(all))));
        });
    }
    drop(reported);
    let mut is_here = vec![false; table.len()];
    let mut found: Vec<Option<Result<FileServer, AbortCode>>> = table.iter().map(|_| None).collect();
    let begun = Instant::now();
    loop {
        let waits_for_any = is_here.iter().zip(&found).any(|(here, found)| *here && found.is_none());
        let patience = if waits_for_any { PATIENCE } else { ANSWER_PATIENCE };
        match answers.recv_timeout(patience.saturating_sub(begun.elapsed())) {
            Ok((place, Message::Here)) => is_here[place] = true,
            Ok((place, Message::All(all))) => found[place] = Some(all),
            Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => break,
        }
    }
    let mut servers = Vec::new();
    for (place, addresses) in table.into_iter().enumerate() {
        let Some(first) = addresses.first().copied() else { continue };
        let failure = match found[place].take() {
            Some(Ok(server)) => {
                servers.push(server);
                continue;
            }
            Some(Err(code)) if code != AbortCode::RX_CALL_DEAD => {
                unseen.push(format!("volumes on {first}: {}", describe(code)));
                continue;
            }
            None if is_here[place] => {
                unseen.push(format!("volumes on {first}: not listed in {} s", PATIENCE.as_secs()));
                continue;
            }
            Some(Err(_)) | None => "its volume server does not answer".to_owned(),
        };
        servers.push(FileServer { addresses, failure: Some(failure), ..FileServer::default() });
    }
    servers
}

/// Lists the volumes of a server. Calls `here` as soon as the server has answered.
fn server(
    connection: &dyn ClientConnection,
    addresses: Vec<Ipv4Addr>,
    here: impl FnOnce(),
) -> Result<FileServer, AbortCode> {
    let partitions = vol::x_list_partitions(connection, &vol::XListPartitionsRequest)?.partitions;
    here();
    // Transactions in progress before and after listing: volumes that they created or deleted meanwhile are
    // not leftovers.
    let open = || vol::monitor(connection, &vol::MonitorRequest).map(|reply| reply.transactions);
    let mut transactions: Vec<Transaction> = open()?.iter().map(transaction).collect();
    let mut volumes = Vec::new();
    let mut served = Vec::new();
    for partition in partitions {
        let Some(letters) = letters(partition) else { continue };
        served.push(letters.clone());
        let request = vol::ListVolumesRequest { partition, flags: 1 };
        let reply = vol::list_volumes(connection, &request)?;
        volumes.extend(reply.entries.iter().map(|info| header(info, &letters)));
    }
    let later = open()?;
    let is_over = |before: &Transaction| !later.iter().any(|info| info.transaction == before.id);
    transactions.retain(|before| is_over(before) && before.idle_seconds < IN_PROGRESS_SECONDS);
    transactions.extend(later.iter().map(transaction));
    Ok(FileServer { addresses, failure: None, partitions: served, volumes, transactions })
}

fn header(info: &vol::VolintInfo, partition: &str) -> Header {
    let is_readable = info.status == vol::volume_state::OK;
    Header {
        id: info.volume_id,
        parent: info.parent_id,
        name: is_readable.then(|| info.name.to_string()),
        partition: partition.to_owned(),
        is_clone: is_readable && info.volume_type != vol::volume_type::READ_WRITE,
    }
}

fn transaction(info: &vol::TransDebugInfo) -> Transaction {
    Transaction {
        id: info.transaction,
        volume: info.volume_id,
        partition: letters(info.partition).unwrap_or_default(),
        idle_seconds: now().0.saturating_sub(info.time),
    }
}
