//! `cellar stat deduplication`: savings and costs of sharing equal chunks.

use crate::commands::Context;
use crate::output::Row;
use afs_idl::cellar::{self, DeduplicationFigures, GetDeduplicationRequest};
use anyhow::Result;
use base::PartitionId;
use cell_client::Interface;
use cell_client::describe::failed;
use clap::Args;
use indicatif::{HumanBytes, HumanCount};
use serde::Serialize;
use std::net::Ipv4Addr;

/// Show the savings and costs of deduplication on each partition.
#[derive(Args)]
pub struct Deduplication {
    /// File server to query; defaults to the one in this machine's configuration, or else the first database
    /// server.
    #[arg(long)]
    on: Option<Ipv4Addr>,
}

/// Savings on one partition.
#[derive(Debug, PartialEq, Serialize)]
struct Savings {
    partition: String,
    /// Chunks of volumes with deduplication enabled.
    chunks: u64,
    /// Of these, the chunks with more than one reference.
    shared_chunks: u64,
    names: u64,
    stored_bytes: u64,
    saved_bytes: u64,
    row_bytes: u64,
    memory_bytes: u64,
}

impl Row for Savings {
    const COLUMNS: &'static [&'static str] =
        &["PARTITION", "CHUNKS", "SHARED", "NAMES", "STORED", "SAVED", "ROWS", "MEMORY"];

    fn cells(&self) -> Vec<String> {
        let count = |number: u64| HumanCount(number).to_string();
        let bytes = |number: u64| HumanBytes(number).to_string();
        vec![
            self.partition.clone(),
            count(self.chunks),
            count(self.shared_chunks),
            count(self.names),
            bytes(self.stored_bytes),
            bytes(self.saved_bytes),
            bytes(self.row_bytes),
            bytes(self.memory_bytes),
        ]
    }
}

/// Runs the command.
pub(super) fn run(context: &Context, asked: &Deduplication) -> Result<()> {
    let client = context.client()?;
    let server = asked.on.unwrap_or_else(|| context.default_server(&client));
    let connection = client.connection(server, Interface::Cellar);
    let reply = cellar::get_deduplication(&*connection, &GetDeduplicationRequest)
        .map_err(failed(format!("get deduplication savings of {server} (only from Cellar servers)")))?;
    context.format.rows(&reply.partitions.iter().map(row).collect::<Vec<_>>())
}

fn row(of: &DeduplicationFigures) -> Savings {
    let partition = PartitionId::from_index(of.partition);
    Savings {
        partition: partition.map_or_else(|| of.partition.to_string(), |partition| partition.to_string()),
        chunks: of.chunks,
        shared_chunks: of.shared_chunks,
        names: of.names,
        stored_bytes: of.stored_bytes,
        saved_bytes: of.saved_bytes,
        row_bytes: of.row_bytes,
        memory_bytes: of.memory_bytes,
    }
}
