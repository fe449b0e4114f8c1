//! Shared support for tests of whole cells. A [`place::Place`] is the directory of a server, for running the
//! program's commands and calling its services; a [`cell::Cell`] runs its server in the test's own process, a
//! [`process::Process`] in a separate process that can be killed. A new test starts with one of them:
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

/// Time limit for waiting; on a working machine, conditions are met long before.
pub(crate) const PATIENCE: Duration = Duration::from_secs(120);

/// Polls until `look` returns a value; `what` names it in the failure message.
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

/// Sets a flag when dropped, however the test ends.
pub(crate) struct Over<'a>(pub(crate) &'a AtomicBool);

impl Drop for Over<'_> {
    fn drop(&mut self) {
        self.0.store(true, Relaxed);
    }
}

/// Returns incompressible bytes.
pub(crate) fn noise(length: usize) -> Bytes {
    (0..length).map(|_| rand::random::<u8>()).collect()
}

/// Requests the status of a file, which must exist.
pub(crate) fn look(connection: &dyn ClientConnection, fid: Fid) {
    rxafs::fetch_status(connection, &rxafs::FetchStatusRequest { fid }).unwrap();
}

/// Returns the HTTP response of a port, including its headers.
pub(crate) fn get(address: SocketAddr, path: &str) -> std::io::Result<String> {
    let mut stream = TcpStream::connect(address)?;
    write!(stream, "GET {path} HTTP/1.1\r\nHost: {address}\r\n\r\n")?;
    let mut reply = String::new();
    stream.read_to_string(&mut reply)?;
    Ok(reply)
}

/// Returns the number of a metric, given with its labels, in the text of all metrics.
pub(crate) fn figure(metrics: &str, name: &str) -> Option<u64> {
    let row = metrics.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '))?;
    Some(row.parse().unwrap())
}

/// Starts a service at this address and port: a client that answers callbacks, or a fake file server.
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
