//! Calls that wait when the server starts, and those in progress when it ends.

use crate::FaultInjection;
use crate::startup::{start, start_inheriting};
use afs_idl::fs::{FETCH_STATUS, FetchStatusRequest, fetch_status};
use base::{AbortCode, Fid, VnodeId, VolumeId};
use bytes::Bytes;
use cell_client::Network;
use cell_client::network::AfsNetwork;
use cellar_config::Settings;
use rx::{Inherited, Server, ServerConfig};
use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::thread;
use std::time::Duration;

/// Number of clients whose calls wait.
const CLIENTS: usize = 20;

/// A file of a volume that does not exist.
const UNKNOWN: Fid = Fid { volume: VolumeId(99), vnode: VnodeId(1), unique: 1 };

/// A loopback address that no other test uses, because the ports are AFS's fixed ones.
fn address(number: u8) -> Ipv4Addr {
    let [_, _, a, b] = std::process::id().to_be_bytes();
    Ipv4Addr::new(127, 64 | number, a, b.clamp(2, 240))
}

fn settings(folder: &Path, address: Ipv4Addr) -> Arc<Settings> {
    let section = format!("[server]\nbind = [\"{address}\"]\n");
    Arc::new(super::settings_with(folder, &section).unwrap())
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
    let address = address(1);
    let (settings, inherited) = (settings(folder.path(), address), sockets(address));
    let clients: Vec<_> = (0..CLIENTS)
        .map(|_| {
            thread::spawn(move || {
                let network = AfsNetwork::start(None).unwrap();
                let connection = network.connect(SocketAddr::from((address, 7000)), 1);
                fetch_status(&*connection, &FetchStatusRequest { fid: UNKNOWN.into() }).map(drop)
            })
        })
        .collect();
    thread::sleep(Duration::from_millis(200));
    let interrupted = AtomicBool::new(false);
    // On a busy machine, calls are served before the start goes on.
    let faults = FaultInjection { port_pause: Duration::from_millis(300), ..FaultInjection::default() };
    let running = start_inheriting(&settings, &faults, &inherited, &interrupted).unwrap();
    for client in clients {
        assert_eq!(client.join().unwrap(), Err(AbortCode::VNOVOL));
    }
    running.stop().unwrap();
}

#[test]
fn an_orderly_end_waits_for_calls_in_progress() {
    let folder = super::prepared();
    let address = address(2);
    let running = start(&settings(folder.path(), address)).unwrap();
    let network = AfsNetwork::start(None).unwrap();
    let connection = network.connect(SocketAddr::from((address, 7000)), 1);
    // The client is known then.
    let request = FetchStatusRequest { fid: UNKNOWN.into() };
    assert_eq!(fetch_status(&*connection, &request).map(drop), Err(AbortCode::VNOVOL));
    let words = [FETCH_STATUS, UNKNOWN.volume.0, UNKNOWN.vnode.0, UNKNOWN.unique];
    let message = Bytes::from(words.map(u32::to_be_bytes).concat());
    let mut call = connection.begin().unwrap();
    call.write(message.slice(..8)).unwrap();
    call.flush().unwrap();
    thread::sleep(Duration::from_millis(300));
    let stopping = thread::spawn(move || running.stop());
    thread::sleep(Duration::from_millis(300));
    call.write(message.slice(8..)).unwrap();
    call.end_request().unwrap();
    assert_eq!(call.read_chunk(usize::MAX), Err(AbortCode::VNOVOL));
    stopping.join().unwrap().unwrap();
}
