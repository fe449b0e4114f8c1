//! `cellar.toml`: the server's own configuration file. docs/configuration.md describes every key.

use super::keys::{self, KeyFiles};
use super::openafs::local_realms;
use super::{PartitionSettings, Role, Settings, Tuning};
use afs_format::cellservdb::CellServer;
use afs_format::userlist::{UserList, parse_principal};
use anyhow::{Context, Result, bail};
use base::CellName;
use serde::Deserialize;
use std::collections::BTreeMap;
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use toml::Spanned;
use volume::Durability;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    cell: CellSection,
    #[serde(default)]
    server: ServerSection,
    #[serde(default)]
    partitions: BTreeMap<Spanned<String>, PathBuf>,
    #[serde(default)]
    store: StoreSection,
    #[serde(default)]
    rx: RxSection,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct CellSection {
    name: Spanned<String>,
    realms: Option<Vec<String>>,
    #[serde(default)]
    foreign: Vec<Spanned<String>>,
    keyfile: Option<PathBuf>,
    des_keyfile: Option<PathBuf>,
    keytab: Option<PathBuf>,
    #[serde(default)]
    administrators: Vec<Spanned<String>>,
    userlist: Option<PathBuf>,
    #[serde(default)]
    database_servers: Vec<Ipv4Addr>,
}

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct ServerSection {
    roles: Option<Vec<Role>>,
    #[serde(default)]
    bind: Vec<Ipv4Addr>,
    announce: Option<Vec<Ipv4Addr>>,
    state: Option<PathBuf>,
    logs: Option<PathBuf>,
}

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct StoreSection {
    chunk_cache_mb: Option<Spanned<u64>>,
    durability: Option<Spanned<String>>,
}

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct RxSection {
    lanes: Option<Spanned<usize>>,
    workers: Option<Spanned<usize>>,
    socket_buffer_mb: Option<Spanned<usize>>,
}

/// The text of a file and its name, to say where something stands.
struct Origin<'a> {
    path: &'a Path,
    text: &'a str,
}

impl Origin<'_> {
    fn line<T>(&self, value: &Spanned<T>) -> usize {
        1 + self.text[..value.span().start.min(self.text.len())].matches('\n').count()
    }

    fn bad<T>(&self, value: &Spanned<T>, key: &str, what: impl std::fmt::Display) -> anyhow::Error {
        anyhow::anyhow!("{}, line {}, `{key}`: {what}", self.path.display(), self.line(value))
    }

    fn bounded<T: PartialOrd + Copy + std::fmt::Display>(
        &self,
        value: Option<&Spanned<T>>,
        key: &str,
        default: T,
        least: T,
        most: T,
    ) -> Result<T> {
        match value {
            None => Ok(default),
            Some(value) if (least..=most).contains(value.get_ref()) => Ok(*value.get_ref()),
            Some(value) => {
                Err(self.bad(value, key, format!("{} is not within {least} to {most}", value.get_ref())))
            }
        }
    }
}

/// Reads `cellar.toml`; relative paths in it are relative to its folder.
pub fn load(path: &Path) -> Result<Settings> {
    let text = std::fs::read_to_string(path)
        .with_context(|| format!("cannot read the configuration {}", path.display()))?;
    let file: File =
        toml::from_str(&text).with_context(|| format!("in the configuration {}", path.display()))?;
    let origin = Origin { path, text: &text };
    let folder = path.parent().unwrap_or(Path::new("."));
    resolve(&origin, folder, file)
}

fn resolve(origin: &Origin<'_>, folder: &Path, file: File) -> Result<Settings> {
    let name = &file.cell.name;
    let cell: CellName = name.get_ref().parse().map_err(|error| origin.bad(name, "cell.name", error))?;
    let state = folder.join(file.server.state.unwrap_or_else(|| "state".into()));
    let roles = file.server.roles.unwrap_or_else(|| Role::ALL.to_vec());
    if roles.is_empty() {
        bail!(
            "{}: `server.roles` is empty; valid are \"fs\", \"pt\", \"vl\", \"vol\", \"bos\"",
            origin.path.display()
        );
    }
    let below = |path: Option<PathBuf>| path.map(|path| folder.join(path));
    let keys = keys::load(&KeyFiles {
        extended: below(file.cell.keyfile),
        des: below(file.cell.des_keyfile),
        keytab: below(file.cell.keytab),
    })?;
    let realms = file.cell.realms.unwrap_or_else(|| vec![cell.default_realm()]);
    let realms = local_realms(&cell, &realms, &foreign(origin, &file.cell.foreign)?);
    let userlist_path = file.cell.userlist.map_or_else(|| state.join("UserList"), |path| folder.join(path));
    let userlist = administrators(origin, &userlist_path, &file.cell.administrators)?;
    let announce = file.server.announce.unwrap_or_else(|| file.server.bind.clone());
    Ok(Settings {
        source: origin.path.display().to_string(),
        realms,
        keys: keys.set,
        des_keys: keys.des,
        warnings: keys.warnings,
        partitions: partitions(origin, folder, file.partitions, &roles)?,
        tuning: tuning(origin, &file.store, &file.rx)?,
        database_servers: database_servers(&file.cell.database_servers, &announce),
        bind: file.server.bind,
        announce,
        roles,
        userlist_path,
        userlist,
        database_path: state.join("db"),
        sysid_path: state.join("sysid"),
        log_path: folder.join(file.server.logs.unwrap_or_else(|| state.join("log"))),
        cell,
    })
}

/// Principals that do not belong to the cell although their realm does, as lines of a krb.excl.
fn foreign(origin: &Origin<'_>, names: &[Spanned<String>]) -> Result<String> {
    for name in names {
        let has_realm = parse_principal(name.get_ref()).is_some_and(|principal| !principal.realm.is_empty());
        if !has_realm {
            return Err(origin.bad(name, "cell.foreign", "not a principal with a realm like `ann@REALM`"));
        }
    }
    let names: Vec<&str> = names.iter().map(|name| name.get_ref().as_str()).collect();
    Ok(names.join("\n"))
}

fn administrators(origin: &Origin<'_>, path: &Path, names: &[Spanned<String>]) -> Result<UserList> {
    let mut list = UserList::parse(&super::openafs::read_optional(path)?.unwrap_or_default());
    for name in names {
        let principal = parse_principal(name.get_ref()).ok_or_else(|| {
            origin.bad(name, "cell.administrators", "not a principal like `ann`, `ann.admin` or `ann@REALM`")
        })?;
        list.add(principal);
    }
    Ok(list)
}

fn database_servers(configured: &[Ipv4Addr], announce: &[Ipv4Addr]) -> Vec<CellServer> {
    let addresses = if configured.is_empty() { announce } else { configured };
    addresses.iter().map(|&address| CellServer { address, host: String::new(), is_clone: false }).collect()
}

fn partitions(
    origin: &Origin<'_>,
    folder: &Path,
    map: BTreeMap<Spanned<String>, PathBuf>,
    roles: &[Role],
) -> Result<Vec<PartitionSettings>> {
    let mut out = Vec::new();
    for (name, path) in map {
        let id = name.get_ref().parse().map_err(|error| origin.bad(&name, "partitions", error))?;
        out.push(PartitionSettings { id, path: folder.join(path) });
    }
    out.sort_by_key(|partition| partition.id);
    if out.is_empty() && (roles.contains(&Role::Fs) || roles.contains(&Role::Vol)) {
        bail!(
            "{}: the roles fs and vol need a partition, like `[partitions]` with `a = \"/vicepa\"`",
            origin.path.display()
        );
    }
    Ok(out)
}

fn tuning(origin: &Origin<'_>, store: &StoreSection, rx: &RxSection) -> Result<Tuning> {
    let default = Tuning::default();
    let durability = match &store.durability {
        None => default.durability,
        Some(text) => parse_durability(text.get_ref()).ok_or_else(|| {
            origin.bad(
                text,
                "store.durability",
                format!("`{}` is not known; valid is \"always\"", text.get_ref()),
            )
        })?,
    };
    let cache_mb = origin.bounded(
        store.chunk_cache_mb.as_ref(),
        "store.chunk_cache_mb",
        default.chunk_cache_bytes >> 20,
        1,
        1 << 24,
    )?;
    let buffer_mb = origin.bounded(rx.socket_buffer_mb.as_ref(), "rx.socket_buffer_mb", 16, 1, 1024)?;
    Ok(Tuning {
        lanes: origin.bounded(rx.lanes.as_ref(), "rx.lanes", default.lanes, 1, 64)?,
        workers: origin.bounded(rx.workers.as_ref(), "rx.workers", default.workers, 4, 1024)?,
        socket_buffer_bytes: buffer_mb << 20,
        chunk_cache_bytes: cache_mb << 20,
        durability,
    })
}

fn parse_durability(text: &str) -> Option<Durability> {
    (text == "always").then_some(Durability::Always)
}
