//! A small server of objects behind TLS, on loopback, for tests of clients. It knows no S3 beyond GET, HEAD and PUT of
//! whole objects, and counts what arrives: a client that does not trust its certificate must send nothing but its
//! part of the handshake.

mod certificates;
mod serving;

pub use certificates::Identity;

use certificates::Authority;
use parking_lot::Mutex;
use std::collections::{HashMap, VecDeque};
use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;

/// What a client sees of a server, and the server of its clients. Threads of the server end with the process.
pub struct TlsServer {
    address: SocketAddr,
    authority: Authority,
    shared: Arc<Shared>,
}

/// What the threads of a server share.
#[derive(Default)]
struct Shared {
    /// Guards what arrived.
    arrived: Mutex<Arrived>,
    /// Guards the objects, by path.
    objects: Mutex<HashMap<String, Vec<u8>>>,
    /// Guards the answer to all requests, if it is always the same.
    answer: Mutex<Option<(String, String)>>,
    /// Guards the faults of the next answers.
    faults: Mutex<VecDeque<Fault>>,
}

/// What happens to one request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// It is not carried out, and answered with this status, like `429 Too Many Requests`.
    Refused(&'static str),
    /// The connection ends after half of the answer's body.
    CutShort,
    /// It is carried out, and the connection ends without an answer.
    Lost,
}

/// What arrived at a server so far.
#[derive(Clone, Debug, Default)]
pub struct Arrived {
    /// Connections.
    pub connections: u32,
    /// Connections whose handshake the client completed.
    pub handshakes: u32,
    /// The heads of requests.
    pub requests: Vec<String>,
    /// Bytes outside of TLS, of an [`Identity::None`].
    pub clear: Vec<u8>,
}

impl TlsServer {
    /// Starts a server at a free port of 127.0.0.1, with an authority of its own.
    ///
    /// # Panics
    /// If there is no port, or no certificate can be made.
    pub fn start(identity: Identity) -> TlsServer {
        let authority = Authority::new();
        let shared = Arc::<Shared>::default();
        let listener = TcpListener::bind("127.0.0.1:0").expect("there is a free port");
        let address = listener.local_addr().expect("a bound socket has an address");
        let tls = authority.server(identity);
        let serving = Arc::clone(&shared);
        std::thread::spawn(move || serving::accept(&listener, tls.as_ref(), &serving));
        TlsServer { address, authority, shared }
    }

    /// Returns the address for clients, like `https://127.0.0.1:4433`.
    pub fn endpoint(&self) -> String {
        format!("https://{}", self.address)
    }

    /// Returns the certificate of the authority, in PEM.
    pub fn authority(&self) -> String {
        self.authority.pem()
    }

    /// Answers each further request with this status, like `403 Forbidden`, and this body.
    pub fn always_answer(&self, status: &str, body: &str) {
        *self.shared.answer.lock() = Some((status.to_owned(), body.to_owned()));
    }

    /// Lets this happen to the next requests, in this order.
    pub fn fail_next(&self, faults: impl IntoIterator<Item = Fault>) {
        self.shared.faults.lock().extend(faults);
    }

    /// Returns what arrived so far.
    pub fn arrived(&self) -> Arrived {
        self.shared.arrived.lock().clone()
    }
}
