//! HTTP/1.1, as little of it as metrics and the page need: one request a connection, everything bounded.

use crate::clients::{Client, Clients};
use crate::request::{Method, Request};
use std::io::{ErrorKind, Read, Write};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Longest head of a request.
const HEAD_BYTES_MAX: usize = 8192;
/// Most bytes behind it.
const BODY_BYTES_MAX: usize = 4096;
/// How long a client may take for its request, head and body together.
const REQUEST_TIME: Duration = Duration::from_secs(5);
/// How long it may take for the reply, and for each piece of it.
const REPLY_TIME: Duration = Duration::from_secs(30);
const PIECE_TIME: Duration = Duration::from_secs(5);
/// Bytes of a piece.
const PIECE_BYTES: usize = 16 << 10;

/// Who answers requests, in any thread.
pub trait Handler: Send + Sync + 'static {
    /// The answer. For HEAD, what GET would get; the body is left out.
    fn answer(&self, request: &Request) -> Reply;

    /// Whether many clients come from this address, as those of a proxy or a tunnel do.
    fn is_shared(&self, peer: IpAddr) -> bool {
        peer.to_canonical().is_loopback()
    }
}

/// What is sent back.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reply {
    /// Number and words.
    pub status: &'static str,
    /// The type of the body.
    pub kind: &'static str,
    /// Further headers. Names and values are the program's own, without line ends.
    pub headers: Vec<(&'static str, String)>,
    /// The body.
    pub body: Vec<u8>,
}

impl Reply {
    /// A reply of some type.
    pub fn new(status: &'static str, kind: &'static str, body: impl Into<Vec<u8>>) -> Reply {
        Reply { status, kind, headers: Vec::new(), body: body.into() }
    }

    /// A few words.
    pub fn text(status: &'static str, body: &str) -> Reply {
        Reply::new(status, "text/plain; charset=utf-8", body)
    }

    /// With one more header.
    #[must_use]
    pub fn with(mut self, name: &'static str, value: impl Into<String>) -> Reply {
        self.headers.push((name, value.into()));
        self
    }

    fn head(&self) -> String {
        let mut head = format!(
            "HTTP/1.1 {}\r\nContent-Type: {}\r\nContent-Length: {}\r\nCache-Control: no-store\r\n\
             X-Content-Type-Options: nosniff\r\nConnection: close\r\n",
            self.status,
            self.kind,
            self.body.len()
        );
        for (name, value) in &self.headers {
            head.extend([name, ": ", value, "\r\n"]);
        }
        head + "\r\n"
    }
}

/// An open port. Dropped, it is closed.
pub struct Server {
    closed: Arc<AtomicBool>,
    address: SocketAddr,
    thread: Option<JoinHandle<()>>,
}

impl Server {
    /// Opens the port.
    pub fn open(address: SocketAddr, handler: Arc<dyn Handler>) -> std::io::Result<Server> {
        let listener = TcpListener::bind(address)?;
        let address = listener.local_addr()?;
        let closed = Arc::new(AtomicBool::new(false));
        let of_thread = closed.clone();
        let accept = move || accept(&listener, &of_thread, &handler);
        let thread = Some(std::thread::Builder::new().name("web".into()).spawn(accept)?);
        Ok(Server { closed, address, thread })
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.closed.store(true, Ordering::SeqCst);
        // Wakes the thread.
        let _ = TcpStream::connect_timeout(&self.address, REQUEST_TIME);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn accept(listener: &TcpListener, closed: &AtomicBool, handler: &Arc<dyn Handler>) {
    let clients = Arc::new(Clients::default());
    for stream in listener.incoming() {
        if closed.load(Ordering::SeqCst) {
            return;
        }
        match stream {
            Ok(stream) => serve_beside(stream, handler, &clients),
            // Too many open files, for instance.
            Err(_) => std::thread::sleep(Duration::from_millis(100)),
        }
    }
}

fn serve_beside(stream: TcpStream, handler: &Arc<dyn Handler>, clients: &Arc<Clients>) {
    let Ok(client) = clients.admit(&stream, |peer| handler.is_shared(peer)) else { return };
    let handler = handler.clone();
    let serve = move || {
        // A client that goes away is no news.
        let _ = serve_one(stream, &*handler, &client);
    };
    // Without a thread the client is turned away.
    let _ = std::thread::Builder::new().name("web-client".into()).spawn(serve);
}

fn serve_one(mut stream: TcpStream, handler: &dyn Handler, client: &Client) -> std::io::Result<()> {
    let peer = stream.peer_addr()?.ip().to_canonical();
    let end = Instant::now() + REQUEST_TIME;
    let (reply, with_body) = match read_head(&mut stream, end)? {
        None => (Reply::text("431 Request Header Fields Too Large", "too long\n"), true),
        Some((head, begun)) => match Request::parse(&head, peer) {
            Err(refusal) => (refusal, true),
            Ok(mut request) => {
                let refusal = read_body(&mut stream, &mut request, begun, end)?.err();
                client.has_asked();
                let with_body = request.method != Method::Head;
                (refusal.unwrap_or_else(|| handler.answer(&request)), with_body)
            }
        },
    };
    let mut bytes = reply.head().into_bytes();
    if with_body {
        bytes.extend(reply.body);
    }
    send(&mut stream, &bytes)
}

fn send(stream: &mut TcpStream, bytes: &[u8]) -> std::io::Result<()> {
    stream.set_write_timeout(Some(PIECE_TIME))?;
    let end = Instant::now() + REPLY_TIME;
    for piece in bytes.chunks(PIECE_BYTES) {
        if Instant::now() > end {
            return Err(ErrorKind::TimedOut.into());
        }
        stream.write_all(piece)?;
    }
    stream.flush()
}

/// The request up to its empty line, and what came behind it already; `None` if it is too long.
fn read_head(stream: &mut impl ReadFor, end: Instant) -> std::io::Result<Option<(Vec<u8>, Vec<u8>)>> {
    let mut head = Vec::new();
    loop {
        if let Some(length) = head_length(&head) {
            let begun = head.split_off(length);
            return Ok(Some((head, begun)));
        }
        if head.len() > HEAD_BYTES_MAX {
            return Ok(None);
        }
        read_more(stream, &mut head, end)?;
    }
}

/// What follows the head; what to answer if it cannot be taken.
fn read_body(
    stream: &mut impl ReadFor,
    request: &mut Request,
    begun: Vec<u8>,
    end: Instant,
) -> std::io::Result<Result<(), Reply>> {
    let length = match request.body_length() {
        Ok(length) if length > BODY_BYTES_MAX => {
            return Ok(Err(Reply::text("413 Content Too Large", "too long\n")));
        }
        Ok(length) => length,
        Err(refusal) => return Ok(Err(refusal)),
    };
    request.body = begun;
    while request.body.len() < length {
        read_more(stream, &mut request.body, end)?;
    }
    request.body.truncate(length);
    Ok(Ok(()))
}

fn read_more(stream: &mut impl ReadFor, into: &mut Vec<u8>, end: Instant) -> std::io::Result<()> {
    let left = end.saturating_duration_since(Instant::now());
    if left.is_zero() {
        return Err(ErrorKind::TimedOut.into());
    }
    let mut piece = [0; 1024];
    match stream.read_for(&mut piece, left)? {
        0 => Err(ErrorKind::UnexpectedEof.into()),
        count => {
            into.extend_from_slice(&piece[..count]);
            Ok(())
        }
    }
}

/// A source that waits only so long.
trait ReadFor {
    fn read_for(&mut self, buffer: &mut [u8], limit: Duration) -> std::io::Result<usize>;
}

impl ReadFor for TcpStream {
    fn read_for(&mut self, buffer: &mut [u8], limit: Duration) -> std::io::Result<usize> {
        self.set_read_timeout(Some(limit))?;
        self.read(buffer)
    }
}

/// The length of the head with its empty line, if that has come.
fn head_length(bytes: &[u8]) -> Option<usize> {
    let end = |mark: &[u8]| bytes.windows(mark.len()).position(|part| part == mark).map(|at| at + mark.len());
    [end(b"\r\n\r\n"), end(b"\n\n")].into_iter().flatten().min()
}

#[cfg(test)]
mod tests;
