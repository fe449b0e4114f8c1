//! `cellar volume create`.

use super::{Transaction, quota};
use crate::commands::{Context, protection};
use afs_idl::{ClientConnection, vl, vol};
use anyhow::{Context as _, Result, bail};
use base::{AbortCode, PartitionId, Rights, VolumeName};
use cell_client::describe::failed;
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

/// Creates a volume like `vos create`: number, volume, entry. Undoes it if the entry cannot be created. The
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
    make(&*server, create, partition, id)
        .map_err(failed(format!("make the volume {name} on {on} {partition}")))?;
    if let Err(error) = register(cell, on, partition, name, id) {
        nuke(&*server, partition, id)
            .map_err(failed(format!("remove the unregistered volume {id} again")))?;
        return Err(error);
    }
    if let Some(text) = access_list {
        let root = cell.root_of(name)?;
        cell.set_acl(&root, text.as_bytes()).map_err(failed(format!("set the ACL of {name}")))?;
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

fn make(
    server: &dyn ClientConnection,
    create: &Create,
    partition: PartitionId,
    id: u32,
) -> Result<(), AbortCode> {
    let request = vol::CreateVolumeRequest {
        partition: partition.index() as i32,
        name: create.name.as_str().into(),
        volume_type: vol::volume_type::READ_WRITE,
        parent_id: 0,
        volume_id: id,
    };
    let transaction = Transaction { server, id: vol::create_volume(server, &request)?.transaction };
    transaction.set_quota(create.quota)?;
    vol::set_flags(server, &vol::SetFlagsRequest { transaction: transaction.id, flags: 0 })?;
    transaction.end()
}

fn register(cell: &CellClient, on: Ipv4Addr, partition: PartitionId, name: &str, id: u32) -> Result<()> {
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
    cell.database(Interface::Locations, |vl| vl::create_entry_n(vl, &request))
        .map(drop)
        .map_err(failed(format!("register the volume {name}")))
}

fn nuke(server: &dyn ClientConnection, partition: PartitionId, id: u32) -> Result<(), AbortCode> {
    let request = vol::NukeVolumeRequest { partition: partition.index() as i32, volume_id: id };
    vol::nuke_volume(server, &request).map(drop)
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
