//! Start-up with sockets of a previous process, in which calls wait.

use crate::FaultInjection;
use crate::startup::start_inheriting;
use afs_idl::fs::{FetchStatusRequest, fetch_status};
use base::{AbortCode, Fid, VnodeId, VolumeId};
use cell_client::Network;
use cell_client::network::AfsNetwork;
use rx::{Inherited, Server, ServerConfig};
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::thread;
use std::time::Duration;

/// Number of clients whose calls wait.
const CLIENTS: usize = 20;

/// A loopback address that no other test uses, because the ports are AFS's fixed ones.
fn address() -> Ipv4Addr {
    let [a, b, c, _] = std::process::id().to_be_bytes();
    Ipv4Addr::new(127, 64 | (a & 63), b, c.clamp(2, 240))
}

/// Returns the sockets that a previous process had at `address`.
fn sockets(address: Ipv4Addr) -> Arc<Inherited> {
    let config = ServerConfig { addresses: vec![address.into()], port: 7000, ..ServerConfig::default() };
    let previous = Server::start(&config, Vec::new()).unwrap();
    Arc::new(Inherited::new(previous.sockets().unwrap()))
}

/// Each of these clients has to be asked who it is before its call is executed.
#[test]
fn calls_that_wait_at_the_start_are_served() {
    let folder = super::prepared();
    let address = address();
    let settings =
        super::settings_with(folder.path(), &format!("[server]\nbind = [\"{address}\"]\n")).unwrap();
    let inherited = sockets(address);
    let request =
        FetchStatusRequest { fid: Fid { volume: VolumeId(99), vnode: VnodeId(1), unique: 1 }.into() };
    let clients: Vec<_> = (0..CLIENTS)
        .map(|_| {
            thread::spawn(move || {
                let network = AfsNetwork::start(None).unwrap();
                let connection = network.connect(SocketAddr::from((address, 7000)), 1);
                fetch_status(&*connection, &request).map(drop)
            })
        })
        .collect();
    thread::sleep(Duration::from_millis(200));
    let interrupted = AtomicBool::new(false);
    // On a busy machine, calls are served before the start goes on.
    let faults = FaultInjection { port_pause: Duration::from_millis(300), ..FaultInjection::default() };
    let running = start_inheriting(&Arc::new(settings), &faults, &inherited, &interrupted).unwrap();
    for client in clients {
        assert_eq!(client.join().unwrap(), Err(AbortCode::VNOVOL));
    }
    running.stop().unwrap();
}
