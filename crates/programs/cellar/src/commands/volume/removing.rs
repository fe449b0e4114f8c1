//! `cellar volume remove`.

use super::Transaction;
use crate::commands::{Context, snapshot};
use afs_idl::{ClientConnection, vl, vol};
use anyhow::{Result, bail};
use base::{AbortCode, PartitionId, VolumeId, VolumeType};
use cell_client::describe::{describe, failed};
use cell_client::location::{Located, Site};
use cell_client::{CellClient, Interface};
use clap::Args;
use serde::Serialize;
use std::net::Ipv4Addr;

/// Remove a volume.
#[derive(Args)]
pub struct Remove {
    /// Name or number of the volume.
    volume: String,
    /// Also remove its snapshots.
    #[arg(long)]
    snapshots: bool,
    /// Also remove its read-only copies, on all servers.
    #[arg(long)]
    copies: bool,
    /// Show what would be done without doing it.
    #[arg(long)]
    dry_run: bool,
}

/// What is removed, or would be.
#[derive(Serialize)]
struct Removed {
    volume: String,
    volumes: Vec<RemovedVolume>,
    snapshots: Vec<String>,
    is_done: bool,
}

/// One of the removed volumes.
#[derive(Serialize)]
struct RemovedVolume {
    id: u32,
    server: Ipv4Addr,
    partition: String,
}

impl Removed {
    /// Describes what would be removed.
    fn preview(&self) -> String {
        let place = |one: &RemovedVolume| format!("{} on {} {}", one.id, one.server, one.partition);
        let volumes: Vec<String> = self.volumes.iter().map(place).collect();
        let snapshots = match &self.snapshots[..] {
            [] => String::new(),
            names => format!(", the snapshots {}", names.join(", ")),
        };
        format!("would remove {}: {}{snapshots}, and its entry", self.volume, volumes.join(", "))
    }
}

/// Runs the command.
pub(super) fn remove(context: &Context, cell: &CellClient, request: &Remove) -> Result<()> {
    let Remove { volume, snapshots, copies, dry_run } = request;
    let located = cell.locate_newest(volume)?;
    let doomed = doomed(&located, *copies)?;
    let snapshots = snapshot::doomed(cell, volume, *snapshots)?;
    let reported = removed(volume, &doomed, snapshots.names.clone(), !dry_run);
    if *dry_run {
        cell.check_changes_locations().map_err(failed(format!("remove the volume {volume}")))?;
        return context.format.done(&reported, reported.preview());
    }
    snapshots.remove()?;
    for (site, id) in &doomed {
        let server = cell.connection(site.server, Interface::Volumes);
        match delete(&*server, site.partition, *id) {
            // Already gone; continue with the others.
            Ok(()) | Err(AbortCode::VNOVOL) => {}
            Err(code) => {
                let (server, partition) = (site.server, site.partition);
                bail!("cannot remove the volume {volume} ({id} on {server} {partition}): {}", describe(code))
            }
        }
    }
    let request = entry_of(&located);
    cell.database(Interface::Locations, |vl| vl::delete_entry(vl, &request))
        .map_err(failed(format!("remove the entry of {volume}")))?;
    context.format.done(&reported, format!("{volume} is removed"))
}

fn removed(volume: &str, doomed: &[(Site, VolumeId)], snapshots: Vec<String>, is_done: bool) -> Removed {
    let one = |(site, id): &(Site, VolumeId)| RemovedVolume {
        id: id.0,
        server: site.server,
        partition: site.partition.to_string(),
    };
    Removed { volume: volume.into(), volumes: doomed.iter().map(one).collect(), snapshots, is_done }
}

/// Lists what to delete and where, with the read-write volume last, so that the rest can still be found after
/// a failure.
fn doomed(located: &Located, with_copies: bool) -> Result<Vec<(Site, VolumeId)>> {
    let id = |kind: VolumeType| Some(located.ids[kind as usize]).filter(|id| *id != VolumeId(0));
    let mut doomed = Vec::new();
    let copies: Vec<&Site> = located.sites.iter().filter(|site| !site.is_read_write).collect();
    if !copies.is_empty() && !with_copies {
        let places: Vec<String> =
            copies.iter().map(|site| format!("{} {}", site.server, site.partition)).collect();
        bail!("{} has read-only copies, on {}; --copies removes them too", located.name, places.join(", "));
    }
    if let Some(id) = id(VolumeType::ReadOnly) {
        doomed.extend(copies.into_iter().map(|site| (site.clone(), id)));
    }
    if let Some(site) = located.sites.iter().find(|site| site.is_read_write) {
        doomed.extend(id(VolumeType::Backup).map(|id| (site.clone(), id)));
        doomed.push((site.clone(), located.read_write()));
    }
    if doomed.is_empty() {
        bail!("the entry of {} has no site: nothing can be removed", located.name);
    }
    Ok(doomed)
}

/// Names the entry by its first number: the entry is found only by a number of the given type.
fn entry_of(located: &Located) -> vl::DeleteEntryRequest {
    let kind = located.ids.iter().position(|id| *id != VolumeId(0)).unwrap_or(0);
    vl::DeleteEntryRequest { volume_id: located.ids[kind].0, volume_type: kind as i32 }
}

/// Deletes a volume on a partition.
pub(super) fn delete(
    server: &dyn ClientConnection,
    partition: PartitionId,
    id: VolumeId,
) -> Result<(), AbortCode> {
    let transaction = Transaction::begin(vol::attach_mode::OFFLINE, server, partition, id.0)?;
    vol::delete_volume(server, &vol::DeleteVolumeRequest { transaction: transaction.id })?;
    transaction.end()
}

#[cfg(test)]
mod tests {
    use super::*;

    const ONE: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 1);
    const TWO: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 2);

    fn located(ids: [u32; 3], sites: &[(Ipv4Addr, bool)]) -> Located {
        let partition = PartitionId::from_index(0).unwrap();
        let site = |&(server, is_read_write)| Site { server, partition, is_read_write };
        Located { name: "v".into(), ids: ids.map(VolumeId), sites: sites.iter().map(site).collect() }
    }

    fn places(doomed: &[(Site, VolumeId)]) -> Vec<(Ipv4Addr, u32)> {
        doomed.iter().map(|(site, id)| (site.server, id.0)).collect()
    }

    #[test]
    fn the_backup_goes_with_the_volume_and_the_volume_last() {
        let alone = located([7, 8, 9], &[(ONE, true)]);
        assert_eq!(places(&doomed(&alone, false).unwrap()), [(ONE, 9), (ONE, 7)]);
        let never_backed_up = located([7, 8, 0], &[(ONE, true)]);
        assert_eq!(places(&doomed(&never_backed_up, true).unwrap()), [(ONE, 7)]);
    }

    #[test]
    fn copies_go_first_and_only_if_that_is_wanted() {
        let released = located([7, 8, 9], &[(ONE, true), (ONE, false), (TWO, false)]);
        let refused = doomed(&released, false).unwrap_err().to_string();
        assert!(refused.contains("192.0.2.1 /vicepa, 192.0.2.2 /vicepa; --copies"), "{refused}");
        let order = [(ONE, 8), (TWO, 8), (ONE, 9), (ONE, 7)];
        assert_eq!(places(&doomed(&released, true).unwrap()), order);
    }

    #[test]
    fn a_dry_run_lists_everything_removed() {
        let released = located([7, 8, 0], &[(ONE, true), (TWO, false)]);
        let reported = removed("v", &doomed(&released, true).unwrap(), vec!["monday".into()], false);
        let text = "would remove v: 8 on 192.0.2.2 /vicepa, 7 on 192.0.2.1 /vicepa, the snapshots monday, \
            and its entry";
        assert_eq!(reported.preview(), text);
        assert!(removed("v", &[], Vec::new(), false).preview().ends_with(", and its entry"));
    }

    #[test]
    fn a_volume_with_only_replicas_can_be_removed() {
        let kept = located([7, 8, 9], &[(TWO, false)]);
        assert!(doomed(&kept, false).is_err());
        assert_eq!(places(&doomed(&kept, true).unwrap()), [(TWO, 8)]);
    }

    #[test]
    fn the_entry_is_named_by_a_number_and_its_kind() {
        let named = |ids| (entry_of(&located(ids, &[])).volume_id, entry_of(&located(ids, &[])).volume_type);
        assert_eq!(named([7, 8, 9]), (7, 0));
        assert_eq!(named([0, 8, 9]), (8, 1));
    }

    #[test]
    fn an_entry_without_a_place_is_left_to_the_tools_for_entries() {
        assert!(doomed(&located([7, 8, 9], &[]), true).unwrap_err().to_string().contains("no site"));
    }
}
