//! `cellar volume repair`: makes the location database agree with the volumes of the servers again.

use super::removing::delete;
use super::{Context, Transaction};
use crate::commands::doctor::cell::observe;
use afs_idl::vl::{self, NVldbEntry};
use afs_idl::{cellar, vol};
use anyhow::{Context as _, Result, anyhow, bail, ensure};
use base::{AbortCode, PartitionId, VolumeId};
use cell_client::describe::failed;
use cell_client::{CellClient, Interface};
use clap::Args;
use doctor::repair::{Action, Options, Plan, Spot, Step, plan};
use jobs::Stage;
use serde::Serialize;
use std::collections::HashSet;

/// Make the location database agree with the volumes of the servers again, after operations that ended midway.
#[derive(Args)]
pub struct Repair {
    /// Names of the read-write volumes to repair; all volumes of the cell by default.
    volumes: Vec<String>,
    /// Delete clones that operations left behind.
    #[arg(long)]
    remove_clones: bool,
    /// Show what would be done without doing it.
    #[arg(long)]
    dry_run: bool,
}

/// A step as displayed.
#[derive(Serialize)]
struct StepView<'a> {
    volume: &'a str,
    action: &'static str,
    what: String,
    /// Why the step failed.
    #[serde(skip_serializing_if = "Option::is_none")]
    failure: Option<String>,
}

/// A problem that is left.
#[derive(Serialize)]
struct ShownLeft<'a> {
    volume: &'a str,
    reason: &'a str,
}

/// The outcome.
#[derive(Serialize)]
struct Repaired<'a> {
    steps: Vec<StepView<'a>>,
    left: Vec<ShownLeft<'a>>,
    /// What could not be checked, and why.
    not_checked: &'a [String],
    is_done: bool,
}

/// Any kind of volume, in queries by id.
const ANY_KIND: i32 = -1;
/// Clears all parts of a lock.
const UNLOCK: i32 = vl::lock_release::TIMESTAMP | vl::lock_release::OPCODE | vl::lock_release::AFSID;

/// Runs the command.
///
/// # Errors
/// If the cell cannot be examined or changed, or a step fails; the other steps are executed nevertheless.
pub(super) fn repair(context: &Context, cell: &CellClient, request: &Repair) -> Result<()> {
    cell.check_changes_locations().map_err(failed("repair the location database"))?;
    let mut unseen = Vec::new();
    let observed = observe(cell, &mut unseen)?;
    let options = Options {
        removes_clones: request.remove_clones,
        jobs: volumes_with_jobs(context, cell)?,
        is_incomplete: !unseen.is_empty(),
    };
    let mut plan = plan(&observed, &options);
    let is_wanted = |volume: &String| request.volumes.is_empty() || request.volumes.contains(volume);
    plan.steps.retain(|step| is_wanted(&step.volume));
    plan.left.retain(|left| is_wanted(&left.volume));
    let outcomes: Vec<Option<String>> = if request.dry_run {
        plan.steps.iter().map(|_| None).collect()
    } else {
        plan.steps.iter().map(|step| execute(cell, step).err().map(|error| format!("{error:#}"))).collect()
    };
    let failures = outcomes.iter().flatten().count();
    let repaired = shown(&plan, outcomes, &unseen, !request.dry_run);
    context.format.done(&repaired, lines(&repaired).join("\n"))?;
    ensure!(failures == 0, "{failures} of {} steps failed", plan.steps.len());
    Ok(())
}

fn shown<'a>(
    plan: &'a Plan,
    outcomes: Vec<Option<String>>,
    not_checked: &'a [String],
    is_done: bool,
) -> Repaired<'a> {
    let step = |(step, failure): (&'a Step, Option<String>)| StepView {
        volume: &step.volume,
        action: step.action.name(),
        what: step.to_string(),
        failure,
    };
    Repaired {
        steps: plan.steps.iter().zip(outcomes).map(step).collect(),
        left: plan.left.iter().map(|left| ShownLeft { volume: &left.volume, reason: &left.reason }).collect(),
        not_checked,
        is_done,
    }
}

fn lines(repaired: &Repaired<'_>) -> Vec<String> {
    let mut lines: Vec<String> = repaired
        .steps
        .iter()
        .map(|step| match (&step.failure, repaired.is_done) {
            (Some(failure), _) => format!("failed: {}: {failure}", step.what),
            (None, true) => format!("done: {}", step.what),
            (None, false) => format!("would {}", step.what),
        })
        .collect();
    lines.extend(repaired.left.iter().map(|left| format!("left: {}: {}", left.volume, left.reason)));
    lines.extend(repaired.not_checked.iter().map(|unseen| format!("not checked: {unseen}")));
    if lines.is_empty() {
        lines.push("the location database agrees with the volumes".into());
    }
    lines
}

/// Returns the volumes with unfinished jobs: those in this machine's journal, and those of the cell's Cellar servers.
fn volumes_with_jobs(context: &Context, cell: &CellClient) -> Result<HashSet<u32>> {
    let jobs =
        super::following::journal(context)?.journal.all().context("cannot read the journal of jobs")?;
    let mut volumes: HashSet<u32> =
        jobs.into_iter().filter(|job| !job.is_over()).map(|job| job.volume()).collect();
    for server in cell.file_servers().map_err(failed("list the file servers of the cell"))? {
        let connection = cell.connection(server, Interface::Cellar);
        let mut after = 0;
        // Other servers have no such call; one that does not answer is found when its volumes are listed.
        while let Ok(reply) = cellar::list_jobs(&*connection, &cellar::ListJobsRequest { after }) {
            let is_over =
                |job: &cellar::JobInfo| job.stage.as_str().and_then(Stage::named).is_some_and(Stage::is_over);
            let Some(last) = reply.jobs.iter().map(|job| job.id).max().filter(|last| *last > after) else {
                break;
            };
            volumes.extend(reply.jobs.iter().filter(|job| !is_over(job)).map(|job| job.volume));
            after = last;
        }
    }
    Ok(volumes)
}

fn execute(cell: &CellClient, step: &Step) -> Result<()> {
    let volume = &step.volume;
    match &step.action {
        Action::Unlock { id } => {
            let (_, volume_type) = entry(cell, *id)?;
            let request = vl::ReleaseLockRequest { volume_id: *id, volume_type, release_type: UNLOCK };
            cell.database(Interface::Locations, |vl| vl::release_lock(vl, &request))
                .map(drop)
                .map_err(failed("unlock the entry"))
        }
        Action::Rename { at, id, to, .. } => rename(cell, at, *id, to),
        Action::Register { ids, exists, sites } => {
            let mut new_entry =
                NVldbEntry { name: volume.as_str().into(), volume_id: *ids, ..Default::default() };
            for (place, site) in sites.iter().enumerate() {
                ensure!(place < vl::SITES, "an entry has at most {} sites", vl::SITES);
                new_entry.server_number[place] = site.server.into();
                new_entry.server_partition[place] = partition(&site.partition)?.index() as i32;
                let kind =
                    if site.is_read_write { vl::site_flags::READ_WRITE } else { vl::site_flags::READ_ONLY };
                new_entry.server_flags[place] = kind;
                new_entry.server_count += 1;
            }
            let flags = EXISTS.iter().zip(exists).filter(|(_, exists)| **exists);
            new_entry.flags = flags.map(|(flag, _)| flag).sum();
            let request = vl::CreateEntryNRequest { new_entry };
            cell.database(Interface::Locations, |vl| vl::create_entry_n(vl, &request))
                .map(drop)
                .map_err(failed("make the entry"))
        }
        Action::MoveSite { id, from, to } => change(cell, *id, |entry| {
            let place = site(entry, from, vl::site_flags::READ_WRITE)?;
            entry.server_number[place] = to.server.into();
            entry.server_partition[place] = partition(&to.partition)?.index() as i32;
            Ok(())
        }),
        Action::RemoveSite { id, at } => change(cell, *id, |entry| remove_site(entry, at)),
        Action::ForgetBackup { id } => change(cell, *id, |entry| {
            entry.flags &= !vl::entry_flags::BACKUP_EXISTS;
            Ok(())
        }),
        Action::RemoveEntry { id } => {
            let (_, volume_type) = entry(cell, *id)?;
            let request = vl::DeleteEntryRequest { volume_id: *id, volume_type };
            cell.database(Interface::Locations, |vl| vl::delete_entry(vl, &request))
                .map(drop)
                .map_err(failed("remove the entry"))
        }
        Action::RemoveClone { at, id, parent } => remove_clone(cell, at, *id, *parent),
    }
}

/// Flags that say which types of volume an entry has.
const EXISTS: [i32; 3] =
    [vl::entry_flags::READ_WRITE_EXISTS, vl::entry_flags::READ_ONLY_EXISTS, vl::entry_flags::BACKUP_EXISTS];

fn partition(letters: &str) -> Result<PartitionId> {
    letters.parse().map_err(|reason: String| anyhow!("{reason}"))
}

/// Returns an entry, and the type of the volume with this id in it.
fn entry(cell: &CellClient, id: u32) -> Result<(NVldbEntry, i32)> {
    let request = vl::GetEntryByIDNRequest { volume_id: id, volume_type: ANY_KIND };
    let reply = cell.database(Interface::Locations, |vl| vl::get_entry_by_idn(vl, &request));
    let entry = reply.map_err(failed(format!("find the entry of {id}")))?.entry;
    let kind = entry.volume_id.iter().position(|it| *it == id).context("the entry has other ids")?;
    Ok((entry, kind as i32))
}

/// Locks the entry, changes its present contents, and unlocks it.
fn change(cell: &CellClient, volume_id: u32, edit: impl FnOnce(&mut NVldbEntry) -> Result<()>) -> Result<()> {
    let (_, volume_type) = entry(cell, volume_id)?;
    let lock = vl::SetLockRequest { volume_id, volume_type, operation: vl::entry_flags::DELETE };
    cell.database(Interface::Locations, |vl| vl::set_lock(vl, &lock)).map_err(failed("lock the entry"))?;
    let edited = entry(cell, volume_id).and_then(|(mut entry, _)| {
        edit(&mut entry)?;
        let request =
            vl::ReplaceEntryNRequest { volume_id, volume_type, new_entry: entry, release_type: UNLOCK };
        cell.database(Interface::Locations, |vl| vl::replace_entry_n(vl, &request))
            .map_err(failed("change the entry"))
    });
    if edited.is_err() {
        let release = vl::ReleaseLockRequest { volume_id, volume_type, release_type: UNLOCK };
        let _ = cell.database(Interface::Locations, |vl| vl::release_lock(vl, &release));
    }
    edited.map(drop)
}

/// Returns the place of a site in an entry.
fn site(entry: &NVldbEntry, at: &Spot, kind: i32) -> Result<usize> {
    let count = usize::try_from(entry.server_count).unwrap_or(0).min(vl::SITES);
    let index = partition(&at.partition)?.index() as i32;
    let is_it = |place: &usize| {
        entry.server_number[*place] == u32::from(at.server)
            && entry.server_partition[*place] == index
            && entry.server_flags[*place] & kind != 0
    };
    (0..count).find(is_it).with_context(|| format!("the entry has no site {at} any more"))
}

fn remove_site(entry: &mut NVldbEntry, at: &Spot) -> Result<()> {
    let place = site(entry, at, vl::site_flags::READ_ONLY)?;
    let last = entry.server_count as usize - 1;
    for place in place..last {
        entry.server_number[place] = entry.server_number[place + 1];
        entry.server_partition[place] = entry.server_partition[place + 1];
        entry.server_flags[place] = entry.server_flags[place + 1];
    }
    (entry.server_number[last], entry.server_partition[last], entry.server_flags[last]) = (0, 0, 0);
    entry.server_count -= 1;
    if !entry.server_flags.iter().any(|flags| flags & vl::site_flags::READ_ONLY != 0) {
        entry.flags &= !vl::entry_flags::READ_ONLY_EXISTS;
    }
    Ok(())
}

/// Gives a volume this name, with the relations in its entry, as `vos rename` does.
fn rename(cell: &CellClient, at: &Spot, id: u32, name: &str) -> Result<()> {
    let (NVldbEntry { volume_id: [parent_id, read_only, backup], .. }, volume_type) = entry(cell, id)?;
    let is_read_write = volume_type == vol::volume_type::READ_WRITE;
    let (clone_id, backup_id) = if is_read_write { (read_only, backup) } else { (0, 0) };
    let server = cell.connection(at.server, Interface::Volumes);
    let rename = || {
        let transaction = Transaction::begin(vol::attach_mode::OFFLINE, &*server, partition_of(at)?, id)?;
        let request = vol::SetIdsTypesRequest {
            transaction: transaction.id,
            name: name.into(),
            volume_type,
            parent_id,
            clone_id,
            backup_id,
        };
        vol::set_ids_types(&*server, &request)?;
        transaction.end()
    };
    rename().map_err(failed(format!("rename the volume {id} on {at}")))
}

fn partition_of(at: &Spot) -> Result<PartitionId, AbortCode> {
    at.partition.parse().map_err(|_| AbortCode::VOLSERILLEGAL_PARTITION)
}

/// Deletes a clone, if the server still says that it is one and no entry has it.
fn remove_clone(cell: &CellClient, at: &Spot, id: u32, parent: u32) -> Result<()> {
    let request = vl::GetEntryByIDNRequest { volume_id: id, volume_type: ANY_KIND };
    match cell.database(Interface::Locations, |vl| vl::get_entry_by_idn(vl, &request)) {
        Err(AbortCode::VL_NOENT) => {}
        Err(code) => return Err(failed(format!("look for an entry of {id}"))(code)),
        Ok(reply) => bail!("it is in the entry {} now", reply.entry.name),
    }
    let server = cell.connection(at.server, Interface::Volumes);
    let site = partition(&at.partition)?;
    let request = vol::ListOneVolumeRequest { partition: site.index() as i32, volume_id: id };
    let reply = vol::list_one_volume(&*server, &request).map_err(failed(format!("examine {id} on {at}")))?;
    let info = reply.entries.first().with_context(|| format!("{at} says nothing about {id}"))?;
    let is_clone =
        info.volume_type != vol::volume_type::READ_WRITE && info.parent_id == parent && id != parent;
    ensure!(is_clone, "the server says that {id} is not a clone of {parent}");
    delete(&*server, site, VolumeId(id)).map_err(failed(format!("delete {id} on {at}")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::Ipv4Addr;

    const ONE: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 1);
    const TWO: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 2);

    fn entry(sites: &[(Ipv4Addr, i32)]) -> NVldbEntry {
        let mut entry = NVldbEntry { flags: EXISTS.iter().sum(), ..Default::default() };
        for (place, (server, flags)) in sites.iter().enumerate() {
            (entry.server_number[place], entry.server_flags[place]) = ((*server).into(), *flags);
            entry.server_count += 1;
        }
        entry
    }

    #[test]
    fn a_site_is_removed_and_the_last_one_takes_the_mark_with_it() {
        use vl::site_flags::{READ_ONLY, READ_WRITE};
        let at = |server| Spot { server, partition: "a".into() };
        let mut whole = entry(&[(ONE, READ_WRITE), (ONE, READ_ONLY), (TWO, READ_ONLY)]);
        remove_site(&mut whole, &at(ONE)).unwrap();
        assert_eq!(whole, entry(&[(ONE, READ_WRITE), (TWO, READ_ONLY)]));
        let gone = remove_site(&mut whole, &at(ONE)).unwrap_err().to_string();
        assert_eq!(gone, "the entry has no site 192.0.2.1 /vicepa any more");
        remove_site(&mut whole, &at(TWO)).unwrap();
        let mut expected = entry(&[(ONE, READ_WRITE)]);
        expected.flags &= !vl::entry_flags::READ_ONLY_EXISTS;
        assert_eq!(whole, expected);
    }
}
