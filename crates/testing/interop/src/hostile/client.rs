//! An honest client: a port, a UUID, a callback service, and connections from this port.

use crate::cell::Cell;
use afs_idl::cb::{self, CallBackReply, CallBackRequest, Server as CallBackService};
use afs_idl::{ClientConnection, Forgetful, common};
use anyhow::{Context, Result};
use base::{AbortCode, CallContext, HostUuid};
use cell_client::network::local_authentication;
use cell_client::{CellClient, Network};
use cellar_config::keys::{self, KeyFiles};
use cellar_config::security::SecuritySettings;
use rx::{ConnectOptions, Path, Server, ServerCall, ServerConfig, Service, ServiceConfig, ServiceEntry};
use rx_security::{ClientSecurity, Null, ServerSecurity};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// Service id of callbacks.
const CALLBACKS: u16 = 1;

/// Time limit of a call, after which the client gives up.
const CALL_MAX: Duration = Duration::from_secs(30);

/// A client of the target. It answers the calls of file servers.
pub struct Client {
    server: Server,
    security: Option<Arc<dyn ClientSecurity>>,
    promises: Arc<Promises>,
}

impl Client {
    /// Creates a client without a token at this address of the namespace.
    ///
    /// # Errors
    /// Errors of the operating system.
    pub fn anonymous(address: Ipv4Addr, uuid: HostUuid) -> Result<Client> {
        Client::open(address, uuid, None)
    }

    /// Creates a client with the key of the cell, like administrators' tools on a server.
    ///
    /// # Errors
    /// If the cell has no key; errors of the operating system.
    pub fn administrator(address: Ipv4Addr, cell: &Cell) -> Result<Client> {
        let extended = Some(cell.path().join("etc/server/KeyFileExt"));
        let keys = keys::load(&KeyFiles { extended, ..KeyFiles::default() }, &SecuritySettings::default())?;
        Client::open(address, uuid(), Some(local_authentication(&keys.set)?))
    }

    fn open(address: Ipv4Addr, uuid: HostUuid, security: Option<Arc<dyn ClientSecurity>>) -> Result<Client> {
        let config = ServerConfig {
            name: "client".into(),
            addresses: vec![IpAddr::V4(address)],
            lanes: 1,
            workers_min: 1,
            workers_max: 4,
            ..ServerConfig::default()
        };
        let promises = Arc::new(Promises {
            about: Forgetful::new(uuid),
            broken: Mutex::default(),
            resets: AtomicUsize::new(0),
        });
        let classes: Vec<Arc<dyn ServerSecurity>> = vec![Arc::new(Null)];
        let entry = ServiceEntry {
            config: ServiceConfig { id: CALLBACKS, name: "callbacks".into(), security: classes },
            service: Arc::clone(&promises) as Arc<dyn Service>,
        };
        let server = Server::start(&config, vec![entry]).context("cannot open a UDP port")?;
        Ok(Client { server, security, promises })
    }

    /// Returns the files whose callback promises the server has broken, in the order of the breaks.
    pub fn broken(&self) -> Vec<common::Fid> {
        self.promises.broken.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Returns how often a server has required it to forget everything (InitCallBackState3).
    pub fn resets(&self) -> usize {
        self.promises.resets.load(Ordering::SeqCst)
    }

    /// Returns this client as a [`CellClient`].
    ///
    /// # Errors
    /// None expected.
    pub fn of_cell(self: &Arc<Client>, databases: Ipv4Addr) -> Result<CellClient> {
        CellClient::new(Arc::clone(self) as Arc<dyn Network>, vec![databases])
    }
}

impl Network for Client {
    fn connect(&self, address: SocketAddr, service: u16) -> Arc<dyn ClientConnection> {
        let options = ConnectOptions { call_time_max: Some(CALL_MAX), ..ConnectOptions::default() };
        let connector = self.server.connector();
        connector.connect_with(Path::to(address), service, self.security.clone(), options)
    }
}

/// Returns a UUID that no other client has.
pub fn uuid() -> HostUuid {
    HostUuid(rand::random())
}

/// A callback service that records callback breaks.
struct Promises {
    about: Forgetful,
    /// Guards the list of files.
    broken: Mutex<Vec<common::Fid>>,
    resets: AtomicUsize,
}

impl Service for Promises {
    fn serve(&self, call: &mut ServerCall) -> Result<(), AbortCode> {
        let caller = call.caller().clone();
        cb::dispatch(self, &CallContext::new(&caller), call)
    }
}

impl CallBackService for Promises {
    fn call_back(&self, _: &CallContext<'_>, request: CallBackRequest) -> Result<CallBackReply, AbortCode> {
        self.broken.lock().unwrap_or_else(PoisonError::into_inner).extend(request.fids);
        Ok(CallBackReply)
    }

    fn init_call_back_state(
        &self,
        caller: &CallContext<'_>,
        request: cb::InitCallBackStateRequest,
    ) -> Result<cb::InitCallBackStateReply, AbortCode> {
        self.about.init_call_back_state(caller, request)
    }

    fn init_call_back_state3(
        &self,
        caller: &CallContext<'_>,
        request: cb::InitCallBackState3Request,
    ) -> Result<cb::InitCallBackState3Reply, AbortCode> {
        self.resets.fetch_add(1, Ordering::SeqCst);
        self.about.init_call_back_state3(caller, request)
    }

    fn probe(
        &self,
        caller: &CallContext<'_>,
        request: cb::ProbeRequest,
    ) -> Result<cb::ProbeReply, AbortCode> {
        self.about.probe(caller, request)
    }

    fn probe_uuid(
        &self,
        caller: &CallContext<'_>,
        request: cb::ProbeUuidRequest,
    ) -> Result<cb::ProbeUuidReply, AbortCode> {
        self.about.probe_uuid(caller, request)
    }

    fn who_are_you(
        &self,
        caller: &CallContext<'_>,
        request: cb::WhoAreYouRequest,
    ) -> Result<cb::WhoAreYouReply, AbortCode> {
        self.about.who_are_you(caller, request)
    }

    fn tell_me_about_yourself(
        &self,
        caller: &CallContext<'_>,
        request: cb::TellMeAboutYourselfRequest,
    ) -> Result<cb::TellMeAboutYourselfReply, AbortCode> {
        self.about.tell_me_about_yourself(caller, request)
    }
}
