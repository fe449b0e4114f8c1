//! What tests of whole cells share. A [`place::Place`] is the folder of a server, with which the program's commands are run
//! and its services called; a [`cell::Cell`] is one whose server runs in the test's own process, a [`process::Process`] one
//! whose server is a process that can be killed. A new test begins with one of them:
//!
//! ```text
//! mod support;
//! let cell = Cell::start("[observe]\nslow_call_ms = 1\n");
//! let root = cell.volume("load");
//! ```

#![allow(dead_code, reason = "every test program uses some of it")]

pub(crate) mod cell;
pub(crate) mod locations;
pub(crate) mod place;
pub(crate) mod process;
pub(crate) mod profiles;
pub(crate) mod shown;
pub(crate) mod terminal;

use afs_idl::{ClientConnection, fs as rxafs};
use bytes::Bytes;
use load::files::Fid;
use load::station::FILE_SERVICE;
use rx::{Server, ServerConfig, Service, ServiceConfig, ServiceEntry};
use rx_security::Null;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread;
use std::time::{Duration, Instant};

/// What is waited for comes long before this, on a machine that is not broken.
pub(crate) const PATIENCE: Duration = Duration::from_secs(120);

/// What comes a moment later, which `what` names.
pub(crate) fn soon<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let deadline = Instant::now() + PATIENCE;
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(Instant::now() < deadline, "{what}");
        thread::sleep(Duration::from_millis(20));
    }
}

/// Says when it is dropped that something is over, however the test ends.
pub(crate) struct Over<'a>(pub(crate) &'a AtomicBool);

impl Drop for Over<'_> {
    fn drop(&mut self) {
        self.0.store(true, Relaxed);
    }
}

/// Bytes that cannot be compressed.
pub(crate) fn noise(length: usize) -> Bytes {
    (0..length).map(|_| rand::random::<u8>()).collect()
}

/// Asks for a file's status, which is there.
pub(crate) fn look(connection: &dyn ClientConnection, fid: Fid) {
    rxafs::fetch_status(connection, &rxafs::FetchStatusRequest { fid }).unwrap();
}

/// The reply of a port that talks HTTP, with its head.
pub(crate) fn get(address: SocketAddr, path: &str) -> std::io::Result<String> {
    let mut stream = TcpStream::connect(address)?;
    write!(stream, "GET {path} HTTP/1.1\r\nHost: {address}\r\n\r\n")?;
    let mut reply = String::new();
    stream.read_to_string(&mut reply)?;
    Ok(reply)
}

/// The number of a metric, with its labels, in a text of them.
pub(crate) fn figure(metrics: &str, name: &str) -> Option<u64> {
    let row = metrics.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '))?;
    Some(row.parse().unwrap())
}

/// A client that answers callbacks, or a file server, at this address and port, whatever a test wants it to be.
pub(crate) fn serve(address: Ipv4Addr, port: u16, service: impl Service + 'static) -> Server {
    let config = ServerConfig {
        addresses: vec![address.into()],
        port,
        lanes: 1,
        workers_min: 1,
        workers_max: 4,
        ..ServerConfig::default()
    };
    let entry = ServiceConfig { id: FILE_SERVICE, name: "test".into(), security: vec![Arc::new(Null)] };
    Server::start(&config, vec![ServiceEntry { config: entry, service: Arc::new(service) }]).unwrap()
}
