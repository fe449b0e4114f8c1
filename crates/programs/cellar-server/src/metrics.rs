//! HTTP endpoint for programs: metrics for Prometheus, and the state of the process (alive, ready). Three
//! read-only paths.

use super::observed::Observatory;
use anyhow::{Context, Result};
use rx::ports::{self, Transport};
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use web::{Handler, Method, Reply, Request, Server};

/// The open port; dropping it closes the port.
pub struct Metrics {
    state: Arc<State>,
    server: Server,
}

#[derive(Default)]
struct State {
    /// Set once all services answer.
    observatory: OnceLock<Arc<Observatory>>,
    ending: AtomicBool,
}

impl Metrics {
    /// Opens the port. Until [`Self::ready`] the process is alive, but not ready.
    pub fn open(address: SocketAddr) -> Result<Metrics> {
        let state = Arc::new(State::default());
        let server = Server::open(address, state.clone())
            .map_err(|error| ports::name_holder(error, Transport::Tcp, address))
            .with_context(|| format!("cannot open TCP port {address} for metrics (`metrics.port`)"))?;
        tracing::info!(address = %server.address(), "metrics");
        Ok(Metrics { state, server })
    }

    /// Returns the address it listens on.
    pub fn address(&self) -> SocketAddr {
        self.server.address()
    }

    /// Reports the process as ready; to be called once all services answer.
    pub fn ready(&self, observatory: &Arc<Observatory>) {
        let _ = self.state.observatory.set(observatory.clone());
    }

    /// Reports the process as no longer ready, before the services end.
    pub fn ending(&self) {
        self.state.ending.store(true, Ordering::Relaxed);
    }
}

impl Handler for State {
    fn answer(&self, request: &Request) -> Reply {
        if request.method == Method::Post {
            return Reply::text("405 Method Not Allowed", "only GET and HEAD\n").with("Allow", "GET, HEAD");
        }
        let ready = self.observatory.get().filter(|_| !self.ending.load(Ordering::Relaxed));
        match (request.path.as_str(), ready) {
            ("/healthz", _) => Reply::text("200 OK", "alive\n"),
            ("/readyz", Some(_)) => Reply::text("200 OK", "ready\n"),
            ("/metrics", Some(observatory)) => {
                Reply::new("200 OK", observe::CONTENT_TYPE, observe::exposition(&**observatory))
            }
            ("/readyz" | "/metrics", None) => Reply::text("503 Service Unavailable", "not ready\n"),
            _ => Reply::text("404 Not Found", "there are /metrics, /healthz and /readyz\n"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read, Write};
    use std::net::TcpStream;

    #[test]
    fn only_existing_paths_are_served() {
        for (line, expected) in [
            ("GET /healthz", "200"),
            ("HEAD /healthz?x=1", "200"),
            ("GET /readyz", "503"),
            ("GET /metrics", "503"),
            ("GET /", "404"),
            ("GET /../etc/passwd", "404"),
            ("POST /metrics", "405"),
        ] {
            let head = format!("{line} HTTP/1.1\r\n\r\n");
            let request = Request::parse(head.as_bytes(), [127, 0, 0, 1].into()).unwrap();
            assert_eq!(&State::default().answer(&request).status[..3], expected, "{line}");
        }
    }

    fn ask(metrics: &Metrics, request: &[u8]) -> String {
        let mut stream = TcpStream::connect(metrics.address()).unwrap();
        stream.write_all(request).unwrap();
        let mut reply = String::new();
        stream.read_to_string(&mut reply).unwrap();
        reply
    }

    #[test]
    fn a_process_that_starts_is_alive_and_not_ready() {
        let metrics = Metrics::open(SocketAddr::from(([127, 0, 0, 1], 0))).unwrap();
        let alive = ask(&metrics, b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n");
        assert!(alive.starts_with("HTTP/1.1 200 OK\r\n") && alive.ends_with("\r\n\r\nalive\n"), "{alive}");
        assert!(ask(&metrics, b"GET /readyz HTTP/1.1\n\n").starts_with("HTTP/1.1 503 "));
        let head = ask(&metrics, b"HEAD /healthz HTTP/1.1\r\n\r\n");
        assert!(head.contains("Content-Length: 6\r\n") && head.ends_with("\r\n\r\n"), "{head}");
    }
}
