//! What all commands need: whom to ask, as whom, and how to print.

use crate::client::CellClient;
use crate::config::{self, Settings, openafs};
use crate::network::{AfsNetwork, local_authentication};
use crate::output::Format;
use afs_format::cellservdb::parse_cellservdb;
use anyhow::{Context as _, Result};
use base::CellName;
use clap::Args;
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Options of every command that talks to a cell.
#[derive(Args, Clone)]
pub struct Connect {
    /// The server's configuration; without it, OpenAFS's in /etc/openafs/server.
    #[arg(long, global = true, env = "CELLAR_CONFIG")]
    config: Option<PathBuf>,
    /// Ask without authenticating.
    #[arg(long, global = true)]
    noauth: bool,
    /// A database server of the cell, in place of those configured; may be repeated.
    #[arg(long = "server", global = true)]
    servers: Vec<Ipv4Addr>,
    /// Print JSON.
    #[arg(long, global = true)]
    json: bool,
}

impl Connect {
    /// As a superuser of the cell that a configuration tells.
    pub fn to_the_cell(config: Option<PathBuf>, json: bool) -> Connect {
        Connect { config, noauth: false, servers: vec![], json }
    }
}

/// What all commands need.
pub struct Context {
    /// How to print.
    pub format: Format,
    connect: Connect,
}

impl Context {
    /// From the command line.
    pub fn new(connect: &Connect) -> Context {
        let format = if connect.json { Format::Json } else { Format::Text };
        Context { format, connect: connect.clone() }
    }

    /// The configuration: from the file named, or OpenAFS's.
    pub fn settings(&self) -> Result<Settings> {
        load_settings(self.connect.config.as_deref())
    }

    /// The first database server named on the command line.
    pub(super) fn named_server(&self) -> Option<Ipv4Addr> {
        self.connect.servers.first().copied()
    }

    /// Whom to ask what it does, if nobody says which server: the file server that the configuration is of; from
    /// elsewhere, the first database server.
    pub(super) fn server_to_watch(&self, client: &CellClient) -> Ipv4Addr {
        let own = || self.settings().ok()?.own_file_server();
        self.named_server().or_else(own).unwrap_or_else(|| client.default_server())
    }

    /// Whether the command does not authenticate.
    pub(super) fn is_anonymous(&self) -> bool {
        self.connect.noauth
    }

    /// A client of the cell, authenticated unless the person said otherwise.
    pub fn client(&self) -> Result<CellClient> {
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

    /// The server's settings. Somebody who does not authenticate may not be able to read them, and
    /// does not need them.
    fn settings_for(&self, anonymous: bool) -> Result<Option<Settings>> {
        match self.settings() {
            Ok(settings) => Ok(Some(settings)),
            Err(_) if anonymous => Ok(None),
            Err(error) => {
                Err(error.context("commands authenticate with the cell's key (--noauth goes without)"))
            }
        }
    }
}

/// The settings of a configuration file, or what OpenAFS would take.
pub fn load_settings(path: Option<&Path>) -> Result<Settings> {
    match path {
        Some(path) => config::file::load(path),
        None => openafs::load(),
    }
}

/// The database servers of the workstation's cell, from /etc/openafs.
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
