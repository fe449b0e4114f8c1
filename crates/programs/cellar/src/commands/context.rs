//! What all commands need: the servers to call, the identity to use and the output format.

use crate::output::Format;
use crate::quickstart::running;
use afs_format::cellservdb::parse_cellservdb;
use anyhow::{Context as _, Result};
use base::CellName;
use cell_client::CellClient;
use cell_client::network::{AfsNetwork, local_authentication};
use cell_client::patience::Patience;
use cellar_config::{Settings, openafs};
use clap::Args;
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// The configuration that the package's service uses.
#[cfg(feature = "bucket")]
pub(super) const PACKAGED: &str = "/etc/cellar/cellar.toml";

/// Options of every command that talks to a cell.
#[derive(Args, Clone)]
pub struct Connect {
    /// Configuration of the server. By default, that of a running `cellar quickstart` in this folder, or
    /// else OpenAFS's in /etc/openafs/server; for `cellar cluster`, /etc/cellar/cellar.toml if it exists.
    #[arg(long, global = true, env = "CELLAR_CONFIG")]
    config: Option<PathBuf>,
    /// Make anonymous calls, without authenticating.
    #[arg(long, global = true)]
    noauth: bool,
    /// Database server of the cell, overriding the configured ones; may be repeated.
    #[arg(long = "server", global = true)]
    servers: Vec<Ipv4Addr>,
    /// Print JSON.
    #[arg(long, global = true)]
    json: bool,
}

impl Connect {
    /// Options for a superuser of the cell that a configuration describes.
    pub fn to_the_cell(config: Option<PathBuf>, json: bool) -> Connect {
        Connect { config, noauth: false, servers: vec![], json }
    }
}

/// The context that all commands share.
pub struct Context {
    /// Output format.
    pub format: Format,
    connect: Connect,
}

impl Context {
    /// Creates a context from the command line.
    pub fn new(connect: &Connect) -> Context {
        let format = if connect.json { Format::Json } else { Format::Text };
        Context { format, connect: connect.clone() }
    }

    /// Returns the configuration, as [`load_settings`] finds it.
    pub fn settings(&self) -> Result<Settings> {
        load_settings(self.connect.config.as_deref())
    }

    /// Returns this context with the configuration of the package's service, if there is that and none was named.
    #[cfg(feature = "bucket")]
    pub(super) fn or_packaged(&self) -> Context {
        let mut connect = self.connect.clone();
        let packaged = Path::new(PACKAGED);
        connect.config = connect.config.or_else(|| packaged.exists().then(|| packaged.to_owned()));
        Context { format: self.format, connect }
    }

    /// Returns the configuration named on the command line or by the environment.
    #[cfg(feature = "bucket")]
    pub(super) fn config(&self) -> Option<&Path> {
        self.connect.config.as_deref()
    }

    /// Returns the first database server named on the command line.
    pub(super) fn named_server(&self) -> Option<Ipv4Addr> {
        self.connect.servers.first().copied()
    }

    /// Returns the file server that commands use if the command line names none: the one that the
    /// configuration belongs to, or on other machines the first database server.
    pub(super) fn default_server(&self, client: &CellClient) -> Ipv4Addr {
        let own = || self.settings().ok()?.own_file_server();
        self.named_server().or_else(own).unwrap_or_else(|| client.default_server())
    }

    /// Returns whether the command runs without authenticating.
    pub(super) fn is_anonymous(&self) -> bool {
        self.connect.noauth
    }

    /// Returns a client of the cell, authenticated unless the command line says otherwise. It repeats calls that a
    /// busy server refuses, and prints a message if that takes long.
    pub fn client(&self) -> Result<CellClient> {
        let client = self.connected_client()?;
        Ok(client.with_patience(Patience::default(), |delay| eprintln!("cellar: {delay}")))
    }

    /// Returns a client for commands that observe servers: a refused call is a result.
    pub fn observer(&self) -> Result<CellClient> {
        Ok(self.connected_client()?.with_patience(Patience::NONE, |_| ()))
    }

    fn connected_client(&self) -> Result<CellClient> {
        let anonymous = self.connect.noauth;
        let settings =
            if anonymous && !self.connect.servers.is_empty() { None } else { self.settings_for(anonymous)? };
        let security = match &settings {
            Some(settings) if !anonymous => Some(local_authentication(&settings.keys)?),
            _ => None,
        };
        let servers = match (&self.connect.servers, settings) {
            (named, _) if !named.is_empty() => named.clone(),
            (_, Some(settings)) => settings.database_servers.iter().map(|server| server.address).collect(),
            (_, None) => client_database_servers()?,
        };
        CellClient::new(Arc::new(AfsNetwork::start(security)?), servers)
    }

    /// Returns the server's settings. An anonymous user may be unable to read them and does not need them.
    fn settings_for(&self, anonymous: bool) -> Result<Option<Settings>> {
        match self.settings() {
            Ok(settings) => Ok(Some(settings)),
            Err(_) if anonymous => Ok(None),
            Err(error) => {
                Err(error.context("commands authenticate with the cell's key (use --noauth to skip this)"))
            }
        }
    }
}

/// Loads the settings for a command: those of the named file, or of the cell that `cellar quickstart` runs
/// from the current folder, or else those that OpenAFS would use.
pub fn load_settings(path: Option<&Path>) -> Result<Settings> {
    match path {
        None => load_server_settings(running::find().as_deref()),
        named => load_server_settings(named),
    }
}

/// Loads the settings for a server: those of the named file, or those that OpenAFS would use.
pub fn load_server_settings(path: Option<&Path>) -> Result<Settings> {
    match path {
        Some(path) => cellar_config::file::load(path),
        None => openafs::load(),
    }
}

/// Returns the database servers of the workstation's cell, from /etc/openafs.
fn client_database_servers() -> Result<Vec<Ipv4Addr>> {
    let read = |name: &str| {
        let path = Path::new("/etc/openafs").join(name);
        std::fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))
    };
    let cell: CellName = afs_format::cellservdb::parse_thiscell(&read("ThisCell")?)?;
    let cells = parse_cellservdb(&read("CellServDB")?)?;
    let found =
        cells.into_iter().find(|entry| entry.name == cell).map(|entry| entry.servers).unwrap_or_default();
    Ok(found.into_iter().map(|server| server.address).collect())
}
