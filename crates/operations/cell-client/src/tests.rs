//! Behaviour of the client beyond single calls.

mod behind;

use super::{CellClient, Interface, Network};
use crate::network::AfsNetwork;
use afs_idl::{ClientConnection, fs, vl};
use base::{AbortCode, CallContext};
use rx::{Server, ServerCall, ServerConfig, Service, ServiceEntry};
use rx_proto::ServiceConfig;
use rx_security::{Null, ServerSecurity};
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};

/// A file server that counts clients giving up their callbacks, and rejects the first two status requests.
#[derive(Default)]
struct Counting(AtomicUsize, AtomicUsize);

impl fs::Server for Counting {
    fn give_up_all_call_backs(
        &self,
        _: &CallContext<'_>,
        _: fs::GiveUpAllCallBacksRequest,
    ) -> Result<fs::GiveUpAllCallBacksReply, AbortCode> {
        self.0.fetch_add(1, SeqCst);
        Ok(fs::GiveUpAllCallBacksReply)
    }

    fn fetch_status(
        &self,
        _: &CallContext<'_>,
        _: fs::FetchStatusRequest,
    ) -> Result<fs::FetchStatusReply, AbortCode> {
        match self.1.fetch_add(1, SeqCst) {
            0 => Err(AbortCode::VMOVED),
            1 => Err(AbortCode::VNOVOL),
            _ => Ok(fs::FetchStatusReply::default()),
        }
    }
}

/// A location server with a single volume.
struct Knowing;

impl vl::Server for Knowing {
    fn get_entry_by_name_n(
        &self,
        _: &CallContext<'_>,
        _: vl::GetEntryByNameNRequest,
    ) -> Result<vl::GetEntryByNameNReply, AbortCode> {
        let mut entry = vl::NVldbEntry { server_count: 1, ..vl::NVldbEntry::default() };
        entry.volume_id[0] = 7;
        entry.server_number[0] = Ipv4Addr::LOCALHOST.into();
        entry.server_flags[0] = vl::site_flags::READ_WRITE;
        Ok(vl::GetEntryByNameNReply { entry })
    }
}

/// One of the two services.
enum Serving {
    Files(Arc<Counting>),
    Locations,
}

impl Service for Serving {
    fn serve(&self, call: &mut ServerCall) -> Result<(), AbortCode> {
        let caller = call.caller().clone();
        match self {
            Serving::Files(files) => fs::dispatch(&**files, &CallContext::new(&caller), call),
            Serving::Locations => vl::dispatch(&Knowing, &CallContext::new(&caller), call),
        }
    }
}

/// The usual network, but with all services on one local port.
struct OnePort {
    network: AfsNetwork,
    port: u16,
}

impl Network for OnePort {
    fn connect(&self, address: SocketAddr, service: u16) -> Arc<dyn ClientConnection> {
        self.network.connect(SocketAddr::new(address.ip(), self.port), service)
    }
}

fn service(id: u16, name: &str, serving: Serving) -> ServiceEntry {
    let security: Vec<Arc<dyn ServerSecurity>> = vec![Arc::new(Null)];
    ServiceEntry { config: ServiceConfig { id, name: name.into(), security }, service: Arc::new(serving) }
}

/// Starts a server with both services, and a client of it.
fn start(files: &Arc<Counting>) -> (Server, CellClient) {
    let config = ServerConfig {
        name: "test".into(),
        addresses: vec![Ipv4Addr::LOCALHOST.into()],
        ..ServerConfig::default()
    };
    let services = vec![
        service(1, "files", Serving::Files(Arc::clone(files))),
        service(52, "locations", Serving::Locations),
    ];
    let server = Server::start(&config, services).unwrap();
    let network = OnePort { network: AfsNetwork::start(None).unwrap(), port: server.addresses()[0].port() };
    let client = CellClient::new(Arc::new(network), vec![Ipv4Addr::LOCALHOST]).unwrap();
    (server, client)
}

#[test]
fn callbacks_are_given_up_to_file_servers_at_the_end() {
    let counting = Arc::new(Counting::default());
    let (_server, client) = start(&counting);
    client.connection(Ipv4Addr::LOCALHOST, Interface::Files);
    client.connection(Ipv4Addr::LOCALHOST, Interface::Locations);
    assert_eq!(counting.0.load(SeqCst), 0);
    drop(client);
    assert_eq!(counting.0.load(SeqCst), 1, "the file server hears it once, the others never");
}

#[test]
fn a_volume_that_has_just_moved_is_looked_for_again() {
    let files = Arc::new(Counting::default());
    let (_server, client) = start(&files);
    let root = client.root_of("moved").unwrap();
    assert_eq!(root.address(), Ipv4Addr::LOCALHOST);
    assert_eq!(files.1.load(SeqCst), 3, "VMOVED, VNOVOL, there");
}
