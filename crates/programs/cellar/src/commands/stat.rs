//! `cellar stat`: statistics of a running server.

pub(crate) mod address;
pub(crate) mod again;
mod cluster;
mod columns;
mod deduplication;
pub(crate) mod figures;
pub(crate) mod tables;
pub(crate) mod transport;
pub(crate) mod xstat;

use super::Context;
use crate::output::{Row, line};
use afs_idl::ClientConnection;
use afs_idl::cellar::{self, CacheFigures, GetCacheStatisticsRequest};
use again::Again;
use anyhow::Result;
use cell_client::Interface;
use cell_client::describe::failed;
use clap::{Args, Subcommand};
use figures::{Show, share};
use indicatif::{HumanBytes, HumanCount};
use serde::Serialize;
use std::net::Ipv4Addr;

/// Show statistics of a running server.
#[derive(Subcommand)]
pub enum Stat {
    /// Show the sizes and hit rates of the server's caches, since its start and, with --interval, since the
    /// previous sample.
    Caches(Caches),
    /// Show a server as a node of a cluster: its lease, ownerships, requests to the bucket and forwarded calls, the
    /// traffic with each other node, and the last partitions that came to it or left it, with the time of each stage.
    Cluster(cluster::Clustered),
    /// Show the savings and costs of deduplication on each partition.
    Deduplication(deduplication::Deduplication),
    /// Show one of the server's tables.
    #[command(flatten)]
    Table(tables::TableRequest),
    /// Show the transport state of any Rx server or client, including OpenAFS's: version, counters,
    /// connections and peers, through rxdebug requests.
    Rx(transport::Transport),
    /// Show the extended statistics (xstat) of any file server or client, including OpenAFS's.
    Xstat(xstat::Xstat),
}

/// Show the sizes and hit rates of a server's caches.
#[derive(Args)]
pub struct Caches {
    /// File server to query; defaults to the one in this machine's configuration, or else the first database
    /// server.
    #[arg(long)]
    on: Option<Ipv4Addr>,
    #[command(flatten)]
    again: Again,
}

/// One cache: totals, and changes since the previous sample.
#[derive(Serialize)]
struct Cache {
    name: String,
    entries: u64,
    bytes: u64,
    peak_bytes: u64,
    limit_bytes: u64,
    hits: u64,
    misses: u64,
    evictions: u64,
    purged: u64,
    recycle_age_ms: u64,
    hits_since: u64,
    misses_since: u64,
    evictions_since: u64,
}

impl Row for Cache {
    const COLUMNS: &'static [&'static str] = &[
        "CACHE",
        "ENTRIES",
        "IN USE",
        "PEAK",
        "LIMIT",
        "HITS",
        "MISSES",
        "RATE",
        "EVICTED",
        "PURGED",
        "RECYCLE AGE",
        "+HITS",
        "+MISSES",
        "+RATE",
        "+EVICTED",
    ];

    fn cells(&self) -> Vec<String> {
        let count = |number: u64| HumanCount(number).to_string();
        let bytes = |number: u64| HumanBytes(number).to_string();
        vec![
            self.name.clone(),
            count(self.entries),
            bytes(self.bytes),
            bytes(self.peak_bytes),
            bytes(self.limit_bytes),
            count(self.hits),
            count(self.misses),
            rate(self.hits, self.misses),
            count(self.evictions),
            count(self.purged),
            age(self.recycle_age_ms),
            count(self.hits_since),
            count(self.misses_since),
            rate(self.hits_since, self.misses_since),
            count(self.evictions_since),
        ]
    }
}

/// Formats the share of hits among all lookups as a percentage with one decimal.
fn rate(hits: u64, misses: u64) -> String {
    Show::Share.text(share(hits, hits.saturating_add(misses)))
}

fn age(ms: u64) -> String {
    if ms == 0 { "-".to_owned() } else { format!("{}.{} s", ms / 1000, ms % 1000 / 100) }
}

/// Runs the command.
pub fn run(context: &Context, command: &Stat) -> Result<()> {
    match command {
        Stat::Caches(caches) => show_caches(context, caches),
        Stat::Cluster(asked) => cluster::run(context, asked),
        Stat::Deduplication(asked) => deduplication::run(context, asked),
        Stat::Table(asked) => tables::run(context, asked),
        Stat::Rx(transport) => transport::run(context, transport),
        Stat::Xstat(xstat) => xstat::run(context, xstat),
    }
}

fn show_caches(context: &Context, caches: &Caches) -> Result<()> {
    let client = context.observer()?;
    let server = caches.on.unwrap_or_else(|| context.default_server(&client));
    let connection = client.connection(server, Interface::Cellar);
    let mut before = look(&*connection, server)?;
    if caches.again.is_once() {
        return context.format.rows(&rows(&before, &before));
    }
    caches.again.each(|| {
        let now = look(&*connection, server)?;
        context.format.rows(&rows(&now, &before))?;
        if context.format == crate::output::Format::Text {
            line("")?;
        }
        before = now;
        Ok(())
    })
}

fn look(connection: &dyn ClientConnection, server: Ipv4Addr) -> Result<Vec<CacheFigures>> {
    let reply = cellar::get_cache_statistics(connection, &GetCacheStatisticsRequest).map_err(failed(
        format!("get cache statistics of {server} (only from Cellar servers, and not with --noauth)"),
    ))?;
    Ok(reply.caches)
}

/// A restarted server counts from zero.
fn rows(now: &[CacheFigures], before: &[CacheFigures]) -> Vec<Cache> {
    let row = |(now, before): (&CacheFigures, &CacheFigures)| Cache {
        name: now.name.to_string(),
        entries: now.entries,
        bytes: now.bytes,
        peak_bytes: now.peak_bytes,
        limit_bytes: now.limit_bytes,
        hits: now.hits,
        misses: now.misses,
        evictions: now.evictions,
        purged: now.purged,
        recycle_age_ms: now.recycle_age_ms,
        hits_since: now.hits.saturating_sub(before.hits),
        misses_since: now.misses.saturating_sub(before.misses),
        evictions_since: now.evictions.saturating_sub(before.evictions),
    };
    now.iter().zip(before).map(row).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_show_the_change_since_the_last_sample() {
        let before = [CacheFigures { hits: 10, misses: 5, ..CacheFigures::default() }];
        let now = [CacheFigures {
            name: "status".into(),
            hits: 19,
            misses: 6,
            recycle_age_ms: 1500,
            ..before[0].clone()
        }];
        let row = &rows(&now, &before)[0];
        assert_eq!((row.hits, row.hits_since, row.misses_since), (19, 9, 1));
        let cells = row.cells();
        assert_eq!((&cells[7][..], &cells[10][..], &cells[13][..]), ("76.0 %", "1.5 s", "90.0 %"));
        assert_eq!(rows(&before, &now)[0].hits_since, 0, "after a restart");
        assert_eq!(rate(0, 0), "-");
    }
}
