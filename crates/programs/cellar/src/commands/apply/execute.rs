//! Executes steps, through the calls that the other commands make.

use super::plan::{Step, partition_of};
use crate::commands::volume::{self, Create, Settings};
use crate::commands::{Context, protection, snapshot};
use afs_format::acl::{AclLine, AclText};
use afs_idl::pr;
use anyhow::{Context as _, Result};
use base::Rights;
use cell_client::describe::failed;
use cell_client::{CellClient, Interface};
use std::collections::BTreeMap;

/// Executes one step.
pub(super) fn execute(context: &Context, cell: &CellClient, step: &Step) -> Result<()> {
    match step {
        Step::CreateUser { name, id } => protection::create_entry(cell, name, *id, 0, 0).map(drop),
        Step::CreateGroup { name, owner } => protection::create_group(cell, name, owner.as_deref()).map(drop),
        Step::SetGroupOwner { name, owner } => set_owner(cell, name, owner),
        Step::SetAccess { name, bits } => set_access(cell, name, *bits),
        Step::AddMember { group, member } => protection::add_member(cell, member, group),
        Step::DropMember { group, member } => protection::drop_member(cell, member, group),
        Step::MakeMountPoint { place, volume, is_read_write } => {
            volume::make_mount_point(cell, place, volume, *is_read_write)
        }
        Step::AddSite { volume, server, partition } => {
            volume::add_site(cell, volume, *server, partition_of(partition.as_ref())?)
        }
        Step::Release { volume } => volume::release_quietly(context, cell, volume),
        step => execute_on_volume(cell, step),
    }
}

/// Executes a step that creates a volume or changes its settings or its root.
fn execute_on_volume(cell: &CellClient, step: &Step) -> Result<()> {
    let mut settings = Settings::default();
    let changed = match step {
        Step::CreateVolume { name, server, partition, quota_kib } => {
            let partition = partition_of(partition.as_ref())?;
            let create = Create::at(name.parse()?, *server, partition, *quota_kib);
            return volume::create_volume(cell, &create).map(drop);
        }
        Step::SetSnapshots { volume, counts } => return snapshot::set_policy(cell, volume, *counts),
        Step::SetRootOwner { volume, owner } => {
            let (root, id) = (cell.root_of(volume)?, protection::id_of(cell, owner)?);
            return cell
                .set_owner(&root, id)
                .map_err(failed(format!("give the root of {volume} to {owner}")));
        }
        Step::SetAcl { volume, granted, denied } => return set_acl(cell, volume, granted, denied),
        Step::SetQuota { volume, quota_kib, .. } => {
            settings.quota_kib = Some(*quota_kib);
            volume
        }
        Step::SetCompression { volume, compression } => {
            settings.compression = Some(compression);
            volume
        }
        Step::SetDeduplication { volume, is_on } => {
            settings.deduplication = Some(*is_on);
            volume
        }
        other => anyhow::bail!("`{other}` is not a change of a volume"),
    };
    volume::change_settings(cell, changed, &settings)
}

fn set_acl(
    cell: &CellClient,
    volume: &str,
    granted: &BTreeMap<String, String>,
    denied: &BTreeMap<String, String>,
) -> Result<()> {
    let text = AclText { positive: acl_lines(granted)?, negative: acl_lines(denied)? };
    let root = cell.root_of(volume)?;
    cell.set_acl(&root, &text.to_bytes()).map_err(failed(format!("set the ACL of {volume}")))
}

fn acl_lines(rights: &BTreeMap<String, String>) -> Result<Vec<AclLine>> {
    let line = |(who, letters): (&String, &String)| {
        let rights: Rights = letters.parse().map_err(anyhow::Error::msg)?;
        Ok(AclLine { name: who.clone().into_bytes(), rights })
    };
    rights.iter().map(line).collect()
}

/// Changes the owner of a group (PR_ChangeEntry). An empty name and the number 0 stay as they are.
fn set_owner(cell: &CellClient, name: &str, owner: &str) -> Result<()> {
    let (id, owner_id) = (protection::id_of(cell, name)?, protection::id_of(cell, owner)?);
    let request = pr::ChangeEntryRequest { id, name: "".into(), owner: owner_id, new_id: 0 };
    let changed = cell.database(Interface::Protection, |pr| pr::change_entry(pr, &request));
    changed.map(drop).map_err(failed(format!("give the group {name} to {owner}")))
}

/// Sets the access bits of a user or group, like `pts setfields -access`.
fn set_access(cell: &CellClient, name: &str, bits: u32) -> Result<()> {
    let id = protection::id_of(cell, name)?;
    let request = pr::SetFieldsEntryRequest {
        id,
        mask: pr::field_mask::ALL_FLAGS,
        flags: i32::try_from(bits).context("access bits out of range")?,
        group_quota: 0,
        user_quota: 0,
        spare1: 0,
        spare2: 0,
    };
    let set = cell.database(Interface::Protection, |pr| pr::set_fields_entry(pr, &request));
    set.map(drop).map_err(failed(format!("set the access of {name}")))
}
