//! A plain AFS client for the command line. It works the same with Cellar and OpenAFS.

pub mod bulk;
pub mod describe;
#[cfg(any(test, feature = "fakes"))]
pub mod fakes;
pub mod files;
pub mod location;
pub mod network;
pub mod path;
pub mod patience;
pub mod rights;
mod servers;
#[cfg(test)]
mod tests;
pub mod ubik;
pub mod vote;

use afs_idl::{ClientConnection, fs};
use anyhow::{Result, bail};
use base::AbortCode;
use parking_lot::Mutex;
use patience::{Delay, Patience, PatientConnection, Waiting};
use servers::Servers;
use std::collections::HashMap;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Instant;
use ubik::{Roster, Search, Verdict};

/// Opens connections with the security class that the user chose.
pub trait Network: Send + Sync {
    /// Returns a connection to `service` at `address`; it is established with the first call.
    fn connect(&self, address: SocketAddr, service: u16) -> Arc<dyn ClientConnection>;

    /// Handles a change of the machine's addresses: it has lost `lost` and now has `own`.
    fn on_addresses_changed(&self, _lost: &[Ipv4Addr], _own: &[Ipv4Addr]) {}
}

/// The services of a cell by interface, each with a service ID and a port.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Interface {
    /// RXAFS, the file service.
    Files,
    /// PR, the protection service.
    Protection,
    /// VL, the volume location service.
    Locations,
    /// AFSVol, the volume service.
    Volumes,
    /// Cellar's own service on the file server's port.
    Cellar,
    /// Cellar's own service on the volume server's port.
    CellarVolumes,
}

impl Interface {
    fn service_and_port(self) -> (u16, u16) {
        match self {
            Interface::Files => (1, 7000),
            Interface::Protection => (73, 7002),
            Interface::Locations => (52, 7003),
            Interface::Volumes => (4, 7005),
            Interface::Cellar => (20011, 7000),
            Interface::CellarVolumes => (20011, 7005),
        }
    }
}

/// A client's view of a cell.
pub struct CellClient {
    network: Arc<dyn Network>,
    database_servers: Vec<Ipv4Addr>,
    servers: Arc<Servers>,
    waiting: Arc<Waiting>,
    /// State of the database servers, by database. No call is made under the lock.
    rosters: Mutex<HashMap<Interface, Roster>>,
}

impl CellClient {
    /// Creates a client of the cell with these database servers. It repeats refused calls with the default
    /// [`Patience`].
    pub fn new(network: Arc<dyn Network>, database_servers: Vec<Ipv4Addr>) -> Result<CellClient> {
        if database_servers.is_empty() {
            bail!("the cell has no database server; give one with --server ADDRESS");
        }
        let servers = Arc::new(Servers::new(Arc::clone(&network), database_servers.clone()));
        let waiting = Arc::new(Waiting::new(Patience::default(), Box::new(|_| ())));
        Ok(CellClient { network, database_servers, servers, waiting, rosters: Mutex::default() })
    }

    /// Changes how long refused calls are repeated; `report` receives a report of each server that refuses calls
    /// for longer than [`Patience::report_after`]. A server that makes calls for its own clients has no patience
    /// ([`Patience::NONE`]): they repeat their calls themselves.
    #[must_use]
    pub fn with_patience(
        mut self,
        patience: Patience,
        report: impl Fn(&Delay) + Send + Sync + 'static,
    ) -> CellClient {
        self.forget_connections();
        self.waiting = Arc::new(Waiting::new(patience, Box::new(report)));
        self
    }

    /// Handles a change of the machine's addresses: it has lost `lost` and now has `own`. Later calls use new
    /// connections.
    pub fn on_addresses_changed(&self, lost: &[Ipv4Addr], own: &[Ipv4Addr]) {
        self.network.on_addresses_changed(lost, own);
        self.forget_connections();
    }

    /// Drops all cached connections, so that later calls use new ones.
    pub fn forget_connections(&self) {
        self.servers.forget_connections();
    }

    /// Returns the connection to a server, which is created once and shared. Its calls are repeated if they are
    /// refused, and at another address of a file server if this one does not answer ([`patience`]).
    pub fn connection(&self, address: Ipv4Addr, interface: Interface) -> Arc<dyn ClientConnection> {
        self.patient(address, interface)
    }

    fn patient(&self, address: Ipv4Addr, interface: Interface) -> Arc<PatientConnection> {
        // A client that ends gives up the callbacks of all that it has connected to.
        let _ = self.servers.connection(address, interface);
        let (servers, waiting) = (Arc::clone(&self.servers), Arc::clone(&self.waiting));
        Arc::new(PatientConnection { address, interface, servers, waiting })
    }

    /// Makes a call to a database server. Tries another server if one does not answer, and the sync site if
    /// the call requires it (see [`ubik`]).
    pub fn database<T>(
        &self,
        interface: Interface,
        call: impl Fn(&dyn ClientConnection) -> Result<T, AbortCode>,
    ) -> Result<T, AbortCode> {
        self.database_unless(interface, call, |_| false)
    }

    /// Makes a call like [`database`](Self::database), but also asks the other servers that are up if
    /// `is_old_news` says that an answer may be out of date. If all answers are, it returns the last one.
    pub fn database_unless<T>(
        &self,
        interface: Interface,
        call: impl Fn(&dyn ClientConnection) -> Result<T, AbortCode>,
        is_old_news: impl Fn(&T) -> bool,
    ) -> Result<T, AbortCode> {
        let mut search = self.with_roster(interface, |roster| roster.begin());
        let (mut last, mut old_news) = (AbortCode::RX_CALL_DEAD, None);
        let next =
            |search: &mut Search| self.with_roster(interface, |roster| roster.next(search, Instant::now()));
        while let Some(server) = next(&mut search) {
            let address = self.database_servers[server];
            let answer = call(&*self.connection(address, interface));
            if answer.as_ref().is_ok_and(&is_old_news) {
                self.with_roster(interface, |roster| roster.heard_old_news(&mut search, server));
                old_news = answer.ok();
                continue;
            }
            let outcome = answer.as_ref().map(drop).map_err(|code| *code);
            last = outcome.err().map_or(last, |code| ubik::more_informative(last, code));
            let now = Instant::now();
            match self.with_roster(interface, |roster| roster.heard(&mut search, server, outcome, now)) {
                Verdict::Final => return answer,
                Verdict::AskAnother => {}
                Verdict::AskForSyncSite => {
                    if let Ok(Some(site)) = self.sync_site(server, interface) {
                        search.hint(site);
                    }
                }
            }
        }
        old_news.ok_or(last)
    }

    /// Makes a call to the sync site, whose answer is up to date, before a change. Without a sync site the
    /// call fails like a change (UNOQUORUM).
    pub fn newest<T>(
        &self,
        interface: Interface,
        call: impl FnOnce(&dyn ClientConnection) -> Result<T, AbortCode>,
    ) -> Result<T, AbortCode> {
        let site = self.site_in_office(interface)?;
        call(&*self.connection(self.database_servers[site], interface)).inspect_err(|&code| {
            let now = Instant::now();
            self.with_roster(interface, |roster| roster.heard_of_office(site, Err(code), now));
        })
    }

    /// Returns the index of the sync site: a server that says so itself.
    fn site_in_office(&self, interface: Interface) -> Result<usize, AbortCode> {
        let count = self.database_servers.len();
        if count == 1 {
            return Ok(0);
        }
        if let Some(site) = self.with_roster(interface, |roster| roster.in_office(Instant::now())) {
            return Ok(site);
        }
        let mut left = self.with_roster(interface, |roster| roster.electorate(Instant::now()));
        left.reverse();
        let (mut asked, mut last) = (vec![false; count], AbortCode::RX_CALL_DEAD);
        while let Some(server) = left.pop() {
            if std::mem::replace(&mut asked[server], true) {
                continue;
            }
            let answer = self.sync_site(server, interface);
            last = ubik::more_informative(last, answer.err().unwrap_or(AbortCode::UNOQUORUM));
            let outcome = answer.map(|site| site == Some(server));
            self.with_roster(interface, |roster| roster.heard_of_office(server, outcome, Instant::now()));
            match answer {
                Ok(Some(site)) if site == server => return Ok(site),
                Ok(Some(site)) => left.push(site),
                Ok(None) | Err(_) => {}
            }
        }
        Err(last)
    }

    fn with_roster<T>(&self, interface: Interface, then: impl FnOnce(&mut Roster) -> T) -> T {
        let mut rosters = self.rosters.lock();
        then(rosters.entry(interface).or_insert_with(|| Roster::new(self.database_servers.len())))
    }

    /// Returns the index of the sync site according to one server.
    fn sync_site(&self, server: usize, interface: Interface) -> Result<Option<usize>, AbortCode> {
        let (_, port) = interface.service_and_port();
        let address = self.database_servers[server];
        let connection = self.network.connect(SocketAddr::from((address, port)), vote::SERVICE);
        let site = vote::sync_site(&*connection, address)?;
        Ok(self.database_servers.iter().position(|server| Some(*server) == site))
    }

    /// Returns the first database server, the default location of new volumes.
    pub fn default_server(&self) -> Ipv4Addr {
        self.database_servers[0]
    }
}

/// Gives up all callbacks. Otherwise file servers keep callback promises to a host that no longer answers,
/// and the next change to those files waits for it.
impl Drop for CellClient {
    fn drop(&mut self) {
        for connection in self.servers.take_files() {
            let _ = fs::give_up_all_call_backs(&*connection, &fs::GiveUpAllCallBacksRequest);
        }
    }
}
