//! What the process tells over HTTP: metrics for Prometheus, and whether it is alive and ready. Only
//! GET and HEAD of three paths, one request a connection, everything bounded; nothing can be changed here.

use super::observed::Observatory;
use anyhow::{Context, Result};
use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Longest head of a request.
const HEAD_BYTES_MAX: usize = 8192;
/// How long a client may take for its request, and for taking the reply.
const CLIENT_TIME: Duration = Duration::from_secs(5);
/// Clients at a time; further ones are turned away.
const CLIENTS_MAX: usize = 16;

/// The open port. Dropped, it is closed.
pub struct Web {
    state: Arc<State>,
    address: SocketAddr,
    thread: Option<JoinHandle<()>>,
}

#[derive(Default)]
struct State {
    /// There once all services answer.
    observatory: OnceLock<Arc<Observatory>>,
    ending: AtomicBool,
    closed: AtomicBool,
    clients: AtomicUsize,
}

/// What is sent back.
#[derive(Debug, PartialEq, Eq)]
struct Reply {
    status: &'static str,
    kind: &'static str,
    body: String,
}

impl Reply {
    fn text(status: &'static str, body: &str) -> Reply {
        Reply { status, kind: "text/plain; charset=utf-8", body: body.to_owned() }
    }
}

impl Web {
    /// Opens the port; until [`Self::ready`] the process is alive, but not ready.
    pub fn open(address: SocketAddr) -> Result<Web> {
        let listener = TcpListener::bind(address)
            .with_context(|| format!("cannot open TCP port {address} for metrics (`metrics.port`)"))?;
        let address = listener.local_addr()?;
        let state = Arc::new(State::default());
        let of_thread = state.clone();
        let thread =
            std::thread::Builder::new().name("web".into()).spawn(move || accept(&listener, &of_thread))?;
        tracing::info!(%address, "metrics");
        Ok(Web { state, address, thread: Some(thread) })
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// All services answer.
    pub fn ready(&self, observatory: &Arc<Observatory>) {
        let _ = self.state.observatory.set(observatory.clone());
    }

    /// The services are about to end: the process is ready no more.
    pub fn ending(&self) {
        self.state.ending.store(true, Ordering::Relaxed);
    }
}

impl Drop for Web {
    fn drop(&mut self) {
        self.state.closed.store(true, Ordering::SeqCst);
        // Wakes the thread.
        let _ = TcpStream::connect_timeout(&self.address, CLIENT_TIME);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn accept(listener: &TcpListener, state: &Arc<State>) {
    for stream in listener.incoming() {
        if state.closed.load(Ordering::SeqCst) {
            return;
        }
        match stream {
            Ok(stream) => serve_beside(stream, state),
            // Too many open files, for instance.
            Err(_) => std::thread::sleep(Duration::from_millis(100)),
        }
    }
}

fn serve_beside(stream: TcpStream, state: &Arc<State>) {
    if state.clients.fetch_add(1, Ordering::Relaxed) >= CLIENTS_MAX {
        state.clients.fetch_sub(1, Ordering::Relaxed);
        return;
    }
    let of_thread = state.clone();
    let serve = move || {
        // A client that goes away is no news.
        let _ = serve_one(stream, &of_thread);
        of_thread.clients.fetch_sub(1, Ordering::Relaxed);
    };
    if std::thread::Builder::new().name("web-client".into()).spawn(serve).is_err() {
        state.clients.fetch_sub(1, Ordering::Relaxed);
    }
}

fn serve_one(mut stream: TcpStream, state: &State) -> std::io::Result<()> {
    stream.set_write_timeout(Some(CLIENT_TIME))?;
    let (reply, with_body) = match read_head(&mut stream)? {
        Some(head) => (answer(&head, state), !head.starts_with(b"HEAD ")),
        None => (Reply::text("431 Request Header Fields Too Large", "too long\n"), true),
    };
    let Reply { status, kind, body } = reply;
    let head = format!(
        "HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {}\r\nCache-Control: no-store\r\n\
         X-Content-Type-Options: nosniff\r\nAllow: GET, HEAD\r\nConnection: close\r\n\r\n",
        body.len()
    );
    stream.write_all(head.as_bytes())?;
    if with_body {
        stream.write_all(body.as_bytes())?;
    }
    stream.flush()
}

/// The request up to its empty line; `None` if that does not come soon enough.
fn read_head(stream: &mut impl ReadFor) -> std::io::Result<Option<Vec<u8>>> {
    let end = Instant::now() + CLIENT_TIME;
    let mut head = Vec::new();
    let mut piece = [0; 1024];
    while !is_whole(&head) {
        let left = end.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(ErrorKind::TimedOut.into());
        }
        match stream.read_for(&mut piece, left)? {
            0 => return Err(ErrorKind::UnexpectedEof.into()),
            count => head.extend_from_slice(&piece[..count]),
        }
        if head.len() > HEAD_BYTES_MAX {
            return Ok(None);
        }
    }
    Ok(Some(head))
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

fn is_whole(head: &[u8]) -> bool {
    head.windows(4).any(|end| end == b"\r\n\r\n") || head.windows(2).any(|end| end == b"\n\n")
}

fn answer(head: &[u8], state: &State) -> Reply {
    let line = head.split(|byte| matches!(byte, b'\r' | b'\n')).next().unwrap_or_default();
    let mut words = line.split(|byte| *byte == b' ');
    let (method, target, version) = (words.next(), words.next(), words.next());
    let is_http = version.is_some_and(|version| version.starts_with(b"HTTP/1.")) && words.next().is_none();
    let (Some(method), Some(target), true) = (method, target, is_http) else {
        return Reply::text("400 Bad Request", "no request of HTTP/1\n");
    };
    if !matches!(method, b"GET" | b"HEAD") {
        return Reply::text("405 Method Not Allowed", "only GET and HEAD\n");
    }
    let path = target.split(|byte| *byte == b'?').next().unwrap_or_default();
    let ready = state.observatory.get().filter(|_| !state.ending.load(Ordering::Relaxed));
    match (path, ready) {
        (b"/healthz", _) => Reply::text("200 OK", "alive\n"),
        (b"/readyz", Some(_)) => Reply::text("200 OK", "ready\n"),
        (b"/metrics", Some(observatory)) => {
            let body = observe::exposition(&**observatory);
            Reply { status: "200 OK", kind: observe::CONTENT_TYPE, body }
        }
        (b"/readyz" | b"/metrics", None) => Reply::text("503 Service Unavailable", "not ready\n"),
        _ => Reply::text("404 Not Found", "there are /metrics, /healthz and /readyz\n"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn status(head: &[u8]) -> &'static str {
        &answer(head, &State::default()).status[..3]
    }

    #[test]
    fn only_what_there_is_is_answered() {
        for (head, expected) in [
            ("GET /healthz HTTP/1.1\r\n\r\n", "200"),
            ("HEAD /healthz?x=1 HTTP/1.0\r\n\r\n", "200"),
            ("GET /readyz HTTP/1.1\r\n\r\n", "503"),
            ("GET /metrics HTTP/1.1\r\n\r\n", "503"),
            ("GET / HTTP/1.1\r\n\r\n", "404"),
            ("GET /../etc/passwd HTTP/1.1\r\n\r\n", "404"),
            ("POST /metrics HTTP/1.1\r\n\r\n", "405"),
            ("GET /metrics\r\n\r\n", "400"),
            ("GET /metrics HTTP/2.0 x\r\n\r\n", "400"),
            ("\r\n\r\n", "400"),
        ] {
            assert_eq!(status(head.as_bytes()), expected, "{head:?}");
        }
    }

    fn ask(web: &Web, request: &[u8]) -> String {
        let mut stream = TcpStream::connect(web.address()).unwrap();
        stream.write_all(request).unwrap();
        let mut reply = Vec::new();
        // What was not read makes the system cut the connection behind the reply.
        let _ = stream.read_to_end(&mut reply);
        String::from_utf8(reply).unwrap()
    }

    #[test]
    fn a_process_that_starts_is_alive_and_not_ready() {
        let web = Web::open(SocketAddr::from(([127, 0, 0, 1], 0))).unwrap();
        let alive = ask(&web, b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n");
        assert!(alive.starts_with("HTTP/1.1 200 OK\r\n") && alive.ends_with("\r\n\r\nalive\n"), "{alive}");
        assert!(ask(&web, b"GET /readyz HTTP/1.1\n\n").starts_with("HTTP/1.1 503 "));
        let head = ask(&web, b"HEAD /healthz HTTP/1.1\r\n\r\n");
        assert!(head.contains("Content-Length: 6\r\n") && head.ends_with("\r\n\r\n"), "{head}");
        drop(web);
    }

    /// Gives a client's bytes in pieces.
    struct Pieces(Vec<Vec<u8>>);

    impl ReadFor for Pieces {
        fn read_for(&mut self, buffer: &mut [u8], _: Duration) -> std::io::Result<usize> {
            if self.0.is_empty() {
                return Ok(0);
            }
            let piece = self.0.remove(0);
            let count = piece.len().min(buffer.len());
            buffer[..count].copy_from_slice(&piece[..count]);
            Ok(count)
        }
    }

    #[test]
    fn heads_are_bounded() {
        let long = vec![vec![b'x'; 1000]; 1000];
        assert_eq!(read_head(&mut Pieces(long)).unwrap(), None);
        assert!(read_head(&mut Pieces(vec![b"GET / HT".to_vec()])).is_err());
        let pieces = vec![b"GET / HTTP/1.1\r\n\r".to_vec(), b"\n".to_vec()];
        assert_eq!(read_head(&mut Pieces(pieces)).unwrap().unwrap(), b"GET / HTTP/1.1\r\n\r\n");
    }

    proptest! {
        #[test]
        fn any_bytes_are_answered(head in proptest::collection::vec(any::<u8>(), 0..200)) {
            prop_assert!(status(&head).parse::<u16>().is_ok());
        }
    }
}
