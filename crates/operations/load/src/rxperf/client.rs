//! The client: a number of threads, each of which makes a number of consecutive calls.

use super::request::{Request, Step};
use super::result::{Outcome, Packets};
use super::server::skip;
use super::{COOKIE, SERVICE, Tuning, zeros};
use crate::progress::Tally;
use crate::watch::{Watch, local_server};
use afs_idl::{ClientConnection, StreamSource};
use anyhow::{Context, Result, anyhow, ensure};
use base::AbortCode;
use rx::{Client, ClientConfig};
use std::net::SocketAddr;
use std::sync::Arc;
use std::thread::{Scope, ScopedJoinHandle};
use xdr::{Decode, XdrError};

/// Configuration of a client.
#[derive(Clone, Debug)]
pub struct ClientOptions {
    /// Address of the server.
    pub server: SocketAddr,
    /// The request of each call.
    pub request: Request,
    /// Number of concurrent calls.
    pub threads: usize,
    /// Number of calls per thread.
    pub times: u32,
    /// The server's process id, if it is on this machine; determined from its port if `None`.
    pub server_pid: Option<u32>,
    /// Transport settings.
    pub tuning: Tuning,
}

/// Number of threads that share a connection, its maximum number of concurrent calls (RX_MAXCALLS).
const CALLS_PER_CONNECTION: usize = 4;

/// Runs the client.
pub fn run(options: &ClientOptions) -> Result<Outcome> {
    let config = ClientConfig {
        name: "rxperf".into(),
        socket: options.tuning.socket(),
        endpoint: options.tuning.endpoint(),
        ..ClientConfig::default()
    };
    let client = Client::start(&config).context("cannot open a UDP port")?;
    let connections: Vec<Arc<dyn ClientConnection>> = (0..options.threads.div_ceil(CALLS_PER_CONNECTION))
        .map(|_| client.connect(options.server, SERVICE, None))
        .collect();
    let tally = Tally::default();
    let watch = Watch::start(options.server_pid.or_else(|| local_server(options.server)));
    std::thread::scope(|scope| {
        let shower = scope.spawn(|| tally.show("rxperf"));
        let done = call_all(scope, options, &connections, &tally);
        tally.finish();
        shower.thread().unpark();
        done
    })?;
    let used = watch.finish();
    let packets = Packets::of(&client.endpoint_statistics());
    let (calls, bytes, _) = tally.totals();
    Ok(Outcome {
        threads: options.threads,
        times: options.times,
        calls,
        bytes,
        packets,
        limit: used.limit(),
        used,
    })
}

fn call_all<'scope>(
    scope: &'scope Scope<'scope, '_>,
    options: &'scope ClientOptions,
    connections: &'scope [Arc<dyn ClientConnection>],
    tally: &'scope Tally,
) -> Result<()> {
    let work = move |number: usize| {
        let connection = &*connections[number / CALLS_PER_CONNECTION];
        (0..options.times).try_for_each(|_| call(connection, &options.request, tally))
    };
    let threads: Vec<ScopedJoinHandle<'_, Result<()>>> =
        (0..options.threads).map(|number| scope.spawn(move || work(number))).collect();
    let results: Vec<Result<()>> =
        threads.into_iter().map(|thread| thread.join().map_err(|_| anyhow!("a thread panicked"))?).collect();
    results.into_iter().collect()
}

fn call(connection: &dyn ClientConnection, request: &Request, tally: &Tally) -> Result<()> {
    let cookie = try_call(connection, request)
        .map_err(|code| anyhow!("the call failed with {code:?}; is an rxperf server there?"))?;
    ensure!(cookie == COOKIE, "the server ended its answer with {cookie:#x}, not {COOKIE:#x}");
    tally.call(request.work.bytes());
    Ok(())
}

/// Makes one call. Returns the word at the end of the reply.
pub(super) fn try_call(connection: &dyn ClientConnection, request: &Request) -> Result<u32, AbortCode> {
    let mut call = connection.begin()?;
    call.write(xdr::to_vec(request).into())?;
    let steps = request.work.steps();
    for step in &steps {
        if let Step::ToServer(bytes) = step {
            zeros(*bytes, request.write_bytes).try_for_each(|piece| call.write(piece))?;
        }
    }
    call.end_request()?;
    let mut source = StreamSource::new(&mut *call);
    for step in &steps {
        if let Step::FromServer(bytes) = step {
            skip(&mut source, *bytes)?;
        }
    }
    let cookie = if request.work.has_cookie() { cookie(&mut source)? } else { COOKIE };
    call.finish()?;
    Ok(cookie)
}

fn cookie(source: &mut StreamSource<'_>) -> Result<u32, AbortCode> {
    u32::decode(source).map_err(|error| match error {
        XdrError::Source(code) => AbortCode(code),
        _ => AbortCode::RXGEN_CC_UNMARSHAL,
    })
}
