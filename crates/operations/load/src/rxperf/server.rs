//! The server, which sends and receives data as requested.

use super::request::{REFUSED, Request, Step};
use super::{COOKIE, PIECE_BYTES_MAX, SERVICE, Tuning, zeros};
use afs_idl::{CallStream, StreamSource};
use anyhow::{Context, Result};
use base::AbortCode;
use rx::{Server, ServerCall, ServerConfig, Service, ServiceConfig, ServiceEntry};
use rx_security::{Null, ServerSecurity};
use std::sync::Arc;

/// Configuration of a server.
#[derive(Clone, Debug)]
pub struct ServerOptions {
    /// Port to listen on; 0 selects a free one.
    pub port: u16,
    /// Number of threads that are always running.
    pub threads_min: usize,
    /// Maximum number of calls served at a time.
    pub threads_max: usize,
    /// Number of receiving threads; `None` is one per processor, at most four.
    pub lanes: Option<usize>,
    /// Transport settings.
    pub tuning: Tuning,
}

/// Starts a server, which runs until the result is dropped.
pub fn serve(options: &ServerOptions) -> Result<Server> {
    let default = ServerConfig::default();
    let config = ServerConfig {
        name: "rxperf".into(),
        port: options.port,
        lanes: options.lanes.unwrap_or(default.lanes),
        workers_min: options.threads_min,
        workers_max: options.threads_max,
        socket: options.tuning.socket(),
        endpoint: options.tuning.endpoint(),
        ..default
    };
    let security: Vec<Arc<dyn ServerSecurity>> = vec![Arc::new(Null)];
    let entry = ServiceEntry {
        config: ServiceConfig { id: SERVICE, name: "rxperf".into(), security },
        service: Arc::new(Perf),
    };
    Server::start(&config, vec![entry]).with_context(|| format!("cannot serve at UDP port {}", options.port))
}

/// The rxperf service.
#[derive(Clone, Copy, Debug)]
pub struct Perf;

impl Service for Perf {
    fn serve(&self, call: &mut ServerCall) -> Result<(), AbortCode> {
        answer(call)
    }
}

/// Serves one call.
pub(super) fn answer(call: &mut dyn CallStream) -> Result<(), AbortCode> {
    let mut source = StreamSource::new(call);
    let request = Request::read(&mut source)?;
    for step in request.work.steps() {
        match step {
            Step::ToServer(bytes) => skip(&mut source, bytes)?,
            Step::FromServer(bytes) => {
                zeros(bytes, request.write_bytes).try_for_each(|piece| source.write(piece))?;
            }
        }
    }
    if request.work.has_cookie() {
        source.write(COOKIE.to_be_bytes().to_vec().into())?;
    }
    Ok(())
}

/// Reads this number of bytes; fails if there are fewer.
pub(super) fn skip(stream: &mut dyn CallStream, bytes: u64) -> Result<(), AbortCode> {
    let mut left = bytes;
    while left > 0 {
        match stream.read_chunk(left.min(u64::from(PIECE_BYTES_MAX)) as usize)?.len() {
            0 => return Err(REFUSED),
            read => left -= read as u64,
        }
    }
    Ok(())
}
