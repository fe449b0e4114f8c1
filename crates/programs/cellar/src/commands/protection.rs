//! `cellar user` and `cellar group`.

use super::Context;
use crate::output::Row;
use afs_idl::pr;
use anyhow::{Result, bail};
use base::AbortCode;
use cell_client::describe::failed;
use cell_client::rights::LIST_USERS;
use cell_client::{CellClient, Interface};
use clap::{Args, Subcommand};
use serde::Serialize;

/// Manage users.
#[derive(Subcommand)]
pub enum User {
    /// Create a user.
    Create(Create),
    /// Remove a user.
    Remove(Remove),
    /// Show a user and its groups.
    Examine(Name),
    /// List all users.
    List,
}

/// Manage groups.
#[derive(Subcommand)]
pub enum Group {
    /// Create a group.
    Create(CreateGroup),
    /// Remove a group.
    Remove(Remove),
    /// Show a group and its members.
    Examine(Name),
    /// List all groups.
    List,
    /// Add a user (or a group) to a group.
    Add(Membership),
    /// Remove a user from a group.
    Drop(Membership),
}

/// Create a user.
#[derive(Args)]
pub struct Create {
    /// Name of the user.
    name: String,
    /// Number of the user; the next free one by default.
    #[arg(long)]
    id: Option<i32>,
    /// Show what would be done without doing it.
    #[arg(long)]
    dry_run: bool,
}

/// Create a group.
#[derive(Args)]
pub struct CreateGroup {
    /// Name of the group; `OWNER:NAME` for groups that belong to a user.
    name: String,
    /// Owner of the group; the caller by default.
    #[arg(long)]
    owner: Option<String>,
    /// Show what would be done without doing it.
    #[arg(long)]
    dry_run: bool,
}

/// Remove a user or group.
#[derive(Args)]
pub struct Remove {
    /// Name of the user or group.
    name: String,
    /// Show what would be done without doing it.
    #[arg(long)]
    dry_run: bool,
}

/// Show a user or group.
#[derive(Args)]
pub struct Name {
    /// Name of the user or group.
    name: String,
}

/// Change the membership of a user in a group.
#[derive(Args)]
pub struct Membership {
    /// Name of the user.
    user: String,
    /// Name of the group.
    group: String,
    /// Show what would be done without doing it.
    #[arg(long)]
    dry_run: bool,
}

/// PRGROUPS: the ListEntries flag that selects groups.
const LIST_GROUPS: i32 = 2;
/// The NewEntry flag that creates a group.
const NEW_GROUP: i32 = 2;
/// The ID that stands for an unknown name.
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

/// The outcome of a dry run.
#[derive(Default, Serialize)]
struct Preview<'a> {
    operation: &'static str,
    name: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    id: Option<i32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    owner: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    group: Option<&'a str>,
    is_done: bool,
}

/// Runs a command about users.
pub fn run_user(context: &Context, command: &User) -> Result<()> {
    let cell = context.client()?;
    match command {
        User::Create(Create { name, id, dry_run: true }) => {
            check_free(&cell, name, *id)?;
            cell.check_changes_users().map_err(failed(format!("create {name}")))?;
            let number = id.map_or_else(|| "the next free number".into(), |id| format!("number {id}"));
            let reported = Preview { operation: "create user", name, id: *id, ..Preview::default() };
            context.format.done(&reported, format!("would make the user {name} with {number}"))
        }
        User::Create(create) => {
            let id = create_entry(&cell, &create.name, create.id, 0, 0)?;
            context.format.done(&id, format!("{} is user {id}", create.name))
        }
        User::Remove(removal) => remove(context, &cell, removal),
        User::Examine(Name { name }) => examine(context, &cell, name),
        User::List => list(context, &cell, LIST_USERS),
    }
}

/// Runs a command about groups.
pub fn run_group(context: &Context, command: &Group) -> Result<()> {
    let cell = context.client()?;
    match command {
        Group::Create(create) => {
            if create.dry_run {
                create.owner.as_deref().map(|owner| id_of(&cell, owner)).transpose()?;
                return preview_group(context, &cell, create);
            }
            let id = create_group(&cell, &create.name, create.owner.as_deref())?;
            context.format.done(&id, format!("{} is group {id}", create.name))
        }
        Group::Remove(removal) => remove(context, &cell, removal),
        Group::Examine(Name { name }) => examine(context, &cell, name),
        Group::List => list(context, &cell, LIST_GROUPS),
        Group::Add(pair) => add(context, &cell, pair),
        Group::Drop(pair) => drop_from(context, &cell, pair),
    }
}

fn preview_group(context: &Context, cell: &CellClient, create: &CreateGroup) -> Result<()> {
    let (name, owner) = (&create.name, create.owner.as_deref());
    check_free(cell, name, None)?;
    cell.check_changes_users().map_err(failed(format!("create {name}")))?;
    let reported = Preview { operation: "create group", name, owner, ..Preview::default() };
    context
        .format
        .done(&reported, format!("would make the group {name} of {}", owner.unwrap_or("the caller")))
}

/// Fails as the server would if the name or the number is already in use.
fn check_free(cell: &CellClient, name: &str, id: Option<i32>) -> Result<()> {
    let taken = |code| Err(failed(format!("create {name}"))(code));
    if find_id(cell, name)?.is_some() {
        return taken(AbortCode::PREXIST);
    }
    match id {
        // The server returns an unused number as its own name.
        Some(id) if names_of(cell, vec![id])? != [id.to_string()] => taken(AbortCode::PRIDEXIST),
        _ => Ok(()),
    }
}

/// Creates a group and returns its number; it belongs to the caller if no owner is named.
pub(super) fn create_group(cell: &CellClient, name: &str, owner: Option<&str>) -> Result<i32> {
    let owner = owner.map(|owner| id_of(cell, owner)).transpose()?.unwrap_or(0);
    create_entry(cell, name, None, NEW_GROUP, owner)
}

/// Adds a user or group to a group.
pub(super) fn add_member(cell: &CellClient, member: &str, group: &str) -> Result<()> {
    let request = pr::AddToGroupRequest { user: id_of(cell, member)?, group: id_of(cell, group)? };
    cell.database(Interface::Protection, |pr| pr::add_to_group(pr, &request))
        .map(drop)
        .map_err(failed(format!("add {member} to {group}")))
}

/// Removes a user or group from a group.
pub(super) fn drop_member(cell: &CellClient, member: &str, group: &str) -> Result<()> {
    let request = pr::RemoveFromGroupRequest { user: id_of(cell, member)?, group: id_of(cell, group)? };
    cell.database(Interface::Protection, |pr| pr::remove_from_group(pr, &request))
        .map(drop)
        .map_err(failed(format!("take {member} out of {group}")))
}

fn add(context: &Context, cell: &CellClient, pair: &Membership) -> Result<()> {
    if pair.dry_run {
        let (user, group) = (id_of(cell, &pair.user)?, id_of(cell, &pair.group)?);
        let refused = || failed(format!("add {} to {}", pair.user, pair.group));
        if elements_of(cell, group).map_err(refused())?.contains(&user) {
            return Err(refused()(AbortCode::PRIDEXIST));
        }
        return preview_membership(context, cell, pair, "add").map_err(refused())?;
    }
    add_member(cell, &pair.user, &pair.group)?;
    context.format.done(&true, format!("{} is in {}", pair.user, pair.group))
}

fn drop_from(context: &Context, cell: &CellClient, pair: &Membership) -> Result<()> {
    if pair.dry_run {
        let (user, group) = (id_of(cell, &pair.user)?, id_of(cell, &pair.group)?);
        let refused = || failed(format!("take {} out of {}", pair.user, pair.group));
        if !elements_of(cell, group).map_err(refused())?.contains(&user) {
            return Err(refused()(AbortCode::PRNOENT));
        }
        return preview_membership(context, cell, pair, "drop").map_err(refused())?;
    }
    drop_member(cell, &pair.user, &pair.group)?;
    context.format.done(&true, format!("{} is no longer in {}", pair.user, pair.group))
}

/// Preflights a membership change. The outer result says whether the caller is authorised.
fn preview_membership(
    context: &Context,
    cell: &CellClient,
    Membership { user, group, .. }: &Membership,
    operation: &'static str,
) -> Result<Result<()>, AbortCode> {
    cell.check_changes_users()?;
    let reported = Preview { operation, name: user, group: Some(group), ..Preview::default() };
    let sentence = match operation {
        "add" => format!("would put {user} into {group}"),
        _ => format!("would take {user} out of {group}"),
    };
    Ok(context.format.done(&reported, sentence))
}

pub(super) fn elements_of(cell: &CellClient, id: i32) -> Result<Vec<i32>, AbortCode> {
    let request = pr::ListElementsRequest { id };
    cell.database(Interface::Protection, |pr| pr::list_elements(pr, &request)).map(|reply| reply.list)
}

/// Creates a user or group and returns its number.
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

/// Returns the number of a user or group, which must exist.
pub fn id_of(cell: &CellClient, name: &str) -> Result<i32> {
    match find_id(cell, name)? {
        Some(id) => Ok(id),
        None => bail!("there is no user or group {name}"),
    }
}

/// Returns the number of a user or group, if it exists.
pub(crate) fn find_id(cell: &CellClient, name: &str) -> Result<Option<i32>> {
    Ok(find_ids(cell, &[name.to_owned()])?.into_iter().next().flatten())
}

/// Returns the numbers of users and groups, as many as names; `None` for those that do not exist.
pub(super) fn find_ids(cell: &CellClient, names: &[String]) -> Result<Vec<Option<i32>>> {
    let most = base::limits::PROTECTION_NAME_BYTES_MAX;
    if let Some(name) = names.iter().find(|name| name.len() > most) {
        bail!("the name `{name}` is longer than {most} bytes");
    }
    let request = pr::NameToIDRequest { names: names.iter().map(|name| name.as_str().into()).collect() };
    let reply = cell
        .database(Interface::Protection, |pr| pr::name_to_id(pr, &request))
        .map_err(failed(format!("look up {}", names.join(", "))))?;
    let known = |(name, id): (&String, Option<i32>)| id.filter(|id| *id != ANONYMOUS || name == "anonymous");
    Ok(names
        .iter()
        .zip(reply.ids.iter().copied().map(Some).chain(std::iter::repeat(None)))
        .map(known)
        .collect())
}

pub(super) fn names_of(cell: &CellClient, ids: Vec<i32>) -> Result<Vec<String>> {
    let request = pr::IDToNameRequest { ids };
    let reply = cell
        .database(Interface::Protection, |pr| pr::id_to_name(pr, &request))
        .map_err(failed("look up names"))?;
    Ok(reply.names.iter().map(ToString::to_string).collect())
}

fn remove(context: &Context, cell: &CellClient, Remove { name, dry_run }: &Remove) -> Result<()> {
    let id = id_of(cell, name)?;
    let refused = || failed(format!("remove {name}"));
    if *dry_run {
        cell.check_changes_users().map_err(refused())?;
        let reported = Preview { operation: "remove", name, id: Some(id), ..Preview::default() };
        return context.format.done(&reported, format!("would remove {name}, which has number {id}"));
    }
    let request = pr::DeleteRequest { id };
    cell.database(Interface::Protection, |pr| pr::delete(pr, &request)).map_err(refused())?;
    context.format.done(&true, format!("{name} is removed"))
}

fn entry(cell: &CellClient, wire: &pr::CheckEntry) -> Result<Entry> {
    let names = names_of(cell, vec![wire.owner, wire.creator])?;
    let [owner, creator] =
        <[String; 2]>::try_from(names).map_err(|_| anyhow::anyhow!("the server omitted names"))?;
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
    let elements = elements_of(cell, id).map_err(doing())?;
    let elements = if elements.is_empty() { Vec::new() } else { names_of(cell, elements)? };
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
