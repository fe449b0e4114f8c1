//! `cellar volume create`.

use super::{Transaction, quota};
use crate::commands::{Context, protection};
use afs_idl::{ClientConnection, vl, vol};
use anyhow::{Context as _, Result, bail};
use base::{AbortCode, PartitionId, Rights, VolumeName};
use cell_client::describe::{describe, failed};
use cell_client::{CellClient, Interface};
use clap::Args;
use serde::Serialize;
use std::net::Ipv4Addr;
use std::sync::Arc;

/// Quota of a new volume in KiB, as with `vos create`.
pub(in crate::commands) const QUOTA_KIB: i32 = 5000;

/// Create a read-write volume.
#[derive(Args)]
pub struct Create {
    /// Name of the volume.
    name: VolumeName,
    /// File server for the volume; defaults to the one in this machine's configuration, or else the first database
    /// server.
    #[arg(long)]
    on: Option<Ipv4Addr>,
    /// Partition, like `a`; the server's first by default.
    #[arg(long)]
    partition: Option<PartitionId>,
    /// Maximum size: KiB, or a number with K, M, G or T, like 2G; 0 is unlimited.
    #[arg(long, default_value_t = QUOTA_KIB, value_parser = quota::parse)]
    quota: i32,
    /// Rights on the root directory, in addition to the administrators', like `system:anyuser=rl`.
    #[arg(long, value_name = "NAME=RIGHTS")]
    acl: Vec<String>,
    /// Show what would be created without creating it.
    #[arg(long)]
    dry_run: bool,
}

impl Create {
    /// Options for a volume on the default server and partition.
    pub fn with_acl(name: VolumeName, quota: i32, acl: &[&str]) -> Create {
        Create {
            name,
            on: None,
            partition: None,
            quota,
            acl: acl.iter().map(|&grant| grant.to_owned()).collect(),
            dry_run: false,
        }
    }
}

impl Create {
    /// Options for a volume on this server; on its first partition if none is named.
    pub(in crate::commands) fn at(
        name: VolumeName,
        on: Ipv4Addr,
        partition: Option<PartitionId>,
        quota: i32,
    ) -> Create {
        Create { name, on: Some(on), partition, quota, acl: Vec::new(), dry_run: false }
    }
}

/// A created volume.
#[derive(Serialize)]
pub struct Made {
    name: String,
    id: u32,
    server: Ipv4Addr,
    partition: String,
}

/// A volume that would be created.
#[derive(Serialize)]
struct Preview<'a> {
    name: &'a str,
    server: Ipv4Addr,
    partition: String,
    quota_kib: i32,
    acl: &'a [String],
    is_done: bool,
}

/// Results of the checks before creation.
struct Plan {
    on: Ipv4Addr,
    server: Arc<dyn ClientConnection>,
    partition: PartitionId,
    /// Access list to set on the root directory; `None` to leave rights to administrators only.
    access_list: Option<String>,
}

/// Runs the command.
pub(super) fn run(context: &Context, cell: &CellClient, create: &Create) -> Result<()> {
    let default = context.default_server(cell);
    if !create.dry_run {
        let made = create_on(cell, create, default)?;
        let sentence = format!("{} is volume {} on {} {}", made.name, made.id, made.server, made.partition);
        return context.format.done(&made, sentence);
    }
    let Plan { on, partition, .. } = plan(cell, create, default)?;
    cell.check_changes_locations().map_err(failed(format!("make the volume {}", create.name)))?;
    let (name, quota_kib, acl) = (create.name.as_str(), create.quota, &create.acl[..]);
    let quota = quota::in_words(quota_kib);
    let rights = if acl.is_empty() { String::new() } else { format!(" and {}", acl.join(", ")) };
    let sentence = format!("would make {name} on {on} {partition} with {quota}{rights}");
    let partition = partition.to_string();
    context.format.done(&Preview { name, server: on, partition, quota_kib, acl, is_done: false }, sentence)
}

/// Creates a volume like `vos create`: number, volume, entry, access list. If a step fails, those before it are undone. The
/// default server is the cell's first database server.
pub fn create_volume(cell: &CellClient, create: &Create) -> Result<Made> {
    create_on(cell, create, cell.default_server())
}

/// Creates a volume like [`create_volume`], with another default server.
fn create_on(cell: &CellClient, create: &Create, default: Ipv4Addr) -> Result<Made> {
    let Plan { on, server, partition, access_list } = plan(cell, create, default)?;
    let name = create.name.as_str();
    let request = vl::GetNewVolumeIdRequest { bump_count: 3 };
    let id = cell
        .database(Interface::Locations, |vl| vl::get_new_volume_id(vl, &request))
        .map_err(failed("get a volume number"))?
        .new_volume_id;
    let begun = Begun { cell, on, server: &*server, partition, name, id };
    begun.make(create.quota).or_else(|failure| begun.undo(failure))?;
    begun.register().or_else(|failure| begun.undo(failure))?;
    if let Some(text) = access_list {
        begun.set_rights(&text).or_else(|failure| begun.undo(failure))?;
    }
    Ok(Made { name: name.into(), id, server: on, partition: partition.to_string() })
}

/// Checks in advance, as far as possible, whether the volume can be created, so that it does not fail
/// half-way.
fn plan(cell: &CellClient, create: &Create, default: Ipv4Addr) -> Result<Plan> {
    cell.check_name_is_free(create.name.as_str())?;
    let access_list = access_list(cell, &create.acl)?;
    let on = create.on.unwrap_or(default);
    let server = cell.connection(on, Interface::Volumes);
    let partition = choose(&partitions(&*server)?, create.partition).with_context(|| format!("on {on}"))?;
    Ok(Plan { on, server, partition, access_list })
}

pub(super) fn partitions(server: &dyn ClientConnection) -> Result<Vec<PartitionId>> {
    let reply =
        vol::x_list_partitions(server, &vol::XListPartitionsRequest).map_err(failed("list partitions"))?;
    let numbers = reply.partitions.iter();
    Ok(numbers.filter_map(|&number| PartitionId::from_index(u32::try_from(number).ok()?)).collect())
}

pub(super) fn choose(partitions: &[PartitionId], wanted: Option<PartitionId>) -> Result<PartitionId> {
    let first = partitions.first().copied().context("the server has no partition")?;
    match wanted {
        Some(wanted) if !partitions.contains(&wanted) => {
            let names: Vec<String> = partitions.iter().map(ToString::to_string).collect();
            bail!("the server has no partition {wanted}; it has {}", names.join(", "))
        }
        wanted => Ok(wanted.unwrap_or(first)),
    }
}

/// Returns a server's first partition.
pub(super) fn first_partition(server: &dyn ClientConnection) -> Result<PartitionId> {
    choose(&partitions(server)?, None)
}

/// A volume that is being created. Its id was allocated for it, so that no other volume has it.
struct Begun<'a> {
    cell: &'a CellClient,
    on: Ipv4Addr,
    server: &'a dyn ClientConnection,
    partition: PartitionId,
    name: &'a str,
    id: u32,
}

/// Why a step failed, and what there may be of the volume.
struct Failure {
    error: anyhow::Error,
    may_be_made: bool,
    may_be_registered: bool,
}

impl Begun<'_> {
    fn make(&self, quota_kib: i32) -> Result<(), Failure> {
        let Begun { server, on, partition, name, id, .. } = *self;
        let failure = |may_be_made, code| {
            let error = failed(format!("make the volume {name} on {on} {partition}"))(code);
            Failure { error, may_be_made, may_be_registered: false }
        };
        let request = vol::CreateVolumeRequest {
            partition: partition.index() as i32,
            name: name.into(),
            volume_type: vol::volume_type::READ_WRITE,
            parent_id: 0,
            volume_id: id,
        };
        // A server that has refused the call has made nothing.
        let made = vol::create_volume(server, &request).map_err(|code| failure(code.is_of_rx(), code))?;
        let transaction = Transaction { server, id: made.transaction };
        let put_into_service = || {
            transaction.set_quota(quota_kib)?;
            let request = vol::SetFlagsRequest { transaction: transaction.id, flags: 0 };
            vol::set_flags(server, &request).map(drop)
        };
        put_into_service().map_err(|code| failure(true, code))?;
        transaction.end().map_err(|code| failure(true, code))
    }

    fn register(&self) -> Result<(), Failure> {
        let Begun { cell, on, partition, name, id, .. } = *self;
        let mut entry = vl::NVldbEntry {
            name: name.into(),
            server_count: 1,
            volume_id: [id, id + 1, id + 2],
            flags: vl::entry_flags::READ_WRITE_EXISTS,
            ..vl::NVldbEntry::default()
        };
        entry.server_number[0] = on.into();
        entry.server_partition[0] = partition.index() as i32;
        entry.server_flags[0] = vl::site_flags::READ_WRITE;
        let request = vl::CreateEntryNRequest { new_entry: entry };
        let Err(code) = cell.database(Interface::Locations, |vl| vl::create_entry_n(vl, &request)) else {
            return Ok(());
        };
        // The answer to an attempt that was made may have been lost.
        match cell.find_newest(&id.to_string()) {
            Ok(Some(located)) if located.read_write().0 == id => Ok(()),
            found => Err(Failure {
                error: failed(format!("register the volume {name}"))(code),
                may_be_made: true,
                may_be_registered: found.is_err(),
            }),
        }
    }

    fn set_rights(&self, access_list: &str) -> Result<(), Failure> {
        let Begun { cell, name, .. } = *self;
        let set = || -> Result<()> {
            let root = cell.root_of(name)?;
            cell.set_acl(&root, access_list.as_bytes()).map_err(failed(format!("set the ACL of {name}")))
        };
        set().map_err(|error| Failure { error, may_be_made: true, may_be_registered: true })
    }

    /// Removes the remains of the volume, so that the command can be repeated. Returns the failure, with what could not be removed.
    fn undo(&self, failure: Failure) -> Result<()> {
        let Failure { error, may_be_made, may_be_registered } = failure;
        let (id, on, partition) = (self.id, self.on, self.partition);
        let mut left = Vec::new();
        if may_be_registered {
            let request = vl::DeleteEntryRequest { volume_id: id, volume_type: vol::volume_type::READ_WRITE };
            match self.cell.database(Interface::Locations, |vl| vl::delete_entry(vl, &request)) {
                Ok(_) | Err(AbortCode::VL_NOENT) => {}
                Err(code) => left.push(format!("its entry ({}; `vos delentry {id}`)", describe(code))),
            }
        }
        if may_be_made {
            let request = vol::NukeVolumeRequest { partition: partition.index() as i32, volume_id: id };
            match vol::nuke_volume(self.server, &request) {
                Ok(_) | Err(jobs::ENOENT | AbortCode::VNOVOL) => {}
                Err(code) => {
                    left.push(format!("the volume ({}; `vos zap {on} {partition} {id}`)", describe(code)));
                }
            }
        }
        if left.is_empty() {
            return Err(error);
        }
        Err(error
            .context(format!("the volume {id} cannot be removed again, left are {}", left.join(" and "))))
    }
}

/// Builds the access list of a root directory from `NAME=RIGHTS` grants; users and groups must exist.
fn access_list(cell: &CellClient, grants: &[String]) -> Result<Option<String>> {
    if grants.is_empty() {
        return Ok(None);
    }
    let mut lines = vec!["system:administrators\t127".to_owned()];
    for grant in grants {
        let (who, letters) = grant
            .split_once('=')
            .with_context(|| format!("`{grant}` is not NAME=RIGHTS, like system:anyuser=rl"))?;
        let rights: Rights = letters.parse().map_err(anyhow::Error::msg)?;
        protection::id_of(cell, who)?;
        lines.push(format!("{who}\t{}", rights.bits()));
    }
    Ok(Some(format!("{}\n0\n{}\n", lines.len(), lines.join("\n"))))
}

#[cfg(test)]
mod tests;
