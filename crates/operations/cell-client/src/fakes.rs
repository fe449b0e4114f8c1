//! Database servers without a network, for tests: each server's answers and failures can be set.

pub mod behind;

use super::patience::Patience;
use super::{CellClient, Network};
use afs_idl::{ClientConnection, MemoryConnection, MemoryStream};
use base::AbortCode;
use parking_lot::Mutex;
use std::collections::HashMap;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

/// Serves one call to a service of the server at an address.
type Serve = dyn Fn(Ipv4Addr, u16, &mut MemoryStream) -> Result<(), AbortCode> + Send + Sync;

/// Servers that share one handler; some can be made to fail.
pub struct Fakes {
    serve: Box<Serve>,
    /// Is called with the server of each call, also of those that fail.
    watch: Box<dyn Fn(Ipv4Addr) + Send + Sync>,
    failing: Mutex<HashMap<Ipv4Addr, AbortCode>>,
    calls: AtomicUsize,
}

impl Fakes {
    /// Creates servers whose calls are handled by `serve`.
    pub fn new(
        serve: impl Fn(Ipv4Addr, u16, &mut MemoryStream) -> Result<(), AbortCode> + Send + Sync + 'static,
    ) -> Arc<Fakes> {
        Fakes::recording(serve, |_| ())
    }

    /// Creates servers like [`new`](Self::new), and calls `watch` with the server of each call, also of those that fail.
    pub fn recording(
        serve: impl Fn(Ipv4Addr, u16, &mut MemoryStream) -> Result<(), AbortCode> + Send + Sync + 'static,
        watch: impl Fn(Ipv4Addr) + Send + Sync + 'static,
    ) -> Arc<Fakes> {
        let (serve, watch) = (Box::new(serve), Box::new(watch));
        Arc::new(Fakes { serve, watch, failing: Mutex::default(), calls: AtomicUsize::new(0) })
    }

    /// Makes every later call to this server fail with `code`; `None` ends the failure.
    pub fn fail(&self, server: Ipv4Addr, code: Option<AbortCode>) {
        match code {
            Some(code) => self.failing.lock().insert(server, code),
            None => self.failing.lock().remove(&server),
        };
    }

    /// Returns the number of calls since the last query.
    pub fn calls(&self) -> usize {
        self.calls.swap(0, Relaxed)
    }

    /// Returns a client of the cell with the servers 10.0.0.1 to 10.0.0.`count`, which repeats no refused call.
    pub fn cell(self: &Arc<Self>, count: u8) -> Arc<CellClient> {
        Arc::new(self.client(count).with_patience(Patience::NONE, |_| ()))
    }

    /// Returns a client of the cell with the servers 10.0.0.1 to 10.0.0.`count`.
    pub fn client(self: &Arc<Self>, count: u8) -> CellClient {
        let servers = (1..=count).map(server).collect();
        CellClient::new(Arc::new(FakeNetwork(self.clone())), servers).unwrap()
    }
}

/// Returns the address of a server.
pub fn server(number: u8) -> Ipv4Addr {
    Ipv4Addr::new(10, 0, 0, number)
}

struct FakeNetwork(Arc<Fakes>);

impl Network for FakeNetwork {
    fn connect(&self, address: SocketAddr, service: u16) -> Arc<dyn ClientConnection> {
        let fakes = self.0.clone();
        Arc::new(MemoryConnection::new(address, 1444, move |stream| {
            let IpAddr::V4(address) = address.ip() else { return Err(AbortCode::RX_CALL_DEAD) };
            fakes.calls.fetch_add(1, Relaxed);
            (fakes.watch)(address);
            if let Some(code) = fakes.failing.lock().get(&address) {
                return Err(*code);
            }
            (fakes.serve)(address, service, stream)
        }))
    }
}
