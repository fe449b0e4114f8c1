//! What the client does beside single calls.

use super::{CellClient, Interface, Network};
use crate::network::AfsNetwork;
use afs_idl::{ClientConnection, fs};
use base::{AbortCode, Caller};
use rx::{Server, ServerCall, ServerConfig, Service, ServiceEntry};
use rx_proto::ServiceConfig;
use rx_security::{Null, ServerSecurity};
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};

/// A file server that counts the clients who give up their callbacks.
#[derive(Default)]
struct Counting(AtomicUsize);

impl fs::Server for Counting {
    fn give_up_all_call_backs(
        &self,
        _: &Caller,
        _: fs::GiveUpAllCallBacksRequest,
    ) -> Result<fs::GiveUpAllCallBacksReply, AbortCode> {
        self.0.fetch_add(1, SeqCst);
        Ok(fs::GiveUpAllCallBacksReply)
    }
}

struct Serving(Arc<Counting>);

impl Service for Serving {
    fn serve(&self, call: &mut ServerCall) -> Result<(), AbortCode> {
        let caller = call.caller().clone();
        fs::dispatch(&*self.0, &caller, call)
    }
}

/// The usual network, but all services are at one port of this machine.
struct OnePort {
    network: AfsNetwork,
    port: u16,
}

impl Network for OnePort {
    fn connect(&self, address: SocketAddr, service: u16) -> Arc<dyn ClientConnection> {
        self.network.connect(SocketAddr::new(address.ip(), self.port), service)
    }
}

#[test]
fn callbacks_are_given_up_to_file_servers_at_the_end() {
    let counting = Arc::new(Counting::default());
    let security: Vec<Arc<dyn ServerSecurity>> = vec![Arc::new(Null)];
    let service = ServiceEntry {
        config: ServiceConfig { id: 1, name: "files".into(), security },
        service: Arc::new(Serving(Arc::clone(&counting))),
    };
    let config = ServerConfig {
        name: "test".into(),
        addresses: vec![Ipv4Addr::LOCALHOST.into()],
        ..ServerConfig::default()
    };
    let server = Server::start(&config, vec![service]).unwrap();
    let network = OnePort { network: AfsNetwork::start(None).unwrap(), port: server.addresses()[0].port() };
    let client = CellClient::new(Arc::new(network), vec![Ipv4Addr::LOCALHOST]).unwrap();
    client.connection(Ipv4Addr::LOCALHOST, Interface::Files);
    client.connection(Ipv4Addr::LOCALHOST, Interface::Locations);
    assert_eq!(counting.0.load(SeqCst), 0);
    drop(client);
    assert_eq!(counting.0.load(SeqCst), 1, "the file server hears it once, the others never");
}
