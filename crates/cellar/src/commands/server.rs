//! `cellar server`.

use super::Context;
use crate::client::Interface;
use crate::client::describe::failed;
use crate::output::{Row, line};
use afs_idl::cellar::{self, GetServerInfoReply, GetServerInfoRequest};
use anyhow::Result;
use base::PartitionId;
use clap::{Args, Subcommand};
use indicatif::{HumanBytes, HumanDuration};
use serde::Serialize;
use std::net::Ipv4Addr;
use std::time::Duration;

/// Servers.
#[derive(Subcommand)]
pub enum Server {
    /// Show what a Cellar server is: its version, since when it runs, its partitions.
    Status(On),
}

/// Which server.
#[derive(Args)]
pub struct On {
    /// The file server; the first database server if left out.
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

/// Runs a command.
pub fn run(context: &Context, command: &Server) -> Result<()> {
    match command {
        Server::Status(on) => status(context, on),
    }
}

fn status(context: &Context, on: &On) -> Result<()> {
    let client = context.client()?;
    let server = on.on.unwrap_or_else(|| client.default_server());
    let connection = client.connection(server, Interface::Cellar);
    let info = cellar::get_server_info(&*connection, &GetServerInfoRequest)
        .map_err(failed(format!("ask {server} what it is (only Cellar's servers can be asked)")))?;
    let status = Status::new(server, &info);
    if context.format == crate::output::Format::Json {
        return context.format.done(&status, "");
    }
    let running = HumanDuration(Duration::from_secs(status.running_seconds.into()));
    line(format!("{server}: {}, running for {running}", status.version))?;
    context.format.rows(&status.partitions)
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
        }
    }
}
