//! `cellar server`.

use super::Context;
use crate::output::{Row, line};
use afs_idl::ClientConnection;
use afs_idl::cellar::{
    self, GetServerInfoReply, GetServerInfoRequest, GetTransportReply, GetTransportRequest, LoggedEvent,
    SetLoggedEventsRequest,
};
use anyhow::{Error, Result};
use base::PartitionId;
use cell_client::Interface;
use cell_client::describe::failed;
use cellar_config::EVENT_LINES_PER_SECOND;
use clap::{Args, Subcommand};
use doctor::network::{MORE_BUFFER, small_buffers};
use events::lines::{Choice, PER_SECOND};
use indicatif::{HumanBytes, HumanDuration};
use serde::Serialize;
use std::net::Ipv4Addr;
use std::time::Duration;

/// Show or change the state of a running server.
#[derive(Subcommand)]
pub enum Server {
    /// Show the state of a Cellar server: version, start time, waiting calls, lost datagrams and their
    /// remedies, partitions.
    Status(On),
    /// Choose the events that the server logs until it stops: call, disk, lock, callback, packet, cache, all;
    /// with a minimum duration as in disk=10ms. For superusers.
    LogEvents(LogEvents),
}

/// Choose the events that the server logs.
#[derive(Args)]
pub struct LogEvents {
    /// Events to log; without any, event logging is turned off.
    events: Vec<String>,
    /// Maximum number of lines per second; excess lines are dropped and counted.
    #[arg(long, default_value_t = EVENT_LINES_PER_SECOND)]
    per_second: u32,
    #[command(flatten)]
    on: On,
}

/// Server to query.
#[derive(Args)]
pub struct On {
    /// File server to query; defaults to the one in this machine's configuration, or else the first database
    /// server.
    #[arg(long)]
    on: Option<Ipv4Addr>,
}

#[derive(Serialize)]
struct Status {
    server: Ipv4Addr,
    version: String,
    started: u32,
    running_seconds: u32,
    partitions: Vec<Partition>,
    transport: Option<Transport>,
}

/// State of the file server's port.
#[derive(Serialize)]
struct Transport {
    sockets: u32,
    buffer_kib: u64,
    buffer_wanted_kib: u64,
    datagrams_dropped: u64,
    machine_datagrams_dropped: u64,
    calls_waiting: u32,
    calls_arrived: u64,
    calls_refused: u64,
    workers_busy: u32,
    worker_threads: u32,
    advice: Option<String>,
}

#[derive(Serialize)]
struct Partition {
    name: String,
    total_kib: u64,
    free_kib: u64,
}

impl Row for Partition {
    const COLUMNS: &'static [&'static str] = &["PARTITION", "SIZE", "FREE"];

    fn cells(&self) -> Vec<String> {
        let bytes = |kib: u64| HumanBytes(kib.saturating_mul(1024)).to_string();
        vec![self.name.clone(), bytes(self.total_kib), bytes(self.free_kib)]
    }
}

/// Runs the command.
pub fn run(context: &Context, command: &Server) -> Result<()> {
    match command {
        Server::Status(on) => status(context, on),
        Server::LogEvents(wanted) => log_events(context, wanted),
    }
}

fn log_events(context: &Context, wanted: &LogEvents) -> Result<()> {
    // Reports a clearer error than the server's abort code.
    Choice::parse(wanted.events.iter().map(String::as_str)).map_err(Error::msg)?;
    let client = context.client()?;
    let server = wanted.on.on.unwrap_or_else(|| context.default_server(&client));
    let connection = client.connection(server, Interface::Cellar);
    let events = wanted.events.iter().map(|word| LoggedEvent { word: word.as_str().into() }).collect();
    let request = SetLoggedEventsRequest { events, per_second: wanted.per_second };
    cellar::set_logged_events(&*connection, &request).map_err(failed(format!(
        "choose what {server} logs (only on Cellar servers, only as a superuser, for 1 to {} lines per \
        second)",
        PER_SECOND.end()
    )))?;
    let said = match wanted.events.join(", ") {
        none if none.is_empty() => format!("{server} logs no events"),
        events => {
            format!("{server} logs {events}, at most {} lines per second, until it stops", wanted.per_second)
        }
    };
    context.format.done(&wanted.events, &said)
}

fn status(context: &Context, on: &On) -> Result<()> {
    let client = context.client()?;
    let server = on.on.unwrap_or_else(|| context.default_server(&client));
    let connection = client.connection(server, Interface::Cellar);
    let info = cellar::get_server_info(&*connection, &GetServerInfoRequest)
        .map_err(failed(format!("get information about {server} (only from Cellar servers)")))?;
    let status = Status { transport: transport(&*connection), ..Status::new(server, &info) };
    if context.format == crate::output::Format::Json {
        return context.format.done(&status, "");
    }
    let running = HumanDuration(Duration::from_secs(status.running_seconds.into()));
    line(format!("{server}: {}, running for {running}", status.version))?;
    if let Some(transport) = &status.transport {
        transport.lines().into_iter().try_for_each(line)?;
    }
    context.format.rows(&status.partitions)
}

/// `None` if the server's version does not report it.
fn transport(connection: &dyn ClientConnection) -> Option<Transport> {
    cellar::get_transport(connection, &GetTransportRequest).ok().map(|reply| Transport::from(&reply))
}

impl From<&GetTransportReply> for Transport {
    fn from(reply: &GetTransportReply) -> Transport {
        Transport {
            sockets: reply.sockets,
            buffer_kib: reply.buffer_kib,
            buffer_wanted_kib: reply.buffer_wanted_kib,
            datagrams_dropped: reply.dropped,
            machine_datagrams_dropped: reply.machine_dropped,
            calls_waiting: reply.waiting,
            calls_arrived: reply.arrived,
            calls_refused: reply.refused,
            workers_busy: reply.busy,
            worker_threads: reply.threads,
            advice: small_buffers(reply.buffer_kib, reply.buffer_wanted_kib)
                .or_else(|| (reply.dropped > 0).then(|| String::from(MORE_BUFFER))),
        }
    }
}

impl Transport {
    fn lines(&self) -> Vec<String> {
        let Transport { sockets, buffer_kib, datagrams_dropped, machine_datagrams_dropped, .. } = self;
        let mut lines = vec![
            format!(
                "calls: {} arrived, {} waiting, {} refused as busy; {} of {} threads at work",
                self.calls_arrived,
                self.calls_waiting,
                self.calls_refused,
                self.workers_busy,
                self.worker_threads
            ),
            format!(
                "receive buffers: {sockets} of {buffer_kib} KiB; {datagrams_dropped} datagrams dropped, \
                 {machine_datagrams_dropped} on the whole machine"
            ),
        ];
        lines.extend(self.advice.iter().map(|advice| format!("advice: {advice}")));
        lines
    }
}

impl Status {
    fn new(server: Ipv4Addr, info: &GetServerInfoReply) -> Status {
        let name = |id| PartitionId::from_index(id).map_or_else(|| id.to_string(), |id| id.to_string());
        let partitions = info.partitions.iter().map(|partition| Partition {
            name: name(partition.id),
            total_kib: partition.total_kib,
            free_kib: partition.free_kib,
        });
        Status {
            server,
            version: info.version.to_string(),
            started: info.started,
            running_seconds: info.now.saturating_sub(info.started),
            partitions: partitions.collect(),
            transport: None,
        }
    }
}
