//! `cellar user` and `cellar group`.

use super::Context;
use crate::client::describe::failed;
use crate::client::{CellClient, Interface};
use crate::output::Row;
use afs_idl::pr;
use anyhow::{Result, bail};
use clap::{Args, Subcommand};
use serde::Serialize;

/// Users.
#[derive(Subcommand)]
pub enum User {
    /// Make a user.
    Create(Create),
    /// Remove a user.
    Remove(Name),
    /// Show a user and the groups it is in.
    Examine(Name),
    /// List all users.
    List,
}

/// Groups.
#[derive(Subcommand)]
pub enum Group {
    /// Make a group.
    Create(CreateGroup),
    /// Remove a group.
    Remove(Name),
    /// Show a group and its members.
    Examine(Name),
    /// List all groups.
    List,
    /// Put a user (or a group) into a group.
    Add(Membership),
    /// Take a user out of a group.
    Drop(Membership),
}

/// A new user.
#[derive(Args)]
pub struct Create {
    /// Its name.
    name: String,
    /// Its number; the next free one if left out.
    #[arg(long)]
    id: Option<i32>,
}

/// A new group.
#[derive(Args)]
pub struct CreateGroup {
    /// Its name, `OWNER:NAME` for groups that belong to somebody.
    name: String,
    /// Who owns it; the caller if left out.
    #[arg(long)]
    owner: Option<String>,
}

/// One user or group.
#[derive(Args)]
pub struct Name {
    /// Its name.
    name: String,
}

/// A user and a group.
#[derive(Args)]
pub struct Membership {
    /// The user.
    user: String,
    /// The group.
    group: String,
}

/// PRUSER, PRGROUP and PROWNER flags of NewEntry and ListEntries.
const USERS: i32 = 1;
const GROUPS: i32 = 2;
/// The flag by which NewEntry makes a group.
const NEW_GROUP: i32 = 2;
/// The number that stands for an unknown name.
const ANONYMOUS: i32 = 32766;

#[derive(Serialize)]
struct Entry {
    name: String,
    id: i32,
    owner: String,
    creator: String,
    members: i32,
    #[serde(skip_serializing_if = "Option::is_none")]
    elements: Option<Vec<String>>,
}

impl Row for Entry {
    const COLUMNS: &'static [&'static str] = &["NAME", "ID", "OWNER", "CREATOR", "MEMBERS", ""];

    fn cells(&self) -> Vec<String> {
        let elements = self.elements.as_ref().map(|names| names.join(" ")).unwrap_or_default();
        let (id, members) = (self.id.to_string(), self.members.to_string());
        vec![self.name.clone(), id, self.owner.clone(), self.creator.clone(), members, elements]
    }
}

/// Runs a command about users.
pub fn run_user(context: &Context, command: &User) -> Result<()> {
    let cell = context.client()?;
    match command {
        User::Create(create) => {
            let id = create_entry(&cell, &create.name, create.id, 0, 0)?;
            context.format.done(&id, format!("{} is user {id}", create.name))
        }
        User::Remove(Name { name }) => remove(context, &cell, name),
        User::Examine(Name { name }) => examine(context, &cell, name),
        User::List => list(context, &cell, USERS),
    }
}

/// Runs a command about groups.
pub fn run_group(context: &Context, command: &Group) -> Result<()> {
    let cell = context.client()?;
    match command {
        Group::Create(create) => {
            let owner = create.owner.as_deref().map(|owner| id_of(&cell, owner)).transpose()?.unwrap_or(0);
            let id = create_entry(&cell, &create.name, None, NEW_GROUP, owner)?;
            context.format.done(&id, format!("{} is group {id}", create.name))
        }
        Group::Remove(Name { name }) => remove(context, &cell, name),
        Group::Examine(Name { name }) => examine(context, &cell, name),
        Group::List => list(context, &cell, GROUPS),
        Group::Add(pair) => {
            let (user, group) = (id_of(&cell, &pair.user)?, id_of(&cell, &pair.group)?);
            let request = pr::AddToGroupRequest { user, group };
            cell.database(Interface::Protection, |pr| pr::add_to_group(pr, &request))
                .map_err(failed(format!("add {} to {}", pair.user, pair.group)))?;
            context.format.done(&true, format!("{} is in {}", pair.user, pair.group))
        }
        Group::Drop(pair) => {
            let (user, group) = (id_of(&cell, &pair.user)?, id_of(&cell, &pair.group)?);
            let request = pr::RemoveFromGroupRequest { user, group };
            cell.database(Interface::Protection, |pr| pr::remove_from_group(pr, &request))
                .map_err(failed(format!("take {} out of {}", pair.user, pair.group)))?;
            context.format.done(&true, format!("{} is no longer in {}", pair.user, pair.group))
        }
    }
}

/// Makes a user or group and gives its number.
pub fn create_entry(cell: &CellClient, name: &str, id: Option<i32>, flag: i32, owner: i32) -> Result<i32> {
    let doing = || failed(format!("create {name}"));
    if let Some(id) = id {
        let request = pr::INewEntryRequest { name: name.into(), id, owner };
        cell.database(Interface::Protection, |pr| pr::i_new_entry(pr, &request)).map_err(doing())?;
        return Ok(id);
    }
    let request = pr::NewEntryRequest { name: name.into(), flag, owner };
    let reply = cell.database(Interface::Protection, |pr| pr::new_entry(pr, &request)).map_err(doing())?;
    Ok(reply.id)
}

/// The number of a user or group that must exist.
pub fn id_of(cell: &CellClient, name: &str) -> Result<i32> {
    if name.len() > base::limits::PROTECTION_NAME_BYTES_MAX {
        bail!("the name `{name}` is longer than {} bytes", base::limits::PROTECTION_NAME_BYTES_MAX);
    }
    let request = pr::NameToIDRequest { names: vec![name.into()] };
    let reply = cell
        .database(Interface::Protection, |pr| pr::name_to_id(pr, &request))
        .map_err(failed(format!("look up {name}")))?;
    match reply.ids.first() {
        Some(&id) if id != ANONYMOUS || name == "anonymous" => Ok(id),
        _ => bail!("there is no user or group {name}"),
    }
}

fn names_of(cell: &CellClient, ids: Vec<i32>) -> Result<Vec<String>> {
    let request = pr::IDToNameRequest { ids };
    let reply = cell
        .database(Interface::Protection, |pr| pr::id_to_name(pr, &request))
        .map_err(failed("look up names"))?;
    Ok(reply.names.iter().map(ToString::to_string).collect())
}

fn remove(context: &Context, cell: &CellClient, name: &str) -> Result<()> {
    let request = pr::DeleteRequest { id: id_of(cell, name)? };
    cell.database(Interface::Protection, |pr| pr::delete(pr, &request))
        .map_err(failed(format!("remove {name}")))?;
    context.format.done(&true, format!("{name} is removed"))
}

fn entry(cell: &CellClient, wire: &pr::CheckEntry) -> Result<Entry> {
    let names = names_of(cell, vec![wire.owner, wire.creator])?;
    let [owner, creator] =
        <[String; 2]>::try_from(names).map_err(|_| anyhow::anyhow!("the server left names out"))?;
    Ok(Entry {
        name: wire.name.to_string(),
        id: wire.id,
        owner,
        creator,
        members: wire.count,
        elements: None,
    })
}

fn examine(context: &Context, cell: &CellClient, name: &str) -> Result<()> {
    let id = id_of(cell, name)?;
    let doing = || failed(format!("examine {name}"));
    let request = pr::ListEntryRequest { id };
    let reply = cell.database(Interface::Protection, |pr| pr::list_entry(pr, &request)).map_err(doing())?;
    let request = pr::ListElementsRequest { id };
    let list = cell.database(Interface::Protection, |pr| pr::list_elements(pr, &request)).map_err(doing())?;
    let elements = if list.list.is_empty() { Vec::new() } else { names_of(cell, list.list)? };
    let row = Entry { elements: Some(elements), ..entry(cell, &reply.entry)? };
    context.format.rows(&[row])
}

fn list(context: &Context, cell: &CellClient, flags: i32) -> Result<()> {
    let mut rows = Vec::new();
    let mut start_index = 0;
    loop {
        let request = pr::ListEntriesRequest { flags, start_index };
        let reply = cell
            .database(Interface::Protection, |pr| pr::list_entries(pr, &request))
            .map_err(failed("list the protection database"))?;
        for wire in &reply.entries {
            rows.push(entry(cell, wire)?);
        }
        if reply.next_start_index <= start_index {
            break;
        }
        start_index = reply.next_start_index;
    }
    context.format.rows(&rows)
}
