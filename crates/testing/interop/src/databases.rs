//! OpenAFS database servers on several hosts, which elect a sync site by voting (Ubik). They run without an
//! overseer, which would restart the servers that a test stops.

use crate::cell::Cell;
use anyhow::{Context, Result};

/// A database server program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Database {
    /// `vlserver`.
    Locations,
    /// `ptserver`.
    Protection,
}

impl Database {
    /// Both programs.
    pub const ALL: [Database; 2] = [Database::Locations, Database::Protection];

    fn program(self) -> &'static str {
        match self {
            Database::Locations => "vlserver",
            Database::Protection => "ptserver",
        }
    }

    fn port(self) -> u16 {
        match self {
            Database::Locations => 7003,
            Database::Protection => 7002,
        }
    }
}

/// The database hosts of a cell.
pub struct Databases {
    /// Hosts in the order of their addresses: the first one that is up becomes the sync site.
    pub hosts: Vec<Cell>,
}

impl Databases {
    /// Starts a cell that only has databases, on hosts with these names and addresses. Returns before a sync
    /// site is elected.
    pub fn start(hosts: &[(&'static str, &'static str)]) -> Result<Databases> {
        let (&(name, address), others) = hosts.split_first().context("no hosts")?;
        let first = Cell::prepare("none", name, address, &[])?;
        first.use_databases(hosts)?;
        let others: Result<Vec<Cell>> =
            others.iter().map(|(name, address)| Cell::prepare_joining(&first, name, address)).collect();
        let mut hosts = vec![first];
        hosts.extend(others?);
        let databases = Databases { hosts };
        for host in 0..databases.hosts.len() {
            Database::ALL.iter().try_for_each(|database| databases.start_server(host, *database))?;
        }
        Ok(databases)
    }

    /// Starts a server that is not running.
    pub fn start_server(&self, host: usize, database: Database) -> Result<()> {
        let (host, program) = (&self.hosts[host], database.program());
        let pid = host.scratch()?.join(program);
        let start = format!("setsid /usr/lib/openafs/{program} < /dev/null > /dev/null 2>&1 & echo $!");
        host.shell(&format!("{start} > {}", pid.display()))?.ok().map(drop)
    }

    /// Sends a signal (`KILL`, `STOP`, `CONT`) to a server.
    pub fn signal(&self, host: usize, database: Database, signal: &str) -> Result<()> {
        let host = &self.hosts[host];
        let pid = host.scratch()?.join(database.program());
        host.shell(&format!("kill -{signal} $(cat {})", pid.display()))?.ok().map(drop)
    }

    /// Returns the output of `udebug` for a server.
    pub fn state(&self, host: usize, database: Database) -> Result<String> {
        let host = &self.hosts[host];
        let command = format!("timeout 5 udebug {} {}", host.address, database.port());
        host.run(&command).map(|output| output.text)
    }

    /// Whether `host` follows the sync site `site`; from then on changes are accepted.
    pub fn follows(&self, host: usize, site: usize) -> Result<bool> {
        let vote = format!("Last yes vote for {} was ", self.hosts[site].address);
        for database in Database::ALL {
            let state = self.state(host, database)?;
            let is_so = |line: &str| line.starts_with(&vote) && line.contains("(sync site)");
            if !state.lines().any(is_so) {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Returns the versions of a database on all hosts, as printed by `udebug`.
    pub fn versions(&self, database: Database) -> Result<Vec<String>> {
        let version = |host: usize| {
            let state = self.state(host, database)?;
            let version = state.lines().find_map(|line| line.trim().strip_prefix("Local db version is "));
            Ok(version.unwrap_or(&state).to_owned())
        };
        (0..self.hosts.len()).map(version).collect()
    }
}
