//! `promote.toml`: the cells, administrative access to them, and the keys that they trust.
//! docs/guide/promote.md describes it.

use afs_format::cellservdb::parse_cellservdb;
use afs_idl::vl;
use anyhow::{Context, Result, bail};
use base::{CellName, PartitionId};
use cell_client::CellClient;
use cell_client::network::{AfsNetwork, local_authentication};
use cellar_config::files::{Exposure, read_secret};
use cellar_config::keys::{self, KeyFiles};
use cellar_config::openafs::read_optional;
use cellar_config::security;
use jobs::Place;
use promote::{Options, PublicKey, SigningKey};
use serde::Deserialize;
use std::collections::BTreeMap;
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Maximum number of copies: the sites of an entry less that of the staging volume.
pub(super) const COPIES_MAX: usize = vl::SITES - 1;
/// Path of the client's list of cells.
const CELLSERVDB: &str = "/etc/openafs/CellServDB";

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    source: String,
    signing_key: Option<PathBuf>,
    signer: Option<String>,
    state: Option<PathBuf>,
    #[serde(default = "three")]
    copies: usize,
    #[serde(default = "three")]
    keep: usize,
    #[serde(default = "three")]
    fanout: usize,
    #[serde(default = "sixty_four")]
    parallel: usize,
    #[serde(default)]
    trusted: BTreeMap<String, String>,
    loose_key_files: Option<bool>,
    cell: BTreeMap<String, CellSection>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct CellSection {
    #[serde(default)]
    database_servers: Vec<Ipv4Addr>,
    keyfile: Option<PathBuf>,
    des_keyfile: Option<PathBuf>,
    keytab: Option<PathBuf>,
    trust: Option<Vec<String>>,
    #[serde(default)]
    sites: Vec<String>,
    copies: Option<usize>,
    #[serde(default)]
    common_key: bool,
}

fn three() -> usize {
    3
}

/// With fewer, cells that are ready to receive or serve the version would wait for others that verify or copy
/// it.
fn sixty_four() -> usize {
    64
}

/// Configuration of a cell.
#[derive(Clone, Debug)]
pub struct CellConfig {
    /// Addresses of its database servers.
    pub database_servers: Vec<Ipv4Addr>,
    keys: KeyFiles,
    /// Places for the copies; chosen automatically if empty.
    pub sites: Vec<Place>,
    /// Number of copies.
    pub copies: usize,
    /// Whether its servers accept tickets from servers of other cells with the same setting, and the reverse.
    pub common_key: bool,
}

impl CellConfig {
    /// Returns the intended number of read-only sites in the cell, if it has enough servers.
    pub fn wanted_copies(&self) -> usize {
        if self.sites.is_empty() { self.copies.min(COPIES_MAX) } else { self.sites.len() }
    }
}

/// The whole configuration.
#[derive(Debug)]
pub struct Config {
    /// Name of the source cell.
    pub source: String,
    /// Name of the signer.
    pub signer: String,
    signing_key: Option<PathBuf>,
    exposure: Exposure,
    /// Directory of the state of promotions.
    pub state: PathBuf,
    /// Maximum number of cells that are worked on concurrently.
    pub parallel: usize,
    /// Options of promotions, and the keys that each cell trusts.
    pub options: Options,
    /// The cells by name.
    pub cells: BTreeMap<String, CellConfig>,
}

impl Config {
    /// Loads the file. Paths in it are relative to its directory.
    pub fn load(path: &Path) -> Result<Config> {
        let text =
            std::fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))?;
        let folder = path.parent().unwrap_or(Path::new("."));
        Config::parse(&text, folder).with_context(|| format!("in {}", path.display()))
    }

    /// A configuration with a single cell, the source.
    #[cfg(test)]
    pub(super) fn for_tests(cell: &str) -> Config {
        let text = format!(
            "source = \"{cell}\"\nstate = \"s\"\n[cell.\"{cell}\"]\ndatabase_servers = \
            [\"192.0.2.1\"]\nkeyfile = \"k\"\n"
        );
        Config::parse(&text, Path::new("/etc/x")).unwrap()
    }

    fn parse(text: &str, folder: &Path) -> Result<Config> {
        let file: File = toml::from_str(text)?;
        let trusted = public_keys(&file.trusted)?;
        let exposure = security::exposure(file.loose_key_files);
        let mut cells = BTreeMap::new();
        let mut believes = BTreeMap::new();
        for (name, section) in &file.cell {
            let cell = cell(name, section, folder, file.copies, exposure)
                .with_context(|| format!("cell.\"{name}\""))?;
            cells.insert(name.clone(), cell);
            believes.insert(
                name.clone(),
                trusted_by(section, &trusted).with_context(|| format!("cell.\"{name}\""))?,
            );
        }
        if !cells.contains_key(&file.source) {
            bail!("`source` is \"{}\", and there is no section [cell.\"{}\"]", file.source, file.source);
        }
        for (key, value) in [("copies", file.copies), ("fanout", file.fanout), ("parallel", file.parallel)] {
            if value == 0 {
                bail!("`{key}` is 0; at least 1 is needed");
            }
        }
        let state = match &file.state {
            Some(state) => folder.join(state),
            None => default_state()?,
        };
        Ok(Config {
            signer: file.signer.unwrap_or_else(|| "release".into()),
            signing_key: file.signing_key.map(|key| folder.join(key)),
            exposure,
            state,
            parallel: file.parallel,
            options: Options { fanout: file.fanout, keep: file.keep, trusted: believes },
            cells,
            source: file.source,
        })
    }

    /// Loads the signing key.
    pub fn signing_key(&self) -> Result<SigningKey> {
        let Some(path) = &self.signing_key else {
            bail!("`signing_key` is not set; `cellar promote key new FILE` creates one");
        };
        let shown = || format!("in {}", path.display());
        let (bytes, mending) = read_secret(path, self.exposure).with_context(shown)?;
        if let Some(mending) = mending {
            eprintln!("cellar: {mending}");
        }
        std::str::from_utf8(&bytes)?.parse().with_context(shown)
    }

    /// Returns the configuration of a cell, which must exist.
    pub fn cell(&self, name: &str) -> Result<&CellConfig> {
        self.cells.get(name).with_context(|| {
            format!("there is no section [cell.\"{name}\"]; the file has {}", names(self.cells.keys()))
        })
    }
}

fn names<'a>(names: impl Iterator<Item = &'a String>) -> String {
    let names: Vec<&str> = names.map(String::as_str).collect();
    if names.is_empty() { "none".into() } else { names.join(", ") }
}

impl CellConfig {
    /// Returns a client of the cell with superuser rights.
    pub fn connect(&self) -> Result<CellClient> {
        let keys = keys::load_all(&self.keys)?;
        let network = AfsNetwork::start(Some(local_authentication(&keys.set)?))?;
        CellClient::new(Arc::new(network), self.database_servers.clone())
    }
}

fn default_state() -> Result<PathBuf> {
    let absolute = |name: &str| std::env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
    let state = absolute("XDG_STATE_HOME").or_else(|| Some(absolute("HOME")?.join(".local/state")));
    Ok(state.context("HOME is not set; `state` must name a folder")?.join("cellar/promote"))
}

fn public_keys(texts: &BTreeMap<String, String>) -> Result<BTreeMap<String, PublicKey>> {
    let parse = |(name, text): (&String, &String)| {
        let key = text.parse().with_context(|| format!("trusted.{name}"))?;
        Ok((name.clone(), key))
    };
    texts.iter().map(parse).collect()
}

fn trusted_by(
    section: &CellSection,
    all: &BTreeMap<String, PublicKey>,
) -> Result<BTreeMap<String, PublicKey>> {
    let Some(wanted) = &section.trust else { return Ok(all.clone()) };
    let find = |name: &String| match all.get(name) {
        Some(key) => Ok((name.clone(), *key)),
        None => bail!("`trust` names \"{name}\"; [trusted] has {}", names(all.keys())),
    };
    wanted.iter().map(find).collect()
}

fn cell(
    name: &str,
    section: &CellSection,
    folder: &Path,
    copies: usize,
    exposure: Exposure,
) -> Result<CellConfig> {
    let servers = match section.database_servers.as_slice() {
        [] => from_cellservdb(name)?,
        servers => servers.to_vec(),
    };
    let path = |file: &Option<PathBuf>| file.as_ref().map(|file| folder.join(file));
    let keys = KeyFiles {
        extended: path(&section.keyfile),
        des: path(&section.des_keyfile),
        keytab: path(&section.keytab),
        may_lack: false,
        exposure,
    };
    let sites = section.sites.iter().map(|site| place(site)).collect::<Result<Vec<_>>>()?;
    let copies = section.copies.unwrap_or(copies).max(sites.len());
    Ok(CellConfig { database_servers: servers, keys, sites, copies, common_key: section.common_key })
}

fn from_cellservdb(name: &str) -> Result<Vec<Ipv4Addr>> {
    let path = Path::new(CELLSERVDB);
    let cell: CellName = name.parse()?;
    let cells = parse_cellservdb(&read_optional(path)?.unwrap_or_default())
        .with_context(|| format!("in {CELLSERVDB}"))?;
    let found = cells.into_iter().find(|entry| entry.name == cell);
    let servers = found.map(|entry| entry.servers).unwrap_or_default();
    if servers.is_empty() {
        bail!("neither `database_servers` nor {CELLSERVDB} names its database servers");
    }
    Ok(servers.into_iter().map(|server| server.address).collect())
}

/// Parses a place like `192.0.2.1 a`.
fn place(text: &str) -> Result<Place> {
    let parsed = text.split_once(' ').and_then(|(server, partition)| {
        let partition: PartitionId = partition.trim().parse().ok()?;
        Some(Place { server: server.parse().ok()?, partition: partition.index() as i32 })
    });
    parsed.with_context(|| format!("`{text}` is not a site like \"192.0.2.1 a\""))
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEY: &str = "ed25519:8a88e3dd7409f195fd52db2d3cba5d72ca6709bf1d94121bf3748801b40f6f5c";

    fn parse(text: &str) -> Result<Config> {
        let cells = "[cell.\"a.example\"]\ndatabase_servers = [\"192.0.2.1\"]\nkeyfile = \"k\"\n";
        Config::parse(&format!("source = \"a.example\"\nstate = \"s\"\n{text}\n{cells}"), Path::new("/etc/x"))
    }

    #[test]
    fn omissions_have_defaults_and_errors_are_named() {
        let config = parse(&format!("[trusted]\nrelease = \"{KEY}\"")).unwrap();
        let a = &config.cells["a.example"];
        assert_eq!((config.options.fanout, config.options.keep, a.copies), (3, 3, 3));
        assert_eq!(config.state, Path::new("/etc/x/s"));
        assert_eq!(config.options.trusted["a.example"].len(), 1);
        let b = "[cell.\"b.example\"]\ndatabase_servers = [\"192.0.2.2\"]\n";
        for (wrong, reported) in [
            ("colour = 1".to_owned(), "unknown field"),
            ("fanout = 0".to_owned(), "`fanout` is 0"),
            ("[trusted]\nrelease = \"abc\"".to_owned(), "trusted.release"),
            (format!("{b}trust = [\"nobody\"]"), "nobody"),
            (format!("{b}sites = [\"192.0.2.2\"]"), "not a site like"),
            ("[cell.\"nowhere.example\"]".to_owned(), "database"),
        ] {
            let error = format!("{:#}", parse(&wrong).unwrap_err());
            assert!(error.contains(reported), "{wrong}: {error}");
        }
    }

    #[test]
    fn named_sites_are_places() {
        let text =
            "[cell.\"b.example\"]\ndatabase_servers = [\"192.0.2.2\"]\nsites = [\"192.0.2.2 b\"]\ncopies = 1";
        let config = parse(text).unwrap();
        let site = Place { server: Ipv4Addr::new(192, 0, 2, 2), partition: 1 };
        assert_eq!(config.cells["b.example"].sites, [site]);
    }
}
