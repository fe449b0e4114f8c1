//! Entries of the location database, and read-only sites in them.

use super::creating;
use afs_idl::vl::{self, entry_flags, lock_release, site_flags};
use anyhow::{Context as _, Result, bail};
use base::{AbortCode, PartitionId};
use cell_client::describe::failed;
use cell_client::{CellClient, Interface};
use std::net::Ipv4Addr;

/// Operation for which `vos addsite` locks an entry; OpenAFS uses the number of VLOP_DELETE for it
/// (VLOP_ADDSITE in `vldbint.xg`).
const ADD_SITE: i32 = entry_flags::DELETE;

/// Parts of the lock that are released with the change.
const WHOLE_LOCK: i32 = lock_release::TIMESTAMP | lock_release::OPCODE | lock_release::AFSID;

/// Returns the entry of a volume from the sync site, if it has one.
pub(in crate::commands) fn find_entry(cell: &CellClient, volume: &str) -> Result<Option<vl::NVldbEntry>> {
    let request = vl::GetEntryByNameNRequest { volume_name: volume.into() };
    match cell.newest(Interface::Locations, |vl| vl::get_entry_by_name_n(vl, &request)) {
        Ok(reply) => Ok(Some(reply.entry)),
        Err(AbortCode::VL_NOENT) => Ok(None),
        Err(code) => Err(failed(format!("look up the volume {volume}"))(code)),
    }
}

/// Adds a read-only site to a volume's entry, like `vos addsite`; on the server's first partition if none is
/// named. The site has no copy until the next release.
pub(in crate::commands) fn add_site(
    cell: &CellClient,
    volume: &str,
    server: Ipv4Addr,
    partition: Option<PartitionId>,
) -> Result<()> {
    let connection = cell.connection(server, Interface::Volumes);
    let partition = creating::choose(&creating::partitions(&*connection)?, partition)
        .with_context(|| format!("on {server}"))?;
    let doing = || failed(format!("add the site {server} {partition} of {volume}"));
    let entry = find_entry(cell, volume)?.with_context(|| format!("there is no volume {volume}"))?;
    let volume_id = entry.volume_id[0];
    let request = vl::SetLockRequest { volume_id, volume_type: 0, operation: ADD_SITE };
    cell.database(Interface::Locations, |vl| vl::set_lock(vl, &request)).map_err(doing())?;
    // The entry may have changed before it was locked.
    let changed = find_entry(cell, volume).and_then(|entry| {
        let entry = entry.with_context(|| format!("the volume {volume} no longer exists"))?;
        let new_entry = with_site(entry, server, partition).with_context(|| format!("of {volume}"))?;
        let request =
            vl::ReplaceEntryNRequest { volume_id, volume_type: 0, new_entry, release_type: WHOLE_LOCK };
        cell.database(Interface::Locations, |vl| vl::replace_entry_n(vl, &request)).map_err(doing())
    });
    if changed.is_err() {
        let request = vl::ReleaseLockRequest { volume_id, volume_type: 0, release_type: WHOLE_LOCK };
        let _ = cell.database(Interface::Locations, |vl| vl::release_lock(vl, &request));
    }
    changed.map(drop)
}

/// Returns an entry with one more site, which is not used until it has been released to.
fn with_site(mut entry: vl::NVldbEntry, server: Ipv4Addr, partition: PartitionId) -> Result<vl::NVldbEntry> {
    let count = usize::try_from(entry.server_count).unwrap_or(vl::SITES);
    if count >= vl::SITES {
        bail!("the entry has {} sites, and has no room for another", vl::SITES);
    }
    let is_there = |site: usize| {
        entry.server_number[site] == u32::from(server)
            && entry.server_flags[site] & site_flags::READ_ONLY != 0
    };
    if (0..count).any(is_there) {
        bail!("the entry has a read-only site on {server} already");
    }
    entry.server_number[count] = server.into();
    entry.server_partition[count] = partition.index() as i32;
    entry.server_flags[count] = site_flags::READ_ONLY | site_flags::DO_NOT_USE;
    entry.server_count += 1;
    Ok(entry)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_site_is_added_once_and_only_if_there_is_room() {
        let (server, a) = (Ipv4Addr::new(192, 0, 2, 1), PartitionId::from_index(0).unwrap());
        let mut entry = vl::NVldbEntry { server_count: 1, ..vl::NVldbEntry::default() };
        entry.server_number[0] = server.into();
        entry.server_flags[0] = site_flags::READ_WRITE;
        let entry = with_site(entry, server, a).unwrap();
        assert_eq!(entry.server_count, 2);
        assert_eq!(
            entry.server_flags[..2],
            [site_flags::READ_WRITE, site_flags::READ_ONLY | site_flags::DO_NOT_USE]
        );
        let refusal = with_site(entry.clone(), server, a).unwrap_err().to_string();
        assert!(refusal.contains("192.0.2.1 already"), "{refusal}");
        let full = vl::NVldbEntry { server_count: vl::SITES as i32, ..entry };
        assert!(with_site(full, server, a).unwrap_err().to_string().contains("no room"));
    }
}
