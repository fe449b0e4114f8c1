//! `cellar import`.

mod oddities;
mod vicep;

use super::context::load_settings;
use super::owner_guard::OwnerGuard;
use crate::output::Format;
use afs_format::prdb::{Prdb, PrdbEntry};
use afs_format::ubik::{Fate, Oddity};
use afs_format::vldb::{Vldb, VldbEntry, VldbServer};
use anyhow::{Context as _, Result};
use base::{HostUuid, UnixTime, UserId, VolumeId};
use cell_client::network::now;
use cellar_config::Settings;
use clap::{Args, Subcommand};
use indicatif::HumanCount;
use oddities::Oddities;
use openafs_import::dump::contents::printable;
use ptdb::{Entry, EntryFlags, Policy, Protection};
use serde::Serialize;
use std::collections::{HashMap, HashSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use store::{Database, MemoryMeta, MetaStore};
use vldb::{Location, Locations, Server, ServerNumber, Site, entry_flags};

/// Import OpenAFS's databases and partitions.
#[derive(Subcommand)]
pub enum Import {
    /// Import all users and groups of a prdb.DB0 into a new protection database.
    Prdb(From),
    /// Import all volume entries and servers of a vldb.DB0 into a location database without volumes.
    Vldb(From),
    /// Import the volumes of an OpenAFS file server's partition, like /vicepa, into a partition of the store.
    ///
    /// Read-write, read-only and backup volumes keep their numbers, names, quotas, dates, access lists and
    /// all other properties. Every vnode, name, link and length is checked first. A damaged volume is
    /// skipped, its problems are reported with their paths, and the import continues with the others. A
    /// volume is imported completely or not at all, and another run continues with the missing ones. The
    /// partition is only read; its server must be stopped. Afterwards, `vos syncvldb -server HOST` adds the
    /// volumes to the location database.
    Vicep(vicep::Vicep),
}

/// Source and target of an import.
#[derive(Args)]
pub struct From {
    /// Database file; a copy must have been made while no server changed it.
    file: PathBuf,
    /// Configuration of the server; OpenAFS's in /etc/openafs/server by default.
    #[arg(long, env = "CELLAR_CONFIG")]
    config: Option<PathBuf>,
    /// Read and check the file without changing anything.
    #[arg(long)]
    dry_run: bool,
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

/// The cell's databases while they are open.
struct OpenDatabase {
    opened: Database,
    // Dropped after it.
    _owner: OwnerGuard,
}

/// Runs the command.
pub fn run(command: &Import) -> Result<()> {
    match command {
        Import::Prdb(from) => import_prdb(from),
        Import::Vldb(from) => import_vldb(from),
        Import::Vicep(wanted) => vicep::run(wanted),
    }
}

impl From {
    fn read(&self) -> Result<Vec<u8>> {
        std::fs::read(&self.file).with_context(|| format!("cannot read {}", self.file.display()))
    }

    fn refused(&self) -> String {
        self.file.display().to_string()
    }

    /// Opens the cell's databases; their lock keeps a running server out.
    fn database(&self) -> Result<OpenDatabase> {
        let settings: Settings = load_settings(self.config.as_deref())?;
        let path: &Path = &settings.database_path;
        let owner = OwnerGuard::new(path);
        let opened = Database::open(path, &cellar_server::FAMILIES).with_context(|| {
            format!("cannot open the cell's databases in {} (is the server running?)", path.display())
        })?;
        Ok(OpenDatabase { opened, _owner: owner })
    }

    /// Returns the target database: the cell's, or for a dry run one in memory, which rejects and leaves out
    /// the same records.
    fn target(&self) -> Result<(Option<OpenDatabase>, Arc<dyn MetaStore>)> {
        if self.dry_run {
            return Ok((None, Arc::new(MemoryMeta::new())));
        }
        let database = self.database()?;
        let meta = database.opened.meta();
        Ok((Some(database), meta))
    }

    fn format(&self) -> Format {
        if self.json { Format::Json } else { Format::Text }
    }
}

#[derive(Serialize)]
struct Entries {
    users: usize,
    groups: usize,
    memberships: usize,
    /// Memberships recorded on one side only, which were left out.
    one_sided: Vec<(i32, i32)>,
    oddities: Vec<oddities::OddityView>,
    dry_run: bool,
}

/// How to repair the files.
const PRDB_REMEDY: &str = "`prdb_check -database FILE -verbose` of OpenAFS examines a copy, `-rebuild \
    SCRIPT` writes the commands that rebuild it";
const VLDB_REMEDY: &str = "`vldb_check -database FILE` of OpenAFS examines a copy, `-fix` repairs it; `vos \
    delentry`, `vos changeaddr` and `vos syncvldb` repair a running cell";

fn import_prdb(from: &From) -> Result<()> {
    let prdb = Prdb::parse(&from.read()?).with_context(|| from.refused())?;
    let mut odd = Oddities { file: &from.file, remedy: PRDB_REMEDY, found: prdb.oddities.clone() };
    odd.check()?;
    let imported = store_prdb(from, &prdb)?;
    let one_sided: Vec<_> = imported.one_sided.iter().map(|one| (one.holder.0, one.element.0)).collect();
    odd.found.extend(relations(&prdb, &one_sided));
    odd.found.extend(imported.built_in.iter().map(|id| Oddity {
        offset: 0,
        what: format!("the built-in entry {} is missing and will be created", id.0),
        fate: Fate::Repaired,
    }));
    let groups = prdb.entries.iter().filter(|entry| entry.id < 0).count();
    let users = prdb.entries.len() - groups;
    let memberships = memberships(&prdb, &one_sided);
    let result =
        Entries { users, groups, memberships, one_sided, oddities: odd.shown(), dry_run: from.dry_run };
    if from.format() == Format::Text {
        odd.print()?;
    }
    let sentence = format!(
        "{} users, {} groups, {} memberships{}{}",
        HumanCount(users as u64),
        HumanCount(groups as u64),
        HumanCount(memberships as u64),
        verb(from.dry_run),
        odd.ending()
    );
    from.format().done(&result, sentence)
}

/// Counts the group memberships that are imported.
fn memberships(prdb: &Prdb, one_sided: &[(i32, i32)]) -> usize {
    let left_out: HashSet<&(i32, i32)> = one_sided.iter().collect();
    let groups = prdb.entries.iter().filter(|entry| entry.id < 0);
    let members = groups.flat_map(|group| group.elements.iter().map(|element| (group.id, *element)));
    members.filter(|pair| !left_out.contains(pair)).collect::<HashSet<_>>().len()
}

/// Describes the relations recorded on one side only, with names where known.
fn relations(prdb: &Prdb, one_sided: &[(i32, i32)]) -> Vec<Oddity> {
    let entries: HashMap<i32, &PrdbEntry> = prdb.entries.iter().map(|entry| (entry.id, entry)).collect();
    let shown = |id: i32| {
        entries.get(&id).map_or_else(|| format!("{id}, which does not exist"), |entry| entry.shown())
    };
    let relation = |(holder, element): &(i32, i32)| Oddity {
        offset: entries.get(holder).map_or(0, |entry| entry.offset),
        what: if entries.contains_key(element) {
            format!("the list of {} has {}, whose list lacks it", shown(*holder), shown(*element))
        } else {
            format!("the list of {} has {}", shown(*holder), shown(*element))
        },
        fate: Fate::LeftOut,
    };
    one_sided.iter().map(relation).collect()
}

fn verb(dry_run: bool) -> &'static str {
    if dry_run { " would be imported" } else { " imported" }
}

fn store_prdb(from: &From, prdb: &Prdb) -> Result<ptdb::Outcome> {
    let (_database, meta) = from.target()?;
    let protection = Protection::open(meta, Policy::default(), now())?;
    let imported = ptdb::Imported {
        max_user: UserId(prdb.max_user),
        max_group: UserId(prdb.max_group),
        entries: prdb.entries.iter().map(protection_entry).collect(),
    };
    protection.import(&imported, now()).context("the protection database cannot import it")
}

fn protection_entry(found: &PrdbEntry) -> (Entry, Vec<UserId>, Vec<UserId>) {
    let ids = |list: &[i32]| list.iter().copied().map(UserId).collect();
    let entry = Entry {
        id: UserId(found.id),
        name: found.name.clone(),
        flags: EntryFlags(found.flags),
        cell: UserId(found.cell),
        owner: UserId(found.owner),
        creator: UserId(found.creator),
        group_quota: found.group_quota,
        user_quota: found.user_quota,
        count: 0,
        supergroup_count: 0,
        position: 0,
        created: UnixTime(found.created),
        added: UnixTime(found.added),
        removed: UnixTime(found.removed),
        changed: UnixTime(found.changed),
    };
    (entry, ids(&found.elements), ids(&found.supergroups))
}

#[derive(Serialize)]
struct Places {
    volumes: usize,
    servers: usize,
    /// Names of volumes with a locked entry, which stays locked.
    locked: Vec<String>,
    oddities: Vec<oddities::OddityView>,
    dry_run: bool,
}

fn import_vldb(from: &From) -> Result<()> {
    let found = Vldb::parse(&from.read()?).with_context(|| from.refused())?;
    let odd = Oddities { file: &from.file, remedy: VLDB_REMEDY, found: found.oddities.clone() };
    odd.check()?;
    let imported = vldb::Imported {
        max_volume: VolumeId(found.max_volume),
        servers: found
            .servers
            .iter()
            .map(|(number, server)| (ServerNumber(*number), known(server)))
            .collect(),
        locations: found.entries.iter().map(location).collect::<Result<_>>()?,
    };
    let (_database, meta) = from.target()?;
    Locations::open(meta)?.import(&imported).context("the location database cannot import it")?;
    let locked = found.entries.iter().filter(|entry| entry.locked != 0);
    let result = Places {
        volumes: imported.locations.len(),
        servers: imported.servers.len(),
        locked: locked.map(|entry| printable(&entry.name)).collect(),
        oddities: odd.shown(),
        dry_run: from.dry_run,
    };
    let locks = match result.locked.as_slice() {
        [] => String::new(),
        names => format!("; locked, as they were: {}", names.join(", ")),
    };
    let (volumes, servers) = (HumanCount(result.volumes as u64), HumanCount(result.servers as u64));
    if from.format() == Format::Text {
        odd.print()?;
    }
    let (verb, ending) = (verb(from.dry_run), odd.ending());
    let sentence = format!("{volumes} volumes on {servers} servers{verb}{locks}{ending}");
    from.format().done(&result, sentence)
}

fn known(server: &VldbServer) -> Server {
    match server {
        VldbServer::Address(address) => Server::Address(*address),
        VldbServer::Registered { uuid, uniquifier, addresses } => Server::Registered {
            uuid: HostUuid(*uuid),
            uniquifier: *uniquifier,
            addresses: addresses.clone(),
        },
    }
}

fn location(found: &VldbEntry) -> Result<Location> {
    let exists = entry_flags::RW_EXISTS | entry_flags::RO_EXISTS | entry_flags::BACKUP_EXISTS;
    let name = std::str::from_utf8(&found.name).ok().and_then(|name| name.parse().ok());
    let name = name.with_context(|| format!("{} has a name that cannot be served", found.shown()))?;
    let site = |site: &afs_format::vldb::VldbSite| Site {
        server: ServerNumber(site.server),
        partition: site.partition,
        flags: site.flags,
    };
    Ok(Location {
        name,
        ids: found.ids.map(VolumeId),
        clone: VolumeId(found.clone),
        flags: found.flags & (exists | entry_flags::OPERATIONS),
        locked: UnixTime(found.locked),
        sites: found.sites.iter().map(site).collect(),
    })
}
